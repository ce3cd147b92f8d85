"""Command line of the reproduction: `python -m paper [TARGET...]`."""

import os
import sys
from pathlib import Path

import click

from paper.report import claims_markdown, read_report, write_docs, write_report
from paper.run import run
from paper.tables import markdown
from paper.targets import choose, read_targets


@click.command()
@click.argument("names", nargs=-1, metavar="[TARGET]...")
@click.option("--quick", is_flag=True, help="Reduced sizes, seeds and training: minutes instead of an hour.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Cells that run at a time.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("reproduction"), show_default=True
)
@click.option("--docs", is_flag=True, help="Fill README and docs from paper/records instead.")
def main(names: tuple[str, ...], quick: bool, jobs: int, out: Path, docs: bool) -> None:
    """Reproduce tables and figures of the paper; without a TARGET, list them."""
    targets = read_targets()
    if docs:
        write_docs()
        return
    if not names:
        for target in targets.values():
            click.echo(f"{target.name:20} {target.source:20} {len(target.full):4} cells  {target.title}")
        return
    try:
        chosen = choose(targets, list(names))
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
    failures = run(chosen, out, quick, jobs, lambda line: click.echo(line, err=True))
    report = read_report(out, chosen)
    for target in chosen:
        click.echo("\n".join(map(markdown, report.tables[target.name][:1])))
    click.echo(claims_markdown([claim for claim in report.claims if claim.verdict != "not run"]))
    click.echo(f"report: {write_report(out, chosen)}")
    if failures:
        sys.exit(f"{len(failures)} cells failed; the same command runs them again")


if __name__ == "__main__":
    main()
