import numpy as np
import pytest

from evenhand.errors import ModelError
from evenhand.problems import health_outreach


@pytest.mark.parametrize(
    ("num_states", "states", "actions", "time"),
    [
        (2, ("engaged", "lapsed"), ("wait", "call"), [0, 1]),
        (3, ("engaged", "wavering", "lapsed"), ("wait", "call", "visit"), [0, 1, 3]),
    ],
)
def test_groups(num_states, states, actions, time):
    problem = health_outreach(num_states=num_states)
    assert (problem.num_arms, problem.num_types) == (100, 3)
    assert problem.counts.tolist() == [34, 33, 33]
    assert problem.budget.tolist() == [10]
    assert [arm.name for arm in problem.arms] == ["group 1", "group 2", "group 3"]
    for arm in problem.arms:
        assert (arm.states, arm.actions) == (states, actions)
        np.testing.assert_array_equal(arm.usage[..., 0], [time] * num_states)
        np.testing.assert_array_equal(arm.rewards.T, [np.linspace(1, 0, num_states)] * len(actions))


@pytest.mark.parametrize("num_states", [2, 3])
def test_contacts_help_and_better_states_stay_better(num_states):
    """Rows are ordered stochastically: by contact from wait to visit, and by state from lapsed to engaged."""
    reach = np.cumsum(health_outreach(num_arms=500, num_groups=500, num_states=num_states).tables.transitions, axis=-1)
    assert (np.diff(reach, axis=2) >= -1e-12).all()
    assert (np.diff(reach, axis=1) <= 1e-12).all()
    assert (reach[:, 1:, 1, :-1] > reach[:, 1:, 0, :-1]).any(axis=-1).all()


def test_contacts_mix_drift_and_landing():
    """What a call does to the wavering tells how often it lands; the lapsed pick up half as often."""
    for arm in health_outreach(num_groups=3).arms:
        wait, call, visit = arm.transitions[:, 0], arm.transitions[:, 1], arm.transitions[:, 2]
        lands = 1 - call[1, 2] / wait[1, 2]
        assert 0.2 <= lands <= 0.5
        np.testing.assert_allclose(call[0], (1 - lands) * wait[0] + lands * np.array([1, 0, 0]))
        np.testing.assert_allclose(call[1], (1 - lands) * wait[1] + lands * np.array([1, 0, 0]))
        np.testing.assert_allclose(call[2], (1 - lands / 2) * wait[2] + lands / 2 * np.array([0, 1, 0]))
        won_back = visit[2, 0]
        assert 0.7 <= won_back <= 0.9
        np.testing.assert_allclose(visit, (1 - won_back) * wait + won_back * np.array([1, 0, 0]))


@pytest.mark.parametrize("num_states", [2, 3])
def test_worker_time_is_scarce(fluid_prices, num_states):
    assert fluid_prices(health_outreach(num_states=num_states))[0] > 0.1


def test_an_optimal_worker_needs_every_kind_of_contact(joint):
    problem = health_outreach(num_arms=3, num_groups=1, budget=3)
    optimum = joint(problem).optimum()
    for banned in (1, 2):
        assert joint(problem, banned).optimum() < optimum - 1e-3


def test_the_seed_makes_the_groups():
    assert health_outreach(seed=1) == health_outreach(seed=1)
    assert health_outreach(seed=1) != health_outreach(seed=2)


@pytest.mark.parametrize(("num_states", "expected"), [(2, 1), (3, 3)])
def test_a_small_programme_can_afford_one_contact(num_states, expected):
    assert health_outreach(num_arms=3, num_states=num_states).budget.tolist() == [expected]


def test_all_faults_at_once():
    with pytest.raises(ModelError) as caught:
        health_outreach(num_arms=2, budget=-1, discount=1.0, num_states=4, num_groups=3, seed=-1)
    faults = {fault.place: fault.message for fault in caught.value.faults}
    assert set(faults) == {"budget", "discount", "num_states", "num_groups", "seed"}
    assert faults["num_states"] == "expected one of 2, 3, got 4"
