"""`evenhand replay`."""

from typing import TYPE_CHECKING, Any

import click
import numpy as np

from evenhand.cli.console import number, percent, print_facts, print_json, print_table
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, read_names, read_problem
from evenhand.cli.refusals import OptionError
from evenhand.cli.standard_input import DASH
from evenhand.model.files import Format

if TYPE_CHECKING:
    from evenhand.fitting.layout import Layout
    from evenhand.planning.courses import Forecast
    from evenhand.planning.replay import Replay


def run(
    model: str,
    log: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    policies: str | None,
    welfare: str | None,
    criterion: str | None,
    over: str | None,
    level: float,
    episodes: int,
    seed: int,
    as_json: bool,
    quiet: bool,
    layout: "Layout | None",
    **columns: Any,
) -> None:
    """Replay records in a model."""
    if log == DASH:
        raise OptionError("LOG", "expected a file; standard input is for MODEL here")
    names = None if policies is None else read_names(policies)
    problem = read_problem(model, parameters, format, budgets)
    from evenhand.fitting.layout import with_layout  # after what may be refused at once
    from evenhand.fitting.records import read_log
    from evenhand.planning.replay import replay

    with progress(quiet) as tell:
        reading = "snapshots" if layout is None and columns["bins"] else layout
        records = with_layout(read_log(log, **columns, progress=tell), reading)
        if tell is not None:
            tell("following the arms", 1.0)
        found = replay(
            problem,
            records,
            names,
            welfare=welfare,
            criterion=criterion,
            over=over,
            level=level,
            num_episodes=episodes,
            rng=seed,
        )
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found, f"{log} in {called(model)}")


def _show(found: "Replay", title: str) -> None:
    print_facts(f"{title}: the policy of the records, and what came", _facts(found))
    _show_types(found)
    _show_worth(found)


def _facts(found: "Replay") -> list[tuple[str, str]]:
    borrowed = int(found.shares.borrowed.sum())
    told = f"shares of actions by type and state, the same at all times, from {found.shares.numbers.sum():,} decisions"
    if borrowed:
        told += f"; a type was never seen in {borrowed} of its states, and takes the shares of the others there"
    between = f"of {percent(found.level)}"
    facts = [
        ("policy", told),
        ("steps", f"{len(found.steps):,}, with {found.present.min():,} to {found.present.max():,} arms"),
        *((f"{action} in a step", _within(found.served, place)) for place, action in enumerate(found.actions[1:])),
        ("reward in a step", _share(found.rewards.inside)),
        ("arms in a state", _share(found.occupied.inside)),
        ("intervals", f"{between}, of chance alone: the shares and the model were fitted to these records"),
    ]
    for place, (name, amount) in enumerate(found.problem.named_budget.items()):
        used = found.used[:, place]
        over = int(found.over_budget[place])
        told = f"{used.mean():.3g} a step of {amount:.10g}, at most {used.max():.10g}"
        facts.append((f"used of {name}", f"{told}; {over} of {len(used)} steps used more than the budget"))
    return facts


def _share(inside: Any) -> str:
    return f"{percent(float(inside.mean()))} of what came lies in its interval"


def _within(found: "Forecast", place: int) -> str:
    inside = found.inside[:, place]
    return f"{int(inside.sum())} of {len(inside)} steps lie in their intervals"


def _show_types(found: "Replay") -> None:
    columns = [("type", "left")]
    for action in found.actions[1:]:
        columns += [(action, "right"), ("expected", "right"), ("interval", "right")]
    columns += [("reward", "right"), ("expected", "right"), ("interval", "right")]
    rows = []
    for t, name in enumerate(found.types):
        row = [name]
        for place in range(len(found.actions) - 1):
            row += _cells(found.totals, (t, place), 1)
        rows.append([*row, *_cells(found.total_rewards, (t,), 4)])
    print_table("how often each action was taken, and the mean reward of a step", columns, rows)


def _cells(found: "Forecast", place: tuple[int, ...], digits: int) -> list[str]:
    mean, low, high = (float(getattr(found, name)[place]) for name in ("mean", "lower", "upper"))
    seen = float(found.seen[place])
    shown = f"{seen:.0f}" if digits == 1 else number(seen, digits)
    mark = "" if bool(np.asarray(found.inside)[place]) else " *"
    return [shown + mark, number(mean, digits), f"{number(low, digits)} to {number(high, digits)}"]


def _show_worth(found: "Replay") -> None:
    columns = [("policy", "left"), ("welfare", "right"), ("±", "right"), ("budget used", "right")]
    rows = []
    for one in found.worth:
        used = ", ".join(percent(share) for share in one.budget_used.values())
        error = number(one.welfare_stderr) if one.welfare_stderr else "exact"
        rows.append([one.policy, number(one.welfare), error, used])
    print_table(f"what it is worth in the model: {found.criterion}, from where all arms were first seen", columns, rows)
    first = found.worth[0]
    columns = [("group" if first.groups else "type", "left"), *((one.policy, "right") for one in found.worth)]
    names = list(first.groups or first.values)
    values = [[number((one.groups or one.values)[name]) for one in found.worth] for name in names]
    print_table("values", columns, [[name, *row] for name, row in zip(names, values, strict=True)])
    if len(found.worth) > 1:
        click.echo("the records keep no budget in the model; other policies do")
