"""Many worlds in one batch: the same to the last bit as one world after another, in NumPy and compiled."""

import numpy as np
import pytest

from evenhand.errors import InvalidInput, ModelError
from evenhand.policies import random_feasible, worst_first
from evenhand.problems import random_coupled
from evenhand.simulation import worlds
from evenhand.simulation.rollout import simulate
from evenhand.simulation.worlds import simulate_worlds

from ..oracles.stepping import StepByStep


def drawn(problem, number, seed=0):
    """(world, block, state, action, next_state) other transitions, where the problem has some."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(problem.tables.transitions.shape[-1]), (number, *problem.tables.transitions.shape[:3]))
    return np.ascontiguousarray(rows)


@pytest.fixture
def problem():
    return random_coupled(num_arms=5, num_types=3, seed=1)


def test_worlds_are_played_as_if_each_was_alone(problem, monkeypatch):
    transitions, policy = drawn(problem, 4), worst_first(problem, ties="first")
    monkeypatch.setattr(worlds, "BATCH", 2 * 6 * problem.num_arms)  # two worlds at a time
    found = simulate_worlds(problem, policy, transitions, num_episodes=6, horizon=20, rng=5)
    for world, own in enumerate(transitions):
        # Alone, the episodes of the worlds before it are played, too: numbers belong to places.
        alone = simulate(problem.with_transitions(own), policy, 6 * (world + 1), 20, rng=5)
        assert np.array_equal(found[world], alone.returns[-6:])


def test_compiled_episodes_are_those_of_single_steps(problem):
    transitions, policy = drawn(problem, 3, seed=2), random_feasible(problem)
    found = [simulate_worlds(problem, each, transitions, None, 5, 15, rng=3) for each in (policy, StepByStep(policy))]
    assert np.array_equal(*found)


def test_other_rewards_are_of_each_world(problem):
    transitions, policy = drawn(problem, 3, seed=4), worst_first(problem, ties="first")
    ones = np.ones((3, *problem.tables.rewards.shape)) * np.arange(3)[:, None, None, None]
    found = simulate_worlds(problem, policy, transitions, ones, 2, 4, rng=0)
    total = problem.criterion.time_weights(4).sum()
    assert np.allclose(found, np.broadcast_to(np.arange(3)[:, None, None] * total, found.shape))


def test_shapes_are_checked(problem):
    with pytest.raises(InvalidInput, match="transitions: expected shape"):
        simulate_worlds(problem, worst_first(problem), drawn(problem, 2)[:, :1])
    with pytest.raises(ModelError, match="transitions"):
        problem.with_transitions(drawn(problem, 1)[0] * 0.9)


def test_another_world_has_the_same_types_unless_arms_of_one_move_apart(problem):
    doubled = random_coupled(num_arms=1, seed=1)
    both = type(doubled)([doubled.arms[0], doubled.arms[0]], doubled.budget, doubled.discount, [2, 3])
    assert both.num_types == 1
    rows = drawn(both, 1)[0]
    assert both.with_transitions(rows).type_counts.tolist() == [2, 3]
    rows[1] = rows[0]
    assert both.with_transitions(rows).type_counts.tolist() == [5]
    same = np.repeat(drawn(problem, 1)[0][:1], len(problem.tables), axis=0)  # types that move alike stay apart
    assert problem.with_transitions(same).num_types == problem.num_types
    assert problem.with_transitions(same).signature != problem.signature
