"""`evenhand fairness`."""

import re
from pathlib import Path

import click

from evenhand.cli.arguments import ModelSource
from evenhand.cli.options import RunOptions, model_options, option, report_option, run_options
from evenhand.cli.refusals import OptionError


@click.command("fairness")
@model_options()
@option(
    "--welfare welfares",
    "W",
    "A welfare, as in solve, or one over groups ('maximin over groups'); repeatable. The mean is always included. By "
    "default: utilitarian, the model's own, gini:half=0.6, gini:half=0.75, maximin, and maximin over its groups.",
    multiple=True,
)
@option("--method", "M", "How plans are found, as in solve.", default="auto")
@option("--seconds", "S", "Time limit of all plans together.", type=float, default=60.0)
@option("--price-limit", "P", "Share of the best mean over arms that the recommended plan may give up.", default=0.1)
@report_option
@option("--out", "FOLDER", "Save the plan for each welfare as a file of this folder.")
@run_options()
def command(
    source: ModelSource, run: RunOptions, welfares: tuple[str, ...], method: str, seconds: float, price_limit: float
) -> None:
    """Compute the price of fairness: the best plan for each welfare, under all welfares.

    MODEL is a model file (.toml, .json, .npz) or a built-in problem (see `evenhand problems`).
    """
    run.check_targets(folders=True)
    if run.out is not None and Path(run.out).is_file():
        raise OptionError("--out", f"expected the name of a folder for the plans, got {run.out}")
    problem = source.read()
    from evenhand.planning.plan import save_solution  # after what may be refused at once
    from evenhand.planning.price_of_fairness import price_of_fairness
    from evenhand.planning.task import SolveMethod

    with run.progress() as tell:
        chosen = SolveMethod(method, seconds=seconds)
        found = price_of_fairness(
            problem, list(welfares) or None, chosen, price_limit=price_limit, progress=tell, rng=run.seed
        )
    saved = {}
    if run.out is not None:
        Path(run.out).mkdir(exist_ok=True)
        for row in found.rows:
            name = re.sub(r"[^\w.]+", "-", row.welfare)
            saved[row.welfare] = str(Path(run.out) / f"{name}.zip")
            save_solution(row.solution, saved[row.welfare], source.words(row.welfare, budgets=False))
    if run.report:
        from evenhand.report import fairness_report

        run.write_report(fairness_report(found, seed=run.seed))
    rows = [row.to_dict() | {"policy": saved.get(row.welfare)} for row in found.rows]
    lines = [f"plan for {name}: {path}" for name, path in saved.items()]
    run.show(found, f"{source.title}{source.setting(problem)}: what fairness costs", lines, rows=rows)
