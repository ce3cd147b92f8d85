"""Verification of a programme's database: rebuild the tables from the chain of events, and compare.

Each event carries the rows that it added or changed (`ledger`). Replaying them gives every table. Bytes (models,
policies, posteriors) are compared by their digests, personal texts by their seals.

The chain shows every change of a single event. Two changes agree with themselves: the last events and all that they
wrote are cut, or events are rewritten with all digests after them. A `Head`, the number and digest of the last event,
exported earlier and stored elsewhere, shows both.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, inspect, select, text

from evenhand.checks import why_unreadable
from evenhand.errors import Fault, InvalidInputError
from evenhand.model.io import write_atomically
from evenhand.programme import schema
from evenhand.programme.ledger import as_text, in_event, link

MOST_FAULTS = 20
"""Differences after which the search ends."""

TABLES = {name: table for name, table in schema.METADATA.tables.items() if name not in schema.LOGS}
"""Tables that follow from the events; views of arms do not, since reading is no event."""

Rebuilt = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
"""Rows by table and primary key."""


@dataclass(frozen=True)
class Head:
    """The end of a chain of events."""

    event: int
    """Number of the last event."""

    chain: str
    """Digest of that event and all before it."""

    def save(self, file: str | Path) -> None:
        """Write the head as a JSON file."""
        write_atomically(file, f"{as_text(asdict(self))}\n".encode())

    @classmethod
    def load(cls, file: str | Path) -> "Head":
        """Read a head from a JSON file.

        Raises:
            InvalidInputError: the file cannot be read, or holds something else.
        """
        try:
            found = cls(**json.loads(_read(file)))
        except (TypeError, ValueError):
            found = cls(0, "")
        if type(found.event) is not int or found.event < 1 or not isinstance(found.chain, str):
            raise InvalidInputError(
                f"{file}: expected the head of a chain of events, as an earlier verification wrote it"
            )
        return found


def read_key(file: str | Path) -> bytes:
    """Read a secret key from a file, without the blanks around it.

    Raises:
        InvalidInputError: the file cannot be read, or is too short to be a secret.
    """
    found = _read(file).strip()
    if len(found) < 16:
        raise InvalidInputError(f"{file}: expected a secret of at least 16 bytes, got {len(found)}")
    return found


def _read(file: str | Path) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{file}: cannot be read: {why_unreadable(Path(file), error)}") from None


def head_of(tx: Connection) -> Head:
    """Return the head of the chain."""
    table = schema.events
    row = tx.execute(select(table.c.id, table.c.chain).order_by(table.c.id.desc()).limit(1)).one()
    return Head(row.id, row.chain)


def raise_differences(address: str, faults: list[Fault], cause: BaseException | None = None) -> None:
    """Refuse a database that differs from its events.

    Raises:
        InvalidInputError: there is a difference; all are in its `faults`.
    """
    if not faults:
        return
    first = f"{address}: it is damaged, or something else than evenhand changed it. Restore a copy:"
    refusal = InvalidInputError("\n".join([first, *(f"  {fault}" for fault in faults)]))
    refusal.faults = tuple(faults)
    raise refusal from cause


def differences(tx: Connection, head: Head | None = None) -> list[Fault]:
    """Return the first differences between the tables and the chain of events; none if all agree.

    Args:
        tx: a transaction.
        head: exported earlier, which the chain must contain.
    """
    present = set(inspect(tx).get_table_names())
    faults = [Fault(name, "the table is missing") for name in schema.METADATA.tables if name not in present]
    if tx.dialect.name == "sqlite":
        said = [str(row[0]) for row in tx.execute(text(f"PRAGMA integrity_check({MOST_FAULTS})"))]
        faults += [Fault("the file", line) for line in said if line != "ok"]
        found = {str(row[0]) for row in tx.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'"))}
        faults += [Fault(f"trigger {name}", "missing or foreign") for name in sorted(found ^ schema.TRIGGERS.keys())]
    if faults:
        return faults
    rebuilt: Rebuilt = {name: {} for name in TABLES}
    return list(_replay(tx, rebuilt, head)) or list(islice(_compare(tx, rebuilt), MOST_FAULTS))


def _replay(tx: Connection, rebuilt: Rebuilt, head: Head | None) -> Iterator[Fault]:
    """Apply every event to empty tables; faults of the chain itself."""
    before, number = "", 0
    for row in _rows(tx, schema.events, " ORDER BY id"):
        number += 1
        try:
            chain = link(before, row)
        except (TypeError, ValueError):  # a value that JSON cannot hold was never written
            chain = ""
        if row["id"] != number or row["chain"] != chain:
            yield Fault(f"events, id {number}", "it is missing or was changed")
            return  # digests after it mean nothing
        before = row["chain"]
        if head is not None and number == head.event and before != head.chain:
            yield Fault(f"events, id {number}", "the head has another digest: this event or one before was rewritten")
        yield from _apply(rebuilt, number, row["changes_json"])
    if head is not None and number < head.event:
        yield Fault(f"events, id {number + 1}", f"it is missing, as are all up to {head.event}, the head")
    if not rebuilt["programme"]:
        yield Fault("events", "none of them began a programme")
    for programme in rebuilt["programme"].values():
        programme["last_event"] = number


def _apply(rebuilt: Rebuilt, number: int, changes: str) -> Iterator[Fault]:
    """Apply the rows of one event."""
    try:
        for verb, name, columns, rows in json.loads(changes):
            table, keys = rebuilt[name], [column.name for column in TABLES[name].primary_key]
            for values in rows:
                row = dict(zip(columns, values, strict=True))
                key = tuple(row[column] for column in keys)
                if (verb == "added") == (key in table):  # the row of an earlier event had been removed or put in
                    there = "exists already" if verb == "added" else "does not exist"
                    yield Fault(_place(name, key), f"event {number} {verb} it, though by the events before it {there}")
                table.setdefault(key, {}).update(row)
    except (KeyError, RecursionError, TypeError, ValueError):
        yield Fault(f"events, id {number}", "its rows cannot be read")


def _compare(tx: Connection, rebuilt: Rebuilt) -> Iterator[Fault]:
    for name, table in TABLES.items():
        expected, keys = rebuilt[name], [column.name for column in table.primary_key]
        for row in _rows(tx, table):
            key = tuple(row[column] for column in keys)
            wanted = expected.pop(key, None)
            if wanted is None:
                yield Fault(_place(name, key), "no event wrote this row")
                continue
            for column in row.keys() - {"salt"}:  # which the seals cover
                found = in_event(table, column, row)
                if found != wanted.get(column):
                    content = f"expected {_shown(wanted.get(column))} by the events, found {_shown(found)}"
                    yield Fault(_place(name, key, column), content)
        yield from (Fault(_place(name, key), "the row is missing") for key in expected)


def _rows(tx: Connection, table: Table, order: str = "") -> Iterator[dict[str, Any]]:
    """Rows as they are stored: a value of another type than its column must not be converted."""
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    for row in tx.exec_driver_sql(f'SELECT {names} FROM "{table.name}"{order}'):
        yield dict(zip(table.columns.keys(), row, strict=True))


def _place(table: str, key: tuple[Any, ...], column: str = "") -> str:
    names = [column.name for column in TABLES[table].primary_key]
    content = ", ".join(f"{name} {value}" for name, value in zip(names, key, strict=True))
    return f"{table}, {content}" + (f", {column}" if column else "")


def _shown(value: object) -> str:
    content = repr(value)
    return content if len(content) <= 60 else content[:57] + "..."
