"""An audit: over a span of steps, who was served how often and how late, what was promised and what came of it.

What was promised, the intervals and the test are those of `promises`; waits and delays those of `waiting`. Values are
rewards of a step, on average over the steps at which an arm took part; those of a group are the mean over all its arms
and steps. An audit says what it did not know: steps at which an arm was not seen, actions that nobody confirmed.

Overrides are told twice. In the split of a group's value they count for the steps of the span. One by one they are
weighed by the programme's own criterion, from the state that is known now: what the planned action is worth less what
the chosen one is, if the arm goes on as the relaxation has it. That leaves out what others do with what is freed.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from evenhand.checks import check_fraction
from evenhand.display import FrameLibrary, as_frame, counted
from evenhand.evaluation.fairness import gini_coefficient
from evenhand.model.places import quoted
from evenhand.programme.knowing import ALIKE
from evenhand.programme.promises import (
    ACCOUNTS,
    STRENGTHS,
    Continuation,
    Tested,
    choose_strengths,
    continue_by,
    holm,
    keep_account,
    p_values,
)
from evenhand.programme.spans import Models, Override, Span
from evenhand.programme.waiting import Waits, count_waits
from evenhand.typing import Array, Bools, Floats, Ints

LEVEL = 0.95
"""The probability of intervals; warnings are wrong with at most the rest."""


# What is told


@dataclass(frozen=True)
class Earned:
    """What was promised and what came, as a mean over steps."""

    realised: float
    """What came: recorded rewards, else the model's of what was seen and done."""

    promised: float
    """What the plans promised."""

    lower: float
    """Where it lies by chance: from here"""

    upper: float
    """to here."""

    overrides: float
    """Of the difference: by deciding otherwise."""

    undone: float
    """By not doing what was decided."""

    moves: float
    """By moves that were better or worse than the model has them."""

    rewards: float
    """By recorded rewards that are other than the model's."""


@dataclass(frozen=True)
class Service:
    """How often and how late."""

    steps: int
    """Steps at which arms took part, added up over them."""

    served: int
    """How often they were served."""

    share: float
    """Of these steps."""

    longest_wait: int
    """The longest wait between services."""

    needs: int
    """How often they came into need and were served, or still are in need."""

    delay: float | None
    """Mean steps from need to service; None where nobody was in need."""

    longest_delay: int
    """The longest of them."""


@dataclass(frozen=True)
class ArmRow:
    """One arm."""

    arm: str
    """Its name."""

    type: str
    """Its type."""

    group: str
    """Its group."""

    joined: int
    """The first step at which it took part, ever."""

    left: int | None
    """The first at which it no longer did."""

    seen: int
    """Steps of the span at which it was seen."""

    waiting: int
    """Steps since it was last served, at the end."""

    in_need: int
    """Steps for which it has been in need, at the end."""

    service: Service
    """How often and how late it was served."""

    earned: Earned
    """What it was promised and what it got."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)

    def as_row(self) -> dict[str, Any]:
        """The same in one row of a table."""
        told = self.as_dict()
        return {**{name: told[name] for name in told if name not in ("service", "earned")}, **told["service"],
                **told["earned"]}  # fmt: skip


@dataclass(frozen=True)
class MemberRow:
    """The arms of one type, or of one group."""

    name: str
    """What it is called."""

    arms: int
    """How many took part."""

    service: Service
    """How often and how late they were served."""

    earned: Earned
    """What they were promised and what they got, on average."""

    p_value: float | None
    """How likely chance alone puts it as far behind its promise, at most; None for types, which are not tested."""

    corrected: float | None
    """The same with regard to all groups (Holm)."""

    behind: bool
    """Whether it fell behind its promise beyond chance."""


@dataclass(frozen=True)
class Inequality:
    """How unequal something is among arms or groups."""

    gini_coefficient: float | None
    """0 when all are equal; None where it is not defined."""

    worst: float
    """What the worst-off has."""

    worst_off: str
    """Who that is; of several the first. Of arms, one that was there at least half as long as the longest."""

    mean: float
    """The mean over all."""


@dataclass(frozen=True)
class OverrideRow:
    """One override and what it cost."""

    step: int
    """When."""

    arm: str
    """Which arm."""

    group: str
    """Its group."""

    planned: str
    """What the plan said."""

    accepted: str
    """What was decided."""

    who: str
    """Who decided so."""

    why: str
    """Why."""

    cost: float
    """What the planned action is worth more than the chosen one; negative for a gain."""


@dataclass(frozen=True)
class Unknown:
    """What the audit did not know."""

    steps: int
    """Steps of arms in all."""

    unseen: int
    """Of them, those at which the arm was not seen: its law was pushed forward."""

    late: int
    """Seen, but told after the plan was accepted."""

    corrected: int
    """Told otherwise at first."""

    never_seen: int
    """Arms that were never seen, as far as the audit looks."""

    unconfirmed: int
    """Steps of arms of which nobody recorded what was done: taken as accepted."""

    without_reward: int
    """Steps of arms whose reward was not recorded: the model's was taken."""

    impossible: int
    """Moves that the model holds impossible."""

    undone: int
    """Steps of arms at which something else was done than was accepted."""


