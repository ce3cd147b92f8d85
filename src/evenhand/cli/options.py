"""Options that commands share. Related options reach a command as one object."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.arguments import ModelSource, check_target
from evenhand.learning.settings import CHOICES, HELPS, TrainingSettings

if TYPE_CHECKING:
    from evenhand.programme.vocabulary import Vocabulary
    from evenhand.report.summary import Summary
    from evenhand.typing import Progress

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def option(names: str, metavar: str | None, text: str, **details: Any) -> Decorator:
    """Return an option: its names, such as `-p parameters`, the name of its value, and its help with the default."""
    details.setdefault("show_default", details.get("default", "") != "")
    return click.option(*names.split(), metavar=metavar, help=text, **details)


def add_options(options: Sequence[Decorator], command: Command) -> Command:
    """Add options to a command, in the order of the help."""
    for each in reversed(options):
        command = each(command)
    return command


def gathered(kind: type, argument: str, options: Sequence[Decorator]) -> Decorator:
    """Return a decorator that adds options to a command, which receives their values as one object.

    Args:
        kind: dataclass with a field per option; a field without an option has a default.
        argument: parameter of the command.
        options: the options, in the order of the help.
    """
    names = [field.name for field in fields(kind)]

    def add(command: Command) -> Command:
        @wraps(command)
        def called(**values: Any) -> Any:
            own = {name: values.pop(name) for name in names if name in values}
            return command(**values, **{argument: kind(**own)})

        return add_options(options, called)

    return add


@dataclass(frozen=True)
class RunOptions:
    """Options that several commands have; None or a default for those that a command lacks."""

    as_json: bool
    """Print one JSON object instead of text."""

    quiet: bool
    """Show no progress."""

    seed: int = 0
    """Random seed."""

    welfare: str | None = None
    """Welfare; by default the model's."""

    draws: int | None = None
    """Number of scenarios drawn from the posterior."""

    backend: str | None = None
    """Where work runs."""

    out: str | None = None
    """File or folder of the result."""

    report: str | None = None
    """HTML file."""

    vocabulary: "Vocabulary | None" = None
    """Words of the programme that a command is about; texts and summaries use them, JSON does not."""

    def __post_init__(self) -> None:
        if self.backend is not None:
            from evenhand.parallel import parse_backend

            parse_backend(self.backend)

    @contextmanager
    def progress(self) -> "Iterator[Progress]":
        """Show progress within this context; it yields the callback."""
        from evenhand.cli.progress import progress

        with progress(self.quiet) as tell:
            yield tell or (lambda what, share: None)

    def check_targets(self, folders: bool = False) -> None:
        """Refuse, before any work, files that could not be written; `folders` as in `check_target`."""
        check_target(self.out, "--out", folders)
        check_target(self.report, "--report")

    def show(self, found: Any, title: str | None = None, lines: Sequence[str] = (), **more: Any) -> None:
        """Print a result, as JSON or as its summary.

        Args:
            found: the result.
            title: title in place of the summary's own.
            lines: lines of text that follow the summary.
            **more: further entries of the JSON object.
        """
        if self.as_json:
            self.say(found.to_dict() | more, "")
            return
        from evenhand.report.summary import summarise

        summary = summarise(found)
        self.say({}, summary if title is None else replace(summary, title=title, aside=""), lines)

    def say(self, result: dict[str, Any], text: "str | Summary", lines: Sequence[str] = ()) -> None:
        """Print the JSON form of a result; or its text or summary, further lines, and the name of the report."""
        from evenhand.cli.console import print_json, print_summary, say

        if self.as_json:
            print_json(result)
            return
        words = self.vocabulary
        if isinstance(text, str):
            click.echo(text if words is None else words.say(text))
        else:
            print_summary(text if words is None else words.summary(text))
        lines = lines if words is None else [words.say(line) for line in lines]
        for line in [*lines, f"report: {self.report}"] if self.report else lines:
            say(line)

    def write_report(self, summary: "Summary", words: Sequence[str] | None = None) -> None:
        """Write a page that states the command line, `words` or as it was typed."""
        from evenhand.report import write_page

        if self.report is not None:
            summary = summary if self.vocabulary is None else self.vocabulary.summary(summary)
            write_page(summary, self.report, f"evenhand {shlex.join(sys.argv[1:] if words is None else words)}")


