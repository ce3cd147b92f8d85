"""Output of the commands: summaries and tables on a terminal, and JSON."""

import io
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.errors import MissingExtraError

if TYPE_CHECKING:
    from evenhand.report.summary import Summary, Table


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object; numbers that JSON lacks become null."""
    from evenhand.model.io import as_json

    click.echo(json.dumps(as_json(value), allow_nan=False))


def print_summary(summary: "Summary") -> None:
    """Print a summary: its title, facts, tables, text and notes."""
    title = f"{summary.title}, {summary.aside}" if summary.aside else summary.title
    if summary.facts or not summary.tables:
        click.echo(f"{title}\n")
    if summary.facts:
        width = max(len(name) for name, _ in summary.facts)
        for name, value in summary.facts:
            say(f"  {name:{width}}  {value}", width + 4)
        click.echo()
    for number, table in enumerate(summary.tables):
        print_table(table, table.caption if number or summary.facts else title)
        if table.more:
            click.echo(f"... {table.more:,} more; --json has all of them\n")
    if summary.text:
        click.echo(f"{summary.text}\n")
    for note in summary.notes:
        say(note)


def print_table(table: "Table", title: str) -> None:
    """Print a table below a title. Words can be wrapped, so only tables of numbers lose columns that do not fit."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    width = _terminal_width() or 160
    rows = [[row.name, *(cell.text for cell in row.cells)] for row in table.rows]
    heads = [head.text for head in table.heads]
    shown = len(heads)
    if not any(head.is_text for head in table.heads[1:]):
        widths = [max(map(len, column)) + 3 for column in zip(heads, *rows, strict=True)]
        shown = max(2, sum(needed <= width for needed in accumulate(widths)))
    printed = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(table.heads[:shown]):
        side: Any = "left" if head.is_text or not place else "right"
        printed.add_column(head.text, justify=side, overflow="fold", no_wrap=not place)
    for row in rows:
        printed.add_row(*map(Text, row[:shown]))
    console = Console(file=io.StringIO(), width=width, force_terminal=bool(_terminal_width()))
    with console.capture() as captured:
        console.print(printed)
    lines = [*([title] if title else []), *captured.get().strip("\n").splitlines()]
    if shown < len(heads):
        lines.append(f"(a wider terminal also shows: {', '.join(heads[shown:])})")
    click.echo("\n".join(line.rstrip() for line in [*lines, ""]))


def _terminal_width() -> int:
    """Return the width of the terminal; 0 if standard output is none."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else 0


def say(text: str, indent: int = 2) -> None:
    """Print a line, wrapped between words if it is longer than the terminal.

    Args:
        text: the line.
        indent: indent of the second and later lines.
    """
    width = _terminal_width()
    if width > indent + 20 and len(text) > width:
        text = "\n".join(textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False))
    click.echo(text)


def table_bytes(rows: Sequence[dict[str, Any]], name: str) -> bytes:
    """Return rows as a table in the format of a file name: Parquet, JSON, else CSV."""
    suffix = Path(name).suffix.lower()
    if suffix == ".json":
        return json.dumps(list(rows), indent=1, ensure_ascii=False).encode()
    if suffix == ".parquet":
        try:
            import polars
        except ImportError:
            raise MissingExtraError("writing Parquet", "data") from None
        body = io.BytesIO()
        polars.DataFrame(rows).write_parquet(body)
        return body.getvalue()
    from evenhand.model.io.text_table import csv_text

    head = list(rows[0])
    return csv_text([head, *([row[name] for name in head] for row in rows)]).encode()
