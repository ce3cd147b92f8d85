import numpy as np
import pytest

from evenhand.errors import ModelError
from evenhand.problems import crew_maintenance


def small(**parameters):
    return crew_maintenance(num_arms=3, num_types=1, num_states=3, **parameters)


def test_defaults():
    problem = crew_maintenance()
    assert (problem.num_arms, problem.num_types, problem.num_resources) == (10, 3, 2)
    assert problem.counts.tolist() == [4, 3, 3]
    assert problem.budget.tolist() == [4, 3]
    for arm in problem.arms:
        assert arm.states == ("as new", "worn 1", "worn 2", "failed")
        assert arm.actions == ("operate", "repair", "replace")
        np.testing.assert_array_equal(arm.usage, [[[0, 0], [2, 1], [1, 3]]] * 4)
    assert [arm.name for arm in problem.arms] == ["type 1", "type 2", "type 3"]


def test_one_type_by_hand():
    arm = small(repair_success=0.6).arms[0]
    np.testing.assert_allclose(arm.transitions[:, 0], [[0.75, 0.25, 0], [0, 0.75, 0.25], [0, 0, 1]])
    np.testing.assert_allclose(arm.transitions[:, 1], [[1, 0, 0], [0.6, 0.4, 0], [0, 0.6, 0.4]])
    np.testing.assert_array_equal(arm.transitions[:, 2], [[1, 0, 0]] * 3)
    np.testing.assert_allclose(arm.rewards, [[1, 0.5, 0], [0.75, 0.375, 0], [0, 0, 0]])


def test_types_differ_in_wear_and_stakes():
    problem = crew_maintenance(num_arms=10, num_types=5)
    np.testing.assert_allclose([arm.transitions[0, 0, 1] for arm in problem.arms], [0.15, 0.2, 0.25, 0.3, 0.35])
    np.testing.assert_allclose([arm.rewards[0, 0] for arm in problem.arms], [0.6, 0.7, 0.8, 0.9, 1.0])


def test_one_type_is_symmetric():
    assert crew_maintenance(num_types=1).is_symmetric


@pytest.mark.parametrize("num_types", [1, 3])
def test_both_resources_bind(fluid_prices, num_types):
    assert (fluid_prices(crew_maintenance(num_types=num_types)) > 0.01).all()


def test_more_of_either_resource_is_worth_something(joint):
    optimum = joint(small()).optimum()
    assert joint(small(crew_hours=4)).optimum() > optimum + 0.01
    assert joint(small(parts=6)).optimum() > optimum + 0.01


def test_greedy_is_not_optimal(joint):
    """Neither the best of today nor the worst machine first with the strongest remedy comes near."""
    problem = joint(small())
    optimum = problem.optimum()

    def myopic(state, feasible):
        return max(feasible, key=lambda action: problem.reward(state, action))

    def worst_first(state, feasible):
        order = sorted(range(3), key=lambda arm: -state[arm])
        return max(feasible, key=lambda action: [action[arm] if state[arm] else -action[arm] for arm in order])

    assert problem.value_of(myopic) < 0.5 * optimum
    assert 0.5 * optimum < problem.value_of(worst_first) < 0.96 * optimum


def test_all_three_actions_are_needed(joint):
    optimum = joint(small()).optimum()
    for banned in (1, 2):
        assert joint(small(), banned).optimum() < optimum - 0.01


def test_small_budgets_allow_one_of_each():
    assert crew_maintenance(num_arms=1, num_types=1).budget.tolist() == [2, 3]
    assert crew_maintenance(num_arms=100).budget.tolist() == [40, 30]
    assert crew_maintenance(crew_hours=0, parts=1.5).budget.tolist() == [0, 1.5]


def test_two_states_are_enough():
    arm = crew_maintenance(num_states=2).arms[0]
    assert arm.states == ("as new", "failed")


def test_all_faults_at_once():
    with pytest.raises(ModelError) as caught:
        crew_maintenance(
            num_arms=2, num_states=1, num_types=3, crew_hours=-1, parts="many", repair_success=2, discount=1.5
        )
    faults = {fault.place: fault.message for fault in caught.value.faults}
    assert set(faults) == {"num_states", "num_types", "crew_hours", "parts", "repair_success", "discount"}
