"""`evenhand programme ...`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import print_json, print_table, printable, table_bytes
from evenhand.cli.progress import progress
from evenhand.cli.reading import check_target, read_amounts, read_problem
from evenhand.cli.refusals import OptionError
from evenhand.cli.standard_input import DASH, standard_input
from evenhand.display import counted
from evenhand.model.io import Format, write_atomically
from evenhand.model.io.text_table import FORMATS, Table, TableFormat, read_table
from evenhand.programme import store
from evenhand.programme.decisions import KeptPlan
from evenhand.programme.integrity import Head, read_key
from evenhand.programme.programme import Programme

if TYPE_CHECKING:
    from evenhand.programme.refit import Moved, Refitted

SHOWN = 200
"""Rows that are listed; --json and --out have all of them."""

COLUMNS = ("arm", "type", "group", "state", "known", "action", "next_in_line", "reason")
"""Of a plan as it is shown."""

WRITTEN = (*COLUMNS[:5], "seen_step", "chance", *COLUMNS[5:], "accepted", "who", "why")
"""Of a plan as a table."""


def create(
    programme: str,
    model: str,
    parameters: Sequence[str],
    format: Format | None,
    roster: str,
    welfare: str | None,
    criterion: str | None,
    over: str | None,
    name: str,
    who: str,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Begin a programme."""
    problem = read_problem(model, parameters, format, criterion=criterion)
    rows = _table(roster, "csv" if roster == DASH else None, "--roster")
    asked: dict[str, Any] = {
        "welfare": welfare,
        "criterion": criterion,
        "over": over,
        "name": name,
        "seed": seed,
        "who": who,
    }
    with Programme.create(programme, problem, rows, **asked) as made:
        _tell_status(made, as_json)


def status(programme: str, as_json: bool, quiet: bool) -> None:
    """Show the status."""
    with Programme.open(programme) as opened:
        _tell_status(opened, as_json)


