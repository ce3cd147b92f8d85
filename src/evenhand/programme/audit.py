"""Audit of a window of steps: service and waiting times, promised and realised rewards, overrides.

Promises, intervals and the test are in `expectations`. Values are mean rewards per step over the steps at which an
arm takes part; those of a group are means over all its arms and steps.

    served     an action that uses a resource was done
    wait       steps between two services, from the first step (or joining) to the first service, and from the last
               service to the end
    in need    in a state, observed or most likely, in which the fair relaxation of the roster serves the arm
    delay      steps from coming into need to service; a need that ends by itself is not counted, one that lasts at the
               end counts so far

Overrides count twice: in the decomposition of a group's value over the window, and one by one by the programme's own
criterion, as the value of the planned action minus that of the accepted one, if the arm continues by the relaxation.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from evenhand.checks import check_fraction, check_positive_int
from evenhand.display import FrameLibrary, as_frame, counted
from evenhand.evaluation.inequality import gini_coefficient
from evenhand.model.places import quoted
from evenhand.programme.audit_window import Models, Span
from evenhand.programme.belief import ALIKE
from evenhand.programme.expectations import (
    STRENGTHS,
    SUMS,
    Continuation,
    Tested,
    choose_strengths,
    continue_by,
    decompose,
    holm,
    p_values,
)
from evenhand.typing import Array, Bools, Floats, Ints

LEVEL = 0.95
"""Probability of intervals; the error probability of warnings is at most the rest."""

PARTS = 12
"""Parts of a window over time."""


@dataclass(frozen=True)
class Earned:
    """Promised and realised rewards, as means per step."""

    realised: float
    """Recorded rewards, else the model's of observed states and actions done."""
    promised: float
    """Promise of the plans."""
    lower: float
    """Lower end of the prediction interval."""
    upper: float
    """Upper end of the prediction interval."""
    overrides: float
    """Difference due to overrides."""
    undone: float
    """Difference due to decisions not carried out."""
    moves: float
    """Difference due to transitions better or worse than the model's."""
    rewards: float
    """Difference due to recorded rewards other than the model's."""


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
class ArmRow:
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

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

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
class OverrideRow:
    """An override and its cost."""

    step: int
    arm: str
    group: str
    planned: str
    accepted: str
    who: str
    why: str
    cost: float
    """Value of the planned action minus that of the accepted one."""


@dataclass(frozen=True)
class Unknown:
    """Missing information, counted in steps of arms unless noted."""

    steps: int
    """All of them."""
    unseen: int
    """Without an observation: the state distribution was propagated."""
    late: int
    """Observed after the plan was accepted."""
    corrected: int
    """Reported otherwise at first."""
    never_seen: int
    """Arms without any observation."""
    unconfirmed: int
    """Without a record of the action: taken as accepted."""
    without_reward: int
    """Without a recorded reward: the model's was taken."""
    impossible: int
    """Transitions of probability 0."""
    undone: int
    """Another action was done than accepted."""


@dataclass(frozen=True)
class Audit:
    """Audit of a window of steps."""

    first: int
    """First step."""
    last: int
    """Last step, inclusive."""
    event: int
    """Last event that is taken into account."""
    level: float
    """Probability of intervals."""
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
    unknown: Unknown
    continuation: str
    """Welfare of the relaxation by which arms continue."""
    models: int
    """Number of models in use, one after the other."""
    notes: tuple[str, ...] = field(default=())

    @property
    def override_cost(self) -> float:
        """Cost of all overrides."""
        return sum(row.cost for row in self.overrides)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Groups with a significant shortfall, in words."""
        return tuple(_warning(row) for row in self.groups if row.behind)

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
        more = {"override_cost": self.override_cost, "overrides_by": self.by_who(), "warnings": self.warnings}
        found: dict[str, Any] = _finite(asdict(self) | more)
        return found

    def __repr__(self) -> str:
        behind = counted(sum(row.behind for row in self.groups), "group")
        return f"Audit(steps {self.first} to {self.last}, {counted(len(self.arms), 'arm')}, {behind} behind)"


def _finite(value: Any) -> Any:
    """Replace undefined numbers by None, at any depth."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _warning(row: MemberRow) -> str:
    earned = row.earned
    cause = "transitions" if earned.moves <= earned.rewards else "recorded rewards"
    return (
        f"{quoted(row.name)} falls behind its promise beyond chance: {earned.realised:.3g} per step where "
        f"{earned.promised:.3g} was promised (p = {row.corrected:.2g}); mostly by {cause} worse than the model's"
    )


