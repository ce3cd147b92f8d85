"""Budgets that must be spent at every step: `spend = "all"`."""

import numpy as np
import pytest
from scipy.optimize import linprog

import evenhand as eh
from evenhand.errors import ModelError, NotApplicableError, PolicyError
from evenhand.model import Objective
from evenhand.model.policy import check_actions
from evenhand.planning.policy_registry import REGISTRY
from evenhand.solvers import SMALL, Counts, best_mixture, plan_counts, solve_counts, solve_weighted
from evenhand.solvers.counts import TypedPricing, plan_types

OPTIMA = [
    (eh.problems.three_states(5, 1, 0.4), 0.2281602122, 0.2281602122),
    (eh.problems.three_states(20, 1, 0.4), 0.2414399194, 0.2414399194),
    (eh.problems.three_states(20, 2, 0.4), 0.1189666673, 0.1189666673),
    (eh.problems.three_states(10, 3, 0.4), 0.3493582417, 0.3493582417),
    (eh.problems.non_indexable(2), 0.7028373452, 0.7394820457),
    (eh.problems.non_indexable(4), 0.7221051714, 0.7522112320),
    (eh.problems.non_indexable(10), 0.7438876704, 0.7646625171),
    (eh.problems.eight_states(2, "plain"), 0.0092067725, 0.0106465722),
    (eh.problems.eight_states(2), 0.0095136649, 0.0110014580),
]


@pytest.mark.parametrize(("problem", "exactly", "at_most"), OPTIMA)
def test_published_optima(problem, exactly, at_most):
    assert eh.solve(problem.with_spend("all"), "utilitarian").welfare == pytest.approx(exactly, rel=1e-6)
    assert eh.solve(problem.with_spend("at most"), "utilitarian").welfare == pytest.approx(at_most, rel=1e-6)


def random_problem(seed: int, criterion: str, num_types: int = 1) -> eh.CoupledMDP:
    """Arms with two resources, of which the first must be spent, the second as well, or not."""
    rng = np.random.default_rng(seed)
    usage = np.array([[0, 0], [1, 0], [0, 1], [2, seed % 2], [0, 0]], dtype=float)
    S, A, pure = int(rng.integers(2, 4)), len(usage), seed % 3 == 0
    arms = []
    for _ in range(num_types):
        rows = rng.dirichlet(np.ones(S), size=(S, A))
        if pure:  # actions that move like an arm of another state: no extra rows
            rows[:, 1:] = rows[rng.integers(S, size=(S, A - 1)), 0]
        arms.append(eh.Arm(rows, rng.normal(size=(S, A)), usage, rng.dirichlet(np.ones(S))))
    counts = rng.integers(2, 4, num_types) if num_types > 1 else [5]
    spend = ["all", "all" if seed % 2 else "at most"]
    return eh.CoupledMDP(arms, [2, 1], 0.9, counts, spend=spend).with_criterion(criterion)


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:3"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("small", [0, SMALL])
def test_identical_arms_on_counts(seed, criterion, small):
    problem = random_problem(seed, criterion)
    found = solve_counts(plan_counts(problem, small), problem.types.initial[0], 1e-9)
    exact = solve_weighted(Counts(problem).mdp, np.ones(1), tolerance=1e-11)
    assert found.lower_bound <= exact.upper_bound + 1e-9
    assert found.upper_bound >= exact.lower_bound - 1e-9
    assert found.upper_bound - found.lower_bound <= 1e-7
    used = found.choices @ problem.types.usage[0][tuple(found.cells.T)]
    assert (used >= problem.least_use).all()
    assert (used <= problem.budget_limit).all()


