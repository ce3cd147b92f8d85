"""The two linear programs against the paper's optima, cvxpy, dynamic programming, and their own certificates."""

import subprocess
import sys
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from evenhand.errors import InvalidInputError, NotConvergedError, TooLargeError
from evenhand.model import TabularMDP
from evenhand.problems import machine_replacement, random_coupled
from evenhand.solvers import (
    ALGORITHMS,
    Algorithm,
    Counts,
    Joint,
    LinearProgram,
    LinearProgramSolution,
    count_lp,
    doubly_stochastic,
    gini_lp,
    linear_programs,
    occupancy_measure,
    policy_of,
    solve_program,
    solve_weighted,
)
from evenhand.solvers.highs import LinearOptimum
from evenhand.solvers.pricing import values_of_parts
from evenhand.typing import Floats
from paper.program_sizes import paper_count_lp_size, paper_gini_lp_size

from ..conftest import mentions

OPTIMA = {
    ("exponential", 2): 14.1859,
    ("exponential", 3): 14.0793,
    ("exponential", 4): 13.9430,
    ("exponential", 5): 13.7670,
    ("quadratic", 2): 16.1725,
    ("quadratic", 3): 16.0969,
    ("quadratic", 4): 16.0092,
    ("quadratic", 5): 15.9101,
}
INF = np.inf


def geometric(num_arms: int, ratio: float = 2.0) -> Floats:
    weights = ratio ** -np.arange(num_arms, dtype=np.float64)
    return weights / weights.sum()


def heterogeneous(seed: int, num_arms: int = 3, **others: object) -> TabularMDP:
    shape = {"num_states": 2, "num_actions": 3, "num_resources": 2} | others
    return Joint(random_coupled(num_arms=num_arms, num_types=num_arms, seed=seed, **shape)).mdp  # type: ignore[arg-type]


def best_gini_by_cvxpy(mdp: TabularMDP, weights: Floats) -> float:
    """The same optimum from sums of the smallest values: sum_k (w_k - w_(k+1)) (v_(1) + ... + v_(k))."""
    visits = cp.Variable(mdp.num_pairs, nonneg=True)
    flow = np.zeros((mdp.num_states, mdp.num_pairs))
    flow[mdp.state_of_pair, np.arange(mdp.num_pairs)] = 1
    flow -= mdp.criterion.factor * mdp.transitions.toarray().T
    arms = mdp.rewards.T @ visits
    drops = weights - np.append(weights[1:], 0.0)
    welfare = sum(drop * cp.sum_smallest(arms, k + 1) for k, drop in enumerate(drops[:-1]) if drop > 0)
    problem = cp.Problem(cp.Maximize(welfare + drops[-1] * cp.sum(arms)), [flow @ visits == mdp.initial])
    return float(problem.solve(solver=cp.CLARABEL))


def value_function_of(mdp: TabularMDP, policy: Floats, weights: Floats) -> Floats:
    """(state,) what a policy is worth from every state, by one dense linear system."""
    choose = np.zeros((mdp.num_states, mdp.num_pairs))
    choose[mdp.state_of_pair, np.arange(mdp.num_pairs)] = policy
    moves = choose @ mdp.transitions.toarray()
    return np.linalg.solve(np.eye(mdp.num_states) - mdp.criterion.factor * moves, choose @ mdp.rewards @ weights)


def check_certificate(solution: LinearProgramSolution, scale: float = 1.0) -> None:
    assert solution.lower_bound <= solution.objective + 1e-7 * scale
    assert solution.objective <= solution.upper_bound + 1e-7 * scale
    assert -1e-9 * scale <= solution.gap <= 1e-6 * scale


# ------------------------------------------------------------------------------------------ the paper's numbers


