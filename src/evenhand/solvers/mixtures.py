"""The best mixture of policies for a concave welfare, by column generation.

Occupancy measures form a polytope, so the value vectors of all policies are a convex set, the hull of the vectors of
deterministic policies, and

    max_pi W(V^pi) = max { W(sum_i theta_i v^i) : theta in the simplex },       v^i the vectors of policies.

The *master* solves this over the vectors found so far. Its optimum comes with weights g that satisfy W(v) <= g.v for
every v; the *pricing* step maximises g.V^pi over all policies, which is an ordinary Markov decision problem. Its
optimum bounds the welfare of every policy from above, and its policy is a new vector. The two meet at the optimum.

    rank-weighted W   master: the linear program  max sum_i k_i lambda_i + sum_t c_t nu_t,
                      lambda_i + nu_t <= w_i (V theta)_t   (w_i the distinct rank weights, k_i ranks have each);
                      with the multipliers Q of its rows, g_t = sum_i w_i Q_it, made an exact member of the
                      permutahedron of w by projection, so that the bound holds whatever the solver's rounding
    alpha-fair W      master: a smooth concave program on the simplex, by a barrier method; g is the gradient of W
    leximin           one linear program a stage: raise the least value, fix the arms that hold it down, go on

Weights are smoothed between rounds (Wentges, 1997): pricing at a point between the best weights so far and the
master's avoids the swings of plain column generation. Rounds: a few times the number of objectives in practice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.optimize import isotonic_regression

from evenhand.errors import InvalidInput, NotConverged, OutOfDomain
from evenhand.model.welfare import AlphaFair, Leximin, RankWeighted, Welfare
from evenhand.solvers._highs import LinearProgram, solve_program
from evenhand.typing import Floats, Ints

MOST_ROUNDS = 2000
"""Vectors after which column generation gives up."""

FLOOR_SLACK = 1e-9
"""How far below its floor a fixed value may fall, relative to the largest value, at first."""

SMOOTHING = 0.3
"""The share of the best weights so far in the weights that are priced next."""


class Pricing(Protocol):
    """Maximises a weighted sum over all policies and remembers the policy."""

    def __call__(self, weights: Floats, tolerance: float) -> tuple[Floats, float]:
        """The (objective,) values of the policy found, and an upper bound on the weighted sum of every policy."""
        ...


@dataclass
class Mixture:
    """A mixture of the priced policies, in the order of pricing."""

    shares: Floats
    """(policy,) the share of each priced policy."""

    values: Floats
    """(objective,) values of the mixture."""

    welfare: float
    """Their welfare."""

    upper_bound: float
    """No policy has more welfare."""

    rounds: int = 0
    """Policies priced."""


@dataclass
class _Search:
    """Vectors found so far, and the best bound."""

    price: Pricing
    tolerance: float
    told: Callable[[int, float], None] | None
    vectors: list[Floats] = field(default_factory=list)
    upper_bound: float = np.inf

    def add(self, weights: Floats, tolerance: float) -> tuple[Floats, float]:
        """Price, keep the vector, and return it with the bound."""
        values, bound = self.price(weights, tolerance)
        self.vectors.append(values)
        if len(self.vectors) > MOST_ROUNDS:
            raise NotConverged(f"no certificate after {MOST_ROUNDS} policies")
        return values, bound

    def gap(self, value: float, bound: float) -> float:
        """How far the value may be from the best, relative to the bound; where that is nearly 0, to the values seen."""
        scale = max(abs(bound), 1e-6 * float(np.abs(self.vectors[0]).max()), 1e-12)
        return max(0.0, bound - value) / scale

    @property
    def matrix(self) -> Floats:
        """(objective, policy) the vectors side by side."""
        return np.column_stack(self.vectors)


def best_mixture(
    price: Pricing,
    welfare: Welfare,
    counts: Ints,
    tolerance: float = 1e-7,
    told: Callable[[int, float], None] | None = None,
) -> Mixture:
    """Maximise a concave welfare over all policies.

    Args:
        price: solves the weighted-sum problem.
        welfare: what is maximised.
        counts: (objective,) how many arms each objective stands for.
        tolerance: the relative gap between the welfare and its bound at which to stop.
        told: called each round with its number and the gap.
    """
    search = _Search(price, tolerance, told)
    _, bound = search.add(counts / counts.sum(), tolerance)
    if isinstance(welfare, Leximin):
        return _leximin(search, welfare, counts)
    search.upper_bound = bound  # every welfare here is at most the mean
    interior = _positive_shares(search) if isinstance(welfare, AlphaFair) and welfare.alpha > 0 else np.ones(1)
    return _generate(search, welfare, counts, interior)


def _positive_shares(search: _Search) -> Floats:
    """Shares under which every value is positive, the domain of alpha-fairness; OutOfDomain if there are none."""
    if (search.vectors[0] > 0).all():
        return np.ones(1)
    level, shares, _, bound = _raise_least(search, np.full(len(search.vectors[0]), -np.inf))
    if level <= 0:
        raise OutOfDomain(
            "alpha-fairness needs positive values, but no policy gives every arm one: "
            f"the worst-off arm has at most {bound:.6g}. Use a Gini welfare, or shift the rewards."
        )
    return shares


def _generate(search: _Search, welfare: Welfare, counts: Ints, interior: Floats) -> Mixture:
    best_weights = counts / counts.sum()
    smoothing, gap = SMOOTHING, np.inf
    while True:
        shares, weights = _master(welfare, search.matrix, counts, interior)
        values = search.matrix @ shares
        value = float(welfare(values, counts))
        gap = search.gap(value, search.upper_bound)
        if search.told is not None:
            search.told(len(search.vectors), gap)
        if gap <= search.tolerance:
            return Mixture(shares, values, value, search.upper_bound, len(search.vectors))
        tried = smoothing * best_weights + (1 - smoothing) * weights
        found, bound = search.add(tried, max(0.1 * search.tolerance, 0.01 * min(gap, 1.0)))
        if bound < search.upper_bound:
            search.upper_bound, best_weights = bound, tried
        # A vector that the master's own weights do not like teaches it nothing: price those weights next.
        useful = weights @ found > value + 0.1 * search.tolerance * max(1.0, abs(value))
        smoothing = SMOOTHING if useful else 0.0


def _master(welfare: Welfare, matrix: Floats, counts: Ints, interior: Floats) -> tuple[Floats, Floats]:
    """The best shares of the known vectors, and the weights that bound the welfare there."""
    if isinstance(welfare, RankWeighted):
        return _rank_master(welfare, matrix, counts)
    if isinstance(welfare, AlphaFair):
        shares = _smooth_master(welfare, matrix, counts, interior)
        return shares, welfare.supergradient(matrix @ shares, counts)
    raise TypeError(f"no master problem for {type(welfare).__name__}")


def _rank_master(welfare: RankWeighted, matrix: Floats, counts: Ints) -> tuple[Floats, Floats]:
    weights = welfare.rank_weights(int(counts.sum()))
    levels, ranks = _distinct_weights(weights)
    num_types, num_vectors = matrix.shape
    rows = len(levels) * num_types
    level_of_row, type_of_row = np.divmod(np.arange(rows), num_types)
    columns = num_vectors + len(levels) + num_types
    program = np.zeros((rows + 1, columns))
    scale = max(float(np.abs(matrix).max()), 1e-300)
    program[:rows, :num_vectors] = -levels[level_of_row, None] * (matrix / scale)[type_of_row]
    program[np.arange(rows), num_vectors + level_of_row] = 1.0
    program[np.arange(rows), num_vectors + len(levels) + type_of_row] = 1.0
    program[rows, :num_vectors] = 1.0
    free = np.array([np.full(columns - num_vectors, -np.inf), np.full(columns - num_vectors, np.inf)])
    free[:, -1] = 0.0  # lambda + c, nu - c is the same solution: one of them is pinned
    solution = solve_program(
        LinearProgram(
            gains=np.concatenate([np.zeros(num_vectors), ranks, counts]),
            matrix=sparse.csc_array(program),
            row_lower=np.concatenate([np.full(rows, -np.inf), [1.0]]),
            row_upper=np.concatenate([np.zeros(rows), [1.0]]),
            lower=np.concatenate([np.zeros(num_vectors), free[0]]),
            upper=np.concatenate([np.full(num_vectors, np.inf), free[1]]),
        )
    )
    shares = _on_simplex(solution.primal[:num_vectors])
    mass = np.maximum(solution.duals[:rows], 0.0).reshape(len(levels), num_types)
    per_arm = np.repeat(levels @ mass / counts, counts)
    member = project_on_permutahedron(per_arm, weights)
    starts = np.cumsum(counts) - counts
    return shares, np.add.reduceat(member, starts)


def _distinct_weights(weights: Floats) -> tuple[Floats, Floats]:
    """The distinct rank weights, largest first, and how many ranks have each; what is lost in rounding counts as 0."""
    clean = np.where(weights < 1e-18, 0.0, weights)
    levels, ranks = np.unique(clean, return_counts=True)
    return levels[::-1].copy(), ranks[::-1].astype(np.float64)


def _on_simplex(shares: Floats) -> Floats:
    clean = np.maximum(shares, 0.0)
    return np.asarray(clean / clean.sum())


def project_on_permutahedron(point: Floats, weights: Floats) -> Floats:
    """(arm,) the nearest point in the convex hull of all permutations of the weights.

    With the point sorted downwards, the projection is z - isotonic(z - w), where isotonic is the least-squares fit
    that does not increase (Lim and Wright, 2016). Equal entries stay equal. O(N log N).

    Args:
        point: (arm,) any numbers.
        weights: (arm,) non-increasing.
    """
    order = np.argsort(-point, kind="stable")
    ordered = point[order]
    fit = isotonic_regression(ordered - weights, increasing=False).x
    member = np.empty_like(point)
    member[order] = ordered - fit
    return member


def _smooth_master(welfare: AlphaFair, matrix: Floats, counts: Ints, interior: Floats) -> Floats:
    """Maximise the mean utility of V theta over the simplex, by a barrier method with Newton steps.

    f(theta) = sum_t (c_t / N) u(v_t / scale),  v = V theta;  at barrier mu the step solves
    [H - mu diag(theta^-2), 1; 1, 0] [d; y] = [-(grad + mu / theta); 0].
    """
    share, alpha = counts / counts.sum(), welfare.alpha
    num_vectors = matrix.shape[1]
    theta = _blend(matrix, np.pad(interior, (0, num_vectors - len(interior))))
    barrier = 1.0
    while barrier > 1e-13:
        for _ in range(50):
            values = matrix @ theta
            scale = float(welfare(values, counts))
            slope = share * (values / scale) ** -alpha / scale
            gradient = matrix.T @ slope + barrier / theta
            curvature = matrix.T @ ((-alpha * slope / values)[:, None] * matrix) - np.diag(barrier / theta**2)
            step, decrement = _newton_step(curvature, gradient)
            room = 0.99 * min(_room(theta, step), _room(values, matrix @ step))
            theta = _on_simplex(theta + min(1.0, room, 1.0 / (1.0 + np.sqrt(decrement / barrier))) * step)
            if decrement <= 0.01 * barrier:
                break
        barrier *= 0.1
    return theta


def _blend(matrix: Floats, interior: Floats) -> Floats:
    """As near to equal shares as keeps every value above half of what the interior shares give it."""
    even = np.full(len(interior), 1.0 / len(interior))
    safe, other = matrix @ interior, matrix @ even
    if (safe <= 0).any():  # only where the welfare allows it
        return even
    part = min(0.5, 0.5 * _room(safe, other - safe))
    return (1 - part) * interior + part * even


def _room(point: Floats, step: Floats) -> float:
    """How far along the step every entry stays positive."""
    falling = step < 0
    return float((-point[falling] / step[falling]).min(initial=np.inf))


def _newton_step(curvature: Floats, gradient: Floats) -> tuple[Floats, float]:
    """The Newton step that keeps the sum, and the squared decrement."""
    size = len(gradient)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = curvature
    system[:size, size] = system[size, :size] = 1.0
    step = np.linalg.solve(system, np.concatenate([-gradient, [0.0]]))[:size]
    return step, max(float(gradient @ step), 0.0)


def _leximin(search: _Search, welfare: Leximin, counts: Ints) -> Mixture:
    """Raise the least value, fix whoever holds it down, and raise the least of the others, until all are fixed."""
    number = len(counts)
    floors = np.full(number, -np.inf)
    first_bound = np.inf
    while True:
        free = np.isinf(floors)
        level, shares, multipliers, bound = _raise_least(search, floors)
        first_bound = min(first_bound, bound) if free.all() else first_bound
        held = free & (multipliers > 1e-6)
        floors[held if held.any() else free & (multipliers >= multipliers[free].max())] = level
        if np.isfinite(floors).all():
            values = search.matrix @ shares
            return Mixture(shares, values, float(welfare(values, counts)), first_bound, len(search.vectors))


def _raise_least(search: _Search, floors: Floats) -> tuple[float, Floats, Floats, float]:
    """The largest level that all free objectives reach while the others keep their floors, to the tolerance."""
    free = np.isinf(floors)
    fixed_floors = np.where(free, 0.0, floors)
    bound = np.inf
    while True:
        level, shares, multipliers = _level_master(search.matrix, floors)
        scale = float(multipliers.sum())
        _, most = search.add(multipliers / scale, 0.1 * search.tolerance)
        bound = min(bound, most * scale - float(multipliers @ fixed_floors))
        gap = search.gap(level, bound)
        if search.told is not None:
            search.told(len(search.vectors), gap)
        if gap <= search.tolerance:
            return level, np.append(shares, 0.0), multipliers, bound


def _level_master(matrix: Floats, floors: Floats) -> tuple[float, Floats, Floats]:
    """The largest t with (V theta)_n >= t where free and >= floor elsewhere; also the rows' multipliers."""
    slack = FLOOR_SLACK
    while True:
        try:
            return _level_program(matrix, floors, slack)
        except InvalidInput:  # floors reached only to rounding can contradict each other
            slack *= 10
            if slack > 1e-5:
                raise


def _level_program(matrix: Floats, floors: Floats, slack: float) -> tuple[float, Floats, Floats]:
    free = np.isinf(floors)
    number, num_vectors = matrix.shape
    scale = max(float(np.abs(matrix).max()), 1e-300)
    program = np.zeros((number + 1, num_vectors + 1))
    program[:number, :num_vectors] = matrix / scale
    program[:number, num_vectors] = np.where(free, -1.0, 0.0)
    program[number, :num_vectors] = 1.0
    solution = solve_program(
        LinearProgram(
            gains=np.append(np.zeros(num_vectors), 1.0),
            matrix=sparse.csc_array(program),
            row_lower=np.append(np.where(free, 0.0, floors / scale - slack), 1.0),
            row_upper=np.append(np.full(number, np.inf), 1.0),
            lower=np.append(np.zeros(num_vectors), -np.inf),
            upper=np.full(num_vectors + 1, np.inf),
        ),
        tolerance=1e-10,
    )
    multipliers = np.maximum(-solution.duals[:number], 0.0)
    shares = _on_simplex(solution.primal[:-1])
    return float(solution.primal[-1]) * scale, shares, multipliers / multipliers[free].sum()
