"""The paper's heuristics, in the reading that their docstrings state."""

import numpy as np
import pytest

from evenhand.errors import InvalidInputError
from evenhand.evaluation import exact_values
from evenhand.model import Arm, CoupledMDP, begin
from evenhand.policies import (
    PriorityPolicy,
    means_when_idle,
    myopic,
    never_act,
    random_feasible,
    values_when_idle,
    worst_first,
)
from evenhand.problems import crew_maintenance, machine_replacement

from ..conftest import PROBLEMS, crossed, mentions

EXACT_WELFARE = {random_feasible: 9.4272, worst_first: 13.4292, myopic: 13.1113, never_act: 2.7739}
"""Five machines of Exponential-RCCC, one replacement a step."""


def idle_value(arm, discount):
    """(state,) the value of an arm that takes the first free action, by iteration."""
    free = [next(a for a in range(arm.num_actions) if not arm.usage[s, a].any()) for s in range(arm.num_states)]
    values = np.zeros(arm.num_states)
    for _ in range(2000):
        values = np.array([arm.rewards[s, a] + discount * arm.transitions[s, a] @ values for s, a in enumerate(free)])
    return values, free


def oldest_first(oracle):
    """By how bad the state is for its arm, and then by what is best if nothing is done afterwards, on that scale."""
    tables = [idle_value(arm, oracle.problem.discount)[0] for arm in oracle.arms]
    best = [table.max() for table in tables]
    spread = [np.ptp(table) if np.ptp(table) > 1e-9 else 1.0 for table in tables]

    def score(n, s, a):
        arm = oracle.arms[n]
        then = arm.rewards[s, a] + oracle.problem.discount * arm.transitions[s, a] @ tables[n]
        return 1e6 * round((best[n] - tables[n][s]) / spread[n], 9) + round((then - best[n]) / spread[n], 9)

    return oracle.greedy(score)


def gain_now(oracle):
    idle = [idle_value(arm, 0.0)[1] for arm in oracle.arms]

    def score(n, s, a):
        gain = oracle.arms[n].rewards[s, a] - oracle.arms[n].rewards[s, idle[n][s]]
        return gain if gain > 0 else None

    return oracle.greedy(score)


LAWS = {
    random_feasible: lambda oracle: oracle.greedy(lambda *_: 0.0, stop=True),
    worst_first: oldest_first,
    myopic: gain_now,
    never_act: lambda oracle: oracle.greedy(lambda *_: None),
}


@pytest.mark.parametrize(("small_problem", "baseline"), crossed(PROBLEMS, LAWS), indirect=["small_problem"])
def test_values_are_those_of_the_stated_reading(small_problem, brute_force, baseline):
    oracle = brute_force(small_problem)
    values, used = oracle.evaluate(LAWS[baseline](oracle))
    found = exact_values(small_problem, baseline(small_problem))
    np.testing.assert_allclose(found.values[small_problem.type_of_arm], values, rtol=1e-9)
    np.testing.assert_allclose(found.used, used, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("baseline", "welfare"), EXACT_WELFARE.items())
def test_known_values_of_five_machines(baseline, welfare):
    found = exact_values(machine_replacement(num_arms=5), baseline(machine_replacement(num_arms=5)))
    assert found.values == pytest.approx([welfare], abs=5e-5)


@pytest.mark.parametrize("num_arms", [1, 3, 6])
def test_random_is_uniform_over_idling_and_each_arm(num_arms):
    policy = random_feasible(machine_replacement(num_arms=num_arms))
    counts = np.zeros((1, 3), dtype=np.int64)
    counts[0, 0] = 1
    counts[0, 2] = num_arms - 1
    allocations, probabilities = policy.allocation_distribution(counts)
    law = {tuple(allocation[0, :, 1]): chance for allocation, chance in zip(allocations, probabilities, strict=True)}
    each = 1 / (num_arms + 1)
    expected = {(0, 0, 0): each, (1, 0, 0): each}
    if num_arms > 1:
        expected[0, 0, 1] = (num_arms - 1) * each
    assert law == pytest.approx(expected)


