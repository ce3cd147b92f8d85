"""Cost estimate for several types: memory and operations, before allocation.

The operations of one improvement are a sum over the uses of the budget that types can have together (see the package).
It is linear in the number of outcomes of the types before, so beginnings that use equally much are counted together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from evenhand.checks import fits_in_memory
from evenhand.display import size_in_words
from evenhand.errors import TooLargeError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.solvers.counts.cost_estimate import LEAP, check_program
from evenhand.solvers.counts.outcomes import INSTEAD, SAME_USE, Moves, read_moves
from evenhand.solvers.counts.post_decision import read_tables
from evenhand.solvers.counts.reduction import num_count_states
from evenhand.typing import Floats, Ints

BLOCK = 2**16
"""Values of a block on the way down; more are treated one block after the other."""

OVERHEAD, TAKEN = 40.0, 0.1
"""Operations a state that a sweep costs beside expectations, and the share of outcomes that a policy leads to."""

POLICIES, IMPROVEMENTS, SWEEPS = 20, 3, 80
"""Typical numbers of policies that column generation prices, and of improvements and sweeps per policy."""


@dataclass(frozen=True, eq=False)
class TypedPlan:
    """Arms of several types and their budget, read and measured."""

    types: Sequence[Moves]
    """Moves of each type."""

    limit: Floats
    """(resource,) the budget, with its room for rounding."""

    criterion: Criterion
    """Criterion that values rewards over time."""

    @property
    def sizes(self) -> list[int]:
        """(type,) points of each lattice."""
        return [moves.num_points for moves in self.types]

    @property
    def num_states(self) -> int:
        """Number of count states."""
        return prod(self.sizes)

    # -- what it takes ------------------------------------------------------------------------------------------------

    @cached_property
    def improving(self) -> float:
        """About how many operations one improvement takes."""
        # Beginnings (o_1, ..., o_t) by what they use together, and how many there are.
        used, lanes = np.zeros((1, len(self.limit))), np.ones(1)
        work, rest = 0.0, float(self.num_states)
        for moves in self.types:
            # Values behind one point of this type: the points of all types that are still to come.
            rest /= moves.num_points
            outcomes = np.diff(moves.starts)
            i, j, same, used = self._together(used, moves)
            # Every beginning takes the expectation, and compares the pairs, for each of these values.
            work += rest * float((lanes[i] * (moves.entries + moves.pairs_of_uses)[j]).sum())
            lanes = np.asarray(np.bincount(same, weights=lanes[i] * outcomes[j]))
        return work

    @cached_property
    def num_pairs(self) -> float:
        """Number of pairs of a state and a decision in an explicit table."""
        used, number = np.zeros((1, len(self.limit))), np.ones(1)
        for moves in self.types:
            i, j, same, used = self._together(used, moves)
            number = np.asarray(np.bincount(same, weights=number[i] * moves.pairs_of_uses[j]))
        return float(number.sum())

    def _together(self, used: Floats, moves: Moves) -> tuple[Ints, Ints, Ints, Floats]:
        """Beginnings and uses that fit together: both, the number of what they use together, and all of these."""
        i, j = np.nonzero((used[:, None] + moves.uses <= self.limit).all(axis=2))
        sums = used[i] + moves.uses[j]
        # A digit less than single uses have: sums of them differ by more rounding.
        shares = np.round(sums / np.where(self.limit > 0, self.limit, 1.0), SAME_USE - 1)
        _, first, same = np.unique(shares, axis=0, return_index=True, return_inverse=True)
        return i, j, same.reshape(-1), sums[first]

    @cached_property
    def following(self) -> float:
        """About how many operations one sweep of a policy takes."""
        work, nodes, rest = OVERHEAD * self.num_states, 1.0, float(self.num_states)
        for moves in self.types:
            rest /= moves.num_points
            # No more leaves than states, since a policy has one outcome in each.
            nodes = min(nodes * len(moves.movers), float(self.num_states))
            work += TAKEN * nodes * rest * float(moves.entries.sum()) / len(moves.movers)
        return work

    @property
    def operations(self) -> float:
        """About how many elementary operations column generation takes."""
        laws = sum(float(len(moves.movers)) * moves.num_points * moves.tables.num_arms for moves in self.types)
        if not self.criterion.is_stationary:
            return laws + POLICIES * self.criterion.num_layers * (self.improving + self.following)
        return laws + POLICIES * (IMPROVEMENTS * self.improving + SWEEPS * self.following)

    @property
    def size_in_bytes(self) -> float:
        """About how much memory it takes."""
        laws = sum(24.0 * float(moves.entries.sum()) for moves in self.types)
        laws += max(16.0 * float(np.diff(moves.starts).max()) * moves.num_points for moves in self.types)
        boxes = 8.0 * self.num_states * (16 + 2 * len(self.types) + LEAP + 4)
        choices = (
            float(self.num_states) * len(self.types) * self.pick_type.itemsize * POLICIES * self.criterion.num_layers
        )
        return laws + boxes + choices + 8.0 * self.num_states / min(self.sizes) * 4

    @property
    def pick_type(self) -> np.dtype[np.unsignedinteger]:
        """Integers that hold the number of any pair."""
        return np.min_scalar_type(max(len(moves.allocations) for moves in self.types) - 1)

    # -- what is refused ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse, before any work, what would not fit in memory or never end."""
        states = f"{self.num_states} count states of {len(self.types)} types"
        what = check_program(states, self.criterion, self.size_in_bytes, self.operations, INSTEAD)
        # A decision is one number, and so are the outcomes that a policy leads to.
        for numbers in ([len(moves.allocations) for moves in self.types], [len(moves.movers) for moves in self.types]):
            if prod(numbers) >= 2**62:
                raise TooLargeError(f"{what} has over 2^62 decisions. {INSTEAD}")


# -- making a plan ----------------------------------------------------------------------------------------------------


def plan_types(problem: CoupledMDP) -> TypedPlan:
    """Plan the dynamic program on the counts of several types.

    Args:
        problem: the problem, under its criterion.

    Raises:
        TooLargeError: there are too many states, or a type alone has too many allocations.
    """
    number = num_count_states(problem)
    # Refuse a space on which not even values fit.
    if not fits_in_memory(8.0 * LEAP * number):
        raise TooLargeError(f"the count space has {size_in_words(number)} states. {INSTEAD}")
    types = [read_moves(tables) for tables in read_tables(problem)]
    return TypedPlan(types, problem.budget_limit, problem.criterion)
