"""`evenhand solve`."""

import shlex
from typing import Any

import click

from evenhand.cli.console import print_json, print_summary
from evenhand.cli.progress import progress
from evenhand.cli.reading import (
    budget_suffix,
    called,
    check_target,
    posterior_of,
    read_policy,
    read_problems,
    refuse_with_several,
)
from evenhand.cli.refusals import OptionError
from evenhand.cli.stored import refuse_without_shards, run_solve, stored_arms
from evenhand.model.io import Format
from evenhand.planning.policy_registry import is_file

DEFAULT_TOLERANCE = 1e-8
"""Relative gap at which exact methods stop; by shards it is that of the relaxation, 1e-4."""


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    initial: str | None,
    welfare: str | None,
    criterion: str | None,
    over: str | None,
    method: str,
    candidates: tuple[str, ...],
    tolerance: float | None,
    seconds: float | None,
    redraw_every: int | None,
    draws: int | None,
    robust: float | None,
    on: str | None,
    checkpoint: str | None,
    out: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Solve and print the certificate."""
    if (arms := stored_arms(model, on, budgets, criterion, over, initial, cells=True)) is not None:
        memory = {
            "--candidate": candidates or None,
            "--seconds": seconds,
            "--redraw-every": redraw_every,
            "--draws": draws,
        }
        for option, given in (memory | {"--robust": robust}).items():
            if given is not None:
                raise OptionError(option, "this is for models in memory, not by shards")
        run_solve(arms, welfare, method, tolerance, on, out, checkpoint, as_json, quiet)
        return
    refuse_without_shards(checkpoint=checkpoint)
    tolerance = DEFAULT_TOLERANCE if tolerance is None else tolerance
    check_target(out, "--out")
    by_name = [name for name in candidates if not is_file(name)] or None  # with several budgets plans compete
    refuse_with_several(
        budgets, {"--out": out, "--candidate": by_name, "--draws": draws, "--robust": robust, "--on": on}
    )
    posterior = None if draws is None and robust is None else posterior_of(model)
    first, *others = (
        one.with_criterion(criterion, over)
        for one in read_problems(model, parameters, format, budgets, criterion, initial)
    )
    if others:
        every = [problem.budget for problem in (first, *others)]
        with progress(quiet) as tell:
            from evenhand.planning.plan import load_plan  # after what may be refused at once
            from evenhand.planning.solve import solve as find_best
            from evenhand.planning.task import SolveMethod

            plans = [load_plan(name) for name in candidates]
            chosen = SolveMethod(method, tolerance, seconds, redraw_every=redraw_every, plans=plans)
            sweep = find_best(first, welfare, chosen, budgets=every, progress=tell, rng=seed)
        print_budgets(sweep, model, as_json)
        return
    with progress(quiet) as tell:
        from evenhand.planning.plan import save_solution
        from evenhand.planning.solve import solve as find_best
        from evenhand.planning.task import SolveMethod

        tried = {name: read_policy(name, first, welfare) for name in candidates}
        scenarios = plan = None
        if posterior is not None:
            from evenhand.uncertainty import draw_scenarios, plan_scenarios
            from evenhand.uncertainty.robust_plan import check_tail
            from evenhand.uncertainty.scenarios import DEFAULT_DRAWS

            check_tail(first, robust)
            scenarios = draw_scenarios(first, posterior, draws or DEFAULT_DRAWS, seed, held_out=robust is not None)
        where = None if posterior is not None and method != "fluid" else on
        chosen = SolveMethod(method, tolerance, seconds, tried, redraw_every)
        solution = find_best(first, welfare, chosen, progress=tell, rng=seed, on=where)
        if scenarios is not None:
            plan = plan_scenarios(scenarios, solution, robust, tell, on)
            solution = plan.solution
        if tell is not None:
            tell("what one unit more is worth", 1.0)
        _ = solution.prices  # here, where progress is shown: a summary computes nothing
        if tell is not None and first.has_floors:
            tell("how often each arm is served", 1.0)
        _ = solution.unit_served
    named = welfare or solution.objective.welfare.name
    asked = asked_words(model, parameters, format, named, criterion, over)
    asked += [word for budget in budgets for word in ("--budget", budget)]
    if out:
        save_solution(solution, out, asked)
    if as_json:
        print_json((solution if plan is None else plan).to_dict() | {"policy": out})
        return
    from evenhand.report.results import setting, summarise

    title = f"{called(model)}, welfare {solution.objective.welfare.name}{setting(first)}{budget_suffix(first, budgets)}"
    print_summary(summarise(solution), title)
    for part in () if plan is None else (plan.robust, plan.scenarios, plan.information):
        if part is not None:
            print_summary(summarise(part))
    if out:
        played = [asked[0], out, *asked[1:], *(["--initial", initial] if initial else [])]
        shown, acted = (shlex.join(["evenhand", *words]) for words in (["show", out], ["act", out, "STATES"]))
        click.echo(f"in words: {shown}   what to do now: {acted}")
        click.echo(f"policy: {out}   (play it: {shlex.join(['evenhand', 'evaluate', *played])})")


def print_budgets(sweep: Any, model: str, as_json: bool) -> None:
    """Print the plans or comparisons of several budgets.

    Args:
        sweep: the `BudgetSweep`.
        model: MODEL as it was typed.
        as_json: whether to print JSON.
    """
    from evenhand.report.results import summarise

    if as_json:
        print_json(sweep.to_dict())
        return
    summary = summarise(sweep)
    print_summary(summary, f"{called(model)}: {summary.title[0].lower()}{summary.title[1:]}")


def asked_words(
    model: str,
    parameters: tuple[str, ...],
    format: str | None,
    welfare: str,
    criterion: str | None,
    over: str | None,
) -> list[str]:
    """Return MODEL and its options as words of a command line."""
    words = [model, *(word for parameter in parameters for word in ("-p", parameter))]
    for option, value in (("--welfare", welfare), ("--format", format), ("--criterion", criterion), ("--over", over)):
        words += [option, value] if value is not None else []
    return words
