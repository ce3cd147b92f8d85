"""Plans: propose, show, accept; policies and what-ifs."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import NotFoundError
from evenhand.programme.acceptance import Accepted
from evenhand.programme.api import schemas
from evenhand.programme.api.dependencies import Key, as_table, who_of
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.responses import accepted, failed, tagged
from evenhand.programme.api.service import Service, service_of
from evenhand.programme.decisions import KeptPlan

router = APIRouter(prefix="/v1/programme", tags=["plans"])

PlanNumber = Annotated[schemas.Step, Path(description="The number of a plan.")]
PlanStatus = Literal["proposed", "accepted", "superseded"]
SOLVING: dict[int | str, dict[str, Any]] = {
    202: {"model": schemas.JobStatus, "description": "A policy is being found; ask again."}
}


@router.post("/plan", response_model=KeptPlan, responses={**SOLVING, **schemas.refusals(409)})
async def plan(
    request: Request, payload: Annotated[schemas.PlanRequest | None, Body()] = None, key: Key = None
) -> JSONResponse:
    """Propose a plan for the present step; the same plan again while nothing has changed.

    If no policy can serve the roster, one is solved first; if that takes long, the answer is 202 with its job.
    """
    service, payload = service_of(request), payload or schemas.PlanRequest()
    job = await _policy(service)
    if job is not None:
        return accepted(job) if not job.has_ended else failed(job)
    who = who_of(request, payload.who)

    def make() -> dict[str, Any]:
        found = service.programme.plan(step=payload.step, budget=payload.budget, who=who, key=key)
        return service.programme.plan_of(found.plan).to_dict()

    return JSONResponse(await run_in_threadpool(make))


async def _policy(service: Service) -> Job | None:
    """The job that looks for a policy, if there is none yet and it takes long or failed."""
    drift = await run_in_threadpool(service.programme.needs_solving)
    if drift.policy is not None or not drift.needed:
        return None
    job = await service.solver.solve()
    await job.ended(service.settings.patience)
    return None if job.status == "done" else job


@router.get("/plan", response_model=KeptPlan, responses=schemas.reading(404))
def show_current_plan(request: Request) -> Response:
    """The plan that is proposed for the present step."""
    found = service_of(request).programme.current_plan()
    if found is None:
        raise NotFoundError("no plan is proposed for the present step yet")
    return _told(request, found)


@router.get("/plan/{plan}", response_model=KeptPlan, responses=schemas.reading(404))
def show_plan(plan: PlanNumber, request: Request) -> Response:
    """A plan with all its arms."""
    return _told(request, service_of(request).programme.plan_of(plan))


def _told(request: Request, found: KeptPlan) -> Response:
    return tagged(request, found.to_dict(), f"{found.id}-{found.status}-{found.certificate is not None}")


@router.get("/plans", response_model=schemas.PlanList, responses=schemas.refusals())
def list_plans(
    request: Request,
    status: Annotated[PlanStatus | None, Query(description="Only these.")] = None,
    most: Annotated[schemas.Many, Query(description="At most so many.")] = 100,
) -> JSONResponse:
    """Plans, the newest first, without their arms."""
    found = service_of(request).programme.plans(status, most)
    return JSONResponse({"plans": [one.to_dict() for one in found]})


@router.post("/plan/{plan}/accept", response_model=Accepted, responses=schemas.refusals(404, 409))
def accept(
    plan: PlanNumber,
    request: Request,
    payload: Annotated[schemas.AcceptRequest | None, Body()] = None,
    key: Key = None,
) -> JSONResponse:
    """Accept a plan, perhaps with overrides, which closes its step.

    A plan that was made from less than is known now is refused by 409, with all that changed.
    """
    service, payload = service_of(request), payload or schemas.AcceptRequest()
    overrides = as_table(payload.overrides) if payload.overrides else ()
    found = service.programme.accept(plan, overrides, who=who_of(request, payload.who), key=key)
    service.look()
    return JSONResponse(found.to_dict())


# Policies


@router.post("/solve", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals(409))
async def solve(
    request: Request, payload: Annotated[schemas.SolveRequest | None, Body()] = None, key: Key = None
) -> JSONResponse:
    """Find a policy for the arms that take part now, in the background; plans are made by it from then on."""
    payload = payload or schemas.SolveRequest()
    who = who_of(request, payload.who)
    owner = request.state.holder.name
    return accepted(await service_of(request).solver.solve(payload.method, payload.seconds, who, key, owner))


@router.post("/what-if", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals())
async def what_if(payload: schemas.WhatIfRequest, request: Request) -> JSONResponse:
    """Evaluate another budget or welfare, by type and group; the job's answer is a certificate.

    The plan in use and earlier answers for smaller budgets compete, so that more is never worse. The answer has
    `difference`, the `welfare` beyond the plan in use with its `stderr`, and whether it is `measurable`.
    """
    return accepted(await service_of(request).suppose(payload.model_dump(), request.state.holder.name))
