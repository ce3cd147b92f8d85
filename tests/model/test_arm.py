"""One arm and many arms: what is accepted, what is refused and how, and the tables of padded arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InvalidInputError, ModelError
from evenhand.model import Arm, ArmTables

from ..conftest import mentions

SMALL = {
    "transitions": [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [0.9, 0.1]]],
    "rewards": [[1.0, 0.5], [0.0, -0.5]],
    "usage": [[0], [1]],
}


def small(**changes):
    return Arm(**{**SMALL, **changes})


def faults_of(**changes):
    with pytest.raises(ModelError) as caught:
        small(**changes)
    return [fault.place for fault in caught.value.faults]


def random_arm(rng, num_states, num_actions, num_resources=1):
    transitions = rng.dirichlet(np.ones(num_states), size=(num_states, num_actions))
    transitions *= rng.random(transitions.shape) < 0.7  # some next states are impossible
    transitions[..., 0] += transitions.sum(axis=-1) == 0
    transitions /= transitions.sum(axis=-1, keepdims=True)
    usage = rng.integers(0, 3, (num_states, num_actions, num_resources)).astype(float)
    usage[np.arange(num_states), rng.integers(0, num_actions, num_states)] = 0
    return Arm(transitions, rng.normal(size=(num_states, num_actions)), usage, rng.dirichlet(np.ones(num_states)))


def test_lists_become_frozen_arrays():
    arm = small(name="machine", states=["good", "bad"], actions=["keep", "replace"])
    assert (arm.num_states, arm.num_actions) == (2, 2)
    assert arm.transitions.dtype == arm.rewards.dtype == np.float64
    assert arm.states == ("good", "bad")
    for array in (arm.transitions, arm.rewards, arm.usage, arm.initial):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_callers_array_stays_its_own():
    rewards = np.array(SMALL["rewards"])
    arm = small(rewards=rewards)
    rewards[0, 0] = 99
    assert arm.rewards[0, 0] == 1.0


def test_initial_is_uniform_when_absent():
    assert small().initial.tolist() == [0.5, 0.5]
    assert small(initial=[1, 0]).initial.tolist() == [1.0, 0.0]


def test_usage_by_action_is_usage_in_every_state():
    by_action = small(usage=[[0, 0], [1, 2]])
    assert by_action.usage.shape == (2, 2, 2)
    assert by_action == small(usage=[[[0, 0], [1, 2]], [[0, 0], [1, 2]]])


def test_the_idle_action_may_differ_from_state_to_state():
    arm = small(usage=[[[0], [1]], [[2], [0]]])
    assert ArmTables.stack([arm]).idle.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"transitions": [[[0.8, 0.17], [1, 0]], [[0, 1], [0.9, 0.1]]]},
            "transitions[0][0]",
        ),
        (
            {"transitions": [[[1.5, -0.5], [1, 0]], [[0, 1], [0.9, 0.1]]]},
            "transitions[0][0][1]",
        ),
        ({"rewards": [[1, float("nan")], [0, 0]]}, "rewards[0][1]"),
        ({"rewards": [[1, 1e13], [0, 0]]}, "rewards[0][1]"),
        ({"rewards": [[1, "two"], [0, 0]]}, "rewards[0][1]"),
        ({"rewards": [[1, True], [0, 0]]}, "rewards[0][1]"),
        ({"rewards": 3}, "rewards"),
        ({"rewards": []}, "rewards"),
        ({"rewards": [[1, 2], [3, 4], [5, 6]]}, "rewards"),
        ({"initial": [0.5, 0.4]}, "initial"),
        ({"usage": [[0], [-1]]}, "usage[1][0]"),
        ({"usage": [[1], [1]]}, "usage"),
        (
            {"usage": [[[0], [1]], [[1], [1]]]},
            "usage[1]",
        ),
        ({"states": ["one"]}, "states"),
        ({"actions": ["a", "a"]}, "actions"),
        ({"states": [1, 2]}, "states"),
        ({"name": 7}, "name"),
    ],
)
def test_each_fault_is_reported_alone(changes, fault):
    assert faults_of(**changes) == [fault]


def test_the_odd_row_out_is_named():
    found = faults_of(transitions=np.full((3, 2, 3), 1 / 3), rewards=[[0, 0], [1, 2, 3], [0, 0]])
    assert [fault.partition(":")[0] for fault in found] == ["rewards[1]"]


def test_transitions_are_square():
    found = faults_of(transitions=[[[1, 0, 0], [1, 0, 0]], [[0, 1, 0], [1, 0, 0]]])
    assert found == ["transitions"]


def test_lists_of_another_depth():
    found = faults_of(transitions=[[0.5, 0.5], [0, 1]], rewards=[1, 0], usage=[[0], [1]])
    assert found == [*(f"transitions[{i}][{j}]" for i in range(2) for j in range(2)), "rewards[0]", "rewards[1]"]
    found = faults_of(rewards=[[[1, 2], [1, 2]], [[1, 2], [1, 2]]])
    assert found == [f"rewards[{i}][{j}]" for i in range(2) for j in range(2)]


def test_axes_in_another_order_are_one_fault():
    worn, new = np.eye(3), np.eye(3)[[0, 0, 0]]
    with pytest.raises(ModelError, check=mentions("(state, action, next state)")):
        Arm(np.stack([worn, new]), np.zeros((3, 2)), [[0], [1]])
    with pytest.raises(ModelError, check=lambda error: len(error.faults) == 1):
        Arm(np.stack([worn, new]), np.zeros((3, 2)), [[0], [1]])
    assert Arm(np.stack([worn, new]).transpose(1, 0, 2), np.zeros((3, 2)), [[0], [1]]).num_states == 3


def test_numbers_of_numpy_are_shown_as_numbers():
    with pytest.raises(ModelError, check=lambda error: "np." not in str(error)):
        Arm(np.full((2, 2, 2), 0.5), np.zeros(2), [[0], [1]])


def test_all_faults_at_once():
    found = faults_of(
        transitions=[[[0.5, 0.4], [1, 0]], [[0, 1], [2, -1]]],
        rewards=[[1, None], [float("inf"), 0]],
        usage=[[3], [1]],
        initial=[1],
        states=["a", "a"],
        name=None,
    )
    places = {fault.split(":")[0] for fault in found}
    expected = {"transitions[0][0]", "transitions[1][1][1]", "rewards[0][1]", "rewards[1][0]"}
    assert places == expected | {"usage", "initial", "states", "name"}


def test_faults_beside_a_number_that_is_not_finite_are_reported_too():
    nan = float("nan")
    found = faults_of(
        transitions=[[[nan, 0.5], [1, -0.5]], [[0.5, 0.4], [0, 1]]],
        usage=[[[0], [nan]], [[0], [-1]]],
        initial=[nan, -1],
    )
    places = {fault.split(":")[0] for fault in found}
    in_transitions = {"transitions[0][0][0]", "transitions[0][1][1]", "transitions[1][0]"}
    assert places == in_transitions | {"usage[0][1][0]", "usage[1][1][0]", "initial[0]", "initial[1]"}


def test_a_thousand_faults_of_one_array_are_summed_up():
    found = faults_of(transitions=np.full((2, 2, 2), np.nan), rewards=np.full((2, 2), np.inf))
    assert len(found) == 12
    rng = np.random.default_rng(0)
    with pytest.raises(ModelError) as caught:
        small(transitions=rng.random((40, 2, 40)), rewards=np.zeros((40, 2)))
    assert [fault.stands_for for fault in caught.value.faults] == [1] * 10 + [70]


def test_a_ragged_row_is_reported_without_its_consequences():
    ragged = [[[0.5, 0.5], [1, 0, 0]], [[0, 1], [1, 0]]]
    with pytest.raises(ModelError) as caught:
        small(transitions=ragged, states=["new", "worn", "bad"])
    assert [fault.place for fault in caught.value.faults] == ["transitions[0][1]"]
    with pytest.raises(ModelError, check=mentions("states", 3, 2)):
        small(states=["new", "worn", "bad"])


def test_equality_is_of_numbers_and_labels():
    assert small() == small()
    assert small() != small(name="other")
    assert small() != small(states=["a", "b"])
    assert small() != small(rewards=[[1, 0.5], [0, -0.25]])
    assert small() != "an arm"


# Tables


def test_stack_pads_with_zeros_and_valid_marks_real_entries():
    rng = np.random.default_rng(1)
    sizes = [(2, 3), (4, 1), (3, 2)]
    arms = [random_arm(rng, *size) for size in sizes]
    tables = ArmTables.stack(arms)
    assert tables.transitions.shape == (3, 4, 3, 4)
    for i, (s, a) in enumerate(sizes):
        expected = np.zeros((4, 3), dtype=bool)
        expected[:s, :a] = True
        np.testing.assert_array_equal(tables.valid[i], expected)
        assert not tables.transitions[i][~expected].any()
        assert not tables.rewards[i][~expected].any()
        assert not tables.usage[i][~expected].any()
        assert not tables.transitions[i, :, :, s:].any()
        assert not tables.initial[i, s:].any()


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=5), st.integers(0, 2**32))
def test_tables_are_a_sequence_of_the_arms(sizes, seed):
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, *size, num_resources=2) for size in sizes]
    tables = ArmTables.stack(arms)
    assert len(tables) == len(arms)
    assert list(tables) == arms
    assert tables[-1] == arms[-1]
    assert tables[1:] == arms[1:]
    with pytest.raises(IndexError):
        tables[len(arms)]
    rows = rng.permutation(len(arms))
    assert list(tables.select(rows)) == [arms[i] for i in rows]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4), st.integers(0, 2**32))
def test_idle_is_the_first_free_action(sizes, seed):
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, *size, num_resources=2) for size in sizes]
    idle = ArmTables.stack(arms).idle
    for i, arm in enumerate(arms):
        for state in range(arm.num_states):
            free = [action for action in range(arm.num_actions) if not arm.usage[state, action].any()]
            assert idle[i, state] == free[0]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=4), st.integers(0, 2**32))
def test_cumulative_draws_only_possible_states_with_their_probabilities(sizes, seed):
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, *size) for size in sizes]
    tables = ArmTables.stack(arms)
    for i, arm in enumerate(arms):
        rows = [(arm.transitions[s, a], tables.cumulative[i, s, a]) for s, a in np.ndindex(arm.rewards.shape)]
        for probabilities, sums in [*rows, (arm.initial, tables.cumulative_initial[i])]:
            s = arm.num_states
            steps = np.diff(sums[:s], prepend=0.0)
            np.testing.assert_allclose(steps, probabilities, atol=1e-8)
            largest_draw = np.nextafter(1.0, 0.0)
            for draw in (0.0, *sums[sums < 1], largest_draw):
                state = int((sums <= draw).sum())
                assert probabilities[state] > 0


def test_cumulative_closes_a_row_that_rounds_below_one():
    row = [0.1] * 10 + [0.0]  # in doubles the running sum ends at 0.9999999999999999
    arm = Arm([[row]] * 11, [[0.0]] * 11, [[0]])
    sums = ArmTables.stack([arm]).cumulative[0, 0, 0]
    assert sums[8] < 1
    assert sums[9] == sums[10] == 1.0


def test_fingerprints_ignore_labels_and_the_sign_of_zero():
    arms = [
        small(rewards=[[1, 0.0], [0, 0]]),
        small(rewards=[[1, -0.0], [0, 0]], name="named", states=["a", "b"]),
        small(rewards=[[1, 5e-324], [0, 0]]),
    ]
    first, second, third = ArmTables.stack(arms).digests
    assert first == second != third


def test_fingerprints_tell_padding_from_states_that_do_nothing():
    """An arm with one state, and one with a second state of zeros wherever padding would be."""
    one = Arm([[[1.0]]], [[0.0]], [[0]])
    two = Arm([[[1.0, 0.0]], [[1.0, 0.0]]], [[0.0], [0.0]], [[0]], [1.0, 0.0])
    first, second = ArmTables.stack([one, two]).digests
    assert first != second


def test_arms_of_different_resources_do_not_stack():
    with pytest.raises(InvalidInputError, check=mentions("resources")):
        ArmTables.stack([small(), small(usage=[[0, 0], [1, 1]])])


def test_tables_from_arrays_name_the_faulty_arm():
    tables = ArmTables.stack([small(), small(), small()])
    rewards = tables.rewards.copy()
    rewards[2, 1, 0] = np.nan
    usage = tables.usage.copy()
    usage[1] = 1
    faulty = ArmTables(tables.transitions, rewards, usage, tables.initial, tables.num_states, tables.num_actions)
    assert [fault.place for fault in faulty.find_faults().found] == ["arms[1].usage", "arms[2].rewards[1][0]"]
    assert not tables.find_faults()
