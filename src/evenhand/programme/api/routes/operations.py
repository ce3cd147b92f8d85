"""Operation of a server: health, readiness, metrics, and jobs."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from evenhand.errors import EvenhandError
from evenhand.programme.api import schemas
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.problem_details import RETRY_AFTER, RequestError
from evenhand.programme.api.service import Service, service_of

router = APIRouter(tags=["operations"])

log = logging.getLogger("evenhand.programme.api")


class Health(schemas.Strict):
    """Health of a server."""

    status: Literal["ok"]


@router.get("/healthz", responses=schemas.refusals())
async def healthz() -> Health:
    """Liveness. The server may be unable to serve: see `/readyz`."""
    return Health(status="ok")


@router.get("/readyz", responses=schemas.refusals(503))
async def readyz(request: Request) -> Health:
    """Readiness: the programme can be written to. Why it cannot is in the log."""
    try:
        await service_of(request).check_writable()
    except EvenhandError as error:
        log.warning("not ready", extra={"fields": {"error": type(error).__name__, "code": error.code}})
        raise RequestError(503, "not ready", headers={"Retry-After": str(RETRY_AFTER)}) from None
    return Health(status="ok")


@router.get("/metrics", response_class=PlainTextResponse, responses=schemas.refusals())
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _find(request: Request, number: str) -> Job:
    job, holder = service_of(request).jobs.find(number), request.state.holder
    if job is None or (holder.groups is not None and job.owner != holder.name):
        raise RequestError(404, "this job does not exist, or was dropped")
    return job


@router.get("/v1/jobs", response_model=schemas.JobList, responses=schemas.refusals())
async def list_jobs(request: Request) -> JSONResponse:
    """Running, waiting and recently ended jobs."""
    return JSONResponse({"jobs": [job.to_dict() for job in service_of(request).jobs.all()]})


@router.get("/v1/jobs/{job}", response_model=schemas.JobStatus, responses=schemas.refusals(404))
async def show_job(job: str, request: Request) -> JSONResponse:
    """Status and result of a job."""
    return JSONResponse(_find(request, job).to_dict())


@router.delete("/v1/jobs/{job}", response_model=schemas.JobStatus, responses=schemas.refusals(404))
async def cancel_job(job: str, request: Request) -> JSONResponse:
    """Cancel a computation; one that has ended stays as it is. Without the role `plan` a holder cancels its own."""
    found, holder = _find(request, job), request.state.holder
    if not (holder.may("plan") or found.owner == holder.name):
        raise RequestError(403, "this token may cancel only what was begun with it")
    await service_of(request).jobs.cancel(found)
    return JSONResponse(found.to_dict())


@router.get(
    "/v1/jobs/{job}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **schemas.refusals(404)},
)
async def job_events(job: str, request: Request) -> StreamingResponse:
    """Progress of a job as server-sent events: `progress`, and finally `done`, `failed` or `cancelled`."""
    found, service = _find(request, job), service_of(request)
    at_once = {"X-Accel-Buffering": "no"}  # proxies would otherwise wait for more
    return StreamingResponse(_events(found, service), media_type="text/event-stream", headers=at_once)


async def _events(job: Job, service: Service) -> AsyncIterator[str]:
    async for fields in job.changes():
        if service.is_stopping:
            return
        if fields is None:
            yield ": still there\n\n"
        else:
            kind = fields["status"] if job.has_ended else "progress"
            yield f"event: {kind}\ndata: {json.dumps(fields)}\n\n"
