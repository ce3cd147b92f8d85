"""`evenhand evaluate`."""

from typing import Any

from evenhand.cli.console import (
    figures,
    number,
    per_arm,
    percent,
    print_facts,
    print_json,
    print_values,
    progress,
    seconds,
)
from evenhand.cli.reading import read_policy, read_problem
from evenhand.evaluation.evaluate import Evaluation, Method
from evenhand.evaluation.evaluate import evaluate as evaluate_policy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.welfare import as_welfare


def run(
    model: str,
    parameters: tuple[str, ...],
    policy: str,
    welfare: str,
    episodes: int,
    horizon: int,
    monte_carlo: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Evaluate one policy and print what it is worth."""
    problem = read_problem(model, parameters)
    actor = read_policy(policy, problem, welfare)
    measure = as_welfare(welfare, problem.num_arms)
    method: Method = "monte-carlo" if monte_carlo else "auto"
    with progress(quiet) as tell:
        named = None if tell is None else (lambda _, share: tell(policy, share))
        found = evaluate_policy(actor, problem, measure, episodes, horizon, seed, method, named)
    if as_json:
        print_json(as_dict(found))
    else:
        _show(found, problem, f"{policy} on {model}, welfare {measure.name}")


def as_dict(found: Evaluation) -> dict[str, Any]:
    """The JSON form."""
    groups = {"values": found.group_values, "values_stderr": found.group_stderr}
    return {
        **figures(found),
        "welfare_interval": list(found.welfare_interval),
        **per_arm(found.problem, found.by_type, groups),
    }


def _show(found: Evaluation, problem: CoupledMDP, title: str) -> None:
    low, high = found.welfare_interval
    error = "exact" if found.exact else f"95 % interval {number(low)} to {number(high)}"
    plug_in = f"{number(found.plug_in_welfare)} (the paper's figure; biased downwards where arms are equal)"
    facts = [
        ("welfare", f"{number(found.welfare)}  ({error})"),
        ("mean", number(found.mean) + ("" if found.exact else f" ± {number(found.mean_stderr)}")),
        ("worst arm", number(found.worst)),
        ("Gini coefficient", number(found.gini_coefficient)),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("time", seconds(found.seconds)),
    ]
    if not found.exact:
        facts.insert(
            1, ("plug-in welfare", plug_in if found.plug_in_welfare is not None else "not followed arm by arm")
        )
        facts.insert(-1, ("cut off at horizon", f"no value changes by more than {found.truncation_bound:.2g}"))
        if found.truncation_bound > found.welfare_stderr:
            facts.insert(-1, ("warning", "the horizon is too short for these errors; use a longer --horizon"))
    print_facts(title, facts)
    tables = problem.types if found.by_type else problem.tables
    errors = None if found.exact else found.group_stderr
    print_values(tables, found.by_type, found.group_counts, found.group_values, errors)
