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

and theta mixes the responses into a feasible solution, whose welfare is the lower bound. The upper bound is certified
by weak duality: W(v) <= g.v + c for the weights g of the response, with c = 0 for rank weights and power means, so
sum_n max_q (g_n V - lambda.U) + lambda.B + c is at least the optimum, and each maximum is bounded by Bellman's
inequality (`frontiers`). For one resource frontiers are traced once, and with
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
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import (
    InfeasibleError,
    InvalidInputError,
    NotApplicableError,
    NotConvergedError,
    OutOfDomainError,
)
from evenhand.model.coupled import CoupledMDP, usable_amount
from evenhand.model.criterion import Opening
from evenhand.model.welfare import PowerMean, RankWeighted, Utilitarian, Welfare, as_welfare, is_mean
from evenhand.parallel import Blocks, Pool
from evenhand.solvers.fluid import programs as fluid_programs
from evenhand.solvers.fluid.blocks import BLOCK, NUM_LEVELS, Block, BlockBuilder
from evenhand.solvers.fluid.dual_search import MOST_ROUNDS, DualSolution, PriceSearch, search_for
from evenhand.solvers.fluid.frontiers import FluidModel, Frontiers
from evenhand.solvers.fluid.occupancy_program import FLOOR_ROUNDING, USUAL_SIZES, Program, ProgramSizes, out_of_floors
from evenhand.solvers.fluid.price_response import unit_prices
from evenhand.solvers.fluid.programs import FluidOptimum, Rounds, not_closed, solve_by_program
from evenhand.solvers.single_arm import check_communicating
from evenhand.typing import Floats

if TYPE_CHECKING:
    from evenhand.model.parquet.stored import StoredArms

FEW_TYPES = 200
"""Types up to which a dual search that does not converge is replaced by one linear program."""

LARGEST_GAP = 0.1
"""Largest gap with which programs may end, if numbers of very different size leave no digits for more."""

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


# -- public functions ------------------------------------------------------------------------------------------------


def solve_fluid(
    problem: CoupledMDP,
    welfare: str | Welfare,
    tolerance: float = 1e-4,
) -> FluidSolution:
    """Solve the fair fluid relaxation of a problem, under its criterion, over its arms or groups, within its floors.

    Args:
        problem: the problem.
        welfare: what is maximised, as text or object; any concave, symmetric, monotone function.
        tolerance: the relative gap to stop at.

    Raises:
        OutOfDomainError: the welfare needs positive values, and the budget does not reach for all arms.
        InfeasibleError: the floors are infeasible; the message has the largest that are not.
        NotApplicableError: the average depends on where arms start.
        TooLargeError: the tables would not fit in memory.
        NotConvergedError: the gap did not close.
    """
    return solve_model(model_of(problem), welfare, tolerance)


def solve_opening(
    problem: CoupledMDP,
    welfare: str | Welfare,
    relaxed: FluidSolution,
    tolerance: float = 1e-4,
    openings: Sequence[int] = OPENINGS,
    sizes: ProgramSizes = USUAL_SIZES,
) -> FluidSolution | None:
    """The relaxation whose budget holds in each of the first steps, or of all if they are finite: a tighter bound.

    Args:
        problem: the problem.
        welfare: what is maximised, as text or object.
        relaxed: a solution of its plain relaxation.
        tolerance: the relative gap to stop at.
        openings: numbers of first steps, the most preferred first.
        sizes: sizes up to which programs are used.

    Returns:
        A solution by steps, the last of which lasts; None under the average, or if no program is affordable.
        Where only the mean at the weights of the plain relaxation is, `welfare` is the weighted sum, as the bound is.
    """
    # Under the average the first steps do not count; with a finite horizon they may be separate already.
    if problem.criterion.is_average or relaxed.by_step:
        return None
    plain = model_of(problem)
    objective = as_welfare(welfare, plain.num_members)
    # `solve_weighted` keeps no floors: with floors only the welfare itself will do.
    weights = homogeneous_weights(plain, objective, relaxed) if plain.floors is None else None
    if not problem.criterion.contracts:
        wider = replace(sizes, columns_by_step=sizes.columns_of_weighted_steps)
        if weights is None or not fluid_programs.fits_by_step(plain, Utilitarian(), wider):
            return None
        return solve_weighted(plain, weights, tolerance=tolerance, sizes=wider)
    few = fluid_programs.num_rank_rows(plain, objective) <= sizes.rank_rows_of_opening
    # These take many programs, each with more cuts than the last, and so get fewer columns.
    several = not isinstance(objective, RankWeighted) and not is_mean(objective, plain.num_members)
    # The most steps first, since each of them makes the bound tighter.
    for steps in openings:
        model = replace(plain, criterion=Opening(problem.discount, steps))
        small = few and not (several and (steps + 1) * int(model.types.valid.sum()) > sizes.columns_of_cuts)
        if (small or weights is None) and fluid_programs.fits_by_step(model, objective, sizes):
            return solve_model(model, objective, tolerance, sizes=sizes)
        if weights is not None and fluid_programs.fits_by_step(model, Utilitarian(), sizes):
            return solve_weighted(model, weights, tolerance=tolerance)
    return None


