"""The error of a welfare of estimated values, also where the welfare has a kink.

Values v are estimated by means over episodes, V = v + D with D nearly normal. Where W is smooth the delta method does:
W(V) - W(v) is nearly g.D, with g the gradient. A maximin, a leximin or a Gini welfare has kinks, where members are
equal or nearly so, and there it goes wrong in two ways. W is concave: with supergradients g of v and G of V

    W(V) - W(v)  <=   g.D      too high: the error is that of g, and G may be of a member with less noise than the worst
    W(v) - W(V)  <=  -G.D      too low: noise chose G, so that this is the larger the more members are nearly equal

Too high. The true g is a supergradient somewhere within reach of V. Truths V + D' are drawn, and the largest error of
all their supergradients is taken: a member that may well be the worst counts with its own noise.

Too low. At a kink W(V) - W(v) is distributed like the directional derivative W'(v; D), which is not linear in D.
Neither the jackknife nor the plain bootstrap finds it, since noise has torn apart in V what is equal in v. So values
are first drawn together again, by as much as noise explains (empirical Bayes, with s_n the error of V_n),

    U_n = V_n - s_n^2 / (t^2 + s_n^2) (V_n - mean V),       t^2 = max(0, var V - mean s^2)

and the derivative is taken with a step of k times the noise, which takes nearly equal for equal (Hong and Li, 2018):

    S = (W(U + k D') - W(U)) / k  <=  H.D'                   H a supergradient of U

The low quantile q of S lies below that of H.D'. Both from the same draws, their difference is what the kink adds to the
delta method, and exactly 0 where there is none within reach:

    error  =  max( se(G),  max_g se(g),  se(H) + (q(H.D') - q(S)) / z )       z: of a 95 % interval, q: its lower end

The bias E W(V) <= W(v), which grows with the number of members that are nearly worst, is part of S. D' is drawn by
multipliers (D' = sum_e xi_e (x_e - mean) / M, xi normal), the same for all, so that the error is a function of the
episodes. Cost: NUM_DRAWS x members x the fewer of episodes and members.

References: Z. Fang and A. Santos, "Inference on directionally differentiable functions", Review of Economic Studies 86,
2019; H. Hong and J. Li, "The numerical delta method", Journal of Econometrics 206, 2018.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.errors import OutOfDomain
from evenhand.model.objective import Objective
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, is_mean
from evenhand.typing import Floats, Ints

CONFIDENCE = 1.959963984540054
"""Standard errors on either side of a 95 % confidence interval."""

LOWER_END = 0.025
"""The probability below a 95 % confidence interval."""

NUM_DRAWS = 400
"""Truths that are drawn."""

STEP = 2.0
"""k."""

MOST_NUMBERS = 4_000_000
"""Numbers of draws that are held at a time."""


def welfare_error(objective: Objective, values: Floats, shares: Floats, samples: Sequence[Floats]) -> float:
    """The standard error of the welfare of estimated values; at a kink, what makes its 95 % interval one.

    Args:
        objective: the welfare, and whose values it weighs.
        values: (unit,) the estimates.
        shares: (part,) of those parts of a mixture whose values are estimated; 1 of a policy that is no mixture.
        samples: for each such part, (episode, unit) independent returns; one alone has no known error.
    """
    members = [objective.members(np.asarray(part, dtype=np.float64)) for part in samples]
    if not members:
        return 0.0
    if min(map(len, members)) < 2:
        return np.inf
    noise = np.concatenate([_noise(part, share) for part, share in zip(members, shares.tolist(), strict=True)])
    case = _Estimate(objective.welfare, objective.sizes, objective.members(values), noise)
    return case.smooth_error if case.is_smooth else max(case.smooth_error, *case.errors_at_kinks())


def _noise(part: Floats, share: float) -> Floats:
    """(episode, member) rows whose sum with independent normal factors is distributed like the error of the mean."""
    number = len(part)
    return np.asarray((part - part.mean(axis=0)) * (share / np.sqrt(number * (number - 1))))


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

    @property
    def is_smooth(self) -> bool:
        """Whether the welfare is known to have no kinks."""
        return isinstance(self.welfare, PowerMean) or is_mean(self.welfare, int(self.sizes.sum()))

    @cached_property
    def smooth_error(self) -> float:
        """se(G)."""
        return self._error(self.members)

    def _error(self, members: Floats) -> float:
        """The error of the sum that a supergradient weighs."""
        return float(_lengths(self.noise @ self.welfare.supergradient(members, self.sizes)))

    @cached_property
    def together(self) -> Floats:
        """(member,) U."""
        shares, squares = self.sizes / self.sizes.sum(), np.square(self.noise).sum(axis=0)
        apart = self.members - shares @ self.members
        true = max(0.0, float(shares @ (np.square(apart) - squares)))
        known = np.divide(true, true + squares, out=np.ones_like(squares), where=squares > 0)
        return np.asarray(self.members - (1 - known) * apart)

    def errors_at_kinks(self) -> tuple[float, float]:
        """By how much the estimate may be too high, and too low; each as a standard error."""
        draws = self._draws()
        if not len(draws):
            return 0.0, 0.0
        largest, steps = 0.0, []
        for some in np.array_split(draws, -(-draws.size // MOST_NUMBERS)):
            near = self._each(self.welfare.supergradient, self.members + some)
            largest = max(largest, float(_lengths(self.noise @ near.T).max()))
            steps.append(self._each(self.welfare, self.together + STEP * some))
        rises = (np.concatenate(steps) - float(self.welfare(self.together, self.sizes))) / STEP
        slope = self.welfare.supergradient(self.together, self.sizes)
        kink = float(np.quantile(draws @ slope, LOWER_END) - np.quantile(rises, LOWER_END))
        return largest, self._error(self.together) + max(0.0, kink) / CONFIDENCE

    def _draws(self) -> Floats:
        """(draw, member) D', as far as the welfare is defined there."""
        factors = np.random.default_rng(0).standard_normal((NUM_DRAWS, min(self.noise.shape)))
        draws = factors @ (self._root() if len(self.noise) > len(self.members) else self.noise)
        if isinstance(self.welfare, RankWeighted):
            return draws
        points = ((self.members + draw, self.together + STEP * draw) for draw in draws)
        return np.asarray(draws[[self._is_defined(near) and self._is_defined(far) for near, far in points]])

    def _root(self) -> Floats:
        """(member, member) the root of the covariance, which has fewer rows than there are episodes."""
        squares, axes = np.linalg.eigh(self.noise.T @ self.noise)
        return np.asarray((axes * np.sqrt(np.maximum(squares, 0.0))) @ axes.T)

    def _is_defined(self, members: Floats) -> bool:
        try:
            self.welfare.check_domain(members)
        except OutOfDomain:
            return False
        return True

    def _each(self, function: Callable[..., Floats | float], points: Floats) -> Floats:
        """(point, ...) a function of the welfare at each point: a user's own need not take several at once."""
        if isinstance(self.welfare, RankWeighted):
            return np.asarray(function(points, self.sizes))
        return np.stack([np.asarray(function(point, self.sizes)) for point in points])
