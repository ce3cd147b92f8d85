"""Audit of a window of steps: service and waiting times, promised and realised rewards, overrides.

Promises, intervals and the test are in `expectations`. Values are mean rewards per step over the steps at which an
arm takes part; those of a group are means over all its arms and steps.

    served     an action that uses a resource was done
    wait       steps between two services, from the first step (or joining) to the first service, and from the last
               service to the end
    in need    in a state of need, observed or most likely: one that was set for the programme, else one with a promised
               longest wait, else one in which the fair relaxation of the roster serves the arm
    delay      steps from coming into need to service; a need that ends by itself is not counted, one that lasts at the
               end counts so far

Overrides count twice: in the decomposition of a group's value over the window, and one by one by the programme's own
criterion, as the value of the planned action minus that of the accepted one, if the arm continues by the relaxation.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from evenhand.checks import check_fraction
from evenhand.display import FrameLibrary, as_frame, counted
from evenhand.errors import Fault, InvalidInputError, NotConvergedError
from evenhand.evaluation.inequality import gini_coefficient
from evenhand.model import quoted
from evenhand.programme import expectations, schema
from evenhand.programme.audit_verdict import (
    BudgetDeviation,
    NeedRow,
    OverrideRow,
    ServiceRow,
    UndoneRow,
    UnservedRow,
    Verdict,
    compare_services,
    find_deviations,
    find_unserved,
    put_into_words,
)
from evenhand.programme.audit_window import LEVEL, Books, Earned, Span, WindowPart, count_waits, given, read_span
from evenhand.programme.belief import know
from evenhand.programme.decisions import PlanRow
from evenhand.programme.expectations import Account
from evenhand.programme.ledger import Result, append, last_event
from evenhand.programme.library import ROUTINE, Cache, Library
from evenhand.programme.named_model import Words
from evenhand.programme.settings import add_setting, setting, values_between
from evenhand.programme.vocabulary import Vocabulary
from evenhand.typing import Bools, Floats, Ints


@dataclass(frozen=True)
class ServiceStats:
    """Frequency and delay of service."""

    steps: int
    """Steps at which arms took part."""
    served: int
    share: float
    """Services per step."""
    longest_wait: int
    """Longest wait between services."""
    needs: int
    """Needs that ended by service or last at the end."""
    delay: float | None
    """Mean steps from need to service; None without a need."""
    longest_delay: int


@dataclass(frozen=True)
class ArmRow(Result):
    """Audit of one arm."""

    arm: str
    type: str
    group: str
    joined: int
    """First step at which it took part."""
    left: int | None
    """First step at which it no longer did."""
    seen: int
    """Steps at which it was observed."""
    waiting: int
    """Steps since its last service, at the end."""
    in_need: int
    """Steps in need, at the end."""
    service: ServiceStats
    earned: Earned

    def as_row(self) -> dict[str, Any]:
        """Row of a table: all numbers side by side."""
        own = self.to_dict()
        service, earned = own.pop("service"), own.pop("earned")
        return {**own, **service, **earned}


@dataclass(frozen=True)
class MemberRow:
    """Audit of a type or a group."""

    name: str
    arms: int
    """Number of arms that took part."""
    service: ServiceStats
    earned: Earned
    p_value: float | None
    """p-value of the shortfall; None for types, which are not tested."""
    corrected: float | None
    """p-value corrected for the number of groups (Holm)."""
    behind: bool
    """Whether the shortfall is significant."""
    detectable: float | None = None
    """Shortfall per step that the test finds with a probability of 80 %; None for types."""


@dataclass(frozen=True)
class Inequality:
    """Inequality of a quantity among arms or groups."""

    gini_coefficient: float | None
    """0 if all are equal; None if undefined."""
    worst: float
    """Least value."""
    worst_off: str
    """Its first owner; among arms, one that took part for at least half of the longest time."""
    mean: float


@dataclass(frozen=True)
class Audit(Result):
    """Audit of a window of steps."""

    first: int
    """First step."""
    last: int
    """Last step, inclusive."""
    event: int
    """Last event that is taken into account."""
    level: float
    """Probability of intervals."""
    need: tuple[str, ...]
    """States of need, in every type or as "type: state"."""
    need_by: str
    """Origin of the states of need: `set`, `promise` (of steps without one, the relaxation), or `relaxation`."""
    in_need: int
    """Number of arms that were in need at some step."""
    unserved: tuple[UnservedRow, ...]
    """Arms with a need that did not end by service, the longest first."""
    needs: tuple[NeedRow, ...]
    """Needs by group and state."""
    services: tuple[ServiceRow, ...]
    """Services by group, with prediction intervals."""
    budgets: tuple[BudgetDeviation, ...]
    """Steps planned with another budget than the usual one."""
    undone: tuple[UndoneRow, ...]
    """Decisions not carried out as accepted."""
    arms: tuple[ArmRow, ...]
    """Arms in the order in which they joined."""
    types: tuple[MemberRow, ...]
    groups: tuple[MemberRow, ...]
    service: Inequality
    """Of services per step, among arms."""
    value: Inequality
    """Of realised rewards, among arms."""
    group_value: Inequality
    """Of realised rewards, among groups."""
    overrides: tuple[OverrideRow, ...]
    unknown: dict[str, int]
    """Missing information, counted in steps of arms unless noted (`UNKNOWN`)."""
    continuation: str
    """Welfare of the relaxation by which arms continue."""
    models: int
    """Number of models in use, one after the other."""
    notes: tuple[str, ...]
    verdict: Verdict | None = None
    """The audit in sentences."""

    @property
    def override_cost(self) -> float:
        """Cost of all overrides."""
        return sum(row.cost for row in self.overrides)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Groups with a significant shortfall, in words."""
        found = []
        for row in self.groups:
            if row.behind:
                it = row.earned
                cause = "transitions" if it.moves <= it.rewards else "recorded rewards"
                got = f"{it.realised:.3g} per step where {it.promised:.3g} was promised (p = {row.corrected:.2g})"
                why = f"mostly by {cause} worse than the model's"
                found.append(f"{quoted(row.name)} falls behind its promise beyond chance: {got}; {why}")
        return tuple(found)

    def by_who(self) -> list[dict[str, Any]]:
        """Return number and cost of overrides per person, the most first."""
        found: dict[str, list[float]] = {}
        for row in self.overrides:
            found.setdefault(row.who, []).append(row.cost)
        rows = [{"who": name, "overrides": len(costs), "cost": sum(costs)} for name, costs in found.items()]
        return sorted(rows, key=lambda row: (-len(found[str(row["who"])]), str(row["who"])))

    def longest_waits(self, most: int = 10) -> tuple[ArmRow, ...]:
        """Return the arms still present that wait longest, by time in need, then by time since service.

        Args:
            most: maximum number of arms.
        """
        there = [row for row in self.arms if row.left is None or row.left > self.last]
        return tuple(sorted(there, key=lambda row: (-row.in_need, -row.waiting, row.arm))[:most])

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return a data frame with one row per arm.

        Args:
            library: `pandas` or `polars`; by default pandas if installed, else polars.
        """
        rows = [row.as_row() for row in self.arms]
        return as_frame({name: [row[name] for row in rows] for name in rows[0]}, library)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, with None for undefined numbers."""
        more = {"override_cost": self.override_cost, "overrides_by": self.by_who(), "warnings": list(self.warnings)}
        return super().to_dict() | more

    def __repr__(self) -> str:
        behind = counted(sum(row.behind for row in self.groups), "group")
        return f"Audit(steps {self.first} to {self.last}, {counted(len(self.arms), 'arm')}, {behind} behind)"


