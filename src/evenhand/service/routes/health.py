"""Health, readiness and metrics of a server."""

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.service import shapes
from evenhand.service.state import service_of

router = APIRouter(tags=["health"])


class Health(shapes.Strict):
    """Health of a server."""

    status: Literal["ok"]


@router.get("/healthz", responses=shapes.refusals())
async def healthz() -> Health:
    """Liveness. The server may be unable to serve: see `/readyz`."""
    return Health(status="ok")


@router.get("/readyz", responses=shapes.refusals(503))
async def readyz(request: Request) -> Health:
    """Readiness: the programme answers."""
    await run_in_threadpool(service_of(request).programme.status)
    return Health(status="ok")


@router.get("/metrics", response_class=PlainTextResponse, responses=shapes.refusals())
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
