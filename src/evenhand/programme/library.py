"""Models and policies of a programme, by digest, with a cache of those read last; changes under idempotency keys."""

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar, cast

import numpy as np
from sqlalchemy import Connection, bindparam, func, or_, select

from evenhand.errors import InvalidInputError
from evenhand.model import CoupledMDP, as_table
from evenhand.model.io.text_table import Table
from evenhand.planning import Plan, load_plan
from evenhand.programme import ledger, roster, schema
from evenhand.programme.belief import decided_between
from evenhand.programme.certificates import Numbers, numbers_of
from evenhand.programme.ledger import Result, answered, as_text, digest_of, once
from evenhand.programme.named_model import Words, from_bytes, of_roster, with_kinds, with_promises
from evenhand.programme.settings import promises_at, setting
from evenhand.programme.store import Store
from evenhand.programme.vocabulary import NOUNS, Vocabulary, has_own_heads
from evenhand.typing import Ints

TERMS = ("budget", "welfare", "max_wait")
"""Settings that policies are solved for."""

ROUTINE = ("observed", "recorded", "planned", "accepted", "solved", "answered")
"""Kinds of events that leave the roster as it is."""

WITHIN_STEP = ("observed", "recorded", "planned", "solved", "answered")
"""Kinds of events that leave roster, model, settings and step as they are."""

BETWEEN_SOLVES = tuple(kind for kind in ROUTINE if kind != "solved")
"""Kinds of events that leave roster and policies as they are."""

_MODEL = select(schema.programme.c.model)
_WELFARE = select(schema.programme.c.welfare)
_HAS_TERMS = select(schema.settings.c.id).where(schema.settings.c.name.in_(list(TERMS))).limit(1)
_CHAIN = select(schema.events.c.chain).where(schema.events.c.id == bindparam("id"))
_LAST_OF_KINDS = (
    select(schema.events.c.kind, func.max(schema.events.c.id).label("id"))
    .where(schema.events.c.id > bindparam("id"))
    .group_by(schema.events.c.kind)
)
_OTHERS = select(schema.events.c.id).where(
    schema.events.c.id > bindparam("id"), schema.events.c.kind.not_in(bindparam("kinds", expanding=True))
)

T = TypeVar("T")
R = TypeVar("R", bound=Result)


class Cache(Generic[T]):
    """The last few values by key, shared by threads."""

    def __init__(self, size: int = 8) -> None:
        """Begin empty, with room for some values."""
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._size = size

    def get(self, key: Hashable) -> T | None:
        """Return the value of a key; None if it is unknown, or no longer known."""
        return self._values.get(key)

    def add(self, key: Hashable, value: T) -> T:
        """Add a value, and return it; the oldest is dropped."""
        self._values[key] = value
        while len(self._values) > self._size:
            self._values.popitem(last=False)
        return value


@dataclass(frozen=True)
class Course:
    """Events from some number on, up to one of them, as far as what was remembered depends on them."""

    head: tuple[int, str]
    """Number and digest of the last event."""

    last: Mapping[str, int]
    """Number of the last event of each kind; kinds without an event since `begin` are missing."""

    begin: object
    """The same for two courses of which one continues the other."""

    def continues(self, earlier: "Course", passive: Sequence[str]) -> bool:
        """Return whether it leads on from an earlier one by events of some kinds alone."""
        since = earlier.head[0]
        return self.begin is earlier.begin and all(at <= since or kind in passive for kind, at in self.last.items())


