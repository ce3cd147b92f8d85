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
from typing import Protocol

import numpy as np

from evenhand.checks import check_memory
from evenhand.kernels import fluid_sweeps
from evenhand.model.welfare import RankWeighted, Welfare
from evenhand.solvers.fluid import frontiers as frontiers_module
from evenhand.solvers.fluid.frontiers import Frontiers
from evenhand.solvers.permutahedron import project_types
from evenhand.typing import Bools, Floats, Ints

MOST_TABULATED = 20_000_000
"""Arms up to which the sums of rank weights are a table, as the compiled loop needs."""

HALVINGS = 60
"""Steps of bisection for the common weight of a level."""


class Answers(Protocol):
    """Best response to prices under a welfare."""

    def respond(self, frontiers: Frontiers) -> Floats:
        """(type,) the values that maximise F less the cost; slopes of the frontiers are marginal costs."""
        ...

    def utility(self, values: Floats) -> float:
        """F; minus infinity outside the domain."""
        ...

    def rate(self, values: Floats) -> float:
        """The derivative dW/dF."""
        ...

    def weights(self, frontiers: Frontiers, values: Floats) -> Floats:
        """(type,) weights g of one arm of each type that prove the response at these frontiers."""
        ...


# -- rank-weighted welfare --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RankAnswers:
    """Best response under a rank-weighted welfare."""

    welfare: RankWeighted
    counts: Ints

    @property
    def num_arms(self) -> int:
        """Number of arms."""
        return int(self.counts.sum())

    def mass(self, smallest: Ints) -> Floats:
        """Return the sum of the smallest rank weights."""
        end = np.full_like(smallest, self.num_arms)
        return self.welfare.rank_mass(end - smallest, end, self.num_arms)

    @cached_property
    def table(self) -> Floats:
        """(arm + 1,) the sums of the smallest rank weights."""
        return np.ascontiguousarray(self.mass(np.arange(self.num_arms + 1)), dtype=np.float64)

    def respond(self, frontiers: Frontiers) -> Floats:
        """(type,) levels on which the arms settle."""
        parts = (frontiers.starts, frontiers.values, frontiers.slopes, self.counts)
        # The compiled loop needs a table of masses, which is too large for very many arms.
        if len(self.counts) < frontiers_module.COMPILE_FROM or self.num_arms > MOST_TABULATED:
            return fluid_sweeps.settle_levels(*parts, self.mass)
        from evenhand.kernels import compiled_fluid  # compiling takes longer than small problems

        return np.asarray(compiled_fluid.settle_levels(*parts, self.table))  # type: ignore[no-untyped-call]

    def utility(self, values: Floats) -> float:
        """The welfare."""
        return float(self.welfare(values, self.counts))

    def rate(self, values: Floats) -> float:
        """F is the welfare."""
        return 1.0

    def weights(self, frontiers: Frontiers, values: Floats) -> Floats:
        """(type,) weights in the permutahedron; see the head of this file."""
        return self.weights_between(*frontiers.marginal(values), values)

    def weights_between(self, below: Floats, above: Floats, values: Floats) -> Floats:
        """(type,) weights in the permutahedron, each between two marginal costs as far as it can be.

        Args:
            below: (type,) the cost of the last unit of value.
            above: (type,) the cost of one more.
            values: (type,) values.
        """
        # Exact equality: `settle_levels` assigns the same number to all arms of a level.
        _, level = np.unique(values, return_inverse=True)
        sizes = np.bincount(level, weights=self.counts).astype(np.int64)
        # Levels rise, so the lowest has the first ranks: those of the largest weights.
        last = np.cumsum(sizes)
        mass = self.welfare.rank_mass(last - sizes, last, self.num_arms)
        shared = share_evenly(below, above, self.counts, level, mass)
        # The bisection leaves a rounding error; only an exact member of the permutahedron proves W(u) <= g.u.
        return project_types(shared, self.counts, self.welfare)


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


