"""`evenhand programme ...`. Each command is one call into the library."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.arguments import DASH, ModelSource, check_target, read_amounts, read_states
from evenhand.cli.completion import Commands
from evenhand.cli.console import print_json, print_summary, print_table, printable, table_bytes
from evenhand.cli.options import (
    Decorator,
    RunOptions,
    add_options,
    gathered,
    model_options,
    option,
    run_options,
    welfare_option,
)
from evenhand.cli.refusals import OptionError
from evenhand.display import counted

if TYPE_CHECKING:
    from evenhand.model.io.text_table import Table, TableFormat
    from evenhand.programme.decisions import KeptPlan
    from evenhand.programme.programme import Programme
    from evenhand.programme.refit import Refitted

SHOWN = 200
"""Rows that are listed; --json and --out have all of them."""

COLUMNS = ("arm", "type", "group", "state", "known", "action", "next_in_line", "reason")
"""Columns of a plan on the terminal."""

WRITTEN = (*COLUMNS[:5], "seen_step", "chance", *COLUMNS[5:], "accepted", "who", "why")
"""Columns of a plan as a file."""

MOST_TESTED = 50_000
"""Reports beyond which a plan does not wait for the test of its model."""


@click.group(cls=Commands)
def programme() -> None:
    """Run a programme: a roster, what is observed, what is decided and done, in a database.

    PROGRAMME is a file (SQLite), or the address of a PostgreSQL database, postgresql://user@host/database. Each step
    goes observe, plan, accept, record. Tables are CSV, Parquet or JSON, or - for standard input with --format. Needs
    the extra "service".
    """


@dataclass(frozen=True)
class TableArgument:
    """TABLE and its options."""

    table: str
    format: "TableFormat | None"
    source: str | None = None

    def read(self) -> "Table":
        """Read the table."""
        return read_states(self.table, self.format)

    @property
    def origin(self) -> str:
        """Source of the reports; by default the name of the table."""
        return self.source or ("standard input" if self.table == DASH else Path(self.table).name)


place = click.argument("programme")
author = option("--who", "NAME", "Author, written into the events.", default="")
format_option = option("--format", None, "What TABLE is; needed for -.", type=click.Choice(["csv", "parquet", "json"]))
seconds_option = option("--seconds", "S", "Approximate time limit of solving, in seconds; none by default.", type=float)
step_options = option("--step", None, "The step; by default the present one.", type=click.IntRange(min=0))
reason = option("--why", "TEXT", "A reason.", required=True)
source_option = option("--source", "TEXT", "Source of the reports; by default the name of the table.")
reports = gathered(TableArgument, "table", [click.argument("table"), format_option, source_option])


def command(*options: Decorator, writes: bool = False) -> Decorator:
    """Return a decorator for a command on PROGRAMME.

    Args:
        *options: its own arguments and options.
        writes: whether it has an author and an idempotency key.
    """
    key = option("--key", "KEY", "Idempotency key.")
    shared: list[Decorator] = [place, *options, *([author, key] if writes else []), run_options(seeded=False)]
    return lambda function: programme.command()(add_options(shared, function))


def opened(address: str) -> "Programme":
    """Open a programme."""
    from evenhand.programme.programme import Programme

    return Programme.open(address)


@programme.command()
@place
@model_options(budgets=None, initial=False)
@option("--roster", "TABLE", "Who takes part: arm, type, and perhaps group, state.", required=True)
@welfare_option
@option("--name", None, "Name of the programme; by default that of its file.", default="")
@author
@run_options()
def create(programme: str, source: ModelSource, roster: str, run: RunOptions, **settings: Any) -> None:
    """Begin a programme at PROGRAMME, run by MODEL.

    The number of arms of MODEL does not matter: the roster says who takes part. If something is wrong, nothing is
    written.
    """
    from evenhand.programme.programme import Programme

    problem = source.load().problem.with_criterion(source.criterion, source.over)
    rows = read_states(roster, "csv" if roster == DASH else None, "--roster")
    with Programme.create(programme, problem, rows, seed=run.seed, **settings) as made:
        _show_status(made, run)


@command()
def status(programme: str, run: RunOptions) -> None:
    """Describe PROGRAMME: its step, roster and budget, and the value of its policy for the present roster."""
    with opened(programme) as one:
        _show_status(one, run)


@command(gathered(TableArgument, "table", [click.argument("table"), format_option]), step_options, writes=True)
def join(programme: str, table: TableArgument, run: RunOptions, **options: Any) -> None:
    """Let the arms of TABLE (arm, type, and perhaps group, state) take part, from --step on."""
    rows = table.read()
    with opened(programme) as one:
        found = one.join(rows, **options)
    run.say(found.to_dict(), f"{counted(len(found.arms), 'arm')} joined, from step {found.step} on")


@command(click.argument("arms", nargs=-1, required=True, metavar="ARM..."), reason, writes=True)
def leave(programme: str, arms: Sequence[str], run: RunOptions, **options: Any) -> None:
    """Remove arms from the roster, from the present step on."""
    with opened(programme) as one:
        found = one.leave(list(arms), **options)
    run.say(found.to_dict(), f"{counted(len(found.arms), 'arm')} left, from step {found.step} on")


@command(reports, step_options, writes=True)
def observe(programme: str, table: TableArgument, run: RunOptions, **options: Any) -> None:
    """Report observed states: TABLE has the columns arm and state, and perhaps step.

    Late and corrected reports are stored beside the old ones. All faults are reported with their rows and exit code 2,
    and nothing is stored.
    """
    rows = table.read()
    with opened(programme) as one:
        found = one.observe(rows, table.origin, **options)
    text = f"{counted(found.observations, 'observation')}, {found.late} late, {found.corrected} corrected"
    run.say(found.to_dict(), text)


@command(
    option("--method", "M", "As of `evenhand solve`.", default="fluid", show_default=True),
    seconds_option,
    writes=True,
)
def solve(programme: str, run: RunOptions, **options: Any) -> None:
    """Find a policy for the present roster; later plans use it."""
    with opened(programme) as one, run.progress() as tell:
        found = one.solve(progress=tell, **options)
    text = f"welfare {found.welfare:.6g}, at most {found.upper_bound:.6g}, gap {100 * found.gap:.3g} %"
    serves = "any number of such arms" if found.any_number else "just these numbers of arms"
    run.say(found.to_dict(), f"{text}, by {found.method}; it serves {serves}")


@command(
    option("--step", None, "The present step, to be sure that it is the one meant.", type=click.IntRange(min=0)),
    option("--budget", "B,B,...", "Budget of this step; by default that of the model."),
    option("--out", "FILE.csv", "Also write the plan as a table."),
    seconds_option,
    writes=True,
)
def plan(programme: str, budget: str | None, out: str | None, run: RunOptions, **options: Any) -> None:
    """Propose what to do at the present step, arm by arm, from all that is known.

    While nothing has changed, the same plan is returned. Arms that were not observed are taken to be where they
    most likely are. A policy is solved first if there is none for the present roster.
    """
    from evenhand.model.io import write_atomically

    check_target(out, "--out")
    amounts = None if budget is None else read_amounts(budget)
    with opened(programme) as one:
        with run.progress() as tell:
            made = one.plan(budget=amounts, progress=tell, **options)
        found, notices = one.plan_of(made.plan), _notices(one)
    if out:
        rows = [{column: getattr(row, column) for column in WRITTEN} for row in found.rows]
        write_atomically(out, table_bytes(rows, out))
    if run.as_json:
        print_json(found.to_dict() | {"notices": notices})
        return
    _show_plan(found)
    for notice in notices:
        click.echo(f"drift: {notice}")
    if out:
        click.echo(f"written to {out}")


@command(
    click.argument("plan", type=click.IntRange(min=1), required=False),
    option("--overrides", "TABLE", "Arms that get something else: arm, action, why."),
    option("--override single", "ARM ACTION WHY", "One of them.", type=(str, str, str), multiple=True),
    format_option,
    writes=True,
)
def accept(
    programme: str,
    plan: int | None,
    overrides: str | None,
    single: Sequence[tuple[str, str, str]],
    format: "TableFormat | None",
    run: RunOptions,
    **options: Any,
) -> None:
    """Accept the plan of the present step, which closes the step.

    PLAN is its number; by default the proposed one. A plan from before something changed is refused, with what
    changed. Overrides need a reason, and stay within the budget.
    """
    if overrides is not None and single:
        raise OptionError("--override", "goes with a plan alone; put all of them into the table of --overrides")
    given: Any = [dict(zip(("arm", "action", "why"), row, strict=True)) for row in single]
    given = given if overrides is None else read_states(overrides, format, "--overrides")
    with opened(programme) as one:
        if plan is None:
            if (proposed := one.current_plan()) is None:
                raise OptionError("PLAN", "nothing is proposed for this step; run `evenhand programme plan` first")
            plan = proposed.id
        found = one.accept(plan, given, **options)
    changed = f", {found.overridden} overridden" if found.overridden else ""
    run.say(found.to_dict(), f"plan {found.plan} is accepted{changed}; step {found.step} is closed")


@command(reports, writes=True)
def record(programme: str, table: TableArgument, run: RunOptions, **options: Any) -> None:
    """Report what was done: TABLE has the columns arm and action, and perhaps step, reward, next_state.

    Rows that name no step are of the last accepted one. Late and corrected records are stored beside the old ones.
    """
    rows = table.read()
    with opened(programme) as one:
        found = one.record(rows, table.origin, **options)
    text = f"{counted(found.records, 'record')}, {found.late} late, {found.corrected} corrected"
    run.say(found.to_dict(), f"{text}, {found.differing} not as accepted")


@command(click.argument("arm"))
def history(programme: str, arm: str, run: RunOptions) -> None:
    """List all that happened to ARM: conditions, decisions, overrides, records, and what was expected."""
    with opened(programme) as one:
        found = one.history(arm)
    if run.as_json:
        print_json({"arm": arm, "history": [entry.to_dict() for entry in found]})
        return
    columns = ("step", "kind", "state", "planned", "action", "expected", "chance", "reward", "source", "why")
    rows = [[getattr(entry, column) for column in columns] for entry in found[-SHOWN:]]
    _print_rows(f"{arm}, {counted(len(found), 'entry', 'entries')}", columns, rows)


@command(
    option("--from first", "STEP", "First step; by default of all.", type=click.IntRange(min=0)),
    option("--to last", "STEP", "Last step; by default of all.", type=click.IntRange(min=0)),
    option("--as-of event", "EVENT", "As it was known at this event.", type=click.IntRange(min=1)),
    option(
        "--level",
        None,
        "Of intervals; warnings are wrong with at most the rest.",
        default=0.95,
        show_default=True,
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
    ),
    option("--csv table", "FILE", "Also write one row per arm."),
    option("--report", "FILE.html", "Also write a page with figures."),
)
def audit(programme: str, table: str | None, report: str | None, run: RunOptions, **window: Any) -> None:
    """Audit a window of steps: service, waiting times, promised and realised rewards.

    Also overrides with their author and cost, and a warning if a group fell behind its promise by more than
    chance explains.
    """
    check_target(table, "--csv")
    check_target(report, "--report")
    from evenhand.model.io import write_atomically
    from evenhand.programme.audit import audit_of
    from evenhand.programme.audit_report import audit_page, audit_summary

    with opened(programme) as one:
        books, name, address = one.books(**window), one.status().name, one.store.address
    found = audit_of(books)
    if table:
        write_atomically(table, table_bytes([row.as_row() for row in found.arms], ".csv"))
    if report:
        words = [address if word == programme else word for word in sys.argv[1:]]  # without a password
        run.write_report(audit_page(found, books, name), report, words)
    if run.as_json:
        print_json(found.to_dict())
        return
    print_summary(audit_summary(found, name))
    for what, path in (("table", table), ("report", report)):
        if path and not run.quiet:
            click.echo(f"{what}: {path}")


@command(
    option("--trust", "N", "Observations that the present model counts as.", default=10.0, show_default=True),
    option("--prior", "P", "Strength of other types for a sparse row, as of `fit`.", type=float),
    seconds_option,
    writes=True,
)
def refit(programme: str, run: RunOptions, **options: Any) -> None:
    """Fit the model anew to the programme's own log, and show what would change; nothing is adopted yet."""
    with opened(programme) as one, run.progress() as tell:
        found, name = one.refit(progress=tell, **options), _address(one)
    _show_refit(found, run, name)


