"""The best mixture of policies for a concave welfare, by column generation.

Occupancy measures form a polytope, so the value vectors of all policies are a convex set, the hull of the vectors of
deterministic policies, and

    max_pi W(V^pi) = max { W(sum_i theta_i v^i) : theta in the simplex },       v^i the vectors of policies.

The *master* solves this over the vectors found so far. Its optimum comes with a *support* of the welfare: weights g and
a constant c with W(v) <= g.v + c for every v. The *pricing* step maximises g.V^pi over all policies, which is an
ordinary Markov decision problem. Its optimum bounds the welfare of every policy from above, and its policy is a new
vector. The two meet at the optimum.

    rank-weighted W   master: the linear program  max sum_i k_i lambda_i + sum_t c_t nu_t,
                      lambda_i + nu_t <= w_i (V theta)_t   (w_i the distinct rank weights, k_i ranks have each);
                      with the multipliers Q of its rows, g_t = sum_i w_i Q_it, made an exact member of the
                      permutahedron of w by projection, so that the bound holds whatever the solver's rounding; c = 0
    power mean W      master: a smooth concave program on the simplex, by a barrier method; g the gradient of W, c = 0
    any other W       master: cutting planes  max z,  z <= W(v_k) + g_k.(V theta - v_k),  g_k a supergradient at v_k;
                      with the multipliers mu of the cuts, g = sum mu_k g_k and c = sum mu_k (W(v_k) - g_k.v_k)
    lexicographic W   one linear program a stage: raise the least value, fix those that hold it down, go on

Floors. Objectives behind the members of welfare must reach at least f: s(theta) >= f are rows of every master, with
multipliers phi >= 0, and the bound is max_pi [g.V + phi.S] - phi.f + c. A first mixture that keeps them is found by
raising the least s - f; where that ends below 0, the floors are refused. With floors a power mean is treated by cuts.

Supports are smoothed between rounds (Wentges, 1997): pricing at a point between the best support so far and the
master's avoids the swings of plain column generation. Rounds: a few times the number of objectives in practice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from scipy import sparse
from scipy.optimize import isotonic_regression

from evenhand.errors import Infeasible, InvalidInput, NotConverged, OutOfDomain
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, is_lexicographic
from evenhand.solvers._highs import LinearProgram, solve_program
from evenhand.typing import ArrayLike, Floats, Ints

MOST_ROUNDS = 2000
"""Vectors after which column generation gives up."""

MOST_CUTS = 500
"""Cutting planes that one master adds before it goes on with what it has."""

FLOOR_SLACK = 1e-9
"""How far below its floor a fixed value may fall, relative to how large it can be, at first."""

SMOOTHING = 0.3
"""The share of the best support so far in the one that is priced next."""


class Pricing(Protocol):
    """Maximises a weighted sum over all policies and remembers the policy."""

    def __call__(self, weights: Floats, tolerance: float) -> tuple[Floats, float]:
        """The (objective,) values of the policy found, and an upper bound on the weighted sum of every policy."""
        ...

    @property
    def rounding(self) -> float:
        """What rounding may have done to the last bound: no gap is closed beyond a few times this."""
        ...

    @property
    def units(self) -> Floats:
        """(objective,) how large each objective can be at most, in magnitude."""
        ...


@dataclass
class Mixture:
    """A mixture of the priced policies, in the order of pricing."""

    shares: Floats
    """(policy,) the share of each priced policy."""

    values: Floats
    """(objective,) values of the mixture; those with floors come last."""

    welfare: float
    """The welfare of its members."""

    upper_bound: float
    """No policy has more welfare."""

    rounds: int = 0
    """Policies priced."""


class Support(NamedTuple):
    """An affine bound on the welfare, and prices of the floors."""

    weights: Floats
    """(objective,) weights g of the members, then prices phi of the floors."""

    constant: float
    """c."""

    def towards(self, other: "Support", share: float) -> "Support":
        """A point between: again a bound."""
        mix = (1 - share) * self.weights + share * other.weights
        return Support(mix, (1 - share) * self.constant + share * other.constant)


@dataclass
class _Search:
    """Vectors found so far, and the best bound."""

    price: Pricing
    tolerance: float
    progress: Callable[[int, float], None] | None
    counts: Ints
    floors: Floats
    vectors: list[Floats] = field(default_factory=list)
    upper_bound: float = np.inf

    def add(self, weights: Floats, tolerance: float) -> tuple[Floats, float]:
        """Price, keep the vector, and return it with the bound on the weighted sum."""
        values, bound = self.price(weights, tolerance)
        self.vectors.append(values)
        if len(self.vectors) > MOST_ROUNDS:
            raise NotConverged(f"no certificate after {MOST_ROUNDS} policies")
        return values, bound

    def bound(self, support: Support, most: float) -> float:
        """The bound on welfare of a support whose weighted sum is at most `most`."""
        return most - float(support.weights[len(self.counts) :] @ self.floors) + support.constant

    def gap(self, value: float, bound: float, rounding: float, rows: Ints) -> float:
        """How far the value may be from the best, relative to the bound; where that is nearly 0, to the values seen.

        Args:
            value: what was reached.
            bound: what cannot be exceeded.
            rounding: what rounding may have done to the bound.
            rows: the objectives that the value is made of: shares of time are of another size than rewards.
        """
        seen = float(np.abs(self.vectors[0][rows]).max())
        scale = max(abs(bound), 1e-6 * seen, 1e-12)
        difference = bound - value
        return difference / scale if difference > 8 * rounding else 0.0

    def tell(self, gap: float) -> None:
        """Pass on the gap."""
        if self.progress is not None:
            self.progress(len(self.vectors), gap)

    def members(self, values: Floats) -> Floats:
        """(member, ...) what welfare weighs."""
        return values[: len(self.counts)]

    @cached_property
    def units(self) -> Floats:
        """(objective,) how large each objective can be; that of the largest member where it is 0 whatever is done."""
        units = self.price.units
        return np.where(units > 0, units, units[: len(self.counts)].max() or 1.0)

    @property
    def matrix(self) -> Floats:
        """(objective, policy) the vectors side by side."""
        return np.column_stack(self.vectors)


def best_mixture(
    price: Pricing,
    welfare: Welfare,
    counts: Ints,
    tolerance: float = 1e-7,
    progress: Callable[[int, float], None] | None = None,
    floors: ArrayLike = (),
) -> Mixture:
    """Maximise a concave welfare over all policies.

    Args:
        price: solves the weighted-sum problem; its objectives are the members of welfare, then those with floors.
        welfare: what is maximised.
        counts: (member,) how many members each of the first objectives stands for.
        tolerance: the relative gap between the welfare and its bound at which to stop.
        progress: called each round with its number and the gap.
        floors: (floor,) the least that the other objectives must reach.

    Raises:
        Infeasible: the floors cannot all be reached.
    """
    least = np.asarray(floors, dtype=np.float64)
    search = _Search(price, tolerance, progress, counts, least)
    mean = Support(np.concatenate([counts / counts.sum(), np.zeros(len(least))]), 0.0)
    _, bound = search.add(mean.weights, tolerance)
    rounding = price.rounding
    feasible = _meet_floors(search)
    if is_lexicographic(welfare):
        return _leximin(search, welfare)
    if isinstance(welfare, (RankWeighted, PowerMean)):
        search.upper_bound = bound  # these are at most the mean
    if isinstance(welfare, PowerMean) and welfare.aversion > 0:
        feasible = _positive_shares(search, feasible)
    return _generate(search, welfare, _master_of(welfare, search, feasible), mean, rounding)


def _meet_floors(search: _Search) -> Floats:
    """Shares under which every floor is kept; Infeasible if there are none."""
    number = len(search.floors)
    first = np.zeros(len(search.vectors))
    first[0] = 1.0
    if number == 0 or (search.vectors[0][-number:] >= search.floors).all():
        return first
    rows = np.arange(len(search.counts), len(search.vectors[0]))
    level, shares, _, bound = _raise_least(search, _Rows(rows, np.full(number, -np.inf), search.floors), enough=0.0)
    if level >= -FLOOR_SLACK:
        return shares
    if bound >= -FLOOR_SLACK:  # what rounding may do to it
        raise NotConverged("it could not be told whether the floors can be kept")
    most, _, _, _ = _raise_least(search, _Rows(rows, np.full(number, -np.inf), np.zeros(number)))
    raise Infeasible(
        "the floors ask for more than the budget allows: the largest floor that all arms with a floor can have "
        f"together is {np.floor(max(most, 0.0) * 1e6 + 0.01) / 1e6:.6g}"
    )


def _positive_shares(search: _Search, feasible: Floats) -> Floats:
    """Shares under which every value is positive, the domain of power means; OutOfDomain if there are none."""
    if (search.members(search.matrix[:, : len(feasible)] @ feasible) > 0).all():
        return feasible
    level, shares, _, bound = _raise_least(search, _all_rows(search))
    if level <= 0:
        raise OutOfDomain(
            "alpha-fairness needs positive values, but no policy gives every arm one: "
            f"the worst-off arm has at most {bound:.6g}. Use a Gini welfare, or shift the rewards."
        )
    return shares


class _Master(Protocol):
    """Finds the best mixture of known vectors."""

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """(policy,) shares of the (objective, policy) vectors, and a support of the welfare there."""
        ...


def _generate(search: _Search, welfare: Welfare, master: _Master, best: Support, rounding: float) -> Mixture:
    members = np.arange(len(search.counts))
    smoothing = SMOOTHING if np.isfinite(search.upper_bound) else 0.0
    while True:
        shares, support = master(search.matrix)
        values = search.matrix @ shares
        value = float(welfare(search.members(values), search.counts))
        gap = search.gap(value, search.upper_bound, rounding, members)
        search.tell(gap)
        _check_support(welfare, value, search.upper_bound)
        if gap <= search.tolerance:
            return Mixture(shares, values, value, search.upper_bound, len(search.vectors))
        tried = support.towards(best, smoothing)
        found, most = search.add(tried.weights, max(0.1 * search.tolerance, 0.01 * min(gap, 1.0)))
        rounding = max(rounding, search.price.rounding)
        if (bound := search.bound(tried, most)) < search.upper_bound:
            search.upper_bound, best = bound, tried
        # A vector that the master's own support does not like teaches it nothing: price that support next.
        promised = search.bound(support, float(support.weights @ found))
        useful = promised > value + 0.1 * search.tolerance * max(1.0, abs(value))
        smoothing = SMOOTHING if useful else 0.0


def _check_support(welfare: Welfare, value: float, bound: float) -> None:
    """A welfare of a user's own may contradict itself: then nothing is proved."""
    known = isinstance(welfare, (RankWeighted, PowerMean))
    if not known and value > bound + 1e-4 * max(abs(value), abs(bound)):
        raise InvalidInput(
            f"welfare {welfare.name}: a policy has {value:.6g}, and its supergradients say that none has more than "
            f"{bound:.6g}: they do not bound it from above, or it is not concave"
        )


