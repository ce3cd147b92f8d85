"""Rank-weighted welfare: W(v) = sum_n w_n v_(n) with weights that do not rise. See the package for the mathematics."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.checks import (
    SUM_TOLERANCE,
    Faults,
    check_finite,
    check_fraction,
    check_memory,
    check_positive_int,
    plain,
    read_numbers,
)
from evenhand.errors import InvalidInputError
from evenhand.model.arm import frozen
from evenhand.model.welfare.base import (
    MOST_RANKS,
    ROUNDING,
    Population,
    Ranks,
    Welfare,
    check_number,
    counts_for_more,
    scalar_if_single,
    shortest_text,
)
from evenhand.typing import ArrayLike, Floats, Ints


class RankWeighted(ABC):
    """A welfare that weights arms by their rank, the worst arm most."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Text form."""

    @abstractmethod
    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """Return the total weight of the ranks first+1, ..., last.

        Args:
            first: (...) numbers of arms below the ranks.
            last: (...) numbers of arms up to the ranks, each above `first`.
            num_arms: number of arms.
        """

    def rank_weights(self, num_arms: int) -> Floats:
        """(arm,) weight of each rank, the worst arm's first."""
        self.check_num_arms(num_arms)
        check_memory(32.0 * num_arms, f"the weights of {num_arms} arms", "Give counts of equal arms instead.")
        below = np.arange(num_arms, dtype=np.int64)
        # Rounding must not make almost equal weights rise.
        return np.minimum.accumulate(self.rank_mass(below, below + 1, num_arms))

    def in_short(self, who: str) -> str:
        """Clause for reports."""
        return counts_for_more(who)

    def check_num_arms(self, num_arms: int) -> None:  # noqa: B027  # most fit any number of arms
        """Raise InvalidInputError if the welfare is for another number of arms."""

    def check_domain(self, values: ArrayLike) -> None:
        """Raise InvalidInputError unless all values are finite.

        Args:
            values: (..., arm) values.
        """
        Population.read(values)

    def __call__(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats | float:
        """Return the welfare.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) number of arms that share each value.
        """
        arms = Population.read(values, counts)
        self.check_num_arms(arms.num_arms)
        return scalar_if_single(self._value(arms))

    def _value(self, arms: Population) -> Floats:
        # One arm a type: values can be sorted alone, and all rows have the same weights.
        if arms.num_arms == len(arms.counts):
            ascending = np.sort(arms.values, axis=-1)
            masses = self.rank_weights(arms.num_arms)
        else:
            _, ascending, first, last = arms.ranks()
            masses = self.rank_mass(first, last, arms.num_arms)
        # Measured from the worst arm, so that equal values give exactly themselves.
        worst = ascending[..., 0]
        return np.asarray(worst + ((ascending - worst[..., None]) * masses).sum(axis=-1))

    def supergradient(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats:
        """Return the weight of each arm's rank; tied arms share theirs equally.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) number of arms that share each value.

        Returns:
            (..., arm) weights; with counts, (..., type) the weight of all arms of the type together.
        """
        arms = Population.read(values, counts)
        self.check_num_arms(arms.num_arms)
        ranks = arms.ranks()
        # Tied types share the mass of all their ranks together, each in proportion to its arms. Every order of the tied
        # gives a supergradient; this is the mean over all orders, so it is one, too.
        first, last = _tied_ranks(ranks, arms.num_arms)
        shared = self.rank_mass(first, last, arms.num_arms) * ((ranks.last - ranks.first) / (last - first))
        weights = np.empty_like(shared)
        np.put_along_axis(weights, ranks.order, shared, axis=-1)
        return arms.restore(weights)


def _tied_ranks(ranks: Ranks, num_arms: int) -> tuple[Ints, Ints]:
    """(..., type) number of arms before each type's tie, and up to its end."""
    opens = np.ones(ranks.ascending.shape, dtype=np.bool_)
    closes = opens.copy()
    # Exact equality: values that differ by rounding have different ranks, in any order.
    opens[..., 1:] = ranks.ascending[..., 1:] != ranks.ascending[..., :-1]
    closes[..., :-1] = opens[..., 1:]
    first = np.maximum.accumulate(np.where(opens, ranks.first, 0), axis=-1)
    ends = np.flip(np.where(closes, ranks.last, num_arms), axis=-1)
    return first, np.flip(np.minimum.accumulate(ends, axis=-1), axis=-1)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Gini(RankWeighted):
    """The generalised Gini welfare: sum over ranks n of w_n v_(n), for a fixed number of arms.

    Example:
        >>> import evenhand as eh
        >>> round(eh.Gini([0.5, 0.3, 0.2])([1.0, 2.0, 4.0]), 4)
        1.9
        >>> eh.Gini.geometric(3, ratio=2)
        Gini.geometric(3, ratio=2)
    """

    num_arms: int
    """Number of arms."""

    ratio: float | None
    """Factor by which weights fall from rank to rank; None for explicit weights."""

    given: tuple[float, ...]
    """Explicit weights; empty if they are geometric."""

    def __init__(self, weights: ArrayLike | Sequence[float]) -> None:
        """Create from explicit weights.

        Args:
            weights: (arm,) weights, the worst arm's first: not negative, not increasing, with sum 1.
        """
        faults = Faults()
        array = read_numbers(weights, ("arm",), "weights", faults, _check_weights)
        if faults or array is None:
            raise InvalidInputError("\n".join(str(fault) for fault in faults.found))
        self._set(len(array), None, tuple((array + 0.0).tolist()))  # -0.0 becomes 0.0

    @classmethod
    def geometric(cls, num_arms: int, ratio: float = 2.0) -> "Gini":
        """Create from weights proportional to ratio^-(n-1): with ratio 2 the paper's, with ratio 1 utilitarian.

        Args:
            num_arms: number of arms, possibly billions.
            ratio: at least 1.
        """
        num_arms = check_positive_int(num_arms, "num_arms", largest=MOST_RANKS)
        ratio = check_number(ratio, "ratio", "at least 1, so that weights do not rise", lambda r: r >= 1)
        welfare = cls.__new__(cls)
        welfare._set(num_arms, ratio, ())
        return welfare

    @staticmethod
    def bottom_half(share: float = 0.75) -> "BottomHalfGini":
        """Create geometric weights of which the worse-off half has a given share, for any number of arms.

        Args:
            share: from 0.5 (utilitarian) to below 1 (maximin is the limit).

        Example:
            >>> import evenhand as eh
            >>> eh.Gini.bottom_half(0.75)
            Gini.bottom_half(0.75)
        """
        return BottomHalfGini(share)

    def _set(self, num_arms: int, ratio: float | None, given: tuple[float, ...]) -> None:
        for field, value in (("num_arms", num_arms), ("ratio", ratio), ("given", given)):
            object.__setattr__(self, field, value)

    @property
    def name(self) -> str:
        """`gini:2`, or `gini:0.5,0.3,0.2`."""
        if self.ratio is not None:
            return f"gini:{shortest_text(self.ratio)}"
        # A single number is a ratio, and with one arm every ratio means the same.
        return "gini:1" if self.num_arms == 1 else "gini:" + ",".join(shortest_text(weight) for weight in self.given)

    @cached_property
    def weights(self) -> Floats:
        """(arm,) weight of each rank, the worst arm's first; their sum is 1."""
        if self.ratio is not None:
            return frozen(super().rank_weights(self.num_arms))
        # The check accepts rounding: remove rises, and normalise.
        return frozen(np.minimum.accumulate(self.given) / math.fsum(self.given))

    @cached_property
    def _tails(self) -> Floats:
        """(arm + 1,) weight of all arms beyond each rank.

        As weights fall, a mass is at least its share of the tail, so the difference of two tails is accurate; the
        difference of two sums from the front would not be.
        """
        return np.append(np.cumsum(self.weights[::-1])[::-1], 0.0)

    def rank_weights(self, num_arms: int) -> Floats:
        """(arm,) weight of each rank, the worst arm's first."""
        self.check_num_arms(num_arms)
        return self.weights

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """Return the total weight of the ranks first+1, ..., last; see the package."""
        self.check_num_arms(num_arms)
        if self.ratio is None:
            return np.asarray(self._tails[first] - self._tails[last])
        return _geometric_mass(first, last, num_arms, math.log(self.ratio))

    def meaning(self, who: str) -> str:
        """Sentence for reports."""
        rule = f"the {who}s are sorted from worst to best, and each rank has its given weight"
        if self.ratio == 1:
            rule = f"all {who}s have the same weight"
        elif self.ratio is not None:
            next_one = "half as much" if self.ratio == 2 else f"{self.ratio:,.6g} times less"
            rule = f"the {who}s are sorted from worst to best; the worst-off one counts most, and each next {next_one}"
        return f"It is a weighted mean: {rule}."

    def check_num_arms(self, num_arms: int) -> None:
        """Raise InvalidInputError if the welfare is for another number of arms."""
        if num_arms != self.num_arms:
            raise InvalidInputError(f"this Gini welfare is for {self.num_arms} arms, but there are {num_arms}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Gini):
            return NotImplemented
        if self.num_arms != other.num_arms:
            return False
        if self.num_arms == 1 or (self.ratio is not None and self.ratio == other.ratio):
            return True
        if self.ratio is not None and other.ratio is not None:
            return False
        return np.allclose(self.weights, other.weights, rtol=ROUNDING, atol=0.0)

    def __hash__(self) -> int:
        # Without the weights: equal geometric and explicit ones must have equal hashes.
        return hash((Gini, self.num_arms))

    def __repr__(self) -> str:
        if self.ratio is not None:
            return f"Gini.geometric({self.num_arms}, ratio={shortest_text(self.ratio)})"
        return f"Gini([{', '.join(shortest_text(weight) for weight in self.given)}])"


def _geometric_mass(first: Ints, last: Ints, num_arms: int, decay: float) -> Floats:
    """Return the total weight of the ranks first+1, ..., last if weights fall by exp(-decay) from rank to rank."""
    if decay == 0:
        return np.asarray((last - first) / num_arms)
    # `expm1` is accurate for a small decay.
    shares = np.expm1(-decay * (last - first)) / math.expm1(-decay * num_arms)
    return np.asarray(np.exp(-decay * first) * shares)


@dataclass(frozen=True, repr=False)
class BottomHalfGini(RankWeighted):
    """Geometric weights of which the worse-off half has a given share, for any number of arms.

    Unlike that of `Gini.geometric`, its emphasis on the worse-off does not grow with the number of arms: see the
    package.
    """

    share: float = 0.75
    """Weight of the worse-off half: from 0.5 (utilitarian) to below 1 (maximin is the limit)."""

    def __post_init__(self) -> None:
        share = check_number(self.share, "half", "at least 0.5 and below 1", lambda h: 0.5 <= h < 1)
        object.__setattr__(self, "share", share)

    def __repr__(self) -> str:
        return f"Gini.bottom_half({shortest_text(self.share)})"

    @property
    def name(self) -> str:
        """`gini:half=0.75`."""
        return f"gini:half={shortest_text(self.share)}"

    def meaning(self, who: str) -> str:
        """Sentence for reports."""
        if self.share == 0.5:
            return f"It is a weighted mean: all {who}s have the same weight."
        rule = f"It is a weighted mean: the worse off, the more {'an arm' if who == 'arm' else f'a {who}'} counts"
        return f"{rule}. The worse-off half has {100 * self.share:.3g}\u00a0% of the weight."

    @property
    def _decay(self) -> float:
        """c: logarithm of the ratio of the largest to the smallest weight."""
        return 2 * math.log(self.share / (1 - self.share))

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """Return the total weight of the ranks first+1, ..., last; see the package."""
        return _geometric_mass(first, last, num_arms, self._decay / num_arms)


def weight_of_worst(welfare: Welfare, part: float, num_arms: int) -> tuple[int, float] | None:
    """Number of the worst-off part of the arms, at least one, and their share of all weight.

    Args:
        welfare: the welfare; the result is None unless it weights by rank.
        part: fraction of the arms, such as 0.1.
        num_arms: number of arms.
    """
    if not isinstance(welfare, RankWeighted):
        return None
    # 0.29 of 100 are 29, although the product is rounded to just below.
    few = max(1, int(part * num_arms * (1 + ROUNDING)))
    return few, float(welfare.rank_mass(np.array(0), np.array(few), num_arms))


def _check_weights(weights: Floats, place: str, faults: Faults) -> None:
    if not check_finite(weights, place, faults):
        return
    faults.flag(place, weights < 0, "{value} is negative", weights)
    rises = np.zeros(len(weights), dtype=np.bool_)
    rises[1:] = weights[1:] > weights[:-1] + ROUNDING * np.abs(weights[:-1])
    faults.flag(place, rises, "{value} is more than the weight before it", weights)
    total = math.fsum(weights)
    if abs(total - 1) > SUM_TOLERANCE:
        faults.add(place, f"sum to {plain(total)}, not 1")


@dataclass(frozen=True)
class Utilitarian(RankWeighted):
    """The mean.

    Example:
        >>> import evenhand as eh
        >>> round(eh.Utilitarian()([1.0, 2.0, 4.0]), 4)
        2.3333
    """

    name = "utilitarian"

    def in_short(self, who: str) -> str:
        """Clause for reports."""
        return f"is the mean of all {who}s"

    def meaning(self, who: str) -> str:
        """Sentence for reports."""
        return "It is the plain mean, however values are distributed."

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """Return the share of the ranks first+1, ..., last."""
        return np.asarray((last - first) / num_arms)

    def _value(self, arms: Population) -> Floats:
        # As in `RankWeighted._value`, without sorting.
        worst = arms.values.min(axis=-1)
        return np.asarray(worst + ((arms.values - worst[..., None]) * arms.shares).sum(axis=-1))


@dataclass(frozen=True)
class Maximin(RankWeighted):
    """The value of the worst arm, optionally with a little of the others: weights proportional to (1, eps, ..., eps).

    Example:
        >>> import evenhand as eh
        >>> round(eh.Maximin()([1.0, 2.0, 4.0]), 4)
        1.0
        >>> round(eh.Maximin(epsilon=0.1)([1.0, 2.0, 4.0]), 4)
        1.3333
    """

    epsilon: float = 0.0
    """Weight of each other arm relative to the worst: from 0 to 1 (utilitarian)."""

    def __post_init__(self) -> None:
        # -0.0 becomes 0.0, so that equal welfares have the same text.
        object.__setattr__(self, "epsilon", check_fraction(self.epsilon, "epsilon") + 0.0)

    @property
    def name(self) -> str:
        """`maximin`, or `maximin:0.01`."""
        return f"maximin:{shortest_text(self.epsilon)}" if self.epsilon else "maximin"

    def in_short(self, who: str) -> str:
        """Clause for reports."""
        return counts_for_more(who) if self.epsilon else f"is the value of the worst-off {who}"

    def meaning(self, who: str) -> str:
        """Sentence for reports."""
        if not self.epsilon:
            return f"It is the value of the worst-off {who}; the others do not count."
        other = f"{self.epsilon:,.6g}"
        return f"It is nearly the value of the worst-off {who}; each other counts {other} times as much as that one."

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """Return epsilon per rank, and 1 for the worst arm, normalised."""
        worst = np.asarray(first) == 0
        # The worst arm is the first of its type; the other ranks of that type have weight epsilon.
        others = last - first - worst
        return np.asarray((worst + self.epsilon * others) / (1 + self.epsilon * (num_arms - 1)))

    def _value(self, arms: Population) -> Floats:
        return super()._value(arms) if self.epsilon else np.asarray(arms.values.min(axis=-1))


@dataclass(frozen=True)
class Leximin(RankWeighted):
    """The worst arm first; among equals the second worst, then the third, and so on.

    This is an order of vectors and not a number: `compare` returns the better of two. As a number it is
    reported by the worst arm's value. It is the limit of `Gini.geometric` as the ratio goes to infinity: once
    the ratio is large enough for two given vectors, their Gini welfares differ in the way they compare.

    Example:
        >>> import evenhand as eh
        >>> round(eh.Leximin()([1.0, 2.0, 4.0]), 4)
        1.0
    """

    name = "leximin"
    lexicographic = True

    def in_short(self, who: str) -> str:
        """Clause for reports."""
        return f"is the value of the worst-off {who}, then of the next"

    def meaning(self, who: str) -> str:
        """Sentence for reports."""
        return f"It is the value of the worst-off {who}; if two are equal, the second worst decides, then the third."

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """Return 1 for the ranks that begin with the worst arm, else 0."""
        return np.asarray(np.asarray(first) == 0, dtype=np.float64)

    def _value(self, arms: Population) -> Floats:
        return np.asarray(arms.values.min(axis=-1))

    def key(self, values: ArrayLike) -> Floats:
        """(..., arm) values from the worst to the best; as lists, keys sort as leximin prefers.

        Args:
            values: (..., arm) values.
        """
        return np.sort(Population.read(values).values, axis=-1)

    def compare(self, u: ArrayLike, v: ArrayLike, tolerance: float = 0.0) -> int:
        """Return 1 if u is better than v, -1 if it is worse, 0 if they tie.

        Args:
            u: (arm,) values.
            v: (arm,) values.
            tolerance: difference up to which values count as equal.
        """
        tolerance = check_number(tolerance, "tolerance", "at least 0", lambda t: t >= 0)
        first, second = self.key(u), self.key(v)
        if first.ndim != 1 or first.shape != second.shape:
            raise InvalidInputError(f"compare: expected two vectors (arm,) alike, got {first.shape} and {second.shape}")
        difference = first - second
        # The first rank at which the two differ decides.
        decisive = difference[np.abs(difference) > tolerance]
        return int(np.sign(decisive[0])) if len(decisive) else 0
