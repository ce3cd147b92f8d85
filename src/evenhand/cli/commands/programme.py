"""`evenhand programme ...`. Each command is one call into the library."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.arguments import DASH, ModelSource, called, check_target, read_amounts, read_states
from evenhand.cli.completion import Commands
from evenhand.cli.options import Decorator, RunOptions, add_options, model_options, option, run_options, welfare_option
from evenhand.cli.programme_output import (
    COLUMNS,
    SHOWN,
    address_of,
    ask_words,
    change_summary,
    drift_notices,
    event_content,
    own_table,
    plan_summary,
    read_wait,
    read_words,
    rows_summary,
    show_refit,
    show_status,
    standing,
)
from evenhand.cli.refusals import OptionError
from evenhand.display import counted
from evenhand.errors import EvenhandError, InvalidInputError
from evenhand.report.summary import Summary

if TYPE_CHECKING:
    from evenhand.programme.programme import Programme
    from evenhand.programme.vocabulary import Vocabulary

WRITTEN = (*COLUMNS[:5], "seen_step", "chance", *COLUMNS[5:], "accepted", "who", "why")
"""Columns of a plan as a file."""

STEPS = {"step": "--step", "first": "--from", "last": "--to"}
"""Options that take a step or a date, by their argument."""


@click.group(cls=Commands)
def programme() -> None:
    """Run a programme: a roster, what is observed, what is decided and done, in a database.

    PROGRAMME is a file (SQLite), or the address of a PostgreSQL database, postgresql://user@host/database. Each step
    goes observe, plan, accept, record. Tables are CSV, Parquet or JSON, or - for standard input with --format. Needs
    the extra "service".
    """


place = click.argument("programme")
author = option("--who", "NAME", "Author, written into the events.", default="")
rows_argument = click.argument("rows", metavar="TABLE")
format_option = option(
    "--format", None, "Format of TABLE; needed for -.", type=click.Choice(["csv", "parquet", "json"])
)
seconds_option = option("--seconds", "S", "Approximate time limit of solving, in seconds; none by default.", type=float)
FIRST = "Approximate time limit of solving, in seconds, if there is no policy for the present roster."
step_options = option("--step", "STEP", "The step, by its number or a date in it; by default the present one.")
reason = option("--why", "TEXT", "A reason.", required=True)
confirm_option = option("--confirm confirmed", None, "Also if TABLE looks like that of the step before.", is_flag=True)
words_options: list[Decorator] = [
    option("--words file", "FILE.toml", "Words and calendar: arm, group, step, value, start, period, [resources]."),
    option("--word single", "TERM=WORD", "One word: arm=patient, 'arm=person, people', crew=visit.", multiple=True),
    option("--start", "DATE", "First day of step 0, such as 2026-06-29."),
    option("--period", None, "Length of a step.", type=click.Choice(["day", "week", "month", "quarter", "year"])),
]
inside = click.FloatRange(0, 1, min_open=True, max_open=True)
pairs = partial(option, type=(str, str), multiple=True)
switch = partial(option, default=None, show_default=False)
source_option = option("--source", "TEXT", "Source of the reports; by default the name of the table.")


@contextmanager
def spoken(words: "Vocabulary") -> "Iterator[Vocabulary]":
    """Raise errors of the library in the words of a programme."""
    try:
        yield words
    except EvenhandError as error:
        words.reworded(error)
        raise


def command(*options: Decorator, writes: bool = False) -> Decorator:
    """Return a decorator for a command on PROGRAMME, which it receives opened.

    Args:
        *options: its own arguments and options.
        writes: whether it has an author and an idempotency key.
    """
    key = option("--key", "KEY", "Idempotency key.")
    shared: list[Decorator] = [place, *options, *([author, key] if writes else []), run_options(seeded=False)]

    def add(function: Any) -> Any:
        @wraps(function)
        def on_opened(programme: str, **given: Any) -> None:
            from evenhand.programme.programme import Programme

            with Programme.open(programme) as one, spoken(one.vocabulary()) as words:
                steps = {name: _step(words, name, given[name]) for name in STEPS if given.get(name) is not None}
                function(one, **given | steps | {"run": replace(given["run"], vocabulary=words)})

        return programme.command()(add_options(shared, on_opened))

    return add


def _step(words: "Vocabulary", name: str, text: str) -> int:
    try:
        return words.find_step(text)
    except InvalidInputError as error:
        raise OptionError(STEPS[name], str(error).partition(": ")[2]) from None


@programme.command()
@place
@model_options("budgets", "initial")
@option("--roster", "TABLE", "Who takes part: arm, type, and perhaps group, state.", required=True)
@option("--history", "TABLE", "Records from before: arm, time or step, state, action.")
@welfare_option
@option("--name", None, "Name of the programme; by default that of its file.", default="")
@option("--need", "STATE", 'State of need, in every type or as "TYPE: STATE"; repeatable.', multiple=True)
@partial(add_options, words_options)
@author
@run_options()
def create(
    programme: str, source: ModelSource, roster: str, history: str | None, run: RunOptions, **settings: Any
) -> None:
    """Begin a programme at PROGRAMME, run by MODEL.

    The number of arms of MODEL does not matter: the roster lists the arms that take part. If something is wrong,
    nothing is written. The programme has its own words, and a calendar if its steps have dates; on a terminal the
    command prompts for them.
    """
    from evenhand.fitting import posterior_path
    from evenhand.programme.programme import Programme
    from evenhand.programme.vocabulary import Vocabulary

    problem = source.load().problem.with_criterion(source.criterion, source.over)
    rows = read_states(roster, "csv" if roster == DASH else None, "--roster")
    words = read_words(**{name: settings.pop(name) for name in ("file", "single", "start", "period")})
    if not words and sys.stdin.isatty() and not (run.quiet or run.as_json or roster == DASH):
        words = ask_words(problem.resource_names)
    settings["history"] = None if history is None else read_states(history, None, "--history")
    posterior = posterior_path(source.model) if source.model != DASH else None
    how: dict[str, Any] = {"seed": run.seed, "welfare": run.welfare, "words": words, "posterior": posterior}
    with spoken(Vocabulary.read(words)), Programme.create(programme, problem, rows, **how, **settings) as made:
        show_status(made, replace(run, vocabulary=made.vocabulary()))


@command()
def status(one: "Programme", run: RunOptions) -> None:
    """Describe PROGRAMME: its step, roster and budget, and the value of its policy for the present roster."""
    show_status(one, run)


@command(*words_options, writes=True)
def words(one: "Programme", who: str, key: str | None, run: RunOptions, **options: Any) -> None:
    """Show the words and the calendar of PROGRAMME, or set them: those that are given change, the others stay."""
    given = read_words(**options)
    found = one.set_words(given, who=who, key=key) if given else one.vocabulary()
    fields = found.to_dict()
    resources = [(name, str(found.resource(name))) for name in one.status().budget]
    facts = [(term, fields[term]) for term in ("arm", "group", "step", "value")] + resources
    facts.append(("calendar", "none" if found.start is None else f"each {found.period}, from {fields['start']}"))
    # The terms themselves are shown.
    replace(run, vocabulary=None).say(fields, Summary(address_of(one), facts=facts))


@command(rows_argument, format_option, step_options, writes=True)
def join(one: "Programme", rows: str, format: Any, run: RunOptions, **options: Any) -> None:
    """Let the arms of TABLE (arm, type, and perhaps group, state) take part, from --step on."""
    found = one.join(read_states(rows, format), **options)
    run.say(found.to_dict(), f"{counted(len(found.arms), 'arm')} joined, from step {found.step} on")


@command(click.argument("arms", nargs=-1, required=True, metavar="ARM..."), reason, writes=True)
def leave(one: "Programme", arms: Sequence[str], run: RunOptions, **options: Any) -> None:
    """Remove arms from the roster, from the present step on."""
    found = one.leave(list(arms), **options)
    run.say(found.to_dict(), f"{counted(len(found.arms), 'arm')} left, from step {found.step} on")


@command(
    click.argument("arms", nargs=-1, metavar="[ARM]..."),
    option("--older-than", "STEPS", "Also all that left so many steps ago.", type=click.IntRange(min=0)),
    writes=True,
)
def erase(one: "Programme", arms: Sequence[str], run: RunOptions, **options: Any) -> None:
    """Replace the names of arms that left, and reasons about them, by pseudonyms, for good.

    Their histories stay, under the pseudonyms, and the database still verifies. Copies made earlier have the names.
    """
    found = one.erase(list(arms), **options)
    run.say(found.to_dict(), f"erased: {counted(len(found.arms), 'arm')}, now {', '.join(found.arms[:5])}")


@command(rows_argument, format_option, source_option, step_options, confirm_option, writes=True)
def observe(one: "Programme", rows: str, format: Any, source: str | None, run: RunOptions, **options: Any) -> None:
    """Report observed states: TABLE has the columns arm and state, and perhaps step. A blank state means not seen.

    Late and corrected reports are stored beside the old ones. All faults are reported with their rows and exit code 2,
    and nothing is stored.
    """
    found = one.observe(read_states(rows, format), source or called(Path(rows).name), **options)
    text = f"{counted(found.observations, 'observation')}, {found.late} late, {found.corrected} corrected"
    run.say(found.to_dict(), text + (f", {found.blank} blank: not seen" if found.blank else ""))


@command(option("--method", "M", "As of `evenhand solve`.", default="fluid"), seconds_option, writes=True)
def solve(one: "Programme", run: RunOptions, **options: Any) -> None:
    """Find a policy for the present roster; later plans use it."""
    with run.progress() as tell:
        found = one.solve(progress=tell, **options)
    text = f"welfare {found.welfare:.6g}, at most {found.upper_bound:.6g}, gap {100 * found.gap:.3g} %"
    serves = "any number of such arms" if found.any_number else "just these numbers of arms"
    run.say(found.to_dict(), f"{text}, by {found.method}; it serves {serves}")


@command(
    option("--step", "STEP", "The present step or a date in it, to be sure that it is the one meant."),
    option("--budget", "B,B,...", "Budget of this step; by default that of the model."),
    option("--out", "FILE.csv", "Also write the plan as a table."),
    option("--seconds", "S", FIRST, type=float, default=2.0),
    writes=True,
)
def plan(one: "Programme", budget: str | None, run: RunOptions, **options: Any) -> None:
    """Propose what to do at the present step, arm by arm, from all that is known.

    While nothing has changed, the same plan is returned. Arms that were not observed are taken to be where they
    most likely are. A policy is solved first if there is none for the present roster.
    """
    from evenhand.model.io import write_atomically

    run.check_targets()
    amounts = None if budget is None else read_amounts(budget)
    with run.progress() as tell:
        made = one.plan(budget=amounts, progress=tell, **options)
    found, notices = one.plan_of(made.plan), drift_notices(one)
    if run.out:
        rows = [{column: getattr(row, column) for column in WRITTEN} for row in found.rows]
        write_atomically(run.out, own_table(run, rows, run.out))
    lines = [f"drift: {notice}" for notice in notices] + ([f"written to {run.out}"] if run.out else [])
    if one.needs_solving().improvable:
        lines.append(f"first policy, found in seconds; `evenhand programme solve {address_of(one)}` improves it")
    run.say(found.to_dict() | {"notices": notices}, plan_summary(found, one.vocabulary()), lines)


@command(
    click.argument("plan", type=click.IntRange(min=1), required=False),
    option("--overrides", "TABLE", "Arms that get something else: arm, action, why."),
    option("--override single", "ARM ACTION WHY", "One of them.", type=(str, str, str), multiple=True),
    format_option,
    writes=True,
)
def accept(
    one: "Programme",
    plan: int | None,
    overrides: str | None,
    single: Sequence[tuple[str, str, str]],
    format: Any,
    run: RunOptions,
    **options: Any,
) -> None:
    """Accept the plan of the present step, which closes the step.

    PLAN is its number; by default the proposed one. A plan from before something changed is refused, with what
    changed. Overrides need a reason, and stay within the budget.
    """
    if overrides is not None and single:
        raise OptionError("--override", "goes with a plan alone; put all of them into the table of --overrides")
    rows: Any = [dict(zip(("arm", "action", "why"), row, strict=True)) for row in single]
    rows = rows if overrides is None else read_states(overrides, format, "--overrides")
    found = one.accept(_proposed(one) if plan is None else plan, rows, **options)
    changed = f", {found.overridden} overridden" if found.overridden else ""
    run.say(found.to_dict(), f"plan {found.plan} is accepted{changed}; step {found.step} is closed")


@command(click.argument("plan", type=click.IntRange(min=1), required=False), writes=True)
def approve(one: "Programme", plan: int | None, run: RunOptions, **options: Any) -> None:
    """Approve a plan with more than the usual budget, so that another person can accept it.

    PLAN is its number; by default the proposed one. `programme safeguards --second-approval` requires it.
    """
    found = one.approve(_proposed(one) if plan is None else plan, **options)
    run.say(found.to_dict(), f"plan {found.plan} is approved by {found.by}; another person can accept it")


@command(
    switch("--second-approval/--no-second-approval", None, "Of plans with more than the usual budget."),
    switch("--log-views/--no-log-views", None, "Log views of the page or history of an arm."),
    writes=True,
)
def safeguards(one: "Programme", who: str, key: str | None, run: RunOptions, **given: Any) -> None:
    """Show the safeguards, or switch them on or off: a second approval of larger budgets, and a log of views."""
    is_set = any(value is not None for value in given.values())
    found = one.safeguards.set_rules(given, who=who, key=key) if is_set else one.safeguards.rules()
    lines = [f"{name.replace('_', ' '):16} {'on' if value else 'off'}" for name, value in found.to_dict().items()]
    run.say(found.to_dict(), "\n".join(lines))


@command(
    option("--arm", None, "Only of this one."),
    option("--most", None, "At most so many.", default=100, type=click.IntRange(min=1)),
)
def views(one: "Programme", run: RunOptions, **which: Any) -> None:
    """List views of arms, the newest first, if they are logged."""
    found = one.views(**which)
    shown = rows_summary(
        f"{address_of(one)}, views of arms", ("at", "who", "arm"), [[*vars(one).values()] for one in found]
    )
    run.say({"views": [view.to_dict() for view in found]}, shown)


@command(rows_argument, format_option, source_option, confirm_option, writes=True)
def record(one: "Programme", rows: str, format: Any, source: str | None, run: RunOptions, **options: Any) -> None:
    """Report what was done: TABLE has the columns arm and action, and perhaps step, reward, next_state.

    Rows that name no step are of the last accepted one. Late and corrected records are stored beside the old ones.
    """
    found = one.record(read_states(rows, format), source or called(Path(rows).name), **options)
    text = f"{counted(found.records, 'record')}, {found.late} late, {found.corrected} corrected"
    run.say(found.to_dict(), f"{text}, {found.differing} not as accepted")


@command(rows_argument, format_option, source_option, writes=True)
def import_history(
    one: "Programme", rows: str, format: Any, source: str | None, run: RunOptions, **options: Any
) -> None:
    """Store records from before the programme: TABLE has the columns arm, time or step, state and perhaps action.

    They become steps before 0, so that plans know when each arm was last seen and served. `evenhand import` cleans
    messy records.
    """
    found = one.import_history(read_states(rows, format), source or called(Path(rows).name), **options)
    text = f"{counted(found.observations, 'state')} and {counted(found.records, 'action')} from step {found.first} on"
    run.say(found.to_dict(), f"{text}; {counted(found.left_out, 'row')} left out")


@command(
    click.argument("event", type=click.IntRange(min=1)), option("--why", "TEXT", "A reason.", default=""), writes=True
)
def undo(one: "Programme", event: int, run: RunOptions, **options: Any) -> None:
    """Undo EVENT: an upload, a record, an acceptance, a join or a change. Nothing is deleted; it counts no longer.

    `evenhand programme events` lists the events.
    """
    found = one.undo(event, **options)
    run.say(found.to_dict(), f"event {found.undone} ({found.kind}) counts no longer; {counted(found.rows, 'row')}")


@command(
    option("--budget", "B,B,...", "Budget per step."),
    welfare_option,
    pairs("--max-wait promises", "STATE STEPS", "Longest wait without service in a state; - for no promise."),
    pairs("--close", "GROUP INTO", "A group that closes, and where its arms go."),
    pairs("--move", "ARM GROUP", "An arm that goes to another group."),
    option("--from start", "STEP|DATE", "From when on; by default the present step."),
    option("--adopt", None, "Adopt it; by default its effect is shown.", is_flag=True),
    option("--why", "TEXT", "A reason.", default=""),
    seconds_option,
    writes=True,
)
def change(
    one: "Programme",
    budget: str | None,
    promises: Sequence[tuple[str, str]],
    close: Sequence[tuple[str, str]],
    move: Sequence[tuple[str, str]],
    adopt: bool,
    seconds: float | None,
    run: RunOptions,
    **options: Any,
) -> None:
    """Show the effect of a lasting change, or adopt it: budget, welfare, promised waits, groups that close, transfers.

    It holds from a step on; earlier plans stay as they are. The effect is the welfare of the best plan found beside the
    plan in use, and the mean value of the arms of each group.
    """
    given: dict[str, Any] = {"welfare": run.welfare, "start": options.pop("start")}
    given |= {"budget": None if budget is None else read_amounts(budget), "close": dict(close)}
    given["max_wait"] = [{"state": state, "steps": read_wait(steps)} for state, steps in promises]
    given["transfer"] = [{"arm": arm, "group": group} for arm, group in move]
    if adopt:
        adopted = one.change(given, **options)
        run.say(adopted.to_dict(), "\n".join([*adopted.change.said, "adopted; a plan that is open must be made again"]))
        return
    with run.progress() as tell:
        found = one.preview_change(given, seconds=seconds, progress=tell)
    run.say(found.to_dict(), change_summary(found))


@command(click.argument("arm"))
def history(one: "Programme", arm: str, run: RunOptions) -> None:
    """List all that happened to ARM: conditions, decisions, overrides, records, and what was expected."""
    found = one.history(arm)
    columns = ("step", "kind", "state", "planned", "action", "expected", "chance", "reward", "source", "why", "undone")
    rows = [[getattr(entry, column) for column in columns] for entry in found[-SHOWN:]]
    shown = rows_summary(f"{arm}, {counted(len(found), 'entry', 'entries')}", columns, rows)
    run.say({"arm": arm, "history": [entry.to_dict() for entry in found]}, shown)


@command(
    option("--from first", "STEP", "First step or a date in it; by default of all."),
    option("--to last", "STEP", "Last step or a date in it; by default of all."),
    option("--as-of event", "EVENT", "As it was known at this event.", type=click.IntRange(min=1)),
    option("--level", None, "Of intervals; warnings are wrong with at most the rest.", default=0.95, type=inside),
    option("--csv table", "FILE", "Also write one row per arm."),
    option("--report", "FILE.html", "Also write a page with figures."),
)
def audit(one: "Programme", table: str | None, run: RunOptions, **window: Any) -> None:
    """Audit a window of steps: who was in need and not served, services and rewards against their promises.

    Each test comes with its power. Also deviations from the usual budget, overrides with their author and cost, and a
    warning if a group fell behind its promise by more than chance explains.
    """
    check_target(table, "--csv")
    run.check_targets()
    from evenhand.model.io import write_atomically
    from evenhand.programme.audit import audit_of
    from evenhand.programme.audit_report import audit_page, audit_summary

    books, name = one.books(**window), one.status().name
    found = audit_of(books)
    if table:
        write_atomically(table, own_table(run, [row.as_row() for row in found.arms], ".csv"))
    if run.report:
        typed = click.get_current_context().params["programme"]
        words = [one.store.address if word == typed else word for word in sys.argv[1:]]  # without a password
        run.write_report(audit_page(found, books, name), words)
    run.say(found.to_dict(), audit_summary(found, books.words, name), [f"table: {table}"] if table else [])


@command(
    option("--trust", "N", "Observations that the present model counts as.", default=10.0),
    option("--prior", "P", "Strength of other types for a sparse row, as of `fit`.", type=float),
    seconds_option,
    writes=True,
)
def refit(one: "Programme", run: RunOptions, **options: Any) -> None:
    """Fit the model again to the programme's own log, and show what would change; nothing is adopted yet."""
    with run.progress() as tell:
        found = one.refit(progress=tell, **options)
    show_refit(found, run, address_of(one))


