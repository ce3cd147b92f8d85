"""Errors as responses: problem details (RFC 9457) with every fault, or a page for browsers.

    {"type": "urn:evenhand:invalid-input", "code": "invalid-input", "title": "...", "status": 422, "detail": "...",
     "faults": [{"place": "states[3]", "message": "..."}, ...]}

Errors of the library become responses here, and only here (`RequestError.of`). An unexpected error is answered by 500
and a number that is also in the log; neither its trace nor its message leaves the server.
"""

import logging
import secrets
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from evenhand import errors
from evenhand.errors import EvenhandError, Fault
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web.render import VIEWS, Frame, render

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER = 2
"""Seconds after which to retry if the database does not answer."""

KINDS = {
    400: ("unreadable", "The request cannot be read", ""),
    401: ("no-token", "A token is required", "Sign in with a token."),
    403: ("forbidden", "This is not allowed", "Ask the operator of this server for the role."),
    404: ("not-found", "Not found", "It may have been removed, or the address is wrong. Choose a view above."),
    405: ("wrong-method", "The method is not allowed here", ""),
    408: ("too-slow", "The request took too long to arrive", ""),
    409: ("conflict", "The programme has changed", ""),
    413: ("too-large", "The request is too large", "Send it in several parts."),
    415: ("not-json", "The request must be JSON", ""),
    421: ("unknown-host", "The server has another name", ""),
    422: ("invalid-input", "The input is invalid", ""),
    429: ("busy", "Too many requests", "Wait a moment, then try again."),
    500: ("internal", "Internal error", "Reload the page. If that does not help, report the number above."),
    501: ("missing-extra", "A component is not installed", ""),
    503: ("unavailable", "The programme is not available now", "Wait a moment, then reload the page."),
}
"""Name, title and advice for the page, per status."""

STATUSES = {
    errors.NotFoundError: 404, errors.ConflictError: 409, errors.UnavailableError: 503, errors.MissingExtraError: 501
}  # fmt: skip
"""Status per class of errors of the library; 422 for all others."""

log = logging.getLogger("evenhand.programme.api")


@dataclass(frozen=True)
class ErrorView:
    """An error as the page shows it."""

    title: str
    faults: tuple[str, ...] = ()
    next: str = ""
    """Advice."""
    status: int = 200
    code: str = ""
    """Code of the error."""

    def in_words(self, words: Vocabulary) -> "ErrorView":
        """Return the same error in the words of a programme."""
        texts = words.say(self.title), tuple(map(words.say, self.faults)), words.say(self.next)
        return ErrorView(*texts, self.status, self.code)


class RequestError(Exception):
    """A request that is answered by an error."""

    def __init__(
        self,
        status: int,
        detail: str,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        code: str = "",
    ) -> None:
        """Describe the response; the code is by default the last part of `type`."""
        super().__init__(detail)
        self.status, self.detail, self.faults, self.headers = status, detail, tuple(faults), dict(headers or {})
        self.kind, self.title, self.advice = KINDS.get(status, ("refused", "The request failed", ""))
        self.code = code or self.kind

    @classmethod
    def of(cls, error: Exception) -> "RequestError":
        """Return the response to any error; an unexpected one is logged under a number."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, EvenhandError):
            return cls._of_library(error)
        if isinstance(error, RequestValidationError):
            return cls._of_validation(error)
        if isinstance(error, HTTPException):
            known = {404: "this address does not exist", 405: "this address does not support the method"}
            return cls(error.status_code, known.get(error.status_code, str(error.detail)), (), error.headers)
        number = secrets.token_hex(6)
        frames = [
            f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)[-12:]
        ]
        log.error("unforeseen", extra={"fields": {"number": number, "error": type(error).__name__, "frames": frames}})
        return cls(500, f"unexpected error; it is logged under the number {number}")

    @classmethod
    def _of_library(cls, error: EvenhandError) -> "RequestError":
        status, text = status_of(error), str(error) or type(error).__name__
        faults: tuple[Fault, ...] = getattr(error, "faults", ())
        if faults:
            text = text.splitlines()[0]
        elif isinstance(error, errors.InvalidInputError | errors.TooLargeError | errors.NotConvergedError):
            faults = (Fault("", text, code=error.code),)
        return cls(status, text, faults, {"Retry-After": str(RETRY_AFTER)} if status == 503 else None, error.code)

    @classmethod
    def _of_validation(cls, error: RequestValidationError) -> "RequestError":
        found = error.errors()
        for one in found:
            if one["type"] == "json_invalid":
                at = f"{one.get('ctx', {}).get('error', 'invalid')}, at character {one['loc'][-1]}"
                return cls(400, f"the body is invalid JSON: {at}", [Fault("body", at)])
        faults = [Fault(_place(one["loc"]), str(one["msg"])) for one in found]
        return cls(422, f"the request has {len(faults)} fault{'s' * (len(faults) > 1)}", faults)

    def to_dict(self) -> dict[str, Any]:
        """Return problem details."""
        about = {"type": f"urn:evenhand:{self.kind}", "code": self.code, "title": self.title, "status": self.status}
        return about | {"detail": _encodable(self.detail), "faults": [_fault(fault) for fault in self.faults]}

    def response(self, scope: Scope) -> Response:
        """Return a page for browsers, else problem details."""
        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
        if scope["path"].startswith("/v1/") or b"text/html" not in accepted:
            return JSONResponse(self.to_dict(), self.status, self.headers, MEDIA_TYPE)
        if self.status == 401 and scope["path"] != "/login":
            return RedirectResponse("/login", 303)
        view = ErrorView(self.title, tuple(map(str, self.faults)) or (self.detail,), self.advice)
        frame = Frame("evenhand", "", () if self.status == 401 else VIEWS)
        words = _vocabulary(scope) if self.status in (404, 409, 422) else Vocabulary()
        page = render(
            "refusal.html", {"title": self.title, "frame": frame, "refusal": view.in_words(words), "words": words}
        )
        return HTMLResponse(page, self.status, {k: v for k, v in self.headers.items() if k != "WWW-Authenticate"})


def _vocabulary(scope: Scope) -> Vocabulary:
    """Return the words of the programme that is served; the library's own if its database is unreachable."""
    try:
        words: Vocabulary = scope["app"].state.service.programme.vocabulary()
    except EvenhandError:
        return Vocabulary()
    return words


def status_of(error: EvenhandError) -> int:
    """Return the HTTP status of an error of the library."""
    return next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 422)


def install(app: FastAPI) -> None:
    """Install the exception handlers of an application."""

    async def handle(request: Request, error: Exception) -> Response:
        return RequestError.of(error).response(request.scope)

    for kind in (RequestError, EvenhandError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)


def _fault(fault: Fault) -> dict[str, Any]:
    named = {"named": _encodable(fault.words)} if fault.words else {}
    line = {} if fault.line is None else {"line": fault.line}
    place, message = _encodable(fault.place), _encodable(fault.message)
    return {"place": place, **named, **line, "message": message, "code": fault.code}


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _place(loc: Sequence[int | str]) -> str:
    """Return the place of a fault: `states[3].arm`, `query step`, `header Idempotency-Key`."""
    where, *path = loc
    inside = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return (inside or "body") if where == "body" else f"{where} {inside}"
