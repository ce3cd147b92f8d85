"""`evenhand fit`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenhand.cli.console import number, print_facts, print_json, print_table
from evenhand.cli.diagnostics import show_diagnostics
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_amounts
from evenhand.cli.standard_input import DASH, standard_input
from evenhand.display import counted
from evenhand.model.whereabouts import FORMATS

if TYPE_CHECKING:
    from evenhand.fitting.result import Fitted

SHOWN_ROWS = 60
"""Rows of transitions that are shown; --json has all of them."""

SHOWN_NEXT = 3
"""Next states that a row of the table names."""


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
            from evenhand.report.fit import write_fit

            command = f"evenhand {shlex.join(sys.argv[1:])}"
            write_fit(fitted, report, command=command, source=Path(called(log)).name)
    if as_json:
        print_json(fitted.as_dict())
        return
    _show(fitted, called(log))
    if out:
        click.echo(f"written to {out}; what is known of it beside it")
    if report:
        click.echo(f"report: {report}")


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _show(fitted: "Fitted", source: str) -> None:
    log = fitted.log
    sizes = [(len(log.arm), "row"), (len(log.arms), "arm"), (len(log.types), "type"), (len(log.states), "state")]
    facts = [
        ("records", ", ".join(counted(*size) for size in sizes)),
        ("step", log.step_in_words),
        ("actions", ", ".join(log.actions)),
        ("log-likelihood", number(fitted.log_likelihood, 2)),
    ]
    if fitted.clusters is not None:
        facts.append(("types found", fitted.clusters.words))
    print_facts(f"{source}, fitted", facts)
    _show_rows(fitted)
    if fitted.unseen_anywhere.any():
        whose = ", in any type" if len(log.types) > 1 else ""
        click.echo(f"never seen{whose}: {'; '.join(log.pair_names(fitted.unseen_anywhere))}\n")
    show_diagnostics(fitted.diagnostics)
    for note in fitted.notes:
        click.echo(f"  - {note}")


def _show_rows(fitted: "Fitted") -> None:
    """A line for each pair that is known, and where it leads most often; what other types do has no moves."""
    log, counts = fitted.log, fitted.moves.departures
    known = np.isfinite(fitted.posterior.mean).all(axis=-1)
    seen = np.argwhere(known).tolist()
    rows = [
        [log.types[t], log.states[s], log.actions[a], f"{counts[t, s, a]:,}", _leads_to(fitted, t, s, a)]
        for t, s, a in seen[:SHOWN_ROWS]
    ]
    columns = [("type", "left"), ("state", "left"), ("action", "left"), ("moves", "right"), ("then", "left")]
    print_table("transitions, with intervals of 95 %", columns, rows)
    if len(seen) > SHOWN_ROWS:
        click.echo(f"... {len(seen) - SHOWN_ROWS:,} more; --json has all of them\n")


def _leads_to(fitted: "Fitted", t: int, s: int, a: int) -> str:
    """`good 0.900 (0.85–0.94), fair 0.100 (0.06–0.15)`: the most likely next states."""
    from evenhand.fitting.diagnostics.format import probability_texts

    mean = fitted.posterior.mean[t, s, a]
    lower, upper = (bound[t, s, a] for bound in fitted.interval)
    order = np.argsort(-np.round(mean, 12), kind="stable")[:SHOWN_NEXT].tolist()
    told = {fitted.log.states[k]: probability_texts(mean[k], lower[k], upper[k]) for k in order if mean[k] > 0}
    return ", ".join(f"{state} {middle} ({low}–{high})" for state, (middle, low, high) in told.items())
