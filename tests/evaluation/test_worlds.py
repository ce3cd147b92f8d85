"""A policy in many worlds: the batch against one world at a time by another road, and playing against exact values."""

import numpy as np
import pytest
from numba import get_num_threads, set_num_threads

from evenhand import Arm, CoupledMDP, solve
from evenhand.errors import InvalidInput
from evenhand.evaluation import tables
from evenhand.evaluation import worlds as many
from evenhand.evaluation.exact import exact_values
from evenhand.evaluation.worlds import Worlds, values_in_worlds
from evenhand.model.composite import BySteps, Mixture
from evenhand.policies import random_feasible, whittle
from evenhand.problems import random_coupled
from evenhand.reductions.joint import Joint, JointTable

from ..conftest import mentions


def some_worlds(problem, number=5, seed=0):
    """Worlds around the model: its rows, with noise."""
    rng, rows = np.random.default_rng(seed), problem.tables.transitions
    drawn = rng.dirichlet(np.ones(rows.shape[-1]), (number, *rows.shape[:3]))
    # Padding stays empty, and where a block has fewer states so do its rows.
    real = (rows.sum(axis=0) > 0)[None] if len(rows) == 1 else rows[None] > 0
    mixed = np.where(real, 0.5 * rows + 0.5 * drawn, 0.0)
    sums = mixed.sum(axis=-1, keepdims=True)
    blocks = np.arange(len(rows))
    return Worlds(problem, mixed / np.where(sums > 0, sums, 1.0), blocks)


def one_by_one(policy, worlds):
    """(draw, unit) values by the road for a single problem."""
    found = []
    for draw in range(len(worlds)):
        world = worlds.world(draw)
        own = Joint(world).lift(policy.probabilities) if isinstance(policy, JointTable) else policy
        found.append(exact_values(own, world).values)
    return np.stack(found)


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:6"])
def test_laws_on_counts_are_weighed_as_in_single_worlds(criterion):
    problem = random_coupled(num_arms=4, num_types=2, seed=3).under(criterion)
    worlds = some_worlds(problem)
    for policy in (whittle(problem), random_feasible(problem), solve(problem, "utilitarian").policy):
        found = values_in_worlds(policy, worlds)
        assert found.exact
        assert found.by_type
        parts = policy.parts if isinstance(policy, Mixture) else (policy,)
        shares = policy.shares if isinstance(policy, Mixture) else np.ones(1)
        expected = sum(share * one_by_one(part, worlds) for share, part in zip(shares, parts, strict=True))
        assert np.allclose(found.values, expected, rtol=1e-8)


def test_tables_of_joint_states_are_weighed_as_in_single_worlds():
    small = Arm([[[0.6, 0.4], [0.9, 0.1]], [[0.2, 0.8], [0.7, 0.3]]], rewards=[[1, 0.5], [0, 0]], usage=[[0], [1]])
    other = random_coupled(num_arms=1, seed=5).arms[0]
    problem = CoupledMDP([small, other], budget=[max(1.0, other.usage.max())], discount=0.9)
    policy = solve(problem, "gini:2", "joint").policy
    part = policy.parts[0] if isinstance(policy, Mixture) else policy
    assert isinstance(part, JointTable)
    worlds = some_worlds(problem)
    found = values_in_worlds(part, worlds)
    assert not found.by_type
    assert np.allclose(found.values, one_by_one(part, worlds), rtol=1e-9)


def test_a_policy_by_steps_is_weighed_step_by_step():
    problem = random_coupled(num_arms=3, seed=2).under("finite:4")
    policy = solve(problem, "utilitarian").policy
    assert isinstance(policy, BySteps)
    worlds = some_worlds(problem)
    assert np.allclose(values_in_worlds(policy, worlds).values, one_by_one(policy, worlds), rtol=1e-10)


@pytest.mark.parametrize("criterion", ["discounted", "finite:12"])
def test_played_values_are_the_exact_ones_but_for_chance(criterion, monkeypatch):
    problem = random_coupled(num_arms=6, num_types=2, seed=4, discount=0.9).under(criterion)
    worlds, policy = some_worlds(problem, 8), whittle(problem)
    exact = values_in_worlds(policy, worlds).values
    monkeypatch.setattr(tables, "MOST_STATES", 0)
    monkeypatch.setattr(many, "ARM_STEPS", 4e5)
    played = values_in_worlds(policy, worlds)
    errors = played.returns.std(axis=1, ddof=1) / np.sqrt(played.returns.shape[1]) + 1e-12 * np.abs(exact)
    strange = (played.values - exact) / errors
    assert not played.exact
    assert np.abs(strange).max() < 4.5
    assert np.square(strange).mean() < 2.2
    monkeypatch.setattr(many, "_control", lambda *_: None)
    plain = values_in_worlds(policy, worlds)
    noise = plain.returns.std(axis=1, ddof=1)
    assert np.abs((plain.values - exact) / (noise / np.sqrt(plain.returns.shape[1]))).max() < 4.5
    if criterion == "discounted":
        assert played.returns.std(axis=1, ddof=1).mean() < 0.7 * noise.mean()


def test_the_same_seed_gives_the_same_numbers_whatever_the_threads(monkeypatch):
    monkeypatch.setattr(tables, "MOST_STATES", 0)
    monkeypatch.setattr(many, "ARM_STEPS", 2.1e6)  # enough for compiled code
    problem = random_coupled(num_arms=8, num_types=2, seed=6, discount=0.8)
    worlds, before, found = some_worlds(problem, 10), get_num_threads(), []
    try:
        for number in (1, before):
            set_num_threads(number)
            found.append(values_in_worlds(random_feasible(problem), worlds, seed=3).returns)
    finally:
        set_num_threads(before)
    assert np.array_equal(*found)


def test_arms_of_one_type_whose_records_differ_are_told_apart():
    arm = random_coupled(num_arms=1, seed=1).arms[0]
    problem = CoupledMDP([arm, arm], budget=[1], discount=0.9, counts=[1, 2])
    apart = some_worlds(problem, 3)
    assert apart.tells_apart
    found = values_in_worlds(random_feasible(problem), apart)
    assert not found.by_type
    assert found.values.shape == (3, 3)
    together = Worlds(problem, apart.transitions, np.zeros(2, dtype=np.int64))
    assert not together.tells_apart
    assert values_in_worlds(random_feasible(problem), together).values.shape == (3, 1)


def test_groups_are_weighed_as_they_are():
    first, second = random_coupled(num_arms=2, num_types=2, seed=8).arms
    problem = CoupledMDP([first, second, first], [1], 0.9, [1, 1, 2], groups=["a", "a", "b"], over="groups")
    worlds = Worlds(problem, some_worlds(problem, 3).transitions, np.array([0, 1, 0]))
    found = values_in_worlds(whittle(problem), worlds)
    assert found.values.shape == (3, 3)  # types are cut at groups
    assert np.allclose(found.values, one_by_one(whittle(problem), worlds))


def test_worlds_of_another_shape_are_refused():
    problem = random_coupled(num_arms=2, seed=1)
    with pytest.raises(InvalidInput):
        Worlds(problem, np.zeros((0, *problem.tables.transitions.shape)), np.zeros(1, dtype=np.int64))
    with pytest.raises(InvalidInput, check=mentions("transitions")):
        Worlds(problem, np.zeros((2, 1, 2, 2, 2)), np.zeros(1, dtype=np.int64))
