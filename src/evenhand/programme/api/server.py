"""A server that runs until a signal: SIGTERM and Ctrl-C let requests end, then the worker, then it."""

import gc
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from evenhand.programme.api.app import create_app
from evenhand.programme.api.connections import Connection
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.programme import Programme

GRACE = 10
"""Seconds that requests have to end when the server is stopped."""

BACKLOG = 256
"""Connections that are accepted at once, before any of them is served."""

OTHER_FILES = 256
"""Open files beside connections: the database, the workers, uploads."""

UNREAD = 60
"""Seconds after which a client that does not read its answer is cut off."""


class Server(uvicorn.Server):
    """Uvicorn's server, which notifies the service before it stops and does not raise the signal again."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping, self.interrupted = stopping, False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came."""
        self.interrupted |= sig == signal.SIGINT
        self._stopping()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear signals while the server runs; unlike Uvicorn's, without raising them again afterwards."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(programme: Programme, settings: Settings, listener: socket.socket) -> bool:
    """Serve a programme until a signal comes; whether it was Ctrl-C.

    Args:
        programme: an open one.
        settings: how the server behaves.
        listener: a socket that is bound, from `listen`.
    """
    settings = replace(settings, connections=_open_files(settings.connections))
    app = create_app(programme, settings)
    gc.collect()
    gc.freeze()  # what was imported stays: looking through all of it for garbage would take 100 ms of some request
    server = Server(configuration(app, settings), app.state.service.stop_soon)
    server.run(sockets=[listener])
    return server.interrupted


def _open_files(connections: int) -> int:
    """Let this process have the files that so many connections need; the number of connections for which it can."""
    more = BACKLOG + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < connections + more:
        soft = connections + more if hard == resource.RLIM_INFINITY else min(connections + more, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - more))


def configuration(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Return Uvicorn's configuration.

    Args:
        app: from `create_app`.
        settings: the same as the application's.
    """
    return uvicorn.Config(
        app,
        http=type("Connection", (Connection,), {"settings": settings}),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=64 * 1024,
        lifespan="on",
        loop="asyncio",
        ws="none",
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket at a host and port.

    Raises:
        OSError: it is in use, or the host does not exist.
    """
    found: list[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD)
        listener.listen(BACKLOG)  # clients can connect before the server is ready
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(False)
    return listener
