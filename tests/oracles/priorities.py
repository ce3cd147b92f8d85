"""Algorithm 1 by halving in NumPy: the head of `evenhand.kernels.priorities` without blocks that end early."""

import numpy as np

from evenhand.typing import Bools, Floats, Ints


def sample_by_priority(
    priorities: Floats, counts: Ints, spend: Floats, usage: Floats, rng: np.random.Generator
) -> Ints:
    """Algorithm 1 by halving, in NumPy: all episodes at once, each with its own limits.

    Args:
        priorities: (episode, state, action) scores; those of 0 are never drawn.
        counts: (episode, state) arms.
        spend: (episode, resource) what may be spent.
        usage: (state, action, resource) usage.
        rng: where the draws come from.

    Returns:
        (episode, state, action) allocations.
    """
    taken = np.zeros(priorities.shape, dtype=np.int64)
    block = np.zeros(priorities.shape, dtype=np.int64)
    opened = _open_cells(priorities, counts, spend, usage, taken)
    while opened.any():
        arms_left = (counts - taken.sum(axis=2)).sum(axis=1)
        # 1. Episodes whose block is used up draw a new one, of as many draws as there are arms left: it surely meets a
        # limit.
        fresh = ~block.any(axis=(1, 2)) & opened.any(axis=(1, 2))
        block += _multinomial(np.where(fresh, arms_left, 0), np.where(opened, priorities, 0.0), rng)
        # 2. Halve time. A single draw is not halved any more: it is taken, whether or not it meets the limit.
        last = (block.sum(axis=(1, 2)) == 1)[:, None, None]
        half = np.where(last, block, rng.binomial(block, 0.5))
        opened_after = _open_cells(priorities, counts, spend, usage, taken + half)
        limit = (opened_after != opened).any(axis=(1, 2), keepdims=True)
        # 3. No limit in the first half: take it, and the second half is what is left of the block. A limit: take
        # nothing, and the first half is the new block.
        accepted = np.where(last | ~limit, half, 0)
        block = np.where(limit, half, block) - accepted
        taken += accepted
        # Only a single draw can close a cell, since nothing else that meets a limit is ever taken.
        opened = np.where(last, opened_after, opened)
    return taken


def _open_cells(priorities: Floats, counts: Ints, spend: Floats, usage: Floats, taken: Ints) -> Bools:
    """(episode, state, action) which cells can still be taken after (episode, state, action) `taken`."""
    # Rounding must not leave less than nothing, or even the idle action would not fit.
    left = np.maximum(spend - np.einsum("esa,sak->ek", taken, usage), 0.0)
    fits = (usage <= left[:, None, None]).all(axis=3)
    return np.asarray(fits & (priorities > 0) & (taken.sum(axis=2) < counts)[:, :, None])


def _multinomial(totals: Ints, weights: Floats, rng: np.random.Generator) -> Ints:
    """(episode, state, action) how many of (episode,) `totals` draws fall in each cell, in proportion to its weight.

    From the last cell to the first, Bin(what is left, w_c / (w_1 + ... + w_c)): such sums lose nothing to cancellation,
    and the first open cell takes all that is left.
    """
    flat = weights.reshape(len(weights), -1)
    sums = np.cumsum(flat, axis=1)
    # A closed cell has share 0; the first open one has share 1, w_1 / w_1.
    shares = np.divide(flat, sums, out=np.zeros_like(flat), where=flat > 0)
    numbers = np.zeros(flat.shape, dtype=np.int64)
    left = totals.copy()
    for cell in reversed(range(flat.shape[1])):
        numbers[:, cell] = rng.binomial(left, shares[:, cell])
        left -= numbers[:, cell]
    return numbers.reshape(weights.shape)
