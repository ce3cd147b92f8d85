"""Column generation with an oracle that is not exact.

An oracle that finds good policies, but not always the best, need not close the gap. So the search ends when the gap is
closed, when several rounds in a row gained less than counts (the error of simulation, say), or when the time is over.

    round    theta = argmax W(V theta) over the vectors so far, with a support g
             smoothed g <- (g + smoothed g) / 2          half old, half new: the master's own weights swing
             the oracle's policies at the smoothed g join the vectors
    stop     more than PATIENCE rounds without a gain, or the gap, or the number of rounds, or the clock

Leximin has a support per stage: they take turns, each smoothed by itself, and a gain is one at the first rank whose
level differs. The search goes on until every stage had its turns without one. The first stage may be reached whatever
is done (an arm that no policy helps), so no gap ends it.

Cost: members x vectors per step of the master, and the oracle.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from evenhand.model.welfare import Welfare, is_lexicographic
from evenhand.solvers.column_generation.master import Mixture, Oracle
from evenhand.solvers.column_generation.shares import ErrorOfSum, exact_values, leximin_stages, master_from
from evenhand.solvers.welfare_cuts import Support
from evenhand.typing import ArrayLike, Floats, Ints

PATIENCE = 3
"""Rounds without a gain before the last one. Leximin has one more for each stage but one."""

MAX_TURNS = 6
"""Stages of leximin that take turns, the first ones: a round for each of many members would be too many."""

DIGITS = 10
"""Digits of the weights that are priced: those behind them are rounding, and must not decide."""


class Round(NamedTuple):
    """State after a round."""

    number: int
    """Rounds so far."""

    welfare: float
    """Welfare of the best mixture so far."""

    upper_bound: float
    """Upper bound on the welfare of every policy."""


def improve(
    oracle: Oracle,
    welfare: Welfare,
    counts: Ints,
    matrix: Floats,
    floors: ArrayLike = (),
    *,
    upper_bound: float = np.inf,
    tolerance: float = 1e-4,
    least_gain: Callable[[Floats, Support], float] = lambda shares, support: 0.0,
    most_rounds: int = 40,
    go_on: Callable[[Round], bool] = lambda round: True,
    error: ErrorOfSum = exact_values,
) -> Mixture:
    """Improve a mixture of known policies by an oracle that need not be exact.

    Args:
        oracle: finds policies for weighted sums; its objectives are the members of welfare, then those with floors.
        welfare: welfare to maximise.
        counts: (member,) multiplicity of each of the first objectives.
        matrix: (objective, policy) first vectors, at least one; some mixture of them meets the floors.
        floors: (floor,) lower bounds of the other objectives.
        upper_bound: upper bound on the welfare of every policy.
        tolerance: relative gap at which to stop.
        least_gain: smallest gain of a round that counts, at some shares and support.
        most_rounds: calls of the oracle at most.
        go_on: called after every round; returns whether there is time for another.
        error: standard error of sums of the vectors' values, for the stages of leximin.

    Returns:
        The best mixture of all vectors, the first ones first, then the oracle's in their order.
    """
    least, lexicographic = np.asarray(floors, dtype=np.float64), is_lexicographic(welfare)
    # A master ten times as close as the search, so that its own gap is not taken for one to the optimum.
    precision = 0.1 * tolerance
    master = None if lexicographic else master_from(matrix, welfare, counts, least, precision)
    smoothed: dict[int, Support] = {}
    before, stalled, number = [-np.inf], 0, 0
    while True:
        turn, num_turns = 0, 1
        if master is None:
            # The support of the stage whose turn it is; its weights of members sum to 1.
            shares, stages = leximin_stages(matrix, len(counts), least, precision, error)
            num_turns = min(len(stages), MAX_TURNS)
            turn = number % num_turns
            weights = stages[turn].raised.multipliers
            support = Support(weights / weights[: len(counts)].sum(), 0.0)
        else:
            shares, support = master(matrix)
        value = float(welfare((matrix @ shares)[: len(counts)], counts))
        # The welfare; under leximin the level of each fixed member, the least first.
        levels = [value]
        if master is None:
            levels = [raised.level for raised, held in stages for _ in range(int(held.sum()))]
        stalled = 0 if _gains(levels, before, least_gain(shares, support)) else stalled + 1
        before = levels if stalled == 0 else before
        # By chance the best of many estimates is above the bound before any plan is near it.
        least_value = value - 2 * error(shares, support.weights[: len(counts)])
        closed = np.isfinite(upper_bound) and upper_bound - least_value <= tolerance * max(abs(upper_bound), 1e-12)
        has_time = go_on(Round(number, value, upper_bound))
        ended = stalled >= PATIENCE + num_turns or number >= most_rounds or not has_time
        if ended or (closed and not lexicographic):
            return Mixture(shares, matrix @ shares, value, upper_bound, number)
        # Half old, half new; each stage of leximin by itself, since their supports are unrelated.
        priced_at = smoothed[turn] = support.towards(smoothed.get(turn, support), 0.5)
        # Weights rounded to some digits of the largest, none negative.
        unit = float(np.abs(priced_at.weights).max()) or 1.0
        rounded = np.round(np.maximum(priced_at.weights, 0.0) / unit, DIGITS) * unit
        priced = oracle(rounded, tolerance)
        # A bound at the weights themselves: the digits that were cut off may add so much.
        most = priced.bound + float(np.abs(priced_at.weights - rounded) @ oracle.units)
        bound = most - float(priced_at.weights[len(counts) :] @ least) + priced_at.constant
        upper_bound = upper_bound if lexicographic else min(upper_bound, bound)
        matrix = np.hstack([matrix, priced.vectors])
        number += 1


def _gains(reached: Sequence[float], before: Sequence[float], least: float) -> bool:
    """Return whether the first level that differs by more than counts is higher."""
    # A round may fix more members than the last, and have more levels.
    return next((now > then for now, then in zip(reached, before, strict=False) if abs(now - then) > least), False)
