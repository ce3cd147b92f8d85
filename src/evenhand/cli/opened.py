"""Large models in Parquet on the command line: opened instead of read, and treated block by block."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import number, percent, print_facts, print_groups, print_json, seconds
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_amounts, refuse_several
from evenhand.display import counted
from evenhand.errors import InvalidInput
from evenhand.model.files import is_stored
from evenhand.parallel import parse_backend

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Evaluation
    from evenhand.model.parquet import StoredArms
    from evenhand.planning.stored_models import Relaxation, StoredCheck
    from evenhand.policies.index import TypeIndices

SHOWN_VALUES = 200_000
"""Rows up to which JSON has the value of every row."""


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
        raise InvalidInput("--initial: for a large model in Parquet write the column initial instead")
    arms = arms.under(criterion, over)
    return arms.with_budget(read_amounts(budgets[0])) if budgets else arms


def refuse_in_memory(**given: str | None) -> None:
    """Refuse options that apply to models in Parquet only."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(f"--{name}: for models in Parquet, with a file .parquet")


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
    resources = list(zip(arms.resource_names, arms.budget.tolist(), found.most_used.tolist(), strict=True))
    if as_json:
        print_json(_check_as_dict(found, resources))
        return
    facts = [
        ("arms", f"{arms.num_arms} in {arms.num_rows} rows"),
        ("states", _range(found.states)),
        ("actions", _range(found.actions)),
        ("rewards", f"{number(found.rewards[0])} to {number(found.rewards[1])}"),
        *((f"budget of {name}", f"{budget:g} of at most {most:g}") for name, budget, most in resources),
    ]
    print_facts(f"{arms.path}{_title(arms)}", facts)
    for note in found.notes:
        click.echo(f"  - {note}")


def _check_as_dict(found: "StoredCheck", resources: Sequence[tuple[str, float, float]]) -> dict[str, Any]:
    arms = found.model
    return {
        "model": arms.path,
        "sound": True,
        "arms": arms.num_arms,
        "rows": arms.num_rows,
        "criterion": arms.criterion.name,
        "discount": arms.discount,
        "over": arms.over,
        "states": list(found.states),
        "actions": list(found.actions),
        "rewards": list(found.rewards),
        "resources": [{"name": name, "budget": budget, "most_used": most} for name, budget, most in resources],
        "unserved": found.num_unserved,
        "notes": [{"message": note} for note in found.notes],
    }


def run_indices(arms: "StoredArms", backend: str | None, out: str | None, as_json: bool, quiet: bool) -> None:
    """Compute Whittle indices."""
    check_table(out, "--out")
    with progress(quiet) as tell:
        from evenhand.planning.stored_models import save_indices
        from evenhand.policies.index import indices

        found = indices(arms, backend=backend, progress=tell)
        if out is not None:
            save_indices(found, out)
    facts = _index_facts(found)
    if as_json:
        print_json(facts | {"criterion": arms.criterion.name, "out": out})
        return
    rows = [
        (name.replace("_", " "), number(value) if isinstance(value, float) else str(value))
        for name, value in facts.items()
    ]
    print_facts(f"Whittle indices of {called(arms.path)}", rows)
    click.echo(f"written to {out}" if out else "--out FILE.parquet writes them, row by row")


def _index_facts(found: "TypeIndices") -> dict[str, Any]:
    import numpy as np

    real = found.indices[np.isfinite(found.indices)]
    return {
        "rows": len(found.indexable),
        "indexable": int(found.indexable.sum()),
        "undefined": len(found.result.refused),
        "first_without": (np.flatnonzero(~found.indexable)[:5] + 1).tolist(),
        "lowest": float(real.min(initial=np.inf)),
        "highest": float(real.max(initial=-np.inf)),
    }


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
        print_json(_evaluation_as_dict(found, values))
        return
    facts = [
        ("welfare", f"{number(found.welfare)} ± {number(found.welfare_stderr)}"),
        ("mean", f"{number(found.mean)} ± {number(found.mean_stderr)}"),
        ("worst group" if found.groups else "worst arm", number(found.worst)),
        ("Gini coefficient", number(found.gini_coefficient)),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("simulated", f"{found.num_episodes} episodes of {found.horizon} steps"),
        ("time", seconds(found.seconds)),
    ]
    print_facts(f"{policy} on {called(arms.path)}, welfare {found.objective.welfare.name}{_title(arms)}", facts)
    if found.groups:
        print_groups(found.groups, found.member_stderr)
    click.echo(f"written to {values}" if values else "--values FILE.parquet writes the values, row by row")


