"""The paper's two linear programs over occupancy measures, with bounds that do not rest on the solver's word.

Both are about the visits q(x, u) of the pairs of a tabular MDP, which are the q >= 0 with

    discounted   sum_u q(x, u) - gamma sum_{x',u} q(x', u) P(x | x', u) = mu(x)    for all states x            (flow)
    average      the same with gamma = 1 and 0 on the right, and sum q = 1; states that cannot be reached have no visits
    finite:T     sum_u q_t(x, u) - gamma sum_{x',u} q_(t-1)(x', u) P(x | x', u) = [t = 0] mu(x)    for all steps t < T

The count dual LP (Appendix, eq. count-dlp) maximises a weighted sum of the objectives,

    max  sum_{x,u} [sum_j w_j r_j(x, u)] q(x, u)    subject to (flow).

The GGF-LP (eq. 3) maximises the generalised Gini welfare min over permutations of sum_i w_i v_sigma(i), w falling,
through the dual of the assignment of ranks i to arms j, whose multipliers form a doubly stochastic matrix Q:

    max  sum_i lambda_i + sum_j nu_j
    s.t. lambda_i + nu_j <= w_i sum_{x,u} r_j(x, u) q(x, u)    for all ranks i and arms j,    and (flow).

Floors are rows more: the objectives behind the weighted ones have lower bounds, sum r_k q >= f_k.

Code names: q `occupancy`, lambda `rank_duals`, nu `arm_duals`, Q `assignment`, the multipliers y of (flow)
`value_function`, those of the floors phi.

Bounds. From below: the policy of q is evaluated exactly, and its welfare is the lower bound. From above: with any
doubly stochastic Q the welfare is at most w'.v, w'_j = sum_i w_i Q_ij (Birkhoff), and no policy that keeps the floors
has more of it than the best of w'.v + phi.(s - f), phi >= 0, which any y bounds through the criterion:

    bracket(mu.(T y), (T y - y) over all x),    (T y)(x) = max_u [w'.r(x, u) + phi.s(x, u) + factor sum P y].

At the optimum both bounds meet the objective. A solver that errs only widens the gap.

The solver sees rewards and weights divided by their largest magnitude, so that its absolute tolerances mean the same
for every problem.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from evenhand.checks import check_memory
from evenhand.errors import InvalidInputError
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.dynamic_programming import solve_weighted
from evenhand.solvers.highs import LinearOptimum, LinearProgram, solve_program
from evenhand.solvers.occupancy import SELDOM, parts_of, policy_of
from evenhand.solvers.pricing import values_of_parts
from evenhand.typing import ArrayLike, Floats

BYTES_PER_ENTRY = 300.0
"""Memory for a non-zero of a program: its arrays while they are put together, and the solver's copies and factors."""

VERTEX_UP_TO = 300
"""States up to which the simplex method is used; beyond, it falls behind the interior point ever more."""

VERTEX_ENTRIES = 30_000
"""Transitions up to which it is: a step costs as much as there are, and degenerate programs take thousands of steps."""


@dataclass(frozen=True, eq=False)
class LinearProgramSolution:
    """An optimal policy and its certificate: lower_bound <= best welfare of any policy <= upper_bound."""

    parts: list[tuple[float, Floats]]
    """Shares and (pair,) or (step, pair) probabilities of policies drawn at the start; one but for `average`."""

    occupancy: Floats
    """(pair,) the visits of the policy over all steps, evaluated exactly."""

    values: Floats
    """(objective,) the values of the policy, evaluated exactly."""

    lower_bound: float
    """The welfare of `values`."""

    upper_bound: float
    """No policy has more welfare."""

    objective: float
    """The optimum as the solver reports it."""

    rank_duals: Floats | None
    """(rank,) lambda of the GGF-LP; None for the count LP."""

    arm_duals: Floats | None
    """(arm,) nu of the GGF-LP; None for the count LP."""

    value_function: Floats
    """(state,) the multipliers of the flow equations: value of a start in each state under these weights;
    (step, state) where there is a number of steps."""

    seconds: dict[str, float]
    """Time taken to build the program, to solve it, and to extract and certify the policy."""

    num_rows: int
    """Constraints of the program as it was built."""

    num_columns: int
    """Variables of the program as it was built."""

    @property
    def policy(self) -> Floats:
        """(pair,) or (step, pair) the probability of each pair in its state, if there is one part only."""
        (_, probabilities), *others = self.parts
        if others:
            raise InvalidInputError(f"the solution is {len(self.parts)} policies, drawn at the start; see `parts`")
        return probabilities

    @property
    def gap(self) -> float:
        """Difference of the bounds."""
        return self.upper_bound - self.lower_bound


