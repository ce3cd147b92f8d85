"""All that happened, one after the other, and answers that are given once.

Events have the numbers 1, 2, 3, ... without a gap, and each carries a digest of itself and all before it:

    chain[n] = SHA-256(chain[n - 1], n, kind, who, at, body)

so that an event that was changed, left out or put in shows (`check_events`). A write may come with a *key*. The first
time, its answer is kept under the key; whoever asks the same again under it gets that answer, and nothing is done
twice. Another request under the same key is refused.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from evenhand.errors import Conflict, InvalidInput
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
    """created, joined, left, observed, solved, planned, accepted, recorded, refitted, adopted, declined or bounded."""

    who: str
    """Who did it, in the words of whoever wrote it."""

    at: str
    """When, by the clock of the machine that wrote it, in UTC."""

    body: dict[str, Any]
    """What."""

    chain: str
    """The digest of this event and all before it."""


def as_text(value: Any) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def digest_of(value: Any) -> str:
    """The SHA-256 of a value that JSON can hold."""
    return hashlib.sha256(as_text(value).encode()).hexdigest()


def now() -> str:
    """The time in UTC, to a millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def append(tx: Connection, kind: str, who: str, body: dict[str, Any]) -> int:
    """Add an event; its number.

    Args:
        tx: a transaction from `Store.writing`, which holds the lock.
        kind: what kind of thing happened.
        who: who did it.
        body: what.

    Raises:
        InvalidInput: `who` is no text that a database can hold.
    """
    programme = schema.programme
    who = check_text(who, "who", empty=True)
    number = int(tx.execute(select(programme.c.last_event)).scalar_one()) + 1
    before = tx.execute(select(schema.events.c.chain).where(schema.events.c.id == number - 1)).scalar() or ""
    row = {"id": number, "kind": kind, "who": who, "at": now(), "body_json": as_text(body)}
    tx.execute(insert(schema.events).values(**row, chain=_link(before, row)))
    tx.execute(update(programme).values(last_event=number))
    return number


def _link(before: str, row: dict[str, Any]) -> str:
    return digest_of([before, *(row[name] for name in ("id", "kind", "who", "at", "body_json"))])


def last_event(tx: Connection) -> int:
    """The number of the last event: the version of all that is stored."""
    return int(tx.execute(select(schema.programme.c.last_event)).scalar_one())


def events(tx: Connection, after: int = 0, most: int | None = None) -> list[Event]:
    """Events after one, in their order; at most so many."""
    table = schema.events
    rows = tx.execute(select(table).where(table.c.id > after).order_by(table.c.id).limit(most))
    return [Event(row.id, row.kind, row.who, row.at, json.loads(row.body_json), row.chain) for row in rows]


def check_events(tx: Connection) -> int:
    """How many events there are, if the log is whole.

    Raises:
        InvalidInput: an event is missing or was changed; says which.
    """
    before, number = "", 0
    for row in tx.execute(select(schema.events).order_by(schema.events.c.id)).mappings():
        number += 1
        if row["id"] != number or row["chain"] != _link(before, dict(row)):
            raise InvalidInput(f"the log is not whole: event {number} is missing or was changed")
        before = row["chain"]
    if number != last_event(tx):
        raise InvalidInput(f"the log is not whole: it ends with event {number} of {last_event(tx)}")
    return number


# Keys


def once(
    tx: Connection, key: str | None, kind: str, request: Any, do: Callable[[], dict[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """Do something, unless it was done under this key; the answer, and whether it is an earlier one.

    Args:
        tx: a transaction from `Store.writing`.
        key: of the request; None does it in any case.
        kind: what is done.
        request: all that was asked for, as JSON can hold it.
        do: does it; the answer as JSON can hold it.

    Raises:
        Conflict: the key was used for something else.
    """
    earlier = answered(tx, key, kind, request)
    if earlier is not None:
        return earlier, True
    answer = do()
    if key is not None:
        row = {"key": key, "kind": kind, "request": digest_of([kind, request]), "answer_json": as_text(answer)}
        tx.execute(insert(schema.keys).values(**row, at=now(), event=last_event(tx)))
    return answer, False


def answered(tx: Connection, key: str | None, kind: str, request: Any) -> dict[str, Any] | None:
    """The answer that was given under a key; None where there is none.

    Args:
        tx: a transaction.
        key: of the request.
        kind: what is asked for.
        request: all that is asked for, as JSON can hold it.

    Raises:
        Conflict: the key was used for something else.
    """
    if key is None:
        return None
    if not key or len(key) > MOST_KEY or not key.isprintable():
        raise InvalidInput(f"key: expected a text of up to {MOST_KEY} printable characters, got {key[:50]!r}")
    found = tx.execute(select(schema.keys).where(schema.keys.c.key == key)).mappings().first()
    if found is None:
        return None
    if found["request"] != digest_of([kind, request]):
        raise Conflict(f"key: {key!r} was used for another request ({found['kind']}); take a new one")
    earlier: dict[str, Any] = json.loads(found["answer_json"])
    return earlier


# Texts that people give


def check_text(value: object, name: str, empty: bool = False) -> str:
    """A text that both databases hold, as it was typed but for blanks around it."""
    text = value.strip() if isinstance(value, str) else value
    if not isinstance(text, str) or len(text) > MOST_TEXT or fault_of_text(text) or not (text or empty):
        raise InvalidInput(f"{name}: expected a text of up to {MOST_TEXT} characters, got {str(value)[:50]!r}")
    return text


def fault_of_text(text: str) -> str:
    """What is wrong with a text that a database could not hold; nothing where it is sound."""
    if "\0" in text or any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        return "has characters that are no text"
    return ""
