"""`evenhand train`."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evenhand.cli.arguments import ModelSource
from evenhand.cli.options import RunOptions, backend_option, model_options, option, run_options, training_settings
from evenhand.cli.refusals import OptionError


@click.command("train")
@model_options("budgets", "initial", "criterion", "over")
@training_settings
@option(
    "--seeds",
    "N",
    "Train N times, with the seeds from --seed on; the best network in a held-out evaluation is saved.",
    type=click.IntRange(min=1),
)
@backend_option("the runs of --seeds execute")
@option("--out", "POLICY", "Save the policy; training can then be resumed, too.")
@option("--resume", None, "Continue an interrupted run with the same --out.", is_flag=True)
@option("--tensorboard", "FOLDER", "Write TensorBoard's logs there.")
@run_options(seeded=False)
def command(source: ModelSource, run: RunOptions, seeds: int | None, resume: bool, **options: Any) -> None:
    """Learn a policy for MODEL by trial and error, with count-proportion deep RL.

    For the criteria discounted and average. The learner sees samples only, never the model's matrices; these select
    the best network, if it can be evaluated exactly. A policy for identical arms plays any number of them with any
    budget. Acting needs no torch. With --seeds, a table of all runs. Needs the extra "rl".
    """
    run.check_targets()
    out = run.out
    if run.backend is not None and seeds is None:
        raise OptionError("--backend", "one run stays in this process; --seeds N has several, which run elsewhere")
    if resume and not out:
        raise OptionError("--resume", "name the policy that was being trained, with --out")
    source = replace(source, budgets=read_fixed_budget(options))
    problem = source.read()
    settings = read_settings(options | {"budget": ()} if source.budgets else options)
    from evenhand.learning import train  # after what may be refused at once

    checkpoint = Path(f"{out}.checkpoint") if out else None
    files = _checkpoints(checkpoint, seeds, run.seed)
    if resume and not any(file.exists() for file in files):
        click.echo(f"{files[0]} does not exist; starting from the beginning", err=True)
    settings |= {"seed": run.seed, "seeds": seeds, "checkpoint": checkpoint, "resume": resume}
    with run.progress() as tell, _way_on(files):
        found: Any = train(problem, progress=tell, backend=run.backend, **settings)
    training = found if seeds is None else found.best
    if out:
        found.save(out, f"evenhand {shlex.join(sys.argv[1:])}")
        for file in files:
            file.unlink(missing_ok=True)
    more = {} if seeds is None else {"seeds": found.to_dict()}
    words = ["evenhand", "compare", *source.words(), "--policies", f"optimal,whittle,{out}"]
    use = f"policy: {out}   (compare it: {shlex.join(words)})" if out else "not saved; use --out POLICY to keep it"
    run.show(training if run.as_json else found, f"{source.title}, trained", [use], policy=out, **more)


def _checkpoints(checkpoint: Path | None, seeds: int | None, first: int) -> list[Path]:
    """Return the checkpoints of the runs."""
    if checkpoint is None or seeds is None:
        return [] if checkpoint is None else [checkpoint]
    from evenhand.learning import checkpoint_of

    return [checkpoint_of(checkpoint, first + number) for number in range(seeds)]


def read_fixed_budget(options: dict[str, Any]) -> tuple[str, ...]:
    """Return the budget that replaces the model's if no range is given: one text, or none."""
    typed = options["budget"]
    return (",".join(typed),) if typed and not any(":" in text for text in typed) else ()


def read_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of `train` from the options: ranges and lists are text, all others are values already."""
    found = dict(options)
    if options["num_arms"] is not None:
        found["num_arms"] = _range(options["num_arms"], "--num-arms", int)
    found["budget"] = tuple(_range(text, "--budget", float) for text in options["budget"]) or None
    try:
        found["hidden"] = tuple(int(part) for part in options["hidden"].split(","))
    except ValueError:
        wanted = f"expected whole numbers separated by commas, got {options['hidden']!r}"
        raise OptionError("--hidden", wanted) from None
    return found


@contextmanager
def _way_on(checkpoints: Sequence[Path]) -> Iterator[None]:
    """After an interruption, print how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        if there := [str(file) for file in checkpoints if file.exists()]:
            text = f"the checkpoint is in {', '.join(there)}; the same command with --resume continues"
            click.echo(text, err=True)
        raise


def _range(text: str, option: str, kind: type) -> tuple[Any, Any]:
    """Return the ends of LOW:HIGH, or one number twice."""
    try:
        low, high = [kind(part) for part in (text if ":" in text else f"{text}:{text}").split(":")]
    except ValueError:
        raise OptionError(option, f"expected LOW:HIGH, got {text!r}") from None
    return low, high
