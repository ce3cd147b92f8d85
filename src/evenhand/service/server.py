"""A server that runs until it is told to stop: SIGTERM and Ctrl-C let requests end, then the worker, then it."""

import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from evenhand.errors import EvenhandError, MissingExtra
from evenhand.programme.programme import Programme
from evenhand.service.settings import Settings

try:
    import uvicorn

    from evenhand.service.application import create_app
except ImportError as error:  # pragma: no cover
    if isinstance(error, EvenhandError):
        raise
    raise MissingExtra("evenhand serve", "service") from None

GRACE = 10
"""Seconds that requests have to end when the server is stopped."""

MOST_CONNECTIONS = 1000
"""Connections beyond which further ones are answered by 503."""


class Server(uvicorn.Server):
    """Uvicorn's, which tells the service that it is about to stop, and leaves the process to who started it."""

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
    app = create_app(programme, settings)
    gc.collect()
    gc.freeze()  # what was imported stays: looking through all of it for garbage would take 100 ms of some request
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=64 * 1024,
        lifespan="on",
        loop="asyncio",
        ws="none",
    )
    server = Server(config, app.state.service.stop_soon)
    server.run(sockets=[listener])
    return server.interrupted


def listen(host: str, port: int) -> socket.socket:
    """A socket at a host and port.

    Raises:
        OSError: somebody else has it, or there is no such host.
    """
    found: list[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)  # who is told the address finds somebody there, even before the server is ready
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(False)
    return listener
