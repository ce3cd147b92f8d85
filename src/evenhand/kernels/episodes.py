"""Whole episodes of policies that serve by rank, in one compiled loop.

    s'[e, n] = #{j : u[e, n] >= F(j | s, a)},     G[e, n] += weight * r(s, a),     served[e, n] += weight if d(s, a) > 0

F are the closed running sums of a transition row (ArmTables.cumulative), u a counter's uniforms (`randomness`), and the
actions a those of `greedy_service`, with the policy's keys of each step. O(episodes * steps * arms).

`play` follows every step. `play_changes` goes from change to change (`simulation.events`): at every step each arm
*rings* with the largest probability of leaving its state, and the steps until the first arm rings are drawn at once.

Episodes are independent: blocks of them are played by threads, and results do not depend on how many there are.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import config, njit

from evenhand.kernels.greedy_service import serve, uniform_at
from evenhand.typing import Bools, Floats, Indices

BLOCK = 8
"""Episodes that a thread plays at a time."""


class Dynamics(NamedTuple):
    """Tables by which arms move and earn."""

    rows: Indices
    """(arm,) row of each arm in `cumulative` and `rewards`."""

    starts: Indices
    """(episode,) first row of its scenario, which is added to `rows`."""

    cumulative: Floats
    """(row, state, action, next_state) closed running sums."""

    rewards: Floats
    """(table, row, state, action) what is summed."""

    serves: Bools
    """(type, state, action) whether the action uses anything."""


class Totals(NamedTuple):
    """Sums over the steps played so far; all are added to."""

    returns: Floats
    """(table, episode, arm)"""

    served: Floats
    """(episode, arm)"""

    used: Floats
    """(episode, resource)"""

    first_half: Floats
    """(episode, arm) returns of the first half; of changes the difference of both halves."""


# -- calling ----------------------------------------------------------------------------------------------------------


def in_blocks(play_block: Callable[[int, int], Any], number: int) -> list[Any]:
    """The results of blocks of episodes, in their order, played by as many threads as Numba may use.

    Args:
        play_block: plays the episodes from one number up to another.
        number: of episodes.
    """
    blocks = [(start, min(start + BLOCK, number)) for start in range(0, number, BLOCK)]
    threads = min(config.NUMBA_NUM_THREADS, len(blocks))
    if threads < 2:
        return [play_block(*block) for block in blocks]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(play_block, *zip(*blocks, strict=True)))


# -- every step -------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def _draw(type_of_arm, sums, states, key, row, drawn):
    """Write the (arm,) actions drawn from running sums by the counter's uniforms."""
    base = np.uint64(row) * np.uint64(len(states))
    for n in range(len(states)):
        u = uniform_at(key, base + np.uint64(n))
        action = 0
        for a in range(sums.shape[2] - 1):
            action += u >= sums[type_of_arm[n], states[n], a]
        drawn[n] = action


