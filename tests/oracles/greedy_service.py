"""NumPy versions of the compiled choices: greedy service by rank, and uniform assignment within a state."""

import numpy as np

from evenhand.kernels import bits_at, grid, uniforms_at
from evenhand.typing import Floats, Indices, Ints


def serve_by_rank(
    type_of_arm: Indices,
    ranks: Indices,
    usage: Floats,
    idle: Indices,
    limit: Floats,
    states: Indices,
    key: np.uint64,
    stop: bool,
    shuffle: bool,
    drawn: Indices | None = None,
    drawn_ranks: Indices | None = None,
) -> Indices:
    """The greedy choice by rank, in NumPy.

    Args:
        type_of_arm: (arm,) types.
        ranks: (type, state, action) rank of each cell, 0 first, -1 never.
        usage: (type, state, action, resource) usage.
        idle: (type, state) what the others do.
        limit: (resource,) the budget.
        states: (episode, arm) current states.
        key: where equal ranks get their order from.
        stop: whether stopping competes.
        shuffle: whether equal ranks are in random order; else the first arm comes first.
        drawn: (episode, arm) actions drawn beforehand, or none.
        drawn_ranks: (type, state, action) ranks of cells whose action was drawn, on one scale with `ranks`.

    Returns:
        (episode, arm) actions.
    """
    num_episodes, num_arms = states.shape
    num_actions = ranks.shape[2]
    # Phase 1: every candidate's rank, (episode, arm and action).
    rank = ranks[type_of_arm, states]
    if drawn is not None and drawn_ranks is not None:
        rank = np.where(drawn[:, :, None] == np.arange(num_actions), drawn_ranks[type_of_arm, states], rank)
    rank = rank.reshape(num_episodes, -1)
    bits = _order_bits(key, num_episodes, num_arms * num_actions, shuffle)
    if stop:
        stop_bits = bits_at(key, grid(0, num_episodes, 1) + np.uint64(num_episodes * num_arms * num_actions))
        # Candidates behind the one that stands for stopping are never served.
        rank = np.where(bits < stop_bits, rank, -1)
    # Phase 2: candidates in their order, those never served last.
    order = np.lexsort((bits, np.where(rank < 0, np.iinfo(np.int32).max, rank)), axis=-1)
    actions = idle[type_of_arm, states]
    served = np.zeros((num_episodes, num_arms), dtype=np.bool_)
    left = np.repeat(limit[None], num_episodes, axis=0)
    episodes = np.arange(num_episodes)
    ranked = ranks >= 0 if drawn_ranks is None else (ranks >= 0) | (drawn_ranks >= 0)
    # The least that any candidate uses: with less than that left, nobody else fits.
    least = usage[ranked].min(axis=0, initial=np.inf)
    # Phase 3: place by place, all episodes at once.
    for place in range(int((rank >= 0).sum(axis=1).max(initial=0))):
        arms, choice = np.divmod(order[:, place], num_actions)
        need = usage[type_of_arm[arms], states[episodes, arms], choice]
        fits = (rank[episodes, order[:, place]] >= 0) & ~served[episodes, arms] & (need <= left).all(axis=1)
        rows = episodes[fits]
        actions[rows, arms[fits]] = choice[fits]
        served[rows, arms[fits]] = True
        left[rows] -= need[fits]
        if len(rows) and (left < least).any(axis=1).all():  # nobody else fits
            break
    return actions.astype(np.int32)


def _order_bits(
    key: np.uint64, rows: int, columns: int, shuffle: bool
) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    places = grid(0, rows, columns)
    return bits_at(key, places) if shuffle else places


def assign_uniformly(type_of_arm: Indices, states: Indices, allocation: Ints, key: np.uint64) -> Indices:
    """Who within a state gets which action, drawn uniformly, in NumPy.

    Args:
        type_of_arm: (arm,) types.
        states: (episode, arm) current states.
        allocation: (episode, type, state, action) how many arms get each action.
        key: the draw.

    Returns:
        (episode, arm) actions.
    """
    num_episodes, num_arms = states.shape
    uniforms = uniforms_at(key, grid(0, num_episodes, num_arms))
    left = allocation.copy()
    actions = np.empty(states.shape, dtype=np.int32)
    episodes = np.arange(num_episodes)
    for arm in range(num_arms):
        cell = left[episodes, type_of_arm[arm], states[:, arm]]
        sums = np.cumsum(cell, axis=1)
        # How many running sums the point has passed is the action it falls on.
        choice = (uniforms[:, arm, None] * sums[:, -1:] >= sums).sum(axis=1)
        actions[:, arm] = choice
        left[episodes, type_of_arm[arm], states[:, arm], choice] -= 1
    return actions
