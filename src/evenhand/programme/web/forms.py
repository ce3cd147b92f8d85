"""Forms of the page: fields, files and tables, and their errors in words.

Plain forms send `application/x-www-form-urlencoded`, or `multipart/form-data` where they have a file. Starlette parses
both. The size of a body has been bounded before (`middleware`); here the numbers of fields and files and the size of a
field are, and python-multipart bounds the headers of a part.
"""

import asyncio
import csv
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Message

from evenhand.display import counted
from evenhand.errors import (
    ConflictError,
    EvenhandError,
    Fault,
    InvalidInputError,
    TableError,
    UnavailableError,
    nearest,
)
from evenhand.fitting.cleaning.raw_table import EXCEL, SEPARATORS
from evenhand.model import SHOWN_FAULTS, quoted
from evenhand.model.io.text_table import Table, read_table
from evenhand.programme.api.problem_details import ErrorView, status_of
from evenhand.programme.api.schemas import MOST_ROWS
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web.render import natural
from evenhand.report import summary

if TYPE_CHECKING:
    import polars

_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=?-]{1,70}")


@dataclass(frozen=True)
class Form:
    """The fields of a form, in the order in which they came."""

    fields: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str, bytes], ...] = ()
    """(field, name of the file, content)."""

    def texts(self, name: str) -> list[str]:
        """All fields of a name, without blanks around them."""
        return [value.strip() for key, value in self.fields if key == name]

    def text(self, name: str) -> str:
        """The first field of a name; empty if there is none."""
        return next(iter(self.texts(name)), "")

    def number(self, name: str) -> int:
        """A whole number of a hidden field.

        Raises:
            InvalidInputError: it is invalid.
        """
        text = self.text(name)
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise InvalidInputError("the form cannot be read; load the page again, and send it again")
        return int(text)

    def budget(self, usual: Mapping[str, float]) -> dict[str, float] | None:
        """The budget; None if it is the usual one.

        Raises:
            InvalidInputError: an amount is not a number.
        """
        given = dict(zip(self.texts("resource"), self.texts("budget"), strict=False))
        found = dict(usual)
        for name in usual:
            try:
                found[name] = float(given.get(name) or usual[name])
            except ValueError:
                raise InvalidInputError(f"{name}: expected a number, got {given[name][:40]!r}") from None
        return None if found == dict(usual) else found

    @property
    def given_table(self) -> tuple[str, bytes]:
        """Name and content of the table that was chosen as a file, or else typed; empty if there is none."""
        for _, name, body in self.files:
            if body.strip():
                return name or "the file", body
        return "the rows that were typed", self.text("text").encode()

    @property
    def is_sheet(self) -> bool:
        """True if the table is one of a spreadsheet, which only `propose_table` reads."""
        return Path(self.given_table[0]).suffix.lower() in EXCEL

    def table(self) -> Table:
        """The table that was sent; rows of a wrong length are reported with its other faults.

        Raises:
            InvalidInputError: there is none, or it cannot be read.
        """
        name, body = self.given_table
        if not body:
            raise InvalidInputError("no table was given: choose a file, or type the rows into the field")
        check_unpacked(name, body)
        check_lines(name, body)
        return replace(read_table(io.BytesIO(body), "csv", ragged=True), source=name)


def read_form(body: bytes, content_type: str, most_fields: int = 20_000, most_size: int = 4 * 2**20) -> Form:
    """Parse a form with an event loop of its own, so that a thread can do it.

    Args:
        body: content of the request, of bounded size.
        content_type: header Content-Type of the request.
        most_fields: number of fields; an arm of a long list of changes has three.
        most_size: bytes of the largest field, such as a table that is typed.

    Raises:
        InvalidInputError: it is malformed or exceeds a limit.
    """
    unreadable = InvalidInputError(
        "the form cannot be read or is too long; load the page again, and send it again or in several parts"
    )
    kind, options = parse_options_header(content_type)
    is_multipart, boundary = kind == b"multipart/form-data", options.get(b"boundary", b"")
    too_many = not is_multipart and body.count(b"&") >= most_fields  # the parser does not count empty fields
    if too_many or (is_multipart and not _BOUNDARY.fullmatch(boundary)):
        raise unreadable
    head = kind + b'; boundary="' + boundary + b'"' if is_multipart else kind  # no charset: some codecs are slow

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def parse() -> Form:
        request = Request({"type": "http", "headers": [(b"content-type", head)]}, receive)
        async with request.form(max_files=1, max_fields=most_fields, max_part_size=most_size) as found:
            fields, files = [], []
            for key, value in found.multi_items():
                if isinstance(value, UploadFile):
                    files.append((key, value.filename or "", await value.read()))
                else:
                    fields.append((key, value))
            return Form(tuple(fields), tuple(files))

    try:
        return asyncio.run(parse())
    except (MultiPartException, FormParserError):
        raise unreadable from None


