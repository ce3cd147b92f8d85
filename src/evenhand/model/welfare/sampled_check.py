"""Check by sampling that a welfare is concave with supergradients, monotone, symmetric and consistent."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenhand.checks import as_generator
from evenhand.errors import InvalidInputError, NotApplicableError, OutOfDomainError
from evenhand.model.welfare.base import Welfare
from evenhand.model.welfare.power_mean import AlphaFair, PowerMean, is_lexicographic
from evenhand.model.welfare.rank_weighted import RankWeighted
from evenhand.typing import ArrayLike, Floats, Ints, Rng

MOST_APART = 10_000
"""Number of members up to which a welfare is checked at vectors of as many numbers."""

EXCESS = 1e-8
"""Relative violation of a property that rounding may cause."""


_BOUNDED = "bounded by its supergradients"


class Witness(NamedTuple):
    """Two points that refute a property of a welfare."""

    fact: str
    """`consistent`, `concave`, `bounded by its supergradients`, `monotone` or `symmetric`."""

    first: Floats
    """(member,) values; with counts, (type,)."""

    second: Floats
    """(member,) other values."""

    words: str
    """Description with numbers."""


@dataclass(frozen=True)
class WelfareCheck:
    """Properties of a welfare by sampling: a witness refutes one, its absence makes it likely."""

    name: str
    """Name of the welfare."""

    witnesses: tuple[Witness, ...]
    """At most one per property, the most important first."""

    num_points: int
    """Number of sampled vectors of the domain."""

    @property
    def consistent(self) -> bool:
        """True if values with counts have the welfare of all members one by one, and a subclass that of its class."""
        return self._holds("consistent")

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
        """Raise NotApplicableError with the first witness, if there is one."""
        if self.witnesses:
            found = self.witnesses[0]
            raise NotApplicableError(
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
    points: ArrayLike | None = None,
) -> WelfareCheck:
    """Check by sampling that a welfare is concave, with supergradients, monotone, symmetric and consistent.

    `solve` and every function that reports a bound check a user-defined welfare over the attainable values.

    Args:
        welfare: the welfare.
        num_members: number of arms, or groups.
        low: smallest value, of all or (member,) of each; with counts (type,).
        high: largest value, likewise.
        rng: seed or generator of the points.
        counts: (type,) number of members that share each value; they sum to `num_members`.
        points: (point, member) further vectors to check at, such as the values of a solution; with counts
            (point, type).

    Raises:
        OutOfDomainError: fewer than two vectors are in the domain of the welfare.

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
    # Many members are sampled as a hundred types.
    if counts is None and num_members > MOST_APART and np.ndim(low) == np.ndim(high) == 0:
        counts = np.diff(np.linspace(0, num_members, 101).astype(np.int64))
    size = num_members if counts is None else len(np.asarray(counts))
    ends = np.array([np.broadcast_to(np.asarray(end, dtype=np.float64), size) for end in (low, high)])
    more = np.zeros((0, size)) if points is None else np.asarray(points, dtype=np.float64).reshape(-1, size)
    tried = _Points(welfare, None if counts is None else np.asarray(counts), ends, as_generator(rng), more)
    # The most important first: what is not even consistent has no bound to speak of.
    found = [tried.not_consistent(), tried.not_concave(), tried.not_bounded()]
    found += [tried.not_monotone(), tried.not_symmetric()]
    return WelfareCheck(welfare.name, tuple(witness for witness in found if witness), len(tried.tried))


