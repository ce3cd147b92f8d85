"""The paper's two linear programs over occupancy measures, with bounds that do not rest on the solver's word.

Both are about the discounted visits q(x, u) of the pairs of a tabular MDP, which are the q >= 0 with

    sum_u q(x, u) - gamma sum_{x',u} q(x', u) P(x | x', u) = mu(x)    for all states x.                        (flow)

The count dual LP (Appendix, eq. count-dlp) maximises a weighted sum of the objectives,

    max  sum_{x,u} [sum_j w_j r_j(x, u)] q(x, u)    subject to (flow).

The GGF-LP (eq. 3) maximises the generalised Gini welfare min over permutations of sum_i w_i v_sigma(i), w falling,
through the dual of the assignment of ranks i to arms j, whose multipliers form a doubly stochastic matrix Q:

    max  sum_i lambda_i + sum_j nu_j
    s.t. lambda_i + nu_j <= w_i sum_{x,u} r_j(x, u) q(x, u)    for all ranks i and arms j,    and (flow).

Code names: q `occupancy`, lambda `rank_duals`, nu `arm_duals`, Q `assignment`, the multipliers y of (flow)
`value_function`.

Bounds. From below: the policy of q is evaluated exactly, and its welfare is the lower bound. From above: with any
doubly stochastic Q the welfare is at most w'.v, w'_j = sum_i w_i Q_ij (Birkhoff), and no policy has more of w'.v than

    mu.(T y) + gamma / (1 - gamma) max_x [(T y)(x) - y(x)],    (T y)(x) = max_u [w'.r(x, u) + gamma sum P y],

for any y (MacQueen). At the optimum both bounds meet the objective. A solver that errs only widens the gap.

The solver sees rewards and weights divided by their largest magnitude, so that its absolute tolerances mean the same
for every problem.
"""

from dataclasses import dataclass
from math import comb
from time import perf_counter
from typing import NamedTuple

import numpy as np
from scipy import sparse

from evenhand.checks import check_memory, check_shape
from evenhand.errors import InvalidInput
from evenhand.model.tabular import TabularMDP
from evenhand.solvers._highs import Algorithm, LinearOptimum, LinearProgram, solve_program
from evenhand.solvers.dynamic_programming import solve_weighted
from evenhand.solvers.occupancy import occupancy, policy_of, values
from evenhand.typing import ArrayLike, Floats

BYTES_PER_ENTRY = 300.0
"""Memory for a non-zero of a program: its arrays while they are put together, and the solver's copies and factors."""

VERTEX_UP_TO = 300
"""States up to which the simplex method is used; beyond, it falls behind the interior point ever more."""

SELDOM = 1e-10
"""A state with less than this share of all visits counts as never visited: that few are the solver's rounding."""


@dataclass(frozen=True, eq=False)
class LinearProgramSolution:
    """An optimal policy and its certificate: lower_bound <= best welfare of any policy <= upper_bound."""

    policy: Floats
    """(pair,) the probability of each pair in its state."""

    occupancy: Floats
    """(pair,) the discounted visits of the policy, evaluated exactly."""

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

    supporting_weights: Floats
    """(objective,) weights for whose sum the policy is optimal too; of the GGF-LP a mean of permutations of its own."""

    value_function: Floats
    """(state,) the multipliers of the flow equations: what a start in each state is worth under these weights."""

    seconds: dict[str, float]
    """Time taken to build the program, to solve it, and to extract and certify the policy."""

    iterations: int
    """Of the solver."""

    num_rows: int
    """Constraints of the program as it was built."""

    num_columns: int
    """Variables of the program as it was built."""

    @property
    def gap(self) -> float:
        """How far the bounds are apart."""
        return self.upper_bound - self.lower_bound


