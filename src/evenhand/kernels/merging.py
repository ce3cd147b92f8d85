"""The greedy choice by score when candidates are spread over shards: exact, whatever the number of shards.

Order. A candidate (arm, action) stands at (key, bits): the key is its score as a whole number, the best first; scores
that are equal but for rounding have one key, and among them bits decide, which are a function of a draw and the place.

Choice. In this order a candidate is served if its arm is not served yet and its usage fits. While everything fits, the
choice is known without the order: every arm gets its first candidate. So shards add up what their first candidates use
in each *bin* of keys; all bins before the one at which the sum breaks the budget are served wholly, and only the
candidates of that one are brought together and passed one by one. What comes after it and still fits is treated alike.

Amounts are whole numbers of 2^-60 of the budget, added as two halves of 30 bits, so that no sum depends on its order.
O(candidates) a step, and O(candidates of one bin, log) for those that are merged.
"""

import numpy as np
from numpy.typing import NDArray

from evenhand.typing import Array, Bools, Floats, Ints

Keys = NDArray[np.uint64]

HALF = 30
MASK = (1 << HALF) - 1

MOST_AT_ONCE = 1 << 22
"""Candidates of one shard whose halves add up exactly in doubles."""

TOO_MUCH = 1 << 61
"""An amount that never fits."""

NEVER = np.uint64(2**64 - 1)
"""The key of what is never served."""


# -- keys and amounts -------------------------------------------------------------------------------------------------


def keys_of(scores: Floats, first: Bools | None = None) -> Keys:
    """Scores as whole numbers of the opposite order; the last bit of a score is not told apart.

    Args:
        scores: any shape; -inf is never served.
        first: the same shape, which come before all others whatever their score; none when absent.
    """
    # Adding 0 makes -0.0 the same as 0.0.
    bits = (scores + 0.0).view(np.uint64)
    negative = bits >> np.uint64(63) == 1
    # Doubles order like their bits, negative ones the other way round; one bit goes, and is free for `first`.
    ascending = np.where(negative, ~bits, bits | np.uint64(1 << 63)) >> np.uint64(1)
    if first is not None:
        ascending = ascending | (first.astype(np.uint64) << np.uint64(63))
    return np.where(np.isneginf(scores), NEVER, ~ascending)


def amounts_of(usage: Floats, limit: Floats) -> Ints:
    """(..., resource) usage in units of 2^-60 of the budget, rounded up to a power of 2.

    Args:
        usage: (..., resource) any; what is more than the limit never fits.
        limit: (resource,) the budget.
    """
    # Scaling by a power of 2 rounds nothing; `rint` does, once.
    units = np.ldexp(1.0, 60 - _powers(limit))
    with np.errstate(over="ignore"):
        amounts = np.rint(np.minimum(usage, limit) * units).astype(np.int64)
    return np.where(usage > limit, TOO_MUCH, amounts)


def _powers(limit: Floats) -> Array:
    """(resource,) the power of 2 from which the budget is below."""
    return np.asarray(np.frexp(np.where(limit > 0, limit, 1.0))[1])


def halves(amounts: Ints) -> tuple[Ints, Ints]:
    """Amounts as an upper and a lower half."""
    return amounts >> HALF, amounts & MASK


# -- sums that do not depend on their order ---------------------------------------------------------------------------


def add_by_bin(bins: Array, amounts: Ints, num_bins: int) -> tuple[Ints, Ints]:
    """(bin, resource) sums of the halves of amounts.

    Args:
        bins: (candidate,) the bin of each.
        amounts: (candidate, resource) what they use.
        num_bins: how many bins there are.
    """
    upper, lower = halves(amounts)
    sums = [
        # Halves of 2^31 at most, up to 2^22 of them: sums up to 2^53 are exact in doubles.
        np.stack([np.bincount(bins, weights=column, minlength=num_bins) for column in part.T], axis=1)
        for part in (upper, lower)
    ]
    return sums[0].astype(np.int64), sums[1].astype(np.int64)


def num_that_fit(upper: Ints, lower: Ints, left: Ints) -> tuple[int, Ints]:
    """How many entries fit one after another, and what is left after them.

    Args:
        upper: (entry, resource) upper halves.
        lower: (entry, resource) lower halves.
        left: (resource,) amounts.
    """
    upper, lower = np.cumsum(upper, axis=0), np.cumsum(lower, axis=0)
    # The carry of the lower halves.
    upper, lower = upper + (lower >> HALF), lower & MASK
    most, rest = halves(left)
    fits = ((upper < most) | ((upper == most) & (lower <= rest))).all(axis=1)
    number = len(fits) if fits.all() else int(fits.argmin())
    if number == 0:
        return 0, left
    return number, left - ((upper[number - 1] << HALF) + lower[number - 1])


# -- the choice -------------------------------------------------------------------------------------------------------


def serve_in_order(arms: Ints, amounts: Ints, left: Ints) -> tuple[Bools, Ints]:
    """Which candidates are served, passed in their order, and what is left.

    Args:
        arms: (candidate,) the arm of each.
        amounts: (candidate, resource) what they use.
        left: (resource,) what there is.

    Returns:
        (candidate,) whether it is served, and (resource,) what is left.
    """
    taken = np.zeros(len(arms), dtype=np.bool_)
    rest = np.arange(len(arms))
    while len(rest := rest[(amounts[rest] <= left).all(axis=1)]):
        # The first candidate of every arm, in order.
        first = np.sort(np.unique(arms[rest], return_index=True)[1])
        number, left = num_that_fit(*halves(amounts[rest[first]]), left)
        taken[rest[first[:number]]] = True
        if number == len(first):
            break
        # The first that does not fit is passed over; what comes behind it, of arms not served yet, is looked at anew.
        after = rest[first[number] + 1 :]
        rest = after[~np.isin(arms[after], arms[rest[first[:number]]])]
    return taken, left


# -- scores that are equal but for rounding ---------------------------------------------------------------------------


def chains(ordered: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Scores that are equal but for rounding to their neighbour, and the highest of each such chain.

    Args:
        ordered: (score,) different scores, from the highest.
        least: (score,) for all but the first, by how much it must be below its neighbour to be another.

    Returns:
        (member,) scores that have a higher one in their chain, ascending, and (member,) the highest of each.
    """
    apart = np.concatenate([[True], -np.diff(ordered) > least])
    heads = ordered[np.flatnonzero(apart)[np.cumsum(apart) - 1]]
    members = ~apart
    return ordered[members][::-1], heads[members][::-1]


def with_heads(scores: Floats, members: Floats, heads: Floats) -> Floats:
    """The same scores, those of a chain all as its highest.

    Args:
        scores: any shape.
        members: (member,) those that have a higher one, ascending.
        heads: (member,) the highest of each.
    """
    if not len(members):
        return scores
    place = np.minimum(np.searchsorted(members, scores), len(members) - 1)
    return np.where(members[place] == scores, heads[place], scores)
