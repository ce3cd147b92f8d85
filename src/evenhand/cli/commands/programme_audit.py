"""`evenhand programme audit`."""

import shlex
import sys

import click

from evenhand.cli.console import print_json, print_summary, table_bytes
from evenhand.cli.reading import check_target
from evenhand.model.io import write_atomically


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
    from evenhand.programme.audit import audit_of
    from evenhand.programme.programme import Programme

    with Programme.open(programme) as opened:
        books, called = opened.books(first, last, event=event, level=level), opened.status().name
        address = opened.store.address  # without a password: a report goes from hand to hand
    found = audit_of(books)
    if table:
        write_atomically(table, table_bytes([row.as_row() for row in found.arms], ".csv"))
    if report:
        from evenhand.programme.audit_report import write_audit

        words = [address if word == programme else word for word in sys.argv[1:]]
        write_audit(found, books, report, called, f"evenhand {shlex.join(words)}")
    if as_json:
        print_json(found.to_dict())
        return
    from evenhand.programme.audit_report import audit_summary

    print_summary(audit_summary(found, called))
    for what, path in (("table", table), ("report", report)):
        if path and not quiet:
            click.echo(f"{what}: {path}")
