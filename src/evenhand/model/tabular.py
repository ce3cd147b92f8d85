"""The tabular Markov decision process, where reductions and solvers meet.

Only feasible state-action pairs exist. Pairs are numbered state by state: those of state x are offsets[x] to
offsets[x+1] - 1. Many pairs lead to the same distribution of the next state (in machine replacement a replaced machine
moves like a new one), so a pair names an *outcome*, and the distribution is stored once per outcome:

    P(x' | pair) = kernel[outcomes[pair], x'].

Applying the transition operator to a value function is then one small product and one look-up.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from evenhand.model.criterion import Criterion
from evenhand.typing import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """A finite MDP with vector rewards, one objective per arm or type.

    Under a criterion with a number of steps the best action depends on the step: policies, choices and visits then
    have a leading axis (step, ...), and the tables here are those of every step.
    """

    offsets: Ints
    """(state + 1,) where each state's pairs begin."""

    rewards: Floats
    """(pair, objective) rewards."""

    outcomes: Ints
    """(pair,) the row of `kernel` that a pair leads to."""

    kernel: Any
    """(outcome, state) distribution of the next state: a sparse matrix, or an operator of `kernels.products`."""

    initial: Floats
    """(state,) distribution of the first state."""

    criterion: Criterion
    """Value of rewards over time."""

    served: Floats | None = None
    """(pair, objective) the share of the arms of each objective that are served; None if not needed."""

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.offsets) - 1

    @property
    def num_pairs(self) -> int:
        """Number of feasible state-action pairs."""
        return len(self.outcomes)

    @cached_property
    def state_of_pair(self) -> Ints:
        """(pair,) the state each pair belongs to."""
        return np.repeat(np.arange(self.num_states), np.diff(self.offsets))

    @cached_property
    def reachable(self) -> Bools:
        """(state,) whether the state can ever be reached from the initial distribution, under any policy."""
        return self.reached_from(self.initial > 0)

    def reached_from(self, seen: Bools) -> Bools:
        """(state,) whether the state can ever be reached from some of the states, under any policy."""
        forth = self.kernel.T
        while True:
            outcomes = np.bincount(self.outcomes, weights=seen[self.state_of_pair], minlength=self.kernel.shape[0])
            following = seen | ((forth @ (outcomes > 0).astype(np.float64)) > 0)
            if (following == seen).all():
                return np.asarray(seen)
            seen = following

    @property
    def num_transitions(self) -> float:
        """Transitions of all pairs together, at the most, without spelling them out."""
        if isinstance(self.kernel, sparse.csr_array):
            return float(np.diff(self.kernel.indptr)[self.outcomes].sum())
        entries: int = getattr(self.kernel, "entries_per_row")  # noqa: B009  # what operators have and matrices lack
        return float(self.num_pairs) * entries

    @cached_property
    def transitions(self) -> sparse.csr_array:
        """(pair, state) the distribution of the next state for every pair."""
        return sparse.csr_array(self.kernel[self.outcomes])