def count_lp(
    mdp: TabularMDP,
    weights: ArrayLike | None = None,
    *,
    algorithm: Algorithm | None = None,
    time_limit: float | None = None,
    threads: int | None = None,
) -> LinearProgramSolution:
    """Maximise a weighted sum of the objectives by the count dual LP.

    Args:
        mdp: the problem, on counts or on any other states.
        weights: (objective,) weights; 1 when absent, if there is one objective.
        algorithm: how the solver works; by the number of states when absent.
        time_limit: seconds after which the solver gives up (NotConverged).
        threads: how many threads the solver may use; its own choice when absent.
    """
    begin = perf_counter()
    if weights is None and mdp.rewards.shape[1] > 1:
        raise InvalidInput(f"weights: expected one for each of the {mdp.rewards.shape[1]} objectives")
    weights = _read_weights(mdp, [1.0] if weights is None else weights)
    _check_size(mdp, num_rank_rows=0)
    rewards = mdp.rewards @ weights
    unit = _largest(rewards)
    program = _count_program(mdp, rewards / unit)
    built = perf_counter()
    algorithm = algorithm or _usual_algorithm(mdp)
    optimum = solve_program(program, algorithm=algorithm, time_limit=time_limit, threads=threads)
    solved = perf_counter()
    certificate = _certify(mdp, optimum.primal, weights, unit * optimum.duals)
    return _solution(
        program,
        optimum,
        certificate,
        unit=unit,
        welfare=float(certificate.values @ weights),
        duals=(None, None),
        times=(begin, built, solved),
    )


def gini_lp(
    mdp: TabularMDP,
    weights: ArrayLike,
    *,
    algorithm: Algorithm | None = None,
    time_limit: float | None = None,
    threads: int | None = None,
) -> LinearProgramSolution:
    """Maximise the generalised Gini welfare of the objectives by the GGF-LP, as it is printed.

    Args:
        mdp: the problem, with one objective an arm.
        weights: (rank,) weights, the worst arm's first; they may not increase.
        algorithm: how the solver works; by the number of states when absent.
        time_limit: seconds after which the solver gives up (NotConverged).
        threads: how many threads the solver may use; its own choice when absent.
    """
    begin = perf_counter()
    weights = _read_weights(mdp, weights)
    if (weights[1:] > weights[:-1] + 1e-12 * np.abs(weights[:-1])).any():
        raise InvalidInput("weights: expected none larger than the one before it")
    N = len(weights)
    _check_size(mdp, num_rank_rows=N * N)
    reward_unit, weight_unit = _largest(mdp.rewards), _largest(weights)
    program = _gini_program(mdp, mdp.rewards / reward_unit, weights / weight_unit)
    built = perf_counter()
    algorithm = algorithm or _usual_algorithm(mdp)
    optimum = solve_program(program, algorithm=algorithm, time_limit=time_limit, threads=threads)
    solved = perf_counter()
    unit = reward_unit * weight_unit
    assignment = doubly_stochastic(optimum.duals[: N * N].reshape(N, N))
    measure, rank_duals, arm_duals = np.split(optimum.primal, [mdp.num_pairs, mdp.num_pairs + N])
    certificate = _certify(mdp, measure, weights @ assignment, unit * optimum.duals[N * N :])
    return _solution(
        program,
        optimum,
        certificate,
        unit=unit,
        welfare=float(np.sort(certificate.values) @ weights),
        duals=(unit * rank_duals, unit * arm_duals),
        times=(begin, built, solved),
    )


def _read_weights(mdp: TabularMDP, weights: ArrayLike) -> Floats:
    array = np.asarray(weights, dtype=np.float64)
    check_shape(array, {"objective": mdp.rewards.shape[1]}, "weights")
    if not np.isfinite(array).all():
        raise InvalidInput("weights: expected finite numbers")
    return array


def _usual_algorithm(mdp: TabularMDP) -> Algorithm:
    """Primal simplex steps are policy improvements, and few; but each costs more the more states there are."""
    return "primal-simplex" if mdp.num_states <= VERTEX_UP_TO else "interior-point"


def _largest(numbers: Floats) -> float:
    """The largest magnitude, or 1 where all are zero."""
    return float(np.abs(numbers).max()) or 1.0


