"""Middleware that every request passes before it is read, from the outside in.

    AccessLog        counts and logs the answer, sets the headers of all answers, and answers errors
    AccessControl    host, origin, token and rate of the client
    BodyLimit        size of the body and the time it takes to arrive, whatever its head says

*Host*: an address in numbers, `localhost`, or a configured name. A page elsewhere whose name is made to
point here (DNS rebinding) comes with its own name. *Origin*: a browser says from where a page writes; only this
server's own may. Nothing is ever allowed across origins, so that other pages cannot read answers either. What the API
takes is of a type that forms of other pages cannot send.
"""

import asyncio
import hmac
import ipaddress
import logging
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from time import monotonic, perf_counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenhand.errors import UnavailableError
from evenhand.programme.api.auth import ROLES, Holder, Role, Sessions, Tokens, session_names
from evenhand.programme.api.problem_details import RequestError
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.api.telemetry import Metrics

HEALTH = ("/healthz", "/readyz")
"""Addresses that supervisors ask, from wherever they are."""

OPEN = (*HEALTH, "/login", "/logout", "/static/")
"""Addresses that need no token: health, signing in and out. Bodies sent there are small."""

_P, _N = "/v1/programme", "[^/]+"
PERMISSIONS: tuple[tuple[Role, str], ...] = (
    ("read", f"/v1/decide|/v1/jobs/{_N}|/today/changes"),
    ("report", f"{_P}/(observations|records|history)|/today/(conditions|record)|/arms/seen|/settings/history"),
    ("plan", f"{_P}/(arms|plan|solve|what-if|fairness|refits|changes/preview)|/today/plan|/arms/(join|leave)"),
    ("plan", f"/what-if|/fairness/price|/model/refit|/settings/preview|/computing/{_N}/stop"),
    ("accept", f"{_P}/plan/{_N}/(accept|approve)|/today/(accept|approve)"),
    ("adopt", f"{_P}/(bounds|need|words|changes|refits/{_N}/(adopt|decline))"),
    ("adopt", "/model/(adopt|decline|need)|/settings/(adopt|words)"),
)
"""Role that a change needs, by its address; `administer` for all others, so that none is open by oversight."""

UNDO = f"{_P}/events/{_N}/undo|/undo"
"""Addresses that undo an event."""

UNDOING: dict[str, Role] = {
    "observed": "report",
    "recorded": "report",
    "imported": "report",
    "joined": "plan",
    "accepted": "accept",
    "changed": "adopt",
}
"""Role that an undo needs, by the kind of the event that is undone: the role of that event."""

SEEN_BY_ADMINISTRATORS = ("/v1/programme/views",)
"""Addresses that need `administer` to be read; `read` suffices for all others."""

LIMITED = (
    f"{_P}|{_P}/(arms|history|words|plan|plan/[0-9]+)|/v1/jobs/{_N}(/events)?|/openapi.json"
    "|/|/today|/today/.*|/plans/[0-9]+.csv|/arms|/arms/one",
    f"{_P}/(observations|records)|/v1/decide|/v1/jobs/{_N}|/today/(conditions|record|changes)|/arms/seen",
)
"""Addresses that holders limited to groups may read, and write to: each is about the arms of these groups alone."""

COMPUTING = re.compile(f"{_P}(/.*)?|/fairness(/.*)?|/what-if|/model|/plans/.*")
"""Addresses that compute: pages elsewhere may link to the others alone."""

SAFE = ("GET", "HEAD", "OPTIONS")
JSON, FORMS = "application/json", ("application/x-www-form-urlencoded", "multipart/form-data")

LOCAL = Holder("", frozenset(ROLES))
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

_RAW_HEADERS = [
    (name.lower().encode(), value.encode()) for name, value in {**HEADERS, "Cache-Control": "no-store"}.items()
]
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/@\[\]]+))(?::[0-9]+)?")

log = logging.getLogger("evenhand.programme.api")