# -- the two programs -------------------------------------------------------------------------------------------------


def count_lp(
    mdp: TabularMDP, weights: ArrayLike | None = None, floors: ArrayLike = (), **options: Any
) -> LinearProgramSolution:
    """Maximise a weighted sum of the objectives by the count dual LP.

    Args:
        mdp: the problem, on counts or on any other states; the objectives that have floors come last.
        weights: (objective,) weights of those without a floor; 1 by default, if there is one objective.
        floors: (objective,) the least that the last objectives must reach.
        options: of `solve_program`; the algorithm depends on the number of states by default.

    Raises:
        InfeasibleError: the floors cannot all be reached.
    """
    return _solve(mdp, np.asarray([1.0] if weights is None else weights), floors, options)


def gini_lp(mdp: TabularMDP, weights: ArrayLike, floors: ArrayLike = (), **options: Any) -> LinearProgramSolution:
    """Maximise the generalised Gini welfare of the objectives by the GGF-LP, as it is printed.

    Args:
        mdp: the problem, with one objective an arm or group; those that have floors come behind them.
        weights: (rank,) weights, the worst arm's first; they may not increase.
        floors: (objective,) the least that the last objectives must reach.
        options: of `solve_program`; the algorithm depends on the number of states by default.

    Raises:
        InfeasibleError: the floors cannot all be reached.
    """
    return _solve(mdp, np.asarray(weights, dtype=np.float64), floors, options, ranked=True)


def _solve(
    mdp: TabularMDP, weights: Floats, floors: ArrayLike, options: dict[str, Any], ranked: bool = False
) -> LinearProgramSolution:
    """Solve the count LP, or if `ranked` the GGF-LP: build the program, solve it, and certify its policy."""
    begin, least = perf_counter(), np.asarray(floors, dtype=np.float64)
    N, F = len(weights), len(least)
    R = N * N if ranked else 0
    _check_size(mdp, num_rank_rows=R + F)
    flow, rewards, gains, more = _flow(mdp), mdp.rewards[:, :N], np.zeros(mdp.num_pairs), None
    if ranked:
        # Rewards and weights have units of their own, and multipliers that of their product.
        reward_unit, weight_unit = _largest(rewards), _largest(weights)
        unit = reward_unit * weight_unit
        # Row (i, j) is lambda_i + nu_j - w_i r_j q <= 0, ranks outside and arms inside.
        rows = -((weights / weight_unit)[:, None] * (rewards / reward_unit)[:, None, :]).reshape(-1, R)
        one, ones = sparse.eye_array(N, format="csr"), np.ones((1, N))
        duals = sparse.vstack([sparse.kron(one, ones, format="csr"), sparse.kron(ones, one, format="csr")])
        more = sparse.hstack([duals, sparse.csr_array((2 * N, F))], format="csr")
    else:
        gains, rows = rewards @ weights, np.zeros((mdp.num_pairs, 0))
        unit = _largest(gains)
    row_lower = np.concatenate([np.full(R, -np.inf), least])
    row_upper = np.concatenate([np.zeros(R), np.full(F, np.inf)])
    program = _program(flow, gains / unit, np.hstack([rows, mdp.rewards[:, N:]]), row_lower, row_upper, more)
    built = perf_counter()
    # Primal simplex steps are policy improvements, and few; but each costs more the more states there are.
    few = mdp.num_states <= VERTEX_UP_TO and mdp.num_transitions <= VERTEX_ENTRIES
    usual = "primal-simplex" if few else "interior-point"
    optimum = solve_program(program, **options | {"algorithm": options.get("algorithm") or usual})
    solved = perf_counter()
    # Birkhoff: W(v) <= (w Q).v for every doubly stochastic Q, so Q is made one exactly.
    supporting = weights @ doubly_stochastic(optimum.duals[:R].reshape(N, N)) if ranked else weights
    # Rows of floors are >= rows, and their multipliers not positive.
    prices = unit * np.maximum(-optimum.duals[R : R + F], 0.0)
    parts, bound, guess = _certify(mdp, flow, optimum, unit, np.concatenate([supporting, prices]))
    values, occupancy = values_of_parts(mdp, parts)
    rank_duals, arm_duals = np.split(unit * optimum.primal[flow.num_visits :], [N]) if ranked else (None, None)
    return LinearProgramSolution(
        parts=parts,
        occupancy=occupancy,
        values=values,
        # The welfare of the exact values; the largest rank weight is that of the worst arm.
        lower_bound=float((np.sort(values[:N]) if ranked else values[:N]) @ weights),
        upper_bound=bound - float(prices @ least),
        objective=unit * optimum.objective,
        rank_duals=rank_duals,
        arm_duals=arm_duals,
        value_function=guess,
        seconds={"build": built - begin, "solve": solved - built, "extract": perf_counter() - solved},
        num_rows=program.num_rows,
        num_columns=program.num_columns,
    )


