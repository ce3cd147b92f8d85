"""The fluid relaxation as linear programs: every combination of criterion, groups, floors and welfare.

Columns are the shares of time x that arms spend in their pairs, and the values m of the members:

    flow      stationary   sum_a x(s, a) - factor sum_{s', a} p(s | s', a) x(s', a) = mu(s) / total    (discounted)
                                                                                   = 0, sum x = 1      (average)
              finite       sum_a x_{t+1}(s, a) = sum_{s', a} p(s | s', a) x_t(s', a),   sum_a x_0(s, a) = mu(s)
              opening      the same, but for the step that lasts: what arrives is p.(gamma x_T + (1-gamma) x_{T-1})
    budget    sum_n x_n.d_n <= b,  at every step if there are steps
    floors    x_n.[d_n > 0] >= floor_n, weighted over the steps
    members   m = the values total x_n.r_n of the arms, or the means of their groups

and what is maximised depends on the welfare:

    mean            the mean of m
    rank-weighted   sum_i k_i lambda_i + sum_m nu_m with lambda_i + nu_m <= w_i m, over the distinct rank weights w_i,
                    which k_i ranks have: a row for each pair
    power mean      sum_m u_m, each below tangents of the utility (`welfare_cuts`)
    leximin         by stages: raise the least value, fix the members that hold it down, and raise the others
    any other       z below cuts W(m^k) + g^k.(m - m^k) (`welfare_cuts`)

Between the best point so far and the program's, W is largest somewhere: there, and at the program's own, the next
tangents or cuts are made.

Certificate. From below: the measures of the policies that x shows, which obey the flow exactly, are brought within the
budget by a little of a measure that uses less; their welfare is computed anew. From above: a convex combination of cuts
is a cut, W(m) <= a + g.m; with the prices of the budget rows, sum_n max_q (g_n V - lambda.U) + lambda.B + a bounds the
optimum, each maximum by Bellman's inequality within the arm's floor (`frontiers`).

One program takes O(N T S A) columns and O(N T S) rows for N types and T steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from evenhand.errors import InfeasibleError, NotConvergedError, OutOfDomainError, TooLargeError
from evenhand.model.welfare import PowerMean, RankWeighted, Utilitarian, Welfare, is_lexicographic, is_mean
from evenhand.solvers._highs import LinearOptimum, LinearProgram, solve_program
from evenhand.solvers.fluid.frontiers import Bound, FluidModel
from evenhand.solvers.permutahedron import project_types
from evenhand.solvers.welfare_cuts import Cuts, best_between, pieces_of
from evenhand.typing import Bools, Floats, Ints

MOST_ENTRIES = 20_000_000
"""Non-zeros of the largest program."""

MOST_COLUMNS_BY_STEP, MOST_RANK_ROWS_BY_STEP = 12_000, 5_000
"""Columns, and rows of ranks, of the largest program with a budget at every step that is taken unasked: a second."""

MOST_RANK_ROWS = 200_000
"""Rows of ranks of the largest program."""

MOST_STAGES = 30
"""Members up to which leximin is solved by stages with a budget at every step unasked."""

SMALL_WEIGHT = 1e-10
"""Rank weights below this share of the largest are one in the program; the certificate does not rely on that."""

MOST_ROUNDS = 200
"""Programs after which a search for the welfare's cuts ends with the gap that is left."""

FLOOR_ROUNDING = 1e-7
"""The share of a floor, or of the budget that floors take, by which a solution may be out, as programs are."""

LP_TOLERANCE = 1e-10
"""Feasibility tolerance of small programs."""

INTERIOR_FROM = 3_000
"""Columns from which the interior point is faster than the simplex method; with many steps a hundred times."""

Rounds = Callable[[int, float], None]
"""Called with the number of the round and the gap."""


@dataclass(frozen=True, eq=False)
class FluidOptimum:
    """A feasible solution with its proof."""

    occupancy: Floats
    """(type, state, action), or (type, step, state, action): occupancy measures."""

    weights: Floats
    """(member,) derivative of the welfare by the value of one member."""

    prices: Floats
    """(resource,), or (step, resource): dual prices of weighted use."""

    bound: Bound
    """No solution has more."""

    rounds: int
    """Programs, or prices, that were tried."""

    scale: float
    """The size of values."""


