"""From a log to counts: how often an arm of a type, in a state, given an action, came to another state.

    counts[t, s, a, s'] = number of pairs of rows (i, i + 1) of one arm of type t, one step apart,
                          with state s and action a in row i and state s' in row i + 1

Rows further apart, or apart by no whole number of steps, are kept as gaps: like ones together, with their pause. The
last row of an arm is no move, whatever its action.
"""

import numpy as np

from evenhand.checks import check_memory
from evenhand.fitting.log import Log
from evenhand.fitting.moves import Gaps, Moves
from evenhand.typing import Floats, Ints


def count_moves(log: Log, carry_action: bool = False) -> Moves:
    """Count the moves of a log.

    Args:
        log: sound records.
        carry_action: whether an action goes on through steps that were missed; they are idle when not.
    """
    shape = (len(log.types), len(log.states), len(log.actions), len(log.states))
    check_memory(8.0 * np.prod(shape, dtype=np.float64), "the counts of moves", "Use fewer states (--bins).")
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
    """Moves of one kind and one pause together, in the order of kinds, then pauses."""
    order = np.lexsort((pause, kind))
    kind, pause = kind[order], pause[order]
    new = np.ones(len(kind), dtype=np.bool_)
    new[1:] = (kind[1:] != kind[:-1]) | (pause[1:] != pause[:-1])
    start = np.flatnonzero(new)
    parts = [part.astype(np.int32) for part in np.unravel_index(kind[start], shape)]
    type, state, action, next_state = parts
    return Gaps(type, state, action, next_state, pause[start], np.diff(np.append(start, len(kind))))
