import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import ModelError, TooLargeError
from evenhand.problems import heterogeneous_machine_replacement, machine_replacement

KINDS = ["linear", "quadratic", "exponential", "rccc", "random"]


def machine(**parameters):
    return machine_replacement(**parameters).arms[0]


def faults_of(**parameters):
    with pytest.raises(ModelError) as caught:
        machine_replacement(**parameters)
    return {fault.place: fault.message for fault in caught.value.faults}


@pytest.mark.parametrize(
    ("operating_cost", "num_arms", "published"),
    [
        ("exponential", 2, 14.1859),
        ("exponential", 3, 14.0793),
        ("quadratic", 2, 16.1725),
        ("quadratic", 3, 16.0969),
    ],
)
def test_optimum_of_the_paper(joint, operating_cost, num_arms, published):
    problem = machine_replacement(num_arms=num_arms, operating_cost=operating_cost)
    assert joint(problem).optimum() == pytest.approx(published, abs=5e-5)


def test_pure_reset_is_the_texts_other_reading(joint):
    assert joint(machine_replacement(num_arms=2, reset="pure")).optimum() == pytest.approx(14.67, abs=5e-3)


def test_default_machine():
    problem = machine_replacement()
    arm = problem.arms[0]
    assert (problem.num_arms, problem.num_types, problem.num_resources) == (5, 1, 1)
    assert problem.budget.tolist() == [1.0]
    assert arm.name == "machine"
    assert arm.states == ("age 1", "age 2", "age 3")
    assert arm.actions == ("operate", "replace")
    np.testing.assert_array_equal(arm.usage[..., 0], [[0, 1]] * 3)
    np.testing.assert_allclose(arm.initial, [1 / 3] * 3)
    np.testing.assert_allclose(arm.transitions[:, 0], [[0.8, 0.2, 0], [0, 0.8, 0.2], [0, 0, 1]])
    np.testing.assert_allclose(arm.transitions[:, 1], [[0.8, 0.2, 0]] * 3)
    costs = np.array([[1, 6], [math.e, 6], [math.e**2, 6]])
    np.testing.assert_allclose(arm.rewards, 1 - costs / math.e**2)


def test_pure_reset_leads_to_the_first_state():
    np.testing.assert_array_equal(machine(reset="pure").transitions[:, 1], [[1, 0, 0]] * 3)


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        # success 0.7, else deterioration with stay probability 0.6
        ("then-deteriorate", [[0.6, 0.4, 0], [0.42, 0.28 + 0.18, 0.12], [0.42, 0.28, 0.3]]),
        ("pure", [[0.7 + 0.18, 0.12, 0], [0.7, 0.18, 0.12], [0.7, 0, 0.3]]),
    ],
)
def test_a_replacement_that_may_fail(reset, expected):
    arm = machine(stay_probability=0.6, reset_probability=0.7, reset=reset)
    np.testing.assert_allclose(arm.transitions[:, 1], expected)


def test_a_replacement_that_always_fails_is_operation():
    transitions = machine(reset_probability=0.0).transitions
    np.testing.assert_array_equal(transitions[:, 1], transitions[:, 0])


@pytest.mark.parametrize("operating_cost", KINDS)
@pytest.mark.parametrize("replacement_cost", KINDS)
def test_every_pair_of_costs(operating_cost, replacement_cost):
    formulas = {
        "linear": [0, 1, 2, 3],
        "quadratic": [0, 1, 4, 9],
        "exponential": [1, math.e, math.e**2, math.e**3],
        "rccc": [2 * 9] * 4,
    }
    rewards = machine(
        num_states=4,
        operating_cost=operating_cost,
        replacement_cost=replacement_cost,
        replacement_cost_ratio=2.0,
    ).rewards
    assert rewards.min() == pytest.approx(0)
    assert rewards.max() <= 1
    if "random" not in (operating_cost, replacement_cost):
        costs = np.array([formulas[operating_cost], formulas[replacement_cost]]).T
        np.testing.assert_allclose(rewards, 1 - costs / costs.max())


