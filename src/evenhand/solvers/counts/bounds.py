"""Bounds from one application of the Bellman operator.

With d = T V - V for any V, the criterion brackets the optimum (`Criterion.bracket`): MacQueen's bounds if discounted,
min d and max d under average. The lower one holds for the policy that is greedy in V; with the operator of one policy
in place of T, both hold for that policy.

Rounding. The computed T V - V is within e = error (max|V| + max|r|) of the true one, error added up where the laws are
made (`Outcomes.error`), and the mean over the computed first law within e_0 = error_0 max|T V|. So

    discounted   low and high are off by at most  e + gamma/(1-gamma) e + e_0 = e / (1-gamma) + e_0
    average      by at most  e: they are entries of d, and no mean is taken
    finite       e_t = e(V_{t+1}) + gamma e_{t+1},  e_T = 0; the value of the first step is off by at most  e_0' + e_0,
                 e_0' what e_t has come to at step 0

Bounds that rounding keeps apart by more than LONG times what it does to rewards are not close, whatever the values:
arms that take very long to forget, or a discount next to 1, have values that large.

In all of them e stands once for each step that counts: times `Criterion.total` where V is the same at every step. Under
average V is centred, so that max|V| does not grow with the number of sweeps.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from evenhand.model.criterion import Criterion
from evenhand.solvers.counts.post_decision import UNIT
from evenhand.typing import Floats

_NEXT_TO_NOTHING = 1e-6
"""Least scale of a relative gap, as a share of the largest possible value."""

LONG = 1000.0
"""Steps whose rounding may add up before bounds that it keeps apart are not close any more."""


class Bounds(NamedTuple):
    """Bounds on a value from the initial distribution."""

    low: float
    high: float
    slack: float
    """Part of the gap that is due to rounding and cut tails, on either side."""

    scale: float
    """Denominator of the relative gap: the value, unless it is nearly 0."""

    excused: float
    """Part of the slack that is not due to large values."""

    @property
    def gap(self) -> float:
        """Relative."""
        return (self.high - self.low) / self.scale if self.scale > 0 else 0.0

    def close(self, tolerance: float) -> bool:
        """Return True if the relative gap is within a tolerance, or due to rounding."""
        return self.high - self.low <= max(tolerance * self.scale, 4 * self.excused)


class Certifier:
    """Turns value functions into bounds."""

    def __init__(
        self, criterion: Criterion, largest_reward: float, error: float, first_law: Floats, law_error: float
    ) -> None:
        """Keep what bounds need.

        Args:
            criterion: what rewards over time are worth.
            largest_reward: the largest mean reward of a step, up to its sign.
            error: how far a computed T V - V may be off, relative to max|V| + max|r|.
            first_law: (count state,) the law of the first counts.
            law_error: how far a mean over it may be off, relative to the largest entry.
        """
        self.criterion, self.largest = criterion, largest_reward
        self.error, self.first_law, self.law_error = error, first_law, law_error

    def step_error(self, value: Floats) -> float:
        """Bound on the error of one computed T V."""
        return self.error * (float(np.abs(value).max()) + self.largest)

    def bound(self, value: Floats, improved: Floats, least: float, most: float) -> Bounds:
        """Bounds for an endless criterion.

        Args:
            value: (count state,) V.
            improved: (count state,) T V.
            least: the smallest entry of T V - V.
            most: the largest.
        """
        slack = self.step_error(value) * self.criterion.total
        # An average is between entries of the change: no mean is taken.
        mean, mean_error = self._mean(improved) if self.criterion.contracts else (0.0, 0.0)
        return self._widened(*self.criterion.bracket(mean, least, most), slack + mean_error)

    def settle(self, value: Floats, slack: float) -> Bounds:
        """Bounds from a value function that is exact up to rounding.

        Args:
            value: (count state,) the value function.
            slack: how far its entries may be off.
        """
        mean, mean_error = self._mean(value)
        return self._widened(mean, mean, slack + mean_error)

    def _mean(self, value: Floats) -> tuple[float, float]:
        """The mean over the first law, and its rounding; summed in pairs, with less rounding than a product."""
        return float((self.first_law * value).sum()), self.law_error * float(np.abs(value).max())

    def _widened(self, low: float, high: float, slack: float) -> Bounds:
        low, high = low - slack, high + slack
        scale = max(abs(low), abs(high), _NEXT_TO_NOTHING * self.largest * self.criterion.total)
        excused = slack
        if self.criterion.is_stationary:
            excused = min(slack, LONG * self.error * self.largest * self.criterion.total)
        return Bounds(low, high, slack, scale, excused)


def law_error(num_arms: int) -> float:
    """Bound on the error of a mean over a multinomial distribution of so many arms, relative to the largest entry."""
    return 16 * UNIT * (float(gammaln(num_arms + 2)) + 4)
