"""`evenhand act`."""

import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.arguments import DASH, called, read_amounts, read_states, refuse_options
from evenhand.cli.options import RunOptions, backend_option, option, run_options
from evenhand.cli.refusals import OptionError
from evenhand.errors import InvalidInputError, NotApplicableError

if TYPE_CHECKING:
    from evenhand.planning.plan import Plan

WRITTEN, SPREADSHEETS = ("", ".csv", ".txt", ".json", ".parquet"), (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
"""Suffixes of files for actions, and of spreadsheets."""


@click.command("act")
@click.argument("plan")
@click.argument("states")
@option("--format", None, "Format of STATES; needed for -.", type=click.Choice(["csv", "parquet", "json"]))
@option("--budget", "B,B,...", "Budget of today; by default that of the plan.")
@option("--step", None, "The step, of a plan made for T steps.", default=0, type=click.IntRange(min=0))
@option("--part", None, "Part of a mixture; by default drawn by the seed.", type=click.IntRange(min=1))
@option("--out", "FILE.csv", "Also write the actions as a table.")
@backend_option("blocks of a large model in Parquet are computed")
@run_options()
def command(plan: str, states: str, run: RunOptions, format: Any, budget: str | None, **moment: Any) -> None:
    """Decide the present step, arm by arm, with a reason for each.

    PLAN is a file saved by `evenhand solve --out` or `evenhand train --out`. STATES is a table with the columns arm,
    type and state, in any order: CSV, Parquet, JSON, or - for standard input. By a plan for a model in Parquet
    (`evenhand indices --out`) STATES is Parquet in the order of the arms, and the actions go to --out.
    """
    from evenhand.display import counted
    from evenhand.model.io import is_stored, write_atomically
    from evenhand.planning.plan import load_plan

    amounts, out = None if budget is None else read_amounts(budget), run.out
    if is_stored(plan):
        if out is None:
            raise OptionError("--out", "a plan for a model in Parquet writes its actions to a file or folder .parquet")
        run.check_targets(folders=True)
        table_plan: Any = load_plan(plan)
        found = table_plan.act(states, out, run.seed, amounts, run.backend)
        run.show(found, f"{plan}, for {counted(found.num_arms, 'arm')} of {called(states)}")
        return
    refuse_options("for models in Parquet, with a file .parquet", {"--backend": run.backend})
    run.check_targets()
    _check_suffix(out)
    _check_order(plan, states)
    read = load_plan(plan)
    table = read_states(states, format, "STATES")
    try:
        decisions = read.act(table, run.seed, budget=amounts, **moment)
    except NotApplicableError as error:
        raise NotApplicableError(f"{error}. {_plan_again(read, states, amounts)}") from None
    if out:
        from evenhand.cli.console import table_bytes

        write_atomically(out, table_bytes(decisions.to_dict()["actions"], out))
    title = f"{plan}, for {counted(len(decisions.rows), 'arm')} of {called(states)}"
    if decisions.part is not None:
        from evenhand.planning.plan_summary import part_frequencies

        number = decisions.part.number
        title += f"; part {number} of the mixture ({part_frequencies(read)[number - 1]})"
    title += "" if decisions.step is None else f"; step {decisions.step}"
    run.show(decisions, title, [f"written to {out}"] if out else [])


def _check_order(plan: str, states: str) -> None:
    """Refuse arguments that stand in each other's places."""
    if states != DASH and zipfile.is_zipfile(states) and Path(plan).is_file() and not zipfile.is_zipfile(plan):
        turned = shlex.join(["evenhand", "act", states, plan])
        fault = f"PLAN and STATES are swapped: {states} is the saved plan, and {plan} is not"
        raise InvalidInputError(f"{fault}. Try: {turned}")


def _check_suffix(out: str | None) -> None:
    """Refuse a name that promises another format than is written."""
    if out is None or (suffix := Path(out).suffix.lower()) in WRITTEN:
        return
    others = "a spreadsheet opens a table in CSV" if suffix in SPREADSHEETS else "the ending of the name chooses"
    raise OptionError("--out", f"{out}: actions are written as .csv, .json or .parquet, and not as {suffix}; {others}")


def _plan_again(plan: "Plan", states: str, amounts: Any) -> str:
    """Return the command that makes a plan for the arms of a table and the budget."""
    from evenhand.model.labels import quantity

    asked = plan.about.get("asked")
    words = [str(word) for word in asked] if isinstance(asked, list) and asked else ["MODEL"]
    budget = plan.problem.budget if amounts is None else plan.problem.with_budget(amounts).budget
    more = []
    if budget.tolist() != plan.problem.budget.tolist():
        more = ["--budget", ",".join(str(quantity(amount)) for amount in budget.tolist())]
        words = _without_budget(words, plan.problem.resource_names)
    files = ["--initial", "STATES" if states == DASH else states, "--out", plan.source]
    return "Plan again: " + shlex.join(["evenhand", "solve", *words, *more, *files])


def _without_budget(words: Sequence[str], resources: Sequence[str]) -> list[str]:
    """Return the words of a command without its budget: `--budget`, or parameters of a built-in problem."""
    from evenhand.model.labels import as_key

    own = {as_key(name) for name in ("budget", *resources)}
    rest, others = iter(words), []
    for word in rest:
        value = [next(rest)] if word in ("--budget", "-p") else []
        if not (word == "--budget" or (value and as_key(value[0].partition("=")[0].strip()) in own)):
            others += [word, *value]
    return others
