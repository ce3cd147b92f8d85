"""The nearest point in the convex hull of all permutations of some weights, the permutahedron.

With the point z sorted downwards, the projection is z - isotonic(z - w), where isotonic is the least-squares fit that
does not increase (Lim and Wright, 2016). Equal entries stay equal, so the arms of a type are one entry, weighted by
their number. O(N log N). The supergradients of a rank-weighted welfare are the points of the permutahedron of its
weights: W(v) = min { g.v : g in it }.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import isotonic_regression

from evenhand.kernels import runs
from evenhand.model.welfare import RankWeighted
from evenhand.typing import Array, Floats, Ints


def project_types(point: Floats, counts: Ints, welfare: RankWeighted) -> Floats:
    """(type,) the nearest weights in the permutahedron of the rank weights, with equal weights within a type.

    Args:
        point: (type,) any numbers.
        counts: (type,) number of arms of each type.
        welfare: welfare that defines the rank weights.
    """
    # The decreasing regression of the excess of the point over the rank weights is subtracted.
    order = np.argsort(-point, kind="stable")
    last = np.cumsum(counts[order])
    first = last - counts[order]
    mean = welfare.rank_mass(first, last, int(last[-1])) / counts[order]
    fit = isotonic_regression(point[order] - mean, weights=counts[order], increasing=False)
    member = np.empty_like(point)
    member[order] = np.maximum(point[order] - fit.x, 0.0)
    return member


def project_in_runs(point: Floats, counts: Callable[[Array], Ints], welfare: RankWeighted, num_arms: int) -> Floats:
    """As `project_types`, in the place of the point, with its order beside it and little more.

    Regressions of runs pool within them; the regression of their blocks is that of the whole.

    Args:
        point: (type,) any numbers; gone afterwards.
        counts: how many arms some types have.
        welfare: gives the rank weights.
        num_arms: how many arms there are.
    """
    np.negative(point, out=point)
    order = np.argsort(point, kind="stable")
    np.negative(point, out=point)
    pool, seen = _Pool(), 0
    for ranks in runs.pieces(slice(0, len(order))):
        rows = order[ranks]
        arms = counts(rows)
        last = seen + np.cumsum(arms)
        pool.add(point[rows] - welfare.rank_mass(last - arms, last, num_arms) / arms, arms)
        seen = int(last[-1])
    pool.merge()
    ends = np.cumsum(pool.rows)
    for ranks in runs.pieces(slice(0, len(order))):
        rows = order[ranks]
        fit = pool.means[np.searchsorted(ends, np.arange(ranks.start, ranks.stop), side="right")]
        point[rows] = np.maximum(point[rows] - fit, 0.0)
    return point


class _Pool:
    """Blocks of a decreasing regression of numbers that come in runs."""

    def __init__(self) -> None:
        self.means, self.weights, self.rows = np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64)
        self._new: list[tuple[Floats, Floats, Ints]] = []
        self._waiting = 0

    def add(self, numbers: Floats, weights: Ints) -> None:
        """Append a run; blocks are merged when as many are new as there were, so that it costs little in all."""
        self._new.append(_blocks(numbers, weights, np.ones(len(numbers), dtype=np.int64)))
        self._waiting += len(self._new[-1][0])
        if self._waiting > max(len(self.means), runs.RUN):
            self.merge()

    def merge(self) -> None:
        """One regression of all blocks so far."""
        if self._new:
            parts = zip((self.means, self.weights, self.rows), *self._new, strict=True)
            self.means, self.weights, self.rows = _blocks(*(np.concatenate(part) for part in parts))
            self._new, self._waiting = [], 0


def _blocks(means: Floats, weights: Array, rows: Ints) -> tuple[Floats, Floats, Ints]:
    """The means, weights and sizes of the blocks of a decreasing regression."""
    fit = isotonic_regression(means, weights=weights, increasing=False)
    heads = fit.blocks[:-1]
    return fit.x[heads], np.add.reduceat(weights, heads).astype(np.float64), np.add.reduceat(rows, heads)
