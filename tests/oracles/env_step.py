"""Greedy allocation of copies in NumPy (`evenhand.kernels.env_step`)."""

import numpy as np

from evenhand.typing import Floats, Ints


def serve_greedily(scores: Floats, counts: Ints, budget: Floats, usage: Floats) -> Ints:
    """The greedy allocation, in NumPy.

    Args:
        scores: (copy, state, action) the higher the sooner.
        counts: (copy, state) arms in each state.
        budget: (copy, resource) what may be used.
        usage: (state, action, resource) what one arm uses.

    Returns:
        (copy, state, action) numbers of arms, which sum to `counts` over actions.
    """
    copies, num_actions = np.arange(len(scores)), scores.shape[2]
    order = np.argsort(-scores.reshape(len(scores), -1), axis=1, kind="stable")
    left, room = counts.copy(), budget.copy()
    allocation = np.zeros(scores.shape, dtype=np.int64)
    for column in order.T:
        state, action = np.divmod(column, num_actions)
        need = usage[state, action]
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.where(need > 0, np.floor(room / need), np.inf).min(axis=1)
        fits = np.maximum(fits, 0.0)  # rounding may leave a little less than nothing
        served = np.minimum(left[copies, state], fits).astype(np.int64)
        allocation[copies, state, action] = served
        left[copies, state] -= served
        room -= served[:, None] * need
    return allocation
