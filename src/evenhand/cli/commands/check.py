"""`evenhand check`."""

from dataclasses import replace

from evenhand.cli.console import print_json, print_summary
from evenhand.cli.reading import read_noting, refuse_several, start_at, with_budgets
from evenhand.cli.stored import run_check, stored_arms
from evenhand.model.io import Format


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    initial: str | None,
    welfare: str | None,
    criterion: str | None,
    over: str | None,
    on: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Tell what a model says, and what looks odd."""
    refuse_several(budgets)
    if (arms := stored_arms(model, on, budgets, criterion, over, initial)) is not None:
        run_check(arms, on, as_json, quiet)
        return
    loaded = read_noting(model, parameters, format, criterion)
    (problem,) = with_budgets(start_at(loaded.problem, initial), parameters, budgets)
    from evenhand.planning.check import check_loaded  # after what may be refused at once

    found = check_loaded(replace(loaded, problem=problem.with_criterion(criterion, over)), welfare)
    if as_json:
        print_json(found.to_dict())
        return
    from evenhand.report.results import summarise

    print_summary(replace(summary := summarise(found), notes=[f"  - {note}" for note in summary.notes]))
