"""The service: a programme with its jobs, its cache of plans, its sessions, and the checks in the background.

In the background a server improves a first policy that was found in seconds, solves again after drift of the roster or
the gap, and proposes a refit after drift of the model. Each check runs periodically and soon after a change, and
submits a job if needed. Nothing is adopted.
"""

import asyncio
import io
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any, cast

import anyio.to_thread
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError
from evenhand.model.io import load
from evenhand.planning import Plan, load_plan
from evenhand.programme.api.auth import Holder, Sessions
from evenhand.programme.api.jobs import Job, Jobs, name_of
from evenhand.programme.api.problem_details import RequestError
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.api.telemetry import Metrics
from evenhand.programme.audit import audit_of
from evenhand.programme.audit_window import fairness_over_time
from evenhand.programme.certificates import METHOD, Certificate
from evenhand.programme.programme import Programme
from evenhand.programme.safeguards import GroupView
from evenhand.programme.web.render import prepare

log = logging.getLogger("evenhand.programme.api")


class PlanCache:
    """Plans of solved models for `/v1/decide`; the most recently used are cached.

    A model is known by a digest of what it is solved for. The first time it is solved by a worker, and its policy is
    read from the bytes of its file, as `evenhand act` reads it.
    """

    def __init__(self, jobs: Jobs, most: int, metrics: Metrics) -> None:
        """Create an empty cache.

        Args:
            jobs: where models are solved.
            most: size of the cache.
            metrics: where they are counted.
        """
        self._jobs, self._most, self._metrics = jobs, most, metrics
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    async def plan(self, model: dict[str, Any], how: dict[str, Any], patience: float, holder: Holder) -> Plan | Job:
        """The plan of a model; or the job that solves it, if that takes longer or failed.

        Args:
            model: as a model file has it.
            how: arguments of the solution beside the model.
            patience: seconds to wait.
            holder: holder of the token of the request.

        Raises:
            ModelError: with every fault of the model.
        """
        body = json.dumps(model).encode()
        name = name_of("decide", how, sha256(body).hexdigest())
        self._metrics.decided.labels("yes" if name in self._plans else "no").inc()
        if name not in self._plans:
            await asyncio.to_thread(
                load, io.BytesIO(body), "json", how["criterion"]
            )  # raises faults before any waiting
            job = self._jobs.submit(Job(name, "decide", how, body=body, owner=holder.name, queue=holder.queue))
            if not await job.ended(patience) or job.status != "done":
                return job
            self._plans[name] = await asyncio.to_thread(load_plan, job.data)
        self._plans.move_to_end(name)
        while len(self._plans) > self._most:
            self._jobs.forget(self._plans.popitem(last=False)[0])  # with the file of the plan
        return self._plans[name]


async def repeat(
    check: Callable[[], Awaitable[None]],
    every: float,
    wake: asyncio.Event,
    first: float = 0.0,
    pause: float = 0.2,
) -> None:
    """Check after `first` seconds, then every so many and after every wake, with a pause between two checks."""
    await asyncio.sleep(first)
    while True:
        wake.clear()  # before the check, so that changes during it cause another one
        try:
            await check()
        except (EvenhandError, RequestError) as error:  # retried at the next check
            log.warning("background check failed: %s", type(error).__name__)
        except Exception as error:  # noqa: BLE001  # logged; the checks must go on
            RequestError.of(error)
        with suppress(TimeoutError):
            async with asyncio.timeout(every):  # `wait_for` loses a cancellation that meets a wake (Python 3.11)
                await wake.wait()
        await asyncio.sleep(pause)