def test_random_costs_follow_the_seed():
    first, again, other = (machine(operating_cost="random", replacement_cost="random", seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.rewards, again.rewards)
    assert not np.allclose(first.rewards, other.rewards)
    assert not np.allclose(first.rewards[:, 0], first.rewards[:, 1])


@pytest.mark.parametrize("preset", ["exponential-rccc", "quadratic-rccc"])
def test_presets(preset):
    named = machine_replacement(operating_cost=preset.removesuffix("-rccc"), replacement_cost="rccc")
    assert machine_replacement(preset=preset) == named


def test_a_preset_does_not_silently_win_over_other_costs():
    faults = faults_of(preset="quadratic-rccc", operating_cost="linear", replacement_cost="random")
    assert set(faults) == {"operating_cost", "replacement_cost"}
    assert "contradicts the preset 'quadratic-rccc'" in faults["operating_cost"]


def test_a_billion_machines_are_one_block():
    problem = machine_replacement(num_arms=10**9, budget=10**7)
    assert problem.num_arms == 10**9
    assert len(problem.arms) == 1


def test_all_faults_at_once():
    faults = faults_of(
        num_arms=0,
        num_states=1,
        operating_cost="quadratc",
        replacement_cost=3,
        budget=-1,
        discount=1,
        stay_probability=1.5,
        reset_probability=float("nan"),
        reset="Pure",
        replacement_cost_ratio=0,
        preset="other",
        seed=-1,
    )
    assert len(faults) == 12
    assert faults["num_arms"] == "expected at least 1, got 0"
    assert "did you mean quadratic?" in faults["operating_cost"]
    assert "-1" in faults["budget"]
    assert faults["discount"] == "expected a number from 0 to below 1, got 1"
    assert faults["stay_probability"] == "expected a number from 0 to 1, got 1.5"
    assert "got nan" in faults["reset_probability"]


@pytest.mark.parametrize("value", [True, "3", 2.0, None, [3]])
def test_whole_numbers_are_whole_numbers(value):
    assert faults_of(num_arms=value) == {"num_arms": f"expected a whole number, got {value!r}"}


@pytest.mark.parametrize("value", [float("inf"), 10**400, "1", True])
def test_budgets_are_numbers(value):
    assert set(faults_of(budget=value)) == {"budget"}


def test_exponential_costs_are_limited_by_the_range_of_doubles():
    assert "at most 700" in faults_of(num_states=701)["num_states"]
    assert np.isfinite(machine(num_states=700).rewards).all()
    assert machine(num_states=701, operating_cost="linear").num_states == 701


@given(
    num_states=st.integers(2, 8),
    stay=st.floats(0, 1),
    success=st.floats(0, 1),
    reset=st.sampled_from(["pure", "then-deteriorate"]),
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    seed=st.integers(0, 2**32),
)
def test_rewards_fill_the_unit_interval_and_wear_goes_one_way(num_states, stay, success, reset, kinds, seed):
    arm = machine(
        num_states=num_states,
        stay_probability=stay,
        reset_probability=success,
        reset=reset,
        operating_cost=kinds[0],
        replacement_cost=kinds[1],
        seed=seed,
    )
    assert arm.rewards.min() == pytest.approx(0, abs=1e-12)
    assert arm.rewards.max() <= 1
    assert (np.tril(arm.transitions[:, 0], -1) == 0).all()
    assert arm.transitions[-1, 0, -1] == 1


def test_heterogeneous_machines(fluid_prices):
    problem = heterogeneous_machine_replacement()
    assert (problem.num_arms, problem.num_types) == (100, 100)
    assert problem.budget.tolist() == [10.0]
    stay = problem.tables.transitions[:, 0, 0, 0]
    assert stay.min() >= 0.5
    assert stay.max() <= 0.95
    np.testing.assert_allclose(problem.tables.rewards.min(axis=(1, 2)), 0, atol=1e-12)
    names = {arm.name for arm in problem.arms}
    assert names == {f"machine, {kind} cost" for kind in ("linear", "quadratic", "exponential", "random")}
    assert fluid_prices(problem)[0] > 1e-3


def test_heterogeneous_machines_have_the_cost_their_name_tells():
    costs = {"linear": [0, 1, 2, 3], "quadratic": [0, 1, 4, 9], "exponential": np.exp([0, 1, 2, 3])}
    checked = 0
    for arm in heterogeneous_machine_replacement(num_arms=30, num_states=4).arms:
        kind = arm.name.removeprefix("machine, ").removesuffix(" cost")
        if kind in costs:
            largest = max(1.5 * 9, max(costs[kind]))
            np.testing.assert_allclose(arm.rewards[:, 0], 1 - np.array(costs[kind]) / largest)
            np.testing.assert_allclose(arm.rewards[:, 1], 1 - 1.5 * 9 / largest)
            checked += 1
    assert checked > 10


def test_heterogeneous_machines_follow_the_seed():
    assert heterogeneous_machine_replacement(seed=3) == heterogeneous_machine_replacement(seed=3)
    assert heterogeneous_machine_replacement(seed=3) != heterogeneous_machine_replacement(seed=4)


@pytest.mark.parametrize(("num_arms", "expected"), [(1, 1), (9, 1), (25, 2)])
def test_heterogeneous_budget(num_arms, expected):
    assert heterogeneous_machine_replacement(num_arms=num_arms).budget.tolist() == [expected]
    assert heterogeneous_machine_replacement(num_arms=num_arms, budget=0).budget.tolist() == [0]


def test_heterogeneous_faults_at_once():
    with pytest.raises(ModelError) as caught:
        heterogeneous_machine_replacement(num_arms=-2, budget="x", discount=2, num_states=0, seed=0.5)
    assert {fault.place for fault in caught.value.faults} == {
        "num_arms",
        "budget",
        "discount",
        "num_states",
        "seed",
    }
    assert caught.value.source == "heterogeneous-machine-replacement"


def test_what_does_not_fit_is_refused_before_any_work():
    with pytest.raises(TooLargeError):
        heterogeneous_machine_replacement(num_arms=10**9)