@pytest.mark.parametrize("reset", ["pure", "then-deteriorate"])
def test_machines_that_must_be_replaced(reset):
    problem = eh.problems.machine_replacement(num_arms=12, budget=3, reset=reset).with_spend("all")
    found = solve_counts(plan_counts(problem, 0), problem.types.initial[0], 1e-9)
    exact = solve_weighted(Counts(problem).mdp, np.ones(1), tolerance=1e-11)
    assert found.upper_bound == pytest.approx(exact.upper_bound, rel=1e-8)
    assert (found.choices @ problem.types.usage[0][tuple(found.cells.T)][:, 0] == 3).all()


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:3"])
@pytest.mark.parametrize("seed", range(6))
def test_several_types_on_counts(seed, criterion):
    problem = random_problem(seed, criterion, num_types=2)
    objective = Objective.of_types(problem, eh.Gini.geometric(problem.num_arms, ratio=2))
    found = best_mixture(TypedPricing(plan_types(problem), objective), objective.welfare, objective.sizes, 1e-8)
    table = eh.solve(problem, "gini:2", method="counts")  # small: a table of all allocations
    assert found.upper_bound == pytest.approx(table.welfare, rel=1e-6, abs=1e-8)
    if seed == 1:
        exact = eh.solve(problem, "gini:2", method="joint")
        assert found.upper_bound == pytest.approx(exact.welfare, rel=1e-6, abs=1e-8)


def test_many_arms_must_spend_all():
    problem = eh.problems.three_states(60, 2, 0.4)
    at_most, exactly = (eh.solve(problem.with_spend(rule), "utilitarian") for rule in ("at most", "all"))
    assert exactly.method == "counts"
    assert exactly.welfare == pytest.approx(at_most.welfare, rel=1e-6)  # serving is worth it in every state that counts
    assert exactly.upper_bound <= at_most.upper_bound * (1 + 1e-6)


@pytest.mark.parametrize("method", ["counts", "joint", "count-lp", "joint-lp"])
def test_all_exact_methods_agree(method):
    problem = eh.problems.random_coupled(num_arms=4, num_states=2, budget=2, seed=3, integer_usage=False)
    unit = np.where(problem.tables.usage > 0, 1.0, 0.0)
    arm = eh.Arm(problem.tables.transitions[0], problem.tables.rewards[0] - 0.5, unit[0])
    problem = eh.CoupledMDP([arm], counts=[4], budget=[2], discount=0.9, spend="all")
    found = eh.solve(problem, "utilitarian", method=method)
    assert found.welfare == pytest.approx(eh.solve(problem, "utilitarian", method="joint").welfare, rel=1e-6)
    played = eh.evaluate(problem, found.policy, "utilitarian")
    assert played.budget_used == pytest.approx([1.0])


def test_the_bound_is_that_of_one_program_with_an_equation():
    problem = eh.problems.non_indexable(100).with_spend("all")
    found = eh.bound(problem, "utilitarian")
    types = problem.types
    rows, right = [], []
    for state in range(3):
        row = np.zeros((3, 2))
        row[state] += 1
        row -= types.transitions[0, :, :, state]
        rows.append(row.ravel())
        right.append(0.0)
    rows += [np.ones(6), np.tile([0.0, 1.0], 3)]
    right += [1.0, 0.5]
    best = linprog(-types.rewards[0].ravel(), A_eq=rows, b_eq=right)
    assert found.upper_bound == pytest.approx(-best.fun, rel=1e-8)
    assert found.prices[0] < 0


@pytest.mark.parametrize("name", [entry.name for entry in REGISTRY])
@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:4"])
def test_every_policy_spends_all_or_is_refused(name, criterion):
    problem = eh.CoupledMDP(
        [
            eh.Arm([[[0.5, 0.5], [1, 0]], [[0, 1], [0.7, 0.3]]], [[1, -1], [0, -2]], [[0], [1]]),
            eh.Arm([[[0.1, 0.9], [1, 0]], [[0.2, 0.8], [0.6, 0.4]]], [[1, -3], [0, -1]], [[0], [1]]),
        ],
        counts=[2, 2],
        budget=[3],
        discount=0.9,
        spend="all",
        criterion=criterion,
    )
    try:
        policy = eh.make_policy(problem, name, "utilitarian")
    except NotApplicableError:
        assert name in ("re-solving", "never-act", "cp-drl", "whittle", "set-expansion", "two-set")
        return
    rng = np.random.default_rng(0)
    states = rng.integers(0, 2, (50, 4))
    actions = (policy.start(50, rng) if hasattr(policy, "start") else policy).act(states, rng)
    check_actions(problem, states, actions)
    assert (actions.sum(axis=1) == 3).all()
    if name not in ("optimal", "random", "oldest-first", "myopic", "equal-resources"):
        assert (
            eh.evaluate(problem, policy, "utilitarian").welfare <= eh.bound(problem, "utilitarian").upper_bound + 1e-6
        )