@command(click.argument("refit", type=click.IntRange(min=1), required=False))
def refits(one: "Programme", refit: int | None, run: RunOptions) -> None:
    """List the models that were fitted, or show what REFIT would change."""
    found, model, name = one.refits(), one.status().model, address_of(one)
    if refit is not None:
        if not (chosen := [fitted for fitted in found if fitted.id == refit]):
            raise OptionError("REFIT", f"unknown refit {refit}")
        show_refit(chosen[0], run, name)
        return
    rows = [[fit.id, fit.event, fit.rows, standing(fit, model), "; ".join(fit.why)] for fit in found[:SHOWN]]
    heads = ("refit", "event", "rows", "stands", "why")
    shown = rows_summary(f"{name}, {counted(len(found), 'refit')}", heads, rows)
    run.say({"refits": [fitted.to_dict() for fitted in found]}, shown)


@command(click.argument("refit", type=click.IntRange(min=0)), writes=True)
def adopt(one: "Programme", refit: int, run: RunOptions, **options: Any) -> None:
    """Run the programme by the model of REFIT, the number that `programme refit` printed.

    A model that was in use before may be adopted again, which is the way back; 0 is the one that the programme began
    with.
    """
    found = one.adopt(refit, **options)
    what = f"refit {found.id} is adopted" if found.id else "the model that the programme began with is in use again"
    run.say(found.to_dict(), f"{what}; plan again")


