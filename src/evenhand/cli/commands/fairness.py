"""`evenhand fairness`."""

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.commands.budgets import budget_words
from evenhand.cli.commands.solve import asked_words
from evenhand.cli.console import SHOWN_UNITS, number, objective_words, percent, print_json, print_table
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_problem
from evenhand.errors import InvalidInput
from evenhand.model.files import Format

if TYPE_CHECKING:
    from evenhand.planning.fairness import Fairness, FairnessRow

SHOWN_OTHERWISE = ("utilitarian", "maximin", "leximin")
"""Welfares that need no column of their own in a table that has the mean and the worst-off."""


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    initial: str | None,
    welfares: tuple[str, ...],
    criterion: str | None,
    over: str | None,
    method: str,
    seconds: float | None,
    report: str | None,
    out: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find the best plan for each welfare, and print what each is worth to whom."""
    check_target(report, "--report")
    _check_folder(out)
    problem = read_problem(model, parameters, format, budgets, criterion, initial).under(criterion, over)
    from evenhand.planning.fairness import fairness  # after what may be refused at once

    with progress(quiet) as tell:
        found = fairness(problem, list(welfares) or None, method, progress=tell, rng=seed, seconds=seconds)
    asked = partial(asked_words, model, parameters, format, criterion=criterion, over=over)
    saved = _save(found, out, asked)
    if report:
        from evenhand.report.fairness import write_fairness

        write_fairness(found, report, command=f"evenhand {shlex.join(sys.argv[1:])}", seed=seed)
    if as_json:
        print_json(as_dict(found, saved))
        return
    _show(found, f"{called(model)}{objective_words(problem)}{budget_words(problem, budgets)}")
    for name, path in saved.items():
        click.echo(f"plan for {name}: {path}")
    if report:
        click.echo(f"report: {report}")


def _check_folder(out: str | None) -> None:
    """Refuse, before any work, a folder that could not be made."""
    if out is None:
        return
    if not out or (Path(out).exists() and not Path(out).is_dir()):
        raise InvalidInput(f"--out: expected the name of a folder for the plans, got {out or 'nothing'}")
    if not Path(out).resolve().parent.is_dir():
        raise InvalidInput(f"--out: the folder of {out} does not exist")


def _save(found: "Fairness", out: str | None, asked: Callable[[str], list[str]]) -> dict[str, str]:
    """Every plan as a file of the folder, by welfare; the names of the files. `asked` says what each was asked for."""
    if out is None:
        return {}
    from evenhand.planning.plan import save_solution

    Path(out).mkdir(exist_ok=True)
    saved = {}
    for row in found.rows:
        name = re.sub(r"[^\w.]+", "-", row.welfare)
        saved[row.welfare] = str(Path(out) / f"{name}.zip")
        save_solution(row.solution, saved[row.welfare], asked(row.welfare))
    return saved


def as_dict(found: "Fairness", saved: dict[str, str]) -> dict[str, Any]:
    """The JSON form."""
    return {
        "criterion": found.problem.criterion.name,
        "over": found.problem.over,
        "budget": found.problem.named_budget,
        "who": found.who,
        "counts": found.counts,
        "rows": [_row_as_dict(row, saved) for row in found.rows],
        "left_out": found.left_out,
    }


def _row_as_dict(row: "FairnessRow", saved: dict[str, str]) -> dict[str, Any]:
    return {
        "welfare": row.welfare,
        "plan_of": row.plan_of,
        "mean": row.mean,
        "worst": row.worst,
        "gini_coefficient": row.gini_coefficient,
        "price": row.price,
        "by": row.by,
        "by_stderr": row.by_stderr,
        "values": row.values,
        "values_stderr": row.values_stderr,
        "gains": row.gains,
        **({"groups": row.groups} if row.groups else {}),
        "exact": row.exact,
        "upper_bound": row.solution.upper_bound,
        "method": row.solution.method,
        "seconds": row.solution.seconds,
        "policy": saved.get(row.welfare),
    }


def _show(found: "Fairness", title: str) -> None:
    names = [row.welfare for row in found.rows if row.welfare not in SHOWN_OTHERWISE]
    heads = ["mean", "price", "worst", "Gini", *(f"by {name}" for name in names), "±"]
    columns = [("best for", "left"), *((head, "right") for head in heads)]
    rows = []
    for row in found.rows:
        figures = [number(row.mean), percent(row.price), number(row.worst), number(row.gini_coefficient)]
        error = "exact" if row.exact else number(row.by_stderr[row.welfare])
        rows.append([row.welfare, *figures, *(number(row.by[name]) for name in names), error])
    print_table(f"{title}: what fairness costs", columns, rows)
    _show_values(found)
    for row in found.rows:
        if row.plan_of != row.welfare:
            click.echo(f"best for {row.welfare}: the plan for {row.plan_of}, which is better than its own")
    for name, reason in found.left_out.items():
        click.echo(f"left out: {name}: {reason}")


def _show_values(found: "Fairness") -> None:
    """Who gets how much, and how much more or less than under the best mean."""
    each = "value of an arm of each type" if found.who == "type" else "value of each group"
    _show_each(found, found.who, each, found.counts, [row.values for row in found.rows])
    if found.group_sizes:
        each = "value of each group, the mean of its arms"
        _show_each(found, "group", each, found.group_sizes, [row.groups for row in found.rows])


def _show_each(
    found: "Fairness", who: str, each: str, sizes: dict[str, int], plans: Sequence[dict[str, float]]
) -> None:
    columns = [(who, "left"), ("arms", "right"), *((row.welfare, "right") for row in found.rows)]
    first, *others = plans
    rows = []
    for name, count in list(sizes.items())[:SHOWN_UNITS]:
        gains = [round(values[name] - first[name], 4) + 0.0 for values in others]  # no loss of 0.0000: that is rounding
        cells = [f"{number(values[name])} ({gain:+.4f})" for values, gain in zip(others, gains, strict=True)]
        rows.append([name, str(count), number(first[name]), *cells])
    print_table(f"{each}, and what it gains or loses beside {found.rows[0].welfare}", columns, rows)
    if len(sizes) > SHOWN_UNITS:
        click.echo(f"... {len(sizes) - SHOWN_UNITS} more; --json has all values")
