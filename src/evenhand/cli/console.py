"""What a person or a program sees: tables, progress, JSON."""

import io
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Evaluation
    from evenhand.model.arm import ArmTables
    from evenhand.model.coupled import CoupledMDP
    from evenhand.typing import Floats, Ints

MOST_LISTED = 1_000_000
"""Arms up to which JSON lists a figure for each."""

SHOWN_GROUPS = 20
"""Types or arms whose values are shown in a table; --json has all of them."""

SECONDS_BETWEEN_LINES = 2.0
"""How often progress is told where it is not a terminal; a run that is shorter tells none."""


def print_json(value: dict[str, Any]) -> None:
    """One JSON object; numbers that JSON lacks become null."""
    click.echo(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def per_arm(problem: "CoupledMDP", by_type: bool, groups: "dict[str, Floats]") -> dict[str, Any]:
    """Figures for every arm; for more arms than anyone reads, null, and the figures by type beside it."""
    if not by_type:
        return dict(groups)
    if problem.num_arms <= MOST_LISTED:
        return {name: values[problem.type_of_arm] for name, values in groups.items()}
    by_types = {f"{name}_by_type": values for name, values in groups.items()}
    return {**dict.fromkeys(groups), **by_types, "counts_by_type": problem.type_counts}


def figures(found: "Evaluation") -> dict[str, Any]:
    """What JSON tells of an evaluation, but for the values of its arms."""
    return {
        "welfare": found.welfare,
        "welfare_stderr": found.welfare_stderr,
        "plug_in_welfare": found.plug_in_welfare,
        "mean": found.mean,
        "mean_stderr": found.mean_stderr,
        "worst": found.worst,
        "gini_coefficient": found.gini_coefficient,
        "budget_used": found.budget_used,
        "exact": found.exact,
        "truncation_bound": found.truncation_bound,
        "seconds": found.seconds,
    }


def print_table(title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """A table; columns are (heading, "left" or "right")."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout is not None and sys.stdout.isatty()
    width = _terminal_width() if terminal else 160
    shown = _columns_that_fit(columns, rows, width)
    left_out = ", ".join(heading for heading, _ in columns[shown:])
    columns, rows = columns[:shown], [row[:shown] for row in rows]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, (heading, side) in enumerate(columns):
        table.add_column(heading, justify="left" if side == "left" else "right", overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal)
    with console.capture() as captured:
        console.print(table)
    lines = [title, *captured.get().strip("\n").splitlines(), ""]
    if left_out:
        lines[-1:] = [f"(a wider terminal also shows: {left_out})", ""]
    click.echo("\n".join(line.rstrip() for line in lines))


def _columns_that_fit(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], width: int) -> int:
    """How many columns a line has room for. Words can be broken to fit, so only tables of numbers lose columns."""
    if any(side == "left" for _, side in columns[1:]):
        return len(columns)
    widths = [max(len(cell) for cell in column) for column in zip([h for h, _ in columns], *rows, strict=True)]
    room = [sum(widths[:number]) + 3 * number for number in range(1, len(columns) + 1)]
    return max(2, sum(needed <= width for needed in room))


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Names and what they are, line by line."""
    width = max(len(name) for name, _ in facts)
    click.echo("\n".join([title, "", *(f"  {name:{width}}  {value}" for name, value in facts), ""]))


def print_values(tables: "ArmTables", by_type: bool, counts: "Ints", values: "Floats", errors: "Floats | None") -> None:
    """The values of types or arms; a column of standard errors where they are given."""
    heading = "type" if by_type else "arm"
    names = [label[0] for label in tables.labels] if len(tables.labels) == len(values) else [""] * len(values)
    columns = [(heading, "left"), ("arms", "right"), ("value", "right"), ("±", "right")]
    shown = columns if errors is not None else columns[:3]
    rows = []
    for i, value in enumerate(values[:SHOWN_GROUPS]):
        row = (f"{i} {names[i]}".strip(), str(counts[i]), number(value))
        rows.append(row if errors is None else (*row, number(errors[i])))
    print_table(f"values by {heading}", shown, rows)
    if len(values) > SHOWN_GROUPS:
        click.echo(f"... {len(values) - SHOWN_GROUPS} more; --json has all values")


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f} %"


def seconds(value: float) -> str:
    """A time in words."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str, float], None] | None]:
    """Something to tell progress to, on standard error: a bar on a terminal, plain lines elsewhere, None if quiet."""
    if quiet:
        yield None
    elif sys.stderr is not None and sys.stderr.isatty():
        yield from _bar()
    else:
        yield _lines()


def _bar() -> Iterator[Callable[[str, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:24}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


def _lines() -> Callable[[str, float], None]:
    last = [monotonic()]

    def tell(what: str, share: float) -> None:
        if (now := monotonic()) - last[0] >= SECONDS_BETWEEN_LINES:
            last[0] = now
            click.echo(f"{what}: {100 * share:.0f} %", err=True)

    return tell
