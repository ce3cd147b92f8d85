"""What keeps an arm at its best, against all of its policies: they are best if and only if they keep to it."""

from itertools import product

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicable
from evenhand.solvers.resting import at_rest, keeping

FACTOR = 0.9


def case_of(seed):
    """An arm of whose rewards many are tied, two or three states and actions; some of its moves are certain."""
    rng = np.random.default_rng([seed, 77])
    states, actions = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    moves = rng.dirichlet(np.ones(states), (states, actions))
    certain = rng.random((states, actions)) < 0.5
    moves[certain] = np.eye(states)[rng.integers(0, states, certain.sum())]
    worth = rng.integers(-4, 5, states) / 4
    rewards = worth[:, None] - FACTOR * moves @ worth - rng.integers(0, 2, (states, actions))
    usage = [[0.0], *[[float(rng.integers(0, 2))] for _ in range(actions - 1)]]
    first = np.eye(states)[rng.integers(states)] if rng.random() < 0.5 else rng.dirichlet(np.ones(states))
    return eh.CoupledMDP([eh.Arm(moves, rewards, usage, first)], [1], FACTOR)


def met_by(moves, first, choices):
    """(state,) where a policy can come."""
    seen = first > 0
    for _ in range(len(seen)):
        seen = seen | (moves[np.arange(len(seen)), choices][seen] > 0).any(axis=0)
    return seen


def in_the_end(chain):
    """(state, state) shares of time in the long run."""
    power = 0.5 * np.eye(len(chain)) + 0.5 * chain  # without periods
    for _ in range(40):
        power = power @ power
        power /= power.sum(axis=1, keepdims=True)  # else rounding doubles each time
    return power


@pytest.mark.parametrize("seed", range(30))
def test_a_policy_is_best_if_and_only_if_it_keeps_to_what_keeps(seed):
    problem = case_of(seed)
    moves, rewards, first = (getattr(problem.types, key)[0] for key in ("transitions", "rewards", "initial"))
    kept = keeping(problem.types, problem.affordable, problem.criterion, np.array([0]))
    assert kept.pairs.shape == (1, 1, *rewards.shape)
    values, keeps = [], []
    for choices in product(range(rewards.shape[1]), repeat=len(first)):
        chain, states = moves[np.arange(len(first)), choices], np.arange(len(first))
        values.append(first @ np.linalg.solve(np.eye(len(first)) - FACTOR * chain, rewards[states, choices]))
        keeps.append(kept.pairs[0, 0][states, choices][met_by(moves, first, np.array(choices))].all())
    assert (np.array(values) >= max(values) - 1e-9).tolist() == keeps


@pytest.mark.parametrize("seed", range(12))
def test_the_same_step_by_step(seed):
    problem = case_of(seed).under("finite:2")
    moves, rewards, first = (getattr(problem.types, key)[0] for key in ("transitions", "rewards", "initial"))
    kept = keeping(problem.types, problem.affordable, problem.criterion, np.array([0])).pairs[:, 0]
    states, values, keeps = np.arange(len(first)), [], []
    for now, later in product(product(range(rewards.shape[1]), repeat=len(first)), repeat=2):
        following = first @ moves[states, now]
        values.append(first @ rewards[states, now] + FACTOR * following @ rewards[states, later])
        keeps.append(kept[0][states, now][first > 0].all() and kept[1][states, later][following > 0].all())
    assert (np.array(values) >= max(values) - 1e-9).tolist() == keeps


@pytest.mark.parametrize("seed", range(30))
def test_who_keeps_to_it_has_the_best_mean_and_can_do_so_without_service_where_it_is_said(seed):
    problem = case_of(seed).under("average")
    moves, rewards, first = (getattr(problem.types, key)[0] for key in ("transitions", "rewards", "initial"))
    means = {}
    for choices in product(range(rewards.shape[1]), repeat=len(first)):
        means[choices] = first @ in_the_end(moves[np.arange(len(first)), choices]) @ rewards[range(len(first)), choices]
    best, states = max(means.values()), np.arange(len(first))
    served = problem.types.served[0]
    idle_is_best = max(mean for choices, mean in means.items() if not served[states, choices].any()) >= best - 1e-9
    for free in (False, True):
        try:
            kept = keeping(problem.types, problem.affordable, problem.criterion, np.array([0]), free=free)
        except NotApplicable:  # it may depend on the start, or on where it rests
            assert not free or not idle_is_best or len(set(np.round(list(means.values()), 9))) > 1
            continue
        inside = {
            choices: kept.pairs[0, 0][states, choices][met_by(moves, first, np.array(choices))].all()
            for choices in means
        }
        assert any(inside.values())
        assert all(means[choices] >= best - 1e-9 for choices, keeps in inside.items() if keeps)
        if free:
            assert idle_is_best


def test_only_types_that_can_lose_and_cannot_gain_are_at_rest():
    moves = [[[0.5, 0.5]] * 2] * 2
    arms = [eh.Arm(moves, [[0, x], [0, 0]], [[0], [1]]) for x in (-1.0, 0.0, 1.0)]
    still, best = at_rest(eh.CoupledMDP(arms, [1], FACTOR))
    assert still.tolist() == [True, False, False]
    assert best[:2].tolist() == [0, 0]
    assert not at_rest(eh.CoupledMDP(arms[1:], [1], FACTOR))[0].any()