def test_oldest_first_always_spends():
    for budget in (1, 2, 3):
        problem = machine_replacement(num_arms=3, budget=budget)
        found = exact_values(problem, worst_first(problem))
        assert found.used == pytest.approx([budget / (1 - problem.discount)])


def test_oldest_first_spends_while_anything_fits():
    problem = crew_maintenance(num_arms=6, num_types=2, crew_hours=3, parts=5)
    rng = np.random.default_rng(0)
    states = rng.integers(0, 4, (500, 6)).astype(np.int32)
    actions = worst_first(problem).act(states, rng)
    used = problem.types.usage[problem.type_of_arm, states, actions].sum(axis=1)
    left = problem.budget - used
    smallest = problem.types.usage[0, 0, 1:]
    assert (actions == 0).any(axis=1).all()
    assert not (smallest[None] <= left[:, None]).all(axis=2).any()


def test_oldest_first_takes_the_worst_state_first():
    problem = machine_replacement(num_arms=3)
    states = np.array([[0, 1, 2], [2, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=np.int32)
    actions = worst_first(problem, ties="first").act(states, np.random.default_rng(0))
    assert actions.tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]]


def _worn(best, scale=1.0):
    """Runs well, poorly, not at all; a repair mends it. What it earns when it runs is its own."""
    moves = np.zeros((3, 2, 3))
    moves[:, 0] = [[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]]
    moves[:, 1, 0] = 1.0
    rewards = best + scale * np.array([[0.0, 0.0], [-0.4, -0.4], [-1.0, -1.0]])
    return Arm(moves, rewards, [[0.0], [1.0]])


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:6"])
@pytest.mark.parametrize(("best", "scale"), [(5.0, 1.0), (1.0, 0.1), (-3.0, 20.0)])
def test_oldest_first_serves_the_broken_of_any_type_before_the_sound_of_another(criterion, best, scale):
    """A make that earns little when sound is not worse off than a broken one of a make that earns much."""
    problem = CoupledMDP([_worn(1.0), _worn(best, scale)], [1.0], 0.9, criterion=criterion)
    policy = worst_first(problem, ties="first")
    for states, served in (([0, 2], [0, 1]), ([2, 0], [1, 0]), ([0, 1], [0, 1]), ([1, 2], [0, 1]), ([2, 1], [1, 0])):
        assert begin(policy, 1, np.random.default_rng(0)).act(np.array([states], dtype=np.int32), 0).tolist() == [
            served
        ]


def test_oldest_first_draws_among_the_worst_of_types_on_different_scales():
    problem = CoupledMDP([_worn(1.0), _worn(50.0, 7.0)], [1.0], 0.9)
    actions = worst_first(problem).act(np.full((400, 2), 2, dtype=np.int32), 0)
    assert actions.sum(axis=1).tolist() == [1] * 400 and 140 < actions[:, 0].sum() < 260


def test_myopic_never_acts_where_replacing_costs_more_than_operating():
    problem = machine_replacement(num_arms=4, preset="quadratic-rccc", budget=2)
    never, found = (exact_values(problem, policy(problem)) for policy in (never_act, myopic))
    assert found.used == [0.0]
    np.testing.assert_allclose(found.values, never.values, rtol=1e-12)


def test_myopic_acts_on_the_worst_machine_of_exponential_costs():
    problem = machine_replacement(num_arms=2, budget=2)
    gains = problem.types.rewards[0, :, 1] - problem.types.rewards[0, :, 0]
    states = np.array([[0, 1], [1, 2], [2, 2]], dtype=np.int32)
    assert np.array_equal(myopic(problem).act(states, np.random.default_rng(0)), gains[states] > 0)


