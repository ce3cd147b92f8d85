"""Metrics of a server, in the text format of Prometheus, at `/metrics`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "evenhand_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "evenhand_request_seconds", "Time to answer.", ["method", "route"], buckets=SECONDS, registry=self.registry
        )
        self.open = Gauge("evenhand_requests_open", "Requests being answered.", registry=self.registry)
        self.refused = Counter(
            "evenhand_refused", "Requests refused before they were read.", ["why"], registry=self.registry
        )
        self.jobs = Counter("evenhand_jobs", "Computations that ended.", ["kind", "status"], registry=self.registry)
        self.waiting = Gauge("evenhand_jobs_waiting", "Computations that wait.", registry=self.registry)
        self.kept = Counter(
            "evenhand_decide_models", "Models asked to decide by: solved before, or not.", ["kept"],
            registry=self.registry,
        )  # fmt: skip

    def text(self) -> bytes:
        """All of them."""
        return generate_latest(self.registry)
