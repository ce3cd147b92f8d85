"""Logs for machines: one JSON object a line, on standard error, without names of arms or people.

A line contains the route, never the requested address, whose parts and queries may contain names.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class AsJson(logging.Formatter):
    """A record as one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line: time, level, message and fields."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "what": record.getMessage()}
        return json.dumps(line | getattr(record, "fields", {}), ensure_ascii=False)


def configure(quiet: bool) -> None:
    """Write lines to standard error.

    Args:
        quiet: whether only warnings and worse are written.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(AsJson())
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # a malformed form is the client's fault
    for name in ("evenhand.service", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING if quiet or name == "uvicorn.error" else logging.INFO)
