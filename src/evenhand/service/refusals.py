"""What a client is told when something is not done: problem details (RFC 9457), with every fault.

    {"type": "urn:evenhand:invalid-input", "code": "invalid-input", "title": "...", "status": 422, "detail": "...",
     "faults": [{"place": "states[3]", "message": "..."}, ...]}

Errors of the library become answers here, and nowhere else. What nobody foresaw is answered by 500 and a number that is
also in the log; neither a trace nor a message of the error leaves the server.
"""

import logging
import secrets
import traceback
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from evenhand.errors import (
    Conflict,
    EvenhandError,
    Fault,
    InvalidInput,
    Missing,
    MissingExtra,
    NotConverged,
    TooLarge,
    Unavailable,
)

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER = 2
"""Seconds after which to ask again where a database does not answer."""

TITLES = {
    400: "The request cannot be read",
    401: "A token is required",
    403: "This is not allowed",
    404: "There is no such thing here",
    405: "This cannot be done here",
    408: "The request took too long to arrive",
    409: "The programme has moved on",
    413: "The request is too large",
    415: "The request must be JSON",
    421: "The server is not known by this name",
    422: "The input is not sound",
    429: "Too much is asked for at once",
    500: "Something went wrong here",
    501: "Something is not installed here",
    503: "The programme cannot be reached now",
}
NAMES = {
    400: "unreadable",
    401: "no-token",
    403: "forbidden",
    404: "not-found",
    405: "wrong-method",
    408: "too-slow",
    409: "conflict",
    413: "too-large",
    415: "not-json",
    421: "unknown-host",
    422: "invalid-input",
    429: "busy",
    500: "internal",
    501: "missing-extra",
    503: "unavailable",
}

log = logging.getLogger("evenhand.service")


class Refused(Exception):
    """An answer that is not what was asked for."""

    def __init__(
        self, status: int, detail: str, faults: Sequence[Fault] = (), headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.faults, self.headers = status, detail, tuple(faults), headers or {}


def problem(
    status: int, detail: str, faults: Sequence[Fault] = (), headers: dict[str, str] | None = None, code: str = ""
) -> JSONResponse:
    """An answer in the form of RFC 9457."""
    return JSONResponse(details(status, detail, faults, code), status, headers, MEDIA_TYPE)


def details(status: int, detail: str, faults: Sequence[Fault] = (), code: str = "") -> dict[str, Any]:
    """The same as JSON; `code` is that of the error, by default the last part of `type`."""
    kind = NAMES.get(status, "refused")
    return {
        "type": f"urn:evenhand:{kind}",
        "code": code or kind,
        "title": TITLES.get(status, "This was not done"),
        "status": status,
        "detail": _sound(detail),
        "faults": [_fault(fault) for fault in faults],
    }


def _fault(fault: Fault) -> dict[str, Any]:
    line = {} if fault.line is None else {"line": fault.line}
    named = {"named": _sound(fault.words)} if fault.words else {}
    return {"place": _sound(fault.place), **named, **line, "message": _sound(fault.message), "code": fault.code}


def _sound(text: str) -> str:
    """Without halves of characters, which no JSON in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def status_of(error: EvenhandError) -> int:
    """The status that an error of the library is answered with."""
    by_kind = ((Missing, 404), (Conflict, 409), (Unavailable, 503), (MissingExtra, 501), (InvalidInput, 422))
    return next((status for kind, status in by_kind if isinstance(error, kind)), 422)


def of_error(error: EvenhandError) -> JSONResponse:
    """The answer to an error of the library."""
    status = status_of(error)
    headers = {"Retry-After": str(RETRY_AFTER)} if status == 503 else None
    return problem(status, *told(error), headers=headers, code=error.code)


def told(error: EvenhandError) -> tuple[str, tuple[Fault, ...]]:
    """The title of an error, and its faults: itself where there is nothing more to say."""
    words = str(error) or type(error).__name__
    faults: tuple[Fault, ...] = getattr(error, "faults", ())
    if faults:
        return words.splitlines()[0], faults
    if isinstance(error, InvalidInput | TooLarge | NotConverged):
        return words, (Fault("", words, code=error.code),)
    return words, ()


# Answers to what is raised while a request is served


def install(app: FastAPI) -> None:
    """Let an application answer in this form, whatever is raised."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(EvenhandError, _raised)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    return problem(error.status, error.detail, error.faults, error.headers)


async def _raised(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EvenhandError)
    return of_error(error)


async def _plain(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    detail = {404: "there is nothing at this address", 405: "this method is not known at this address"}
    said = detail.get(error.status_code, str(error.detail))
    return problem(error.status_code, said, headers=dict(error.headers or {}))


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        reason = next(one for one in found if one["type"] == "json_invalid")
        at = f"{reason.get('ctx', {}).get('error', 'it is no JSON')}, at character {reason['loc'][-1]}"
        return problem(400, f"the body is no JSON: {at}", [Fault("body", at)])
    faults = [Fault(place_of(one["loc"]), str(one["msg"])) for one in found]
    return problem(422, f"the request has {len(faults)} fault{'s' * (len(faults) > 1)}", faults)


def place_of(loc: Sequence[int | str]) -> str:
    """Where a fault is, in the words of a request: `states[3].arm`, `query step`, `header Idempotency-Key`."""
    where, *path = loc
    inside = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return (inside or "body") if where == "body" else f"{where} {inside}"


def unforeseen(error: Exception) -> JSONResponse:
    """The answer to what nobody foresaw; where it happened goes to the log, what it said does not."""
    return JSONResponse(unforeseen_details(error), 500, media_type=MEDIA_TYPE)


def unforeseen_details(error: Exception) -> dict[str, Any]:
    """The same as JSON."""
    number = secrets.token_hex(6)
    frames = [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[-12:]
    ]
    log.error("unforeseen", extra={"told": {"number": number, "error": type(error).__name__, "frames": frames}})
    return details(500, f"it is written down under the number {number}")
