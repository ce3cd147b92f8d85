"""The coupled problem: types, counts, budget, discount, and when two problems are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import ModelError, TooLargeError
from evenhand.model import MOST_ARMS, Arm, ArmTables, CoupledMDP, Discounted

from ..conftest import mentions


def arm(reward=1.0, usage=((0,), (1,)), num_states=2, **labels):
    transitions = np.full((num_states, len(usage), num_states), 1 / num_states)
    rewards = np.zeros((num_states, len(usage)))
    rewards[0, 0] = reward
    return Arm(transitions, rewards, usage, **labels)


def problem(arms=None, budget=(1,), discount=0.9, counts=None):
    return CoupledMDP(arms=[arm()] if arms is None else arms, budget=budget, discount=discount, counts=counts)


def faults_of(**given):
    with pytest.raises(ModelError) as caught:
        problem(**given)
    return [fault.place for fault in caught.value.faults]


def test_one_block_is_a_symmetric_problem():
    machines = problem(counts=[5])
    assert machines.is_symmetric
    assert (machines.num_arms, machines.num_types, machines.num_resources) == (5, 1, 1)
    assert machines.type_of_arm.tolist() == [0] * 5
    assert repr(machines) == "CoupledMDP(5 arms, identical, 1 resource, discount 0.9)"


def test_the_discount_follows_from_the_criterion():
    for criterion, discount in (("average", 1.0), ("finite:5", 1.0), (Discounted(0.8), 0.8)):
        assert CoupledMDP([arm()], [1], criterion=criterion).discount == discount
    assert faults_of(discount=None) == ["discount"]


def test_identical_blocks_are_one_type_and_the_order_of_arms_stays():
    blocks = [arm(1), arm(2), arm(1), arm(3), arm(2)]
    mixed = problem(blocks, counts=[2, 1, 1, 3, 1])
    assert mixed.type_of_block.tolist() == [0, 1, 0, 2, 1]
    assert mixed.type_of_arm.tolist() == [0, 0, 1, 0, 2, 2, 2, 1]
    assert mixed.type_counts.tolist() == [3, 2, 3]
    assert [kind.rewards[0, 0] for kind in mixed.types] == [1, 2, 3]
    assert not mixed.is_symmetric


def test_identical_blocks_written_separately_are_symmetric():
    assert problem([arm(), arm(), arm()]).is_symmetric


def test_the_sign_of_zero_and_labels_do_not_make_a_type():
    assert problem([arm(0.0), arm(-0.0)]).is_symmetric
    labelled = problem([arm(name="left", states=["up", "down"]), arm(name="right"), arm()])
    assert labelled.is_symmetric
    assert labelled.tables.labels[1] == ("right", (), ())


def test_arms_may_differ_in_everything_but_the_resources():
    blocks = [arm(num_states=2), arm(num_states=4), arm(usage=((0,), (1,), (2,)))]
    ragged = problem(blocks)
    assert ragged.num_types == 3
    assert list(ragged.arms) == blocks


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=8))
def test_types_by_brute_force(blocks):
    mixed = problem([arm(reward) for reward, _ in blocks], counts=[count for _, count in blocks])
    rewards = [reward for reward, count in blocks for _ in range(count)]
    first_seen = list(dict.fromkeys(rewards))
    assert mixed.type_of_arm.tolist() == [first_seen.index(reward) for reward in rewards]
    assert mixed.type_counts.tolist() == [rewards.count(reward) for reward in first_seen]
    assert mixed.num_arms == len(rewards)


def test_usage_by_action_and_by_state_and_action_are_the_same_problem():
    by_state = arm(usage=((0,), (1,)))
    by_state = Arm(by_state.transitions, by_state.rewards, [[[0], [1]], [[0], [1]]])
    assert problem([arm()]) == problem([by_state])


# Counts


def test_a_billion_arms_take_no_room():
    crowd = problem([arm(1), arm(2)], counts=[MOST_ARMS - 1, 1])
    assert crowd.num_arms == MOST_ARMS
    assert crowd.type_counts.tolist() == [MOST_ARMS - 1, 1]
    assert crowd.tables.rewards.nbytes < 1000


def test_the_table_of_arms_is_refused_when_it_would_not_fit(monkeypatch):
    monkeypatch.setattr("evenhand.checks.available_memory", lambda: 1e9)
    with pytest.raises(TooLargeError, check=mentions("1000000000 arms")):
        _ = problem(counts=[MOST_ARMS]).type_of_arm


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        ([10**12], "arms[0].count"),
        ([0], "arms[0].count"),
        ([-3], "arms[0].count"),
        ([2.5], "arms[0].count"),
        ([True], "arms[0].count"),
        (["5"], "arms[0].count"),
        ([1, 2], "counts"),
    ],
)
def test_wrong_counts(counts, fault):
    assert faults_of(counts=counts) == [fault]


def test_many_blocks_that_are_too_many_in_all():
    found = faults_of(arms=[arm(1), arm(2)], counts=[MOST_ARMS, 1])
    assert found == ["arms"]


# Budget and discount


@pytest.mark.parametrize("discount", [0, 0.0, 1e-300, 0.5, np.float32(0.5), np.nextafter(1.0, 0.0)])
def test_discounts_from_zero_to_below_one(discount):
    kept = problem(discount=discount).discount
    assert kept == discount
    assert type(kept) is float


def test_thirds_of_three_digits_are_refused():
    thirds = [[[0.333, 0.333, 0.333]] * 2] * 3
    with pytest.raises(ModelError, check=mentions(0.999)):
        Arm(thirds, [[1, 1]] * 3, [[0], [1]])


@pytest.mark.parametrize(
    "discount",
    [1, 1.0, -1e-300, 2, float("nan"), float("inf"), "0.9", None, True, [0.9], pytest.param(10**400, id="huge")],
)
def test_other_discounts_are_refused(discount):
    (found,) = faults_of(discount=discount)
    assert found.startswith("discount")


@pytest.mark.parametrize(
    ("budget", "fault"),
    [
        ([1, 2], "budget"),
        ([-1], "budget[0]"),
        ([float("nan")], "budget[0]"),
        ([float("inf")], "budget[0]"),
        ([1e13], "budget[0]"),
        (["1"], "budget[0]"),
        ([], "budget"),
        ([[1]], "budget[0]"),
        ([[1], [1, 2]], "budget[0]"),
        (None, "budget[0]"),
    ],
)
def test_wrong_budgets(budget, fault):
    assert faults_of(budget=budget)[0].startswith(fault)


def test_a_budget_may_be_zero_or_a_single_number():
    assert problem(budget=[0]).budget.tolist() == [0.0]
    assert problem(budget=2).budget.tolist() == [2.0]


def test_rounding_does_not_forbid_what_fits_the_budget():
    tenths = problem(budget=[0.3])
    assert tenths.budget[0] < 0.1 + 0.1 + 0.1
    assert tenths.budget_limit[0] >= 0.1 + 0.1 + 0.1
    assert tenths.budget_limit[0] < 0.3 + 1e-8


def test_no_arms():
    assert "arms" in faults_of(arms=[])


def test_arms_that_disagree_in_their_resources():
    found = faults_of(arms=[arm(), arm(usage=((0, 0), (1, 1)))])
    assert found == ["arms[1].usage"]


def test_faults_of_arms_budget_discount_and_counts_come_together():
    tables = ArmTables.stack([arm(1), arm(2)])
    rewards = np.full_like(tables.rewards, np.nan)
    faulty = ArmTables(tables.transitions, rewards, tables.usage, tables.initial, tables.num_states, tables.num_actions)
    places = {fault.split(":")[0] for fault in faults_of(arms=faulty, budget=[1, 1], discount=1, counts=[0, 1])}
    assert {"arms[0].rewards[0][0]", "arms[1].rewards[0][0]", "budget", "discount", "arms[0].count"} <= places


# Sameness


def test_equal_problems_have_equal_signatures_and_hashes():
    one, other = problem([arm(1), arm(2)], counts=[3, 4]), problem([arm(1), arm(2)], counts=[3, 4])
    assert one == other
    assert (one.signature, hash(one)) == (other.signature, hash(other))
    assert len({one, other}) == 1


@pytest.mark.parametrize(
    "changed",
    [
        problem([arm(1), arm(2)], counts=[3, 5]),
        problem([arm(2), arm(1)], counts=[3, 4]),
        problem([arm(1), arm(2)], counts=[3, 4], budget=[1 + 1e-12]),
        problem([arm(1), arm(2)], counts=[3, 4], discount=0.9 + 1e-12),
        problem([arm(1), arm(2 + 1e-12)], counts=[3, 4]),
    ],
)
def test_any_changed_number_changes_the_signature(changed):
    assert changed.signature != problem([arm(1), arm(2)], counts=[3, 4]).signature


def test_labels_matter_to_equality_and_not_to_the_signature():
    plain, named = problem([arm()]), problem([arm(name="machine")])
    assert plain.signature == named.signature
    assert plain != named
    assert plain != "a problem"


def test_a_problem_is_frozen():
    fixed = problem(counts=[2])
    for array in (fixed.budget, fixed.counts, fixed.type_of_arm, fixed.type_counts, fixed.budget_limit):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7
