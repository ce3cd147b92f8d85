"""A policy in many scenarios: batches against single problems, and simulation against exact values."""

import numpy as np
import pytest
from numba import get_num_threads, set_num_threads

from evenhand import Arm, CoupledMDP, solve
from evenhand.errors import InvalidInputError
from evenhand.evaluation import exact_values
from evenhand.model import MixturePolicy, TimeVaryingPolicy
from evenhand.policies import random_feasible, whittle
from evenhand.problems import random_coupled
from evenhand.solvers import Joint, JointTable
from evenhand.uncertainty import EvaluationBudget, Scenarios, compare_scenarios

from ..conftest import mentions

SIMULATED = EvaluationBudget(max_exact_states=0, arm_steps=4e5)


def values_of(policy, scenarios, effort=None):
    return compare_scenarios(scenarios, {"policy": policy}, effort=effort).rows[0]


def some_scenarios(problem, number=5, seed=0):
    """Scenarios around the model: its rows, with noise."""
    rng, rows = np.random.default_rng(seed), problem.tables.transitions
    drawn = rng.dirichlet(np.ones(rows.shape[-1]), (number, *rows.shape[:3]))
    # Padding stays empty, and where a block has fewer states so do its rows.
    real = (rows.sum(axis=0) > 0)[None] if len(rows) == 1 else rows[None] > 0
    mixed = np.where(real, 0.5 * rows + 0.5 * drawn, 0.0)
    sums = mixed.sum(axis=-1, keepdims=True)
    blocks = np.arange(len(rows))
    return Scenarios(problem, mixed / np.where(sums > 0, sums, 1.0), blocks)


def one_by_one(policy, scenarios):
    """(draw, unit) values by the evaluation of single problems."""
    found = []
    for number in range(len(scenarios)):
        problem = scenarios.scenario(number)
        own = Joint(problem).lift(policy.probabilities) if isinstance(policy, JointTable) else policy
        found.append(exact_values(problem, own).values)
    return np.stack(found)


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:6"])
def test_policies_on_counts_have_the_values_of_single_problems(criterion):
    problem = random_coupled(num_arms=4, num_types=2, seed=3).with_criterion(criterion)
    scenarios = some_scenarios(problem)
    for policy in (whittle(problem), random_feasible(problem), solve(problem, "utilitarian").policy):
        found = values_of(policy, scenarios)
        assert found.exact
        assert found.by_type
        parts = policy.parts if isinstance(policy, MixturePolicy) else (policy,)
        shares = policy.shares if isinstance(policy, MixturePolicy) else np.ones(1)
        expected = sum(share * one_by_one(part, scenarios) for share, part in zip(shares, parts, strict=True))
        assert np.allclose(found.values, expected, rtol=1e-8)


def test_joint_tables_have_the_values_of_single_problems():
    small = Arm([[[0.6, 0.4], [0.9, 0.1]], [[0.2, 0.8], [0.7, 0.3]]], rewards=[[1, 0.5], [0, 0]], usage=[[0], [1]])
    other = random_coupled(num_arms=1, seed=5).arms[0]
    problem = CoupledMDP([small, other], budget=[max(1.0, other.usage.max())], discount=0.9)
    policy = solve(problem, "gini:2", "joint").policy
    part = policy.parts[0] if isinstance(policy, MixturePolicy) else policy
    assert isinstance(part, JointTable)
    scenarios = some_scenarios(problem)
    found = values_of(part, scenarios)
    assert not found.by_type
    assert np.allclose(found.values, one_by_one(part, scenarios), rtol=1e-9)


def test_a_time_varying_policy_is_evaluated_step_by_step():
    problem = random_coupled(num_arms=3, seed=2).with_criterion("finite:4")
    policy = solve(problem, "utilitarian").policy
    assert isinstance(policy, TimeVaryingPolicy)
    scenarios = some_scenarios(problem)
    assert np.allclose(values_of(policy, scenarios).values, one_by_one(policy, scenarios), rtol=1e-10)


@pytest.mark.parametrize("criterion", ["discounted", "finite:12"])
def test_simulated_values_agree_with_exact_ones(criterion):
    problem = random_coupled(num_arms=6, num_types=2, seed=4, discount=0.9).with_criterion(criterion)
    scenarios, policy = some_scenarios(problem, 8), whittle(problem)
    exact = values_of(policy, scenarios).values
    played = values_of(policy, scenarios, SIMULATED)
    errors = played.returns.std(axis=1, ddof=1) / np.sqrt(played.returns.shape[1]) + 1e-12 * np.abs(exact)
    strange = (played.values - exact) / errors
    assert not played.exact
    assert np.abs(strange).max() < 4.5
    assert np.square(strange).mean() < 2.2
    plain = values_of(policy, scenarios, SIMULATED._replace(control_variates=False))
    noise = plain.returns.std(axis=1, ddof=1)
    assert np.abs((plain.values - exact) / (noise / np.sqrt(plain.returns.shape[1]))).max() < 4.5
    if criterion == "discounted":
        assert played.returns.std(axis=1, ddof=1).mean() < 0.7 * noise.mean()


def test_the_number_of_threads_does_not_change_the_numbers():
    effort = SIMULATED._replace(arm_steps=2.1e6)  # enough for compiled code
    problem = random_coupled(num_arms=8, num_types=2, seed=6, discount=0.8)
    scenarios, before, found = some_scenarios(problem, 10), get_num_threads(), []
    try:
        for number in (1, before):
            set_num_threads(number)
            found.append(values_of(random_feasible(problem), scenarios, effort).returns)
    finally:
        set_num_threads(before)
    assert np.array_equal(*found)


def test_arms_of_one_type_with_different_transitions_are_separate_units():
    arm = random_coupled(num_arms=1, seed=1).arms[0]
    problem = CoupledMDP([arm, arm], budget=[1], discount=0.9, counts=[1, 2])
    apart = some_scenarios(problem, 3)
    assert apart.splits_types
    found = values_of(random_feasible(problem), apart)
    assert not found.by_type
    assert found.values.shape == (3, 3)
    together = Scenarios(problem, apart.transitions, np.zeros(2, dtype=np.int64))
    assert not together.splits_types
    assert values_of(random_feasible(problem), together).values.shape == (3, 1)


def test_types_are_split_by_group():
    first, second = random_coupled(num_arms=2, num_types=2, seed=8).arms
    problem = CoupledMDP([first, second, first], [1], 0.9, [1, 1, 2], groups=["a", "a", "b"], over="groups")
    scenarios = Scenarios(problem, some_scenarios(problem, 3).transitions, np.array([0, 1, 0]))
    found = values_of(whittle(problem), scenarios)
    assert found.values.shape == (3, 3)
    assert np.allclose(found.values, one_by_one(whittle(problem), scenarios))


def test_other_shapes_are_refused():
    problem = random_coupled(num_arms=2, seed=1)
    with pytest.raises(InvalidInputError, check=mentions("transitions")):
        Scenarios(problem, np.zeros((0, *problem.tables.transitions.shape)), np.zeros(1, dtype=np.int64))
    with pytest.raises(InvalidInputError, check=mentions("transitions", "state=3", "(2, 1, 2, 2, 2)")):
        Scenarios(problem, np.zeros((2, 1, 2, 2, 2)), np.zeros(1, dtype=np.int64))
