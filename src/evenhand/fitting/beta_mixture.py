"""Quantiles of mixtures of Beta distributions.

A transition of a pooled row has a mixture of Beta distributions, over the nodes of a quadrature of the strength of
pooling and the common row:

    F(x) = sum_i w_i I_x(a_i, b_i),     I the distribution function of a Beta

The quantile is found in y = log(x / (1 - x)) by Newton steps of log F, which is nearly linear in the tail, and by
bisection if a step would leave the bracket. So a bound of 1e-200 is as exact as one of 0.3.
"""

import numpy as np

from evenhand.typing import Floats, Ints

FARTHEST = 690.0
"""|y| from which on a probability is 0 or 1."""

STEPS = 200
"""Most steps; bisection alone needs 60."""

CLOSE = 1e-5
"""Tolerance of a step relative to 1 + |y|: Newton's next would be of its square."""

SMALLEST = 1e-300
"""Least parameter of a Beta distribution."""


def mixture_quantile(a: Floats, b: Floats, weights: Floats, share: float, begin: Floats) -> Floats:
    """(entry,) quantile of each mixture.

    Args:
        a: (entry, node) first parameters.
        b: (entry, node) second parameters.
        weights: (node,) with a sum of 1.
        share: probability, between 0 and 1.
        begin: (entry,) initial values.
    """
    mixture = _Mixture(np.maximum(a, SMALLEST), np.maximum(b, SMALLEST), weights)
    low, high = np.full(len(a), -FARTHEST), np.full(len(a), FARTHEST)
    with np.errstate(divide="ignore"):
        y = np.clip(np.log(begin) - np.log1p(-begin), -FARTHEST / 2, FARTHEST / 2)
    left = np.arange(len(a))
    for _ in range(STEPS):
        now = y[left]
        below, slope = mixture.of(left, now)
        low[left] = np.where(below < share, now, low[left])
        high[left] = np.where(below < share, high[left], now)
        ahead = now + _newton(below, slope, share)
        inside = (ahead > low[left]) & (ahead < high[left])
        y[left] = np.where(inside, ahead, (low[left] + high[left]) / 2)
        left = left[np.abs(y[left] - now) > CLOSE * (1 + np.abs(now))]
        if not len(left):
            break
    return np.asarray(np.where(y < 1 - FARTHEST, 0.0, np.where(y > 0, 1 / (1 + np.exp(-y)), _small(y))))


def _newton(below: Floats, slope: Floats, share: float) -> Floats:
    """Newton steps of the logarithm of the smaller tail."""
    side, target, sign = (below, share, 1.0) if share < 0.5 else (1 - below, 1 - share, -1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.nan_to_num(sign * (np.log(target) - np.log(side)) * side / slope, nan=np.inf))


def _small(y: Floats) -> Floats:
    """Probability x of a negative y."""
    power = np.exp(np.minimum(y, 0.0))
    return np.asarray(power / (1 + power))


class _Mixture:
    """Distribution functions and their derivatives by y."""

    def __init__(self, a: Floats, b: Floats, weights: Floats) -> None:
        from scipy.special import betaln

        self.a, self.b, self.weights = a, b, weights
        self.scale: Floats = betaln(a, b)

    def of(self, entries: Ints, y: Floats) -> tuple[Floats, Floats]:
        """F and its derivative, of some entries at a point each."""
        from scipy.special import betainc

        a, b, small = self.a[entries], self.b[entries], _small(-np.abs(y))[:, None]
        right = y > 0
        below = np.empty_like(a)
        # The smaller of x and 1 - x, which keeps its digits.
        below[~right] = betainc(a[~right], b[~right], small[~right])
        below[right] = 1 - betainc(b[right], a[right], small[right])
        logs = a * -np.logaddexp(0, -y)[:, None] + b * -np.logaddexp(0, y)[:, None] - self.scale[entries]
        return below @ self.weights, np.exp(logs) @ self.weights
