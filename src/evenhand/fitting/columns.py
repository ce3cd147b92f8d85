"""Columns of records as numbers: names become codes, numbers are read, and what is neither is told with its row."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenhand.errors import Fault, TableError, shortened
from evenhand.fitting.tables import Records
from evenhand.model.whereabouts import SHOWN_FAULTS, in_order
from evenhand.typing import Bools, Floats, Indices, Ints

if TYPE_CHECKING:
    import polars

MISSING = ("", "nan", "na", "n/a", "null", "<na>", "nat")
"""What stands for nothing in a table, in small letters. `none` does not: it is what idle actions are called."""


class LogFaults:
    """What is wrong with a log: all of it is counted, the first faults are told."""

    def __init__(self, records: Records) -> None:
        """Nothing yet.

        Args:
            records: what rows are called by.
        """
        self.records = records
        self.rows: Ints = records.frame["row"].to_numpy().astype(np.int64)
        self._whole: list[Fault] = []
        self._found: list[tuple[int, str]] = []
        self._number = 0
        self.notes: list[str] = []
        """What is no fault, and should be known of how columns were read."""

    def add(self, message: str) -> None:
        """Note a fault of the log as a whole."""
        self._whole.append(Fault("", message))

    def flag(self, places: Bools | Ints, describe: str | Callable[[int], str]) -> None:
        """Note a fault of each of many rows.

        Args:
            places: which of the records that were read, as a mask or as numbers.
            describe: what is wrong with one of them.
        """
        found = np.flatnonzero(places) if places.dtype == np.bool_ else np.sort(places)
        self._number += len(found)
        for place in found[:SHOWN_FAULTS].tolist():
            told = describe if isinstance(describe, str) else describe(place)
            self._found.append((int(self.rows[place]), told))

    def name(self, place: int) -> str:
        """What a person calls a row: `line 4`."""
        return self.records.called([int(self.rows[place])])[0]

    def raise_if_any(self) -> None:
        """Raise TableError with the first faults and the number of the others."""
        if not self._whole and not self._found:
            return
        shown = sorted(self._found)[:SHOWN_FAULTS]
        called = dict(zip(rows := sorted({row for row, _ in shown}), self.records.called(rows), strict=True))
        faults = [Fault(called[row], told) for row, told in shown]
        raise TableError(self._whole + shortened(faults, SHOWN_FAULTS, self._number), self.records.source)


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of names."""

    names: tuple[str, ...]
    """(name,) in the order of their first appearance, unless somebody sorted them."""

    codes: Indices
    """(row,) -1 where there is none."""

    def in_order_of(self, names: Sequence[str]) -> "Coded":
        """The same column with its names in another order; those that are not among them are missing.

        Args:
            names: the order.
        """
        place = {name: number for number, name in enumerate(names)}
        moved = np.array([*(place.get(name, -1) for name in self.names), -1], dtype=np.int32)
        return Coded(tuple(names), moved[self.codes])


def code_names(series: "polars.Series") -> Coded:
    """A column of texts, numbers or truth values as names.

    Args:
        series: the column.
    """
    import polars

    texts = as_texts(series)
    distinct = texts.drop_nulls().unique(maintain_order=True)
    codes = texts.cast(polars.Enum(distinct)).to_physical().cast(polars.Int32).fill_null(-1).to_numpy()
    tidy = distinct.str.strip_chars()
    if (tidy == distinct).all() and not tidy.str.to_lowercase().is_in(list(MISSING)).any():
        return Coded(tuple(distinct.to_list()), codes)
    first: dict[str, int] = {}
    moved = [-1 if name.lower() in MISSING else first.setdefault(name, len(first)) for name in tidy.to_list()]
    return Coded(tuple(first), np.array([*moved, -1], dtype=np.int32)[codes])


def as_texts(series: "polars.Series") -> "polars.Series":
    """A column as a person would type its entries: whole numbers have no point."""
    import polars

    if series.dtype.is_float():
        series = series.fill_nan(None)
        whole = series.cast(polars.Int64, strict=False)
        if (whole.cast(series.dtype) == series).fill_null(series.is_null()).all():
            series = whole
    if series.dtype == polars.Object or series.dtype.is_nested():
        return polars.Series(series.name, [None if entry is None else str(entry) for entry in series.to_list()])
    return series.cast(polars.String)


def in_meaning(names: Sequence[str]) -> list[str]:
    """Names sorted as a person would: numbers by their size, and state2 before state10."""
    if all(re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", name) for name in names):
        return sorted(names, key=float)
    return sorted(names, key=in_order)


def with_points(texts: "polars.Series", kind: str, faults: LogFaults) -> "polars.Series":
    """Texts with points for decimal commas, where these can be nothing else, which is noted; else as they are.

    That is so where commas do not part entries, and every entry with a comma is a number by it.

    Args:
        texts: the column.
        kind: what it is for, in words.
        faults: hears what was decided.
    """
    commas = texts.str.contains(",", literal=True).fill_null(False)
    if faults.records.mark not in (";", "\t") or not commas.any():
        return texts
    others = texts.filter(~commas).drop_nulls()
    if not texts.filter(commas).str.contains(_COMMA).all() or others.str.contains(".", literal=True).any():
        return texts
    first = texts.filter(commas)[0]
    faults.notes.append(f"{kind}: commas are decimal, {first} is {first.replace(',', '.')}")
    return texts.str.replace(",", ".", literal=True)


def comma_in(text: str) -> str:
    """What to say of a number with a decimal comma where no comma is read as one; nothing of any other text.

    Args:
        text: what was written.
    """
    return f"; write {text.strip().replace(',', '.')}, with a point" if re.match(_COMMA, text.strip()) else ""


_COMMA = r"^[-+]?\d+,\d+$"


def read_floats(series: "polars.Series", kind: str, faults: LogFaults, needed: bool = False) -> Floats:
    """(row,) a column of numbers; NaN where there is none.

    Args:
        series: the column.
        kind: what it is for, in words.
        faults: hears of entries that are no numbers.
        needed: whether none may be missing.
    """
    import polars

    if series.dtype.is_numeric() or series.dtype == polars.Boolean:
        numbers = series.cast(polars.Float64)
        wrong = np.zeros(len(series), dtype=np.bool_)
    else:
        texts = as_texts(series).str.strip_chars()
        texts = with_points(texts.set(texts.str.to_lowercase().is_in(list(MISSING)), None), kind, faults)
        numbers = texts.cast(polars.Float64, strict=False)
        wrong = (numbers.is_null() & texts.is_not_null()).to_numpy()
    read: Floats = numbers.fill_null(float("nan")).to_numpy().astype(np.float64)
    faults.flag(wrong, lambda place: f"{kind} {str(series[place])!r} is not a number{comma_in(str(series[place]))}")
    faults.flag(np.isinf(read), f"{kind} is not a finite number")
    if needed:
        faults.flag(np.isnan(read) & ~wrong, f"has no {kind}")
    return read
