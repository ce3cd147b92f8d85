"""One step of identical arms, by counts.

The u arms of a cell (type, state, action) move by one multinomial draw, Mult(u, p(. | state, action)), made of
binomial draws, so that the cost does not depend on how many arms there are:

    c_1 ~ Bin(u, p_1),   c_2 ~ Bin(u - c_1, p_2 / (1 - p_1)),   ...

Every (episode, cell) draws from a counter of its own (see `randomness`), so that two policies that allocate a cell
alike see it move alike. A binomial draw is by inversion if n min(p, q) < 10 and else by transformed rejection
(Hörmann, 1993, algorithm BTRS), at a cost bounded for any n.
"""

import math

import numpy as np

from evenhand.kernels.compilation import in_parts, njit
from evenhand.kernels.greedy_service import bits_at, uniform_at
from evenhand.kernels.rank_tables import read_only
from evenhand.typing import Floats, Ints

# -- binomial draws ---------------------------------------------------------------------------------------------------


@njit
def _stirling_tail(k):
    """The rest of Stirling's series: log k! - [log sqrt(2 pi) + (k + 1/2) log(k + 1) - (k + 1)]."""
    if k <= 9:
        return math.lgamma(k + 1.0) - (0.9189385332046727 + (k + 0.5) * math.log(k + 1.0) - (k + 1.0))
    square = 1.0 / ((k + 1.0) * (k + 1.0))
    return (1.0 / 12 - (1.0 / 360 - square / 1260) * square) / (k + 1.0)


@njit
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


@njit
def _binomial_by_rejection(n, p, key, place):
    # Transformed rejection: Hörmann's constants for a hat that fits every n p of 10 or more.
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


@njit
def binomial(n, p, key, place):
    """A draw of Bin(n, p) from the counter at `place` and behind it."""
    if n == 0 or p <= 0:
        return 0
    if p >= 1:
        return n
    # By the smaller of p and 1 - p: inversion takes n q steps, rejection needs n q of 10 at least.
    q = min(p, 1 - p)
    few = _binomial_by_inversion(n, q, key, place) if n * q < 10 else _binomial_by_rejection(n, q, key, place)
    return few if p <= 0.5 else n - few


# -- moving crowds ----------------------------------------------------------------------------------------------------


@njit
def move_crowds(transitions, allocation, key, number, counts):
    """Move the crowds of one episode; each draw may use 2^20 places of the counter.

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
                    # The last possible state takes all that is left, so rounding loses no arm.
                    moved = left if j == last else binomial(left, min(p / mass, 1.0), stream, np.uint64(0))
                    counts[kind, j] += moved
                    left -= moved
                    mass -= p


@njit
def _move_episodes(part, parts, transitions, allocation, key, first, counts):
    for e in range(part, len(allocation), parts):
        move_crowds(transitions, allocation[e], key, np.int64(first + e), counts[e])


def step_crowds(transitions: Floats, allocation: Ints, key: np.uint64, first: int) -> Ints:
    """Move every crowd.

    Args:
        transitions: (type, state, action, next_state) probabilities.
        allocation: (episode, type, state, action) arms in each cell.
        key: the step's key.
        first: the number of the first episode of this batch.

    Returns:
        (episode, type, next_state) counts.
    """
    counts = np.empty(allocation.shape[:3], dtype=np.int64)
    arms = np.ascontiguousarray(allocation)
    in_parts(_move_episodes, 100.0 * arms.size, read_only(transitions), arms, key, first, counts)
    return counts