@command(click.argument("refit", type=click.IntRange(min=1), required=False))
def refits(programme: str, refit: int | None, run: RunOptions) -> None:
    """List the models that were fitted, or show what REFIT would change."""
    with opened(programme) as one:
        found, model, name = one.refits(), one.status().model, _address(one)
    if refit is not None:
        chosen = next((fitted for fitted in found if fitted.id == refit), None)
        if chosen is None:
            raise OptionError("REFIT", f"unknown refit {refit}")
        _show_refit(chosen, run, name)
        return
    if run.as_json:
        print_json({"refits": [fitted.to_dict() for fitted in found]})
        return
    rows = [[one.id, one.event, one.rows, _standing(one, model), "; ".join(one.why)] for one in found[:SHOWN]]
    _print_rows(f"{name}, {counted(len(found), 'refit')}", ("refit", "event", "rows", "stands", "why"), rows)


@command(click.argument("refit", type=click.IntRange(min=0)), writes=True)
def adopt(programme: str, refit: int, run: RunOptions, **options: Any) -> None:
    """Run the programme by the model of REFIT, the number that `programme refit` printed.

    A model that was in use before may be adopted again, which is the way back; 0 is the one that the programme began
    with.
    """
    with opened(programme) as one:
        found = one.adopt(refit, **options)
    what = f"refit {found.id} is adopted" if found.id else "the model that the programme began with is in use again"
    run.say(found.to_dict(), f"{what}; plan again")