def _evaluation_as_dict(found: "Evaluation", values: str | None) -> dict[str, Any]:
    names = ("welfare", "welfare_stderr", "mean", "mean_stderr", "worst", "gini_coefficient", "budget_used", "exact")
    return {
        "criterion": found.criterion,
        "over": found.over,
        **{name: getattr(found, name) for name in names},
        "truncation_bound": found.truncation_bound,
        "arms": found.problem.num_arms,
        "values": values,
        **({"groups": found.groups} if found.groups else {}),
    }


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
        raise InvalidInput(f"--method: a large model in Parquet is solved by fluid, not by {method}")
    check_table(out, "--out")
    with progress(quiet) as tell:
        from evenhand.planning.stored_models import TOLERANCE, solve_stored

        found = solve_stored(arms, welfare, TOLERANCE if tolerance is None else tolerance, tell, backend)
        if out is not None:
            found.save(out)
    if as_json:
        print_json(_solution_as_dict(found, out))
        return
    facts = [
        ("relaxation", f"{number(found.welfare, 6)}, with a budget that holds on average"),
        ("upper bound", f"{number(found.upper_bound, 6)}, for every policy"),
        ("gap", f"{found.gap:.2g} of the relaxation"),
        *(
            (f"one unit of {name}", f"raises the bound by at most {number(price)} (per step)")
            for name, price in found.prices.items()
        ),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("found in", f"{found.rounds} rounds on {found.backend}, {counted(found.num_blocks, 'block')}"),
        ("time", seconds(found.seconds)),
    ]
    title = f"{called(arms.path)}, {counted(arms.num_arms, 'arm')}, welfare {found.objective.welfare.name}"
    print_facts(f"{title}{_title(arms)}", facts)
    if out:
        click.echo(f"written to {out}; evenhand evaluate {arms.path} {out} simulates it")
    else:
        click.echo("--out FILE.parquet writes the value and weight of every row, a plan for act and evaluate")


def _solution_as_dict(found: "Relaxation", out: str | None) -> dict[str, Any]:
    few = found.model.num_rows <= SHOWN_VALUES
    return {
        "method": found.method,
        "criterion": found.model.criterion.name,
        "welfare": {
            "of": "relaxation",
            "name": found.objective.welfare.name,
            "value": found.welfare,
            "upper_bound": found.upper_bound,
            "gap": found.gap,
        },
        "values": found.values.tolist() if few else None,
        "prices": found.prices,
        "budget_used": found.budget_used,
        "arms": found.model.num_arms,
        "rounds": found.rounds,
        "backend": found.backend,
        "seconds": {"solve": found.seconds},
        "policy": out,
    }


def run_act(
    plan: str, states: str, budget: str | None, out: str | None, backend: str | None, seed: int, as_json: bool
) -> None:
    """Decide one step for the arms of an opened model."""
    if out is None:
        raise InvalidInput("--out: a plan for a model in Parquet writes its actions to a file .parquet or a folder")
    check_table(out, "--out")
    from evenhand.planning.stored_models import load_table_plan

    amounts = None if budget is None else read_amounts(budget)
    found = load_table_plan(plan).act(states, out, seed, amounts, backend)
    if as_json:
        print_json({"arms": found.num_arms, "served": found.num_served, "used": found.used, "out": out})
        return
    used = [(f"used of {name}", f"{amount:g} of {found.budget[name]:g}") for name, amount in found.used.items()]
    title = f"{plan}, for {counted(found.num_arms, 'arm')} of {called(states)}"
    print_facts(title, [("arms", str(found.num_arms)), ("served", str(found.num_served)), *used])
    click.echo(f"written to {found.out}")
