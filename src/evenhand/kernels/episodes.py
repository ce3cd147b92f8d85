"""Whole episodes of policies that serve by rank, in one compiled loop.

    s'[e, n] = #{j : u[e, n] >= F(j | s, a)},     G[e, n] += weight * r(s, a),     served[e, n] += weight if d(s, a) > 0

F are the closed running sums of a transition row (ArmTables.cumulative), u a counter's uniforms (`randomness`), and the
actions a those of `greedy_service`, with the policy's keys of each step. O(episodes * steps * arms).

`play` follows every step. `play_changes` goes from change to change (`simulate_events`): at every step each arm
*rings* with the largest probability of leaving its state, and the steps until the first arm rings are drawn at once.

Episodes are independent: blocks of them are played by threads, and results do not depend on how many there are.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evenhand.kernels.compilation import njit
from evenhand.kernels.greedy_service import make_room, serve, uniform_at
from evenhand.kernels.randomness import Bits
from evenhand.parallel import in_order
from evenhand.typing import Bools, Floats, Indices

BLOCK = 8
"""Least number of episodes that a thread plays at a time."""


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


class Steps(NamedTuple):
    """Steps that are played one after the other."""

    weights: Floats
    """(step,)"""

    keys: Bits
    """(step,) keys of the moves."""

    policy_keys: Bits
    """(step, key) the policy's keys: of the order, or of the draw and of the order."""

    first: int
    """Number of the first of these steps."""

    middle: int
    """Number of the first step of the second half, at which `first_half` is written; -1 for none."""


class Changes(NamedTuple):
    """Changes that are played one after the other, each episode at its own time."""

    silent: Floats
    """(type, state) logarithm of the probability that an arm does not ring; 0 if it never does."""

    clocks: Floats
    """(episode,) steps played so far; added to."""

    keys: Bits
    """(change, 2) keys of the times and of the moves."""

    policy_keys: Bits
    """(change, key)"""

    warm: float
    """Steps that do not count."""

    middle: float
    """The end of the first half of those that count."""

    horizon: float
    """Steps per episode."""


# -- calling ----------------------------------------------------------------------------------------------------------


