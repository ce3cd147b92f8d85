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
    """Initial states of the arms."""
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
    """Welfare."""
    return click.option(
        "--welfare",
        metavar="W",
        help="Welfare: gini:half=0.75, gini:2, gini:0.5,0.3,0.2, utilitarian, maximin, maximin:0.01, "
        "leximin, nash, alpha:2, ...; by default the model's own, or gini:half=0.75, by which the worse-off half has "
        "75 % of the weight.",
    )(command)


def criterion_option(command: Command) -> Command:
    """Criterion."""
    return click.option(
        "--criterion",
        metavar="C",
        help="Criterion: discounted, average or finite:T; by default that of the model.",
    )(command)


def over_option(command: Command) -> Command:
    """Members of welfare."""
    return click.option(
        "--over",
        metavar="arms|groups",
        help="Members of welfare: every arm, or every group by its mean; by default as in the model.",
    )(command)


def on_option(command: Command) -> Command:
    """Backend of work by shards."""
    return click.option(
        "--on",
        metavar="PLACE",
        help="Of a model in Parquet: work by shards on local, local:N (N processes), ray or ray://HOST:PORT.",
    )(command)


def place_option(what: str) -> Callable[[Command], Command]:
    """Backend of independent tasks."""
    return click.option("--on", metavar="PLACE", help=f"Where {what}: local:N (N processes), ray or ray://HOST:PORT.")


def on_cells_option(what: str) -> Callable[[Command], Command]:
    """Backend of work by shards, and of cells if the model is in memory."""
    return click.option(
        "--on",
        metavar="PLACE",
        help="Where work runs: local, local:N (N processes), ray or ray://HOST:PORT. Of a model in Parquet by shards; "
        f"of any other, where {what}, several at a time.",
    )


def draws_option(command: Command) -> Command:
    """Number of draws of the posterior."""
    return click.option(
        "--draws",
        type=click.IntRange(min=1),
        metavar="N",
        help="Of a fitted model: also evaluate over N scenarios drawn from its posterior (200 is usual). "
        "--seconds of solve does not limit their time.",
    )(command)


def playing(command: Command) -> Command:
    """Options of simulation, for policies that cannot be evaluated exactly."""
    options = [
        click.option(
            "--episodes", default=1000, show_default=True, type=click.IntRange(min=1), help="Episodes to play."
        ),
        click.option(
            "--horizon",
            type=click.IntRange(min=1),
            help="Steps per episode; by default 300 discounted, 1000 for an average (the first quarter does not "
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
    details: dict[str, Any] = {"default": setting.default, "show_default": True, "help": setting.metadata["help"]}
    if setting.metadata["choices"]:
        details["type"] = click.Choice(setting.metadata["choices"])
    elif setting.type is int:
        details["type"] = click.IntRange(min=0 if setting.name == "seed" else 1)
    details |= _WRITTEN.get(setting.name, {})
    return click.option(f"--{name}", setting.name, **details)


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
    ("--type", {"metavar": "COLUMN", "help": "The column of types; by default all arms are of one type."}),
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
            "help": "Rows are states at chosen times, or changes; snapshots by default.",
        },
    ),
    ("--reward", {"metavar": "COLUMN", "help": "The column of rewards; their means are taken."}),
    (
        "--rewards",
        {"metavar": "FILE|W", "help": "A table of rewards by state, action and type; or good=1,poor=0,poor/mend=-2."},
    ),
    (
        "--usage",
        {"metavar": "FILE|W", "help": "A table with one column per resource; or overhaul=2, overhaul/bays=2."},
    ),
    ("--used", {"metavar": "COLUMN,...", "help": "Columns of amounts used, one per resource."}),
    ("--resources", {"metavar": "NAME,...", "help": "Names of the resources, in the order of the budget."}),
    (
        "--budget",
        {
            "metavar": "B",
            "help": "Budget per step (4,4 or bays=4,...); by default the most that was used.",
        },
    ),
    ("--discount", {"type": float, "metavar": "D", "help": "Discount factor; 0.95 by default."}),
    ("--criterion", {"metavar": "C", "help": "Criterion: discounted, average or finite:T."}),
    ("--welfare", {"metavar": "W", "help": "Welfare, as in solve; written into the model."}),
    (
        "--over",
        {"metavar": "arms|groups", "help": "Members of welfare; every type is a group by default, or see --group."},
    ),
    ("--idle", {"metavar": "NAME", "help": "The idle action; a name without rows stands for a missing action."}),
    ("--step", {"metavar": "LENGTH", "help": "Length of a step: 1, '7 days', month; by default the most common."}),
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
            "help": "Arms last seen more than so many steps before the end are not counted; by default all are.",
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
            "help": "Observations that the other types count for; estimated by default, 0 for maximum likelihood.",
        },
    ),
    (
        "--unseen",
        {
            "metavar": "idle|forbid|FILE",
            "help": "Transitions of unobserved pairs: as the idle action, none, or those of a table.",
        },
    ),
    (
        "--only-worse",
        {"is_flag": True, "help": "Under the idle action a state never improves, in the order of states."},
    ),
    ("--impossible", {"metavar": "FILE", "help": "Impossible transitions: state, next_state and optionally action."}),
    ("--absorbing", {"metavar": "STATE,...", "help": "Absorbing states."}),
    (
        "--exact",
        {
            "metavar": "STATE,...",
            "help": "States of which every entry is a row, as a death is; irregular times.",
        },
    ),
)
"""Options of `fit`: arguments of `evenhand.fit` and fields of its `LogOptions` and `ModelOptions`."""


def fitting(command: Command) -> Command:
    """Options of `fit`."""
    for name, details in reversed(FITTING):
        command = click.option(name, **details)(command)
    return command


READING = (
    *("--arm", "--time", "--state", "--action", "--type", "--group", "--reward"),
    *("--layout", "--idle", "--step", "--bins", "--states", "--actions"),
)
"""Options of reading a log."""


def reading(command: Command) -> Command:
    """Options of the columns of a log."""
    for name, details in reversed([option for option in FITTING if option[0] in READING]):
        command = click.option(name, **details)(command)
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
