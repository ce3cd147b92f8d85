"""The optimum on counts of identical arms."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.errors import InvalidInputError
from evenhand.kernels.lattice import lattice_points
from evenhand.typing import Array, Floats, Ints


@dataclass(frozen=True, eq=False)
class CountOptimum:
    """The best policy on counts and a certificate of its value."""

    lower_bound: float
    """The optimal mean value of an arm from the initial law is at least this; so is that of `choices` ..."""

    upper_bound: float
    """... and at most this."""

    cells: Ints
    """(cell, 2) state and action of the cells off base that can matter."""

    base: Ints
    """(state,) the idle action of the other arms."""

    choices: Array
    """(count state, cell) how many arms get each cell; (step, count state, cell) if the horizon is finite."""

    value_function: Floats
    """(count state,) the last iterate: the first step's, if the horizon is finite; under average, up to a constant."""

    num_arms: int
    """Number of arms."""

    num_actions: int
    """Number of actions per arm."""

    rounds: int
    """Number of policy improvements."""

    @cached_property
    def counts(self) -> Ints:
        """(count state, state) arms in each state."""
        return lattice_points(self.num_arms, len(self.base))

    def allocation(self, index: Ints | int, step: int | None = None) -> Ints:
        """(..., state, action) the allocation chosen in count states.

        Args:
            index: (...) their numbers.
            step: which step, if the horizon is finite.
        """
        if (step is None) != (self.choices.ndim == 2):
            raise InvalidInputError("step: it belongs to a finite horizon, and only there it must be given")
        choices = self.choices if step is None else self.choices[step]
        number = np.asarray(index)
        states = np.arange(len(self.base))
        allocation = np.zeros((*number.shape, len(states), self.num_actions), dtype=np.int64)
        amounts = choices[number].astype(np.int64)
        for cell, (state, action) in enumerate(self.cells):
            allocation[..., state, action] = amounts[..., cell]
        allocation[..., states, self.base] += self.counts[number] - allocation.sum(axis=-1)
        return allocation
