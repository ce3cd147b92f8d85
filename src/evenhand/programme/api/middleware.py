"""Middleware that every request passes before it is read, from the outside in.

    AccessLog      counts and logs the answer, sets the headers of all answers, and answers unexpected errors
    AccessControl        host, origin, token, rate: whether this client may ask this at all
    BodyLimit       the size of the body and the time it takes to arrive, whatever its head says

*Host*: an address in numbers, `localhost`, or a configured name. A page elsewhere whose name is made to
point here (DNS rebinding) comes with its own name. *Origin*: a browser says from where a page writes; only this
server's own may. Nothing is ever allowed across origins, so that other pages cannot read answers either. What the API
takes is of a type that forms of other pages cannot send.
"""

import asyncio
import ipaddress
import logging
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from time import monotonic, perf_counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenhand.errors import UnavailableError
from evenhand.programme.api.auth import Holder, Sessions, Tokens, session_names
from evenhand.programme.api.problem_details import RequestError, response_to
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.api.telemetry import Metrics

OPEN = ("/healthz", "/readyz", "/login", "/logout", "/static/")
"""Addresses that need no token: health, signing in and out. BodyLimit sent there are small."""

READERS = ("/v1/decide", "/v1/jobs/")
"""Addresses where `read` suffices for every method: deciding, and jobs, whose route checks the owner."""

SAFE = ("GET", "HEAD", "OPTIONS")
JSON, FORMS = "application/json", ("application/x-www-form-urlencoded", "multipart/form-data")

LOCAL = Holder("", "write")
"""Holder if no tokens are required."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""On every answer. Scripts and styles come from files of this server; nothing inline, nothing from elsewhere."""

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/@\[\]]+))(?::[0-9]+)?")

log = logging.getLogger("evenhand.programme.api")


# Access log


