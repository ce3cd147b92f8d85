"""`evenhand fit`."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from evenhand.cli.arguments import DASH, called, read_amounts, standard_input
from evenhand.cli.options import RunOptions, fit_options, option, report_option, run_options


@click.command("fit")
@click.argument("log")
@fit_options
@option("--format", None, "Format of LOG; needed for -.", type=click.Choice(["csv", "parquet", "json"]))
@option("--out", "MODEL", "Write the model (.toml, .json, .npz, .parquet), and what is known of it beside it.")
@report_option
@run_options()
def command(log: str, run: RunOptions, **options: Any) -> None:
    """Fit a model to LOG: a table with one row per arm and time.

    A row has the state of an arm at a time, and the action that it then got; the next row of the arm has its next
    state. LOG is CSV, Parquet, JSON, or - for standard input. All faults are reported with their lines and exit code 2,
    and nothing is written. Needs the extra "data".
    """
    run.check_targets()
    from evenhand.model.io.text_table import FORMATS

    source = standard_input("LOG", options["format"], FORMATS) if log == DASH else log
    options["welfare"] = run.welfare
    options["budget"] = None if options["budget"] is None else read_amounts(options["budget"])
    from evenhand.fitting.fit import fit  # after the checks of arguments
    from evenhand.fitting.options import LogOptions, ModelOptions, listed

    for several in ("used", "resources", "exact", "absorbing", "covariates", "time_cuts"):
        options[several] = listed(options[several] or ())
    records, model = (
        {field.name: options.pop(field.name) for field in fields(kind)} for kind in (LogOptions, ModelOptions)
    )
    with run.progress() as tell:
        fitted = fit(source, **options, records=records, model=model, rng=run.seed, progress=tell)
        if run.out:
            fitted.save(run.out)
        tell("diagnostics", 0.95)
        _ = fitted.diagnostics  # cached, within the progress bar
        if run.report:
            from evenhand.report import fit_report

            run.write_report(fit_report(fitted, source=Path(called(log)).name))
    if run.as_json:
        run.say(fitted.to_dict(), "")
        return
    from evenhand.cli.console import print_summary
    from evenhand.report.summary import summarise

    summary, said = summarise(fitted), summarise(fitted.diagnostics)
    print_summary(replace(summary, title=f"{called(log)}, fitted", notes=()))
    lines = [f"written to {run.out}, with its posterior"] if run.out else []
    run.say({}, replace(said, notes=[f"  - {note}" for note in summary.notes]), lines)
