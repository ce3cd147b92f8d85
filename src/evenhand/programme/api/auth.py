"""Authentication: tokens with the role `read` or `write`, and sessions of browsers.

A token is 32 random bytes. Its file holds one line per token,

    role  name  SHA-256 of the token

and never the token itself, which is shown once, when it is created. The file is read again whenever it changes, so that
a token that is removed from it is refused from then on. A slow hash would protect secrets that can be guessed; 256
random bits cannot, at any speed. All lines are compared, each in constant time, so that the time reveals nothing.

A session has a random name, of which only the digest is stored, and ends at sign-out, at its expiry, when its token is
removed from the token file, and with the server. The cookie's name includes the port by which the browser knows the
server: cookies do not distinguish ports, so that applications on one host would otherwise overwrite each other's.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeAlias, get_args

from evenhand.checks import why_unreadable
from evenhand.errors import Fault, InvalidInputError, ModelError, UnavailableError
from evenhand.model.io import write_atomically

Role: TypeAlias = Literal["read", "write"]
ROLES: tuple[Role, ...] = get_args(Role)

PREFIX = "evenhand_"
"""Prefix of tokens, by which secret scanners recognise them."""

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_LINE = re.compile(rf"(read|write) ({_NAME.pattern}) ([0-9a-f]{{64}})")

log = logging.getLogger("evenhand.programme.api")


@dataclass(frozen=True)
class Holder:
    """Holder of a token."""

    name: str
    """Name in the token file, written into events."""

    role: Role
    """`write` may also read."""

    def may(self, role: Role) -> bool:
        """Return whether the holder has a role."""
        return role == "read" or self.role == "write"


@dataclass
class Tokens:
    """A token file, as it is now."""

    file: Path
    """The file."""

    lines: tuple[tuple[str, Holder], ...]
    """The digest of each token, and who holds it."""

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
        try:
            if _version(self.file) != self.version:
                new = Tokens.read(self.file)
                self.lines, self.version = new.lines, new.version
        except (OSError, InvalidInputError) as error:  # while it is missing or malformed, every token is refused
            log.error("token file", extra={"fields": {"error": type(error).__name__}})
            raise UnavailableError("the token file cannot be read at the moment") from None
        # All lines are compared: leaving early would reveal how far the comparison came.
        found = [holder for digest, holder in self.lines if hmac.compare_digest(digest, request)]
        return found[-1] if found else None

    @classmethod
    def read(cls, path: str | Path) -> "Tokens":
        """The tokens of a file.

        Raises:
            InvalidInputError: it cannot be read, others can write it, or lines are invalid; all are reported.
        """
        file = Path(path)
        try:
            version, text = _version(file), file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InvalidInputError(f"{file}: it is not UTF-8 text") from None
        except OSError as error:
            raise InvalidInputError(f"{file}: cannot be read: {why_unreadable(file, error)}") from None
        if os.name == "posix" and file.stat().st_mode & 0o022:
            raise InvalidInputError(f"{file}: others may write it; `chmod 600 {file}` mends that")
        return cls(file, tuple(_lines(text, str(file))), version)


def _version(file: Path) -> tuple[int, ...]:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _lines(text: str, source: str) -> list[tuple[str, Holder]]:
    lines: list[tuple[str, Holder]] = []
    faults: list[Fault] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if found := _LINE.fullmatch(" ".join(words)):
            lines.append((found[3], Holder(found[2], "write" if found[1] == "write" else "read")))
        elif words:
            faults.append(Fault("", "expected `read` or `write`, a name, and 64 digits of a digest", line=number))
    if not lines and not faults:
        faults.append(Fault("", "the file contains no token"))
    if faults:
        raise ModelError(faults, source)
    return lines


def make_token(path: str | Path, role: Role, name: str) -> str:
    """Add a new token to a file, which is made where there is none; the token, which is stored nowhere.

    Args:
        path: of the file.
        role: `read` or `write`.
        name: of who will hold it.

    Raises:
        InvalidInputError: the name or the file is not sound.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(f"name {name!r}: expected up to 64 letters, digits and . _ @ -")
    file = Path(path)
    before = ""
    if file.exists():
        Tokens.read(file)
        before = file.read_text(encoding="utf-8").rstrip("\n") + "\n"
    token = PREFIX + secrets.token_urlsafe(32)
    write_atomically(file, f"{before}{role} {name} {digest_of(token)}\n".encode())
    file.chmod(0o600)
    return token


def digest_of(secret: str) -> str:
    """The SHA-256 of a secret, by which it is stored and compared."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


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
