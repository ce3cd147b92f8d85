"""`evenhand fit`."""

import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from evenhand.cli.console import print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_amounts
from evenhand.cli.standard_input import DASH, standard_input
from evenhand.model.io.text_table import FORMATS


def run(log: str, out: str | None, report: str | None, seed: int, as_json: bool, quiet: bool, **options: Any) -> None:
    """Fit a model to a log, and write it."""
    check_target(out, "--out")
    check_target(report, "--report")
    source = standard_input("LOG", options["format"], FORMATS) if log == DASH else log
    options["budget"] = None if options["budget"] is None else read_amounts(options["budget"])
    from evenhand.fitting.fit import fit  # after the checks of arguments
    from evenhand.fitting.options import LogOptions, ModelOptions, listed

    for several in ("used", "resources", "exact", "absorbing"):
        options[several] = listed(options[several] or ())
    records, model = (
        {field.name: options.pop(field.name) for field in fields(kind)} for kind in (LogOptions, ModelOptions)
    )

    with progress(quiet) as tell:
        fitted = fit(source, **options, records=records, model=model, rng=seed, progress=tell)
        if out:
            fitted.save(out)
        if tell is not None:
            tell("diagnostics", 0.95)
        _ = fitted.diagnostics  # cached, within the progress bar
        if report:
            from evenhand.report.records import write_fit

            command = f"evenhand {shlex.join(sys.argv[1:])}"
            write_fit(fitted, report, command=command, source=Path(called(log)).name)
    if as_json:
        print_json(fitted.to_dict())
        return
    from evenhand.report.results import summarise

    summary = summarise(fitted)
    print_summary(replace(summary, notes=()), f"{called(log)}, fitted")
    print_summary(replace(summarise(fitted.diagnostics), notes=[f"  - {note}" for note in summary.notes]))
    if out:
        click.echo(f"written to {out}, with its posterior")
    if report:
        click.echo(f"report: {report}")
