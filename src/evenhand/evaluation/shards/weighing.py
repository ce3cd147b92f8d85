"""Welfare of one value an arm with little memory: ranks are passed in runs, and only the order is kept beside them.

    W(v) = v_(1) + sum_i w_i (v_(i) - v_(1)),        weight of an arm = the mean of w over the ranks of its ties
    Gini coefficient = sum_i (2 i - 1 - N) (v_(i) - v_(1)) / (N^2 |mean v|)

16 bytes an arm beside the values: the order and the weights. Sums are exact, so that they do not depend on the runs.
"""

from typing import NamedTuple

import numpy as np

from evenhand.errors import OutOfDomain
from evenhand.evaluation.inequality import gini_coefficient
from evenhand.kernels.exact_sums import UNIT, exact_sum
from evenhand.kernels.runs import pieces, tied_runs
from evenhand.model.objective import Objective
from evenhand.model.welfare import RankWeighted, is_lexicographic
from evenhand.typing import Floats, Ints


class Weighed(NamedTuple):
    """Values, weighed."""

    welfare: float
    """Of the members."""

    gradient: Floats | None
    """(value,) what a unit of each is worth, for all its arms; None where the welfare has no slope there."""

    gini_coefficient: float
    """Of the members."""


def weigh(objective: Objective, values: Floats) -> Weighed:
    """The welfare of values, its slope, and their inequality.

    Args:
        objective: how they are weighed.
        values: (value,)
    """
    one_each = objective.groups is None and objective.counts.strides == (0,)  # as `row_counts` gives single arms
    if one_each and isinstance(objective.welfare, RankWeighted) and not is_lexicographic(objective.welfare):
        return _by_runs(objective.welfare, values)
    members = objective.members(values)
    return Weighed(objective(values), _gradient(objective, values), float(gini_coefficient(members, objective.sizes)))


def _gradient(objective: Objective, values: Floats) -> Floats | None:
    try:
        return objective.supergradient(values)
    except OutOfDomain:
        return None


def _by_runs(welfare: RankWeighted, values: Floats) -> Weighed:
    welfare.check_num_arms(len(values))
    welfare.check_domain(values[:1])
    number, order = len(values), np.argsort(values)
    worst, weights = float(values[order[0]]), np.empty(len(values))
    above_worst = spread = total = 0
    for ranks, tied in tied_runs(values, order):
        for piece in pieces(ranks):  # of a long tie; else the whole run
            rows = order[piece]
            ascending = values[rows]
            first, last = _all_tied(ranks, len(rows)) if tied else _ties(ascending, ranks.start)
            weights[rows] = welfare.rank_mass(first, last, number) / (last - first)
            above = ascending - worst
            total += exact_sum(ascending)
            above_worst += exact_sum(above * weights[rows])
            spread += exact_sum(above * ((first + last - number) / number))
    mean = abs(total / UNIT) / number
    half = spread / UNIT / number
    return Weighed(worst + above_worst / UNIT, weights, half / mean if mean > 0 else 0.0 if half == 0 else np.nan)


def _all_tied(ranks: slice, number: int) -> tuple[Ints, Ints]:
    """(rank,) the ranks before and up to a tie, for some of it."""
    return np.full(number, ranks.start), np.full(number, ranks.stop)


def _ties(ascending: Floats, start: int) -> tuple[Ints, Ints]:
    """(rank,) the ranks before and up to those of the equals of each."""
    heads = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    sizes = np.diff(np.concatenate([heads, [len(ascending)]]))
    first = np.repeat(heads, sizes) + start
    return first, first + np.repeat(sizes, sizes)
