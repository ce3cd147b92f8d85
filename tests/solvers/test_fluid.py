"""The fluid relaxation against cvxpy, against its own linear program, against exact optima, and at its limits."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import InvalidInputError, NotConvergedError, OutOfDomainError
from evenhand.kernels import settle_levels, trace_frontiers
from evenhand.model import Arm, CoupledMDP, Gini, Maximin, Utilitarian
from evenhand.problems import random_coupled
from evenhand.solvers import (
    FluidModel,
    FluidSolution,
    SettledLevels,
    project_types,
    solve_fluid,
    solve_model,
)

from ..conftest import crossed, mentions, slow_after
from ..oracles import fluid_sweeps as oracle
from ..oracles.fluid_lp import discounted_model, fluid_lp

RANK_WELFARE = ["gini:2", "gini:1.2", "utilitarian", "maximin", "maximin:0.1"]


def random_arm(rng, num_states, num_actions, num_resources, shift=0.0):
    """An arm with sparse-ish transitions whose usage depends on the state; some state action is idle, not the first."""
    rows = rng.dirichlet(np.full(num_states, 0.7), size=(num_states, num_actions))
    usage = rng.integers(0, 4, (num_states, num_actions, num_resources)) * rng.uniform(0.3, 1.5)
    usage[np.arange(num_states), rng.integers(num_actions, size=num_states)] = 0
    rewards = rng.random((num_states, num_actions)) + shift
    return Arm(rows, rewards, usage, rng.dirichlet(np.ones(num_states)))


def random_problem(seed, num_arms=6, num_resources=1, discount=0.9, shift=0.0):
    """Arms of different sizes, with a budget that binds."""
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, rng.integers(1, 5), rng.integers(2, 4), num_resources, shift) for _ in range(num_arms)]
    budget = rng.uniform(0.1, 0.4, num_resources) * num_arms
    return CoupledMDP(arms, budget=budget, discount=discount)


def solve(problem, welfare, tolerance=1e-7, **more) -> FluidSolution:
    return solve_fluid(problem, welfare, tolerance, **more)


def solve_types(types, counts, budget, discount, welfare, tolerance=1e-4) -> FluidSolution:
    return solve_model(discounted_model(types, counts, budget, discount), welfare, tolerance)


def program(problem, welfare) -> FluidSolution:
    return fluid_lp(problem, welfare)


def measures(problem):
    """cvxpy: the values of all blocks, and the constraints of occupancy measures within the budget."""
    values, constraints, used = [], [], 0
    for arm, count in zip(problem.tables, problem.counts, strict=True):
        q = cp.Variable(arm.rewards.shape, nonneg=True)
        arrive = sum(arm.transitions[:, a].T @ q[:, a] for a in range(arm.num_actions))
        constraints.append(cp.sum(q, axis=1) == arm.initial + problem.discount * arrive)
        constraints.append(cp.multiply(q, (arm.usage > problem.budget).any(axis=2)) == 0)  # no policy chooses these
        values.append(cp.sum(cp.multiply(arm.rewards, q)))
        used += int(count) * cp.hstack(
            [cp.sum(cp.multiply(arm.usage[:, :, k], q)) for k in range(problem.num_resources)]
        )
    constraints.append(used <= problem.budget / (1 - problem.discount))
    return cp.hstack(values), constraints


def optimum(objective, constraints):
    return cp.Problem(cp.Maximize(objective), constraints).solve(solver=cp.CLARABEL)


def rank_optimum(problem, weights):
    values, constraints = measures(problem)
    steps = np.append(weights[:-1] - weights[1:], weights[-1])
    parts = [step * cp.sum_smallest(values, n + 1) for n, step in enumerate(steps) if step > 0]
    return optimum(sum(parts), constraints)


def alpha_optimum(problem, alpha):
    values, constraints = measures(problem)
    number = problem.num_arms
    if alpha == 1:
        return np.exp(optimum(cp.sum(cp.log(values)), constraints) / number)
    if alpha == 2:
        return number / -optimum(-cp.sum(cp.inv_pos(values)), constraints)
    return (optimum(cp.sum(cp.sqrt(values)), constraints) / number) ** 2


def check(problem, solution, tolerance=1e-7):
    """Everything that a solution promises about itself."""
    types, counts = problem.types, problem.type_counts
    q, gamma = solution.occupancy, problem.discount
    assert (q >= 0).all() and (q[~types.valid] == 0).all()
    assert np.allclose(q.sum(axis=(1, 2)), 1 / (1 - gamma), rtol=1e-9)
    arrive = np.einsum("tsa,tsaj->tj", q, types.transitions)
    assert np.allclose(q.sum(axis=2), types.initial + gamma * arrive, atol=1e-9 / (1 - gamma))
    assert np.allclose(solution.values, (q * types.rewards).sum(axis=(1, 2)), rtol=1e-12, atol=1e-12)
    assert np.allclose(solution.use, np.einsum("tsa,tsak->tk", q, types.usage), rtol=1e-12, atol=1e-12)
    assert (counts @ solution.use <= problem.budget / (1 - gamma) * (1 + 1e-12)).all()
    assert solution.welfare <= solution.upper_bound
    assert solution.gap <= tolerance
    assert (solution.prices >= 0).all() and (solution.weights >= 0).all()


@pytest.mark.parametrize(("seed", "num_resources"), crossed(range(3), [1, 2, 3]))
def test_rank_weighted_optima_are_those_of_cvxpy(seed, num_resources):
    problem = random_problem(seed, 4 + 2 * seed, num_resources)
    number = problem.num_arms
    for welfare in (Gini.geometric(number, 2), Gini.geometric(number, 1.2), Maximin(), Maximin(0.1)):
        solution = solve(problem, welfare)
        check(problem, solution)
        assert solution.welfare == pytest.approx(rank_optimum(problem, welfare.rank_weights(number)), rel=1e-6)


@pytest.mark.parametrize("num_arms", slow_after(1, [25, 50]))
def test_rank_weighted_optima_of_many_arms_are_those_of_cvxpy(num_arms):
    problem = random_problem(num_arms, num_arms)
    welfare = Gini.geometric(num_arms, 2 ** (10 / num_arms))
    solution = solve(problem, welfare)
    check(problem, solution)
    assert solution.welfare == pytest.approx(rank_optimum(problem, welfare.rank_weights(num_arms)), rel=1e-6)


@pytest.mark.parametrize(("alpha", "num_resources"), crossed([0.5, 1, 2], [1, 2]))
def test_alpha_fair_optima_are_those_of_cvxpy(alpha, num_resources):
    for seed in range(2):
        problem = random_problem(10 + seed, 5, num_resources)
        solution = solve(problem, f"alpha:{alpha}", 1e-6)
        check(problem, solution, 1e-6)
        assert solution.welfare == pytest.approx(alpha_optimum(problem, alpha), rel=3e-6)


def test_alpha_of_zero_is_the_mean():
    problem = random_problem(3)
    assert solve(problem, "alpha:0").welfare == pytest.approx(solve(problem, "utilitarian").welfare, rel=1e-6)


@given(seed=st.integers(0, 10**6), num_resources=st.integers(1, 3), welfare=st.sampled_from(RANK_WELFARE))
def test_the_search_and_the_program_agree(seed, num_resources, welfare):
    problem = random_problem(seed, 1 + seed % 7, num_resources, discount=[0.0, 0.5, 0.95][seed % 3])
    found, exact = solve(problem, welfare, 1e-6), program(problem, welfare)
    check(problem, found, 1e-6)
    check(problem, exact, 1e-6)
    assert found.welfare <= exact.upper_bound * (1 + 1e-12) + 1e-12
    assert exact.welfare <= found.upper_bound * (1 + 1e-12) + 1e-12


def bound_holds(seed):
    """Different arms; every second problem has three actions and two resources."""
    rng = np.random.default_rng(seed)
    number, actions, resources = int(rng.integers(2, 4)), 2 + seed % 2, 1 + seed % 2
    arms = [random_arm(rng, int(rng.integers(2, 4)), actions, resources) for _ in range(number)]
    problem = CoupledMDP(arms, budget=rng.uniform(0.3, 2.0, size=resources), discount=rng.uniform(0.0, 0.95))
    welfare = f"gini:{rng.uniform(1, 4)}"
    exact = eh.solve(problem, welfare, eh.SolveMethod("joint", tolerance=1e-6))
    relaxed = solve(problem, welfare, 1e-6)
    assert relaxed.upper_bound >= exact.welfare * (1 - 1e-9)


@pytest.mark.parametrize("seed", slow_after(10, range(30)))
def test_no_policy_is_better_than_the_bound(seed):
    bound_holds(seed)


@pytest.mark.parametrize("seed", slow_after(20, range(100, 300)))
def test_no_policy_is_better_than_the_bound_on_many_problems(seed):
    bound_holds(seed)


@pytest.mark.parametrize(
    ("welfare", "num_resources"), crossed([*RANK_WELFARE, "leximin", "alpha:1", "alpha:2"], [1, 2])
)
def test_types_and_the_same_arms_one_by_one_agree(welfare, num_resources):
    problem = random_problem(21, 4, num_resources)
    counts = np.array([3, 1, 2, 4])
    arms, budget = problem.types, 2.0 * problem.budget
    spread = arms.select(np.repeat(np.arange(4), counts))
    whole = solve_types(arms, counts, budget, problem.discount, welfare, 1e-6)
    apart = solve_types(spread, None, budget, problem.discount, welfare, 1e-6)
    assert whole.welfare == pytest.approx(apart.welfare, rel=3e-6)
    assert (counts @ whole.use <= budget / (1 - problem.discount) * (1 + 1e-12)).all()


def test_without_a_budget_nothing_is_used():
    problem = random_problem(4, 5, 2)
    for welfare in (*RANK_WELFARE, "leximin", "alpha:2"):
        solution = solve_types(problem.types, None, [0.0, 0.0], 0.9, welfare, 1e-9)
        assert (solution.use == 0).all()
        assert np.array_equal(solution.prices, [0.0, 0.0])
        best = solve_types(problem.types, None, [0.0, 0.0], 0.9, "utilitarian", 1e-9)
        assert np.allclose(solution.values, best.values)


def test_one_resource_of_which_there_is_nothing():
    problem = random_problem(5, 5, 2)
    empty = CoupledMDP(problem.arms, budget=[problem.budget[0], 0.0], discount=problem.discount)
    weights = Gini.geometric(5, 2.0).weights
    solution = solve(empty, "gini:2")
    check(empty, solution)
    assert (solution.use[:, 1] == 0).all()
    assert solution.welfare == pytest.approx(rank_optimum(empty, weights), rel=1e-6)


@pytest.mark.parametrize("welfare", [*RANK_WELFARE, "leximin", "alpha:2"])
@pytest.mark.parametrize("num_resources", [1, 2])
def test_with_more_budget_than_needed_every_arm_has_its_best(welfare, num_resources):
    problem = random_problem(6, 5, num_resources)
    solution = solve_types(problem.types, None, np.full(num_resources, 1e6), 0.9, welfare, 1e-8)
    for arm, value in zip(problem.types, solution.values, strict=True):
        h = np.zeros(arm.num_states)
        for _ in range(600):
            h = (arm.rewards + 0.9 * arm.transitions @ h).max(axis=1)
        assert value == pytest.approx(arm.initial @ h, rel=1e-8)
    assert (solution.prices == 0).all()


def test_identical_arms_have_one_welfare_whatever_it_is():
    problem = random_coupled(7, 3, seed=3)
    found = [solve(problem, w, 1e-8).welfare for w in (*RANK_WELFARE, "leximin", "alpha:1", "alpha:3", "gini:9")]
    assert np.allclose(found, found[0], rtol=2e-8)


@pytest.mark.parametrize("welfare", [*RANK_WELFARE, "leximin"])
def test_values_may_be_negative(welfare):
    here, there = random_problem(7), random_problem(7, shift=-5.0)
    shifted = solve(there, welfare, 1e-8)
    check(there, shifted)
    assert shifted.welfare == pytest.approx(solve(here, welfare, 1e-8).welfare - 5.0 / (1 - 0.9), rel=1e-6)


@pytest.mark.parametrize("num_resources", [1, 2])
def test_alpha_fairness_spends_to_reach_positive_values(num_resources):
    problem = random_problem(8, 4, num_resources, shift=-0.45)
    free = solve_types(problem.types, None, np.zeros(num_resources), 0.9, "utilitarian")
    ample = CoupledMDP(problem.arms, budget=problem.budget * 4, discount=0.9)
    assert free.values.min() < 0
    assert solve(ample, "leximin").welfare > 0
    solution = solve(ample, "alpha:1", 1e-6)
    check(ample, solution, 1e-6)
    assert solution.welfare == pytest.approx(alpha_optimum(ample, 1), rel=3e-6)


def test_alpha_fairness_out_of_reach_is_an_error():
    hopeless, short = random_problem(8, shift=-5.0), random_problem(8, 4, shift=-0.45)
    with pytest.raises(OutOfDomainError):
        solve(hopeless, "alpha:1")
    with pytest.raises(OutOfDomainError):
        solve_types(short.tables, [2000] * 4, [5.0], 0.9, "alpha:2")
    several = random_problem(8, 4, 2, shift=-0.45)
    with pytest.raises(OutOfDomainError):
        solve_types(several.tables, [2000] * 4, [5.0, 5.0], 0.9, "alpha:2")


def test_the_program_steps_in_if_cuts_do_not_end_and_types_are_few():
    problem = random_problem(2, 12, 3)
    check(problem, solve_model(model_of(problem), "gini:2", most_rounds=2))
    with pytest.raises(NotConvergedError):
        solve_model(model_of(random_problem(2, 201, 3)), "gini:1.01", most_rounds=2)


def test_discount_zero_is_a_single_step():
    arm = Arm([[[1.0], [1.0]]], [[0.2, 1.0]], [[0], [1]])
    other = Arm([[[1.0], [1.0]]], [[0.4, 2.4]], [[0], [1]])
    problem = CoupledMDP([arm, other], budget=[7], discount=0.0, counts=[10, 10])
    # Both are raised to t: (t - 0.2) / 0.8 + (t - 0.4) / 2 = 0.7, ten times.
    level = (0.7 + 0.25 + 0.2) / (1 / 0.8 + 1 / 2)
    assert solve(problem, "maximin", 1e-9).welfare == pytest.approx(level, rel=1e-9)
    assert solve(problem, "utilitarian", 1e-9).welfare == pytest.approx((0.2 + 0.4 + 0.7 * 2) / 2, rel=1e-9)


def test_an_arm_that_is_not_indexable():
    """Activity in state 0 pays at once or leads on: the set of active states is not monotone in the price."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(4, 0.3), size=(6, 4, 2))
    arms = [Arm(rows[i], rng.random((4, 2)) * [1, 3], [[0], [1]], rng.dirichlet(np.ones(4))) for i in range(6)]
    problem = CoupledMDP(arms, budget=[2], discount=0.97)
    solution = solve(problem, "gini:1.5", 1e-8)
    check(problem, solution)
    assert solution.welfare == pytest.approx(rank_optimum(problem, Gini.geometric(6, 1.5).weights), rel=1e-6)