@command(click.argument("refit", type=click.IntRange(min=1)), reason, writes=True)
def decline(programme: str, refit: int, run: RunOptions, **options: Any) -> None:
    """Decline REFIT, which a server proposed; from then on later reports alone count."""
    with opened(programme) as one:
        found = one.decline(refit, **options)
    run.say(found.to_dict(), f"refit {found.id} is declined; from now on later reports alone count")


@command(
    option("--change", "SHARE", "By which numbers of arms may change before it is solved.", type=float),
    option("--gap", "GAP", "How much larger the policy's may get before it is solved.", type=float),
    option("--level", "CHANCE", "That a sound model is ever said not to fit.", type=float),
    option("--records", "N", "Reports after which the model is tested, again and again.", type=int),
    writes=True,
)
def bounds(programme: str, who: str, key: str | None, run: RunOptions, **given: Any) -> None:
    """Show by how much roster and model may drift, or set it: named bounds change, the others stay."""
    with opened(programme) as one:
        is_set = any(value is not None for value in given.values())
        found = one.set_bounds(given, who=who, key=key) if is_set else one.bounds()
    lines = [
        f"change   {found.change:g}: solve anew if numbers of arms change by a larger share",
        f"gap      {found.gap:g}: and if the gap for the present roster grows by more than this",
        f"level    {found.level:g}: probability at most that a true model is ever rejected",
        f"records  {found.records}: reports between two tests of the model",
    ]
    run.say(found.to_dict(), "\n".join(lines))


