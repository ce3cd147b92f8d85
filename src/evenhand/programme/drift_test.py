"""Drift: bounds for roster and model, and a sequential test of the model.

Numbers drift when arms come and go (`certificates.drifted`). A model drifts if arms no longer move by it, which is
tested on every *move*: an arm observed in a state, the actions since, and its next observed state. Moves with the same
type, first state and actions form one *row* r with the model's distribution p_r. The evidence against the model is the
likelihood ratio of alternatives that are fixed beforehand:

    E_r(k) = mean over c in SCALES of  DirichletMultinomial(counts; c p_r) / Multinomial(counts; p_r)
    E(k)   = product over r of  (1 - 1/R) + E_r(k) / R          R the pairs of state and action that the model has
    E      = sum over k of  w_k E(k) + the weights that are left,       w_k = 1 / ((k + 1)(k + 2))

with the counts of moves that ended k steps after the model came into use or later, since a change may occur at any step
and in any row. Moves that ended before and were reported after it came into use count for k = 0. Moves that the model
excludes are one more row, in which a share of `ERRORS` is attributed to errors of reporting:

    E_0(k) = mean over θ in {2, 4, 8, ...} ERRORS of  Binomial(excluded; θ) / Binomial(excluded; ERRORS)

If the model is right each factor has mean 1 at most, given all before, whichever actions were chosen. So E is a
nonnegative supermartingale that begins at 1, and ever exceeds 1/level with probability at most `level` (Ville, 1939):
the test may be repeated at any time. Late reports are harmless unless their content makes them late. Reports that
change counted moves (corrections, and observations between two others) begin another such E, with the same bound.

Reference: Ramdas, Grünwald, Vovk, Shafer (2023), Game-theoretic statistics and safe anytime-valid inference.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from scipy.special import gammaln, logsumexp, xlogy
from sqlalchemy import Connection, select

from evenhand.display import counted
from evenhand.errors import InvalidInputError
from evenhand.model import quoted
from evenhand.programme import schema
from evenhand.programme.belief import Beliefs, done_between
from evenhand.programme.ledger import Result, run
from evenhand.programme.named_model import Words
from evenhand.programme.reports import last_observations
from evenhand.programme.roster import RosterArm, present_step
from evenhand.typing import Floats, Ints

SCALES = (2.0, 20.0, 200.0)
"""Concentrations of the alternatives, in moves: small ones are far from the model's row."""

ERRORS = 0.01
"""Share of moves that are taken to be errors of reporting where the model excludes them."""


Share: TypeAlias = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class DriftBounds(Result):
    """Bounds of drift."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    change: Share = 0.1
    """Relative change of the number of arms of a kind, or of all, after which a policy is solved again."""

    gap: Share = 0.02
    """Increase of a policy's gap after which it is solved again."""

    level: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.01
    """Level of the drift test: bound of the probability of ever rejecting a correct model."""

    records: Annotated[int, Field(strict=True, ge=1, lt=2**31)] = 100
    """Reports between two drift tests."""


_READER = TypeAdapter(DriftBounds)
_BOUNDS = select(schema.programme.c.bounds_json)


