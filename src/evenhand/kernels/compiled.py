"""What Numba compiles. Each function has its mathematics and its NumPy twin in the file named beside it."""

import math

import numpy as np

from evenhand.kernels.jit import njit, prange
from evenhand.kernels.randomness import GOLDEN, MIX_1, MIX_2, TO_UNIT

BLOCK = 8192


def loops_alone():
    """Of what Numba can do in parallel, the loops that say so; looking for more takes long to compile."""
    rest = ("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion")
    return {"prange": True} | dict.fromkeys(rest, False)


# -- random bits ------------------------------------------------------------------------------------------------------


@njit(cache=True, inline="always")
def bits_at(key, place):
    """Random bits at a place (randomness.bits_at)."""
    z = key + (place + np.uint64(1)) * GOLDEN
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    return z ^ (z >> np.uint64(31))


@njit(cache=True, inline="always")
def uniform_at(key, place):
    """A number in [0, 1) at a place (randomness.uniforms_at)."""
    return np.float64(bits_at(key, place) >> np.uint64(11)) * TO_UNIT


# -- moving arms ------------------------------------------------------------------------------------------------------


@njit(cache=True, parallel=loops_alone())
def step_arms(
    type_of_arm, cumulative, rewards, usage, valid, serves, starts, states, actions, weight, returns, served, key, first
):
    """Move every arm (stepping.step_arms), in blocks of arms, so that one long episode is parallel too."""
    num_episodes, num_arms = states.shape
    num_states, num_actions = valid.shape[1], valid.shape[2]
    num_resources = usage.shape[3]
    blocks = (num_arms + BLOCK - 1) // BLOCK
    faults = np.zeros(num_episodes * blocks, dtype=np.int64)
    parts = np.zeros((num_episodes * blocks, num_resources))
    # Look at all actions before anything is changed: a fault must leave the arms where they are.
    for task in prange(num_episodes * blocks):
        e = task // blocks
        start = (task % blocks) * BLOCK
        for n in range(start, min(start + BLOCK, num_arms)):
            a = actions[e, n]
            if a < 0 or a >= num_actions or not valid[type_of_arm[n], states[e, n], a]:
                faults[task] = 1
    for fault in faults:
        if fault:
            return np.zeros((num_episodes, num_resources)), False
    for task in prange(num_episodes * blocks):
        e = task // blocks
        start = (task % blocks) * BLOCK
        # Draws are numbered by episode and arm, so that they do not depend on blocks or batches.
        row = np.uint64(first + e) * np.uint64(num_arms)
        own = starts[e] if len(starts) else 0
        for n in range(start, min(start + BLOCK, num_arms)):
            kind, s, a = type_of_arm[n], states[e, n], actions[e, n]
            returns[e, n] += weight * rewards[own + kind, s, a]
            if serves[kind, s, a]:
                served[e, n] += weight
            for k in range(num_resources):
                parts[task, k] += usage[kind, s, a, k]
            u = uniform_at(key, row + np.uint64(n))
            # The first state whose cumulative probability is above the uniform number.
            arrived = 0
            for j in range(num_states - 1):
                arrived += u >= cumulative[own + kind, s, a, j]
            states[e, n] = arrived
    # Blocks are added in order, whatever thread had them.
    used = np.zeros((num_episodes, num_resources))
    for task in range(num_episodes * blocks):
        for k in range(num_resources):
            used[task // blocks, k] += parts[task, k]
    return used, True


# -- serving by rank --------------------------------------------------------------------------------------------------


@njit(cache=True, inline="always")
def _fits(need, left):
    for k in range(len(left)):
        if need[k] > left[k]:
            return False
    return True


@njit(cache=True, parallel=loops_alone())
def serve_by_rank(type_of_arm, ranks, usage, idle, limit, states, key, stop, shuffle, drawn, drawn_ranks):
    """The greedy choice by rank (choosing.serve_by_rank), with a bucket for each rank."""
    num_episodes, num_arms = states.shape
    num_actions = ranks.shape[2]
    num_ranks = max(_largest(ranks), _largest(drawn_ranks)) + 1
    has_drawn = len(drawn) > 0
    least = _least_usage(ranks, drawn_ranks, usage)
    actions = np.empty((num_episodes, num_arms), dtype=np.int32)
    # Where the candidates' own bits end, those of stopping begin.
    stop_place = np.uint64(num_episodes) * np.uint64(num_arms * num_actions)
    for e in prange(num_episodes):
        base = np.uint64(e) * np.uint64(num_arms * num_actions)
        horizon = bits_at(key, stop_place + np.uint64(e))
        # Counting sort by rank: first how many of each ...
        sizes = np.zeros(num_ranks + 1, dtype=np.int64)
        several = False
        for n in range(num_arms):
            kind, s = type_of_arm[n], states[e, n]
            actions[e, n] = idle[kind, s]
            candidates = 0
            for a in range(num_actions):
                r = drawn_ranks[kind, s, a] if has_drawn and drawn[e, n] == a else ranks[kind, s, a]
                if r >= 0 and not (stop and _order(key, base, n, num_actions, a, shuffle) >= horizon):
                    sizes[r + 1] += 1
                    candidates += 1
            if candidates > 1:
                several = True
        for r in range(num_ranks):
            sizes[r + 1] += sizes[r]
        filled = sizes[:num_ranks].copy()
        members = np.empty(sizes[num_ranks], dtype=np.int64)
        # ... then who they are.
        for n in range(num_arms):
            kind, s = type_of_arm[n], states[e, n]
            for a in range(num_actions):
                r = drawn_ranks[kind, s, a] if has_drawn and drawn[e, n] == a else ranks[kind, s, a]
                if r >= 0 and not (stop and _order(key, base, n, num_actions, a, shuffle) >= horizon):
                    members[filled[r]] = n * num_actions + a
                    filled[r] += 1
        _serve_buckets(
            # The number of a parallel loop is unsigned, which would compile the function a second time.
            np.int64(e),
            type_of_arm,
            usage,
            limit,
            least,
            states,
            key,
            base,
            shuffle,
            sizes,
            members,
            several,
            num_actions,
            actions,
        )
    return actions


@njit(cache=True)
def _largest(ranks):
    largest = -1
    for rank in ranks.flat:
        largest = max(largest, rank)
    return largest


@njit(cache=True)
def _least_usage(ranks, drawn_ranks, usage):
    """(resource,) the least that any cell that may be served uses."""
    least = np.full(usage.shape[3], np.inf)
    for kind in range(ranks.shape[0]):
        for s in range(ranks.shape[1]):
            for a in range(ranks.shape[2]):
                if ranks[kind, s, a] >= 0 or drawn_ranks[kind, s, a] >= 0:
                    for k in range(len(least)):
                        least[k] = min(least[k], usage[kind, s, a, k])
    return least


@njit(cache=True, inline="always")
def _order(key, base, n, num_actions, a, shuffle):
    place = base + np.uint64(n * num_actions + a)
    return bits_at(key, place) if shuffle else place


@njit(cache=True)
def _serve_buckets(
    e, type_of_arm, usage, limit, least, states, key, base, shuffle, sizes, members, several, num_actions, actions
):
    left = limit.copy()
    served = np.zeros(len(type_of_arm), dtype=np.bool_)
    anybody = False
    for r in range(len(sizes) - 1):
        # Less is left of something than anybody uses.
        if not _fits(least, left):
            break
        bucket = members[sizes[r] : sizes[r + 1]]
        # Where no arm has several candidates, nobody stands in two buckets.
        if anybody and several:
            bucket = _unserved(bucket, served, num_actions)
        if len(bucket) == 0:
            continue
        anybody = True
        order = bucket
        # Only the bucket in which the budget ends needs its order.
        if not _all_fit(e, bucket, type_of_arm, usage, states, left, num_actions):
            bits = np.empty(len(bucket), dtype=np.uint64)
            for i in range(len(bucket)):
                place = base + np.uint64(bucket[i])
                bits[i] = bits_at(key, place) if shuffle else place
            first = _equal_uses(e, bucket, type_of_arm, usage, states, left, num_actions)
            # All use the same: which ones are served is known without sorting.
            if 0 < first < len(bucket):
                order = _of_smallest(bucket, bits, first)
            elif first != 0:
                order = bucket[np.argsort(bits)]
        for i in range(len(order)):
            n, a = order[i] // num_actions, order[i] % num_actions
            need = usage[type_of_arm[n], states[e, n], a]
            if not served[n] and _fits(need, left):  # an arm may stand in the bucket with several actions
                served[n] = True
                actions[e, n] = a
                for k in range(len(left)):
                    left[k] -= need[k]


@njit(cache=True)
def _of_smallest(bucket, bits, number):
    """The members with the smallest bits, as they stand in the bucket; written out, as np.partition compiles slowly."""
    last = _select(bits.copy(), number - 1)
    kept = np.empty(number, dtype=np.int64)
    place = 0
    for i in range(len(bucket)):
        # Bits could be equal by chance: no more than `number` of them.
        if bits[i] <= last and place < number:
            kept[place] = bucket[i]
            place += 1
    return kept


# -- selection, and what a bucket needs -------------------------------------------------------------------------------


@njit(cache=True)
def _select(values, k):
    """The value that would stand at place k if they were sorted; they are reordered on the way."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


@njit(cache=True)
def _unserved(bucket, served, num_actions):
    kept = np.empty_like(bucket)
    number = 0
    for member in bucket:
        if not served[member // num_actions]:
            kept[number] = member
            number += 1
    return kept[:number]


@njit(cache=True)
def _all_fit(e, bucket, type_of_arm, usage, states, left, num_actions):
    """Whether the whole bucket fits, whatever the order; only then may the order be left out."""
    total = np.zeros(len(left))
    before = -1
    for i in range(len(bucket)):
        n, a = bucket[i] // num_actions, bucket[i] % num_actions
        if n == before:
            return False
        before = n
        need = usage[type_of_arm[n], states[e, n], a]
        for k in range(len(left)):
            total[k] += need[k]
    return _fits(total, left)


@njit(cache=True)
def _equal_uses(e, bucket, type_of_arm, usage, states, left, num_actions):
    """How many of a bucket are served if all use the same, one action an arm; -1 if their order is needed in full."""
    start = usage[type_of_arm[bucket[0] // num_actions], states[e, bucket[0] // num_actions], bucket[0] % num_actions]
    before = -1
    for i in range(len(bucket)):
        n, a = bucket[i] // num_actions, bucket[i] % num_actions
        if n == before:
            return -1
        before = n
        need = usage[type_of_arm[n], states[e, n], a]
        for k in range(len(left)):
            if need[k] != start[k]:
                return -1
    # One by one, as they would be served, so that rounding is the same.
    number = 0
    rest = left.copy()
    while number < len(bucket) and _fits(start, rest):
        number += 1
        for k in range(len(rest)):
            rest[k] -= start[k]
    return number


# -- who within a state -----------------------------------------------------------------------------------------------


@njit(cache=True, parallel=loops_alone())
def assign_uniformly(type_of_arm, states, allocation, key):
    """Who within a state gets which action (choosing.assign_uniformly)."""
    num_episodes, num_arms = states.shape
    num_actions = allocation.shape[3]
    actions = np.empty((num_episodes, num_arms), dtype=np.int32)
    for e in prange(num_episodes):
        left = allocation[e].copy()
        base = np.uint64(e) * np.uint64(num_arms)
        for n in range(num_arms):
            cell = left[type_of_arm[n], states[e, n]]
            total = 0
            for a in range(num_actions):
                total += cell[a]
            point = uniform_at(key, base + np.uint64(n)) * total
            choice = 0
            reached = cell[0]
            while point >= reached and choice < num_actions - 1:
                choice += 1
                reached += cell[choice]
            actions[e, n] = choice
            cell[choice] -= 1
    return actions


# -- binomial draws ---------------------------------------------------------------------------------------------------


@njit(cache=True)
def _stirling_tail(k):
    """The rest of Stirling's series: log k! - [log sqrt(2 pi) + (k + 1/2) log(k + 1) - (k + 1)]."""
    if k <= 9:
        return math.lgamma(k + 1.0) - (0.9189385332046727 + (k + 0.5) * math.log(k + 1.0) - (k + 1.0))
    square = 1.0 / ((k + 1.0) * (k + 1.0))
    return (1.0 / 12 - (1.0 / 360 - square / 1260) * square) / (k + 1.0)


@njit(cache=True)
def _binomial_by_inversion(n, p, key, place):
    # From k = 0 on, by the ratio of neighbouring probabilities.
    ratio = p / (1 - p)
    chance = math.exp(n * math.log1p(-p))
    u = uniform_at(key, place)
    k = 0
    while u > chance and k < n:
        u -= chance
        k += 1
        chance *= ratio * (n - k + 1) / k
    return k


@njit(cache=True)
def _binomial_by_rejection(n, p, key, place):
    # Transformed rejection (`crowds`): Hörmann's constants for a hat that fits every n p of 10 or more.
    spread = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = n * p + 0.5
    safe = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    ratio = p / (1 - p)
    mode = math.floor((n + 1) * p)
    draw = np.uint64(0)
    while True:
        u = uniform_at(key, place + draw) - 0.5
        v = uniform_at(key, place + draw + np.uint64(1))
        draw += np.uint64(2)
        side = 0.5 - abs(u)
        if side <= 0:
            continue
        k = math.floor((2 * a / side + b) * u + centre)
        # The quick acceptance: most draws end here.
        if side >= 0.07 and v <= safe:
            return int(k)
        if k < 0 or k > n:
            continue
        # Otherwise by the logarithms of the two densities.
        bound = (
            (mode + 0.5) * math.log((mode + 1) / (ratio * (n - mode + 1)))
            + (n + 1) * math.log((n - mode + 1) / (n - k + 1))
            + (k + 0.5) * math.log(ratio * (n - k + 1) / (k + 1))
            + _stirling_tail(mode)
            + _stirling_tail(n - mode)
            - _stirling_tail(k)
            - _stirling_tail(n - k)
        )
        if v > 0 and math.log(v * alpha / (a / (side * side) + b)) <= bound:
            return int(k)


@njit(cache=True)
def binomial(n, p, key, place):
    """A draw of Bin(n, p) from the counter at `place` and behind it (crowds)."""
    if n == 0 or p <= 0:
        return 0
    if p >= 1:
        return n
    # By the smaller of p and 1 - p: inversion takes n q steps, rejection wants n q of 10 at least.
    q = min(p, 1 - p)
    few = _binomial_by_inversion(n, q, key, place) if n * q < 10 else _binomial_by_rejection(n, q, key, place)
    return few if p <= 0.5 else n - few


# -- moving crowds ----------------------------------------------------------------------------------------------------


@njit(cache=True)
def move_crowds(transitions, allocation, key, number, counts):
    """Move the crowds of one episode (crowds.step_crowds_fast); each draw may use 2^20 places of the counter.

    transitions and allocation are (cell type, state, action[, next_state]); `counts` (type, next_state) is filled.
    """
    num_types, num_states, num_actions = allocation.shape
    cells = num_types * num_states * num_actions
    for kind in range(num_types):
        for j in range(num_states):
            counts[kind, j] = 0
    for kind in range(num_types):
        for s in range(num_states):
            for a in range(num_actions):
                left = allocation[kind, s, a]
                if left == 0:
                    continue
                cell = (kind * num_states + s) * num_actions + a
                # A stream of its own for each episode, cell and next state.
                draws = (np.uint64(number) * np.uint64(cells) + np.uint64(cell)) * np.uint64(num_states)
                last = num_states - 1
                while last > 0 and transitions[kind, s, a, last] <= 0:
                    last -= 1
                mass = 1.0
                for j in range(last + 1):
                    p = transitions[kind, s, a, j]
                    if left == 0 or p <= 0:
                        continue
                    stream = bits_at(key, draws + np.uint64(j))
                    # The last possible state takes all that is left, so rounding loses nobody.
                    moved = left if j == last else binomial(left, min(p / mass, 1.0), stream, np.uint64(0))
                    counts[kind, j] += moved
                    left -= moved
                    mass -= p


@njit(cache=True, parallel=loops_alone())
def step_crowds(transitions, allocation, key, first):
    """Move every crowd (crowds.step_crowds_fast)."""
    counts = np.zeros(allocation.shape[:3], dtype=np.int64)
    for e in prange(allocation.shape[0]):
        move_crowds(transitions, allocation[e], key, np.int64(first + e), counts[e])
    return counts
