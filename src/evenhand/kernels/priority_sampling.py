"""Draws of allocations by priority scores; the mathematics is in `priorities`.

Within, cells (state, action) are numbered row by row: `cell // num_actions` is the state.
"""

import math
from typing import NamedTuple

import numpy as np

from evenhand.kernels.compilation import in_parts, njit
from evenhand.kernels.count_step import binomial
from evenhand.kernels.greedy_service import bits_at, uniform_at
from evenhand.typing import Floats, Ints

FEW = 3.0
"""Draws for each cell within which a limit is so near that they are made one by one: a block would cost more."""


class _State(NamedTuple):
    """One draw under way."""

    uses: Floats
    """(cell, resource) usage."""
    arms: Ints
    """(state,) arms that have no action yet."""
    left: Floats
    """(resource,) what is left to spend."""
    need: Floats
    """(resource,) the most that an open cell uses."""
    weights: Floats
    """(cell,) scores of the open cells, else 0."""
    sums: Floats
    """(cell,) their running sums."""
    taken: Ints
    """(cell,) arms by their action."""


# -- one draw ---------------------------------------------------------------------------------------------------------


@njit
def sample_one(priorities, counts, spend, usage, stream, out):
    """Draw one allocation.

    Args:
        priorities: (state, action) scores; those of 0 are never drawn.
        counts: (state,) arms.
        spend: (resource,) what may be spent.
        usage: (state, action, resource) usage.
        stream: the key of this draw's own counter.
        out: (state, action) where the allocation is written.
    """
    sample_in_blocks(priorities, counts, spend, usage, stream, out, FEW * priorities.size)


@njit
def _sample_episodes(part, parts, episodes, usage, key, first, out):
    priorities, counts, spend = episodes
    for e in range(part, len(priorities), parts):
        sample_one(priorities[e], counts[e], spend[e], usage, bits_at(key, np.uint64(first + e)), out[e])


def sample_by_priority(
    priorities: Floats, counts: Ints, spend: Floats, usage: Floats, key: np.uint64, first: int = 0
) -> Ints:
    """Draw an allocation for every episode.

    Args:
        priorities: (episode, state, action) scores; those of 0 are never drawn.
        counts: (episode, state) arms.
        spend: (episode, resource) what may be spent.
        usage: (state, action, resource) usage.
        key: the step's key.
        first: the number of the first episode of this batch.

    Returns:
        (episode, state, action) allocations.
    """
    episodes = np.ascontiguousarray(priorities), np.ascontiguousarray(counts), np.ascontiguousarray(spend)
    allocation = np.empty(priorities.shape, dtype=np.int64)
    in_parts(_sample_episodes, 100.0 * priorities.size, episodes, np.ascontiguousarray(usage), key, first, allocation)
    return allocation


@njit
def sample_in_blocks(priorities, counts, spend, usage, stream, out, few):
    """`sample_one`, with draws one by one where a limit is expected within `few`; the law is the same for any."""
    cells, num_resources = priorities.size, len(spend)
    scores, uses, taken = priorities.reshape(cells), usage.reshape(cells, num_resources), out.reshape(cells)
    block, half = np.empty((2, cells), dtype=np.int64)
    weights, sums = np.empty((2, cells))
    left, need = np.empty((2, num_resources))
    state = _State(uses, counts.copy(), left, need, weights, sums, taken)
    for k in range(num_resources):
        left[k] = spend[k]
    for c in range(cells):
        taken[c] = 0
    # Every draw has its own place in the counter, so that no two share bits.
    place = np.uint64(0)
    while _open_cells(scores, state):
        few_arms = _sum(state.arms) <= few  # then a limit is within few draws, and its distance need not be estimated
        draws = 0.0 if few_arms else _cautious_draws(state)
        # Phase 1: near a limit, one by one ...
        if draws <= few:
            place = _take_one_by_one(state, stream, place)
            continue
        # Phase 2: ... else in a block that should just not meet it. If it does, halve time until the limit is found.
        number = max(int(draws), 1)
        for c in range(cells - 1, -1, -1):
            block[c] = 0
            if weights[c] > 0.0 and number > 0:
                block[c] = binomial(number, weights[c] / sums[c], bits_at(stream, place), np.uint64(0))
                number -= block[c]
                place += np.uint64(1)
        if _meets_limit(state, block):
            place = _take_to_limit(state, stream, place, block, half)
        else:
            _take(state, block)


@njit
def _sum(numbers):
    total = 0
    for number in numbers:
        total += number
    return total


# -- what is open, and how far a limit is -----------------------------------------------------------------------------


