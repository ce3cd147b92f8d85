"""Whittle indices of averages: against the enumeration of all policies, the limit of discounts, and by hand."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import NotApplicableError
from evenhand.kernels import sweep_arms
from evenhand.model import Average
from evenhand.problems import heterogeneous_machine_replacement, machine_replacement
from evenhand.solvers import whittle_indices

from ..conftest import mentions, slow_after
from ..oracles import whittle_pivots as oracle
from ..oracles.activity_frontiers import value_frontiers

KINDS = ("dense", "sparse", "deterministic", "free")


def random_arm(seed, num_states, kind):
    """One arm. But for "free", every policy comes back to state 0: dense rows lead there, others to lower states."""
    rng = np.random.default_rng(seed)
    shape = (num_states, 2, num_states)
    rewards = rng.integers(0, 11, size=shape[:2]) / 10
    rows = rng.exponential(size=shape)
    if kind != "dense":
        rows *= rng.random(shape) < 0.4
    if kind in ("sparse", "deterministic"):
        rows[1:] *= np.tril(np.ones(shape[::2]), -1)[1:, None]
        rows[1:, :, 0] += rows[1:].sum(axis=-1) == 0
    rows[..., -1] += rows.sum(axis=-1) == 0
    if kind == "deterministic":
        rows = np.eye(num_states)[rows.argmax(axis=-1)]
    return (rows / rows.sum(axis=-1, keepdims=True))[None], rewards[None]


def num_closed(moves):
    """How often 1 is an eigenvalue of a chain."""
    return int((np.abs(np.linalg.eigvals(moves) - 1) < 1e-9).sum())


def all_policies(transitions):
    n = len(transitions)
    return [(np.array(p), transitions[np.arange(n), p]) for p in product((0, 1), repeat=n)]


def lines_of_all_policies(transitions, rewards):
    """(policy, state) a and b of the advantages a - c b in terms of each policy's bias, by a bordered system."""
    n = len(rewards)
    lines, policies = [], []
    for policy, moves in all_policies(transitions):
        if num_closed(moves) > 1:  # its bias is not a single one; some other policy is as good
            continue
        system = np.zeros((n + 1, n + 1))
        system[:n, :n], system[:n, n], system[n, 0] = np.eye(n) - moves, 1, 1
        right = np.zeros((n + 1, 2))
        right[:n] = np.column_stack([rewards[np.arange(n), policy], policy])
        bias = np.linalg.solve(system, right)[:n]
        effect = (transitions[:, 1] - transitions[:, 0]) @ bias
        lines.append((rewards[:, 1] - rewards[:, 0] + effect[:, 0], 1 + effect[:, 1]))
        policies.append(policy)
    return np.array(lines), np.array(policies)


def optimal_advantages(lines, policies, charge):
    """(state,) advantages of the policy whose own advantages approve of all it does."""
    advantages = lines[:, 0] - charge * lines[:, 1]
    wrong = np.where(policies == 1, -advantages, advantages).max(axis=1)
    best = int(np.argmin(wrong))
    assert wrong[best] < 1e-9
    return advantages[best]


def enumerated(transitions, rewards, tolerance=1e-8):
    """Whether the arm is indexable, and its indices, from all charges at which some advantage of a policy is 0."""
    lines, policies = lines_of_all_policies(transitions, rewards)
    steep = np.abs(lines[:, 1]) > 1e-9
    zeros = np.unique(np.round((lines[:, 0] / np.where(steep, lines[:, 1], 1.0))[steep], 12))
    charges = np.concatenate([[zeros[0] - 1], zeros, [zeros[-1] + 1]])
    advantages = np.array([optimal_advantages(lines, policies, charge) for charge in charges])
    passive = advantages <= tolerance
    if (np.maximum.accumulate(passive, axis=0) & (advantages > 2 * tolerance)).any():
        return False, None
    return True, charges[np.argmax(passive, axis=0)]


@given(st.integers(0, 10_000), st.integers(1, 6), st.sampled_from(KINDS[:3]))
def test_verdicts_and_indices_against_all_policies(seed, num_states, kind):
    transitions, rewards = random_arm(seed, num_states, kind)
    result = whittle_indices(transitions, rewards, Average())
    indexable, indices = enumerated(transitions[0], rewards[0])
    assert not result.refused
    assert result.indexable[0] == indexable
    if indexable:
        np.testing.assert_allclose(result.indices[0], indices, rtol=1e-7, atol=1e-7)


