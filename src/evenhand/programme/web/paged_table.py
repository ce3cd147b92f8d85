"""Tables to look through: sorted, filtered, searched and cut into pages on the server; all works without scripts.

A script only makes it quicker: it asks for the same address and takes the table out of the answer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

Row = TypeVar("Row")

_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which `van 2` stands before `van 10`."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name.casefold()) if part]


@dataclass(frozen=True)
class TableQuery:
    """Query of a table in an address."""

    path: str
    given: Mapping[str, str]

    def text(self, name: str) -> str:
        """A part of the address."""
        return self.given.get(name, "")[:200]

    @property
    def page(self) -> int:
        """Number of the requested page, from 1."""
        text = self.text("page")
        return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 8 else 1


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """One page of a table."""

    query: TableQuery
    rows: tuple[Row, ...]
    found: int
    """Number of rows on all pages."""
    total: int
    """Number of rows without filters."""
    sort: str
    down: bool
    page: int
    last: int

    def address(self, **changes: Any) -> str:
        """The address of the same table with something changed."""
        query = dict(self.query.given) | {key: _word(value) for key, value in changes.items()}
        given = {key: value for key, value in query.items() if value and key not in ("event", "job")}
        return f"{self.query.path}?{urlencode(given)}" if given else self.query.path


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else ""
    return "" if value == 1 else str(value)


def list_rows(
    query: TableQuery,
    rows: Sequence[Row],
    keys: Mapping[str, Callable[[Row], tuple[Any, ...]]],
    keep: Callable[[Row], bool],
    usual: str,
    name: Callable[[Row], str],
    size: int = 100,
) -> Listing[Row]:
    """Return a page of rows.

    Args:
        query: of the address.
        rows: all of them.
        keys: sort keys by name; equal rows are sorted by their own names.
        keep: whether a row passes the filters.
        usual: default sort key.
        name: name of a row.
        size: of a page.
    """
    sort, down = query.text("sort") if query.text("sort") in keys else usual, query.text("down") == "1"
    found = sorted(filter(keep, rows), key=lambda row: (*keys[sort](row), natural(name(row))), reverse=down)
    last = max(1, -(-len(found) // size))
    page = min(query.page, last)
    shown = tuple(found[(page - 1) * size : page * size])
    return Listing(query, shown, len(found), len(rows), sort, down, page, last)


def matches(words: str, *texts: str) -> bool:
    """Return whether some texts contain all words of a search."""
    inside = " ".join(texts).casefold()
    return all(word in inside for word in words.casefold().split())