# -- what fits --------------------------------------------------------------------------------------------------------


def relative_gap(lower: float, upper: float, scale: float) -> float:
    """The gap relative to the upper bound; where that is nearly 0, to the size of values."""
    return max(0.0, upper - lower) / max(abs(upper), 1e-6 * scale, 1e-300)


def as_ranked(welfare: Welfare, num_members: int) -> RankWeighted:
    """The welfare as a rank-weighted one, which the mean always is.

    Args:
        welfare: rank-weighted, or the mean in another form.
        num_members: of how many members.
    """
    if isinstance(welfare, RankWeighted):
        return welfare
    assert is_mean(welfare, num_members)
    return Utilitarian()


def fits_by_step(model: FluidModel, welfare: Welfare) -> bool:
    """Return whether a budget at every step is affordable by default.

    Args:
        model: the types and the criterion.
        welfare: what is maximised.
    """
    if model.criterion.num_steps is None:
        return False
    # What is solved unasked must be quick: the limits are those of a second.
    columns = model.criterion.num_steps * int(model.allowed.sum())
    members = len(model.sizes)
    if columns > MOST_COLUMNS_BY_STEP:
        return False
    if is_lexicographic(welfare):
        return members <= MOST_STAGES
    return num_rank_rows(model, welfare) <= MOST_RANK_ROWS_BY_STEP


def num_rank_rows(model: FluidModel, welfare: Welfare) -> float:
    """Return the number of rows of ranks in the program of a welfare.

    Args:
        model: the types.
        welfare: what is maximised.
    """
    if not isinstance(welfare, RankWeighted) or is_mean(welfare, model.num_members) or is_lexicographic(welfare):
        return 0
    # The rank weights are not even written out for so many members.
    if model.num_members > MOST_RANK_ROWS:
        return np.inf
    return len(_levels(welfare, model)[0]) * len(model.sizes)


def _solved(program: LinearProgram) -> LinearOptimum:
    """Solve small programs by the simplex method, large ones by an interior point."""
    if program.num_columns > INTERIOR_FROM:
        return solve_program(program, algorithm="interior-point")
    return solve_program(program, tolerance=LP_TOLERANCE)


def _levels(welfare: RankWeighted, model: FluidModel) -> tuple[Floats, Ints]:
    """The distinct rank weights, and how many ranks have each."""
    weights = welfare.rank_weights(model.num_members)
    # Distinct weights, the least first. Those next to nothing are one level of weight 0, and save a row a member each.
    return np.unique(np.where(weights < SMALL_WEIGHT * weights[0], 0.0, weights), return_counts=True)


def solve_by_program(
    model: FluidModel, welfare: Welfare, tolerance: float, progress: Rounds | None = None
) -> FluidOptimum:
    """Solve the relaxation by linear programs, with the budget at every step if there are steps.

    Args:
        model: the types, and what they share.
        welfare: any.
        tolerance: the relative gap to stop at.
        progress: called each round with its number and the gap.

    Raises:
        TooLargeError: the program would be too large.
        InfeasibleError: the floors cannot be reached.
        OutOfDomainError: the welfare is not defined within the budget.
        NotConvergedError: the gap did not close.
    """
    program = Program(model)
    program.check_floors()
    search = _Search(program, welfare, tolerance, progress)
    # The order matters: the mean may come as a rank-weighted welfare or a power mean, and leximin is rank-weighted.
    if is_mean(welfare, model.num_members):
        return search.by_mean()
    if is_lexicographic(welfare):
        return search.by_stages()
    if isinstance(welfare, RankWeighted):
        return search.by_ranks(welfare)
    return search.by_cuts()


# -- the program before a welfare joins it ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Solved:
    """A solved program, in its parts."""

    shares: Floats
    """(step, pair) shares of time."""

    members: Floats
    """(member,) values."""

    more: Floats
    """(column,) the further columns."""

    prices: Floats
    """(resource,), or (step, resource): prices of weighted use."""

    duals: Floats
    """(row,) multipliers of the further rows, in units of value."""

    objective: float
    """In the units of the program."""


