"""Options that commands share."""

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def model_argument(command: Command) -> Command:
    """MODEL and the parameters of a built-in problem."""
    parameters = click.option(
        "-p", "parameters", multiple=True, metavar="KEY=VALUE", help="A parameter of a built-in problem; repeatable."
    )
    return click.argument("model")(parameters(command))


def welfare_option(command: Command) -> Command:
    """How values are weighed."""
    return click.option(
        "--welfare",
        default="gini:2",
        show_default=True,
        metavar="W",
        help="gini:2, gini:0.5,0.3,0.2, utilitarian, maximin, maximin:0.01, leximin, nash, alpha:2, ...",
    )(command)


def criterion_option(command: Command) -> Command:
    """What rewards over time are worth; None for the model's own."""
    return click.option(
        "--criterion",
        default=None,
        metavar="C",
        help="discounted, average, or finite:T for T steps. [default: the model's]",
    )(command)


def playing(command: Command) -> Command:
    """How policies are played where they cannot be evaluated exactly."""
    options = [
        click.option(
            "--episodes", default=1000, show_default=True, type=click.IntRange(min=1), help="Episodes to play."
        ),
        click.option("--horizon", default=300, show_default=True, type=click.IntRange(min=1), help="Steps an episode."),
        click.option("--monte-carlo", is_flag=True, help="Simulate even where an exact value is possible."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def common(seeded: bool = True) -> Callable[[Command], Command]:
    """--json, --quiet, and --seed where there is randomness."""

    def add(command: Command) -> Command:
        command = click.option("--quiet", is_flag=True, help="No progress.")(command)
        command = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")(command)
        if seeded:
            seed = click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Random seed.")
            command = seed(command)
        return command

    return add
