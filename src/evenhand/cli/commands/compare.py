"""`evenhand compare`."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from evenhand.cli.commands.draws import posterior_of
from evenhand.cli.commands.evaluate import unused_horizon
from evenhand.cli.commands.solve import print_budgets
from evenhand.cli.console import print_json, print_summary, say
from evenhand.cli.progress import progress
from evenhand.cli.reading import (
    budget_suffix,
    called,
    check_target,
    read_names,
    read_policy,
    read_problems,
    refuse_with_several,
)
from evenhand.display import counted
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import Format
from evenhand.parallel import parse_backend
from evenhand.planning.policy_registry import find_policy, is_file

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Method
    from evenhand.model.policy import Policy, Starting


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
            rows = compare_budgets(problem, every, chosen, welfare, episodes, horizon, seed, method, tell)
        print_budgets(rows, rows[0].comparison.welfare.name, model, as_json)
        return
    with progress(quiet) as tell:
        from evenhand.planning.compare import compare as compare_policies

        chosen = _choose(names, problem, welfare)
        asked = (welfare, episodes, horizon, seed, method, tell)
        comparison = compare_policies(problem, chosen, *asked, draws=draws, posterior=posterior, backend=backend)
        if report:
            if tell is not None:
                tell("writing the report", 1.0)
            from evenhand.report.comparison import write_comparison  # it loads what draws

            write_comparison(comparison, problem, report, command=f"evenhand {shlex.join(sys.argv[1:])}", seed=seed)
    if as_json:
        print_json(comparison.to_dict())
        return
    from evenhand.report.results import setting, summarise

    about = f"welfare {comparison.welfare.name}{setting(problem)}{budget_suffix(problem, budgets)}"
    print_summary(summarise(comparison), f"{called(model)}: {counted(problem.num_arms, 'arm')}, {about}")
    unused = {row.policy: note for row in comparison.rows if (note := unused_horizon(row.evaluation, horizon))}
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
        name if is_file(name) else find_policy(name).name: read_policy(name, problem, welfare)
        if is_file(name)
        else name
        for name in names
    }
