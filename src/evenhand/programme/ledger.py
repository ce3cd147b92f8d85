"""The events of a programme, every row that they wrote, and idempotency keys.

Events have the numbers 1, 2, 3, ... without a gap, and each carries a digest of itself and all before it:

    chain[n] = SHA-256(chain[n - 1], n, kind, who, at, body, changes)

`changes` holds every row that the event added or changed, so that the tables can be rebuilt from the events alone
(`integrity`). Rows are therefore written by `add_rows` and `change_rows`, never by a statement of their own.

A write may come with an idempotency *key*: its first answer is stored under the key and returned for every repetition
of the request. Another request under the same key is refused.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import TypeAdapter
from sqlalchemy import Connection, Table, and_, bindparam, func, insert, select, update

from evenhand.errors import ConflictError, InvalidInputError, NotFoundError
from evenhand.programme import schema

MOST_KEY = 200
"""Characters of the longest key."""

MOST_TEXT = 2000
"""Characters of the longest text that a person gives: a reason, a source, a name of who did it."""


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    id: int
    """Its number; the first is 1."""

    kind: str
    """created, joined, left, observed, solved, planned, accepted, recorded, refitted, adopted, declined, bounded,
    worded, needed, or answered: a key was stored for an answer that changed nothing."""

    who: str
    """Author."""

    at: str
    """When, by the clock of the machine that wrote it, in UTC."""

    body: dict[str, Any]
    """Content."""

    chain: str
    """The digest of this event and all before it."""


@dataclass(frozen=True)
class Result:
    """Result of an operation, with a JSON form."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form; None for numbers that are not finite."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        if cls not in _READERS:
            _READERS[cls] = TypeAdapter(cls)
        found: Self = _READERS[cls].validate_python(content, strict=False)
        return found


_READERS: dict[type[Result], TypeAdapter[Any]] = {}


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: dataclasses as tables, tuples as lists, None for nan and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Result):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return plain(vars(value))
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def as_text(value: Any) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def digest_of(value: Any) -> str:
    """The SHA-256 of a value that JSON can hold."""
    return hashlib.sha256(as_text(value).encode()).hexdigest()


def now() -> str:
    """The time in UTC, to a millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass
class Draft:
    """The event that a transaction has not yet written, and the rows that belong to it."""

    event: dict[str, Any] | None = None
    changes: list[list[Any]] = field(default_factory=list)


def append(tx: Connection, kind: str, who: str, body: dict[str, Any]) -> int:
    """Begin an event and return its number; rows that are written from now on belong to it.

    The event itself is written when the next one begins, or when the transaction ends (`write_event`), because its
    digest covers its rows.

    Args:
        tx: a transaction from `Store.writing`, which holds the lock.
        kind: of the event.
        who: the author.
        body: the content that is shown.

    Raises:
        InvalidInputError: `who` contains characters that a database cannot store.
    """
    write_event(tx)
    who = check_text(who, "who", empty=True)
    number = last_event(tx) + 1
    _draft(tx).event = {"id": number, "kind": kind, "who": who, "at": now(), "body_json": as_text(body)}
    tx.execute(update(schema.programme).values(last_event=number))
    return number


def write_event(tx: Connection) -> None:
    """Write the event that was begun, with its rows, if there is one."""
    draft = _draft(tx)
    if draft.event is None:
        return
    row = draft.event | {"changes_json": as_text(draft.changes)}
    before = tx.execute(select(schema.events.c.chain).where(schema.events.c.id == row["id"] - 1)).scalar() or ""
    tx.execute(insert(schema.events).values(**row, chain=link(before, row)))
    draft.event, draft.changes = None, []


def _draft(tx: Connection) -> Draft:
    found: Draft = tx.get_execution_options()["draft"]
    return found


def link(before: str, row: Mapping[str, Any]) -> str:
    """Return the digest of an event and all before it.

    Args:
        before: the digest of the event before; empty for the first.
        row: of the table of events.
    """
    return digest_of([before, *(row[name] for name in ("id", "kind", "who", "at", "body_json", "changes_json"))])


def add_rows(tx: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows as part of the present event; a missing `id` is numbered on.

    Args:
        tx: a transaction from `Store.writing`.
        table: of `schema`.
        rows: all with the same columns.
    """
    if not rows:
        return
    if "id" in table.c and "id" not in rows[0]:
        rows = [{"id": number, **row} for number, row in enumerate(rows, start=next_id(tx, table))]
    tx.execute(insert(table), [dict(row) for row in rows])
    _note(tx, "added", table, rows)


def next_id(tx: Connection, table: Table) -> int:
    """Return the number of the next row of a table."""
    return int(tx.execute(select(func.max(table.c.id))).scalar() or 0) + 1