def run_options(seeded: bool = True) -> Decorator:
    """--json, --quiet, and --seed if there is randomness; with other options of `RunOptions` as the argument `run`."""
    seed = option("--seed", None, "Random seed.", default=0, type=click.IntRange(min=0))
    output = [
        option("--json as_json", None, "One JSON object on standard output.", is_flag=True),
        option("--quiet", None, "No progress.", is_flag=True),
    ]
    return gathered(RunOptions, "run", [*([seed] if seeded else []), *output])


def model_options(*without: str, several: bool = False) -> Decorator:
    """MODEL and the options that change it, as the argument `source`.

    Args:
        *without: fields of `ModelSource` that the command has no option for.
        several: whether the command takes several budgets.
    """
    budget = "Replace the budget: one number per resource (4,4), or some by name (bays=4)."
    budget += " Repeated, it gives a table with the gain of each step." if several else ""
    spend = "Use exactly the budget at every step (all), or at most; one rule, or one per resource (all,at most)."
    formats = click.Choice(["toml", "json", "npz"])
    initial = "A table with the columns arm, type and state, as for act: start from where these arms are."
    criterion = "Criterion: discounted, average or finite:T; by default that of the model."
    over = "Members of welfare: every arm, or every group by its mean; by default as in the model."
    file = "Format of MODEL, whatever its name; needed if it is -, standard input."
    known = {
        "parameters": option(
            "-p parameters", "KEY=VALUE", "A parameter of a built-in problem; repeatable.", multiple=True
        ),
        "format": option("--format", None, file, type=formats),
        "budgets": option("--budget budgets", "B", budget, multiple=True),
        "spend": option("--spend", "all|at most", spend),
        "initial": option("--initial", "STATES", initial),
        "criterion": option("--criterion", "C", criterion),
        "over": option("--over", "arms|groups", over),
    }
    options = [option for name, option in known.items() if name not in without]
    return gathered(ModelSource, "source", [click.argument("model"), *options])


welfare_option = option(
    "--welfare",
    "W",
    "Welfare: gini:half=0.75, gini:2, gini:0.5,0.3,0.2, utilitarian, maximin, maximin:0.01, leximin, nash, "
    "alpha:2, ...; by default the model's own, or gini:half=0.75, by which the worse-off half has 75 % of the weight.",
)

draws_option = option(
    "--draws",
    "N",
    "Of a fitted model: also evaluate over N scenarios drawn from its posterior (200 is usual). "
    "Half of --seconds of solve is for further plans to compare with.",
    type=click.IntRange(min=1),
)

report_option = option("--report", "FILE.html", "Also write it as a page with figures.")


def backend_option(what: str) -> Decorator:
    """Return the option of the place where work runs; `RunOptions` checks it before the command begins."""
    text = f"Where {what}: threads:N, processes:N, ray or ray://HOST:PORT; results do not depend on it."
    return option("--backend", "BACKEND", text)


@dataclass(frozen=True)
class SimulationOptions:
    """Options of simulation, for policies that cannot be evaluated exactly."""

    episodes: int
    """Number of episodes."""

    horizon: int | None
    """Steps per episode; None for the default of the criterion."""

    monte_carlo: bool
    """Simulate even if an exact value is possible."""

    def arguments(self, seed: int) -> dict[str, Any]:
        """Return the arguments of `evaluate`."""
        method = "monte-carlo" if self.monte_carlo else "auto"
        return {"num_episodes": self.episodes, "horizon": self.horizon, "rng": seed, "method": method}


_HORIZON = "Steps per episode; by default 300 discounted, 1000 for an average (the first quarter does not count), "
_HORIZON += "T for finite:T."
_SIMULATION = (
    option("--episodes", None, "Episodes to play.", default=1000, type=click.IntRange(min=1)),
    option("--horizon", None, _HORIZON, type=click.IntRange(min=1)),
    option("--monte-carlo", None, "Simulate even if an exact value is possible.", is_flag=True),
)
simulation_options = gathered(SimulationOptions, "simulation", _SIMULATION)


def training_settings(command: Command) -> Command:
    """Add an option for each setting of `train`, as it is declared there."""
    return add_options([_option_of(setting) for setting in fields(TrainingSettings)], command)


_WRITTEN: dict[str, dict[str, Any]] = {
    "num_arms": {"metavar": "LOW:HIGH"},
    "budget": {"metavar": "B|LOW:HIGH", "multiple": True},  # ranges once for each resource
    "hidden": {"metavar": "N,N", "default": ",".join(map(str, TrainingSettings.hidden))},
}
"""Form of settings that are neither a word nor a number; `commands.train` reads them."""


