"""The fair fluid relaxation: the budget holds in expectation over all time, and welfare is maximised over all arms.

    maximise  W(m)    subject to    m the values v_n = q_n.r_n of the arms, or the means of their groups,
                                    sum_n q_n.d_n <= B = b total,
                                    q_n an occupancy measure of arm n under the criterion,
                                    q_n.[d_n > 0] >= floor_n total

Every policy of the weakly coupled problem gives such q_n, so the optimum is an upper bound on the welfare of every
policy, for every welfare and criterion. Identical arms have identical values at some optimum (average them; W is
concave and symmetric), so there is one q for each type. With a finite horizon the budget may hold at every step,
sum_n q_{n,t}.d_n <= gamma^t b: a tighter bound, taken where it is affordable (Brown and Smith, "Index policies and
performance bounds for dynamic selection problems", 2020).

Opening. Discounted time never ends, but where all arms begin alike (a new fleet, everyone lost at once) it is the first
steps in which they compete hardest, and a budget over all time does not see that. `solve_opening` holds the budget in
each of the first T steps, and over all time only afterwards; the row of what comes after is

    sum_a q_T(s, a) = gamma p.(q_{T-1} + q_T)(s),    sum_n q_{n,T}.d_n <= gamma^T b / (1-gamma)

one program of O(N T S A) columns, or, where the rows of ranks are too many for it, of the mean at the weights g of the
plain relaxation, as W(v) <= g.v. Every policy satisfies these rows, too: the bound is one on them all, and tighter.

Prices. For lambda >= 0 let D(lambda) = max_v [F(v) - sum_n c_n(v_n)] + lambda.B, with c_n(v) the least cost lambda.U
of value v and F the welfare, or its utility. D is convex, and by strong duality its least value is the optimum. How
members answer to prices is in `levels`. Each answer v^i with total use U^i is a cut F(v^i) + lambda.(B - U^i) <= D; the
*master* program finds the prices at which the largest cut is least,

    max { sum_i theta_i F(v^i) : sum_i theta_i U^i <= B, theta in the simplex }    (its dual, with multipliers lambda)

and theta mixes the answers into a feasible solution, whose welfare is the lower bound. The upper bound is certified:
W(v) <= g.v for the weights g of the answer, so sum_n max_q (g_n V - lambda.U) + lambda.B is at least the optimum, and
each maximum is bounded by Bellman's inequality (`frontiers`). For one resource frontiers are traced once, and with
power means the price is bisected: the use is continuous in it.

Leximin with one resource: all members are raised to one level, as far as each can be, until the budget is spent.

    welfare                one resource     several          with a budget at every step
    mean, rank-weighted    cuts in prices   cuts in prices   one program
    power mean             bisection        cuts in prices   program with tangents
    leximin                levels           programs by stages
    any other              program with cuts of the welfare

Programs are in `fluid_programs`. Code names: q `occupancy`, U `use`, B `allowance`, lambda `prices`, g `weights`.
"""

import time
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from evenhand.checks import Faults, check_memory, check_shape
from evenhand.errors import Infeasible, InvalidInput, NotConverged, OutOfDomain
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, CoupledMDP, read_budget, read_counts
from evenhand.model.criterion import Criterion, Opening, as_criterion
from evenhand.model.welfare import PowerMean, RankWeighted, Utilitarian, Welfare, as_welfare, is_lexicographic, is_mean
from evenhand.solvers import fluid_programs
from evenhand.solvers._highs import LinearProgram, solve_program
from evenhand.solvers.arms import check_communicating
from evenhand.solvers.fluid_programs import FLOOR_ROUNDING, FluidOptimum, Rounds, solve_by_program
from evenhand.solvers.frontiers import Bound, FluidModel, Frontiers
from evenhand.solvers.levels import AlphaAnswers, Answers, MeanAnswers, RankAnswers, check_table
from evenhand.typing import ArrayLike, Floats, Indices, Ints

MOST_ROUNDS = 400
"""Answers to prices after which the search gives up."""

SMOOTHING = 0.3
"""The share of the best prices so far in the prices tried next, when there are several resources."""

FEW_TYPES = 200
"""Types up to which a search over prices that does not end is replaced by one linear program."""

LARGEST_GAP = 0.1
"""The largest gap with which the last road may end, where numbers of very different size leave no digits for more."""