def leximin_by_cvxpy(problem):
    """Raise the least value; fix those who cannot have more even alone; go on."""
    values, constraints = measures(problem)
    floors = {}
    while len(floors) < problem.num_arms:
        level = cp.Variable()
        rest = [n for n in range(problem.num_arms) if n not in floors]
        kept = constraints + [values[n] >= floor - 1e-7 for n, floor in floors.items()]
        height = optimum(level, [*kept, *(values[n] >= level for n in rest)])
        for n in rest:
            if optimum(values[n], [*kept, *(values[m] >= height - 1e-7 for m in rest)]) <= height + 1e-4:
                floors[n] = height
    return np.array([floors[n] for n in range(problem.num_arms)])


@pytest.mark.parametrize("num_resources", [1, 2])
def test_leximin_is_the_outcome_of_its_stages(num_resources):
    problem = random_problem(9, 4, num_resources)
    generous = CoupledMDP(problem.arms, budget=problem.budget * 1.3, discount=problem.discount)
    solution = solve(generous, "leximin")
    check(generous, solution)
    assert np.allclose(solution.values, leximin_by_cvxpy(generous), rtol=1e-4)


def test_bad_arguments():
    with pytest.raises(InvalidInputError, check=mentions("tolerance")):
        solve(random_problem(1), "gini:2", 0.0)