def _check_size(mdp: TabularMDP, num_rank_rows: int) -> None:
    """Refuse a program that would not fit, before any of it is built."""
    entries = _num_transitions(mdp) + mdp.num_pairs * (1.0 + num_rank_rows)
    size = f"{mdp.num_states + num_rank_rows} rows, {mdp.num_pairs} columns and {entries:.3g} non-zeros"
    check_memory(
        BYTES_PER_ENTRY * entries,
        f"a linear program of {size}",
        "Use dynamic programming, or fewer arms.",
    )


def _num_transitions(mdp: TabularMDP) -> float:
    """How many transitions all pairs have together, without spelling them out where that can be avoided."""
    if isinstance(mdp.kernel, sparse.csr_array):
        return float(np.diff(mdp.kernel.indptr)[mdp.outcomes].sum())
    entries: int = getattr(mdp.kernel, "entries_per_row")  # noqa: B009  # what operators have and matrices lack
    return float(mdp.num_pairs) * entries


def _flow(mdp: TabularMDP) -> sparse.csr_array:
    """(pair, state) the coefficients of the flow equations, one row a variable."""
    pairs = np.arange(mdp.num_pairs + 1)
    own = sparse.csr_array((np.ones(mdp.num_pairs), mdp.state_of_pair, pairs), shape=mdp.transitions.shape)
    return sparse.csr_array(own - mdp.discount * mdp.transitions)


def _count_program(mdp: TabularMDP, rewards: Floats) -> LinearProgram:
    """The count dual LP: columns q.

    Args:
        mdp: the problem.
        rewards: (pair,) weighted rewards.
    """
    return LinearProgram(
        gains=rewards,
        matrix=_flow(mdp).T,
        row_lower=mdp.initial,
        row_upper=mdp.initial,
        lower=np.zeros(mdp.num_pairs),
        upper=np.full(mdp.num_pairs, np.inf),
    )


