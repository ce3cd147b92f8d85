"""The fair fluid relaxation: the budget holds in discounted expectation, and welfare is maximised over all arms.

    maximise  W(v)    subject to    v_n = q_n.r_n,    sum_n q_n.d_n <= B = b / (1 - gamma),
                                    q_n an occupancy measure of arm n

Every policy of the weakly coupled problem gives such q_n, so the optimum is an upper bound on the welfare of every
policy, for each welfare of this library. Identical arms have identical values at some optimum (average them; W is
concave and symmetric), so there is one q for each type.

Prices. For lambda >= 0 let D(lambda) = max_v [F(v) - sum_n c_n(v_n)] + lambda.B, with c_n(v) the least cost lambda.U
of value v and F the welfare, or its utility. D is convex, and by strong duality its least value is the optimum. How
arms answer to prices is in `levels`. Each answer v^i with total use U^i is a cut F(v^i) + lambda.(B - U^i) <= D; the
*master* program finds the prices at which the largest cut is least,

    max { sum_i theta_i F(v^i) : sum_i theta_i U^i <= B, theta in the simplex }    (its dual, with multipliers lambda)

and theta mixes the answers into a feasible solution, whose welfare is the lower bound. The upper bound is certified:
W(v) <= g.v for the weights g of the answer, so sum_n max_q (g_n V - lambda.U) + lambda.B is at least the optimum, and
each maximum is bounded by Bellman's inequality (`frontiers`). For one resource frontiers are traced once, and with
alpha-fairness the price is bisected: the use is continuous in it.

Leximin with one resource: all arms are raised to one level, as far as each can be, until the budget is spent. With
several resources: one linear program a stage.

Code names: q `occupancy`, U `use`, B `allowance`, lambda `prices`, g `weights`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.checks import Faults, check_memory, check_shape
from evenhand.errors import InvalidInput, NotApplicable, NotConverged, OutOfDomain, TooLarge
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, read_budget, read_counts, read_discount
from evenhand.model.welfare import AlphaFair, Leximin, Maximin, RankWeighted, Utilitarian, Welfare, as_welfare
from evenhand.solvers._highs import LinearOptimum, LinearProgram, solve_program
from evenhand.solvers.frontiers import FluidModel, Frontiers
from evenhand.solvers.levels import AlphaAnswers, Answers, MeanAnswers, RankAnswers, check_table, project_types
from evenhand.typing import ArrayLike, Bools, Floats, Ints

MOST_ROUNDS = 400
"""Answers to prices after which the search gives up."""

SMOOTHING = 0.3
"""The share of the best prices so far in the prices tried next, when there are several resources."""

MOST_ENTRIES = 20_000_000
"""Non-zeros of the largest single program."""

FEW_TYPES = 200
"""Types up to which a search over prices that does not end is replaced by one linear program."""

MOST_CAP = 1e8
"""Prices, against the spread of utility, beyond which the budget is taken not to reach for positive values."""

Told = Callable[[int, float], None]
"""Told the number of the round and the gap."""


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
    """(type, resource) discounted use of an arm."""

    occupancy: Floats
    """(type, state, action) discounted visits of an arm; they sum to 1 / (1 - discount)."""

    prices: Floats
    """(resource,) what a unit of discounted use is worth in welfare; 0 where the budget is 0."""

    weights: Floats
    """(type,) what a unit of value of one arm is worth in welfare."""

    gap: float
    """(upper_bound - welfare) / |upper_bound|; where the bound is nearly 0, relative to the values of the arms."""

    rounds: int
    """How many prices were tried."""

    seconds: float
    """Wall time."""


@dataclass(frozen=True, eq=False)
class _Cut:
    """The answer to some prices."""

    prices: Floats
    values: Floats
    total: Floats
    measure: float


@dataclass(frozen=True, eq=False)
class _Proof:
    """Weights, prices, and policies from which the bound is computed."""

    weights: Floats
    prices: Floats
    bound: float


def solve_fluid(
    types: ArmTables,
    counts: ArrayLike | None,
    budget: ArrayLike,
    discount: float,
    welfare: str | Welfare,
    tolerance: float = 1e-4,
    initial: Floats | None = None,
    told: Told | None = None,
) -> FluidSolution:
    """Solve the fair fluid relaxation to a certified gap.

    Args:
        types: the distinct arms.
        counts: (type,) how many arms of each type; 1 when absent.
        budget: (resource,) what is available at every step.
        discount: what a reward one step later is worth.
        welfare: what is maximised, as text or object.
        tolerance: the relative gap to stop at.
        initial: (type, state) distributions of the first state, in place of the arms' own.
        told: called each round with its number and the gap.

    Raises:
        OutOfDomain: alpha-fairness needs positive values, and the budget does not reach for all arms.
        NotApplicable: no method for this welfare.
        TooLarge: the tables would not fit in memory.
        NotConverged: the gap did not close.
    """
    if not 0 < tolerance < 1:
        raise InvalidInput(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    model = _read(types, counts, budget, discount, initial)
    measure = as_welfare(welfare, model.num_arms)
    if isinstance(measure, AlphaFair) and measure.alpha == 0:
        measure = Utilitarian()
    search = _Search(model, measure, tolerance, told)
    if isinstance(measure, Leximin):
        return search.fill_levels() if len(model.allowance) == 1 else _leximin_by_stages(search)
    if isinstance(measure, RankWeighted):
        check_table(model.num_arms, len(model))
        kind = MeanAnswers if isinstance(measure, Utilitarian) else RankAnswers
        try:
            return search.by_cuts(kind(measure, model.counts))
        except NotConverged:
            if len(model) > FEW_TYPES:
                raise
            return search.closed(_by_program(search, measure))
    if isinstance(measure, AlphaFair):
        answers = AlphaAnswers(measure, model.counts, search.reference(measure))
        return search.by_bisection(answers) if len(model.allowance) == 1 else search.by_cuts(answers)
    raise NotApplicable(f"no fluid relaxation for the welfare {measure.name}")


def _read(
    types: ArmTables, counts: ArrayLike | None, budget: ArrayLike, discount: float, initial: Floats | None
) -> FluidModel:
    faults = Faults()
    sizes = _read_counts(counts, len(types), faults)
    amounts = read_budget(budget, types.usage.shape[-1], faults)
    gamma = read_discount(discount, faults)
    faults.raise_if_any()
    num_types, num_states, num_actions = types.rewards.shape
    start = types.initial if initial is None else np.asarray(initial, dtype=np.float64)
    check_shape(start, {"type": num_types, "state": num_states}, "initial")
    if not (start >= 0).all() or np.abs(start.sum(axis=1) - 1).max() > 1e-8:
        raise InvalidInput("initial: expected probabilities that sum to 1 for each type")
    if (start[np.arange(num_states) >= types.num_states[:, None]] > 0).any():
        raise InvalidInput("initial: a state that a type does not have has a positive probability")
    vertices = 4.0 * num_states
    size = num_types * (24.0 * num_states * num_actions + vertices * (64 + 2 * num_states) + 400)
    check_memory(size, f"the fluid relaxation of {num_types} types", "Group similar arms into types.")
    return FluidModel(types, sizes, amounts / (1 - gamma), gamma, start)


def _read_counts(counts: ArrayLike | None, num_types: int, faults: Faults) -> Ints:
    """(type,) arms of each type; many that are sound are not looked at one by one."""
    sound = isinstance(counts, np.ndarray) and counts.dtype == np.int64 and counts.shape == (num_types,)
    if sound and counts.min() >= 1 and counts.sum(dtype=np.float64) <= MOST_ARMS:  # type: ignore[union-attr]
        return np.array(counts, dtype=np.int64)
    return read_counts(counts, num_types, faults)


class _Search:
    """The search for prices, and what is known so far."""

    def __init__(self, model: FluidModel, welfare: Welfare, tolerance: float, told: Told | None) -> None:
        self.begin = time.perf_counter()
        self.model, self.welfare, self.tolerance, self.told = model, welfare, tolerance, told
        scale = np.where(model.allowance > 0, model.allowance, 1.0)
        self.unit = np.ones(1) if len(scale) == 1 else 1 / scale
        self.frontiers = model.trace(self.unit)
        self.rounds = 0
        self.scale = float(np.abs(self.frontiers.values).max())

    def reference(self, welfare: AlphaFair) -> float:
        """The welfare without a budget, by which alpha-fairness measures values."""
        most = self.frontiers.values[self.frontiers.last]
        if most.min() < 0 or (most.min() == 0 and welfare.alpha >= 1):
            raise OutOfDomain(
                f"{welfare.name} needs positive values, but even without a budget "
                f"the worst-off arm has at most {most.min():.6g}. Use a Gini welfare, or shift the rewards."
            )
        return float(welfare(most, self.model.counts)) or 1.0

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
        return _Cut(prices, values, self.model.counts @ frontiers.use(values), answers.measure(values))

    def dual(self, answers: Answers, cut: _Cut) -> float:
        """The bound that a cut promises, before it is certified."""
        slack = cut.prices @ (self.model.allowance - cut.total)
        return float(self.welfare(cut.values, self.model.counts)) + answers.rate(cut.values) * float(slack)

    def prove(self, answers: Answers, cut: _Cut) -> _Proof:
        """The certified bound of a cut."""
        frontiers = self.frontiers_at(cut.prices)
        weights = answers.weights(frontiers, cut.values)
        prices = cut.prices * answers.rate(cut.values)
        policies = frontiers.policies[frontiers.locate(cut.values)[0]]
        return _Proof(weights, prices, self.model.bound(weights, prices, policies))

    def gap(self, lower: float, upper: float) -> float:
        """Relative to the bound; where that is nearly 0, to the values."""
        return max(0.0, upper - lower) / max(abs(upper), 1e-6 * self.scale, 1e-300)

    def tell(self, gap: float) -> None:
        """Pass on the gap."""
        if self.told is not None:
            self.told(self.rounds, gap)

    def finish(self, occupancy: Floats, proof: _Proof) -> FluidSolution:
        """The solution, with its welfare computed anew from its occupancy measures, within the budget exactly."""
        model = self.model
        values, use = model.totals(occupancy)
        excess = _excess(model.counts @ use, model.allowance)
        if excess > 0:  # rounding; what costs nothing takes its place
            free = model.occupancy_at(self.frontiers, self.frontiers.values[self.frontiers.first])
            occupancy = (1 - excess) * occupancy + excess * free
            values, use = model.totals(occupancy)
        welfare = float(self.welfare(values, model.counts))
        upper = max(proof.bound, welfare)
        return FluidSolution(
            welfare=welfare,
            upper_bound=upper,
            values=values,
            use=use,
            occupancy=occupancy,
            prices=proof.prices,
            weights=proof.weights,
            gap=self.gap(welfare, upper),
            rounds=self.rounds,
            seconds=time.perf_counter() - self.begin,
        )

    def closed(self, solution: FluidSolution) -> FluidSolution:
        """The solution, if its gap is within the tolerance."""
        if solution.gap > self.tolerance:
            raise NotConverged(
                f"the gap of the fluid relaxation is {solution.gap:.2g} after {self.rounds} rounds, "
                f"not {self.tolerance:.2g}; ask for a larger tolerance"
            )
        return solution

    def by_cuts(self, answers: Answers) -> FluidSolution:
        """Cutting planes in the space of prices."""
        free, full = (
            self.cut(answers, np.zeros_like(self.unit), self.frontiers, self.frontiers.values[vertices])
            for vertices in (self.frontiers.first, self.frontiers.last)
        )
        if (full.total <= self.model.allowance).all():
            return self.closed(self.mixed([full], np.ones(1), self.prove(answers, full)))
        cuts = _Cuts(self.model.allowance, [full])
        if np.isfinite(free.measure):
            cuts.add(free)
        best, best_bound, proven = full, self.dual(answers, full), np.inf
        target, smoothing = self.tolerance / 2, SMOOTHING
        while self.rounds < MOST_ROUNDS:
            shares, prices, missing = cuts.master()
            if missing and cuts.cap > MOST_CAP:
                raise OutOfDomain(self.out_of_reach)
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
        welfare = float(self.welfare(best.values, self.model.counts))
        worth = 1e-3 * self.tolerance * max(abs(welfare), 1e-6 * self.scale)
        return np.asarray(self.unit * (worth / max(answers.rate(best.values), 1e-300) / len(self.unit)))

    def lower(self, cuts: "_Cuts", shares: Floats) -> float:
        """The welfare of a mixture of cuts."""
        values = cuts.mix(shares)
        if len(self.unit) == 1:
            values = self.spend(cuts, shares, values)
        return float(self.welfare(values, self.model.counts))

    def spend(self, cuts: "_Cuts", shares: Floats, values: Floats) -> Floats:
        """One resource: mixtures on the frontier cost less than the mixture of costs; go on towards the costlier cut.

        Along the way the cost is convex, so the chord to the far end crosses the budget before the cost does.
        """
        active = np.flatnonzero(shares > 0)
        costliest = cuts.cuts[max(active, key=lambda i: float(cuts.cuts[i].total[0]))]
        allowance = float(self.model.allowance[0])
        for _ in range(3):
            spent = float(self.model.counts @ self.frontiers.use(values)[:, 0])
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
        occupancy = np.zeros_like(self.model.types.rewards)
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
            gap = self.gap(float(self.welfare(cut.values, self.model.counts)), self.dual(answers, cut))
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
        needed = float(self.model.counts @ self.frontiers.use(np.maximum(free, 0.0))[:, 0])
        if needed >= allowance:
            raise OutOfDomain(self.out_of_reach)

    @property
    def out_of_reach(self) -> str:
        """What to say when alpha-fairness has no point of its domain within the budget."""
        return (
            f"{self.welfare.name} needs positive values, and the budget does not reach to give every arm one. "
            "Use a Gini welfare, or shift the rewards."
        )

    def fill_levels(self) -> FluidSolution:
        """Leximin with one resource: the level to which every arm is raised, as far as it can be."""
        frontiers, counts, allowance = self.frontiers, self.model.counts, float(self.model.allowance[0])
        free, most = frontiers.values[frontiers.first], frontiers.values[frontiers.last]
        low, high = float(free.min()), float(most.max())
        if counts @ frontiers.use(most)[:, 0] <= allowance:
            low = high
        while True:
            middle = low + (high - low) / 2
            if not low < middle < high:
                break
            self.rounds += 1
            fits = counts @ frontiers.use(np.clip(middle, free, most))[:, 0] <= allowance
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
            weights[saturated] = 1.0 / self.model.counts[saturated]
        else:
            prices = 1.0 / np.atleast_1d(self.model.counts[worst] @ above[worst])
            weights = np.where(worst, above * prices[0], 0.0)
        policies = frontiers.policies[frontiers.locate(values)[0]]
        return _Proof(weights, prices, self.model.bound(weights, prices, policies))


def _excess(total: Floats, allowance: Floats) -> float:
    """The share of a solution to give up so that its total use is within the allowance."""
    over = total > allowance
    return float((1 - allowance[over] / total[over]).max(initial=0.0)) * (1 + 1e-12) if over.any() else 0.0


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
        measures = np.array([cut.measure for cut in self.cuts])
        spread = float(np.ptp(measures)) or max(1.0, float(abs(measures[0])))
        scale = np.where(self.allowance > 0, self.allowance, 1.0)
        rows, columns = len(scale), len(self.cuts)
        matrix = np.zeros((rows + 1, columns + rows))
        matrix[:rows, :columns] = np.column_stack([cut.total for cut in self.cuts]) / scale[:, None]
        matrix[:rows, columns:] = -np.eye(rows)
        matrix[rows, :columns] = 1.0
        feasible = (matrix[:rows, :columns] <= 1).all(axis=0).any()
        optimum = solve_program(
            LinearProgram(
                gains=np.concatenate([(measures - measures.max()) / spread, np.full(rows, -self.cap)]),
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


def fluid_lp(
    types: ArmTables,
    counts: ArrayLike | None,
    budget: ArrayLike,
    discount: float,
    welfare: str | Welfare,
    initial: Floats | None = None,
) -> FluidSolution:
    """The fluid relaxation of a rank-weighted welfare as one linear program, for small problems.

    maximise sum_i k_i lambda_i + sum_t c_t nu_t with lambda_i + nu_t <= w_i v_t, over the distinct rank weights w_i
    (k_i ranks have each) and the types t: a row for each pair.

    Args:
        types: the distinct arms.
        counts: (type,) how many arms of each type; 1 when absent.
        budget: (resource,) what is available at every step.
        discount: what a reward one step later is worth.
        welfare: rank-weighted, but not leximin.
        initial: (type, state) distributions of the first state, in place of the arms' own.
    """
    model = _read(types, counts, budget, discount, initial)
    measure = as_welfare(welfare, model.num_arms)
    if not isinstance(measure, RankWeighted) or isinstance(measure, Leximin):
        raise NotApplicable(f"the linear program is for Gini-like welfare, not {measure.name}")
    return _by_program(_Search(model, measure, 1e-4, None), measure)


def _by_program(search: _Search, measure: RankWeighted) -> FluidSolution:
    """The linear program of `fluid_lp`, with the certificate of its own duals."""
    model = search.model
    levels, ranks = np.unique(measure.rank_weights(model.num_arms), return_counts=True)
    program = _Program(model)
    if len(levels) * float(program.num_pairs) > MOST_ENTRIES:
        raise TooLarge(f"the linear program has {len(levels)} x {len(model)} rows of ranks. Use solve_fluid.")
    number = len(model)
    values = sparse.kron(sparse.csr_array(levels[:, None]), program.values, format="csr")
    ties = sparse.hstack(
        [
            sparse.kron(sparse.eye_array(len(levels)), np.ones((number, 1))),
            sparse.kron(np.ones((len(levels), 1)), sparse.eye_array(number)),
        ]
    )
    rows = sparse.hstack([-values, ties])
    extra = len(levels) + number
    optimum = program.solve(
        rows,
        np.full(rows.shape[0], -np.inf),
        np.zeros(rows.shape[0]),
        np.concatenate([ranks.astype(np.float64), model.counts]),
        np.full(extra, -np.inf),
    )
    mass = np.maximum(optimum.duals[program.num_rows :], 0.0).reshape(len(levels), number)
    weights = project_types(levels @ mass / model.counts, model.counts, measure)
    return _of_program(search, program, optimum, weights)


class _Program:
    """The occupancy measures of all types as columns of a linear program, with their flow and budget rows."""

    def __init__(self, model: FluidModel) -> None:
        self.model = model
        types, allowed = model.types, model.allowed
        self.type, self.state, self.action = np.nonzero(allowed)
        pairs = np.arange(len(self.type))
        real = allowed.any(axis=-1)
        row_of = np.cumsum(real.reshape(-1)).reshape(real.shape) - 1
        following = types.transitions[self.type, self.state, self.action]
        source, target = np.nonzero(following)
        leave = sparse.csr_array((np.ones(len(pairs)), (row_of[self.type, self.state], pairs)))
        arrive = sparse.csr_array(
            (following[source, target], (row_of[self.type[source], target], source)), shape=leave.shape
        )
        use = model.counts[self.type, None] * types.usage[self.type, self.state, self.action]
        self.rows = sparse.vstack([leave - model.discount * arrive, sparse.csr_array(use.T)], format="csr")
        self.start = model.initial[real]
        rewards = types.rewards[self.type, self.state, self.action]
        self.unit = float(np.abs(rewards).max()) or 1.0  # of value: solvers have absolute tolerances
        self.values = sparse.csr_array((rewards / self.unit, (self.type, pairs)), shape=(len(model), len(pairs)))

    @property
    def num_pairs(self) -> int:
        """Columns of the occupancy measures."""
        return len(self.type)

    @property
    def num_rows(self) -> int:
        """Flow and budget rows."""
        return int(self.rows.shape[0])

    def solve(
        self, rows: sparse.csr_array, row_lower: Floats, row_upper: Floats, gains: Floats, lower: Floats
    ) -> LinearOptimum:
        """Maximise over the occupancy measures and further columns, under further rows."""
        extra = len(gains)
        top = sparse.hstack([self.rows, sparse.csr_array((self.num_rows, extra))])
        unlimited = np.full(len(self.model.allowance), -np.inf)
        return solve_program(
            LinearProgram(
                gains=np.concatenate([np.zeros(self.num_pairs), gains]),
                matrix=sparse.csc_array(sparse.vstack([top, rows])),
                row_lower=np.concatenate([self.start, unlimited, row_lower]),
                row_upper=np.concatenate([self.start, self.model.allowance, row_upper]),
                lower=np.concatenate([np.zeros(self.num_pairs), lower]),
                upper=np.full(self.num_pairs + extra, np.inf),
            )
        )

    def occupancy(self, optimum: LinearOptimum) -> Floats:
        """(type, state, action) the occupancy measures of the optimum's policies, which obey the flow exactly."""
        model = self.model
        raw = np.zeros(model.types.rewards.shape)
        raw[self.type, self.state, self.action] = np.maximum(optimum.primal[: self.num_pairs], 0.0)
        visits = raw.sum(axis=-1, keepdims=True)
        idle = np.zeros_like(raw)
        np.put_along_axis(idle, model.types.idle[..., None].astype(np.int64), 1.0, axis=-1)
        law = np.where(visits > 1e-9, raw / np.where(visits > 0, visits, 1.0), idle * model.allowed)
        chosen = np.einsum("tsa,tsaj->tsj", law, model.types.transitions)
        system = np.eye(len(model.types.rewards[0])) - model.discount * np.swapaxes(chosen, 1, 2)
        reached = np.asarray(np.linalg.solve(system, model.initial[..., None]))
        return np.asarray(np.maximum(reached, 0.0) * law)