@command(click.argument("refit", type=click.IntRange(min=1)), reason, writes=True)
def decline(one: "Programme", refit: int, run: RunOptions, **options: Any) -> None:
    """Decline REFIT, which a server proposed; from then on later reports alone count."""
    found = one.decline(refit, **options)
    run.say(found.to_dict(), f"refit {found.id} is declined; from now on later reports alone count")


@command(
    click.argument("states", nargs=-1, metavar="[STATE...]"),
    option("--clear", None, "Return to the default.", is_flag=True),
    writes=True,
)
def need(one: "Programme", states: Sequence[str], clear: bool, run: RunOptions, **options: Any) -> None:
    """Show the states in which an arm is in need, or set them: each in every type, or as "TYPE: STATE".

    Audits and times in need use them. By default an arm is in need in the states in which the fair relaxation serves
    it.
    """
    if clear and states:
        raise OptionError("--clear", "goes without states")
    found = one.set_need(list(states), **options).states if states or clear else one.need()
    run.say({"states": list(found)}, f"in need: {', '.join(found) or 'not set, by the fair relaxation'}")


@command(
    option("--change", "SHARE", "By which numbers of arms may change before it is solved.", type=float),
    option("--gap", "GAP", "How much larger the policy's may get before it is solved.", type=float),
    option("--level", "CHANCE", "That a sound model is ever said not to fit.", type=float),
    option("--records", "N", "Reports after which the model is tested, again and again.", type=int),
    writes=True,
)
def bounds(one: "Programme", who: str, key: str | None, run: RunOptions, **given: Any) -> None:
    """Show by how much roster and model may drift, or set it: named bounds change, the others stay."""
    found = one.set_bounds(given, who=who, key=key) if set(given.values()) - {None} else one.bounds()
    lines = [
        f"change   {found.change:g}: solve again if numbers of arms change by a larger share",
        f"gap      {found.gap:g}: and if the gap for the present roster grows by more than this",
        f"level    {found.level:g}: probability at most that a true model is ever rejected",
        f"records  {found.records}: reports between two tests of the model",
    ]
    run.say(found.to_dict(), "\n".join(lines))