def _gini_program(mdp: TabularMDP, rewards: Floats, weights: Floats) -> LinearProgram:
    """The GGF-LP: columns q, lambda, nu; rows (rank, arm) in order of ranks, then the flow equations.

    With lambda + c, nu - c every solution is one again, so the last nu is pinned at 0: HiGHS takes the free direction
    for an unbounded one now and then.

    Args:
        mdp: the problem.
        rewards: (pair, arm) rewards.
        weights: (rank,) weights.
    """
    N = len(weights)
    weighted = sparse.csr_array(-(weights[:, None] * rewards[:, None, :]).reshape(mdp.num_pairs, N * N))
    one, ones = sparse.eye_array(N, format="csr"), np.ones((1, N))
    of_rank, of_arm = sparse.kron(one, ones, format="csr"), sparse.kron(ones, one, format="csr")
    no_flow = sparse.csr_array((2 * N, mdp.num_states))
    visits = sparse.hstack([weighted, _flow(mdp)], format="csr")
    prices = sparse.hstack([sparse.vstack([of_rank, of_arm], format="csr"), no_flow], format="csr")
    return LinearProgram(
        gains=np.concatenate([np.zeros(mdp.num_pairs), np.ones(2 * N)]),
        matrix=sparse.vstack([visits, prices], format="csr").T,
        row_lower=np.concatenate([np.full(N * N, -np.inf), mdp.initial]),
        row_upper=np.concatenate([np.zeros(N * N), mdp.initial]),
        lower=np.concatenate([np.zeros(mdp.num_pairs), np.full(2 * N - 1, -np.inf), [0.0]]),
        upper=np.concatenate([np.full(mdp.num_pairs + 2 * N - 1, np.inf), [0.0]]),
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


class _Certificate(NamedTuple):
    policy: Floats
    occupancy: Floats
    values: Floats
    upper_bound: float
    weights: Floats
    value_function: Floats


def _certify(mdp: TabularMDP, measure: Floats, weights: Floats, value_function: Floats) -> _Certificate:
    """The policy of a solver's occupancy measure, its exact values, and the upper bound from a value function.

    Args:
        mdp: the problem.
        measure: (pair,) visits, as the solver has them.
        weights: (objective,) the supporting weights w'.
        value_function: (state,) the multipliers y.
    """
    pair_values = mdp.rewards @ weights + mdp.discount * (mdp.transitions @ value_function)
    improved = np.maximum.reduceat(pair_values, mdp.offsets[:-1])
    factor = mdp.discount / (1 - mdp.discount)
    upper_bound = float(mdp.initial @ improved + factor * (improved - value_function).max())
    policy = _complete_policy(mdp, measure, weights, improved)
    visits = occupancy(mdp, policy)
    return _Certificate(policy, visits, values(mdp, visits), upper_bound, weights, value_function)


def _complete_policy(mdp: TabularMDP, measure: Floats, weights: Floats, guess: Floats) -> Floats:
    """(pair,) the policy of an occupancy measure, and where it never comes the best policy for the weights.

    In states that are never reached the multipliers are only bounds from above, so a policy that is greedy in them
    could chase values that do not exist; dynamic programming from there on settles them.
    """
    clean = np.maximum(measure, 0.0)
    visits = np.add.reduceat(clean, mdp.offsets[:-1])
    seldom = visits * (1 - mdp.discount) <= SELDOM
    if not seldom.any():
        return policy_of(mdp, clean)
    clean[seldom[mdp.state_of_pair]] = 0.0
    unit = _largest(mdp.rewards @ weights)
    best = solve_weighted(mdp, weights / unit, tolerance=1e-9 / (1 - mdp.discount), start=guess / unit)
    return policy_of(mdp, clean, fallback=best.choices)


def _solution(
    program: LinearProgram,
    optimum: LinearOptimum,
    certificate: _Certificate,
    *,
    unit: float,
    welfare: float,
    duals: tuple[Floats | None, Floats | None],
    times: tuple[float, float, float],
) -> LinearProgramSolution:
    begin, built, solved = times
    return LinearProgramSolution(
        policy=certificate.policy,
        occupancy=certificate.occupancy,
        values=certificate.values,
        lower_bound=welfare,
        upper_bound=certificate.upper_bound,
        objective=unit * optimum.objective,
        rank_duals=duals[0],
        arm_duals=duals[1],
        supporting_weights=certificate.weights,
        value_function=certificate.value_function,
        seconds={"build": built - begin, "solve": solved - built, "extract": perf_counter() - solved},
        iterations=optimum.iterations,
        num_rows=program.num_rows,
        num_columns=program.num_columns,
    )


class ProgramSize(NamedTuple):
    """How large the paper says a program is."""

    num_rows: int
    num_columns: int


def paper_gini_lp_size(num_arms: int, num_states: int) -> ProgramSize:
    """Size of the GGF-LP in the paper: N^2 + S^N constraints and 2N + (N + 1) S^N variables.

    This is for one unit of one resource, which N arms can get or nobody; `gini_lp` builds exactly as many.

    Args:
        num_arms: N.
        num_states: S, of an arm.
    """
    joint = num_states**num_arms
    return ProgramSize(num_arms**2 + joint, 2 * num_arms + (num_arms + 1) * joint)


def paper_count_lp_size(num_arms: int, num_states: int) -> ProgramSize:
    """Size of the count dual LP in the paper: C(N+S-1, S-1) constraints and S + 1 variables for each.

    The text has A variables a count state, with A = 2; the table prints 24, 40, 60, 84, 112, 144 for N = 2, ..., 7 and
    S = 3, which is four, not two: an action on counts gives the one unit to an arm in one of the S states or to
    nobody, so A = S + 1. States without an arm are among them; `count_lp` leaves those out and has fewer columns.

    Args:
        num_arms: N.
        num_states: S, of an arm.
    """
    counts = comb(num_arms + num_states - 1, num_states - 1)
    return ProgramSize(counts, counts * (num_states + 1))
