"""`evenhand backtest`."""

from typing import Any

import click

from evenhand.cli.arguments import DASH, ModelSource, read_names
from evenhand.cli.options import RunOptions, log_columns, model_options, option, run_options, welfare_option
from evenhand.cli.refusals import OptionError


@click.command("backtest")
@model_options("initial", "criterion", "over")
@click.argument("log")
@log_columns
@option("--policies", "A,B,...", "What to set beside the records: names, or files of saved plans.")
@welfare_option
@option("--criterion", "C", "Criterion for --policies; by default over the longest record of an arm.")
@option("--over", "arms|groups", "Members of welfare; by default as in the model.")
@option("--level", "P", "The probability of the intervals.", default=0.95, type=float)
@option("--episodes", None, "Episodes to play of --policies.", default=1000, type=click.IntRange(min=1))
@run_options()
def command(source: ModelSource, run: RunOptions, log: str, policies: str | None, **options: Any) -> None:
    """Play the policy of the records in LOG in the MODEL that was fitted to them, and compare it with the records.

    The policy is the shares of actions by type and state, the same at all times. Arms follow it from where they were
    first seen, for as long as they were. Differences show where the model contradicts them.
    """
    if log == DASH:
        raise OptionError("LOG", "expected a file; standard input is for MODEL here")
    names = None if policies is None else read_names(policies)
    problem = source.read()
    from evenhand.fitting.log import read_log, with_layout  # after what may be refused at once
    from evenhand.planning.backtest import backtest

    columns = {name: options.pop(name) for name in ("arm", "time", "state", "action", "type")}
    names_of_log = ("group", "reward", "idle", "step", "bins", "states", "actions", "layout", "stop", "to", "ties")
    log_options = {name: options.pop(name) for name in names_of_log}
    layout: Any = log_options["layout"] or ("snapshots" if log_options["bins"] else None)
    with run.progress() as tell:
        records = with_layout(read_log(log, columns, log_options, tell), layout)
        tell("following the arms", 1.0)
        settings = {"num_episodes": options.pop("episodes"), "rng": run.seed, "welfare": run.welfare, **options}
        settings |= {"criterion": source.criterion, "over": source.over}
        found = backtest(problem, records, names, **settings)
    run.show(found, f"{log} in {source.title}: the behaviour policy, beside the records")
