"""Long computations: they wait in a queue, run in a process of their own, tell how far they are, can be cancelled.

A job is named after what it computes. Who asks for the same while it waits or runs gets the same job; who asks when the
queue is full is told when to ask again. Cancelling a job that runs ends its process; the next one starts another.
"""

import asyncio
import json
import logging
import os
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic
from typing import Any, Literal, TypeAlias

from evenhand.service import frames
from evenhand.service.metrics import Metrics
from evenhand.service.refusals import Refused, details

Status: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]

REMEMBERED = 200
"""Jobs that are remembered after they ended."""

ENDING = 3.0
"""Seconds that a worker has to end when it is asked to."""

log = logging.getLogger("evenhand.service")


@dataclass(eq=False)
class Job:
    """One computation."""

    id: str
    """What it is called: the kind, and a digest of what is asked for (`name_of`)."""

    kind: str
    """What is done."""

    request: dict[str, Any]
    """What is asked for, without secrets."""

    secret: dict[str, Any] = field(default_factory=dict, repr=False)
    """What the worker needs besides, and nobody is told: where the database is."""

    body: bytes = field(default=b"", repr=False)
    """Bytes for the worker."""

    status: Status = "waiting"
    """Where it stands."""

    progress: float = 0.0
    """The share that is done."""

    message: str = "waiting"
    """What is being done."""

    answer: dict[str, Any] | None = None
    """What came of it."""

    data: bytes = field(default=b"", repr=False)
    """Bytes that came of it."""

    failed: dict[str, Any] | None = None
    """Why it failed, as problem details."""

    begun: float = field(default_factory=monotonic)
    """When it was asked for, by a clock that never goes back."""

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return self.status in ("done", "failed", "cancelled")

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "id": self.id,
            "kind": self.kind,
            "status": self.status,
            "progress": self.progress,
            "message": self.message,
            "answer": self.answer,
            "problem": self.failed,
        }

    def change(self, **values: Any) -> None:
        """Set fields, and wake who waits."""
        for name, value in values.items():
            setattr(self, name, value)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def ended(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, or for so long; whether it has."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.has_ended:
                    await self._changed.wait()
        return self.has_ended

    async def changes(self, beat: float) -> AsyncIterator[dict[str, Any] | None]:
        """How it stands, now and whenever that changes, until it has ended; None after a beat without a change."""
        while True:
            changed, told = self._changed, self.as_dict()
            yield told
            if self.has_ended:
                return
            while not changed.is_set():
                try:
                    await asyncio.wait_for(changed.wait(), beat)
                except TimeoutError:
                    yield None


def name_of(kind: str, *asked: Any) -> str:
    """What a job is called that is asked for by these."""
    return f"{kind}-{sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]}"


class Jobs:
    """The queue of a server, and its worker."""

    def __init__(self, queue: int, metrics: Metrics) -> None:
        """Nothing runs yet: `start` and `stop` frame the life of a server.

        Args:
            queue: how many may wait.
            metrics: where they are counted.
        """
        self._most, self._metrics = queue, metrics
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._running: Job | None = None
        self._ended: OrderedDict[str, Job] = OrderedDict()
        self._wake = asyncio.Event()
        self._worker: Worker | None = None
        self._loop: asyncio.Task[None] | None = None
        self._last = 5.0

    def start(self) -> None:
        """Take jobs from the queue from now on."""
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End the worker; what waits or runs is cancelled."""
        if self._loop is not None:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop
        for job in [*self._waiting.values(), *([self._running] if self._running else [])]:
            job.change(status="cancelled", message="the server was stopped")
        await self._end_worker()

    def find(self, number: str) -> Job | None:
        """A job by its name."""
        running = self._running if self._running and self._running.id == number else None
        return running or self._waiting.get(number) or self._ended.get(number)

    def all(self) -> list[Job]:
        """All that are known, what runs first, then what waits, then what ended, the last first."""
        running = [self._running] if self._running else []
        return [*running, *self._waiting.values(), *reversed(self._ended.values())]

    def submit(self, job: Job) -> Job:
        """Let a job wait for its turn; the one of the same name, if it is there already and did not fail.

        Raises:
            Refused: the queue is full.
        """
        known = self.find(job.id)
        if known is not None and known.status in ("waiting", "running", "done"):
            return known
        if len(self._waiting) >= self._most:
            wait = max(1, round(self._last))
            raise Refused(429, f"{len(self._waiting)} computations wait already", headers={"Retry-After": str(wait)})
        self._ended.pop(job.id, None)
        self._waiting[job.id] = job
        self._metrics.waiting.set(len(self._waiting))
        self._wake.set()
        return job

    async def cancel(self, number: str) -> Job | None:
        """Cancel a job that waits or runs; one that ended stays as it is. None if there is none."""
        job = self.find(number)
        if job is None or job.has_ended:
            return job
        if self._waiting.pop(number, None) is not None:
            self._metrics.waiting.set(len(self._waiting))
            self._end(job, status="cancelled", message="cancelled")
        else:
            job.change(status="cancelled", message="cancelled")
            await self._end_worker()
        return job

    def forget(self, number: str) -> None:
        """Let go of a job that ended."""
        self._ended.pop(number, None)

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            _, job = self._waiting.popitem(last=False)
            self._metrics.waiting.set(len(self._waiting))
            self._running = job
            await self._do(job)
            self._running = None
            self._end(job)

    async def _do(self, job: Job) -> None:
        job.change(status="running", message="starting")
        begin = monotonic()
        try:
            if self._worker is None:
                self._worker = await Worker.start()
            await self._worker.do(job)
        except (OSError, EOFError, asyncio.IncompleteReadError):
            await self._end_worker()
            if job.status != "cancelled":
                told = details(500, "the process that computed it ended; it may not have fitted into memory")
                job.change(status="failed", message="failed", failed=told)
        self._last = 0.5 * self._last + 0.5 * (monotonic() - begin)

    def _end(self, job: Job, **values: Any) -> None:
        job.change(body=b"", **values)
        self._metrics.jobs.labels(job.kind, job.status).inc()
        log.info("job", extra={"told": {"kind": job.kind, "status": job.status}})
        self._ended[job.id] = job
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    async def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()


class Worker:
    """A process that computes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Keep the process; `start` makes one."""
        self._process = process

    @classmethod
    async def start(cls) -> "Worker":
        """A new process, which has nothing of this one but its folder and environment."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "evenhand.service.worker")
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=frames.MOST_LINE, env=_environment()
        )
        return cls(process)

    async def do(self, job: Job) -> None:
        """Compute a job, and tell it how that goes.

        Raises:
            EOFError: the process ended.
        """
        assert self._process.stdin is not None
        request = job.request | job.secret | {"kind": job.kind}
        self._process.stdin.write(frames.pack(request, job.body))
        await self._process.stdin.drain()
        while True:
            message, data = await self._read()
            if job.has_ended:  # cancelled meanwhile: this process is about to end
                raise EOFError
            if "done" in message:
                job.change(status="done", progress=1.0, message="done", answer=message["done"], data=data)
                return
            if "failed" in message:
                job.change(status="failed", message="failed", failed=message["failed"])
                return
            if "message" in message:
                job.change(message=message["message"], progress=message["progress"])

    async def _read(self) -> tuple[dict[str, Any], bytes]:
        stream = self._process.stdout
        assert stream is not None
        line = await stream.readline()
        if not line:
            raise EOFError
        message, size = frames.unpack(line)
        return message, await stream.readexactly(size)

    async def end(self) -> None:
        """End the process: kindly, then at once."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), ENDING)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


def _environment() -> dict[str, str]:
    """The same, with the folders of this process, so that the worker finds the same code."""
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