class Program:
    """The relaxation's columns and rows, to which a welfare adds its own."""

    def __init__(self, model: FluidModel) -> None:
        self.model = model
        self.type, self.state, self.action = np.nonzero(model.allowed)
        steps = model.criterion.num_steps
        self.num_steps = steps or 1
        # Weight of a visit in each step, in shares of time.
        self.step_weights = np.array([model.criterion.total]) if steps is None else model.criterion.time_weights(steps)
        # The entries of the flow, and about four more a pair: it leaves a state, uses, serves, and has a value.
        support = np.count_nonzero(model.types.transitions[self.type, self.state, self.action])
        if (entries := self.num_steps * (support + 4 * len(self.type))) > MOST_ENTRIES:
            raise TooLargeError(
                f"the linear program of the relaxation has {entries} entries; at most {MOST_ENTRIES} are taken. "
                "Use a Gini welfare or alpha-fairness, which need none, or group similar arms into types."
            )
        rewards = model.types.rewards[self.type, self.state, self.action]
        self.unit = float(np.abs(rewards).max() * model.criterion.total) or 1.0  # of value: solvers have tolerances

    @property
    def num_columns(self) -> int:
        """Number of shares of time."""
        return self.num_steps * len(self.type)

    @property
    def num_members(self) -> int:
        """Number of values."""
        return len(self.model.sizes)

    @cached_property
    def flow(self) -> tuple[sparse.csr_array, Floats]:
        """The flow rows, and what they must be."""
        model, pairs = self.model, np.arange(len(self.type))
        # Padded states have no action, and so no row; real states are numbered through all types.
        real = model.allowed.any(axis=-1)
        row_of = np.cumsum(real.reshape(-1)).reshape(real.shape) - 1
        following = model.types.transitions[self.type, self.state, self.action]
        source, target = np.nonzero(following)
        # (row, pair) 1 where the pair leaves the row's state, and the chance with which it arrives there.
        leave = sparse.csr_array((np.ones(len(pairs)), (row_of[self.type, self.state], pairs)))
        arrive = sparse.csr_array(
            (following[source, target], (row_of[self.type[source], target], source)), shape=leave.shape
        )
        start = model.initial[real]
        # By steps, a block each. Shares of time are not discounted: the discount is in the weight of a visit.
        if model.criterion.num_steps is not None:
            rows = sparse.kron(sparse.eye_array(self.num_steps), leave) - sparse.kron(self._came_from, arrive)
            return sparse.csr_array(rows), np.concatenate([start, np.zeros(len(start) * (self.num_steps - 1))])
        if model.criterion.is_average:
            # One row a type more: without it x = 0 would obey the flow of an average.
            whole = sparse.csr_array((np.ones(len(pairs)), (self.type, pairs)))
            rows = sparse.vstack([leave - arrive, whole])
            return sparse.csr_array(rows), np.concatenate([np.zeros(len(start)), np.ones(len(model))])
        return sparse.csr_array(leave - model.criterion.factor * arrive), start / model.criterion.total

    @property
    def _came_from(self) -> sparse.csr_array:
        """(step, step) how much of what arrives in a step was in which: all in the step before, unless it lasts."""
        shares = sparse.lil_array(sparse.eye_array(self.num_steps, k=-1))
        if self.model.criterion.lasts:
            # q_T = p.gamma (q_{T-1} + q_T), with q_t = gamma^t x_t but q_T = gamma^T / (1-gamma) x_T.
            shares[-1, -2:] = 1 / self.model.criterion.total, self.model.criterion.factor
        return sparse.csr_array(shares)

    @cached_property
    def bought(self) -> Ints:
        """The resources of which there is something; of the others nothing can be used."""
        return np.flatnonzero(self.model.budget > 0)

    @cached_property
    def use(self) -> sparse.csr_array:
        """(step and resource, column) the share of the budget that a pair uses, all arms of its type together."""
        model = self.model
        # In shares of the budget, so that all rows have limits of 1 whatever the units of the resources.
        usage = model.types.usage[self.type, self.state, self.action][:, self.bought] / model.budget[self.bought]
        each = sparse.csr_array((model.counts[self.type, None] * usage).T)
        return sparse.csr_array(sparse.kron(sparse.eye_array(self.num_steps), each))

    @cached_property
    def service(self) -> tuple[sparse.csr_array, Ints]:
        """The share of time in which arms with a floor are served, and their types."""
        floored = np.zeros(0, dtype=np.int64) if self.model.floors is None else np.flatnonzero(self.model.floors)
        served = self.model.types.served[self.type, self.state, self.action].astype(np.float64)
        each = sparse.csr_array((served, (self.type, np.arange(len(self.type)))), shape=(len(self.model), len(served)))
        # What a share of time in each step counts for, of the criterion's total: together 1.
        weights = self.step_weights / self.model.criterion.total
        return sparse.csr_array(sparse.kron(weights[None], sparse.csr_array(each[floored]))), floored

    @cached_property
    def values(self) -> sparse.csr_array:
        """(member, column) values in units."""
        model = self.model
        rewards = model.types.rewards[self.type, self.state, self.action] / self.unit
        groups = np.arange(len(model)) if model.groups is None else model.groups
        # A group's value is the mean of its arms', so each type counts by its share of the group.
        if model.groups is not None:
            rewards = rewards * (model.counts / np.bincount(groups, weights=model.counts)[groups])[self.type]
        shape = (self.num_members, len(self.type))
        each = sparse.csr_array((rewards, (groups[self.type], np.arange(len(self.type)))), shape=shape)
        return sparse.csr_array(sparse.kron(self.step_weights[None], each))

    def solve(
        self,
        gains: Floats,
        rows: sparse.csr_array | None = None,
        row_lower: Floats | float = -np.inf,
        row_upper: Floats | float = np.inf,
        lower: Floats | float = -np.inf,
        *,
        most_use: float | None = 1.0,
        floors: Floats | None = None,
    ) -> _Solved:
        """Maximise over shares of time, members' values and further columns, under further rows.

        Args:
            gains: (member + column,) what is maximised.
            rows: (row, member + column) further rows.
            row_lower: (row,) the least each may be.
            row_upper: (row,) the most each may be.
            lower: (member + column,) the least that values and further columns may be.
            most_use: share of the budget that may be used; None if the last column is that share.
            floors: (floored type,) in place of the model's; NaN if the last column is the floor.
        """
        service, floored = self.service
        own = self.model.floors[floored] if self.model.floors is not None else np.zeros(0)
        floors = own if floors is None else floors
        # Columns: shares of time, members' values, whatever the welfare adds. Rows in the order of the blocks below.
        flow, start = self.flow
        wide = len(gains)
        rows = sparse.csr_array((0, wide)) if rows is None else rows
        tied = sparse.csr_array(sparse.eye_array(self.num_members, wide))
        # If the last column is the share that may be used, the row is use - column <= 0; floors likewise.
        use_tie = _last_column(np.full(self.use.shape[0], -float(most_use is None)), wide)
        floor_tie = _last_column(-np.isnan(floors).astype(np.float64), wide)
        matrix = sparse.block_array(
            [
                [flow, sparse.csr_array((flow.shape[0], wide))],
                [self.use, use_tie],
                [service, floor_tie],
                [self.values, -tied],
                [None, rows],
            ]
        )
        number = rows.shape[0]
        zeros, open_use = np.zeros(self.num_members), np.full(self.use.shape[0], -np.inf)
        limit = np.full(self.use.shape[0], 0.0 if most_use is None else most_use)
        least = np.where(np.isnan(floors), 0.0, floors)
        program = LinearProgram(
            gains=np.concatenate([np.zeros(self.num_columns), gains]),
            matrix=sparse.csc_array(matrix),
            row_lower=np.concatenate([start, open_use, least, zeros, np.broadcast_to(row_lower, number)]),
            row_upper=np.concatenate(
                [start, limit, np.full(len(least), np.inf), zeros, np.broadcast_to(row_upper, number)]
            ),
            lower=np.concatenate([np.zeros(self.num_columns), np.broadcast_to(lower, wide)]),
            upper=np.full(self.num_columns + wide, np.inf),
        )
        try:
            return self._read(_solved(program), number)
        except InfeasibleError:  # infeasible floors are refused before (`check_floors`)
            raise NotConvergedError(
                "the linear program of the relaxation has a solution, but its numbers are of too different a size for "
                "the solver to find one"
            ) from None

    def _read(self, optimum: LinearOptimum, number: int) -> _Solved:
        # The multipliers of the budget rows are in units, for a share of the budget; prices are for weighted use.
        begin = self.flow[0].shape[0]
        duals = np.maximum(optimum.duals[begin : begin + self.use.shape[0]], 0.0).reshape(self.num_steps, -1)
        prices = np.zeros((self.num_steps, len(self.model.budget)))
        # A step without weight (discount 0) has no price.
        weights = np.where(self.step_weights > 0, self.step_weights, np.inf)[:, None]
        prices[:, self.bought] = self.unit * duals / self.model.budget[self.bought] / weights
        end = self.num_columns + self.num_members
        return _Solved(
            shares=optimum.primal[: self.num_columns].reshape(self.num_steps, -1),
            members=optimum.primal[self.num_columns : end],
            more=optimum.primal[end:],
            prices=prices[0] if self.model.criterion.num_steps is None else prices,
            duals=optimum.duals[len(optimum.duals) - number :],
            objective=optimum.objective,
        )

    def measure(self, solved: _Solved) -> Floats:
        """The occupancy measures of the policies that a solution shows, within the budget."""
        return self.within_budget(self._follow(solved))

    def _follow(self, solved: _Solved) -> Floats:
        """The occupancy measures of the policies that a solution shows."""
        # (step, type, state, action) as the columns are; arms have the type first.
        raw = np.zeros((self.num_steps, *self.model.types.rewards.shape))
        raw[:, self.type, self.state, self.action] = solved.shares
        raw = raw[0] if self.model.criterion.num_steps is None else np.moveaxis(raw, 0, 1)
        return self.model.arms.follow(np.arange(len(self.model)), raw)

    def spent(self, measure: Floats) -> Floats:
        """(step and resource,) the share of the budget that measures use; by steps if there are."""
        by_step = measure[:, None] if measure.ndim == 3 else measure
        use = np.einsum("t,tusa,tsak->uk", self.model.counts.astype(np.float64), by_step, self.model.types.usage)
        allowance = self.step_weights[:, None] * self.model.budget
        return np.asarray((use / np.where(allowance > 0, allowance, np.inf)).reshape(-1))

    def within_budget(self, measure: Floats) -> Floats:
        """The same measures, with so much of those that use least as brings them within the budget.

        Floors may take the whole budget, and then nothing uses less: so their constraints hold as closely as in a
        linear program.
        """
        # With floors the budget may hold to rounding only: nothing that keeps them may use less.
        spent, most = self.spent(measure), 1.0 if self.model.floors is None else 1.0 + FLOOR_ROUNDING
        if (spent <= most).all():
            return measure
        least = self.spent(self.frugal)
        # (1 - share) spent + share least = most, for the row that needs most of it; and a hair more.
        over = (spent > most) & (spent > least)
        share = min(1.0, float(((spent[over] - most) / (spent[over] - least[over])).max(initial=0.0)) * (1 + 1e-12))
        return (1 - share) * measure + share * self.frugal

    @cached_property
    def frugal(self) -> Floats:
        """Measures that use little: nothing, but for the floors."""
        if self.model.floors is not None:
            return self._least_use[1]
        idle = np.arange(self.model.allowed.shape[2]) == self.model.types.idle[..., None]
        idle = (idle & self.model.allowed).astype(np.float64)
        # The same choice at every step.
        idle = idle if self.model.criterion.num_steps is None else idle[:, None]
        shape = (len(self.model), *self.model.arms.shape)
        return self.model.arms.follow(np.arange(len(self.model)), np.broadcast_to(idle, shape))

    @cached_property
    def _least_use(self) -> tuple[float, Floats]:
        """Return the least share of the budget with which the floors are reached, and the measures that do it."""
        gains = np.append(np.zeros(self.num_members), -1.0)
        solved = self.solve(gains, most_use=None, lower=np.append(np.full(self.num_members, -np.inf), 0.0))
        return float(solved.more[0]), self._follow(solved)

    def check_floors(self) -> None:
        """Raise Infeasible if the floors cannot be reached."""
        model = self.model
        if model.floors is None:
            return
        # Two ways to fail: an arm that cannot be served so often even alone, and arms that together would use too much.
        most = model.served(model.most_served) / model.criterion.total
        if (most < model.floors * (1 - FLOOR_ROUNDING)).any() or self._least_use[0] > 1 + FLOOR_ROUNDING:
            raise InfeasibleError(out_of_floors(model))


