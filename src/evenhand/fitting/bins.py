"""Bins: a column of numbers cut into half-open intervals, named by their ends.

    5000              bins of this width: 0–5000, 5000–10000, ...
    0,5000,10000      cuts; values below the first cut, or from the last one on, are states too
    quantile:10       bins with about as many rows in each

A bin without rows is not a state.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from evenhand.checks import plain
from evenhand.errors import InvalidInputError
from evenhand.fitting.columns import Coded
from evenhand.typing import Floats

Bins = str | float | Sequence[float]
"""A text, a width, or cuts."""

MOST_BINS = 10_000
"""Largest number of bins."""

WANTED = "expected a width (5000), cuts (0,5000,10000) or quantile:N"


def cut(values: Floats, bins: Bins) -> Coded:
    """Cut numbers into states.

    Args:
        values: (row,) NaN if missing.
        bins: a width, cuts, or quantiles.

    Raises:
        InvalidInputError: the bins are invalid.
    """
    known = values[np.isfinite(values)]
    cuts = _read_cuts(known, bins)
    places = np.searchsorted(cuts, values, side="right")
    used = np.unique(places[np.isfinite(values)])
    codes = np.where(np.isfinite(values), np.searchsorted(used, places), -1)
    return Coded(tuple(_names(cuts)[place] for place in used), codes.astype(np.int32))


def _read_cuts(known: Floats, bins: Bins) -> Floats:
    """Increasing cuts."""
    if isinstance(bins, str) and (found := re.fullmatch(r"\s*quantiles?:(\d+)\s*", bins)):
        number = int(found[1])
        if not 2 <= number <= MOST_BINS:
            raise InvalidInputError(f"bins {bins}: expected 2 to {MOST_BINS} bins")
        inner = np.quantile(known, np.arange(1, number) / number) if len(known) else np.zeros(0)
        return np.unique(np.concatenate([known[:1] * 0 + known.min(initial=np.inf), inner]))
    numbers = _numbers(bins)
    if len(numbers) > 1:
        if (np.diff(numbers) <= 0).any():
            raise InvalidInputError(f"bins {bins}: expected increasing cuts")
        return numbers
    width = float(numbers[0])
    if width <= 0:
        raise InvalidInputError(f"bins {bins}: expected a width above 0")
    if not len(known):
        return np.array([0.0, width])
    return _multiples(known, width, bins)


def _multiples(known: Floats, width: float, bins: Bins) -> Floats:
    """Cuts at whole multiples of a width, one more than needed at either end."""
    with np.errstate(over="ignore"):
        first, last = np.floor(known.min() / width) - 1, np.floor(known.max() / width) + 2
    too_fine = f"bins {bins}: too fine for numbers as large as {plain(np.abs(known).max())}"
    if not np.isfinite([first, last]).all():
        raise InvalidInputError(too_fine)
    if last - first > MOST_BINS + 3:
        raise InvalidInputError(f"bins {bins}: would make {last - first - 2:,.0f} bins; the most are {MOST_BINS:,}")
    # 3 * 0.1 is above 0.3, which belongs to the bin that begins there.
    cuts = np.array([float(f"{cut:.12g}") for cut in np.arange(first, last + 1) * width])
    if (np.diff(cuts) <= 0).any():
        raise InvalidInputError(too_fine)
    return cuts


def _numbers(bins: Bins) -> Floats:
    try:
        parts = bins.split(",") if isinstance(bins, str) else np.atleast_1d(np.asarray(bins, dtype=np.float64))
        numbers = np.array([float(part) for part in parts])
    except (TypeError, ValueError):
        raise InvalidInputError(f"bins: {WANTED}, got {bins!r}") from None
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise InvalidInputError(f"bins: {WANTED}, got {bins!r}")
    return numbers


def _names(cuts: Floats) -> list[str]:
    """(bin,) names."""
    shown = [plain(float(f"{cut:.6g}")) for cut in cuts]
    if len(set(shown)) < len(shown):
        shown = [repr(float(cut)) for cut in cuts]
    between = [f"{low}–{high}" for low, high in pairwise(shown)]
    return [f"below {shown[0]}", *between, f"{shown[-1]} and more"]