def check_bounds(given: Mapping[str, Any]) -> DriftBounds:
    """Return bounds of which some are given; the others are the default.

    Raises:
        InvalidInputError: with every fault.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        return _READER.validate_python(chosen)
    except ValidationError as error:
        faults = [f"{one['loc'][0]}: {one['msg']}, got {one['input']!r}" for one in error.errors()]
        raise InvalidInputError("; ".join(faults)) from None


def bounds_of(tx: Connection) -> DriftBounds:
    """The bounds of a programme."""
    (stored,) = run(tx, _BOUNDS).fetchone()
    try:
        return DriftBounds() if stored is None else check_bounds(json.loads(stored))
    except InvalidInputError as fault:  # a fault of the stored value, not of a request
        raise ValueError(str(fault)) from None


@dataclass(frozen=True)
class ModelDrift(Result):
    """Result of the drift test of the model in use."""

    needed: bool
    """Whether the model is rejected, so that a refit is needed."""

    why: tuple[str, ...]
    """Evidence against it, in words."""

    reports: int
    """Reports since it came into use, or since a refit was declined."""

    moves: int
    """Tested moves; 0 while there are too few reports."""

    chance: float
    """Bound of the probability of ever seeing this evidence against a correct model."""


# Moves

Row = tuple[str, int, tuple[int | None, ...]]
"""(type, first state, actions since) of a move; action None is idling by default."""


@dataclass(frozen=True, eq=False)
class ObservedMoves:
    """Observed moves by row."""

    first: int
    """The step at which the model came into use: it hangs on no report, or late ones would change the weights."""

    horizon: int
    """Steps from the first to the last at which a move ended."""

    ends: dict[Row, Ints]
    """(move, 2) how many steps after the first each move of a row ended, and in which state."""

    distributions: dict[Row, Floats]
    """(state,) what the model says of each row."""

    @property
    def number(self) -> int:
        """Number of moves."""
        return sum(len(ends) for ends in self.ends.values())

    def since(self, row: Row) -> tuple[Ints, Floats]:
        """(place,) the steps after the first at which moves of a row ended; (place, state) how many then or later."""
        at, place = np.unique(self.ends[row][:, 0], return_inverse=True)
        counts = np.zeros((len(at), len(self.distributions[row])))
        np.add.at(counts, (place, self.ends[row][:, 1]), 1.0)
        return at, counts[::-1].cumsum(axis=0)[::-1]


def moves_since(tx: Connection, words: Words, arms: Sequence[RosterArm], step: int, event: int) -> ObservedMoves | None:
    """Every move whose end was reported after an event; None where there is none.

    Args:
        tx: a transaction.
        words: of the model.
        arms: every arm that ever joined.
        step: the present one.
        event: by which the model came into use, after which moves count.
    """
    seen = last_observations(tx, step)
    done = done_between(tx, [arm.id for arm in arms], 0, step)
    ends: dict[Row, list[tuple[int, int]]] = defaultdict(list)
    for arm in arms:
        block = words.blocks[arm.type, arm.group]
        for (start, (state, _)), (end, (next_state, reported)) in pairwise(seen.get(arm.id, {}).items()):
            if reported > event:
                actions = words.actions_done(block, done, arm.id, range(start, end))
                row = words.fit_types[block], words.states[block].index(state), actions
                ends[row].append((end, words.states[block].index(next_state)))
    if not ends:
        return None
    first, beliefs = present_step(tx, event), Beliefs(words)
    after = {row: np.array([(max(end - first, 0), state) for end, state in found]) for row, found in ends.items()}
    horizon = 1 + max(int(found[:, 0].max()) for found in after.values())
    distributions = {
        (kind, start, actions): beliefs.distribution(words.fit_types.index(kind), start, actions)
        for kind, start, actions in after
    }
    return ObservedMoves(first, horizon, after, distributions)


# The test


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence against a model."""

    total: float
    """log E."""

    since: int
    """The step of which on most speaks against it."""

    rows: tuple[tuple[float, Row], ...]
    """Rows by log E_r of that step, the largest first."""

    excluded: tuple[int, float]
    """Number of moves from that step on that the model excludes, and log E_0."""


def evidence(moves: ObservedMoves, num_pairs: int) -> Evidence:
    """Return the evidence of moves against the model.

    Args:
        moves: there is at least one.
        num_pairs: (type, state, action) pairs of the model, a number that does not hang on the moves.
    """
    share = np.log(1.0 / (num_pairs + 1))
    rest = np.log1p(-np.exp(share))
    by_start, number, outside = np.zeros((3, moves.horizon))
    of_rows: dict[Row, tuple[Ints, Floats]] = {}
    for row, distribution in moves.distributions.items():
        at, counts = moves.since(row)
        of_rows[row] = at, _against(counts, distribution)
        _add(by_start, at, np.logaddexp(rest, share + of_rows[row][1]))
        _add(number, at, counts.sum(axis=1))
        _add(outside, at, counts @ (distribution <= 0))
    of_errors = _against_errors(outside, number)
    by_start += np.logaddexp(rest, share + of_errors)
    k = np.arange(moves.horizon)
    weighted = by_start - np.log((k + 1.0) * (k + 2.0))
    best = int(np.argmax(weighted))
    left = -np.log(moves.horizon + 1.0)
    ordered = sorted(((_of_start(*found, best), row) for row, found in of_rows.items()), key=lambda pair: -pair[0])
    return Evidence(
        total=float(logsumexp([*weighted, left])),
        since=moves.first + best,
        rows=tuple(ordered),
        excluded=(int(outside[best]), float(of_errors[best])),
    )


