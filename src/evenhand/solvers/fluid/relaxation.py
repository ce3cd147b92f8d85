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
members respond to prices is in `price_response`. Each response v^i with total use U^i is a cut
F(v^i) + lambda.(B - U^i) <= D; the *master* program finds the prices at which the largest cut is least,

    max { sum_i theta_i F(v^i) : sum_i theta_i U^i <= B, theta in the simplex }    (its dual, with multipliers lambda)

and theta mixes the responses into a feasible solution, whose welfare is the lower bound. The upper bound is certified:
W(v) <= g.v for the weights g of the response, so sum_n max_q (g_n V - lambda.U) + lambda.B is at least the optimum, and
each maximum is bounded by Bellman's inequality (`frontiers`). For one resource frontiers are traced once, and with
power means the price is bisected: the use is continuous in it.

Leximin with one resource: all members are raised to one level, as far as each can be, until the budget is spent.

    welfare                one resource     several          with a budget at every step
    mean, rank-weighted    cuts in prices   cuts in prices   one program
    power mean             bisection        cuts in prices   program with tangents
    leximin                levels           programs by stages
    any other              program with cuts of the welfare

Programs are in `programs`. Code names: q `occupancy`, U `use`, B `allowance`, lambda `prices`, g `weights`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evenhand.checks import Faults, check_memory, check_shape
from evenhand.errors import InfeasibleError, InvalidInputError, NotConvergedError, OutOfDomainError
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, CoupledMDP, read_budget, read_counts
from evenhand.model.criterion import Criterion, Opening, as_criterion
from evenhand.model.welfare import PowerMean, RankWeighted, Utilitarian, Welfare, as_welfare, is_lexicographic, is_mean
from evenhand.solvers.fluid import programs as fluid_programs
from evenhand.solvers.fluid.dual_search import Cut, PriceSearch, excess_of, highest_level
from evenhand.solvers.fluid.frontiers import Bound, FluidModel, Frontiers
from evenhand.solvers.fluid.price_response import AlphaAnswers, Answers, MeanAnswers, RankAnswers, check_table
from evenhand.solvers.fluid.programs import FLOOR_ROUNDING, FluidOptimum, Rounds, solve_by_program
from evenhand.solvers.single_arm import check_communicating
from evenhand.typing import ArrayLike, Floats, Indices, Ints

FEW_TYPES = 200
"""Types up to which a dual search that does not converge is replaced by one linear program."""

LARGEST_GAP = 0.1
"""Largest gap with which programs may end, if numbers of very different size leave no digits for more."""

FEW_COLUMNS, FEW_RANK_ROWS = 2_000, 500
"""Columns, where programs are solved again and again with more cuts of the welfare, and rows of ranks, up to which an
opening is solved for the welfare itself rather than for the weights of the plain relaxation."""

OPENINGS = (16, 8, 4, 2, 1)
"""Number of first steps with a budget of their own; the largest that is affordable."""


@dataclass(frozen=True, eq=False)
class FluidSolution:
    """A feasible solution of the fluid relaxation with a certified gap."""

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
    """(resource,) dual prices of use, by the criterion's weights, in welfare; 0 where the budget is 0. If the budget
    holds at every step, (step, resource)."""

    weights: Floats
    """(type,) derivative of the welfare by the value of one arm."""

    floor_prices: Floats
    """(type,) dual prices of the floors: welfare per unit of time in which one arm is served."""

    served: Floats
    """(type,) the share of time in which an arm is served."""

    gap: float
    """(upper_bound - welfare) / |upper_bound|; where the bound is nearly 0, relative to the values of the arms."""

    rounds: int
    """Number of prices or programs."""

    seconds: float
    """Wall time."""

    @property
    def by_step(self) -> bool:
        """True if the budget holds at every step, in expectation, and not only over all of them."""
        return self.prices.ndim == 2


@dataclass(frozen=True, eq=False)
class _Cut(Cut):
    """Best response to some prices."""

    values: Floats


@dataclass(frozen=True, eq=False)
class _Proof:
    """Weights of members and prices, and the bound that they prove."""

    weights: Floats
    prices: Floats
    bound: Bound


