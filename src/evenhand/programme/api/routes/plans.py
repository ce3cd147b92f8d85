"""Decisions without a programme; plans: propose, show, accept; policies and what-ifs."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import NotFoundError
from evenhand.programme.api import schemas
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.routes import accepted, as_table, tagged, unfinished, who_of, written
from evenhand.programme.api.schemas import Key
from evenhand.programme.api.service import service_of
from evenhand.programme.decisions import Accepted, KeptPlan

router = APIRouter(prefix="/v1", tags=["plans"])

PlanNumber = Annotated[schemas.Step, Path(description="The number of a plan.")]
PlanStatus = Literal["proposed", "accepted", "superseded"]
SOLVING: dict[int | str, dict[str, Any]] = {
    202: {"model": schemas.JobStatus, "description": "It is being solved; ask again."}
}


@router.post("/decide", response_model=schemas.Decided, responses={**SOLVING, **schemas.refusals()})
async def decide(payload: schemas.DecideRequest, request: Request) -> JSONResponse:
    """Decide from a model and the states of its arms; only the solved model is stored.

    A model that is new here is solved first. Where that takes long the answer is 202 with the job that solves it; the
    same request is then answered at once.
    """
    service = service_of(request)
    how = {key: getattr(payload, key) for key in ("welfare", "criterion", "over", "method", "seed")}
    plan = await service.plans.plan(payload.model, how, service.settings.patience, request.state.holder)
    if isinstance(plan, Job):
        return unfinished(plan)
    table = as_table(payload.states)

    def act() -> dict[str, Any]:
        return plan.act(table, payload.seed, budget=payload.budget, step=payload.step, part=payload.part).to_dict()

    return JSONResponse(await run_in_threadpool(act))


@router.post("/programme/plan", response_model=KeptPlan, responses={**SOLVING, **schemas.refusals(409)})
async def plan(
    request: Request, payload: Annotated[schemas.PlanRequest | None, Body()] = None, key: Key = None
) -> JSONResponse:
    """Propose a plan for the present step; the same plan again while nothing has changed.

    If no policy can serve the roster, one is solved first; if that takes long, the answer is 202 with its job.
    """
    service, payload = service_of(request), payload or schemas.PlanRequest()
    drift = await run_in_threadpool(service.programme.needs_solving)
    if drift.policy is None and drift.needed:
        job = await service.solve()
        await job.ended(service.settings.patience)
        if job.status != "done":
            return unfinished(job)
    who = who_of(request, payload.who)

    def make() -> dict[str, Any]:
        found = service.programme.plan(step=payload.step, budget=payload.budget, who=who, key=key)
        return service.programme.plan_of(found.plan).to_dict()

    return JSONResponse(await run_in_threadpool(make))


@router.get("/programme/plan", response_model=KeptPlan, responses=schemas.reading(404))
def show_current_plan(request: Request) -> Response:
    """The plan that is proposed for the present step."""
    found = service_of(request).programme.current_plan()
    if found is None:
        raise NotFoundError("no plan is proposed for the present step yet")
    return _tagged(request, found)


@router.get("/programme/plan/{plan}", response_model=KeptPlan, responses=schemas.reading(404))
def show_plan(plan: PlanNumber, request: Request) -> Response:
    """A plan with all its arms."""
    return _tagged(request, service_of(request).programme.plan_of(plan))


def _tagged(request: Request, found: KeptPlan) -> Response:
    return tagged(request, found.to_dict(), f"{found.id}-{found.status}-{found.certificate is not None}")


@router.get("/programme/plans", response_model=schemas.PlanList, responses=schemas.refusals())
def list_plans(
    request: Request,
    status: Annotated[PlanStatus | None, Query(description="Only these.")] = None,
    most: Annotated[schemas.Many, Query(description="At most so many.")] = 100,
) -> JSONResponse:
    """Plans, the newest first, without their arms."""
    found = service_of(request).programme.plans(status, most)
    return JSONResponse({"plans": [one.to_dict() for one in found]})


@router.post("/programme/plan/{plan}/accept", response_model=Accepted, responses=schemas.refusals(404, 409))
def accept(
    plan: PlanNumber,
    request: Request,
    payload: Annotated[schemas.AcceptRequest | None, Body()] = None,
    key: Key = None,
) -> JSONResponse:
    """Accept a plan, perhaps with overrides, which closes its step.

    A plan that was made from less than is known now is refused by 409, with all that changed.
    """
    payload = payload or schemas.AcceptRequest()
    rows = as_table(payload.overrides) if payload.overrides else ()
    return written(request, payload.who, key, lambda programme, **by: programme.accept(plan, rows, **by))


# Policies


@router.post("/programme/solve", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals(409))
async def solve(
    request: Request, payload: Annotated[schemas.SolveRequest | None, Body()] = None, key: Key = None
) -> JSONResponse:
    """Find a policy for the arms that take part now, in the background; plans are made by it from then on."""
    payload = payload or schemas.SolveRequest()
    who = who_of(request, payload.who)
    owner = request.state.holder.name
    return accepted(await service_of(request).solve(payload.method, payload.seconds, who, key, owner))


@router.post("/programme/what-if", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals())
async def what_if(payload: schemas.WhatIfRequest, request: Request) -> JSONResponse:
    """Evaluate another budget or welfare, by type and group; the job's answer is a certificate.

    The plan in use and earlier answers for smaller budgets compete, so that more is never worse. The answer has
    `difference`, the `welfare` beyond the plan in use with its `stderr`, and whether it is `measurable`.
    """
    return accepted(await service_of(request).suppose(payload.model_dump(), request.state.holder.name))