@lru_cache(maxsize=2)
def audit_of(books: Books) -> Audit:
    """Return the audit of a window.

    Args:
        books: its accounts.
    """
    span = books.span
    sums = books.between(span.first, span.last)
    waits = count_waits(span.present, sums["served"], sums["need"])

    def figures(arms: Bools | Ints) -> tuple[ServiceStats, Earned]:
        steps = int(sums["steps"][arms].sum())
        served, needs, delay = (int(waits[name][arms].sum()) for name in ("served", "needs", "delay"))
        longest, late = (int(waits[name][arms].max(initial=0)) for name in ("longest_wait", "longest_delay"))
        mean = delay / needs if needs else None
        return ServiceStats(steps, served, served / max(steps, 1), longest, needs, mean, late), books.earned(sums, arms)

    seen = (given(span.texts["state"][:, span.columns]) & span.present).sum(axis=1)
    rows = _arm_rows(books, sums, waits, seen)
    of_type, of_group = ([kind == n for n in range(kind.max() + 1)] for kind in (books.type, books.group))
    types = [
        MemberRow(name, int(own.sum()), *figures(own), None, None, behind=False)
        for name, own in zip(books.types, of_type, strict=True)
    ]
    found = expectations.p_values([sums["evidence"][own].sum(axis=0) for own in of_group])
    groups, level = [], 1 - books.level
    for name, own, p, corrected in zip(
        books.groups, of_group, found.tolist(), expectations.holm(found).tolist(), strict=True
    ):
        variance = sum(float(sums[kind][own].sum()) for kind in ("variance", "reward_variance"))
        short = expectations.detectable_shortfall(variance, len(of_group), level) / max(sums["steps"][own].sum(), 1)
        test = (p, corrected, corrected <= level + 1e-12, float(short))
        groups.append(MemberRow(name, int(own.sum()), *figures(own), *test))
    digests = list(dict.fromkeys(digest for _, _, digest in span.runs()))
    names, steps = [arm.name for arm in span.arms], sums["steps"]
    in_need, unserved, needs = find_unserved(books, sums)
    overrides, budgets, undone = find_deviations(books, sums)
    whole = Audit(
        first=span.first,
        last=span.last,
        event=books.event,
        level=books.level,
        need=tuple(dict.fromkeys(name for names in books.need[0].values() for name in names)),
        need_by=books.need[1],
        in_need=in_need,
        unserved=unserved,
        needs=needs,
        services=compare_services(books, sums),
        budgets=budgets,
        undone=undone,
        arms=tuple(rows),
        types=tuple(types),
        groups=tuple(groups),
        service=_inequality(np.array([row.service.share for row in rows]), names, steps),
        value=_inequality(np.array([row.earned.realised for row in rows]), names, steps),
        group_value=_inequality(np.array([row.earned.realised for row in groups]), books.groups),
        overrides=overrides,
        unknown=_unknown(span, sums),
        continuation=books.continuation(digests[-1]).welfare,
        models=len(digests),
        notes=_notes(books, digests),
    )
    return replace(whole, verdict=put_into_words(whole, books))


