"""Tables of texts: CSV, Parquet or JSON files, data frames, lists of rows or mappings of columns.

Faults name the row: `line 4` of a text file, `row 3` of any other source.
"""

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evenhand.checks import why_unreadable
from evenhand.errors import Fault, InvalidInputError, MissingExtraError, TableError, shortened

TableFormat = Literal["csv", "parquet", "json"]
FORMATS: tuple[TableFormat, ...] = ("csv", "parquet", "json")
SUFFIXES: dict[str, TableFormat] = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".json": "json"}

SHOWN_FAULTS = 30
"""Maximum number of reported faults per table."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of texts, and the names of the rows."""

    columns: dict[str, list[str]]
    """Texts under the names of the columns, in lower case."""

    rows: list[str]
    """`line 4` of a text file, `row 3` of any other source."""

    source: str = "states"
    """Name of the table in messages."""

    file: str = ""
    """File name, if it is a file."""

    faults: tuple[Fault, ...] = ()
    """Faults of rows that are left out since they have too many or too few entries."""


def read_table(source: Any, format: TableFormat | None = None, *, ragged: bool = False) -> Table:
    """Read a table from a file or a binary stream.

    Args:
        source: a file name, or a stream.
        format: csv, parquet or json; by default the suffix of the file, else csv.
        ragged: leave out rows of CSV with too many or too few entries, and report them in `Table.faults`.

    Raises:
        TableError: the table is invalid.
    """
    data, name = read_bytes(source)
    read = {"csv": _read_csv, "parquet": _read_parquet, "json": _read_json}
    table = read[format or SUFFIXES.get(Path(name).suffix.lower(), "csv")](data, name)
    if not ragged:
        raise_faults(table.faults, name)
    return replace(table, file=name if isinstance(source, (str, Path)) else "")


def as_table(given: Any) -> Table:
    """Read a table from a file name, a data frame, a list of rows, or a mapping of columns."""
    if isinstance(given, Table):
        return given
    if isinstance(given, (str, Path)):
        return read_table(given)
    if (columns := _columns_of(given)) is not None:
        return _from_columns(columns, "states")
    # A frame of pandas, polars or pyarrow.
    names = getattr(given, "column_names", None) or getattr(given, "columns", None)
    if names is None:
        raise InvalidInputError(
            f"states: expected a table with the columns arm, type and state, got {type(given).__name__}"
        )
    return _from_columns({str(name): given[name] for name in names}, "states")


def raise_faults(faults: Sequence[Fault], source: str) -> None:
    """Raise TableError with the first faults, if there are any."""
    if faults:
        raise TableError(shortened(faults, SHOWN_FAULTS), source)


def read_bytes(source: Any) -> tuple[bytes, str]:
    """Return the content of a file or stream, decompressed if it is gzip, and its name in messages."""
    file = Path(source) if isinstance(source, (str, Path)) else None
    name = "standard input" if file is None else str(file)
    try:
        data = source.read() if file is None else file.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError) as error:
        reason = why_unreadable(file, error) if file and isinstance(error, OSError) else error
        raise InvalidInputError(f"{name}: cannot be read: {reason}") from None
    data = data.encode() if isinstance(data, str) else data
    if not data[: 1 << 16].strip():
        raise TableError([Fault("", "the table is empty")], name)
    return data, name


_FORMULA = r"('*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])"
_BEFORE_FORMULA = re.compile(rf"(?:^|(?<=[;\t\r\n]))(?={_FORMULA})")
ADDED_APOSTROPHE = rf"(^|[;\t\r\n])'{_FORMULA}"
"""Pattern of an apostrophe that `csv_text` added, with what is before and after it."""


def csv_text(rows: Iterable[Sequence[Any]], end: str = "\n") -> str:
    """Return rows as CSV that is safe in a spreadsheet: texts that it would compute begin with an apostrophe.

    So do parts of a text after a semicolon, a tab or a new line, by which some spreadsheets separate cells. Numbers
    stay numbers. `read_table` takes the apostrophes away again.

    Args:
        rows: the first has the names of the columns.
        end: of a line.
    """
    stream = io.StringIO()
    csv.writer(stream, lineterminator=end).writerows([_safe(entry) for entry in row] for row in rows)
    return stream.getvalue()


