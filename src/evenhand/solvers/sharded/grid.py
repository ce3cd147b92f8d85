"""Ranks without a sort of all vertices: how many arms would cost how much at each level.

Up to a constant W(v) - sum_n c_n(v_n) is an integral over levels t, and every level is solved alone
(`kernels.fluid_sweeps`): of the arms sorted by their marginal costs c_n'(t) those are above t that make

    G(m) - sum of the m least costs

largest, G(m) the sum of the m smallest rank weights. All it takes of the arms is how many have which marginal cost at
which level. Levels and bins of costs are chosen from a sample of the vertices; shards count, and counts are integers,
which add up to the same in any order. The answer to a level is a limit: whoever costs no more is above it.

Where there are no more vertices than levels and bins, this is exact. Else arms whose cost lies within a bin of the
limit may be taken wrongly, which costs the answer to second order: it is a true cut all the same, since any point on
the frontiers is one, and the certificate of the end is that of the arms themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.solvers.sharded.shard import Survey
from evenhand.solvers.sharded.stops import Limits
from evenhand.typing import Floats, Ints

NUM_LEVELS, NUM_BINS = 2048, 1024
"""Levels, and bins of costs, at the most. Twice the levels halve what the proof loses at 10^7; bins matter less."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Levels and bins of costs."""

    levels: Floats
    """(level,) values, rising."""

    edges: Floats
    """(bin,) the largest cost of each bin, rising."""

    exact: bool
    """Whether all values and costs are among them."""

    @property
    def middles(self) -> Floats:
        """(bin,) what stands for the costs of each bin."""
        if self.exact:
            return self.edges
        before = np.concatenate([self.edges[:1], self.edges[:-1]])
        return (before + self.edges) / 2


def per_block(num_blocks: int) -> int:
    """How many numbers of a kind each block tells."""
    return max(64, -(-8 * NUM_LEVELS // num_blocks))


def choose_cells(surveys: Sequence[Survey]) -> Cells:
    """Levels and bins with about equally many of the sampled vertices between them.

    Args:
        surveys: (block,) samples, in the order of the blocks.
    """
    levels, all_levels = _spread(np.concatenate([survey.values for survey in surveys]), NUM_LEVELS)
    edges, all_edges = _spread(np.concatenate([survey.slopes for survey in surveys]), NUM_BINS)
    whole = all(survey.whole for survey in surveys)
    return Cells(levels, edges if len(edges) else np.zeros(1), whole and all_levels and all_edges)


def _spread(numbers: Floats, most: int) -> tuple[Floats, bool]:
    ordered = np.sort(numbers)
    different = np.unique(ordered)
    if len(different) <= most:
        return different, True
    return np.unique(ordered[np.linspace(0, len(ordered) - 1, most).astype(np.int64)]), False


@dataclass(frozen=True, eq=False)
class LevelGrid:
    """What may be gained at each level, and what it costs."""

    cells: Cells
    gained: Floats
    """(level, bin + 1) the rank weights of the arms above a level if the first bins are."""

    spent: Floats
    """(level, bin + 1) what it costs, at the prices of the grid."""

    @classmethod
    def of(cls, cells: Cells, free: Ints, table: Ints, mass: Callable[[Ints], Floats]) -> "LevelGrid":
        """From counts.

        Args:
            cells: levels and bins.
            free: (level + 1,) how many arms' free value lies before each level.
            table: (bin, level + 1) by how many more arms have a cost in the bin than at the level before.
            mass: the sum of the m smallest rank weights, for many m.
        """
        always = free.sum() - np.cumsum(free)[:-1]
        arms = np.cumsum(table, axis=1)[:, :-1].T
        above = np.zeros((len(arms), arms.shape[1] + 1), dtype=np.int64)
        np.cumsum(arms, axis=1, out=above[:, 1:])
        spent = np.zeros(above.shape)
        np.cumsum(arms * cells.middles, axis=1, out=spent[:, 1:])
        above += always[:, None]
        return cls(cells, mass(above) - mass(always)[:, None], spent)

    def limits(self, price: float) -> Limits:
        """The limit of each level, if the prices of the grid are multiplied by one number.

        Args:
            price: the number.
        """
        worth = self.gained - price * self.spent
        last = worth.shape[1] - 1 - worth[:, ::-1].argmax(axis=1)  # of equally good ones the most
        limits = np.concatenate([[-np.inf], self.cells.edges * price])[last]
        return Limits(self.cells.levels, np.minimum.accumulate(limits))
