"""`evenhand train`."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_problem
from evenhand.cli.refusals import OptionError
from evenhand.execution.places import check_place
from evenhand.model.io import Format

if TYPE_CHECKING:
    from evenhand.learning import Training, TrainingRuns


def run(
    model: str,
    parameters: tuple[str, ...],
    format: Format | None,
    seeds: int | None,
    on: str | None,
    out: str | None,
    resume: bool,
    tensorboard: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train, save, and tell how good the policy is."""
    check_target(out, "--out")
    if on is not None:
        check_place(on)
        if seeds is None:
            raise OptionError("--on", "one run goes on in this process; --seeds N has several, which run elsewhere")
    if resume and not out:
        raise OptionError("--resume", "name the policy that was being trained, with --out")
    replaced = read_fixed_budget(options)
    problem = read_problem(model, parameters, format, replaced)
    settings = read_settings(options | {"budget": ()} if replaced else options)
    checkpoint = Path(f"{out}.checkpoint") if out else None
    asked: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume, "tensorboard": tensorboard, **settings}
    training, several = _trained(problem, asked, seeds, on, quiet)
    command = f"evenhand {shlex.join(sys.argv[1:])}"
    if out:
        several.save(out, command) if several is not None else training.save(out, command)
        for file in _checkpoints(checkpoint, seeds, settings["seed"]):
            file.unlink(missing_ok=True)
    if as_json:
        seeds_found = {} if several is None else {"seeds": several.to_dict()}
        print_json(training.to_dict() | {"policy": out} | seeds_found)
        return
    _show(training, model, parameters, replaced, format, out, several)


def _trained(
    problem: Any, asked: dict[str, Any], seeds: int | None, on: str | None, quiet: bool
) -> "tuple[Training, TrainingRuns | None]":
    """One run; or several, the best of them first."""
    from evenhand.learning import TrainingRuns, train  # after what may be refused at once

    files = _checkpoints(asked["checkpoint"], seeds, asked["seed"])
    if asked["resume"] and not any(file.exists() for file in files):
        click.echo(f"{files[0]} does not exist; starting from the beginning", err=True)
    with progress(quiet) as tell, _way_on(files):
        found = train(problem, progress=tell, seeds=seeds, on=on, **asked)
    return (found.best, found) if isinstance(found, TrainingRuns) else (found, None)


def _checkpoints(checkpoint: Path | None, seeds: int | None, first: int) -> list[Path]:
    """Return the checkpoints of the runs."""
    if checkpoint is None or seeds is None:
        return [] if checkpoint is None else [checkpoint]
    from evenhand.learning.training_runs import checkpoint_of

    return [checkpoint_of(checkpoint, first + number) for number in range(seeds)]


def read_fixed_budget(options: dict[str, Any]) -> tuple[str, ...]:
    """The budget that replaces the model's, where no range is given; one text, or none."""
    typed = options["budget"]
    return (",".join(typed),) if typed and not any(":" in text for text in typed) else ()


def read_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The settings of `train` from what was typed: ranges and lists are text, all others are values already."""
    found = dict(options)
    found["num_arms"] = None if options["num_arms"] is None else _whole(_range(options["num_arms"], "--num-arms"))
    found["budget"] = tuple(_range(text, "--budget") for text in options["budget"]) or None
    found["hidden"] = _units(options["hidden"])
    return found


@contextmanager
def _way_on(checkpoints: Sequence[Path]) -> Iterator[None]:
    """After an interruption, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if there := [str(file) for file in checkpoints if file.exists()]:
            text = f"the checkpoint is in {', '.join(there)}; the same command with --resume goes on"
            click.echo(text, err=True)
        raise


def _range(text: str, option: str) -> tuple[float, float]:
    """LOW:HIGH, or one number for both."""
    try:
        ends = [float(part) for part in text.split(":")]
        low, high = ends if len(ends) == 2 else (ends[0], ends[0])
    except ValueError:
        raise OptionError(option, f"expected LOW:HIGH, got {text!r}") from None
    if len(ends) > 2 or (option == "--num-arms" and not (low.is_integer() and high.is_integer())):
        raise OptionError(option, f"expected LOW:HIGH, got {text!r}")
    return low, high


def _whole(ends: tuple[float, float]) -> tuple[int, int]:
    return int(ends[0]), int(ends[1])


def _units(text: str) -> tuple[int, ...]:
    """N,N,...: the units of each hidden layer."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError("--hidden", f"expected whole numbers separated by commas, got {text!r}") from None


def _show(
    training: "Training",
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: str | None,
    out: str | None,
    several: "TrainingRuns | None",
) -> None:
    from evenhand.report.results import summarise

    print_summary(summarise(training if several is None else several), f"{called(model)}, trained")
    if out is None:
        click.echo("not saved; use --out POLICY to keep it")
        return
    settings = [word for parameter in parameters for word in ("-p", parameter)]
    settings += [word for budget in budgets for word in ("--budget", budget)]
    settings += ["--format", format] if format is not None else []
    click.echo(f"policy: {out}   (compare it: " + shlex.join(["evenhand", "compare", model, *settings]), nl=False)
    click.echo(f" --policies optimal,whittle,{shlex.quote(out)})")