@dataclass(frozen=True)
class Audit:
    """What became of a programme over a span of steps."""

    first: int
    """The first step."""

    last: int
    """The last one; it belongs to the span."""

    event: int
    """What was known at this event, and nothing later."""

    level: float
    """The probability of intervals."""

    arms: tuple[ArmRow, ...]
    """Arm by arm, in the order in which they joined."""

    types: tuple[MemberRow, ...]
    """Type by type."""

    groups: tuple[MemberRow, ...]
    """Group by group."""

    service: Inequality
    """The share of steps at which each arm was served."""

    value: Inequality
    """What each arm got a step."""

    group_value: Inequality
    """What each group got a step."""

    overrides: tuple[OverrideRow, ...]
    """One by one."""

    unknown: Unknown
    """What was not known."""

    continuation: str
    """The welfare of the relaxation by which arms go on."""

    models: int
    """How many models were in use, one after the other."""

    notes: tuple[str, ...] = field(default=())
    """What else there is to know, in words."""

    @property
    def override_cost(self) -> float:
        """What all overrides cost together."""
        return sum(row.cost for row in self.overrides)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Groups that fell behind beyond chance, in words."""
        return tuple(_warning(row) for row in self.groups if row.behind)

    def by_who(self) -> list[dict[str, Any]]:
        """Overrides by who decided so: how many, and what they cost together; the most first."""
        return _summed(self.overrides, "who")

    def longest_waits(self, most: int = 10) -> tuple[ArmRow, ...]:
        """Who of those still there waits longest: first by how long in need, then by how long not served.

        Args:
            most: at most so many.
        """
        there = [row for row in self.arms if row.left is None or row.left > self.last]
        return tuple(sorted(there, key=lambda row: (-row.in_need, -row.waiting, row.arm))[:most])

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row an arm.

        Args:
            library: `pandas` or `polars`; when absent pandas if it is installed, else polars.
        """
        rows = [row.as_row() for row in self.arms]
        return as_frame({name: [row[name] for row in rows] for name in rows[0]}, library)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; what is no number is None."""
        told = {**asdict(self), "override_cost": self.override_cost, "overrides_by": self.by_who()}
        plain: dict[str, Any] = _finite(told | {"warnings": self.warnings})
        return plain

    def __repr__(self) -> str:
        behind = counted(sum(row.behind for row in self.groups), "group")
        return f"Audit(steps {self.first} to {self.last}, {counted(len(self.arms), 'arm')}, {behind} behind)"


def _finite(told: Any) -> Any:
    """The same as JSON can hold it."""
    if isinstance(told, float):
        return told if np.isfinite(told) else None
    if isinstance(told, dict):
        return {key: _finite(value) for key, value in told.items()}
    return [_finite(value) for value in told] if isinstance(told, list | tuple) else told


def _warning(row: MemberRow) -> str:
    earned = row.earned
    rest = (("moves", earned.moves), ("recorded rewards", earned.rewards))
    cause = min(rest, key=lambda part: part[1])[0]
    return (
        f"{quoted(row.name)} falls behind its promise beyond chance: {earned.realised:.3g} a step where "
        f"{earned.promised:.3g} was promised (p = {row.corrected:.2g}); mostly by {cause} worse than the model's"
    )


def _summed(rows: Sequence[OverrideRow], by: str) -> list[dict[str, Any]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(getattr(row, by), []).append(row.cost)
    told = [{by: name, "overrides": len(costs), "cost": sum(costs)} for name, costs in found.items()]
    return sorted(told, key=lambda one: (-one["overrides"], one[by]))


# The books


@dataclass(frozen=True, eq=False)
class Sums:
    """Accounts over some steps, added up."""

    account: dict[str, Floats]
    """(arm,) each of `ACCOUNTS`."""

    evidence: Floats
    """(arm, strength)"""

    impossible: Ints
    """(arm,)"""

    served: Bools
    """(arm, step)"""

    need: Bools
    """(arm, step)"""

    mode: Ints
    """(arm, step) where it was, or most likely was."""


class Books:
    """The accounts of a span; parts of it can be asked for."""

    def __init__(self, span: Span, models: Models, welfare: str | None, level: float = LEVEL) -> None:
        """Keep what is needed.

        Args:
            span: what is known.
            models: a model by its digest.
            welfare: of the programme.
            level: of intervals and warnings.
        """
        self.span, self.models, self.welfare, self.level = span, models, welfare, level
        self._going_on: dict[str, Continuation] = {}
        self.groups = sorted({arm.group for arm in span.arms})
        self.types = sorted({arm.type for arm in span.arms})
        self.group = np.array([self.groups.index(arm.group) for arm in span.arms], dtype=np.int64)
        self.type = np.array([self.types.index(arm.type) for arm in span.arms], dtype=np.int64)

    def going_on(self, digest: str) -> Continuation:
        """How arms go on under a model: by the relaxation of those who are there at first, kind by kind.

        Not of those who are there on average: who leaves or joins later may do so because of how it went.
        """
        if digest not in self._going_on:
            model, words = self.models(digest)
            block = words.blocks_of(self.span.arms)
            there = np.zeros((len(model.tables), self.span.num_steps), dtype=np.int64)
            np.add.at(there, block, self.span.present)
            counts = there[np.arange(len(there)), (there > 0).argmax(axis=1)]
            self._going_on[digest] = continue_by(model, counts, self.welfare)
        return self._going_on[digest]

    def between(self, first: int, last: int) -> Sums:
        """The accounts of some steps. A promise holds until the model changes."""
        parts = [
            self._run(max(first, begin), min(last, end), digest)
            for begin, end, digest in self.span.runs()
            if begin <= last and end >= first
        ]
        return Sums(
            account={name: np.sum([part.account[name] for part in parts], axis=0) for name in ACCOUNTS},
            evidence=np.sum([part.evidence for part in parts], axis=0),
            impossible=np.sum([part.impossible for part in parts], axis=0),
            **{name: np.concatenate([getattr(part, name) for part in parts], axis=1)
               for name in ("served", "need", "mode")},
        )  # fmt: skip

    def _run(self, first: int, last: int, digest: str) -> Sums:
        going_on = self.going_on(digest)
        courses = self.span.courses(self.models(digest)[1], first, last)
        strengths = choose_strengths(going_on, courses, self.group, len(self.groups), 1 - self.level)
        found = keep_account(going_on, courses, strengths)
        mode = (found.laws >= found.laws.max(axis=2, keepdims=True) - ALIKE).argmax(axis=2)
        block = courses.block[:, None]
        return Sums(
            account={name: getattr(found, name) for name in ACCOUNTS},
            evidence=found.evidence,
            impossible=found.impossible,
            served=going_on.model.tables.served[block, mode, courses.done],
            need=going_on.needs[block, mode],
            mode=mode,
        )

    def earned(self, sums: Sums, arms: Bools | Ints) -> Earned:
        """The means of some arms over their steps.

        Args:
            sums: accounts.
            arms: (arm,) whether each is meant; or the numbers of those who are.
        """
        total = {name: float(values[arms].sum()) for name, values in sums.account.items()}
        steps = max(total["steps"], 1.0)
        spread = np.sqrt(total["variance"] + total["reward_variance"]) / steps
        reach = float(ndtri(0.5 + self.level / 2) * spread)
        promised = (total["expected"] + total["plans"]) / steps
        parts = {name: total[name] / steps for name in ("overrides", "undone", "moves", "rewards")}
        return Earned(total["realised"] / steps, promised, promised - reach, promised + reach, **parts)

    def tested(self, sums: Sums) -> list[Tested]:
        """(group,) whether each is behind its promise."""
        own = [sums.evidence[self.group == number].sum(axis=0) for number in range(len(self.groups))]
        return holm(p_values([one if one.size else np.zeros(len(STRENGTHS)) for one in own]))


def audit_of(books: Books) -> Audit:
    """The audit of a span.

    Args:
        books: its accounts.
    """
    span = books.span
    sums = books.between(span.first, span.last)
    waits = count_waits(span.present, sums.served, sums.need)
    tested = books.tested(sums)
    rows = tuple(_arm_row(books, sums, waits, number) for number in range(len(span.arms)))
    digests = list(dict.fromkeys(digest for _, _, digest in span.runs()))
    shares = np.array([row.service.share for row in rows])
    values = np.array([row.earned.realised for row in rows])
    steps = np.array([float(row.service.steps) for row in rows])
    names = [arm.name for arm in span.arms]
    groups = tuple(
        _member(books, sums, waits, name, books.group == number, tested[number])
        for number, name in enumerate(books.groups)
    )
    return Audit(
        first=span.first,
        last=span.last,
        event=span.event,
        level=books.level,
        arms=rows,
        types=tuple(
            _member(books, sums, waits, name, books.type == number, None) for number, name in enumerate(books.types)
        ),
        groups=groups,
        service=_inequality(shares, names, steps),
        value=_inequality(values, names, steps),
        group_value=_inequality(np.array([row.earned.realised for row in groups]), books.groups),
        overrides=_overrides(books, sums),
        unknown=_unknown(books, sums),
        continuation=books.going_on(digests[-1]).welfare,
        models=len(digests),
        notes=_notes(books, digests),
    )


def _service(sums: Sums, waits: Waits, arms: Bools | Ints) -> Service:
    steps, served, needs = int(sums.account["steps"][arms].sum()), int(waits.served[arms].sum()), waits.needs[arms]
    delay = float((waits.delay[arms][needs > 0] * needs[needs > 0]).sum() / needs.sum()) if needs.sum() else None
    longest, late = int(waits.longest[arms].max(initial=0)), int(waits.longest_delay[arms].max(initial=0))
    return Service(steps, served, served / max(steps, 1), longest, int(needs.sum()), delay, late)


def _arm_row(books: Books, sums: Sums, waits: Waits, number: int) -> ArmRow:
    arm, own = books.span.arms[number], np.array([number])
    there = books.span.present[number]
    seen = sum(state is not None for state in books.span.texts["state"][number, books.span.columns][there])
    return ArmRow(
        arm=arm.name,
        type=arm.type,
        group=arm.group,
        joined=arm.joined_step,
        left=arm.left_step,
        seen=seen,
        waiting=int(waits.waiting[number]),
        in_need=int(waits.in_need[number]),
        service=_service(sums, waits, own),
        earned=books.earned(sums, own),
    )


def _member(books: Books, sums: Sums, waits: Waits, name: str, own: Bools, tested: Tested | None) -> MemberRow:
    service, earned = _service(sums, waits, own), books.earned(sums, own)
    p_value, corrected = (None, None) if tested is None else tested
    behind = corrected is not None and corrected <= 1 - books.level + 1e-12
    return MemberRow(name, int(own.sum()), service, earned, p_value, corrected, behind)


def _inequality(values: Floats, names: Sequence[str], steps: Floats | None = None) -> Inequality:
    """How unequal values are; given the steps of each, the worst-off was there at least half as long as the longest."""
    coefficient = float(gini_coefficient(values))
    there = np.ones(len(values), bool) if steps is None else 2 * steps >= steps.max()
    # Of those who are equal but for rounding, the first.
    worst = int(np.argmin(np.where(there, np.round(values, 12), np.inf)))
    defined = coefficient if np.isfinite(coefficient) else None
    return Inequality(defined, float(values[worst]), names[worst], float(values.mean()))


def _overrides(books: Books, sums: Sums) -> tuple[OverrideRow, ...]:
    worth = {digest: books.going_on(digest).long_run() for digest in dict.fromkeys(books.span.digests) if digest}
    return tuple(_override(books, sums, worth, one) for one in books.span.overrides)


def _override(books: Books, sums: Sums, worth: dict[str, Floats], one: Override) -> OverrideRow:
    digest = books.span.digests[one.step - books.span.since]
    words = books.models(digest)[1]
    block = words.blocks[one.type, one.group]
    state = sums.mode[one.place, one.step - books.span.first]
    names = words.actions(block)
    gains = worth[digest][block, state]
    cost = float(gains[names.index(one.planned)] - gains[names.index(one.accepted)])
    return OverrideRow(one.step, one.arm, one.group, one.planned, one.accepted, one.who, one.why, cost)


def _unknown(books: Books, sums: Sums) -> Unknown:
    span, there = books.span, books.span.present
    state, done, accepted = (span.texts[name][:, span.columns] for name in ("state", "done", "accepted"))
    seen, said = (_told(table) for table in (state, done))
    otherwise = said & (done != accepted) & there
    return Unknown(
        steps=int(there.sum()),
        unseen=int((~seen & there).sum()),
        late=int((span.late[:, span.columns] & there).sum()),
        corrected=int((span.corrected[:, span.columns] & there).sum()),
        never_seen=int((~_told(span.texts["state"])).all(axis=1).sum()),
        unconfirmed=int((~said & there).sum()),
        without_reward=int((np.isnan(span.reward[:, span.columns]) & there).sum()),
        impossible=int(sums.impossible.sum()),
        undone=int(otherwise.sum()),
    )


def _told(texts: Array) -> Bools:
    """(arm, step) whether anything was told."""
    return np.array([[text is not None for text in row] for row in texts.tolist()], dtype=np.bool_)


def _notes(books: Books, digests: Sequence[str]) -> tuple[str, ...]:
    told = []
    if len(digests) > 1:
        told.append(f"{len(digests)} models were in use; a promise holds until the model changes")
    gone = sum(arm.left_step is not None and arm.left_step <= books.span.last for arm in books.span.arms)
    if gone:
        told.append(
            f"{counted(gone, 'arm')} left within the span: promises are for the steps until then, and intervals "
            "take it that leaving had nothing to do with conditions; warnings do not"
        )
    asked = books.welfare
    if asked and books.going_on(digests[-1]).welfare != asked:
        told.append(f"the relaxation for {asked} was not solved; arms go on by that of the mean")
    return tuple(told)


def check_level(level: object) -> float:
    """The probability of intervals that somebody asked for."""
    return check_fraction(level, "level", below_one=True)