# -- public functions ------------------------------------------------------------------------------------------------


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
        OutOfDomainError: the welfare needs positive values, and the budget does not reach for all arms.
        InfeasibleError: the floors are infeasible; the message has the largest that are not.
        NotApplicableError: the average depends on where arms start.
        TooLargeError: the tables would not fit in memory.
        NotConvergedError: the gap did not close.
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
    # There the steps are separate already, or (average) the first ones do not count.
    if problem.criterion.num_steps is not None or problem.criterion.is_average:
        return None
    plain = model_of(problem)
    objective = as_welfare(welfare, plain.num_members)
    # `solve_weighted` keeps no floors: with floors only the welfare itself will do.
    weights = _homogeneous_weights(plain, objective, relaxed) if plain.floors is None else None
    few = fluid_programs.num_rank_rows(plain, objective) <= FEW_RANK_ROWS
    # These take many programs, each with more cuts than the last, and so get fewer columns.
    several = not isinstance(objective, RankWeighted) and not is_mean(objective, plain.num_members)
    # The most steps first, since each of them makes the bound tighter.
    for steps in OPENINGS:
        model = replace(plain, criterion=Opening(problem.discount, steps))
        small = few and not (several and (steps + 1) * int(model.allowed.sum()) > FEW_COLUMNS)
        if (small or weights is None) and fluid_programs.fits_by_step(model, objective):
            return solve_model(model, objective, tolerance)
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
    """Maximise a weighted sum of the arms' values instead of a welfare: every weight its own, floors as prices.

    maximise sum_n w_n v_n + phi_n (time in which n is served) within the budget: the mean of arms whose rewards are
    N w_n r_n + N phi_n [served]. Its `upper_bound` is one on the weighted sum of every policy.

    Args:
        model: the types, and what they share; its groups and floors do not count.
        weights: (type,) weights of the values.
        floor_prices: (type,) reward per unit of time in which one arm is served; 0 by default.
        tolerance: the relative gap to stop at.

    Returns:
        The solution with its values, use and prices; its `welfare` is the weighted sum.
    """
    # The mean divides by the number of arms, so rewards are multiplied by it.
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
        problem.usable_budget,
        problem.criterion,
        initial,
        problem.group_of_type if problem.over == "groups" else None,
        problem.type_floors if problem.has_floors else None,
    )