@pytest.mark.parametrize(("cost", "num_arms"), OPTIMA)
def test_both_programs_meet_the_published_optima(cost: str, num_arms: int) -> None:
    problem = machine_replacement(num_arms=num_arms, operating_cost=cost, budget=1)  # type: ignore[arg-type]
    on_counts = count_lp(Counts(problem).mdp)
    on_joint = gini_lp(Joint(problem).mdp, geometric(num_arms))
    exact = solve_weighted(Counts(problem).mdp, np.ones(1), tolerance=1e-11)
    assert on_counts.lower_bound == pytest.approx(OPTIMA[cost, num_arms], abs=5.1e-5)
    for solution in (on_counts, on_joint):
        check_certificate(solution)
        assert solution.objective == pytest.approx(exact.lower_bound, abs=1e-6)
        assert solution.lower_bound == pytest.approx(exact.lower_bound, abs=1e-6)


def test_sizes_are_those_of_the_papers_tables() -> None:
    arms = range(2, 8)
    assert [paper_gini_lp_size(n, 3).num_rows for n in arms] == [13, 36, 97, 268, 765, 2236]
    assert [paper_gini_lp_size(n, 3).num_columns for n in arms] == [31, 114, 413, 1468, 5115, 17510]
    assert [paper_count_lp_size(n, 3).num_rows for n in arms] == [6, 10, 15, 21, 28, 36]
    assert [paper_count_lp_size(n, 3).num_columns for n in arms] == [24, 40, 60, 84, 112, 144]


@pytest.mark.parametrize("num_arms", [2, 3, 4])
def test_programs_are_as_large_as_the_paper_counts_them(num_arms: int) -> None:
    problem = machine_replacement(num_arms=num_arms)
    joint = gini_lp(Joint(problem).mdp, geometric(num_arms))
    assert (joint.num_rows, joint.num_columns) == paper_gini_lp_size(num_arms, 3)
    counts = count_lp(Counts(problem).mdp)
    # Replacing a machine in a state where there is none is a column of the paper's, not of ours.
    idle_states = sum((state == 0).sum() for state in Counts(problem).states.reshape(-1, 3))
    paper = paper_count_lp_size(num_arms, 3)
    assert (counts.num_rows, counts.num_columns) == (paper.num_rows, paper.num_columns - idle_states)


# ------------------------------------------------------------------------------------------- other formulations


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weights", [[0.6, 0.3, 0.1], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [3.0, 2.0, 2.0]], ids=str)
def test_gini_agrees_with_cvxpy_on_different_arms(seed: int, weights: list[float]) -> None:
    mdp = heterogeneous(seed, state_dependent_usage=bool(seed % 2))
    solution = gini_lp(mdp, weights)
    check_certificate(solution)
    assert solution.lower_bound == pytest.approx(best_gini_by_cvxpy(mdp, np.array(weights)), abs=2e-6)


def test_gini_agrees_with_cvxpy_where_arms_have_three_states_and_little_transits() -> None:
    mdp = heterogeneous(7, num_states=3, num_actions=2, num_resources=1, sparsity=0.5, discount=0.8)
    weights = geometric(3)
    assert gini_lp(mdp, weights).lower_bound == pytest.approx(best_gini_by_cvxpy(mdp, weights), abs=2e-6)


def test_fairness_costs_something_on_these_problems() -> None:
    """Otherwise the comparisons above could not tell the Gini program from the utilitarian one."""
    mdp = heterogeneous(0)
    best_mean = count_lp(mdp, np.full(3, 1 / 3))
    fair = gini_lp(mdp, [1.0, 0.0, 0.0])
    assert fair.lower_bound > np.min(best_mean.values) + 1e-3
    assert fair.values.mean() < best_mean.lower_bound - 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_equal_weights_are_utilitarian(seed: int) -> None:
    mdp = heterogeneous(seed)
    even = np.full(3, 1 / 3)
    assert gini_lp(mdp, even).objective == pytest.approx(count_lp(mdp, even).objective, abs=1e-7)


def test_count_lp_weighs_types() -> None:
    mdp = Counts(random_coupled(num_arms=5, num_types=2, num_states=3, seed=3)).mdp
    weights = np.array([0.6, 0.4])
    solution = count_lp(mdp, weights)
    check_certificate(solution)
    assert solution.objective == pytest.approx(solve_weighted(mdp, weights).lower_bound, abs=1e-7)
    assert solution.rank_duals is None
    assert solution.arm_duals is None


