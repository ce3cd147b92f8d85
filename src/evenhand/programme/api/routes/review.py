"""Looking back, and learning from it: one arm's history, audits, refits."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from evenhand.errors import NotFoundError
from evenhand.programme.api import schemas
from evenhand.programme.api.dependencies import Key, who_of
from evenhand.programme.api.jobs import Job, name_of
from evenhand.programme.api.responses import accepted
from evenhand.programme.api.service import service_of
from evenhand.programme.refit import Refitted

router = APIRouter(prefix="/v1/programme", tags=["past"])


@router.get("/history", response_model=schemas.History, responses=schemas.refusals(404))
def show_history(request: Request, arm: Annotated[schemas.Name, Query(description="Whose.")]) -> JSONResponse:
    """All that happened to an arm, and what was expected."""
    programme = service_of(request).programme
    if arm not in {one.name for one in programme.arms(gone=True)}:
        raise NotFoundError("unknown arm")
    return JSONResponse({"arm": arm, "entries": [entry.to_dict() for entry in programme.history(arm)]})


@router.get("/audit", response_model=schemas.AuditSummary, responses=schemas.refusals())
def show_audit(
    request: Request,
    first: Annotated[schemas.Step | None, Query(description="The first step; by default of all.")] = None,
    last: Annotated[schemas.Step | None, Query(description="The last step; by default of all.")] = None,
) -> JSONResponse:
    """Audit a window of steps: service and waiting times, promised and realised rewards."""
    found = service_of(request).programme.audit(first, last)
    return JSONResponse(found.to_dict())


# Learning


@router.get("/refits", response_model=schemas.RefitList, responses=schemas.refusals())
def list_refits(request: Request) -> JSONResponse:
    """Models that were fitted to the programme's own records, the newest first."""
    found = service_of(request).programme.refits()
    return JSONResponse({"refits": [one.to_dict() for one in found]})


@router.post("/refits", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals(409))
async def refit(
    request: Request, payload: Annotated[schemas.RefitRequest | None, Body()] = None, key: Key = None
) -> JSONResponse:
    """Refit the model, in the background; the job's answer lists the changes. Nothing is adopted."""
    service, payload = service_of(request), payload or schemas.RefitRequest()
    how = payload.model_dump(exclude={"who"})
    version = (await run_in_threadpool(service.programme.status)).events
    address = service.programme.store.full_address
    secret = {"address": address, "who": who_of(request, payload.who), "key": key}
    job = Job(name_of("refit", version, how), "refit", how, secret, owner=request.state.holder.name)
    return accepted(service.jobs.submit(job))


@router.post("/refits/{refit}/adopt", response_model=Refitted, responses=schemas.refusals(404, 409))
def adopt(
    refit: Annotated[schemas.Step, Path(description="Its number.")],
    request: Request,
    payload: Annotated[schemas.Who | None, Body()] = None,
    key: Key = None,
) -> JSONResponse:
    """Run the programme by a model that was fitted, or was in use before; 0 is the one that it began with."""
    service = service_of(request)
    found = service.programme.adopt(refit, who=who_of(request, payload.who if payload else None), key=key)
    service.look()
    return JSONResponse(found.to_dict())


@router.post("/refits/{refit}/decline", response_model=Refitted, responses=schemas.refusals(404, 409))
def decline(
    refit: Annotated[schemas.Step, Path(description="Its number.")],
    payload: schemas.DeclineRequest,
    request: Request,
    key: Key = None,
) -> JSONResponse:
    """Say that a fit that is offered is not to be adopted; only what is seen later is held against the model then."""
    found = service_of(request).programme.decline(refit, payload.why, who=who_of(request, payload.who), key=key)
    return JSONResponse(found.to_dict())