@njit
def _open_cells(scores, state):
    """Write the weights of open cells, their running sums, and the most that one uses; True if there is one."""
    num_actions, total = len(scores) // len(state.arms), 0.0
    for k in range(len(state.left)):
        state.need[k] = 0.0
    for c in range(len(scores)):
        fits = state.arms[c // num_actions] > 0 and scores[c] > 0.0
        for k in range(len(state.left)):
            fits = fits and state.uses[c, k] <= state.left[k]
        state.weights[c] = scores[c] if fits else 0.0
        total += state.weights[c]
        state.sums[c] = total
        if fits:
            for k in range(len(state.left)):
                state.need[k] = max(state.need[k], state.uses[c, k])
    return total > 0.0


@njit
def _cautious_draws(state):
    """Number of draws that most likely meet no limit; never more than there are arms."""
    weights, num_actions = state.weights, len(state.weights) // len(state.arms)
    total, fewest = state.sums[-1], np.inf
    # States that run empty: each draw takes one arm of state s with chance `rate`.
    for s in range(len(state.arms)):
        rate = 0.0
        for c in range(s * num_actions, (s + 1) * num_actions):
            rate += weights[c]
        if rate > 0.0:
            fewest = min(fewest, _draws_within(float(state.arms[s]), 1.0, rate / total))
    # Resources that run short: a cell may close as soon as less is left than the largest need.
    for k in range(len(state.left)):
        rate, need = 0.0, state.need[k]
        for c in range(len(weights)):
            rate += weights[c] * state.uses[c, k]
        if rate > 0.0:
            fewest = min(fewest, _draws_within(state.left[k] - need, need, rate / total))
    return fewest


@njit
def _draws_within(room, step, rate):
    """Draws that use up `room` at `rate` per draw, in steps of at most `step`, less two deviations; half of few."""
    return room / rate * max(1.0 - 2.0 * math.sqrt(step / room), 0.5) if room > 0.0 else 0.0


# -- taking -----------------------------------------------------------------------------------------------------------


@njit
def _take_one_by_one(state, stream, place):
    """Draw until a limit is met; the next free place of the counter."""
    weights, sums, left, num_actions = state.weights, state.sums, state.left, len(state.weights) // len(state.arms)
    # Rounding in the sums must not lead beyond the last open cell.
    last = len(weights) - 1
    while weights[last] == 0.0:
        last -= 1
    limit = False
    while not limit:
        point = uniform_at(stream, place) * sums[last]
        place += np.uint64(1)
        c = 0
        while c < last and point >= sums[c]:
            c += 1
        s = c // num_actions
        state.taken[c] += 1
        state.arms[s] -= 1
        limit = state.arms[s] == 0
        for k in range(len(left)):
            left[k] = max(left[k] - state.uses[c, k], 0.0)  # rounding must not leave less than nothing
            # Less than some open cell needs: that cell may close.
            limit = limit or left[k] < state.need[k]
    return place


@njit
def _meets_limit(state, block):
    """True if taking the block would empty a state or leave less than an open cell uses."""
    num_actions = len(block) // len(state.arms)
    for s in range(len(state.arms)):
        number = _sum(block[s * num_actions : (s + 1) * num_actions])
        if number > 0 and number >= state.arms[s]:
            return True
    for k in range(len(state.left)):
        if state.left[k] - _used(state, block, k) < state.need[k]:
            return True
    return False


@njit
def _used(state, block, k):
    used = 0.0
    for c in range(len(block)):
        used += block[c] * state.uses[c, k]
    return used


@njit
def _take(state, block):
    num_actions = len(block) // len(state.arms)
    for c in range(len(block)):
        state.taken[c] += block[c]
        state.arms[c // num_actions] -= block[c]
    for k in range(len(state.left)):
        state.left[k] = max(state.left[k] - _used(state, block, k), 0.0)  # rounding must not leave less than nothing


@njit
def _take_to_limit(state, stream, place, block, half):
    """Take of a block what comes up to its first limit, by halving time; the next free place of the counter."""
    # Until one draw is left, which meets the limit; what lies behind it is forgotten.
    while _sum(block) > 1:
        for c in range(len(block)):
            half[c] = 0
            if block[c] > 0:
                half[c] = binomial(block[c], 0.5, bits_at(stream, place), np.uint64(0))
                place += np.uint64(1)
        # A limit in the first half: nothing is taken yet. None: take it, and go on in the second half.
        whole = _meets_limit(state, half)
        for c in range(len(block)):
            block[c] = half[c] if whole else block[c] - half[c]
        if not whole:
            _take(state, half)
    _take(state, block)
    return place
