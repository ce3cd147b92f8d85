"""Errors as responses: problem details (RFC 9457) with every fault, or a page for browsers.

    {"type": "urn:evenhand:invalid-input", "code": "invalid-input", "title": "...", "status": 422, "detail": "...",
     "faults": [{"place": "states[3]", "message": "..."}, ...]}

Errors of the library become responses here, and only here. An unexpected error is answered by 500 and a number that is
also in the log; neither its trace nor its message leaves the server.
"""

import logging
import secrets
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from evenhand.errors import (
    ConflictError,
    EvenhandError,
    Fault,
    InvalidInputError,
    MissingExtraError,
    NotConvergedError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
)
from evenhand.programme.web.render import VIEWS, Frame, render

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER = 2
"""Seconds after which to retry if the database does not answer."""


class _ErrorKind(NamedTuple):
    name: str
    title: str
    advice: str = ""
    """For the page."""


KINDS = {
    400: _ErrorKind("unreadable", "The request cannot be read"),
    401: _ErrorKind("no-token", "A token is required", "Sign in with a token."),
    403: _ErrorKind("forbidden", "This is not allowed", "Ask the operator of this server for a token that may write."),
    404: _ErrorKind(
        "not-found", "Not found", "It may have been removed, or the address is wrong. Choose a view above."
    ),
    405: _ErrorKind("wrong-method", "The method is not allowed here"),
    408: _ErrorKind("too-slow", "The request took too long to arrive"),
    409: _ErrorKind("conflict", "The programme has changed"),
    413: _ErrorKind("too-large", "The request is too large", "Send it in several parts."),
    415: _ErrorKind("not-json", "The request must be JSON"),
    421: _ErrorKind("unknown-host", "The server has another name"),
    422: _ErrorKind("invalid-input", "The input is invalid"),
    429: _ErrorKind("busy", "Too many requests", "Wait a moment, then try again."),
    500: _ErrorKind("internal", "Internal error", "Reload the page. If that does not help, report the number above."),
    501: _ErrorKind("missing-extra", "A component is not installed"),
    503: _ErrorKind("unavailable", "The programme is not available now", "Wait a moment, then reload the page."),
}
"""Name, title and advice per status."""

log = logging.getLogger("evenhand.programme.api")