@dataclass(frozen=True, eq=False)
class Sums:
    """Accounts of arms over some steps."""

    account: dict[str, Floats]
    """(arm,) per name of `expectations.SUMS`."""
    evidence: Floats
    """(arm, strength) log E."""
    impossible: Ints
    """(arm,) transitions of probability 0."""
    served: Bools
    """(arm, step)"""
    need: Bools
    """(arm, step)"""
    mode: Ints
    """(arm, step) most likely state."""


class Books:
    """Accounts of a window, also of parts of it."""

    def __init__(self, span: Span, models: Models, welfare: str | None, level: float = LEVEL) -> None:
        """Prepare; accounts are computed on request.

        Args:
            span: records of the window.
            models: models by digest.
            welfare: welfare of the programme.
            level: probability of intervals.
        """
        self.span, self.models, self.welfare, self.level = span, models, welfare, level
        self._continuations: dict[str, Continuation] = {}
        self.groups = sorted({arm.group for arm in span.arms})
        self.types = sorted({arm.type for arm in span.arms})
        self.group = np.array([self.groups.index(arm.group) for arm in span.arms], dtype=np.int64)
        self.type = np.array([self.types.index(arm.type) for arm in span.arms], dtype=np.int64)

    def continuation(self, digest: str) -> Continuation:
        """Return the continuation under a model, by the relaxation of the arms present at first, kind by kind.

        The average roster would not do: arms may leave or join because of how they fared.
        """
        if digest not in self._continuations:
            model, words = self.models(digest)
            there = np.zeros((len(model.tables), self.span.num_steps), dtype=np.int64)
            np.add.at(there, words.blocks_of(self.span.arms), self.span.present)
            counts = there[np.arange(len(there)), (there > 0).argmax(axis=1)]
            self._continuations[digest] = continue_by(model, counts, self.welfare)
        return self._continuations[digest]

    def between(self, first: int, last: int) -> Sums:
        """Return the accounts of some steps. A promise holds until the model changes."""
        parts = [
            self._run(max(first, begin), min(last, end), digest)
            for begin, end, digest in self.span.runs()
            if begin <= last and end >= first
        ]
        return Sums(
            account={name: np.sum([part.account[name] for part in parts], axis=0) for name in SUMS},
            evidence=np.sum([part.evidence for part in parts], axis=0),
            impossible=np.sum([part.impossible for part in parts], axis=0),
            **{name: np.concatenate([getattr(part, name) for part in parts], axis=1)
               for name in ("served", "need", "mode")},
        )  # fmt: skip

    def _run(self, first: int, last: int, digest: str) -> Sums:
        continuation = self.continuation(digest)
        arms = self.span.trajectories(self.models(digest)[1], first, last)
        strengths = choose_strengths(continuation, arms, self.group, len(self.groups), 1 - self.level)
        found = decompose(continuation, arms, strengths)
        likely = found.probabilities
        mode = (likely >= likely.max(axis=2, keepdims=True) - ALIKE).argmax(axis=2)
        block = arms.block[:, None]
        served, need = continuation.model.tables.served[block, mode, arms.done], continuation.needs[block, mode]
        account = {name: getattr(found, name) for name in SUMS}
        return Sums(account, found.evidence, found.impossible, served, need, mode)

    def earned(self, sums: Sums, arms: Bools | Ints) -> Earned:
        """Return the means of some arms over their steps.

        Args:
            sums: accounts.
            arms: (arm,) mask, or indices.
        """
        total = {name: float(values[arms].sum()) for name, values in sums.account.items()}
        steps = max(total["steps"], 1.0)
        reach = float(ndtri(0.5 + self.level / 2) * np.sqrt(total["variance"] + total["reward_variance"]) / steps)
        promised = (total["expected"] + total["plans"]) / steps
        parts = {name: total[name] / steps for name in ("overrides", "undone", "moves", "rewards")}
        return Earned(total["realised"] / steps, promised, promised - reach, promised + reach, **parts)

    def tested(self, sums: Sums) -> list[Tested]:
        """Return the test of each group's shortfall."""
        own = [sums.evidence[self.group == number].sum(axis=0) for number in range(len(self.groups))]
        return holm(p_values([one if one.size else np.zeros(len(STRENGTHS)) for one in own]))