def _last_column(entries: Floats, width: int) -> sparse.csr_array:
    """(row, column) nothing but these entries in the last column."""
    rows = np.flatnonzero(entries)
    return sparse.csr_array((entries[rows], (rows, np.full(len(rows), width - 1))), shape=(len(entries), width))


def out_of_floors(model: FluidModel) -> str:
    """Return the message about infeasible floors, with the largest feasible common one.

    Args:
        model: types, of which some have floors.
    """
    assert model.floors is not None
    floored = np.flatnonzero(model.floors)
    marks = np.where(model.floors > 0, 1e-300, 0.0)  # any floor that is no constraint, so that there are rows
    try:
        # One column is the floor of all that have one, and it is made as large as can be.
        program = Program(replace(model, floors=marks))
        gains = np.append(np.zeros(program.num_members), 1.0)
        lower = np.append(np.full(program.num_members, -np.inf), 0.0)
        largest = float(program.solve(gains, lower=lower, floors=np.full(len(floored), np.nan)).more[0])
    except (TooLargeError, NotConvergedError):
        return "the floors are infeasible within the budget, even in expectation. Lower them, or raise the budget."
    whose = "every arm" if len(floored) == len(model) else "every arm that has a floor"
    shown = np.floor(max(largest, 0.0) * 1e4 + 1e-3) / 1e4  # rounded down, but not for the sake of a last bit
    return (
        f"the floors are infeasible within the budget, even in expectation: {whose} can be served at most {shown:.4g} "
        "of the time. Lower the floors, or raise the budget."
    )