def join(
    programme: str,
    table: str,
    format: TableFormat | None,
    step: int | None,
    who: str,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Let arms take part."""
    rows = _table(table, format)
    with Programme.open(programme) as opened:
        found = opened.join(rows, step, who=who, key=key)
    _print(found.to_dict(), f"{counted(len(found.arms), 'arm')} joined, from step {found.step} on", as_json)


def leave(programme: str, arms: Sequence[str], why: str, who: str, key: str | None, as_json: bool, quiet: bool) -> None:
    """Let arms take part no longer."""
    with Programme.open(programme) as opened:
        found = opened.leave(list(arms), why, who=who, key=key)
    _print(found.to_dict(), f"{counted(len(found.arms), 'arm')} left, from step {found.step} on", as_json)


def observe(
    programme: str,
    table: str,
    format: TableFormat | None,
    source: str | None,
    step: int | None,
    who: str,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say where arms were seen."""
    rows = _table(table, format)
    with Programme.open(programme) as opened:
        found = opened.observe(rows, source or _called(table), step=step, who=who, key=key)
    words = f"{counted(found.observations, 'observation')}, {found.late} late, {found.corrected} corrected"
    _print(found.to_dict(), words, as_json)


def solve(
    programme: str, method: str, seconds: float | None, who: str, key: str | None, as_json: bool, quiet: bool
) -> None:
    """Find a policy."""
    with Programme.open(programme) as opened, progress(quiet) as tell:
        found = opened.solve(method=method, seconds=seconds, progress=tell, who=who, key=key)
    words = f"welfare {found.welfare:.6g}, at most {found.upper_bound:.6g}, gap {100 * found.gap:.3g} %"
    serves = "any number of such arms" if found.any_number else "just these numbers of arms"
    _print(found.to_dict(), f"{words}, by {found.method}; it serves {serves}", as_json)


def plan(
    programme: str,
    step: int | None,
    budget: str | None,
    out: str | None,
    seconds: float | None,
    who: str,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Propose what to do."""
    check_target(out, "--out")
    amounts = None if budget is None else read_amounts(budget)
    with Programme.open(programme) as opened:
        with progress(quiet) as tell:
            asked = opened.plan(step=step, budget=amounts, who=who, key=key, seconds=seconds, progress=tell)
        found, notices = opened.plan_of(asked.plan), _notices(opened)
    if out:
        rows = [{column: getattr(row, column) for column in WRITTEN} for row in found.rows]
        write_atomically(out, table_bytes(rows, out))
    if as_json:
        print_json(found.to_dict() | {"notices": notices})
        return
    _show_plan(found)
    for notice in notices:
        click.echo(f"drift: {notice}")
    if out:
        click.echo(f"written to {out}")


def accept(
    programme: str,
    plan: int | None,
    overrides: str | None,
    single: Sequence[tuple[str, str, str]],
    format: TableFormat | None,
    who: str,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Accept a plan."""
    if overrides is not None and single:
        raise OptionError("--override", "goes with a plan alone; put all of them into the table of --overrides")
    given: Any = [dict(zip(("arm", "action", "why"), row, strict=True)) for row in single]
    given = given if overrides is None else _table(overrides, format, "--overrides")
    with Programme.open(programme) as opened:
        found = opened.accept(_present(opened) if plan is None else plan, given, who=who, key=key)
    changed = f", {found.overridden} overridden" if found.overridden else ""
    _print(found.to_dict(), f"plan {found.plan} is accepted{changed}; step {found.step} is closed", as_json)


def _present(opened: Programme) -> int:
    found = opened.current_plan()
    if found is None:
        raise OptionError("PLAN", "nothing is proposed for the present step; `evenhand programme plan` makes a plan")
    return found.id


def record(
    programme: str,
    table: str,
    format: TableFormat | None,
    source: str | None,
    who: str,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say what was done."""
    rows = _table(table, format)
    with Programme.open(programme) as opened:
        found = opened.record(rows, source or _called(table), who=who, key=key)
    words = f"{counted(found.records, 'record')}, {found.late} late, {found.corrected} corrected"
    _print(found.to_dict(), f"{words}, {found.differing} not as accepted", as_json)


def history(programme: str, arm: str, as_json: bool, quiet: bool) -> None:
    """One arm's history."""
    with Programme.open(programme) as opened:
        found = opened.history(arm)
    if as_json:
        print_json({"arm": arm, "history": [entry.to_dict() for entry in found]})
        return
    columns = ("step", "kind", "state", "planned", "action", "expected", "chance", "reward", "source", "why")
    rows = [[printable(getattr(entry, column)) for column in columns] for entry in found[-SHOWN:]]
    print_table(f"{arm}, {counted(len(found), 'entry', 'entries')}", [(column, "left") for column in columns], rows)


def refit(
    programme: str,
    trust: float,
    prior: float | None,
    seconds: float | None,
    who: str,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit the model anew."""
    with Programme.open(programme) as opened, progress(quiet) as tell:
        found = opened.refit(trust=trust, prior=prior, seconds=seconds, progress=tell, who=who, key=key)
        name = _address(opened)
    if as_json:
        print_json(found.to_dict())
        return
    _show_refit(found, name)


def refits(programme: str, refit: int | None, as_json: bool, quiet: bool) -> None:
    """List the refits, or show one."""
    with Programme.open(programme) as opened:
        found, model, name = opened.refits(), opened.status().model, _address(opened)
    if refit is not None:
        one = next((one for one in found if one.id == refit), None)
        if one is None:
            raise OptionError("REFIT", f"unknown refit {refit}")
        if as_json:
            print_json(one.to_dict())
        else:
            _show_refit(one, name)
        return
    if as_json:
        print_json({"refits": [one.to_dict() for one in found]})
        return
    rows = [[str(one.id), str(one.event), str(one.rows), _standing(one, model), "; ".join(one.why)] for one in found]
    heads = ("refit", "event", "rows", "stands", "why")
    shown = [[printable(cell) for cell in row] for row in rows[:SHOWN]]
    print_table(f"{name}, {counted(len(found), 'refit')}", [(head, "left") for head in heads], shown)


def _standing(found: "Refitted", model: str) -> str:
    if found.model == model:
        return "in use"
    if found.adopted_event is not None:
        return "was in use"
    if found.declined_event is not None:
        return "declined"
    return "offered" if found.why and found.before == model else "not adopted"


def adopt(programme: str, refit: int, who: str, key: str | None, as_json: bool, quiet: bool) -> None:
    """Run it by a model that was fitted."""
    with Programme.open(programme) as opened:
        found = opened.adopt(refit, who=who, key=key)
    what = f"refit {found.id} is adopted" if found.id else "the model that the programme began with is in use again"
    _print(found.to_dict(), f"{what}; plan again", as_json)


def decline(programme: str, refit: int, why: str, who: str, key: str | None, as_json: bool, quiet: bool) -> None:
    """A fit that was offered is not adopted."""
    with Programme.open(programme) as opened:
        found = opened.decline(refit, why, who=who, key=key)
    _print(found.to_dict(), f"refit {found.id} is declined; from now on later reports alone count", as_json)


def bounds(
    programme: str,
    change: float | None,
    gap: float | None,
    level: float | None,
    records: int | None,
    who: str,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """By how much things may drift."""
    given = {"change": change, "gap": gap, "level": level, "records": records}
    with Programme.open(programme) as opened:
        asked = any(value is not None for value in given.values())
        found = opened.set_bounds(given, who=who, key=key) if asked else opened.bounds()
    lines = [
        f"change   {found.change:g}: a policy is to be solved anew when numbers of arms change by a larger share",
        f"gap      {found.gap:g}: and when its gap for the present roster is larger by more than this",
        f"level    {found.level:g}: a model that is right is ever said not to fit with this chance at most",
        f"records  {found.records}: reports after which the model is tested, again and again",
    ]
    _print(found.to_dict(), "\n".join(lines), as_json)


def recompute(programme: str, plan: int | None, as_json: bool, quiet: bool) -> None:
    """Plans again, and compared."""
    with Programme.open(programme) as opened:
        events = opened.verify().event
        numbers = [found.id for found in opened.plans()] if plan is None else [plan]
        for number in numbers:
            opened.recompute(number)
    result = {"plans": sorted(numbers), "same": True, "events": events}
    _print(
        result, f"{counted(len(numbers), 'plan')} computed again, all the same; {events} events, none missing", as_json
    )


def backup(programme: str, file: str, as_json: bool, quiet: bool) -> None:
    """A copy."""
    last = store.backup(programme, file)
    _print({"file": file, "events": last}, f"{file}: a copy with {counted(last, 'event')}, checked", as_json)


def restore(programme: str, file: str, as_json: bool, quiet: bool) -> None:
    """A copy in the place of the programme."""
    last = store.restore(programme, file)
    _print({"file": file, "events": last}, f"the programme is the copy {file}, with {counted(last, 'event')}", as_json)


def verify(programme: str, head: str | None, export: str | None, key: str | None, as_json: bool, quiet: bool) -> None:
    """Compare every table with the chain of events."""
    check_target(export, "--export")
    secret = None if key is None else read_key(key)
    before = None if head is None else Head.load(head)
    with Programme.open(programme) as opened:
        found = opened.verify(before, key=secret)
    if export is not None:
        found.save(export)
    since = "" if before is None else f", and contain event {before.event} of {head}"
    _print(asdict(found), f"all tables follow from {counted(found.event, 'event')}{since}\nhead {found.chain}", as_json)


def events(programme: str, after: int, most: int, as_json: bool, quiet: bool) -> None:
    """List the events."""
    with Programme.open(programme) as opened:
        found, name = opened.events(after, most), _address(opened)
    if as_json:
        print_json({"events": [vars(event) for event in found]})
        return
    rows = [
        [
            str(event.id),
            event.at,
            event.kind,
            printable(event.who),
            printable(json.dumps(event.body, ensure_ascii=False))[:80],
        ]
        for event in found
    ]
    print_table(
        f"{name}, events after {after}", [(head, "left") for head in ("event", "at", "kind", "who", "what")], rows
    )


# Reading and telling


def _table(name: str, format: TableFormat | None, argument: str = "TABLE") -> Table:
    return read_table(standard_input(argument, format, FORMATS) if name == DASH else name, format)


def _called(table: str) -> str:
    return "standard input" if table == DASH else Path(table).name


def _print(result: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        click.echo(words)


MOST_TESTED = 50_000
"""Reports beyond which a plan does not wait for the test of its model."""


def _address(opened: Programme) -> str:
    """A programme as commands name it, without a password, since output is logged."""
    return printable(opened.store.address)


def _notices(opened: Programme) -> list[str]:
    """Describe drift beyond its bound, and the command that does something about it."""
    anew = f"`evenhand programme solve {_address(opened)}` finds a new policy"
    return [f"{why}: {anew}" for why in opened.needs_solving().why] + _of_model(opened, MOST_TESTED)


def _of_model(opened: Programme, most: int | None = None) -> list[str]:
    offer, name = opened.offered(), _address(opened)
    if offer is not None:
        ways = f"`evenhand programme refits {name} {offer.refit}` shows it, `adopt` or `decline` answers it"
        return [*offer.why, f"refit {offer.refit} is offered: {ways}"]
    drift = opened.model_drift(most)
    if most is not None and drift.reports > most:
        return [f"not tested against {counted(drift.reports, 'report')}: `evenhand programme status {name}` does it"]
    if not drift.needed:
        return []
    return [*drift.why, f"`evenhand programme refit {name}` fits the model anew and shows what would change"]


def _tell_status(opened: Programme, as_json: bool) -> None:
    found, drift = opened.status(), opened.needs_solving()
    certificate = opened.certificate() if drift.policy else None
    if as_json:
        offer = opened.offered()
        more = {"certificate": None if certificate is None else certificate.to_dict(), "solve": drift.to_dict()}
        more |= {"model_drift": opened.model_drift().to_dict(), "offered": None if offer is None else offer.to_dict()}
        print_json(found.to_dict() | more)
        return
    numbers = ", ".join(f"{number} {kind}" for kind, number in found.arms.items())
    lines = [
        f"{found.name}: step {found.step}, {numbers or 'no arms'}; {found.observed} seen at this step",
        f"  budget     {', '.join(f'{name} {amount:g}' for name, amount in found.budget.items())} a step",
        f"  welfare    {found.welfare}, over {found.over}, {found.criterion}",
    ]
    if certificate is not None:
        worth = f"{certificate.welfare:.6g}, at most {certificate.upper_bound:.6g}, gap {100 * certificate.gap:.3g} %"
        lines.append(f"  policy     {worth}, for the present roster")
    lines += [f"  solve      {why}" for why in drift.why]
    lines += [f"  model      {why}" for why in _of_model(opened)]
    click.echo("\n".join([*lines, f"  events     {found.events}"]))


def _show_plan(found: KeptPlan) -> None:
    seen = f"{found.missing} of {found.arms} arms not seen, and believed" if found.missing else "all arms seen"
    title = f"plan {found.id} of step {found.step}, {found.status}; {seen}"
    rows = sorted(found.rows, key=lambda row: (not row.served, row.next_in_line or len(found.rows) + 1))
    shown = [[printable(getattr(row, column)) for column in COLUMNS] for row in rows[:SHOWN]]
    names = [column.replace("next_in_line", "next") for column in COLUMNS]
    print_table(title, [(name, "left") for name in names], shown)
    if len(rows) > SHOWN:
        click.echo(f"... {len(rows) - SHOWN} more; --json and --out have all of them\n")
    used = ", ".join(f"{name} {amount:g} of {found.budget[name]:g}" for name, amount in found.used.items())
    click.echo(f"used: {used}")
    if found.note:
        click.echo(f"note: {found.note}")


def _interval(row: "Moved") -> str:
    return f"{row.lower:.3g} to {row.upper:.3g}"


def _show_refit(found: "Refitted", name: str) -> None:
    outside = [row for row in found.moved if row.is_beyond_chance]
    rows = [
        [row.type, row.state, row.action, row.next_state, row.before, row.after, _interval(row), row.seen]
        for row in outside[:SHOWN]
    ]
    heads = ("type", "state", "action", "next state", "before", "after", "95 %", "seen")
    title = f"refit {found.id}: {counted(found.rows, 'row')}; probabilities that differ beyond chance"
    print_table(title, [(head, "left") for head in heads], [[printable(cell) for cell in row] for row in rows])
    before, after = found.likelihood
    texts = ["impossible" if value is None else f"{value:.6g}" for value in (before, after)]
    click.echo(f"log-likelihood {texts[0]} before, {texts[1]} after")
    if found.unseen:
        click.echo(f"never seen, and left as they are: {counted(len(found.unseen), 'pair')} of state and action")
    now, then = found.welfare
    known = "" if now is None else f"the present policy is worth {now:.6g} in it, "
    click.echo(f"welfare: {known}the new one {0.0 if then is None else then:.6g}")
    changes = "; ".join(f"{arm} {old} -> {new}" for arm, old, new in found.plan[:10])
    more = f" and {len(found.plan) - 10} more" if len(found.plan) > 10 else ""
    click.echo(f"in a plan now: {printable(changes)}{more}" if found.plan else "a plan now would be the same")
    for why in found.why:
        click.echo(f"why: {printable(why)}")
    click.echo(f"to adopt it: evenhand programme adopt {name} {found.id}")
