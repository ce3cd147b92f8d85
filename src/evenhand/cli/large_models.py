"""Large models in Parquet on the command line: opened instead of read, and treated block by block."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_amounts, refuse_several
from evenhand.cli.refusals import OptionError
from evenhand.display import counted
from evenhand.model.io import is_stored
from evenhand.parallel import parse_backend

if TYPE_CHECKING:
    from evenhand.model.parquet import StoredArms


def opened_model(
    model: str,
    backend: str | None,
    budgets: Sequence[str] = (),
    criterion: str | None = None,
    over: Any = None,
    initial: str | None = None,
    table: str | None = None,
) -> "StoredArms | None":
    """The opened model if MODEL is in Parquet and is treated block by block; None if it is read into memory.

    Args:
        model: MODEL.
        backend: the option --backend.
        budgets: the options --budget.
        criterion: the option --criterion.
        over: the option --over.
        initial: the option --initial.
        table: a file for results per row, which are those of blocks.
    """
    if backend is not None:
        parse_backend(backend)
    wanted = table is not None and (Path(table).suffix.lower() == ".parquet" or Path(table).is_dir())
    if not is_stored(model):
        return None
    from evenhand.model.parquet import IN_MEMORY_ROWS, open_arms

    arms = open_arms(model, 0 if wanted else IN_MEMORY_ROWS)
    if not arms.is_large:
        return None
    refuse_several(budgets)
    if initial is not None:
        raise OptionError("--initial", "for a large model in Parquet write the column initial instead")
    arms = arms.with_criterion(criterion, over)
    return arms.with_budget(read_amounts(budgets[0])) if budgets else arms


def refuse_in_memory(**given: str | None) -> None:
    """Refuse options that apply to models in Parquet only."""
    for name, value in given.items():
        if value is not None:
            raise OptionError(f"--{name}", "for models in Parquet, with a file .parquet")


def check_table(path: str | None, option: str) -> None:
    """Refuse a table that cannot be written, before any work."""
    if path is None or not Path(path).is_dir():
        check_target(path, option)


def _title(arms: "StoredArms") -> str:
    criterion = "" if arms.criterion.name == "discounted" else f", criterion {arms.criterion.name}"
    return criterion + (", over groups" if arms.over == "groups" else "")


def _show(found: object, title: str) -> None:
    from evenhand.report.results import summarise  # it imports all results

    print_summary(summarise(found), title)


def run_check(arms: "StoredArms", backend: str | None, as_json: bool, quiet: bool) -> None:
    """Check a model."""
    with progress(quiet) as tell:
        from evenhand.planning.stored_models import check_stored

        found = check_stored(arms, tell, backend)
    if as_json:
        print_json(found.to_dict())
        return
    _show(found, f"{arms.path}{_title(arms)}")


def run_indices(arms: "StoredArms", backend: str | None, out: str | None, as_json: bool, quiet: bool) -> None:
    """Compute Whittle indices."""
    check_table(out, "--out")
    with progress(quiet) as tell:
        from evenhand.planning.stored_models import save_indices
        from evenhand.policies.index import indices_by_row

        found = indices_by_row(arms, backend, tell)
        if out is not None:
            save_indices(found, out)
    if as_json:
        print_json(found.to_dict() | {"out": out})
        return
    _show(found, f"Whittle indices of {called(arms.path)}")
    click.echo(f"written to {out}" if out else "--out FILE.parquet writes them, row by row")


def run_evaluate(
    arms: "StoredArms",
    policy: str,
    welfare: str | None,
    episodes: int,
    horizon: int | None,
    seed: int,
    backend: str | None,
    values: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Simulate a policy."""
    check_table(values, "--values")
    with progress(quiet) as tell:
        from evenhand.planning.stored_models import evaluate_stored

        found = evaluate_stored(arms, policy, welfare, episodes, horizon, seed, tell, backend, values)
    if as_json:
        more = {"arms": arms.num_arms, "values": values, **({"groups": found.groups} if found.groups else {})}
        print_json({"criterion": found.criterion, "over": found.over} | found.figures() | more)
        return
    _show(found, f"{policy} on {called(arms.path)}, welfare {found.objective.welfare.name}{_title(arms)}")
    click.echo(f"written to {values}" if values else "--values FILE.parquet writes the values, row by row")


def run_solve(
    arms: "StoredArms",
    welfare: str | None,
    method: str,
    tolerance: float | None,
    backend: str | None,
    out: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Solve the fair relaxation."""
    if method not in ("auto", "fluid"):
        raise OptionError("--method", f"a large model in Parquet is solved by fluid, not by {method}")
    check_table(out, "--out")
    with progress(quiet) as tell:
        from evenhand.planning.stored_models import TOLERANCE, solve_stored

        found = solve_stored(arms, welfare, TOLERANCE if tolerance is None else tolerance, tell, backend)
        if out is not None:
            found.save(out)
    if as_json:
        print_json(found.to_dict() | {"policy": out})
        return
    title = f"{called(arms.path)}, {counted(arms.num_arms, 'arm')}, welfare {found.objective.welfare.name}"
    _show(found, f"{title}{_title(arms)}")
    if out:
        click.echo(f"written to {out}; evenhand evaluate {arms.path} {out} simulates it")
    else:
        click.echo("--out FILE.parquet writes the value and weight of every row, a plan for act and evaluate")


def run_act(
    plan: str, states: str, budget: str | None, out: str | None, backend: str | None, seed: int, as_json: bool
) -> None:
    """Decide one step for the arms of an opened model."""
    if out is None:
        raise OptionError("--out", "a plan for a model in Parquet writes its actions to a file .parquet or a folder")
    check_table(out, "--out")
    from evenhand.planning.stored_models import load_table_plan

    amounts = None if budget is None else read_amounts(budget)
    found = load_table_plan(plan).act(states, out, seed, amounts, backend)
    if as_json:
        print_json(found.to_dict())
        return
    _show(found, f"{plan}, for {counted(found.num_arms, 'arm')} of {called(states)}")
