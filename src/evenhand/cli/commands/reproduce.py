"""`evenhand reproduce`."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import print_json, print_table, print_wide_table, say, seconds
from evenhand.cli.progress import progress
from evenhand.cli.targets import targets_folder
from evenhand.errors import EvenhandError, InvalidInput, MissingExtra
from evenhand.execution.places import check_place
from evenhand.experiments.names import choose_names, target_paths

if TYPE_CHECKING:
    from evenhand.experiments.run import Reproduction, Work
    from evenhand.experiments.spec import Target
    from evenhand.report.reproduction.report import Report


def run(
    targets: tuple[str, ...],
    quick: bool,
    jobs: int | None,
    on: str | None,
    out: str,
    paper: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """List the targets, or run some and report."""
    if on is not None:
        check_place(on)
        if jobs is not None:
            raise InvalidInput("--jobs: counts processes of this machine; with --on write local:N")
    where = targets_folder(paper)
    choose_names(list(target_paths(where)), targets)
    folder = _check_folder(out) if targets else Path(out)
    from evenhand.experiments.spec import choose, read_targets  # after what may be refused at once

    known = read_targets(where)
    if not targets:
        _list(known, as_json)
        return
    chosen = choose(known, targets)
    from evenhand.experiments.run import Work
    from evenhand.report.reproduction import read_statements, write_reproduction
    from evenhand.report.reproduction.report import read_report

    statements = read_statements(where)
    work = Work(chosen, folder, quick)
    _check_extra(work)
    workers = jobs or _num_cores()
    if not quiet:
        count = "1 target" if len(chosen) == 1 else f"{len(chosen)} targets"
        cells = f"{len(work.cells)} {'quick ' if quick else ''}cells"
        click.echo(f"{count}, {cells}: {work.num_done} done, {len(work.to_do)} to do", err=True)
    with progress(quiet) as tell:
        done = work.run(workers, f"evenhand {shlex.join(sys.argv[1:])}", tell, on)
    report = write_reproduction(folder, chosen, statements)
    failed = f"{len(done.failures)} of {done.ran} cells failed; the same command tries them again"
    if as_json:
        told = as_dict(done, chosen, report, quick)
        print_json({**told, "error": failed} if done.failures else told)
    else:
        _show_tables(read_report(folder, chosen, statements))
        _show(done, report)
    if done.failures and as_json:  # the one object has been printed
        click.echo(f"error: {failed}", err=True)
        raise click.exceptions.Exit(1)
    if done.failures:
        raise EvenhandError(failed)


def _check_extra(work: "Work") -> None:
    """Refuse, before any work, what cannot be done without packages that are not installed."""
    training = [planned for planned in work.to_do if planned.cell.kind == "train"]
    absent = [name for name in ("torch", "stable_baselines3", "gymnasium") if find_spec(name) is None]
    if training and absent:
        cells = "1 cell trains a network" if len(training) == 1 else f"{len(training)} cells train networks"
        raise MissingExtra(f"{cells}, and that", "rl")


def _check_folder(out: str) -> Path:
    """Refuse, before any work, a folder that could not be made."""
    folder = Path(out)
    if not out or (folder.exists() and not folder.is_dir()):
        raise InvalidInput(f"--out: expected the name of a folder, got {out or 'nothing'}")
    if not folder.resolve().parent.is_dir():
        raise InvalidInput(f"--out: the folder of {out} does not exist")
    return folder


def _num_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _list(targets: "Mapping[str, Target]", as_json: bool) -> None:
    if as_json:
        print_json({"targets": [_about(target) for target in targets.values()]})
        return
    columns = [
        ("target", "left"),
        ("in the paper", "left"),
        ("what it is", "left"),
        ("cells", "right"),
        ("quick", "right"),
    ]
    rows = [
        (target.name, target.source, target.title, str(len(target.full)), str(len(target.quick)))
        for target in targets.values()
    ]
    print_table("targets", columns, rows)
    click.echo(
        "run some: evenhand reproduce table-1 figure-2; everything in a few minutes: evenhand reproduce all --quick"
    )


def _about(target: "Target") -> dict[str, Any]:
    return {
        "name": target.name,
        "source": target.source,
        "title": target.title,
        "cells": len(target.full),
        "quick_cells": len(target.quick),
    }


def as_dict(done: "Reproduction", targets: "Sequence[Target]", report: Path, quick: bool) -> dict[str, Any]:
    """The JSON form."""
    return {
        "targets": [target.name for target in targets],
        "quick": quick,
        "cells": {"ran": done.ran, "skipped": done.skipped, "failed": len(done.failures)},
        "failures": [{**failure.planned.label, "error": failure.error} for failure in done.failures],
        "seconds": done.seconds,
        "out": str(done.folder),
        "report": str(report),
    }


def _show_tables(report: "Report") -> None:
    """Every table with ours beside the paper's, and what holds."""
    from evenhand.report.reproduction.formats import sheet_cells
    from evenhand.report.reproduction.sheets import remarks

    for part in report.parts:
        for sheet in part.sheets:
            if not sheet.visible:
                continue
            heads, *rows = sheet_cells(sheet)
            names = len(heads) - len(sheet.columns)
            print_wide_table(f"{part.target.source}: {sheet.caption}", heads, rows, names)
            for remark in remarks(sheet):
                say(f"- {remark}")
    told = [claim for claim in (*report.claims, *report.findings) if claim.verdict != "not run"]
    if told:
        say("")
    for claim in told:
        say(f"{claim.verdict}: {claim.title}. {claim.evidence}")
    if report.quick:
        say("This was a quick run: sizes are reduced, and the numbers are not those of the full run.")


def _show(done: "Reproduction", report: Path) -> None:
    for failure in done.failures:
        click.echo(f"failed: {failure.planned}: {failure.error}", err=True)
    click.echo(f"{done.ran} cells run in {seconds(done.seconds)}, {done.skipped} were done before")
    click.echo(f"report: {report}")