# Proposed repairs of a table


@dataclass(frozen=True)
class Proposal:
    """A messy table as it would be stored, and what would be changed for that."""

    table: Table
    """With the columns arm and state or action, and perhaps step or time, and reward."""

    columns: tuple[str, ...]
    """Meaning of the columns, in sentences."""

    changes: tuple[str, ...]
    """What is changed or left out."""

    @property
    def text(self) -> str:
        """The table as CSV."""
        stream = io.StringIO()
        rows = zip(*self.table.columns.values(), strict=True)
        csv.writer(stream, lineterminator="\n").writerows([list(self.table.columns), *rows])
        return stream.getvalue()

    def first_rows(self, words: Vocabulary, most: int = 8) -> summary.Table:
        """Return the first rows under the heads of the programme, to be shown."""
        rows = [[text or "not seen" for text in row] for row in zip(*self.table.columns.values(), strict=True)]
        heads = [words.head(name) for name in self.table.columns]
        return summary.table(f"{self.table.source}, as it would be stored", heads, rows[:most], len(rows) - most, heads)

    def at_steps(self, calendar: Vocabulary, first: int, last: int) -> "Proposal":
        """Return the rows by steps instead of times: by the calendar, else the last row of each arm.

        Args:
            calendar: of the programme.
            first: rows before this step are left out.
            last: rows after this step are left out.
        """
        if "time" not in self.table.columns:
            return self
        columns, changes = dict(self.table.columns), list(self.changes)
        times, arms = columns.pop("time"), columns["arm"]
        steps = [calendar.step_of(text) for text in times]
        is_dated = any(step is not None for step in steps)
        at = steps if is_dated else [last] * len(times)
        if is_dated:
            columns["step"] = [str(step) for step in steps]
        inside = [place for place, step in enumerate(at) if step is not None and first <= step <= last]
        rows = {(arms[place], at[place]): place for place in sorted(inside, key=lambda place: times[place])}
        for many, what in (
            (len(times) - len(inside), "times before or after what can be reported are left out"),
            (len(inside) - len(rows), "of several rows on one arm and step the last counts"),
        ):
            changes += [f"{what} ({counted(many, 'row')})"] if many else []
        places = sorted(rows.values())
        chosen = {name: [column[place] for place in places] for name, column in columns.items()}
        table = replace(self.table, columns=chosen, rows=[self.table.rows[place] for place in places])
        return replace(self, table=table, changes=tuple(changes))


def check_unpacked(name: str, body: bytes, most: int = 64 * 2**20) -> None:
    """Refuse a compressed file whose content is too large, before it is read.

    Args:
        name: of the file.
        body: its content.
        most: bytes of the unpacked content.

    Raises:
        InvalidInputError: it is too large or damaged, or compressed in another way than Excel files are.
    """
    if body[:2] == b"\x1f\x8b":
        raise InvalidInputError(f"{name}: it is compressed; unpack it and send the table itself")
    if body[:2] == b"PK" or zipfile.is_zipfile(io.BytesIO(body)):
        try:
            size = _unpacked_size(body, most)
        except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, EOFError, ValueError):  # RuntimeError: encrypted
            raise InvalidInputError(f"{name}: it is damaged; save it again") from None
        if size > most:
            raise InvalidInputError(f"{name}: its content is larger than {most // 2**20} MB; send it in several parts")


def check_lines(name: str, body: bytes, most_columns: int = 500, most_cells: int = 5_000_000) -> None:
    """Refuse a text whose table is too large, before it is parsed.

    Args:
        name: of the file.
        body: its content.
        most_columns: entries of a line.
        most_cells: entries of all lines.

    Raises:
        InvalidInputError: it has more of them, or too many rows.
    """
    rows = body.count(b"\n") + body.count(b"\r") - body.count(b"\r\n")
    if rows > MOST_ROWS + 1:
        raise InvalidInputError(f"{name}: it has more than {MOST_ROWS:,} rows; send it in several parts")
    lines = body.splitlines()
    for separator in SEPARATORS.encode():
        counts = [line.count(separator) for line in lines]
        if max(counts, default=0) >= most_columns or sum(counts) + rows > most_cells:
            message = f"{name}: it has more than {most_columns} columns or {most_cells:,} entries"
            raise InvalidInputError(f"{message}; send only the columns that are needed")