@command(click.argument("plan", type=click.IntRange(min=1), required=False))
def recompute(programme: str, plan: int | None, run: RunOptions) -> None:
    """Compute PLAN again from what is stored, or every plan, and compare; first verifies the database."""
    with opened(programme) as one:
        events = one.verify().event
        numbers = [found.id for found in one.plans()] if plan is None else [plan]
        for number in numbers:
            one.recompute(number)
    text = f"{counted(len(numbers), 'plan')} computed again, all the same; {events} events, none missing"
    run.say({"plans": sorted(numbers), "same": True, "events": events}, text)


@command(click.argument("file"))
def backup(programme: str, file: str, run: RunOptions) -> None:
    """Copy PROGRAMME, a file, into FILE while it runs, as of one moment, and check the copy."""
    from evenhand.programme import store

    last = store.backup(programme, file)
    run.say({"file": file, "events": last}, f"{file}: a copy with {counted(last, 'event')}, checked")


@command(click.argument("file"))
def restore(programme: str, file: str, run: RunOptions) -> None:
    """Put the copy FILE into the place of PROGRAMME, also while servers run; what was stored since is gone.

    FILE is checked first, its tables and its chain of events; if something is wrong, nothing changes.
    """
    from evenhand.programme import store

    last = store.restore(programme, file)
    run.say({"file": file, "events": last}, f"the programme is the copy {file}, with {counted(last, 'event')}")


