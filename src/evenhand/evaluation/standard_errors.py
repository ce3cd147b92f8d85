"""Standard error of a welfare of estimated values, also near kinks of the welfare.

Values v are estimated by means over episodes, V = v + D with D nearly normal. Where W is smooth the delta method does:
W(V) - W(v) is nearly g.D, with g the gradient. A maximin, a leximin or a Gini welfare has kinks, where members are
equal or nearly so; there W(V) - W(v) is distributed like the directional derivative W'(v; D), which is not linear in D.
Neither the jackknife nor the plain bootstrap finds it, since noise has torn apart in V what is equal in v. So values
are first drawn together again, by as much as noise explains (empirical Bayes, with s_n the error of V_n): towards the
mean of those within REACH errors, since others, however far, tell nothing of them,

    U_n = V_n - s_n^2 / (t_n^2 + s_n^2) (V_n - mean V),       t_n^2 = max(0, var V - mean s^2)

and the derivative is taken with a step of k times the noise, which takes nearly equal for equal (Hong and Li, 2018):

    S = (W(U + k D') - W(U)) / k  <=  H.D'                   H a supergradient of U

The low quantile q of S lies below that of H.D'. Both from the same draws, their difference is what the kink adds to the
delta method, and exactly 0 where there is none within reach:

    error  =  max( se(G),  se(H) + (q(H.D') - q(S)) / z )       G of V, z of a 95 % interval, q its lower end

A power mean of great aversion bends as sharply as a kink; it is smooth where aversion times relative noise is small.
Below alpha = 1 a power mean has a value, but no slope, where members have 0. Those that had nothing in any episode are
taken to have nothing: with a share p of the members left, W(v) = p^(1 / (1 - alpha)) W(those left).
The bias E W(V) <= W(v), which grows with the number of members that are nearly worst, is part of S. D' is drawn by
multipliers (D' = sum_e xi_e (x_e - mean) / M, xi normal), the same for all, so that the error is a function of the
episodes. Cost: NUM_DRAWS x members x r for r the fewer of episodes and members, and episodes x members x r before.

References: Z. Fang and A. Santos, "Inference on directionally differentiable functions", Review of Economic Studies 86,
2019; H. Hong and J. Li, "The numerical delta method", Journal of Econometrics 206, 2018.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.errors import OutOfDomainError
from evenhand.model.objective import Objective
from evenhand.model.welfare import Structure, Welfare, structure
from evenhand.typing import Floats, Ints

CONFIDENCE = 1.959963984540054
"""Standard errors on either side of a 95 % confidence interval."""

LOWER_END = 0.025
"""The probability below a 95 % confidence interval."""

NUM_DRAWS = 400
"""Truths that are drawn."""

STEP = 2.0
"""k."""

REACH = 3 * 2**0.5
"""Errors of a member within which others are those that it may be equal to: three of a difference."""

BENT = 0.1
"""Aversion times relative noise up to which a power mean is smooth."""

MOST_NUMBERS = 4_000_000
"""Numbers of draws that are held at a time."""


def standard_errors(samples: Floats) -> Floats:
    """Return the (...,) standard errors of the means over the first axis; infinite for a single sample."""
    if len(samples) < 2:
        return np.full(samples.shape[1:], np.inf)
    return np.asarray(samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


def welfare_error(objective: Objective, values: Floats, shares: Floats, samples: Sequence[Floats]) -> float:
    """The standard error of the welfare of estimated values; at a kink, what makes its 95 % interval one.

    Args:
        objective: the welfare, and whose values it weighs.
        values: (unit,) the estimates.
        shares: (part,) of those parts of a mixture whose values are estimated; 1 if the policy is not a mixture.
        samples: for each such part, (episode, unit) independent returns; one alone has no known error.
    """
    members = [objective.members(np.asarray(part, dtype=np.float64)) for part in samples]
    if not members:
        return 0.0
    # One episode has no known spread.
    if min(map(len, members)) < 2:
        return np.inf
    # The variance of a mean over M episodes is sum (x - mean)^2 / (M (M - 1)), and of a part counts by share^2.
    factors = [share / np.sqrt(len(part) * (len(part) - 1)) for part, share in zip(members, shares, strict=True)]
    noise = np.concatenate([(part - part.mean(axis=0)) * by for part, by in zip(members, factors, strict=True)])
    case, factor = _Estimate(objective.welfare, objective.sizes, objective.members(values), noise).without_nothing()
    # Of very many members the draws would not fit: there the delta method has to do.
    smooth = case.error(case.members)
    if case.is_smooth or NUM_DRAWS * len(case.members) > 10 * MOST_NUMBERS:
        return factor * smooth
    return factor * max(smooth, case.error_at_kinks())


def bias_error(objective: Objective, values: Floats, bias: Floats) -> float:
    """The error of the welfare by what may be wrong with the values beside chance.

    Args:
        objective: the welfare, and whose values it weighs.
        values: (unit,) the estimates.
        bias: (unit,) how much each may be wrong by.
    """
    if not bias.any():
        return 0.0
    # The member estimated worst need not be the worst: at a kink the largest bias counts for all.
    smooth = objective.structure.aversion is not None
    return float(objective.supergradient(values) @ (bias if smooth else np.full_like(bias, bias.max())))


def _lengths(rows: Floats) -> Floats:
    """(...,) standard deviations of the sums of (row, ...) with independent normal factors."""
    return np.asarray(np.sqrt(np.square(rows).sum(axis=0)))


@dataclass(frozen=True, eq=False)
class _Estimate:
    """Estimated members of a welfare."""

    welfare: Welfare
    sizes: Ints

    members: Floats
    """(member,) V."""

    noise: Floats
    """(row, member) D is the sum of the rows, each with a normal factor of its own."""

    @cached_property
    def structure(self) -> Structure:
        """Structure of the welfare."""
        return structure(self.welfare, int(self.sizes.sum()))

    def without_nothing(self) -> tuple["_Estimate", float]:
        """The members that have something, and by what their welfare is multiplied to be that of all."""
        aversion = self.structure.aversion or 0.0
        # Something, or something in some episode.
        some = (self.members != 0) | self.noise.any(axis=0)
        if not 0 < aversion < 1 or some.all() or not some.any():
            return self, 1.0
        left = _Estimate(self.welfare, self.sizes[some], self.members[some], self.noise[:, some])
        # p^(1 / (1 - alpha)) of the head.
        return left, float((left.sizes.sum() / self.sizes.sum()) ** (1 / (1 - aversion)))

    @property
    def is_smooth(self) -> bool:
        """True if the welfare is known to have no kinks, nor to bend as sharply, within reach."""
        if self.structure.aversion is None:
            return self.structure.is_mean
        # Bending, member by member: aversion times relative noise.
        return bool((self.structure.aversion * _lengths(self.noise) <= BENT * np.abs(self.members)).all())

    def error(self, members: Floats) -> float:
        """Standard error by the delta method, with a supergradient at (member,) values."""
        return float(_lengths(self.noise @ self.welfare.supergradient(members, self.sizes)))

    @cached_property
    def together(self) -> Floats:
        """(member,) U."""
        squares = np.square(self.noise).sum(axis=0)
        order = np.argsort(self.members, kind="stable")
        # Windows of values within REACH errors, as stretches of the sorted values.
        values, reach = self.members[order], REACH * np.sqrt(squares)
        first = np.searchsorted(values, self.members - reach, side="left")
        end = np.searchsorted(values, self.members + reach, side="right")
        # Around the median, so that squares of large values do not swallow their differences.
        middle = float(np.median(values))
        apart = values - middle
        # Running sums over the sorted members, so that each window costs two look-ups, not a pass.
        figures = np.stack([np.ones_like(apart), apart, np.square(apart), squares[order]])
        sums = np.insert(np.cumsum(self.sizes[order] * figures, axis=1), 0, 0.0, axis=1)
        # Within each window: the number of members, their sum, sum of squares and sum of noise.
        number, mean, square, noise = sums[:, end] - sums[:, first]
        mean, own = mean / number, self.members - middle
        # t_n^2: what the spread has beyond the noise.
        true = np.maximum(0.0, (square - noise) / number - mean**2)
        # Without noise a value is known, and stays.
        known = np.divide(true, true + squares, out=np.ones_like(squares), where=squares > 0)
        return np.asarray(self.members - (1 - known) * (own - mean))

    def error_at_kinks(self) -> float:
        """se(H) and what the kink adds."""
        draws = self._draws()
        if not len(draws):
            return 0.0
        # Some draws at a time: (draw, member) arrays may be large.
        parts = np.array_split(draws, -(-draws.size // MOST_NUMBERS))
        steps = [self._welfares(self.together + STEP * some) for some in parts]
        # S of the head.
        rises = (np.concatenate(steps) - float(self.welfare(self.together, self.sizes))) / STEP
        slope = self.welfare.supergradient(self.together, self.sizes)
        kink = float(np.quantile(draws @ slope, LOWER_END) - np.quantile(rises, LOWER_END))
        # S <= H.D' holds for every draw, so the difference is negative by rounding only.
        return self.error(self.together) + max(0.0, kink) / CONFIDENCE

    def _draws(self) -> Floats:
        """(draw, member) D', as far as the welfare is defined there."""
        # A fixed seed: the error is a function of the episodes.
        factors = np.random.default_rng(0).standard_normal((NUM_DRAWS, min(self.noise.shape)))
        # Many episodes and few members: a root of the covariance has the same distribution with fewer rows.
        rows = self.noise
        if len(rows) > len(self.members):
            squares, axes = np.linalg.eigh(rows.T @ rows)
            # Rounding may leave eigenvalues just below 0.
            rows = (axes * np.sqrt(np.maximum(squares, 0.0))) @ axes.T
        draws = np.asarray(factors @ rows)
        if self.structure.ranked is not None:
            return draws
        # Draws outside the domain have no welfare; a rank-weighted welfare is defined everywhere.
        return np.asarray(draws[[self._is_defined(self.together + STEP * draw) for draw in draws]])

    def _is_defined(self, members: Floats) -> bool:
        try:
            self.welfare.check_domain(members)
        except OutOfDomainError:
            return False
        return True

    def _welfares(self, points: Floats) -> Floats:
        """(point,) the welfare of each: a user's own need not take several at once."""
        if self.structure.ranked is not None:
            return np.asarray(self.structure.ranked(points, self.sizes))
        return np.array([float(self.welfare(point, self.sizes)) for point in points])
