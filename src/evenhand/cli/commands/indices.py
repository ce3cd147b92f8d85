"""`evenhand indices`."""

import click

from evenhand.cli.arguments import ModelSource, refuse_options
from evenhand.cli.options import RunOptions, backend_option, model_options, option, run_options


@click.command("indices")
@model_options("initial", "over")
@backend_option("blocks of a large model in Parquet are computed")
@option("--out", "FILE.parquet", "Of a model in Parquet: write the indices, row by row; also a plan for act.")
@run_options(seeded=False)
def command(source: ModelSource, run: RunOptions) -> None:
    """Whittle indices and the indexability verdict of each type of arm of MODEL.

    For arms with an idle and one active action. The verdict is a proof, not an assumption. Under finite:T every step
    has indices of its own.
    """
    if (arms := source.opened(run.out)) is not None:
        run.check_targets(folders=True)
        with run.progress() as tell:
            from evenhand.planning.stored_models import save_indices
            from evenhand.policies.index import indices_by_row

            by_row = indices_by_row(arms, run.backend, tell)
            if run.out is not None:
                save_indices(by_row, run.out)
        last = f"written to {run.out}" if run.out else "--out FILE.parquet writes them, row by row"
        run.show(by_row, f"Whittle indices of {arms.path}", [last], out=run.out)
        return
    refuse_options("for models in Parquet, with a file .parquet", {"--out": run.out})
    problem = source.read()
    from evenhand.policies.index import indices_of  # after what may be refused at once
    from evenhand.report.summary import summarise

    found = indices_of(problem)
    summary = summarise(found)
    named = summary.title.replace("Whittle indices", f"Whittle indices of {source.title}")
    run.show(found, f"{named}: {summary.aside}")
