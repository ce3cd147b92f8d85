"""The tabular Markov decision process, where reductions and solvers meet.

Only feasible state-action pairs exist. Pairs are numbered state by state: those of state x are offsets[x] to
offsets[x+1] - 1. Many pairs lead to the same law of the next state (in machine replacement a replaced machine
moves like a new one), so a pair names an *outcome*, and the law is kept once for each outcome:

    P(x' | pair) = kernel[outcomes[pair], x'].

Applying the transition operator to a value function is then one small product and one look-up.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from evenhand.typing import Floats, Ints


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """A finite discounted MDP with vector rewards, one objective an arm or type."""

    offsets: Ints
    """(state + 1,) where each state's pairs begin."""

    rewards: Floats
    """(pair, objective) rewards."""

    outcomes: Ints
    """(pair,) the row of `kernel` that a pair leads to."""

    kernel: sparse.csr_array
    """(outcome, state) law of the next state."""

    initial: Floats
    """(state,) law of the first state."""

    discount: float
    """In [0, 1)."""

    @property
    def num_states(self) -> int:
        """How many states there are."""
        return len(self.offsets) - 1

    @property
    def num_pairs(self) -> int:
        """How many feasible state-action pairs there are."""
        return len(self.outcomes)

    @cached_property
    def state_of_pair(self) -> Ints:
        """(pair,) the state each pair belongs to."""
        return np.repeat(np.arange(self.num_states), np.diff(self.offsets))

    @cached_property
    def transitions(self) -> sparse.csr_array:
        """(pair, state) the law of the next state, spelt out for every pair."""
        return sparse.csr_array(self.kernel[self.outcomes])
