"""Many scenarios in one batch: the same bits as one scenario after another, in NumPy and compiled."""

import numpy as np
import pytest

from evenhand.errors import InvalidInputError, ModelError
from evenhand.evaluation import simulate
from evenhand.policies import random_feasible, worst_first
from evenhand.problems import random_coupled
from evenhand.uncertainty import simulate_scenarios

from ..conftest import mentions
from ..oracles.stepping import StepByStep


def drawn(problem, number, seed=0):
    """(scenario, block, state, action, next_state) other transitions, where the problem has some."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(problem.tables.transitions.shape[-1]), (number, *problem.tables.transitions.shape[:3]))
    return np.ascontiguousarray(rows)


@pytest.fixture
def problem():
    return random_coupled(num_arms=5, num_types=3, seed=1)


def test_scenarios_do_not_depend_on_the_batch(problem):
    transitions, policy = drawn(problem, 4), worst_first(problem, ties="first")
    two = 2 * 6 * problem.num_arms
    found = simulate_scenarios(problem, policy, transitions, num_episodes=6, horizon=20, rng=5, batch_size=two)
    for number, own in enumerate(transitions):
        # Episodes are counted through all scenarios.
        alone = simulate(problem.with_transitions(own), policy, 6 * (number + 1), 20, rng=5)
        assert np.array_equal(found[number], alone.returns[-6:])


def test_compiled_episodes_are_those_of_single_steps(problem):
    transitions, policy = drawn(problem, 3, seed=2), random_feasible(problem)
    both = (policy, StepByStep(policy))
    found = [simulate_scenarios(problem, each, transitions, None, 5, 15, rng=3) for each in both]
    assert np.array_equal(*found)


def test_rewards_may_differ_between_scenarios(problem):
    transitions, policy = drawn(problem, 3, seed=4), worst_first(problem, ties="first")
    ones = np.ones((3, *problem.tables.rewards.shape)) * np.arange(3)[:, None, None, None]
    found = simulate_scenarios(problem, policy, transitions, ones, 2, 4, rng=0)
    total = problem.criterion.time_weights(4).sum()
    assert np.allclose(found, np.broadcast_to(np.arange(3)[:, None, None] * total, found.shape))


def test_shapes_are_checked(problem):
    with pytest.raises(InvalidInputError, check=mentions("transitions", "(2, 1, 3, 2, 3)")):
        simulate_scenarios(problem, worst_first(problem), drawn(problem, 2)[:, :1])
    with pytest.raises(ModelError, check=mentions("transitions", 0.9)):
        problem.with_transitions(drawn(problem, 1)[0] * 0.9)


def test_other_transitions_keep_the_types_unless_arms_of_one_differ(problem):
    doubled = random_coupled(num_arms=1, seed=1)
    both = type(doubled)([doubled.arms[0], doubled.arms[0]], doubled.budget, doubled.discount, [2, 3])
    assert both.num_types == 1
    rows = drawn(both, 1)[0]
    assert both.with_transitions(rows).type_counts.tolist() == [2, 3]
    rows[1] = rows[0]
    assert both.with_transitions(rows).type_counts.tolist() == [5]
    same = np.repeat(drawn(problem, 1)[0][:1], len(problem.tables), axis=0)  # types with equal transitions stay apart
    assert problem.with_transitions(same).num_types == problem.num_types
    assert problem.with_transitions(same).signature != problem.signature
