"""Closed classes of states: sets that a chain never leaves, and where it ends up. What averages turn on.

A chain with one closed class has one long-run mean; with several, the mean depends on where the chain starts. Whether
some policy of an arm has several is hard to tell in general (Tsitsiklis, "NP-hardness of checking the unichain
condition in average cost MDPs", 2007), but two answers are quick:

    one policy      its closed classes are the strong components of its graph that have no way out       O(S^2)
    all policies    none has several if one state is met for sure whatever is done: it attracts all states that
                    lead to it, or to states attracted before, by every action                           O(S^2) a round
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
    likely = np.argsort(-positive.sum(axis=(0, 1)), kind="stable")[:MOST_TRIED]
    attracted = np.zeros((len(likely), n))
    attracted[np.arange(len(likely)), likely] = 1.0
    leads = np.moveaxis(positive, 1, 0).astype(np.float64)
    for _ in range(n):
        grown = np.maximum(attracted, np.min([attracted @ to.T > 0 for to in leads], axis=0))
        if grown.all(axis=1).any():
            return True
        if (grown == attracted).all():
            return False
        attracted = grown
    return False
