"""All that a server has, in one object that requests find."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError
from evenhand.programme.api.auth import Sessions
from evenhand.programme.api.background import DriftMonitor, ResolveMonitor
from evenhand.programme.api.jobs import Job, Jobs, name_of
from evenhand.programme.api.plan_cache import PlanCache
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.api.telemetry import Metrics
from evenhand.programme.certificates import numbers_of
from evenhand.programme.programme import Programme

THREADS = 12
"""Requests that speak to the database at a time: there are 15 connections to it, and some are for work behind them."""


class Service:
    """All that a server has."""

    def __init__(self, programme: Programme, settings: Settings) -> None:
        """Nothing runs yet.

        Args:
            programme: which it serves.
            settings: how it behaves.
        """
        self.programme, self.settings = programme, settings
        self.metrics = Metrics()
        self.sessions = Sessions(settings.session)
        self.stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.jobs = Jobs(settings, self.metrics)
        self.decider = PlanCache(self.jobs, settings.kept_models, self.metrics)
        self.solver = ResolveMonitor(programme, self.jobs, settings.look_every)
        self.drift = DriftMonitor(programme, self.jobs, settings.judge_every, settings.refit_seconds)

    async def suppose(self, request: dict[str, Any], owner: str) -> Job:
        """Begin to compute a what-if, or join the one that is under way or done already.

        The best earlier answer under a smaller or the same budget competes, of any client, so that more is never worse
        from one answer to the next.

        Args:
            request: `budget`, `welfare` and `seconds`, as of `Programme.suppose`.
            owner: the name of the token.
        """
        subject, policy, budget = await run_in_threadpool(self._subject, request)
        name = name_of("what-if", subject, policy, request)

        def best() -> Job | None:
            return max(self._supposed(subject, budget), key=_welfare_of, default=None)

        known, earlier = self.jobs.find(name), best()
        if known is not None and known.status == "done" and earlier and _welfare_of(earlier) > _welfare_of(known):
            self.jobs.forget(name)
            owner = known.owner
        secret = {"address": self.programme.store.full_address, "subject": subject}
        body = lambda: b"" if (found := best()) is None else found.data  # noqa: E731  # as of when it begins
        return self.jobs.submit(Job(name, "what-if", request, secret, owner=owner, prepare=body))

    def _subject(self, request: dict[str, Any]) -> tuple[str, str | None, dict[str, float] | None]:
        """Return the subject of a what-if, the policy in use, and the whole budget; None if it is invalid."""
        programme = self.programme
        status, policy = programme.status(), programme.needs_solving().policy
        numbers = [list(row) for row in numbers_of(programme.arms())]
        about = name_of("about", status.model, numbers, request["welfare"] or status.welfare)
        try:
            problem = programme.present_problem()[0]
            return about, policy, problem.with_budget(request["budget"] or status.budget).named_budget
        except EvenhandError:  # the job reports the error
            return about, policy, None

    def _supposed(self, subject: str, budget: dict[str, float] | None) -> list[Job]:
        """Return finished what-ifs on the same subject under budgets that are contained in another."""

        def competes(job: Job) -> bool:
            if budget is None or job.answer is None or job.secret.get("subject") != subject:
                return False
            return all(amount <= budget[name] for name, amount in job.answer["budget"].items())

        return [job for job in self.jobs.all() if competes(job)]

    def look(self) -> None:
        """Look soon whether to solve anew; called by any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.solver.look)

    def stop_soon(self) -> None:
        """End all streams; called by the handler of a signal."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stopping.set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first request to the last."""
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        self._loop = asyncio.get_running_loop()
        self.jobs.start()
        self.solver.start()
        self.drift.start()
        try:
            yield
        finally:
            self.stopping.set()
            await self.solver.stop()
            await self.drift.stop()
            await self.jobs.stop()


def _welfare_of(job: Job) -> float:
    assert job.answer is not None
    return float(job.answer["welfare"])


def service_of(request: Request) -> Service:
    """The service that answers a request."""
    service: Service = request.app.state.service
    return service