def _safe(entry: Any) -> Any:
    if not isinstance(entry, str) or not _BEFORE_FORMULA.search(entry):
        return entry
    try:
        float(entry)
    except ValueError:
        return _BEFORE_FORMULA.sub("'", entry)
    return entry


def separator_of(head: str) -> str:
    """Return the most frequent of comma, semicolon and tab in the first line of a CSV file."""
    return max(",;\t", key=head.count)


def _read_csv(data: bytes, name: str) -> Table:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError([Fault(f"line {line}", "is not UTF-8 text; save the table as CSV in UTF-8")], name) from None
    reader = csv.reader(io.StringIO(text), delimiter=separator_of(text.lstrip("\r\n").partition("\n")[0]))
    try:
        # Spreadsheets leave lines of nothing but separators below a table.
        lines = [(reader.line_num, row) for row in reader if any(entry.strip() for entry in row)]
    except csv.Error as error:
        raise TableError([Fault(f"line {reader.line_num}", f"is not CSV: {error}")], name) from None
    if not lines:
        raise TableError([Fault("", "the table is empty")], name)
    head = [entry.strip() for entry in lines[0][1]]
    faults = [
        Fault(f"line {number}", f"has {len(row)} entries where the first line has {len(head)}")
        for number, row in lines[1:]
        if len(row) != len(head)
    ]
    whole = [(number, row) for number, row in lines[1:] if len(row) == len(head)]
    columns = [[row[index].strip() for _, row in whole] for index in range(len(head))]
    if "'" in text:
        columns = [[re.sub(ADDED_APOSTROPHE, r"\1\2", entry) for entry in column] for column in columns]
    return replace(_named(head, columns, [f"line {number}" for number, _ in whole], name), faults=tuple(faults))


def _read_parquet(data: bytes, name: str) -> Table:
    try:
        import polars
    except ImportError:
        raise MissingExtraError("reading Parquet", "data") from None
    try:
        frame = polars.read_parquet(io.BytesIO(data))
    except Exception as error:  # noqa: BLE001  # the reader raises errors of many kinds
        raise TableError([Fault("", f"is not Parquet: {error}")], name) from None
    return _from_columns({column: frame[column] for column in frame.columns}, name)


def _read_json(data: bytes, name: str) -> Table:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TableError([Fault("", f"is not JSON: {error}")], name) from None
    if isinstance(found, dict) and isinstance(found.get("actions"), list):  # decisions in JSON
        found = found["actions"]
    columns = _columns_of(found)
    if columns is None or not all(isinstance(column, list) for column in columns.values()):
        raise TableError([Fault("", "expected a list of rows, or an object of columns")], name)
    return _from_columns(columns, name)


def _columns_of(given: Any) -> dict[str, list[Any]] | None:
    """Columns of a list of rows or a mapping of columns; None for anything else."""
    if isinstance(given, Mapping):
        return {str(name): column for name, column in given.items()}
    if not isinstance(given, (list, tuple)) or not all(isinstance(row, Mapping) for row in given):
        return None
    # Rows may have different keys; the columns are in order of first appearance.
    names = dict.fromkeys(str(key) for row in given for key in row)
    return {name: [row.get(name) for row in given] for name in names}


def _from_columns(columns: Mapping[str, Any], name: str) -> Table:
    columns = {key: c.to_pylist() if hasattr(c, "to_pylist") else list(c) for key, c in columns.items()}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise TableError([Fault("", f"its columns have different lengths: {sorted(lengths)}")], name)
    texts = [[_text(entry) for entry in entries] for entries in columns.values()]
    return _named(list(columns), texts, [f"row {number + 1}" for number in range(max(lengths, default=0))], name)


def _named(head: Sequence[str], columns: Sequence[list[str]], rows: list[str], name: str) -> Table:
    # Only columns that are used must be unique.
    small = [column.strip().lower() for column in head]
    twice = [column for column in ("arm", "group", "state", "type") if small.count(column) > 1]
    raise_faults([Fault("", f"there are several columns {column}") for column in twice], name)
    return Table(dict(zip(small, columns, strict=True)), rows, name)


def _text(entry: Any) -> str:
    """Format an entry as text; empty for none."""
    if entry is None or (isinstance(entry, float) and math.isnan(entry)):
        return ""
    if isinstance(entry, (float, np.floating)) and float(entry).is_integer():
        return str(int(entry))
    return str(entry).strip()