# -- choice of algorithm ----------------------------------------------------------------------------------------------


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
        raise InvalidInputError(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    model, objective = _within_reach(model), as_welfare(welfare, model.num_members)
    begin = time.perf_counter()
    # By prices if members respond to them in closed form; under leximin that is so for one resource only.
    structured = is_mean(objective, model.num_members) or isinstance(objective, (RankWeighted, PowerMean))
    by_prices = structured and not (is_lexicographic(objective) and len(model.budget) > 1)
    # With steps a budget at each of them is tighter, and comes first. Where its program fails, prices bound the same
    # over all time; for an opening that would be the plain relaxation, which is known.
    if fluid_programs.fits_by_step(model, objective):
        try:
            return _of_program(model, objective, tolerance, progress, begin)
        except NotConvergedError:
            if not by_prices or model.criterion.lasts:
                raise
    elif not by_prices:
        return _of_program(model, objective, tolerance, progress, begin)
    return _solve_by_prices(_Search(model, objective, tolerance, progress))


def _within_reach(model: FluidModel) -> FluidModel:
    """The same with floors that are beyond what an arm can be served by rounding only lowered to that.

    No price is high enough for an infeasible floor, and rewards would be lost in rounding at very large prices.
    """
    if model.floors is None:
        return model
    most = model.served(model.most_served) / model.criterion.total
    # Those that are further beyond stay, to be refused.
    by_rounding = most >= model.floors * (1 - FLOOR_ROUNDING)
    return replace(model, floors=np.where(by_rounding, np.minimum(model.floors, most), model.floors))


def _solve_by_prices(search: "_Search") -> FluidSolution:
    """Search for prices; if that does not converge, solve one program if there are few types."""
    search.check_floors()
    try:
        return _by_structure(search)
    except NotConvergedError:
        if len(search.model) > FEW_TYPES:
            raise
        return _of_program(search.model, search.welfare, search.tolerance, search.progress, search.begin)


def _by_structure(search: "_Search") -> FluidSolution:
    model, objective = search.model, search.welfare
    if is_lexicographic(objective):
        return search.fill_levels()
    if isinstance(objective, PowerMean) and not is_mean(objective, model.num_members):
        reference = search.reference(objective.aversion)
        search.answers = AlphaAnswers(objective, objective.aversion, model.sizes, reference)
        return search.by_bisection() if len(model.budget) == 1 else search.by_cuts()
    check_table(model.num_members, len(model.sizes))
    plain = is_mean(objective, model.num_members)
    ranked = fluid_programs.as_ranked(objective, model.num_members)
    search.answers = (MeanAnswers if plain else RankAnswers)(ranked, model.sizes)
    return search.by_cuts()


def _of_program(
    model: FluidModel, objective: Welfare, tolerance: float, progress: Rounds | None, begin: float
) -> FluidSolution:
    """Return the solution by linear programs: closed to the tolerance, or as far as numbers allow.

    Its gap is a true one. If it is of no use, raise NotConvergedError.
    """
    optimum = solve_by_program(model, objective, tolerance, progress)
    return _closed(_solution(model, objective, optimum, begin), max(tolerance, LARGEST_GAP))


def _solution(model: FluidModel, objective: Welfare, found: FluidOptimum, begin: float) -> FluidSolution:
    """A solution with its welfare computed anew from its occupancy measures."""
    values, use = model.totals(found.occupancy)
    welfare = float(objective(model.members(values), model.sizes))
    # By rounding a solution may beat its bound; no bound is below what was reached.
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
        raise NotConvergedError(
            f"the gap of the fluid relaxation is {solution.gap:.2g} after {solution.rounds} rounds, "
            f"not {tolerance:.2g}; use a larger tolerance"
        )
    return solution


# -- reading ----------------------------------------------------------------------------------------------------------


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
        counts: (type,) number of arms of each type; 1 by default.
        budget: (resource,) what is available at every step.
        criterion: criterion; a number is a discount.
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
        raise InvalidInputError("initial: expected probabilities that sum to 1 for each type")
    if (start[np.arange(num_states) >= types.num_states[:, None]] > 0).any():
        raise InvalidInputError("initial: a state that a type does not have has a positive probability")
    model = FluidModel(types.within(amounts), sizes, amounts, criterion, start, groups, floors)
    steps = criterion.num_steps or 1
    # As far as they matter, steps bend a frontier each at its own slope.
    vertices = 4.0 * num_states + (0.0 if steps == 1 else 4 * min(steps, 4 * criterion.total))
    # A vertex has numbers of its own, and with pivots a policy of 2 bytes a state, else a whole measure.
    entry = 64 + (2 * num_states if model.by_pivots else 8 * num_states * num_actions * steps)
    size = num_types * (24.0 * num_states * num_actions + vertices * entry + 400)
    check_memory(size, f"the fluid relaxation of {num_types} types", "Group similar arms into types.")
    if criterion.is_average:
        check_communicating(model.types, model.allowed)
    return model


def _read_counts(counts: ArrayLike | None, num_types: int, faults: Faults) -> Ints:
    """(type,) arms of each type; valid arrays are not checked one by one."""
    sound = isinstance(counts, np.ndarray) and counts.dtype == np.int64 and counts.shape == (num_types,)
    if sound and counts.min() >= 1 and counts.sum(dtype=np.float64) <= MOST_ARMS:  # type: ignore[union-attr]
        return np.array(counts, dtype=np.int64)
    return read_counts(counts, num_types, faults)


# -- the search for prices --------------------------------------------------------------------------------------------


class _Search(PriceSearch[_Cut, _Proof, FluidSolution]):
    """The search for prices where all arms are in memory."""

    answers: Answers

    def __init__(self, model: FluidModel, welfare: Welfare, tolerance: float, progress: Rounds | None) -> None:
        super().__init__(model.allowance, tolerance, progress)
        self.begin = time.perf_counter()
        self.model, self.welfare = model, welfare
        # With one resource any other price only stretches the slopes, so these frontiers serve the whole search.
        self.frontiers = model.trace(self.unit)
        self.scale = float(np.abs(self.frontiers.values).max())

    def check_floors(self) -> None:
        """Raise Infeasible if the floors cannot be reached."""
        if self.model.floors is None:
            return
        # An arm may miss its floor even alone. With one resource the cheapest ways to keep all floors may also be too
        # dear together; with several, the first vertices are cheapest for one ratio of prices only and prove nothing.
        most = self.model.served(self.model.most_served) / self.model.criterion.total
        short = (most < self.model.floors * (1 - FLOOR_ROUNDING)).any()
        least = self.model.sizes @ self.frontiers.uses[self.frontiers.first]
        if short or (len(least) == 1 and (least > self.model.allowance * (1 + FLOOR_ROUNDING)).any()):
            raise InfeasibleError(fluid_programs.out_of_floors(self.model))

    def total(self, frontiers: Frontiers, values: Floats) -> Floats:
        """(resource,) the use of all members at values on frontiers."""
        return np.asarray(self.model.sizes @ frontiers.use(values))

    def reference(self, aversion: float) -> float:
        """The welfare without a budget, by which a power mean measures values."""
        most = self.frontiers.values[self.frontiers.last]
        if most.min() < 0 or (most.min() == 0 and aversion >= 1):
            raise OutOfDomainError(
                f"{self.welfare.name} needs positive values, but even without a budget "
                f"the worst-off arm has at most {most.min():.6g}. Use a Gini welfare, or shift the rewards."
            )
        return float(self.welfare(most, self.model.sizes)) or 1.0

    def frontiers_at(self, prices: Floats) -> Frontiers:
        """The frontiers at some prices; for one resource they are all alike."""
        # With several resources the cheapest way depends on the ratio of prices, so frontiers are traced anew.
        if len(prices) == 1 or not prices.any():
            return self.frontiers.at_price(float(prices[0]))
        return self.model.trace(prices)

    def ends(self) -> tuple[_Cut, _Cut]:
        """The cuts of the values that cost nothing, and of the largest."""
        frontiers, prices = self.frontiers, np.zeros_like(self.unit)
        free, full = frontiers.values[frontiers.first], frontiers.values[frontiers.last]
        return self.cut(prices, frontiers, free), self.cut(prices, frontiers, full)

    def respond(self, prices: Floats) -> _Cut:
        """Return the best response to prices."""
        frontiers = self.frontiers_at(prices)
        return self.cut(prices, frontiers, self.answers.respond(frontiers))

    def cut(self, prices: Floats, frontiers: Frontiers, values: Floats) -> _Cut:
        """The cut of some values on frontiers."""
        utility = self.answers.utility(values)
        # Outside the domain, where the free end may be, there is no welfare.
        inside = np.isfinite(utility)
        welfare = float(self.welfare(values, self.model.sizes)) if inside else -np.inf
        rate = self.answers.rate(values) if inside else 0.0
        return _Cut(prices, self.total(frontiers, values), utility, welfare, rate, values)

    def prove(self, cut: _Cut) -> _Proof:
        """The certified bound of a cut."""
        frontiers = self.frontiers_at(cut.prices)
        # The prices are of utility; times dW/dF they are those of welfare.
        return self.proof(self.answers.weights(frontiers, cut.values), cut.prices * cut.rate, frontiers, cut.values)

    def proof(self, weights: Floats, prices: Floats, frontiers: Frontiers, values: Floats) -> _Proof:
        """The bound of weights and prices; policies of the frontiers are good ones to start from."""
        policies = None if frontiers.policies is None else frontiers.policies[frontiers.locate(values)[0]]
        bound = self.model.bound(self.model.weights_of_types(weights), prices, policies)
        return _Proof(weights, prices, bound)

    def finish(self, occupancy: Floats, proof: _Proof) -> FluidSolution:
        """The solution, with its welfare computed anew from its occupancy measures, within the budget exactly."""
        model = self.model
        total = model.counts @ model.totals(occupancy)[1]
        if (total > model.allowance).any():  # rounding; what costs least takes its place
            free = model.occupancy_at(self.frontiers, self.frontiers.values[self.frontiers.first])
            excess = excess_of(total, model.counts @ model.totals(free)[1], model.allowance)
            occupancy = (1 - excess) * occupancy + excess * free
        found = FluidOptimum(occupancy, proof.weights, proof.prices, proof.bound, self.rounds, self.scale)
        return _solution(model, self.welfare, found, self.begin)

    def gap_of(self, solution: FluidSolution) -> float:
        """The true gap of a solution."""
        return solution.gap

    def closed(self, solution: FluidSolution) -> FluidSolution:
        """The solution, if its gap is within the tolerance."""
        return _closed(solution, self.tolerance)

    def lower(self, cuts: Sequence[_Cut], shares: Floats) -> float:
        """The welfare of a mixture of cuts."""
        values = _mix(cuts, shares)
        if len(self.unit) == 1:
            values = self.spend(cuts, shares, values)
        return float(self.welfare(values, self.model.sizes))

    def spend(self, cuts: Sequence[_Cut], shares: Floats, values: Floats) -> Floats:
        """One resource: mixtures on the frontier cost less than the mixture of costs; go on towards the costlier cut.

        Along the way the cost is convex, so the chord to the far end crosses the budget before the cost does.
        """
        active = np.flatnonzero(shares > 0)
        costliest = max((cuts[int(i)] for i in active), key=lambda cut: float(cut.total[0]))
        allowance = float(self.model.allowance[0])
        # Each step ends within the budget, so that the next may begin there.
        for _ in range(3):
            spent = float(self.total(self.frontiers, values)[0])
            rest = float(costliest.total[0]) - spent
            if rest <= 0 or spent >= allowance:
                break
            step = min(1.0, (allowance - spent) / rest)
            values = values + step * (costliest.values - values)
        return values

    def mixed(self, active: Sequence[_Cut], shares: Floats, proof: _Proof) -> FluidSolution:
        """The solution that mixes cuts."""
        if len(self.unit) == 1:
            values = _mix(active, shares)
            values = values if len(active) == 1 else self.spend(active, shares, values)
            return self.finish(self.model.occupancy_at(self.frontiers, values), proof)
        # Frontiers of different prices cannot be mixed in values, but measures can.
        occupancy = np.zeros((len(self.model), *self.model.arms.shape))
        for cut, share in zip(active, shares, strict=True):
            occupancy += share * self.model.occupancy_at(self.frontiers_at(cut.prices), cut.values)
        return self.finish(occupancy, proof)

    def check_domain(self) -> None:
        """Raise OutOfDomainError where the budget cannot bring every arm to a positive value."""
        free = self.frontiers.values[self.frontiers.first]
        if np.isfinite(self.answers.utility(free)):
            return
        # All arms at 0: slightly more is inside the domain, if budget is left for it.
        needed = float(self.total(self.frontiers, np.maximum(free, 0.0))[0])
        if needed >= self.allowance[0]:
            raise self.out_of_reach()

    def out_of_reach(self) -> InvalidInputError:
        """Return the error if no point of the domain, or none within the floors, is within the budget."""
        if self.model.floors is not None:
            # Only a power mean has a domain to miss. Whether floors fit was checked before for one resource; for
            # several their program decides.
            if not isinstance(self.welfare, PowerMean):
                return InfeasibleError(fluid_programs.out_of_floors(self.model))
            if len(self.unit) > 1:
                fluid_programs.Program(self.model).check_floors()
        return OutOfDomainError(
            f"{self.welfare.name} needs positive values, and the budget does not reach to give every arm one. "
            "Use a Gini welfare, or shift the rewards."
        )

    def fill_levels(self) -> FluidSolution:
        """Leximin with one resource: the level to which every arm is raised, as far as it can be."""
        frontiers, allowance = self.frontiers, float(self.model.allowance[0])
        free, most = frontiers.values[frontiers.first], frontiers.values[frontiers.last]
        low, high = float(free.min()), float(most.max())

        def fits(level: float) -> bool:
            self.rounds += 1
            return bool(self.total(frontiers, np.clip(level, free, most))[0] <= allowance)

        # Total use rises with the level: bisect, unless all arms can have the most.
        enough = self.total(frontiers, most)[0] <= allowance
        values = np.clip(high if enough else highest_level(low, high, fits), free, most)
        return self.closed(self.finish(self.model.occupancy_at(frontiers, values), self.prove_least(values)))

    def prove_least(self, values: Floats) -> _Proof:
        """Prove that the least value cannot be higher: the worst-off are saturated, or use the whole budget."""
        frontiers, least = self.frontiers, float(values.min())
        worst = values <= least + 1e-13 * self.scale
        _, above = frontiers.marginal(values)
        prices = np.zeros(1)
        # One of them can have no more at any price: its value alone bounds the least.
        if np.isinf(above[worst]).any():
            weights = np.zeros(len(values))
            saturated = int(np.flatnonzero(worst & np.isinf(above))[0])
            weights[saturated] = 1.0 / self.model.sizes[saturated]
        else:
            # Weights in proportion to what one more unit costs. By their sizes they sum to 1, so min v <= g.v.
            prices = 1.0 / np.atleast_1d(self.model.sizes[worst] @ above[worst])
            weights = np.where(worst, above * prices[0], 0.0)
        return self.proof(weights, prices, frontiers, values)


def _mix(cuts: Sequence[_Cut], shares: Floats) -> Floats:
    """(type,) values of a mixture."""
    mixed = np.zeros_like(cuts[0].values)
    for cut, share in zip(cuts, shares, strict=True):
        if share > 0:
            mixed += share * cut.values
    return mixed
