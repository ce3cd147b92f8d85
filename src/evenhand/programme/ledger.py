"""The events of a programme, every row that they wrote, and idempotency keys.

Events have the numbers 1, 2, 3, ... without a gap, and each carries a digest of itself and all before it:

    chain[n] = SHA-256(chain[n - 1], n, kind, who, at, body, changes)

`changes` holds every row that the event added or changed, so that the tables can be rebuilt from the events alone
(`integrity`). Rows are therefore written by `add_rows` and `change_rows`, never by a statement of their own.

Events are never changed, and names must be erasable: bodies name arms by `of_arm`, and rows hold personal texts by
their seals (`schema.SEALED`). Readers see the present names.

A write may come with an idempotency *key*: its first answer is stored under the key and returned for every repetition
of the request. Another request under the same key is refused.
"""

import hashlib
import hmac
import json
import math
import re
import secrets
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Connection, Dialect, Insert, Select, Table, and_, bindparam, func, insert, select, update

from evenhand.errors import ConflictError, InvalidInputError, NotFoundError
from evenhand.programme import schema

T = TypeVar("T")

MOST_KEY = 300
"""Characters of the longest key, with the name of its holder."""

MOST_TEXT = 2000
"""Characters of the longest text that a person gives: a reason, a source, a name of who did it."""


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    id: int
    """Its number; the first is 1."""

    kind: str
    """created, joined, left, erased, observed, solved, planned, accepted, recorded, refitted, adopted, declined,
    bounded, worded, needed, changed, imported, undone, approved, safeguarded, or answered: a key was stored for an
    answer that changed nothing."""

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
    """The event that a transaction has not yet written, with the rows that belong to it, and the event before."""

    event: dict[str, Any] | None = None
    before: str = ""
    """The digest of the event before."""
    changes: list[list[Any]] = field(default_factory=list)
    head: tuple[int, str] | None = None
    """Number and digest of the last event, once read."""


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
    last, before = head(tx)
    number, draft = last + 1, _draft(tx)
    draft.event, draft.before = (
        {"id": number, "kind": kind, "who": who, "at": now(), "body_json": as_text(body)},
        before,
    )
    run(tx, _COUNT, {"number": number})
    draft.head = number, ""
    return number


def write_event(tx: Connection) -> None:
    """Write the event that was begun, with its rows, if there is one."""
    draft = _draft(tx)
    if draft.event is None:
        return
    row = draft.event | {"changes_json": as_text(draft.changes)}
    row["chain"] = link(draft.before, row)
    run(tx, _insertion(schema.events, tuple(row)), row)
    draft.event, draft.changes, draft.head = None, [], (row["id"], row["chain"])


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
    rows = _salted(table, rows)
    run(tx, _insertion(table, tuple(rows[0])), *rows)
    _note(tx, "added", table, rows)


def next_id(tx: Connection, table: Table) -> int:
    """Return the number of the next row of a table."""
    return int(run(tx, _largest_id(table)).fetchone()[0] or 0) + 1


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
    rows, keys = _salted(table, rows), [column.name for column in table.primary_key]
    found = and_(*(table.c[name] == bindparam(f"its_{name}") for name in keys))
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in rows[0] if name not in keys}
    content = [{("its_" if name in keys else "new_") + name: row[name] for name in row} for row in rows]
    tx.execute(update(table).where(found).values(values), content)
    _note(tx, "changed", table, rows)


