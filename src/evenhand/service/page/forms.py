"""What the page's forms send: fields, and files as their text.

Plain forms send `application/x-www-form-urlencoded`, or `multipart/form-data` where they have a file. Both are read
with what Python brings along. The size of a body has been bounded before (`guards`); here the number of fields is.
"""

import re
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

from evenhand.errors import InvalidInput

MOST_FIELDS = 20_000
"""Fields of the largest form: an arm of a long list of changes has three."""

_NAME = re.compile(r'(?:^|;)\s*(name|filename)="((?:[^"\\]|\\.)*)"')


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
        """Whether there is such a field."""
        return any(key == name for key, _ in self.fields)

    def table(self, file: str, typed: str) -> tuple[str, bytes]:
        """A table that was chosen as a file, or else typed; and what to call it.

        Args:
            file: the field of the file.
            typed: the field of the text.

        Raises:
            InvalidInput: neither was given.
        """
        for key, name, body in self.files:
            if key == file and body.strip():
                return name or "the file", body
        text = self.text(typed)
        if not text:
            raise InvalidInput("no table was given: choose a file, or type the rows into the field")
        return "the rows that were typed", text.encode()


def read_form(body: bytes, content_type: str) -> Form:
    """The fields of a body.

    Args:
        body: what a form sent.
        content_type: the header that says in which way.

    Raises:
        InvalidInput: it cannot be read.
    """
    if content_type.partition(";")[0].strip().lower() == "multipart/form-data":
        return _read_parts(body, content_type)
    try:
        found = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise InvalidInput("the form cannot be read; load the page anew, and send it again") from None
    return Form(tuple(found))


def _read_parts(body: bytes, content_type: str) -> Form:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    fields: list[tuple[str, str]] = []
    files: list[tuple[str, str, bytes]] = []
    parts = list(message.iter_parts()) if message.is_multipart() else []
    if not parts or len(parts) > MOST_FIELDS:
        raise InvalidInput("the form cannot be read; load the page anew, and send it again")
    for part in parts:
        named = dict(_NAME.findall(str(part.get("Content-Disposition", ""))))
        inside = part.get_payload(decode=True)
        data = inside if isinstance(inside, bytes) else b""
        if "filename" in named:
            files.append((named.get("name", ""), named["filename"], data))
        else:
            fields.append((named.get("name", ""), data.decode("utf-8", "replace")))
    return Form(tuple(fields), tuple(files))
