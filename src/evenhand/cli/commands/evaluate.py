"""`evenhand evaluate`."""

from typing import TYPE_CHECKING

from evenhand.cli.console import print_json, print_summary, say
from evenhand.cli.progress import progress
from evenhand.cli.reading import budget_suffix, called, posterior_of, read_policy, read_problem
from evenhand.cli.refusals import OptionError
from evenhand.cli.stored import refuse_without_shards, run_evaluate, stored_arms
from evenhand.model.io import Format
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
    on: str | None,
    values: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Evaluate one policy and print its values."""
    if (arms := stored_arms(model, on, budgets, criterion, over, initial, cells=True)) is not None:
        if draws is not None:
            raise OptionError("--draws", "this is for models in memory, not by shards")
        run_evaluate(arms, policy, welfare, episodes, horizon, seed, on, values, as_json, quiet)
        return
    refuse_without_shards(values=values)
    if on is not None and draws is None:
        raise OptionError(
            "--on",
            "one policy is evaluated in this process; use it with --draws, with a model in Parquet, or with "
            "several policies: evenhand compare",
        )
    posterior = None if draws is None else posterior_of(model)
    problem = read_problem(model, parameters, format, budgets, criterion, initial).with_criterion(criterion, over)
    method: Method = "monte-carlo" if monte_carlo else "auto"
    with progress(quiet) as tell:
        from evenhand.evaluation.evaluate import evaluate as evaluate_policy  # after what may be refused at once

        if tell is not None:
            tell(f"making {policy}", 0.0)
        actor = read_policy(policy, problem, welfare)
        weighed_by = read_welfare(problem, welfare)
        turn = None if tell is None else (lambda _, share: tell(policy, share))
        asked = (weighed_by, episodes, horizon, seed, method, turn)
        scenarios = None
        if draws is not None:
            from evenhand.uncertainty import compare_scenarios, draw_scenarios

            drawn = draw_scenarios(problem, posterior, draws, seed)
            scenarios = compare_scenarios(drawn, {policy: actor}, weighed_by, turn, on)
        found = evaluate_policy(problem, actor, *asked)
    if as_json:
        print_json(found.to_dict() | ({} if scenarios is None else {"draws": scenarios.to_dict()}))
        return
    from evenhand.report.results import setting, summarise

    about = f"{setting(problem)}{budget_suffix(problem, budgets)}"
    print_summary(summarise(found), f"{policy} on {called(model)}, welfare {weighed_by.name}{about}")
    if note := unused_horizon(found, horizon):
        say(f"--horizon: {note}")
    if scenarios is not None:
        print_summary(summarise(scenarios))


def unused_horizon(found: "Evaluation", horizon: int | None) -> str:
    """Return a note if a horizon was given and the evaluation is exact; else nothing."""
    if horizon is None or not found.exact or not found.problem.criterion.is_stationary:
        return ""
    span = "in the long run" if found.problem.criterion.factor == 1 else "over all time"
    return f"not used: the value is exact, {span}; --monte-carlo plays {horizon} step{'s' if horizon > 1 else ''}"
