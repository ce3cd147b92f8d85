"""Columns of records as numbers: names become codes, numbers are parsed, and invalid entries are reported by row.

Bins cut a column of numbers into half-open intervals, named by their ends:

    5000              bins of this width: 0–5000, 5000–10000, ...
    0,5000,10000      cuts; values below the first cut, or from the last one on, are states too
    quantile:10       bins with about as many rows in each

A bin without rows is not a state.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from evenhand.checks import plain
from evenhand.errors import InvalidInputError, nearest
from evenhand.fitting.table_reader import RowFaults
from evenhand.model.places import quoted
from evenhand.model.state_table import in_order
from evenhand.typing import Floats, Indices

if TYPE_CHECKING:
    import polars

MISSING = ("", "nan", "na", "n/a", "null", "<na>", "nat")
"""Missing values in lower case. `none` is not one: it is a usual name of an idle action."""


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of names."""

    names: tuple[str, ...]
    """(name,) in the order of their first appearance, unless sorted."""

    codes: Indices
    """(row,) index of the name; -1 if missing."""

    def in_order_of(self, names: Sequence[str]) -> "Coded":
        """The same column with its names in another order; names outside it are missing.

        Args:
            names: the order.
        """
        place = {name: number for number, name in enumerate(names)}
        moved = np.array([*(place.get(name, -1) for name in self.names), -1], dtype=np.int32)
        return Coded(tuple(names), moved[self.codes])

    def sorted(self) -> "Coded":
        """The same column with its names in their natural order."""
        return self.in_order_of(natural_order(self.names))

    def among(self, known: Sequence[str], kind: str, faults: RowFaults) -> "Coded":
        """The same column with its names in a given order; rows with other names are faults.

        Args:
            known: the order.
            kind: role of the names, for messages.
            faults: collects rows with unknown names.
        """
        moved = self.in_order_of(known)
        unknown = (moved.codes < 0) & (self.codes >= 0)
        faults.flag(unknown, lambda place: unknown_name(kind, self.names[self.codes[place]], known))
        return moved


def unknown_name(kind: str, name: str, known: Sequence[str]) -> str:
    """Message on an unknown name, with the nearest known one.

    Args:
        kind: role of the name.
        name: the name.
        known: all valid names.
    """
    near = nearest(name, known)
    hint = f" Did you mean {quoted(near)}?" if near else ""
    return f"unknown {kind} {quoted(name)}.{hint} Known are {', '.join(known[:12])}{' ...' if len(known) > 12 else ''}"


def code_names(series: "polars.Series") -> Coded:
    """Codes of a column of texts, numbers or truth values.

    Args:
        series: the column.
    """
    import polars

    texts = as_texts(series)
    distinct = texts.drop_nulls().unique(maintain_order=True)
    codes = texts.cast(polars.Enum(distinct)).to_physical().cast(polars.Int32).fill_null(-1).to_numpy()
    first: dict[str, int] = {}
    stripped = distinct.str.strip_chars()
    missing = stripped.str.to_lowercase().is_in(list(MISSING))
    moved = [
        -1 if is_missing else first.setdefault(name, len(first))
        for name, is_missing in zip(stripped.to_list(), missing.to_list(), strict=True)
    ]
    return Coded(tuple(first), np.array([*moved, -1], dtype=np.int32)[codes])


def as_texts(series: "polars.Series") -> "polars.Series":
    """A column as texts; whole numbers have no decimal point.

    Args:
        series: the column.
    """
    import polars

    if series.dtype.is_float():
        series = series.fill_nan(None)
        whole = series.cast(polars.Int64, strict=False)
        if (whole.cast(series.dtype) == series).fill_null(series.is_null()).all():
            series = whole
    if series.dtype == polars.Object or series.dtype.is_nested():
        return polars.Series(series.name, [None if entry is None else str(entry) for entry in series.to_list()])
    return series.cast(polars.String)


def clean_texts(series: "polars.Series") -> "polars.Series":
    """A column as texts without spaces around them; null if missing.

    Args:
        series: the column.
    """
    texts = as_texts(series).str.strip_chars()
    return texts.set(texts.str.to_lowercase().is_in(list(MISSING)), None)


