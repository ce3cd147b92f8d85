"""Closed classes, means and biases: against powers of the chain and sums over time."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.solvers import Elimination, means_and_biases, never_splits
from evenhand.solvers.closed_classes import closed_classes


def sparse_chain(seed, num_states, actions=()):
    rng = np.random.default_rng(seed)
    rows = rng.exponential(size=(num_states, *actions, num_states))
    rows *= rng.random(rows.shape) < 0.35
    rows[..., seed % num_states] += rows.sum(axis=-1) == 0
    return rows / rows.sum(axis=-1, keepdims=True)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_classes_are_closed_irreducible_and_all(seed, num_states):
    moves = sparse_chain(seed, num_states)
    classes = closed_classes(moves)
    for states in classes:
        inside = moves[np.ix_(states, states)]
        np.testing.assert_allclose(inside.sum(axis=1), 1)
        assert (np.linalg.matrix_power(np.eye(len(states)) + inside, num_states) > 0).all()
    assert len(classes) == (np.abs(np.linalg.eigvals(moves) - 1) < 1e-9).sum()


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_means_and_biases(seed, num_states):
    """The lazy chain has the same limit, without periods; the bias solves its equation and has mean 0."""
    moves, rewards = sparse_chain(seed, num_states), np.random.default_rng(seed).normal(size=num_states)
    means, biases = (found[0] for found in means_and_biases(moves[None], rewards[None]))
    limit = np.linalg.matrix_power((moves + np.eye(num_states)) / 2, 2**24)
    np.testing.assert_allclose(means, limit @ rewards, atol=1e-7)
    np.testing.assert_allclose(means + biases, rewards + moves @ biases, atol=1e-8 * (1 + np.abs(biases).max()))
    np.testing.assert_allclose(limit @ biases, 0, atol=1e-6 * (1 + np.abs(biases).max()))


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_who_never_splits_never_does(seed, num_states):
    transitions = sparse_chain(seed, num_states, (2,))
    plain = never_splits(transitions[None], np.array([num_states]))[0]
    most = max(
        len(closed_classes(transitions[np.arange(num_states), list(policy)]))
        for policy in product((0, 1), repeat=num_states)
    )
    assert not plain or most == 1


def test_who_never_splits():
    down = np.eye(5)[[[4, 0], [0, 0], [1, 0], [2, 1], [3, 2]]]
    stay = np.eye(5)[[[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]]
    np.testing.assert_array_equal(never_splits(np.stack([down, stay]), np.array([5, 5])), [True, False])


def test_elimination_agrees_on_chains_of_several_classes():
    for seed in range(400):
        moves = sparse_chain(seed, 2 + seed % 8)
        rewards = np.random.default_rng([seed, 1]).random(len(moves))
        means, _ = means_and_biases(moves[None], rewards[None])
        np.testing.assert_allclose(Elimination(moves).means(rewards), means[0], rtol=1e-9)
