"""Background tasks of a server: solve again after drift of the roster or the gap, propose a refit after model drift.

Each task checks its condition periodically and soon after a change, and submits a job if needed. Nothing is adopted.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from evenhand.errors import EvenhandError
from evenhand.programme.api.jobs import Job, Jobs, name_of
from evenhand.programme.api.problem_details import RequestError, unforeseen_details
from evenhand.programme.certificates import METHOD, Certificate, Drift, numbers_of
from evenhand.programme.programme import Programme

log = logging.getLogger("evenhand.programme.api")


class _Periodic:
    """A check that is repeated from `start` to `stop`."""

    def __init__(self, programme: Programme, jobs: Jobs, every: float, first: float = 0.0) -> None:
        """Prepare; nothing runs before `start`.

        Args:
            programme: the programme.
            jobs: the server's jobs.
            every: seconds between two checks.
            first: seconds before the first check.
        """
        self._programme, self._jobs, self._every, self._first = programme, jobs, every, first
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._settled: set[str] = set()

    def start(self) -> None:
        """Start checking."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop checking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def look(self) -> None:
        """Check soon."""
        self._wake.set()

    async def _run(self) -> None:
        await asyncio.sleep(self._first)
        while True:
            self._wake.clear()  # before the check, so that changes during it cause another one
            try:
                await self._check()
            except (EvenhandError, RequestError) as error:  # retried at the next check
                log.warning("background check failed: %s", type(error).__name__)
            except Exception as error:  # noqa: BLE001  # logged; the checks must go on
                unforeseen_details(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._every)

    async def _check(self) -> None:
        raise NotImplementedError

    async def _finish(self, job: Job) -> Job | None:
        """Run a job to its end, unless it was settled before; a job is settled if repeating it is pointless."""
        if job.id in self._settled:
            return None
        job = self._jobs.submit(job)
        await job.ended()
        unavailable = job.status == "failed" and job.failed is not None and job.failed["status"] == 503
        if not unavailable:
            self._settled.add(job.id)
        return job


class ResolveMonitor(_Periodic):
    """Solves again if the roster, the model or the gap has drifted beyond its bound."""

    async def solve(
        self, method: str = METHOD, seconds: float | None = None, who: str = "", key: str | None = None, owner: str = ""
    ) -> Job:
        """Submit a job that solves for the present roster."""
        drift = await asyncio.to_thread(self._programme.needs_solving)
        return self._jobs.submit(await self._job({"method": method, "seconds": seconds}, drift, who, key, owner))

    async def _job(
        self, request: dict[str, Any], drift: Drift, who: str, key: str | None = None, owner: str = ""
    ) -> Job:
        name = await asyncio.to_thread(self._name, request, drift)
        secret = {"address": self._programme.store.full_address, "who": who, "key": key}
        return Job(name, "solve", request, secret, owner=owner)

    def _name(self, request: dict[str, Any], drift: Drift) -> str:
        # With the policy in use: an earlier policy is solved again if another one has replaced it.
        arms, model = self._programme.arms(), self._programme.status().model
        return name_of("solve", model, [list(row) for row in numbers_of(arms)], drift.policy, request)

    async def _check(self) -> None:
        drift = await asyncio.to_thread(self._programme.needs_solving)
        if drift.needed:
            await self._finish(await self._job({"method": METHOD, "seconds": None}, drift, "server"))
        else:
            await self._certify()

    async def _certify(self) -> None:
        """Certify the policy for a changed roster; the next check, which follows at once, compares its gap."""
        wanted = await asyncio.to_thread(self._programme.uncertified)
        if wanted is None:
            return
        policy, numbers = wanted
        name = name_of("certify", policy, [list(row) for row in numbers])
        secret = {"address": self._programme.store.full_address}
        job = await self._finish(Job(name, "certify", {"policy": policy}, secret))
        if job is not None and job.status == "done" and job.answer is not None:
            self._programme.learn_certificate(Certificate.of(job.answer))
            self.look()


class DriftMonitor(_Periodic):
    """Tests the model after every `DriftBounds.records` reports and proposes a refit if it is rejected."""

    def __init__(self, programme: Programme, jobs: Jobs, every: float, seconds: float) -> None:
        """Prepare; nothing runs before `start`.

        Args:
            programme: the programme.
            jobs: the server's jobs.
            every: seconds between two checks.
            seconds: approximate limit of solving for a new model.
        """
        super().__init__(programme, jobs, every, first=every)
        self._seconds = seconds

    async def _check(self) -> None:
        due = await asyncio.to_thread(self._programme.question)
        if due is None:
            return
        name = name_of("drift", due.model, due.since, due.number, due.bounds.to_dict())
        secret = {"address": self._programme.store.full_address, "who": "server"}
        await self._finish(Job(name, "drift", {"seconds": self._seconds}, secret))
