"""Options that commands share."""

from collections.abc import Callable
from dataclasses import Field
from typing import Any

import click

from evenhand.learning.settings import TrainingSettings, settings

Command = Callable[..., Any]


def model_argument(command: Command) -> Command:
    """MODEL, which may be `-`, and the parameters of a built-in problem."""
    parameters = click.option(
        "-p", "parameters", multiple=True, metavar="KEY=VALUE", help="A parameter of a built-in problem; repeatable."
    )
    form = click.option(
        "--format",
        type=click.Choice(["toml", "json", "npz"]),
        help="What MODEL is, whatever its name; needed where it is -, standard input.",
    )
    return click.argument("model")(parameters(form(command)))


def initial_option(command: Command) -> Command:
    """Where the arms are now."""
    return click.option(
        "--initial",
        metavar="STATES",
        help="A table with the columns arm, type and state, as for act: start from where these arms are.",
    )(command)


def budget_option(several: bool = False) -> Callable[[Command], Command]:
    """Another budget than the model's; where several make sense, one table of them."""
    more = " Repeated, it gives a table of what each step is worth." if several else ""
    return click.option(
        "--budget",
        "budgets",
        multiple=True,
        metavar="B",
        help=f"Replace the budget: one number a resource (4,4), or some by name (bays=4).{more}",
    )


def welfare_option(command: Command) -> Command:
    """How values are weighed."""
    return click.option(
        "--welfare",
        metavar="W",
        help="How values are weighed: gini:half=0.75, gini:2, gini:0.5,0.3,0.2, utilitarian, maximin, maximin:0.01, "
        "leximin, nash, alpha:2, ...; when absent the model's own, or gini:half=0.75, by which the worse-off half has "
        "75 % of the weight.",
    )(command)


def criterion_option(command: Command) -> Command:
    """What rewards over time are worth."""
    return click.option(
        "--criterion",
        metavar="C",
        help="What rewards over time are worth: discounted, average or finite:T; the model's own when absent.",
    )(command)


def over_option(command: Command) -> Command:
    """Whose values are weighed."""
    return click.option(
        "--over",
        metavar="arms|groups",
        help="Whose values welfare weighs: every arm's, or the mean of each group; the model's own when absent.",
    )(command)


def playing(command: Command) -> Command:
    """How policies are played where they cannot be evaluated exactly."""
    options = [
        click.option(
            "--episodes", default=1000, show_default=True, type=click.IntRange(min=1), help="Episodes to play."
        ),
        click.option(
            "--horizon",
            type=click.IntRange(min=1),
            help="Steps an episode; when absent, 300 discounted, 1000 for an average (the first quarter does not "
            "count), T for finite:T.",
        ),
        click.option("--monte-carlo", is_flag=True, help="Simulate even where an exact value is possible."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def training_settings(command: Command) -> Command:
    """An option for each setting of `train`, as it is declared there."""
    for setting in reversed(settings()):
        command = _option_of(setting)(command)
    return command


_WRITTEN: dict[str, dict[str, Any]] = {
    "num_arms": {"metavar": "LOW:HIGH"},
    "budget": {"metavar": "B|LOW:HIGH", "multiple": True},  # ranges once for each resource
    "hidden": {"metavar": "N,N", "default": ",".join(map(str, TrainingSettings.hidden))},
}
"""How settings that are neither a word nor a number are written; `commands.train` reads them."""


def _option_of(setting: Field[Any]) -> Callable[[Command], Command]:
    """The option of one setting."""
    name = {"architecture": "network"}.get(setting.name, setting.name).replace("_", "-")
    told: dict[str, Any] = {"default": setting.default, "show_default": True, "help": setting.metadata["help"]}
    if setting.metadata["choices"]:
        told["type"] = click.Choice(setting.metadata["choices"])
    elif setting.type is int:
        told["type"] = click.IntRange(min=0 if setting.name == "seed" else 1)
    told |= _WRITTEN.get(setting.name, {})
    return click.option(f"--{name}", setting.name, **told)


def common(seeded: bool = True) -> Callable[[Command], Command]:
    """--json, --quiet, and --seed where there is randomness."""

    def add(command: Command) -> Command:
        command = click.option("--quiet", is_flag=True, help="No progress; results are told all the same.")(command)
        command = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")(command)
        if seeded:
            seed = click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Random seed.")
            command = seed(command)
        return command

    return add
