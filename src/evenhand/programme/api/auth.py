"""Authentication: holders of tokens with roles and groups, and sessions of browsers.

A token is 32 random bytes. Its file holds one line per holder,

    roles  name  groups  SHA-256 of the token

and never the token itself, which is shown once, when it is created. Roles and groups are listed with commas; `*` stands
for all groups, and `-` in place of a digest for a holder without a token, who signs on by a proxy. The file is read
again whenever it changes, so that a token that was revoked or rotated is refused from then on. A slow hash would
protect secrets that can be guessed; 256 random bits cannot, at any speed. All lines are compared, each in constant
time, so that the time reveals nothing.

A session has a random name, of which only the digest is stored, and ends at sign-out, when it is idle or old, when its
token is revoked or rotated, and with the server. The cookie's name includes the port by which the browser knows the
server: cookies do not distinguish ports, so that applications on one host would otherwise overwrite each other's.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import quote, unquote

from evenhand.checks import why_unreadable
from evenhand.errors import Fault, InvalidInputError, ModelError, UnavailableError
from evenhand.model.io import write_atomically

Role: TypeAlias = Literal["read", "report", "plan", "accept", "adopt", "administer"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Roles, of which no one includes another:

    read         see the programme
    report       conditions and what was done
    plan         arms that join and leave, plans, policies, refits, what-ifs
    accept       accept plans, and approve those of others
    adopt        adopt or decline models; bounds and settings of the programme
    administer   erase arms, see who looked at whom, and all that has no role of its own
"""

Queue: TypeAlias = Literal["read", "write"]
QUEUES: tuple[Queue, ...] = get_args(Queue)
"""Queues of computations: of readers, and of all who run the programme."""

PREFIX = "evenhand_"
"""Prefix of tokens, by which secret scanners recognise them."""

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_LINE = re.compile(rf"([a-z,]+) ({_NAME.pattern}) (\*|[^\s*]+) ([0-9a-f]{{64}}|-)")

log = logging.getLogger("evenhand.programme.api")


@dataclass(frozen=True)
class Holder:
    """Holder of a token."""

    name: str
    """Name in the token file, written into events."""

    roles: frozenset[Role]
    """Permissions."""

    groups: frozenset[str] | None = None
    """Groups whose arms the holder sees and reports on; None for all."""

    def may(self, role: Role) -> bool:
        """Return whether the holder has a role."""
        return role in self.roles

    @property
    def queue(self) -> Queue:
        """Queue of the holder's computations: readers never delay those who run the programme."""
        return "write" if self.roles & {"plan", "accept", "adopt", "administer"} else "read"


