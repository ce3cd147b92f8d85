"""Safeguards of a programme: erasure, a second approval of larger budgets, a log of views, and rights by group.

*Erasure*: names of arms that left, and reasons given about them, are replaced by pseudonyms. Events hold seals of these
texts (`ledger`), so the chain verifies before and after. *Second approval*: a plan with more than the usual budget is
accepted only if another person approved it; a lasting raise is not usual for the person who made it. *Views*: who
looked at whom, in a table of its own, which is not part of the chain of events since reading changes no programme.
*Rights by group*: `GroupView`, a programme that shows and takes the arms of some groups alone.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, insert, select

from evenhand.errors import ConflictError, Fault, InvalidInputError, NotFoundError, UnknownNameError
from evenhand.model import quoted
from evenhand.programme import decisions, ledger, reports, roster, schema
from evenhand.programme.ledger import Result, append, change_rows, of_arm
from evenhand.programme.library import Library
from evenhand.programme.roster import RosterArm, present_step
from evenhand.programme.settings import add_setting, setting


@dataclass(frozen=True)
class SafeguardRules(Result):
    """Safeguards that are switched on."""

    second_approval: bool = False
    """Plans with more than the usual budget need the approval of another person."""

    log_views: bool = False
    """Who looks at the page or the history of an arm is logged."""


@dataclass(frozen=True)
class Erased(Result):
    """Result of an erasure."""

    event: int
    """The number of the event."""

    arms: tuple[str, ...]
    """Pseudonyms."""


@dataclass(frozen=True)
class Approved(Result):
    """Result of an approval."""

    event: int
    """The number of the event."""

    plan: int
    """Which plan."""

    by: str
    """Who approved it."""


@dataclass(frozen=True)
class View(Result):
    """A view of an arm."""

    at: str
    """Time."""

    who: str
    """Name of the holder."""

    arm: str
    """Present name of the arm."""


class Safeguards:
    """Erasure, approval and views."""

    def __init__(self, library: Library) -> None:
        """Use the store and models of a programme."""
        self._library, self._store = library, library.store

    def rules(self) -> SafeguardRules:
        """Return the safeguards that are switched on."""
        with self._store.reading() as tx:
            return rules_of(tx)

    def set_rules(self, rules: Mapping[str, bool | None], *, who: str = "", key: str | None = None) -> SafeguardRules:
        """Switch safeguards on or off; those that are not given, or None, stay.

        Args:
            rules: fields of `SafeguardRules`.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            UnknownNameError: there is no such safeguard.
        """
        for name in rules:
            if name not in asdict(SafeguardRules()):
                raise UnknownNameError("safeguard", name, list(asdict(SafeguardRules())))

        def do(tx: Connection) -> SafeguardRules:
            found = replace(rules_of(tx), **{name: value for name, value in rules.items() if value is not None})
            add_setting(tx, "safeguards", found.to_dict(), 0, append(tx, "safeguarded", who, found.to_dict()))
            return found

        return self._library.change(SafeguardRules, "safeguards", dict(rules), key, do)

    # Erasure

    def erase(
        self, names: Sequence[str] = (), *, older_than: int | None = None, who: str = "", key: str | None = None
    ) -> Erased:
        """Replace the names of arms that left, and the reasons given about them, by pseudonyms, for good.

        All else stays, under the pseudonym, so that audits and plans come out as before. Copies made earlier, by
        `backup` or by the database, still have the names.

        Args:
            names: of the arms.
            older_than: also all that left at least so many steps ago.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            TableError: some of them are unknown or still take part, or there is none.
            UnavailableError: it is erased, but traces are left in the files of the database.
        """
        find = partial(_erasable, names=list(names), older_than=older_than)

        def do(tx: Connection) -> Erased:
            arms = find(tx)
            return Erased(append(tx, "erased", who, {"arms": [of_arm(arm.id) for arm in arms]}), _erase(tx, arms))

        request = [len(names), older_than]  # without the names, which the store is about to forget
        found = self._library.change(Erased, "erase", request, key, do, find)
        self._store.scrub()
        return found

    # A second approval

    def approve(self, plan: int, *, who: str = "", key: str | None = None, holder: str = "") -> Approved:
        """Approve the plan of the present step, so that another person can accept it.

        Args:
            plan: its number.
            who: author, written into the event.
            key: idempotency key.
            holder: the name by which the author signed on; by default `who`.

        Raises:
            ConflictError: the plan is no longer proposed.
            InvalidInputError: the author is unknown.
        """
        person = holder or who
        if not _folded(person):
            raise InvalidInputError("who: an approval needs a name", argument="who")

        def do(tx: Connection) -> Approved:
            row = decisions.plan_row(tx, plan)
            if row.status != schema.PROPOSED:
                raise ConflictError(f"plan {plan} of step {row.step} is {row.status}: there is nothing to approve")
            event = append(tx, "approved", who, {"plan": plan, "step": row.step})
            change_rows(tx, schema.plans, [{"id": plan, "approved_by": person}])
            return Approved(event, plan, person)

        return self._library.change(Approved, "approve", [plan, person], key, do)

    def needs_approval(self, plan: int) -> bool:
        """Return whether some persons may not accept a plan without the approval of another one.

        Args:
            plan: its number.
        """
        with self._store.reading() as tx:
            return _is_larger(self._library, tx, decisions.plan_row(tx, plan), "")

    # Views

    def note_view(self, arm: str, who: str) -> None:
        """Log a view of an arm, if views are logged.

        Args:
            arm: its name.
            who: name of the holder.
        """
        table = schema.views
        with self._store.reading() as tx:
            if not rules_of(tx).log_views:
                return
            arms, wanted = schema.arms, _folded(arm)
            query = select(arms.c.id, arms.c.name).order_by(arms.c.name == arm, arms.c.id)
            numbers = [row.id for row in tx.execute(query) if _folded(row.name) == wanted]
        if numbers:  # the last: the same name, else one that is written almost like it
            with self._store.writing() as tx:
                row = {"id": ledger.next_id(tx, table), "at": ledger.now(), "who": who, "arm": numbers[-1]}
                tx.execute(insert(table).values(**row))

    def views(self, arm: str | None = None, most: int = 100) -> list[View]:
        """Views of arms, the newest first.

        Args:
            arm: only of this one.
            most: at most so many.
        """
        table, arms = schema.views, schema.arms
        query = select(table.c.at, table.c.who, arms.c.name).join(arms, arms.c.id == table.c.arm)
        query = query if arm is None else query.where(arms.c.name == arm)
        with self._store.reading() as tx:
            return [View(*row) for row in tx.execute(query.order_by(table.c.id.desc()).limit(most))]


def rules_of(tx: Connection) -> SafeguardRules:
    """Return the safeguards that are switched on."""
    return SafeguardRules(**(setting(tx, "safeguards", 0) or {}))


def check_approved(library: Library, tx: Connection, row: Any, person: str) -> None:
    """Refuse a plan with more than the usual budget without the approval of another person, if that is required.

    Args:
        library: models of the programme.
        tx: a transaction.
        row: of the plan.
        person: who is about to accept it.

    Raises:
        ConflictError: the approval is missing.
    """
    approved = _folded(person) and row.approved_by is not None and not _is_by(row.approved_by, person)
    if approved or not _is_larger(library, tx, row, person):
        return
    raise ConflictError(
        f"plan {row.id} has more than the usual budget: one person must approve it, and another one accept it",
        code="not-approved",
    )


def _is_larger(library: Library, tx: Connection, row: Any, person: str) -> bool:
    """Return whether a second approval is required and a plan has more than the usual budget.

    The usual budget is that of the model and of lasting changes. Changes by the person who accepts, and by unknown
    authors, lower it and do not raise it; those from before the approval was required count as they are.
    """
    if not rules_of(tx).second_approval:
        return False
    table, events, since = schema.settings, schema.events, 0
    rules = select(table.c.value_json, table.c.event).where(table.c.name == "safeguards").order_by(table.c.id)
    for value, event in tx.execute(rules):
        since = (since or event) if json.loads(value)["second_approval"] else 0
    model = library.model(tx, step=-1)[0]
    usual = model.budget.tolist()
    query = select(table.c.value_json, table.c.event, events.c.who).join(events, events.c.id == table.c.event)
    query = query.where(table.c.name == "budget", table.c.from_step <= row.step, *schema.valid(table))
    for value, event, who in tx.execute(query.order_by(table.c.from_step, table.c.id)):
        amounts = model.with_budget(json.loads(value)).budget.tolist()
        is_own = event > since and (not _folded(person) or not who or _is_by(who, person))
        usual = list(map(min, usual, amounts)) if is_own else amounts
    return any(there > most for there, most in zip(json.loads(row.budget_json), usual, strict=True))


def _is_by(who: str, person: str) -> bool:
    """Return whether an author is a person: by the same name but for case and blanks, or as the holder in brackets."""
    author, name = _folded(who), _folded(person)
    return author == name or author.endswith(f"({name})")


def _folded(name: str) -> str:
    return "".join(name.casefold().split())


# Erasure


def _erasable(tx: Connection, names: Sequence[str], older_than: int | None) -> list[RosterArm]:
    """Return every time that some arms took part, all of them over; also those of arms that left long ago."""
    arms, step = roster.arms_as_of(tx), present_step(tx)
    if older_than is not None:
        last, gone = step - roster.check_step(older_than), set(names)
        present = {arm.name for arm in arms if arm.left_step is None or arm.left_step > last}
        gone |= {arm.name for arm in arms if arm.name not in present and arm.name != _pseudonym(arm.id)}
        roster.raise_faults([] if gone else [Fault("", f"no arm left {older_than} steps ago or earlier")], "arms")
        names = list(gone)
    known = {arm.name for arm in roster.find_names(arms, names)}
    found = [arm for arm in arms if arm.name in known]
    present_ones = [arm for arm in found if arm.stays(step)]
    words = "takes part; it can be erased when it has left"
    roster.raise_faults([Fault("", f"arm {quoted(arm.name)} {words}") for arm in present_ones], "arms")
    return found


def _pseudonym(arm: int) -> str:
    return f"erased {arm}"


def _erase(tx: Connection, arms: Sequence[RosterArm]) -> tuple[str, ...]:
    """Replace names and reasons, and forget answers under keys that may name the arms; the pseudonyms."""
    numbers, events = [arm.id for arm in arms], set[int]()
    decided, plans = schema.decisions, schema.plans
    reasons: list[dict[str, Any]] = []
    for first in range(0, len(numbers), 500):
        part = numbers[first : first + 500]
        for table in (schema.observations, schema.records, schema.transfers):
            events.update(tx.execute(select(table.c.event).where(table.c.arm.in_(part)).distinct()).scalars())
        for column in (schema.arms.c.joined_event, schema.arms.c.left_event):
            events.update(tx.execute(select(column).where(schema.arms.c.id.in_(part))).scalars())
        query = select(decided.c.plan, decided.c.arm, plans.c.accepted_event).join(plans, plans.c.id == decided.c.plan)
        for row in tx.execute(query.where(decided.c.arm.in_(part), decided.c.why.is_not(None))):
            events.add(row.accepted_event)
            reasons.append({"plan": row.plan, "arm": row.arm, "why": "erased"})
    names = tuple(map(_pseudonym, numbers))
    rows = zip(numbers, names, strict=True)
    change_rows(tx, schema.arms, [{"id": number, "name": name, "left_why": "erased"} for number, name in rows])
    change_rows(tx, decided, reasons)
    keys = schema.keys
    own = re.compile(rf"(?<!\w)(?:{'|'.join(re.escape(arm.name) for arm in arms)})(?!\w)")
    blank: dict[str, Any] = {"request": "", "answer_json": ""}
    forgotten = [
        {"key": row.key} | blank
        for row in tx.execute(select(keys.c.key, keys.c.event, keys.c.answer_json).where(keys.c.request != ""))
        if row.event in events or any(map(own.search, _texts(json.loads(row.answer_json))))
    ]
    change_rows(tx, keys, forgotten)
    return names


def _texts(value: Any) -> Iterator[str]:
    """Yield every text within a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(one)


