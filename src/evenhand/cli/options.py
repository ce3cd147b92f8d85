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


def backend_option(what: str) -> Callable[[Command], Command]:
    """Where work runs."""
    forms = "threads:N, processes:N, ray or ray://HOST:PORT"
    return click.option("--backend", metavar="BACKEND", help=f"Where {what}: {forms}; results do not depend on it.")


def draws_option(command: Command) -> Command:
    """How many draws of the posterior."""
    return click.option(
        "--draws",
        type=click.IntRange(min=1),
        metavar="N",
        help="Of a fitted model: also weigh over N draws of what the records allow (200 is usual). "
        "It takes time of its own, more with N, which --seconds of solve does not count.",
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


FITTING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--arm", {"required": True, "metavar": "COLUMN", "help": "The column that names the arm."}),
    (
        "--time",
        {
            "required": True,
            "metavar": "COLUMN",
            "help": "The column of times: numbers, dates, moments, months (2026-05) or weeks (2026-W05).",
        },
    ),
    ("--state", {"required": True, "metavar": "COLUMN", "help": "The column of states."}),
    ("--action", {"required": True, "metavar": "COLUMN", "help": "The column of actions."}),
    ("--type", {"metavar": "COLUMN", "help": "The column of types; all arms are of one type when absent."}),
    (
        "--group",
        {
            "metavar": "COLUMN",
            "help": "The column of groups (wards, districts): a block of the model for each type and group.",
        },
    ),
    (
        "--clusters",
        {"metavar": "auto|K", "help": "Or so many types of arms that move alike; who is of which is written, too."},
    ),
    (
        "--layout",
        {
            "type": click.Choice(["snapshots", "events"]),
            "help": "What a row is: a state at a chosen time, or a change. Snapshots, unless rows look like changes.",
        },
    ),
    ("--reward", {"metavar": "COLUMN", "help": "The column of rewards; their means are taken."}),
    (
        "--rewards",
        {"metavar": "FILE", "help": "Rewards by state, action and type, whichever of these columns the table has."},
    ),
    ("--reward-of", {"metavar": "W", "help": "Rewards in words: good=1,poor=0.3, or poor/replace=-2."}),
    ("--cost-of", {"metavar": "W", "help": "What actions cost, replace=9.75; taken from the rewards."}),
    ("--usage", {"metavar": "FILE", "help": "What actions use: a table with one column a resource."}),
    ("--usage-of", {"metavar": "W", "help": "The same in words: service=1,overhaul=2; 1 when nothing is said."}),
    ("--used", {"metavar": "COLUMN,...", "help": "The same from columns of the records, one a resource."}),
    ("--resources", {"metavar": "NAME,...", "help": "Names of the resources, in the order of the budget."}),
    (
        "--budget",
        {
            "metavar": "B",
            "help": "What there is at every step (4,4 or bays=4,...); the most that was used when absent.",
        },
    ),
    ("--discount", {"type": float, "metavar": "D", "help": "What a reward one step later is worth; 0.95 when absent."}),
    ("--criterion", {"metavar": "C", "help": "What rewards over time are worth: discounted, average or finite:T."}),
    ("--welfare", {"metavar": "W", "help": "How values are weighed, as in solve; written into the model."}),
    ("--over", {"metavar": "arms|groups", "help": "Whose values are weighed; every type is a group, or --group says."}),
    ("--idle", {"metavar": "NAME", "help": "The idle action; a name that no row has is what a missing action means."}),
    ("--step", {"metavar": "LENGTH", "help": "How long a step is: 1, '7 days', month; found when absent."}),
    (
        "--bins",
        {"metavar": "BINS", "help": "Cut measurements into states: 5000, or 0,5000,10000, or quantile:10."},
    ),
    ("--states", {"metavar": "NAME,...", "help": "The states in their order; rows may have no others."}),
    ("--actions", {"metavar": "NAME,...", "help": "The actions; rows may have no others."}),
    (
        "--gone-after",
        {
            "type": click.FloatRange(min=0),
            "metavar": "STEPS",
            "help": "Arms last seen more than so many steps before the end are not counted; all are when absent.",
        },
    ),
    (
        "--carry-action",
        {"is_flag": True, "help": "An action goes on through steps that were missed; else they are idle."},
    ),
    (
        "--prior",
        {
            "type": float,
            "metavar": "C",
            "help": "How many observations the other types are worth; found when absent, 0 for maximum likelihood.",
        },
    ),
    (
        "--unseen",
        {
            "metavar": "idle|forbid|FILE",
            "help": "What pairs do that were never seen: as the idle action, never, or what a table says.",
        },
    ),
    (
        "--only-worse",
        {"is_flag": True, "help": "Under the idle action a state never improves, in the order of states."},
    ),
    ("--mask", {"metavar": "FILE", "help": "Transitions that cannot be: state, next_state and perhaps action."}),
    ("--absorbing", {"metavar": "STATE,...", "help": "States that nobody leaves."}),
    (
        "--exact",
        {
            "metavar": "STATE,...",
            "help": "States of which every entry is a row, as a death is; irregular times.",
        },
    ),
)
"""The options of `fit`, which are arguments of the function of this name."""


def fitting(command: Command) -> Command:
    """What a log's columns are, and what a model needs beside it."""
    for name, told in reversed(FITTING):
        command = click.option(name, **told)(command)
    return command


READING = (
    *("--arm", "--time", "--state", "--action", "--type", "--group", "--reward"),
    *("--layout", "--idle", "--step", "--bins", "--states", "--actions"),
)
"""Those of them that say how a log is read."""


def reading(command: Command) -> Command:
    """What a log's columns are."""
    for name, told in reversed([option for option in FITTING if option[0] in READING]):
        command = click.option(name, **told)(command)
    return command


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
