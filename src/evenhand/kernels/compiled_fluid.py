"""Compiled kernels of the fluid relaxation: the mathematics and the NumPy twins are in `fluid_sweeps`.

Kernels release the interpreter's lock, and threads share the work: Numba's own parallel loops take several times longer
to compile.
"""
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disable-error-code=call-arg
# mypy: disallow-incomplete-defs=False, disallow-untyped-calls=False

import numpy as np

from evenhand.kernels.fluid_sweeps import ADVANTAGE, SAME
from evenhand.kernels.jit import njit
from evenhand.parallel import in_order, num_threads

SAMPLE = 63
"""Vertices of which the median is taken for a cut."""


# -- frontiers --------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _evaluate(transitions, stages, policy, size, discount, matrix, totals):
    """Solve (I - gamma P) totals = stages by elimination; rows are diagonally dominant, so no pivoting."""
    width = totals.shape[1]
    for s in range(size):
        a = policy[s]
        for j in range(size):
            matrix[s, j] = -discount * transitions[s, a, j]
        matrix[s, s] += 1.0
        for x in range(width):
            totals[s, x] = stages[s, a, x]
    # Forward elimination, with the right-hand sides alongside ...
    for i in range(size):
        for s in range(i + 1, size):
            factor = matrix[s, i] / matrix[i, i]
            if factor != 0.0:
                for j in range(i + 1, size):
                    matrix[s, j] -= factor * matrix[i, j]
                for x in range(width):
                    totals[s, x] -= factor * totals[i, x]
    # ... and back substitution.
    for i in range(size - 1, -1, -1):
        for x in range(width):
            total = totals[i, x]
            for j in range(i + 1, size):
                total -= matrix[i, j] * totals[j, x]
            totals[i, x] = total / matrix[i, i]


@njit(cache=True)
def _advantage(transitions, stages, totals, size, discount, s, a, x):
    ahead = 0.0
    for j in range(size):
        ahead += transitions[s, a, j] * totals[j, x]
    return stages[s, a, x] + discount * ahead - totals[s, x]


@njit(cache=True)
def _trace_one(
    transitions,
    stages,
    initial,
    allowed,
    size,
    prices,
    discount,
    total,
    values,
    uses,
    slopes,
    policies,
    policy,
    matrix,
    totals,
):
    """Trace one frontier into the rows given, and return its number of vertices."""
    num_actions, width = stages.shape[1], stages.shape[2]
    capacity = len(values)
    # The size of values, and the first free action of each state.
    largest = 0.0
    for s in range(size):
        policy[s] = -1
        for a in range(num_actions):
            if allowed[s, a]:
                largest = max(largest, abs(stages[s, a, 0]))
                if policy[s] < 0 and _cost(stages, prices, s, a) == 0.0:
                    policy[s] = a
    largest *= total
    # Phase 1: the best policy that costs nothing, by policy iteration among free actions.
    improved = True
    while improved:
        _evaluate(transitions, stages, policy, size, discount, matrix, totals)
        improved = False
        for s in range(size):
            most = ADVANTAGE * largest
            for a in range(num_actions):
                if allowed[s, a] and _cost(stages, prices, s, a) == 0.0:
                    gain = _advantage(transitions, stages, totals, size, discount, s, a, 0)
                    if gain > most:
                        most, improved = gain, True
                        policy[s] = a
    length, weight, slope = 1, 0.0, -1.0
    last = _put(initial, totals, size, policy, values, uses, policies, 0)
    slopes[0] = np.inf
    # Phase 2: the weight g rises; the pair with the least A_c / A_r is taken into the policy, again and again.
    while True:
        lowest, state, action = np.inf, -1, -1
        for s in range(size):
            for a in range(num_actions):
                if allowed[s, a] and a != policy[s]:
                    gain = _advantage(transitions, stages, totals, size, discount, s, a, 0)
                    if gain > ADVANTAGE * largest:
                        cost = 0.0
                        for k in range(width - 1):
                            # A price of 0 needs no sum.
                            if prices[k] != 0.0:
                                cost += prices[k] * _advantage(transitions, stages, totals, size, discount, s, a, k + 1)
                        if cost / gain < lowest:
                            lowest, state, action = cost / gain, s, a
        if state < 0:
            return length
        # Ratios can fall back by rounding; slopes of a convex polygon cannot.
        weight = max(weight, lowest)
        policy[state] = action
        _evaluate(transitions, stages, policy, size, discount, matrix, totals)
        value = 0.0
        for s in range(size):
            value += initial[s] * totals[s, 0]
        # A vertex that rises: on a new edge, or further along the last one, which it then replaces.
        if value - last > SAME * largest:
            if length == 1 or weight > slope + SAME * abs(slope):
                # Beyond the room nothing is written, but lengths count on: the caller learns how much to give.
                if length <= capacity:
                    slopes[length - 1] = weight
                slope = weight
                length += 1
            last = value
            if length <= capacity:
                _put(initial, totals, size, policy, values, uses, policies, length - 1)
                slopes[length - 1] = np.inf


