"""Behaviour policy of the records: shares of actions per type and state.

    share[t, s, a] = n[t, s, a] / n[t, s],        error = sqrt(share (1 - share) / n[t, s])

counted over the *decisions*: rows with an action that another row of the arm follows. Last rows are censored.

The policy is stationary and depends on the state alone. A type without decisions in a state takes the shares of all
types together; without any decisions in the state, it idles.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.fitting.log import NOTHING, Log
from evenhand.typing import Bools, Floats, Ints


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
    followed = np.append(log.arm[1:] == log.arm[:-1], False) if len(log.arm) else np.zeros(0, dtype=np.bool_)
    return np.asarray(followed & (log.action != NOTHING))


def recorded_shares(log: Log) -> BehaviourPolicy:
    """Estimate the behaviour policy.

    Args:
        log: the records.
    """
    shape = (len(log.types), len(log.states), len(log.actions))
    rows = decisions_of(log)
    cells = np.ravel_multi_index((log.type_of[log.arm[rows]], log.state[rows], log.action[rows]), shape)
    counts = np.bincount(cells, minlength=int(np.prod(shape))).astype(np.int64).reshape(shape)
    numbers = counts.sum(axis=-1)
    together = counts.sum(axis=0)
    idle = np.zeros(shape[-1])
    idle[0] = 1.0
    common = np.where(together.sum(axis=-1, keepdims=True) > 0, together, idle)
    own = np.where(numbers[..., None] > 0, counts, common)
    shares = own / own.sum(axis=-1, keepdims=True)
    errors = np.sqrt(shares * (1 - shares) / np.maximum(numbers, 1)[..., None])
    return BehaviourPolicy(shares, np.where(numbers[..., None] > 0, errors, np.nan), numbers)
