"""Any function as a policy: it plays as it says, and is held to the rules."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, PolicyError

from ..conftest import mentions


@pytest.fixture(scope="module")
def machines():
    return eh.problems.machine_replacement(num_arms=3)


def oldest(states, rng):
    """The first of the oldest."""
    return (np.arange(states.shape[1]) == states.argmax(axis=1)[:, None]).astype(int)


def test_it_plays_like_a_class_with_the_same_act(machines):
    class Oldest:
        def act(self, states, rng):
            return oldest(states, rng)

    policy = eh.policies.from_function(machines, oldest)
    eh.check_policy(machines, policy)
    asked = {"num_episodes": 20, "horizon": 30, "rng": 0}
    assert np.array_equal(
        eh.simulate(machines, policy, **asked).returns, eh.simulate(machines, Oldest(), **asked).returns
    )
    assert mentions("FunctionPolicy(oldest", "3 arms")(repr(policy))


def test_one_episode_at_a_time_is_the_same(machines):
    def one(states, rng):
        return [int(arm == states.argmax()) for arm in range(len(states))]

    asked = {"num_episodes": 5, "horizon": 10, "rng": 0}
    whole = eh.simulate(machines, eh.policies.from_function(machines, oldest), **asked)
    single = eh.simulate(machines, eh.policies.from_function(machines, one, one_by_one=True), **asked)
    assert np.array_equal(whole.returns, single.returns)


def test_those_that_treat_arms_alike_are_pooled(machines):
    def drawn(states, rng):
        keys = states + rng.random(states.shape)
        return (keys == keys.max(axis=1, keepdims=True)).astype(int)

    asked = {"num_episodes": 50, "horizon": 20, "rng": 0}
    told = eh.evaluate(machines, eh.policies.from_function(machines, drawn, exchangeable=True), **asked)
    untold = eh.evaluate(machines, eh.policies.from_function(machines, drawn), **asked)
    assert told.by_type and not untold.by_type
    assert told.mean == pytest.approx(untold.mean)
    assert told.welfare > untold.welfare  # of one value, and of three with noise between them


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda s, rng: np.ones(s.shape, int), "episode 0: the policy used 3 of resource 0, whose budget is 1"),
        (lambda s, rng: np.full(s.shape, 2), "episode 0, arm 0: the policy chose action 2, which does not exist"),
        (lambda s, rng: np.zeros(3, int), r"act: expected whole numbers of shape \(episode=2, arm=3\)"),
        (lambda s, rng: np.zeros(s.shape), "got float64"),
        (lambda s, rng: [[0, 0], [0]], "lists of different lengths"),
        (lambda s, rng: None, "expected whole numbers"),
    ],
)
def test_what_breaks_the_rules_is_reported(machines, function, words):
    with pytest.raises(InvalidInputError, match=words):
        eh.policies.from_function(machines, function).act([[0, 1, 2], [0, 0, 0]], 0)


def test_resources_are_reported_by_name():
    problem = eh.problems.crew_maintenance(num_arms=3)
    greedy = eh.policies.from_function(problem, lambda s, rng: np.full(s.shape, 2))
    with pytest.raises(PolicyError, match=rf"of {problem.resource_names[0]}, whose budget is"):
        greedy.act([0] * 3, 0)


def test_a_simulator_has_rules_too():
    pumps = eh.Simulator(
        lambda s, a, rng: (np.where(a == 1, 0, np.minimum(s + 1, 2)), 1.0 - s / 2),
        lambda number, rng: np.zeros(number, int),
        usage=[[0], [1]],
        num_states=3,
        num_arms=3,
        budget=[1],
        discount=0.9,
    )
    found = eh.evaluate(pumps, eh.policies.from_function(pumps, oldest), num_episodes=3, horizon=50, rng=0)
    assert found.mean_stderr == 0 and 5 < found.mean < 10  # nothing is random there
    with pytest.raises(PolicyError, check=mentions(3, "resource 0", 1)):
        eh.policies.from_function(pumps, lambda s, rng: np.ones(s.shape, int)).act([0, 0, 0], 0)


def test_the_function_cannot_change_the_world(machines):
    def vandal(states, rng):
        states[:] = 0
        return np.zeros(states.shape, int)

    given = np.array([[2, 2, 2]], dtype=np.int32)
    eh.policies.from_function(machines, vandal).act(given, 0)
    assert given.tolist() == [[2, 2, 2]]


def test_only_functions_are_taken(machines):
    with pytest.raises(InvalidInputError, check=mentions("function", "oldest")):
        eh.policies.from_function(machines, "oldest")
