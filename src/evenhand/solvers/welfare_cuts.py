"""Outer approximation of a welfare by cuts, for linear programs that maximise it.

An increasing function F of the welfare is a sum of concave *pieces*, and each piece lies below its tangents:

    max sum_b z_b    subject to    z_b <= F_b(v^k) + s_b^k.(v - v^k)    for the points v^k so far,    v feasible.

    rank-weighted W   F = W. With d_k = w_k - w_{k+1} and S_k(v) the sum of the k least values, W = sum_k d_k S_k;
                      a piece is a block of ranks, and there are finitely many tangents
    power mean W      F = mean_n u(v_n / r), u(x) = (x^(1-alpha) - 1) / (1 - alpha); a piece is a block of members
    any other W       F = W in one piece, with the supergradients of the welfare

Several pieces need far fewer rounds than one (multicut; Birge and Louveaux, 1988). With the multipliers of the cuts,
which sum to 1 in each piece, s = sum_b sum_k mu_bk s_b^k supports F. It becomes a support of the welfare itself,
W(v) <= g.v + c for every v: the same slopes where F = W; for a power mean, which is homogeneous, the gradient that is
proportional to s, g = s W(x) / (s.x) with x_n = (N s_n / count_n)^(-1/alpha), and c = 0.

The supergradients of a rank-weighted welfare are the points of the permutahedron of its weights, the convex hull of
their permutations: W(v) = min { g.v : g in it }. With a point z sorted downwards, the nearest point in it is
z - isotonic(z - w), where isotonic is the least-squares fit that does not increase (Lim and Wright, 2016). Equal
entries stay equal, so the arms of a type are one entry, weighted by their number. O(N log N).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from evenhand.errors import InvalidInputError, OutOfDomainError
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare
from evenhand.typing import Floats, Ints

NUM_PIECES = 8
"""Pieces of a welfare of many members: more make each linear program larger, fewer make more of them."""


MAX_UNUSED = 8
"""Programs in which a cut has no multiplier before it is dropped."""


class Support(NamedTuple):
    """An affine bound on the welfare: W(v) <= weights.v + constant for every v."""

    weights: Floats
    """(member,) g; in column generation followed by the (floor,) prices."""

    constant: float
    """c."""

    def towards(self, other: "Support", share: float) -> "Support":
        """The convex combination with another support, which is a support again."""
        mix = (1 - share) * self.weights + share * other.weights
        return Support(mix, (1 - share) * self.constant + share * other.constant)


def pieces_of(welfare: Welfare, counts: Ints, reference: float, num_pieces: int = NUM_PIECES) -> "Pieces":
    """Return the pieces of a welfare.

    Args:
        welfare: any concave welfare.
        counts: (member,) multiplicity of each member.
        reference: a positive value of the size of the members' values.
        num_pieces: pieces of a structured welfare at most.
    """
    if isinstance(welfare, RankWeighted):
        return _RankPieces(welfare, counts, num_pieces)
    if isinstance(welfare, PowerMean) and welfare.aversion > 0:
        return _PowerPieces(welfare, counts, welfare.aversion, reference, num_pieces)
    return Pieces(welfare, counts)


# -- pieces -----------------------------------------------------------------------------------------------------------


@dataclass
class Pieces:
    """A function of the welfare as a sum of concave functions; here one piece, the welfare and its supergradients."""

    welfare: Welfare
    counts: Ints

    def __call__(self, values: Floats) -> tuple[Floats, Floats]:
        """Return (piece,) heights and (piece, member) slopes; raise OutOfDomainError where there are none."""
        value = float(self.welfare(values, self.counts))
        slope = np.asarray(self.welfare.supergradient(values, self.counts), dtype=np.float64)
        if slope.shape != values.shape or not (np.isfinite(slope).all() and np.isfinite(value)):
            raise InvalidInputError(
                f"welfare {self.welfare.name}: expected a number, and a supergradient of {len(values)} finite weights, "
                f"got {value} and an array of shape {slope.shape}"
            )
        return np.array([value]), slope[None]

    def move_inside(self, values: Floats, near: Floats) -> Floats:
        """Return values at which tangents are not too steep, next to some values; `near` is a point of the domain."""
        return values

    def support(self, slopes: Floats, constant: float) -> tuple[Support, float]:
        """Return the support of the welfare with these slopes, and the rate dW/dF by which prices are multiplied."""
        return Support(slopes, constant), 1.0


class _RankPieces(Pieces):
    """Blocks of ranks: the weights w between two levels, the excess of w over the lower one."""

    welfare: RankWeighted

    def __init__(self, welfare: RankWeighted, counts: Ints, num_pieces: int) -> None:
        super().__init__(welfare, counts)
        self.number = int(counts.sum())
        # Boundaries of blocks of about equal weight; of many ranks only some are candidates.
        ranks = np.unique(np.append(np.arange(min(self.number, 1000)), np.linspace(0, self.number, 1001).astype(int)))
        mass = welfare.rank_mass(np.zeros_like(ranks), ranks, self.number)
        cuts = ranks[np.searchsorted(mass, np.linspace(0, mass[-1], num_pieces + 1)[:-1])]
        ends = np.unique(np.append(ranks if len(ranks) <= num_pieces + 1 else cuts, self.number))
        inner = ends[:-1]
        height = np.append(welfare.rank_mass(inner, inner + 1, self.number), 0.0)
        used = height[:-1] > height[1:]
        self.first, self.last = ends[:-1][used, None], ends[1:][used, None]
        self.high, self.low = height[:-1][used, None], height[1:][used, None]

    def __call__(self, values: Floats) -> tuple[Floats, Floats]:
        """Sums of the least values, weighted by the excess of the rank weights over the lower level."""
        order = np.argsort(values, kind="stable")
        last = np.cumsum(self.counts[order])
        first = last - self.counts[order]
        inside = [np.clip(rank, self.first, self.last) for rank in (first, last)]
        before = np.minimum(last, self.first) - np.minimum(first, self.first)
        mass = self.welfare.rank_mass(inside[0], inside[1], self.number)
        slopes = np.empty((len(self.first), len(values)))
        slopes[:, order] = mass - self.low * (inside[1] - inside[0]) + (self.high - self.low) * before
        return slopes @ values, slopes


@dataclass
class _PowerPieces(Pieces):
    """Blocks of members."""

    aversion: float
    reference: float
    num_pieces: int

    def __call__(self, values: Floats) -> tuple[Floats, Floats]:
        """Utilities of the members in each block."""
        alpha, relative, members = self.aversion, values / self.reference, np.arange(len(values))
        if relative.min() < 0 or (relative.min() == 0 and alpha >= 1):
            raise OutOfDomainError(f"power mean with aversion {alpha:g}: values must be positive")
        # At 0 a tangent would be vertical: one next to it takes its place.
        point = np.maximum(relative, 1e-9) if alpha < 1 else relative
        share, logs = self.counts / self.counts.sum(), np.log(point)
        # (x^b - 1) / b as expm1(b log x) / b, which keeps its digits next to alpha = 1.
        utility = logs if alpha == 1 else np.expm1((1 - alpha) * logs) / (1 - alpha)
        slope = point**-alpha
        number = min(self.num_pieces, len(values))
        piece = members * number // len(values)
        slopes = np.zeros((number, len(values)))
        slopes[piece, members] = share * slope / self.reference
        heights = np.bincount(piece, weights=share * (utility + slope * (relative - point)))
        return heights.astype(np.float64), slopes

    def move_inside(self, values: Floats, near: Floats) -> Floats:
        """A tenth of the values near by at least: pieces are separable, so that any values have tangents."""
        return np.maximum(values, 0.1 * near)

    def support(self, slopes: Floats, constant: float) -> tuple[Support, float]:
        """The gradient of the welfare that is proportional to the slopes."""
        share = self.counts / self.counts.sum()
        point = (slopes / share) ** (-1 / self.aversion)
        rate = float(self.welfare(point, self.counts)) / float(slopes @ point)
        return Support(rate * slopes, 0.0), rate


# -- cuts -------------------------------------------------------------------------------------------------------------


class Cuts:
    """Tangents of all pieces at the points so far; those without a multiplier in many programs are dropped."""

    def __init__(self, pieces: Pieces, values: Floats) -> None:
        """Begin with the tangents at some values in the domain.

        Args:
            pieces: pieces of the welfare.
            values: (member,) values.
        """
        self.pieces = pieces
        heights, self.slopes = pieces(values)
        self.num_pieces = len(heights)
        self.constants = heights - self.slopes @ values
        self.piece = np.arange(len(heights))
        self.unused = np.zeros(len(heights), dtype=np.int64)

    def add(self, values: Floats, near: Floats) -> bool:
        """Add the tangents at some values; return False outside the domain, where there are none.

        Args:
            values: (member,) values.
            near: (member,) values in the domain.
        """
        values = self.pieces.move_inside(values, near)
        try:
            heights, slopes = self.pieces(values)
        except OutOfDomainError:
            return False
        self.slopes = np.concatenate([self.slopes, slopes])
        self.constants = np.append(self.constants, heights - slopes @ values)
        self.piece = np.append(self.piece, np.arange(len(heights)))
        self.unused = np.append(self.unused, np.zeros(len(heights), dtype=np.int64))
        return True

    def heights(self, values: Floats) -> Floats:
        """(piece,) the least of the cuts of each piece at some values: constants counted from there keep their digits.

        Args:
            values: (member,) values.
        """
        least = np.full(self.num_pieces, np.inf)
        np.minimum.at(least, self.piece, self.slopes @ values + self.constants)
        return least

    def support(self, multipliers: Floats) -> tuple[Support, float]:
        """Return the support made of all cuts, and the rate dW/dF; drop cuts that have had no multiplier for long.

        Args:
            multipliers: (cut,) of the rows; within a piece they are scaled to sum to 1.
        """
        shares = np.maximum(multipliers, 0.0)
        # Only a convex combination of cuts is a cut.
        shares = shares / np.bincount(self.piece, weights=shares)[self.piece]
        constant = float(shares @ self.constants)
        found = self.pieces.support(shares @ self.slopes, constant)
        self.unused = np.where(shares > 0, 0, self.unused + 1)
        recent = self.unused <= MAX_UNUSED
        self.slopes, self.constants = self.slopes[recent], self.constants[recent]
        self.piece, self.unused = self.piece[recent], self.unused[recent]
        return found


def best_between(function: Callable[[float], float], rounds: int = 40) -> float:
    """Return where a concave function on [0, 1], finite at 0, is largest; it may be minus infinity beyond some point.

    Args:
        function: the function.
        rounds: golden-section steps.
    """
    ratio = (5**0.5 - 1) / 2
    if function(1.0) > function(1 - ratio**rounds):  # a concave function that still rises there
        return 1.0
    low, left, right, high = 0.0, 1 - ratio, ratio, 1.0
    at_left, at_right = function(left), function(right)
    for _ in range(rounds):
        # One of the two inner points is one of the next two. If both are minus infinity, the right part is discarded:
        # the left end is in the domain.
        if at_right > at_left:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
        else:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
    # The left end stays a candidate, so that the welfare never falls, and comes first, so that a tie moves nothing.
    return max([0.0, (low + high) / 2, 1.0], key=function)


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
    excess = point[order] - mean
    if np.any(np.diff(excess) >= 0):
        excess = scipy.optimize.isotonic_regression(excess, weights=counts[order], increasing=False).x
    member = np.empty_like(point)
    member[order] = np.maximum(point[order] - excess, 0.0)
    return member