def _salted(table: Table, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return rows with a new salt for those that have personal texts."""
    texts = [name for name in schema.SEALED.get(table.name, ()) if name in rows[0]]
    has_text = [any(row[name] is not None for name in texts) for row in rows]
    if not any(has_text):
        return rows
    return [{**row, "salt": secrets.token_hex(16) if own else None} for row, own in zip(rows, has_text, strict=True)]


def _note(tx: Connection, verb: str, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    names = [name for name in rows[0] if name != "salt"]
    if table.name in schema.SEALED or any(isinstance(rows[0][name], bytes) for name in names):
        content = [[in_event(table, name, row) for name in names] for row in rows]
    else:
        content = [[row[name] for name in names] for row in rows]
    _draft(tx).changes.append([verb, table.name, names, content])


def in_event(table: Table, column: str, row: Mapping[str, Any]) -> Any:
    """Return a value of a row as events store it: bytes by their digest, personal texts by their seal."""
    value = row[column]
    if isinstance(value, bytes):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    if value is None or column not in schema.SEALED.get(table.name, ()):
        return value
    content = as_text([table.name, column, value]).encode()
    return {"sealed": hmac.new(str(row["salt"]).encode(), content, hashlib.sha256).hexdigest()}


def of_arm(number: int) -> dict[str, int]:
    """Return an arm as bodies and stored answers hold it; `named` puts its present name into the place."""
    return {"arm": number}


def named(tx: Connection, *texts: str) -> list[Any]:
    """Read JSON texts, with the present names of the arms in them."""
    numbers: set[int] = set()
    for text in texts:
        json.loads(text, object_hook=lambda found: numbers.add(found["arm"]) if found.keys() == {"arm"} else found)
    names: dict[int, str] = {}
    table, order = schema.arms, sorted(numbers)
    for first in range(0, len(order), 500):
        query = select(table.c.id, table.c.name).where(table.c.id.in_(order[first : first + 500]))
        names |= {row.id: row.name for row in tx.execute(query)}
    return [
        json.loads(text, object_hook=lambda found: names[found["arm"]] if found.keys() == {"arm"} else found)
        for text in texts
    ]


def last_event(tx: Connection) -> int:
    """The number of the last event: the version of all that is stored."""
    return head(tx)[0]


def head(tx: Connection) -> tuple[int, str]:
    """The number and the digest of the last event; the digest is empty while that event is not yet written."""
    draft = _draft(tx)
    if draft.head is None:
        number, chain = run(tx, _HEAD).fetchone()
        draft.head = int(number), chain or ""
    return draft.head


# Statements that every write needs


def run(tx: Connection, statement: Any, *rows: Mapping[str, Any]) -> Any:
    """Execute a statement by the driver, and return its cursor.

    SQLAlchemy takes four times as long to build a statement as to execute it, and ten times as long to execute it as
    SQLite does. A statement is therefore built once, and its text is given to the driver.

    Args:
        tx: a transaction.
        statement: a statement that is built once, without lists of unknown length.
        rows: values of its parameters; several execute it for each.
    """
    text, names, usual = _driver_form(statement, tx.dialect)
    values: list[Any] = [{**usual, **row} for row in rows or ({},)]
    values = values if names is None else [[row[name] for name in names] for row in values]
    cursor = tx.connection.cursor()
    if len(values) == 1:
        cursor.execute(text, values[0])
    else:
        cursor.executemany(text, values)
    return cursor


def fetch(tx: Connection, statement: Any, **values: Any) -> list[Any]:
    """Return the rows of a query by the driver, with the names of its columns; see `run`."""
    return list(map(_row_type(statement)._make, run(tx, statement, values).fetchall()))


@cache
def _row_type(statement: Any) -> Any:
    return namedtuple("Row", [column.name for column in statement.selected_columns])  # any columns


@cache
def _driver_form(statement: Any, dialect: Dialect) -> tuple[str, tuple[str, ...] | None, dict[str, Any]]:
    """The text of a statement for a driver, its parameters in their order, if they go by that, and usual values."""
    compiled = statement.compile(dialect=dialect)
    return str(compiled), tuple(compiled.positiontup) if compiled.positional else None, dict(compiled.params)


_HEAD = select(schema.programme.c.last_event, schema.events.c.chain).outerjoin_from(
    schema.programme, schema.events, schema.events.c.id == schema.programme.c.last_event
)
_COUNT = update(schema.programme).values(last_event=bindparam("number"))


@cache
def _insertion(table: Table, columns: tuple[str, ...]) -> Insert:
    return insert(table).values({name: bindparam(name) for name in columns})


@cache
def _largest_id(table: Table) -> Select[tuple[int]]:
    return select(func.max(table.c.id))


def events(tx: Connection, after: int = 0, most: int | None = None) -> list[Event]:
    """Events after one, in their order; at most so many."""
    table = schema.events
    columns = (table.c.id, table.c.kind, table.c.who, table.c.at, table.c.body_json, table.c.chain)
    rows = tx.execute(select(*columns).where(table.c.id > after).order_by(table.c.id).limit(most)).all()
    bodies = named(tx, *(row.body_json for row in rows))
    return [Event(row.id, row.kind, row.who, row.at, body, row.chain) for row, body in zip(rows, bodies, strict=True)]


def read_once(read: Callable[[Connection], T]) -> Callable[[Connection], T]:
    """Return a function that reads again only if an event was written since.

    Args:
        read: returns what follows from the store.
    """
    known: dict[tuple[int, str], T] = {}

    def found(tx: Connection) -> T:
        """Return what was read as of the last event."""
        last = head(tx)
        if last not in known:
            known[last] = read(tx)
        return known[last]

    return found


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
    if not found["request"]:
        raise ConflictError(f"key: {key!r} was used, and its answer was erased with an arm; take a new one")
    if found["request"] != digest_of([kind, request]):
        raise ConflictError(f"key: {key!r} was used for another request ({found['kind']}); take a new one")
    earlier: dict[str, Any] = json.loads(found["answer_json"])
    return earlier


# Texts that people give

_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def check_text(value: object, name: str, empty: bool = False) -> str:
    """A text that both databases hold, as it was typed but for blanks around it."""
    text = value.strip() if isinstance(value, str) else value
    if not isinstance(text, str) or len(text) > MOST_TEXT or fault_of_text(text) or not (text or empty):
        raise InvalidInputError(f"{name}: expected a text of up to {MOST_TEXT} characters, got {str(value)[:50]!r}")
    return text


def fault_of_text(text: str) -> str:
    """Return the fault of a text that a database cannot hold; empty if valid."""
    return "has characters that are not text" if _NO_TEXT.search(text) else ""
