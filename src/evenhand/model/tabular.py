"""The tabular Markov decision process, where reductions and solvers meet.

Only feasible state-action pairs exist. Pairs are numbered state by state: those of state x are offsets[x] to
offsets[x+1] - 1. Many pairs lead to the same law of the next state (in machine replacement a replaced machine
moves like a new one), so a pair names an *outcome*, and the law is kept once for each outcome:

    P(x' | pair) = kernel[outcomes[pair], x'].

Applying the transition operator to a value function is then one small product and one look-up.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from evenhand.typing import Floats, Ints


class Kernel(Protocol):
    """What a transition operator can do; sparse matrices can, and so can those of `kernels.products`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(outcomes, states)."""
        ...

    @property
    def T(self) -> Any:  # noqa: N802  # as arrays spell it
        """The transpose."""
        ...

    def __matmul__(self, vector: Floats) -> Any:
        """(outcome,) expectations of a (state,) value function."""
        ...

    def __getitem__(self, outcomes: Ints) -> Any:
        """(outcome, state) some rows, as a sparse matrix."""
        ...


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """A finite discounted MDP with vector rewards, one objective an arm or type."""

    offsets: Ints
    """(state + 1,) where each state's pairs begin."""

    rewards: Floats
    """(pair, objective) rewards."""

    outcomes: Ints
    """(pair,) the row of `kernel` that a pair leads to."""

    kernel: Kernel
    """(outcome, state) law of the next state: a sparse matrix, or an operator that behaves like one."""

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
