"""`evenhand solve`."""

import shlex
from collections.abc import Sequence
from typing import Any

import click

from evenhand.cli.commands.draws import posterior_of
from evenhand.cli.console import print_json, print_summary
from evenhand.cli.large_models import opened_model, run_solve
from evenhand.cli.progress import progress
from evenhand.cli.reading import (
    budget_suffix,
    called,
    check_target,
    read_policy,
    read_problems,
    refuse_with_several,
)
from evenhand.cli.refusals import OptionError
from evenhand.model.files import Format
from evenhand.planning.policy_registry import is_file

DEFAULT_TOLERANCE = 1e-8
"""Relative gap at which exact methods stop."""


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
    rotate: int | None,
    draws: int | None,
    robust: float | None,
    backend: str | None,
    out: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Solve and print the certificate."""
    arms = opened_model(model, backend, budgets, criterion, over, initial, out)
    if arms is not None and arms.over == "arms" and not arms.has_floors:
        memory = {"--candidate": candidates or None, "--seconds": seconds, "--rotate": rotate, "--draws": draws}
        for option, given in (memory | {"--robust": robust}).items():
            if given is not None:
                raise OptionError(option, "not for a large model in Parquet")
        run_solve(arms, welfare, method, tolerance, backend, out, as_json, quiet)
        return
    tolerance = DEFAULT_TOLERANCE if tolerance is None else tolerance
    check_target(out, "--out")
    by_name = [name for name in candidates if not is_file(name)] or None  # with several budgets plans compete
    refuse_with_several(
        budgets, {"--out": out, "--candidate": by_name, "--draws": draws, "--robust": robust, "--backend": backend}
    )
    posterior = posterior_of(model, draws is not None or robust is not None)
    first, *others = (
        one.under(criterion, over) for one in read_problems(model, parameters, format, budgets, criterion, initial)
    )
    if others:
        every = [problem.budget for problem in (first, *others)]
        with progress(quiet) as tell:
            from evenhand.planning.plan import load_plan
            from evenhand.planning.what_if import what_if  # after what may be refused at once

            plans = [load_plan(name) for name in candidates]
            how = (welfare, method, tolerance, tell, seed)
            rows = what_if(first, every, *how, seconds=seconds, rotate=rotate, plans=plans)
        print_budgets(rows, rows[0].solution.objective.welfare.name, model, as_json)
        return
    with progress(quiet) as tell:
        from evenhand.planning.plan import save_solution
        from evenhand.planning.solve import solve as find_best

        tried = {name: read_policy(name, first, welfare) for name in candidates}
        solution = find_best(
            first,
            welfare,
            method,
            tolerance,
            tell,
            seed,
            tried,
            seconds=seconds,
            rotate=rotate,
            draws=draws,
            posterior=posterior,
            robust=robust,
            backend=backend,
        )
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
        print_json(solution.to_dict() | {"policy": out})
        return
    from evenhand.report.results import setting, summarise

    title = f"{called(model)}, welfare {solution.objective.welfare.name}{setting(first)}{budget_suffix(first, budgets)}"
    print_summary(summarise(solution), title)
    for part in (solution.robust, solution.draws, solution.worth_knowing):
        if part is not None:
            print_summary(summarise(part))
    if out:
        played = [asked[0], out, *asked[1:], *(["--initial", initial] if initial else [])]
        shown, acted = (shlex.join(["evenhand", *words]) for words in (["show", out], ["act", out, "STATES"]))
        click.echo(f"in words: {shown}   what to do now: {acted}")
        click.echo(f"policy: {out}   (play it: {shlex.join(['evenhand', 'evaluate', *played])})")


def print_budgets(rows: Sequence[Any], welfare: str, model: str, as_json: bool) -> None:
    """Print the plans or policies for several budgets.

    Args:
        rows: one per budget.
        welfare: name of the welfare.
        model: MODEL as it was typed.
        as_json: whether to print JSON.
    """
    from evenhand.report.results import budgets_summary

    if as_json:
        print_json({"welfare": welfare, "budgets": [row.to_dict() for row in rows]})
        return
    summary = budgets_summary(rows)
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
