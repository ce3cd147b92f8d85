"""`evenhand compare`."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.commands.budgets import (
    budget_words,
    comparisons_as_dict,
    left_out_lines,
    refuse_with_several,
    show_comparisons,
)
from evenhand.cli.commands.draws import posterior_of, show_rivals
from evenhand.cli.console import (
    figures,
    floors_in_words,
    number,
    objective_words,
    percent,
    print_json,
    print_table,
    say,
    seconds,
    unused_horizon,
)
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_names, read_policy, read_problems
from evenhand.display import counted
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import Format
from evenhand.parallel import parse_backend
from evenhand.planning.names import find_name, is_file

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Method
    from evenhand.model.policy import Policy, Starting
    from evenhand.planning.compare import Comparison


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    initial: str | None,
    policies: str | None,
    welfare: str | None,
    criterion: str | None,
    over: str | None,
    episodes: int,
    horizon: int | None,
    monte_carlo: bool,
    draws: int | None,
    backend: str | None,
    report: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare policies and print them, best first."""
    check_target(report, "--report")
    names = None if policies is None else read_names(policies)
    if backend is not None:
        parse_backend(backend)
    refuse_with_several(budgets, {"--report": report, "--draws": draws, "--backend": backend})
    posterior = posterior_of(model, draws is not None)
    problem, *others = (
        one.under(criterion, over) for one in read_problems(model, parameters, format, budgets, criterion, initial)
    )
    method: Method = "monte-carlo" if monte_carlo else "auto"
    if others:
        every = [one.budget for one in (problem, *others)]
        with progress(quiet) as tell:
            from evenhand.planning.what_if import compare_budgets  # after what may be refused at once

            chosen = _choose(names, problem, welfare)
            table = compare_budgets(problem, every, chosen, welfare, episodes, horizon, seed, method, tell)
        print_json(comparisons_as_dict(table, as_dict)) if as_json else show_comparisons(table, called(model))
        return
    with progress(quiet) as tell:
        from evenhand.planning.compare import compare as compare_policies

        chosen = _choose(names, problem, welfare)
        asked = (welfare, episodes, horizon, seed, method, tell)
        comparison = compare_policies(problem, chosen, *asked, draws=draws, posterior=posterior, backend=backend)
        if report:
            if tell is not None:
                tell("writing the report", 1.0)
            from evenhand.report.page import write_comparison  # it loads what draws

            write_comparison(comparison, problem, report, command=f"evenhand {shlex.join(sys.argv[1:])}", seed=seed)
    if as_json:
        print_json(as_dict(comparison))
        return
    about = f"welfare {comparison.welfare.name}{objective_words(problem)}{budget_words(problem, budgets)}"
    _show(comparison, f"{called(model)}: {counted(problem.num_arms, 'arm')}, {about}")
    if comparison.draws is not None:
        show_rivals(comparison.draws)
    unused = {row.policy: told for row in comparison.rows if (told := unused_horizon(row.evaluation, horizon))}
    if unused:
        say(f"--horizon: {', '.join(unused)}: {next(iter(unused.values()))}")
    if report:
        click.echo(f"report: {report}")


def _choose(
    names: Sequence[str] | None, problem: CoupledMDP, welfare: str | None
) -> "Sequence[str] | Mapping[str, Policy | Starting | str] | None":
    """The policies that were asked for, saved ones read from their files."""
    if names is None or not any(is_file(name) for name in names):
        return names
    return {
        name if is_file(name) else find_name(name).name: read_policy(name, problem, welfare) if is_file(name) else name
        for name in names
    }


def as_dict(comparison: "Comparison") -> dict[str, Any]:
    """The JSON form."""
    return {
        "welfare": comparison.welfare.name,
        "criterion": comparison.problem.criterion.name,
        "over": comparison.problem.over,
        "budget": comparison.problem.named_budget,
        "upper_bound": comparison.upper_bound,
        "bound": comparison.bound_name or None,
        "rows": [
            {"policy": row.policy, **figures(row.evaluation), "above_bound": comparison.is_above_bound(row)}
            for row in comparison.rows
        ],
        "left_out": comparison.left_out,
        **({} if comparison.draws is None else {"draws": comparison.draws.as_dict()}),
    }


def _show(comparison: "Comparison", title: str) -> None:
    bound = comparison.upper_bound
    names = ("policy", "welfare", "±", "of bound", "mean", "worst", "Gini", "budget used", "time")
    columns = [(name, "left" if name == "policy" else "right") for name in names]
    rows = [] if bound is None else [(comparison.bound_name, number(bound), "", percent(1.0), "", "", "", "", "")]
    for row in comparison.rows:
        found = row.evaluation
        rows.append(
            (
                row.policy,
                number(comparison.shown_welfare(row)),
                "exact" if found.exact else number(found.welfare_stderr),
                percent(comparison.shown_welfare(row) / bound) if bound and bound > 0 else "-",
                number(found.mean),
                number(found.worst),
                number(found.gini_coefficient),
                ", ".join(percent(share) for share in found.budget_used),
                seconds(found.seconds),
            )
        )
    shown = [i for i, name in enumerate(names) if name != "of bound" or bound is not None]
    print_table(title, [columns[i] for i in shown], [[row[i] for i in shown] for row in rows])
    _tell_ties(comparison)
    _warn(comparison)
    for line in left_out_lines(comparison):
        say(line)


def _tell_ties(comparison: "Comparison") -> None:
    """Who was estimated above what no policy exceeds."""
    for row in comparison.rows:
        if comparison.is_above_bound(row):
            played = f"{number(row.evaluation.welfare)} ± {number(row.evaluation.welfare_stderr)}"
            say(f"tie: {row.policy} with the {comparison.bound_name}: it played {played}, more only by chance")


def _warn(comparison: "Comparison") -> None:
    """What a reader of the table should not miss: values cut off too early, and arms served too seldom."""
    cuts = [
        (row.evaluation.truncation_bound, row.evaluation.welfare_stderr)
        for row in comparison.rows
        if row.evaluation.truncation_bound is not None
    ]
    if any(cut > error for cut, error in cuts):
        most = max(cut for cut, _ in cuts)
        say(f"warning: simulated values end at the horizon and may be off by {most:.2g}; use a longer --horizon")
    for row in comparison.rows:
        for line in floors_in_words(row.evaluation):
            say(f"floor missed: {row.policy}: {line}")
