"""Forms of the page: fields, files and tables, and their errors in words.

Plain forms send `application/x-www-form-urlencoded`, or `multipart/form-data` where they have a file. Starlette parses
both. The size of a body has been bounded before (`middleware`); here the numbers of fields and files and the size of a
field are, and python-multipart bounds the headers of a part.
"""

import asyncio
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Message

from evenhand.errors import ConflictError, EvenhandError, Fault, InvalidInputError, TableError, UnavailableError
from evenhand.model.io.text_table import Table, read_table
from evenhand.programme.api.problem_details import ErrorView, status_of
from evenhand.programme.web.render import natural
from evenhand.report import summary

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
            raise InvalidInputError("the form cannot be read; load the page anew, and send it again")
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

    def table(self) -> Table:
        """The table that was sent; rows of a wrong length are reported with its other faults.

        Raises:
            InvalidInputError: there is none, or it cannot be read.
        """
        name, body = self.given_table
        if not body:
            raise InvalidInputError("no table was given: choose a file, or type the rows into the field")
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


def refusal_of(error: EvenhandError, what: str, in_rows: bool = False) -> ErrorView:
    """Describe an error of the library.

    Args:
        error: what was raised.
        what: was not done, such as `The plan was not accepted`.
        in_rows: whether faults of rows are shown in the table that was sent, so that only the others are listed.
    """
    faults: tuple[Fault, ...] = getattr(error, "faults", ())
    fields = tuple(str(fault) for fault in faults if not (in_rows and fault.place.startswith("line ")))
    advice = "Nothing was stored. Mend this and send it again."
    if isinstance(error, ConflictError):
        fields = (str(error).splitlines()[0], *fields)
        advice = "Look at the page as it is now; make the plan again where something changed."
    elif isinstance(error, UnavailableError):
        fields, advice = (str(error),), "Wait a moment and send it again; what you typed is still here."
    elif not faults:
        fields, advice = (str(error),), advice if isinstance(error, InvalidInputError) else ""
    elif in_rows:
        advice = "Nothing was stored. Mend the rows below in your file and send it again."
    return ErrorView(what, fields, advice, status_of(error))


def sent_rows(form: Form, error: EvenhandError, most: int = 500) -> summary.Table | None:
    """Return the table of a form, with each fault in its row; None if it cannot be shown.

    Args:
        form: as it was sent.
        error: faults of the table.
        most: number of rows without a fault.
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
    rows = []
    for row in [*wrong, *[row for row in table.rows if row not in faults][:most]]:
        texts = (*cells[row], "; ".join(faults.get(row, ())))
        line = tuple(summary.Cell(text, is_text=True) for text in texts)
        rows.append(summary.TableRow(row, line, kind="fault" if row in faults else ""))
    caption = f"{table.source}: {len(wrong)} of {len(cells)} rows {'has' if len(wrong) == 1 else 'have'} a fault"
    heads = tuple(summary.Cell(text, is_text=True) for text in ("line", *table.columns, "what is wrong"))
    return summary.Table(caption, heads, tuple(rows))
