"""Transition counts of a log, and their log-likelihood.

    counts[t, s, a, s'] = number of pairs of rows (i, i + 1) of one arm of type t, one step apart,
                          with state s and action a in row i and state s' in row i + 1

Rows further apart, or at irregular times, are gaps: equal ones together, with their duration. The last row of an arm is
censored. Under transitions p

    log L = sum over moves of one step    log p[t, s, a, s']
          + sum over gaps of k steps      log (p[t, :, a, :] p[t, :, b, :]^(k-1))[s, s']

where b is the idle action, or a itself if actions are carried on (`Moves.carry_action`). Unknown rows without records
contribute nothing.

Behaviour policy of the records, stationary and dependent on the state alone: shares of actions per type and state,

    share[t, s, a] = n[t, s, a] / n[t, s],        error = sqrt(share (1 - share) / n[t, s])

counted over the *decisions*: rows with an action that another row of the arm follows. A type without decisions in a
state takes the shares of all types together; without any decisions in the state, it idles.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.checks import check_memory
from evenhand.fitting.log import NOTHING, Log
from evenhand.typing import Bools, Floats, Indices, Ints


@dataclass(frozen=True, eq=False)
class Moves:
    """Counts of consecutive pairs of rows."""

    counts: Ints
    """(type, state, action, next_state) moves of one step."""

    gaps: "Gaps"
    """Moves over several steps, or over irregular times."""

    carry_action: bool = False
    """True if an action goes on through missing steps; else they are idle."""

    @property
    def pairs(self) -> Ints:
        """(type, state, action, next_state) consecutive pairs of rows, in one step or another time."""
        gaps, seen = self.gaps, self.counts.copy()
        np.add.at(seen, (gaps.type, gaps.state, gaps.action, gaps.next_state), gaps.number)
        return seen

    @property
    def exposure(self) -> Floats:
        """(type, state, action) time between consecutive rows, in the unit of the times."""
        gaps = self.gaps
        time: Floats = self.counts.sum(axis=-1).astype(np.float64)
        np.add.at(time, (gaps.type, gaps.state, gaps.action), gaps.number * gaps.time)
        return time

    @property
    def departures(self) -> Ints:
        """(type, state, action) moves that begin in each pair, in one step or another time."""
        return np.asarray(self.pairs.sum(axis=-1))

    @property
    def unseen(self) -> Bools:
        """(type, state, action) pairs without moves of the type."""
        return np.asarray(self.departures == 0)


@dataclass(frozen=True, eq=False)
class Gaps:
    """Moves with unrecorded states in between, equal ones together."""

    type: Indices
    """(kind,) of the arm."""

    state: Indices
    """(kind,) before."""

    action: Indices
    """(kind,) taken at the first step; missing steps are idle, or carry it on."""

    next_state: Indices
    """(kind,) after."""

    time: Floats
    """(kind,) steps, or time."""

    number: Ints
    """(kind,) number of moves."""

    start: Floats | None = None
    """(kind,) times at which they begin, if rates change with time."""


def count_moves(log: Log, carry_action: bool = False) -> Moves:
    """Count the moves of a log.

    Args:
        log: the records.
        carry_action: whether an action goes on through missing steps; else they are idle.
    """
    shape = (*log.shape, len(log.states))
    check_memory(8.0 * np.prod(shape, dtype=np.float64), "the counts of moves", "Use fewer states, by bins.")
    first = np.flatnonzero(log.has_next)
    places = log.type_at[first], log.state[first], log.action[first], log.state[first + 1]
    kind: Ints = np.ravel_multi_index(places, shape).astype(np.int64, copy=False)
    pause: Floats = log.time[first + 1] - log.time[first]
    if log.regular:
        pause = np.rint(pause)
        near = pause == 1
        counts = np.bincount(kind[near], minlength=int(np.prod(shape))).reshape(shape)
        return Moves(counts.astype(np.int64, copy=False), group_gaps(kind[~near], pause[~near], shape), carry_action)
    starts = [log.time[first]] if log.cuts else []
    return Moves(np.zeros(shape, dtype=np.int64), group_gaps(kind, pause, shape, *starts), carry_action)


def group_gaps(kind: Ints, pause: Floats, shape: tuple[int, ...], *start: Floats) -> Gaps:
    """Group moves of one kind and one pause, sorted by kind, then pause; and of one start, if given.

    Args:
        kind: (move,) code of type, state, action and next state.
        pause: (move,) time between its rows.
        shape: numbers of types, states, actions and next states.
        start: (move,) time of its first row.
    """
    distinct, number = np.unique(np.stack([kind, pause, *start]), axis=1, return_counts=True)
    type, state, action, next_state = np.stack(np.unravel_index(distinct[0].astype(np.int64), shape)).astype(np.int32)
    return Gaps(type, state, action, next_state, distinct[1], number, *distinct[2:])


@dataclass(frozen=True, eq=False)
class BehaviourPolicy:
    """Shares of actions per type and state."""

    shares: Floats
    """(type, state, action) shares that sum to 1."""

    errors: Floats
    """(type, state, action) standard errors; NaN if a type has no decisions in the state."""

    numbers: Ints
    """(type, state) number of decisions."""

    @property
    def borrowed(self) -> Bools:
        """(type, state) whether the shares are those of other types, or idling."""
        return np.asarray(self.numbers == 0)


def decisions_of(log: Log) -> Bools:
    """(row,) whether it has an action and another row of the arm follows.

    Args:
        log: the records.
    """
    return np.asarray(log.has_next & (log.action != NOTHING))


def recorded_shares(log: Log) -> BehaviourPolicy:
    """Estimate the behaviour policy.

    Args:
        log: the records.
    """
    shape, rows = log.shape, decisions_of(log)
    cells = np.ravel_multi_index((log.type_at[rows], log.state[rows], log.action[rows]), shape)
    counts = np.bincount(cells, minlength=int(np.prod(shape))).astype(np.int64).reshape(shape)
    numbers = counts.sum(axis=-1)
    together = counts.sum(axis=0)
    common = np.where(together.sum(axis=-1, keepdims=True) > 0, together, np.eye(shape[-1])[0])
    own = np.where(numbers[..., None] > 0, counts, common)
    shares = own / own.sum(axis=-1, keepdims=True)
    errors = np.sqrt(shares * (1 - shares) / np.maximum(numbers, 1)[..., None])
    return BehaviourPolicy(shares, np.where(numbers[..., None] > 0, errors, np.nan), numbers)