FEW_COLUMNS, FEW_RANK_ROWS = 2_000, 500
"""Columns, where programs are solved again and again with more cuts of the welfare, and rows of ranks, up to which an
opening is solved for the welfare itself rather than for the weights of the plain relaxation."""

OPENINGS = (16, 8, 4, 2, 1)
"""How many of the first steps have a budget of their own; the most that is affordable."""

MOST_CAP = 1e8
"""Prices, against the spread of utility, beyond which the budget is taken not to reach."""


@dataclass(frozen=True, eq=False)
class FluidSolution:
    """A feasible solution of the fluid relaxation, and a proof of how good it is."""

    welfare: float
    """Welfare of the solution: a lower bound on the fluid optimum."""

    upper_bound: float
    """No solution of the relaxation, and no policy of the coupled problem, has more welfare."""

    values: Floats
    """(type,) value of an arm."""

    use: Floats
    """(type, resource) use of an arm over all time, by the criterion's weights."""

    occupancy: Floats
    """(type, state, action) visits of an arm by the criterion's weights, in all its total; with a finite horizon
    (type, step, state, action)."""

    prices: Floats
    """(resource,) what a unit of use, by the criterion's weights, is worth in welfare; 0 where the budget is 0. Where
    the budget holds at every step, (step, resource)."""

    weights: Floats
    """(type,) what a unit of value of one arm is worth in welfare."""

    floor_prices: Floats
    """(type,) what a unit of time in which one arm is served is worth in welfare; 0 where no floor holds it up."""

    served: Floats
    """(type,) the share of time in which an arm is served."""

    gap: float
    """(upper_bound - welfare) / |upper_bound|; where the bound is nearly 0, relative to the values of the arms."""

    rounds: int
    """How many prices or cuts were tried."""

    seconds: float
    """Wall time."""

    @property
    def by_step(self) -> bool:
        """Whether the budget holds at every step, in expectation, and not only over all of them."""
        return self.prices.ndim == 2


@dataclass(frozen=True, eq=False)
class _Cut:
    """The answer to some prices."""

    prices: Floats
    values: Floats
    total: Floats
    utility: float


@dataclass(frozen=True, eq=False)
class _Proof:
    """Weights of members and prices, and the bound that they prove."""

    weights: Floats
    prices: Floats
    bound: Bound


def solve_fluid(
    problem: CoupledMDP,
    welfare: str | Welfare,
    tolerance: float = 1e-4,
    initial: Floats | None = None,
    progress: Rounds | None = None,
) -> FluidSolution:
    """Solve the fair fluid relaxation of a problem, under its criterion, over its arms or groups, within its floors.

    Args:
        problem: the problem.
        welfare: what is maximised, as text or object; any concave, symmetric, monotone function.
        tolerance: the relative gap to stop at.
        initial: (type, state) distributions of the first state, in place of the arms' own.
        progress: called each round with its number and the gap.

    Raises:
        OutOfDomain: the welfare needs positive values, and the budget does not reach for all arms.
        Infeasible: the floors cannot be met; says the largest that can.
        NotApplicable: the average depends on where arms start; says what can be done.
        TooLarge: the tables would not fit in memory.
        NotConverged: the gap did not close.
    """
    return solve_model(model_of(problem, initial), welfare, tolerance, progress)


def solve_opening(
    problem: CoupledMDP, welfare: str | Welfare, relaxed: FluidSolution, tolerance: float = 1e-4
) -> FluidSolution | None:
    """The relaxation of a discounted problem whose budget holds in each of the first steps: a tighter bound.

    Args:
        problem: the problem.
        welfare: what is maximised, as text or object.
        relaxed: a solution of its plain relaxation.
        tolerance: the relative gap to stop at.

    Returns:
        A solution by steps, the last of which lasts; None where the criterion is another, or no program is affordable.
        Where only the mean at the weights of the plain relaxation is, `welfare` is the weighted sum, as the bound is.
    """
    if problem.criterion.num_steps is not None or problem.criterion.is_average:
        return None
    plain = model_of(problem)
    weighed_by = as_welfare(welfare, plain.num_members)
    weights = _homogeneous_weights(plain, weighed_by, relaxed) if plain.floors is None else None
    few = fluid_programs.num_rank_rows(plain, weighed_by) <= FEW_RANK_ROWS
    several = not isinstance(weighed_by, RankWeighted) and not is_mean(weighed_by, plain.num_members)
    for steps in OPENINGS:
        model = replace(plain, criterion=Opening(problem.discount, steps))
        small = few and not (several and (steps + 1) * int(model.allowed.sum()) > FEW_COLUMNS)
        if (small or weights is None) and fluid_programs.fits_by_step(model, weighed_by):
            return solve_model(model, weighed_by, tolerance)
        if weights is not None and fluid_programs.fits_by_step(model, Utilitarian()):
            return solve_weighted(model, weights, tolerance=tolerance)
    return None


