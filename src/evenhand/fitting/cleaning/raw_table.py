"""Tables as they come, every entry a text, and the journal of what is odd in them.

Text files may have any separator and encoding; other sources are Excel, Parquet, JSON and frames.
Blank entries are null. Titles above the line of names, blank lines, and lines that are too short or too long are
findings of the table, never errors.
"""

import csv
import io
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.errors import Fault, MissingExtraError, TableError
from evenhand.fitting.table_reader import as_texts, read_table
from evenhand.model.io.text_table import read_bytes

if TYPE_CHECKING:
    import polars

SEPARATORS = ",;\t|"
EXCEL = (".xlsx", ".xlsm", ".xls", ".xlsb", ".ods")
_ONE_READER = threading.Lock()


@dataclass(frozen=True)
class Finding:
    """One kind of oddity in the records, or the effect of one rule."""

    kind: str
    """Stable name, in kebab-case."""

    column: str
    """Role of the column: `state`; empty for rows or the whole table."""

    count: int
    """Number of rows."""

    message: str
    """Description, without the number of rows."""

    examples: tuple[str, ...] = ()
    """Two of them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**self.__dict__, "examples": list(self.examples)}


@dataclass
class Journal:
    """Findings and effects in the order of their stages; those without rows are left out."""

    findings: list[Finding] = field(default_factory=list)
    effects: list[Finding] = field(default_factory=list)

    def found(self, kind: str, column: str, count: int, message: str, examples: Iterable[Any] = ()) -> None:
        """Add an oddity."""
        if count:
            self.findings.append(Finding(kind, column, count, message, two(examples)))

    def noted(self, kind: str, message: str) -> None:
        """Add an oddity of a whole table."""
        self.findings.append(Finding(kind, "", 0, message))

    def did(self, kind: str, column: str, count: int, message: str, examples: Iterable[Any] = ()) -> None:
        """Add the effect of a rule."""
        if count:
            self.effects.append(Finding(kind, column, count, message, two(examples)))


def two(examples: Iterable[Any]) -> tuple[str, ...]:
    """Return the first two different examples."""
    return tuple(list(dict.fromkeys(map(str, examples)))[:2])


@dataclass(frozen=True, eq=False)
class RawTable:
    """A table of texts."""

    name: str
    """File name without its folder, or `table 1`."""

    frame: "polars.DataFrame"
    """Columns of texts without spaces around them; null if blank."""

    findings: tuple[Finding, ...] = ()
    """Oddities of the file."""


def read_raw(source: Any, name: str = "records") -> RawTable:
    """Read a table from a file, a stream or a frame.

    Args:
        source: a file name (CSV, Excel, Parquet, JSON, possibly with .gz), a binary stream of CSV, or a frame.
        name: of a source that is not a file.

    Raises:
        TableError: there is no table in it.
        MissingExtraError: the extra `data` is not installed.
    """
    try:
        import polars
    except ImportError:
        raise MissingExtraError("importing records", "data") from None
    is_file = isinstance(source, (str, Path))
    suffix = Path(str(source).removesuffix(".gz")).suffix.lower() if is_file else ""
    name = Path(str(source)).name if is_file else name
    findings: list[Finding] = []
    if suffix in EXCEL:
        frame = _with_head(_excel_rows(read_bytes(source)[0], name, findings), name, findings)
    elif (is_file and suffix not in (".parquet", ".json")) or hasattr(source, "read"):
        frame = _with_head(_csv_rows(read_bytes(source)[0], name, findings), name, findings)
    else:
        read = read_table(source, name=name).frame.drop("row")
        frame = read.select(_iso_texts(read[column]) for column in read.columns)
    stripped = polars.all().str.strip_chars().replace("", None)
    frame = frame.select(stripped).filter(~polars.all_horizontal(polars.all().is_null()))
    if not len(frame):
        raise TableError([Fault("", "there are no rows in it")], name)
    return RawTable(name, frame, tuple(findings))


def _iso_texts(column: "polars.Series") -> "polars.Series":
    """A column as texts; moments in universal time, to the second."""
    import polars

    if isinstance(column.dtype, polars.Datetime):
        universal = column.dt.convert_time_zone("UTC") if column.dtype.time_zone else column
        return universal.dt.strftime("%Y-%m-%dT%H:%M:%S%.f")
    return as_texts(column)


def _csv_rows(data: bytes, name: str, findings: list[Finding]) -> list[list[str | None]]:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252" if encoding == "utf-8-sig" else encoding
        text = data.decode(encoding, errors="replace")
    if encoding != "utf-8-sig":
        findings.append(Finding("encoding", "", 0, f"the text was read as {encoding}"))
    sample = text.splitlines()[:200]  # enough to find the separator

    def columns(separator: str) -> tuple[int, int]:
        """Lines that have the most common number of columns, if there are several; and that number."""
        widths = Counter(len(row) for row in csv.reader(sample, delimiter=separator) if len(row) > 1)
        return max(((number, width) for width, number in widths.items()), default=(0, 0))

    try:
        separator = max(SEPARATORS, key=columns)
        return [[*row] for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator)]
    except csv.Error as error:
        raise TableError([Fault("", f"cannot be read as a table: {error}")], name) from None


def _excel_rows(data: bytes, name: str, findings: list[Finding], seconds: float = 60) -> list[list[str | None]]:
    """Rows of the first sheet that is not empty; other sheets are findings.

    A small file can stand for a table of any size, and the reader ends its process if memory is short: it has one
    of its own, with little memory.
    """
    if find_spec("fastexcel") is None:
        raise MissingExtraError("reading Excel files", "data")
    code = f"from {__name__} import send_sheets; send_sheets()"
    paths = os.pathsep.join(filter(None, sys.path))
    env = os.environ | {"PYTHONPATH": paths, "POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    message = "is damaged or too large; delete what is far below or beside the table, or save the table as CSV"
    try:
        with _ONE_READER:
            command = [sys.executable, "-P", "-c", code]
            ended = subprocess.run(command, input=data, capture_output=True, env=env, timeout=seconds, check=True)
        found = json.loads(ended.stdout)
    except (subprocess.SubprocessError, ValueError):
        raise TableError([Fault("", message)], name) from None
    if not found.get("sizes"):
        raise TableError([Fault("", found.get("error", "all its sheets are empty"))], name)
    first, *others = found["sizes"]
    if others:
        message = f"only the sheet {first!r} of {name} was read; save others as files of their own"
        count = sum(found["sizes"][other] for other in others)
        findings.append(Finding("sheets", "", count, message, two(others)))
    rows: list[list[str | None]] = found["rows"]
    return rows


def send_sheets(memory: int = 2 * 2**30, most_cells: int = 5_000_000, most_text: int = 64 * 2**20) -> None:
    """Read an Excel file from standard input; write the first filled sheet, and the sizes of all, as JSON.

    Args:
        memory: bytes that this process may allocate.
        most_cells: number of cells of the sheet, also of empty ones between others.
        most_text: bytes of its texts; a text may be stored once for many cells.
    """
    try:
        import resource
    except ImportError:  # not on Windows, where the process ends if the memory of the machine is short
        pass
    else:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    import polars

    options: dict[str, Any] = {"has_header": False, "drop_empty_rows": False, "raise_if_empty": False}
    stream = io.BytesIO(sys.stdin.buffer.read())
    try:
        sheets = polars.read_excel(stream, sheet_id=0, engine="calamine", infer_schema_length=0, **options)
    except Exception as error:  # noqa: BLE001  # foreign readers raise errors of many kinds
        found: dict[str, Any] = {"error": f"cannot be read as an Excel file: {error}"}
    else:
        filled = {sheet: frame for sheet, frame in sheets.items() if len(frame)}
        first = next(iter(filled.values()), polars.DataFrame())
        found = {"sizes": {sheet: len(frame) for sheet, frame in filled.items()}, "rows": []}
        text = sum(int(column.str.len_bytes().sum()) for column in first)
        if first.height * first.width > most_cells or text > most_text:
            found = {"error": f"has more than {most_cells:,} cells or {most_text // 2**20} MB of text; save it as CSV"}
        else:
            found["rows"] = first.rows()
    sys.stdout.buffer.write(json.dumps(found).encode())


def _with_head(
    rows: list[list[str | None]], name: str, findings: list[Finding], most_columns: int = 10_000
) -> "polars.DataFrame":
    """Frame of rows below their line of names, which is the first with nearly as many entries as most."""
    import polars

    filled = [(number, row) for number, row in enumerate(rows, 1) if any(entry and entry.strip() for entry in row)]
    if not filled:
        raise TableError([Fault("", "the table is empty")], name)
    width = Counter(len(row) for _, row in filled).most_common(1)[0][0]
    counts = [sum(1 for entry in row if entry and entry.strip()) for _, row in filled]
    head = next((place for place, count in enumerate(counts) if count >= max(1, 0.8 * width)), 0)
    if head:
        titles = [" ".join(filter(None, row)) for _, row in filled[:head]]
        findings.append(Finding("titles", "", head, "lines above the names of the columns were left out", two(titles)))
    if len(filled[head][1]) > most_columns:
        raise TableError([Fault(f"line {filled[head][0]}", f"has more than {most_columns:,} entries")], name)
    names = _unique_names(filled[head][1], findings)
    body = filled[head + 1 :]
    long = [(number, row) for number, row in body if any(entry and entry.strip() for entry in row[len(names) :])]
    short = [number for number, row in body if len(row) < len(names)]
    for kind, lines, what in (
        ("long-lines", [number for number, _ in long], "lines have more entries than there are columns; left out"),
        ("short-lines", short, "lines have fewer entries than there are columns; the rest is blank"),
    ):
        if lines:
            findings.append(Finding(kind, "", len(lines), what, two(f"line {number}" for number in lines)))
    left_out = {number for number, _ in long}
    data = [(row + [None] * len(names))[: len(names)] for number, row in body if number not in left_out]
    columns = zip(*data, strict=True) if data else [[] for _ in names]
    return polars.DataFrame(
        [
            polars.Series(column, list(entries), dtype=polars.String)
            for column, entries in zip(names, columns, strict=True)
        ]
    )


def _unique_names(head: Sequence[str | None], findings: list[Finding]) -> list[str]:
    names: dict[str, None] = {}
    for number, entry in enumerate(head, 1):
        name = (entry or "").strip() or f"column {number}"
        if name in names:
            findings.append(Finding("repeated-column", "", 0, f"there are several columns {name!r}"))
            name = f"{name} ({number})"
        names[name] = None
    return list(names)
