"""Summary of a result: one structure that the console, a notebook cell and an HTML page render.

A summary is text in its place: nothing is computed and nothing is escaped here. `summarise` makes one
of any result, and the renderers are `cli.console.print_summary`, `report.html.cell` and `report.html.page`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import singledispatch
from importlib import import_module

MOST_ROWS = 20
"""Rows of a table of types, arms, groups or draws; the rest is counted."""


@dataclass(frozen=True)
class Cell:
    """Text of a cell and its emphasis."""

    text: str
    is_strong: bool = False
    is_quiet: bool = False
    is_text: bool = False
    """Words rather than a number: aligned left, in several lines."""


@dataclass(frozen=True)
class TableRow:
    """Row of a table: its name and its cells."""

    name: str
    cells: tuple[Cell, ...]
    short: str = ""
    """Abbreviation of the name."""
    note: str = ""
    """Line below the name."""
    kind: str = ""
    """`bound` for an upper bound."""


@dataclass(frozen=True)
class Table:
    """Table with its caption."""

    caption: str
    heads: tuple[Cell, ...]
    rows: tuple[TableRow, ...]
    more: int = 0
    """Number of rows left out."""


@dataclass(frozen=True)
class Figure:
    """Figure of a page."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """Section of a page. Paragraphs and notes are rendered as sentences."""

    title: str
    paragraphs: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Summary:
    """Summary of a result."""

    title: str
    aside: str = ""
    """Words that follow the title."""
    facts: Sequence[tuple[str, str]] = ()
    """Terms and their values; an empty term continues the one above."""
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()
    """Tables that a notebook opens by a click; the console omits them."""
    text: str = ""
    """Preformatted text."""
    notes: Sequence[str] = ()
    lead: Sequence[str] = ()
    """Paragraphs that open a page."""
    sections: Sequence[Section] = ()
    """Body of a page."""
    made: str = ""
    """Sentences on how the results of a page were computed."""


HOMES = {
    "evenhand.fitting.cleaning": "records",
    "evenhand.fitting": "fits",
    "evenhand.planning.backtest": "records",
    "evenhand.planning.price_of_fairness": "fairness",
    "evenhand.planning.study": "studies",
}
"""Module of this package with the summaries of a package's results, which is loaded with the first of them; all others
are in `results`."""


def summarise(thing: object) -> Summary:
    """Return the summary of a result, a problem, an arm or a policy."""
    places = [f"{kind.__module__}." for kind in type(thing).__mro__]
    homes = [home for start, home in HOMES.items() if any(place.startswith(f"{start}.") for place in places)]
    import_module(f"evenhand.report.{homes[0] if homes else 'results'}")
    return summary_of(thing)


@singledispatch
def summary_of(thing: object) -> Summary:
    """Return the summary of a class whose module is loaded."""
    raise TypeError(f"no summary of {type(thing).__name__}")


def table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    more: int = 0,
    text: Collection[str] = (),
) -> Table:
    """Return a table of plain texts.

    Args:
        caption: text above it; may be empty.
        heads: heads of all columns; the first column names the row.
        rows: texts of all columns per row.
        more: number of rows left out.
        text: heads of columns of words, which are aligned left.
    """
    columns = [Cell(head, is_text=head in text) for head in heads]
    found = []
    for name, *texts in rows:
        cells = [Cell(own, is_text=head.is_text) for head, own in zip(columns[1:], texts, strict=True)]
        found.append(TableRow(name, tuple(cells)))
    return Table(caption, tuple(columns), tuple(found), max(more, 0))
