"""Refusals as pages: whoever asks for HTML gets words and what to do next, not problem details for programs.

The outermost of all that a request passes, so that it hears every refusal, also those of the guards. Where a token is
missing it leads to the page that asks for one.
"""

import json
from typing import Any

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenhand.service.page.answering import VIEWS, Frame, show
from evenhand.service.page.refusing import Refusal
from evenhand.service.refusals import MEDIA_TYPE

NEXT = {
    401: "Sign in with a token.",
    403: "Ask who runs this server for a token that may write.",
    404: "It may have been removed, or the address is not right. Go to one of the views above.",
    413: "Send it in several parts.",
    429: "Wait a moment, then try again.",
    500: "Load the page again. If that does not help, tell who runs this server the number above.",
    503: "Wait a moment, then load the page again.",
}
"""What to do after a refusal."""

OWN = (b"content-type", b"content-length", b"www-authenticate")
"""Headers of a refusal that a page does not keep."""


class AsPages:
    """Turns problem details into pages for those who ask for HTML."""

    def __init__(self, app: ASGIApp) -> None:
        """Keep the application.

        Args:
            app: what answers.
        """
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"].startswith("/v1/") or b"text/html" not in _accepts(scope):
            await self._app(scope, receive, send)
            return
        held = _Held(send)
        await self._app(scope, receive, held.send)
        if held.start is not None:
            page = _page(scope, held.start["status"], json.loads(held.body))
            page.raw_headers += [(name, value) for name, value in held.start["headers"] if name.lower() not in OWN]
            await page(scope, receive, send)


def _accepts(scope: Scope) -> bytes:
    return b",".join(value for name, value in scope["headers"] if name == b"accept")


class _Held:
    """Passes answers on, but holds those back that are problem details."""

    def __init__(self, send: Send) -> None:
        self._send, self.body = send, b""
        self.start: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self.start = message
        elif self.start is not None and message["type"] == "http.response.body":
            self.body += message.get("body", b"")
        else:
            await self._send(message)


def _is_problem(message: Message) -> bool:
    return any(name.lower() == b"content-type" and MEDIA_TYPE.encode() in value for name, value in message["headers"])


def _page(scope: Scope, status: int, problem: dict[str, Any]) -> Response:
    if status == 401 and scope["path"] != "/login":
        return RedirectResponse("/login", 303)
    faults = tuple(_told(fault) for fault in problem["faults"]) or (str(problem["detail"]),)
    refusal = Refusal(problem["title"], faults, NEXT.get(status, ""))
    frame = Frame("evenhand", "", () if status == 401 else VIEWS)
    return show("refusal.html", {"title": refusal.title, "frame": frame, "refusal": refusal}, status)


def _told(fault: dict[str, Any]) -> str:
    place = fault.get("named") or fault["place"]
    return f"{place}: {fault['message']}" if place else str(fault["message"])