def test_both_verdicts_occur():
    """Arms that are not indexable are found as such, and their witnesses hold."""
    found = 0
    for seed in range(80):
        transitions, rewards = random_arm(seed, 5, "deterministic")
        result = whittle_indices(transitions, rewards, Average())
        assert result.indexable[0] == enumerated(transitions[0], rewards[0])[0]
        if not result.indexable[0]:
            lines, policies = lines_of_all_policies(transitions[0], rewards[0])
            low, high = (optimal_advantages(lines, policies, c)[result.regained[0]] for c in result.witnesses[0])
            assert low < 1e-9 < high
            found += 1
    assert 0 < found < 40


def bisected(transitions, rewards, state):
    """The charge at which both actions are equally good, by halving an interval."""
    lines, policies = lines_of_all_policies(transitions, rewards)
    low, high = -100.0, 100.0
    while high - low > 1e-11:
        middle = (low + high) / 2
        if optimal_advantages(lines, policies, middle)[state] > 0:
            low = middle
        else:
            high = middle
    return high


@pytest.mark.parametrize("seed", range(5))
def test_bisection(seed):
    transitions, rewards = random_arm(seed, 4, "dense")
    result = whittle_indices(transitions, rewards, Average())
    assert result.indexable[0]
    np.testing.assert_allclose(
        result.indices[0], [bisected(transitions[0], rewards[0], s) for s in range(4)], atol=1e-10
    )


@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(KINDS))
def test_the_limit_of_discounted_indices(seed, num_states, kind):
    """The distance falls like 1 - discount. Rewards are drawn from a continuum: no advantage stays 0 by chance."""
    transitions, rewards = random_arm(seed, num_states, kind)
    rewards = rewards + np.random.default_rng(seed).random(rewards.shape)
    limit = whittle_indices(transitions, rewards, Average())
    far, near = (whittle_indices(transitions, rewards, 1 - gap) for gap in (1e-4, 1e-6))
    if limit.refused:
        assert any(num_closed(moves) > 1 for _, moves in all_policies(transitions[0]))
        return
    assert limit.indexable[0] == near.indexable[0]
    if limit.indexable[0] and far.indexable[0]:
        distances = [np.abs(found.indices - limit.indices).max() for found in (far, near)]
        assert distances[1] <= distances[0] / 10 + 1e-7 * (1 + np.abs(limit.indices).max())


@pytest.mark.parametrize("seed", range(40))
def test_the_sweep_in_numpy(seed):
    transitions, rewards = random_arm(seed, 2 + seed % 5, KINDS[seed % 3])
    found = whittle_indices(transitions, rewards, Average())
    if not found.indexable[0]:
        pytest.skip("not indexable")
    number = rewards.shape[1]
    slow = oracle.sweep_arms(transitions, rewards, np.zeros((1, number)), np.array([number]), 1.0, 1.0, 900, 1e-14)
    np.testing.assert_allclose(slow.indices, found.indices, rtol=1e-9, atol=1e-9)


def test_large_arms_agree_in_blocks():
    rng = np.random.default_rng(0)
    transitions, rewards = rng.dirichlet(np.full(90, 0.05), size=(2, 90, 2)), rng.random((2, 90, 2))
    tables = transitions, rewards, np.zeros((2, 90)), np.full(2, 90)
    slow, fast = oracle.sweep_arms(*tables, 1.0, 1.0, 900, 1e-14), sweep_arms(tables, 1.0, 1.0, 10).widened(900)
    np.testing.assert_array_equal(slow.switched, fast.switched)
    np.testing.assert_allclose(slow.charges, fast.charges, rtol=1e-8, atol=1e-8)


def test_machines():
    """Of three ages. At the index of the oldest, and with the others' below it, running on and replacing are equal."""
    types = machine_replacement(num_arms=2, preset="exponential-rccc").types
    indices = whittle_indices(types.transitions, types.rewards, Average()).indices[0]
    near = whittle_indices(types.transitions, types.rewards, 1 - 1e-9).indices[0]
    np.testing.assert_allclose(indices, near, rtol=1e-7)
    np.testing.assert_allclose(indices, [bisected(types.transitions[0], types.rewards[0], s) for s in range(3)])


def test_the_same_moves_give_the_reward_difference():
    transitions, rewards = random_arm(4, 6, "dense")
    transitions[:, :, 1] = transitions[:, :, 0]
    result = whittle_indices(transitions, rewards, Average())
    np.testing.assert_allclose(result.indices, rewards[..., 1] - rewards[..., 0], atol=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from(KINDS[:3]))