@dataclass(frozen=True)
class WindowPart:
    """Promised and realised rewards of groups in a part of a window."""

    first: int
    last: int
    """Last step, inclusive."""
    groups: dict[str, Earned]
    """Groups that took part."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def fairness_over_time(books: Books, parts: int = PARTS) -> tuple[WindowPart, ...]:
    """Return promised and realised rewards of groups by parts of a window.

    Args:
        books: accounts of the window, from `Programme.books`.
        parts: maximum number of parts, of equal length but for the last.
    """
    first, last = books.span.first, books.span.last
    size = -(-(last - first + 1) // check_positive_int(parts, "parts"))
    found = []
    for begin in range(first, last + 1, size):
        end = min(begin + size - 1, last)
        sums = books.between(begin, end)
        own = {name: books.group == number for number, name in enumerate(books.groups)}
        earned = {name: books.earned(sums, arms) for name, arms in own.items() if sums.account["steps"][arms].any()}
        found.append(WindowPart(begin, end, earned))
    return tuple(found)


def audit_of(books: Books) -> Audit:
    """Return the audit of a window.

    Args:
        books: its accounts.
    """
    span = books.span
    sums = books.between(span.first, span.last)
    waits = count_waits(span.present, sums.served, sums.need)
    tested = books.tested(sums)
    rows = tuple(_arm_row(books, sums, waits, number) for number in range(len(span.arms)))
    types = [_member(books, sums, waits, name, books.type == number) for number, name in enumerate(books.types)]
    groups = [
        _member(books, sums, waits, name, books.group == number, tested[number])
        for number, name in enumerate(books.groups)
    ]
    digests = list(dict.fromkeys(digest for _, _, digest in span.runs()))
    names, steps = [arm.name for arm in span.arms], np.array([float(row.service.steps) for row in rows])
    return Audit(
        first=span.first,
        last=span.last,
        event=span.event,
        level=books.level,
        arms=rows,
        types=tuple(types),
        groups=tuple(groups),
        service=_inequality(np.array([row.service.share for row in rows]), names, steps),
        value=_inequality(np.array([row.earned.realised for row in rows]), names, steps),
        group_value=_inequality(np.array([row.earned.realised for row in groups]), books.groups),
        overrides=_overrides(books, sums),
        unknown=_unknown(span, sums),
        continuation=books.continuation(digests[-1]).welfare,
        models=len(digests),
        notes=_notes(books, digests),
    )


@dataclass(frozen=True, eq=False)
class Waits:
    """Waiting times, (arm,) each."""

    served: Ints
    """Number of services."""
    longest: Ints
    """Longest wait."""
    waiting: Ints
    """Steps since the last service, at the end of its time in the window."""
    needs: Ints
    """Needs that ended by service or last at the end."""
    delay: Ints
    """Sum of their delays."""
    longest_delay: Ints
    in_need: Ints
    """Steps in need without service, at the end."""


def count_waits(present: Bools, served: Bools, need: Bools) -> Waits:
    """Count waits and delays.

    Args:
        present: (arm, step) whether it takes part.
        served: (arm, step) whether it is served.
        need: (arm, step) whether it is in need.
    """
    waiting, longest, spell, total, ended, longest_delay = np.zeros((6, len(present)), dtype=np.int64)
    for there, got, needy in zip(present.T, (served & present).T, (need & present).T, strict=True):
        longest = np.where(there, np.maximum(longest, waiting), longest)
        # `spell` counts steps in need, this one included: service at once ends a spell of 1, without delay.
        spell = np.where(there, np.where(needy, spell + 1, 0), spell)
        met = got & (spell > 0)
        total, ended = total + np.where(met, spell - 1, 0), ended + met
        longest_delay = np.where(met, np.maximum(longest_delay, spell - 1), longest_delay)
        waiting, spell = np.where(there, np.where(got, 0, waiting + 1), waiting), np.where(got, 0, spell)
    return Waits(
        served=(served & present).sum(axis=1),
        longest=np.maximum(longest, waiting),
        waiting=waiting,
        needs=ended + (spell > 0),
        delay=total + spell,
        longest_delay=np.maximum(longest_delay, spell),
        in_need=spell,
    )


def _service(sums: Sums, waits: Waits, arms: Bools | Ints) -> ServiceStats:
    steps, served = int(sums.account["steps"][arms].sum()), int(waits.served[arms].sum())
    needs = int(waits.needs[arms].sum())
    delay = float(waits.delay[arms].sum() / needs) if needs else None
    longest, late = int(waits.longest[arms].max(initial=0)), int(waits.longest_delay[arms].max(initial=0))
    return ServiceStats(steps, served, served / max(steps, 1), longest, needs, delay, late)


def _arm_row(books: Books, sums: Sums, waits: Waits, number: int) -> ArmRow:
    span, arm, own = books.span, books.span.arms[number], np.array([number])
    observed = span.texts["state"][number, span.columns][span.present[number]]
    seen, ends = sum(state is not None for state in observed), (int(waits.waiting[number]), int(waits.in_need[number]))
    service, earned = _service(sums, waits, own), books.earned(sums, own)
    return ArmRow(arm.name, arm.type, arm.group, arm.joined_step, arm.left_step, seen, *ends, service, earned)


def _member(books: Books, sums: Sums, waits: Waits, name: str, own: Bools, tested: Tested | None = None) -> MemberRow:
    p_value, corrected = (None, None) if tested is None else tested
    behind = corrected is not None and corrected <= 1 - books.level + 1e-12
    service, earned = _service(sums, waits, own), books.earned(sums, own)
    return MemberRow(name, int(own.sum()), service, earned, p_value, corrected, behind)


def _inequality(values: Floats, names: Sequence[str], steps: Floats | None = None) -> Inequality:
    coefficient = float(gini_coefficient(values))
    there = np.ones(len(values), bool) if steps is None else 2 * steps >= steps.max()
    worst = int(np.argmin(np.where(there, np.round(values, 12), np.inf)))  # the first of those equal up to rounding
    defined = coefficient if np.isfinite(coefficient) else None
    return Inequality(defined, float(values[worst]), names[worst], float(values.mean()))


def _overrides(books: Books, sums: Sums) -> tuple[OverrideRow, ...]:
    span, rows = books.span, []
    values = {digest: books.continuation(digest).long_run() for digest in dict.fromkeys(span.digests) if digest}
    for one in span.overrides:
        digest, arm = span.digests[one.step - span.since], span.arms[one.place]
        words = books.models(digest)[1]
        block = words.blocks[arm.type, arm.group]
        planned, accepted = (words.action_number(block, name) for name in (one.planned, one.accepted))
        value = values[digest][block, sums.mode[one.place, one.step - span.first]]
        cost = float(value[planned] - value[accepted])
        rows.append(OverrideRow(one.step, arm.name, arm.group, one.planned, one.accepted, one.who, one.why, cost))
    return tuple(rows)


def _unknown(span: Span, sums: Sums) -> Unknown:
    there = span.present
    done, accepted = (span.texts[name][:, span.columns] for name in ("done", "accepted"))
    seen, said = _given(span.texts["state"][:, span.columns]), _given(done)

    def count(cells: Bools) -> int:
        return int((cells & there).sum())

    return Unknown(
        steps=int(there.sum()),
        unseen=count(~seen),
        late=count(span.late[:, span.columns]),
        corrected=count(span.corrected[:, span.columns]),
        never_seen=int((~_given(span.texts["state"])).all(axis=1).sum()),
        unconfirmed=count(~said),
        without_reward=count(np.isnan(span.reward[:, span.columns])),
        impossible=int(sums.impossible.sum()),
        undone=count(said & (done != accepted)),
    )


def _given(texts: Array) -> Bools:
    return np.array([[text is not None for text in row] for row in texts.tolist()], dtype=np.bool_)


def _notes(books: Books, digests: Sequence[str]) -> tuple[str, ...]:
    notes = []
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


def check_level(level: object) -> float:
    """Return the probability of intervals, if valid."""
    return check_fraction(level, "level", below_one=True)