class AccessLog:
    """Access log: counts, log lines, headers, and answers to errors."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = perf_counter(), 0
        peer = str((scope.get("client") or ("",))[0])
        scope.setdefault("state", {})["peer"] = peer.removeprefix("::ffff:")  # of a socket for both kinds of addresses

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message.get("headers", []))
                given = {name.lower() for name, _ in headers}
                headers += [(name, value) for name, value in _RAW_HEADERS if name not in given]
                # A form came by TLS, to this server or to a proxy, as the origin says: its cookies are never sent
                # without.
                origin = Headers(scope=scope).get("origin", "")
                by_tls = scope.get("scheme") == "https" or origin.startswith("https://")
                secured = [
                    (name, value + b"; Secure" if name == b"set-cookie" and by_tls else value)
                    for name, value in headers
                ]
                message = {**message, "headers": secured}
            await send(message)

        self._metrics.open.inc()
        try:
            await self._app(scope, receive, answer)
        except Exception as error:  # noqa: BLE001  # any error is answered, an unexpected one logged
            response = RequestError.of(error).response(scope)
            if not status:
                await response(scope, receive, answer)
        finally:
            self._metrics.open.dec()
            self._log(scope, status, perf_counter() - begin)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        """Write a line with the route that answered: never the requested address, and no name."""
        # Methods that clients make up would make as many counters.
        method = scope["method"] if scope["method"] in (*SAFE, "POST", "PUT", "PATCH", "DELETE") else "other"
        found = scope.get("route")
        route = str(getattr(found, "path_format", None) or getattr(found, "path", None) or "other")
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        fields = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        holder = scope.get("state", {}).get("holder")
        log.info("request", extra={"fields": fields | ({"holder": holder.name} if holder and holder.name else {})})


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

    def wait(self, client: str) -> float:
        """Take from a client's bucket; return 0, or the seconds to wait if it contains too little."""
        now = self._clock()
        left, since = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + self._rate * (now - since))
        enough = left >= 1
        self._buckets[client] = (left - 1 if enough else left, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if enough else (1 - left) / self._rate

    def take(self, client: str, refusal: str) -> None:
        """Take from a client's bucket.

        Raises:
            RequestError: it contains too little.
        """
        if wait := self.wait(client):
            raise RequestError(429, refusal, headers={"Retry-After": str(max(1, math.ceil(wait)))})


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
        headers, path = Headers(scope=scope), str(scope["path"])
        if not path.isprintable():  # the pattern of a route also matches an address with a line feed at its end
            raise RequestError(404, "there is nothing at this address")
        if not _is_known(headers.get("host", ""), self._settings.names):
            raise RequestError(421, "the host name is unknown; add it to the names of the server")
        if path not in HEALTH and not self._settings.accepts(scope["state"]["peer"]):
            raise RequestError(403, "this server is reached by its proxy alone: use the address of the proxy")
        if scope["method"] not in SAFE:
            _check_origin(headers)
            _check_type(headers, path)
        _check_site(headers, path)
        client = str((scope.get("client") or ("",))[0])
        holder = self._holder(scope, headers, client)
        requester = holder.name or client
        scope.setdefault("state", {}).update(holder=holder, requester=requester, guess=partial(self._guess, client))
        self._limit.take(requester, "rate limit exceeded")

    def _holder(self, scope: Scope, headers: Headers, client: str) -> Holder:
        tokens = self._settings.tokens
        if tokens is None:
            return LOCAL
        path = str(scope["path"])
        if is_open(path):
            return Holder("", frozenset())
        scheme, _, token = headers.get("authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        try:
            holder = tokens.holder(bearer) if bearer else self._signed_on(scope, headers, tokens)
        except UnavailableError as error:
            raise RequestError(503, str(error)) from None
        if holder is None:
            if bearer:
                self._guess(client)
            raise RequestError(401, "give a token: Authorization: Bearer ...", headers={"WWW-Authenticate": "Bearer"})
        if refusal := why_forbidden(holder, str(scope["method"]), path):
            raise RequestError(403, refusal)
        return holder

    def _signed_on(self, scope: Scope, headers: Headers, tokens: Tokens) -> Holder | None:
        """Return the holder that a trusted proxy names, or that of a session that the cookies name."""
        settings = self._settings
        given = headers.getlist(settings.sign_on) if settings.sign_on else []
        if given and scope["state"]["peer"] in settings.proxies:
            secret = headers.get("x-proxy-secret", "").encode()
            if settings.proxy_secret and not hmac.compare_digest(secret, settings.proxy_secret):
                raise RequestError(403, "the proxy did not identify itself")
            holder = tokens.holder_by_name(given[0]) if len(given) == 1 else None
            if holder is None:
                raise RequestError(403, "this name has no role here; ask the operator of this server for one")
            return holder
        names = session_names(headers.get("host", ""), headers.get("cookie", ""))
        return next(filter(None, (self._sessions.holder(name, tokens) for name in names)), None)

    def _guess(self, client: str) -> None:
        """Count an invalid token. Valid tokens never wait: behind a proxy all clients have one address."""
        self._guesses.take(client, "too many invalid tokens")


def why_forbidden(holder: Holder, method: str, path: str) -> str:
    """Return why a holder may not make a request; empty if it may."""
    if is_open(path):
        return ""
    if method in SAFE:
        role: Role = "administer" if path in SEEN_BY_ADMINISTRATORS else "read"
    elif re.fullmatch(UNDO, path):  # the event is not known yet: see `why_not_undone`
        role = next(filter(holder.may, UNDOING.values()), "accept")
    else:
        role = next((role for role, places in PERMISSIONS if re.fullmatch(places, path)), "administer")
    if not holder.may(role):
        return f"this needs the role {role}, which you do not have"
    if holder.groups is not None and not re.fullmatch(LIMITED[method not in SAFE], path):
        return f"this is about all groups, and you see {', '.join(sorted(holder.groups))}"
    return ""


def why_not_undone(holder: Holder, kind: str) -> str:
    """Return why a holder may not undo an event of a kind; empty if it may, or if such events cannot be undone."""
    role = UNDOING.get(kind)
    return "" if role is None or holder.may(role) else f"this needs the role {role}, which you do not have"


def is_open(path: str) -> bool:
    """Return whether a request needs no token."""
    return _is_among(path, OPEN)


def _is_among(path: str, places: tuple[str, ...]) -> bool:
    return any(path == known or (known.endswith("/") and path.startswith(known)) for known in places)


@lru_cache(maxsize=100)
def _is_known(host: str, names: tuple[str, ...]) -> bool:
    """Return whether a Host header is a configured name, localhost, or an IP address, whatever its port."""
    found = _HOST.fullmatch(host)
    name = (found[1] or found[2]).lower() if found else ""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))  # which DNS rebinding cannot affect
    return name == "localhost" or name in names