def _master_of(welfare: Welfare, search: _Search, feasible: Floats) -> _Master:
    """The master that knows most of the welfare."""
    if isinstance(welfare, RankWeighted):
        return _RankMaster(welfare, search.counts, search.floors)
    if isinstance(welfare, PowerMean) and not len(search.floors):
        return _SmoothMaster(welfare, search.counts, feasible)
    return _CutMaster(welfare, search.counts, search.floors, feasible, 0.1 * search.tolerance)


@dataclass
class _RankMaster:
    """One linear program."""

    welfare: RankWeighted
    counts: Ints
    floors: Floats

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, and a support from the multipliers of the ranks."""
        weights = self.welfare.rank_weights(int(self.counts.sum()))
        levels, ranks = _distinct_weights(weights)
        M, num_vectors = len(self.counts), matrix.shape[1]
        rows = len(levels) * M
        level_of_row, type_of_row = np.divmod(np.arange(rows), M)
        columns = num_vectors + len(levels) + M
        scale = max(float(np.abs(matrix[:M]).max()), 1e-300)
        program = np.zeros((rows + len(self.floors) + 1, columns))
        program[:rows, :num_vectors] = -levels[level_of_row, None] * (matrix[:M] / scale)[type_of_row]
        program[np.arange(rows), num_vectors + level_of_row] = 1.0
        program[np.arange(rows), num_vectors + len(levels) + type_of_row] = 1.0
        program[rows:-1, :num_vectors] = matrix[M:]
        program[-1, :num_vectors] = 1.0
        free = np.array([np.full(columns - num_vectors, -np.inf), np.full(columns - num_vectors, np.inf)])
        free[:, -1] = 0.0  # lambda + c, nu - c is the same solution: one of them is pinned
        solution = solve_program(
            LinearProgram(
                gains=np.concatenate([np.zeros(num_vectors), ranks, self.counts]),
                matrix=sparse.csc_array(program),
                row_lower=np.concatenate([np.full(rows, -np.inf), self.floors - FLOOR_SLACK, [1.0]]),
                row_upper=np.concatenate([np.zeros(rows), np.full(len(self.floors), np.inf), [1.0]]),
                lower=np.concatenate([np.zeros(num_vectors), free[0]]),
                upper=np.concatenate([np.full(num_vectors, np.inf), free[1]]),
            )
        )
        mass = np.maximum(solution.duals[:rows], 0.0).reshape(len(levels), M)
        per_arm = np.repeat(levels @ mass / self.counts, self.counts)
        member = project_on_permutahedron(per_arm, weights)
        of_types = np.add.reduceat(member, np.cumsum(self.counts) - self.counts)
        prices = scale * np.maximum(-solution.duals[rows:-1], 0.0)
        return _on_simplex(solution.primal[:num_vectors]), Support(np.concatenate([of_types, prices]), 0.0)


@dataclass
class _SmoothMaster:
    """A smooth concave program."""

    welfare: PowerMean
    counts: Ints
    interior: Floats

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, and the gradient there."""
        shares = _smooth_master(self.welfare, matrix, self.counts, self.interior)
        return shares, Support(self.welfare.supergradient(matrix @ shares, self.counts), 0.0)


