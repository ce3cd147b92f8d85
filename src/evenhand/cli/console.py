"""What a person or a program sees: tables, progress, JSON."""

import io
import json
import math
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from evenhand.display import counted

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Evaluation
    from evenhand.model.simulator import Problem
    from evenhand.typing import Floats

MOST_LISTED = 1_000_000
"""Arms up to which JSON lists a figure for each."""

SHOWN_UNITS = 20
"""Types, arms or groups whose values are shown in a table; --json has all of them."""


def print_json(value: dict[str, Any]) -> None:
    """One JSON object; numbers that JSON lacks become null."""
    from evenhand.model.io import as_json

    click.echo(json.dumps(as_json(value), allow_nan=False))


def per_arm(problem: "Problem", by_type: bool, units: "dict[str, Floats]") -> dict[str, Any]:
    """Figures for every arm; for more arms than anyone reads, null, and the figures by type beside it."""
    if not by_type:
        return dict(units)
    if problem.num_arms <= MOST_LISTED:
        return {name: values[problem.type_of_arm] for name, values in units.items()}
    by_types = {f"{name}_by_type": values for name, values in units.items()}
    return {**dict.fromkeys(units), **by_types, "counts_by_type": problem.type_counts}


def figures(found: "Evaluation") -> dict[str, Any]:
    """What JSON tells of an evaluation, but for the values of its arms."""
    told: dict[str, Any] = {
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
        "episodes": found.num_episodes,
        "horizon": found.horizon,
        "seconds": found.seconds,
    }
    if found.groups:
        told["groups"] = found.groups
    if found.problem.has_floors:
        kind = "type" if found.by_type else "arm"
        told["floors_missed"] = [
            {kind: missed.unit, "floor": missed.floor, "served": missed.served} for missed in found.floors_missed
        ]
    return told


def unused_horizon(found: "Evaluation", horizon: int | None) -> str:
    """What became of a horizon that was asked for where there was nothing to play; else nothing."""
    if horizon is None or not found.exact or found.problem.criterion.num_steps is not None:
        return ""
    span = "in the long run" if found.problem.criterion.is_average else "over all time"
    return f"not used: the value is exact, {span}; --monte-carlo plays {horizon} step{'s' if horizon > 1 else ''}"


def floors_in_words(found: "Evaluation") -> list[str]:
    """Whom a policy serves less often than it must, a line each; the rest is counted."""
    kind = "type" if found.by_type else "arm"
    names = unit_names(found.problem, found.by_type) if found.floors_missed else []
    lines = [
        f"{kind} {names[missed.unit]} is served {percent(missed.served)} of the time, "
        f"and must be {percent(missed.floor)}"
        for missed in found.floors_missed
    ]
    more = len(lines) - SHOWN_UNITS
    return lines if more <= 0 else [*lines[:SHOWN_UNITS], f"... {more} more; --json has all of them"]


def unit_names(problem: "Problem", by_type: bool) -> list[str]:
    """`0 machine`: the number of each type or arm, and its name where it has one."""
    from evenhand.model.naming import arm_names, told_names

    names = told_names(problem) if by_type else arm_names(problem)
    return [f"{unit} {name}".strip() for unit, name in enumerate(names)]


def objective_words(problem: "Problem") -> str:
    """How a title goes on where values are not discounted or welfare is not over arms; else nothing."""
    criterion = "" if problem.criterion.name == "discounted" else f", criterion {problem.criterion.name}"
    return criterion + (f", over {counted(len(problem.group_names), 'group')}" if problem.over == "groups" else "")


def really_got(level: float | None, error: float | None, over: str) -> str:
    """The inequality within an episode, to follow that of expected values; nothing where it was not played."""
    if level is None:
        return ""
    known = "" if error is None or not math.isfinite(error) else f" ± {error:.1g}"
    return f"; {number(level)}{known} of what {over} really get in an episode"


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


def print_wide_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> None:
    """A table of numbers; one that is wider than the line goes on below, with the names of its rows again.

    Args:
        title: what it is.
        heads: of the columns.
        rows: texts.
        names: how many columns at the left name the row.
    """
    line = _terminal_width() if sys.stdout is not None and sys.stdout.isatty() else 160
    widths = [max(len(text) for text in column) + 3 for column in zip(heads, *rows, strict=True)]
    rest = list(range(names, len(heads)))
    while rest:
        taken = 1
        while taken < len(rest) and sum(widths[:names]) + sum(widths[i] for i in rest[: taken + 1]) <= line:
            taken += 1
        shown = [*range(names), *rest[:taken]]
        columns = [(heads[i], "left" if i < names else "right") for i in shown]
        print_table(title, columns, [[row[i] for i in shown] for row in rows])
        rest, title = rest[taken:], f"{title} (continued)" if not title.endswith("(continued)") else title


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
    say("\n".join([title, ""]))
    for name, value in facts:
        say(f"  {name:{width}}  {value}", width + 4)
    say("")


def say(text: str, indent: int = 2) -> None:
    """A line for people; where it is longer than their terminal it is broken between words.

    Args:
        text: what to say.
        indent: of the second and later lines.
    """
    width = _terminal_width() if sys.stdout is not None and sys.stdout.isatty() else 0
    if width > indent + 20 and len(text) > width:
        text = "\n".join(textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False))
    click.echo(text)


def print_values(
    problem: "Problem",
    by_type: bool,
    values: "Floats",
    errors: "Floats | None",
    served: "Floats | None" = None,
) -> None:
    """The values of types or arms; columns of standard errors and of shares of time served where they are given."""
    heading = "type" if by_type else "arm"
    names = unit_names(problem, by_type)[:SHOWN_UNITS]
    counts = problem.type_counts[:SHOWN_UNITS].tolist() if by_type else [1] * len(names)
    columns: list[tuple[str, Sequence[str]]] = [
        (heading, names),
        ("arms", [str(count) for count in counts]),
        ("value", [number(value) for value in values[:SHOWN_UNITS]]),
    ]
    if errors is not None:
        columns.append(("±", [number(error) for error in errors[:SHOWN_UNITS]]))
    if served is not None:
        columns.append(("served", [percent(share) for share in served[:SHOWN_UNITS]]))
    heads = [(name, "right" if place else "left") for place, (name, _) in enumerate(columns)]
    print_table(f"values by {heading}", heads, list(zip(*(cells for _, cells in columns), strict=True)))
    if len(values) > SHOWN_UNITS:
        click.echo(f"... {len(values) - SHOWN_UNITS} more; --json has all values")


def print_groups(groups: "dict[str, float]", errors: "Floats | None") -> None:
    """The values of groups; a column of standard errors where they are given."""
    shown = list(enumerate(groups.items()))[:SHOWN_UNITS]
    columns = [("group", "left"), ("value", "right")] + ([("±", "right")] if errors is not None else [])
    rows = [[name, number(value)] + ([number(errors[i])] if errors is not None else []) for i, (name, value) in shown]
    print_table("values by group", columns, rows)
    if len(groups) > SHOWN_UNITS:
        click.echo(f"... {len(groups) - SHOWN_UNITS} more; --json has all values")


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f} %"


def seconds(value: float) -> str:
    """A time in words."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
