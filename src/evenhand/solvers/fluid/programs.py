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
from typing import NamedTuple

import numpy as np
from scipy import sparse

from evenhand.errors import NotConvergedError, OutOfDomainError, TooLargeError
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, is_lexicographic, is_mean
from evenhand.solvers.fluid.frontiers import FluidModel
from evenhand.solvers.fluid.occupancy_program import USUAL_SIZES, Program, ProgramSizes, Solved
from evenhand.solvers.welfare_cuts import Cuts, best_between, pieces_of, project_types
from evenhand.typing import Bools, Floats, Ints

SMALL_WEIGHT = 1e-10
"""Rank weights below this share of the largest are one in the program; the certificate does not rely on that."""

MOST_ROUNDS = 200
"""Programs after which a search for the welfare's cuts ends with the gap that is left."""

Rounds = Callable[[int, float], None]
"""Called with the number of the round and the gap."""


class Proof(NamedTuple):
    """Weights of members and prices, and the bound that they prove."""

    weights: Floats
    """(member,) derivative of the welfare by the value of one member."""

    prices: Floats
    """(resource,), or (step, resource): dual prices of weighted use."""

    bound: float
    """No solution has more."""

    floor_prices: Floats
    """(type,) prices of the floors, in welfare per unit of time in which one arm is served."""


class FluidOptimum(NamedTuple):
    """A feasible solution with its proof."""

    occupancy: Floats
    """(type, state, action), or (type, step, state, action): occupancy measures."""

    proof: Proof
    """Its certificate."""

    rounds: int
    """Programs, or prices, that were tried."""

    scale: float
    """The size of values."""


# -- what fits --------------------------------------------------------------------------------------------------------


def relative_gap(lower: float, upper: float, scale: float) -> float:
    """The gap relative to the upper bound; where that is nearly 0, to the size of values."""
    return max(0.0, upper - lower) / max(abs(upper), 1e-6 * scale, 1e-300)


def not_closed(gap: float, rounds: int, tolerance: float) -> NotConvergedError:
    """Return the error of a gap that did not close."""
    return NotConvergedError(
        f"the gap of the fluid relaxation is {gap:.2g} after {rounds} rounds, not {tolerance:.2g}; "
        "use a larger tolerance"
    )


def fits_by_step(model: FluidModel, welfare: Welfare, sizes: ProgramSizes = USUAL_SIZES) -> bool:
    """Return whether a budget at every step is affordable by default.

    Args:
        model: the types and the criterion.
        welfare: what is maximised.
        sizes: sizes up to which programs are used.
    """
    columns = model.criterion.num_layers * int(model.types.valid.sum())
    if model.criterion.is_stationary or columns > sizes.columns_by_step:
        return False
    if is_lexicographic(welfare):
        return len(model.sizes) <= sizes.stages_by_step
    return num_rank_rows(model, welfare) <= sizes.rank_rows_by_step


def num_rank_rows(model: FluidModel, welfare: Welfare) -> float:
    """Return the number of rows of ranks in the program of a welfare.

    Args:
        model: the types.
        welfare: what is maximised.
    """
    if not isinstance(welfare, RankWeighted) or is_mean(welfare, model.num_members) or is_lexicographic(welfare):
        return 0
    # The rank weights are not even written out for so many members.
    if model.num_members > USUAL_SIZES.rank_rows:
        return np.inf
    return len(_levels(welfare, model)[0]) * len(model.sizes)


def _levels(welfare: RankWeighted, model: FluidModel) -> tuple[Floats, Ints]:
    """The distinct rank weights, and how many ranks have each."""
    weights = welfare.rank_weights(model.num_members)
    # Distinct weights, the least first. Those next to nothing are one level of weight 0, and save a row a member each.
    return np.unique(np.where(weights < SMALL_WEIGHT * weights[0], 0.0, weights), return_counts=True)


