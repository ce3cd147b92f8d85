"""`evenhand show`."""

import click

from evenhand.cli.options import RunOptions, option, run_options


@click.command("show")
@click.argument("plan")
@option("--step", None, "The step, of a plan made for T steps.", default=0, type=click.IntRange(min=0))
@run_options(seeded=False)
def command(plan: str, step: int, run: RunOptions) -> None:
    """Describe a saved PLAN: the order of service by type, state and action.

    And the dual price of each resource. PLAN is a file saved by `evenhand solve --out` or `evenhand
    train --out`.
    """
    from evenhand.cli.console import print_json
    from evenhand.planning.plan import load_plan
    from evenhand.planning.plan_summary import plan_facts

    read = load_plan(plan)
    if run.as_json:
        print_json(plan_facts(read, step))
    else:
        click.echo(read.show(step), nl=False)