@njit(cache=True, nogil=True, error_model="numpy")
def play(
    rows, starts, cumulative, rewards, serves, type_of_arm, ranks, drawn_ranks, drawn_sums, usage, idle, limit, least,
    num_ranks, stop, shuffle, returns, served, used, first_half, states, weights, keys, policy_keys, step, middle,
    first, size, begin, end
):  # fmt: skip
    """Play some steps of some episodes of a batch.

    Args:
        rows: (arm,); this and the next four are the fields of `Dynamics`.
        starts: (episode,).
        cumulative: (row, state, action, next_state).
        rewards: (table, row, state, action).
        serves: (type, state, action).
        type_of_arm: (arm,) types; this and the next ten are the fields of `RankTables`.
        ranks: (period, type, state, action).
        drawn_ranks: (period, type, state, action) or empty.
        drawn_sums: (period, type, state, action) or empty.
        usage: (type, state, action, resource).
        idle: (type, state).
        limit: (resource,).
        least: (resource,).
        num_ranks: number of ranks.
        stop: whether stopping competes.
        shuffle: whether equal ranks are in random order.
        returns: (table, episode, arm); this and the next three are the fields of `Totals`.
        served: (episode, arm).
        used: (episode, resource).
        first_half: (episode, arm).
        states: (episode, arm) current states; replaced by those after the last step.
        weights: (step,) weights of these steps.
        keys: (step,) keys of the moves.
        policy_keys: (step, key) the policy's keys: of the order, or of the draw and of the order.
        step: number of the first of these steps.
        middle: number of the first step of the second half, at which `first_half` is written; -1 for none.
        first: number of the first episode of the batch.
        size: episodes of the batch.
        begin: the first episode that is played, within the batch.
        end: the episode after the last.

    Returns:
        (type, state, action) visits in the steps whose weight is not 0.
    """
    num_arms, num_states, num_resources = len(type_of_arm), idle.shape[1], usage.shape[3]
    candidates = num_arms * ranks.shape[3]
    work = np.empty((4, max(num_ranks, candidates)), dtype=np.int64)
    bits, left = np.empty(candidates, dtype=np.uint64), np.empty((2, num_resources))
    visits = np.zeros(serves.shape, dtype=np.int64)
    drawn, actions = np.empty(num_arms, dtype=np.int32), np.empty(num_arms, dtype=np.int32)
    for n in range(num_arms):
        drawn[n] = -1
    spent = np.empty(num_resources)
    has_drawn = len(drawn_ranks) > 0
    for e in range(begin, end):
        here = states[e]
        base = np.uint64(e) * np.uint64(candidates)
        stop_place = np.uint64(size) * np.uint64(candidates) + np.uint64(e)
        row = np.uint64(first + e) * np.uint64(num_arms)
        for t in range(len(weights)):
            table, weight, key = (step + t) % len(ranks), weights[t], keys[t]
            order = policy_keys[t, policy_keys.shape[1] - 1]
            own = ranks[table]
            if has_drawn:
                _draw(type_of_arm, drawn_sums[table], here, policy_keys[t, 0], e, drawn)
                own = drawn_ranks[table]
            serve(
                type_of_arm, ranks[table], own, drawn, usage, idle, limit, least, num_ranks, here, order, base,
                stop, shuffle, stop_place, work, bits, left, actions,
            )  # fmt: skip
            if step + t == middle:
                for n in range(num_arms):
                    first_half[e, n] = returns[0, e, n]
            for k in range(num_resources):
                spent[k] = 0.0
            for n in range(num_arms):
                kind, s, a = type_of_arm[n], here[n], actions[n]
                place = starts[e] + rows[n]
                for i in range(len(rewards)):
                    returns[i, e, n] += weight * rewards[i, place, s, a]
                if serves[kind, s, a]:
                    served[e, n] += weight
                    for k in range(num_resources):
                        spent[k] += usage[kind, s, a, k]
                if weight > 0:
                    visits[kind, s, a] += 1
                u = uniform_at(key, row + np.uint64(n))
                arrived = 0
                for j in range(num_states - 1):
                    arrived += u >= cumulative[place, s, a, j]
                here[n] = arrived
            for k in range(num_resources):
                used[e, k] += weight * spent[k]
    return visits


