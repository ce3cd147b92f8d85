"""`evenhand evaluate`."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from evenhand.cli.arguments import ModelSource, check_target, read_policy, refuse_options
from evenhand.cli.options import (
    RunOptions,
    SimulationOptions,
    backend_option,
    draws_option,
    model_options,
    option,
    run_options,
    simulation_options,
    welfare_option,
)

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Evaluation


@click.command("evaluate")
@model_options()
@click.argument("policy")
@welfare_option
@simulation_options
@draws_option
@backend_option("draws are evaluated, and blocks of a large model in Parquet simulated")
@option("--values", "FILE.parquet", "Of a model in Parquet: write the value of each row, with its error.")
@run_options()
def command(
    source: ModelSource, run: RunOptions, simulation: SimulationOptions, policy: str, values: str | None
) -> None:
    """Evaluate POLICY on MODEL, arm by arm.

    POLICY is the name of a policy (`evenhand compare` shows them), or a file saved by `evenhand solve --out` or
    `evenhand train --out`.
    """
    from evenhand.model.io import is_stored

    if (arms := source.opened(values or (policy if is_stored(policy) else None))) is not None:
        refuse_options("not for a large model in Parquet", {"--draws": run.draws})
        check_target(values, "--values", folders=True)
        from evenhand.model.parquet import write_rows
        from evenhand.planning.stored_models import evaluate_stored
        from evenhand.report.summary import summarise

        with run.progress() as tell:
            settings = (simulation.episodes, simulation.horizon, run.seed, tell, run.backend)
            found = evaluate_stored(arms, policy, run.welfare, *settings)
            if values is not None:
                columns = {"value": found.unit_values, "stderr": found.unit_stderr, "served": found.unit_served}
                write_rows(values, arms, columns)
        more = {"criterion": found.criterion, "over": found.over, "arms": arms.num_arms, "values": values}
        title = f"{policy} on {arms.path}, welfare {found.objective.welfare.name}{source.setting(arms)}"
        last = f"written to {values}" if values else "--values FILE.parquet writes the values, row by row"
        run.say(found.figures() | more, replace(summarise(found), title=title, aside=""), [last])
        return
    refuse_options("for models in Parquet, with a file .parquet", {"--values": values})
    posterior = None if run.draws is None else source.posterior()
    problem = source.read()
    from evenhand.model.objective import read_welfare
    from evenhand.planning.compare import evaluate  # after what may be refused at once

    with run.progress() as tell:
        tell(f"making {policy}", 0.0)
        actor = read_policy(policy, problem, run.welfare)
        chosen = read_welfare(problem, run.welfare)

        def turn(doing: str, share: float) -> None:
            tell(policy, share)

        scenarios = None
        if run.draws is not None:
            from evenhand.uncertainty import compare_scenarios, draw_scenarios

            drawn = draw_scenarios(problem, posterior, run.draws, run.seed)
            scenarios = compare_scenarios(drawn, {policy: actor}, chosen, turn, run.backend)
        found = evaluate(problem, actor, chosen, progress=turn, **simulation.arguments(run.seed))
    title = f"{policy} on {source.title}, welfare {chosen.name}{source.setting(problem)}"
    note = unused_horizon(found, simulation.horizon)
    more = {} if scenarios is None else {"draws": scenarios.to_dict()}
    run.show(found, title, [f"--horizon: {note}"] if note else [], **more)
    if scenarios is not None and not run.as_json:
        run.show(scenarios)


def unused_horizon(found: "Evaluation", horizon: int | None) -> str:
    """Return a note if a horizon was given and the evaluation is exact; else nothing."""
    if horizon is None or not found.exact or not found.problem.criterion.is_stationary:
        return ""
    span = "in the long run" if found.problem.criterion.factor == 1 else "over all time"
    return f"not used: the value is exact, {span}; --monte-carlo plays {horizon} step{'s' if horizon > 1 else ''}"