@given(seed=st.integers(0, 10**6))
def test_projection_of_types_is_that_of_arms(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, 6)
    welfare = Gini.geometric(int(counts.sum()), rng.uniform(1, 2))
    point = rng.normal(0.1, 0.1, 6)
    expected = project_types(np.repeat(point, counts), np.ones(counts.sum(), dtype=np.int64), welfare)
    assert np.allclose(np.repeat(project_types(point, counts, welfare), counts), np.maximum(expected, 0), atol=1e-12)


def model_of(problem) -> FluidModel:
    return discounted_model(problem.types, problem.type_counts, problem.budget, problem.discount)


def test_frontiers_are_the_upper_hull_of_all_policies():
    problem = random_problem(30, 6, 1)
    traced = model_of(problem).trace(np.ones(1))
    for t, arm in enumerate(problem.types):
        points = []
        for policy in np.ndindex(*[arm.num_actions] * arm.num_states):
            rows = np.arange(arm.num_states), np.array(policy)
            if (arm.usage[rows] > problem.budget).any():
                continue
            visits = np.linalg.solve(np.eye(arm.num_states) - 0.9 * arm.transitions[rows].T, arm.initial)
            points.append((visits @ arm.rewards[rows], visits @ arm.usage[rows][:, 0]))
        found = slice(traced.starts[t], traced.starts[t + 1])
        for weight in [0.0, *np.geomspace(1e-2, 1e3, 60)]:
            best = max(weight * v - u for v, u in points)
            mine = (weight * traced.values[found] - traced.uses[found, 0]).max()
            assert mine == pytest.approx(best, rel=1e-10, abs=1e-10)
        edges = traced.slopes[found][:-1] * np.diff(traced.values[found])
        assert np.allclose(edges, np.diff(traced.uses[found, 0]), rtol=1e-8, atol=1e-10)


