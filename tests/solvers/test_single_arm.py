"""Single arms at weights and prices: against value iteration, and against every policy of a small arm."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import Arm, ArmTables, Average, Discounted, Finite
from evenhand.solvers import action_values

from ..theorems.product_space import random_arm


def by_value_iteration(arm, weight, prices, discount):
    """(state, action) action values, to the last digits."""
    gains = weight * arm.rewards - arm.usage @ prices
    values = np.zeros(arm.num_states)
    for _ in range(int(np.ceil(36 / (1 - discount)))):
        values = (gains + discount * arm.transitions @ values).max(axis=1)
    return gains + discount * arm.transitions @ values


def best_values(arm, weight, prices, discount):
    """(state,) the best value from every state, over all deterministic policies."""
    gains, states = weight * arm.rewards - arm.usage @ prices, np.arange(arm.num_states)
    found = []
    for choice in product(range(arm.num_actions), repeat=arm.num_states):
        matrix = np.eye(arm.num_states) - discount * arm.transitions[states, choice]
        found.append(np.linalg.solve(matrix, gains[states, choice]))
    return np.max(found, axis=0)


@given(
    seed=st.integers(0, 2**32 - 1),
    num_types=st.integers(1, 4),
    num_resources=st.integers(1, 3),
    discount=st.sampled_from([0.0, 0.3, 0.9, 0.99]),
    sparse=st.booleans(),
)
def test_ragged_arms_by_value_iteration(seed, num_types, num_resources, discount, sparse):
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, *rng.integers(1, 5, 2), num_resources, sparse) for _ in range(num_types)]
    weights, prices = rng.random(num_types) * (rng.random(num_types) < 0.8), rng.random(num_resources)
    found = action_values(ArmTables.stack(arms), weights, prices, Discounted(discount))
    for table, arm, weight in zip(found, arms, weights, strict=True):
        S, A = arm.rewards.shape
        np.testing.assert_allclose(
            table[:S, :A], by_value_iteration(arm, weight, prices, discount), atol=1e-9 / (1 - discount)
        )


@pytest.mark.parametrize("price", [0.0, 0.1, 1.0, 100.0])
def test_the_best_of_all_policies(price):
    arm = random_arm(np.random.default_rng(3), 4, 3, 1)
    found = action_values(ArmTables.stack([arm]), np.array([0.7]), np.array([price]), Discounted(0.9))[0]
    np.testing.assert_allclose(found.max(axis=1), best_values(arm, 0.7, np.array([price]), 0.9), atol=1e-10)


def test_padding_is_told_apart():
    """Actions that do not exist are never best; states that do not exist are worth nothing."""
    rng = np.random.default_rng(0)
    small, large = random_arm(rng, 1, 2, 1), random_arm(rng, 3, 4, 1)
    found = action_values(ArmTables.stack([small, large]), np.array([-1.0, 1.0]), np.zeros(1), Discounted(0.9))
    assert np.isneginf(found[0, 0, 2:]).all()
    np.testing.assert_array_equal(found[0, 1:], 0.0)
    assert np.isfinite(found[0, 0, :2]).all()
    assert np.isfinite(found[1]).all()


def test_discount_zero_is_the_step_alone():
    arm = random_arm(np.random.default_rng(1), 3, 2, 2)
    found = action_values(ArmTables.stack([arm]), np.array([2.0]), np.array([0.5, 3.0]), Discounted(0.0))[0]
    np.testing.assert_allclose(found, 2 * arm.rewards - 0.5 * arm.usage[..., 0] - 3 * arm.usage[..., 1], atol=1e-15)


def test_a_closed_form():
    """One state: acting earns 3 and costs 2 of price p; for ever the better of 1 and 3 - 2 p."""
    arm = Arm(np.ones((1, 2, 1)), [[1.0, 3.0]], [[0.0], [2.0]])
    for price in (0.0, 0.5, 1.0, 1.5):
        after = 0.5 * max(1.0, 3 - 2 * price) / 0.5
        found = action_values(ArmTables.stack([arm]), np.ones(1), np.array([price]), Discounted(0.5))
        np.testing.assert_allclose(found, [[[1 + after, 3 - 2 * price + after]]], atol=1e-14)


def test_weights_of_any_size_do_not_mix():
    """Types are solved side by side; a tiny weight next to a huge one keeps its digits."""
    arm = random_arm(np.random.default_rng(2), 3, 3, 1)
    weights = np.array([1e-20, 1.0, 1e12])
    found = action_values(ArmTables.stack([arm] * 3), weights, np.zeros(1), Discounted(0.9))
    for table, weight in zip(found, weights, strict=True):
        np.testing.assert_allclose(table / weight, found[1], rtol=1e-9)


@given(seed=st.integers(0, 10**6))
def test_the_average_by_every_policy(seed):
    """The best mean is that of the best of all policies, and the relative values satisfy Bellman's equation."""
    rng = np.random.default_rng(seed)
    arm = random_arm(rng, 3, 2, 1)
    types = ArmTables.stack([arm])
    weights, prices = np.array([rng.uniform(0.2, 2)]), np.array([rng.uniform(0, 1)])
    gains = weights[0] * arm.rewards - arm.usage @ prices
    means = []
    for policy in product(range(arm.num_actions), repeat=arm.num_states):
        rows = np.arange(arm.num_states), np.array(policy)
        system = np.vstack([arm.transitions[rows].T - np.eye(arm.num_states), np.ones(arm.num_states)])
        law = np.linalg.lstsq(system, np.append(np.zeros(arm.num_states), 1.0), rcond=None)[0]
        means.append(law @ gains[rows])
    found = action_values(types, weights, prices, Average())[0]
    best = found.max(axis=1)  # mean + h
    ahead = best - max(means)
    assert np.allclose(gains + arm.transitions @ ahead, found, atol=1e-9)


def test_a_finite_horizon_by_recursion():
    rng = np.random.default_rng(3)
    arms = [random_arm(rng, states, 2, 1) for states in (2, 3)]
    prices = rng.uniform(0, 1, (4, 1))
    found = action_values(ArmTables.stack(arms), np.array([1.0, 0.5]), prices, Finite(4, 0.8), np.array([0.0, 0.3]))
    for t, (arm, weight, pay) in enumerate(zip(arms, (1.0, 0.5), (0.0, 0.3), strict=True)):
        ahead = np.zeros(arm.num_states)
        for step in reversed(range(4)):
            gains = weight * arm.rewards - arm.usage @ prices[step] + pay * (arm.usage[..., 0] > 0)
            worth = gains + 0.8 * arm.transitions @ ahead
            assert np.allclose(found[t, step, : arm.num_states], worth)
            ahead = worth.max(axis=1)