def in_blocks(play_block: Callable[[int, int], Any], number: int) -> list[Any]:
    """The results of blocks of episodes, in their order, played by threads.

    Args:
        play_block: plays the episodes from one number up to another.
        number: of episodes.
    """
    # Few blocks, as each takes the interpreter's lock; enough that threads end at about the same time.
    size = max(BLOCK, number // 32)
    blocks = [(start, min(start + size, number)) for start in range(0, number, size)]
    return list(in_order(lambda block: play_block(*block), blocks, 1 if len(blocks) == 1 else None))


# -- every step -------------------------------------------------------------------------------------------------------


@njit
def _choose(tables, period, states, keys, episode, num_episodes, room):
    """Choose the actions of one episode; those that the policy draws beforehand are drawn first."""
    if len(tables.drawn_ranks) > 0:
        base = np.uint64(episode) * np.uint64(len(states))
        for n in range(len(states)):
            u = uniform_at(keys[0], base + np.uint64(n))
            action = 0
            for a in range(tables.drawn_sums.shape[3] - 1):
                action += u >= tables.drawn_sums[period, tables.type_of_arm[n], states[n], a]
            room.drawn[n] = action
    serve(tables, period, states, keys[len(keys) - 1], episode, num_episodes, room)


@njit
def play(dynamics, tables, totals, states, steps, first, begin, end):
    """Play some steps of some episodes of a batch.

    Args:
        dynamics: tables by which arms move and earn (`Dynamics`).
        tables: order of service (`RankTables`).
        totals: sums (`Totals`), which are added to.
        states: (episode, arm) current states; replaced by those after the last step.
        steps: the steps (`Steps`).
        first: number of the first episode of the batch.
        begin: the first episode that is played, within the batch.
        end: the episode after the last.

    Returns:
        (type, state, action) visits in the steps whose weight is not 0.
    """
    rewards, usage, type_of_arm = dynamics.rewards, tables.usage, tables.type_of_arm
    num_arms, num_states, num_resources = len(type_of_arm), tables.idle.shape[1], totals.used.shape[1]
    room, spent = make_room(tables), np.empty(num_resources)
    visits = np.zeros(dynamics.serves.shape, dtype=np.int64)
    for e in range(begin, end):
        here = states[e]
        row = np.uint64(first + e) * np.uint64(num_arms)
        for t in range(len(steps.weights)):
            weight, step = steps.weights[t], steps.first + t
            _choose(tables, step % len(tables.ranks), here, steps.policy_keys[t], e, len(states), room)
            if step == steps.middle:
                for n in range(num_arms):
                    totals.first_half[e, n] = totals.returns[0, e, n]
            for k in range(num_resources):
                spent[k] = 0.0
            for n in range(num_arms):
                kind, s, a = type_of_arm[n], here[n], room.actions[n]
                place = dynamics.starts[e] + dynamics.rows[n]
                for i in range(len(rewards)):
                    totals.returns[i, e, n] += weight * rewards[i, place, s, a]
                if dynamics.serves[kind, s, a]:
                    totals.served[e, n] += weight
                    for k in range(num_resources):
                        spent[k] += usage[kind, s, a, k]
                if weight > 0:
                    visits[kind, s, a] += 1
                u = uniform_at(steps.keys[t], row + np.uint64(n))
                arrived = 0
                for j in range(num_states - 1):
                    arrived += u >= dynamics.cumulative[place, s, a, j]
                here[n] = arrived
            for k in range(num_resources):
                totals.used[e, k] += weight * spent[k]
    return visits


# -- from change to change --------------------------------------------------------------------------------------------


@njit
def play_changes(dynamics, tables, totals, states, changes, first, begin, end):
    """Play some changes of some episodes of a batch.

    Args:
        dynamics: tables by which arms earn, and move if they ring (`Dynamics`).
        tables: order of service (`RankTables`).
        totals: sums (`Totals`), which are added to.
        states: (episode, arm) current states; replaced by those after the last change.
        changes: the changes (`Changes`).
        first: number of the first episode of the batch.
        begin: the first episode that is played, within the batch.
        end: the episode after the last.

    Returns:
        (type, state, action) weighted visits.
    """
    rewards, usage, type_of_arm = dynamics.rewards, tables.usage, tables.type_of_arm
    num_arms, num_states = len(type_of_arm), tables.idle.shape[1]
    room, waits, visits = make_room(tables), np.empty(num_arms), np.zeros(dynamics.serves.shape)
    warm, middle, horizon = changes.warm, changes.middle, changes.horizon
    for e in range(begin, end):
        here = states[e]
        row = np.uint64(first + e) * np.uint64(num_arms)
        for change in range(len(changes.keys)):
            clock = changes.clocks[e]
            if clock >= horizon:
                break
            _choose(tables, np.int64(0), here, changes.policy_keys[change], e, len(states), room)
            wait = math.inf
            for n in range(num_arms):
                rate = changes.silent[type_of_arm[n], here[n]]
                waits[n] = math.inf
                if rate < 0:
                    waits[n] = math.floor(math.log1p(-uniform_at(changes.keys[change, 0], row + np.uint64(n))) / rate)
                    wait = min(wait, waits[n])
            until = min(clock + wait + 1, horizon)
            early = max(min(until, middle) - max(clock, warm), 0.0) / (horizon - warm)
            late = max(until - max(clock, middle), 0.0) / (horizon - warm)
            changes.clocks[e] = until
            weight = early + late
            for n in range(num_arms):
                kind, s, a = type_of_arm[n], here[n], room.actions[n]
                place = dynamics.starts[e] + dynamics.rows[n]
                if weight > 0:
                    for i in range(len(rewards)):
                        totals.returns[i, e, n] += weight * rewards[i, place, s, a]
                    totals.first_half[e, n] += 2 * (late - early) * rewards[0, place, s, a]
                    visits[kind, s, a] += weight
                    if dynamics.serves[kind, s, a]:
                        totals.served[e, n] += weight
                        for k in range(totals.used.shape[1]):
                            totals.used[e, k] += weight * usage[kind, s, a, k]
                if waits[n] == wait and wait < math.inf:
                    u = uniform_at(changes.keys[change, 1], row + np.uint64(n))
                    arrived = 0
                    for j in range(num_states):
                        arrived += u >= dynamics.cumulative[place, s, a, j]
                    if arrived < num_states:  # otherwise it rings and stays
                        here[n] = arrived
    return visits


# -- one step of any policy -------------------------------------------------------------------------------------------


@njit
def step_arms(world, states, actions, weight, returns, served, key, first):
    """Move every arm of a batch by given actions.

    Args:
        world: tables by which arms move and earn (`stepping.World`).
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
    type_of_arm, valid, usage = world.type_of_arm, world.valid, world.usage
    used = np.zeros((num_episodes, usage.shape[3]))
    for e in range(num_episodes):
        for n in range(num_arms):
            a = actions[e, n]
            if a < 0 or a >= valid.shape[2] or not valid[type_of_arm[n], states[e, n], a]:
                return used, False
    for e in range(num_episodes):
        row = np.uint64(first + e) * np.uint64(num_arms)
        own = world.starts[e] if len(world.starts) else 0
        for n in range(num_arms):
            kind, s, a = type_of_arm[n], states[e, n], actions[e, n]
            returns[e, n] += weight * world.rewards[own + kind, s, a]
            if world.serves[kind, s, a]:
                served[e, n] += weight
                for k in range(usage.shape[3]):
                    used[e, k] += usage[kind, s, a, k]
            u = uniform_at(key, row + np.uint64(n))
            arrived = 0
            for j in range(valid.shape[1] - 1):
                arrived += u >= world.cumulative[own + kind, s, a, j]
            states[e, n] = arrived
    return used, True
