"""Deciding without a programme: a model and states come in, actions go out, and nothing is kept but solved models.

A model is known by a digest of what it is solved for. The first time it is solved by the worker, and its policy is read
from the bytes of its file, as `evenhand act` would read it; then it acts at once. The models that were asked for last
are kept.
"""

import asyncio
import io
import json
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evenhand.model.files import load
from evenhand.planning.plans import Plan, load_plan
from evenhand.service.jobs import Job, Jobs
from evenhand.service.metrics import Metrics

SOLVED_BY = ("welfare", "criterion", "over", "method", "seed")
"""What a solution depends on, beside the model."""


class Decider:
    """Plans of models that were solved."""

    def __init__(self, jobs: Jobs, most: int, metrics: Metrics) -> None:
        """Nothing is solved yet.

        Args:
            jobs: where models are solved.
            most: how many are kept.
            metrics: where they are counted.
        """
        self._jobs, self._most, self._metrics = jobs, most, metrics
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    async def plan(self, model: dict[str, Any], how: dict[str, Any], patience: float) -> Plan | Job:
        """The plan of a model; or the job that solves it, if that takes longer or failed.

        Args:
            model: as a model file has it.
            how: what it is solved for (`SOLVED_BY`).
            patience: seconds to wait.

        Raises:
            ModelError: with every fault of the model.
        """
        body = json.dumps(model).encode()
        digest = sha256(json.dumps(how, sort_keys=True).encode() + b"\n" + body).hexdigest()
        kept = self._plans.get(digest)
        self._metrics.kept.labels("no" if kept is None else "yes").inc()
        if kept is not None:
            self._plans.move_to_end(digest)
            return kept
        await asyncio.to_thread(load, io.BytesIO(body), "json", how["criterion"])  # faults are told before any waiting
        job = self._jobs.submit(Job(f"decide-{digest[:32]}", "decide", how, body=body))
        if not await job.ended(patience) or job.status != "done":
            return job
        return await self._keep(digest, job)

    async def _keep(self, digest: str, job: Job) -> Plan:
        if digest not in self._plans:  # of several that waited for it, the first reads it
            self._plans[digest] = await asyncio.to_thread(read_plan, job.data)
            self._jobs.forget(job.id)
        while len(self._plans) > self._most:
            self._plans.popitem(last=False)
        return self._plans[digest]


def read_plan(body: bytes) -> Plan:
    """The plan in the bytes of its file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "policy.zip"
        file.write_bytes(body)
        return load_plan(file)
