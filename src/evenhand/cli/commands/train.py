"""`evenhand train`."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import number, print_facts, print_json, seconds
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_problem
from evenhand.errors import InvalidInput
from evenhand.model.files import Format

if TYPE_CHECKING:
    from evenhand.learning import Training


def run(
    model: str,
    parameters: tuple[str, ...],
    format: Format | None,
    out: str | None,
    resume: bool,
    tensorboard: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train, save, and tell how good the policy is."""
    check_target(out, "--out")
    if resume and not out:
        raise InvalidInput("--resume: name the policy that was being trained, with --out")
    replaced = read_fixed_budget(options)
    problem = read_problem(model, parameters, format, replaced)
    settings = read_settings(options | {"budget": ()} if replaced else options)
    from evenhand.learning import train  # after what may be refused at once

    checkpoint = Path(f"{out}.checkpoint") if out else None
    if resume and checkpoint is not None and not checkpoint.exists():
        click.echo(f"there is no {checkpoint} to go on from; starting at the beginning", err=True)
    with progress(quiet) as tell, _way_on(checkpoint):
        training = train(
            problem, checkpoint=checkpoint, resume=resume, tensorboard=tensorboard, progress=tell, **settings
        )
    if out and checkpoint is not None:
        training.save(out, command=f"evenhand {shlex.join(sys.argv[1:])}")
        checkpoint.unlink(missing_ok=True)
    if as_json:
        print_json(as_dict(training, out))
    else:
        _show(training, model, parameters, replaced, format, out)


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
def _way_on(checkpoint: Path | None) -> Iterator[None]:
    """After an interruption, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            click.echo(f"what was learnt so far is in {checkpoint}; the same command with --resume goes on", err=True)
        raise


def _range(text: str, option: str) -> tuple[float, float]:
    """LOW:HIGH, or one number for both."""
    try:
        ends = [float(part) for part in text.split(":")]
        low, high = ends if len(ends) == 2 else (ends[0], ends[0])
    except ValueError:
        raise InvalidInput(f"{option}: expected LOW:HIGH, got {text!r}") from None
    if len(ends) > 2 or (option == "--num-arms" and not (low.is_integer() and high.is_integer())):
        raise InvalidInput(f"{option}: expected LOW:HIGH, got {text!r}")
    return low, high


def _whole(ends: tuple[float, float]) -> tuple[int, int]:
    return int(ends[0]), int(ends[1])


def _units(text: str) -> tuple[int, ...]:
    """N,N,...: the units of each hidden layer."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"--hidden: expected whole numbers separated by commas, got {text!r}") from None


def as_dict(training: "Training", out: str | None) -> dict[str, Any]:
    """The JSON form."""
    return {
        "algorithm": training.settings["algorithm"],
        "welfare": training.score if training.settings["architecture"] == "counts" else None,
        "mean": training.score,
        "exact": training.exact,
        "steps": training.steps,
        "seconds": training.seconds,
        "curve": [{"steps": steps, "mean": score} for steps, score in training.curve],
        "settings": training.settings,
        "policy": out,
    }


def _show(
    training: "Training",
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: str | None,
    out: str | None,
) -> None:
    how = "exact" if training.exact else "played on a held-out stream"
    word = "welfare" if training.settings["architecture"] == "counts" else "mean"  # joint networks favour some arms
    facts = [
        (word, f"{number(training.score)}  ({how}; the best of {len(training.curve)} looks)"),
        ("last", number(training.curve[-1][1])),
        ("steps", f"{training.steps} in {seconds(training.seconds)}"),
        ("algorithm", f"{training.settings['algorithm']}, seed {training.settings['seed']}"),
    ]
    print_facts(f"{called(model)}, trained", facts)
    if out is None:
        click.echo("not saved; use --out POLICY to keep it")
        return
    settings = [word for parameter in parameters for word in ("-p", parameter)]
    settings += [word for budget in budgets for word in ("--budget", budget)]
    settings += ["--format", format] if format is not None else []
    click.echo(f"policy: {out}   (compare it: " + shlex.join(["evenhand", "compare", model, *settings]), nl=False)
    click.echo(f" --policies optimal,whittle,{shlex.quote(out)})")