# -- a search for each welfare ----------------------------------------------------------------------------------------


class _Search:
    """Programs for one welfare."""

    def __init__(self, program: Program, welfare: Welfare, tolerance: float, progress: Rounds | None) -> None:
        self.program, self.model, self.welfare = program, program.model, welfare
        self.tolerance, self.progress = tolerance, progress
        self.rounds = 0

    @property
    def sizes(self) -> Ints:
        """(member,) how many members each stands for."""
        return self.model.sizes

    def report(self, gap: float) -> None:
        """Count a round, and pass on the gap."""
        self.rounds += 1
        if self.progress is not None:
            self.progress(self.rounds, gap)

    def gap(self, lower: float, upper: float) -> float:
        """Relative to the bound."""
        return relative_gap(lower, upper, self.program.unit)

    def welfare_of(self, measure: Floats) -> float:
        """The welfare of measures; minus infinity outside its domain."""
        return self.value(self.model.members(self.model.totals(measure)[0]))

    def value(self, members: Floats) -> float:
        """The welfare of members' values; minus infinity outside its domain."""
        try:
            return float(self.welfare(members, self.sizes))
        except OutOfDomainError:
            return -np.inf

    def prove(self, weights: Floats, prices: Floats, constant: float = 0.0) -> Bound:
        """The bound of W(m) <= constant + weights.m, the weights one a member of each."""
        bound = self.model.bound(self.model.weights_of_types(weights), prices)
        return replace(bound, value=bound.value + constant)

    def optimum(self, measure: Floats, weights: Floats, prices: Floats, bound: Bound) -> FluidOptimum:
        """The solution."""
        self.report(self.gap(self.welfare_of(measure), bound.value))
        return FluidOptimum(measure, weights, prices, bound, self.rounds, self.program.unit)

    def by_mean(self) -> FluidOptimum:
        """One program."""
        number = self.model.num_members
        solved = self.program.solve(self.sizes / number)
        weights = np.full(len(self.sizes), 1.0 / number)
        return self.optimum(self.program.measure(solved), weights, solved.prices, self.prove(weights, solved.prices))

    def by_ranks(self, welfare: RankWeighted) -> FluidOptimum:
        """One program with a row for each pair of a rank weight and a member."""
        # The dual of an assignment: k_i ranks have weight w_i, and a member takes as many as it stands for.
        levels, ranks = _levels(welfare, self.model)
        number, members = len(levels), len(self.sizes)
        if number * members > MOST_RANK_ROWS:
            raise TooLargeError(f"the linear program has {number} x {members} rows of ranks; at most {MOST_RANK_ROWS}")
        # Columns m, lambda, nu; a row lambda_i + nu_m - w_i m <= 0 for each rank weight and member.
        rows = sparse.hstack(
            [
                -sparse.kron(sparse.csr_array(levels[:, None]), sparse.eye_array(members)),
                sparse.kron(sparse.eye_array(number), np.ones((members, 1))),
                sparse.kron(np.ones((number, 1)), sparse.eye_array(members)),
            ]
        )
        gains = np.concatenate([np.zeros(members), ranks, self.sizes]).astype(np.float64)
        solved = self.program.solve(gains, sparse.csr_array(rows), row_upper=0.0)
        # (rank weight, member) how many ranks of each weight go to whom: the mean weight is a supergradient.
        mass = np.maximum(solved.duals, 0.0).reshape(number, members)
        # Rounding may leave the permutahedron, and only its points prove W(v) <= g.v.
        weights = project_types(levels @ mass / self.sizes, self.sizes, welfare)
        return self.optimum(self.program.measure(solved), weights, solved.prices, self.prove(weights, solved.prices))

    def raise_least(self, floors: Floats, open_members: Bools) -> tuple[_Solved, Floats]:
        """Return the largest least value of the open members, the others at their floors, and (member,) multipliers."""
        members = len(self.sizes)
        # Fixed members may fall by a hair: what was reached only to rounding might contradict itself in the next stage.
        slack = 1e-9 * np.maximum(1e-3, np.abs(np.where(open_members, 0.0, floors)))
        # Rows m >= level of open members, m >= floor of the others; the level is the last column.
        rows = sparse.hstack(
            [sparse.eye_array(members), sparse.csr_array(-open_members.astype(np.float64)[:, None])], format="csr"
        )
        gains = np.append(np.zeros(members), 1.0)
        solved = self.program.solve(gains, rows, row_lower=np.where(open_members, 0.0, floors - slack))
        return solved, np.maximum(-solved.duals, 0.0)

    def by_stages(self) -> FluidOptimum:
        """Leximin: raise the least value, fix the members that hold it down, and raise the others."""
        floors = np.full(len(self.sizes), -np.inf)
        first: tuple[_Solved, Floats] | None = None
        while np.isinf(floors).any():
            open_members = np.isinf(floors)
            solved, held = self.raise_least(floors, open_members)
            first = first or (solved, held)
            # A member with a multiplier has just this value at every optimum of the stage (complementary slackness).
            # Those of the open rows sum to 1, by the column of the level, so that every stage fixes a member.
            floors[open_members & (held > 1e-7 * held[open_members].max())] = solved.objective
            self.report(float(np.isinf(floors).mean()))
        assert first is not None
        # The bound on the least value is that of the first stage; its multipliers are weights that sum to 1.
        total = float(first[1].sum())
        weights = first[1] / total / self.sizes
        prices = first[0].prices / total
        return self.optimum(self.program.measure(solved), weights, prices, self.prove(weights, prices))

    def start(self) -> tuple[Floats, float]:
        """The measures at which the least value is largest, and that value: inside the domain, if anything is."""
        solved, _ = self.raise_least(np.full(len(self.sizes), -np.inf), np.ones(len(self.sizes), dtype=np.bool_))
        return self.program.measure(solved), solved.objective * self.program.unit

    def by_cuts(self) -> FluidOptimum:
        """Power means and welfares without structure: below cuts, made at the program's points and between them."""
        best, least = self.start()
        point = self.model.members(self.model.totals(best)[0])
        if isinstance(self.welfare, PowerMean):
            # From alpha = 1 on the utility of 0 is minus infinity; below that 0 is still inside the domain.
            if least < 0 or (least <= 0 and self.welfare.aversion >= 1):
                raise OutOfDomainError(
                    f"{self.welfare.name} needs positive values, and the budget does not suffice to give every arm "
                    "one. Use a Gini welfare, or shift the rewards."
                )
        else:
            self.welfare.check_domain(point)
        reference = max(least, 1e-9 * self.program.unit)
        cuts = Cuts(pieces_of(self.welfare, self.sizes, reference, len(self.sizes)), point)
        best_welfare = self.value(point)
        # In these units slopes are about 1.
        scale = float(np.abs(cuts.slopes).sum()) * self.program.unit or 1.0
        while True:
            rows, size, lower = self._rows_of(cuts, scale)
            gains = np.append(np.zeros(len(self.sizes)), np.ones(cuts.num_pieces))
            heights = cuts.heights(self.model.members(self.model.totals(best)[0]))
            limits = (cuts.constants - heights[cuts.piece]) / scale / size
            solved = self.program.solve(gains, rows, row_upper=limits, lower=lower)
            support, rate = cuts.support(solved.duals / size)
            # The program is in units of F, not of value, by which the prices were multiplied.
            weights, prices = support.weights / self.sizes, solved.prices * (rate * scale / self.program.unit)
            bound = self.prove(weights, prices, support.constant)
            gap = self.gap(best_welfare, bound.value)
            self.report(gap)
            # After the last round a bound with a gap is better than none; the caller decides whether it is of use.
            if gap <= self.tolerance or self.rounds >= MOST_ROUNDS:
                return FluidOptimum(best, weights, prices, bound, self.rounds, self.program.unit)
            best, best_welfare = self._between(best, self.program.measure(solved), cuts)

    def _rows_of(self, cuts: Cuts, scale: float) -> tuple[sparse.csr_array, Floats, Floats]:
        """Rows z_b - slopes.m <= constant, the size that each is divided by, and lower bounds of the columns."""
        slopes = cuts.slopes * (self.program.unit / scale)
        # Slopes near 0 are huge. Divided by them, rows have entries of about 1, as the solver's tolerances suppose.
        size = np.clip(np.abs(slopes).max(axis=1), 1.0, 1e7)  # HiGHS drops entries below 1e-9
        own = np.zeros((len(slopes), cuts.num_pieces))
        own[np.arange(len(slopes)), cuts.piece] = 1 / size
        least = 0.0 if isinstance(self.welfare, PowerMean) else -np.inf
        lower = np.append(np.full(len(self.sizes), least), np.full(cuts.num_pieces, -np.inf))
        return sparse.csr_array(np.hstack([-slopes / size[:, None], own])), size, lower

    def _between(self, near: Floats, far: Floats, cuts: Cuts) -> tuple[Floats, float]:
        """Return the best mixture of two measures and its welfare, after cuts there and at the far end.

        Without the first of them the program would jump from end to end; the second cuts off its solution.
        """
        ends = [self.model.members(self.model.totals(measure)[0]) for measure in (near, far)]

        def at(share: float) -> Floats:
            return np.asarray((1 - share) * ends[0] + share * ends[1])

        share = best_between(lambda share: self.value(at(share)))
        cuts.add(at(share), ends[0])
        if share < 1:
            cuts.add(ends[1], ends[0])
        mixed = near if share == 0 else (1 - share) * near + share * far
        return mixed, self.value(at(share))