@command(click.argument("plan", type=click.IntRange(min=1), required=False))
def recompute(one: "Programme", plan: int | None, run: RunOptions) -> None:
    """Compute PLAN again from what is stored, or every plan, and compare; first verifies the database."""
    events = one.verify().event
    numbers = [found.id for found in one.plans()] if plan is None else [plan]
    for number in numbers:
        one.recompute(number)
    text = f"{counted(len(numbers), 'plan')} computed again, all the same; {events} events, none missing"
    run.say({"plans": sorted(numbers), "same": True, "events": events}, text)


@programme.command()
@place
@click.argument("file")
@run_options(seeded=False)
def backup(programme: str, file: str, run: RunOptions) -> None:
    """Copy PROGRAMME, a file, into FILE while it runs, as of one moment, and check the copy."""
    from evenhand.programme import store

    last = store.backup(programme, file)
    run.say({"file": file, "events": last}, f"{file}: a copy with {counted(last, 'event')}, checked")


@programme.command()
@place
@click.argument("file")
@run_options(seeded=False)
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
)
def verify(one: "Programme", head: str | None, export: str | None, run: RunOptions) -> None:
    """Rebuild every table from the chain of events, compare, and report each difference."""
    from evenhand.programme.integrity import Head

    check_target(export, "--export")
    before = None if head is None else Head.load(head)
    found = one.verify(before)
    if export is not None:
        found.save(export)
    since = "" if before is None else f", and contain event {before.event} of {head}"
    text = f"all tables follow from {counted(found.event, 'event')}{since}\nhead {found.chain}"
    run.say(asdict(found), text)


@command(
    option("--after", None, "Only events with a larger number.", default=0, type=click.IntRange(min=0)),
    option("--most", None, "At most so many.", default=100, type=click.IntRange(min=1)),
)
def events(one: "Programme", after: int, most: int, run: RunOptions) -> None:
    """List the events, in their order."""
    found = one.events(after, most)
    rows = [[event.id, event.at, event.kind, event.who, event_content(event.body, run)] for event in found]
    shown = rows_summary(f"{address_of(one)}, events after {after}", ("event", "at", "kind", "who", "what"), rows)
    run.say({"events": [vars(event) for event in found]}, shown)


def _proposed(one: "Programme") -> int:
    """Return the number of the plan that is proposed for the present step."""
    number = one.current_plan_number()
    if number is None:
        raise OptionError("PLAN", "nothing is proposed for this step; run `evenhand programme plan` first")
    return number
