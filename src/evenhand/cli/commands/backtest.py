"""`evenhand backtest`."""

from typing import TYPE_CHECKING, Any

from evenhand.cli.console import print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, read_names, read_problem
from evenhand.cli.refusals import OptionError
from evenhand.cli.standard_input import DASH
from evenhand.model.io import Format

if TYPE_CHECKING:
    from evenhand.fitting.layout import Layout


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
    """Backtest records in a model."""
    if log == DASH:
        raise OptionError("LOG", "expected a file; standard input is for MODEL here")
    names = None if policies is None else read_names(policies)
    problem = read_problem(model, parameters, format, budgets)
    from evenhand.fitting.layout import with_layout  # after what may be refused at once
    from evenhand.fitting.log import read_log
    from evenhand.planning.backtest import backtest

    with progress(quiet) as tell:
        reading = "snapshots" if layout is None and columns["bins"] else layout
        options = {name: columns.pop(name) for name in ("group", "reward", "idle", "step", "bins", "states", "actions")}
        records = with_layout(read_log(log, **columns, records=options, progress=tell), reading)
        if tell is not None:
            tell("following the arms", 1.0)
        found = backtest(
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
        print_json(found.to_dict())
        return
    from evenhand.report.results import summarise

    print_summary(summarise(found), f"{log} in {called(model)}: the behaviour policy, beside the records")