# -- every arm alone --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MeanAnswers(RankAnswers):
    """Best response under the mean: every arm alone."""

    def respond(self, frontiers: Frontiers) -> Floats:
        """(type,) the best values at weight 1/N."""
        weights = np.full(len(self.counts), 1.0 / self.num_arms)
        return frontiers.values[frontiers.best_vertices(weights)]

    def weights(self, frontiers: Frontiers, values: Floats) -> Floats:
        """(type,) 1/N."""
        return np.full(len(self.counts), 1.0 / self.num_arms)


@dataclass(frozen=True, eq=False)
class AlphaAnswers:
    """Best response under a power mean of aversion alpha > 0."""

    welfare: Welfare
    alpha: float
    counts: Ints
    reference: float

    def inside(self, values: Floats) -> Bools:
        """(type,) whether a value is in the domain."""
        return in_domain(values, self.alpha)

    def respond(self, frontiers: Frontiers) -> Floats:
        """(type,) the best of: the free value; on each edge, where the marginal utility meets its slope."""
        reference, number = self.reference, int(self.counts.sum())
        # An edge that costs nothing has its stop at infinity: it is followed to its end.
        with np.errstate(divide="ignore", over="ignore"):
            stops = reference * (number * reference * frontiers.slopes) ** (-1 / self.alpha)
        return follow(frontiers, stops)

    def utility(self, values: Floats) -> float:
        """The mean utility."""
        if not self.inside(values).all():
            return -np.inf
        return float(power_utility(values, self.alpha, self.reference) @ self.counts / self.counts.sum())

    def rate(self, values: Floats) -> float:
        """R (W / r)^alpha."""
        welfare = float(self.welfare(values, self.counts))
        return float(self.reference * (welfare / self.reference) ** self.alpha)

    def weights(self, frontiers: Frontiers, values: Floats) -> Floats:
        """(type,) the gradient."""
        return self.gradient(values)

    def gradient(self, values: Floats) -> Floats:
        """(type,) the gradient (W / v)^alpha / N; an arm that cannot have more than 0 has no weight.

        Args:
            values: (type,) values.
        """
        return power_gradient(values, self.alpha, float(self.welfare(values, self.counts)), int(self.counts.sum()))


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


def power_value(utility: float, alpha: float, reference: float) -> float:
    """The value whose utility is the mean one: the power mean.

    Args:
        utility: the mean of u(v / r).
        alpha: the aversion.
        reference: r.
    """
    with np.errstate(divide="ignore"):
        log = utility if alpha == 1 else np.log1p(max((1 - alpha) * utility, -1.0)) / (1 - alpha)
    return float(reference * np.exp(log))


def power_gradient(values: Floats, alpha: float, welfare: float, num_arms: int) -> Floats:
    """(type,) the gradient (W / v)^alpha / N; an arm that cannot have more than 0 has no weight.

    Args:
        values: (type,) values.
        alpha: the aversion.
        welfare: the power mean of all arms.
        num_arms: number of arms.
    """
    positive = values > 0
    ratio = np.where(positive, welfare / np.where(positive, values, 1.0), 0.0)
    return np.asarray(ratio**alpha / num_arms)


def follow(frontiers: Frontiers, stops: Floats) -> Floats:
    """(type,) the value that each type reaches if it follows every edge up to a stop, at most to its end.

    Args:
        frontiers: of the types.
        stops: (vertex,) the value up to which the edge beyond a vertex is followed, falling as slopes rise.
    """
    # All edges of all types in one array. The last vertex of a type has no edge, and the free value, the least of the
    # type, stands in for one.
    ends = np.append(frontiers.values[1:], 0.0)
    ends[frontiers.last] = frontiers.values[frontiers.first]
    reached = np.minimum(ends, np.where(np.isinf(frontiers.slopes), np.inf, stops))
    return np.asarray(np.maximum.reduceat(reached, frontiers.first))


def check_table(num_arms: int, num_types: int) -> None:
    """Refuse a table of rank weights that would not fit."""
    if num_types >= frontiers_module.COMPILE_FROM and num_arms <= MOST_TABULATED:
        check_memory(32.0 * num_arms, f"the rank weights of {num_arms} arms", "Group similar arms into types.")