def _check_origin(headers: Headers) -> None:
    """A browser says where a page that writes is from; programs say nothing."""
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    is_foreign = bool(origin) and origin.partition("://")[2].lower() != headers.get("host", "").lower()
    if is_foreign or site not in ("", "same-origin", "none"):
        raise RequestError(403, "pages of other servers may not write here")
    if headers.get("cookie", "") and not (site or origin or headers.get("authorization", "")):
        raise RequestError(403, "a cookie alone does not say that the page of this server writes")


def _check_site(headers: Headers, path: str) -> None:
    """Pages elsewhere may link to a view, in a tab of its own; they may not load, frame or compute anything."""
    if headers.get("sec-fetch-site", "") not in ("cross-site", "same-site") or path in HEALTH:
        return
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if not is_link or COMPUTING.fullmatch(path):
        raise RequestError(403, "pages of other servers may not request this; open it from the page of this server")


def _check_type(headers: Headers, path: str) -> None:
    """The API takes JSON, which no form of another page can send; forms are for the page."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    empty = headers.get("content-length", "") in ("", "0") and not headers.get("transfer-encoding", "")
    known = (JSON,) if path.startswith("/v1/") else (JSON, *FORMS)
    if kind not in known and not (empty and not kind):
        raise RequestError(415, f"expected Content-Type: {JSON}")


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
        requester, body = str(scope["state"]["requester"]), bytearray()
        try:
            if await self._read(scope, receive, requester, body):
                await self._app(scope, _replay(bytes(body), receive), send)
        finally:
            self._release(requester, body)

    async def _read(self, scope: Scope, receive: Receive, requester: str, body: bytearray) -> bool:
        """Read a body to its end; return whether the client is still there.

        Raises:
            RequestError: it is too large, or did not arrive in time.
        """
        limits, headers, is_public = self._settings, Headers(scope=scope), is_open(str(scope["path"]))
        most = limits.largest_open_body if is_public else limits.largest_body
        seconds = min(limits.slowest_body, limits.slowest_head if is_public else math.inf)
        said, close = headers.get("content-length", ""), {"Connection": "close"}
        too_large = said.isdecimal() and (len(said) > 18 or int(said) > most)
        size, more = 0, not (too_large and "expect" in headers)  # such a client waits for permission to send the body
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while more and size <= READ_ON * most:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return False
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    too_large = too_large or size > most
                    if too_large:
                        self._release(requester, body)
                    else:
                        self._hold(requester, body, part)
        if too_large:
            raise RequestError(413, f"a body has at most {most} bytes", headers=close)
        if more:
            raise RequestError(408, "the body did not arrive", headers=close)
        return True

    def _hold(self, requester: str, body: bytearray, part: bytes) -> None:
        """Append a part, and count the bytes that are held for a client."""
        body += part
        self._held[requester] += len(part)
        if self._held[requester] > self._settings.held_bodies:
            said = f"the requests of one client have at most {self._settings.held_bodies} bytes at the same time"
            raise RequestError(429, said, headers={"Retry-After": "1", "Connection": "close"})

    def _release(self, requester: str, body: bytearray) -> None:
        """Discard what has arrived."""
        self._held[requester] -= len(body)
        body.clear()
        if not self._held[requester]:
            del self._held[requester]


READ_ON = 8
"""Multiple of the largest body that is read of a too large one before its connection is closed."""


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