# -- sizes ------------------------------------------------------------------------------------------------------------


def _largest(numbers: Floats) -> float:
    """The largest magnitude, or 1 where all are zero."""
    return float(np.abs(numbers).max()) or 1.0


def _check_size(mdp: TabularMDP, num_rank_rows: int) -> None:
    """Refuse a program that would not fit, before any of it is built."""
    steps = mdp.criterion.num_layers
    entries = steps * (mdp.num_transitions + mdp.num_pairs * (1.0 + num_rank_rows))
    rows = steps * mdp.num_states + num_rank_rows
    size = f"{rows} rows, {steps * mdp.num_pairs} columns and {entries:.3g} non-zeros"
    check_memory(
        BYTES_PER_ENTRY * entries,
        f"a linear program of {size}",
        "Use dynamic programming, or fewer arms.",
    )


# -- the rows ---------------------------------------------------------------------------------------------------------


class _Flow(NamedTuple):
    """The flow equations of a criterion."""

    matrix: sparse.csr_array
    """(visit, row) coefficients, one row a variable."""

    right: Floats
    """(row,) right-hand sides."""

    most: Floats
    """(visit,) 0 where there can be no visit, else infinite."""

    steps: int
    """Number of copies of the pairs."""

    unit: float = 1.0
    """Divisor of the coefficients of the states' rows, and of their multipliers."""

    @property
    def num_visits(self) -> int:
        """Number of variables."""
        return len(self.most)

    def repeat(self, rewards: Floats) -> Floats:
        """(visit, ...) the (pair, ...) rewards of every step."""
        return np.tile(rewards, (self.steps,) + (1,) * (rewards.ndim - 1)) if self.steps > 1 else rewards


def _flow(mdp: TabularMDP) -> _Flow:
    """The flow equations of the criterion; see the head of this file."""
    criterion, pairs = mdp.criterion, np.arange(mdp.num_pairs + 1)
    steps = criterion.num_layers
    # A row of this matrix is a variable: 1 in the column of its state, for what leaves it.
    own = sparse.csr_array((np.ones(mdp.num_pairs), mdp.state_of_pair, pairs), shape=mdp.transitions.shape)
    # ... and less what arrives from it, discounted: in the same step, or in the next.
    arrivals, start = criterion.flow
    factor = 1.0 if criterion.is_stationary else criterion.factor
    moved = sparse.kron(arrivals.T, factor * mdp.transitions)
    matrix = sparse.csr_array(sparse.kron(sparse.eye_array(steps), own) - moved)
    if start.any():
        right = np.asarray(np.kron(start > 0, mdp.initial), dtype=np.float64)
        return _Flow(matrix, right, np.full(steps * mdp.num_pairs, np.inf), steps)
    # Of slow chains all coefficients are small, and HiGHS takes those below 1e-9 for 0.
    unit = 2.0 ** np.floor(np.log2(np.abs(matrix.data).max(initial=0.0) or 1.0))
    # The flow alone leaves the scale of q open: one more row says that q sums to 1.
    ones = sparse.csr_array(np.ones((mdp.num_pairs, 1)))
    # Without this, mass might circle in states that the start never leads to.
    most = np.where(mdp.reachable[mdp.state_of_pair], np.inf, 0.0)
    right = np.append(np.zeros(mdp.num_states), 1.0)
    return _Flow(sparse.hstack([matrix / unit, ones], format="csr"), right, most, 1, unit)


def _program(
    flow: _Flow, gains: Floats, rows: Floats, lower: Floats, upper: Floats, more: sparse.csr_array | None = None
) -> LinearProgram:
    """Columns q and further ones, of which each gains 1; rows above the flow equations.

    With lambda + c, nu - c every solution of the GGF-LP is one again, so the last of the further columns is pinned at
    0: HiGHS takes the free direction for an unbounded one now and then.

    Args:
        flow: the flow equations.
        gains: (pair,) gains of visits.
        rows: (pair, row) coefficients of visits in the rows above.
        lower: (row,) lower bounds of these rows.
        upper: (row,) upper bounds.
        more: (column, row) coefficients of the further columns.
    """
    matrix = sparse.hstack([sparse.csr_array(flow.repeat(rows)), flow.matrix], format="csr")
    number = 0 if more is None else more.shape[0]
    if number:
        below = sparse.csr_array((number, len(flow.right)))
        matrix = sparse.vstack([matrix, sparse.hstack([more, below])], format="csr")
    limit = np.where(np.arange(number) < number - 1, np.inf, 0.0)
    return LinearProgram(
        gains=np.concatenate([flow.repeat(gains), np.ones(number)]),
        matrix=matrix.T,
        row_lower=np.concatenate([lower, flow.right]),
        row_upper=np.concatenate([upper, flow.right]),
        lower=np.concatenate([np.zeros(flow.num_visits), -limit]),
        upper=np.concatenate([flow.most, limit]),
    )


