"""Welfare: one number, in units of value, for the values of all arms.

Every welfare W here is concave, monotone, blind to the order of the arms, and leaves a constant vector
unchanged: what the paper's utilitarian reduction asks for. There are two families, of N arms with values
v_(1) <= ... <= v_(N):

    rank-weighted    W(v) = sum_n w_n v_(n),  w_1 >= ... >= w_N >= 0,  sum_n w_n = 1       (the paper's GGF_w)
        Gini                  any such w; Gini.geometric: w_n proportional to ratio^-(n-1)
        GiniHalf              geometric, the ratio such that the worse-off half has a given share of the weight
        Utilitarian           w = (1, ..., 1) / N
        Maximin               w = (1, 0, ..., 0)
        RegularisedMaximin    w proportional to (1, eps, ..., eps)
        Leximin               maximin, with ties broken by the second worst arm, then by the third, ...
    alpha-fair       W(v) = u^-1(1/N sum_n u(v_n)),  u(x) = x^(1-alpha) / (1-alpha),  u = log for alpha = 1

Many arms are described by types: `counts[type]` arms share `values[type]`. A rank-weighted welfare then needs
only the mass of the ranks a+1, ..., b. For geometric weights, with decay L = log(ratio), that is

    w_{a+1} + ... + w_b = (ratio^-a - ratio^-b) / (1 - ratio^-N) = exp(-L a) expm1(-L (b-a)) / expm1(-L N),

so a billion arms cost as much as there are types.

A fixed ratio is harsher the more arms there are: with ratio 2 the worst four of 40 have 94 % of the weight. To mean the
same at any size, the decay must go with 1/N. The worse-off half has, with L = c/N,

    (1 - e^(-c/2)) / (1 - e^-c) = 1 / (1 + e^(-c/2)) = h,    so    c = 2 log(h / (1 - h)),    ratio = (h / (1-h))^(2/N),

and the mass of the arms from the fraction x to the fraction y is (e^(-c x) - e^(-c y)) / (1 - e^-c), whatever N is: a
population in which everyone is there twice has the same welfare. With h = 3/4 the ratio is 9^(1/N), the worst tenth has
22 % of the weight, and the worst-off arm of many counts at most 9 times as much as the best-off one.

Supergradients g satisfy W(u) <= W(v) + g.(u - v). For a
rank-weighted welfare each arm gets the weight of its rank, and tied arms share theirs; for alpha-fairness
g_n = (W(v) / v_n)^alpha / N.

Any other object that satisfies `Welfare` can be optimised and evaluated too: `RankWeighted`, `PowerMean` and
`lexicographic` are structures that show solvers a shorter way. One that has `in_short(who)` and `meaning(who)`, clauses
and sentences about an `arm` or a `group`, is told in the reports by them.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from evenhand.checks import (
    SUM_TOLERANCE,
    Describe,
    Faults,
    as_generator,
    check_finite,
    check_fraction,
    check_memory,
    check_positive_int,
    plain,
    read_numbers,
)
from evenhand.errors import InvalidInput, NotApplicable, OutOfDomain, UnknownName, nearest
from evenhand.model.arm import frozen
from evenhand.typing import ArrayLike, Bools, Floats, Ints, Rng

MOST_RANKS = 10**18
"""More arms than this are refused: their ranks would not fit in 64 bits. Problems have far fewer, `MOST_ARMS`."""

DEFAULT = "gini:half=0.75"
"""How values are weighed where nobody says: the emphasis on the worse-off is the same for any number of arms."""

FEW = 6
"""Members up to which the weight of every rank is told."""

MOST_APART = 10_000
"""Members up to which a welfare is checked at vectors of as many numbers."""

EXCESS = 1e-8
"""What rounding may make of a promise of a welfare, as a share of the numbers in it."""

ROUNDING = 1e-12
"""Weights whose difference is no more than this share of them are taken for equal."""


# -- what a welfare is -----------------------------------------------------------------------------------------------


@runtime_checkable
class Welfare(Protocol):
    """A concave, monotone, symmetric summary of the values of all arms."""

    @property
    def name(self) -> str:
        """Its text form, such that `parse_welfare(name, num_arms)` gives an equal welfare."""
        ...

    def __call__(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats | float:
        """The welfare.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) how many arms share each value.

        Returns:
            (...) welfare, a float when `values` has one axis.
        """
        ...

    def supergradient(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats:
        """Weights g with W(u) <= W(v) + g.(u - v) for every u of the domain; equal arms get equal weights.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) how many arms share each value.

        Returns:
            (..., arm) weights; with counts, (..., type) the weight of all arms of the type together.
        """
        ...

    def check_domain(self, values: ArrayLike) -> None:
        """Raise OutOfDomain where the welfare is not defined.

        Args:
            values: (..., arm) values.
        """
        ...


class PowerMean(ABC):
    """A welfare of the form u^-1(mean u(v)) with a power utility u' (x) = x^-aversion, concave and separable."""

    @property
    @abstractmethod
    def aversion(self) -> float:
        """How fast marginal utility falls, above 0 unless the welfare is the mean."""

    @abstractmethod
    def __call__(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats | float:
        """The welfare; see `Welfare`."""

    @abstractmethod
    def supergradient(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats:
        """Its gradient; see `Welfare`."""


# -- structures that show solvers a shorter way ----------------------------------------------------------------------


def is_lexicographic(welfare: Welfare) -> bool:
    """Whether ties of the welfare are broken by the next worst member: an order of vectors, more than a number."""
    return getattr(welfare, "lexicographic", False) is True


def is_mean(welfare: Welfare, num_members: int) -> bool:
    """Whether the welfare is the mean of so many members, by what is known of its structure."""
    if isinstance(welfare, PowerMean):
        return welfare.aversion == 0
    if is_lexicographic(welfare) or not isinstance(welfare, RankWeighted):
        return False
    # Weights do not rise, so the first and the last tell whether all are equal.
    first, last = (welfare.rank_mass(np.array(rank), np.array(rank + 1), num_members) for rank in (0, num_members - 1))
    return bool(abs(first - last) <= ROUNDING * abs(first))


# -- populations: arms by type, in order of value --------------------------------------------------------------------


class Ranks(NamedTuple):
    """The types of a population from the worst to the best."""

    order: Ints
    """(..., type) types by increasing value."""

    ascending: Floats
    """(..., type) their values."""

    first: Ints
    """(..., type) how many arms come before the type."""

    last: Ints
    """(..., type) how many arms there are up to and including the type."""


@dataclass(frozen=True, eq=False)
class Population:
    """Arms grouped by type, checked: finite values, at least one arm of each type."""

    values: Floats
    """(..., type) values."""

    counts: Ints
    """(type,) arms of each type, at least 1."""

    present: Bools
    """(given type,) which of the types that came have an arm at all; the others were left out."""

    num_arms: int
    """How many arms there are."""

    @classmethod
    def read(cls, values: ArrayLike, counts: ArrayLike | None = None) -> "Population":
        """Check values, and counts if there are any.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) how many arms share each value; types without arms are left out.
        """
        array = _read_array(values, "values", "fiu")
        if array.ndim == 0 or array.shape[-1] == 0:
            raise InvalidInput(f"values: expected shape (..., arm) with at least one arm, got {array.shape}")
        num_types = array.shape[-1]
        sizes = np.ones(num_types, dtype=np.int64) if counts is None else _read_counts(counts, num_types)
        # Types without arms have no say, whatever value stands there, even none.
        present = sizes > 0
        kept = array if present.all() else array[..., present]
        if not np.isfinite(kept).all():
            bad = kept[~np.isfinite(kept)][0]
            raise InvalidInput(f"values: every value must be a finite number, and one is {plain(bad)}")
        return cls(kept.astype(np.float64), sizes[present], present, int(sizes.sum()))

    @property
    def shares(self) -> Floats:
        """(type,) each type's share of the arms."""
        return self.counts / self.num_arms

    def ranks(self) -> Ranks:
        """The types in increasing order of value."""
        # Stable: among equals the order of the arms decides, on every machine.
        order = np.argsort(self.values, axis=-1, kind="stable")
        sizes = self.counts[order]
        last = np.cumsum(sizes, axis=-1)
        return Ranks(order, np.take_along_axis(self.values, order, axis=-1), last - sizes, last)

    def restore(self, weights: Floats) -> Floats:
        """(..., type) as (..., given type), with zeros where there are no arms."""
        if self.present.all():
            return weights
        whole = np.zeros((*weights.shape[:-1], len(self.present)))
        whole[..., self.present] = weights
        return whole


def _read_array(value: ArrayLike, name: str, kinds: str) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidInput(f"{name}: expected an array of numbers, got lists of different lengths") from None
    if array.dtype.kind not in kinds:
        expected = "whole numbers" if kinds == "iu" else "numbers"
        raise InvalidInput(f"{name}: expected {expected}, got {array.dtype} entries")
    return array


def _read_counts(counts: ArrayLike, num_types: int) -> Ints:
    array = _read_array(counts, "counts", "iu")
    if array.shape != (num_types,):
        raise InvalidInput(f"counts: expected shape (type={num_types},) as values have, got {array.shape}")
    if (array < 0).any():
        raise InvalidInput(f"counts: a number of arms cannot be negative, got {array.min()}")
    # In floats: whole numbers would overflow before they could be found too large.
    total = array.sum(dtype=np.float64)
    if not 1 <= total <= MOST_RANKS:
        raise InvalidInput(f"counts: expected 1 to {plain(MOST_RANKS)} arms in total, got {plain(total)}")
    return array.astype(np.int64)


def _scalar_if_single(welfare: Floats) -> Floats | float:
    return float(welfare) if welfare.ndim == 0 else welfare


def _text(number: float) -> str:
    """The shortest text that reads back as the same number."""
    return repr(float(number)).removesuffix(".0")


def _counts_for_more(who: str) -> str:
    return f"counts {'an arm' if who == 'arm' else f'a {who}'} for more the worse off it is"


# -- weights by rank -------------------------------------------------------------------------------------------------


class RankWeighted(ABC):
    """A welfare that weighs arms by their rank, the worst arm most."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its text form."""

    @abstractmethod
    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """The weight of the ranks first+1, ..., last together.

        Args:
            first: (...) numbers of arms below the ranks.
            last: (...) numbers of arms up to the ranks, each above `first`.
            num_arms: how many arms there are.
        """

    def rank_weights(self, num_arms: int) -> Floats:
        """(arm,) the weight of each rank, the worst arm's first."""
        self.check_num_arms(num_arms)
        check_memory(32.0 * num_arms, f"the weights of {num_arms} arms", "Give counts of equal arms instead.")
        below = np.arange(num_arms, dtype=np.int64)
        # Exponentials are rounded each in its own way; almost equal weights must not come out rising.
        return np.minimum.accumulate(self.rank_mass(below, below + 1, num_arms))

    def check_num_arms(self, num_arms: int) -> None:  # noqa: B027  # most fit any number of arms
        """Raise InvalidInput when the welfare is made for another number of arms."""

    def check_domain(self, values: ArrayLike) -> None:
        """Every finite vector is fine.

        Args:
            values: (..., arm) values.
        """
        Population.read(values)

    def __call__(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats | float:
        """The welfare.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) how many arms share each value.
        """
        arms = Population.read(values, counts)
        self.check_num_arms(arms.num_arms)
        return _scalar_if_single(self._value(arms))

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
        """The weight of each arm's rank; tied arms share theirs equally.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) how many arms share each value.

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
    """(..., type) the ranks that each type's tie begins after and ends with."""
    opens = np.ones(ranks.ascending.shape, dtype=np.bool_)
    closes = opens.copy()
    # Exact equality: values that differ by rounding have different ranks, and any order of them will do.
    opens[..., 1:] = ranks.ascending[..., 1:] != ranks.ascending[..., :-1]
    closes[..., :-1] = opens[..., 1:]
    # From each tie's first type on, and back from its last, its ends are carried along.
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
    """How many arms it is for."""

    ratio: float | None
    """The factor by which weights fall from rank to rank; None when they were given one by one."""

    given: tuple[float, ...]
    """The weights as they were given; empty when they are geometric."""

    def __init__(self, weights: ArrayLike | Sequence[float]) -> None:
        """Take explicit weights.

        Args:
            weights: (arm,) weights, the worst arm's first: not negative, not increasing, with sum 1.
        """
        self._set(*_read_weights(weights))

    @classmethod
    def geometric(cls, num_arms: int, ratio: float = 2.0) -> "Gini":
        """Weights proportional to ratio^-(n-1): with ratio 2 the paper's, with ratio 1 utilitarian.

        Args:
            num_arms: how many arms there are; they may be billions.
            ratio: at least 1.
        """
        num_arms = check_positive_int(num_arms, "num_arms", largest=MOST_RANKS)
        ratio = _check_number(ratio, "ratio", "at least 1, so that weights do not rise", lambda r: r >= 1)
        welfare = cls.__new__(cls)
        welfare._set(num_arms, ratio, ())
        return welfare

    def _set(self, num_arms: int, ratio: float | None, given: tuple[float, ...]) -> None:
        for field, value in (("num_arms", num_arms), ("ratio", ratio), ("given", given)):
            object.__setattr__(self, field, value)

    @property
    def name(self) -> str:
        """`gini:2`, or `gini:0.5,0.3,0.2`."""
        if self.ratio is not None:
            return f"gini:{_text(self.ratio)}"
        # A single number is a ratio, and with one arm every ratio means the same.
        return "gini:1" if self.num_arms == 1 else "gini:" + ",".join(_text(weight) for weight in self.given)

    @cached_property
    def weights(self) -> Floats:
        """(arm,) the weight of each rank, the worst arm's first; their sum is 1."""
        if self.ratio is not None:
            return frozen(super().rank_weights(self.num_arms))
        # A rise within rounding was let through by the check; here it is levelled, and the sum made 1.
        return frozen(np.minimum.accumulate(self.given) / math.fsum(self.given))

    @cached_property
    def _tails(self) -> Floats:
        """(arm + 1,) the weight of all arms beyond each rank.

        As weights fall, a mass is at least its share of the tail, so the difference of two tails keeps its
        digits; the difference of two sums from the front would not.
        """
        return np.append(np.cumsum(self.weights[::-1])[::-1], 0.0)

    def rank_weights(self, num_arms: int) -> Floats:
        """(arm,) the weight of each rank, the worst arm's first."""
        self.check_num_arms(num_arms)
        return self.weights

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """The weight of the ranks first+1, ..., last together; see the head of this file."""
        self.check_num_arms(num_arms)
        if self.ratio is None:
            return np.asarray(self._tails[first] - self._tails[last])
        return _geometric_mass(first, last, num_arms, math.log(self.ratio))

    def in_short(self, who: str) -> str:
        """A clause for people."""
        return _counts_for_more(who)

    def meaning(self, who: str) -> str:
        """A sentence for people, and the weights."""
        return f"It is a weighted mean: {self._rule(who)}. {self._weights_in_words(who)}".rstrip()

    def _rule(self, who: str) -> str:
        if self.ratio is None:
            return f"the {who}s are sorted from worst to best, and each place has the weight that was given for it"
        if self.ratio == 1:
            return f"all {who}s have the same weight"
        next_one = "half as much" if self.ratio == 2 else f"{self.ratio:,.6g} times less"
        sorted_out = f"the {who}s are sorted from worst to best; the worst-off one counts most"
        return f"{sorted_out}, and each next one {next_one}"

    def _weights_in_words(self, who: str) -> str:
        return _told_weights(self, who, self.num_arms) if self.num_arms > 1 else ""

    def check_num_arms(self, num_arms: int) -> None:
        """Raise InvalidInput when the welfare is made for another number of arms."""
        if num_arms != self.num_arms:
            raise InvalidInput(f"this Gini welfare is for {self.num_arms} arms, but there are {num_arms}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Gini):
            return NotImplemented
        if self.num_arms != other.num_arms:
            return False
        # With one arm all weights are (1); equal ratios need no comparison of weights.
        if self.num_arms == 1 or (self.ratio is not None and self.ratio == other.ratio):
            return True
        if self.ratio is not None and other.ratio is not None:
            return False
        return np.allclose(self.weights, other.weights, rtol=ROUNDING, atol=0.0)

    def __hash__(self) -> int:
        # Not the weights: a ratio and explicit weights may be equal, and must then hash alike.
        return hash((Gini, self.num_arms))

    def __repr__(self) -> str:
        if self.ratio is not None:
            return f"Gini.geometric({self.num_arms}, ratio={_text(self.ratio)})"
        return f"Gini([{', '.join(_text(weight) for weight in self.given)}])"


def _geometric_mass(first: Ints, last: Ints, num_arms: int, decay: float) -> Floats:
    """The weight of the ranks first+1, ..., last where weights fall by exp(-decay) from rank to rank."""
    # The limit of the formula, which is 0/0 there.
    if decay == 0:
        return np.asarray((last - first) / num_arms)
    # The last form in the head of this file: `expm1` keeps the digits where the decay is small.
    shares = np.expm1(-decay * (last - first)) / math.expm1(-decay * num_arms)
    return np.asarray(np.exp(-decay * first) * shares)


@dataclass(frozen=True)
class GiniHalf(RankWeighted):
    """Geometric weights of which the worse-off half has a given share, for any number of arms.

    Unlike that of `Gini.geometric`, its emphasis on the worse-off does not grow with the number of arms: see the head
    of this file.
    """

    share: float = 0.75
    """The weight of the worse-off half: from 0.5 (utilitarian) to below 1 (maximin is the limit)."""

    def __post_init__(self) -> None:
        share = _check_number(self.share, "half", "at least 0.5 and below 1", lambda h: 0.5 <= h < 1)
        object.__setattr__(self, "share", share)

    @property
    def name(self) -> str:
        """`gini:half=0.75`."""
        return f"gini:half={_text(self.share)}"

    def in_short(self, who: str) -> str:
        """A clause for people."""
        return _counts_for_more(who)

    def meaning(self, who: str) -> str:
        """A sentence for people."""
        if self.share == 0.5:
            return f"It is a weighted mean: all {who}s have the same weight."
        half, tenth = (f"{100 * part:.3g}\u00a0%" for part in (self.share, self._mass(0.1)))
        return f"{self._rule(who)}. The worse-off half has {half} of the weight, the worst tenth {tenth}."

    def meaning_among(self, who: str, number: int) -> str:
        """The same with the weights of so many: of a few members a tenth is nobody."""
        if self.share == 0.5 or number == 1:
            return self.meaning(who)
        half = f"The worse-off half has {100 * self.share:.3g}\u00a0% of the weight. " if number > FEW else ""
        return f"{self._rule(who)}. {half}{_told_weights(self, who, number)}"

    def _rule(self, who: str) -> str:
        return f"It is a weighted mean: the worse off, the more {'an arm' if who == 'arm' else f'a {who}'} counts"

    @property
    def _decay(self) -> float:
        """c: how much the weights fall, from the worst to the best, on a logarithmic scale."""
        return 2 * math.log(self.share / (1 - self.share))

    def _mass(self, fraction: float) -> float:
        return math.expm1(-self._decay * fraction) / math.expm1(-self._decay)

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """The weight of the ranks first+1, ..., last together; see the head of this file."""
        # L = c/N.
        return _geometric_mass(first, last, num_arms, self._decay / num_arms)


def _told_weights(welfare: RankWeighted, who: str, number: int) -> str:
    """The weight of every rank where there are few, else that of the worst-off one and the worst-off tenth."""
    if number <= FEW:
        ranks = np.arange(number)
        weights = welfare.rank_mass(ranks, ranks + 1, number)
        # A percentage below ten gets a decimal.
        *first, last = (f"{100 * weight:.{0 if weight >= 0.095 else 1}f}\u00a0%" for weight in weights)
        return f"Here the weights are {', '.join(first)} and {last}."
    few = max(2, number // 10)
    mass = welfare.rank_mass(np.array([0, 0]), np.array([1, few]), number)
    one, tenth = (f"{100 * part:.1f}\u00a0%" for part in mass)
    whole = f"the worst-off {few:,} of {number:,} for {tenth}"
    return f"Here the worst-off {who} alone counts for {one}, and {whole}."


def weight_of_worst(welfare: Welfare, part: float, num_arms: int) -> tuple[int, float] | None:
    """How many the worst-off part of the arms are, at least one, and which share of all weight they have.

    Args:
        welfare: any; None is the answer where it does not weigh by rank.
        part: of the arms, such as 0.1.
        num_arms: how many there are.
    """
    if not isinstance(welfare, RankWeighted):
        return None
    # 0.29 of 100 are 29, though the product is rounded to just below that.
    few = max(1, int(part * num_arms * (1 + ROUNDING)))
    return few, float(welfare.rank_mass(np.array(0), np.array(few), num_arms))


# -- weights of one's own --------------------------------------------------------------------------------------------


def _read_weights(weights: object) -> tuple[int, None, tuple[float, ...]]:
    """Explicit weights, or all their faults at once."""
    faults = Faults()
    array = read_numbers(weights, ("arm",), "weights", faults, _check_weights)
    if faults or array is None:
        raise InvalidInput("\n".join(str(fault) for fault in faults.found))
    return len(array), None, tuple((array + 0.0).tolist())  # -0.0 becomes 0.0


def _check_weights(weights: Floats, place: str, faults: Faults) -> None:
    if not check_finite(weights, place, faults):
        return
    faults.flag(place, weights < 0, Describe("{value} is negative", weights))
    rises = np.zeros(len(weights), dtype=np.bool_)
    # Weights that were computed may rise by rounding.
    rises[1:] = weights[1:] > weights[:-1] + ROUNDING * np.abs(weights[:-1])
    faults.flag(place, rises, Describe("{value} is more than the weight before it", weights))
    total = math.fsum(weights)
    if abs(total - 1) > SUM_TOLERANCE:
        faults.add(place, f"sum to {plain(total)}, not 1")


def _check_number(value: object, name: str, expected: str, accept: Callable[[float], bool]) -> float:
    is_number = isinstance(value, (Real, np.number)) and not isinstance(value, bool)
    try:
        # A whole number may be too large for a float.
        number = float(value) if is_number else math.nan  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and accept(number)):
        shown = plain(number) if is_number else repr(value)
        raise InvalidInput(f"{name}: expected a number of {expected}, got {shown}")
    return number


# -- the named ones --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Utilitarian(RankWeighted):
    """The mean.

    Example:
        >>> import evenhand as eh
        >>> round(eh.Utilitarian()([1.0, 2.0, 4.0]), 4)
        2.3333
    """

    @property
    def name(self) -> str:
        """`utilitarian`."""
        return "utilitarian"

    def in_short(self, who: str) -> str:
        """A clause for people."""
        return f"is the mean of all {who}s"

    def meaning(self, who: str) -> str:
        """A sentence for people."""
        return "It is the plain mean: it does not matter who gets how much."

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """The share of the ranks first+1, ..., last."""
        return np.asarray((last - first) / num_arms)

    def _value(self, arms: Population) -> Floats:
        # As in `RankWeighted._value`, from the worst arm; without weights by rank there is nothing to sort.
        worst = arms.values.min(axis=-1)
        return np.asarray(worst + ((arms.values - worst[..., None]) * arms.shares).sum(axis=-1))


class _WorstArm(RankWeighted):
    """All weight on the worst arm."""

    def in_short(self, who: str) -> str:
        """A clause for people."""
        return f"looks at the worst-off {who}"

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """1 for the ranks that begin with the worst arm, else 0."""
        # All mass is at the first rank: in one tie with others it is shared out by `supergradient`.
        return np.asarray(np.asarray(first) == 0, dtype=np.float64)

    def _value(self, arms: Population) -> Floats:
        return np.asarray(arms.values.min(axis=-1))


@dataclass(frozen=True)
class Maximin(_WorstArm):
    """The value of the worst arm.

    Example:
        >>> import evenhand as eh
        >>> round(eh.Maximin()([1.0, 2.0, 4.0]), 4)
        1.0
    """

    @property
    def name(self) -> str:
        """`maximin`."""
        return "maximin"

    def meaning(self, who: str) -> str:
        """A sentence for people."""
        return f"It is the value of the worst-off {who}; the others do not count."


@dataclass(frozen=True)
class Leximin(_WorstArm):
    """The worst arm first; among equals the second worst, then the third, and so on.

    This is an order of vectors and not a number: `compare` tells which of two is better. As a number it is
    reported by the worst arm's value. It is the limit of `Gini.geometric` as the ratio goes to infinity: once
    the ratio is large enough for two given vectors, their Gini welfares differ in the way they compare.

    Example:
        >>> import evenhand as eh
        >>> round(eh.Leximin()([1.0, 2.0, 4.0]), 4)
        1.0
    """

    lexicographic = True

    @property
    def name(self) -> str:
        """`leximin`."""
        return "leximin"

    def meaning(self, who: str) -> str:
        """A sentence for people."""
        return f"It is the value of the worst-off {who}; where two are equal, the second worst decides, then the third."

    def key(self, values: ArrayLike) -> Floats:
        """(..., arm) the values from the worst to the best; as lists, keys sort as leximin prefers.

        Args:
            values: (..., arm) values.
        """
        return np.sort(Population.read(values).values, axis=-1)

    def compare(self, u: ArrayLike, v: ArrayLike, tolerance: float = 0.0) -> int:
        """1 when u is better than v, -1 when it is worse, 0 when they tie.

        Args:
            u: (arm,) values.
            v: (arm,) values.
            tolerance: values this near to each other count as equal.
        """
        tolerance = _check_number(tolerance, "tolerance", "at least 0", lambda t: t >= 0)
        first, second = self.key(u), self.key(v)
        if first.ndim != 1 or first.shape != second.shape:
            raise InvalidInput(f"compare: expected two vectors (arm,) alike, got {first.shape} and {second.shape}")
        difference = first - second
        # The first rank at which the two differ decides.
        telling = difference[np.abs(difference) > tolerance]
        return int(np.sign(telling[0])) if len(telling) else 0


@dataclass(frozen=True)
class RegularisedMaximin(RankWeighted):
    """Weights proportional to (1, epsilon, ..., epsilon): the worst arm, and a little of all the others.

    Example:
        >>> import evenhand as eh
        >>> round(eh.RegularisedMaximin(0.1)([1.0, 2.0, 4.0]), 4)
        1.3333
    """

    epsilon: float
    """From 0 (maximin) to 1 (utilitarian)."""

    def __post_init__(self) -> None:
        # -0.0 becomes 0.0, so that equal welfares have the same text.
        object.__setattr__(self, "epsilon", check_fraction(self.epsilon, "epsilon") + 0.0)

    @property
    def name(self) -> str:
        """`maximin:0.01`."""
        return f"maximin:{_text(self.epsilon)}"

    def in_short(self, who: str) -> str:
        """A clause for people."""
        return _counts_for_more(who)

    def meaning(self, who: str) -> str:
        """A sentence for people."""
        other = f"{self.epsilon:,.6g}"
        return f"It is nearly the value of the worst-off {who}; each other counts {other} times as much as that one."

    def rank_mass(self, first: Ints, last: Ints, num_arms: int) -> Floats:
        """Epsilon a rank, and 1 for the worst arm, normalised."""
        worst = np.asarray(first) == 0
        # The worst arm is the first of its type; the other ranks of that type weigh epsilon each.
        others = last - first - worst
        return np.asarray((worst + self.epsilon * others) / (1 + self.epsilon * (num_arms - 1)))


# -- power means -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlphaFair(PowerMean):
    """Alpha-fairness as its certainty equivalent: the value which, given to every arm, would be as good.

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
        alpha = _check_number(self.alpha, "alpha", "at least 0 (maximin is infinity)", lambda a: a >= 0)
        object.__setattr__(self, "alpha", alpha + 0.0)

    @property
    def name(self) -> str:
        """`alpha:1`."""
        return f"alpha:{_text(self.alpha)}"

    def in_short(self, who: str) -> str:
        """A clause for people."""
        return _counts_for_more(who)

    def meaning(self, who: str) -> str:
        """A sentence for people."""
        alpha = f"the larger alpha (here {self.alpha:,.6g}), the more so"
        return f"It is a mean in which small values weigh more; {alpha}."

    @property
    def aversion(self) -> float:
        """Alpha."""
        return self.alpha

    def check_domain(self, values: ArrayLike) -> None:
        """Raise OutOfDomain unless values are positive; below alpha = 1 they may be zero, and at 0 anything.

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
            raise OutOfDomain(f"{self.name} needs {needed}, and the smallest value is {plain(smallest)}")

    def __call__(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats | float:
        """The certainty equivalent.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) how many arms share each value.
        """
        if self.alpha == 0:
            # The mean has a way of its own, which does not lose digits to logarithms.
            return Utilitarian()(values, counts)
        arms = Population.read(values, counts)
        self._check(arms)
        excess = self._excess(self._distances(arms), arms.shares)
        return _scalar_if_single(np.asarray(self._reference(arms) * np.exp(excess)))

    def supergradient(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats:
        """The gradient (W(v) / v_n)^alpha / N, or 1/N where all values are zero.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) how many arms share each value.

        Returns:
            (..., arm) weights; with counts, (..., type) the weight of all arms of the type together.

        Raises:
            OutOfDomain: some values, but not all, are zero: there the welfare rises infinitely steeply.
        """
        if self.alpha == 0:
            return Utilitarian().supergradient(values, counts)
        arms = Population.read(values, counts)
        self._check(arms)
        distances = self._distances(arms)
        # d = -inf: a value of 0 beside positive ones, which has an infinite slope for every alpha in (0, 1).
        if np.isneginf(distances).any():
            raise OutOfDomain(f"{self.name} is infinitely steep where some, but not all, values are 0")
        excess = self._excess(distances, arms.shares)
        with np.errstate(over="ignore"):  # an exponent of -inf is a weight of 0
            # (W/v_n)^alpha / N in logarithms: log(W/v_n) = q - d_n.
            weights = np.exp(self.alpha * (excess[..., None] - distances)) * arms.shares
        return arms.restore(weights)

    def _reference(self, arms: Population) -> Floats:
        """(...) the value from which all are measured."""
        return np.asarray(arms.values.min(axis=-1) if self.alpha >= 1 else arms.values.max(axis=-1))

    def _distances(self, arms: Population) -> Floats:
        """(..., type) d = log(v / r); zero where all values are zero."""
        reference = self._reference(arms)[..., None]
        with np.errstate(divide="ignore"):
            logs = np.log(arms.values)
        # Where all values are 0 there is nothing to divide by, and all are equal: distance 0.
        return np.where(reference > 0, logs - np.log(np.where(reference > 0, reference, 1.0)), 0.0)

    def _excess(self, distances: Floats, shares: Floats) -> Floats:
        """(...) q = log(W / r)."""
        beta = 1 - self.alpha
        # Proportional fairness: the limit, a geometric mean.
        if beta == 0:
            return np.asarray((distances * shares).sum(axis=-1))
        with np.errstate(over="ignore"):  # an exponent of -inf is a power of 0
            exponents = beta * distances
        # A mean near 1 loses its digits to the 1, a mean far below 1 loses them when 1 is taken off.
        below_one = (np.expm1(exponents) * shares).sum(axis=-1)
        mean = (np.exp(exponents) * shares).sum(axis=-1)
        log_mean = np.where(below_one > -0.5, np.log1p(np.maximum(below_one, -0.5)), np.log(mean))
        return np.asarray(log_mean / beta)


# -- as text, and from it --------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """One kind of welfare, as text."""

    build: Callable[[list[float], int], Welfare]
    """From the numbers behind the colon and the number of arms."""

    example: str
    """How it is written."""


def _build_gini(numbers: list[float], num_arms: int) -> Welfare:
    if not numbers:
        raise InvalidInput("needs the ratio of the weights, or the weights themselves")
    # A single number can only be a ratio: with one arm, whose only weight is 1, any ratio means the same.
    welfare = Gini.geometric(num_arms, numbers[0]) if len(numbers) == 1 else Gini(numbers)
    welfare.check_num_arms(num_arms)
    return welfare


def _build_half(text: str) -> Welfare:
    # `half` is the only word; what stands before = may be anything.
    word, _, number = text.partition("=")
    if word.strip() != "half":
        raise InvalidInput(
            f"'{word.strip()}=' is not known, only half=: the share of the weight that the worse half has"
        )
    numbers = _read_text(number)
    if len(numbers) != 1:
        raise InvalidInput(f"half= takes one number, with a point and no comma, got {len(numbers)}")
    return GiniHalf(*numbers)


def _build_maximin(numbers: list[float], num_arms: int) -> Welfare:
    if len(numbers) > 1:
        raise InvalidInput(f"takes at most one number, got {len(numbers)}")
    return RegularisedMaximin(numbers[0]) if numbers else Maximin()


def _build_alpha(numbers: list[float], num_arms: int) -> Welfare:
    if len(numbers) != 1:
        raise InvalidInput(f"needs exactly one number, got {len(numbers)}")
    return AlphaFair(numbers[0])


def _without_numbers(welfare: Welfare) -> Callable[[list[float], int], Welfare]:
    def build(numbers: list[float], num_arms: int) -> Welfare:
        if numbers:
            raise InvalidInput("takes no number")
        return welfare

    return build


_KINDS = {
    "gini": _Kind(_build_gini, "gini:2, gini:half=0.75 or gini:0.5,0.3,0.2"),
    "utilitarian": _Kind(_without_numbers(Utilitarian()), "utilitarian"),
    "maximin": _Kind(_build_maximin, "maximin or maximin:0.01"),
    "leximin": _Kind(_without_numbers(Leximin()), "leximin"),
    "alpha": _Kind(_build_alpha, "alpha:2"),
    "nash": _Kind(_without_numbers(AlphaFair(1.0)), "nash"),
}


_registered: dict[str, _Kind] = {}
"""Kinds of users' own, in this process."""

_WORD = re.compile(r"[a-z][a-z0-9-]*")


def register_welfare(name: str, build: Callable[[list[float], int], Welfare], example: str = "") -> None:
    """Let a welfare of one's own be written as text, with numbers behind a colon, wherever welfare is text.

    It holds for this process. A name that was registered before gets the new meaning; those of the library stay.

    Args:
        name: what is written before the colon: small letters, digits and hyphens.
        build: makes it from the numbers behind the colon and the number of arms (or groups); it raises InvalidInput
            with the reason where the numbers will not do. The `name` of what it makes is that text.
        example: how it is written, for messages.

    Example:
        >>> import evenhand as eh
        >>> from evenhand.model.welfare import RankWeighted
        >>> class Tail(RankWeighted):
        ...     "The mean of the worst-off share of the arms."
        ...     def __init__(self, share):
        ...         self.share, self.name = share, f"tail:{share:g}"
        ...     name = ""
        ...     def rank_mass(self, first, last, num_arms):
        ...         part = self.share * num_arms
        ...         return (np.minimum(last, part) - np.minimum(first, part)) / part
        >>> eh.register_welfare("tail", lambda numbers, num_arms: Tail(*numbers), example="tail:0.5")
        >>> eh.parse_welfare("tail:0.5", num_arms=4)([8, 10, 10, 12])
        9.0
    """
    if not isinstance(name, str) or not _WORD.fullmatch(name):
        raise InvalidInput(f"name: expected small letters, digits and hyphens, such as 'tail', got {name!r}")
    # A file that says `gini:2` must mean the same to everybody.
    if name in _KINDS:
        raise InvalidInput(f"name: '{name}' is a welfare of the library; choose another name")
    if not callable(build):
        raise InvalidInput(f"build: expected a function of the numbers and the number of arms, got {build!r}")
    _registered[name] = _Kind(_checked(name, build), example or name)


def _checked(name: str, build: Callable[[list[float], int], Welfare]) -> Callable[[list[float], int], Welfare]:
    """What a user's function makes, if it is a welfare."""

    def checked(numbers: list[float], num_arms: int) -> Welfare:
        try:
            made = build(numbers, num_arms)
        except TypeError as error:  # such as a class that takes one number, and got two
            raise InvalidInput(f"cannot be made of the numbers {numbers}: {error}") from error
        if isinstance(made, type) or not isinstance(made, Welfare):
            raise InvalidInput(f"what was registered as '{name}' made {made!r}, which is no welfare")
        if isinstance(made, RankWeighted):
            made.check_num_arms(num_arms)
        return made

    return checked


def parse_welfare(text: str, num_arms: int) -> Welfare:
    """Read a welfare from its text form.

    Args:
        text: `gini:2` (a single number is a ratio), `gini:half=0.75` (the share of the worse-off half),
            `gini:0.5,0.3,0.2` (several are weights), `utilitarian`, `maximin`, `maximin:0.01`, `leximin`, `alpha:2`, or
            `nash`, which is `alpha:1`; or one that was registered (`register_welfare`).
        num_arms: how many arms it is for.

    Example:
        >>> import evenhand as eh
        >>> round(eh.parse_welfare("gini:2", 3)([1.0, 2.0, 4.0]), 4)
        1.7143
        >>> eh.parse_welfare("maximin", 3)([1.0, 2.0, 4.0])
        1.0
    """
    num_arms = check_positive_int(num_arms, "num_arms")
    kind, colon, rest = text.strip().lower().partition(":")
    kinds = _KINDS | _registered
    # Where no known name is near, the user may have forgotten to register one.
    if kind not in kinds:
        hint = "" if nearest(kind, kinds) else " One of your own is known once register_welfare was called."
        raise UnknownName("welfare", kind, kinds, hint)
    try:
        # A word before the number is known for Gini alone.
        if kind == "gini" and "=" in rest:
            return _build_half(rest)
        return kinds[kind].build(_read_text(rest) if colon else [], num_arms)
    except InvalidInput as error:
        example = kinds[kind].example
        raise InvalidInput(f"welfare '{text}': {error}\nRight is, for example, {example}") from None


def _read_text(text: str) -> list[float]:
    numbers = []
    for part in text.split(","):
        try:
            numbers.append(float(part))
        except ValueError:
            raise InvalidInput(f"'{part.strip()}' is not a number") from None
    return numbers


WELFARE_MEMBERS = {
    "name": "name",
    "__call__": "__call__(values, counts=None)",
    "supergradient": "supergradient(values, counts=None)",
    "check_domain": "check_domain(values)",
}
"""What a welfare of one's own has, as `Welfare` says, and how it is written."""


def as_welfare(welfare: str | Welfare, num_arms: int) -> Welfare:
    """The welfare that was meant, by text or as an object, checked to be for this many arms.

    Args:
        welfare: a text form or a welfare.
        num_arms: how many arms there are.
    """
    if isinstance(welfare, str):
        return parse_welfare(welfare, num_arms)
    if isinstance(welfare, type) or not isinstance(welfare, Welfare):
        # What is almost a welfare is told what it lacks; anything else is told what to write.
        lacking = [shown for member, shown in WELFARE_MEMBERS.items() if not hasattr(welfare, member)]
        if len(lacking) < len(WELFARE_MEMBERS) and not hasattr(welfare, "__name__"):  # a function or a class is none
            kind = type(welfare).__name__
            raise InvalidInput(f"welfare: {kind} is no welfare yet, for it lacks {' and '.join(lacking)}")
        raise InvalidInput(f"welfare: expected text such as 'gini:2', or Utilitarian() or another, got {welfare!r}")
    if isinstance(welfare, RankWeighted):
        welfare.check_num_arms(num_arms)
    return welfare


# -- is it one? ------------------------------------------------------------------------------------------------------


_BOUNDED = "bounded by its supergradients"


class Witness(NamedTuple):
    """Two points at which a welfare breaks a promise."""

    fact: str
    """`concave`, `bounded by its supergradients`, `monotone` or `symmetric`."""

    first: Floats
    """(member,) values; with counts, (type,)."""

    second: Floats
    """(member,) other values."""

    words: str
    """The fault, with its numbers."""


@dataclass(frozen=True)
class WelfareCheck:
    """Facts about a welfare, by sampling: a witness refutes one for certain, none makes it likely."""

    name: str
    """The welfare."""

    witnesses: tuple[Witness, ...]
    """At most one for each fact; first the most important."""

    num_points: int
    """Vectors of the domain that were tried."""

    @property
    def concave(self) -> bool:
        """No two points have more on average than there is half way between them."""
        return self._holds("concave")

    @property
    def bounded(self) -> bool:
        """No two points contradict W(y) <= W(x) + g(x).(y - x), where g(x) is the supergradient."""
        return self._holds(_BOUNDED)

    @property
    def monotone(self) -> bool:
        """No two points contradict W(y) >= W(x) for y >= x."""
        return self._holds("monotone")

    @property
    def symmetric(self) -> bool:
        """No two points contradict W(y) = W(x) for x in another order."""
        return self._holds("symmetric")

    def _holds(self, fact: str) -> bool:
        return all(witness.fact != fact for witness in self.witnesses)

    def raise_if_any(self) -> None:
        """Raise NotApplicable with the first witness, if there is one."""
        if self.witnesses:
            found = self.witnesses[0]
            raise NotApplicable(
                f"welfare {self.name} is not {found.fact}, and no bound holds without that: {found.words}. "
                "See check_welfare, which returns the two points."
            )


def check_welfare(
    welfare: Welfare,
    num_members: int,
    low: ArrayLike = 0.0,
    high: ArrayLike = 1.0,
    rng: Rng = 0,
    counts: ArrayLike | None = None,
) -> WelfareCheck:
    """Check by sampling that a welfare is concave, with supergradients, monotone and symmetric.

    `solve` and all that reports a bound do so with a welfare of one's own, over the values that the arms can have.

    Args:
        welfare: the welfare; its own class or one of the library.
        num_members: how many arms, or groups, there are.
        low: the least value, of all or (member,) of each; with counts (type,).
        high: the largest value, likewise.
        rng: seed or generator of the points.
        counts: (type,) how many members share each value; they sum to `num_members`.

    Example:
        >>> import evenhand as eh
        >>> class Squares:
        ...     "Convex: it prefers one arm that has all."
        ...     name = "squares"
        ...     def __call__(self, values, counts=None):
        ...         return float(np.average(np.square(values), weights=counts))
        ...     def supergradient(self, values, counts=None):
        ...         return 2 * np.asarray(values) / len(values)
        ...     def check_domain(self, values):
        ...         "Every vector has one."
        >>> found = eh.check_welfare(Squares(), num_members=3)
        >>> found.concave, found.monotone, found.symmetric
        (False, True, True)
    """
    # Many members without counts are sampled as a hundred types: as many numbers as there are members tell no more.
    if counts is None and num_members > MOST_APART and np.ndim(low) == np.ndim(high) == 0:
        counts = np.diff(np.linspace(0, num_members, 101).astype(np.int64))
    size = num_members if counts is None else len(np.asarray(counts))
    ends = np.array([np.broadcast_to(np.asarray(end, dtype=np.float64), size) for end in (low, high)])
    points = _Points(welfare, None if counts is None else np.asarray(counts), ends, as_generator(rng))
    found = [points.not_concave(), points.not_bounded(), points.not_monotone(), points.not_symmetric()]
    return WelfareCheck(welfare.name, tuple(witness for witness in found if witness), len(points.tried))


class _Points:
    """Vectors of the domain within a box, and the welfare at them."""

    def __init__(self, welfare: Welfare, counts: Ints | None, ends: Floats, rng: np.random.Generator) -> None:
        self.welfare, self.counts, self.ends, self.rng = welfare, counts, ends, rng
        number = int(np.clip(1e6 / ends.shape[1], 4, 16))  # of each kind
        tried = [(x, value) for x in self._some(number) if (value := self.at(x)) is not None]
        self.tried, self.values = [x for x, _ in tried], [value for _, value in tried]

    def _some(self, number: int) -> list[Floats]:
        low, high = self.ends
        size, wide = len(low), high - low
        inside = low + wide * self.rng.random((number, size))
        corners = np.where(self.rng.random((number, size)) < 0.5, low, high)
        others = np.clip(self.rng.permuted(inside, axis=1), low, high)
        # Ties, but for little: there supergradients jump.
        level = low.min() + (high.max() - low.min()) * self.rng.random((number, 1))
        ties = np.clip(level + 1e-3 * wide * self.rng.standard_normal((number, size)), low, high)
        return [low, high, *inside, *corners, *others, *ties]

    def at(self, point: Floats) -> float | None:
        """The welfare at a point; None if it has none there."""
        try:
            self.welfare.check_domain(point)
            value = float(np.asarray(self.welfare(point, self.counts)))
        except OutOfDomain:
            return None
        if np.isnan(value):
            raise InvalidInput(f"welfare {self.welfare.name}: expected a number at {_shown(point)}, got nan")
        return value if np.isfinite(value) else None

    def _pairs(self) -> Iterator[tuple[int, int]]:
        number = len(self.tried)
        pairs = self.rng.integers(0, number, (4 * number, 2)) if number else np.zeros((0, 2), dtype=np.int64)
        return ((int(i), int(j)) for i, j in pairs if i != j)

    def not_bounded(self) -> Witness | None:
        """Two points x, y with W(y) > W(x) + g(x).(y - x)."""
        tried = np.array(self.tried).reshape(len(self.tried), -1)
        for x, value in zip(self.tried, self.values, strict=True):
            try:
                slope = np.asarray(self.welfare.supergradient(x, self.counts), dtype=np.float64)
            except OutOfDomain:  # infinitely steep at the edge of its domain
                continue
            if slope.shape != x.shape or np.isnan(slope).any():
                told = f"got {_shown(slope)}" if slope.shape == x.shape else f"got the shape {slope.shape}"
                raise InvalidInput(
                    f"welfare {self.welfare.name}: expected as a supergradient of {_shown(x)} {len(x)} numbers, {told}"
                )
            if np.isinf(slope).any():
                continue
            bounds = value + (tried - x) @ slope
            room = EXCESS * (abs(value) + np.abs(self.values) + np.abs(tried - x) @ np.abs(slope))
            if (above := np.flatnonzero(np.asarray(self.values) > bounds + room)).size:
                y = int(above[0])
                there, most = self.tried[y], f"at most {bounds[y]:.6g}"
                words = f"by that at {_shown(x)} it is {most} at {_shown(there)}, where it is {self.values[y]:.6g}"
                return Witness(_BOUNDED, x, there, words)
        return None

    def not_concave(self) -> Witness | None:
        """Two points with less than their mean half way."""
        for i, j in self._pairs():
            half = self.at((self.tried[i] + self.tried[j]) / 2)
            mean = (self.values[i] + self.values[j]) / 2
            if half is not None and half < mean - self._room(i, j):
                ends = f"{_shown(self.tried[i])} and {_shown(self.tried[j])}"
                return Witness(
                    "concave",
                    self.tried[i],
                    self.tried[j],
                    f"half way between {ends} it is {half:.6g}, less than the mean {mean:.6g}",
                )
        return None

    def not_monotone(self) -> Witness | None:
        """Two points x <= y with W(y) < W(x)."""
        for i, j in self._pairs():
            more = np.maximum(self.tried[i], self.tried[j])
            value = self.at(more)
            if value is not None and value < self.values[i] - self._room(i, j):
                words = f"it is {self.values[i]:.6g} at {_shown(self.tried[i])}, and {value:.6g} at {_shown(more)}"
                return Witness("monotone", self.tried[i], more, words)
        return None

    def not_symmetric(self) -> Witness | None:
        """A point that has another welfare in another order; of types, those of equally many members."""
        sizes = np.ones(self.ends.shape[1]) if self.counts is None else self.counts
        for i, x in enumerate(self.tried):
            order = self.rng.permutation(len(x))
            other = x.copy()
            # Stable, so that the two lists of places agree size by size.
            other[np.argsort(sizes, kind="stable")] = x[order[np.argsort(sizes[order], kind="stable")]]
            value = self.at(other)
            if value is not None and abs(value - self.values[i]) > self._room(i, i):
                words = f"it is {self.values[i]:.6g} at {_shown(x)}, and {value:.6g} at {_shown(other)}"
                return Witness("symmetric", x, other, words)
        return None

    def _room(self, i: int, j: int) -> float:
        return EXCESS * (abs(self.values[i]) + abs(self.values[j]) + 1e-3 * float(np.ptp(self.values)))


def _shown(values: Floats) -> str:
    """A vector in a message; of a long one its beginning."""
    return f"({', '.join(f'{value:.4g}' for value in values[:FEW])}{', ...' if len(values) > FEW else ''})"


def is_named(welfare: Welfare) -> bool:
    """Whether a welfare is of a class of the library, which needs no check."""
    return type(welfare).__module__ == __name__
