"""Columns of records as numbers: names become codes, numbers are parsed, and invalid entries are reported by row."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenhand.errors import Fault, TableError, shortened
from evenhand.fitting.table_reader import SourceTable, row_names
from evenhand.model.io.text_table import SHOWN_FAULTS
from evenhand.model.state_table import in_order
from evenhand.typing import Bools, Floats, Indices, Ints

if TYPE_CHECKING:
    import polars

MISSING = ("", "nan", "na", "n/a", "null", "<na>", "nat")
"""Missing values in lower case. `none` is not one: it is a usual name of an idle action."""


class LogFaults:
    """Faults of a log: all are counted, the first are reported."""

    def __init__(self, table: SourceTable) -> None:
        """Start without faults.

        Args:
            table: the records.
        """
        self.table = table
        self.rows: Ints = table.frame["row"].to_numpy().astype(np.int64)
        self._whole: list[Fault] = []
        self._found: list[tuple[int, str]] = []
        self._number = 0

    def add(self, message: str) -> None:
        """Add a fault of the log as a whole."""
        self._whole.append(Fault("", message))

    def flag(self, places: Bools | Ints, describe: str | Callable[[int], str]) -> None:
        """Add a fault of each of many rows.

        Args:
            places: rows of the table, as a mask or as numbers.
            describe: the message, or a function of the place.
        """
        found = np.flatnonzero(places) if places.dtype == np.bool_ else np.sort(places)
        self._number += len(found)
        for place in found[:SHOWN_FAULTS].tolist():
            message = describe if isinstance(describe, str) else describe(place)
            self._found.append((int(self.rows[place]), message))

    def name(self, place: int) -> str:
        """Name of a row: `line 4`."""
        return row_names([int(self.rows[place])], self.table.by_line)[0]

    def raise_if_any(self) -> None:
        """Raise TableError with the first faults and the number of the others."""
        if not self._whole and not self._found:
            return
        shown = sorted(self._found)[:SHOWN_FAULTS]
        names = row_names([row for row, _ in shown], self.table.by_line)
        faults = [Fault(name, message) for name, (_, message) in zip(names, shown, strict=True)]
        raise TableError(self._whole + shortened(faults, SHOWN_FAULTS, self._number), self.table.source)


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


def read_floats(series: "polars.Series", kind: str, faults: LogFaults, needed: bool = False) -> Floats:
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
        texts = as_texts(series).str.strip_chars()
        texts = texts.set(texts.str.to_lowercase().is_in(list(MISSING)), None)
        numbers = texts.cast(polars.Float64, strict=False)
        wrong = (numbers.is_null() & texts.is_not_null()).to_numpy()
    read: Floats = numbers.fill_null(float("nan")).to_numpy().astype(np.float64)
    faults.flag(wrong, lambda place: f"{kind} {not_a_number(str(series[place]))}")
    faults.flag(np.isinf(read), f"{kind} is not a finite number")
    if needed:
        faults.flag(np.isnan(read) & ~wrong, f"has no {kind}")
    return read
