"""Compiled kernels for copies of a problem; mathematics and NumPy twins are in env_step.py and priorities.py."""

import numpy as np

from evenhand.kernels.compiled import bits_at, move_crowds
from evenhand.kernels.compiled_priorities import sample_one
from evenhand.kernels.jit import njit

SAMPLING = np.uint64(0x5851F42D4C957F2D)  # sets the draws of the allocation apart from those of the world


@njit(cache=True)
def _serve_one(scores, counts, budget, usage, order, left, room, out):
    """One copy's greedy allocation: cells by insertion sort, since they are few."""
    num_states, num_actions = scores.shape
    cells = num_states * num_actions
    for c in range(cells):
        score = scores[c // num_actions, c % num_actions]
        i = c
        while i > 0 and scores[order[i - 1] // num_actions, order[i - 1] % num_actions] < score:
            order[i] = order[i - 1]
            i -= 1
        order[i] = c
    for s in range(num_states):
        left[s] = counts[s]
    for k in range(len(room)):
        room[k] = budget[k]
    for i in range(cells):
        s, a = order[i] // num_actions, order[i] % num_actions
        served = left[s]
        for k in range(len(room)):
            need = usage[s, a, k]
            if served > 0 and need > 0:
                served = min(served, max(np.int64(np.floor(room[k] / need)), 0))
        out[s, a] = served
        left[s] -= served
        for k in range(len(room)):
            room[k] -= served * usage[s, a, k]


@njit(cache=True)
def serve_greedily(scores, counts, budget, usage):
    """The greedy allocation of every copy (env_step.serve_greedily)."""
    allocation = np.zeros(scores.shape, dtype=np.int64)
    order = np.empty(scores.shape[1] * scores.shape[2], dtype=np.int64)
    left = np.empty(counts.shape[1], dtype=np.int64)
    room = np.empty(budget.shape[1])
    for e in range(len(scores)):
        _serve_one(scores[e], counts[e], budget[e], usage, order, left, room, allocation[e])
    return allocation


@njit(cache=True)
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


@njit(cache=True)
def step_greedily(transitions, rewards, usage, scores, counts, budget, key):
    """Allocate, pay, move (env_step.step_copies_fast)."""
    allocation = serve_greedily(scores, counts, budget, usage)
    earned, following = _pay_and_move(transitions, rewards, allocation, counts, key)
    return allocation, earned, following


@njit(cache=True)
def step_sampled(transitions, rewards, usage, priorities, spend, counts, key):
    """Sample the allocation, pay, move (env_step.step_sampled_fast)."""
    allocation = np.zeros(priorities.shape, dtype=np.int64)
    for e in range(len(priorities)):
        sample_one(priorities[e], counts[e], spend[e], usage, bits_at(key ^ SAMPLING, np.uint64(e)), allocation[e])
    earned, following = _pay_and_move(transitions, rewards, allocation, counts, key)
    return allocation, earned, following