def test_the_frontier_is_the_best_mean_at_every_charge(seed, num_states, kind):
    transitions, rewards = random_arm(seed, num_states, kind)
    frontier = value_frontiers(transitions, rewards, Average())
    assert frontier.uses[0] == pytest.approx(1, rel=1e-12) and frontier.uses[-1] == 0
    drop = np.diff(frontier.uses)
    np.testing.assert_allclose(np.diff(frontier.values), frontier.charges[1:] * drop, atol=1e-9)
    means = []
    for policy, moves in all_policies(transitions[0]):
        law = np.linalg.matrix_power((moves + np.eye(num_states)) / 2, 2**20)[0]
        means.append((law @ rewards[0, np.arange(num_states), policy], law @ policy))
    values, uses = np.array(means).T
    for charge in np.random.default_rng(seed).normal(scale=2, size=10):
        assert (frontier.values - charge * frontier.uses).max() == pytest.approx((values - charge * uses).max())


class TestSeveralClosedClasses:
    def test_an_arm_in_two_halves_is_refused(self):
        whole, halves = random_arm(1, 4, "dense")[0], random_arm(2, 4, "dense")[0]
        halves[:, :2, :, 2:] = halves[:, 2:, :, :2] = 0
        halves /= halves.sum(axis=-1, keepdims=True)
        rewards = np.random.default_rng(0).random((2, 4, 2))
        result = whittle_indices(np.concatenate([whole, halves]), rewards, Average())
        assert result.indexable.tolist() == [True, False]
        assert list(result.refused) == [1]
        assert mentions("states 0", 1, 2, 3, "states 2", "near 1")(result.explain(1))
        assert np.isnan(result.indices[1]).all()
        alone = whittle_indices(whole, rewards[:1], Average())
        np.testing.assert_allclose(result.indices[0], alone.indices[0], atol=1e-13)
        with pytest.raises(NotApplicableError, check=mentions("arm 1")):
            value_frontiers(np.concatenate([whole, halves]), rewards, Average())

    def test_a_rested_arm_is_refused(self):
        transitions, rewards = random_arm(3, 3, "dense")
        transitions[:, :, 0] = np.eye(3)
        result = whittle_indices(transitions, rewards, Average())
        assert "stays in state" in result.explain(0)

    def test_an_arm_that_falls_apart_at_one_charge_only(self):
        """A machine works (2), wears (1.5), is broken (0.5) and stays so; mending leads back. Passive: a step down.

        Always mending what is worn earns 7/4 - c/2. At c = 5/2 that is as good as a broken machine; then nobody mends.
        """
        transitions = np.eye(3)[[[[1, 0], [2, 0], [2, 0]]]]
        rewards = np.array([[[2.0, 2.0], [1.5, 1.5], [0.5, 0.5]]])
        result = whittle_indices(transitions, rewards, Average())
        assert result.indexable[0]
        np.testing.assert_allclose(result.indices[0, 1:], [2.5, 2.5])
        near = whittle_indices(transitions, rewards, 1 - 1e-6)
        np.testing.assert_allclose(result.indices, near.indices, atol=1e-4)

    def test_machines_that_all_differ_have_the_limits_as_indices(self):
        types = heterogeneous_machine_replacement(num_arms=30).types
        found, near = (whittle_indices(types.transitions, types.rewards, c) for c in (Average(), 1 - 1e-7))
        assert not found.refused and found.indexable.all()
        np.testing.assert_allclose(found.indices, near.indices, rtol=1e-4)

    def test_policies_that_are_not_met_do_no_harm(self):
        """Activity keeps the arm in state 0, passivity in state 1; but state 0 is the first to become passive."""
        transitions = np.array([[[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.5]]]])
        rewards = np.array([[[1.0, 0.0], [0.0, 1.0]]])
        result = whittle_indices(transitions, rewards, Average())
        assert num_closed(transitions[0, [0, 1], [1, 0]]) == 2
        assert result.indexable[0]
        near = whittle_indices(transitions, rewards, 1 - 1e-8)
        np.testing.assert_allclose(result.indices, near.indices, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("seed", slow_after(10, range(20)))
    def test_accepted_arms_solve_the_optimality_equation(self, seed):
        """Just below each index active is best, just above it passive, by value iteration."""
        transitions, rewards = random_arm(seed, 4, "free")
        result = whittle_indices(transitions, rewards, Average())
        if not result.indexable[0]:
            return
        moves = 0.5 * transitions[0] + 0.5 * np.eye(4)[:, None]  # lazy: as good, and without periods
        sides = np.array([-1, 1])
        charges = result.indices[0][:, None] + 0.02 * sides  # (state, side), all of them iterated at once
        paid, values = rewards[0] - charges[..., None, None] * np.array([0, 1]), np.zeros((4, 2, 4))
        for _ in range(4000):
            each = paid + np.tensordot(values, moves, axes=(2, 2))
            values = each.max(axis=3) - each.max(axis=3).min(axis=2, keepdims=True)
        for state in range(4):
            assert (sides * (each[state, :, state, 1] - each[state, :, state, 0]) < 1e-8).all()
