"""Closed classes of states: sets that a chain never leaves, and where it ends up. What averages turn on.

A chain with one closed class has one long-run mean; with several, the mean depends on where the chain starts. Whether
some policy of an arm has several is hard to tell in general (Tsitsiklis, "NP-hardness of checking the unichain
condition in average cost MDPs", 2007), but two answers are quick:

    one policy      its closed classes are the strong components of its graph that have no way out       O(S^2)
    all policies    none has several if one state is met for sure whatever is done: it attracts all states that
                    lead to it, or to states attracted before, by every action                           O(S^2) a round

The mean g and the bias h of a chain with rewards r, for any number of classes. Let W have in the row of a state of a
closed class C the uniform law w_C over C, in other rows 0. Then A = I - P + W is regular, and A y = r gives w_C.y = the
mean of C, since the stationary law of C annihilates I - P. So, by solves with A alone,

    g = A^-1 W A^-1 r,      z = A^-1 (r - g),      h = z - A^-1 W A^-1 z        O(S^3 log S) a chain with finding C.
"""

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from evenhand.typing import Bools, Floats, Ints

MOST_TRIED = 8
"""States of an arm that are tried as the one that is always met."""


def closed_classes(moves: Floats) -> list[Ints]:
    """The closed classes of a chain, each as its states in order.

    Args:
        moves: (state, next_state) probabilities.
    """
    graph = csr_matrix(moves > 0)
    number, label = connected_components(graph, connection="strong")
    # A class with an edge out of it is not closed.
    rows, columns = graph.nonzero()
    open_ones = np.unique(label[rows[label[rows] != label[columns]]])
    closed = [np.flatnonzero(label == c) for c in range(number) if c not in set(open_ones.tolist())]
    return sorted(closed, key=lambda states: int(states[0]))


def never_splits(transitions: Floats, num_states: Ints) -> Bools:
    """(arm,) whether it is plain that no policy of the arm has several closed classes.

    Args:
        transitions: (arm, state, action, next_state) probabilities.
        num_states: (arm,) how many states are real.
    """
    # Quick test for all arms at once: one state that every action of every state may lead to next.
    positive = transitions > 0
    padding = np.arange(transitions.shape[1]) >= num_states[:, None]
    direct = (positive | padding[:, :, None, None]).all(axis=(1, 2)) & ~padding
    plain = np.asarray(direct.any(axis=1))
    for arm in np.flatnonzero(~plain):
        n = num_states[arm]
        plain[arm] = _attracts_all(positive[arm, :n, :, :n])
    return plain


def _attracts_all(positive: Bools) -> bool:
    """Whether one of the likeliest states is met whatever is done, from everywhere."""
    n = len(positive)
    # The states that most pairs lead to are the likeliest to be met for sure.
    likely = np.argsort(-positive.sum(axis=(0, 1)), kind="stable")[:MOST_TRIED]
    attracted = np.zeros((len(likely), n))
    attracted[np.arange(len(likely)), likely] = 1.0
    leads = np.moveaxis(positive, 1, 0).astype(np.float64)
    for _ in range(n):
        # Attracted is who may get there next by every action, so no policy can avoid it for ever.
        grown = np.maximum(attracted, np.min([attracted @ to.T > 0 for to in leads], axis=0))
        if grown.all(axis=1).any():
            return True
        if (grown == attracted).all():
            return False
        attracted = grown
    return False


def means_and_biases(moves: Floats, rewards: Floats) -> tuple[Floats, Floats]:
    """(chain, state) the long-run mean from each state, and the bias: what is gained on top of it on the way.

    Args:
        moves: (chain, state, next_state) probabilities; rows of 0 are states for themselves.
        rewards: (chain, state) rewards.
    """
    homes = _uniform_on_classes(moves)
    systems = np.eye(moves.shape[1]) - moves + homes

    def limit(values: Floats) -> Floats:
        """The expectation in the long run."""
        return solve(np.einsum("csj,cj->cs", homes, solve(values)))

    def solve(right: Floats) -> Floats:
        return np.asarray(np.linalg.solve(systems, right[..., None])[..., 0])

    means = limit(rewards)
    relative = solve(rewards - means)
    return means, relative - limit(relative)


def _uniform_on_classes(moves: Floats) -> Floats:
    """(chain, state, next_state) for states of a closed class the uniform law over it, else 0."""
    n = moves.shape[1]
    reached = ((moves > 0) | np.eye(n, dtype=np.bool_)).astype(np.float32)
    for _ in range(max(n - 1, 1).bit_length()):  # paths of twice the length
        reached = (reached @ reached > 0).astype(np.float32)
    both: Bools = reached.astype(np.bool_)
    recurrent = np.asarray((~both | np.swapaxes(both, 1, 2)).all(axis=2))
    law = both / both.sum(axis=2, keepdims=True)
    return np.where(recurrent[:, :, None], law, 0.0)
