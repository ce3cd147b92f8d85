"""`evenhand act`."""

import csv
import io
import json
import shlex
import zipfile
from pathlib import Path

import click

from evenhand.cli.console import print_json, print_table
from evenhand.cli.opened import refuse_in_memory, run_act
from evenhand.cli.reading import called, check_target, read_amounts
from evenhand.cli.standard_input import DASH, standard_input
from evenhand.display import counted
from evenhand.errors import InvalidInput, MissingExtra
from evenhand.model.composite import Mixture
from evenhand.model.files import is_stored, write_atomically
from evenhand.model.whereabouts import FORMATS, TableFormat, read_table
from evenhand.planning.plans import Decisions, Plan, load_plan
from evenhand.planning.showing import often_each

SHOWN_ARMS = 200
"""Arms that are listed one by one; --json and --out have all of them."""

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
    decisions = read.act(table, seed, budget=amounts, step=step, part=part)
    if out:
        write_atomically(out, _as_file(decisions, out))
    if as_json:
        print_json(decisions.as_dict())
        return
    _show(decisions, f"{plan}, for {counted(len(decisions.rows), 'arm')} of {called(states)}{_drawn(read, decisions)}")
    if out:
        click.echo(f"written to {out}")


def _check_order(plan: str, states: str) -> None:
    """Refuse arguments that stand in each other's places."""
    if states != DASH and zipfile.is_zipfile(states) and Path(plan).is_file() and not zipfile.is_zipfile(plan):
        turned = shlex.join(["evenhand", "act", states, plan])
        raise InvalidInput(f"PLAN and STATES are swapped: {states} is the saved plan, and {plan} is not. Try: {turned}")


def _check_suffix(out: str | None) -> None:
    """Refuse a name that promises another format than is written."""
    if out is None or (suffix := Path(out).suffix.lower()) in WRITTEN:
        return
    others = "a spreadsheet opens a table in CSV" if suffix in SPREADSHEETS else "the name says which"
    raise InvalidInput(f"--out: {out}: actions are written as .csv, .json or .parquet, and not as {suffix}; {others}")


def _as_file(decisions: "Decisions", name: str) -> bytes:
    """The actions as a table, in the format of the name: Parquet, JSON, else CSV."""
    rows = [{column: getattr(row, column) for column in COLUMNS} for row in decisions.rows]
    suffix = Path(name).suffix.lower()
    if suffix == ".parquet":
        try:
            import polars
        except ImportError:
            raise MissingExtra("writing Parquet", "data") from None
        body = io.BytesIO()
        polars.DataFrame(rows).write_parquet(body)
        return body.getvalue()
    if suffix == ".json":
        return json.dumps(rows, indent=1, ensure_ascii=False).encode()
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _printable(text: str) -> str:
    """Without what would move the cursor: names come from a table that may be anybody's."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _drawn(plan: Plan, decisions: Decisions) -> str:
    """Which part of a mixture acts, and how often it does; in the words of `show`."""
    if decisions.part is None or not isinstance(plan.policy, Mixture):
        return ""
    what = "starts" if plan.policy.rotate is None else "times"
    every = often_each([float(plan.policy.shares[number]) for number in plan.by_size], what)
    return f"; part {decisions.part.number} of the mixture ({every[decisions.part.number - 1]})"


def _show(decisions: Decisions, title: str) -> None:
    if decisions.step is not None:
        title += f"; step {decisions.step}"
    rows = decisions.by_priority
    shown = [[_printable(getattr(row, column)) for column in COLUMNS] for row in rows[:SHOWN_ARMS]]
    print_table(title, [(column, "left") for column in COLUMNS], shown)
    if len(rows) > SHOWN_ARMS:
        click.echo(f"... {len(rows) - SHOWN_ARMS} more; --json and --out have all of them\n")
    used = ", ".join(f"{name} {amount:g} of {decisions.budget[name]:g}" for name, amount in decisions.used.items())
    click.echo(f"used: {used}")
    if decisions.note:
        click.echo(f"note: {decisions.note}")
