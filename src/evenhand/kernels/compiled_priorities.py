"""Compiled kernels for draws by priority: the mathematics and the NumPy twins are in `priorities`.

Within, cells (state, action) are numbered row by row: `cell // num_actions` is the state.
"""

import math

import numpy as np

from evenhand.kernels.compiled import binomial, bits_at, uniform_at
from evenhand.kernels.jit import njit, prange

FEW = 3.0
"""Draws for each cell within which a limit is so near that they are made one by one: a block would cost more."""


# -- one draw ---------------------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def sample_one(priorities, counts, spend, usage, stream, out):
    """Draw one allocation (priorities.sample_by_priority_fast).

    Args:
        priorities: (state, action) scores; those of 0 are never drawn.
        counts: (state,) arms.
        spend: (resource,) what may be spent.
        usage: (state, action, resource) usage.
        stream: the key of this draw's own counter.
        out: (state, action) where the allocation is written.
    """
    sample_in_blocks(priorities, counts, spend, usage, stream, out, FEW * priorities.size)


@njit(cache=True, parallel=True)
def sample_batch(priorities, counts, spend, usage, key, first):
    """Draw an allocation for every episode (priorities.sample_by_priority_fast)."""
    out = np.empty(priorities.shape, dtype=np.int64)
    for e in prange(len(priorities)):
        sample_one(priorities[e], counts[e], spend[e], usage, bits_at(key, np.uint64(first + e)), out[e])
    return out


@njit(cache=True, error_model="numpy")
def sample_in_blocks(priorities, counts, spend, usage, stream, out, few):
    """`sample_one`, with draws one by one where a limit is expected within `few`; the law is the same for any."""
    cells = priorities.size
    scores, uses, taken = priorities.reshape(cells), usage.reshape(cells, len(spend)), out.reshape(cells)
    weights, sums = np.empty((2, cells))
    left, need = np.empty((2, len(spend)))
    block, half = np.empty((2, cells), dtype=np.int64)
    arms = counts.copy()
    for k in range(len(left)):
        left[k] = spend[k]
    for c in range(cells):
        taken[c] = 0
    # Every draw has its own place in the counter, so that no two share bits.
    place = np.uint64(0)
    while _open_cells(scores, uses, arms, left, weights, sums, need):
        few_arms = _sum(arms) <= few  # then a limit is within few draws, and its distance need not be estimated
        draws = 0.0 if few_arms else _cautious_draws(uses, arms, left, weights, sums, need)
        # Phase 1: near a limit, one by one ...
        if draws <= few:
            place = _take_one_by_one(uses, arms, left, weights, sums, need, stream, place, taken)
            continue
        # Phase 2: ... else in a block that should just not meet it. If it does, halve time until the limit is found.
        place = _multinomial(max(int(draws), 1), weights, sums, stream, place, block)
        if _meets_limit(uses, arms, left, need, block):
            place = _take_to_limit(uses, arms, left, need, stream, place, block, half, taken)
        else:
            _take(uses, arms, left, block, taken)


@njit(cache=True, error_model="numpy")
def _sum(numbers):
    total = 0
    for number in numbers:
        total += number
    return total


# -- what is open -----------------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _open_cells(scores, uses, arms, left, weights, sums, need):
    """Write the weights of open cells, their running sums, and the most that one uses; whether there is one."""
    num_actions = len(scores) // len(arms)
    total = 0.0
    for k in range(len(left)):
        need[k] = 0.0
    for s in range(len(arms)):
        for c in range(s * num_actions, (s + 1) * num_actions):
            fits = arms[s] > 0 and scores[c] > 0.0
            for k in range(len(left)):
                fits = fits and uses[c, k] <= left[k]
            weights[c] = scores[c] if fits else 0.0
            total += weights[c]
            sums[c] = total
            if fits:
                for k in range(len(left)):
                    need[k] = max(need[k], uses[c, k])
    return total > 0.0


