"""Copies of a symmetric problem on counts, stepped together: what a learner plays against.

A network gives each copy a score for every cell (state, action). The *greedy allocation* goes through the cells by
falling score and gives each as many arms as are left in its state and as fit what is left of every resource:

    u[s, a] = min( x[s] - served so far,  min_k floor( (b_k - used_k) / d_k(s, a) ) )

The idle action's score competes with the others: once it is passed, all arms left in its state idle, and spending
less than the budget needs no output of its own. Equal scores go in the order of the cells. O(S A log(S A)) a copy,
whatever the number of arms.

One step of a copy allocates, pays the mean reward of its arms, (1 / N) sum u[s, a] r[s, a], and moves every crowd
(see `count_step`). Copies may have different numbers of arms and budgets. A step is one compiled call for all of them;
every copy draws from a counter of its own, so a result does not depend on how copies are batched.
"""

import numpy as np

from evenhand.kernels.compilation import njit
from evenhand.kernels.count_step import move_crowds
from evenhand.kernels.greedy_service import bits_at
from evenhand.kernels.priority_sampling import sample_one

SAMPLING = np.uint64(0x5851F42D4C957F2D)  # sets the draws of the allocation apart from those of the world


@njit
def serve_greedily(scores, counts, budget, usage):
    """The greedy allocation of every copy.

    Args:
        scores: (copy, state, action) the higher the sooner.
        counts: (copy, state) arms in each state.
        budget: (copy, resource) what may be used.
        usage: (state, action, resource) what one arm uses.

    Returns:
        (copy, state, action) numbers of arms, which sum to `counts` over actions.
    """
    num_actions, cells = scores.shape[2], scores.shape[1] * scores.shape[2]
    allocation = np.zeros(scores.shape, dtype=np.int64)
    order, left, room = np.empty(cells, dtype=np.int64), counts.astype(np.int64), budget.astype(np.float64)
    for e in range(len(scores)):
        # Cells by insertion sort, since they are few.
        for c in range(cells):
            score = scores[e, c // num_actions, c % num_actions]
            i = c
            while i > 0 and scores[e, order[i - 1] // num_actions, order[i - 1] % num_actions] < score:
                order[i] = order[i - 1]
                i -= 1
            order[i] = c
        for i in range(cells):
            s, a = order[i] // num_actions, order[i] % num_actions
            served = left[e, s]
            for k in range(room.shape[1]):
                need = usage[s, a, k]
                if served > 0 and need > 0:
                    served = min(served, max(np.int64(np.floor(room[e, k] / need)), 0))
            allocation[e, s, a] = served
            left[e, s] -= served
            for k in range(room.shape[1]):
                room[e, k] -= served * usage[s, a, k]
    return allocation


@njit
def _pay_and_move(transitions, rewards, allocation, counts, key):
    num_copies, num_states, num_actions = allocation.shape
    following = np.empty((num_copies, num_states), dtype=np.int64)
    earned = np.zeros(num_copies)
    for e in range(num_copies):
        for s in range(num_states):
            for a in range(num_actions):
                earned[e] += allocation[e, s, a] * rewards[s, a]
        earned[e] /= counts[e].sum()
        move_crowds(
            transitions.reshape(1, num_states, num_actions, num_states),
            allocation[e].reshape(1, num_states, num_actions),
            key,
            e,
            following[e].reshape(1, num_states),
        )
    return earned, following


@njit
def step_greedily(transitions, rewards, usage, scores, counts, budget, key):
    """One greedy step of every copy.

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
    allocation = serve_greedily(scores, counts, budget, usage)
    earned, following = _pay_and_move(transitions, rewards, allocation, counts, key)
    return allocation, earned, following


@njit
def step_sampled(transitions, rewards, usage, priorities, spend, counts, key):
    """One step of every copy by priority sampling (see `priorities`).

    Args:
        transitions: (state, action, next_state) probabilities.
        rewards: (state, action) rewards.
        usage: (state, action, resource) what one arm uses.
        priorities: (copy, state, action) in (0, 1].
        spend: (copy, resource) what may be used.
        counts: (copy, state) arms in each state.
        key: the step's key.

    Returns:
        As `step_greedily`.
    """
    allocation = np.zeros(priorities.shape, dtype=np.int64)
    for e in range(len(priorities)):
        sample_one(priorities[e], counts[e], spend[e], usage, bits_at(key ^ SAMPLING, np.uint64(e)), allocation[e])
    earned, following = _pay_and_move(transitions, rewards, allocation, counts, key)
    return allocation, earned, following
