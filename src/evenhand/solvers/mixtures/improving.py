"""Column generation with an oracle that is not exact: better and better mixtures, until there is nothing to gain.

The master and the supports are those of `engine`. What differs is the end: an oracle that finds good policies, but not
always the best, need not close the gap. So the search ends when the gap is closed, when several rounds in a row gained
less than counts (the error of simulation, say), or when the time is over.

    round    theta = argmax W(V theta) over the vectors so far, with a support g
             smoothed g <- (g + smoothed g) / 2          half old, half new: the master's own weights swing
             the oracle's policies at the smoothed g join the vectors
    stop     more than PATIENCE rounds without a gain, or the gap, or the number of rounds, or the clock

Leximin has a support a stage: they take turns, and a gain is one of the first stage that is reached at another level.
Its first stage may be met by whatever is done (an arm that nobody can help), so no gap ends it.

Cost: members x vectors a step of the master, and whatever the oracle takes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evenhand.model.welfare import Welfare, is_lexicographic
from evenhand.solvers.mixtures.masters import Master
from evenhand.solvers.mixtures.oracle import Oracle
from evenhand.solvers.mixtures.search import Mixture, Support
from evenhand.solvers.mixtures.shares import growing_master, leximin_stages
from evenhand.typing import ArrayLike, Floats, Ints

PATIENCE = 3
"""Rounds without a gain that are borne; the next ends the search."""

DIGITS = 10
"""Digits of the weights that are asked for: what is behind them is rounding, and must not decide."""


class Round(NamedTuple):
    """What is known after a round."""

    number: int
    """Rounds so far."""

    welfare: float
    """Of the best mixture so far."""

    upper_bound: float
    """No policy has more."""


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
) -> Mixture:
    """Improve a mixture of known policies by an oracle that need not be exact.

    Args:
        oracle: finds policies for weighted sums; its objectives are the members of welfare, then those with floors.
        welfare: what is maximised.
        counts: (member,) how many members each of the first objectives stands for.
        matrix: (objective, policy) vectors to begin with, at least one; some mixture of them keeps the floors.
        floors: (floor,) the least that the other objectives must reach.
        upper_bound: no policy has more welfare.
        tolerance: the relative gap at which to stop.
        least_gain: what a round must gain, at some shares and support, to count.
        most_rounds: how often the oracle is asked at the most.
        go_on: told of every round; whether there is time for another.

    Returns:
        The best mixture of all vectors, those to begin with first, then the oracle's in the order they came.
    """
    least = np.asarray(floors, dtype=np.float64)
    master = _master(matrix, welfare, counts, least, 0.1 * tolerance)
    smoothed, before, stalled, number = None, [-np.inf], 0, 0
    while True:
        shares, support = master(matrix)
        values = matrix @ shares
        value = float(welfare(values[: len(counts)], counts))
        reached = master.levels if isinstance(master, _Stages) else [value]
        stalled = 0 if _gains(reached, before, least_gain(shares, support)) else stalled + 1
        before = reached if stalled == 0 else before
        closed = np.isfinite(upper_bound) and upper_bound - value <= tolerance * max(abs(upper_bound), 1e-12)
        closed &= not is_lexicographic(welfare)
        told = go_on(Round(number, value, upper_bound))
        if closed or stalled > PATIENCE or number >= most_rounds or not told:
            return Mixture(shares, values, value, upper_bound, number)
        smoothed = support if smoothed is None else support.towards(smoothed, 0.5)
        priced = oracle(_settled(smoothed.weights), tolerance)
        bound = priced.bound - float(smoothed.weights[len(counts) :] @ least) + smoothed.constant
        upper_bound = min(upper_bound, bound) if not is_lexicographic(welfare) else upper_bound
        matrix = np.hstack([matrix, priced.vectors])
        number += 1


def _gains(reached: Sequence[float], before: Sequence[float], least: float) -> bool:
    """Whether the first level that differs by more than counts is higher."""
    return next((now > then for now, then in zip(reached, before, strict=False) if abs(now - then) > least), False)


def _settled(weights: Floats) -> Floats:
    """Weights to so many digits of the largest, none negative."""
    unit = float(np.abs(weights).max()) or 1.0
    return np.asarray(np.round(np.maximum(weights, 0.0) / unit, DIGITS) * unit)


def _master(matrix: Floats, welfare: Welfare, counts: Ints, floors: Floats, precision: float) -> Master:
    """The master that keeps what it learned from round to round."""
    if is_lexicographic(welfare):
        return _Stages(len(counts), floors, precision)
    return growing_master(matrix, welfare, counts, floors, precision)


@dataclass
class _Stages:
    """The master of leximin: the supports of its stages take turns."""

    number: int
    floors: Floats
    precision: float
    turn: int = 0
    levels: list[float] = field(default_factory=list)

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, and the support of the stage whose turn it is; its weights of members sum to 1."""
        shares, stages = leximin_stages(matrix, self.number, self.floors, self.precision)
        self.levels = [stage.level for stage in stages]
        weights = stages[self.turn % len(stages)].multipliers
        self.turn += 1
        return shares, Support(weights / weights[: self.number].sum(), 0.0)
