"""`evenhand indices`."""

from evenhand.cli.console import print_json, print_summary
from evenhand.cli.reading import called, read_problem
from evenhand.cli.stored import refuse_without_shards, run_indices, stored_arms
from evenhand.model.io import Format


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    criterion: str | None,
    on: str | None,
    out: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compute and print Whittle indices."""
    if (table := stored_arms(model, on, budgets, criterion)) is not None:
        run_indices(table, on, out, as_json, quiet)
        return
    refuse_without_shards(out=out)
    problem = read_problem(model, parameters, format, budgets, criterion).with_criterion(criterion)
    from evenhand.policies.index import indices_of  # after what may be refused at once

    found = indices_of(problem)
    if as_json:
        print_json(found.to_dict())
        return
    from evenhand.report.results import summarise

    summary = summarise(found)
    print_summary(
        summary, summary.title.replace("Whittle indices", f"Whittle indices of {called(model)}") + f": {summary.aside}"
    )
