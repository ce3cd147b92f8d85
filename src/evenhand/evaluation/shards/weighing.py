"""Welfare of one value an arm with little memory: ranks are passed in runs, and only the order is kept beside them.

    W(v) = v_(1) + sum_i w_i (v_(i) - v_(1)),        weight of an arm = the mean of w over the ranks of its ties
    Gini coefficient = sum_i (2 i - 1 - N) (v_(i) - v_(1)) / (N^2 |mean v|)

16 bytes an arm beside the values: the order and the weights. Sums are exact, so that they do not depend on the runs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from evenhand.errors import OutOfDomain
from evenhand.evaluation.fairness import gini_coefficient
from evenhand.kernels.exact_sums import UNIT, exact_sum
from evenhand.model.objective import Objective
from evenhand.model.welfare import RankWeighted, is_lexicographic
from evenhand.typing import Array, Floats, Ints

RUN = 1 << 16
"""Ranks that are looked at together, at least."""


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
    for run in _runs(values, order):
        above, first, last = _ties(values[order[run]], worst, run.start)
        weights[order[run]] = welfare.rank_mass(first, last, number) / (last - first)
        total += exact_sum(values[order[run]])
        above_worst += exact_sum(above * weights[order[run]])
        spread += exact_sum(above * ((first + last - number) / number))
    mean = abs(total / UNIT) / number
    half = spread / UNIT / number
    return Weighed(worst + above_worst / UNIT, weights, half / mean if mean > 0 else 0.0 if half == 0 else np.nan)


def _runs(values: Floats, order: Array) -> Iterator[slice]:
    """Runs of ranks that do not cut ties."""
    start = 0
    while start < len(order):
        stop = min(start + RUN, len(order))
        while stop < len(order) and values[order[stop]] == values[order[stop - 1]]:
            stop += 1
        yield slice(start, stop)
        start = stop


def _ties(ascending: Floats, worst: float, start: int) -> tuple[Floats, Ints, Ints]:
    """(rank,) how far values are above the worst, and the ranks before and up to those of their equals."""
    heads = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    sizes = np.diff(np.concatenate([heads, [len(ascending)]]))
    first = np.repeat(heads, sizes) + start
    return ascending - worst, first, first + np.repeat(sizes, sizes)
