"""`evenhand act`."""

import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from evenhand.cli.console import print_json, print_summary, table_bytes
from evenhand.cli.large_models import refuse_in_memory, run_act
from evenhand.cli.reading import called, check_target, read_amounts
from evenhand.cli.refusals import OptionError
from evenhand.cli.standard_input import DASH, standard_input
from evenhand.display import counted
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.model.io import is_stored, write_atomically
from evenhand.model.io.text_table import FORMATS, TableFormat, read_table
from evenhand.model.labels import as_key, quantity
from evenhand.planning.plan import Decisions, Plan, load_plan
from evenhand.planning.plan_summary import part_frequencies

WRITTEN, SPREADSHEETS = ("", ".csv", ".txt", ".json", ".parquet"), (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
"""How the names of files for actions may end, and of what is taken for a table of them."""

COLUMNS = ("arm", "type", "state", "action", "reason")


def run(
    plan: str,
    states: str,
    format: TableFormat | None,
    budget: str | None,
    step: int,
    part: int | None,
    out: str | None,
    backend: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say what to do now, arm by arm."""
    if is_stored(plan):
        run_act(plan, states, budget, out, backend, seed, as_json)
        return
    refuse_in_memory(backend=backend)
    check_target(out, "--out")
    _check_suffix(out)
    _check_order(plan, states)
    read = load_plan(plan)
    table = read_table(standard_input("STATES", format, FORMATS) if states == DASH else states, format)
    amounts = None if budget is None else read_amounts(budget)
    try:
        decisions = read.act(table, seed, budget=amounts, step=step, part=part)
    except NotApplicableError as error:
        raise NotApplicableError(f"{error}. {_plan_again(read, states, amounts)}") from None
    if out:
        rows = [{column: getattr(row, column) for column in COLUMNS} for row in decisions.rows]
        write_atomically(out, table_bytes(rows, out))
    if as_json:
        print_json(decisions.to_dict())
        return
    from evenhand.report.results import summarise

    title = f"{plan}, for {counted(len(decisions.rows), 'arm')} of {called(states)}{_drawn(read, decisions)}"
    print_summary(summarise(decisions), title + ("" if decisions.step is None else f"; step {decisions.step}"))
    if out:
        click.echo(f"written to {out}")


def _check_order(plan: str, states: str) -> None:
    """Refuse arguments that stand in each other's places."""
    if states != DASH and zipfile.is_zipfile(states) and Path(plan).is_file() and not zipfile.is_zipfile(plan):
        turned = shlex.join(["evenhand", "act", states, plan])
        raise InvalidInputError(
            f"PLAN and STATES are swapped: {states} is the saved plan, and {plan} is not. Try: {turned}"
        )


def _check_suffix(out: str | None) -> None:
    """Refuse a name that promises another format than is written."""
    if out is None or (suffix := Path(out).suffix.lower()) in WRITTEN:
        return
    others = "a spreadsheet opens a table in CSV" if suffix in SPREADSHEETS else "the name says which"
    raise OptionError("--out", f"{out}: actions are written as .csv, .json or .parquet, and not as {suffix}; {others}")


def _drawn(plan: Plan, decisions: Decisions) -> str:
    """Which part of a mixture acts, and how often it does; in the words of `show`."""
    if decisions.part is None:
        return ""
    return f"; part {decisions.part.number} of the mixture ({part_frequencies(plan)[decisions.part.number - 1]})"


def _plan_again(plan: Plan, states: str, amounts: Any) -> str:
    """Command that makes a plan for the arms of a table and the budget."""
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
    """Words of a command without its budget: `--budget`, or parameters of a built-in problem."""
    own = {as_key(name) for name in ("budget", *resources)}
    pairs = [(word, words[at + 1] if at + 1 < len(words) else "") for at, word in enumerate(words)]
    drop = [
        word == "--budget" or (word == "-p" and as_key(value.partition("=")[0].strip()) in own) for word, value in pairs
    ]
    return [word for at, word in enumerate(words) if not drop[at] and not (at and drop[at - 1])]
