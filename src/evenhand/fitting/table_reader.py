"""Tables of any source as polars frames: CSV, Parquet, JSON or TOML files, data frames, rows or columns.

Entries of CSV files stay texts: their meaning is read later, column by column, so that an invalid entry is reported
with its row.
"""

import csv
import io
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.errors import Fault, InvalidInputError, MissingExtraError, TableError, nearest, shortened
from evenhand.model.io.text_table import (
    FORMATS,
    SHOWN_FAULTS,
    SUFFIXES,
    TableFormat,
    raise_faults,
    read_bytes,
    separator_of,
)
from evenhand.model.io.text_table import read_table as read_texts
from evenhand.typing import Bools, Ints

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
    """Whether rows are lines of a text file, below one line of names."""

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
        self._found: list[tuple[int, str]] = []
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
        for place in found[:SHOWN_FAULTS].tolist():
            self._found.append((place, describe if isinstance(describe, str) else describe(place)))

    def name(self, place: int) -> str:
        """Name of a row: `line 4` of a text file, `row 3` of any other source."""
        return f"line {self.rows[place] + 2}" if self.by_line else f"row {self.rows[place] + 1}"

    def raise_if_any(self) -> None:
        """Raise TableError with the first faults and the number of the others."""
        shown = sorted(self._found, key=lambda found: (self.rows[found[0]], found[1]))[:SHOWN_FAULTS]
        faults = [Fault(self.name(place), message) for place, message in shown]
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
        import polars
    except ImportError:
        raise MissingExtraError("fitting a log", "data") from None
    if format is not None and format not in FORMATS:
        raise InvalidInputError(f"format: expected one of {', '.join(FORMATS)}, got {format!r}")
    by_line = False
    if isinstance(source, (str, Path)) or hasattr(source, "read"):
        data, name = read_bytes(source)
        suffix = Path(name.removesuffix(".gz")).suffix.lower()
        kind = format or ("toml" if suffix == ".toml" else SUFFIXES.get(suffix, "csv"))
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

    try:
        if kind == "csv":
            return _parse_csv(data, name)
        if kind == "parquet":
            return polars.read_parquet(io.BytesIO(data))
        found = json.loads(data) if kind == "json" else tomllib.loads(data.decode())
    except TableError:
        raise
    except Exception as error:  # noqa: BLE001  # foreign readers raise errors of many kinds
        raise TableError([Fault("", f"is not {kind.upper()}: {error}")], name) from None
    if kind == "toml" and len(found) == 1:
        found = next(iter(found.values()))
    return _as_frame(found, name)


def _parse_csv(data: bytes, name: str) -> "polars.DataFrame":
    import polars

    head = data.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    raise_faults([Fault("line 1", "is not UTF-8 text")] if "\ufffd" in head else [], name)
    separator = separator_of(head)
    names = [entry.strip() for entry in next(csv.reader([head], delimiter=separator), [])]
    twice = sorted({column for column in names if names.count(column) > 1})
    raise_faults([Fault("", f"there are several columns {column}") for column in twice], name)
    try:
        return polars.read_csv(data, separator=separator, infer_schema=False, new_columns=names)
    except polars.exceptions.PolarsError:
        try:
            read_texts(io.BytesIO(data), "csv")  # reports the lines at fault, which polars does not
        except TableError as error:
            raise TableError(error.faults, name) from None
        raise


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
            expected = "a list of rows, columns by name, a file name, or a frame of pandas, polars or pyarrow"
            raise TableError([Fault("", f"expected {expected}, got {type(source).__name__}")], name)
        frame = frame.collect() if isinstance(frame, narwhals.LazyFrame) else frame
        return polars.DataFrame([_native_series(series) for series in frame.iter_columns()])
    except TableError:
        raise
    except ImportError:
        raise MissingExtraError("fitting a frame", "data") from None
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
