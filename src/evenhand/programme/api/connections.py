"""Connections that cannot lock others out: bounded in number, in all and per address, and in the time of a head.

Uvicorn waits for the head of a request as long as a client likes. Here a connection is closed if a head is late, and a
connection beyond the bound displaces the one that has waited for its client for the longest: for the head of a request,
or for the body of one that needs no token.
"""

import asyncio
from collections.abc import Iterable
from typing import ClassVar, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from evenhand.programme.api.middleware import is_open
from evenhand.programme.api.server_settings import Settings


class Connection(H11Protocol):
    """A connection of a client."""

    settings: ClassVar[Settings]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head, and make room for this connection."""
        super().connection_made(transport)
        self._idle_since, self._late = self.loop.time(), cast(asyncio.TimerHandle | None, None)
        self._watch_head()
        there = [one for one in cast(Iterable[Connection], self.connections) if not one.transport.is_closing()]
        same = [one for one in there if one.address == self.address]
        if len(same) > self.settings.connections_per_address and self.address not in self.settings.proxies:
            _displace(same)
        elif len(there) > self.settings.connections:
            _displace(there)

    @property
    def address(self) -> str:
        """The address of the client, or of the proxy before it."""
        return self.client[0] if self.client else ""

    @property
    def is_idle(self) -> bool:
        """No request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def awaits_client(self) -> bool:
        """It waits for an unknown client; such a connection may be displaced."""
        return self.is_idle or (self.cycle.more_body and is_open(self.cycle.scope["path"]))

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch_head()

    def _watch_head(self) -> None:
        """Close the connection if it is still idle after a while, from the first byte that came while it was idle."""
        if not self.is_idle:
            self._stop_watching()
        elif self._late is None:
            self._late = self.loop.call_later(self.settings.slowest_head, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_watching()
        super().connection_lost(exc)


def _displace(connections: list[Connection]) -> None:
    """Close the connection that has waited for its client for the longest: the newest, if all others are answered."""
    min((one for one in connections if one.awaits_client), key=lambda one: one._idle_since).transport.abort()