def homogeneous_weights(model: FluidModel, welfare: Welfare, relaxed: FluidSolution) -> Floats | None:
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
    model: FluidModel,
    weights: Floats,
    floor_prices: Floats | None = None,
    tolerance: float = 1e-4,
    sizes: ProgramSizes = USUAL_SIZES,
) -> FluidSolution:
    """Maximise a weighted sum of the arms' values instead of a welfare: every weight its own, floors as prices.

    maximise sum_n w_n v_n + phi_n (time in which n is served) within the budget: the mean of arms whose rewards are
    N w_n r_n + N phi_n [served]. Its `upper_bound` is one on the weighted sum of every policy.

    Args:
        model: the types, and what they share; its groups and floors do not count.
        weights: (type,) weights of the values.
        floor_prices: (type,) reward per unit of time in which one arm is served; 0 by default.
        tolerance: the relative gap to stop at.
        sizes: sizes up to which programs are used.

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
        *(replace(model.types, rewards=rewards), model.counts, model.budget, model.criterion, model.initial),
        spends_all=model.spends_all,
    )
    return solve_model(scaled, Utilitarian(), tolerance, sizes=sizes)


def model_of(problem: CoupledMDP) -> FluidModel:
    """The relaxation's data of a problem.

    Args:
        problem: the problem.
    """
    types, criterion, budget = problem.types, problem.criterion, problem.usable_budget
    groups = problem.group_of_type if problem.over == "groups" else None
    floors = problem.type_floors if problem.has_floors else None
    shared = (problem.type_counts, budget, criterion, types.initial, groups, floors)
    model = FluidModel(types.within(budget), *shared, problem.spends_all if problem.spend else None)
    (num_types, num_states, num_actions), steps = types.rewards.shape, criterion.num_layers
    # As far as they matter, steps bend a frontier each at its own slope.
    vertices = 4.0 * num_states + (0.0 if steps == 1 else 4 * min(steps, 4 * criterion.total))
    # A vertex has numbers of its own, and with pivots a policy of 2 bytes a state, else a whole measure.
    entry = 64 + (2 * num_states if model.by_pivots else 8 * num_states * num_actions * steps)
    size = num_types * (24.0 * num_states * num_actions + vertices * entry + 400)
    check_memory(size, f"the fluid relaxation of {num_types} types", "Group similar arms into types.")
    check_communicating(model.types, model.types.valid, criterion)
    return model


# -- choice of algorithm ----------------------------------------------------------------------------------------------


def solve_model(
    model: FluidModel,
    welfare: str | Welfare,
    tolerance: float = 1e-4,
    most_rounds: int = MOST_ROUNDS,
    sizes: ProgramSizes = USUAL_SIZES,
) -> FluidSolution:
    """Solve the fair fluid relaxation of types of arms; see `solve_fluid`.

    Args:
        model: the types, and what they share.
        welfare: what is maximised, as text or object.
        tolerance: the relative gap to stop at.
        most_rounds: prices after which the search for them gives up.
        sizes: sizes up to which programs are used.
    """
    if not 0 < tolerance < 1:
        raise InvalidInputError(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    model, objective = _within_reach(model), as_welfare(welfare, model.num_members)
    begin = time.perf_counter()
    kind = search_for(objective, model.num_members, len(model.budget))

    def by_program() -> FluidSolution:
        """Closed to the tolerance, or as far as numbers allow: the gap is a true one."""
        optimum = solve_by_program(model, objective, tolerance, sizes)
        solution = _solution(model, objective, optimum, begin)
        if solution.gap > max(tolerance, LARGEST_GAP):
            raise not_closed(solution.gap, solution.rounds, tolerance)
        return solution

    # With steps a budget at each of them is tighter, and comes first. Where its program fails, prices bound the same
    # over all time; for an opening that would be the plain relaxation, which is known.
    if fluid_programs.fits_by_step(model, objective, sizes):
        try:
            return by_program()
        except NotConvergedError:
            if kind is None or isinstance(model.criterion, Opening):
                raise
    if kind is None or model.spends_all is not None:
        return by_program()
    try:
        block = Block(model, num_cached=most_rounds, is_whole=True)
        _check_floors(model, block.frontiers(unit_prices(model.allowance)))
        with Pool() as pool:
            blocks: Blocks[Block] = pool.blocks([lambda: block])
            edges, shared = [0, len(model.sizes)], (model.sizes, model.allowance)
            search = kind(blocks, edges, *shared, objective, tolerance, most_rounds=most_rounds)
            return _by_prices(search, block, begin)
    except NotConvergedError:
        if len(model) > FEW_TYPES:
            raise
        return by_program()


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


def _by_prices(search: PriceSearch, block: Block, begin: float) -> FluidSolution:
    """Return the solution by a search for prices."""
    model, objective = block.model, search.welfare
    try:
        found = search.run()
    except OutOfDomainError:
        # Only a power mean has a domain to miss. Whether floors fit was checked before for one resource; for
        # several their program decides.
        if model.floors is not None and not isinstance(objective, PowerMean):
            raise InfeasibleError(out_of_floors(model)) from None
        if model.floors is not None and not search.single:
            Program(model).check_floors()
        raise
    occupancy, proof = block.measure(found.mixture), found.proof
    if found.excess > 0:
        occupancy = (1 - found.excess) * occupancy + found.excess * block.measure(search.free)
    if model.floors is None:
        proof = proof._replace(floor_prices=np.zeros(len(model)))
    return _solution(model, objective, FluidOptimum(occupancy, proof, search.rounds, search.scale), begin)


def _check_floors(model: FluidModel, frontiers: Frontiers) -> None:
    """Raise InfeasibleError if the floors cannot be reached."""
    if model.floors is None:
        return
    # An arm may miss its floor even alone. With one resource the cheapest ways to keep all floors may also be too
    # dear together; with several, the first vertices are cheapest for one ratio of prices only and prove nothing.
    most = model.served(model.most_served) / model.criterion.total
    short = (most < model.floors * (1 - FLOOR_ROUNDING)).any()
    least = model.sizes @ frontiers.uses[frontiers.first]
    if short or (len(least) == 1 and (least > model.allowance * (1 + FLOOR_ROUNDING)).any()):
        raise InfeasibleError(out_of_floors(model))


def _solution(model: FluidModel, objective: Welfare, found: FluidOptimum, begin: float) -> FluidSolution:
    """A solution with its welfare computed anew from its occupancy measures."""
    values, use = model.totals(found.occupancy)
    welfare = float(objective(model.members(values), model.sizes))
    # By rounding a solution may beat its bound; no bound is below what was reached.
    upper = max(found.proof.bound, welfare)
    return FluidSolution(
        welfare=welfare,
        upper_bound=upper,
        values=values,
        use=use,
        occupancy=found.occupancy,
        prices=found.proof.prices,
        weights=model.weights_of_types(found.proof.weights),
        floor_prices=found.proof.floor_prices,
        served=model.served(found.occupancy) / model.criterion.total,
        gap=fluid_programs.relative_gap(welfare, upper, found.scale),
        rounds=found.rounds,
        seconds=time.perf_counter() - begin,
    )


# -- very many arms ---------------------------------------------------------------------------------------------------


def solve_blocks(
    source: "StoredArms",
    welfare: str | Welfare,
    backend: str | Pool | None = None,
    tolerance: float = 1e-4,
    progress: Rounds | None = None,
    block_rows: int = BLOCK,
    num_levels: int = NUM_LEVELS,
) -> DualSolution:
    """Solve the fair fluid relaxation block by block.

    Args:
        source: an opened model of arms without groups and floors.
        welfare: the mean, rank-weighted, a power mean, or leximin with one resource.
        backend: where blocks are computed.
        tolerance: relative gap to stop at.
        progress: called each round with its number and the gap.
        block_rows: rows per block.
        num_levels: largest number of levels of the grid on which blocks count under rank weights.

    Raises:
        NotApplicableError: the welfare has another structure.
        OutOfDomainError: the welfare needs positive values, and the budget does not suffice for all arms.
        ClusterError: workers cannot be reached or die repeatedly.
        NotConvergedError: the gap did not close.
    """
    if not 0 < tolerance < 1:
        raise InvalidInputError(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    begin, counts = time.perf_counter(), source.row_counts
    rows, number = len(counts), int(counts.sum())
    check_memory(120.0 * rows, f"the values and weights of {rows} rows", "Use rows that stand for several arms.")
    objective = as_welfare(welfare, number)
    kind = search_for(objective, number, len(source.budget))
    if kind is None:
        raise NotApplicableError(
            f"{objective.name} is not solved block by block, which is for the mean, rank-weighted welfare, power "
            "means, and leximin with one resource; read the model into memory (load)"
        )
    edges = [*range(0, rows, block_rows), rows]
    with Pool(backend) as pool:
        builders = [
            BlockBuilder(source.row_reader(start, stop), source.budget, source.criterion)
            for start, stop in pairwise(edges)
        ]
        blocks: Blocks[Block] = pool.blocks(builders)
        try:
            uses = zip(source.budget.tolist(), zip(*blocks.map(Block.uses), strict=True), strict=True)
            usable = np.array([usable_amount(budget, np.unique(np.concatenate(parts))) for budget, parts in uses])
            allowance = usable * source.criterion.total
            search = kind(blocks, edges, counts, allowance, objective, tolerance, progress, num_levels=num_levels)
            found = search.run()
        finally:
            blocks.close()
    return replace(found, num_blocks=len(blocks), seconds=time.perf_counter() - begin)
