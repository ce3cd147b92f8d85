"""Budgets that must be spent at every step: `spend = "all"`."""

import numpy as np
import pytest
from scipy.optimize import linprog

import evenhand as eh
from evenhand.errors import ModelError, NotApplicableError, PolicyError
from evenhand.model.policy import check_actions
from evenhand.planning.policy_registry import REGISTRY

OPTIMA = [
    (eh.problems.non_indexable(2), 0.7028373452),
    (eh.problems.non_indexable(4), 0.7221051714),
    (eh.problems.non_indexable(10), 0.7438876704),
    (eh.problems.eight_states(2, "plain"), 0.0092067725),
    (eh.problems.eight_states(2), 0.0095136649),
]


@pytest.mark.parametrize(("problem", "optimum"), OPTIMA)
def test_published_optima(problem, optimum):
    assert eh.solve(problem.with_spend("all"), "utilitarian").welfare == pytest.approx(optimum, rel=1e-8)


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
