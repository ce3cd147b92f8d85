"""Equal resources: against the value of an arm that is served at known times."""

from math import gcd

import numpy as np
import pytest

from evenhand.evaluation import evaluate, simulate
from evenhand.model import Arm, CoupledMDP, StatefulPolicy, is_exchangeable
from evenhand.policies import RoundRobin
from evenhand.problems import machine_replacement


def value_when_served(arm, discount, served):
    """The value of an arm that gets action 1 at steps with `served[t mod len]`, by going around until it settles."""
    values = np.zeros(arm.num_states)
    for _ in range(400):
        for action in served[::-1]:
            values = arm.rewards[:, int(action)] + discount * arm.transitions[:, int(action)] @ values
    return float(arm.initial @ values)


def positions_served(num_arms, budget):
    """(step, position) who is served, over one whole cycle: positions in turn, `budget` a step."""
    cycle = num_arms // gcd(num_arms, budget)
    table = np.zeros((cycle, num_arms), dtype=bool)
    for step in range(cycle):
        for place in range(budget):
            table[step, (step * budget + place) % num_arms] = True
    return table


@pytest.mark.parametrize(("num_arms", "budget"), [(4, 1), (5, 2), (3, 3)])
def test_value_is_that_of_arms_served_in_turn(num_arms, budget):
    problem = machine_replacement(num_arms=num_arms, budget=budget, discount=0.9)
    served = positions_served(num_arms, budget)
    exact = np.mean([value_when_served(problem.types[0], 0.9, served[:, j]) for j in range(num_arms)])
    found = evaluate(problem, RoundRobin(problem), "utilitarian", num_episodes=3000, horizon=120, rng=1)
    assert not found.exact and found.by_type
    assert abs(found.mean - exact) < 4 * found.mean_stderr + found.truncation_bound
    assert found.mean_stderr < 0.01 * abs(exact)
    assert found.budget_used == pytest.approx([1.0])


def play(policy, states, steps, seed=0):
    """(step, episode, arm) actions in states that never change."""
    rng = np.random.default_rng(seed)
    actor = policy.start(len(states), rng)
    return np.stack([actor.act(states, rng) for _ in range(steps)])


def test_everyone_once_a_round_in_the_same_order():
    problem = machine_replacement(num_arms=5)
    actions = play(RoundRobin(problem), np.zeros((40, 5), dtype=np.int32), 10)
    assert (actions.sum(axis=2) == 1).all()
    assert (actions[:5].sum(axis=0) == 1).all()
    assert np.array_equal(actions[:5], actions[5:])


def test_the_order_is_random_in_each_episode(chi_square):
    problem = machine_replacement(num_arms=4)
    actions = play(RoundRobin(problem), np.zeros((8000, 4), dtype=np.int32), 2)
    for step in actions:
        assert chi_square(step.sum(axis=0), np.full(4, 0.25)) > 1e-4


def test_an_arm_that_does_not_fit_waits_at_the_head(build_arm):
    """Uses 1, 2 and a budget of 2: a large arm never is served beside a small one, and nobody loses a turn."""
    small, large = build_arm(0, 1, [[0], [1]]), build_arm(1, 1, [[0], [2]])
    problem = CoupledMDP([small, large], budget=[2], discount=0.5, counts=[2, 2])
    actions = play(RoundRobin(problem), np.zeros((30, 4), dtype=np.int32), 24)
    used = problem.types.usage[problem.type_of_arm, 0, actions, 0].sum(axis=2)
    assert used.max() == 2 and used.min() >= 1
    turns = actions.cumsum(axis=0)
    assert (turns.max(axis=2) - turns.min(axis=2)).max() == 1


def test_budgets_of_several_resources_are_respected(problems):
    for name in ("two types", "all different"):
        problem = problems[name]()
        kinds = problem.type_of_arm
        states = np.random.default_rng(0).integers(0, problem.types.num_states[kinds], (200, 3)).astype(np.int32)
        actions = play(RoundRobin(problem), states, 12)
        used = problem.types.usage[kinds, states, actions].sum(axis=2)
        assert (used <= problem.budget).all() and used.any()
        assert (actions != problem.types.idle[kinds, states]).any(axis=0).all()


def test_an_arm_takes_its_largest_action_that_fits(build_arm):
    arm = build_arm(0, 1, [[0, 0], [1, 0], [2, 1], [9, 0], [0, 4]])
    problem = CoupledMDP([arm], budget=[2, 8], discount=0.5, counts=[2])
    actions = play(RoundRobin(problem), np.zeros((5, 2), dtype=np.int32), 4)
    assert set(actions[actions > 0]) == {2}  # all of the first resource; (0, 4) is half of the second, (9, 0) too much


def test_where_nothing_fits_the_turn_is_lost(build_arm):
    arms = [build_arm(0, 1, [[0], [1]]), build_arm(1, 1, [[0], [5]])]
    problem = CoupledMDP(arms, budget=[1], discount=0.5)
    actions = play(RoundRobin(problem), np.zeros((6, 2), dtype=np.int32), 5)
    assert (actions[:, :, 0] == 1).all() and not actions[:, :, 1].any()


def test_each_start_begins_anew():
    problem = machine_replacement(num_arms=3)
    policy = RoundRobin(problem)
    assert isinstance(policy, StatefulPolicy) and is_exchangeable(policy)
    states = np.zeros((4, 3), dtype=np.int32)
    assert np.array_equal(play(policy, states, 2), play(policy, states, 2))
    assert not np.array_equal(play(policy, states, 2), play(policy, states, 2, seed=1))


def test_every_budget_that_must_be_spent_is_spent():
    rng = np.random.default_rng(1)
    arms = [
        Arm(
            transitions=rng.dirichlet(np.ones(3), size=(3, 3)),
            rewards=rng.random((3, 3)),
            usage=[[0, 0], [1, 0], [0, 1]],
        )
        for _ in range(2)
    ]
    problem = CoupledMDP(arms, counts=[5, 4], budget=[3, 2], discount=0.9).with_spend("all")
    used = simulate(problem, RoundRobin(problem), 20, 30, 0).used
    assert used == pytest.approx(1.0)