def solve_by_program(
    model: FluidModel,
    welfare: Welfare,
    tolerance: float,
    sizes: ProgramSizes = USUAL_SIZES,
) -> FluidOptimum:
    """Solve the relaxation by linear programs, with the budget at every step if there are steps.

    Args:
        model: the types, and what they share.
        welfare: any.
        tolerance: the relative gap to stop at.
        sizes: sizes up to which programs are used.

    Raises:
        TooLargeError: the program would be too large.
        InfeasibleError: the floors cannot be reached.
        OutOfDomainError: the welfare is not defined within the budget.
        NotConvergedError: the gap did not close.
    """
    program = Program(model, sizes)
    program.check_floors()
    search = _Search(program, welfare, tolerance)
    # The order matters: the mean may come as a rank-weighted welfare or a power mean, and leximin is rank-weighted.
    if is_mean(welfare, model.num_members):
        return search.by_mean()
    if is_lexicographic(welfare):
        return search.by_stages()
    if isinstance(welfare, RankWeighted):
        return search.by_ranks(welfare)
    return search.by_cuts()


# -- a search for each welfare ----------------------------------------------------------------------------------------


class _Search:
    """Programs for one welfare."""

    def __init__(self, program: Program, welfare: Welfare, tolerance: float) -> None:
        self.program, self.model, self.welfare, self.tolerance = program, program.model, welfare, tolerance
        self.rounds = 0

    @property
    def sizes(self) -> Ints:
        """(member,) how many members each stands for."""
        return self.model.sizes

    def value(self, members: Floats) -> float:
        """The welfare of members' values; minus infinity outside its domain."""
        try:
            return float(self.welfare(members, self.sizes))
        except OutOfDomainError:
            return -np.inf

    def prove(self, weights: Floats, prices: Floats, constant: float = 0.0) -> Proof:
        """The bound of W(m) <= constant + weights.m, the weights one a member of each."""
        bound, floor_prices = self.model.bound(self.model.weights_of_types(weights), prices)
        return Proof(weights, prices, bound + constant, floor_prices)

    def optimum(self, measure: Floats, weights: Floats, prices: Floats) -> FluidOptimum:
        """The solution."""
        return FluidOptimum(measure, self.prove(weights, prices), self.rounds + 1, self.program.unit)

    def by_mean(self) -> FluidOptimum:
        """One program."""
        number = self.model.num_members
        solved = self.program.solve(self.sizes / number)
        weights = np.full(len(self.sizes), 1.0 / number)
        return self.optimum(self.program.measure(solved), weights, solved.prices)

    def by_ranks(self, welfare: RankWeighted) -> FluidOptimum:
        """One program with a row for each pair of a rank weight and a member."""
        # The dual of an assignment: k_i ranks have weight w_i, and a member takes as many as it stands for.
        levels, ranks = _levels(welfare, self.model)
        number, members = len(levels), len(self.sizes)
        if number * members > (most := self.program.sizes.rank_rows):
            raise TooLargeError(f"the linear program has {number} x {members} rows of ranks; at most {most}")
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
        return self.optimum(self.program.measure(solved), weights, solved.prices)

    def raise_least(self, floors: Floats, open_members: Bools) -> tuple[Solved, Floats]:
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
        first: tuple[Solved, Floats] | None = None
        while np.isinf(floors).any():
            open_members = np.isinf(floors)
            solved, held = self.raise_least(floors, open_members)
            first = first or (solved, held)
            # A member with a multiplier has just this value at every optimum of the stage (complementary slackness).
            # Those of the open rows sum to 1, by the column of the level, so that every stage fixes a member.
            floors[open_members & (held > 1e-7 * held[open_members].max())] = solved.objective
            self.rounds += 1
        assert first is not None
        # The bound on the least value is that of the first stage; its multipliers are weights that sum to 1.
        total = float(first[1].sum())
        weights = first[1] / total / self.sizes
        prices = first[0].prices / total
        return self.optimum(self.program.measure(solved), weights, prices)

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
            proof = self.prove(weights, prices, support.constant)
            gap = relative_gap(best_welfare, proof.bound, self.program.unit)
            self.rounds += 1
            # After the last round a bound with a gap is better than none; the caller decides whether it is of use.
            if gap <= self.tolerance or self.rounds >= MOST_ROUNDS:
                return FluidOptimum(best, proof, self.rounds, self.program.unit)
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