@dataclass
class _CutMaster:
    """Cutting planes, which are kept from round to round: they hold for every vector."""

    welfare: Welfare
    counts: Ints
    floors: Floats
    best: Floats
    precision: float
    cuts: list[tuple[Floats, float]] = field(default_factory=list)

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, and the mean of the cuts that hold there."""
        members = matrix[: len(self.counts)]
        self.best = np.pad(self.best, (0, matrix.shape[1] - len(self.best)))
        value = self._cut(members @ self.best)
        for _ in range(MOST_CUTS):
            level, shares, support = self._program(matrix)
            if level - value <= self.precision * max(abs(level), 1e-12):
                break
            # A cut half-way keeps clear of corners where the welfare is steep or not defined at all.
            for part in (0.5, 1.0):
                tried = (1 - part) * self.best + part * shares
                if (found := self._try(members @ tried)) > value:
                    self.best, value = tried, found
        return self.best, support

    def _cut(self, values: Floats) -> float:
        """Add the cut at some values, and return their welfare."""
        value = float(self.welfare(values, self.counts))
        slope = np.asarray(self.welfare.supergradient(values, self.counts), dtype=np.float64)
        if slope.shape != values.shape or not (np.isfinite(slope).all() and np.isfinite(value)):
            raise InvalidInput(
                f"welfare {self.welfare.name}: expected a number, and a supergradient of {len(values)} finite weights, "
                f"got {value} and an array of shape {slope.shape}"
            )
        self.cuts.append((slope, value - float(slope @ values)))
        return value

    def _try(self, values: Floats) -> float:
        try:
            return self._cut(values)
        except OutOfDomain:
            return -np.inf

    def _program(self, matrix: Floats) -> tuple[float, Floats, Support]:
        """The best shares under the cuts so far."""
        slopes = np.array([slope for slope, _ in self.cuts])
        constants = np.array([constant for _, constant in self.cuts])
        M, K, F = len(self.counts), len(self.cuts), len(self.floors)
        scale = max(float(np.abs(matrix[:M]).max()), float(np.abs(constants).max()), 1e-300)
        program = np.zeros((K + F + 1, matrix.shape[1] + 1))
        program[:K, :-1], program[:K, -1] = -(slopes @ matrix[:M]) / scale, 1.0
        program[K:-1, :-1] = matrix[M:]
        program[-1, :-1] = 1.0
        solution = solve_program(
            LinearProgram(
                gains=np.append(np.zeros(matrix.shape[1]), 1.0),
                matrix=sparse.csc_array(program),
                row_lower=np.concatenate([np.full(K, -np.inf), self.floors - FLOOR_SLACK, [1.0]]),
                row_upper=np.concatenate([constants / scale, np.full(F, np.inf), [1.0]]),
                lower=np.append(np.zeros(matrix.shape[1]), -np.inf),
                upper=np.full(matrix.shape[1] + 1, np.inf),
            ),
            tolerance=1e-9,
        )
        mu = _on_simplex(solution.duals[:K])
        prices = scale * np.maximum(-solution.duals[K:-1], 0.0)
        support = Support(np.concatenate([mu @ slopes, prices]), float(mu @ constants))
        return float(solution.primal[-1]) * scale, _on_simplex(solution.primal[:-1]), support


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


def _smooth_master(welfare: PowerMean, matrix: Floats, counts: Ints, interior: Floats) -> Floats:
    """Maximise the mean utility of V theta over the simplex, by a barrier method with Newton steps.

    f(theta) = sum_t (c_t / N) u(v_t / scale),  v = V theta;  at barrier mu the step solves
    [H - mu diag(theta^-2), 1; 1, 0] [d; y] = [-(grad + mu / theta); 0].
    """
    share, alpha = counts / counts.sum(), welfare.aversion
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


class _Rows(NamedTuple):
    """What is raised, and what must not fall: of some objectives."""

    rows: Ints
    """(row,) the objectives."""

    fixed: Floats
    """(row,) what the objective must have; -inf where it is free and to be raised."""

    base: Floats
    """(row,) from where a free objective is measured."""


def _all_rows(search: _Search, members: Floats | None = None) -> _Rows:
    """The members, free or at what they must have, and the floors."""
    number = len(search.counts)
    fixed = np.full(number, -np.inf) if members is None else members
    return _Rows(
        np.arange(number + len(search.floors)),
        np.concatenate([fixed, search.floors]),
        np.zeros(number + len(search.floors)),
    )


def _leximin(search: _Search, welfare: Welfare) -> Mixture:
    """Raise the least value, fix whoever holds it down, and raise the least of the others, until all are fixed."""
    counts = search.counts
    levels = np.full(len(counts), -np.inf)
    first_bound = np.inf
    while True:
        free = np.isinf(levels)
        level, shares, multipliers, bound = _raise_least(search, _all_rows(search, levels))
        multipliers = multipliers[: len(counts)]
        first_bound = min(first_bound, bound) if free.all() else first_bound
        held = free & (multipliers > 1e-6)
        levels[held if held.any() else free & (multipliers >= multipliers[free].max())] = level
        if np.isfinite(levels).all():
            values = search.matrix @ shares
            value = float(welfare(search.members(values), counts))
            return Mixture(shares, values, value, first_bound, len(search.vectors))


def _raise_least(search: _Search, rows: _Rows, enough: float = np.inf) -> tuple[float, Floats, Floats, float]:
    """The largest level above their base that all free objectives reach while the others keep theirs.

    Args:
        search: the vectors so far, to which more are added.
        rows: the objectives.
        enough: a level at which to stop early.

    Returns:
        The level, to the tolerance; the shares; the (row,) multipliers; and a bound on the level.
    """
    free = np.isinf(rows.fixed)
    due = np.where(free, rows.base, rows.fixed)
    weights = np.zeros(len(search.vectors[0]))
    bound, rounding = np.inf, 0.0
    while True:
        level, shares, multipliers = _level_master(search.matrix[rows.rows], rows, search.units[rows.rows])
        if level >= enough:
            return level, shares, multipliers, bound
        scale = float(multipliers.sum())
        weights[rows.rows] = multipliers / scale
        _, most = search.add(weights, 0.1 * search.tolerance)
        bound = min(bound, most * scale - float(multipliers @ due))
        rounding = max(rounding, scale * search.price.rounding)
        gap = search.gap(level, bound, rounding, rows.rows[free])
        search.tell(gap)
        if gap <= search.tolerance or bound < enough - FLOOR_SLACK < np.inf:  # reached, or proved out of reach
            return level, np.append(shares, 0.0), multipliers, bound


def _level_master(matrix: Floats, rows: _Rows, units: Floats) -> tuple[float, Floats, Floats]:
    """The largest t with (V theta)_n >= base_n + t where free and >= its due elsewhere; also the rows' multipliers.

    Args:
        matrix: (row, policy) the objectives of the policies so far.
        rows: what is raised and what must not fall.
        units: (row,) how large each objective can be.
    """
    seen = np.maximum(np.abs(matrix).max(axis=1), np.abs(rows.base))
    units = np.clip(seen, 1e-6 * units, units)
    slack = FLOOR_SLACK
    while True:
        try:
            return _level_program(matrix, rows, units, slack)
        except Infeasible:  # what was reached only to rounding can contradict itself
            slack *= 10
            if slack > 1e-5:
                raise


def _level_program(matrix: Floats, rows: _Rows, units: Floats, slack: float) -> tuple[float, Floats, Floats]:
    """Each row in a unit of its own, so that neither shares of time nor small values drown in large ones."""
    free = np.isinf(rows.fixed)
    number, num_vectors = matrix.shape
    unit = float(units[free].min())
    program = np.zeros((number + 1, num_vectors + 1))
    program[:number, :num_vectors] = matrix / units[:, None]
    program[:number, num_vectors] = np.where(free, -unit / units, 0.0)
    program[number, :num_vectors] = 1.0
    due = np.where(free, rows.base / units, np.where(free, 0.0, rows.fixed) / units - slack)
    solution = solve_program(
        LinearProgram(
            gains=np.append(np.zeros(num_vectors), 1.0),
            matrix=sparse.csc_array(program),
            row_lower=np.append(due, 1.0),
            row_upper=np.append(np.full(number, np.inf), 1.0),
            lower=np.append(np.zeros(num_vectors), -np.inf),
            upper=np.full(num_vectors + 1, np.inf),
        ),
        tolerance=1e-10,
    )
    multipliers = np.maximum(-solution.duals[:number], 0.0) * unit / units
    shares = _on_simplex(solution.primal[:-1])
    return float(solution.primal[-1]) * unit, shares, multipliers / multipliers[free].sum()
