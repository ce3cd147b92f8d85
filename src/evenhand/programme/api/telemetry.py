"""Telemetry of a server: metrics in the text format of Prometheus, and logs of one JSON object per line.

Logs go to standard error and contain no names of arms or people: a line has the route, never the requested address.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        self.requests = counter("evenhand_requests", "Requests answered.", ["method", "route", "status"])
        self.seconds = Histogram(
            "evenhand_request_seconds", "Time to answer.", ["method", "route"], buckets=SECONDS, registry=self.registry
        )
        self.open = gauge("evenhand_requests_open", "Requests being answered.")
        self.refused = counter("evenhand_refused", "Requests refused before they were read.", ["why"])
        self.jobs = counter("evenhand_jobs", "Computations that ended.", ["kind", "status"])
        self.waiting = gauge("evenhand_jobs_waiting", "Computations that wait.")
        about = "Requests to decide, by whether the model was cached."
        self.decided = counter("evenhand_decide_models", about, ["cached"])

    def text(self) -> bytes:
        """All of them."""
        return generate_latest(self.registry)


class JsonFormatter(logging.Formatter):
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
    handler.setFormatter(JsonFormatter())
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # a malformed form is the client's fault
    for name in ("evenhand.programme.api", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING if quiet or name == "uvicorn.error" else logging.INFO)
