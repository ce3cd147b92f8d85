"""Decisions without a programme; a programme: status, roster, reports, plans, policies, what-ifs, audits and refits."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import NotFoundError
from evenhand.programme.api import schemas
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.routes import accepted, as_table, check_undo, key_of, tagged, unfinished, who_of, written
from evenhand.programme.api.schemas import Key
from evenhand.programme.api.service import programme_of, service_of
from evenhand.programme.audit import Audit, NeedSet
from evenhand.programme.certificates import Certificate
from evenhand.programme.changes import ChangeAdopted, Undone
from evenhand.programme.decisions import Accepted, StoredPlan
from evenhand.programme.drift_test import DriftBounds
from evenhand.programme.past_records import Imported
from evenhand.programme.programme import Changed
from evenhand.programme.refit import Refitted
from evenhand.programme.reports import Observed, Recorded
from evenhand.programme.safeguards import Approved, Erased

decisions = APIRouter(prefix="/v1", tags=["decisions"])
router = APIRouter(prefix="/v1/programme", tags=["programme"])

PlanNumber = Annotated[schemas.Step, Path(description="The number of a plan.")]
PlanStatus = Literal["proposed", "accepted", "superseded"]
SOLVING: dict[int | str, dict[str, Any]] = {
    202: {"model": schemas.JobStatus, "description": "The solution is running; repeat the request later."}
}


# Decisions without a programme


@decisions.post("/decide", response_model=schemas.Decided, responses={**SOLVING, **schemas.refusals()})
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


# Status


@router.get("", response_model=schemas.ProgrammeStatus, responses=schemas.reading())
def show_programme(request: Request) -> Response:
    """Status of the programme."""
    programme = service_of(request).programme
    found, drift = programme.overview(), programme.needs_solving()
    fields = found.status.to_dict() | {"plan": found.plan, "drift": drift.to_dict(), "bounds": found.bounds.to_dict()}
    fields["offered"] = None if found.offer is None else found.offer.to_dict()
    return tagged(request, fields)


@router.get("/certificate", response_model=Certificate | None, responses=schemas.refusals())
def show_certificate(request: Request) -> JSONResponse:
    """Certificate of the policy in use for the present roster; null without a policy."""
    found = service_of(request).programme.certificate()
    return JSONResponse(None if found is None else found.to_dict())


@router.post("/bounds", response_model=DriftBounds, responses=schemas.refusals(409))
def set_bounds(payload: schemas.BoundsRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say by how much the roster and the model may drift before something is done about it."""
    bounds = payload.model_dump(exclude={"who"})
    return written(request, payload.who, key, lambda programme, **by: programme.set_bounds(bounds, **by))


@router.post("/need", response_model=NeedSet, responses=schemas.refusals(409))
def set_need(payload: schemas.NeedRequest, request: Request, key: Key = None) -> JSONResponse:
    """Set the states in which an arm is in need, for audits and times in need."""
    return written(request, payload.who, key, lambda programme, **by: programme.set_need(payload.states, **by))


@router.get("/words", response_model=schemas.ProgrammeWords, responses=schemas.refusals())
def show_words(request: Request) -> JSONResponse:
    """Words and calendar of the programme; fields of other answers stay as they are."""
    return JSONResponse(service_of(request).programme.vocabulary().to_dict())


@router.put("/words", response_model=schemas.ProgrammeWords, responses=schemas.refusals(409))
def set_words(payload: schemas.WordsRequest, request: Request, key: Key = None) -> JSONResponse:
    """Change words or the calendar of the programme; what is absent stays."""
    words = payload.model_dump(exclude={"who"}, exclude_unset=True)
    return written(request, payload.who, key, lambda programme, **by: programme.set_words(words, **by))


@router.get("/events", response_model=schemas.EventList, responses=schemas.refusals())
def list_events(
    request: Request,
    after: Annotated[schemas.Step, Query(description="Only events with a larger number.")] = 0,
    most: Annotated[schemas.Many, Query(description="At most so many.")] = 100,
) -> JSONResponse:
    """Events in order."""
    found = service_of(request).programme.events(after, most)
    return JSONResponse({"events": [vars(event) for event in found]})


