"""Errors of forms on the page: message, faults by row, advice."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.errors import ConflictError, EvenhandError, Fault, InvalidInputError, TableError, UnavailableError
from evenhand.programme.api.problem_details import ErrorView

MOST_SENT = 500
"""Rows of a table that are shown again when it has faults; those with faults are always among them."""

_SEEN_AGAIN = "Nothing was stored. Mend the rows below in your file and send it again."


@dataclass(frozen=True)
class SentRow:
    """A row of an uploaded table."""

    line: int
    cells: tuple[str, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Sent:
    """An uploaded table with the faults of its rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[SentRow, ...]


def refusal_of(error: EvenhandError, what: str, placed: bool = False) -> ErrorView:
    """An error of the library in words.

    Args:
        error: what was raised.
        what: was not done, such as `The plan was not accepted`.
        placed: whether faults are shown in their rows, so that only the others are listed.
    """
    faults: Sequence[Fault] = getattr(error, "faults", ())
    fields = tuple(str(fault) for fault in faults if not (placed and _line(fault)))
    if isinstance(error, ConflictError):
        first = str(error).splitlines()[0]
        return ErrorView(
            what, (first, *fields), "Look at the page as it is now; make the plan again where something changed."
        )
    if isinstance(error, UnavailableError):
        return ErrorView(what, (str(error),), "Wait a moment and send it again; what you typed is still here.")
    if faults:
        rows = sum(bool(_line(fault)) for fault in faults)
        return ErrorView(
            what, fields, _SEEN_AGAIN if placed and rows else "Nothing was stored. Mend this and send it again."
        )
    return ErrorView(
        what,
        (str(error),),
        "Nothing was stored. Mend this and send it again." if isinstance(error, InvalidInputError) else "",
    )


def _line(fault: Fault) -> int:
    """The line that a fault is in, such as `line 4`; 0 where it is in none."""
    word, _, number = fault.place.partition(" ")
    if word == "line" and number.isdecimal():
        return int(number)
    return fault.line or 0


def sent_rows(body: bytes, error: EvenhandError, name: str) -> Sent | None:
    """A table as it was sent, with each fault in its row; None where it cannot be shown.

    Args:
        body: of the file.
        error: what is wrong with it.
        name: of the file.
    """
    if not isinstance(error, TableError) or not any(_line(fault) for fault in error.faults):
        return None
    by_line: dict[int, list[str]] = {}
    for fault in error.faults:
        by_line.setdefault(_line(fault), []).append(fault.message)
    rows = _rows(body)
    if not rows:
        return None
    (_, head), *inside = rows
    shown = [(line, cells) for place, (line, cells) in enumerate(inside) if place < MOST_SENT or line in by_line]
    width = len(head)
    fields = tuple(SentRow(line, _fit(cells, width), tuple(by_line.get(line, ()))) for line, cells in shown)
    wrong = sum(bool(row.faults) for row in fields)
    caption = f"{name}: {wrong} of {len(inside)} rows {'has' if wrong == 1 else 'have'} a fault"
    return Sent(caption, tuple(head), tuple(sorted(fields, key=lambda row: (not row.faults, row.line))))


def _fit(cells: Sequence[str], width: int) -> tuple[str, ...]:
    return tuple([*cells, *[""] * width][:width])


def _rows(body: bytes) -> list[tuple[int, list[str]]]:
    """(line, cells) of a CSV file; nothing where it is none."""
    text = body.decode("utf-8-sig", "replace")
    first = text.lstrip().splitlines()[0] if text.strip() else ""
    mark = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text), delimiter=mark)
    try:
        return [
            (reader.line_num, [cell.strip() for cell in row]) for row in reader if any(cell.strip() for cell in row)
        ]
    except csv.Error:
        return []