@njit(cache=True)
def _cost(stages, prices, s, a):
    cost = 0.0
    for k in range(len(prices)):
        cost += prices[k] * stages[s, a, k + 1]
    return cost


@njit(cache=True)
def _put(initial, totals, size, policy, values, uses, policies, place):
    values[place] = 0.0
    uses[place] = 0.0
    for s in range(size):
        policies[place, s] = policy[s]
        values[place] += initial[s] * totals[s, 0]
        for k in range(uses.shape[1]):
            uses[place, k] += initial[s] * totals[s, k + 1]
    return values[place]


@njit(cache=True, nogil=True)
def _trace_many(
    transitions, stages, initial, allowed, sizes, prices, discount, total, values, uses, slopes, policies, lengths
):
    num_states = stages.shape[1]
    policy = np.empty(num_states, dtype=np.int64)
    matrix = np.empty((num_states, num_states))
    totals = np.empty((num_states, stages.shape[3]))
    for t in range(len(lengths)):
        lengths[t] = _trace_one(
            transitions[t],
            stages[t],
            initial[t],
            allowed[t],
            sizes[t],
            prices,
            discount,
            total,
            values[t],
            uses[t],
            slopes[t],
            policies[t],
            policy,
            matrix,
            totals,
        )


def trace_frontiers(transitions, rewards, usage, initial, allowed, sizes, prices, discount, total, capacity):
    """Trace the frontiers of many types (fluid_sweeps.trace_frontiers); `sizes` are their numbers of states."""
    num_types, num_states = rewards.shape[:2]
    stages = np.concatenate([rewards[..., None], usage], axis=-1)
    # Copies, so that Numba always meets the same kind of arrays and compiles once.
    given = (np.array(table, order="C") for table in (transitions, stages, initial, allowed, sizes, prices))
    lengths = np.empty(num_types, dtype=np.int64)
    values = np.zeros((num_types, capacity))
    uses = np.zeros((num_types, capacity, usage.shape[-1]))
    slopes = np.full((num_types, capacity), np.inf)
    policies = np.zeros((num_types, capacity, num_states), dtype=np.int16)
    _trace_many(*given, discount, total, values, uses, slopes, policies, lengths)
    return lengths, values, uses, slopes, policies