def _unpacked_size(body: bytes, most: int, most_members: int = 5_000) -> int:
    """Bytes of a zip archive as they are unpacked, whatever its directory says; counted to a little beyond `most`."""
    size = 0
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        members = archive.infolist()
        if len(members) > most_members:
            raise zipfile.BadZipFile
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile  # other ways unpack without a bound
            member.file_size = most + 1  # reading ends there, or with the content
            with archive.open(member) as stream:
                while size <= most and (part := stream.read(1 << 16)):
                    size += len(part)
    return size


def propose_table(
    form: Form, known: Mapping[str, Collection[str]], words: Vocabulary, most: int = 100, longest: int = 80
) -> Proposal:
    """Read a messy table, CSV or Excel, and propose how it is to be stored.

    Args:
        form: with the table.
        known: names by the columns that are wanted, `state` or `action` or both; other entries of these columns are
            read as the nearest name.
        words: of the programme.
        most: different entries of a column of states or actions, or twice the known names if these are more; each is
            compared with all others.
        longest: letters of such an entry.

    Raises:
        EvenhandError: no arm or no such column is found in it.
    """
    name, body = form.given_table
    check_unpacked(name, body)
    from evenhand.fitting.cleaning import clean_records
    from evenhand.fitting.cleaning.raw_table import read_raw
    from evenhand.fitting.cleaning.roles import guess_roles

    suffix = Path(name).suffix.lower()
    if suffix not in EXCEL:
        check_lines(name, body)
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"table{suffix if suffix in EXCEL else '.csv'}"
        file.write_bytes(body)
        raw = read_raw(file)
    if len(raw.frame) > MOST_ROWS:  # of a sheet
        raise InvalidInputError(f"{name}: it has more than {MOST_ROWS:,} rows; send it in several parts")
    heads = {words.head(role).casefold(): role for role in ("arm", "group", "state")}
    own = {heads[name.casefold()]: name for name in raw.frame.columns if name.casefold() in heads}
    roles = own | guess_roles(raw.frame.columns, own)
    for role in known.keys() - roles.keys():
        if column := _column_of(raw.frame.select(set(raw.frame.columns) - set(roles.values())), known[role]):
            roles[role] = column
    wanted = [role for role in ("arm", "time", *known) if role in roles]
    if "arm" not in roles or not known.keys() & roles.keys():
        listed = ", ".join(quoted(column) for column in raw.frame.columns[:SHOWN_FAULTS])
        wanted_heads = f"{words.head('arm')} and {' or '.join(map(words.head, known))}"
        message = f"no columns of {wanted_heads} are found; the columns are {listed}"
        raise TableError([Fault("", message)], name)
    used = {role: column for role, column in roles.items() if role not in ("type", "group")}
    frame = raw.frame.select(used.values())
    most = max(most, 2 * max(map(len, known.values())))
    named = frame.select(used[role] for role in ("state", "from", "to", "action") if role in used)
    if long := [one.name for one in named if one.n_unique() > most or (one.str.len_chars() > longest).any()]:
        message = f"more than {most} different entries, or one of more than {longest} letters: choose another column"
        raise TableError([Fault("", f"column {quoted(column)} has {message}") for column in long], name)
    # Cleaning is made for logs with times and states; a table of one step may lack either.
    added = {role: text for role, text in (("time", "0"), ("state", "seen")) if role not in roles}
    cleaned = clean_records(_with(frame, added), None, used | {role: role for role in added})
    columns = {role: [entry or "" for entry in cleaned.frame[role].to_list()] for role in wanted}
    changes = [f"{one.message} ({counted(one.count, 'row')}): {'; '.join(one.examples)}" for one in cleaned.effects]
    changes += [one.message for one in raw.findings]
    for role in known.keys() & roles.keys():
        entries = columns[role]
        counts = Counter(entries)
        read_as = {text: near for text in counts if (near := _known_name(text, known[role])) != text}
        changes += [f"“{text}” is read as “{near}” ({counted(counts[text], 'row')})" for text, near in read_as.items()]
        columns[role] = [read_as.get(text, text) for text in entries]
    table = Table(columns, [f"row {number + 1}" for number in range(len(cleaned.frame))], name)
    nouns = {"arm": words.arm.many, "time": "times", "state": "conditions", "action": "actions"}
    meaning = [f"“{roles[role]}” is the column of {nouns[role]}" for role in wanted]
    return Proposal(table, tuple(meaning), tuple(changes))