def _arm_rows(books: Books, sums: Account, waits: Mapping[str, Ints], seen: Ints) -> list[ArmRow]:
    """Return the audit of each arm, all at once: one by one takes a second for ten thousand of them."""
    counts = (sums["steps"].astype(np.int64), *(waits[name] for name in ("served", "longest_wait", "needs", "delay")))
    columns = (*counts, waits["longest_delay"], seen, waits["waiting"], waits["in_need"])
    means = [table.tolist() for table in books.means(sums).values()]
    rows = []
    for arm, numbers, earned in zip(
        books.span.arms, zip(*(one.tolist() for one in columns), strict=True), zip(*means, strict=True), strict=True
    ):
        steps, served, longest, needs, delay, late, observed, waiting, in_need = numbers
        mean = delay / needs if needs else None
        service = ServiceStats(steps, served, served / max(steps, 1), longest, needs, mean, late)
        about = (arm.name, arm.type, arm.group, arm.joined_step, arm.left_step)
        rows.append(ArmRow(*about, observed, waiting, in_need, service, Earned(*earned)))
    return rows


def _inequality(values: Floats, names: Sequence[str], steps: Floats | None = None) -> Inequality:
    coefficient = float(gini_coefficient(values))
    there = np.ones(len(values), bool) if steps is None else 2 * steps >= steps.max()
    worst = int(np.argmin(np.where(there, np.round(values, 12), np.inf)))  # the first of those equal up to rounding
    defined = coefficient if np.isfinite(coefficient) else None
    return Inequality(defined, float(values[worst]), names[worst], float(values.mean()))


