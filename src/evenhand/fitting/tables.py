"""Records as a frame: the columns that were asked for, under what they are for, and what a person calls each row.

A file is CSV (commas, semicolons or tabs), Parquet or JSON; in Python, a frame of pandas, polars or pyarrow (by
Narwhals), a list of rows or a table of columns. The entries of a CSV file stay texts here: what they mean is read
later, column by column, so that an entry that does not fit its column can be told with its line.
"""

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from evenhand.checks import why_unreadable
from evenhand.errors import Fault, InvalidInput, MissingExtra, TableError, nearest
from evenhand.model.whereabouts import FORMATS, SHOWN_FAULTS, SUFFIXES, TableFormat

if TYPE_CHECKING:
    import polars

MODELS = {".toml": "check", ".npz": "check", ".zip": "show"}
"""Files that are no records, and the command that reads them."""

MOST_TITLE = 20
"""Lines among which the names of the columns are looked for."""

ROLES = ("arm", "time", "state", "action", "type", "reward", "group")
"""What a column may be for; those of usage go by `used 0`, `used 1`, ..."""


@dataclass(frozen=True, eq=False)
class Records:
    """The columns that were asked for."""

    frame: "polars.DataFrame"
    """Under what they are for, and `row`, the number of each in the source, from 0."""

    source: str
    """What a person calls it."""

    text: "Path | bytes | None" = None
    """The CSV text itself, to find lines in; None where rows have no lines."""

    mark: str = ""
    """What stands between the entries of a CSV file."""

    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The order of names, of columns that have one: ordered categories."""

    def called(self, rows: Sequence[int]) -> list[str]:
        """`line 4` of a text file, `row 3` of anything else.

        Args:
            rows: their numbers, from 0.
        """
        return names_of_rows(self.text, rows)


def names_of_rows(text: "Path | bytes | None", rows: Sequence[int]) -> list[str]:
    """`line 4` of a text file, `row 3` of anything else.

    Args:
        text: the CSV text; None where rows have no lines.
        rows: their numbers, from 0.
    """
    if text is None:
        return [f"row {row + 1}" for row in rows]
    return [f"line {line}" for line in _lines_of(text, rows)]


def read_records(source: Any, columns: Mapping[str, str], format: TableFormat | None = None) -> Records:
    """The columns of a table that somebody asks for.

    Args:
        source: the name of a file, a binary stream, a frame, a list of rows, or a table of columns.
        columns: what each is called in the source, under what it is for.
        format: csv, parquet or json; by the name of the file when absent.

    Raises:
        TableError: it is no such table, or has no such columns; with every fault.
        MissingExtra: the extra `data` is absent.
    """
    polars_or_refuse()
    if format is not None and format not in FORMATS:
        raise InvalidInput(f"format: expected one of {', '.join(FORMATS)}, got {format!r}")
    if isinstance(source, (str, Path)):
        return _read_file(Path(source), columns, format)
    if hasattr(source, "read"):
        return _read_stream(source, columns, format or "csv")
    frame, orders = _as_frame(source)
    return _chosen(frame, columns, "the log", None, orders)


def polars_or_refuse() -> Any:
    """The library that reads records, or words on how to get it."""
    try:
        import polars
    except ImportError:
        raise MissingExtra("fitting a log", "data") from None
    return polars


# Files


def _read_file(file: Path, columns: Mapping[str, str], format: TableFormat | None) -> Records:
    try:
        with file.open("rb") as stream:
            empty = not stream.read(1 << 16).strip()
    except OSError as error:
        raise InvalidInput(f"{file}: cannot be read: {why_unreadable(file, error)}") from None
    if empty:
        raise TableError([Fault("", "the log is empty")], str(file))
    if format is None and file.suffix.lower() in MODELS:
        told = f"is a model or a plan, and no log of records; evenhand {MODELS[file.suffix.lower()]} {file} tells of it"
        raise InvalidInput(f"{file}: {told}")
    chosen = format or SUFFIXES.get(file.suffix.lower(), "csv")
    if chosen == "csv":
        return _read_csv(file, str(file), columns)
    return _read_bytes(file.read_bytes(), str(file), columns, chosen)


def _read_stream(stream: IO[bytes], columns: Mapping[str, str], format: TableFormat) -> Records:
    try:
        data = stream.read()
    except OSError as error:
        raise InvalidInput(f"the log cannot be read: {error.strerror or error}") from None
    if isinstance(data, str):
        data = data.encode()
    if not data.strip():
        raise TableError([Fault("", "the log is empty")], "standard input")
    return _read_bytes(data, "standard input", columns, format)


def _read_bytes(data: bytes, name: str, columns: Mapping[str, str], format: TableFormat) -> Records:
    import polars

    if format == "csv":
        return _read_csv(data, name, columns)
    if format == "parquet":
        with _refusing("is not Parquet", name):
            frame = polars.read_parquet(io.BytesIO(data))
        return _chosen(frame, columns, name)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TableError([Fault("", f"is not JSON: {error}")], name) from None
    if not _is_table(found):
        told = 'expected a list of rows, [{"van": 1, ...}, ...], or columns, {"van": [1, ...], ...}'
        raise TableError([Fault("", f"is no table: {told}")], name)
    return _chosen(_as_frame(found)[0], columns, name)


def _is_table(found: Any) -> bool:
    """Whether what stands in a JSON file is rows, or columns."""
    if isinstance(found, Mapping):
        return all(isinstance(column, list) for column in found.values())
    return isinstance(found, list) and all(isinstance(row, Mapping) for row in found)


def _read_csv(text: Path | bytes, name: str, columns: Mapping[str, str]) -> Records:
    import polars

    head, mark = _head(text, name)
    try:
        found = _find_columns(head, columns, name)
    except TableError:
        _tell_title(text, columns, name)
        raise
    wanted = list(dict.fromkeys(found.values()))
    try:
        frame = polars.read_csv(
            text, columns=[head.index(column) for column in wanted], separator=mark, infer_schema=False, glob=False
        )
    except Exception as error:  # noqa: BLE001  # the file is a stranger's, and the reader has errors of many kinds
        _tell_form(text, name, mark, len(head))
        raise TableError([Fault("", f"is not CSV: {error}")], name) from None
    frame.columns = wanted  # as they are without spaces
    rows = frame.select(polars.col(column).alias(role) for role, column in found.items()).with_row_index("row")
    return Records(rows.filter(~polars.all_horizontal(polars.exclude("row").is_null())), name, text, mark)


def _head(text: Path | bytes, name: str) -> tuple[list[str], str]:
    """The names of the columns, and what stands between them."""
    first, number = "", 0
    with _opened_raw(text) as stream:  # a line at a time: what comes below is read later
        while not first.strip() and (line := stream.readline()):
            number += 1
            try:
                first = line.decode("utf-8-sig")
            except UnicodeDecodeError:
                told = "is not UTF-8 text; save the log as CSV in UTF-8"
                raise TableError([Fault(f"line {number}", told)], name) from None
    mark = _mark(first)
    return [entry.strip() for entry in next(csv.reader([first], delimiter=mark))], mark


def _mark(line: str) -> str:
    """What stands between the entries of a line."""
    return max(",;\t", key=line.count)  # spreadsheets of half the world write semicolons


def _tell_title(text: Path | bytes, columns: Mapping[str, str], name: str) -> None:
    """Raise where the names of the columns are, if there is a title above them."""
    wanted = {column.strip().lower() for column in columns.values()}
    with _opened(text) as stream:
        for number, line in enumerate(itertools.islice(stream, MOST_TITLE), 1):
            own = {entry.strip().lower() for entry in next(csv.reader([line], delimiter=_mark(line)), [])}
            if number > 1 and wanted <= own:
                told = "the names of the columns are here: delete what stands above them"
                raise TableError([Fault(f"line {number}", told)], name)


def _opened_raw(text: Path | bytes) -> IO[bytes]:
    return io.BytesIO(text) if isinstance(text, bytes) else text.open("rb")


@contextmanager
def _opened(text: Path | bytes) -> Iterator[IO[str]]:
    with _opened_raw(text) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as stream:
        yield stream


def _tell_form(text: Path | bytes, name: str, mark: str, width: int) -> None:
    """Raise what is wrong with the form of a CSV file, line by line; nothing where no line is at fault."""
    faults: list[Fault] = []
    more = 0
    with _opened(text) as stream:
        reader = csv.reader(stream, delimiter=mark)
        try:
            for row in reader:
                if row and len(row) != width:
                    more += 1
                    told = f"has {len(row)} entries where the first line has {width}"
                    faults += [Fault(f"line {reader.line_num}", told)] if more <= SHOWN_FAULTS else []
        except UnicodeDecodeError:
            faults.append(Fault("", f"after line {reader.line_num}: is not UTF-8 text; save the log as CSV in UTF-8"))
        except csv.Error as error:
            faults.append(Fault(f"line {reader.line_num}", f"is not CSV: {error}"))
    if more > SHOWN_FAULTS:
        faults.append(Fault("", f"... and {more - SHOWN_FAULTS:,} more", stands_for=more - SHOWN_FAULTS))
    if faults:
        raise TableError(faults, name)


def _lines_of(text: Path | bytes, rows: Sequence[int]) -> list[int]:
    """The lines on which records begin; an entry in quotes may have several."""
    wanted, found, begin = set(rows), {}, 1
    with _opened(text) as stream:
        reader = csv.reader(stream, delimiter=_head(text, "")[1])
        for number, _ in enumerate(reader, -1):  # the head comes before row 0
            if number in wanted:
                found[number] = begin
                if len(found) == len(wanted):
                    break
            begin = reader.line_num + 1
    return [found.get(row, row + 2) for row in rows]


# Frames


def _as_frame(source: Any) -> tuple["polars.DataFrame", dict[str, tuple[str, ...]]]:
    import polars

    if isinstance(source, polars.LazyFrame):
        source = source.collect()
    if isinstance(source, polars.DataFrame):
        return source, {}
    with _refusing("cannot be read as a table", "the log"):
        if isinstance(source, (list, tuple)) and all(isinstance(row, Mapping) for row in source):
            names = list(dict.fromkeys(str(key) for row in source for key in row))
            source = {name: [row.get(name) for row in source] for name in names}
        if isinstance(source, Mapping):
            return polars.DataFrame([_series(str(name), list(column)) for name, column in source.items()]), {}
        return _by_narwhals(source)


def _series(name: str, entries: list[Any]) -> "polars.Series":
    """A column of Python objects; of kinds that do not go together, as texts."""
    import polars

    zoned = {entry.tzinfo is not None for entry in entries if isinstance(entry, datetime)}
    try:
        if len(zoned) > 1:  # they would silently be taken for one zone's
            raise TypeError("moments with and without a zone")
        return polars.Series(name, entries, strict=True)
    except (TypeError, polars.exceptions.PolarsError, OverflowError):
        return polars.Series(name, [None if entry is None else str(entry) for entry in entries], dtype=polars.String)


def _by_narwhals(source: Any) -> tuple["polars.DataFrame", dict[str, tuple[str, ...]]]:
    try:
        import narwhals
    except ImportError:
        raise MissingExtra("fitting a frame", "data") from None
    try:
        frame = narwhals.from_native(source)
    except TypeError:
        told = "a file's name, or a frame of pandas, polars or pyarrow"
        raise InvalidInput(f"log: expected {told}, got {type(source).__name__}") from None
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    orders: dict[str, tuple[str, ...]] = {}
    columns = []
    for name in frame.columns:
        series = frame[name]
        native = series.to_native()
        if getattr(getattr(native, "dtype", None), "ordered", False):  # an ordered categorical of pandas
            orders[name] = tuple(str(category) for category in native.cat.categories)
        if series.dtype == narwhals.Object:  # pandas keeps mixed kinds, dates among them, as objects
            columns.append(_series(name, [None if entry != entry else entry for entry in series.to_list()]))
        else:
            columns.append(series.to_polars().alias(name))
    import polars

    return polars.DataFrame(columns), orders


def _chosen(
    frame: "polars.DataFrame",
    columns: Mapping[str, str],
    name: str,
    text: Path | bytes | None = None,
    orders: Mapping[str, tuple[str, ...]] | None = None,
) -> Records:
    import polars

    found = _find_columns([str(column) for column in frame.columns], columns, name)
    rows = frame.select(polars.col(column).alias(role) for role, column in found.items()).with_row_index("row")
    known = orders or {}
    orders = {role: known[column] for role, column in found.items() if column in known}
    return Records(rows, name, text, orders=orders)


def _find_columns(head: Sequence[str], columns: Mapping[str, str], name: str) -> dict[str, str]:
    """The columns by their names in the source; whether letters are small does not matter where that is clear."""
    faults, found = [], {}
    for role, asked in columns.items():
        alike = [asked] if asked in head else [column for column in head if column.lower() == asked.strip().lower()]
        if len(alike) == 1 and head.count(alike[0]) == 1:
            found[role] = alike[0]
        elif alike:
            faults.append(Fault("", f"there are several columns {asked}"))
        else:
            near = nearest(asked, head)
            hint = f" Did you mean {near}?" if near else ""
            listed = ", ".join(head) or "none"
            kind = "what was used" if role.startswith("used") else f"the {role}"
            faults.append(Fault("", f"there is no column {asked} ({kind}). The columns are: {listed}.{hint}"))
    if faults:
        raise TableError(faults, name)
    return found


@contextmanager
def _refusing(what: str, name: str) -> Iterator[None]:
    """Foreign readers have errors of many kinds; a user sees one."""
    try:
        yield
    except (InvalidInput, MissingExtra):
        raise
    except Exception as error:  # noqa: BLE001  # the table is a stranger's
        raise TableError([Fault("", f"{what}: {error}")], name) from None