class _Points:
    """Sampled vectors of the domain within a box, and the welfare at them."""

    def __init__(
        self, welfare: Welfare, counts: Ints | None, ends: Floats, rng: np.random.Generator, more: Floats
    ) -> None:
        self.welfare, self.counts, self.ends, self.rng = welfare, counts, ends, rng
        number = int(np.clip(1e6 / ends.shape[1], 4, 16))  # of each kind
        tried = [(x, value) for x in [*self._some(number), *more] if (value := self.at(x)) is not None]
        self.tried, self.values = [x for x, _ in tried], [value for _, value in tried]
        if len(tried) < 2:
            box = f"between {_shown(ends[0])} and {_shown(ends[1])}"
            raise OutOfDomainError(
                f"welfare {welfare.name} is not defined at values {box}, so that it cannot be checked"
            )

    def _some(self, number: int) -> list[Floats]:
        low, high = self.ends
        size, wide = len(low), high - low
        inside = low + wide * self.rng.random((number, size))
        corners = np.where(self.rng.random((number, size)) < 0.5, low, high)
        others = np.clip(self.rng.permuted(inside, axis=1), low, high)
        # Near ties, where supergradients jump.
        level = low.min() + (high.max() - low.min()) * self.rng.random((number, 1))
        ties = np.clip(level + 1e-3 * wide * self.rng.standard_normal((number, size)), low, high)
        return [low, high, *inside, *corners, *others, *ties]

    def at(self, point: Floats) -> float | None:
        """Return the welfare at a point; None outside its domain."""
        try:
            self.welfare.check_domain(point)
            value = float(np.asarray(self.welfare(point, self.counts)))
        except OutOfDomainError:
            return None
        except TypeError as error:
            expected = "expected a function of (values, counts=None)"
            raise InvalidInputError(
                f"welfare {self.welfare.name}: {expected} that returns a number; {error}"
            ) from error
        if np.isnan(value):
            raise InvalidInputError(f"welfare {self.welfare.name}: expected a number at {_shown(point)}, got nan")
        return value if np.isfinite(value) else None

    def not_consistent(self) -> Witness | None:
        """A point whose welfare is another one member by member, or by the formula of the class."""
        for x, value in zip(self.tried, self.values, strict=True):
            for other, how in (
                (self._one_by_one(x), "with every member by itself"),
                (self._by_class(x), "by its class"),
            ):
                if other is not None and abs(other - value) > EXCESS * (abs(other) + abs(value)):
                    return Witness("consistent", x, x, f"at {_shown(x)} it is {value:.6g}, and {other:.6g} {how}")
        return None

    def _one_by_one(self, x: Floats) -> float | None:
        """Welfare of all members, if `x` is of types."""
        if self.counts is None or self.counts.sum() > 100 * MOST_APART:
            return None
        return float(np.asarray(self.welfare(np.repeat(x, self.counts))))

    def _by_class(self, x: Floats) -> float | None:
        """Welfare by the formula on which solvers rely for this class; None if it is of no such class."""
        if is_lexicographic(self.welfare):
            return float(x.min())
        if isinstance(self.welfare, RankWeighted):
            return float(np.asarray(RankWeighted.__call__(self.welfare, x, self.counts)))
        if isinstance(self.welfare, PowerMean):
            return float(np.asarray(AlphaFair(self.welfare.aversion)(x, self.counts)))
        return None

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
            except OutOfDomainError:  # infinitely steep at the edge of its domain
                continue
            if slope.shape != x.shape or np.isnan(slope).any():
                expected = f"as a supergradient of {_shown(x)} {len(x)} numbers"
                got = f"{_shown(np.ravel(slope))} of shape {slope.shape}"
                raise InvalidInputError(f"welfare {self.welfare.name}: expected {expected}, got {got}")
            if np.isinf(slope).any():
                continue
            bounds = value + (tried - x) @ slope
            room = EXCESS * (abs(value) + np.abs(self.values) + np.abs(tried - x) @ np.abs(slope))
            if (above := np.flatnonzero(np.asarray(self.values) > bounds + room)).size:
                y = int(above[0])
                there, most = self.tried[y], f"at most {bounds[y]:.6g}"
                words = f"by the one at {_shown(x)} it is {most} at {_shown(there)}, where it is {self.values[y]:.6g}"
                return Witness(_BOUNDED, x, there, words)
        return None

    def not_concave(self) -> Witness | None:
        """Two points with less than their mean half way."""
        for i, j in self._pairs():
            half = self.at((self.tried[i] + self.tried[j]) / 2)
            mean = (self.values[i] + self.values[j]) / 2
            if half is not None and half < mean - self._room(i, j):
                ends = f"{_shown(self.tried[i])} and {_shown(self.tried[j])}"
                words = f"half way between {ends} it is {half:.6g}, less than the mean {mean:.6g}"
                return Witness("concave", self.tried[i], self.tried[j], words)
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
        """A point whose welfare changes with the order of its members, or of types of equal size."""
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


def _shown(values: Floats, most: int = 6) -> str:
    """Format a vector for a message, shortened."""
    return f"({', '.join(f'{value:.4g}' for value in values[:most])}{', ...' if len(values) > most else ''})"