# Arms


@router.get("/arms", response_model=schemas.ArmList, responses=schemas.reading())
def list_arms(
    request: Request,
    step: Annotated[schemas.Step | None, Query(description="At this step; by default the present one.")] = None,
    gone: Annotated[schemas.Flag, Query(description="Also the arms that take part no longer, or not yet.")] = False,
) -> Response:
    """Arms that take part."""
    return tagged(request, {"arms": [arm.to_dict() for arm in programme_of(request).arms(step, gone)]})


@router.post("/arms", response_model=Changed, responses=schemas.refusals(409))
def join(payload: schemas.JoinRequest, request: Request, key: Key = None) -> JSONResponse:
    """Let arms take part."""
    rows = as_table(payload.arms)
    return written(request, payload.who, key, lambda programme, **by: programme.join(rows, payload.step, **by))


@router.delete("/arms", response_model=Changed, responses=schemas.refusals(409))
def leave(
    request: Request,
    arm: Annotated[list[schemas.Name], Query(min_length=1, max_length=1000, description="Who leaves; repeatable.")],
    why: Annotated[schemas.Text, Query(description="A reason.")],
    who: Annotated[str | None, Query(max_length=200, description="Written into the event.")] = None,
    key: Key = None,
) -> JSONResponse:
    """Let arms take part no longer, from the present step on."""
    return written(request, who, key, lambda programme, **by: programme.leave(arm, why, **by))


# What was seen, and done


@router.post("/observations", response_model=Observed, responses=schemas.refusals(409))
def observe(payload: schemas.ObserveRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say in which states arms were seen; late and corrected reports are stored beside the old ones."""
    rows, how = as_table(payload.observations), payload.model_dump(include={"source", "step", "confirmed"})
    return written(request, payload.who, key, lambda programme, **by: programme.observe(rows, **how, **by))


@router.post("/records", response_model=Recorded, responses=schemas.refusals(409))
def record(payload: schemas.RecordRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say what was really done; late and corrected records are stored beside the old ones."""
    rows, how = as_table(payload.records), payload.model_dump(include={"source", "confirmed"})
    return written(request, payload.who, key, lambda programme, **by: programme.record(rows, **how, **by))


@router.post("/history", response_model=Imported, responses=schemas.refusals(409))
def import_history(payload: schemas.HistoryRequest, request: Request, key: Key = None) -> JSONResponse:
    """Store records from before the programme, at steps before 0, so that last services and waits are right."""
    rows, source = as_table(payload.records), payload.source
    return written(request, payload.who, key, lambda programme, **by: programme.import_history(rows, source, **by))


@router.post("/events/{event}/undo", response_model=Undone, responses=schemas.refusals(404, 409))
def undo(
    event: Annotated[schemas.Step, Path(description="Its number.")],
    request: Request,
    payload: schemas.UndoRequest = schemas.UndoRequest(),
    key: Key = None,
) -> JSONResponse:
    """Let an upload, a record, an acceptance, a join or a lasting change count no longer; nothing is deleted.

    It needs the role of the event that is undone. Where others rest on it, the answer is 409 with the events to undo
    first.
    """
    check_undo(request, event)
    return written(request, payload.who, key, lambda programme, **by: programme.undo(event, payload.why, **by))


# Lasting changes


@router.post("/changes/preview", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals())
async def preview_change(payload: schemas.PreviewRequest, request: Request) -> JSONResponse:
    """Evaluate a lasting change: the job's answer has the welfare before and after, and the values by group."""
    arguments = {"given": payload.given, "seconds": payload.seconds}
    return accepted(await service_of(request).preview_change(arguments, request.state.holder.name))


@router.post("/changes", response_model=ChangeAdopted, responses=schemas.refusals(409))
def change(payload: schemas.AdoptRequest, request: Request, key: Key = None) -> JSONResponse:
    """Adopt a lasting change of budget, welfare or groups, which holds from a step on."""
    given, why = payload.given, payload.why
    return written(request, payload.who, key, lambda programme, **by: programme.change(given, why=why, **by))


# Plans


@router.post("/plan", response_model=StoredPlan, responses={**SOLVING, **schemas.refusals(409)})
async def plan(request: Request, payload: schemas.PlanRequest = schemas.PlanRequest(), key: Key = None) -> JSONResponse:
    """Propose a plan for the present step; the same plan again while nothing has changed.

    If no policy can serve the roster, one is solved first; if that takes long, the answer is 202 with its job.
    """
    service = service_of(request)
    if (job := await service.missing_policy()) is not None:
        await job.ended(service.settings.patience)
        if job.status != "done":
            return unfinished(job)
    who = who_of(request, payload.who)

    def make() -> dict[str, Any]:
        found = service.programme.plan(step=payload.step, budget=payload.budget, who=who, key=key_of(request, key))
        return service.programme.plan_of(found.plan).to_dict()

    return JSONResponse(await run_in_threadpool(make))


@router.get("/plan", response_model=StoredPlan, responses=schemas.reading(404))
def show_current_plan(request: Request) -> Response:
    """The plan that is proposed for the present step."""
    found = programme_of(request).current_plan()
    if found is None:
        raise NotFoundError("no plan is proposed for the present step yet")
    return tagged(request, found.to_dict())


@router.get("/plan/{plan}", response_model=StoredPlan, responses=schemas.reading(404))
def show_plan(plan: PlanNumber, request: Request) -> Response:
    """A plan with all its arms."""
    return tagged(request, programme_of(request).plan_of(plan).to_dict())


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
    payload: schemas.AcceptRequest = schemas.AcceptRequest(),
    key: Key = None,
) -> JSONResponse:
    """Accept a plan, perhaps with overrides, which closes its step.

    A plan that was made from less than is known now is refused by 409, with all that changed.
    """
    rows = as_table(payload.overrides) if payload.overrides else ()
    by_name = {"holder": request.state.holder.name}
    return written(request, payload.who, key, lambda programme, **by: programme.accept(plan, rows, **by_name, **by))


