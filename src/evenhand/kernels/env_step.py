"""Copies of a symmetric problem on counts, stepped together: what a learner plays against.

A network gives each copy a score for every cell (state, action). The *greedy allocation* goes through the cells by
falling score and gives each as many arms as are left in its state and as fit what is left of every resource:

    u[s, a] = min( x[s] - served so far,  min_k floor( (b_k - used_k) / d_k(s, a) ) )

The idle action's score competes with the others: once it is passed, all arms left in its state idle, and spending
less than the budget needs no output of its own. Equal scores go in the order of the cells. O(S A log(S A)) a copy,
whatever the number of arms.

One step of a copy allocates, pays the mean reward of its arms, (1 / N) sum u[s, a] r[s, a], and moves every crowd
(see `count_step`). Copies may have different numbers of arms and budgets. `step_copies` is one compiled call for all of
them; every copy draws from a counter of its own, so a result does not depend on how copies are batched.
"""

import numpy as np

from evenhand.kernels.threads import can_compile
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


def serve_greedily_fast(scores: Floats, counts: Ints, budget: Floats, usage: Floats) -> Ints:
    """`serve_greedily`, compiled: the same allocation."""
    if not can_compile():
        return serve_greedily(scores, counts, budget, usage)
    from evenhand.kernels import compiled_copies

    return np.asarray(compiled_copies.serve_greedily(scores, counts, budget, usage), dtype=np.int64)


def step_copies_fast(
    transitions: Floats, rewards: Floats, usage: Floats, scores: Floats, counts: Ints, budget: Floats, key: np.uint64
) -> tuple[Ints, Floats, Ints]:
    """One greedy step of every copy, in one compiled call.

    Args:
        transitions: (state, action, next_state) probabilities.
        rewards: (state, action) rewards.
        usage: (state, action, resource) what one arm uses.
        scores: (copy, state, action) the higher the sooner.
        counts: (copy, state) arms in each state.
        budget: (copy, resource) what may be used.
        key: the step's key.

    Returns:
        The (copy, state, action) allocation, the (copy,) mean reward of the arms, and the (copy, state) next counts.
    """
    from evenhand.kernels import compiled_copies

    return compiled_copies.step_greedily(transitions, rewards, usage, scores, counts, budget, key)  # type: ignore[no-any-return]


def step_sampled_fast(
    transitions: Floats,
    rewards: Floats,
    usage: Floats,
    priorities: Floats,
    spend: Floats,
    counts: Ints,
    key: np.uint64,
) -> tuple[Ints, Floats, Ints]:
    """One step of every copy by priority sampling (see `priorities`), in one compiled call.

    Args:
        transitions: (state, action, next_state) probabilities.
        rewards: (state, action) rewards.
        usage: (state, action, resource) what one arm uses.
        priorities: (copy, state, action) in (0, 1].
        spend: (copy, resource) what may be used.
        counts: (copy, state) arms in each state.
        key: the step's key.

    Returns:
        As `step_copies_fast`.
    """
    from evenhand.kernels import compiled_copies

    return compiled_copies.step_sampled(transitions, rewards, usage, priorities, spend, counts, key)  # type: ignore[no-any-return]
