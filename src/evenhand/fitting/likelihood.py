"""How likely the records are under given transitions.

    log L = sum over moves of one step    log p[t, s, a, s']
          + sum over gaps of k steps      log (p[t, :, a, :] p[t, :, b, :]^(k-1))[s, s']

where b is the idle action, or a itself where actions are carried on (`Moves.carry_action`). A row that is not known
counts for nothing where nothing was seen of it.
"""

import numpy as np

from evenhand.fitting.moves import Moves
from evenhand.typing import Floats

IDLE = 0
"""The idle action is the first of a log."""


def log_likelihood(moves: Moves, transitions: Floats) -> float:
    """Of moves whose times are whole steps apart.

    Args:
        moves: what was seen.
        transitions: (type, state, action, next_state) probabilities; NaN in rows that are not known.
    """
    seen = moves.counts > 0
    with np.errstate(divide="ignore"):
        one = float((moves.counts[seen] * np.log(transitions[seen])).sum())
        gaps = moves.gaps
        return one + float((gaps.number * np.log(_of_gaps(moves, transitions))).sum())


def _of_gaps(moves: Moves, transitions: Floats) -> Floats:
    """(kind,) the probability of each gap."""
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