def _homogeneous_weights(model: FluidModel, welfare: Welfare, relaxed: FluidSolution) -> Floats | None:
    """(type,) weights g of single arms such that W(v) <= g.v for all v, near the relaxation's optimum; None if unknown.

    Rank-weighted welfare is the least of such sums, and the relaxation's proof is by one of them. A power mean is
    concave and homogeneous, so its gradient anywhere is one.
    """
    if isinstance(welfare, RankWeighted):
        return relaxed.weights
    if not isinstance(welfare, PowerMean):
        return None
    slopes = welfare.supergradient(model.members(relaxed.values), model.sizes)
    return model.weights_of_types(slopes / model.sizes)


def solve_weighted(
    model: FluidModel, weights: Floats, floor_prices: Floats | None = None, tolerance: float = 1e-4
) -> FluidSolution:
    """Maximise a weighted sum of the arms' values instead of a welfare: every weight its own, floors as pay.

    maximise sum_n w_n v_n + phi_n (time in which n is served) within the budget: the mean of arms whose rewards are
    N w_n r_n + N phi_n [served]. Its `upper_bound` is one on the weighted sum of every policy.

    Args:
        model: the types, and what they share; its groups and floors do not count.
        weights: (type,) what a unit of value of one arm is worth.
        floor_prices: (type,) what a unit of time in which one arm is served is worth; nothing when absent.
        tolerance: the relative gap to stop at.

    Returns:
        The solution with its values, use and prices; its `welfare` is the weighted sum.
    """
    number = float(model.counts.sum())
    rewards = number * weights[:, None, None] * model.types.rewards
    if floor_prices is not None:
        rewards = rewards + number * floor_prices[:, None, None] * model.types.served
    rewards = np.where(model.types.valid, rewards, 0.0)
    scaled = FluidModel(
        replace(model.types, rewards=rewards), model.counts, model.budget, model.criterion, model.initial
    )
    return solve_model(scaled, Utilitarian(), tolerance)


def model_of(problem: CoupledMDP, initial: Floats | None = None) -> FluidModel:
    """The relaxation's data of a problem.

    Args:
        problem: the problem.
        initial: (type, state) distributions of the first state, in place of the arms' own.
    """
    return read_model(
        problem.types,
        problem.type_counts,
        problem.budget,
        problem.criterion,
        initial,
        problem.group_of_type if problem.over == "groups" else None,
        problem.type_floors if problem.has_floors else None,
    )


