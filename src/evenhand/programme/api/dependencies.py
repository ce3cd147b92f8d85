"""Common parts of requests: author, idempotency key, tables of rows."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from fastapi import Header, Request
from pydantic import BaseModel

from evenhand.programme.api.auth import Holder

Key: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern="^[!-~]{1,200}$",
        description="Idempotency key: a repeated request has the same response and no further effect.",
    ),
]


def who_of(request: Request, said: str | None) -> str:
    """Return the author of an event: the given name and the name of the token."""
    holder: Holder = request.state.holder
    if holder.name and said:
        return f"{said} ({holder.name})"
    return holder.name or said or ""


def as_table(rows: Sequence[BaseModel]) -> dict[str, list[Any]]:
    """Rows as columns, of those fields that any row has."""
    shown = [row.model_dump(exclude_none=True) for row in rows]
    names = [name for name in type(rows[0]).model_fields if any(name in row for row in shown)]
    return {name: [row.get(name, "") for row in shown] for name in names}
