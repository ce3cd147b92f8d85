"""`evenhand programme audit`."""

import csv
import io
import shlex
import sys
from typing import TYPE_CHECKING

import click

from evenhand.cli.console import number, percent, print_json, print_table, say
from evenhand.cli.reading import check_target
from evenhand.display import counted
from evenhand.model.io import write_atomically

if TYPE_CHECKING:
    from evenhand.programme.auditing import Audit, MemberRow

SHOWN = 8
"""Arms that wait longest, as they are listed; --csv and --json have all."""

HEADS = [("", "left"), ("arms", "right"), ("served", "right"), ("longest wait", "right"), ("delay", "right"),
         ("got", "right"), ("promised", "right"), ("by chance", "right"), ("p", "right")]  # fmt: skip


def run(
    programme: str,
    first: int | None,
    last: int | None,
    event: int | None,
    level: float,
    table: str | None,
    report: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Tell what became of a programme over a span of steps."""
    check_target(table, "--csv")
    check_target(report, "--report")
    from evenhand.programme.auditing import audit_of
    from evenhand.programme.programme import Programme

    with Programme.open(programme) as opened:
        books, called = opened.books(first, last, event=event, level=level), opened.status().name
        told = opened.store.address  # without a password: a report goes from hand to hand
    found = audit_of(books)
    if table:
        write_atomically(table, as_csv(found).encode())
    if report:
        from evenhand.report.audit import write_audit

        words = [told if word == programme else word for word in sys.argv[1:]]
        write_audit(found, books, report, called, f"evenhand {shlex.join(words)}")
    if as_json:
        print_json(found.as_dict())
        return
    show(found, called)
    for what, path in (("table", table), ("report", report)):
        if path and not quiet:
            click.echo(f"{what}: {path}")


def as_csv(found: "Audit") -> str:
    """One row an arm."""
    rows = [row.as_row() for row in found.arms]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def show(found: "Audit", called: str) -> None:
    """Tables and words."""
    heads = [(head or "group", side) for head, side in HEADS]
    span = f"{called}, steps {found.first} to {found.last}"
    print_table(span, heads, [_member(row) for row in found.groups])
    print_table(
        "by type", [(head or "type", side) for head, side in HEADS[:-1]], [_member(row)[:-1] for row in found.types]
    )
    waiting = [
        [row.arm, row.group, str(row.in_need), str(row.waiting), str(row.service.served)]
        for row in found.longest_waits(SHOWN)
    ]
    sides = [("arm", "left"), ("group", "left"), ("in need for", "right"), ("not served for", "right"),
             ("served", "right")]  # fmt: skip
    print_table("who waits longest, in steps", sides, waiting)
    for line in words(found):
        say(line)


def _member(row: "MemberRow") -> list[str]:
    service, earned = row.service, row.earned
    delay = "" if service.delay is None else number(service.delay, 2)
    chance = f"{number(earned.lower, 3)} to {number(earned.upper, 3)}"
    p = "" if row.corrected is None else f"{row.corrected:.2g}"
    return [row.name, str(row.arms), percent(service.share), str(service.longest_wait), delay,
            number(earned.realised, 3), number(earned.promised, 3), chance, p]  # fmt: skip


def words(found: "Audit") -> list[str]:
    """What the tables do not say."""
    service, value, unknown = found.service, found.value, found.unknown
    told = [f"Warning: {line}." for line in found.warnings]
    told.append(_unequal("Service of arms", service.gini_coefficient, service.worst_off, percent(service.worst)))
    told.append(_unequal("Value of arms", value.gini_coefficient, value.worst_off, f"{number(value.worst, 3)} a step"))
    by = ", ".join(
        f"{one['who'] or 'nobody named'} {one['overrides']} ({number(one['cost'], 3)})" for one in found.by_who()
    )
    many = counted(len(found.overrides), "decision")
    told.append(f"{many} other than planned, at a cost of {number(found.override_cost, 3)} in value: {by}." if by
                else "Nothing was decided other than planned.")  # fmt: skip
    told.append(
        f"Not known: {percent(unknown.unseen / max(unknown.steps, 1))} of conditions (believed instead), "
        f"{unknown.unconfirmed} of {unknown.steps} actions (taken as accepted). {unknown.late} conditions came late, "
        f"{unknown.corrected} were corrected."
    )
    if unknown.impossible:
        told.append(f"{counted(unknown.impossible, 'move')} cannot be by the model: look at the model, or the reports.")
    return [*told, *(f"{note[:1].upper()}{note[1:]}." for note in found.notes)]


def _by(who: str, overrides: int, cost: float) -> str:
    return f"{who or 'nobody named'} {overrides} ({number(cost, 3)})"


def _unequal(what: str, coefficient: float | None, who: str, worst: str) -> str:
    told = "is not defined" if coefficient is None else f"is {number(coefficient, 3)}"
    return f"{what}: the Gini coefficient {told}; the worst-off is {who} with {worst}."