# Rights by group


NAMELESS = (
    *("bounds", "current_plan_number", "in_need", "last_served", "model", "needs_solving", "note_view", "num_recorded"),
    *("numbers", "offered", "overview", "plans", "recorded", "safeguards", "status", "unrecorded", "vocabulary"),
)
"""Methods of a programme that name no arm, or only those that they are given."""


class GroupView:
    """A programme that shows and takes the arms of some groups alone: by its own methods, and those of `NAMELESS`."""

    def __init__(self, programme: Any, groups: Collection[str], holder: str) -> None:
        """Limit a `Programme` to groups, for a holder who sees the events of its own."""
        self._programme, self._groups, self._holder = programme, groups, holder

    def __getattr__(self, name: str) -> Any:
        if name not in NAMELESS:
            raise AttributeError(f"{name} is not limited to groups")
        return getattr(self._programme, name)

    def arms(self, *which: Any, **options: Any) -> list[RosterArm]:
        """As of `Programme`."""
        return [arm for arm in self._programme.arms(*which, **options) if arm.group in self._groups]

    def history(self, arm: str) -> list[reports.HistoryEntry]:
        """As of `Programme`; of an arm that is or was last in one of the groups."""
        if not any(one.name == arm and one.group in self._groups for one in self._programme.arms(gone=True)):
            raise NotFoundError("unknown arm")
        found: list[reports.HistoryEntry] = self._programme.history(arm, self._groups)
        return found

    def plan_of(self, plan: int) -> decisions.StoredPlan:
        """As of `Programme`."""
        return self._own(self._programme.plan_of(plan))

    def current_plan(self) -> decisions.StoredPlan | None:
        """As of `Programme`."""
        found = self._programme.current_plan()
        return None if found is None else self._own(found)

    def _own(self, plan: decisions.StoredPlan) -> decisions.StoredPlan:
        return replace(plan, rows=tuple(row for row in plan.rows if row.group in self._groups))

    def changed_since(self, plan: int) -> list[Fault]:
        """As of `Programme`."""
        names = {"", *(arm.name for arm in self.arms(gone=True))}
        return [fault for fault in self._programme.changed_since(plan) if fault.place in names]

    def events(self, after: int = 0, most: int | None = None) -> list[ledger.Event]:
        """As of `Programme`; of the holder's own."""
        events, ending = self._programme.events(after, most), f" ({self._holder})"
        return [event for event in events if event.who == self._holder or event.who.endswith(ending)]

    def observe(self, rows: Any, source: str, **options: Any) -> reports.Observed:
        """As of `Programme`."""
        found: reports.Observed = self._programme.observe(rows, source, groups=self._groups, **options)
        return found

    def record(self, rows: Any, source: str, **options: Any) -> reports.Recorded:
        """As of `Programme`."""
        found: reports.Recorded = self._programme.record(rows, source, groups=self._groups, **options)
        return found

    def record_rest(self, plan: int, others: Mapping[str, str], source: str, **options: Any) -> reports.Recorded:
        """As of `Programme`, of the arms of the groups."""
        found: reports.Recorded = self._programme.record_rest(plan, others, source, groups=self._groups, **options)
        return found
