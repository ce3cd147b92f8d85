"""`evenhand check`."""

from dataclasses import replace

import click

from evenhand.cli.arguments import ModelSource
from evenhand.cli.options import RunOptions, backend_option, model_options, run_options, welfare_option


@click.command("check")
@model_options()
@welfare_option
@backend_option("blocks of a large model in Parquet are computed")
@run_options(seeded=False)
def command(source: ModelSource, run: RunOptions) -> None:
    """Summarise MODEL, and report what looks odd.

    MODEL is a model file (.toml, .json, .npz, .parquet) or a built-in problem. Faults end with exit code 2, all of
    them with their place. Oddities are notes: names that occur twice, actions that no budget allows, states
    that are never reached, arms that gain nothing by being served, budgets that never bind, floors that cannot be met,
    ...
    """
    source.refuse_several()
    if (arms := source.opened()) is not None:
        with run.progress() as tell:
            from evenhand.planning.stored_models import check_stored

            checked = check_stored(arms, tell, run.backend)
        run.show(checked, f"{arms.path}{source.setting(arms)}")
        return
    loaded = source.load()
    (problem,) = source.changed(loaded.problem)
    from evenhand.planning.check import check_loaded  # after what may be refused at once
    from evenhand.report.summary import summarise

    found = check_loaded(replace(loaded, problem=problem), run.welfare)
    summary = summarise(found)
    run.say(found.to_dict(), replace(summary, notes=[f"  - {note}" for note in summary.notes]))
