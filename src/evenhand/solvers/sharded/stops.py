"""How far an arm follows its frontier at some prices, told in a few numbers that can be sent anywhere.

Under every welfare an arm answers to prices alone: it follows an edge of slope s up to a stop, and stops fall as slopes
rise (`levels.follow`).

    mean            to the end where s <= 1/N, else not at all
    power mean      to r (N r s)^(-1/alpha), where marginal utility meets the slope
    rank-weighted   up to the last level whose limit is at least s; limits fall as levels rise (`grid`)
    leximin         to the common level
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evenhand.typing import Floats


class Stop(Protocol):
    """Up to where edges are followed."""

    def __call__(self, slopes: Floats) -> Floats:
        """(vertex,) the stop of each slope."""
        ...


@dataclass(frozen=True)
class UpTo:
    """One level for all: minus infinity is what costs nothing, infinity all there is."""

    level: float

    def __call__(self, slopes: Floats) -> Floats:
        """(vertex,) the level."""
        return np.full_like(slopes, self.level)


@dataclass(frozen=True)
class WorthMore:
    """The mean: edges whose slope is at most a weight."""

    weight: float

    def __call__(self, slopes: Floats) -> Floats:
        """(vertex,) infinity or minus infinity."""
        return np.where(slopes <= self.weight, np.inf, -np.inf)


@dataclass(frozen=True)
class MarginalUtility:
    """A power mean: where the marginal utility meets the slope."""

    alpha: float
    reference: float
    number: int

    def __call__(self, slopes: Floats) -> Floats:
        """(vertex,) r (N r s)^(-1/alpha)."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.reference * (self.number * self.reference * slopes) ** (-1 / self.alpha))


@dataclass(frozen=True, eq=False)
class Limits:
    """Ranks: the last level whose limit is at least the slope."""

    levels: Floats
    """(level,) values, rising."""

    limits: Floats
    """(level,) the largest slope that leads up to each, falling."""

    def __call__(self, slopes: Floats) -> Floats:
        """(vertex,) a level; infinity where even the last one is reached."""
        passed = len(self.limits) - np.searchsorted(self.limits[::-1], slopes, side="left")
        stops = np.concatenate([[-np.inf], self.levels])[passed]
        return np.where(passed == len(self.limits), np.inf, stops)


@dataclass(frozen=True, eq=False)
class Rule:
    """An answer to prices, as it is told to shards."""

    prices: Floats
    """(resource,) the prices."""

    stop: Stop
    """How far arms follow their frontiers at these prices."""

    number: int = 0
    """By which shards remember it; 0 where they need not."""


Mixture = tuple[tuple[float, Rule], ...]
"""Shares of answers."""
