"""Tables of any source as polars frames: CSV, Parquet, JSON or TOML files, data frames, rows or columns.

Entries of CSV files stay texts: their meaning is read later, column by column, so that an invalid entry is reported
with its row. Columns become numbers: names become codes, numbers are parsed.

Bins cut a column of numbers into half-open intervals, named by their ends:

    5000              bins of this width: 0–5000, 5000–10000, ...
    0,5000,10000      cuts; values below the first cut, or from the last one on, are states too
    quantile:10       bins with about as many rows in each

A bin without rows is not a state.
"""

import csv
import io
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.checks import plain
from evenhand.errors import Fault, InvalidInputError, MissingExtraError, TableError, nearest, shortened
from evenhand.model.io import text_table
from evenhand.model.io.text_table import SHOWN_FAULTS, TableFormat, raise_faults
from evenhand.model.labels import quoted
from evenhand.model.state_table import in_order
from evenhand.typing import Array, Bools, Floats, Indices, Ints

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, eq=False)
class SourceTable:
    """A table and its provenance."""

    frame: "polars.DataFrame"
    """Columns of the source, and `row`, the number of each row in the source from 0."""

    source: str
    """Name of the source in messages."""

    by_line: bool = False
    """True if rows are lines of a text file, below one line of names."""

    def faults(self) -> "RowFaults":
        """Collector of the faults of its rows."""
        return RowFaults(self.frame["row"].to_numpy().astype(np.int64), self.by_line, self.source)


class RowFaults:
    """Faults of the rows of a table: all are counted, the first are reported."""

    def __init__(self, rows: Ints, by_line: bool, source: str) -> None:
        """Start without faults.

        Args:
            rows: numbers of the rows in the source, from 0.
            by_line: whether the source is a text file.
            source: its name in messages.
        """
        self.rows, self.by_line, self.source = rows, by_line, source
        self._whole: list[Fault] = []
        self._found: list[tuple[int, str, int]] = []
        self._number = 0

    def add(self, message: str) -> None:
        """Add a fault of the table as a whole."""
        self._whole.append(Fault("", message))

    def flag(self, places: Bools | Ints, describe: str | Callable[[int], str]) -> None:
        """Add a fault of each of many rows.

        Args:
            places: rows of the table, as a mask or as numbers.
            describe: the message, or a function of the place.
        """
        found = np.flatnonzero(places) if places.dtype == np.bool_ else np.sort(places)
        self._number += len(found)
        if isinstance(describe, str) and len(found) > SHOWN_FAULTS:
            self._found.append((int(found[0]), describe, len(found)))
            return
        for place in found[:SHOWN_FAULTS].tolist():
            self._found.append((place, describe if isinstance(describe, str) else describe(place), 1))

    def name(self, place: int) -> str:
        """Name of a row: `line 4` of a text file, `row 3` of any other source."""
        return f"line {self.rows[place] + 2}" if self.by_line else f"row {self.rows[place] + 1}"

    def raise_if_any(self) -> None:
        """Raise TableError with the first faults and the number of the others."""
        shown = sorted(self._found, key=lambda found: (self.rows[found[0]], found[1]))[:SHOWN_FAULTS]
        more = {number: f" and {number - 1:,} more rows" if number > 1 else "" for _, _, number in shown}
        faults = [Fault(self.name(place) + more[n], message, stands_for=n) for place, message, n in shown]
        if faults or self._whole:
            raise TableError(self._whole + shortened(faults, SHOWN_FAULTS, self._number), self.source)


def read_table(
    source: Any, columns: Mapping[str, str] | None = None, format: TableFormat | None = None, name: str = "the log"
) -> SourceTable:
    """Read a table, or some of its columns under other names.

    Args:
        source: a file name, a binary stream, a data frame, a list of rows, or a mapping of columns.
        columns: names in the source under their new names; all columns as they are by default.
        format: csv, parquet or json; by the suffix of the file by default.
        name: name in messages of a source that is not a file.

    Raises:
        TableError: the table is invalid or lacks columns; with every fault.
        MissingExtraError: the extra `data` is not installed.
    """
    try:
        import narwhals  # noqa: F401
        import polars
    except ImportError:
        raise MissingExtraError("fitting a log", "data") from None
    if format is not None and format not in text_table.FORMATS:
        raise InvalidInputError(f"format: expected one of {', '.join(text_table.FORMATS)}, got {format!r}")
    by_line = False
    if isinstance(source, (str, Path)) or hasattr(source, "read"):
        data, name = text_table.read_bytes(source)
        suffix = Path(name.removesuffix(".gz")).suffix.lower()
        kind = format or ("toml" if suffix == ".toml" else text_table.SUFFIXES.get(suffix, "csv"))
        by_line = kind == "csv"
        frame = _parse(data, name, kind)
    else:
        frame = _as_frame(source, name)
    columns = {column: column for column in frame.columns if column != "row"} if columns is None else columns
    faults = []
    for role, column in columns.items():
        if column not in frame.columns:
            near = nearest(column, frame.columns)
            listed = f"The columns are: {', '.join(frame.columns) or 'none'}.{f' Did you mean {near}?' if near else ''}"
            faults.append(Fault("", f"missing column {column} ({role}). {listed}"))
    raise_faults(faults, name)
    index = polars.int_range(len(frame), dtype=polars.Int64).alias("row")
    frame = frame.select(index, *(polars.col(column).alias(role) for role, column in columns.items()))
    if by_line:  # blank lines
        frame = frame.filter(~polars.all_horizontal(polars.exclude("row").is_null()))
    return SourceTable(frame, name, by_line)


