"""Common parts of requests and responses: author, tables of rows, jobs, entity tags."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from evenhand.programme.api.jobs import Job
from evenhand.programme.api.middleware import why_not_undone
from evenhand.programme.api.problem_details import MEDIA_TYPE, RETRY_AFTER, RequestError
from evenhand.programme.api.service import programme_of, service_of


def who_of(request: Request, said: str | None) -> str:
    """Return the author of an event: the given name and the name of the token."""
    name: str = request.state.holder.name
    return f"{said} ({name})" if name and said else name or said or ""


def key_of(request: Request, key: str | None) -> str | None:
    """Return an idempotency key among those of the holder: other holders may use the same text."""
    name: str = request.state.holder.name
    return f"{name}:{key}" if key and name else key


def written(request: Request, said: str | None, key: str | None, write: Callable[..., Any]) -> JSONResponse:
    """Write into the programme, and return the JSON form of the result.

    Args:
        request: what is answered.
        said: name of the author, as the request states it.
        key: idempotency key.
        write: called with the programme, `who` and `key`.
    """
    service = service_of(request)
    found = write(programme_of(request), who=who_of(request, said), key=key_of(request, key))
    service.look()
    return JSONResponse(found.to_dict())


def check_undo(request: Request, event: int) -> None:
    """Refuse to undo an event without the role that it needs.

    Raises:
        RequestError: 403.
    """
    found = service_of(request).programme.events(after=event - 1, most=1)
    if found and found[0].id == event and (why := why_not_undone(request.state.holder, found[0].kind)):
        raise RequestError(403, why)


def as_table(rows: Sequence[BaseModel]) -> dict[str, list[Any]]:
    """Return rows as columns, of those fields that any row has."""
    shown = [row.model_dump(exclude_none=True) for row in rows]
    names = [name for name in type(rows[0]).model_fields if any(name in row for row in shown)]
    return {name: [row.get(name, "") for row in shown] for name in names}


def accepted(job: Job) -> JSONResponse:
    """Return the status of a job and its address."""
    return JSONResponse(job.to_dict(), 202, {"Location": f"/v1/jobs/{job.id}", "Retry-After": str(RETRY_AFTER)})


def unfinished(job: Job) -> JSONResponse:
    """Return the status of a job that is under way, or the problem of one that failed or was cancelled."""
    if not job.has_ended:
        return accepted(job)
    problem = job.problem or RequestError(503, f"the computation {job.id} was {job.status}").to_dict()
    headers = {"Retry-After": str(RETRY_AFTER)} if problem["status"] == 503 else {}
    return JSONResponse(problem, problem["status"], headers, MEDIA_TYPE)


def tagged(request: Request, answer: Any) -> Response:
    """Return an answer with its digest as entity tag, or 304 if the client has it already."""
    response = JSONResponse(answer)
    mark = f'"{sha256(response.body).hexdigest()}"'
    headers = {"ETag": mark, "Cache-Control": "private, no-cache"}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if mark in known or "*" in known:
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response
