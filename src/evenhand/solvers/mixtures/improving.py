"""Column generation with an oracle that is not exact: better and better mixtures, until there is nothing to gain.

The master and the supports are those of `engine`. What differs is the end: an oracle that finds good policies, but not
always the best, need not close the gap. So the search ends when the gap is closed, when several rounds in a row gained
less than counts (the error of simulation, say), or when the time is over.

    round    theta = argmax W(V theta) over the vectors so far, with a support g
             smoothed g <- (g + smoothed g) / 2          half old, half new: the master's own weights swing
             the oracle's policies at the smoothed g join the vectors
    stop     more than PATIENCE rounds without a gain, or the gap, or the number of rounds, or the clock

Leximin has a support a stage: they take turns, each smoothed by itself, and a gain is one at the first rank whose level
is another. The search goes on until every stage had its turns without one. The first stage may be met by whatever is
done (an arm that nobody can help), so no gap ends it.

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
from evenhand.solvers.mixtures.shares import Doubt, growing_master, leximin_stages, no_doubt
from evenhand.typing import ArrayLike, Floats, Ints

PATIENCE = 3
"""Rounds without a gain that are borne; the next ends the search. Leximin bears one more for each stage but one."""

MOST_TURNS = 6
"""Stages of leximin that take turns, the first ones: a round for each of many members would be too many."""

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
    doubt: Doubt = no_doubt,
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
        doubt: about the vectors, which the stages of leximin allow for.

    Returns:
        The best mixture of all vectors, those to begin with first, then the oracle's in the order they came.
    """
    least = np.asarray(floors, dtype=np.float64)
    # A master ten times as close as the search, so that its own gap does not look like one to the best.
    master = _master(matrix, welfare, counts, least, 0.1 * tolerance, doubt)
    smoothed: dict[int, Support] = {}
    before, stalled, number = [-np.inf], 0, 0
    while True:
        shares, support = master(matrix)
        values = matrix @ shares
        value = float(welfare(values[: len(counts)], counts))
        turn = master.turn if isinstance(master, _Stages) else _Turn(0, 1, [value])
        # Whether this round gained: by the levels of the stages, or by the welfare.
        stalled = 0 if _gains(turn.levels, before, least_gain(shares, support)) else stalled + 1
        before = turn.levels if stalled == 0 else before
        closed = np.isfinite(upper_bound) and upper_bound - value <= tolerance * max(abs(upper_bound), 1e-12)
        closed &= not is_lexicographic(welfare)
        told = go_on(Round(number, value, upper_bound))
        if closed or stalled >= PATIENCE + turn.stages or number >= most_rounds or not told:
            return Mixture(shares, values, value, upper_bound, number)
        # Half old, half new; each stage of leximin by itself, as their supports have nothing to do with each other.
        asked = smoothed[turn.stage] = support.towards(smoothed.get(turn.stage, support), 0.5)
        settled = _settled(asked.weights)
        priced = oracle(settled, tolerance)
        # What no policy has more of at the weights themselves: the digits that were cut off may be worth so much.
        most = priced.bound + float(np.abs(asked.weights - settled) @ oracle.units)
        # W(v) <= g.v + c, and the floors are worth what their prices say.
        bound = most - float(asked.weights[len(counts) :] @ least) + asked.constant
        upper_bound = min(upper_bound, bound) if not is_lexicographic(welfare) else upper_bound
        matrix = np.hstack([matrix, priced.vectors])
        number += 1


def _gains(reached: Sequence[float], before: Sequence[float], least: float) -> bool:
    """Whether the first level that differs by more than counts is higher."""
    # A round may fix more members than the last, and have more levels.
    return next((now > then for now, then in zip(reached, before, strict=False) if abs(now - then) > least), False)


def _settled(weights: Floats) -> Floats:
    """Weights to so many digits of the largest, none negative."""
    unit = float(np.abs(weights).max()) or 1.0
    return np.asarray(np.round(np.maximum(weights, 0.0) / unit, DIGITS) * unit)


def _master(matrix: Floats, welfare: Welfare, counts: Ints, floors: Floats, precision: float, doubt: Doubt) -> Master:
    """The master that keeps what it learned from round to round."""
    if is_lexicographic(welfare):
        return _Stages(len(counts), floors, precision, doubt)
    return growing_master(matrix, welfare, counts, floors, precision)


class _Turn(NamedTuple):
    """A round of the master."""

    stage: int
    """Whose support it gave."""

    stages: int
    """How many take turns."""

    levels: list[float]
    """What was reached: the welfare, or the level of each member that a stage of leximin has fixed, the least first."""


@dataclass
class _Stages:
    """The master of leximin: the supports of its stages take turns."""

    number: int
    floors: Floats
    precision: float
    doubt: Doubt
    turn: _Turn = field(default_factory=lambda: _Turn(-1, 1, []))

    def __call__(self, matrix: Floats) -> tuple[Floats, Support]:
        """The best shares, and the support of the stage whose turn it is; its weights of members sum to 1."""
        shares, stages = leximin_stages(matrix, self.number, self.floors, self.precision, self.doubt)
        levels = [raised.level for raised, held in stages for _ in range(int(held.sum()))]
        turns = min(len(stages), MOST_TURNS)
        # The next stage, or the first again.
        self.turn = _Turn((self.turn.stage + 1) % turns, turns, levels)
        weights = stages[self.turn.stage].raised.multipliers
        return shares, Support(weights / weights[: self.number].sum(), 0.0)
