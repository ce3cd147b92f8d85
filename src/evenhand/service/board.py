"""Work that several servers of one programme must not do twice: they tell each other in the table `jobs`.

Who begins a job writes its name there, under the programme's lock, so one of them is first. While it computes it writes
again and again that it lives. The others watch: what it says of its progress becomes theirs, and if it says nothing new
for `SILENT` seconds, by the watcher's own clock, which never goes back, one of them takes the job over. Times in the
table are told and not compared.
"""

import asyncio
import json
import logging
import os
import secrets
import socket
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, cast

from sqlalchemy import Connection, delete, insert, select, update

from evenhand.errors import EvenhandError, Unavailable
from evenhand.programme import schema
from evenhand.programme.ledger import as_text, now
from evenhand.programme.store import Store
from evenhand.service.jobs import Job, Jobs, Status
from evenhand.service.refusals import Refused

BEAT = 2.0
"""Seconds between two signs of life."""

WATCH = 0.5
"""Seconds between two looks at what another server does."""

SILENT = 15.0
"""Seconds without a sign of life after which a job is taken over."""

KEPT = 500
"""Rows of jobs that ended which are left in the table."""

MOST_NAME = 64
"""Characters of the longest name of a job."""

Whose = Literal["mine", "theirs", "done"]

log = logging.getLogger("evenhand.service")


