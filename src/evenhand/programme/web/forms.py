"""Forms of the page: fields and files.

Plain forms send `application/x-www-form-urlencoded`, or `multipart/form-data` where they have a file. Starlette parses
both. The size of a body has been bounded before (`middleware`); here the numbers of fields and files and the size of a
field are, and python-multipart bounds the headers of a part.
"""

import asyncio
import re
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Message

from evenhand.errors import InvalidInputError

MOST_FIELDS = 20_000
"""Fields of the largest form: an arm of a long list of changes has three."""

MOST_FIELD = 4 * 2**20
"""Bytes of the largest field: a table that is typed."""

MOST_FILES = 1
"""Files of a form: a table."""

UNREADABLE = "the form cannot be read or is too long; load the page again, and send it again or in several parts"

_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=?-]{1,70}")


@dataclass(frozen=True)
class Form:
    """The fields of a form, in the order in which they came."""

    fields: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str, bytes], ...] = ()
    """(field, name of the file, what is in it)."""

    def text(self, name: str) -> str:
        """The first field of a name, without blanks around it; nothing where there is none."""
        return next((value.strip() for key, value in self.fields if key == name), "")

    def texts(self, name: str) -> list[str]:
        """All fields of a name."""
        return [value.strip() for key, value in self.fields if key == name]

    def has(self, name: str) -> bool:
        """Return whether there is a field of this name."""
        return any(key == name for key, _ in self.fields)

    def table(self, file: str, typed: str) -> tuple[str, bytes]:
        """A table that was chosen as a file, or else typed; and what to call it.

        Args:
            file: the field of the file.
            typed: the field of the text.

        Raises:
            InvalidInputError: neither was given.
        """
        for key, name, body in self.files:
            if key == file and body.strip():
                return name or "the file", body
        text = self.text(typed)
        if not text:
            raise InvalidInputError("no table was given: choose a file, or type the rows into the field")
        return "the rows that were typed", text.encode()


def read_form(body: bytes, content_type: str) -> Form:
    """Parse a form with an event loop of its own, so that a thread can do it.

    Args:
        body: content of the request, of bounded size.
        content_type: header Content-Type of the request.

    Raises:
        InvalidInputError: it is malformed or exceeds a limit.
    """
    kind, options = parse_options_header(content_type)
    is_multipart, boundary = kind == b"multipart/form-data", options.get(b"boundary", b"")
    too_many = not is_multipart and body.count(b"&") >= MOST_FIELDS  # the parser does not count empty fields
    if too_many or (is_multipart and not _BOUNDARY.fullmatch(boundary)):
        raise InvalidInputError(UNREADABLE)
    head = kind + b'; boundary="' + boundary + b'"' if is_multipart else kind  # no charset: some codecs are slow

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def parse() -> Form:
        request = Request({"type": "http", "headers": [(b"content-type", head)]}, receive)
        async with request.form(max_files=MOST_FILES, max_fields=MOST_FIELDS, max_part_size=MOST_FIELD) as found:
            items = found.multi_items()
            fields = tuple((key, value) for key, value in items if isinstance(value, str))
            files = [
                (key, value.filename or "", await value.read()) for key, value in items if isinstance(value, UploadFile)
            ]
            return Form(fields, tuple(files))

    try:
        return asyncio.run(parse())
    except (MultiPartException, FormParserError):
        raise InvalidInputError(UNREADABLE) from None
