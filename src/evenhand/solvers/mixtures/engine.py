"""The loop of column generation.

Each round the master gives the best mixture of the vectors so far with a support of the welfare there, and the oracle
is asked for policies at a support. Its bound is one on the welfare of every policy; the loop ends when the two meet.

Supports are smoothed between rounds (Wentges, 1997): pricing at a point between the best support so far and the
master's avoids the swings of plain column generation. Rounds: a few times the number of objectives in practice. Where
numbers of very different size leave master and oracle no digits to tell policies apart, the loop ends with what is
proved: the gap it leaves is a true one.
"""

from collections.abc import Callable

import numpy as np

from evenhand.errors import InvalidInput
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, is_lexicographic
from evenhand.solvers.mixtures.leximin import leximin, meet_floors, positive_shares
from evenhand.solvers.mixtures.masters import Master, master_of
from evenhand.solvers.mixtures.oracle import Oracle
from evenhand.solvers.mixtures.search import Mixture, Search, Support
from evenhand.typing import ArrayLike, Ints

SMOOTHING = 0.3
"""The share of the best support so far in the one that is priced next."""

MOST_STALLED = 2
"""Times that the master's own support brought neither a new vector nor a better bound before the gap is left."""


def best_mixture(
    oracle: Oracle,
    welfare: Welfare,
    counts: Ints,
    tolerance: float = 1e-7,
    progress: Callable[[int, float], None] | None = None,
    floors: ArrayLike = (),
) -> Mixture:
    """Maximise a concave welfare over all policies.

    Args:
        oracle: finds policies for weighted sums; its objectives are the members of welfare, then those with floors.
        welfare: what is maximised.
        counts: (member,) how many members each of the first objectives stands for.
        tolerance: the relative gap between the welfare and its bound at which to stop.
        progress: called each round with its number and the gap.
        floors: (floor,) the least that the other objectives must reach.

    Raises:
        Infeasible: the floors cannot all be reached.
    """
    least = np.asarray(floors, dtype=np.float64)
    search = Search(oracle, tolerance, progress, counts, least)
    # The mean first: its policy is a vector to begin with, and its bound holds for all that are at most the mean.
    mean = Support(np.concatenate([counts / counts.sum(), np.zeros(len(least))]), 0.0)
    _, bound = search.add(mean.weights, tolerance)
    rounding = search.rounding
    feasible = meet_floors(search)
    if is_lexicographic(welfare):
        return leximin(search, welfare)
    if isinstance(welfare, (RankWeighted, PowerMean)):
        search.upper_bound = bound  # these are at most the mean
    if isinstance(welfare, PowerMean) and welfare.aversion > 0:
        feasible = positive_shares(search, feasible)
    master = master_of(welfare, counts, least, feasible, 0.1 * tolerance)
    return _generate(search, welfare, master, mean, rounding)


def _generate(search: Search, welfare: Welfare, master: Master, best: Support, rounding: float) -> Mixture:
    members = np.arange(len(search.counts))
    smoothing = SMOOTHING if np.isfinite(search.upper_bound) else 0.0
    stalled = 0
    while True:
        shares, support = master(search.matrix)
        values = search.matrix @ shares
        value = float(welfare(search.members(values), search.counts))
        gap = search.gap(value, search.upper_bound, rounding, members)
        search.tell(gap)
        _check_support(welfare, value, search.upper_bound)
        if gap <= search.tolerance or stalled > MOST_STALLED or search.is_over:
            return Mixture(shares, values, value, search.upper_bound, search.rounds)
        # Phase 1: ask at a support between the best so far and the master's own.
        tried = support.towards(best, smoothing)
        # As long as the gap is wide, policies need not be precise.
        loose = 0.01 * min(gap, 1.0) if not stalled else 0.0
        found, most = search.add(tried.weights, max(0.1 * search.tolerance, loose))
        rounding = max(rounding, search.rounding)
        bound = search.bound(tried, most)
        # Phase 2: what the answer proves, and what it teaches.
        better = search.upper_bound - bound > 0.01 * (search.upper_bound - value)
        if bound < search.upper_bound:
            search.upper_bound, best = bound, tried
        # A vector that the master's own support does not like teaches it nothing: price that support next. Where that
        # has been done, and the bound stays where it is, master and oracle have no more digits to give.
        promised = search.bound(support, float(support.weights @ found))
        useful = promised > value + 0.1 * search.tolerance * search.scale(value, members)
        stalled = 0 if useful or better or smoothing else stalled + 1
        smoothing = SMOOTHING if useful else 0.0


def _check_support(welfare: Welfare, value: float, bound: float) -> None:
    """A welfare of a user's own may contradict itself: then nothing is proved."""
    known = isinstance(welfare, (RankWeighted, PowerMean))
    if not known and value > bound + 1e-4 * max(abs(value), abs(bound)):
        raise InvalidInput(
            f"welfare {welfare.name}: a policy has {value:.6g}, and its supergradients say that none has more than "
            f"{bound:.6g}: they do not bound it from above, or it is not concave"
        )
