"""Allocations drawn by priority scores: the paper's Algorithm 1, in far fewer steps than one an arm.

The algorithm. Each of the x_s arms in state s is to get an action. With priorities U_sa in (0, 1], amounts b_k that may
be spent and usages d_sak, cells c = (s, a) are drawn with probability proportional to U_c among those not forbidden. A
drawn cell that fits, d_c <= b, is taken: one arm of state s gets action a, and b falls by d_c. One that does not fit is
forbidden from then on, as are all cells of a state without arms left. It ends when everything is forbidden.

Its law. Amounts only fall and states only empty, so what does not fit once never fits again. Call a cell *open* if

    U_c > 0,   x_s > 0,   d_c <= b.

Rejections only renormalise: whatever closed cells are drawn in between, the next cell *taken* is

    c with probability U_c / sum of U over open cells.

If every state has an open cell that uses nothing (the idle action; the caller sees to it), there is an open cell as
long as there are arms, and in the end every arm has one action.

The fast version. Call it a *limit* when a cell closes: a state has run empty, or less is left of a resource than some
open cell uses. Between limits the open cells stay the same, and cells are taken independently with p = U / sum U.

    1. Let a block of m draws come at independent uniform times in [0, 1]. How many draws each cell gets is
       n ~ Multinomial(m, p); given n, the times are still independent and uniform.
    2. If taking n meets no limit, take all of it. Else look for the limit by halving time: h_c ~ Bin(n_c, 1/2) of the
       draws fall in the first half, and within each half times are again independent and uniform. If h meets no limit,
       take it and go on in the second half with n - h; else go on in the first half with h.
    3. One draw is left: it is the one that meets the limit. Take it, and forget the draws that lie behind it: they are
       independent of the earlier ones, so fresh ones serve as well.

What is taken is exactly what one draw after the other would have taken, since halving only reveals the times bit by bit
and a limit, once met, stays met. The size m of a block may depend on all that was taken before, so any rule for it
leaves the law as it is. As many draws as there are arms left surely meet a limit; each limit then takes about
log2 N + 2 halvings of S A cells, and there are at most S A limits:

    O(limits S A log N)  instead of  O(N S A).

In `priority_sampling` a block ends a little before the limit is expected, so that it is mostly taken whole
and what is left to go is about the square root of what it was; and where a limit is only a few draws away, these are
made one by one. Every episode draws from a counter of its own (see `randomness`).

The exact law follows by unrolling the cells taken, one arm after the other; allocations reached by several orders are
merged. What a cell may use is compared plainly, d_c <= b: the caller leaves room for rounding in b.
"""

import numpy as np

from evenhand.errors import TooLargeError
from evenhand.typing import Bools, Floats, Ints

LARGEST_DISTRIBUTION = 200_000
"""Allocations, complete or on the way, beyond which an exact law is refused."""


# -- the exact law ----------------------------------------------------------------------------------------------------


def priority_distribution(
    priorities: Floats, counts: Ints, spend: Floats, usage: Floats, largest: int = LARGEST_DISTRIBUTION
) -> tuple[Ints, Floats]:
    """The exact law of an allocation drawn by priorities.

    Args:
        priorities: (state, action) scores; those of 0 are never drawn.
        counts: (state,) arms.
        spend: (resource,) what may be spent.
        usage: (state, action, resource) usage.
        largest: number of allocations, complete or on the way, beyond which it is refused.

    Returns:
        (choice, state, action) allocations, each once, and their (choice,) probabilities.

    Raises:
        TooLargeError: more than `largest` allocations would have to be distinguished.
    """
    weights = _key_weights(np.repeat(counts, priorities.shape[1]))
    taken, chances = np.zeros((1, *priorities.shape), dtype=np.int64), np.ones(1)
    for arm in range(int(counts.sum())):
        opened = _open_cells(priorities[None], counts[None], spend[None], usage, taken)
        # What is reached so far, times the chance of the next cell.
        shares = np.where(opened, priorities, 0.0)
        shares *= (chances / shares.sum(axis=(1, 2)))[:, None, None]
        taken, chances = _take_one(taken, shares, weights)
        if len(taken) > largest:
            raise TooLargeError(
                f"the exact law of {counts.sum()} arms has over {largest} allocations at its {arm + 1}th arm. "
                "Draw samples instead."
            )
    return taken, chances


def _open_cells(priorities: Floats, counts: Ints, spend: Floats, usage: Floats, taken: Ints) -> Bools:
    """(episode, state, action) which cells can still be taken after (episode, state, action) `taken`."""
    # Rounding must not leave less than nothing, or even the idle action would not fit.
    left = np.maximum(spend - np.einsum("esa,sak->ek", taken, usage), 0.0)
    fits = (usage <= left[:, None, None]).all(axis=3)
    return np.asarray(fits & (priorities > 0) & (taken.sum(axis=2) < counts)[:, :, None])


# -- merging ----------------------------------------------------------------------------------------------------------


def _key_weights(most: Ints) -> Ints:
    """(word, cell) weights that make an allocation of at most (cell,) `most` arms a number: the digits of its words."""
    weights = np.zeros((1, len(most)), dtype=np.int64)
    weight = 1
    for cell, digit in enumerate(most.tolist()):
        # A word is full: go on in the next one.
        if weight * (digit + 1) >= 2**63:
            weights = np.vstack([weights, np.zeros_like(weights[0])])
            weight = 1
        weights[-1, cell] = weight
        weight *= digit + 1
    return weights


def _take_one(taken: Ints, shares: Floats, weights: Ints) -> tuple[Ints, Floats]:
    """Take one more cell, with (choice, state, action) probabilities `shares`, and merge what has become equal."""
    flat, flat_shares = taken.reshape(len(taken), -1), shares.reshape(len(taken), -1)
    parents, cells = np.nonzero(flat_shares)
    # Each allocation is a number, or a few: a sort brings equal ones together, whichever order of cells led to them.
    keys = (weights @ flat.T)[:, parents] + weights[:, cells]
    order = np.lexsort(keys)
    sorted_keys = keys[:, order]
    starts = np.flatnonzero(np.append(True, (sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(axis=0)))
    chosen = order[starts]
    after = flat[parents[chosen]]
    after[np.arange(len(chosen)), cells[chosen]] += 1
    return after.reshape(-1, *taken.shape[1:]), np.add.reduceat(flat_shares[parents, cells][order], starts)