def solve_model(
    model: FluidModel, welfare: str | Welfare, tolerance: float = 1e-4, progress: Rounds | None = None
) -> FluidSolution:
    """Solve the fair fluid relaxation of types of arms; see `solve_fluid`.

    Args:
        model: the types, and what they share.
        welfare: what is maximised, as text or object.
        tolerance: the relative gap to stop at.
        progress: called each round with its number and the gap.
    """
    if not 0 < tolerance < 1:
        raise InvalidInput(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    weighed_by = as_welfare(welfare, model.num_members)
    begin = time.perf_counter()
    structured = is_mean(weighed_by, model.num_members) or isinstance(weighed_by, (RankWeighted, PowerMean))
    by_prices = structured and not (is_lexicographic(weighed_by) and len(model.budget) > 1)
    if fluid_programs.fits_by_step(model, weighed_by):
        try:
            return _of_program(model, weighed_by, tolerance, progress, begin)
        except NotConverged:
            if not by_prices or model.criterion.lasts:
                raise
    elif not by_prices:
        return _of_program(model, weighed_by, tolerance, progress, begin)
    return _solve_by_prices(_Search(model, weighed_by, tolerance, progress))


def _solve_by_prices(search: "_Search") -> FluidSolution:
    """By prices; where their search does not end, by one program if there are few types."""
    search.check_floors()
    try:
        return _by_structure(search)
    except NotConverged:
        if len(search.model) > FEW_TYPES:
            raise
        return _of_program(search.model, search.welfare, search.tolerance, search.progress, search.begin)


def _by_structure(search: "_Search") -> FluidSolution:
    model, weighed_by = search.model, search.welfare
    if is_lexicographic(weighed_by):
        return search.fill_levels()
    if isinstance(weighed_by, PowerMean) and not is_mean(weighed_by, model.num_members):
        answers = AlphaAnswers(weighed_by, weighed_by.aversion, model.sizes, search.reference(weighed_by.aversion))
        return search.by_bisection(answers) if len(model.budget) == 1 else search.by_cuts(answers)
    check_table(model.num_members, len(model.sizes))
    plain = is_mean(weighed_by, model.num_members)
    ranked = fluid_programs.as_ranked(weighed_by, model.num_members)
    return search.by_cuts((MeanAnswers if plain else RankAnswers)(ranked, model.sizes))


def _of_program(
    model: FluidModel, weighed_by: Welfare, tolerance: float, progress: Rounds | None, begin: float
) -> FluidSolution:
    """The solution by linear programs, the last road: closed to the tolerance, or as far as numbers allow.

    The gap that it tells is a true one. Where it is of no use, NotConverged.
    """
    optimum = solve_by_program(model, weighed_by, tolerance, progress)
    return _closed(_solution(model, weighed_by, optimum, begin), max(tolerance, LARGEST_GAP))


def _solution(model: FluidModel, weighed_by: Welfare, found: FluidOptimum, begin: float) -> FluidSolution:
    """A solution with its welfare computed anew from its occupancy measures."""
    values, use = model.totals(found.occupancy)
    welfare = float(weighed_by(model.members(values), model.sizes))
    upper = max(found.bound.value, welfare)
    return FluidSolution(
        welfare=welfare,
        upper_bound=upper,
        values=values,
        use=use,
        occupancy=found.occupancy,
        prices=found.prices,
        weights=model.weights_of_types(found.weights),
        floor_prices=found.bound.floor_prices,
        served=model.served(found.occupancy) / model.criterion.total,
        gap=fluid_programs.relative_gap(welfare, upper, found.scale),
        rounds=found.rounds,
        seconds=time.perf_counter() - begin,
    )


def _closed(solution: FluidSolution, tolerance: float) -> FluidSolution:
    """The solution, if its gap is within the tolerance."""
    if solution.gap > tolerance:
        raise NotConverged(
            f"the gap of the fluid relaxation is {solution.gap:.2g} after {solution.rounds} rounds, "
            f"not {tolerance:.2g}; ask for a larger tolerance"
        )
    return solution


def read_model(
    types: ArmTables,
    counts: ArrayLike | None,
    budget: ArrayLike,
    criterion: Criterion | float,
    initial: Floats | None = None,
    groups: Indices | None = None,
    floors: Floats | None = None,
) -> FluidModel:
    """The relaxation's data, checked.

    Args:
        types: the distinct arms.
        counts: (type,) how many arms of each type; 1 when absent.
        budget: (resource,) what is available at every step.
        criterion: what rewards over time are worth; a number is a discount.
        initial: (type, state) distributions of the first state, in place of the arms' own.
        groups: (type,) the group of each type, where welfare is over groups.
        floors: (type,) the least share of time in which each arm is served.
    """
    faults = Faults()
    sizes = _read_counts(counts, len(types), faults)
    amounts = read_budget(budget, types.usage.shape[-1], faults)
    faults.raise_if_any()
    if not isinstance(criterion, Criterion):
        criterion = as_criterion("discounted", float(criterion))
    num_types, num_states, num_actions = types.rewards.shape
    start = types.initial if initial is None else np.asarray(initial, dtype=np.float64)
    check_shape(start, {"type": num_types, "state": num_states}, "initial")
    if not (start >= 0).all() or np.abs(start.sum(axis=1) - 1).max() > 1e-8:
        raise InvalidInput("initial: expected probabilities that sum to 1 for each type")
    if (start[np.arange(num_states) >= types.num_states[:, None]] > 0).any():
        raise InvalidInput("initial: a state that a type does not have has a positive probability")
    model = FluidModel(types, sizes, amounts, criterion, start, groups, floors)
    steps = criterion.num_steps or 1
    # As far as they matter, steps bend a frontier each at its own slope.
    vertices = 4.0 * num_states + (0.0 if steps == 1 else 4 * min(steps, 4 * criterion.total))
    entry = 64 + (2 * num_states if model.by_pivots else 8 * num_states * num_actions * steps)
    size = num_types * (24.0 * num_states * num_actions + vertices * entry + 400)
    check_memory(size, f"the fluid relaxation of {num_types} types", "Group similar arms into types.")
    if criterion.is_average:
        check_communicating(types, model.allowed)
    return model


def _read_counts(counts: ArrayLike | None, num_types: int, faults: Faults) -> Ints:
    """(type,) arms of each type; many that are sound are not looked at one by one."""
    sound = isinstance(counts, np.ndarray) and counts.dtype == np.int64 and counts.shape == (num_types,)
    if sound and counts.min() >= 1 and counts.sum(dtype=np.float64) <= MOST_ARMS:  # type: ignore[union-attr]
        return np.array(counts, dtype=np.int64)
    return read_counts(counts, num_types, faults)


class _Search:
    """The search for prices, and what is known so far."""

    def __init__(self, model: FluidModel, welfare: Welfare, tolerance: float, progress: Rounds | None) -> None:
        self.begin = time.perf_counter()
        self.model, self.welfare, self.tolerance, self.progress = model, welfare, tolerance, progress
        scale = np.where(model.allowance > 0, model.allowance, 1.0)
        self.unit = np.ones(1) if len(scale) == 1 else 1 / scale
        self.frontiers = model.trace(self.unit)
        self.rounds = 0
        self.scale = float(np.abs(self.frontiers.values).max())

    def check_floors(self) -> None:
        """Raise Infeasible where the floors cannot be met."""
        if self.model.floors is None:
            return
        most = self.model.served(self.model.most_served) / self.model.criterion.total
        short = (most < self.model.floors * (1 - FLOOR_ROUNDING)).any()
        least = self.model.sizes @ self.frontiers.uses[self.frontiers.first]
        if short or (len(least) == 1 and (least > self.model.allowance * (1 + FLOOR_ROUNDING)).any()):
            raise Infeasible(fluid_programs.out_of_floors(self.model))

    def total(self, frontiers: Frontiers, values: Floats) -> Floats:
        """(resource,) the use of all members at values on frontiers."""
        return np.asarray(self.model.sizes @ frontiers.use(values))

    def reference(self, aversion: float) -> float:
        """The welfare without a budget, by which a power mean measures values."""
        most = self.frontiers.values[self.frontiers.last]
        if most.min() < 0 or (most.min() == 0 and aversion >= 1):
            raise OutOfDomain(
                f"{self.welfare.name} needs positive values, but even without a budget "
                f"the worst-off arm has at most {most.min():.6g}. Use a Gini welfare, or shift the rewards."
            )
        return float(self.welfare(most, self.model.sizes)) or 1.0

    def frontiers_at(self, prices: Floats) -> Frontiers:
        """The frontiers at some prices; for one resource they are all alike."""
        if len(prices) == 1 or not prices.any():
            return self.frontiers.at_price(float(prices[0]))
        return self.model.trace(prices)

    def answer(self, answers: Answers, prices: Floats) -> tuple[_Cut, Frontiers]:
        """How arms answer to prices."""
        self.rounds += 1
        frontiers = self.frontiers_at(prices)
        return self.cut(answers, prices, frontiers, answers.respond(frontiers)), frontiers

    def cut(self, answers: Answers, prices: Floats, frontiers: Frontiers, values: Floats) -> _Cut:
        """The cut of some values on frontiers."""
        return _Cut(prices, values, self.total(frontiers, values), answers.utility(values))

    def dual(self, answers: Answers, cut: _Cut) -> float:
        """The bound that a cut promises, before it is certified."""
        slack = cut.prices @ (self.model.allowance - cut.total)
        return float(self.welfare(cut.values, self.model.sizes)) + answers.rate(cut.values) * float(slack)

    def prove(self, answers: Answers, cut: _Cut) -> _Proof:
        """The certified bound of a cut."""
        frontiers = self.frontiers_at(cut.prices)
        weights = answers.weights(frontiers, cut.values)
        prices = cut.prices * answers.rate(cut.values)
        return self.proof(weights, prices, frontiers, cut.values)

    def proof(self, weights: Floats, prices: Floats, frontiers: Frontiers, values: Floats) -> _Proof:
        """The bound of weights and prices; policies of the frontiers are good ones to start from."""
        policies = None if frontiers.policies is None else frontiers.policies[frontiers.locate(values)[0]]
        bound = self.model.bound(self.model.weights_of_types(weights), prices, policies)
        return _Proof(weights, prices, bound)

    def gap(self, lower: float, upper: float) -> float:
        """Relative to the bound; where that is nearly 0, to the values."""
        return fluid_programs.relative_gap(lower, upper, self.scale)

    def tell(self, gap: float) -> None:
        """Pass on the gap."""
        if self.progress is not None:
            self.progress(self.rounds, gap)

    def finish(self, occupancy: Floats, proof: _Proof) -> FluidSolution:
        """The solution, with its welfare computed anew from its occupancy measures, within the budget exactly."""
        model = self.model
        total = model.counts @ model.totals(occupancy)[1]
        if (total > model.allowance).any():  # rounding; what costs least takes its place
            free = model.occupancy_at(self.frontiers, self.frontiers.values[self.frontiers.first])
            excess = _excess(total, model.counts @ model.totals(free)[1], model.allowance)
            occupancy = (1 - excess) * occupancy + excess * free
        found = FluidOptimum(occupancy, proof.weights, proof.prices, proof.bound, self.rounds, self.scale)
        return _solution(model, self.welfare, found, self.begin)

    def closed(self, solution: FluidSolution) -> FluidSolution:
        """The solution, if its gap is within the tolerance."""
        return _closed(solution, self.tolerance)

    def by_cuts(self, answers: Answers) -> FluidSolution:
        """Cutting planes in the space of prices."""
        free, full = (
            self.cut(answers, np.zeros_like(self.unit), self.frontiers, self.frontiers.values[vertices])
            for vertices in (self.frontiers.first, self.frontiers.last)
        )
        if (full.total <= self.model.allowance).all():
            return self.closed(self.mixed([full], np.ones(1), self.prove(answers, full)))
        cuts = _Cuts(self.model.allowance, [full])
        if np.isfinite(free.utility):
            cuts.add(free)
        best, best_bound, proven = full, self.dual(answers, full), np.inf
        target, smoothing = self.tolerance / 2, SMOOTHING
        while self.rounds < MOST_ROUNDS:
            shares, prices, missing = cuts.master()
            if missing and cuts.cap > MOST_CAP:
                raise self.out_of_reach()
            lower = -np.inf if missing else self.lower(cuts, shares)
            gap = self.gap(lower, best_bound) if np.isfinite(lower) else np.inf
            self.tell(gap)
            if gap <= target:
                active = [cut for cut, share in zip(cuts.cuts, shares, strict=True) if share > 0]
                solution = self.mixed(active, shares[shares > 0], self.prove(answers, best))
                if solution.gap <= self.tolerance:
                    return solution
                proven, target = solution.gap, target / 4
            if not missing and len(prices) > 1:
                prices = smoothing * best.prices + (1 - smoothing) * prices
            found, _ = self.answer(answers, np.maximum(prices, self.least_prices(answers, best)))
            cuts.add(found)
            bound = self.dual(answers, found)
            smoothing = SMOOTHING if bound < best_bound else 0.0  # where nothing was gained, ask the master's prices
            if bound < best_bound:
                best, best_bound = found, bound
        reached = min(proven, gap)
        raise NotConverged(f"the gap of the fluid relaxation is {reached:.2g} after {self.rounds} rounds")

    def least_prices(self, answers: Answers, best: _Cut) -> Floats:
        """Prices so small that they cost the bound nothing; they keep arms from using what is free without need."""
        if len(self.unit) == 1:
            return np.zeros(1)
        welfare = float(self.welfare(best.values, self.model.sizes))
        worth = 1e-3 * self.tolerance * max(abs(welfare), 1e-6 * self.scale)
        return np.asarray(self.unit * (worth / max(answers.rate(best.values), 1e-300) / len(self.unit)))

    def lower(self, cuts: "_Cuts", shares: Floats) -> float:
        """The welfare of a mixture of cuts."""
        values = cuts.mix(shares)
        if len(self.unit) == 1:
            values = self.spend(cuts, shares, values)
        return float(self.welfare(values, self.model.sizes))

    def spend(self, cuts: "_Cuts", shares: Floats, values: Floats) -> Floats:
        """One resource: mixtures on the frontier cost less than the mixture of costs; go on towards the costlier cut.

        Along the way the cost is convex, so the chord to the far end crosses the budget before the cost does.
        """
        active = np.flatnonzero(shares > 0)
        costliest = cuts.cuts[max(active, key=lambda i: float(cuts.cuts[i].total[0]))]
        allowance = float(self.model.allowance[0])
        for _ in range(3):
            spent = float(self.total(self.frontiers, values)[0])
            rest = float(costliest.total[0]) - spent
            if rest <= 0 or spent >= allowance:
                break
            step = min(1.0, (allowance - spent) / rest)
            values = values + step * (costliest.values - values)
        return values

    def mixed(self, active: list[_Cut], shares: Floats, proof: _Proof) -> FluidSolution:
        """The solution that mixes cuts."""
        if len(self.unit) == 1:
            cuts = _Cuts(self.model.allowance, active)
            values = cuts.mix(shares) if len(active) == 1 else self.spend(cuts, shares, cuts.mix(shares))
            return self.finish(self.model.occupancy_at(self.frontiers, values), proof)
        occupancy = np.zeros((len(self.model), *self.model.arms.shape))
        for cut, share in zip(active, shares, strict=True):
            occupancy += share * self.model.occupancy_at(self.frontiers_at(cut.prices), cut.values)
        return self.finish(occupancy, proof)

    def by_bisection(self, answers: AlphaAnswers) -> FluidSolution:
        """One resource, alpha-fairness: the price at which the use, which falls with it, is the allowance."""
        allowance = float(self.model.allowance[0])
        full = self.cut(answers, np.zeros(1), self.frontiers, self.frontiers.values[self.frontiers.last])
        if full.total[0] <= allowance:
            return self.closed(self.mixed([full], np.ones(1), self.prove(answers, full)))
        self.check_domain(answers, allowance)
        low, high = -1.0, 1.0  # of the logarithm, around a price of the right size
        middle = np.log(1.0 / max(float(full.total[0]), 1e-300))
        while self.spent(answers, middle + high) > allowance:
            low, high = high, 2 * high
        while low < 0 and self.spent(answers, middle + low) <= allowance:
            low, high = 2 * low, low
        while True:
            cut, _ = self.answer(answers, np.exp([middle + high]))
            gap = self.gap(float(self.welfare(cut.values, self.model.sizes)), self.dual(answers, cut))
            self.tell(gap)
            if gap <= self.tolerance / 2 or high - low <= 1e-15 * abs(high):
                return self.closed(self.mixed([cut], np.ones(1), self.prove(answers, cut)))
            for _ in range(4):
                half = (low + high) / 2
                over = self.spent(answers, middle + half) > allowance
                low, high = (half, high) if over else (low, half)

    def spent(self, answers: AlphaAnswers, log_price: float) -> float:
        """The total use at a price."""
        if abs(log_price) > 700:
            raise NotConverged("no price meets the budget: the values or the budget are of extreme size")
        return float(self.answer(answers, np.exp([log_price]))[0].total[0])

    def check_domain(self, answers: AlphaAnswers, allowance: float) -> None:
        """Raise OutOfDomain where the budget cannot bring every arm to a positive value."""
        free = self.frontiers.values[self.frontiers.first]
        if answers.inside(free).all():
            return
        needed = float(self.total(self.frontiers, np.maximum(free, 0.0))[0])
        if needed >= allowance:
            raise self.out_of_reach()

    def out_of_reach(self) -> InvalidInput:
        """What to say when no point of the domain, or none within the floors, is within the budget."""
        if self.model.floors is not None:
            return Infeasible(fluid_programs.out_of_floors(self.model))
        return OutOfDomain(
            f"{self.welfare.name} needs positive values, and the budget does not reach to give every arm one. "
            "Use a Gini welfare, or shift the rewards."
        )

    def fill_levels(self) -> FluidSolution:
        """Leximin with one resource: the level to which every arm is raised, as far as it can be."""
        frontiers, allowance = self.frontiers, float(self.model.allowance[0])
        free, most = frontiers.values[frontiers.first], frontiers.values[frontiers.last]
        low, high = float(free.min()), float(most.max())
        if self.total(frontiers, most)[0] <= allowance:
            low = high
        while True:
            middle = low + (high - low) / 2
            if not low < middle < high:
                break
            self.rounds += 1
            fits = self.total(frontiers, np.clip(middle, free, most))[0] <= allowance
            low, high = (middle, high) if fits else (low, middle)
        values = np.clip(low, free, most)
        return self.closed(self.finish(self.model.occupancy_at(frontiers, values), self.prove_least(values)))

    def prove_least(self, values: Floats) -> _Proof:
        """Nobody's least value can be more: the worst-off cannot have more, or what they use costs all there is."""
        frontiers, least = self.frontiers, float(values.min())
        worst = values <= least + 1e-13 * self.scale
        _, above = frontiers.marginal(values)
        prices = np.zeros(1)
        if np.isinf(above[worst]).any():
            weights = np.zeros(len(values))
            saturated = int(np.flatnonzero(worst & np.isinf(above))[0])
            weights[saturated] = 1.0 / self.model.sizes[saturated]
        else:
            prices = 1.0 / np.atleast_1d(self.model.sizes[worst] @ above[worst])
            weights = np.where(worst, above * prices[0], 0.0)
        return self.proof(weights, prices, frontiers, values)


def _excess(total: Floats, free: Floats, allowance: Floats) -> float:
    """The share of a solution to give up for a free one so that its total use is within the allowance."""
    over = (total > allowance) & (total > free)
    needed = (total[over] - allowance[over]) / (total[over] - free[over])
    return min(1.0, float(needed.max(initial=0.0)) * (1 + 1e-12))


class _Cuts:
    """Answers so far, and the master program over them."""

    def __init__(self, allowance: Floats, cuts: list[_Cut]) -> None:
        self.allowance = allowance
        self.cuts = cuts
        self.idle = [0] * len(cuts)
        self.most = 20 + 15 * len(allowance)
        self.cap = 1.0

    def add(self, cut: _Cut) -> None:
        """Add a cut; of too many, leave out the one that was of no use for longest."""
        if len(self.cuts) >= self.most:
            oldest = int(np.argmax(self.idle))
            del self.cuts[oldest], self.idle[oldest]
        self.cuts.append(cut)
        self.idle.append(0)

    def mix(self, shares: Floats) -> Floats:
        """(type,) values of a mixture."""
        mixed = np.zeros_like(self.cuts[0].values)
        for cut, share in zip(self.cuts, shares, strict=True):
            if share > 0:
                mixed += share * cut.values
        return mixed

    def master(self) -> tuple[Floats, Floats, bool]:
        """The best shares of the cuts, the prices, and whether no mixture is within the allowance yet."""
        utilities = np.array([cut.utility for cut in self.cuts])
        spread = float(np.ptp(utilities)) or max(1.0, float(abs(utilities[0])))
        scale = np.where(self.allowance > 0, self.allowance, 1.0)
        rows, columns = len(scale), len(self.cuts)
        matrix = np.zeros((rows + 1, columns + rows))
        matrix[:rows, :columns] = np.column_stack([cut.total for cut in self.cuts]) / scale[:, None]
        matrix[:rows, columns:] = -np.eye(rows)
        matrix[rows, :columns] = 1.0
        feasible = (matrix[:rows, :columns] <= 1).all(axis=0).any()
        optimum = solve_program(
            LinearProgram(
                gains=np.concatenate([(utilities - utilities.max()) / spread, np.full(rows, -self.cap)]),
                matrix=sparse.csc_array(matrix),
                row_lower=np.append(np.full(rows, -np.inf), 1.0),
                row_upper=np.ones(rows + 1),
                lower=np.zeros(columns + rows),
                upper=np.concatenate([np.ones(columns), np.full(rows, 0.0 if feasible else np.inf)]),
            )
        )
        shares = np.maximum(optimum.primal[:columns], 0.0)
        shares[shares < 1e-12] = 0.0
        shares /= shares.sum()
        self.idle = [0 if share > 0 else age + 1 for share, age in zip(shares, self.idle, strict=True)]
        missing = bool((optimum.primal[columns:] > 1e-7).any())
        if missing:
            self.cap *= 4.0
        return shares, np.maximum(optimum.duals[:rows], 0.0) * spread / scale, missing
