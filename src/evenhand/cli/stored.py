"""Models in Parquet on the command line: when work goes by shards, and how its results are shown."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import print_facts, print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_amounts, refuse_several
from evenhand.cli.refusals import OptionError
from evenhand.display import counted
from evenhand.errors import InvalidInput
from evenhand.model.io import is_stored
from evenhand.planning.policy_registry import find_policy, is_file
from evenhand.report.format import duration, fixed, percent

if TYPE_CHECKING:
    from evenhand.evaluation.shards.checking import ArmsCheck
    from evenhand.evaluation.shards.indexing import ArmsIndices
    from evenhand.evaluation.shards.measuring import ArmsEvaluation
    from evenhand.evaluation.shards.plans import ArmsDecisions
    from evenhand.model.parquet.reading import StoredArms
    from evenhand.planning.by_shards import ArmsSolution

RELAXED = 1e-4
"""Default relative gap of the relaxation by shards."""

IN_MEMORY_UP_TO = 200_000
"""Rows of a table that is read whole by default."""


def stored_arms(
    model: str,
    on: str | None,
    budgets: Sequence[str] = (),
    criterion: str | None = None,
    over: Any = None,
    initial: str | None = None,
    cells: bool = False,
) -> "StoredArms | None":
    """The table that MODEL is, if work on it is to go by shards; None where it is read into memory.

    Args:
        model: what was typed.
        on: where to run, if that was said: then it goes by shards.
        budgets: another budget as text, or none.
        criterion: another criterion, or none.
        over: members of welfare, if given.
        initial: initial states, which a table of arms does not take.
        cells: whether a model in memory has work for other places, too.
    """
    from evenhand.execution.places import check_place

    if on is not None:
        check_place(on)
    if not is_stored(model):
        if on is not None and not cells:
            raise OptionError("--on", "shards are those of a model in Parquet; write one: evenhand problems NAME --out")
        return None
    from evenhand.model.parquet.reading import open_arms

    refuse_several(budgets)
    arms = open_arms(model)
    if on is None and arms.num_rows <= IN_MEMORY_UP_TO:
        return None
    if initial is not None:
        raise OptionError("--initial", "by shards arms start as the table says; write the column initial instead")
    arms = arms.with_criterion(criterion, over)
    return arms.with_budget(read_amounts(budgets[0])) if budgets else arms


def refuse_without_shards(**given: str | None) -> None:
    """Refuse options that only work by shards has."""
    for name, value in given.items():
        if value is not None:
            raise OptionError(f"--{name}", "this is for models in Parquet, by shards: give --on, such as --on local:2")


def run_check(arms: "StoredArms", on: str | None, as_json: bool, quiet: bool) -> None:
    """Tell what a table says."""
    with progress(quiet) as tell:
        from evenhand.evaluation.shards.checking import check_arms

        found = check_arms(arms, on, tell)
    print_json(_check_as_dict(found)) if as_json else _show_check(found)


def _check_as_dict(found: "ArmsCheck") -> dict[str, Any]:
    arms = found.arms
    resources = zip(arms.resource_names, arms.budget.tolist(), found.most_used.tolist(), strict=True)
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


def _show_check(found: "ArmsCheck") -> None:
    arms = found.arms
    resources = zip(arms.resource_names, arms.budget.tolist(), found.most_used.tolist(), strict=True)
    facts = [
        ("arms", f"{arms.num_arms} in {arms.num_rows} rows"),
        ("states", _range(found.states)),
        ("actions", _range(found.actions)),
        ("rewards", f"{fixed(found.rewards[0])} to {fixed(found.rewards[1])}"),
        *((f"budget of {name}", f"{budget:g} of at most {most:g}") for name, budget, most in resources),
    ]
    print_facts(f"{arms.path}{_under(arms)}", facts)
    for note in found.notes:
        click.echo(f"  - {note}")


def _under(arms: "StoredArms") -> str:
    """Return the end of a title where values are not discounted or welfare is not over arms; else nothing."""
    criterion = "" if arms.criterion.name == "discounted" else f", criterion {arms.criterion.name}"
    return criterion + (", over groups" if arms.over == "groups" else "")


def _check_place(path: str | None, option: str) -> None:
    """Refuse a target that cannot be written, before any work."""
    if path is None or not Path(path).is_dir():
        check_target(path, option)


def _range(both: tuple[int, int]) -> str:
    return str(both[0]) if both[0] == both[1] else f"{both[0]} to {both[1]}"


def run_indices(arms: "StoredArms", on: str | None, out: str | None, as_json: bool, quiet: bool) -> None:
    """Whittle indices by shards."""
    _check_place(out, "--out")
    with progress(quiet) as tell:
        from evenhand.evaluation.shards.indexing import index_arms

        found = index_arms(arms, out, on, progress=tell)
    if as_json:
        print_json(_indices_as_dict(found, out))
        return
    facts = [
        ("rows", str(found.num_rows)),
        ("indexable", str(found.num_indexable)),
        *([("not defined", str(found.num_refused))] if found.num_refused else []),
        *([("first without", ", ".join(f"row {row}" for row in found.first_without))] if found.first_without else []),
        ("indices", f"{fixed(found.low)} to {fixed(found.high)}"),
    ]
    print_facts(f"Whittle indices of {called(arms.path)}", facts)
    click.echo(f"written to {out}" if out else "--out FILE.parquet writes them, row by row")


def _indices_as_dict(found: "ArmsIndices", out: str | None) -> dict[str, Any]:
    return {
        "criterion": found.criterion,
        "rows": found.num_rows,
        "indexable": found.num_indexable,
        "undefined": found.num_refused,
        "first_without": list(found.first_without),
        "lowest": found.low,
        "highest": found.high,
        "out": out,
    }


def run_evaluate(
    arms: "StoredArms",
    policy: str,
    welfare: str | None,
    episodes: int,
    horizon: int | None,
    seed: int,
    on: str | None,
    values: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Play a policy by shards."""
    _check_place(values, "--values")
    with progress(quiet) as tell:
        from evenhand.evaluation.shards.measuring import evaluate_arms
        from evenhand.evaluation.shards.plans import is_plan, read_plan

        weights, rule = None, None
        if is_file(policy) or is_stored(policy):
            if not is_plan(policy):
                raise InvalidInput(f"{policy}: by shards a plan is a table of results: indices --out, or solve --out")
            plan = read_plan(policy, arms.path)
            rule, weights = plan.rule, plan.weights
        asked = rule or find_policy(policy).name
        found = evaluate_arms(asked, arms, welfare, episodes, horizon, seed, on, tell, values=values, weights=weights)
    if as_json:
        print_json(_evaluation_as_dict(found, values))
    else:
        _show_evaluation(found, f"{policy} on {called(arms.path)}, welfare {found.objective.welfare.name}", values)