def natural_order(names: Sequence[str]) -> list[str]:
    """Names sorted naturally: numbers by size, and state2 before state10.

    Args:
        names: the names.
    """
    if all(re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", name) for name in names):
        return sorted(names, key=float)
    return sorted(names, key=in_order)


def not_a_number(text: str) -> str:
    """Message for a text that is not a number, with a hint on decimal commas.

    Args:
        text: the invalid text.
    """
    comma = re.fullmatch(r"\s*[-+]?\d+,\d+\s*", text)
    return f"{text!r} is not a number" + (f"; write {text.strip().replace(',', '.')}" if comma else "")


def read_floats(series: "polars.Series", kind: str, faults: RowFaults, needed: bool = False) -> Floats:
    """(row,) a column of numbers; NaN if missing.

    Args:
        series: the column.
        kind: its role, for messages.
        faults: collects invalid entries.
        needed: whether a missing entry is a fault.
    """
    import polars

    if series.dtype.is_numeric() or series.dtype == polars.Boolean:
        numbers = series.cast(polars.Float64)
        wrong = np.zeros(len(series), dtype=np.bool_)
    else:
        texts = clean_texts(series)
        numbers = texts.cast(polars.Float64, strict=False)
        wrong = (numbers.is_null() & texts.is_not_null()).to_numpy()
    read: Floats = numbers.fill_null(float("nan")).to_numpy().astype(np.float64)
    faults.flag(wrong, lambda place: f"{kind} {not_a_number(str(series[place]))}")
    faults.flag(np.isinf(read), f"{kind} is not a finite number")
    if needed:
        faults.flag(np.isnan(read) & ~wrong, f"has no {kind}")
    return read


Bins = str | float | Sequence[float]
"""A text, a width, or cuts."""

MOST_BINS = 10_000
"""Largest number of bins."""


def cut(values: Floats, bins: Bins) -> Coded:
    """Cut numbers into states.

    Args:
        values: (row,) NaN if missing.
        bins: a width, cuts, or quantiles.

    Raises:
        InvalidInputError: the bins are invalid.
    """
    is_known = np.isfinite(values)
    cuts = _read_cuts(values[is_known], bins)
    places = np.searchsorted(cuts, values, side="right")
    used = np.unique(places[is_known])
    codes = np.where(is_known, np.searchsorted(used, places), -1)
    shown = [plain(float(f"{cut:.6g}")) for cut in cuts]
    if len(set(shown)) < len(shown):
        shown = [repr(float(cut)) for cut in cuts]
    names = [f"below {shown[0]}", *(f"{low}–{high}" for low, high in pairwise(shown)), f"{shown[-1]} and more"]
    return Coded(tuple(names[place] for place in used), codes.astype(np.int32))


def _read_cuts(known: Floats, bins: Bins) -> Floats:
    """Increasing cuts."""
    quantiles = re.fullmatch(r"\s*quantiles?:(\d+)\s*", bins) if isinstance(bins, str) else None
    known = known if len(known) else np.zeros(1)
    try:
        parts = bins.split(",") if isinstance(bins, str) else np.atleast_1d(np.asarray(bins, dtype=np.float64))
        numbers = np.array([float(quantiles[1])] if quantiles else [float(part) for part in parts])
        if quantiles and 2 <= numbers[0] <= MOST_BINS:
            return np.unique(np.quantile(known, np.arange(numbers[0]) / numbers[0]))
        if len(numbers) > 1 and (np.diff(numbers) > 0).all():
            return numbers
        # Whole multiples of a width, one more than needed at either end. 3 * 0.1 is above 0.3, which belongs to the
        # bin that begins there.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            first, last = np.floor(known.min() / numbers[0]) - 1, np.floor(known.max() / numbers[0]) + 2
            few = last - first <= MOST_BINS + 3
        if not quantiles and len(numbers) == 1 and numbers[0] > 0 and few:
            cuts = np.array([float(f"{cut:.12g}") for cut in np.arange(first, last + 1) * numbers[0]])
            if (np.diff(cuts) > 0).all():
                return cuts
    except (TypeError, ValueError, IndexError):
        pass
    raise InvalidInputError(
        f"bins: expected a width (5000), increasing cuts (0,5000,10000) or quantile:N, for at most {MOST_BINS:,} bins, "
        f"got {bins!r}"
    )
