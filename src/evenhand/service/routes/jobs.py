"""Long computations: how they stand, as they go on, and no longer."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse

from evenhand.service import shapes
from evenhand.service.jobs import Job
from evenhand.service.refusals import Refused
from evenhand.service.state import Service, service_of

BEAT = 10.0
"""Seconds after which an event stream says that it lives."""

router = APIRouter(prefix="/v1", tags=["jobs"])


def _find(request: Request, number: str) -> Job:
    job = service_of(request).jobs.find(number)
    if job is None:
        raise Refused(404, "this job does not exist, or was dropped")
    return job


@router.get("/jobs", response_model=shapes.JobList, responses=shapes.refusals())
async def list_jobs(request: Request) -> JSONResponse:
    """Running, waiting and recently ended jobs."""
    return JSONResponse({"jobs": [job.to_dict() for job in service_of(request).jobs.all()]})


@router.get("/jobs/{job}", response_model=shapes.JobShape, responses=shapes.refusals(404))
async def show_job(job: str, request: Request) -> JSONResponse:
    """Status and result of a job."""
    return JSONResponse(_find(request, job).to_dict())


@router.delete("/jobs/{job}", response_model=shapes.JobShape, responses=shapes.refusals(404))
async def cancel_job(job: str, request: Request) -> JSONResponse:
    """Cancel a computation; one that has ended stays as it is. A token that may only read cancels its own."""
    found, holder = _find(request, job), request.state.holder
    if not (holder.may("write") or found.owner == holder.name):
        raise Refused(403, "this token may cancel only what was begun with it")
    await service_of(request).jobs.cancel(found)
    return JSONResponse(found.to_dict())


@router.get(
    "/jobs/{job}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **shapes.refusals(404)},
)
async def job_events(job: str, request: Request) -> StreamingResponse:
    """Progress of a job as server-sent events: `progress`, and finally `done`, `failed` or `cancelled`."""
    found, service = _find(request, job), service_of(request)
    at_once = {"X-Accel-Buffering": "no"}  # proxies would otherwise wait for more
    return StreamingResponse(_events(found, service), media_type="text/event-stream", headers=at_once)


async def _events(job: Job, service: Service) -> AsyncIterator[str]:
    stopping = asyncio.create_task(service.stopping.wait())
    changes = job.changes(BEAT)
    try:
        while not stopping.done():
            coming = asyncio.ensure_future(anext(changes, _END))
            await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                return
            if (fields := coming.result()) is _END:
                return
            yield ": still there\n\n" if fields is None else _event(fields)
    finally:
        stopping.cancel()


_END: dict[str, Any] = {}


def _event(fields: dict[str, Any]) -> str:
    kind = fields["status"] if fields["status"] in ("done", "failed", "cancelled") else "progress"
    return f"event: {kind}\ndata: {json.dumps(fields)}\n\n"
