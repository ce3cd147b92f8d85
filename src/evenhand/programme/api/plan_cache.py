"""Cache of solved models for `/v1/decide`.

A model is known by a digest of what it is solved for. The first time it is solved by the worker, and its policy is read
from the bytes of its file, as `evenhand act` reads it. The most recently used models are cached.
"""

import asyncio
import io
import json
from collections import OrderedDict
from hashlib import sha256
from typing import Any, NamedTuple

from evenhand.model.io import load
from evenhand.planning.plan import Plan
from evenhand.programme.api.auth import Holder
from evenhand.programme.api.jobs import Job, Jobs
from evenhand.programme.api.telemetry import Metrics
from evenhand.programme.certificates import plan_from_bytes

SOLVED_BY = ("welfare", "criterion", "over", "method", "seed")
"""Arguments of a solution beside the model."""


class PlanCache:
    """Plans of solved models."""

    def __init__(self, jobs: Jobs, most: int, metrics: Metrics) -> None:
        """Create an empty cache.

        Args:
            jobs: where models are solved.
            most: size of the cache.
            metrics: where they are counted.
        """
        self._jobs, self._most, self._metrics = jobs, most, metrics
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._coming: dict[str, _Coming] = {}

    async def plan(self, model: dict[str, Any], how: dict[str, Any], patience: float, holder: Holder) -> Plan | Job:
        """The plan of a model; or the job that solves it, if that takes longer or failed.

        Args:
            model: as a model file has it.
            how: arguments of the solution (`SOLVED_BY`).
            patience: seconds to wait.
            holder: holder of the token of the request.

        Raises:
            ModelError: with every fault of the model.
        """
        body = json.dumps(model).encode()
        digest = sha256(json.dumps(how, sort_keys=True).encode() + b"\n" + body).hexdigest()
        cached = self._plans.get(digest)
        self._metrics.decided.labels("no" if cached is None else "yes").inc()
        if cached is not None:
            self._plans.move_to_end(digest)
            return cached
        await asyncio.to_thread(load, io.BytesIO(body), "json", how["criterion"])  # raises faults before any waiting
        coming = self._coming.get(digest) or self._begin(digest, how, body, holder)
        self._jobs.join(coming.job, holder.name, holder.role)
        await asyncio.wait({coming.task}, timeout=patience)
        return coming.task.result() if coming.task.done() else coming.job

    def _begin(self, digest: str, how: dict[str, Any], body: bytes, holder: Holder) -> "_Coming":
        """Submit the job that solves a model; its plan is stored in any case."""
        name = f"decide-{digest[:32]}"
        known = self._jobs.find(name)
        if known is not None and known.has_ended:  # its plan was evicted
            self._jobs.forget(name)
        job = self._jobs.submit(Job(name, "decide", how, body=body, owner=holder.name, role=holder.role))
        self._coming[digest] = _Coming(job, asyncio.create_task(self._store(digest, job)))
        return self._coming[digest]

    async def _store(self, digest: str, job: Job) -> Plan | Job:
        try:
            await job.ended()
            if job.status != "done":
                return job
            plan = await asyncio.to_thread(plan_from_bytes, job.data)
            job.data = b""
            self._plans[digest] = plan
            while len(self._plans) > self._most:
                self._plans.popitem(last=False)
            return plan
        finally:
            del self._coming[digest]


class _Coming(NamedTuple):
    """A plan that is being computed."""

    job: Job
    task: asyncio.Task[Plan | Job]