# -- how far a limit is -----------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _cautious_draws(uses, arms, left, weights, sums, need):
    """Number of draws that most likely meet no limit; never more than there are arms."""
    num_actions = len(weights) // len(arms)
    total = sums[-1]
    fewest = np.inf
    # States that run empty: each draw takes one arm of state s with chance `rate`.
    for s in range(len(arms)):
        rate = 0.0
        for c in range(s * num_actions, (s + 1) * num_actions):
            rate += weights[c]
        if rate > 0.0:
            fewest = min(fewest, _draws_within(float(arms[s]), 1.0, rate / total))
    # Resources that run short: a cell may close as soon as less is left than the largest need.
    for k in range(len(left)):
        rate = 0.0
        for c in range(len(weights)):
            rate += weights[c] * uses[c, k]
        if rate > 0.0:
            fewest = min(fewest, _draws_within(left[k] - need[k], need[k], rate / total))
    return fewest


@njit(cache=True, error_model="numpy")
def _draws_within(room, step, rate):
    """Draws that use up `room` at `rate` a draw, in steps of at most `step`, less two deviations; half of few."""
    return room / rate * max(1.0 - 2.0 * math.sqrt(step / room), 0.5) if room > 0.0 else 0.0


# -- taking -----------------------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _take_one_by_one(uses, arms, left, weights, sums, need, stream, place, taken):
    """Draw until a limit is met; the next free place of the counter."""
    num_actions = len(weights) // len(arms)
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
        taken[c] += 1
        arms[s] -= 1
        limit = arms[s] == 0
        for k in range(len(left)):
            left[k] = max(left[k] - uses[c, k], 0.0)  # rounding must not leave less than nothing
            # Less than some open cell needs: that cell may close.
            limit = limit or left[k] < need[k]
    return place


@njit(cache=True, error_model="numpy")
def _multinomial(draws, weights, sums, stream, place, block):
    """Write how many draws fall in each cell (priorities._multinomial); the next free place of the counter."""
    for c in range(len(weights) - 1, -1, -1):
        block[c] = 0
        if weights[c] > 0.0 and draws > 0:
            block[c] = binomial(draws, weights[c] / sums[c], bits_at(stream, place), np.uint64(0))
            draws -= block[c]
            place += np.uint64(1)
    return place


@njit(cache=True, error_model="numpy")
def _meets_limit(uses, arms, left, need, block):
    """True if taking the block would empty a state or leave less than an open cell uses."""
    num_actions = len(block) // len(arms)
    for s in range(len(arms)):
        number = 0
        for c in range(s * num_actions, (s + 1) * num_actions):
            number += block[c]
        if number > 0 and number >= arms[s]:
            return True
    for k in range(len(left)):
        used = 0.0
        for c in range(len(block)):
            used += block[c] * uses[c, k]
        if left[k] - used < need[k]:
            return True
    return False


@njit(cache=True, error_model="numpy")
def _take(uses, arms, left, block, taken):
    num_actions = len(block) // len(arms)
    for s in range(len(arms)):
        for c in range(s * num_actions, (s + 1) * num_actions):
            taken[c] += block[c]
            arms[s] -= block[c]
    for k in range(len(left)):
        used = 0.0
        for c in range(len(block)):
            used += block[c] * uses[c, k]
        left[k] = max(left[k] - used, 0.0)  # rounding must not leave less than nothing


@njit(cache=True, error_model="numpy")
def _take_to_limit(uses, arms, left, need, stream, place, block, half, taken):
    """Take of a block what comes up to its first limit, by halving time; the next free place of the counter."""
    # Until one draw is left, which meets the limit; what lies behind it is forgotten.
    while _sum(block) > 1:
        for c in range(len(block)):
            half[c] = 0
            if block[c] > 0:
                half[c] = binomial(block[c], 0.5, bits_at(stream, place), np.uint64(0))
                place += np.uint64(1)
        # A limit in the first half: nothing is taken yet. None: take it, and go on in the second half.
        whole = _meets_limit(uses, arms, left, need, half)
        for c in range(len(block)):
            block[c] = half[c] if whole else block[c] - half[c]
        if not whole:
            _take(uses, arms, left, half, taken)
    _take(uses, arms, left, block, taken)
    return place
