"""The application, and a server that runs it until a signal, with connections that cannot lock others out.

SIGTERM and Ctrl-C let requests end, then the workers, then the server. Connections are bounded in number, in all and
per address, and in the time of a head. Uvicorn waits for the head of a request as long as a client likes; here a
connection is closed if a head is late, and a connection beyond the bound displaces the one that has waited for its
client for the longest: for the head of a request, or for the body of one that needs no token.

create_app(programme, settings)  →  FastAPI
    app.state.service            Service: the programme, the jobs, the plan cache, the metrics
    api/routes/                  the API
    web/*_routes, web/*_page     the page
    api/middleware               checks before a request is read
"""

import asyncio
import gc
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, ClassVar, cast

import uvicorn
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from evenhand._version import __version__
from evenhand.errors import InvalidInputError
from evenhand.programme.api import middleware, problem_details
from evenhand.programme.api.routes import operations
from evenhand.programme.api.routes import programme as programme_routes
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.api.service import Service
from evenhand.programme.programme import Programme
from evenhand.programme.web import arms_page, auth_routes, counterfactual_page, model_page, settings_page, today_page

BACKLOG = 256
"""Connections that are accepted at once, before any of them is served."""


def create_app(programme: Programme, settings: Settings | None = None) -> FastAPI:
    """An application that serves a programme.

    Args:
        programme: an open one; who opened it closes it.
        settings: how it behaves; by default for one planner on this machine.
    """
    settings = settings or Settings()
    service = Service(programme, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="evenhand",
        version=__version__,
        summary="A programme that shares scarce resources fairly: plans, decisions and audits.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    api = (programme_routes.router, programme_routes.decisions, operations.router)  # matched in this order
    page = (today_page, counterfactual_page, arms_page, model_page, settings_page, auth_routes)
    for router in (*api, *(module.router for module in page)):
        app.router.routes += router.routes  # `include_router` builds each route again, in the first request: 0.7 s
    problem_details.install(app)
    app.add_middleware(middleware.BodyLimit, settings=settings)
    app.add_middleware(middleware.AccessControl, settings=settings, metrics=service.metrics, sessions=service.sessions)
    app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(settings.proxies))
    app.add_middleware(middleware.AccessLog, metrics=service.metrics)  # which sees the address of the proxy itself
    return app


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
        is_bounded = self.address not in self.settings.proxies
        if is_bounded and len(same) > self.settings.connections_per_address:
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
        return self.is_idle or (self.cycle.more_body and middleware.is_open(self.cycle.scope["path"]))

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
    sys.setswitchinterval(0.0005)  # a thread that holds the lock of the programme waits 5 ms for its turn otherwise
    gc.set_threshold(20_000, 20, 50)  # tables of many arms are no garbage: by default half of the time is spent on that
    server = Server(configuration(app, settings), app.state.service.stop_soon)
    server.run(sockets=[listener])
    return server.interrupted


def _open_files(connections: int) -> int:
    """Let this process have the files that so many connections need; the number of connections for which it can."""
    more = 2 * BACKLOG  # those not yet counted, and files: the database, the workers, uploads
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

    Raises:
        InvalidInputError: the TLS certificate or its key cannot be read.
    """
    if settings.certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*settings.certificate, lambda: "")
        except OSError as error:  # also of the TLS library
            files, why = " and ".join(settings.certificate), error.strerror or error
            raise InvalidInputError(
                f"{files}: expected a certificate and its key, without a password ({why})"
            ) from None
    return uvicorn.Config(
        app,
        http=type("Connection", (Connection,), {"settings": settings}),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # part of the application
        ssl_certfile=settings.certificate[0] if settings.certificate else None,
        ssl_keyfile=settings.certificate[1] if settings.certificate else None,
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        h11_max_incomplete_event_size=64 * 1024,
        lifespan="on",
        loop="asyncio",
        ws="none",
    )


def listen(host: str, port: int, unread: float = 60.0) -> socket.socket:
    """A socket at a host and port.

    Args:
        host: name or address.
        port: 0 for one that is free.
        unread: seconds after which a client that does not read its answer is cut off.

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
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * unread))
        listener.listen(BACKLOG)  # clients can connect before the server is ready
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(False)
    return listener
