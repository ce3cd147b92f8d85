"""Tables to look through: sorted, filtered, searched and cut into pages on the server; all works without scripts.

A script only makes it quicker: it asks for the same address and takes the table out of the answer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

Row = TypeVar("Row")

ROWS = 100
"""Of one page of a table."""

_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which `van 2` stands before `van 10`."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name.casefold()) if part]


@dataclass(frozen=True)
class Asked:
    """What an address asks of a table."""

    path: str
    given: Mapping[str, str]

    def text(self, name: str) -> str:
        """A part of the address."""
        return self.given.get(name, "")[:200]

    @property
    def page(self) -> int:
        """Which page is asked for, from 1."""
        text = self.text("page")
        return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 8 else 1


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """One page of a table."""

    asked: Asked
    rows: tuple[Row, ...]
    found: int
    """How many rows there are on all pages."""
    total: int
    """How many there would be unfiltered."""
    sort: str
    down: bool
    page: int
    last: int

    def address(self, **changes: Any) -> str:
        """The address of the same table with something changed."""
        asked = dict(self.asked.given) | {key: _word(value) for key, value in changes.items()}
        kept = {key: value for key, value in asked.items() if value and key not in ("event", "job")}
        return f"{self.asked.path}?{urlencode(kept)}" if kept else self.asked.path


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else ""
    return "" if value == 1 else str(value)


def list_rows(
    asked: Asked,
    rows: Sequence[Row],
    keys: Mapping[str, Callable[[Row], Any]],
    keep: Callable[[Row], bool],
    usual: str,
    size: int = ROWS,
) -> Listing[Row]:
    """A page of rows.

    Args:
        asked: what the address asks.
        rows: all of them.
        keys: what they can be sorted by.
        keep: whether a row passes the filters.
        usual: what they are sorted by where nobody says.
        size: of a page.
    """
    sort = asked.text("sort") if asked.text("sort") in keys else usual
    down = asked.text("down") == "1"
    found = sorted((row for row in rows if keep(row)), key=keys[sort], reverse=down)
    last = max(1, -(-len(found) // size))
    page = min(asked.page, last)
    shown = tuple(found[(page - 1) * size : page * size])
    return Listing(asked, shown, len(found), len(rows), sort, down, page, last)


def matches(words: str, *texts: str) -> bool:
    """Whether all words that somebody looks for are in some texts."""
    inside = " ".join(texts).casefold()
    return all(word in inside for word in words.casefold().split())
