"""Sessions of browsers: what the cookie names instead of the token.

A session has a random name, of which only the digest is stored, and ends at sign-out, at its expiry, when its token is
removed from the token file, and with the server. The cookie's name includes the port by which the browser knows the
server: cookies do not distinguish ports, so that applications on one host would otherwise overwrite each other's.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Any

from evenhand.service.tokens import Holder, Tokens, digest_of

COOKIE = "evenhand_session"
"""The beginning of the cookie's name; the port follows, if the address has one."""


class Sessions:
    """The open sessions of a server."""

    def __init__(self, seconds: float, most: int = 10_000, clock: Callable[[], float] = monotonic) -> None:
        """Begin without sessions.

        Args:
            seconds: lifetime of a session.
            most: number of sessions; beyond it, the oldest ends.
            clock: monotonic time in seconds.
        """
        self.seconds, self._most, self._clock = seconds, most, clock
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def open(self, token: str) -> str:
        """Open a session of a token's holder; returns its name."""
        name = secrets.token_urlsafe(32)
        self._open[digest_of(name)] = digest_of(token), self._clock() + self.seconds
        while len(self._open) > self._most:
            self._open.popitem(last=False)
        return name

    def holder(self, name: str, tokens: Tokens) -> Holder | None:
        """The holder of the token that opened a session; None if the session or the token is unknown."""
        token, end = self._open.get(digest_of(name), ("", 0.0))
        if self._clock() >= end:
            self.close(name)
            return None
        return tokens.holder_by_digest(token)

    def close(self, name: str) -> None:
        """End a session."""
        self._open.pop(digest_of(name), None)


def cookie_name(host: str) -> str:
    """The name of the session cookie at an address, given by the header Host."""
    port = host.rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdecimal() and ":" in host else COOKIE


def session_names(host: str, cookies: str) -> list[str]:
    """The names of sessions in the header Cookie; other applications' cookies, however malformed, are ignored."""
    pairs = (part.partition("=") for part in cookies.split(";"))
    own = cookie_name(host)
    return [value.strip() for key, _, value in pairs if key.strip() == own]


def cookie(host: str, name: str, seconds: float) -> dict[str, Any]:
    """The arguments of `set_cookie` for a session; an empty name deletes the cookie."""
    age = round(seconds) if name else 0
    return {"key": cookie_name(host), "value": name, "httponly": True, "samesite": "strict", "max_age": age}
