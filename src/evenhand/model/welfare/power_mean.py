"""Power means: W(v) = u^-1(1/N sum_n u(v_n)) with u(x) = x^(1-alpha) / (1-alpha), u = log for alpha = 1."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from evenhand.checks import plain
from evenhand.errors import OutOfDomainError
from evenhand.model.welfare.base import (
    ROUNDING,
    Population,
    Welfare,
    check_number,
    counts_for_more,
    scalar_if_single,
    shortest_text,
)
from evenhand.model.welfare.rank_weighted import RankWeighted, Utilitarian
from evenhand.typing import ArrayLike, Floats


class PowerMean(Welfare):
    """A welfare of the form u^-1(mean u(v)) with a power utility u' (x) = x^-aversion, concave and separable."""

    @property
    @abstractmethod
    def aversion(self) -> float:
        """Exponent of marginal utility, above 0 unless the welfare is the mean."""


@dataclass(frozen=True)
class AlphaFair(PowerMean):
    """Alpha-fairness as its certainty equivalent: the value which, given to every arm, is equally good.

    With beta = 1 - alpha and d_n = log(v_n / r), where the reference r is the worst arm, or the best when
    alpha < 1, so that no exponent below is positive,

        W(v) = r exp(q),   q = 1/beta log(mean_n exp(beta d_n)),   q = mean_n d_n when beta = 0.

    Example:
        >>> import evenhand as eh
        >>> round(eh.AlphaFair(1)([1.0, 2.0, 4.0]), 4)
        2.0
    """

    alpha: float
    """0 is utilitarian, 1 is proportional fairness (Nash), and maximin is the limit at infinity."""

    def __post_init__(self) -> None:
        alpha = check_number(self.alpha, "alpha", "at least 0 (maximin is infinity)", lambda a: a >= 0)
        object.__setattr__(self, "alpha", alpha + 0.0)

    @property
    def name(self) -> str:
        """`alpha:1`."""
        return f"alpha:{shortest_text(self.alpha)}"

    def in_short(self, who: str) -> str:
        """Clause for reports."""
        return counts_for_more(who)

    def meaning(self, who: str) -> str:
        """Sentence for reports."""
        alpha = f"the larger alpha (here {self.alpha:,.6g}), the more so"
        return f"It is a mean in which small values count more; {alpha}."

    @property
    def aversion(self) -> float:
        """Alpha."""
        return self.alpha

    def check_domain(self, values: ArrayLike) -> None:
        """Raise OutOfDomainError unless values are positive; below alpha = 1 they may be zero, and at 0 anything.

        Args:
            values: (..., arm) values.
        """
        self._check(Population.read(values))

    def _check(self, arms: Population) -> None:
        # The mean is defined everywhere.
        if self.alpha == 0 or arms.values.size == 0:
            return
        smallest = arms.values.min()
        if smallest < 0 or (smallest == 0 and self.alpha >= 1):
            needed = "positive values" if self.alpha >= 1 else "values of at least 0"
            raise OutOfDomainError(f"{self.name} needs {needed}, and the smallest value is {plain(smallest)}")

    def __call__(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats | float:
        """Return the certainty equivalent.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) number of arms that share each value.
        """
        if self.alpha == 0:
            return Utilitarian()(values, counts)
        arms = Population.read(values, counts)
        self._check(arms)
        excess = self._excess(self._distances(arms), arms.shares)
        return scalar_if_single(np.asarray(self._reference(arms) * np.exp(excess)))

    def supergradient(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats:
        """Return the gradient (W(v) / v_n)^alpha / N, or 1/N if all values are zero.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) number of arms that share each value.

        Returns:
            (..., arm) weights; with counts, (..., type) the weight of all arms of the type together.

        Raises:
            OutOfDomainError: some values, but not all, are zero: there the welfare rises infinitely steeply.
        """
        if self.alpha == 0:
            return Utilitarian().supergradient(values, counts)
        arms = Population.read(values, counts)
        self._check(arms)
        distances = self._distances(arms)
        # d = -inf: a value of 0 beside positive ones, which has an infinite slope for every alpha in (0, 1).
        if np.isneginf(distances).any():
            raise OutOfDomainError(f"{self.name} is infinitely steep where some, but not all, values are 0")
        excess = self._excess(distances, arms.shares)
        with np.errstate(over="ignore"):  # an exponent of -inf is a weight of 0
            # (W/v_n)^alpha / N in logarithms: log(W/v_n) = q - d_n.
            weights = np.exp(self.alpha * (excess[..., None] - distances)) * arms.shares
        return arms.restore(weights)

    def _reference(self, arms: Population) -> Floats:
        """(...) reference value r."""
        return np.asarray(arms.values.min(axis=-1) if self.alpha >= 1 else arms.values.max(axis=-1))

    def _distances(self, arms: Population) -> Floats:
        """(..., type) d = log(v / r); zero if all values are zero."""
        reference = self._reference(arms)[..., None]
        with np.errstate(divide="ignore"):
            logs = np.log(arms.values)
        return np.where(reference > 0, logs - np.log(np.where(reference > 0, reference, 1.0)), 0.0)

    def _excess(self, distances: Floats, shares: Floats) -> Floats:
        """(...) q = log(W / r)."""
        beta = 1 - self.alpha
        # Proportional fairness: the limit, a geometric mean.
        if beta == 0:
            return np.asarray((distances * shares).sum(axis=-1))
        with np.errstate(over="ignore"):  # an exponent of -inf is a power of 0
            exponents = beta * distances
        # A mean near 1 needs log1p, a mean far below 1 the logarithm.
        below_one = (np.expm1(exponents) * shares).sum(axis=-1)
        mean = (np.exp(exponents) * shares).sum(axis=-1)
        log_mean = np.where(below_one > -0.5, np.log1p(np.maximum(below_one, -0.5)), np.log(mean))
        return np.asarray(log_mean / beta)


# -- the structure of any welfare -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Structure:
    """Known structure of a welfare; all empty for a general concave function."""

    is_mean: bool = False
    """The mean of the members."""

    lexicographic: bool = False
    """Ties are broken by the next worst member: an order of vectors, more than a number."""

    ranked: RankWeighted | None = None
    """The welfare if it weights members by rank; a lexicographic one has all weight on the worst."""

    aversion: float | None = None
    """The exponent of a power mean, u'(x) = x^-aversion."""


def structure(welfare: Welfare, num_members: int) -> Structure:
    """Return the structure of a welfare of a number of members."""
    if isinstance(welfare, PowerMean):
        return Structure(is_mean=welfare.aversion == 0, aversion=welfare.aversion)
    ranked = welfare if isinstance(welfare, RankWeighted) else None
    if is_lexicographic(welfare) or ranked is None:
        return Structure(lexicographic=is_lexicographic(welfare), ranked=ranked)
    # Weights do not rise, so that all are equal if the first and the last are.
    first, last = (ranked.rank_mass(np.array(rank), np.array(rank + 1), num_members) for rank in (0, num_members - 1))
    return Structure(is_mean=bool(abs(first - last) <= ROUNDING * abs(first)), ranked=ranked)


def is_lexicographic(welfare: Welfare) -> bool:
    """Return whether ties of the welfare are broken by the next worst member."""
    return getattr(welfare, "lexicographic", False) is True


def is_mean(welfare: Welfare, num_members: int) -> bool:
    """Return whether the welfare is the mean of so many members, by its structure."""
    return structure(welfare, num_members).is_mean