@router.post("/plan/{plan}/approve", response_model=Approved, responses=schemas.refusals(404, 409))
def approve(plan: PlanNumber, request: Request, payload: schemas.Who = schemas.Who(), key: Key = None) -> JSONResponse:
    """Approve a plan with more than the usual budget, so that another person can accept it."""
    by_name = {"holder": request.state.holder.name}
    return written(request, payload.who, key, lambda programme, **by: programme.approve(plan, **by_name, **by))


# Policies


@router.post("/solve", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals(409))
async def solve(
    request: Request, payload: schemas.SolveRequest = schemas.SolveRequest(), key: Key = None
) -> JSONResponse:
    """Find a policy for the arms that take part now, in the background; plans are made by it from then on."""
    who = who_of(request, payload.who)
    owner = request.state.holder.name
    return accepted(await service_of(request).solve(payload.method, payload.seconds, who, key_of(request, key), owner))


@router.post("/what-if", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals())
async def what_if(payload: schemas.WhatIfRequest, request: Request) -> JSONResponse:
    """Evaluate another budget or welfare, by type and group; the job's answer is a certificate.

    The plan in use and earlier answers for smaller budgets compete, so that more is never worse. The answer has
    `difference`, the `welfare` beyond the plan in use with its `stderr`, and whether it is `measurable`.
    """
    return accepted(await service_of(request).suppose(payload.model_dump(), request.state.holder.name))


@router.post("/fairness", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals())
async def price_of_fairness(
    request: Request, payload: schemas.FairnessRequest = schemas.FairnessRequest()
) -> JSONResponse:
    """Find the best plan per idea of fairness, and recommend one; the job's answer is the price of fairness.

    It has the mean over arms, the value of each group, who gains and loses in arms, and the reason.
    """
    given = {name: value for name, value in payload.model_dump().items() if value is not None}
    service, family = service_of(request), given.pop("welfares", None)
    given |= {} if family is None else {"family": family}
    return accepted(service.jobs.submit(await service.price(request.state.holder.name, **given)))