def _unknown(span: Span, sums: Account) -> dict[str, int]:
    there = span.present
    done, accepted = (span.texts[name][:, span.columns] for name in ("done", "accepted"))
    seen, said = (given(table) for table in (span.texts["state"], done))

    def count(cells: Bools) -> int:
        return int((cells & there).sum())

    return {
        "steps": int(there.sum()),
        "unseen": count(~seen[:, span.columns]),
        "late": count(span.late[:, span.columns]),
        "corrected": count(span.corrected[:, span.columns]),
        "never_seen": int((~seen).all(axis=1).sum()),
        "unconfirmed": count(~said),
        "undone": count(said & (done != accepted)),
        "without_reward": count(np.isnan(span.reward[:, span.columns])),
        "impossible": int(sums["impossible"].sum()),
    }


UNKNOWN = {
    "unseen": ("Unobserved", "states: replaced by the belief from earlier reports and actions"),
    "late": ("Reported late", "states, after the plan was accepted"),
    "corrected": ("Corrected", "states: the last report counts here"),
    "never_seen": ("Never observed", "{arms}: they start as in the model"),
    "unconfirmed": ("Unconfirmed", "actions without a record: taken as accepted"),
    "undone": ("Done otherwise", "actions recorded as other than accepted"),
    "without_reward": ("Without a reward", "{steps} of {arms}: the model's reward is taken"),
    "impossible": ("Impossible", "moves that have probability 0 in the model: it is wrong, or the reports are"),
}
"""Title and meaning of each count of `Audit.unknown` but `steps`, the number of all steps of arms."""


def _notes(books: Books, digests: Sequence[str]) -> tuple[str, ...]:
    notes = list(books.span.changes)
    if len(digests) > 1:
        notes.append(f"{len(digests)} models were in use; a promise holds until the model changes")
    gone = sum(arm.left_step is not None and arm.left_step <= books.span.last for arm in books.span.arms)
    if gone:
        notes.append(
            f"{counted(gone, 'arm')} left within the window: promises end there, and intervals assume that leaving "
            "does not depend on states; warnings do not"
        )
    if books.welfare and books.continuation(digests[-1]).welfare != books.welfare:
        notes.append(f"the relaxation for {books.welfare} was not solved; arms continue by the utilitarian one")
    return tuple(notes)


@dataclass(frozen=True)
class NeedSet(Result):
    """Result of a change of the states of need."""

    event: int
    """The number of the event."""

    states: tuple[str, ...]
    """States of need; empty for the default."""


def read_need(words: Words, states: Sequence[str]) -> list[str]:
    """Return names of states without repetitions.

    Args:
        words: names of the model.
        states: names, each in every type that has it, or as "type: state".

    Raises:
        InvalidInputError: with every unknown state.
    """
    found = list(dict.fromkeys(states))
    faults = [Fault("need", f"{quoted(name)} is an unknown state") for name in found if not words.mask([name]).any()]
    if faults:
        known = ", ".join(dict.fromkeys(name for own in words.states for name in own))
        refusal = InvalidInputError("; ".join(map(str, faults)) + f". Known are {known}")
        refusal.faults = tuple(faults)
        raise refusal
    return found


