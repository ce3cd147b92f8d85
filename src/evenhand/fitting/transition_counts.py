"""Transition counts of a log, and their log-likelihood.

    counts[t, s, a, s'] = number of pairs of rows (i, i + 1) of one arm of type t, one step apart,
                          with state s and action a in row i and state s' in row i + 1

Rows further apart, or at irregular times, are gaps: equal ones together, with their duration. The last row of an arm is
censored. Under transitions p

    log L = sum over moves of one step    log p[t, s, a, s']
          + sum over gaps of k steps      log (p[t, :, a, :] p[t, :, b, :]^(k-1))[s, s']

where b is the idle action, or a itself if actions are carried on (`Moves.carry_action`). Unknown rows without records
contribute nothing.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.checks import check_memory
from evenhand.fitting.log import Log
from evenhand.typing import Bools, Floats, Indices, Ints

IDLE = 0
"""Index of the idle action."""


@dataclass(frozen=True, eq=False)
class Moves:
    """Counts of consecutive pairs of rows."""

    counts: Ints
    """(type, state, action, next_state) moves of one step."""

    gaps: "Gaps"
    """Moves over several steps, or over irregular times."""

    carry_action: bool = False
    """Whether an action goes on through missing steps; else they are idle."""

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
        departures: Ints = self.pairs.sum(axis=-1)
        return departures

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


def count_moves(log: Log, carry_action: bool = False) -> Moves:
    """Count the moves of a log.

    Args:
        log: the records.
        carry_action: whether an action goes on through missing steps; else they are idle.
    """
    shape = (len(log.types), len(log.states), len(log.actions), len(log.states))
    check_memory(8.0 * np.prod(shape, dtype=np.float64), "the counts of moves", "Use fewer states, by bins.")
    first = np.flatnonzero(log.arm[1:] == log.arm[:-1])
    places = log.type_of[log.arm[first]], log.state[first], log.action[first], log.state[first + 1]
    kind: Ints = np.ravel_multi_index(places, shape).astype(np.int64, copy=False)
    pause: Floats = log.time[first + 1] - log.time[first]
    if log.regular:
        pause = np.rint(pause)
        near = pause == 1
        counts = np.bincount(kind[near], minlength=int(np.prod(shape))).reshape(shape)
        return Moves(counts.astype(np.int64, copy=False), _gaps(kind[~near], pause[~near], shape), carry_action)
    return Moves(np.zeros(shape, dtype=np.int64), _gaps(kind, pause, shape), carry_action)


def _gaps(kind: Ints, pause: Floats, shape: tuple[int, ...]) -> Gaps:
    """Group moves of one kind and one pause, sorted by kind, then pause."""
    order = np.lexsort((pause, kind))
    kind, pause = kind[order], pause[order]
    new = np.ones(len(kind), dtype=np.bool_)
    new[1:] = (kind[1:] != kind[:-1]) | (pause[1:] != pause[:-1])
    start = np.flatnonzero(new)
    parts = [part.astype(np.int32) for part in np.unravel_index(kind[start], shape)]
    type, state, action, next_state = parts
    return Gaps(type, state, action, next_state, pause[start], np.diff(np.append(start, len(kind))))


def log_likelihood(moves: Moves, transitions: Floats) -> float:
    """Log-likelihood of moves whose times are whole steps apart.

    Args:
        moves: transition counts.
        transitions: (type, state, action, next_state) probabilities; NaN in unknown rows.
    """
    seen = moves.counts > 0
    with np.errstate(divide="ignore"):
        one = float((moves.counts[seen] * np.log(transitions[seen])).sum())
        gaps = moves.gaps
        return one + float((gaps.number * np.log(_of_gaps(moves, transitions))).sum())


def _of_gaps(moves: Moves, transitions: Floats) -> Floats:
    """(kind,) probability of each gap."""
    gaps, known = moves.gaps, np.nan_to_num(transitions)
    found = np.empty(len(gaps.number))
    keys = np.stack([gaps.type, gaps.action, gaps.time.astype(np.int64)], axis=1)
    for key in np.unique(keys, axis=0):
        t, action, steps = (int(part) for part in key)
        later = action if moves.carry_action else IDLE
        jump = known[t, :, action] @ np.linalg.matrix_power(known[t, :, later], steps - 1)
        these = (keys == key).all(axis=1)
        found[these] = jump[gaps.state[these], gaps.next_state[these]]
    return found
