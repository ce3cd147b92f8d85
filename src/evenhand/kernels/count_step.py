"""One step of identical arms, by counts.

The u arms of a cell (type, state, action) move by one multinomial draw, Mult(u, p(. | state, action)), made of
binomial draws, so that the cost does not depend on how many arms there are:

    c_1 ~ Bin(u, p_1),   c_2 ~ Bin(u - c_1, p_2 / (1 - p_1)),   ...

Compiled, every (episode, cell) draws from a counter of its own (see `randomness`), so that two policies that allocate
a cell alike see it move alike. A binomial draw is by inversion when n min(p, q) < 10 and else by transformed
rejection (Hörmann, 1993, algorithm BTRS), at a cost bounded for any n. In NumPy, `step_crowds` uses the generator's
own multinomial: the same law by another road.
"""

import numpy as np

from evenhand.kernels.threads import can_compile, threads_for
from evenhand.typing import Floats, Ints


def step_crowds(transitions: Floats, allocation: Ints, rng: np.random.Generator) -> Ints:
    """Move every crowd, in NumPy.

    Args:
        transitions: (type, state, action, next_state) probabilities.
        allocation: (episode, type, state, action) arms in each cell.
        rng: the world's stream.

    Returns:
        (episode, type, next_state) counts.
    """
    counts = np.zeros(allocation.shape[:3], dtype=np.int64)
    for cell in zip(*np.nonzero(transitions.any(axis=-1)), strict=True):
        kind, state, action = cell
        row = transitions[cell] / transitions[cell].sum()
        counts[:, kind] += rng.multinomial(allocation[:, kind, state, action], row)
    return counts


def step_crowds_fast(transitions: Floats, allocation: Ints, key: np.uint64, first: int) -> Ints:
    """Move every crowd, compiled; without Numba by `step_crowds`, whose law is the same and whose draws are others.

    Args:
        transitions: (type, state, action, next_state) probabilities.
        allocation: (episode, type, state, action) arms in each cell.
        key: the step's key.
        first: the number of the first episode of this batch.

    Returns:
        (episode, type, next_state) counts.
    """
    if not can_compile():
        return step_crowds(transitions, allocation, np.random.default_rng([int(key), first]))
    from evenhand.kernels import compiled

    rows = transitions.view()
    rows.flags.writeable = False  # as tables of arms are, and laws made on the way are not: one of the two is compiled
    with threads_for(100.0 * allocation.size):
        counts = compiled.step_crowds(rows, np.ascontiguousarray(allocation), key, first)
    return np.asarray(counts, dtype=np.int64)