class AccessLog:
    """Access log: counts, log lines, headers, and answers to unexpected errors."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, _by_tls(scope))
        begin = perf_counter()
        self._metrics.open.inc()
        try:
            await self._serve(scope, receive, answer)
        finally:
            self._metrics.open.dec()
            self._tell(scope, answer.status, perf_counter() - begin)

    async def _serve(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            await self._app(scope, receive, answer.send)
        except Exception as error:  # noqa: BLE001  # any error is answered, an unexpected one logged
            response = response_to(error, scope)
            if not answer.status:
                await response(scope, receive, answer.send)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = _method(scope), route_of(scope)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        shown = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        holder = scope.get("state", {}).get("holder")
        log.info("request", extra={"fields": shown | ({"holder": holder.name} if holder and holder.name else {})})


class _Answer:
    """Sends an answer with the headers that all have, and remembers its status."""

    def __init__(self, send: Send, by_tls: bool) -> None:
        self._send, self._by_tls, self.status = send, by_tls, 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = [self._secured(name.lower(), value) for name, value in message.get("headers", [])]
            own = {name for name, _ in given}
            more = [(key, value) for key, value in _ENCODED if key not in own]
            message = {**message, "headers": [*given, *more]}
        await self._send(message)

    def _secured(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        """A cookie that came by TLS is never sent without."""
        return name, value + b"; Secure" if name == b"set-cookie" and self._by_tls else value


def _by_tls(scope: Scope) -> bool:
    """Return whether a form came by TLS, to this server or to a proxy, as the origin says."""
    return scope.get("scheme") == "https" or Headers(scope=scope).get("origin", "").startswith("https://")


_ENCODED = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_ENCODED.append((b"cache-control", b"no-store"))


def _method(scope: Scope) -> str:
    """A method that is known; those that clients make up would make as many counters."""
    method = str(scope["method"])
    return method if method in (*SAFE, "POST", "PUT", "PATCH", "DELETE") else "other"


def route_of(scope: Scope) -> str:
    """The route that answered, with places for its parts: never the requested address, and no name."""
    route = scope.get("route")
    path = getattr(route, "path_format", None) or getattr(route, "path", None)
    return str(path) if path else "other"


# Access control


class RateLimit:
    """Rate limit per client: a token bucket. The buckets of the most recent clients are stored; others are full."""

    def __init__(self, rate: float, burst: int, most: int = 10_000, clock: Callable[[], float] = monotonic) -> None:
        """Start with full buckets.

        Args:
            rate: requests per second, over time.
            burst: requests at once.
            most: number of stored buckets.
            clock: monotonic time in seconds.
        """
        self._rate, self._burst, self._most, self._clock = rate, float(burst), most, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, cost: float = 1.0) -> float:
        """Take from a client's bucket; return 0, or the seconds to wait if it contains too little."""
        now = self._clock()
        left, since = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + self._rate * (now - since))
        enough = left >= cost
        self._buckets[client] = (left - cost if enough else left, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if enough else (cost - left) / self._rate


class AccessControl:
    """Access control: host, origin, token and rate."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics, sessions: Sessions) -> None:
        self._app, self._settings, self._metrics, self._sessions = app, settings, metrics, sessions
        self._limit = RateLimit(settings.rate, settings.burst)
        self._guesses = RateLimit(rate=0.2, burst=20)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] == "http":
            try:
                self._check(scope)
            except RequestError as error:
                self._metrics.refused.labels(str(error.status)).inc()
                raise
        elif scope["type"] == "websocket":
            raise RequestError(404, "there is nothing at this address")
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        if scope["method"] not in SAFE:
            _check_origin(headers)
            _check_type(headers, str(scope["path"]))
        client = str((scope.get("client") or ("",))[0])
        holder = self._holder(scope, headers, client)
        asker = holder.name or client
        scope.setdefault("state", {}).update(holder=holder, asker=asker, guess=partial(self._guess, client))
        wait = self._limit.wait(asker)
        if wait:
            raise RequestError(429, "rate limit exceeded", headers=_again(wait))

    def _check_host(self, headers: Headers) -> None:
        name = host_name(headers.get("host", ""))
        if not (is_number(name) or name == "localhost" or name in self._settings.names):
            raise RequestError(421, "the host name is unknown; add it to the names of the server")

    def _holder(self, scope: Scope, headers: Headers, client: str) -> Holder:
        tokens = self._settings.tokens
        if tokens is None:
            return LOCAL
        path = str(scope["path"])
        if is_open(path):
            return Holder("", "read")
        bearer = _bearer(headers.get("authorization", ""))
        try:
            holder = tokens.holder(bearer) if bearer else self._signed_in(headers, tokens)
        except UnavailableError as error:
            raise RequestError(503, str(error)) from None
        if holder is None:
            if bearer:
                self._guess(client)
            if _is_browsing(scope, headers):
                raise RequestError(303, "sign in with a token", headers={"Location": "/login"})
            raise RequestError(401, "give a token: Authorization: Bearer ...", headers={"WWW-Authenticate": "Bearer"})
        if not (holder.may("write") or scope["method"] in SAFE or _is_among(path, READERS)):
            raise RequestError(403, "this token may read, and not write")
        return holder

    def _signed_in(self, headers: Headers, tokens: Tokens) -> Holder | None:
        """The holder of a session that the cookies name."""
        found = (
            self._sessions.holder(name, tokens)
            for name in session_names(headers.get("host", ""), headers.get("cookie", ""))
        )
        return next((holder for holder in found if holder is not None), None)

    def _guess(self, client: str) -> None:
        """Count an invalid token. Valid tokens never wait: behind a proxy all clients have one address."""
        wait = self._guesses.wait(client)
        if wait:
            raise RequestError(429, "too many invalid tokens", headers=_again(wait))


def _is_browsing(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser requests a page."""
    return (
        scope["method"] == "GET"
        and "text/html" in headers.get("accept", "")
        and not str(scope["path"]).startswith("/v1/")
    )


def is_open(path: str) -> bool:
    """Return whether a request needs no token."""
    return _is_among(path, OPEN)


def _is_among(path: str, places: tuple[str, ...]) -> bool:
    return any(path == known or (known.endswith("/") and path.startswith(known)) for known in places)


def _again(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def host_name(host: str) -> str:
    """The name in a Host header, without its port; nothing where it cannot be one."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def is_number(name: str) -> bool:
    """Return whether a host is an IP address, which DNS rebinding cannot affect."""
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _check_origin(headers: Headers) -> None:
    """A browser says where a page that writes is from; programs say nothing."""
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    if site and site not in ("same-origin", "none"):
        raise RequestError(403, "pages of other servers may not write here")
    if origin and origin.partition("://")[2].lower() != headers.get("host", "").lower():
        raise RequestError(403, "pages of other servers may not write here")
    if headers.get("cookie", "") and not (site or origin or headers.get("authorization", "")):
        raise RequestError(403, "a cookie alone does not say that the page of this server writes")


def _check_type(headers: Headers, path: str) -> None:
    """The API takes JSON, which no form of another page can send; forms are for the page."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    empty = headers.get("content-length", "") in ("", "0") and not headers.get("transfer-encoding", "")
    known = (JSON,) if path.startswith("/v1/") else (JSON, *FORMS)
    if kind not in known and not (empty and not kind):
        raise RequestError(415, f"expected Content-Type: {JSON}")


def _bearer(value: str) -> str:
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


# How large, how slow


class BodyLimit:
    """The size and the time of a body, counted as it comes: its head may say nothing, or something else.

    A request that needs no token has a small body. The bodies that one client has under way at the same time share a
    bound, from their first byte until they are answered.

    A body that is too large is read on for a while and thrown away. Who is still writing when a connection is closed
    may never see the answer: a proxy then says 502, and a browser that the connection was reset.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request whose body is read here, whole or not at all."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        without_token = is_open(str(scope["path"]))
        most = self._settings.largest_open_body if without_token else self._settings.largest_body
        seconds = min(self._settings.slowest_body, self._settings.slowest_head if without_token else math.inf)
        reading = _Body(most, partial(self._hold, str(scope["state"]["asker"])))
        try:
            await _read(reading, Headers(scope=scope), receive, seconds)
            if not reading.left:
                await self._app(scope, _replay(reading.whole, receive), send)
        finally:
            reading.release()

    def _hold(self, asker: str, size: int) -> None:
        """Count bytes that are held for a client, or with a negative size no longer are."""
        self._held[asker] += size
        if not self._held[asker]:
            del self._held[asker]
        if size > 0 and self._held[asker] > self._settings.held_bodies:
            said = f"the requests of one client have at most {self._settings.held_bodies} bytes at the same time"
            raise RequestError(429, said, headers={"Retry-After": "1", "Connection": "close"})


async def _read(reading: "_Body", headers: Headers, receive: Receive, seconds: float) -> None:
    """Read a body to its end.

    Raises:
        RequestError: it is too large, or did not arrive in time.
    """
    said, most = headers.get("content-length", ""), reading.most
    too_large = RequestError(413, f"a body has at most {most} bytes", headers={"Connection": "close"})
    if said.isdecimal() and (len(said) > 18 or int(said) > most):
        reading.give_up()
        if headers.get("expect", ""):
            raise too_large  # the client waits for permission to send the body
    try:
        await asyncio.wait_for(reading.read(receive), seconds)
    except TimeoutError:
        if not reading.too_large:
            raise RequestError(408, "the body did not arrive", headers={"Connection": "close"}) from None
    if reading.too_large:
        raise too_large


READ_ON = 8
"""Multiple of the largest body that is read of a too large one before its connection is closed."""


class _Body:
    """A body as it arrives."""

    def __init__(self, most: int, hold: Callable[[int], None]) -> None:
        self.most, self._hold, self._size, self._held = most, hold, 0, 0
        self._parts: list[bytes] = []
        self.too_large, self.left = False, False

    @property
    def whole(self) -> bytes:
        return b"".join(self._parts)

    def give_up(self) -> None:
        """Keep nothing of it."""
        self.too_large = True
        self.release()

    def release(self) -> None:
        """Discard what has arrived."""
        self._parts.clear()
        held, self._held = self._held, 0
        self._hold(-held)

    async def read(self, receive: Receive) -> None:
        """To its end; until the client has left; or until far more came than may."""
        more = True
        while more and self._size <= READ_ON * self.most:
            message = await receive()
            self.left = message["type"] == "http.disconnect"
            self._take(message.get("body", b""))
            more = not self.left and message.get("more_body", False)

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self.most:
            self.give_up()
        if not self.too_large:
            self._parts.append(part)
            self._held += len(part)
            self._hold(len(part))


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