def _of_program(search: _Search, program: _Program, optimum: LinearOptimum, weights: Floats) -> FluidSolution:
    """The solution of a program, certified by its own weights and prices."""
    num_resources = len(search.model.allowance)
    duals = program.unit * optimum.duals[program.num_rows - num_resources : program.num_rows]
    prices = np.where(search.model.allowance > 0, np.maximum(duals, 0.0), 0.0)
    policies = search.frontiers.policies[search.frontiers.first]
    search.rounds += 1
    proof = _Proof(weights, prices, search.model.bound(weights, prices, policies))
    return search.closed(search.finish(program.occupancy(optimum), proof))


def _leximin_by_stages(search: _Search) -> FluidSolution:
    """Several resources: raise the least value, fix whoever holds it down, and go on with the others."""
    model, program = search.model, _Program(search.model)
    if program.rows.nnz > MOST_ENTRIES:
        raise TooLarge(
            f"leximin with several resources needs linear programs of {program.rows.nnz} entries. "
            "Use maximin:0.001, or a Gini welfare."
        )
    floors = np.full(len(model), -np.inf)
    stages: list[tuple[LinearOptimum, Floats]] = []
    while True:
        open_types = np.isinf(floors)
        optimum, held = _raise_least(program, floors, open_types)
        stages.append((optimum, held))
        stuck = open_types & (held > 1e-7 * held[open_types].max())
        floors[stuck] = optimum.objective
        search.rounds += 1
        search.tell(float(np.isinf(floors).mean()))
        if np.isfinite(floors).all():
            break
    first, held = stages[0]
    weights = project_types(held / model.counts, model.counts, Maximin())
    proof = _of_program(search, program, first, weights)
    solution = search.finish(program.occupancy(optimum), _Proof(weights, proof.prices, proof.upper_bound))
    return search.closed(solution)


def _raise_least(program: _Program, floors: Floats, open_types: Bools) -> tuple[LinearOptimum, Floats]:
    """The program of one stage, and (type,) the multipliers of the types that are still open."""
    slack = 1e-9 * np.maximum(1.0, np.abs(np.where(open_types, 0.0, floors)))
    column = sparse.csr_array(-open_types.astype(np.float64)[:, None])
    optimum = program.solve(
        sparse.hstack([program.values, column]),
        np.where(open_types, 0.0, floors - slack),
        np.full(len(floors), np.inf),
        np.ones(1),
        np.full(1, -np.inf),
    )
    return optimum, np.maximum(-optimum.duals[program.num_rows :], 0.0)