# -- from change to change --------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def play_changes(
    rows, starts, cumulative, rewards, serves, type_of_arm, ranks, drawn_ranks, drawn_sums, usage, idle, limit, least,
    num_ranks, stop, shuffle, returns, served, used, drift, states, silent, clocks, keys, policy_keys, warm, middle,
    horizon, first, size, begin, end
):  # fmt: skip
    """Play some changes of some episodes of a batch, each of which is at its own time.

    Args:
        rows: (arm,); this and the next four are the fields of `Dynamics`.
        starts: (episode,).
        cumulative: (row, state, action, next_state) running sums of the moves of an arm that rings.
        rewards: (table, row, state, action).
        serves: (type, state, action).
        type_of_arm: (arm,) types; this and the next ten are the fields of `RankTables`.
        ranks: (period, type, state, action).
        drawn_ranks: (period, type, state, action) or empty.
        drawn_sums: (period, type, state, action) or empty.
        usage: (type, state, action, resource).
        idle: (type, state).
        limit: (resource,).
        least: (resource,).
        num_ranks: number of ranks.
        stop: whether stopping competes.
        shuffle: whether equal ranks are in random order.
        returns: (table, episode, arm); this and the next three are the fields of `Totals`.
        served: (episode, arm).
        used: (episode, resource).
        drift: (episode, arm) mean reward of the second half less that of the first.
        states: (episode, arm) current states; replaced by those after the last change.
        silent: (type, state) logarithm of the probability that an arm does not ring; 0 if it never does.
        clocks: (episode,) steps played so far; added to.
        keys: (change, 2) keys of the times and of the moves.
        policy_keys: (change, key) the policy's keys.
        warm: steps that do not count.
        middle: the end of the first half of those that count.
        horizon: steps per episode.
        first: number of the first episode of the batch.
        size: episodes of the batch.
        begin: the first episode that is played, within the batch.
        end: the episode after the last.

    Returns:
        (type, state, action) weighted visits.
    """
    num_arms, num_states, num_resources = len(type_of_arm), idle.shape[1], usage.shape[3]
    candidates = num_arms * ranks.shape[3]
    work = np.empty((4, max(num_ranks, candidates)), dtype=np.int64)
    bits, left = np.empty(candidates, dtype=np.uint64), np.empty((2, num_resources))
    visits = np.zeros(serves.shape)
    drawn, actions = np.empty(num_arms, dtype=np.int32), np.empty(num_arms, dtype=np.int32)
    for n in range(num_arms):
        drawn[n] = -1
    waits = np.empty(num_arms)
    has_drawn = len(drawn_ranks) > 0
    for e in range(begin, end):
        here = states[e]
        base = np.uint64(e) * np.uint64(candidates)
        stop_place = np.uint64(size) * np.uint64(candidates) + np.uint64(e)
        row = np.uint64(first + e) * np.uint64(num_arms)
        for change in range(len(keys)):
            if clocks[e] >= horizon:
                break
            own = ranks[0]
            if has_drawn:
                _draw(type_of_arm, drawn_sums[0], here, policy_keys[change, 0], e, drawn)
                own = drawn_ranks[0]
            serve(
                type_of_arm, ranks[0], own, drawn, usage, idle, limit, least, num_ranks, here,
                policy_keys[change, policy_keys.shape[1] - 1], base, stop, shuffle, stop_place, work, bits, left,
                actions,
            )  # fmt: skip
            wait = math.inf
            for n in range(num_arms):
                rate = silent[type_of_arm[n], here[n]]
                waits[n] = math.inf
                if rate < 0:
                    waits[n] = math.floor(math.log1p(-uniform_at(keys[change, 0], row + np.uint64(n))) / rate)
                    wait = min(wait, waits[n])
            until = min(clocks[e] + wait + 1, horizon)
            early = max(min(until, middle) - max(clocks[e], warm), 0.0) / (horizon - warm)
            late = max(until - max(clocks[e], middle), 0.0) / (horizon - warm)
            clocks[e] = until
            weight = early + late
            for n in range(num_arms):
                kind, s, a = type_of_arm[n], here[n], actions[n]
                place = starts[e] + rows[n]
                if weight > 0:
                    for i in range(len(rewards)):
                        returns[i, e, n] += weight * rewards[i, place, s, a]
                    drift[e, n] += 2 * (late - early) * rewards[0, place, s, a]
                    visits[kind, s, a] += weight
                    if serves[kind, s, a]:
                        served[e, n] += weight
                        for k in range(num_resources):
                            used[e, k] += weight * usage[kind, s, a, k]
                if waits[n] == wait and wait < math.inf:
                    u = uniform_at(keys[change, 1], row + np.uint64(n))
                    arrived = 0
                    for j in range(num_states):
                        arrived += u >= cumulative[place, s, a, j]
                    if arrived < num_states:  # otherwise it rings and stays
                        here[n] = arrived
    return visits


# -- one step of any policy -------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def step_arms(
    type_of_arm, cumulative, rewards, usage, valid, serves, starts, states, actions, weight, returns, served, key, first
):  # fmt: skip
    """Move every arm of a batch by given actions.

    Args:
        type_of_arm: (arm,) types; this and the next six are the fields of `stepping.World`.
        cumulative: (row, state, action, next_state).
        rewards: (row, state, action).
        usage: (type, state, action, resource).
        valid: (type, state, action).
        serves: (type, state, action).
        starts: (episode,) or empty.
        states: (episode, arm) current states; replaced by the next ones.
        actions: (episode, arm) chosen actions.
        weight: weight of the rewards of this step.
        returns: (episode, arm) sums of weighted rewards; added to.
        served: (episode, arm) sums of the weights of steps in which the arm was served; added to.
        key: the step's key.
        first: number of the first episode of this batch.

    Returns:
        (episode, resource) usage of the step, and whether every action exists. If not, nothing has moved.
    """
    num_episodes, num_arms = states.shape
    used = np.zeros((num_episodes, usage.shape[3]))
    for e in range(num_episodes):
        for n in range(num_arms):
            a = actions[e, n]
            if a < 0 or a >= valid.shape[2] or not valid[type_of_arm[n], states[e, n], a]:
                return used, False
    for e in range(num_episodes):
        row = np.uint64(first + e) * np.uint64(num_arms)
        own = starts[e] if len(starts) else 0
        for n in range(num_arms):
            kind, s, a = type_of_arm[n], states[e, n], actions[e, n]
            returns[e, n] += weight * rewards[own + kind, s, a]
            if serves[kind, s, a]:
                served[e, n] += weight
                for k in range(usage.shape[3]):
                    used[e, k] += usage[kind, s, a, k]
            u = uniform_at(key, row + np.uint64(n))
            arrived = 0
            for j in range(valid.shape[1] - 1):
                arrived += u >= cumulative[own + kind, s, a, j]
            states[e, n] = arrived
    return used, True
