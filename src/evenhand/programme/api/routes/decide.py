"""Deciding without a programme."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from evenhand.programme.api import schemas
from evenhand.programme.api.dependencies import as_table
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.plan_cache import SOLVED_BY
from evenhand.programme.api.responses import accepted, failed
from evenhand.programme.api.service import service_of

router = APIRouter(prefix="/v1", tags=["decide"])


@router.post(
    "/decide",
    response_model=schemas.Decided,
    responses={
        202: {"model": schemas.JobStatus, "description": "It is being solved; ask again."},
        **schemas.refusals(),
    },
)
async def decide(payload: schemas.DecideRequest, request: Request) -> JSONResponse:
    """Decide from a model and the states of its arms; only the solved model is stored.

    A model that is new here is solved first. Where that takes long the answer is 202 with the job that solves it; the
    same request is then answered at once.
    """
    service = service_of(request)
    how = {key: getattr(payload, key) for key in SOLVED_BY}
    plan = await service.decider.plan(payload.model, how, service.settings.patience, request.state.holder)
    if isinstance(plan, Job):
        return accepted(plan) if not plan.has_ended else failed(plan)
    table = as_table(payload.states)

    def act() -> dict[str, Any]:
        return plan.act(table, payload.seed, budget=payload.budget, step=payload.step, part=payload.part).to_dict()

    return JSONResponse(await run_in_threadpool(act))