def _evaluation_as_dict(found: "ArmsEvaluation", values: str | None) -> dict[str, Any]:
    return {
        "criterion": found.arms.criterion.name,
        "over": found.arms.over,
        "welfare": found.welfare,
        "welfare_stderr": found.welfare_stderr,
        "mean": found.mean,
        "mean_stderr": found.mean_stderr,
        "worst": found.worst,
        "gini_coefficient": found.gini_coefficient,
        "budget_used": found.budget_used,
        "exact": False,
        "truncation_bound": found.truncation_bound,
        "arms": found.arms.num_arms,
        "on": found.on,
        "values": values,
        **({"groups": found.groups} if found.groups else {}),
    }


def _show_evaluation(found: "ArmsEvaluation", title: str, values: str | None) -> None:
    facts = [
        ("welfare", f"{fixed(found.welfare)} ± {fixed(found.welfare_stderr)}"),
        ("mean", f"{fixed(found.mean)} ± {fixed(found.mean_stderr)}"),
        ("worst group" if found.groups else "worst arm", fixed(found.worst)),
        ("Gini coefficient", fixed(found.gini_coefficient)),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("played", f"{found.num_episodes} episodes of {found.horizon} steps on {found.on}"),
        ("time", duration(found.seconds)),
    ]
    print_facts(f"{title}{_under(found.arms)}", facts)
    if found.groups:
        from evenhand.report.results import groups_table
        from evenhand.report.summary import Summary

        print_summary(Summary("", tables=[groups_table(found.groups, None)]))
    click.echo(f"written to {values}" if values else "--values FILE.parquet writes the values, row by row")


