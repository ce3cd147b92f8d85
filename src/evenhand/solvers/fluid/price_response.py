"""Best response to prices under each welfare, and the weights that prove it.

With prices lambda fixed and c_n(v) the least cost of value v, the best response is the largest maximiser of

    F(v) - sum_n c_n(v_n),        F an increasing concave function of the welfare W.

    rank-weighted W   F = W. Arms settle on levels (`kernels.fluid_sweeps`). Arms that share a level share the weights
                      of its ranks: g_n = min(max(omega, c_n'(v-)), c_n'(v+)) with the omega at which these sum to
                      the weights of the level, the most even choice, and therefore in the permutahedron if any is
    utilitarian       F = W, and every arm responds alone at weight 1/N
    alpha-fair W      F = mean_n u(v_n / r), u(x) = (x^(1-alpha) - 1) / (1 - alpha), log for alpha = 1, r some value.
                      Every arm responds alone: u'(v_n / r) / (N r) = c_n', on an edge of slope s at
                      v = r (N r s)^(-1/alpha); g is the gradient of W, and dW/dF = r (W / r)^alpha turns prices of F
                      into prices of W

In every case W(u) <= g.u for all u, so that sum_n max_q (g_n V - lambda.U) + lambda.B bounds the fluid optimum.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand import kernels
from evenhand.checks import check_memory
from evenhand.model.welfare import RankWeighted
from evenhand.solvers.fluid.frontiers import Frontiers
from evenhand.solvers.welfare_cuts import project_types
from evenhand.typing import Bools, Floats, Ints

HALVINGS = 60
"""Steps of bisection for the common weight of a level."""


# -- responses: (member,) values on frontiers whose slopes are marginal costs ------------------------------------------


@dataclass(frozen=True)
class UpTo:
    """One level for all members, as far as each can be: minus infinity is the free value, infinity the largest."""

    level: float

    def __call__(self, frontiers: Frontiers) -> Floats:
        """(member,) the level, between the ends of each frontier."""
        return np.asarray(np.clip(self.level, frontiers.values[frontiers.first], frontiers.values[frontiers.last]))


@dataclass(frozen=True)
class AtWeight:
    """The best vertices if all members have one weight, as under the mean."""

    weight: float

    def __call__(self, frontiers: Frontiers) -> Floats:
        """(member,) values of the vertices."""
        return frontiers.values[frontiers.best_vertices(np.full(len(frontiers.first), self.weight))]


@dataclass(frozen=True)
class UtilityStops:
    """On each edge the value at which the marginal utility of a power mean equals the slope."""

    alpha: float
    reference: float
    num_arms: int

    def __call__(self, frontiers: Frontiers) -> Floats:
        """(member,) at most r (N r s)^(-1/alpha) on an edge of slope s."""
        # An edge that costs nothing has its stop at infinity: it is followed to its end.
        with np.errstate(divide="ignore", over="ignore"):
            stops = self.reference * (self.num_arms * self.reference * frontiers.slopes) ** (-1 / self.alpha)
        return follow(frontiers, stops)


@dataclass(frozen=True, eq=False)
class SettledLevels:
    """Levels of a rank-weighted welfare, exact; the frontiers are those of all members."""

    welfare: RankWeighted
    counts: Ints

    def mass(self, smallest: Ints) -> Floats:
        """Sum of the m smallest rank weights, for many m."""
        number = int(self.counts.sum())
        return self.welfare.rank_mass(number - smallest, np.full_like(smallest, number), number)

    @cached_property
    def _tables(self) -> dict[int, Floats]:
        """Sums that were computed, by their number: every response takes the same."""
        return {}

    def _stored_mass(self, smallest: Ints) -> Floats:
        number = len(smallest)
        if number not in self._tables:
            check_memory(32.0 * number, f"the rank weights of {self.counts.sum()} arms", "Use fewer types of arms.")
            self._tables[number] = self.mass(smallest)
        return self._tables[number]

    def __call__(self, frontiers: Frontiers) -> Floats:
        """(member,) levels."""
        parts = (frontiers.starts, frontiers.values, frontiers.slopes, self.counts)
        return kernels.settle_levels(*parts, self._stored_mass)


@dataclass(frozen=True, eq=False)
class LevelStops:
    """The last level whose limit is at least the slope; the free value if there is none, the end beyond the last."""

    levels: Floats
    """(level,) values, rising."""

    limits: Floats
    """(level,) largest slope that leads up to each, falling."""

    def __call__(self, frontiers: Frontiers) -> Floats:
        """(member,) values."""
        passed = len(self.limits) - np.searchsorted(self.limits[::-1], frontiers.slopes, side="left")
        return follow(frontiers, np.concatenate([[-np.inf], self.levels[:-1], [np.inf]])[passed])


def follow(frontiers: Frontiers, stops: Floats) -> Floats:
    """(member,) the value that each member reaches if it follows every edge up to a stop, at most to its end.

    Args:
        frontiers: of the members.
        stops: (vertex,) the value up to which the edge beyond a vertex is followed, falling as slopes rise.
    """
    # All edges of all members in one array. The last vertex has no edge, and the free value, the least, stands in.
    ends = np.append(frontiers.values[1:], 0.0)
    ends[frontiers.last] = frontiers.values[frontiers.first]
    reached = np.minimum(ends, np.where(np.isinf(frontiers.slopes), np.inf, stops))
    return np.asarray(np.maximum.reduceat(reached, frontiers.first))


# -- weights that prove a response -------------------------------------------------------------------------------------


def rank_supergradient(values: Floats, below: Floats, above: Floats, counts: Ints, welfare: RankWeighted) -> Floats:
    """(type,) weights in the permutahedron, each between two marginal costs as far as it can be.

    Args:
        values: (type,) values.
        below: (type,) the cost of the last unit of value.
        above: (type,) the cost of one more.
        counts: (type,) number of arms of each type.
        welfare: welfare that defines the rank weights.
    """
    # Exact equality: responses assign the same number to all arms of a level, which shares the weights of its ranks.
    _, level = np.unique(values, return_inverse=True)
    sizes = np.bincount(level, weights=counts).astype(np.int64)
    # Levels rise, so the lowest has the first ranks: those of the largest weights.
    last = np.cumsum(sizes)
    mass = welfare.rank_mass(last - sizes, last, int(last[-1]))
    even = np.clip(share_evenly(below, above, counts, level, mass), below, above)
    # Only an exact member of the permutahedron proves W(u) <= g.u.
    return project_types(even, counts, welfare)


def share_evenly(below: Floats, above: Floats, counts: Ints, level: Ints, mass: Floats) -> Floats:
    """(type,) min(max(omega, below), above), with one omega a level for which the weights of its arms sum to its mass.

    Args:
        below: (type,) least weight of an arm.
        above: (type,) largest weight of an arm, perhaps infinite.
        counts: (type,) arms of each type.
        level: (type,) level of each type.
        mass: (level,) sum of the weights of its arms.
    """
    weights = mass[level] / np.bincount(level, weights=counts)[level]
    # A type that is alone on its level has all of its mass; only shared levels are bisected, all at once.
    rows = np.flatnonzero(np.bincount(level)[level] > 1)
    if not len(rows):
        return np.asarray(weights)
    low, high, arms, of = below[rows], above[rows], counts[rows], level[rows]
    # No arm has more than the whole mass of its level, and none less than nothing.
    left, right = np.zeros(len(mass)), mass.copy()
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        # The sum rises with omega, so it can be bisected.
        sums = np.bincount(of, weights=arms * np.clip(middle[of], low, high), minlength=len(mass))
        left, right = np.where(sums < mass, middle, left), np.where(sums < mass, right, middle)
    # Where marginal costs are infinite, at the last vertex of a frontier, the mass of the level is the most there is.
    weights[rows] = np.clip(right[of], low, np.minimum(high, mass[of]))
    return np.asarray(weights)


def in_domain(values: Floats, alpha: float) -> Bools:
    """(type,) whether a value is in the domain of a power mean.

    Args:
        values: (type,) values.
        alpha: its aversion.
    """
    return values > 0 if alpha >= 1 else values >= 0


def power_utility(values: Floats, alpha: float, reference: float) -> Floats:
    """(type,) u(v / r).

    Args:
        values: (type,) values in the domain.
        alpha: the aversion.
        reference: r.
    """
    relative = values / reference
    with np.errstate(over="ignore", divide="ignore"):
        # (x^b - 1) / b as expm1(b log x) / b, which keeps its digits next to alpha = 1.
        return np.log(relative) if alpha == 1 else np.expm1((1 - alpha) * np.log(relative)) / (1 - alpha)


def excess_of(total: Floats, free: Floats, allowance: Floats) -> float:
    """Return the share of a free solution with which the total use is within the allowance."""
    over = (total > allowance) & (total > free)
    needed = (total[over] - allowance[over]) / (total[over] - free[over])
    return min(1.0, float(needed.max(initial=0.0)) * (1 + 1e-12))


def unit_prices(allowance: Floats) -> Floats:
    """(resource,) for one resource a price of 1; for several, prices at which each allowance costs 1.

    Args:
        allowance: (resource,) budget of all steps.
    """
    return np.ones(1) if len(allowance) == 1 else 1 / np.where(allowance > 0, allowance, 1.0)
