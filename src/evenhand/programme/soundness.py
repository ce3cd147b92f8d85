"""What is wrong with a database that evenhand alone did not write: asked where something in it could not be read.

A programme's database is a file on somebody's disk, or a server that others can write to. What is found in it is
believed while it can be read; where it cannot, the tables are gone through, row by row:

    the file itself, as SQLite checks it        every table and column, and that what is in it is of its kind
    texts that are to be JSON                   rows that others are to stand for: models, policies, arms, plans
    bodies of models and policies               have the digests by which they are called
    types, groups, states and actions           are those of the present model
    events                                      are all there, and follow from each other

Each fault is told with its table and row. Nothing is mended: a copy of the database is to be put in its place.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Connection, Float, Integer, LargeBinary, Table, inspect, text

from evenhand.checks import plain
from evenhand.errors import EvenhandError, InvalidInput
from evenhand.programme import ledger, schema
from evenhand.programme.drifting import check_bounds
from evenhand.programme.modelling import Words, from_bytes

MOST_FAULTS = 10
"""Faults that are told; more are counted by nobody."""

_KINDS: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (Integer, (int,), "a whole number"),
    (Float, (int, float), "a number"),
    (LargeBinary, (bytes,), "bytes"),
)
_LISTS = ("numbers_json", "budget_json", "why")
"""JSON texts that hold lists; the others hold values under names."""

_ALSO = {("refits", "why")}
"""JSON texts whose columns are not called so."""

_NEEDED = {("policies", "facts_json"): ("certificate",), ("plans", "told_json"): ("served", "used")}
"""Names without which such a text is not what was written."""

Row = dict[str, Any]


def find_damage(tx: Connection) -> list[str]:
    """What is wrong, each fault with its place; empty if the database is sound.

    Args:
        tx: a transaction that reads.
    """
    found: list[str] = []
    for fault in _faults(tx):
        found.append(fault)
        if len(found) >= MOST_FAULTS:
            break
    return found


def _faults(tx: Connection) -> Iterator[str]:
    if tx.dialect.name == "sqlite":
        said = [str(row[0]) for row in tx.execute(text(f"PRAGMA integrity_check({MOST_FAULTS})"))]
        yield from (f"the file is damaged: {line}" for line in said if line != "ok")
    there = set(inspect(tx).get_table_names())
    gone = [name for name in schema.METADATA.tables if name not in there]
    yield from (f"the table {name} is gone" for name in gone)
    if gone:
        return
    rows = {name: list(_rows(tx, table)) for name, table in schema.METADATA.tables.items()}
    sound = True
    for name, table in schema.METADATA.tables.items():
        for fault in _faults_of_rows(table, rows):
            sound = False
            yield f"{name}, {fault}"
    if len(rows["programme"]) != 1:
        yield f"programme: it has {len(rows['programme'])} rows where there is one"
        return
    if sound:  # of what is not even of the right kind names cannot be told
        yield from _faults_of_names(rows)
        yield from _faults_of_log(tx)


def _rows(tx: Connection, table: Table) -> Iterator[Row]:
    """Rows as they are stored: what is of another kind than its column must not be read as that."""
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    for row in tx.exec_driver_sql(f'SELECT {names} FROM "{table.name}"'):
        yield dict(zip(table.columns.keys(), row, strict=True))


def _faults_of_rows(table: Table, rows: dict[str, list[Row]]) -> Iterator[str]:
    known = {
        column.name: {row[key.column.name] for row in rows[key.column.table.name]}
        for column in table.columns
        for key in column.foreign_keys
    }
    for number, row in enumerate(rows[table.name], start=1):
        for column in table.columns:
            value = row[column.name]
            told = _kind_fault(column, value) or _json_fault(table.name, column.name, value)
            if not told and value is not None and value not in known.get(column.name, {value}):
                told = f"{plain(value)} is not there"
            if told:
                yield f"row {number}: {column.name}: {told}"
        body = row.get("body")
        if isinstance(body, bytes) and hashlib.sha256(body).hexdigest() != row["digest"]:
            yield f"row {number}: body: its digest is another one; it was changed"


def _kind_fault(column: "Column[Any]", value: object) -> str:
    if value is None:
        return "" if column.nullable else "there is nothing in it"
    for kind, types, words in _KINDS:
        if isinstance(column.type, kind):
            return "" if isinstance(value, types) else f"expected {words}, got {plain(value)}"
    return "" if isinstance(value, str) else f"expected text, got {plain(value)}"


def _json_fault(table: str, column: str, value: object) -> str:
    if not (column.endswith("_json") or (table, column) in _ALSO) or not isinstance(value, str):
        return ""
    try:
        found = json.loads(value)
    except ValueError:
        return "it is not JSON"
    if not isinstance(found, list if column in _LISTS else dict):
        return "it holds something else than was written"
    if column == "bounds_json" and isinstance(found, dict):
        return _bounds_fault(found)
    missing = [name for name in _NEEDED.get((table, column), ()) if name not in found]
    return f"it has no {missing[0]}" if missing else ""


def _bounds_fault(found: dict[str, Any]) -> str:
    try:
        check_bounds(found)
    except InvalidInput as fault:
        return str(fault)
    return ""


def _faults_of_names(rows: dict[str, list[Row]]) -> Iterator[str]:
    """Names that the present model does not have."""
    present = rows["programme"][0]["model"]
    try:
        words = Words(from_bytes(next(row["body"] for row in rows["models"] if row["digest"] == present)))
    except EvenhandError as error:
        yield f"models: the present one cannot be read: {error}"
        return
    block_of: dict[int, int] = {}
    for number, arm in enumerate(rows["arms"], start=1):
        name = (arm["type"], arm["group_name"])
        if name not in words.blocks:
            yield f"arms, row {number}: the model has no type {name[0]!r} in a group {name[1]!r}"
        else:
            block_of[arm["id"]] = words.blocks[name]
    for table, column, names in (
        ("observations", "state", words.states),
        ("records", "action", words.actions),
        ("decisions", "state", words.states),
        ("decisions", "planned", words.actions),
        ("decisions", "accepted", words.actions),
    ):
        for number, row in enumerate(rows[table], start=1):
            block = block_of.get(row["arm"])
            if block is not None and row[column] is not None and row[column] not in names(block):
                yield f"{table}, row {number}: {column}: the model has no {row[column]!r}"


def _faults_of_log(tx: Connection) -> Iterator[str]:
    try:
        ledger.check_events(tx)
    except EvenhandError as error:
        yield f"events: {error}"