def test_negative_and_large_rewards_only_change_the_unit() -> None:
    mdp = heterogeneous(2)
    weights = geometric(3)
    plain = gini_lp(mdp, weights)
    moved = gini_lp(replace(mdp, rewards=1e7 * (mdp.rewards - 2)), 5 * weights)
    expected = 5e7 * (plain.objective - 2 / (1 - mdp.criterion.factor))
    assert moved.objective == pytest.approx(expected, rel=1e-8)
    check_certificate(moved, scale=5e7)


def test_all_rewards_zero() -> None:
    mdp = heterogeneous(1)
    nothing = replace(mdp, rewards=np.zeros_like(mdp.rewards))
    for solution in (gini_lp(nothing, geometric(3)), count_lp(nothing, np.ones(3))):
        assert solution.objective == pytest.approx(0, abs=1e-12)
        check_certificate(solution)


def test_one_arm_and_no_future() -> None:
    mdp = Joint(random_coupled(num_arms=1, discount=0.0, seed=5)).mdp
    best = np.maximum.reduceat(mdp.rewards[:, 0], mdp.offsets[:-1])
    assert gini_lp(mdp, [1.0]).lower_bound == pytest.approx(mdp.initial @ best, abs=1e-9)
    assert count_lp(mdp).lower_bound == pytest.approx(mdp.initial @ best, abs=1e-9)


# -------------------------------------------------------------------------------------------------- certificate


@given(
    seed=st.integers(0, 10**6),
    ratio=st.floats(1, 8),
    discount=st.sampled_from([0.5, 0.9, 0.99]),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
)
def test_bounds_meet_whatever_the_algorithm(seed: int, ratio: float, discount: float, algorithm: Algorithm) -> None:
    mdp = heterogeneous(seed, discount=discount)
    weights = geometric(3, ratio)
    scale = max(1.0, 0.05 / (1 - discount))
    solution = gini_lp(mdp, weights, algorithm=algorithm)
    check_certificate(solution, scale)
    check_certificate(count_lp(mdp, weights, algorithm=algorithm), scale)
    assert solution.lower_bound == pytest.approx(np.sort(solution.values) @ weights)


@given(seed=st.integers(0, 10**6), noise=st.floats(0, 10))
def test_upper_bound_holds_whatever_the_solver_says(seed: int, noise: float) -> None:
    mdp = heterogeneous(seed)
    weights = geometric(3)
    best = gini_lp(mdp, weights).lower_bound
    rng = np.random.default_rng(seed)
    assignment = doubly_stochastic(rng.normal(size=(3, 3)))
    guess = noise * rng.normal(size=mdp.num_states)
    flow = linear_programs._flow(mdp)
    claimed = LinearOptimum(rng.random(mdp.num_pairs), guess, 0.0)
    parts, upper_bound, _ = linear_programs._certify(mdp, flow, claimed, 1.0, weights @ assignment)
    assert upper_bound >= best - 1e-9
    assert np.sort(values_of_parts(mdp, parts)[0]) @ weights <= best + 1e-6


