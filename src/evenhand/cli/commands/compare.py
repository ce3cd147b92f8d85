"""`evenhand compare`."""

from typing import Any

import click

from evenhand.cli.arguments import ModelSource, read_names, read_policy
from evenhand.cli.commands.evaluate import unused_horizon
from evenhand.cli.commands.solve import show_sweep
from evenhand.cli.options import (
    RunOptions,
    SimulationOptions,
    backend_option,
    draws_option,
    model_options,
    option,
    report_option,
    run_options,
    simulation_options,
    welfare_option,
)


@click.command("compare")
@model_options(several=True)
@option("--policies", "A,B,...", "Only these, by name or saved file; by default all that apply.")
@welfare_option
@simulation_options
@draws_option
@backend_option("policies are simulated and draws evaluated")
@report_option
@run_options()
def command(source: ModelSource, run: RunOptions, simulation: SimulationOptions, policies: str | None) -> None:
    """Play every policy that applies to MODEL, side by side.

    MODEL is a model file (.toml, .json, .npz) or a built-in problem (see `evenhand problems`). Policies are evaluated
    exactly if that is possible, else simulated, all of them with the same random numbers.
    """
    run.check_targets()
    names = None if policies is None else read_names(policies)
    source.refuse_several({"--report": run.report, "--draws": run.draws, "--backend": run.backend})
    posterior = None if run.draws is None else source.posterior()
    problem, *others = source.read_all()
    from evenhand.planning.compare import compare  # after what may be refused at once

    with run.progress() as tell:
        chosen = _choose(names, problem, run.welfare)
        options = simulation.arguments(run.seed)
        if others:
            budgets = [one.budget for one in (problem, *others)]
            show_sweep(compare(problem, chosen, run.welfare, budgets=budgets, progress=tell, **options), source, run)
            return
        drawn = scenarios = None
        if run.draws is not None:
            from evenhand.uncertainty import compare_scenarios, draw_scenarios

            drawn = draw_scenarios(problem, posterior, run.draws, run.seed)
        comparison: Any = compare(problem, chosen, run.welfare, progress=tell, backend=run.backend, **options)
        if drawn is not None:
            scenarios = compare_scenarios(drawn, comparison.policies, comparison.welfare, tell, run.backend)
        if run.report:
            tell("writing the report", 1.0)
            from evenhand.report import comparison_report

            run.write_report(comparison_report(comparison, seed=run.seed, scenarios=scenarios))
    from evenhand.display import counted

    title = f"{source.title}: {counted(problem.num_arms, 'arm')}, welfare {comparison.welfare.name}"
    unused = {row.policy: unused_horizon(row.evaluation, simulation.horizon) for row in comparison.rows}
    names = [policy for policy, note in unused.items() if note]
    lines = [f"--horizon: {', '.join(names)}: {unused[names[0]]}"] if names else []
    more = {} if scenarios is None else {"draws": scenarios.to_dict()}
    run.show(comparison, title + source.setting(problem), lines, **more)
    if scenarios is not None and not run.as_json:
        from evenhand.cli.console import print_summary
        from evenhand.report import rivals_summary

        print_summary(rivals_summary(scenarios))


def _choose(names: list[str] | None, problem: Any, welfare: str | None) -> Any:
    """Return the requested policies; saved ones are read from their files."""
    from evenhand.planning.policy_registry import find_policy, is_file

    if names is None or not any(map(is_file, names)):
        return names
    files = {name: read_policy(name, problem, welfare) for name in names if is_file(name)}
    return {name if name in files else find_policy(name).name: files.get(name, name) for name in names}