def _add(sums: Floats, at: Ints, values: Floats) -> None:
    """Add to (start,) sums what a row has of each start on: the value of its next move, and 0 after its last."""
    sums[: at[-1] + 1] += np.repeat(values, np.diff(at, prepend=-1))


def _of_start(at: Ints, values: Floats, start: int) -> float:
    """The same for one start."""
    place = int(np.searchsorted(at, start))
    return float(values[place]) if place < len(at) else 0.0


def _against(counts: Floats, distribution: Floats) -> Floats:
    """(place,) log E_r of one row; moves that the distribution excludes are left out.

    Args:
        counts: (place, state) moves of some starts on.
        distribution: (state,) the model's.
    """
    possible = distribution > 0
    if possible.sum() < 2:
        return np.zeros(len(counts))
    counts, p = counts[:, possible], distribution[possible]
    number, plain = counts.sum(axis=1), xlogy(counts, p).sum(axis=1)
    found = [
        gammaln(c) - gammaln(c + number) + (gammaln(c * p + counts) - gammaln(c * p)).sum(axis=1) - plain
        for c in SCALES
    ]
    return np.asarray(logsumexp(found, axis=0) - np.log(len(SCALES)))


def _against_errors(outside: Floats, number: Floats) -> Floats:
    """(start,) log E_0: whether more is excluded by the model than errors explain."""
    rates = ERRORS * 2.0 ** np.arange(1, int(np.log2(0.99 / ERRORS)) + 1)
    found = [outside * np.log(rate / ERRORS) + (number - outside) * np.log((1 - rate) / (1 - ERRORS)) for rate in rates]
    return np.asarray(logsumexp(found, axis=0) - np.log(len(rates)))


def judge(moves: ObservedMoves | None, words: Words, reports: int, bounds: DriftBounds) -> ModelDrift:
    """Test the model.

    Args:
        moves: since it came into use; None where there are too few reports, or none.
        words: of the model.
        reports: how many came since.
        bounds: of the programme.
    """
    if moves is None:
        return ModelDrift(False, (), reports, 0, 1.0)
    first = {words.fit_types.index(label) for label in words.fit_types}  # one block per type
    found = evidence(moves, num_pairs=int(words.model.tables.valid[sorted(first)].sum()))
    chance = float(np.exp(-max(found.total, 0.0)))
    why = tuple(_reasons(moves, words, found, chance, bounds.level)) if chance <= bounds.level else ()
    return ModelDrift(bool(why), why, reports, moves.number, chance)


def _reasons(moves: ObservedMoves, words: Words, found: Evidence, chance: float, level: float) -> list[str]:
    sure = "less than 1 in a million" if chance < 1e-6 else f"at most {100 * chance:.2g} %"
    content = [
        f"arms do not move as the model says: if it was right, so much against it would ever be seen in "
        f"{counted(moves.number, 'move')} with a chance of {sure} (the bound is {100 * level:g} %)"
    ]
    content += [_tell_row(moves, words, row, found.since) for gain, row in found.rows[:3] if gain > 0]
    excluded, gain = found.excluded
    if gain > 0:
        content.append(f"{counted(excluded, 'move')} since step {found.since} cannot be by the model")
    return content


def _tell_row(moves: ObservedMoves, words: Words, row: Row, since: int) -> str:
    """Describe the largest deviation of a row."""
    kind, start, actions = row
    ends, distribution = moves.ends[row], moves.distributions[row]
    counts = np.bincount(ends[ends[:, 0] >= since - moves.first, 1], minlength=len(distribution))
    number = counts.sum()
    off = np.abs(counts - number * distribution) / np.sqrt(np.maximum(number * distribution, 1e-12))
    state = int(np.argmax(np.where(distribution > 0, off, -1.0)))
    block = words.fit_types.index(kind)
    names, done = words.states[block], [words.actions[block][action] for action in actions if action is not None]
    under = f" with {', '.join(dict.fromkeys(done))}" if done else ""
    when = "" if len(actions) == 1 else f" {len(actions)} steps later"
    return (
        f"{quoted(kind)} in {quoted(names[start])}{under} came to {quoted(names[state])}{when} {int(counts[state])} "
        f"times of {int(number)} since step {since}; the model says {100 * distribution[state]:.3g} %"
    )
