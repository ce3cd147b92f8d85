"""Allocations and outcomes of the arms of one type.

A *pair* (x, u) has u[s, a] arms that get action a in state s, with sum_a u[s, a] = x[s], within the budget alone. Pairs
are listed cell by cell. What a pair uses is its *use*, a vector of resources; uses that differ by rounding are one. Its
*outcome* is its use together with how many arms move by each distinct transition row: the law of the next counts
depends on nothing else. Outcomes are numbered use by use, the least use first, and pairs in the order of outcomes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from evenhand.checks import check_memory, fits_in_memory
from evenhand.errors import TooLargeError
from evenhand.kernels.boxes import Pairs, Rows
from evenhand.kernels.lattice import (
    lattice_index,
    lattice_points,
    lattice_size,
    list_amounts,
    multinomial_probabilities,
)
from evenhand.kernels.lattice_distributions import count_movers, movers_distribution, support_of_movers
from evenhand.solvers.counts.post_decision import TypeTables
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
