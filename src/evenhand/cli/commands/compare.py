"""`evenhand compare`."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from evenhand.cli.commands.evaluate import unused_horizon
from evenhand.cli.commands.solve import print_budgets
from evenhand.cli.console import print_json, print_summary, say
from evenhand.cli.progress import progress
from evenhand.cli.reading import (
    budget_suffix,
    called,
    check_target,
    posterior_of,
    read_names,
    read_policy,
    read_problems,
    refuse_with_several,
)
from evenhand.display import counted
from evenhand.execution.places import check_place
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import Format
from evenhand.planning.policy_registry import find_policy, is_file

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Method
    from evenhand.model.policy import Policy, StatefulPolicy


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
    on: str | None,
    report: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare policies and print them, best first."""
    check_target(report, "--report")
    names = None if policies is None else read_names(policies)
    if on is not None:
        check_place(on)
    refuse_with_several(budgets, {"--report": report, "--draws": draws, "--on": on})
    posterior = None if draws is None else posterior_of(model)
    problem, *others = (
        one.with_criterion(criterion, over)
        for one in read_problems(model, parameters, format, budgets, criterion, initial)
    )
    method: Method = "monte-carlo" if monte_carlo else "auto"
    if others:
        every = [one.budget for one in (problem, *others)]
        with progress(quiet) as tell:
            from evenhand.planning.compare import compare as compare_policies  # after what may be refused at once

            chosen = _choose(names, problem, welfare)
            sweep = compare_policies(problem, chosen, welfare, episodes, horizon, seed, method, tell, budgets=every)
        print_budgets(sweep, model, as_json)
        return
    with progress(quiet) as tell:
        from evenhand.planning.compare import compare as compare_policies

        chosen = _choose(names, problem, welfare)
        asked = (welfare, episodes, horizon, seed, method, tell)
        drawn = scenarios = None
        if draws is not None:
            from evenhand.uncertainty import compare_scenarios, draw_scenarios

            drawn = draw_scenarios(problem, posterior, draws, seed)
        comparison = compare_policies(problem, chosen, *asked, on=on)
        if drawn is not None:
            scenarios = compare_scenarios(drawn, comparison.policies, comparison.welfare, tell, on)
        if report:
            if tell is not None:
                tell("writing the report", 1.0)
            from evenhand.report.comparison import write_comparison  # it loads what draws

            command = f"evenhand {shlex.join(sys.argv[1:])}"
            write_comparison(comparison, problem, report, command=command, seed=seed, scenarios=scenarios)
    if as_json:
        print_json(comparison.to_dict() | ({} if scenarios is None else {"draws": scenarios.to_dict()}))
        return
    from evenhand.report.results import rivals_summary, setting, summarise

    about = f"welfare {comparison.welfare.name}{setting(problem)}{budget_suffix(problem, budgets)}"
    print_summary(summarise(comparison), f"{called(model)}: {counted(problem.num_arms, 'arm')}, {about}")
    unused = {row.policy: note for row in comparison.rows if (note := unused_horizon(row.evaluation, horizon))}
    if unused:
        say(f"--horizon: {', '.join(unused)}: {next(iter(unused.values()))}")
    if scenarios is not None:
        print_summary(rivals_summary(scenarios))
    if report:
        click.echo(f"report: {report}")


def _choose(
    names: Sequence[str] | None, problem: CoupledMDP, welfare: str | None
) -> "Sequence[str] | Mapping[str, Policy | StatefulPolicy | str] | None":
    """The policies that were asked for, saved ones read from their files."""
    if names is None or not any(is_file(name) for name in names):
        return names
    return {
        name if is_file(name) else find_policy(name).name: read_policy(name, problem, welfare)
        if is_file(name)
        else name
        for name in names
    }