def _parse(data: bytes, name: str, kind: str) -> "polars.DataFrame":
    import polars

    if kind == "csv":
        return _parse_csv(data, name)
    try:
        if kind == "parquet":
            return polars.read_parquet(io.BytesIO(data))
        found = json.loads(data) if kind == "json" else tomllib.loads(data.decode())
    except Exception as error:  # noqa: BLE001  # foreign readers raise errors of many kinds
        raise TableError([Fault("", f"is not {kind.upper()}: {error}")], name) from None
    if kind == "toml" and len(found) == 1:
        found = next(iter(found.values()))
    return _as_frame(found, name)


def _parse_csv(data: bytes, name: str) -> "polars.DataFrame":
    import polars

    head = data.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    raise_faults([Fault("line 1", "is not UTF-8 text")] if "\ufffd" in head else [], name)
    separator = text_table.separator_of(head)
    names = [entry.strip() for entry in next(csv.reader([head], delimiter=separator), [])]
    twice = sorted({column for column in names if names.count(column) > 1})
    raise_faults([Fault("", f"there are several columns {column}") for column in twice], name)
    try:
        frame = polars.read_csv(data, separator=separator, infer_schema=False, new_columns=names)
        added = text_table.ADDED_APOSTROPHE
        return frame.with_columns(polars.all().str.replace_all(added, "$1$2")) if b"'" in data else frame
    except Exception as error:  # noqa: BLE001  # polars raises errors of many kinds
        try:
            text_table.read_table(io.BytesIO(data), "csv")  # reports the lines at fault, which polars does not
        except TableError as found:
            raise TableError(found.faults, name) from None
        raise TableError([Fault("", f"is not CSV: {error}")], name) from None


def _as_frame(source: Any, name: str) -> "polars.DataFrame":
    """Frame of any library, list of rows, or columns."""
    import polars

    if isinstance(source, (polars.DataFrame, polars.LazyFrame)):
        return source.lazy().collect()
    try:
        if isinstance(source, (list, tuple)) and all(isinstance(row, Mapping) for row in source):
            names = list(dict.fromkeys(str(key) for row in source for key in row))
            source = {name: [row.get(name) for row in source] for name in names}
        if isinstance(source, Mapping):
            return polars.DataFrame([_series(str(column), list(entries)) for column, entries in source.items()])
        import narwhals

        frame = narwhals.from_native(source, pass_through=True)
        if frame is source:
            raise TypeError(f"expected rows, columns, a file or a frame (pandas, polars, pyarrow), got {type(source)}")
        frame = frame.collect() if isinstance(frame, narwhals.LazyFrame) else frame
        return polars.DataFrame([_native_series(series) for series in frame.iter_columns()])
    except Exception as error:  # noqa: BLE001  # foreign readers raise errors of many kinds
        raise TableError([Fault("", f"cannot be read as a table: {error}")], name) from None


def _series(name: str, entries: list[Any]) -> "polars.Series":
    """A column of Python objects; of mixed kinds, as texts."""
    import polars

    zoned = {entry.tzinfo is not None for entry in entries if isinstance(entry, datetime)}
    try:
        if len(zoned) > 1:  # polars would take them for one zone
            raise TypeError("moments with and without a time zone")
        return polars.Series(name, entries, strict=True)
    except (TypeError, polars.exceptions.PolarsError, OverflowError):
        return polars.Series(name, [None if entry is None else str(entry) for entry in entries], dtype=polars.String)


def _native_series(series: Any) -> "polars.Series":
    """A narwhals series as one of polars."""
    import narwhals
    import polars

    native = series.to_native()
    if getattr(getattr(native, "dtype", None), "ordered", False):  # an ordered categorical of pandas
        order = polars.Enum([str(category) for category in native.cat.categories])
        return polars.Series(series.name, [str(entry) for entry in series.to_list()], dtype=order)
    if series.dtype == narwhals.Object:  # pandas stores mixed kinds, dates among them, as objects
        return _series(series.name, [None if entry != entry else entry for entry in series.to_list()])
    found: polars.Series = series.to_polars().alias(series.name)
    return found


# Columns


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


def read_covariate(series: "polars.Series", name: str, faults: RowFaults) -> Array:
    """(row,) a covariate: numbers if all entries are, otherwise texts.

    Args:
        series: the column.
        name: its name, for messages.
        faults: collects rows without a value.
    """
    import polars

    texts = clean_texts(series)
    if texts.cast(polars.Float64, strict=False).is_null().sum() == texts.is_null().sum():
        return read_floats(series, name, faults, needed=True)
    faults.flag(texts.is_null().to_numpy(), f"has no {name}")
    return texts.fill_null("").to_numpy().astype(np.str_)


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
