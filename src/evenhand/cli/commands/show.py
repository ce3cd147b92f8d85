"""`evenhand show`."""

import click

from evenhand.cli.console import print_json


def run(plan: str, step: int, as_json: bool, quiet: bool) -> None:
    """Tell a plan in words."""
    from evenhand.planning.plan import load_plan
    from evenhand.planning.plan_summary import plan_facts

    read = load_plan(plan)
    if as_json:
        print_json(plan_facts(read, step))
    else:
        click.echo(read.show(step), nl=False)
