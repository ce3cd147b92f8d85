"""Sums of floating-point numbers without rounding, so that neither their order nor their grouping matters.

A double is an integer of 53 bits times a power of two. Numbers of one power are added as two halves of 27 and 26 bits,
each exact in a double for 2^25 numbers at once; the sums of all powers become one Python integer, in units of 2^-1126.
Integers are added exactly in any order, here and wherever the parts were computed, and rounded once at the end.
"""

from collections.abc import Iterable

import numpy as np

from evenhand.typing import Floats

UNIT = 1 << 1126
"""How many units are 1; the smallest double is 2^52 of them."""

_AT_ONCE = 1 << 25
_HALF = 2.0**27

Exact = tuple[int, ...]
"""Sums, one a column, in units of 2^-1126."""


def exact_sum(numbers: Floats) -> int:
    """The sum of finite numbers, in units of 2^-1126.

    Args:
        numbers: (number,) any.
    """
    return sum(_sum_some(numbers[start : start + _AT_ONCE]) for start in range(0, len(numbers), _AT_ONCE))


def _sum_some(numbers: Floats) -> int:
    mantissas, powers = np.frexp(numbers)
    whole = np.ldexp(mantissas, 53)
    high = np.floor(whole / _HALF)
    least = int(powers.min())
    places = powers - least
    sums = (np.bincount(places, weights=part).tolist() for part in (high, whole - high * _HALF))
    parts = enumerate(zip(*sums, strict=True))
    return sum(((int(upper) << 27) + int(lower)) << (place + least + 1073) for place, (upper, lower) in parts)


def exact_sums(columns: Floats) -> Exact:
    """The sums of columns.

    Args:
        columns: (number, column) any.
    """
    return tuple(exact_sum(column) for column in columns.T)


def added(parts: Iterable[Exact]) -> Exact:
    """The sums of parts together."""
    return tuple(map(sum, zip(*parts, strict=True)))


def rounded(sums: Exact) -> Floats:
    """(column,) the doubles nearest to sums."""
    return np.array([total / UNIT for total in sums])
