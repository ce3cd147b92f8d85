"""The nearest point in the convex hull of all permutations of some weights, the permutahedron.

With the point z sorted downwards, the projection is z - isotonic(z - w), where isotonic is the least-squares fit that
does not increase (Lim and Wright, 2016). Equal entries stay equal, so the arms of a type are one entry, weighted by
their number. O(N log N). The supergradients of a rank-weighted welfare are the points of the permutahedron of its
weights: W(v) = min { g.v : g in it }.
"""

import numpy as np
from scipy.optimize import isotonic_regression

from evenhand.model.welfare import RankWeighted
from evenhand.typing import Floats, Ints


def project_types(point: Floats, counts: Ints, welfare: RankWeighted) -> Floats:
    """(type,) the nearest weights in the permutahedron of the rank weights, with equal weights within a type.

    Args:
        point: (type,) any numbers.
        counts: (type,) how many arms have each.
        welfare: gives the rank weights.
    """
    return pool_types(point, counts, welfare)[0]


def pool_types(point: Floats, counts: Ints, welfare: RankWeighted) -> tuple[Floats, Ints]:
    """As `project_types`, with the (type,) blocks within which the projection pools.

    A little of a point's change that is the same for a whole block is taken back by the projection; the rest stays.

    Args:
        point: (type,) any numbers.
        counts: (type,) how many arms have each.
        welfare: gives the rank weights.
    """
    # What is cut off is the decreasing regression of how far the point lies above the rank weights.
    order = np.argsort(-point, kind="stable")
    last = np.cumsum(counts[order])
    first = last - counts[order]
    mean = welfare.rank_mass(first, last, int(last[-1])) / counts[order]
    fit = isotonic_regression(point[order] - mean, weights=counts[order], increasing=False)
    member, blocks = np.empty_like(point), np.empty(len(point), dtype=np.int64)
    member[order] = np.maximum(point[order] - fit.x, 0.0)
    blocks[order] = np.repeat(np.arange(len(fit.blocks) - 1), np.diff(fit.blocks))
    return member, blocks
