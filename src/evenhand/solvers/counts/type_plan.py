"""Allocations and outcomes of the arms of each type, and the cost estimate for several types, before allocation.

A *pair* (x, u) has u[s, a] arms that get action a in state s, with sum_a u[s, a] = x[s], within the budget alone. Pairs
are listed cell by cell. What a pair uses is its *use*, a vector of resources; uses that differ by rounding are one. Its
*outcome* is its use together with how many arms move by each distinct transition row: the law of the next counts
depends on nothing else. Outcomes are numbered use by use, the least use first, and pairs in the order of outcomes.

The operations of one improvement are a sum over the uses of the budget that types can have together (see the package).
It is linear in the number of outcomes of the types before, so beginnings that use equally much are counted together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from scipy import sparse

from evenhand.checks import check_memory, fits_in_memory
from evenhand.display import size_in_words
from evenhand.errors import TooLargeError
from evenhand.kernels.boxes import Pairs, Rows
from evenhand.kernels.lattice import (
    count_movers,
    lattice_index,
    lattice_points,
    lattice_size,
    list_amounts,
    movers_distribution,
    multinomial_probabilities,
    support_of_movers,
)
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.solvers.counts.optimum import check_program
from evenhand.solvers.counts.policy_iteration import LEAP
from evenhand.solvers.counts.post_decision import TypeTables, read_tables
from evenhand.solvers.counts.reduction import num_count_states
from evenhand.typing import Floats, Ints

MOST_PAIRS = 5_000_000
"""Pairs of one type beyond which the typed count space is refused."""

SAME_USE = 11
"""Decimals, as a share of the budget, in which uses must differ to be distinct."""

INSTEAD = "Use fewer arms, a smaller budget, or the method fluid, which needs no table."


@dataclass(frozen=True, eq=False)
class Moves:
    """The pairs of one type, with their outcomes and laws."""

    tables: TypeTables

    allocations: Ints
    """(pair, state, action) how many arms get each action."""

    pairs: Pairs
    """The outcome and the point that each belongs to."""

    outcomes: Ints
    """(pair,) the outcome of each."""

    uses: Floats
    """(use, resource) the distinct uses."""

    starts: Ints
    """(use + 1,) where the outcomes of each use begin."""

    movers: Ints
    """(outcome, row) how many arms move by each row."""

    rows: Floats
    """(row, next_state) the distinct rows."""

    @property
    def num_points(self) -> int:
        """Points of the type's lattice."""
        return lattice_size(self.tables.num_arms, len(self.tables.initial))

    @cached_property
    def rewards(self) -> Floats:
        """(pair,) the mean reward of the type's arms."""
        return self._mean(self.tables.rewards)

    @cached_property
    def served(self) -> Floats:
        """(pair,) the share of the type's arms that are served."""
        return self._mean(self.tables.served)

    @cached_property
    def spent(self) -> Floats:
        """(pair, resource) what is used."""
        return np.asarray(np.einsum("psa,sak->pk", self.allocations, self.tables.usage))

    def _mean(self, table: Floats) -> Floats:
        return np.asarray(np.einsum("psa,sa->p", self.allocations, table) / self.tables.num_arms)

    @cached_property
    def first_law(self) -> Floats:
        """(point,) the law of the first counts."""
        points = lattice_points(self.tables.num_arms, len(self.tables.initial))
        return multinomial_probabilities(points, self.tables.initial)

    @cached_property
    def entries(self) -> Floats:
        """(use,) about how many entries the distributions of the outcomes of each use have, without computing them."""
        return np.add.reduceat(support_of_movers(self.movers, self.rows), self.starts[:-1])

    @cached_property
    def pairs_of_uses(self) -> Ints:
        """(use,) how many pairs have each use."""
        return np.diff(self.pairs.starts[self.starts])

    # -- laws ---------------------------------------------------------------------------------------------------------

    def laws(self) -> Rows:
        """The law of the next counts after each outcome."""
        parts = []
        for first, last in zip(self.starts[:-1], self.starts[1:], strict=True):
            check_memory(16.0 * (last - first) * self.num_points, "the laws of the next counts of a type", INSTEAD)
            parts.append(sparse.csr_array(movers_distribution(self.movers[first:last], self.rows)))
        laws = sparse.csr_array(sparse.vstack(parts))
        return Rows(laws.indptr.astype(np.int64), laws.indices.astype(np.int32), laws.data)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_moves(tables: TypeTables) -> Moves:
    """List what the arms of a type can do within the budget alone.

    Args:
        tables: of the type.

    Raises:
        TooLargeError: there are too many ways.
    """
    # Phase 1: all allocations, and what they use.
    cells = np.argwhere(tables.valid)

    def check(number: float) -> None:
        if number > MOST_PAIRS or not fits_in_memory(number * 40.0 * len(cells), 0.5):
            raise TooLargeError(f"the arms of one type have over {number:.3g} allocations within the budget. {INSTEAD}")

    kinds, arms = np.zeros(len(cells), dtype=np.int64), np.array([tables.num_arms])
    chosen, used = list_amounts(tables.usage[tables.valid], kinds, arms, tables.limit, check)
    allocations = np.zeros((len(chosen), *tables.valid.shape), dtype=np.int32)
    allocations[:, cells[:, 0], cells[:, 1]] = chosen
    limit = np.where(tables.limit > 0, tables.limit, 1.0)
    distinct, use = np.unique(np.round(used / limit, SAME_USE), axis=0, return_inverse=True)
    # The largest of uses that are one: whatever fits by it fits by all of them.
    uses = np.zeros((len(distinct), used.shape[1]))
    np.maximum.at(uses, use.reshape(-1), used)
    # Phase 2: how many arms of each allocation move by which row; cells with the same row add up.
    movers, rows = count_movers(chosen, tables.transitions[tables.valid])
    # Phase 3: outcomes. The use comes first, so they are numbered use by use.
    found, outcome = np.unique(np.column_stack([use.reshape(-1), movers]), axis=0, return_inverse=True)
    points = lattice_index(allocations.sum(axis=2))
    # Phase 4: pairs by their outcome, and within it by their point.
    order = np.lexsort((points, outcome.reshape(-1)))
    outcomes = outcome.reshape(-1)[order]
    return Moves(
        tables=tables,
        allocations=allocations[order],
        pairs=Pairs(np.searchsorted(outcomes, np.arange(len(found) + 1)), points[order].astype(np.int32)),
        outcomes=outcomes.astype(np.int32),
        uses=uses,
        starts=np.searchsorted(found[:, 0], np.arange(len(uses) + 1)),
        movers=found[:, 1:],
        rows=rows,
    )