@dataclass
class Tokens:
    """A token file, as it is now."""

    file: Path
    """The file."""

    lines: tuple[tuple[str, Holder], ...]
    """The digest of each token, `-` without one, and who holds it."""

    version: tuple[int, ...]
    """Inode, size and times of the file when it was read."""

    def holder(self, token: str) -> Holder | None:
        """The holder of a token; None if it is unknown.

        Raises:
            UnavailableError: the file has changed and cannot be read.
        """
        return self.holder_by_digest(digest_of(token))

    def holder_by_digest(self, request: str) -> Holder | None:
        """The holder of the token with this digest; None if it is unknown.

        Raises:
            UnavailableError: the file has changed and cannot be read.
        """
        # All lines are compared: leaving early would reveal how far the comparison came.
        found = [holder for digest, holder in self._present() if hmac.compare_digest(digest, request)]
        return found[-1] if found else None

    def holder_by_name(self, name: str) -> Holder | None:
        """The holder of a name, whom a proxy signed on; None if it is unknown.

        Raises:
            UnavailableError: the file has changed and cannot be read.
        """
        return next((holder for _, holder in self._present() if holder.name == name), None)

    def _present(self) -> tuple[tuple[str, Holder], ...]:
        try:
            if _version(self.file) != self.version:
                new = Tokens.read(self.file)
                self.lines, self.version = new.lines, new.version
        except (OSError, InvalidInputError) as error:  # while it is missing or malformed, every token is refused
            log.error("token file", extra={"fields": {"error": type(error).__name__}})
            raise UnavailableError("the token file cannot be read at the moment") from None
        return self.lines

    @classmethod
    def read(cls, path: str | Path, empty: bool = False) -> "Tokens":
        """The tokens of a file.

        Args:
            path: of the file.
            empty: whether it may have no line, or not exist.

        Raises:
            InvalidInputError: it cannot be read, others can write it, or lines are invalid; all are reported.
        """
        file = Path(path)
        if empty and not file.exists():
            return cls(file, (), ())
        try:
            version, text = _version(file), file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InvalidInputError(f"{file}: it is not UTF-8 text") from None
        except OSError as error:
            raise InvalidInputError(f"{file}: cannot be read: {why_unreadable(file, error)}") from None
        if os.name == "posix" and file.stat().st_mode & 0o022:
            raise InvalidInputError(f"{file}: others may write it; run `chmod 600 {file}`")
        return cls(file, tuple(_lines(text, str(file), empty)), version)

    def create(
        self, name: str, roles: Collection[Role], groups: Collection[str] | None = None, secret: bool = True
    ) -> str:
        """Add a holder to the file, which is made if there is none; the token, which is stored nowhere.

        Args:
            name: of the holder, new in this file.
            roles: at least one.
            groups: to which the holder is limited; None for all.
            secret: whether there is a token; else a proxy signs the holder on, and the result is empty.

        Raises:
            InvalidInputError: the name is malformed or known, or there is no role.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInputError(f"name {name!r}: expected up to 64 letters, digits and . _ @ -")
        if any(holder.name == name for _, holder in self.lines):
            raise InvalidInputError(f"name {name!r}: it has a line already; rotate or revoke its token")
        if not roles or (groups is not None and not groups):
            raise InvalidInputError("expected at least one role, and at least one group if there are any")
        token = PREFIX + secrets.token_urlsafe(32) if secret else ""
        limits = None if groups is None else frozenset(groups)
        self._write((*self.lines, (digest_of(token) if secret else "-", Holder(name, frozenset(roles), limits))))
        return token

    def revoke(self, name: str) -> None:
        """Remove a holder from the file.

        Raises:
            InvalidInputError: the name is unknown.
        """
        gone = self._line(name)
        self._write(tuple(line for line in self.lines if line is not gone))

    def rotate(self, name: str) -> str:
        """Replace the token of a holder by a new one, which is returned; the old one is refused from now on.

        Raises:
            InvalidInputError: the name is unknown.
        """
        old, token = self._line(name), PREFIX + secrets.token_urlsafe(32)
        self._write(tuple((digest_of(token), line[1]) if line is old else line for line in self.lines))
        return token

    def _line(self, name: str) -> tuple[str, Holder]:
        found = next((line for line in self.lines if line[1].name == name), None)
        if found is None:
            known = ", ".join(holder.name for _, holder in self.lines) or "none"
            raise InvalidInputError(f"{self.file}: no holder is named {name!r}; the names are: {known}")
        return found

    def _write(self, lines: tuple[tuple[str, Holder], ...]) -> None:
        text = "# roles name groups digest\n"
        for digest, holder in lines:
            groups = (
                "*" if holder.groups is None else ",".join(quote(group, safe="") for group in sorted(holder.groups))
            )
            text += f"{','.join(role for role in ROLES if role in holder.roles)} {holder.name} {groups} {digest}\n"
        if not self.file.exists():
            self.file.touch(0o600)
        write_atomically(self.file, text.encode())
        self.file.chmod(0o600)
        self.lines, self.version = lines, _version(self.file)


def _version(file: Path) -> tuple[int, ...]:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _lines(text: str, source: str, empty: bool) -> list[tuple[str, Holder]]:
    lines: list[tuple[str, Holder]] = []
    faults: list[Fault] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        found = _LINE.fullmatch(" ".join(words))
        roles = [role for role in ROLES if found and role in found[1].split(",")]
        if found and len(roles) == found[1].count(",") + 1 and all(found[2] != known.name for _, known in lines):
            groups = None if found[3] == "*" else frozenset(map(unquote, found[3].split(",")))
            lines.append((found[4], Holder(found[2], frozenset(roles), groups)))
        elif words:
            faults.append(Fault("", "expected roles, a name used once, * or groups, and a digest or -", line=number))
    if not lines and not faults and not empty:
        faults.append(Fault("", "the file contains no token"))
    if faults:
        raise ModelError(faults, source)
    return lines


def digest_of(secret: str) -> str:
    """The SHA-256 of a secret, by which it is stored and compared."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


COOKIE = "evenhand_session"
"""The beginning of the cookie's name; the port follows, if the address has one."""


@dataclass
class Session:
    """An open session."""

    token: str
    """Digest of the token that opened it."""

    end: float
    """Time at which it ends in any case."""

    used: float
    """Time of its last request."""


class Sessions:
    """The open sessions of a server."""

    def __init__(self, seconds: float, idle: float, most: int = 10_000, clock: Callable[[], float] = monotonic) -> None:
        """Begin without sessions.

        Args:
            seconds: lifetime of a session.
            idle: seconds without a request after which it ends.
            most: number of sessions; beyond it, the oldest ends.
            clock: monotonic time in seconds.
        """
        self.seconds, self._idle, self._most, self._clock = seconds, idle, most, clock
        self._open: OrderedDict[str, Session] = OrderedDict()

    def open(self, token: str) -> str:
        """Open a session of a token's holder; returns its name."""
        name, now = secrets.token_urlsafe(32), self._clock()
        self._open[digest_of(name)] = Session(digest_of(token), now + self.seconds, now)
        while len(self._open) > self._most:
            self._open.popitem(last=False)
        return name

    def holder(self, name: str, tokens: Tokens) -> Holder | None:
        """The holder of the token that opened a session; None if the session or the token is unknown."""
        found, now = self._open.get(digest_of(name)), self._clock()
        if found is None or now >= min(found.end, found.used + self._idle):
            self.close(name)
            return None
        found.used = now
        return tokens.holder_by_digest(found.token)

    def close(self, name: str, everywhere: bool = False) -> None:
        """End a session, or all sessions of the same holder."""
        found = self._open.pop(digest_of(name), None)
        if found is not None and everywhere:
            for other in [key for key, one in list(self._open.items()) if one.token == found.token]:
                self._open.pop(other, None)  # other threads close sessions, too


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