def test_never_act_uses_nothing(small_problem):
    rng = np.random.default_rng(0)
    sizes = small_problem.types.num_states[small_problem.type_of_arm]
    states = rng.integers(0, sizes, (50, small_problem.num_arms)).astype(np.int32)
    actions = never_act(small_problem).act(states, rng)
    assert not small_problem.types.usage[small_problem.type_of_arm, states, actions].any()


def test_value_when_idle(small_problem):
    table = values_when_idle(small_problem)
    for kind, arm in enumerate(small_problem.types):
        expected, _ = idle_value(arm, small_problem.discount)
        np.testing.assert_allclose(table[kind, : arm.num_states], expected, rtol=1e-9)


@pytest.mark.parametrize("baseline", [worst_first, myopic])
def test_ties(baseline):
    problem = machine_replacement(num_arms=3)
    first = baseline(problem, ties="first")
    assert type(first) is PriorityPolicy
    with pytest.raises(InvalidInputError, check=mentions("random", "first", "last", "ties")):
        baseline(problem, ties="last")
    states = np.full((300, 3), 2, dtype=np.int32)
    assert (first.act(states, np.random.default_rng(0)) == [1, 0, 0]).all()
    served = baseline(problem).act(states, np.random.default_rng(0)).sum(axis=0)
    assert served.sum() == 300 and served.min() > 60


class TestCriteria:
    def test_values_when_idle_by_step(self, small_problem):
        table = values_when_idle(small_problem.with_criterion("finite:4"))
        for kind, arm in enumerate(small_problem.types):
            _, free = idle_value(arm, 0.0)
            values = np.zeros(arm.num_states)
            for step in range(3, -1, -1):
                ahead = arm.transitions[np.arange(arm.num_states), free] @ values
                values = arm.rewards[np.arange(arm.num_states), free] + small_problem.discount * ahead
                np.testing.assert_allclose(table[step, kind, : arm.num_states], values, rtol=1e-12)

    def test_an_average_ranks_as_a_discount_near_one(self, small_problem):
        near = CoupledMDP(small_problem.arms, small_problem.budget, 1 - 1e-4, small_problem.counts)
        sizes = small_problem.types.num_states[small_problem.type_of_arm]
        states = np.random.default_rng(0).integers(0, sizes, (200, small_problem.num_arms)).astype(np.int32)
        found, expected = (
            worst_first(problem, ties="first").act(states, np.random.default_rng(0))
            for problem in (small_problem.with_criterion("average"), near)
        )
        np.testing.assert_array_equal(found, expected)

    def test_where_the_mean_depends_on_the_start_the_mean_comes_first(self):
        """State 0 earns 1 for ever, state 1 nothing; state 2 leads to 1, with a reward on the way."""
        arm = Arm(np.eye(3)[[[0, 0], [1, 0], [1, 0]]], [[1.0, 1.0], [0.0, 0.0], [5.0, 5.0]], [[0.0], [1.0]])
        problem = CoupledMDP([arm], [1.0], 0.5, [3], criterion="average")
        assert means_when_idle(problem).tolist() == [[1.0, 0.0, 0.0]]
        policy = worst_first(problem)
        states = np.array([[0, 1, 2], [0, 2, 0]], dtype=np.int32)
        assert policy.act(states, np.random.default_rng(0)).tolist() == [[0, 1, 0], [0, 1, 0]]

    def test_a_finite_horizon_has_an_order_for_each_step(self):
        """State 1 is worse now; state 0 is worse from two steps on, because it leads to ruin."""
        moves = np.eye(3)[[[2, 0], [1, 1], [2, 2]]]
        arm = Arm(moves, [[1.0, 1.0], [0.0, 0.0], [-9.0, -9.0]], [[0.0], [1.0]])
        problem = CoupledMDP([arm], [1.0], 1.0, [2], criterion="finite:2")
        first, last = worst_first(problem).parts
        states = np.array([[0, 1]], dtype=np.int32)
        assert first.act(states, np.random.default_rng(0)).tolist() == [[1, 0]]
        assert last.act(states, np.random.default_rng(0)).tolist() == [[0, 1]]