BLOCK = 2**16
"""Values of a block on the way down; more are treated one block after the other."""

POLICIES = 20
"""Typical number of policies that column generation prices."""


@dataclass(frozen=True, eq=False)
class TypedPlan:
    """Arms of several types and their budget, read and measured."""

    types: Sequence[Moves]
    """Moves of each type."""

    limit: Floats
    """(resource,) the budget, with its room for rounding."""

    least: Floats
    """(resource,) least use, with its room for rounding; 0 if the budget need not be spent."""

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
        # Beside expectations a sweep costs 40 operations a state, and a policy leads to a tenth of the outcomes.
        work, nodes, rest = 40.0 * self.num_states, 1.0, float(self.num_states)
        for moves in self.types:
            rest /= moves.num_points
            # No more leaves than states, since a policy has one outcome in each.
            nodes = min(nodes * len(moves.movers), float(self.num_states))
            work += 0.1 * nodes * rest * float(moves.entries.sum()) / len(moves.movers)
        return work

    @property
    def operations(self) -> float:
        """About how many elementary operations column generation takes."""
        laws = sum(float(len(moves.movers)) * moves.num_points * moves.tables.num_arms for moves in self.types)
        if not self.criterion.is_stationary:
            return laws + POLICIES * self.criterion.num_layers * (self.improving + self.following)
        # Typically 3 improvements a policy, and 80 sweeps.
        return laws + POLICIES * (3 * self.improving + 80 * self.following)

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
    return TypedPlan(types, problem.budget_limit, problem.least_use, problem.criterion)