def _with(frame: "polars.DataFrame", added: Mapping[str, str]) -> "polars.DataFrame":
    import polars

    return frame.with_columns(polars.lit(value).alias(name) for name, value in added.items())


def _column_of(frame: "polars.DataFrame", known: Collection[str]) -> str | None:
    """The column most of whose entries are known names; None without one."""
    names = {name.casefold() for name in known}
    entries = {one.name: [text.strip().casefold() for text in one if text and text.strip()] for one in frame}
    share = {name: sum(text in names for text in own) / len(own) for name, own in entries.items() if own}
    best = max(share, key=lambda name: share[name], default=None)
    return best if best is not None and share[best] > 0.5 else None


def _known_name(text: str, known: Collection[str]) -> str:
    """The known name that a text stands for: but for case, or the nearest."""
    same = [name for name in known if name.casefold() == text.casefold()]
    is_known = not text or bool(same) or (text.isascii() and text.isdecimal())
    return text if is_known else nearest(text, known) or text


def refusal_of(error: EvenhandError, what: str, in_rows: bool = False) -> ErrorView:
    """Describe an error of the library.

    Args:
        error: what was raised.
        what: was not done, such as `The plan was not accepted`.
        in_rows: whether faults of rows are shown in the table that was sent, so that only the others are listed.
    """
    faults: tuple[Fault, ...] = getattr(error, "faults", ())
    fields = tuple(str(fault) for fault in faults if not (in_rows and fault.place.startswith("line ")))
    advice = "Nothing was stored. Correct this and send it again."
    if isinstance(error, ConflictError):
        fields = (str(error).splitlines()[0], *fields)
        advice = {
            "same-as-earlier": "Nothing was stored. If that is meant, tick the box below and send it again.",
            "undo-first": "Nothing was undone. Undo these first, the last one first.",
            "not-undoable": "Nothing was undone.",
            "undone-already": "Nothing was changed.",
        }.get(error.code, "Look at the page as it is now; make the plan again where something changed.")
    elif isinstance(error, UnavailableError):
        fields, advice = (str(error),), "Wait a moment and send it again; what you typed is still here."
    elif not faults:
        fields, advice = (str(error),), advice if isinstance(error, InvalidInputError) else ""
    elif in_rows:
        advice = "Nothing was stored. Correct the rows below in your file and send it again."
    return ErrorView(what, fields, advice, status_of(error), error.code)


def sent_rows(
    form: Form, error: EvenhandError, most: int = 500, most_columns: int = 30, longest: int = 200
) -> summary.Table | None:
    """Return the table of a form, with each fault in its row; None if it cannot be shown.

    Args:
        form: as it was sent.
        error: faults of the table.
        most: number of rows without a fault.
        most_columns: number of columns.
        longest: number of characters of an entry.
    """
    faults: dict[str, list[str]] = {}
    for fault in error.faults if isinstance(error, TableError) else ():
        faults.setdefault(fault.place, []).append(fault.message)
    try:
        table = form.table()
    except InvalidInputError:
        return None
    cells = dict(zip(table.rows, zip(*table.columns.values(), strict=True), strict=True))
    cells |= {fault.place: ("",) * len(table.columns) for fault in table.faults}  # rows of another length
    wrong = sorted((row for row in cells if row in faults), key=natural)
    if not wrong:
        return None
    heads = [name[:longest] for name in table.columns][:most_columns]
    rows = []
    for row in [*wrong, *[row for row in table.rows if row not in faults][:most]]:
        texts = (*(text[:longest] for text in cells[row][:most_columns]), "; ".join(faults.get(row, ())))
        line = tuple(summary.Cell(text, is_text=True) for text in texts)
        rows.append(summary.TableRow(row, line, kind="fault" if row in faults else ""))
    caption = f"{table.source}: {len(wrong)} of {len(cells)} rows {'has' if len(wrong) == 1 else 'have'} a fault"
    cells_of_head = tuple(summary.Cell(text, is_text=True) for text in ("line", *heads, "what is wrong"))
    return summary.Table(caption, cells_of_head, tuple(rows))