class Board:
    """The jobs of a programme, on this server and on others."""

    def __init__(self, store: Store, jobs: Jobs) -> None:
        """Nothing is begun yet.

        Args:
            store: of the programme.
            jobs: those of this server.
        """
        self._store, self._jobs = store, jobs
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._others: dict[str, Job] = {}
        self._heard: dict[str, tuple[str, float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Watch no longer; what this server computes is given back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(EvenhandError):
            await asyncio.to_thread(self._give_back)

    async def submit(self, job: Job) -> Job:
        """Begin a job, or join the one of the same name, on whichever server it is.

        Raises:
            Refused: the queue is full.
            Unavailable: the database does not answer.
        """
        known = self.known(job.id)
        if known is not None and known.status in ("waiting", "running"):
            return known
        whose, row = await asyncio.to_thread(self._claim, job)
        known = self.known(job.id)  # somebody on this server may have been quicker meanwhile
        if known is not None and known.status in ("waiting", "running"):
            return known
        if whose == "mine":
            return await self._begin(job)
        return self._follow(row)

    def known(self, number: str) -> Job | None:
        """A job of this server, or one that it watches."""
        return self._jobs.find(number) or self._others.get(number)

    async def find(self, number: str) -> Job | None:
        """A job by its name, on whichever server."""
        known = self.known(number)
        if known is not None or not fits(number):
            return known
        row = await asyncio.to_thread(self._row, number)
        if row is None:
            return None
        return self._follow(row)

    def _follow(self, row: Any) -> Job:
        """A job of another server; it is watched while it goes on."""
        job = job_of(row)
        if not job.has_ended:
            self._others[job.id] = job
            self._spawn(self._watch(job))
        return job

    async def cancel(self, job: Job) -> None:
        """Cancel a job, on whichever server it is."""
        if self._jobs.find(job.id) is not None:
            await self._jobs.cancel(job.id)
        elif not job.has_ended:
            await asyncio.to_thread(self._mark, job.id, "cancelled")
            job.change(status="cancelled", message="cancelled")

    async def _begin(self, job: Job) -> Job:
        self._others.pop(job.id, None)
        try:
            begun = self._jobs.submit(job)
        except Refused:
            await asyncio.to_thread(self._mark, job.id, "cancelled")
            raise
        self._spawn(self._beat(begun))
        return begun

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # This server computes

    async def _beat(self, job: Job) -> None:
        """Say again and again that this server is at it, until it has ended."""
        while not await job.ended(BEAT):
            with suppress(Unavailable):
                if not await asyncio.to_thread(self._tell, job):
                    await self._jobs.cancel(job.id)  # somebody cancelled it elsewhere, or took it over
                    return
        await self._insist(job)

    async def _insist(self, job: Job) -> None:
        """Write how a job ended, when the database can be reached again."""
        while True:
            with suppress(Unavailable):
                await asyncio.to_thread(self._tell, job)
                return
            await asyncio.sleep(BEAT)

    def _tell(self, job: Job) -> bool:
        """Write how a job stands; whether it is still this server's."""
        table = schema.jobs
        answer = {"answer": job.answer, "problem": job.failed} if job.has_ended else None
        values = {
            "status": "running" if job.status == "waiting" else job.status,
            "progress": job.progress,
            "message": job.message[:2000],
            "seen_at": _sign(),
            "ended_at": now() if job.has_ended else None,
            "answer_json": None if answer is None else as_text(answer),
        }
        own = (table.c.id == job.id) & (table.c.worker == self.name) & (table.c.status == "running")
        with self._store.writing() as tx:
            return tx.execute(update(table).where(own).values(**values)).rowcount > 0

    def _claim(self, job: Job) -> tuple[Whose, Any]:
        """Write a job's name on the board, if no other server is at it."""
        table = schema.jobs
        with self._store.writing() as tx:
            row = tx.execute(select(table).where(table.c.id == job.id)).first()
            if row is not None and row.status == "done":
                return "done", row
            if row is not None and row.status == "running" and not self._is_silent(row):
                return "theirs", row
            if row is not None:
                tx.execute(delete(table).where(table.c.id == job.id))
            tx.execute(insert(table).values(**self._new_row(job)))
            _tidy(tx)
        return "mine", None

    def _new_row(self, job: Job) -> dict[str, Any]:
        at = now()
        row = {"id": job.id, "kind": job.kind, "status": "running", "request_json": as_text(job.request)}
        times = {"asked_at": at, "started_at": at, "seen_at": _sign()}
        return row | times | {"progress": 0.0, "message": "waiting", "worker": self.name}

    def _give_back(self) -> None:
        table = schema.jobs
        own = (table.c.worker == self.name) & (table.c.status == "running")
        with self._store.writing() as tx:
            tx.execute(update(table).where(own).values(status="cancelled", message="the server was stopped"))

    def _mark(self, number: str, status: Status) -> None:
        table = schema.jobs
        open_one = (table.c.id == number) & (table.c.status == "running")
        with self._store.writing() as tx:
            tx.execute(update(table).where(open_one).values(status=status, message=status, ended_at=now()))

    # Another does

    async def _watch(self, job: Job) -> None:
        """Follow a job on another server, until it has ended or that server is silent."""
        while not job.has_ended:
            await asyncio.sleep(WATCH)
            with suppress(Unavailable):
                row = await asyncio.to_thread(self._row, job.id)
                if row is None or self._is_silent(row):
                    job.change(status="cancelled", message="the server that computed it is gone")
                else:
                    follow(job, row)
        self._others.pop(job.id, None)
        self._heard.pop(job.id, None)

    def _row(self, number: str) -> Any:
        table = schema.jobs
        with self._store.reading() as tx:
            return tx.execute(select(table).where(table.c.id == number)).first()

    def _is_silent(self, row: Any) -> bool:
        """Whether the server that has a job gave no sign of life for long, or is known to be gone."""
        if row.status != "running":
            return False
        if _is_gone(str(row.worker)):
            return True
        sign, since = self._heard.get(row.id, ("", 0.0))
        if sign != row.seen_at:
            self._heard[row.id] = (row.seen_at, monotonic())
            return False
        return monotonic() - since > SILENT


def fits(number: str) -> bool:
    """Whether a job can be called so; a database need not be asked for anything else."""
    return len(number) <= MOST_NAME and number.isascii() and number.isprintable()


def _is_gone(worker: str) -> bool:
    """Whether a server was a process of this machine that is no more."""
    host, _, rest = worker.partition(":")
    number = rest.partition(":")[0]
    if host != socket.gethostname() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _sign() -> str:
    """A sign of life: another one each time, whatever the clock says."""
    return f"{now()[:23]}{secrets.token_hex(4)}"


def _tidy(tx: Connection) -> None:
    """Leave only the last of the jobs that ended."""
    table = schema.jobs
    ended = select(table.c.id).where(table.c.status != "running").order_by(table.c.asked_at.desc()).offset(KEPT)
    old = [number for (number,) in tx.execute(ended.limit(KEPT))]
    if old:
        tx.execute(delete(table).where(table.c.id.in_(old)))


def job_of(row: Any) -> Job:
    """A job as it stands in the table."""
    job = Job(row.id, row.kind, json.loads(row.request_json))
    follow(job, row)
    return job


def follow(job: Job, row: Any) -> None:
    """Let a job stand as it does in the table."""
    told = json.loads(row.answer_json) if row.answer_json else {}
    stands: dict[str, Any] = {
        "status": cast(Status, row.status),
        "progress": row.progress,
        "message": row.message,
        "answer": told.get("answer"),
        "failed": told.get("problem"),
    }
    if any(getattr(job, name) != value for name, value in stands.items()):
        job.change(**stands)
