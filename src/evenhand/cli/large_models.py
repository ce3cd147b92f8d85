"""Large models in Parquet on the command line: opened instead of read, and treated block by block."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import print_facts, print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_amounts, refuse_several
from evenhand.cli.refusals import OptionError
from evenhand.display import counted
from evenhand.model.files import is_stored
from evenhand.parallel import parse_backend
from evenhand.report.format import duration, fixed, percent

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
    arms = arms.under(criterion, over)
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


def _range(both: tuple[int, int]) -> str:
    return str(both[0]) if both[0] == both[1] else f"{both[0]} to {both[1]}"


def run_check(arms: "StoredArms", backend: str | None, as_json: bool, quiet: bool) -> None:
    """Check a model."""
    with progress(quiet) as tell:
        from evenhand.planning.stored_models import check_stored

        found = check_stored(arms, tell, backend)
    if as_json:
        print_json(found.to_dict())
        return
    facts = [
        ("arms", f"{arms.num_arms} in {arms.num_rows} rows"),
        ("states", _range(found.states)),
        ("actions", _range(found.actions)),
        ("rewards", f"{fixed(found.rewards[0])} to {fixed(found.rewards[1])}"),
        *(
            (f"budget of {one['name']}", f"{one['budget']:g} of at most {one['most_used']:g}")
            for one in found.resources
        ),
    ]
    print_facts(f"{arms.path}{_title(arms)}", facts)
    for note in found.notes:
        click.echo(f"  - {note}")


def run_indices(arms: "StoredArms", backend: str | None, out: str | None, as_json: bool, quiet: bool) -> None:
    """Compute Whittle indices."""
    check_table(out, "--out")
    with progress(quiet) as tell:
        from evenhand.planning.stored_models import save_indices
        from evenhand.policies.index import indices

        found = indices(arms, backend=backend, progress=tell)
        if out is not None:
            save_indices(found, out)
    facts = found.to_dict()
    if as_json:
        print_json(facts | {"out": out})
        return
    rows = [
        (name.replace("_", " "), fixed(value) if isinstance(value, float) else str(value))
        for name, value in facts.items()
    ]
    print_facts(f"Whittle indices of {called(arms.path)}", rows)
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
        names = ("criterion", "over", "welfare", "welfare_stderr", "mean", "mean_stderr", "worst", "gini_coefficient")
        names += ("budget_used", "exact", "truncation_bound")
        more = {"arms": arms.num_arms, "values": values, **({"groups": found.groups} if found.groups else {})}
        print_json({name: getattr(found, name) for name in names} | more)
        return
    facts = [
        ("welfare", f"{fixed(found.welfare)} ± {fixed(found.welfare_stderr)}"),
        ("mean", f"{fixed(found.mean)} ± {fixed(found.mean_stderr)}"),
        ("worst group" if found.groups else "worst arm", fixed(found.worst)),
        ("Gini coefficient", fixed(found.gini_coefficient)),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("simulated", f"{found.num_episodes} episodes of {found.horizon} steps"),
        ("time", duration(found.seconds)),
    ]
    print_facts(f"{policy} on {called(arms.path)}, welfare {found.objective.welfare.name}{_title(arms)}", facts)
    if found.groups:
        from evenhand.report.results import groups_table
        from evenhand.report.summary import Summary

        print_summary(Summary("", tables=[groups_table(found.groups, found.member_stderr)]))
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
    facts = [
        ("relaxation", f"{fixed(found.welfare, 6)}, with a budget that holds on average"),
        ("upper bound", f"{fixed(found.upper_bound, 6)}, for every policy"),
        ("gap", f"{found.gap:.2g} of the relaxation"),
        *(
            (f"one unit of {name}", f"raises the bound by at most {fixed(price)} (per step)")
            for name, price in found.prices.items()
        ),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("found in", f"{found.rounds} rounds on {found.backend}, {counted(found.num_blocks, 'block')}"),
        ("time", duration(found.seconds)),
    ]
    title = f"{called(arms.path)}, {counted(arms.num_arms, 'arm')}, welfare {found.objective.welfare.name}"
    print_facts(f"{title}{_title(arms)}", facts)
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
    used = [(f"used of {name}", f"{amount:g} of {found.budget[name]:g}") for name, amount in found.used.items()]
    title = f"{plan}, for {counted(found.num_arms, 'arm')} of {called(states)}"
    print_facts(title, [("arms", str(found.num_arms)), ("served", str(found.num_served)), *used])
    click.echo(f"written to {found.out}")
