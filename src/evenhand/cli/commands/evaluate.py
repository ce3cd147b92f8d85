"""`evenhand evaluate`."""

from typing import TYPE_CHECKING, Any

from evenhand.cli.commands.budgets import budget_words
from evenhand.cli.commands.draws import posterior_of, show_draws
from evenhand.cli.console import (
    figures,
    floors_in_words,
    number,
    objective_words,
    per_arm,
    percent,
    print_facts,
    print_groups,
    print_json,
    print_values,
    really_got,
    seconds,
    unused_horizon,
)
from evenhand.cli.opened import opened_model, refuse_in_memory, run_evaluate
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, read_policy, read_problem
from evenhand.errors import InvalidInput
from evenhand.model.files import Format, is_stored
from evenhand.model.objective import read_welfare

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Evaluation, Method


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    initial: str | None,
    policy: str,
    welfare: str | None,
    criterion: str | None,
    over: str | None,
    episodes: int,
    horizon: int | None,
    monte_carlo: bool,
    draws: int | None,
    backend: str | None,
    values: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Evaluate one policy and print what it is worth."""
    table = values or (policy if is_stored(policy) else None)
    if (arms := opened_model(model, backend, budgets, criterion, over, initial, table)) is not None:
        if draws is not None:
            raise InvalidInput("--draws: not for a large model in Parquet")
        run_evaluate(arms, policy, welfare, episodes, horizon, seed, backend, values, as_json, quiet)
        return
    refuse_in_memory(values=values)
    posterior = posterior_of(model, draws is not None)
    problem = read_problem(model, parameters, format, budgets, criterion, initial).under(criterion, over)
    method: Method = "monte-carlo" if monte_carlo else "auto"
    with progress(quiet) as tell:
        from evenhand.evaluation.evaluate import evaluate as evaluate_policy  # after what may be refused at once

        if tell is not None:
            tell(f"making {policy}", 0.0)
        actor = read_policy(policy, problem, welfare)
        weighed_by = read_welfare(problem, welfare)
        turn = None if tell is None else (lambda _, share: tell(policy, share))
        asked = (weighed_by, episodes, horizon, seed, method, turn)
        found = evaluate_policy(
            actor, problem, *asked, draws=draws, posterior=posterior, backend=backend if draws is not None else None
        )
    if as_json:
        print_json(as_dict(found))
    else:
        about = f"{objective_words(problem)}{budget_words(problem, budgets)}"
        _show(found, f"{policy} on {called(model)}, welfare {weighed_by.name}{about}", horizon)
        if found.draws is not None:
            show_draws(found.draws)


def as_dict(found: "Evaluation") -> dict[str, Any]:
    """The JSON form."""
    units = {"values": found.unit_values, "values_stderr": found.unit_stderr}
    return {
        "criterion": found.criterion,
        "over": found.over,
        **figures(found),
        "welfare_interval": list(found.welfare_interval),
        "served_by_type": found.served,
        "realised_gini_coefficient": found.realised_gini_coefficient,
        "realised_gini_stderr": found.realised_gini_stderr,
        **per_arm(found.problem, found.by_type, units),
        **_group_errors(found),
        **({} if found.draws is None else {"draws": found.draws.as_dict()}),
    }


def _group_errors(found: "Evaluation") -> dict[str, Any]:
    if not found.groups:
        return {}
    return {"groups_stderr": dict(zip(found.groups, found.member_stderr.tolist(), strict=True))}


def _show(found: "Evaluation", title: str, horizon: int | None) -> None:
    low, high = found.welfare_interval
    error = "exact" if found.exact else f"95 % interval {number(low)} to {number(high)}"
    facts = [
        ("welfare", f"{number(found.welfare)}  ({error})"),
        *_plug_in(found),
        ("mean", number(found.mean) + ("" if found.exact else f" ± {number(found.mean_stderr)}")),
        ("worst group" if found.groups else "worst arm", number(found.worst)),
        ("Gini coefficient", number(found.gini_coefficient) + _realised(found)),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        *([("--horizon", unused_horizon(found, horizon))] if unused_horizon(found, horizon) else []),
        *_cut_off(found),
        ("time", seconds(found.seconds)),
        *(("floor missed", line) for line in floors_in_words(found)),
    ]
    print_facts(title, facts)
    if found.groups:
        print_groups(found.groups, None if found.exact else found.member_stderr)
    _show_units(found)


def _show_units(found: "Evaluation") -> None:
    problem = found.problem
    errors = None if found.exact else found.unit_stderr
    served = found.unit_served if problem.has_floors else None
    print_values(problem, found.by_type, found.unit_values, errors, served)


def _realised(found: "Evaluation") -> str:
    realised = really_got(found.realised_gini_coefficient, found.realised_gini_stderr, found.over)
    return realised and f" of expected values{realised}"


def _plug_in(found: "Evaluation") -> list[tuple[str, str]]:
    """The paper's figure, where it differs from the welfare."""
    if found.exact or found.groups:
        return []
    if found.plug_in_welfare is None:
        return [("plug-in welfare", "not followed arm by arm")]
    value = number(found.plug_in_welfare)
    return [("plug-in welfare", f"{value} (the paper's figure; biased downwards where arms are equal)")]


def _cut_off(found: "Evaluation") -> list[tuple[str, str]]:
    """What a horizon does to simulated values."""
    if found.exact or found.truncation_bound == 0:
        return []
    if found.truncation_bound is None:
        return [
            ("long run", f"{found.horizon} steps, the first of which do not count; what is left of the start is in ±")
        ]
    facts = [("cut off at horizon", f"no value changes by more than {found.truncation_bound:.2g}")]
    if found.truncation_bound > found.welfare_stderr:
        facts.append(("warning", "the horizon is too short for these errors; use a longer --horizon"))
    return facts