def _option_of(setting: Field[Any]) -> Decorator:
    """Return the option of one setting."""
    name = {"architecture": "network"}.get(setting.name, setting.name).replace("_", "-")
    details: dict[str, Any] = {"default": setting.default, "show_default": True, "help": HELPS[setting.name]}
    if setting.name in CHOICES:
        details["type"] = click.Choice(CHOICES[setting.name])
    elif setting.type is int:
        details["type"] = click.IntRange(min=0 if setting.name == "seed" else 1)
    details |= _WRITTEN.get(setting.name, {})
    return click.option(f"--{name}", setting.name, **details)


_TIMES = "The column of times: numbers, dates, moments, months (2026-05) or weeks (2026-W05)."
_GONE = "Arms last seen more than so many steps before the end are not counted: 10 by default, inf for all."
_PRIOR = "Observations that the other types count for; estimated by default, 0 for maximum likelihood."
_LAYOUTS = click.Choice(["snapshots", "events", "intervals"])

_LOG = (
    option("--arm", "COLUMN", "The column that names the arm.", required=True),
    option("--time", "COLUMN", _TIMES, required=True),
    option("--state", "COLUMN", "The column of states.", required=True),
    option("--action", "COLUMN", "The column of actions; without it, the model is the natural history of the arms."),
    option("--type", "COLUMN", "The column of types; by default all arms are of one type."),
    option("--group", "COLUMN", "The column of groups (wards, districts): a block of the model per type and group."),
    option("--layout", None, "Rows are states at chosen times (default), changes, or stays.", type=_LAYOUTS),
    option("--stop", "COLUMN", "The column of ends of stays, which --time starts."),
    option("--to", "COLUMN", "The column of states entered at the ends of stays."),
    option(
        "--ties",
        None,
        "Rows of one arm at one time: which counts, or shift.",
        type=click.Choice(["last", "first", "shift"]),
    ),
    option("--reward", "COLUMN", "The column of rewards; their means are taken."),
    option("--idle", "NAME", "The idle action; if given, it also stands for missing actions."),
    option("--step", "LENGTH", "Length of a step: 1, '7 days', month; by default the most common."),
    option("--bins", "BINS", "Cut measurements into states: 5000, or 0,5000,10000, or quantile:10."),
    option("--states", "NAME,...", "The states in their order; rows may have no others."),
    option("--actions", "NAME,...", "The actions; rows may have no others."),
)

_FIT = (
    option("--clusters", "auto|K", "Find so many types of arms that move alike; memberships are written, too."),
    option("--rewards", "FILE|W", "A table of rewards by state, action and type; or good=1,poor=0,poor/repair=-2."),
    option("--usage", "FILE|W", "A table with one column per resource; or overhaul=2, overhaul/bays=2."),
    option("--used", "COLUMN,...", "Columns of amounts used, one per resource."),
    option("--resources", "NAME,...", "Names of the resources, in the order of the budget."),
    option("--budget", "B", "Budget per step (4,4 or bays=4,...); by default the most that was used."),
    option("--discount", "D", "Discount factor; 0.95 by default.", type=float),
    option("--criterion", "C", "Criterion: discounted, average or finite:T."),
    option("--welfare", "W", "Welfare, as in solve; written into the model."),
    option("--over", "arms|groups", "Members of welfare; every type is a group by default, or see --group."),
    option("--gone-after", "STEPS", _GONE, type=click.FloatRange(min=0)),
    option("--carry-action", None, "An action continues through missed steps; by default they are idle.", is_flag=True),
    option("--prior", "C", _PRIOR, type=float),
    option("--unseen", "idle|forbid|FILE", "Transitions of unobserved pairs: of the idle action, none, or a table's."),
    option("--only-worse", None, "Under the idle action a state never improves, in their order.", is_flag=True),
    option("--allowed", "neighbours|FILE", "The only possible transitions beside staying."),
    option("--impossible", "FILE", "Impossible transitions: state, next_state and optionally action."),
    option("--absorbing", "STATE,...", "Absorbing states."),
    option("--exact", "STATE,...", "States of which every entry is a row, as a death is; irregular times."),
    option("--covariates", "COLUMN,...", "Columns that rates depend on, in continuous time; each value is a type."),
    option("--time-cuts", "T,...", "Times at which rates change; the model has those of the last period."),
)

log_columns = partial(add_options, _LOG)
"""Decorator that adds the options of reading a log."""

fit_options = partial(add_options, [*_LOG, *_FIT])
"""Decorator that adds the options of `fit`: arguments of `evenhand.fit`, fields of `LogOptions` and `ModelOptions`."""
