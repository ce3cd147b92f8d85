"""Settings of a programme: values by name, each from a step on.

Values are never changed: the value at a step is the one written last among those that hold from that step or an
earlier one. Owners of a setting check its value and write the event that it belongs to.
"""

import json
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