@pytest.mark.parametrize("name", [entry.name for entry in REGISTRY])
@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:4"])
def test_services_of_other_budgets_leave_enough_arms(name, criterion):
    usage = [[0, 0], [1, 0], [0, 1]]
    rows = [[[0.5, 0.5], [1, 0], [0.6, 0.4]], [[0, 1], [0.7, 0.3], [0.4, 0.6]]]
    arms = [eh.Arm(rows, [[1, -1, 3], [0, -2, 2]], usage), eh.Arm(rows, [[1, -3, 1.5], [0, -1, 2]], usage)]
    spend = ["all", "at most"]
    problem = eh.CoupledMDP(arms, [3, 2], 0.9, counts=[2, 2], spend=spend, criterion=criterion)
    try:
        policy = eh.make_policy(problem, name, "utilitarian")
    except NotApplicableError:
        assert name in ("re-solving", "never-act", "cp-drl", "whittle", "set-expansion", "two-set")
        return
    for method in ("exact", "monte-carlo"):  # which checks every step; which plays compiled tables
        try:
            found = eh.evaluate(problem, policy, "utilitarian", method=method, num_episodes=50, rng=0)
        except NotApplicableError:
            continue
        assert found.budget_used[0] == pytest.approx(1.0)
    counts = np.array([[[2, 0], [1, 1]], [[0, 2], [0, 2]]])
    if hasattr(policy, "allocate"):
        allocated = policy.allocate(counts, np.random.default_rng(0))
        assert (allocated[..., 1].sum(axis=(1, 2)) == 3).all()
        assert (allocated[..., 2].sum(axis=(1, 2)) <= 1).all()


def test_underspending_is_a_fault_of_the_policy():
    problem = eh.problems.machine_replacement(num_arms=3).with_spend("all")
    with pytest.raises(PolicyError):
        check_actions(problem, np.zeros((1, 3), dtype=int), np.zeros((1, 3), dtype=int))


def test_fair_welfare_at_equality():
    arms = [
        eh.Arm([[[0.5, 0.5], [1, 0]], [[0, 1], [0.7, 0.3]]], [[1, 0.9], [0, -0.2]], [[0], [1]]),
        eh.Arm([[[0.1, 0.9], [1, 0]], [[0.2, 0.8], [0.6, 0.4]]], [[1, 0.5], [0, -0.1]], [[0], [1]]),
    ]
    problem = eh.CoupledMDP(arms, counts=[2, 1], budget=[2], discount=0.9, spend="all")
    exact = eh.solve(problem, "gini:2", method="joint")
    assert eh.solve(problem, "gini:2", method="counts").welfare == pytest.approx(exact.welfare, rel=1e-6)
    simulated = eh.solve(problem, "gini:2", method="fluid")
    assert simulated.welfare <= exact.welfare + 3 * simulated.welfare_stderr + 1e-9
    assert simulated.upper_bound >= exact.welfare - 1e-9


@pytest.mark.parametrize("spend", ["some", ["all"], 3])
def test_unknown_rules_are_refused(spend):
    with pytest.raises(ModelError):
        eh.problems.crew_maintenance(num_arms=4).with_spend(spend)


def test_budgets_that_cannot_be_spent_are_refused():
    with pytest.raises(ModelError):
        eh.problems.machine_replacement(num_arms=3, budget=1.5).with_spend("all")
    with pytest.raises(ModelError):
        eh.problems.machine_replacement(num_arms=3, budget=4).with_spend("all")
    with pytest.raises(ModelError):
        eh.problems.machine_replacement(num_arms=3, budget=2).with_spend("all").with_budget(4)


@pytest.mark.parametrize("suffix", ["toml", "json", "npz"])
def test_the_rule_is_in_model_files(tmp_path, suffix):
    problem = eh.problems.machine_replacement(num_arms=3).with_spend("all")
    eh.save(problem, tmp_path / f"m.{suffix}")
    assert eh.load(tmp_path / f"m.{suffix}") == problem
    assert eh.load(tmp_path / f"m.{suffix}").spend == ("all",)