@given(seed=st.integers(0, 10**6), ratio=st.floats(1, 3), price=st.floats(1e-3, 0.2))
def test_nothing_is_better_than_the_levels_found(seed, ratio, price):
    """Neither random moves, to which a concave function's optimum must stand, nor common levels."""
    rng = np.random.default_rng(seed)
    traced = model_of(random_problem(seed, 5)).trace(np.ones(1))
    counts = rng.integers(1, 4, 5)
    welfare = Gini.geometric(int(counts.sum()), ratio)

    def objective(values):
        return welfare(values, counts) - price * (counts @ traced.use(values)[:, 0])

    settled = SettledLevels(welfare, counts)(traced.at_price(price))
    low, high = traced.values[traced.first], traced.values[traced.last]
    best = objective(settled)
    for _ in range(100):
        moves = rng.normal(0, rng.choice([0.01, 0.1, 1]), 5) * rng.integers(0, 2, 5)
        assert objective(np.clip(settled + moves, low, high)) <= best + 1e-9
    for level in traced.values:
        assert objective(np.clip(level, low, high)) <= best + 1e-9


def tables_of(problem) -> tuple:
    types = problem.types
    return types.transitions, types.rewards, types.usage, types.initial, types.valid


@pytest.mark.parametrize("num_resources", [1, 2])
def test_compiled_frontiers_are_those_in_numpy(num_resources):
    problem = random_problem(40, 40, num_resources)
    prices = np.array([0.7, 0.0][:num_resources])
    plain = oracle.trace_frontiers(*tables_of(problem), prices, 0.9, 10.0, 20)
    fast = trace_frontiers(tables_of(problem), problem.types.num_states, prices, 0.9, 10.0, 20)
    for mine, theirs in zip(plain, fast, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    short = trace_frontiers(tables_of(problem), problem.types.num_states, prices, 0.9, 10.0, 2)
    assert np.array_equal(short[0], plain.lengths)


def test_compiled_levels_are_those_in_numpy():
    problem = random_coupled(300, 4, num_types=200, seed=5)
    frontiers = model_of(problem).trace(np.ones(1))
    counts = problem.type_counts
    for welfare in (Gini.geometric(300, 1.03), Maximin(), Maximin(0.01), Utilitarian()):
        answers = SettledLevels(welfare, counts)
        for price in (1e-5, 1e-4, 1e-3, 1e-2):
            slopes = frontiers.at_price(price).slopes
            parts = (frontiers.starts, frontiers.values, slopes, counts, answers.mass)
            assert np.allclose(oracle.settle_levels(*parts), settle_levels(*parts), rtol=1e-12)


def test_levels_of_more_arms_than_a_table_has_entries():
    problem = random_coupled(10**8 + 1, 3, num_types=15, seed=8)
    frontiers, counts = model_of(problem).trace(np.ones(1)), problem.type_counts
    for welfare in (Gini.geometric(10**8 + 1, 1 + 1e-8), Maximin(), Maximin(0.01), Utilitarian()):
        for price in (1e-9, 1e-8, 1e-7):
            slopes = frontiers.at_price(price).slopes
            parts = (frontiers.starts, frontiers.values, slopes, counts, SettledLevels(welfare, counts).mass)
            assert np.allclose(oracle.settle_levels(*parts), settle_levels(*parts), rtol=1e-12)


def test_a_billion_arms_of_few_types():
    problem = random_coupled(10**9, 3, num_types=20, seed=7)
    solution = solve(problem, "gini:1.00000001", 1e-6)
    check(problem, solution, 1e-6)
