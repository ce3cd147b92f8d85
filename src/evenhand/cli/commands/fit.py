"""`evenhand fit`."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evenhand.cli.console import print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_amounts
from evenhand.cli.standard_input import DASH, standard_input
from evenhand.model.whereabouts import FORMATS


def run(log: str, out: str | None, report: str | None, seed: int, as_json: bool, quiet: bool, **options: Any) -> None:
    """Fit a model to a log, and write it."""
    check_target(out, "--out")
    check_target(report, "--report")
    source = standard_input("LOG", options["format"], FORMATS) if log == DASH else log
    options["budget"] = None if options["budget"] is None else read_amounts(options["budget"])
    for several in ("used", "resources", "exact", "absorbing"):
        options[several] = _listed(options[several])
    from evenhand.fitting.fit import fit  # after what may be refused at once

    with progress(quiet) as tell:
        fitted = fit(source, **options, rng=seed, progress=tell)
        if out:
            fitted.save(out)
        if tell is not None:
            tell("asking what the records say", 0.95)
        _ = fitted.diagnostics  # kept; here it is told to take its time
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
        click.echo(f"written to {out}; what is known of it beside it")
    if report:
        click.echo(f"report: {report}")


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()