def run_solve(
    arms: "StoredArms",
    welfare: str | None,
    method: str,
    tolerance: float | None,
    on: str | None,
    out: str | None,
    checkpoint: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """The fair relaxation by shards."""
    if method not in ("auto", "fluid"):
        raise OptionError("--method", f"by shards it is fluid; {method} is for models in memory")
    _check_place(out, "--out")
    check_target(checkpoint, "--checkpoint")
    with progress(quiet) as tell:
        from evenhand.planning.by_shards import solve_arms

        closed = RELAXED if tolerance is None else tolerance
        found = solve_arms(arms, welfare, on, out, closed, tell, checkpoint)
    print_json(_solution_as_dict(found, out)) if as_json else _show_solution(found, out)


def _solution_as_dict(found: "ArmsSolution", out: str | None) -> dict[str, Any]:
    few = found.arms.num_rows <= IN_MEMORY_UP_TO
    return {
        "method": "fluid",
        "criterion": found.arms.criterion.name,
        "welfare": {
            "of": "relaxation",
            "name": found.weighed_by.name,
            "value": found.welfare,
            "upper_bound": found.upper_bound,
            "gap": found.gap,
        },
        "values": found.values.tolist() if few else None,
        "prices": found.prices,
        "budget_used": found.budget_used,
        "arms": found.arms.num_arms,
        "rounds": found.rounds,
        "on": found.on,
        "shards": found.num_shards,
        "replaced": found.num_replaced,
        "seconds": {"solve": found.seconds},
        "policy": out,
    }


def _show_solution(found: "ArmsSolution", out: str | None) -> None:
    replaced = f"; {found.num_replaced} workers died and were replaced" if found.num_replaced else ""
    facts = [
        ("relaxation", f"{fixed(found.welfare, 6)}, what could be had if the budget held on average"),
        ("upper bound", f"{fixed(found.upper_bound, 6)}, for every policy"),
        ("gap", f"{found.gap:.2g} of the relaxation"),
        *(
            (f"one unit of {name}", f"the bound rises by at most {fixed(worth)} (a step)")
            for name, worth in found.prices.items()
        ),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("found in", f"{found.rounds} rounds on {found.on}, {counted(found.num_shards, 'shard')}{replaced}"),
        ("time", duration(found.seconds)),
    ]
    title = f"{called(found.arms.path)}, {counted(found.arms.num_arms, 'arm')}, welfare {found.weighed_by.name}"
    print_facts(f"{title}{_under(found.arms)}", facts)
    text = f"written to {out}; evenhand evaluate {found.arms.path} {out} plays it"
    click.echo(
        text if out else "--out FILE.parquet writes the value and weight of every row, a plan for act and evaluate"
    )


def run_act(
    plan: str, states: str, budget: str | None, out: str | None, on: str | None, seed: int, as_json: bool
) -> None:
    """Decide one step of a table of arms."""
    if out is None:
        raise OptionError("--out", "by a plan for a table of arms, actions are written to a file .parquet or a folder")
    _check_place(out, "--out")
    from evenhand.evaluation.shards.plans import act_on_arms

    found = act_on_arms(plan, states, out, seed, on, None if budget is None else read_amounts(budget))
    if as_json:
        print_json({"arms": found.num_arms, "served": found.num_served, "used": found.used, "out": out})
    else:
        _show_act(found, f"{plan}, for {counted(found.num_arms, 'arm')} of {called(states)}")


def _show_act(found: "ArmsDecisions", title: str) -> None:
    used = [(f"used of {name}", f"{amount:g} of {found.budget[name]:g}") for name, amount in found.used.items()]
    print_facts(title, [("arms", str(found.num_arms)), ("served", str(found.num_served)), *used])
    click.echo(f"written to {found.out}")
