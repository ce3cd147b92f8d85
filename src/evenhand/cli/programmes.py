"""The commands of a programme, `evenhand programme ...`. Each is one call into the library."""

from collections.abc import Callable
from typing import Any

import click

from evenhand.cli.groups import Commands
from evenhand.cli.options import common, criterion_option, model_argument, over_option, welfare_option

Command = Callable[..., Any]

TABLES = ["csv", "parquet", "json"]


@click.group(cls=Commands)
def programme() -> None:
    """Run a programme: a roster, what is observed, what is decided and done, in a database.

    PROGRAMME is a file (SQLite), or the address of a PostgreSQL database, postgresql://user@host/database. Each step
    goes observe, plan, accept, record. Tables are CSV, Parquet or JSON, or - for standard input with --format. Needs
    the extra "service".
    """


def place(command: Command) -> Command:
    """PROGRAMME."""
    return click.argument("programme")(command)


def writing(command: Command) -> Command:
    """Author and idempotency key."""
    who = click.option("--who", default="", metavar="NAME", help="Who does this; it is written into the events.")
    key = click.option("--key", metavar="KEY", help="Idempotency key.")
    return who(key(command))


def table_format(command: Command) -> Command:
    """Format of a table."""
    return click.option("--format", type=click.Choice(TABLES), help="What TABLE is; needed for -.")(command)


def source_option(command: Command) -> Command:
    """Source of reports."""
    return click.option("--source", metavar="TEXT", help="Source of the reports; by default the name of the table.")(
        command
    )


def solving(command: Command) -> Command:
    """Time limit of solving."""
    text = "Approximate time limit of solving, in seconds; none by default."
    return click.option("--seconds", type=float, metavar="S", help=text)(command)


@programme.command()
@place
@model_argument
@click.option("--roster", required=True, metavar="TABLE", help="Who takes part: arm, type, and perhaps group, state.")
@welfare_option
@criterion_option
@over_option
@click.option("--name", default="", help="Name of the programme; by default that of its file.")
@click.option("--who", default="", metavar="NAME", help="Who does this; it is written into the events.")
@common()
def create(**options: Any) -> None:
    """Begin a programme at PROGRAMME, run by MODEL.

    How many arms MODEL has does not matter: the roster says who takes part. Nothing is left behind where something is
    wrong.
    """
    from evenhand.cli.commands import programme as commands

    commands.create(**options)


@programme.command()
@place
@common(seeded=False)
def status(**options: Any) -> None:
    """Tell what PROGRAMME is and where it stands, and what its policy is worth for the present roster."""
    from evenhand.cli.commands import programme as commands

    commands.status(**options)


@programme.command()
@place
@click.argument("table")
@table_format
@click.option(
    "--step", type=click.IntRange(min=0), help="First step at which they take part; by default the present one."
)
@writing
@common(seeded=False)
def join(**options: Any) -> None:
    """Let the arms of TABLE (arm, type, and perhaps group, state) take part."""
    from evenhand.cli.commands import programme as commands

    commands.join(**options)


@programme.command()
@place
@click.argument("arms", nargs=-1, required=True, metavar="ARM...")
@click.option("--why", required=True, metavar="TEXT", help="A reason.")
@writing
@common(seeded=False)
def leave(**options: Any) -> None:
    """Let arms take part no longer, from the present step on."""
    from evenhand.cli.commands import programme as commands

    commands.leave(**options)


@programme.command()
@place
@click.argument("table")
@table_format
@source_option
@click.option("--step", type=click.IntRange(min=0), help="Step of rows without one; by default the present one.")
@writing
@common(seeded=False)
def observe(**options: Any) -> None:
    """Say in which states arms were seen: TABLE has the columns arm and state, and perhaps step.

    Late and corrected reports are stored beside the old ones. All faults are reported with their rows and exit code 2,
    and nothing is stored.
    """
    from evenhand.cli.commands import programme as commands

    commands.observe(**options)


@programme.command()
@place
@click.option("--method", default="fluid", show_default=True, metavar="M", help="As of `evenhand solve`.")
@solving
@writing
@common(seeded=False)
def solve(**options: Any) -> None:
    """Find a policy for those who take part now; plans are made by it from then on."""
    from evenhand.cli.commands import programme as commands

    commands.solve(**options)


@programme.command()
@place
@click.option("--step", type=click.IntRange(min=0), help="The present step, to be sure that it is the one meant.")
@click.option("--budget", metavar="B,B,...", help="Budget of this step; by default that of the model.")
@click.option("--out", metavar="FILE.csv", help="Also write the plan as a table.")
@solving
@writing
@common(seeded=False)
def plan(**options: Any) -> None:
    """Propose what to do at the present step, arm by arm, from all that is known.

    While nothing has changed, the same plan is returned. Arms that were not observed are taken to be where they
    most likely are. A policy is solved first where there is none for the present roster.
    """
    from evenhand.cli.commands import programme as commands

    commands.plan(**options)


@programme.command()
@place
@click.argument("plan", type=click.IntRange(min=1), required=False)
@click.option("--overrides", metavar="TABLE", help="Arms that get something else: arm, action, why.")
@click.option(
    "--override", "single", type=(str, str, str), multiple=True, metavar="ARM ACTION WHY", help="One of them."
)
@table_format
@writing
@common(seeded=False)
def accept(**options: Any) -> None:
    """Accept the plan of the present step, which closes the step.

    PLAN is its number; by default the proposed one. A plan from before something changed is refused, with what
    changed. Overrides need a reason, and stay within the budget.
    """
    from evenhand.cli.commands import programme as commands

    commands.accept(**options)