# History and audits


@router.get("/history", response_model=schemas.History, responses=schemas.refusals(404))
def show_history(request: Request, arm: Annotated[schemas.Name, Query(description="Whose.")]) -> JSONResponse:
    """All that happened to an arm, and what was expected."""
    programme = programme_of(request)
    if not programme.arms(gone=True, names=[arm]):
        raise NotFoundError("unknown arm")
    entries = [entry.to_dict() for entry in programme.history(arm)]
    programme.note_view(arm, request.state.holder.name)
    return JSONResponse({"arm": arm, "entries": entries})


@router.get("/views", response_model=schemas.ViewList, responses=schemas.refusals())
def list_views(
    request: Request,
    arm: Annotated[schemas.Name | None, Query(description="Only of this one.")] = None,
    most: Annotated[schemas.Many, Query(description="At most so many.")] = 100,
) -> JSONResponse:
    """Who looked at whom, the newest first, if that is logged."""
    return JSONResponse({"views": [one.to_dict() for one in service_of(request).programme.views(arm, most)]})


@router.post("/erase", response_model=Erased, responses=schemas.refusals(409))
def erase(payload: schemas.EraseRequest, request: Request, key: Key = None) -> JSONResponse:
    """Replace the names of arms that left, and reasons about them, by pseudonyms, for good."""
    which = {"names": payload.arms, "older_than": payload.older_than}
    try:
        return written(request, payload.who, key, lambda programme, **by: programme.erase(**which, **by))
    finally:  # also if traces are left
        service_of(request).forget_erased()


@router.get("/audit", response_model=Audit, responses=schemas.refusals())
def show_audit(
    request: Request,
    first: Annotated[schemas.Step | None, Query(description="The first step; by default of all.")] = None,
    last: Annotated[schemas.Step | None, Query(description="The last step; by default of all.")] = None,
) -> JSONResponse:
    """Audit a window of steps: who was in need and not served, services and rewards against their promises."""
    found = service_of(request).programme.audit(first, last)
    return JSONResponse(found.to_dict())


# Refits


@router.get("/refits", response_model=schemas.RefitList, responses=schemas.refusals())
def list_refits(request: Request) -> JSONResponse:
    """Models that were fitted to the programme's own records, the newest first."""
    found = service_of(request).programme.refits()
    return JSONResponse({"refits": [one.to_dict() for one in found]})


@router.post("/refits", response_model=schemas.JobStatus, status_code=202, responses=schemas.refusals(409))
async def refit(
    request: Request, payload: schemas.RefitRequest = schemas.RefitRequest(), key: Key = None
) -> JSONResponse:
    """Refit the model, in the background; the job's answer lists the changes. Nothing is adopted."""
    arguments = payload.model_dump() | {"who": who_of(request, payload.who), "key": key_of(request, key)}
    return accepted(await service_of(request).refit(arguments, request.state.holder.name))


@router.post("/refits/{refit}/adopt", response_model=Refitted, responses=schemas.refusals(404, 409))
def adopt(
    refit: Annotated[schemas.Step, Path(description="Its number.")],
    request: Request,
    payload: schemas.Who = schemas.Who(),
    key: Key = None,
) -> JSONResponse:
    """Run the programme by a model that was fitted, or was in use before; 0 is the one that it began with."""
    return written(request, payload.who, key, lambda programme, **by: programme.adopt(refit, **by))


@router.post("/refits/{refit}/decline", response_model=Refitted, responses=schemas.refusals(404, 409))
def decline(
    refit: Annotated[schemas.Step, Path(description="Its number.")],
    payload: schemas.DeclineRequest,
    request: Request,
    key: Key = None,
) -> JSONResponse:
    """Say that a fit that is offered is not to be adopted; only what is seen later is held against the model then."""
    return written(request, payload.who, key, lambda programme, **by: programme.decline(refit, payload.why, **by))
