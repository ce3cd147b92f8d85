"""Long computations: they wait in a queue, run in a process of their own, tell how far they are, can be cancelled.

A job is named after what it computes. Who asks for the same while it waits or runs gets the same job; who asks when the
queue is full is told when to ask again. Cancelling a job that runs ends its process; the next one starts another.

Jobs of writers and of the server run in one process, those of readers in another, each with a queue of its own, so that
no reader delays a writer. A token has a bounded share of its queue, and a job bounds of time and memory.
"""

import asyncio
import json
import logging
import os
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic
from typing import Any, Literal, TypeAlias

from evenhand.service import frames
from evenhand.service.metrics import Metrics
from evenhand.service.refusals import Refused, details
from evenhand.service.settings import Settings
from evenhand.service.tokens import ROLES, Role

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

    owner: str = ""
    """Name of the token that it is computed for; nothing without tokens, and for the server's own."""

    role: Role = "write"
    """Role of that token: which process computes it."""

    prepare: Callable[[], bytes] | None = field(default=None, repr=False)
    """Bytes for the worker that depend on what ended before the job begins."""

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
    """The queues of a server, and their workers."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Nothing runs yet: `start` and `stop` frame the life of a server.

        Args:
            settings: the bounds of queues and jobs.
            metrics: where they are counted.
        """
        self._settings, self._metrics = settings, metrics
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._running: dict[Role, Job] = {}
        self._ended: OrderedDict[str, Job] = OrderedDict()
        self._wake = asyncio.Event()
        self._workers: dict[Role, Worker] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._last = 5.0

    def start(self) -> None:
        """Take jobs from the queues from now on."""
        self._loops = [asyncio.create_task(self._run(role)) for role in ROLES]

    async def stop(self) -> None:
        """End the workers; what waits or runs is cancelled."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        for job in self._open():
            job.change(status="cancelled", message="the server was stopped")
        await asyncio.gather(*(self._end_worker(role) for role in ROLES))

    def find(self, number: str) -> Job | None:
        """A job by its name."""
        open_one = next((job for job in self._open() if job.id == number), None)
        return open_one or self._ended.get(number)

    def all(self) -> list[Job]:
        """All that are known, what runs first, then what waits, then what ended, the last first."""
        return [*self._open(), *reversed(self._ended.values())]

    def _open(self) -> list[Job]:
        """What runs, then what waits."""
        return [*self._running.values(), *self._waiting.values()]

    def submit(self, job: Job) -> Job:
        """Let a job wait for its turn; the one of the same name, if it is there already and did not fail.

        Raises:
            Refused: the queue is full, or the token has its share of it.
        """
        known = self.find(job.id)
        if known is not None and known.status in ("waiting", "running", "done"):
            self.join(known, job.owner, job.role)
            return known
        waiting = sum(one.role == job.role for one in self._waiting.values())
        own = sum(one.owner == job.owner for one in self._open()) if job.owner else 0
        if waiting >= self._settings.queue or own >= self._settings.share:
            reason = f"{own} of this token wait or run" if own >= self._settings.share else f"{waiting} wait"
            again = {"Retry-After": str(max(1, round(self._last)))}
            raise Refused(429, f"too many computations: {reason} already", headers=again)
        self._ended.pop(job.id, None)
        self._waiting[job.id] = job
        self._metrics.waiting.set(len(self._waiting))
        self._wake.set()
        return job

    def join(self, job: Job, owner: str, role: Role) -> None:
        """Hand what a reader began on to a writer who asks for the same: it waits in the writers' queue then."""
        if role == "write" and job.role == "read":
            job.owner, job.role = owner, role
            self._wake.set()

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
            await self._end_worker(next(role for role, running in self._running.items() if running is job))
        return job

    def forget(self, number: str) -> None:
        """Let go of a job that ended."""
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
            if role not in self._workers:
                self._workers[role] = await Worker.start(self._settings.job_memory)
            async with asyncio.timeout(seconds):
                await self._workers[role].do(job)
        except TimeoutError:
            await self._end_worker(role)
            if not job.has_ended:
                said = f"it took longer than {seconds:g} seconds, the most that a computation may take here"
                job.change(status="failed", message="failed", failed=details(422, said))
        except (OSError, EOFError, asyncio.IncompleteReadError):
            await self._end_worker(role)
            if not job.has_ended:
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

    async def _end_worker(self, role: Role) -> None:
        worker = self._workers.pop(role, None)
        if worker is not None:
            await worker.end()


class Worker:
    """A process that computes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Keep the process; `start` makes one."""
        self._process = process

    @classmethod
    async def start(cls, memory: int) -> "Worker":
        """A new process, which has nothing of this one but its folder and environment, and so many bytes at most."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "evenhand.service.worker", str(memory))
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
