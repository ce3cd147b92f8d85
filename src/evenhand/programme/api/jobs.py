"""Jobs: long computations in worker processes, with queues, progress, cancellation, and limits of time and memory.

A job is identified by a digest of its request, so that equal requests share one job. Jobs of writers (and of the server
itself) run in one process, jobs of readers in another, each with its own queue: readers never delay writers. A token
has a bounded share of the open jobs. Jobs belong to one server; what they store, they store in transactions of the
programme, so that two servers never do one step twice.
"""

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, Literal, TypeAlias

from evenhand.programme.api import worker
from evenhand.programme.api.auth import ROLES, Role
from evenhand.programme.api.problem_details import RequestError, details
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.api.telemetry import Metrics

Status: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]

MAX_ENDED = 200
"""Ended jobs that stay available."""

log = logging.getLogger("evenhand.programme.api")


@dataclass(eq=False)
class Job:
    """One computation."""

    id: str
    """Kind and digest of the request (`name_of`)."""

    kind: str
    """Key of `worker.WORK`."""

    request: dict[str, Any]
    """Arguments that clients may see."""

    secret: dict[str, Any] = field(default_factory=dict, repr=False)
    """Further arguments, such as the address of the database."""

    body: bytes = field(default=b"", repr=False)
    """Binary argument."""

    status: Status = "waiting"
    progress: float = 0.0
    """Share completed."""

    message: str = "waiting"
    """Description of the present phase."""

    answer: dict[str, Any] | None = None
    """Result, if done."""

    data: bytes = field(default=b"", repr=False)
    """Binary result."""

    failed: dict[str, Any] | None = None
    """Problem details, if failed."""

    begun: float = field(default_factory=monotonic)
    """Monotonic time of submission."""

    owner: str = ""
    """Name of the requesting token; empty without tokens and for the server's own jobs."""

    role: Role = "write"
    """Role of that token, which selects the worker process."""

    prepare: Callable[[], bytes] | None = field(default=None, repr=False)
    """Computes `body` when the job starts."""

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """The status is final."""
        return self.status in ("done", "failed", "cancelled")

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        names = ("id", "kind", "status", "progress", "message", "answer")
        return {name: getattr(self, name) for name in names} | {"problem": self.failed}

    def change(self, **values: Any) -> None:
        """Set fields and wake all waiters."""
        for name, value in values.items():
            setattr(self, name, value)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def fail(self, status: int, detail: str) -> None:
        """End with a problem, unless the job has ended already."""
        if not self.has_ended:
            self.change(status="failed", message="failed", failed=details(status, detail))

    async def ended(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most for `seconds`; return whether it has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.has_ended:
                    await self._changed.wait()
        return self.has_ended

    async def changes(self, beat: float) -> AsyncIterator[dict[str, Any] | None]:
        """Yield the JSON form now and after every change, and None after `beat` seconds without a change."""
        while True:
            changed = self._changed
            yield self.to_dict()
            if self.has_ended:
                return
            while not changed.is_set():
                try:
                    await asyncio.wait_for(changed.wait(), beat)
                except TimeoutError:
                    yield None


def name_of(kind: str, *request: Any) -> str:
    """Identifier of the job with this request."""
    return f"{kind}-{sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]}"


class Jobs:
    """Job queues of a server and their worker processes."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Create empty queues; nothing runs before `start`.

        Args:
            settings: limits of queues and jobs.
            metrics: counters.
        """
        self._settings, self._metrics = settings, metrics
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._running: dict[Role, Job] = {}
        self._ended: OrderedDict[str, Job] = OrderedDict()
        self._wake = asyncio.Event()
        self._workers: dict[Role, Worker] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._mean_seconds = 5.0

    def start(self) -> None:
        """Start taking jobs from the queues."""
        self._loops = [asyncio.create_task(self._run(role)) for role in ROLES]

    async def stop(self) -> None:
        """Cancel all open jobs and end the workers."""
        for loop in self._loops:
            loop.cancel()
        for job in self._open():
            job.change(status="cancelled", message="the server was stopped")
        await asyncio.gather(*(self._end_worker(role) for role in ROLES))
        await asyncio.gather(*self._loops, return_exceptions=True)

    def find(self, number: str) -> Job | None:
        """Return a job by its identifier."""
        return next((job for job in self._open() if job.id == number), None) or self._ended.get(number)

    def all(self) -> list[Job]:
        """Return running, waiting and ended jobs, the latest end first."""
        return [*self._open(), *reversed(self._ended.values())]

    def _open(self) -> list[Job]:
        return [*self._running.values(), *self._waiting.values()]

    def submit(self, job: Job) -> Job:
        """Queue a job, or return the equal one that waits, runs or is done.

        Raises:
            RequestError: the queue is full, or the token has used its share.
        """
        known = self.find(job.id)
        if known is not None and known.status in ("waiting", "running", "done"):
            self.join(known, job.owner, job.role)
            return known
        waiting = sum(one.role == job.role for one in self._waiting.values())
        own = sum(one.owner == job.owner for one in self._open()) if job.owner else 0
        if waiting >= self._settings.queue or own >= self._settings.share:
            reason = f"{own} of this token are open" if own >= self._settings.share else f"{waiting} are waiting"
            again = {"Retry-After": str(max(1, round(self._mean_seconds)))}
            raise RequestError(429, f"too many computations: {reason}", headers=again)
        self._ended.pop(job.id, None)
        self._waiting[job.id] = job
        self._metrics.waiting.set(len(self._waiting))
        self._wake.set()
        return job

    def join(self, job: Job, owner: str, role: Role) -> None:
        """Move a reader's job to the writers' queue if a writer requests the same."""
        if role == "write" and job.role == "read":
            job.owner, job.role = owner, role
            self._wake.set()

    async def cancel(self, job: Job) -> None:
        """Cancel a job, unless it has ended."""
        if job.has_ended:
            return
        if self._waiting.pop(job.id, None) is not None:
            self._metrics.waiting.set(len(self._waiting))
            self._end(job, status="cancelled", message="cancelled")
        else:
            job.change(status="cancelled", message="cancelled")
            await self._end_worker(next(role for role, running in self._running.items() if running is job))

    def forget(self, number: str) -> None:
        """Drop an ended job."""
        self._ended.pop(number, None)

    async def _run(self, role: Role) -> None:
        while True:
            while (job := next((one for one in self._waiting.values() if one.role == role), None)) is None:
                self._wake.clear()
                await self._wake.wait()
            del self._waiting[job.id]
            self._metrics.waiting.set(len(self._waiting))
            self._running[role] = job
            await self._do(job, role)
            del self._running[role]
            self._end(job)

    async def _do(self, job: Job, role: Role) -> None:
        job.change(status="running", message="starting", body=job.body if job.prepare is None else job.prepare())
        begin, seconds = monotonic(), self._settings.job_seconds[role]
        try:
            async with asyncio.timeout(seconds):
                if role not in self._workers:
                    self._workers[role] = await Worker.start(self._settings.job_memory)
                await self._workers[role].do(job)
        except TimeoutError:
            await self._end_worker(role)
            job.fail(422, f"the computation took longer than the limit of {seconds:g} seconds")
        except (BrokenExecutor, OSError):
            await self._end_worker(role)
            job.fail(500, "the worker process ended; the computation may have run out of memory")
        self._mean_seconds = 0.5 * self._mean_seconds + 0.5 * (monotonic() - begin)

    def _end(self, job: Job, **values: Any) -> None:
        job.change(body=b"", **values)
        self._metrics.jobs.labels(job.kind, job.status).inc()
        log.info("job", extra={"fields": {"kind": job.kind, "status": job.status}})
        self._ended[job.id] = job
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    async def _end_worker(self, role: Role) -> None:
        if (ended := self._workers.pop(role, None)) is not None:
            await asyncio.to_thread(ended.end)


class Worker:
    """A pool of one spawned process, replaced after a cancellation, a timeout or a crash."""

    def __init__(self, pool: ProcessPoolExecutor, pid: int, progress: Connection) -> None:
        """Hold a started process; see `start`."""
        self._pool, self.pid, self._progress = pool, pid, progress
        self._loop, self._job = asyncio.get_running_loop(), Job("", "", {})
        threading.Thread(target=self._listen, daemon=True).start()

    @classmethod
    async def start(cls, memory: int) -> "Worker":
        """Start a process that may allocate at most `memory` bytes."""
        context = multiprocessing.get_context("spawn")
        reader, writer = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(1, context, worker.begin, (memory, writer))
        try:
            pid = await asyncio.wrap_future(pool.submit(os.getpid))
        finally:
            writer.close()  # the process has its own end: reading ends with it
        return cls(pool, pid, reader)

    async def do(self, job: Job) -> None:
        """Compute a job.

        Raises:
            BrokenExecutor: the process ended.
        """
        self._job = job
        request = job.request | job.secret
        status, answer, data = await asyncio.wrap_future(self._pool.submit(worker.do, job.kind, request, job.body))
        if job.has_ended:
            return
        if status == "done":
            job.change(status="done", progress=1.0, message="done", answer=answer, data=data)
        else:
            job.change(status="failed", message="failed", failed=answer)

    def _listen(self) -> None:
        with suppress(EOFError, OSError, RuntimeError):  # the process ended, or the event loop did
            while True:
                message, share = self._progress.recv()
                self._loop.call_soon_threadsafe(self._report, message, share)

    def _report(self, message: str, share: float) -> None:
        if not self._job.has_ended:
            self._job.change(message=message, progress=share)

    def end(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._pool.shutdown()