class Service:
    """All that a server has, in one object that requests find."""

    def __init__(self, programme: Programme, settings: Settings) -> None:
        """Nothing runs yet.

        Args:
            programme: which it serves.
            settings: how it behaves.
        """
        self.programme, self.settings = programme, settings
        self.metrics = Metrics()
        self.sessions = Sessions(settings.session, settings.idle_session)
        self.jobs = Jobs(settings, self.metrics)
        self.plans = PlanCache(self.jobs, settings.cached_models, self.metrics)
        self.is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake, self._changed = asyncio.Event(), asyncio.Event()
        self._filled_step: int | None = None
        self._settled: set[str] = set()
        self._erased = 0
        self._readiness: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first request to the last."""
        # 15 connections to the database, of which some are for work behind the requests.
        anyio.to_thread.current_default_thread_limiter().total_tokens = 12
        self._loop = asyncio.get_running_loop()
        self.jobs.start()
        preparing = asyncio.create_task(asyncio.to_thread(prepare))
        every = self.settings.judge_every
        checks = [
            asyncio.create_task(repeat(self._check_policy, self.settings.look_every, self._wake)),
            asyncio.create_task(repeat(self._check_model, every, asyncio.Event(), first=every)),
            asyncio.create_task(repeat(self._fill_caches, self.settings.look_every, self._changed, pause=1.0)),
        ]
        try:
            yield
        finally:
            self._end_streams()
            for check in checks:
                check.cancel()
            await asyncio.gather(preparing, *checks, return_exceptions=True)
            await self.jobs.stop()

    def look(self) -> None:
        """Check the policy soon, and fill the caches; called by any thread."""
        for wake in (self._wake, self._changed):
            if self._loop is not None and not wake.is_set():
                self._loop.call_soon_threadsafe(wake.set)

    async def check_writable(self) -> None:
        """Test that the programme can be written to, once for all requests of that time, which need no token.

        Raises:
            UnavailableError: it cannot.
        """
        if self._readiness is None or self._readiness.done():
            self._readiness = asyncio.ensure_future(asyncio.to_thread(self.programme.store.check_writable))
        await asyncio.shield(self._readiness)

    def stop_soon(self) -> None:
        """End all streams; called by the handler of a signal."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_streams)

    def _end_streams(self) -> None:
        self.is_stopping = True
        for job in self.jobs.all():
            job.change()

    # Jobs of the programme

    def _job(self, kind: str, about: list[Any], arguments: dict[str, Any], **more: Any) -> Job:
        """Return a job that is identified by its subject and its arguments, not by its requester."""
        address = self.programme.store.full_address
        own = {name: value for name, value in arguments.items() if name not in ("who", "key")}
        return Job(name_of(kind, *about, own), kind, arguments | {"address": address}, **more)

    def _present(self) -> list[Any]:
        """Return what identifies the present model, budget, welfare, promises and roster."""
        with self.programme.store.reading() as tx:
            terms = self.programme.library.terms_digest(tx)
        return [self.programme.status().model, terms, [list(row) for row in self.programme.numbers()]]

    def _solve_job(self, arguments: dict[str, Any], owner: str = "") -> Job:
        # With the policy in use: an earlier policy is solved again if another one has replaced it.
        about = [*self._present(), self.programme.needs_solving().policy]
        return self._job("solve", about, arguments, owner=owner)

    async def solve(
        self, method: str = METHOD, seconds: float | None = None, who: str = "", key: str | None = None, owner: str = ""
    ) -> Job:
        """Submit a job that solves for the present roster."""
        arguments = {"method": method, "seconds": seconds, "who": who, "key": key}
        return self.jobs.submit(await run_in_threadpool(self._solve_job, arguments, owner))

    async def missing_policy(self, who: str = "") -> Job | None:
        """Submit a job that solves for the present roster if no policy can serve it; None if one can."""
        drift = await run_in_threadpool(self.programme.needs_solving)
        missing = drift.policy is None and drift.needed
        return await self.solve(seconds=self.settings.first_seconds, who=who) if missing else None

    async def refit(self, arguments: dict[str, Any], owner: str) -> Job:
        """Submit a job that fits the model to the records; arguments as of `Programme.refit`."""
        events = (await run_in_threadpool(self.programme.status)).events
        return self.jobs.submit(self._job("refit", [events], arguments, owner=owner))

    async def preview_change(self, arguments: dict[str, Any], owner: str) -> Job:
        """Submit a job that evaluates a lasting change; arguments as of `Programme.preview_change`."""
        # Any event may matter: it may begin at a later step, with the roster and the terms of then.
        events = (await run_in_threadpool(self.programme.status)).events
        return self.jobs.submit(self._job("change", [events], arguments, owner=owner))

    async def price(self, owner: str, **given: Any) -> Job:
        """Return a job that computes the price of fairness; it is submitted by `jobs.submit`.

        Args:
            owner: the name of the token.
            given: arguments of `Programme.price_of_fairness`; a time limit in any case.
        """
        about, arguments = await run_in_threadpool(self._present), {"seconds": self.settings.refit_seconds} | given
        return self._job("price", about, arguments, owner=owner)

    async def suppose(self, arguments: dict[str, Any], owner: str) -> Job:
        """Begin to compute a what-if, or join the one that is under way or done already.

        The best earlier answer under a smaller or the same budget competes, of any client, so that more is never worse
        from one answer to the next.

        Args:
            arguments: `budget`, `welfare` and `seconds`, as of `Programme.suppose`.
            owner: the name of the token.
        """
        subject, policy, budget = await run_in_threadpool(self._subject, arguments)

        def is_comparable(job: Job) -> bool:
            if budget is None or job.answer is None or job.subject != subject:
                return False
            return all(amount <= budget[name] for name, amount in job.answer["budget"].items())

        def best() -> Job | None:
            return max(filter(is_comparable, self.jobs.all()), key=_welfare_of, default=None)

        def body() -> bytes:
            return b"" if (found := best()) is None else found.data

        job = self._job("what-if", [subject, policy], arguments, body=body, subject=subject, owner=owner)
        known, earlier = self.jobs.find(job.id), best()
        if known is not None and known.status == "done" and earlier and _welfare_of(earlier) > _welfare_of(known):
            self.jobs.forget(known.id)
            job.owner = known.owner
        return self.jobs.submit(job)

    def _subject(self, arguments: dict[str, Any]) -> tuple[str, str | None, dict[str, float] | None]:
        """Return the subject of a what-if, the policy in use, and the whole budget; None if it is invalid."""
        status, policy = self.programme.status(), self.programme.needs_solving().policy
        subject = name_of("about", *self._present(), arguments["welfare"] or status.welfare)
        try:
            problem = self.programme.present_problem()[0]
            return subject, policy, problem.with_budget(arguments["budget"] or status.budget).named_budget
        except EvenhandError:  # the job reports the error
            return subject, policy, None

    # Checks in the background

    async def _finish(self, job: Job) -> Job | None:
        """Run a job to its end, unless it was settled before; a job is settled if repeating it is pointless."""
        if job.id in self._settled:
            return None
        job = self.jobs.submit(job)
        await job.ended()
        if job.problem is None or job.problem["status"] != 503:
            self._settled.add(job.id)
        return job

    async def _check_policy(self) -> None:
        """Solve again if the roster, the model or the gap has drifted beyond its bound; else improve a first policy.

        Otherwise certify the policy.
        """
        drift = await asyncio.to_thread(self.programme.needs_solving)
        improves = drift.improvable and self.settings.improve_seconds > 0
        if drift.needed or improves:
            seconds = None if drift.policy else self.settings.first_seconds
            seconds = self.settings.improve_seconds if improves and not drift.needed else seconds
            arguments = {"method": METHOD, "seconds": seconds, "who": "server", "key": None}
            job = await self._finish(await asyncio.to_thread(self._solve_job, arguments))
            if job is not None and drift.policy is None:
                self._wake.set()  # the next check improves it
            return
        wanted = await asyncio.to_thread(self.programme.uncertified)
        if wanted is None:
            return
        job = await self._finish(self._job("certify", [wanted[0], [list(row) for row in wanted[1]]], {}))
        if job is not None and job.status == "done" and job.answer is not None:
            self.programme.learn_certificate(Certificate.of(job.answer))
            self._wake.set()  # the next check compares its gap

    def forget_erased(self) -> None:
        """Drop the answers of jobs that may name arms, if arms were erased since, here or by another process."""
        last = self.programme.last_erasure()
        if last != self._erased and self._loop is not None:
            self._erased = last
            self._loop.call_soon_threadsafe(self.jobs.forget_kinds, "change", "refit")

    async def _fill_caches(self) -> None:
        """Read plan and audit at the start and after each step, so that the first reader does not wait for them."""
        await asyncio.to_thread(self.forget_erased)
        step = await asyncio.to_thread(self.programme.present_step)
        if step == self._filled_step:
            return
        self._filled_step = step
        plan = await asyncio.to_thread(self.programme.current_plan)
        await asyncio.to_thread(self.programme.in_need, plan.rows[:1] if plan else (), step)
        if step > 0:
            books = await asyncio.to_thread(self.programme.books)
            for account in (audit_of, fairness_over_time):
                await asyncio.to_thread(account, books)

    async def _check_model(self) -> None:
        """Test the model after every `DriftBounds.records` reports, and propose a refit if it is rejected."""
        due = await asyncio.to_thread(self.programme.question)
        if due is not None:
            about = [due.model, due.since, due.number, due.bounds.to_dict()]
            await self._finish(self._job("drift", about, {"seconds": self.settings.refit_seconds, "who": "server"}))


def _welfare_of(job: Job) -> float:
    assert job.answer is not None
    return float(job.answer["welfare"])


def programme_of(request: Request) -> Programme:
    """The programme that is served, as far as the holder of the request may see it."""
    programme, holder = service_of(request).programme, request.state.holder
    limited = programme if holder.groups is None else GroupView(programme, holder.groups, holder.name)
    return cast(Programme, limited)


def service_of(request: Request) -> Service:
    """The service that answers a request."""
    service: Service = request.app.state.service
    return service