@command(
    option("--head", "FILE", "Exported earlier; the chain of events must still contain it."),
    option("--export", "FILE", "Write the head of the chain of events, to be stored elsewhere."),
    option("--key", "FILE", "A secret that signs heads (HMAC-SHA256) and checks their signatures."),
)
def verify(programme: str, head: str | None, export: str | None, key: str | None, run: RunOptions) -> None:
    """Rebuild every table from the chain of events, compare, and report each difference."""
    from evenhand.programme.integrity import Head, read_key

    check_target(export, "--export")
    secret = None if key is None else read_key(key)
    before = None if head is None else Head.load(head)
    with opened(programme) as one:
        found = one.verify(before, key=secret)
    if export is not None:
        found.save(export)
    since = "" if before is None else f", and contain event {before.event} of {head}"
    text = f"all tables follow from {counted(found.event, 'event')}{since}\nhead {found.chain}"
    run.say(asdict(found), text)


@command(
    option(
        "--after", None, "Only events with a larger number.", default=0, show_default=True, type=click.IntRange(min=0)
    ),
    option("--most", None, "At most so many.", default=100, show_default=True, type=click.IntRange(min=1)),
)
def events(programme: str, after: int, most: int, run: RunOptions) -> None:
    """List the events, in their order."""
    with opened(programme) as one:
        found, name = one.events(after, most), _address(one)
    if run.as_json:
        print_json({"events": [vars(event) for event in found]})
        return
    bodies = [json.dumps(event.body, ensure_ascii=False)[:80] for event in found]
    rows = [[event.id, event.at, event.kind, event.who, body] for event, body in zip(found, bodies, strict=True)]
    _print_rows(f"{name}, events after {after}", ("event", "at", "kind", "who", "what"), rows)


