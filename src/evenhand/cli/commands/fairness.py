"""`evenhand fairness`."""

import re
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.commands.solve import asked_words
from evenhand.cli.console import print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import budget_suffix, called, check_target, read_problem
from evenhand.cli.refusals import OptionError
from evenhand.model.io import Format

if TYPE_CHECKING:
    from evenhand.planning.price_of_fairness import PriceOfFairness


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
    problem = read_problem(model, parameters, format, budgets, criterion, initial).with_criterion(criterion, over)
    from evenhand.planning.price_of_fairness import price_of_fairness  # after what may be refused at once
    from evenhand.planning.task import SolveMethod

    with progress(quiet) as tell:
        found = price_of_fairness(
            problem, list(welfares) or None, SolveMethod(method, seconds=seconds), progress=tell, rng=seed
        )
    asked = partial(asked_words, model, parameters, format, criterion=criterion, over=over)
    saved = _save(found, out, asked)
    if report:
        from evenhand.report.fairness import write_fairness

        write_fairness(found, report, command=f"evenhand {shlex.join(sys.argv[1:])}", seed=seed)
    if as_json:
        rows = [row.to_dict() | {"policy": saved.get(row.welfare)} for row in found.rows]
        print_json(found.to_dict() | {"rows": rows})
        return
    from evenhand.report.results import setting, summarise

    title = f"{called(model)}{setting(problem)}{budget_suffix(problem, budgets)}: what fairness costs"
    print_summary(summarise(found), title)
    for name, path in saved.items():
        click.echo(f"plan for {name}: {path}")
    if report:
        click.echo(f"report: {report}")


def _check_folder(out: str | None) -> None:
    """Refuse, before any work, a folder that could not be made."""
    if out is None:
        return
    if not out or (Path(out).exists() and not Path(out).is_dir()):
        raise OptionError("--out", f"expected the name of a folder for the plans, got {out or 'nothing'}")
    if not Path(out).resolve().parent.is_dir():
        raise OptionError("--out", f"the folder of {out} does not exist")


def _save(found: "PriceOfFairness", out: str | None, asked: Callable[[str], list[str]]) -> dict[str, str]:
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