# -- levels -----------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _middle_vertex(order, begin, end, starts, values, low, high):
    """A level near the median of the vertices strictly inside the interval; nan without any."""
    # Phase 1: how many there are.
    number = 0
    for i in range(begin, end):
        for v in range(starts[order[i]], starts[order[i] + 1]):
            number += low < values[v] < high
    if number == 0:
        return np.nan
    # Phase 2: every so many of them, in order, by insertion; their median is the pivot.
    sample = np.empty(min(number, SAMPLE))
    seen, taken = 0, 0
    for i in range(begin, end):
        for v in range(starts[order[i]], starts[order[i] + 1]):
            if low < values[v] < high:
                if taken < len(sample) and seen == taken * number // len(sample):
                    place = taken
                    while place > 0 and sample[place - 1] > values[v]:
                        sample[place] = sample[place - 1]
                        place -= 1
                    sample[place] = values[v]
                    taken += 1
                seen += 1
    return sample[len(sample) // 2]


@njit(cache=True)
def _best_prefix(order, begin, costs, counts, table, top, keep):
    """Mark what is in the best set among those marked, and return its number of arms."""
    undecided = np.flatnonzero(keep)
    kept, open_arms = 0, 0
    for i in undecided:
        open_arms += counts[order[begin + i]]
    # A type that costs at most the least weight left is in; one that costs more than the largest is out.
    while len(undecided):
        least = table[top + kept + 1] - table[top + kept]
        most = table[top + kept + open_arms] - table[top + kept + open_arms - 1]
        left = 0
        for i in undecided:
            arms = counts[order[begin + i]]
            if costs[i] <= least:
                kept += arms
                open_arms -= arms
            elif costs[i] > most:
                keep[i] = False
                open_arms -= arms
            else:
                undecided[left] = i
                left += 1
        slow = left > 0.9 * len(undecided)
        undecided = undecided[:left]
        if slow:  # few were decided: sorting is quicker than more rounds
            break
    if not len(undecided):
        return kept
    # What is left is sorted: the best set is a prefix, of equal ones the longest.
    sequence = undecided[np.argsort(costs[undecided])]
    arms, best_arms, best_place = kept, kept, 0
    total, best = 0.0, 0.0
    for place in range(len(sequence)):
        i = sequence[place]
        arms += counts[order[begin + i]]
        total += counts[order[begin + i]] * costs[i]
        gain = table[top + arms] - table[top + kept] - total
        if gain >= best:
            best, best_arms, best_place = gain, arms, place + 1
    for place in range(best_place, len(sequence)):
        keep[sequence[place]] = False
    return best_arms


@njit(cache=True)
def _settle_alone(one, starts, values, slopes, counts, table, top):
    """The value of a type that is a block by itself, at the mean weight of its ranks."""
    arms = counts[one]
    # A type alone moves as one arm at the mean of its weights: m -> G(m) - m c is convex, so it moves whole.
    weight = (table[top + arms] - table[top]) / arms
    v = starts[one]
    while slopes[v] <= weight:
        v += 1
    return values[v]


@njit(cache=True)
def _cut(order, begin, end, starts, values, slopes, counts, table, top, low, high, settled, spare):
    """Cut a block at a level: above it, at it (settled), below it. The level, the numbers of types and of arms."""
    # No competitor.
    if end - begin == 1:
        settled[order[begin]] = _settle_alone(order[begin], starts, values, slopes, counts, table, top)
        return 0.0, 0, 1, 0
    middle = _middle_vertex(order, begin, end, starts, values, low, high)
    level = high if np.isnan(middle) else middle
    size = end - begin
    costs, above = np.zeros(size), np.zeros(size)
    keep = np.ones(size, dtype=np.bool_)
    # Marginal costs just below and just above the level.
    for i in range(size):
        one = order[begin + i]
        for v in range(starts[one], starts[one + 1]):
            if values[v] > level:
                break
            above[i] = slopes[v]
            if values[v] < level:
                costs[i] = slopes[v]
    arms = _best_prefix(order, begin, costs, counts, table, top, keep)
    # No vertex inside: nothing changes between the ends, so every type is at one of them.
    if np.isnan(middle):
        for i in range(size):
            settled[order[begin + i]] = high if keep[i] else low
        return level, 0, size, arms
    over = keep.copy()
    _best_prefix(order, begin, above, counts, table, top, over)
    # Reorder the block: above the level, at it, below it.
    place, tied = begin, 0
    for i in range(size):
        if over[i]:
            spare[place] = order[begin + i]
            place += 1
    upper = place - begin
    for i in range(size):
        if keep[i] and not over[i]:
            settled[order[begin + i]] = level
            spare[place] = order[begin + i]
            place += 1
            tied += 1
    for i in range(size):
        if not keep[i]:
            spare[place] = order[begin + i]
            place += 1
    order[begin:end] = spare[begin:end]
    return level, upper, tied, arms


@njit(cache=True, nogil=True)
def _cut_some(
    task,
    tasks,
    order,
    begins,
    ends,
    starts,
    values,
    slopes,
    counts,
    table,
    tops,
    lows,
    highs,
    settled,
    spare,
    levels,
    sizes,
):
    for b in range(task, len(begins), tasks):
        level, upper, tied, arms = _cut(
            order,
            begins[b],
            ends[b],
            starts,
            values,
            slopes,
            counts,
            table,
            tops[b],
            lows[b],
            highs[b],
            settled,
            spare,
        )
        levels[b] = level
        sizes[b, 0] = upper
        sizes[b, 1] = tied
        sizes[b, 2] = arms


# -- many at a time ---------------------------------------------------------------------------------------------------


def in_parallel(kernel, most, arguments):
    """Run a kernel in as many threads as there are processors; each takes its share of up to `most` pieces."""
    tasks = min(most, num_threads())
    list(in_order(lambda task: kernel(task, tasks, *arguments), range(tasks), tasks))


def settle_levels(starts, values, slopes, counts, table):
    """The values that maximise W(v) - sum_n c_n(v_n) (fluid_sweeps.settle_levels).

    `table[m]` is the sum of the m smallest rank weights.
    """
    num_types = len(counts)
    counts = np.array(counts)  # a copy, so that Numba compiles once, whether or not it may be written
    settled = np.empty(num_types)
    order, spare = np.arange(num_types), np.empty(num_types, dtype=np.int64)
    begins, ends, tops = np.zeros(1, np.int64), np.full(1, num_types), np.zeros(1, np.int64)
    lows, highs = np.full(1, -np.inf), np.full(1, np.inf)
    # All blocks of one depth at once; each falls into an upper and a lower one, until none is left.
    while len(begins):
        levels, sizes = np.empty(len(begins)), np.empty((len(begins), 3), dtype=np.int64)
        given = (order, begins, ends, starts, values, slopes, counts, table, tops, lows, highs)
        in_parallel(_cut_some, len(begins), (*given, settled, spare, levels, sizes))
        upper_ends, lower_begins = begins + sizes[:, 0], begins + sizes[:, 0] + sizes[:, 1]
        up, down = upper_ends > begins, ends > lower_begins
        # A lower block has more arms on top of it: those that stayed above.
        tops = np.concatenate([tops[up], (tops + sizes[:, 2])[down]])
        lows, highs = np.concatenate([levels[up], lows[down]]), np.concatenate([highs[up], levels[down]])
        begins, ends = (
            np.concatenate([begins[up], lower_begins[down]]),
            np.concatenate([upper_ends[up], ends[down]]),
        )
    return np.clip(settled, values[starts[:-1]], values[starts[1:] - 1])  # against rounding