def _need(tx: Connection, words: Words, event: int | None = None) -> tuple[Sequence[str], str]:
    """States of need and their origin, as of an event."""
    names = setting(tx, "need", 0, event)
    if names or words.promised:
        return (names, "set") if names else (words.promised, "promise")
    return (), "relaxation"


def _first_waits(tx: Connection, span: Span, words: Words) -> Ints:
    """(wait, arm) waiting times at the first step of a window by which plans decide; 0 for arms that join later."""
    found, there = np.zeros((2, len(span.arms)), dtype=np.int64), np.flatnonzero(span.present[:, 0])
    ends = {schema.plans: span.first, schema.records: span.first, schema.observations: min(span.first, 0)}
    earlier = (select(one.c.step).where(one.c.step < end, *schema.valid(one)).limit(1) for one, end in ends.items())
    if all(tx.execute(query).first() is None for query in earlier):
        return found
    arms = [span.arm_at(place, span.first) for place in there.tolist()]
    known = know(tx, words, arms, span.first, span.event)
    found[:, there] = [[row.waiting for row in known], [row.unserved for row in known]]
    return found


class Audits:
    """Audits of a span of steps, and waiting times."""

    def __init__(self, library: Library) -> None:
        """Use the store, models and policies of a programme."""
        self._library = library
        self._needs: Cache[list[Bools]] = Cache()  # empty without a relaxation

    def audit(
        self, first: int | None = None, last: int | None = None, *, event: int | None = None, level: float = LEVEL
    ) -> Audit:
        """Audit a window of steps: service and waiting times, promised and realised rewards.

        Args:
            first: the first step; by default the first that was accepted.
            last: the last step; by default the last that was accepted.
            event: as it was known at this event; by default now.
            level: the probability of intervals; warnings are wrong with at most the rest.

        Raises:
            InvalidInputError: no such steps were accepted.
        """
        books = self.books(first, last, event=event, level=level)
        return replace(audit_of(books), event=books.event)

    def books(
        self, first: int | None = None, last: int | None = None, *, event: int | None = None, level: float = LEVEL
    ) -> Books:
        """Return the accounts of a window; see `audit`.

        Args:
            first: the first step.
            last: the last step.
            event: as it was known at this event.
            level: the probability of intervals.
        """
        wanted = check_fraction(level, "level", below_one=True)
        with self._library.store.reading() as tx:
            passive = ("planned", "solved", "answered")
            about = (first, last, event, wanted)
            found = self._library.remember(tx, "books", lambda: self._books(tx, *about), about, passive)
            if event is None:
                found.event = last_event(tx)
            return found

    def _books(self, tx: Connection, first: int | None, last: int | None, event: int | None, wanted: float) -> Books:
        if event is None:  # what was read before goes on to hold while only reports are added
            earlier: list[Span] = self._library.remember(tx, "window", list, first, ROUTINE)
            span = read_span(tx, first, last, None, earlier[0] if earlier else None)
            earlier[:] = [span]
            parts = self._library.remember(tx, "parts", dict[tuple[int, int], WindowPart], (first, wanted), ROUTINE)
            for key in [key for key in parts if key[1] >= span.new_from]:
                del parts[key]
        else:
            span, parts = read_span(tx, first, last, event), {}
        welfare = self._library.welfare(tx, span.last, span.event)
        begun = {digest: begin for begin, _, digest in reversed(span.runs())}
        models = {
            digest: self._library.model(tx, digest, begun.get(digest, span.first), span.event)
            for digest in set(span.digests)
            if digest
        }
        for _, words in models.values():  # here, so that unknown names are reported as damage
            words.blocks_of(span.arms)
        plans = {digest: self._library.policy(tx, digest) for digest, *_ in set(span.policies) if digest}
        changed = [step for step, _ in values_between(tx, "max_wait", span.first + 1, span.last, span.event)]
        digests = zip(range(span.first, span.last + 1), span.digests[span.columns], strict=True)
        words_at = {
            step: self._library.model(tx, digest, step, span.event)[1]
            for step, digest in digests
            if step in (span.first, *changed, *begun.values())
        }
        by_step = {step: _need(tx, words, span.event) for step, words in words_at.items()}
        origin = next((origin for names, origin in by_step.values() if names), "relaxation")
        need = {step: names for step, (names, _) in by_step.items()}, origin
        vocabulary = Vocabulary.read(setting(tx, "words", 0, span.event))
        waits = _first_waits(tx, span, models[span.runs()[0][2]][1])
        later = next((words for words in words_at.values() if words.promised), None)
        promises = words_at, waits[0] if later is None else _first_waits(tx, span, later)[0]
        return Books(span, models, plans, welfare, need, vocabulary, waits, promises, wanted, parts)

    def need(self) -> tuple[str, ...]:
        """Return the states of need that were set; none if none were."""
        with self._library.store.reading() as tx:
            return tuple(setting(tx, "need", 0) or ())

    def set_need(self, states: Sequence[str], *, who: str = "", key: str | None = None) -> NeedSet:
        """Set the states in which an arm is in need, for audits and waiting times of all steps.

        Args:
            states: names, each in every type that has it, or as "type: state"; none returns to the default.
            who: author, written into the event.
            key: idempotency key.

        Raises:
            InvalidInputError: with every unknown state.
        """

        def do(tx: Connection) -> NeedSet:
            found = read_need(self._library.model(tx)[1], states)
            event = append(tx, "needed", who, {"states": found})
            add_setting(tx, "need", found, 0, event)
            return NeedSet(event, tuple(found))

        return self._library.change(NeedSet, "need", list(states), key, do)

    def in_need(self, rows: Sequence[PlanRow], step: int, most: int = 100) -> dict[int, int] | None:
        """Return for how many steps arms of a plan have been in need and not served, this one included, by number.

        States are those that each plan knew. Arms that are not in need are left out. None if the roster has no fair
        relaxation, since its floors are infeasible.

        Args:
            rows: of the plan.
            step: of the plan.
            most: maximum number of steps.
        """
        first = step - most
        with self._library.store.reading() as tx:
            words = self._library.model(tx)[1]
            blocks = {row.arm_id: words.blocks[row.type, row.group] for row in rows}
            names, origin = _need(tx, words)
            needs = words.mask(names) if origin != "relaxation" else self._needs_of(tx, words)
            if needs is None:
                return None
            past = self._library.decided(tx, blocks, first, step)
        found = {}
        for row in rows:
            arm, state = row.arm_id, words.state(blocks[row.arm_id], row.state)
            at, own = step, needs[blocks[arm]]
            if isinstance(state, int) and own[state]:
                while (before := past.get((arm, at - 1))) is not None and own[before[0]] and not before[1]:
                    at -= 1
                found[arm] = step + 1 - at
        return found

    def _needs_of(self, tx: Connection, words: Words) -> Bools | None:
        """(block, state) states of need, by the fair relaxation of the arms that take part now, if any; remembered."""
        model, welfare = tx.execute(select(schema.programme.c.model)).scalar_one(), self._library.welfare(tx)
        numbers = self._library.numbers(tx)
        if not numbers:
            return np.zeros(words.model.tables.rewards.shape[:2], dtype=bool)
        counts = np.zeros(len(words.model.tables), dtype=np.int64)
        for kind, group, many in numbers:
            counts[words.blocks[kind, group]] += many
        key = model, welfare, words.model.budget.tobytes(), tuple(counts.tolist())
        if (known := self._needs.get(key)) is None:
            found: list[Bools] = []
            with suppress(NotConvergedError):
                found = [expectations.continue_by(words.model, counts, welfare).needs]
            known = self._needs.add(key, found)
        return known[0] if known else None