@given(seed=st.integers(0, 10**6), size=st.integers(1, 6), scale=st.sampled_from([0.0, 1e-9, 1.0, 100.0]))
def test_repaired_matrix_is_doubly_stochastic(seed: int, size: int, scale: float) -> None:
    repaired = doubly_stochastic(scale * np.random.default_rng(seed).normal(size=(size, size)))
    assert repaired.min() >= 0
    np.testing.assert_allclose(repaired.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(repaired.sum(axis=1), 1, atol=1e-12)


def test_doubly_stochastic_matrix_is_left_alone() -> None:
    matrix = 0.3 * np.eye(4) + 0.7 * np.roll(np.eye(4), 1, axis=0)
    np.testing.assert_allclose(doubly_stochastic(matrix), matrix, atol=1e-15)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_prices_of_ranks_and_arms_prove_the_welfare(algorithm: Algorithm) -> None:
    mdp, weights = heterogeneous(3), np.array([0.5, 0.3, 0.2])
    solution = gini_lp(mdp, weights, algorithm=algorithm)
    assert solution.rank_duals is not None
    assert solution.arm_duals is not None
    prices = solution.rank_duals[:, None] + solution.arm_duals
    assert (prices <= np.outer(weights, solution.values) + 1e-6).all()
    assert solution.rank_duals.sum() + solution.arm_duals.sum() == pytest.approx(solution.objective, abs=1e-7)


def test_value_function_is_what_a_start_is_worth() -> None:
    mdp = Counts(machine_replacement(num_arms=4)).mdp
    solution = count_lp(mdp)
    worth = value_function_of(mdp, solution.policy, np.ones(1))
    np.testing.assert_allclose(solution.value_function, worth, atol=1e-7)


# ------------------------------------------------------------------------------------------------------- policy


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_occupancy_to_policy_and_back(algorithm: Algorithm) -> None:
    mdp = heterogeneous(4)
    solution = gini_lp(mdp, geometric(3), algorithm=algorithm)
    inflow = mdp.initial + mdp.criterion.factor * (mdp.transitions.T @ solution.occupancy)
    np.testing.assert_allclose(np.add.reduceat(solution.occupancy, mdp.offsets[:-1]), inflow, atol=1e-9)
    policy = policy_of(mdp, solution.occupancy)
    np.testing.assert_allclose(policy, solution.policy, atol=1e-9)
    np.testing.assert_allclose(occupancy_measure(mdp, policy), solution.occupancy, atol=1e-9)
    np.testing.assert_allclose(solution.occupancy @ mdp.rewards, solution.values, atol=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(3))
def test_policy_is_optimal_in_states_it_never_visits(seed: int, algorithm: Algorithm) -> None:
    mdp = heterogeneous(seed, sparsity=1.0, discount=0.9)
    mdp = replace(mdp, initial=np.eye(mdp.num_states)[0])
    weights = np.array([0.5, 0.3, 0.2])
    solution = count_lp(mdp, weights, algorithm=algorithm)
    assert (np.add.reduceat(solution.occupancy, mdp.offsets[:-1]) < 1e-9).any()
    best = solve_weighted(mdp, weights, tolerance=1e-12).value_function
    np.testing.assert_allclose(value_function_of(mdp, solution.policy, weights), best, atol=1e-6)


def test_policy_of_takes_the_fallback_only_where_nothing_is_visited() -> None:
    mdp = heterogeneous(0)
    last = mdp.offsets[1:] - 1
    measure = np.ones(mdp.num_pairs)
    measure[mdp.state_of_pair == 2] = 0.0
    policy = policy_of(mdp, measure, fallback=last)
    assert policy[last[2]] == 1
    assert policy_of(mdp, measure)[mdp.offsets[2]] == 1
    np.testing.assert_allclose(policy[: mdp.offsets[1]], 1 / mdp.offsets[1])
    with pytest.raises(InvalidInputError, check=mentions("fallback")):
        policy_of(mdp, measure, fallback=last[::-1])


# ------------------------------------------------------------------------------------------------------- errors


def test_a_program_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = heterogeneous(0)
    needed = linear_programs.BYTES_PER_ENTRY * (mdp.transitions.nnz + mdp.num_pairs)
    monkeypatch.setattr("evenhand.checks.LITTLE", 0.0)
    monkeypatch.setattr("evenhand.checks.available_memory", lambda: needed)
    with pytest.raises(TooLargeError, check=mentions("non-zeros")):
        count_lp(mdp, np.ones(3))
    monkeypatch.setattr("evenhand.checks.available_memory", lambda: 2 * needed)
    count_lp(mdp, np.ones(3))
    with pytest.raises(TooLargeError, check=mentions("17 rows")):
        gini_lp(mdp, geometric(3))


def test_time_is_reported_and_limited() -> None:
    mdp = Joint(machine_replacement(num_arms=5)).mdp
    with pytest.raises(NotConvergedError):
        gini_lp(mdp, geometric(5), time_limit=1e-6)
    with pytest.raises(InvalidInputError, check=mentions("time_limit")):
        count_lp(heterogeneous(0), np.ones(3), time_limit=0)
    seconds = count_lp(heterogeneous(0), np.ones(3), time_limit=60).seconds
    assert set(seconds) == {"build", "solve", "extract"}
    assert min(seconds.values()) > 0


# ----------------------------------------------------------------------------------------------------- the door


def program(
    gains: list[float], matrix: list[list[float]], row_lower: list[float], row_upper: list[float]
) -> LinearProgram:
    size = len(gains)
    return LinearProgram(
        gains=np.array(gains, dtype=np.float64),
        matrix=sparse.csc_array(np.array(matrix, dtype=np.float64)),
        row_lower=np.array(row_lower, dtype=np.float64),
        row_upper=np.array(row_upper, dtype=np.float64),
        lower=np.zeros(size),
        upper=np.full(size, INF),
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("by_rows", [False, True])
def test_door_gives_optimum_and_prices(algorithm: Algorithm, by_rows: bool) -> None:
    """max 3x + 2y with x + y <= 4, x + 3y >= 6, x - z = 0 ends at (3, 1, 3), where the first two rows bind."""
    toy = program([3, 2, 0], [[1, 1, 0], [1, 3, 0], [1, 0, -1]], [-INF, 6, 0], [4, INF, 0])
    toy = replace(toy, matrix=toy.matrix.tocsr() if by_rows else toy.matrix)
    optimum = solve_program(toy, algorithm=algorithm)
    assert optimum.objective == pytest.approx(11, abs=1e-6)
    np.testing.assert_allclose(optimum.primal, [3, 1, 3], atol=1e-6)
    np.testing.assert_allclose(optimum.duals, [3.5, -0.5, 0], atol=1e-6)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_door_says_in_words_why_there_is_no_optimum(algorithm: Algorithm) -> None:
    infeasible = program([1, 1], [[1, 1], [1, 1]], [3, -INF], [INF, 2])
    with pytest.raises(InvalidInputError, check=mentions("contradict")):
        solve_program(infeasible, algorithm=algorithm)
    unbounded = program([1, 1], [[1, -1]], [-INF], [1])
    with pytest.raises(InvalidInputError, check=mentions("linear program")):
        solve_program(unbounded, algorithm=algorithm)


@pytest.mark.parametrize(
    ("faulty", "words"),
    [
        (program([np.nan], [[1]], [0], [1]), "not finite"),
        (program([1], [[np.inf]], [0], [1]), "not finite"),
        (program([1], [[1]], [np.nan], [1]), "not finite"),
        (program([], [[]], [0], [1]), "no variables"),
    ],
)
def test_door_refuses_what_is_not_a_program(faulty: LinearProgram, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        solve_program(faulty)


def test_door_refuses_options_it_does_not_have() -> None:
    sound = program([1], [[1]], [0], [1])
    with pytest.raises(InvalidInputError, check=mentions("primal-simplex")):
        solve_program(sound, algorithm="guess")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, check=mentions("tolerance")):
        solve_program(sound, tolerance=-1.0)


def test_door_keeps_rare_transitions() -> None:
    """HiGHS would drop a coefficient below 1e-9, and with it the only bound."""
    rare = program([1e-10], [[1e-10]], [-INF], [1e-10])
    assert solve_program(rare).primal[0] == pytest.approx(1)


INTERRUPTED = """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
from evenhand.problems import machine_replacement
from evenhand.solvers import Joint
from evenhand.solvers.linear_programs import gini_lp
mdp = Joint(machine_replacement(num_arms=6)).mdp
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    gini_lp(mdp, 0.5 ** np.arange(6), algorithm="simplex")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_long_solve_can_be_interrupted() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "interrupted"


def test_highs_is_imported_only_when_needed() -> None:
    code = "import sys, evenhand.solvers.linear_programs; sys.exit('highspy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
