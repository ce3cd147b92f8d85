"""Jobs: long computations in worker processes, with queues, progress, cancellation, and limits of time and memory.

A job is identified by a digest of its request, so that equal requests share one job. Jobs of writers (and of the server
itself) run in one process, jobs of readers in another, each with its own queue: readers never delay writers. A token
has a bounded share of the open jobs. Jobs belong to one server; what they store, they store in transactions of the
programme, so that two servers never do one step twice.

    Job       one computation
    Jobs      queues of a server
    Worker    process of a queue; it is spawned, reports progress through a pipe, and ends if its server does
"""

import asyncio
import io
import json
import logging
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, Literal, TypeAlias

from evenhand.errors import InvalidInputError
from evenhand.model.io import load
from evenhand.planning import load_plan
from evenhand.planning.solve import solve
from evenhand.programme.api.auth import QUEUES, Queue
from evenhand.programme.api.problem_details import RETRY_AFTER, RequestError
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.api.telemetry import Metrics, configure
from evenhand.programme.certificates import to_bytes
from evenhand.programme.ledger import plain
from evenhand.programme.programme import Programme

Status: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]

log = logging.getLogger("evenhand.programme.api")


@dataclass(eq=False)
class Job:
    """One computation."""

    id: str
    """Kind and digest of the request (`name_of`)."""

    kind: str
    """Kind of computation; see `_compute`."""

    arguments: dict[str, Any] = field(repr=False)
    """Arguments of the computation, such as the address of the database."""

    body: bytes | Callable[[], bytes] = field(default=b"", repr=False)
    """File that the computation starts from, or a function that returns it when the job starts."""

    subject: str = ""
    """Digest of what a what-if is about: answers on one subject are comparable."""

    owner: str = ""
    """Name of the requesting token; empty without tokens and for the server's own jobs."""

    queue: Queue = "write"
    """Queue of that token's holder, which selects the worker process."""

    status: Status = "waiting"
    progress: float = 0.0
    """Share completed."""

    message: str = "waiting"
    """Description of the present phase."""

    answer: dict[str, Any] | None = None
    """Result, if done."""

    data: bytes = field(default=b"", repr=False)
    """File of the result."""

    problem: dict[str, Any] | None = None
    """Problem details, if failed."""

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """The status is final."""
        return self.status in ("done", "failed", "cancelled")

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        names = ("id", "kind", "status", "progress", "message", "answer", "problem")
        return {name: getattr(self, name) for name in names}

    def change(self, **values: Any) -> None:
        """Set fields, unless the job has ended, and wake all waiters."""
        for name, value in values.items() if not self.has_ended else ():
            setattr(self, name, value)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def fail(self, status: int, detail: str) -> None:
        """End with a problem, unless the job has ended already."""
        self.change(status="failed", message="failed", problem=RequestError(status, detail).to_dict())

    async def ended(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most for `seconds`; return whether it has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.has_ended:
                    await self._changed.wait()
        return self.has_ended

    async def changes(self, beat: float = 10.0) -> AsyncIterator[dict[str, Any] | None]:
        """Yield the JSON form now and after every change, and None after `beat` seconds without a change."""
        while True:
            changed = self._changed
            yield self.to_dict()
            if self.has_ended:
                return
            while not changed.is_set():
                try:
                    async with asyncio.timeout(beat):
                        await changed.wait()
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
        self._jobs: dict[str, Job] = {}  # waiting and running ones by submission, then ended ones by their end
        self._wake = asyncio.Event()
        self._workers: dict[Queue, Worker] = {}
        self._running: dict[Queue, Job] = {}
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start taking jobs from the queues."""
        self._loops = [asyncio.create_task(self._run(queue)) for queue in QUEUES]

    async def stop(self) -> None:
        """Cancel all open jobs and end the workers."""
        for loop in self._loops:
            loop.cancel()
        for job in self._jobs.values():
            job.change(status="cancelled", message="the server was stopped")
        await asyncio.gather(*(self._end_worker(queue) for queue in QUEUES))
        await asyncio.gather(*self._loops, return_exceptions=True)

    def find(self, number: str) -> Job | None:
        """Return a job by its identifier."""
        return self._jobs.get(number)

    def all(self) -> list[Job]:
        """Return running, waiting and ended jobs, the latest end first."""
        ended = [job for job in reversed(self._jobs.values()) if job.has_ended]
        unfinished = [job for job in self._jobs.values() if not job.has_ended]
        return [*sorted(unfinished, key=lambda job: job.status), *ended]

    def submit(self, job: Job) -> Job:
        """Queue a job, or return the equal one that waits, runs or is done.

        Raises:
            RequestError: the queue is full, or the token has used its share.
        """
        known = self.find(job.id)
        if known is not None and known.status not in ("failed", "cancelled"):
            self.join(known, job.owner, job.queue)
            return known
        waiting = sum(one.queue == job.queue and one.status == "waiting" for one in self._jobs.values())
        own = sum(one.owner == job.owner != "" and not one.has_ended for one in self._jobs.values())
        if waiting >= self._settings.queue or own >= self._settings.share:
            reason = f"{own} of this token are open" if own >= self._settings.share else f"{waiting} are waiting"
            raise RequestError(429, f"too many computations: {reason}", headers={"Retry-After": str(RETRY_AFTER)})
        self.forget(job.id)
        self._jobs[job.id] = job
        self._wake_up()
        return job

    def join(self, job: Job, owner: str, queue: Queue) -> None:
        """Give a reader's job to a writer who requests the same; one that waits moves to the writers' queue."""
        if queue == "write" and job.queue == "read":
            job.owner, job.queue = owner, queue
            self._wake_up()

    async def cancel(self, job: Job) -> None:
        """Cancel a job, unless it has ended."""
        was_waiting = job.status == "waiting"
        job.change(status="cancelled", message="cancelled")
        if was_waiting:
            self._file(job)
        for queue in [queue for queue, running in self._running.items() if running is job]:
            await self._end_worker(queue)

    def forget(self, number: str) -> None:
        """Drop a job."""
        self._jobs.pop(number, None)

    def forget_kinds(self, *kinds: str) -> None:
        """Drop the jobs of some kinds that have ended."""
        for job in self.all():
            if job.kind in kinds and job.has_ended:
                self.forget(job.id)

    def _wake_up(self) -> None:
        self._metrics.waiting.set(sum(job.status == "waiting" for job in self._jobs.values()))
        self._wake.set()

    async def _run(self, queue: Queue) -> None:
        while True:
            waiting = (job for job in self._jobs.values() if job.status == "waiting" and job.queue == queue)
            if (job := next(waiting, None)) is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            self._running[queue] = job
            await self._do(job, queue)
            del self._running[queue]
            self._file(job)

    async def _do(self, job: Job, queue: Queue) -> None:
        job.change(status="running", message="starting")
        self._wake_up()
        seconds = self._settings.job_seconds[queue]
        try:
            if queue not in self._workers:
                self._workers[queue] = await Worker.start(self._settings.job_memory)
            async with asyncio.timeout(seconds):
                if not job.has_ended:  # cancelled while its worker was starting
                    await self._workers[queue].do(job)
        except TimeoutError:
            await self._end_worker(queue)
            job.fail(422, f"the computation took longer than the limit of {seconds:g} seconds")
        except (BrokenExecutor, OSError):
            await self._end_worker(queue)
            job.fail(500, "the worker process ended; the computation may have run out of memory")

    def _file(self, job: Job) -> None:
        """Put a job that has ended behind all others, and drop the oldest."""
        job.body = b""
        self._metrics.jobs.labels(job.kind, job.status).inc()
        log.info("job", extra={"fields": {"kind": job.kind, "status": job.status}})
        if self._jobs.get(job.id) is job:
            self._jobs[job.id] = self._jobs.pop(job.id)
        ended = [one.id for one in self._jobs.values() if one.has_ended]
        for number in ended[: -self._settings.ended_jobs]:
            del self._jobs[number]
        self._wake_up()

    async def _end_worker(self, queue: Queue) -> None:
        if (ended := self._workers.pop(queue, None)) is not None:
            await asyncio.to_thread(ended.end)


class Worker:
    """A pool of one spawned process, replaced after a cancellation, a timeout or a crash."""

    def __init__(self, memory: int) -> None:
        """Prepare; see `start`."""
        context = multiprocessing.get_context("spawn")
        self._progress, self._writer = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(1, context, _begin, (memory, self._writer))
        self._loop, self._job, self.pid = asyncio.get_running_loop(), Job("", "", {}), 0

    @classmethod
    async def start(cls, memory: int) -> "Worker":
        """Start a process that may allocate at most `memory` bytes."""
        made = cls(memory)
        starting = asyncio.wrap_future(made._pool.submit(os.getpid))
        made._writer.close()  # the process has its own end: reading ends with it
        try:
            made.pid = await starting
        except BaseException:
            made._pool.shutdown(wait=False, cancel_futures=True)
            raise
        made._loop.add_reader(made._progress.fileno(), made._report)
        return made

    async def do(self, job: Job) -> None:
        """Compute a job.

        Raises:
            BrokenExecutor: the process ended.
        """
        self._job = job
        body = job.body() if callable(job.body) else job.body
        computed = self._pool.submit(_do, job.kind, job.arguments, body)
        status, answer, data = await asyncio.wrap_future(computed)
        if status == "done":
            job.change(status="done", progress=1.0, message="done", answer=answer, data=data)
        else:
            job.change(status="failed", message="failed", problem=answer)

    def _report(self) -> None:
        try:
            message, share = self._progress.recv()
            self._job.change(message=message, progress=share)
        except (EOFError, OSError):
            self._loop.remove_reader(self._progress.fileno())

    def end(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._pool.shutdown()


# In the worker process


Answer: TypeAlias = tuple[dict[str, Any], bytes]
"""Result of a job: JSON form and file."""


def _begin(memory: int, progress: Connection) -> None:
    """Initialise the process: limit its memory, tie its life to the server's.

    Args:
        memory: bytes that it may allocate.
        progress: pipe to the server.
    """
    limit_memory(memory)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the server ends this one
    os.dup2(2, 1)  # standard output belongs to the server
    logging.captureWarnings(True)
    configure(quiet=True)
    threading.Thread(target=_end_with_server, daemon=True).start()
    _Reporter.pipe = progress


def limit_memory(size: int) -> None:
    """Let allocations beyond `size` bytes fail; stacks of threads count, mapped files do not."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


def _end_with_server() -> None:
    server = multiprocessing.parent_process()
    assert server is not None
    server.join()
    os._exit(0)


class _Reporter:
    """Progress callback that sends every new phase, and otherwise one message per `every` seconds."""

    pipe: Connection

    def __init__(self, every: float = 0.2) -> None:
        self._every, self._last, self._phase = every, 0.0, ""

    def __call__(self, phase: str, share: float) -> None:
        now = monotonic()
        if phase != self._phase or now >= self._last + self._every:
            self._last, self._phase = now, phase
            self.pipe.send((phase, min(max(float(share), 0.0), 1.0)))


def _do(kind: str, arguments: dict[str, Any], body: bytes) -> tuple[Literal["done", "failed"], dict[str, Any], bytes]:
    """Compute a job; return its answer and file, or problem details.

    Args:
        kind: `decide` for a model, else a computation of a programme.
        arguments: those of the library's function; with `address`, those of a programme.
        body: file that the computation starts from.
    """
    try:
        if kind == "decide":
            return "done", *_solve_model(body, _Reporter(), **arguments)
        with Programme.open(arguments.pop("address")) as programme:
            return "done", *_compute(kind, programme, arguments, body, _Reporter())
    except MemoryError:
        return "failed", RequestError(422, "the computation does not fit into its memory limit").to_dict(), b""
    except Exception as error:  # noqa: BLE001  # the worker continues, the client gets a problem
        return "failed", RequestError.of(error).to_dict(), b""


def _solve_model(
    body: bytes, progress: Callable[[str, float], None], criterion: str | None, seed: int, **how: Any
) -> Answer:
    """Solve a model; return its plan file."""
    problem = load(io.BytesIO(body), "json", criterion=criterion)
    return {}, to_bytes(solve(problem, criterion=criterion, rng=seed, progress=progress, **how))[1]


def _compute(kind: str, programme: Programme, arguments: dict[str, Any], body: bytes, progress: Any) -> Answer:
    match kind:
        case "solve":
            return programme.solve(**arguments, progress=progress).to_dict(), b""
        case "certify":
            progress("evaluating the policy for the present roster", 0.0)
            certificate = programme.certificate()
            if certificate is None:
                raise InvalidInputError("no policy can serve the present roster")
            return certificate.to_dict(), b""
        case "what-if":  # the plan of an earlier answer competes
            budget = arguments.pop("budget")
            earlier = [load_plan(body)] if body else []
            budgets = [] if budget is None else [budget]
            (found,) = programme.suppose(budgets, **arguments, progress=progress, earlier=earlier)
            return found.to_dict(), found.body
        case "price":
            return plain(programme.price_of_fairness(**arguments, progress=progress).to_dict()), b""
        case "change":
            return programme.preview_change(**arguments, progress=progress).to_dict(), b""
        case "refit":
            return programme.refit(**arguments, progress=progress).to_dict(), b""
        case "drift":
            drift, fit = programme.offer_refit(**arguments, progress=progress)
            return {"drift": drift.to_dict(), "refit": None if fit is None else fit.id}, b""
    raise ValueError(kind)