def doubly_stochastic(matrix: Floats) -> Floats:
    """The nearest thing to a matrix whose rows and columns all sum to 1, with no negative entry.

    Rows and then columns that sum to more than 1 are scaled down to it; what rows and columns then lack is one total,
    and goes back in as the product of the two. A doubly stochastic matrix is left as it is.

    Args:
        matrix: (rank, arm) numbers.
    """
    matrix = np.maximum(matrix, 0.0)
    matrix = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1.0)
    matrix = matrix / np.maximum(matrix.sum(axis=0, keepdims=True), 1.0)
    rows, columns = (np.maximum(1.0 - matrix.sum(axis=axis), 0.0) for axis in (1, 0))
    total = rows.sum()
    return np.asarray(matrix + np.outer(rows, columns) / total) if total > 0 else matrix


# -- the certificate --------------------------------------------------------------------------------------------------


def _certify(
    mdp: TabularMDP, flow: _Flow, optimum: LinearOptimum, unit: float, weights: Floats
) -> tuple[list[tuple[float, Floats]], float, Floats]:
    """Return the policy of a solver's occupancy measure, the upper bound from a value function, and that function.

    Args:
        mdp: the problem.
        flow: its flow equations, the last rows of the program.
        optimum: its optimum: visits first, and as last multipliers y and, under `average`, the gain behind it.
        unit: what the objective and the multipliers are in units of.
        weights: (objective,) the supporting weights w', and the prices phi of the floors.
    """
    measure, multipliers = optimum.primal[: flow.num_visits], unit * optimum.duals[-len(flow.right) :]
    rewards = mdp.rewards @ weights
    guess = multipliers[: flow.steps * mdp.num_states].reshape(flow.steps, mdp.num_states) / flow.unit
    stationary = mdp.criterion.is_stationary
    long_run = stationary and not mdp.criterion.contracts
    # What lies ahead of each step: the next step's y, and after the last one nothing.
    ahead = guess if stationary else np.vstack([guess[1:], np.zeros(mdp.num_states)])
    pair_values = rewards + mdp.criterion.factor * np.stack([mdp.transitions @ value for value in ahead])
    improved = np.maximum.reduceat(pair_values, mdp.offsets[:-1], axis=1)
    # Under an average only states that can be reached count, and no policy leaves them.
    change = (improved - guess)[:, mdp.reachable] if long_run else improved - guess
    now = float(mdp.initial @ improved[0])
    # Relative values of slow arms are large, and a bound on their mean must not be below it by their rounding.
    rounding = 4 * np.finfo(np.float64).eps * float(np.abs(ahead).max()) if long_run else 0.0
    upper_bound = mdp.criterion.bracket(now, float(change.min()), float(change.max()) + rounding)[1]
    visits = measure if stationary else measure.reshape(flow.steps, -1)
    parts, bound = _complete_policy(mdp, visits, weights, improved[0])
    return parts, min(upper_bound, bound), guess[0] if stationary else guess


def _complete_policy(
    mdp: TabularMDP, measure: Floats, weights: Floats, guess: Floats
) -> tuple[list[tuple[float, Floats]], float]:
    """The policy of an occupancy measure, completed by the best policy for the weights, and the bound of that one.

    Where the measure has visits everywhere nothing is to be completed, and the bound is infinite.

    In states that are never reached the multipliers are only bounds from above, so a policy that is greedy in them
    could chase values that do not exist; dynamic programming from there on settles them.
    """
    clean = np.maximum(measure, 0.0)
    visits = np.add.reduceat(clean, mdp.offsets[:-1], axis=-1)
    # A share of the visits that is a solver's rounding is no sign of a policy.
    seldom = visits <= SELDOM * mdp.criterion.total
    if not seldom.any() and (mdp.criterion.contracts or measure.ndim == 2):
        return [(1.0, policy_of(mdp, clean))], np.inf
    clean[seldom[..., mdp.state_of_pair]] = 0.0
    unit = _largest(mdp.rewards @ weights)
    precision = min(1e-9 * mdp.criterion.total, 1e-6)
    start = guess / unit if mdp.criterion.is_stationary else None
    best = solve_weighted(mdp, weights / unit, tolerance=precision, start=start)
    return parts_of(mdp, clean, fallback=best.choices), unit * best.upper_bound
