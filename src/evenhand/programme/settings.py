"""Settings of a programme: values by name, each from a step on.

Values are never changed: the value at a step is the one written last among those that hold from that step or an
earlier one. Of promised waits and closed groups a value has the rows of one change alone; what holds at a step follows
from all of them in the order of their steps, so that the rows of a change that was undone are missing, and no others.
Owners of a setting check its value and write the event that it belongs to.
"""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from evenhand.programme import ledger, schema


def setting(tx: Connection, name: str, step: int, event: int | None = None) -> Any:
    """Return the value of a setting at a step; None if it was never set.

    Args:
        tx: a transaction.
        name: of the setting.
        step: at which it holds.
        event: as of this event; by default now.
    """
    table = schema.settings
    query = select(table.c.value_json).where(table.c.name == name, table.c.from_step <= step)
    query = query.where(*schema.valid(table, event))
    found = tx.execute(query.order_by(table.c.from_step.desc(), table.c.id.desc()).limit(1)).scalar()
    return None if found is None else json.loads(found)


def values_between(tx: Connection, name: str, first: int, last: int, event: int | None = None) -> list[tuple[int, Any]]:
    """Return the values of a setting that came into force at some steps, each with its step; as of an event, or now."""
    table = schema.settings
    query = select(table.c.from_step, table.c.value_json).where(table.c.name == name, *schema.valid(table, event))
    query = query.where(table.c.from_step >= first, table.c.from_step <= last).order_by(table.c.from_step, table.c.id)
    return [(step, json.loads(value)) for step, value in tx.execute(query)]


def promises_at(tx: Connection, step: int, event: int | None = None) -> list[dict[str, Any]]:
    """Return the promised waits in force at a step, one row per state, type and group; as of an event, or now.

    Rows without steps stay: they take back what the model, or a row for more arms, promises.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for _, rows in values_between(tx, "max_wait", 0, step, event):
        for row in rows:
            key = row["state"], row.get("type"), row.get("group")
            found.pop(key, None)  # the last one counts, also over rows for other arms that came between
            found[key] = row
    return list(found.values())


def closed_at(tx: Connection, step: int, event: int | None = None) -> dict[str, str]:
    """Return the groups that are closed at a step, each with the group to which its arms went; as of an event, or now.

    A group to which arms went later is open again.
    """
    found: dict[str, str | None] = {}
    for _, groups in values_between(tx, "closed", 0, step, event):
        found |= groups
    return {old: new for old, new in found.items() if new is not None}


def changes_between(tx: Connection, first: int, last: int, event: int | None = None) -> list[str]:
    """Return the lasting changes that came into force at some steps, in sentences; as of an event, or now."""
    events, numbers = schema.events, set[int]()
    for table in (schema.settings, schema.transfers):
        within = [table.c.from_step >= first, table.c.from_step <= last, *schema.valid(table, event)]
        within += [table.c.name != "kinds"] if table is schema.settings else []  # blocks of the model hold at all steps
        numbers |= set(tx.execute(select(table.c.event).where(*within).distinct()).scalars())
    query = select(events.c.body_json).where(events.c.id.in_(numbers), events.c.kind == "changed")
    bodies = ledger.named(tx, *tx.execute(query.order_by(events.c.id)).scalars())
    return [line for body in bodies for line in sentences(body)]


def sentences(body: Mapping[str, Any]) -> list[str]:
    """Return the sentences of a lasting change from its event, whose arms have their names (`ledger.named`)."""
    return ["".join(line) for line in body["said"]]


def add_setting(tx: Connection, name: str, value: Any, from_step: int, event: int) -> None:
    """Write a value of a setting as part of the present event.

    Values that were to hold from later steps stay: a change from step 5 on does not undo one from step 9 on.

    Args:
        tx: a transaction from `Store.writing`.
        name: of the setting.
        value: as JSON can hold it.
        from_step: first step at which it holds.
        event: number of the present event.
    """
    row = {"name": name, "value_json": ledger.as_text(value), "from_step": from_step, "event": event}
    ledger.add_rows(tx, schema.settings, [row])