class RequestError(Exception):
    """A request that is answered by an error."""

    def __init__(
        self, status: int, detail: str, faults: Sequence[Fault] = (), headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.faults, self.headers = status, detail, tuple(faults), headers or {}


@dataclass(frozen=True)
class ErrorView:
    """An error as the page shows it."""

    title: str
    faults: tuple[str, ...] = ()
    next: str = ""
    """Advice."""


def problem(
    scope: Scope,
    status: int,
    detail: str,
    faults: Sequence[Fault] = (),
    headers: dict[str, str] | None = None,
    code: str = "",
) -> Response:
    """Return the response to a request that failed: a page for browsers, else problem details.

    Args:
        scope: the request.
        status: HTTP status.
        detail: message.
        faults: all faults.
        headers: further headers.
        code: code of the error; by default the last part of `type`.
    """
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    if scope["path"].startswith("/v1/") or b"text/html" not in accepted:
        return JSONResponse(details(status, detail, faults, code), status, headers, MEDIA_TYPE)
    if status == 401 and scope["path"] != "/login":
        return RedirectResponse("/login", 303)
    kind = KINDS.get(status, _ErrorKind("refused", "The request failed"))
    refusal = ErrorView(kind.title, tuple(str(fault) for fault in faults) or (detail,), kind.advice)
    frame = Frame("evenhand", "", () if status == 401 else VIEWS)
    more = {name: value for name, value in (headers or {}).items() if name != "WWW-Authenticate"}
    return HTMLResponse(
        render("refusal.html", {"title": refusal.title, "frame": frame, "refusal": refusal}), status, more
    )


def details(status: int, detail: str, faults: Sequence[Fault] = (), code: str = "") -> dict[str, Any]:
    """Return problem details; `code` is that of the error, by default the last part of `type`."""
    kind = KINDS.get(status, _ErrorKind("refused", "The request failed"))
    return {
        "type": f"urn:evenhand:{kind.name}",
        "code": code or kind.name,
        "title": kind.title,
        "status": status,
        "detail": _sound(detail),
        "faults": [_fault(fault) for fault in faults],
    }


def _fault(fault: Fault) -> dict[str, Any]:
    line = {} if fault.line is None else {"line": fault.line}
    named = {"named": _sound(fault.words)} if fault.words else {}
    return {"place": _sound(fault.place), **named, **line, "message": _sound(fault.message), "code": fault.code}


def _sound(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def status_of(error: EvenhandError) -> int:
    """Return the HTTP status of an error of the library."""
    by_kind = (
        (NotFoundError, 404),
        (ConflictError, 409),
        (UnavailableError, 503),
        (MissingExtraError, 501),
        (InvalidInputError, 422),
    )
    return next((status for kind, status in by_kind if isinstance(error, kind)), 422)


def message_of(error: EvenhandError) -> tuple[str, tuple[Fault, ...]]:
    """Return the message and the faults of an error; an error without faults is its own."""
    text = str(error) or type(error).__name__
    faults: tuple[Fault, ...] = getattr(error, "faults", ())
    if faults:
        return text.splitlines()[0], faults
    return text, (Fault("", text, code=error.code),) if isinstance(
        error, InvalidInputError | TooLargeError | NotConvergedError
    ) else ()


def install(app: FastAPI) -> None:
    """Install the exception handlers of an application."""
    for kind in (RequestError, EvenhandError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handle)


async def _handle(request: Request, error: Exception) -> Response:
    return response_to(error, request.scope)


def response_to(error: Exception, scope: Scope) -> Response:
    """Return the response to any error that was raised while a request was served."""
    if isinstance(error, RequestError):
        return problem(scope, error.status, error.detail, error.faults, error.headers)
    if isinstance(error, EvenhandError):
        status = status_of(error)
        again = {"Retry-After": str(RETRY_AFTER)} if status == 503 else None
        return problem(scope, status, *message_of(error), headers=again, code=error.code)
    if isinstance(error, RequestValidationError):
        return _invalid(scope, error)
    if isinstance(error, HTTPException):
        known = {404: "this address does not exist", 405: "this address does not support the method"}
        detail = known.get(error.status_code, str(error.detail))
        return problem(scope, error.status_code, detail, headers=dict(error.headers or {}))
    return problem(scope, 500, unforeseen_details(error)["detail"])


def _invalid(scope: Scope, error: RequestValidationError) -> Response:
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        reason = next(one for one in found if one["type"] == "json_invalid")
        at = f"{reason.get('ctx', {}).get('error', 'invalid')}, at character {reason['loc'][-1]}"
        return problem(scope, 400, f"the body is invalid JSON: {at}", [Fault("body", at)])
    faults = [Fault(place_of(one["loc"]), str(one["msg"])) for one in found]
    return problem(scope, 422, f"the request has {len(faults)} fault{'s' * (len(faults) > 1)}", faults)


def place_of(loc: Sequence[int | str]) -> str:
    """Return the place of a fault: `states[3].arm`, `query step`, `header Idempotency-Key`."""
    where, *path = loc
    inside = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return (inside or "body") if where == "body" else f"{where} {inside}"


def unforeseen_details(error: Exception) -> dict[str, Any]:
    """Log an unexpected error under a number and return problem details with that number."""
    number = secrets.token_hex(6)
    frames = [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[-12:]
    ]
    log.error("unforeseen", extra={"fields": {"number": number, "error": type(error).__name__, "frames": frames}})
    return details(500, f"unexpected error; it is logged under the number {number}")
