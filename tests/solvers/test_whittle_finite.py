"""Whittle indices by time to go: against backward induction, the unrolled arm, and the endless criteria."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import NotConvergedError
from evenhand.kernels import index_layers, sweep_arms
from evenhand.model import Average, Finite
from evenhand.problems import machine_replacement
from evenhand.solvers import whittle_indices

from ..conftest import mentions, slow_after
from ..oracles import whittle_layers as oracle
from ..oracles.activity_frontiers import value_frontiers

KINDS = ("dense", "sparse", "deterministic")


def random_arm(seed, num_states, kind):
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 11, size=(1, num_states, 2)) / 10
    if kind == "deterministic":
        return np.eye(num_states)[rng.integers(0, num_states, size=(1, num_states, 2))], rewards
    rows = rng.exponential(size=(1, num_states, 2, num_states))
    if kind == "sparse":
        rows *= rng.random(rows.shape) < 0.4
        rows[..., 0] += rows.sum(axis=-1) == 0
    return rows / rows.sum(axis=-1, keepdims=True), rewards


def fork():
    """State 1 leads to a place that earns 1 a step while active, or to a prize and then nothing."""
    transitions = np.eye(3)[[[0, 0], [0, 2], [2, 2]]]
    return transitions[None], np.array([[[0.0, 1.0], [0.0, 2.0], [0.0, 0.0]]])


def advantages(transitions, rewards, discount, num_steps, charge):
    """(step, state) by backward induction at one charge."""
    values, found = np.zeros(len(rewards)), []
    for _ in range(num_steps):
        each = rewards - charge * np.array([0.0, 1.0]) + discount * transitions @ values
        found.append(each[:, 1] - each[:, 0])
        values = each.max(axis=1)
    return np.array(found[::-1])


def bisected(transitions, rewards, discount, num_steps):
    """(step, state) the charge from which passive is best, by halving intervals; right for indexable arms."""
    low, high = np.full((num_steps, len(rewards)), -50.0), np.full((num_steps, len(rewards)), 50.0)
    for place in np.ndindex(*low.shape):
        for _ in range(50):
            middle = (low[place] + high[place]) / 2
            passive = advantages(transitions, rewards, discount, num_steps, middle)[place] <= 1e-12
            low[place], high[place] = (low[place], middle) if passive else (middle, high[place])
    return high


@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(KINDS),
    st.sampled_from([1.0, 0.9, 0.5, 0.0]),
)
def test_indices_against_bisection(seed, num_states, num_steps, kind, discount):
    transitions, rewards = random_arm(seed, num_states, kind)
    result = whittle_indices(transitions, rewards, Finite(num_steps, discount))
    assert result.indices.shape == (1, num_steps, num_states)
    if result.indexable[0]:
        expected = bisected(transitions[0], rewards[0], discount, num_steps)
        np.testing.assert_allclose(result.indices[0], expected, atol=1e-9)


@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(KINDS), st.sampled_from([1.0, 0.9]))
def test_verdicts_against_a_grid_of_charges(seed, num_states, kind, discount):
    """Rewards are tenths: where a state regains, it does so by more than the grid can miss, or is seen as a witness."""
    transitions, rewards = random_arm(seed, num_states, kind)
    result = whittle_indices(transitions, rewards, Finite(6, discount))
    grid = np.array([advantages(transitions[0], rewards[0], discount, 6, c) for c in np.linspace(-6, 6, 481)])
    regains = (np.maximum.accumulate(grid <= 1e-10, axis=0) & (grid > 1e-9)).any()
    assert not (regains and result.indexable[0])
    if not result.indexable[0]:
        step, state = result.regained_step[0], result.regained[0]
        low, high = (advantages(transitions[0], rewards[0], discount, 6, c)[step, state] for c in result.witnesses[0])
        assert low < 1e-10 < high
        assert result.witnesses[0, 0] < result.witnesses[0, 1]


def test_a_known_arm_that_is_not_indexable():
    """With tau steps left after this one, the advantage in state 1 is 2 - c + tau (max(-c, 0) - max(1 - c, 0)).

    This is 2 - tau - c below 0, 2 - tau + (tau - 1) c for c in [0, 1], and 2 - c beyond: it rises from 0 at tau = 2.
    """
    few = whittle_indices(*fork(), Finite(2))
    assert few.indexable[0]
    np.testing.assert_allclose(few.indices[0, :, 1], [2, 2], atol=1e-12)
    many = whittle_indices(*fork(), Finite(5))
    assert not many.indexable[0]
    assert (many.regained_step[0], many.regained[0]) == (2, 1)
    np.testing.assert_allclose(many.witnesses[0], [0, 1], atol=1e-12)
    assert mentions("step 2", "1 passive")(many.explain(0))
    assert np.isnan(many.indices).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_the_unrolled_arm(kind, discount):
    """The layers against the sweep of the arm unrolled in time: another algorithm, the same indices and verdicts."""
    verdicts = []
    for seed in range(12):
        transitions, rewards = random_arm(seed, 3, kind)
        rewards = rewards + np.random.default_rng(seed).random(rewards.shape)
        result = whittle_indices(transitions, rewards, Finite(5, discount))
        moves = np.zeros((1, 15, 2, 15))
        for step in range(4):
            moves[0, 3 * step : 3 * step + 3, :, 3 * step + 3 : 3 * step + 6] = transitions[0]
        total = float(np.sum(discount ** np.arange(5)))
        start = np.repeat([[1 / 3, 0.0]], [3, 12], axis=1)
        met = sweep_arms((moves, np.tile(rewards, (1, 5, 1)), start, np.array([15])), discount, total, 50)
        assert result.indexable[0] == (met.regained[0] < 0)
        if result.indexable[0]:
            np.testing.assert_allclose(result.indices[0], met.indices.reshape(5, 3), atol=1e-10)
        verdicts.append(result.indexable[0])
    assert any(verdicts)


@given(
    st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 4), st.sampled_from(KINDS), st.sampled_from([1.0, 0.8])
)
def test_the_frontier_is_the_optimum_at_every_charge(seed, num_states, num_steps, kind, discount):
    transitions, rewards = random_arm(seed, num_states, kind)
    initial = np.random.default_rng(seed).dirichlet(np.ones(num_states))
    frontier = value_frontiers(transitions, rewards, Finite(num_steps, discount), initial[None])
    assert frontier.uses[0] == pytest.approx(sum(discount**t for t in range(num_steps)))
    assert frontier.policies(0).shape[1] == num_steps * num_states
    for charge in np.random.default_rng(seed).normal(scale=2, size=10):
        values = np.zeros(num_states)
        for _ in range(num_steps):
            values = (rewards[0] - charge * np.array([0.0, 1.0]) + discount * transitions[0] @ values).max(axis=1)
        assert (frontier.values - charge * frontier.uses).max() == pytest.approx(initial @ values, abs=1e-12)


@pytest.mark.parametrize("seed", slow_after(2, range(4)))
def test_many_steps_lead_to_the_endless_criteria(seed):
    transitions, rewards = random_arm(seed, 4, "dense")
    for finite, endless in ((Finite(200, 0.9), 0.9), (Finite(400), Average())):
        result, limit = (whittle_indices(transitions, rewards, criterion) for criterion in (finite, endless))
        assert result.indexable[0] and limit.indexable[0]
        np.testing.assert_allclose(result.indices[0, 0], limit.indices[0], atol=1e-8)
        distances = np.abs(result.indices[0] - limit.indices[0]).max(axis=1)[[-1, -10, -40, -150]]
        assert all(far > near or near < 1e-13 for far, near in pairwise(distances))


def test_one_step_is_the_reward_difference_and_two_by_hand():
    """A machine of three ages: with one step to go r_1 - r_0; the youngest is worth the same, now or later."""
    types = machine_replacement(num_arms=2, preset="exponential-rccc").types
    gain = types.rewards[0, :, 1] - types.rewards[0, :, 0]
    indices = whittle_indices(types.transitions, types.rewards, Finite(2, 0.95)).indices[0]
    np.testing.assert_allclose(indices[1], gain, rtol=1e-12)
    np.testing.assert_allclose(indices, bisected(types.transitions[0], types.rewards[0], 0.95, 2), atol=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_the_layers_in_numpy(seed):
    sizes = np.array([2 + seed % 4, 3])
    transitions, rewards = np.zeros((2, 6, 2, 6)), np.zeros((2, 6, 2))
    for arm, n in enumerate(sizes):
        p, r = random_arm(seed + arm, n, KINDS[seed % 3])
        transitions[arm, :n, :, :n], rewards[arm, :n] = p[0], r[0]
    slow = oracle.index_layers(transitions, rewards, sizes, 0.97, 12, 100)
    fast = index_layers((transitions, rewards, sizes), 0.97, 12, 100)
    for name in slow._fields:
        np.testing.assert_allclose(getattr(slow, name), getattr(fast, name), rtol=1e-9, atol=1e-11, err_msg=name)
    assert np.isnan(slow.indices[1, :, 3:]).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_error_claimed_holds(seed):
    """Against backward induction in extended precision at the index itself: what is left of the advantage."""
    transitions, rewards = random_arm(seed, 5, "dense")
    num_steps = 300
    found = index_layers((transitions, rewards, np.array([5])), 1.0, num_steps, 100)
    moves, paid = transitions[0].astype(np.longdouble), rewards[0].astype(np.longdouble)
    for step, state in ((0, 0), (0, 4), (150, 2), (290, 1)):
        charge = np.longdouble(found.indices[0, step, state])
        left = advantages(moves, paid, np.longdouble(1), num_steps - step, charge)[0, state]
        assert abs(left) <= found.errors[0] * max(1.0, float(np.abs(found.indices).max()))


def test_ties_do_not_multiply_charges():
    """Constant rewards, and two copies of a state: all indices 0, and no end of charges that differ by rounding."""
    transitions, _ = random_arm(3, 6, "dense")
    result = whittle_indices(transitions, np.full((1, 6, 2), 0.7), Finite(300))
    assert result.indexable[0]
    np.testing.assert_allclose(result.indices, 0, atol=1e-12)


def test_too_many_charges_are_refused():
    transitions, rewards = random_arm(1, 4, "dense")
    with pytest.raises(NotConvergedError, check=mentions("arm 0")):
        whittle_indices(transitions, rewards, Finite(4), most_pivots=0)


def test_no_arms():
    assert whittle_indices(np.empty((0, 3, 2, 3)), np.empty((0, 3, 2)), Finite(4)).indices.shape == (0, 4, 3)
