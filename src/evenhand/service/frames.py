"""Messages between a server and its worker: a line of JSON, and as many bytes as it says.

    {"kind": "solve", ..., "bytes": 1234}
    1234 bytes

Nothing that is read can run: a message is data.
"""

import json
from typing import Any, BinaryIO

MOST_LINE = 64 * 2**20
"""Bytes of the longest line."""


def pack(message: dict[str, Any], body: bytes = b"") -> bytes:
    """A message as bytes."""
    return json.dumps(message | {"bytes": len(body)}).encode() + b"\n" + body


def unpack(line: bytes) -> tuple[dict[str, Any], int]:
    """A line, and how many bytes follow it."""
    message: dict[str, Any] = json.loads(line)
    return message, int(message.pop("bytes"))


def read(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next message of a stream; None at its end."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    message, size = unpack(line)
    body = stream.read(size)
    return (message, body) if len(body) == size else None
