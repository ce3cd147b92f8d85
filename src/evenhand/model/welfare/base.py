"""The protocol of a welfare, and populations of arms by type in the order of their values."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from evenhand.checks import is_number, plain
from evenhand.errors import InvalidInputError
from evenhand.typing import ArrayLike, Bools, Floats, Ints

MOST_RANKS = 10**18
"""Maximum number of arms: more ranks would not fit in 64 bits. Problems have far fewer, `MOST_ARMS`."""

ROUNDING = 1e-12
"""Relative difference up to which weights are considered equal."""


@runtime_checkable
class Welfare(Protocol):
    """A concave, monotone, symmetric summary of the values of all arms.

    Example:
        >>> import evenhand as eh
        >>> worst = eh.Maximin()
        >>> isinstance(worst, eh.Welfare), float(worst([3.0, 1.0]))
        (True, 1.0)
    """

    @property
    def name(self) -> str:
        """Text form, such that `parse_welfare(name, num_arms)` returns an equal welfare."""

    def __call__(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats | float:
        """Return the welfare.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) number of arms that share each value.

        Returns:
            (...) welfare, a float if `values` has one axis.
        """

    def supergradient(self, values: ArrayLike, counts: ArrayLike | None = None) -> Floats:
        """Return weights g with W(u) <= W(v) + g.(u - v) for every u of the domain; equal arms get equal weights.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) number of arms that share each value.

        Returns:
            (..., arm) weights; with counts, (..., type) the weight of all arms of the type together.
        """

    def check_domain(self, values: ArrayLike) -> None:
        """Raise OutOfDomainError if the welfare is not defined.

        Args:
            values: (..., arm) values.
        """


class Ranks(NamedTuple):
    """The types of a population from the worst to the best."""

    order: Ints
    """(..., type) types by increasing value."""

    ascending: Floats
    """(..., type) their values."""

    first: Ints
    """(..., type) number of arms before the type."""

    last: Ints
    """(..., type) number of arms up to and including the type."""


@dataclass(frozen=True, eq=False)
class Population:
    """Arms grouped by type, checked: finite values, at least one arm of each type."""

    values: Floats
    """(..., type) values."""

    counts: Ints
    """(type,) arms of each type, at least 1."""

    present: Bools
    """(given type,) mask of the types that have arms; the others are left out."""

    num_arms: int
    """Number of arms."""

    @classmethod
    def read(cls, values: ArrayLike, counts: ArrayLike | None = None) -> "Population":
        """Check values, and counts if there are any.

        Args:
            values: (..., arm) values; with counts, (..., type).
            counts: (type,) number of arms that share each value; types without arms are left out.
        """
        array = _read_array(values, "values", "fiu")
        if array.ndim == 0 or array.shape[-1] == 0:
            raise InvalidInputError(f"values: expected shape (..., arm) with at least one arm, got {array.shape}")
        num_types = array.shape[-1]
        sizes = np.ones(num_types, dtype=np.int64) if counts is None else _read_counts(counts, num_types)
        # The value of a type without arms is ignored, even if it is not finite.
        present = sizes > 0
        finite = array if present.all() else array[..., present]
        if not np.isfinite(finite).all():
            bad = finite[~np.isfinite(finite)][0]
            raise InvalidInputError(f"values: every value must be a finite number, and one is {plain(bad)}")
        return cls(finite.astype(np.float64), sizes[present], present, int(sizes.sum()))

    @property
    def shares(self) -> Floats:
        """(type,) each type's share of the arms."""
        return self.counts / self.num_arms

    def ranks(self) -> Ranks:
        """Return the types in increasing order of value; ties in their own order."""
        order = np.argsort(self.values, axis=-1, kind="stable")
        sizes = self.counts[order]
        last = np.cumsum(sizes, axis=-1)
        return Ranks(order, np.take_along_axis(self.values, order, axis=-1), last - sizes, last)

    def restore(self, weights: Floats) -> Floats:
        """(..., given type) weights of (..., type), with zeros for types without arms."""
        if self.present.all():
            return weights
        whole = np.zeros((*weights.shape[:-1], len(self.present)))
        whole[..., self.present] = weights
        return whole


def _read_array(value: ArrayLike, name: str, kinds: str) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidInputError(f"{name}: expected an array of numbers, got lists of different lengths") from None
    if array.dtype.kind not in kinds:
        expected = "whole numbers" if kinds == "iu" else "numbers"
        raise InvalidInputError(f"{name}: expected {expected}, got {array.dtype} entries")
    return array


def _read_counts(counts: ArrayLike, num_types: int) -> Ints:
    array = _read_array(counts, "counts", "iu")
    if array.shape != (num_types,):
        raise InvalidInputError(f"counts: expected shape (type={num_types},) as values have, got {array.shape}")
    if (array < 0).any():
        raise InvalidInputError(f"counts: a number of arms cannot be negative, got {array.min()}")
    # In floats, since integers would overflow.
    total = array.sum(dtype=np.float64)
    if not 1 <= total <= MOST_RANKS:
        raise InvalidInputError(f"counts: expected 1 to {plain(MOST_RANKS)} arms in total, got {plain(total)}")
    return array.astype(np.int64)


def scalar_if_single(welfare: Floats) -> Floats | float:
    """Convert an array without axes to a float."""
    return float(welfare) if welfare.ndim == 0 else welfare


def shortest_text(number: float) -> str:
    """Shortest text that reads back as the same number."""
    return repr(float(number)).removesuffix(".0")


def counts_for_more(who: str) -> str:
    """Clause on a welfare that gives more weight to the worse-off."""
    return f"counts {'an arm' if who == 'arm' else f'a {who}'} for more the worse off it is"


def check_number(value: object, name: str, expected: str, accept: Callable[[float], bool]) -> float:
    """Return a finite number that `accept` holds for, or raise InvalidInputError."""
    try:
        number = float(value) if is_number(value) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and accept(number)):
        raise InvalidInputError(f"{name}: expected a number of {expected}, got {plain(value)}")
    return number