def find_row(tx: Connection, table: Table, number: object, name: str) -> Any:
    """Return a row of a table by its number.

    Args:
        tx: a transaction.
        table: of `schema`.
        number: of the row, as given.
        name: what such a row is, for the message.

    Raises:
        NotFoundError: unknown number.
    """
    known = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 2**31
    row = tx.execute(select(table).where(table.c.id == number)).first() if known else None
    if row is None:
        raise NotFoundError(f"{name}: unknown number {number!r}")
    return row


def change_rows(tx: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Update rows, found by their primary keys, as part of the present event.

    Args:
        tx: a transaction from `Store.writing`.
        table: of `schema`.
        rows: all with the same columns, which include the primary key.
    """
    if not rows:
        return
    keys = [column.name for column in table.primary_key]
    found = and_(*(table.c[name] == bindparam(f"its_{name}") for name in keys))
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in rows[0] if name not in keys}
    content = [{("its_" if name in keys else "new_") + name: row[name] for name in row} for row in rows]
    tx.execute(update(table).where(found).values(values), content)
    _note(tx, "changed", table, rows)


def _note(tx: Connection, verb: str, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(rows[0])
    _draft(tx).changes.append([verb, table.name, names, [[in_event(row[name]) for name in names] for row in rows]])


def in_event(value: Any) -> Any:
    """Return a value of a row as events store it: bytes by their digest, in a form that no text has."""
    return {"sha256": hashlib.sha256(value).hexdigest()} if isinstance(value, bytes) else value


def last_event(tx: Connection) -> int:
    """The number of the last event: the version of all that is stored."""
    return int(tx.execute(select(schema.programme.c.last_event)).scalar_one())


def events(tx: Connection, after: int = 0, most: int | None = None) -> list[Event]:
    """Events after one, in their order; at most so many."""
    table = schema.events
    columns = (table.c.id, table.c.kind, table.c.who, table.c.at, table.c.body_json, table.c.chain)
    rows = tx.execute(select(*columns).where(table.c.id > after).order_by(table.c.id).limit(most))
    return [Event(row.id, row.kind, row.who, row.at, json.loads(row.body_json), row.chain) for row in rows]


# Keys


def once(tx: Connection, key: str | None, kind: str, request: Any, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do something, unless it was done under this key; return its answer.

    Args:
        tx: a transaction from `Store.writing`.
        key: idempotency key; None does it in any case.
        kind: what is done.
        request: arguments, as JSON can hold them.
        do: does it; the answer as JSON can hold it.

    Raises:
        ConflictError: the key was used for something else.
    """
    earlier = answered(tx, key, kind, request)
    if earlier is not None:
        return earlier
    answer = do()
    if key is not None:
        if _draft(tx).event is None:
            append(tx, "answered", "", {"key": key, "kind": kind})
        row = {"key": key, "kind": kind, "request": digest_of([kind, request]), "answer_json": as_text(answer)}
        add_rows(tx, schema.keys, [row | {"at": now(), "event": last_event(tx)}])
    return answer


def answered(tx: Connection, key: str | None, kind: str, request: Any) -> dict[str, Any] | None:
    """The answer that was given under a key; None where there is none.

    Args:
        tx: a transaction.
        key: of the request.
        kind: kind of the event.
        request: arguments, as JSON can hold them.

    Raises:
        ConflictError: the key was used for something else.
    """
    if key is None:
        return None
    if not key or len(key) > MOST_KEY or not key.isprintable():
        raise InvalidInputError(f"key: expected a text of up to {MOST_KEY} printable characters, got {key[:50]!r}")
    found = tx.execute(select(schema.keys).where(schema.keys.c.key == key)).mappings().first()
    if found is None:
        return None
    if found["request"] != digest_of([kind, request]):
        raise ConflictError(f"key: {key!r} was used for another request ({found['kind']}); take a new one")
    earlier: dict[str, Any] = json.loads(found["answer_json"])
    return earlier


# Texts that people give


def check_text(value: object, name: str, empty: bool = False) -> str:
    """A text that both databases hold, as it was typed but for blanks around it."""
    text = value.strip() if isinstance(value, str) else value
    if not isinstance(text, str) or len(text) > MOST_TEXT or fault_of_text(text) or not (text or empty):
        raise InvalidInputError(f"{name}: expected a text of up to {MOST_TEXT} characters, got {str(value)[:50]!r}")
    return text


def fault_of_text(text: str) -> str:
    """Return the fault of a text that a database cannot hold; empty if valid."""
    if "\0" in text or any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        return "has characters that are no text"
    return ""