class Library:
    """Store of a programme, with its models and policies."""

    def __init__(self, store: Store) -> None:
        """Use an open store."""
        self.store = store
        self._models: Cache[tuple[CoupledMDP, Words]] = Cache()
        self._policies: Cache[Plan] = Cache()
        self._values: dict[str, tuple[Course, Hashable, Any]] = {}
        self._course, self._heads, self._lock = Course((0, ""), {}, object()), Cache[bool](1000), Lock()
        self._evidence: Cache[Ints] = Cache()

    def model(
        self, tx: Connection, digest: str | None = None, step: int | None = None, event: int | None = None
    ) -> tuple[CoupledMDP, Words]:
        """Return a model with its names, and with the budget, promises and groups that were settled since.

        Args:
            tx: a transaction.
            digest: of the model; by default the one in use.
            step: at which they hold; by default the present one.
            event: as of this event; by default now.
        """
        if digest is None and step is None and event is None:
            return self.remember(tx, "model", lambda: self._model(tx, None, None, None), None, WITHIN_STEP)
        return self._model(tx, digest, step, event)

    def _model(
        self, tx: Connection, digest: str | None, step: int | None, event: int | None
    ) -> tuple[CoupledMDP, Words]:
        wanted = digest or str(ledger.run(tx, _MODEL).fetchone()[0])
        terms, kinds = self.terms(tx, step, event), setting(tx, "kinds", 0) or []
        budget, promises = terms.get("budget"), terms.get("max_wait", [])
        key = wanted, as_text([budget, promises, kinds])
        known = self._models.get(key)
        if known is not None:
            return known
        body = tx.execute(select(schema.models.c.body).where(schema.models.c.digest == wanted)).scalar_one()
        model = with_kinds(from_bytes(body), kinds)
        model = with_promises(model if budget is None else model.with_budget(budget), promises)
        return self._models.add(key, (model, Words(model)))

    def terms(self, tx: Connection, step: int | None = None, event: int | None = None) -> dict[str, Any]:
        """Return the lasting changes in force at a step: budget, welfare and promised waits, if they were changed.

        Args:
            tx: a transaction.
            step: by default the present one.
            event: as of this event; by default now.
        """
        if step is None and event is None:
            return self.remember(tx, "terms", lambda: self._terms(tx, None, None), None, WITHIN_STEP)
        return self._terms(tx, step, event)

    def _terms(self, tx: Connection, step: int | None, event: int | None) -> dict[str, Any]:
        if tx.execute(_HAS_TERMS).first() is None:
            return {}
        at = roster.present_step(tx, event) if step is None else step
        found = {name: setting(tx, name, at, event) for name in ("budget", "welfare")}
        found["max_wait"] = promises_at(tx, at, event) or None
        return {name: value for name, value in found.items() if value is not None}

    def welfare(self, tx: Connection, step: int | None = None, event: int | None = None) -> str | None:
        """Return the welfare in force at a step, by default the present one; as of an event, or now."""
        own: str | None = ledger.run(tx, _WELFARE).fetchone()[0]
        return self.terms(tx, step, event).get("welfare", own)

    def terms_digest(self, tx: Connection) -> str:
        """Digest of budget, welfare and promises in force; policies that were solved for others do not serve."""

        def compute() -> str:
            return digest_of([self.model(tx)[0].named_budget, self.welfare(tx), self.terms(tx).get("max_wait")])

        return self.remember(tx, "digest of terms", compute, None, WITHIN_STEP)

    def evidence(self, tx: Connection, digest: str) -> Ints:
        """(block, state, action) number of observations behind a model, -1 if unknown.

        They are those of the fit that the programme began with, and those of the refit by which the model was made.
        """
        words = self.model(tx, digest)[1]
        key = digest, len(words.model.tables)  # groups may have been added
        if (known := self._evidence.get(key)) is not None:
            return known
        counts = np.full(words.model.tables.rewards.shape, -1, dtype=np.int64)
        query = select(schema.refits.c.facts_json).where(schema.refits.c.model == digest)
        facts = tx.execute(query.order_by(schema.refits.c.id.desc()).limit(1)).scalar()
        moved = (
            {}
            if facts is None
            else {(m["type"], m["state"], m["action"]): m["seen"] for m in json.loads(facts)["moved"]}
        )
        refitted = {kind for kind, _, _ in moved}
        created = setting(tx, "evidence", 0) or {}
        for block, (label, kind) in enumerate(zip(words.model.tables.labels, words.fit_types, strict=True)):
            fitted = created.get(label[0])
            if fitted is None and kind not in refitted:
                continue
            for s, state in enumerate(words.states[block]):
                for a, action in enumerate(words.actions[block]):
                    first = 0 if fitted is None else fitted.get(state, {}).get(action, 0)
                    counts[block, s, a] = first + moved.get((kind, state, action), 0)
        return self._evidence.add(key, counts)

    def vocabulary(self, tx: Connection, most: int = 500) -> Vocabulary:
        """Return the words and the calendar, with the names that contain a term of the library.

        Args:
            tx: a transaction.
            most: number of names of arms.
        """
        return self.remember(tx, "vocabulary", lambda: self._vocabulary(tx, most), most, ROUTINE)

    def _vocabulary(self, tx: Connection, most: int) -> Vocabulary:
        found = Vocabulary.read(setting(tx, "words", 0))
        if found.is_plain:
            return found
        name, (model, words) = schema.arms.c.name, self.model(tx)
        has_term = or_(*(func.lower(name).like(f"%{term}%") for term in NOUNS))
        names = list(tx.execute(select(name).where(has_term).distinct().limit(most)).scalars())
        names += [tx.execute(select(schema.programme.c.name)).scalar_one(), *model.resource_names]
        names += [name for each in (words.blocks, words.states, words.actions) for listed in each for name in listed]
        return found.with_names(names)

    def table(self, given: Any) -> Table:
        """Return a table whose heads are the library's terms or the programme's own, with the library's."""
        table = as_table(given)
        if not has_own_heads(table):
            return table
        with self.store.reading() as tx:
            return self.vocabulary(tx).columns(table)

    def policy(self, tx: Connection, digest: str) -> Plan:
        """Return a policy with the problem it was solved for."""
        known = self._policies.get(digest)
        if known is not None:
            return known
        body = tx.execute(select(schema.policies.c.body).where(schema.policies.c.digest == digest)).scalar()
        if body is None:
            raise InvalidInputError(f"{self.store.address}: policy {digest} does not exist")
        return self._policies.add(digest, load_plan(body))

    def remember(
        self, tx: Connection, slot: str, compute: Callable[[], T], about: Hashable = None, passive: Sequence[str] = ()
    ) -> T:
        """Return a value that follows from the store, computed again only if events were written since.

        Args:
            tx: a transaction.
            slot: name of the value; the last one is stored.
            compute: computes it.
            about: arguments of the value.
            passive: kinds of events that do not change it.
        """
        now = self._course_of(tx)
        if now is None:
            return compute()
        known = self._values.get(slot)
        is_valid = known is not None and known[1] == about and now.continues(known[0], passive)
        value = known[2] if known is not None and is_valid else compute()
        self._values[slot] = now, about, value
        return cast(T, value)

    def _course_of(self, tx: Connection) -> Course | None:
        """Return the events up to the last one; None if the transaction began one, or another saw later ones."""
        head = ledger.head(tx)
        if not head[1]:
            return None
        with self._lock:
            then = self._course
            if head == then.head:
                return then
            if head[0] < then.head[0] and self._heads.get(head):
                return None
            # Numbers of events may come again, under another digest, if a copy was restored.
            chain = ledger.run(tx, _CHAIN, {"id": then.head[0]}).fetchone()
            if chain is not None and chain[0] == then.head[1]:
                new = {row.kind: row.id for row in ledger.fetch(tx, _LAST_OF_KINDS, id=then.head[0])}
                self._course = Course(head, {**then.last, **new}, then.begin)
            else:
                self._course = Course(head, {}, object())
            self._heads.add(head, True)
            return self._course

    def decided(
        self, tx: Connection, blocks: Mapping[int, int], first: int, step: int
    ) -> dict[tuple[int, int], tuple[int, bool]]:
        """Return `belief.decided_between` of arms; the last answer is remembered."""
        words, about = self.model(tx)[1], (tuple(blocks.items()), first, step)
        passive = ("observed", "planned", "solved", "answered")
        return self.remember(tx, "decided", lambda: decided_between(tx, words, blocks, first, step), about, passive)

    def only(self, tx: Connection, since: int, kinds: Sequence[str] = ROUTINE) -> bool:
        """Return whether only events of some kinds were written after an event; by default of `ROUTINE`."""
        return tx.execute(_OTHERS, {"id": since, "kinds": list(kinds)}).first() is None

    def taking_part(self, tx: Connection, step: int) -> list[roster.RosterArm]:
        """Return the arms that take part at a step, in the order in which they joined."""
        return self.remember(tx, "roster", lambda: roster.taking_part(tx, step), step, ROUTINE)

    def numbers(self, tx: Connection) -> Numbers:
        """Return the number of arms of each type and group at the present step."""
        step = roster.present_step(tx)
        return self.remember(tx, "numbers", lambda: numbers_of(self.taking_part(tx, step)), step, ROUTINE)

    def present(self, tx: Connection) -> list[roster.RosterArm]:
        """Return the arms that take part at the present step.

        Raises:
            InvalidInputError: there are none.
        """
        step = roster.present_step(tx)
        arms = self.taking_part(tx, step)
        if not arms:
            raise InvalidInputError(f"no arm takes part at step {step}")
        return arms

    def problem(self, tx: Connection, arms: Sequence[roster.RosterArm], model: str | None = None) -> CoupledMDP:
        """Return the problem of some arms."""
        settled, words = self.model(tx, model)
        return of_roster(settled, words.blocks_of(arms), self.welfare(tx))

    def change(
        self,
        answer: type[R],
        kind: str,
        request: Any,
        key: str | None,
        do: Callable[[Connection], R],
        check: Callable[[Connection], object] | None = None,
        size: int | None = None,
        few: int = 10,
    ) -> R:
        """Change the programme in one transaction, at most once under a key.

        Args:
            answer: class of the answer.
            kind: kind of the change.
            request: the whole request as JSON values.
            key: idempotency key.
            do: makes the change.
            check: raises all faults; called before the lock is taken, so that an invalid table does not hold up others.
            size: rows of the table, if known.
            few: rows that are checked by `do` alone, which takes half the time.
        """
        if check is not None and (size is None or size > few):
            self.check_first(key, kind, request, check)
        with self.store.writing() as tx:
            if key is None:
                return do(tx)
            return answer.of(once(tx, key, kind, request, lambda: do(tx).to_dict()))

    def check_first(self, key: str | None, kind: str, request: Any, check: Callable[[Connection], object]) -> None:
        """Check a request that was not yet answered under its key, in a transaction that takes no lock."""
        with self.store.reading() as tx:
            if answered(tx, key, kind, request) is None:
                check(tx)