def _print_rows(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table of texts, without control characters."""
    print_table(title, [(head, "left") for head in heads], [[printable(cell) for cell in row] for row in rows])


def _address(one: "Programme") -> str:
    """Return the name of a programme in commands, without a password, since output is logged."""
    return printable(one.store.address)


def _notices(one: "Programme") -> list[str]:
    """Describe drift beyond its bound, and the command that does something about it."""
    anew = f"`evenhand programme solve {_address(one)}` finds a new policy"
    return [f"{why}: {anew}" for why in one.needs_solving().why] + _model_notices(one, MOST_TESTED)


def _model_notices(one: "Programme", most: int | None = None) -> list[str]:
    offer, name = one.offered(), _address(one)
    if offer is not None:
        ways = f"`evenhand programme refits {name} {offer.refit}` shows it, `adopt` or `decline` answers it"
        return [*offer.why, f"refit {offer.refit} is offered: {ways}"]
    drift = one.model_drift(most)
    if most is not None and drift.reports > most:
        return [f"not tested against {counted(drift.reports, 'report')}: `evenhand programme status {name}` does it"]
    if not drift.needed:
        return []
    return [*drift.why, f"`evenhand programme refit {name}` fits the model anew and shows what would change"]


def _show_status(one: "Programme", run: RunOptions) -> None:
    found, drift = one.status(), one.needs_solving()
    certificate = one.certificate() if drift.policy else None
    if run.as_json:
        offer = one.offered()
        more = {"certificate": None if certificate is None else certificate.to_dict(), "solve": drift.to_dict()}
        more |= {"model_drift": one.model_drift().to_dict(), "offered": None if offer is None else offer.to_dict()}
        print_json(found.to_dict() | more)
        return
    numbers = ", ".join(f"{number} {kind}" for kind, number in found.arms.items())
    lines = [
        f"{found.name}: step {found.step}, {numbers or 'no arms'}; {found.observed} seen at this step",
        f"  budget     {', '.join(f'{name} {amount:g}' for name, amount in found.budget.items())} per step",
        f"  welfare    {found.welfare}, over {found.over}, {found.criterion}",
    ]
    if certificate is not None:
        value = f"{certificate.welfare:.6g}, at most {certificate.upper_bound:.6g}, gap {100 * certificate.gap:.3g} %"
        lines.append(f"  policy     {value}, for the present roster")
    lines += [f"  solve      {why}" for why in drift.why]
    lines += [f"  model      {why}" for why in _model_notices(one)]
    click.echo("\n".join([*lines, f"  events     {found.events}"]))


def _show_plan(found: "KeptPlan") -> None:
    seen = f"{found.missing} of {found.arms} arms not seen, and believed" if found.missing else "all arms seen"
    rows = sorted(found.rows, key=lambda row: (not row.served, row.next_in_line or len(found.rows) + 1))
    heads = [column.replace("next_in_line", "next") for column in COLUMNS]
    shown = [[getattr(row, column) for column in COLUMNS] for row in rows[:SHOWN]]
    _print_rows(f"plan {found.id} of step {found.step}, {found.status}; {seen}", heads, shown)
    if len(rows) > SHOWN:
        click.echo(f"... {len(rows) - SHOWN} more; --json and --out have all of them\n")
    used = ", ".join(f"{name} {amount:g} of {found.budget[name]:g}" for name, amount in found.used.items())
    click.echo(f"used: {used}")
    if found.note:
        click.echo(f"note: {found.note}")


def _standing(found: "Refitted", model: str) -> str:
    if found.model == model:
        return "in use"
    if found.adopted_event is not None:
        return "was in use"
    if found.declined_event is not None:
        return "declined"
    return "offered" if found.why and found.before == model else "not adopted"


def _show_refit(found: "Refitted", run: RunOptions, name: str) -> None:
    if run.as_json:
        print_json(found.to_dict())
        return
    columns = ("type", "state", "action", "next_state", "before", "after")
    rows = [
        [*(getattr(row, column) for column in columns), f"{row.lower:.3g} to {row.upper:.3g}", row.seen]
        for row in [row for row in found.moved if row.is_beyond_chance][:SHOWN]
    ]
    title = f"refit {found.id}: {counted(found.rows, 'row')}; probabilities that differ beyond chance"
    _print_rows(title, (*columns, "95 %", "seen"), rows)
    before, after = ["impossible" if value is None else f"{value:.6g}" for value in found.likelihood]
    click.echo(f"log-likelihood {before} before, {after} after")
    if found.unseen:
        click.echo(f"never seen, and left as they are: {counted(len(found.unseen), 'pair')} of state and action")
    now, then = found.welfare
    known = "" if now is None else f"the present policy has {now:.6g} in it, "
    click.echo(f"welfare: {known}the new one {0.0 if then is None else then:.6g}")
    changes = "; ".join(f"{arm} {old} -> {new}" for arm, old, new in found.plan[:10])
    more = f" and {len(found.plan) - 10} more" if len(found.plan) > 10 else ""
    click.echo(f"in a plan now: {printable(changes)}{more}" if found.plan else "a plan now would be the same")
    for why in found.why:
        click.echo(f"why: {printable(why)}")
    click.echo(f"to adopt it: evenhand programme adopt {name} {found.id}")
