"""Whittle indices against the enumeration of all policies, closed forms, and exact rational arithmetic."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InvalidInputError, NotConvergedError
from evenhand.kernels import sweep_arms
from evenhand.problems import machine_replacement
from evenhand.solvers import whittle_indices

from ..conftest import crossed, mentions
from ..oracles import whittle_pivots as oracle
from ..oracles.activity_frontiers import value_frontiers
from ..oracles.exact_whittle import exact_indices


def lines_of_all_policies(transitions, rewards, discount):
    """For each of the 2^S policies its values and uses from each state: value at a charge is value - charge * use."""
    n = len(rewards)
    states = np.arange(n)
    values, uses = [], []
    for policy in product((0, 1), repeat=n):
        system = np.eye(n) - discount * transitions[states, policy]
        solved = np.linalg.solve(system, np.column_stack([rewards[states, policy], policy]))
        values.append(solved[:, 0])
        uses.append(solved[:, 1])
    return np.array(values), np.array(uses)


def optimal_advantages(transitions, rewards, discount, charges):
    """(charge, state) advantage of active, from the best of all policies."""
    values, uses = lines_of_all_policies(transitions, rewards, discount)
    best = np.array([(values - charge * uses).max(axis=0) for charge in charges])
    effect = discount * (transitions[:, 1] - transitions[:, 0])
    return rewards[:, 1] - rewards[:, 0] - np.asarray(charges)[:, None] + best @ effect.T


def all_kinks(transitions, rewards, discount):
    """Every charge at which two policies are equally good from some state, a point before and one after all."""
    values, uses = lines_of_all_policies(transitions, rewards, discount)
    found = set()
    for i, j in combinations(range(len(values)), 2):
        slope = uses[i] - uses[j]
        apart = np.abs(slope) > 1e-9
        found.update(((values[i] - values[j])[apart] / slope[apart]).tolist())
    kinks = np.array(sorted(found))
    return np.concatenate([[kinks[0] - 1], kinks, [kinks[-1] + 1]])


def enumerated(transitions, rewards, discount, tolerance=1e-9):
    """Whether the arm is indexable, and its indices: advantages are linear between neighbouring kinks."""
    charges = all_kinks(transitions, rewards, discount)
    advantages = optimal_advantages(transitions, rewards, discount, charges)
    passive_before = np.maximum.accumulate(advantages <= tolerance, axis=0)
    if (passive_before & (advantages > 2 * tolerance)).any():
        return False, None
    first = np.argmax(advantages <= tolerance, axis=0)
    before, after = (advantages[k, np.arange(len(rewards))] for k in (first - 1, first))
    share = np.clip(before / (before - after), 0, 1)
    return True, charges[first - 1] + share * (charges[first] - charges[first - 1])


def random_arms(seed, num_arms, num_states, kind="dense"):
    rng = np.random.default_rng(seed)
    shape = (num_arms, num_states, 2)
    rewards = rng.integers(0, 11, size=shape) / 10
    if kind == "deterministic":
        return np.eye(num_states)[rng.integers(0, num_states, size=shape)], rewards
    rows = rng.exponential(size=(*shape, num_states))
    if kind == "sparse":
        rows *= rng.random(rows.shape) < 0.5
        rows[..., 0] += rows.sum(axis=-1) == 0
    if kind == "multichain":
        half = num_states // 2
        rows[:, :half, :, half:] = 0
        rows[:, half:, :, :half] = 0
    return rows / rows.sum(axis=-1, keepdims=True), rewards


def fork(prize, discount=0.9):
    """From state 1, passive leads to state 0 for ever, active to state 2 for ever, with a prize on the way.

    State 0 earns 1 a step while active, state 2 nothing. So V(0) = max(0, 1 - c) / (1 - gamma), V(2) = max(0, -c) /
    (1 - gamma), and the advantage in state 1 is prize - c + gamma (V(2) - V(0)). At discount 0.9 this is
    prize - 9 - c up to charge 0, then prize - 9 + 8 c up to charge 1, then prize - c.
    """
    transitions = np.eye(3)[[[0, 0], [0, 2], [2, 2]]]
    rewards = np.array([[0.0, 1.0], [0.0, prize], [0.0, 0.0]])
    return transitions[None], rewards[None], discount


@pytest.mark.parametrize(
    ("cost", "published"),
    [("exponential", [-0.6767, 0.2923, 5.0112]), ("quadratic", [-1.0000, -0.3056, 3.4271])],
)
def test_machine_replacement(cost, published):
    types = machine_replacement(num_arms=2, operating_cost=cost).types
    result = whittle_indices(types.transitions, types.rewards, 0.95)
    assert result.indexable.all()
    assert "indexable" in result.explain(0)
    np.testing.assert_allclose(result.indices[0], published, atol=5e-5)


@pytest.mark.parametrize(("kind", "discount"), crossed(["dense", "sparse", "deterministic", "multichain"], [0.3, 0.95]))
def test_enumeration_of_all_policies(kind, discount):
    verdicts = []
    for num_states in (1, 2, 3, 4):
        transitions, rewards = random_arms(num_states, 12, num_states, kind)
        result = whittle_indices(transitions, rewards, discount)
        for arm in range(12):
            indexable, indices = enumerated(transitions[arm], rewards[arm], discount)
            assert result.indexable[arm] == indexable
            verdicts.append(indexable)
            if indexable:
                np.testing.assert_allclose(result.indices[arm], indices, atol=1e-8)
            else:
                assert np.isnan(result.indices[arm]).all()
    assert any(verdicts)


def test_both_verdicts_are_met_often():
    transitions, rewards = random_arms(0, 300, 3, "deterministic")
    result = whittle_indices(transitions, rewards, 0.95)
    expected = [enumerated(p, r, 0.95)[0] for p, r in zip(transitions, rewards, strict=True)]
    np.testing.assert_array_equal(result.indexable, expected)
    assert 5 < (~result.indexable).sum() < 150


def test_witnesses_against_non_indexability_hold():
    transitions, rewards = random_arms(0, 300, 3, "deterministic")
    result = whittle_indices(transitions, rewards, 0.95)
    for arm in np.flatnonzero(~result.indexable):
        low, high = result.witnesses[arm]
        advantages = optimal_advantages(transitions[arm], rewards[arm], 0.95, [low, high])[:, result.regained[arm]]
        assert low < high
        assert advantages[0] < 1e-10 < advantages[1]
    assert (result.regained[result.indexable] == -1).all()
    assert np.isnan(result.witnesses[result.indexable]).all()


def test_a_known_non_indexable_arm():
    result = whittle_indices(*fork(2.0))
    assert not result.indexable[0]
    assert np.isnan(result.indices).all()
    assert result.regained[0] == 1
    np.testing.assert_allclose(result.witnesses[0], [-7, 1])
    assert "state 1" in result.explain(0)
    # Active below -7, passive up to 7/8, active up to 2, then passive: the sweep meets every change.
    frontier = value_frontiers(*fork(2.0))
    np.testing.assert_allclose(frontier.charges, [-np.inf, -7, 0, 7 / 8, 1, 2])
    np.testing.assert_array_equal(frontier.switched, [-1, 1, 2, 1, 0, 1])


def test_an_advantage_that_touches_zero_from_below_leaves_the_arm_indexable():
    result = whittle_indices(*fork(1.0))
    assert result.indexable[0]
    np.testing.assert_allclose(result.indices[0], [1, -8, 0], atol=1e-12)


def test_an_advantage_that_touches_zero_from_above_does_not():
    result = whittle_indices(*fork(9.0))
    assert not result.indexable[0]
    assert result.regained[0] == 1
    np.testing.assert_allclose(result.witnesses[0], [0, 1], atol=1e-12)


def test_the_index_is_the_lower_end_of_a_range_of_ties():
    # At discount 1/2 the advantage in state 1 is -c up to 0, then 0 up to 1, then 1 - c.
    result = whittle_indices(*fork(1.0, discount=0.5))
    assert result.indexable[0]
    np.testing.assert_allclose(result.indices[0], [1, 0, 0], atol=1e-12)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9999])
def test_identical_actions_have_index_zero(discount):
    transitions, rewards = random_arms(3, 2, 5)
    transitions[:, :, 1], rewards[..., 1] = transitions[:, :, 0], rewards[..., 0]
    result = whittle_indices(transitions, rewards, discount)
    assert result.indexable.all()
    np.testing.assert_allclose(result.indices, 0, atol=1e-12)


def test_the_same_moves_give_the_reward_difference():
    transitions, rewards = random_arms(4, 3, 6)
    transitions[:, :, 1] = transitions[:, :, 0]
    result = whittle_indices(transitions, rewards, 0.9999)
    np.testing.assert_allclose(result.indices, rewards[..., 1] - rewards[..., 0], atol=1e-12)


def test_discount_zero_gives_the_reward_difference():
    transitions, rewards = random_arms(5, 3, 6)
    result = whittle_indices(transitions, rewards, 0)
    assert result.indexable.all()
    np.testing.assert_allclose(result.indices, rewards[..., 1] - rewards[..., 0], atol=1e-15)


def test_one_state():
    result = whittle_indices(np.ones((1, 1, 2, 1)), [[[0.25, 1.0]]], 0.9)
    np.testing.assert_allclose(result.indices, [[0.75]])


def test_constant_rewards():
    transitions, _ = random_arms(6, 4, 5, "sparse")
    result = whittle_indices(transitions, np.full((4, 5, 2), 3.0), 0.99)
    assert result.indexable.all()
    np.testing.assert_array_equal(result.indices, 0)


def test_copies_of_a_state_tie():
    """Two copies of each state, entered with equal chances, have the index of the original."""
    transitions, rewards = random_arms(7, 5, 4)
    doubled = np.repeat(np.repeat(transitions, 2, axis=1), 2, axis=3) / 2
    small = whittle_indices(transitions, rewards, 0.9)
    large = whittle_indices(doubled, np.repeat(rewards, 2, axis=1), 0.9)
    assert small.indexable.any()
    np.testing.assert_array_equal(small.indexable, large.indexable)
    np.testing.assert_allclose(large.indices, np.repeat(small.indices, 2, axis=1), atol=1e-12)


def test_rested_arms_have_gittins_indices():
    """Retirement: the index of a rested arm is the best ratio of rewards to time over stopping sets."""
    transitions, rewards = random_arms(8, 4, 4)
    transitions[:, :, 0], rewards[..., 0] = np.eye(4), 0
    result = whittle_indices(transitions, rewards, 0.9)
    assert result.indexable.all()
    for arm in range(4):
        for state in range(4):
            ratios = []
            for going_on in product((0, 1), repeat=4):
                keep = np.array(going_on)[:, None]
                earned = keep * np.column_stack([rewards[arm, :, 1], np.ones(4)])
                solved = np.linalg.solve(np.eye(4) - 0.9 * keep * transitions[arm, :, 1], earned)
                start = [rewards[arm, state, 1], 1.0] + 0.9 * transitions[arm, state, 1] @ solved
                ratios.append(start[0] / start[1])
            np.testing.assert_allclose(result.indices[arm, state], max(ratios), rtol=1e-12)


def solve_exactly(matrix, right):
    """Gauss-Jordan elimination in fractions."""
    n = len(matrix)
    rows = [list(a) + list(b) for a, b in zip(matrix, right, strict=True)]
    for k in range(n):
        pivot = next(i for i in range(k, n) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(n):
            if i != k:
                factor = rows[i][k]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[n:] for row in rows]


def exact_line(weights, rewards, discount, policy, state):
    """a and b of the advantage a - c b of being active in a state, if a policy is followed, in fractions."""
    n = len(rewards)
    rows = [[[Fraction(int(x), int(sum(row))) for x in row] for row in pair] for pair in weights]
    system = [[Fraction(i == j) - discount * rows[i][policy[i]][j] for j in range(n)] for i in range(n)]
    right = [[Fraction(int(rewards[i][policy[i]])), Fraction(int(policy[i]))] for i in range(n)]
    solved = solve_exactly(system, right)
    effect = [discount * (on - off) for off, on in zip(*rows[state], strict=True)]
    gain = int(rewards[state][1] - rewards[state][0])
    a = gain + sum(d * v for d, (v, _) in zip(effect, solved, strict=True))
    b = 1 + sum(d * u for d, (_, u) in zip(effect, solved, strict=True))
    return a, b


def charge_error(transitions, rewards, discount, policy, state, charge, slope):
    """How far the charge of a switch may be from a / b, to first order.

    A row x = X[s] is used as long as its residual d = x A - D[s], A = I - gamma P_policy + gamma 1 w', is a share of at
    most rho = 1e-14 of 1 + |x|_1, as seen by one probe; for all n directions together n times that may be.
    Probabilities are rounded to doubles, which adds eps |x|_1. Then x is off by d A^-1, and with the values at the
    charge, v = A^-1 (r - c active),

        b dc = da - c db = d v,      so      |dc| <= |d|_1 |v|_inf / |b|.
    """
    n = len(rewards)
    system = np.eye(n) - discount * transitions[np.arange(n), policy] + discount / n
    row = np.linalg.solve(system.T, discount * (transitions[state, 1] - transitions[state, 0]))
    own = rewards[np.arange(n), policy] - (rewards.max() + rewards.min()) / 2
    values = np.linalg.solve(system, own - charge * policy)
    residual = n * (1e-14 + np.finfo(float).eps) * (1 + np.abs(row).sum())
    return residual * max(1.0, np.abs(values).max()) / abs(slope)


@pytest.mark.parametrize("kind", ["dense", "deterministic", "multichain", "rested"])
def test_discount_near_one_against_exact_arithmetic(kind):
    """Every charge of the sweep, in fractions; only the conditioning of the arm, up to 1/(1 - gamma), is lost."""
    rng = np.random.default_rng(9)
    n, discount = 8, 1 - 2.0**-13
    for _ in range(4):
        weights = rng.integers(1, 10, size=(n, 2, n))
        if kind == "deterministic":
            weights = np.eye(n, dtype=int)[rng.integers(0, n, size=(n, 2))]
        if kind == "multichain":
            weights[:4, :, 4:] = weights[4:, :, :4] = 0
            weights[0, 1, 7] = 1
        if kind == "rested":
            weights[:, 0] = np.eye(n)
        rewards = rng.integers(0, 10, size=(n, 2))
        transitions = weights / weights.sum(axis=-1, keepdims=True)
        frontier = value_frontiers(transitions[None], rewards[None], discount)
        policies = frontier.policies(0).astype(int)
        for before, state, charge in zip(policies, frontier.switched[1:], frontier.charges[1:], strict=False):
            a, b = exact_line(weights, rewards, Fraction(discount), before, state)
            exact, slope = float(a / b), float(b)
            allowed = charge_error(transitions, rewards, discount, before, state, exact, slope)
            assert abs(charge - exact) <= allowed
            if kind == "dense":  # one chain that mixes: as good as if the discount were small
                assert allowed <= 1e-11 * max(1.0, abs(exact))


@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from(["dense", "sparse", "deterministic"]))
def test_the_frontier_is_the_optimum_at_every_charge(seed, num_states, kind):
    transitions, rewards = random_arms(seed, 1, num_states, kind)
    initial = np.random.default_rng(seed).dirichlet(np.ones(num_states))
    frontier = value_frontiers(transitions, rewards, 0.9, initial[None])
    values, uses = (x @ initial for x in lines_of_all_policies(transitions[0], rewards[0], 0.9))
    for charge in np.random.default_rng(seed).normal(scale=3, size=20):
        assert (frontier.values - charge * frontier.uses).max() == pytest.approx((values - charge * uses).max())
        vertex = np.searchsorted(frontier.charges, charge) - 1
        at_charge = frontier.values[vertex] - charge * frontier.uses[vertex]
        assert at_charge == pytest.approx((values - charge * uses).max())


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 0.95, 0.9999]))
def test_the_frontier_is_concave_and_its_slopes_are_the_charges(seed, discount):
    transitions, rewards = random_arms(seed, 2, 6, "sparse")
    frontier = value_frontiers(transitions, rewards, discount)
    for arm in range(2):
        at = frontier.vertices(arm)
        uses, values, charges = frontier.uses[at], frontier.values[at], frontier.charges[at]
        policies = frontier.policies(arm)
        assert policies[0].all() and not policies[-1].any()
        assert uses[0] == pytest.approx(1 / (1 - discount), rel=1e-11) and uses[-1] == 0
        assert (np.diff(charges) >= 0).all()
        scale = 1 / (1 - discount)
        assert (np.diff(uses) <= 1e-12 * scale).all()
        np.testing.assert_allclose(np.diff(values), charges[1:] * np.diff(uses), atol=1e-9 * scale)


def test_padding_changes_nothing():
    sizes = [2, 5, 3]
    transitions, rewards = np.full((3, 6, 2, 6), np.nan), np.full((3, 6, 2), np.nan)
    alone = []
    for arm, n in enumerate(sizes):
        p, r = random_arms(arm, 1, n)
        transitions[arm, :n], rewards[arm, :n] = 0, r[0]
        transitions[arm, :n, :, :n] = p[0]
        alone.append(whittle_indices(p, r, 0.9).indices[0])
    result = whittle_indices(transitions, rewards, 0.9, num_states=sizes)
    frontier = value_frontiers(transitions, rewards, 0.9, num_states=sizes)
    np.testing.assert_array_equal(np.diff(frontier.offsets), np.array(sizes) + 1)
    for arm, n in enumerate(sizes):
        np.testing.assert_allclose(result.indices[arm, :n], alone[arm], atol=1e-13)
        assert np.isnan(result.indices[arm, n:]).all()
        np.testing.assert_allclose(np.sort(alone[arm]), frontier.charges[frontier.vertices(arm)][1:], atol=1e-13)


@given(st.integers(0, 10_000), st.floats(-100, 100), st.floats(0.01, 100))
def test_indices_scale_with_rewards_and_ignore_constants(seed, constant, factor):
    transitions, rewards = random_arms(seed, 1, 5)
    plain = whittle_indices(transitions, rewards, 0.9)
    moved = whittle_indices(transitions, constant + factor * rewards, 0.9)
    np.testing.assert_array_equal(plain.indexable, moved.indexable)
    np.testing.assert_allclose(moved.indices, factor * plain.indices, atol=1e-10 * (factor + abs(constant)))


@pytest.mark.parametrize(
    ("kind", "num_states", "discount"),
    [("dense", 10, 0.95), ("sparse", 70, 0.99), ("deterministic", 90, 0.9999), ("multichain", 100, 0.999)],
)
def test_the_sweep_in_numpy(kind, num_states, discount):
    transitions, rewards = random_arms(11, 4, num_states, kind)
    rewards = rewards + np.random.default_rng(1).random(rewards.shape)  # without ties the order is unique
    initial = np.full((4, num_states), 1 / num_states)
    tables, time = (transitions, rewards, initial, np.full(4, num_states)), (discount, 1 / (1 - discount))
    slow, fast = oracle.sweep_arms(*tables, *time, 10 * num_states, 1e-14), sweep_arms(tables, *time, 10)
    fast = fast.widened(slow.charges.shape[1])
    for name in ("num_pivots", "switched", "regained", "status"):
        np.testing.assert_array_equal(getattr(slow, name), getattr(fast, name), name)
    for name in ("charges", "indices", "witnesses"):
        np.testing.assert_allclose(getattr(slow, name), getattr(fast, name), rtol=1e-8, atol=1e-8, err_msg=name)


def test_a_drifting_tableau_is_built_afresh():
    """Deterministic arms at a discount near 1 magnify rounding; the usual sweep is as good as a solve a pivot."""
    transitions, rewards = random_arms(12, 20, 12, "deterministic")
    rewards = rewards + np.random.default_rng(2).random(rewards.shape)
    tables = transitions, rewards, np.full((20, 12), 1 / 12), np.full(20, 12)
    usual, careful, careless = (
        sweep_arms(tables, 1 - 1e-6, 1e6, 20, (allowed,)).widened(240) for allowed in (1e-14, 0.0, 1.0)
    )
    np.testing.assert_allclose(usual.charges, careful.charges, rtol=1e-7, atol=1e-7)
    assert not np.allclose(careless.charges, careful.charges, rtol=1e-7, atol=1e-7, equal_nan=True)


def test_more_pivots_than_room():
    transitions, rewards = random_arms(13, 20, 40, "deterministic")
    frontier = value_frontiers(transitions, rewards, 0.99)
    assert np.diff(frontier.offsets).max() > 40 + 8 + 1
    assert np.diff(frontier.offsets).min() >= 41
    with pytest.raises(NotConvergedError):
        whittle_indices(transitions, rewards, 0.99, most_pivots=1)


def test_no_arms():
    result = whittle_indices(np.empty((0, 3, 2, 3)), np.empty((0, 3, 2)), 0.9)
    assert result.indices.shape == (0, 3)
    assert value_frontiers(np.empty((0, 3, 2, 3)), np.empty((0, 3, 2)), 0.9).offsets.tolist() == [0]


def test_a_discount_of_1_is_refused():
    transitions, rewards = random_arms(14, 2, 3)
    with pytest.raises(InvalidInputError, check=mentions("discount")):
        whittle_indices(transitions, rewards, 1.0)


def exact_arm(rng, certain):
    """An arm whose numbers are sixteenths: as doubles they are what they say."""
    n = int(rng.integers(2, 5))
    moves = np.eye(n)[rng.integers(n, size=(n, 2))]
    if not certain:
        moves = (moves + np.eye(n)[rng.integers(n, size=(15, n, 2))].sum(axis=0)) / 16
    return moves, rng.integers(0, 9, (n, 2)) / 8


def test_tiny_advantages_near_a_discount_of_one_are_not_passive():
    """Serving state 1 gains 6e-8 at a charge of -0.25, and much more at higher ones."""
    moves, rewards = np.eye(3)[[[1, 1], [2, 0], [1, 2]]], np.array([[0.25, 0.0], [0.625, 0.5], [0.25, 0.25]])
    found = whittle_indices(moves[None], rewards[None], 1 - 2.0**-20)
    indexable, indices = exact_indices(moves, rewards, 1 - 2.0**-20)
    assert indexable and found.indexable.all()
    assert found.indices[0] == pytest.approx(indices, rel=1e-9)


@pytest.mark.parametrize(("certain", "power"), crossed([True, False], [3, 10, 16, 20]))
def test_verdicts_are_those_of_exact_arithmetic(certain, power):
    """Also next to a discount of 1; regaining by less than TIE counts as a tie, so one side only is certain there."""
    rng, discount = np.random.default_rng(power), 1 - 2.0**-power
    for _ in range(40):
        moves, rewards = exact_arm(rng, certain)
        found = whittle_indices(moves[None], rewards[None], discount)
        indexable, indices = exact_indices(moves, rewards, discount)
        if indexable:
            assert found.indexable.all()
            assert found.indices[0] == pytest.approx(indices, rel=1e-5, abs=1e-5)
        elif power <= 16:
            assert not found.indexable.any()