@programme.command()
@place
@click.argument("table")
@table_format
@source_option
@writing
@common(seeded=False)
def record(**options: Any) -> None:
    """Say what was really done: TABLE has the columns arm and action, and perhaps step, reward, next_state.

    Rows that name no step are of the last accepted one. Late and corrected records are stored beside the old ones.
    """
    from evenhand.cli.commands import programme as commands

    commands.record(**options)


@programme.command()
@place
@click.argument("arm")
@common(seeded=False)
def history(**options: Any) -> None:
    """Tell all that happened to ARM: conditions, decisions, overrides, records, and what was expected."""
    from evenhand.cli.commands import programme as commands

    commands.history(**options)


@programme.command()
@place
@click.option("--from", "first", type=click.IntRange(min=0), metavar="STEP", help="First step; by default of all.")
@click.option("--to", "last", type=click.IntRange(min=0), metavar="STEP", help="Last step; by default of all.")
@click.option("--as-of", "event", type=click.IntRange(min=1), metavar="EVENT", help="As it was known at this event.")
@click.option(
    "--level",
    default=0.95,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Of intervals; warnings are wrong with at most the rest.",
)
@click.option("--csv", "table", metavar="FILE", help="Also write one row an arm.")
@click.option("--report", metavar="FILE.html", help="Also write a page with pictures.")
@common(seeded=False)
def audit(**options: Any) -> None:
    """Audit a window of steps: service, waiting times, promised and realised rewards.

    Also who decided otherwise and what that cost, and a warning where a group fell behind its promise by more than
    chance explains.
    """
    from evenhand.cli.commands.programme_audit import run

    run(**options)


@programme.command()
@place
@click.option(
    "--trust", default=10.0, show_default=True, metavar="N", help="Observations that the present model counts as."
)
@click.option("--prior", type=float, metavar="P", help="What other types are worth to a sparse row, as of `fit`.")
@solving
@writing
@common(seeded=False)
def refit(**options: Any) -> None:
    """Fit the model anew to the programme's own log, and show what would change; nothing is adopted yet."""
    from evenhand.cli.commands import programme as commands

    commands.refit(**options)


@programme.command()
@place
@click.argument("refit", type=click.IntRange(min=1), required=False)
@common(seeded=False)
def refits(**options: Any) -> None:
    """List the models that were fitted, or show what REFIT would change."""
    from evenhand.cli.commands import programme as commands

    commands.refits(**options)


@programme.command()
@place
@click.argument("refit", type=click.IntRange(min=0))
@writing
@common(seeded=False)
def adopt(**options: Any) -> None:
    """Run the programme by the model of REFIT, the number that `programme refit` printed.

    A model that was in use before may be adopted again, which is the way back; 0 is the one that the programme began
    with.
    """
    from evenhand.cli.commands import programme as commands

    commands.adopt(**options)


@programme.command()
@place
@click.argument("refit", type=click.IntRange(min=1))
@click.option("--why", required=True, metavar="TEXT", help="A reason.")
@writing
@common(seeded=False)
def decline(**options: Any) -> None:
    """Say that REFIT, which a server offered, is not to be adopted; from then on later reports alone count."""
    from evenhand.cli.commands import programme as commands

    commands.decline(**options)


@programme.command()
@place
@click.option("--change", type=float, metavar="SHARE", help="By which numbers of arms may change before it is solved.")
@click.option("--gap", type=float, metavar="GAP", help="How much larger the policy's may get before it is solved.")
@click.option("--level", type=float, metavar="CHANCE", help="That a sound model is ever said not to fit.")
@click.option("--records", type=int, metavar="N", help="Reports after which the model is tested, again and again.")
@writing
@common(seeded=False)
def bounds(**options: Any) -> None:
    """Tell by how much roster and model may drift, or say so: what is named is changed, the rest stays."""
    from evenhand.cli.commands import programme as commands

    commands.bounds(**options)


@programme.command()
@place
@click.argument("plan", type=click.IntRange(min=1), required=False)
@common(seeded=False)
def recompute(**options: Any) -> None:
    """Compute PLAN again from what is stored, or every plan, and compare; first verifies the database."""
    from evenhand.cli.commands import programme as commands

    commands.recompute(**options)


@programme.command()
@place
@click.argument("file")
@common(seeded=False)
def backup(**options: Any) -> None:
    """Copy PROGRAMME, a file, into FILE while it runs, as of one moment, and check the copy."""
    from evenhand.cli.commands import programme as commands

    commands.backup(**options)


@programme.command()
@place
@click.argument("file")
@common(seeded=False)
def restore(**options: Any) -> None:
    """Put the copy FILE into the place of PROGRAMME, also while servers run; what was stored since is gone.

    FILE is checked first, its tables and its chain of events; where something is wrong, nothing changes.
    """
    from evenhand.cli.commands import programme as commands

    commands.restore(**options)


@programme.command()
@place
@click.option("--head", metavar="FILE", help="Exported earlier; the chain of events must still contain it.")
@click.option("--export", metavar="FILE", help="Write the head of the chain of events, to be stored elsewhere.")
@click.option("--key", metavar="FILE", help="A secret that signs heads (HMAC-SHA256) and checks their signatures.")
@common(seeded=False)
def verify(**options: Any) -> None:
    """Rebuild every table from the chain of events, compare, and report each difference."""
    from evenhand.cli.commands import programme as commands

    commands.verify(**options)


@programme.command()
@place
@click.option(
    "--after", default=0, show_default=True, type=click.IntRange(min=0), help="Only events with a larger number."
)
@click.option("--most", default=100, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@common(seeded=False)
def events(**options: Any) -> None:
    """List what happened, one after the other."""
    from evenhand.cli.commands import programme as commands

    commands.events(**options)
