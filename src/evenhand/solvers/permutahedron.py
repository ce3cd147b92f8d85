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
