"""A programme: where it stands, who takes part, what was seen and done, what happened."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from evenhand.programme.action_records import Recorded
from evenhand.programme.api import schemas
from evenhand.programme.api.dependencies import Key, as_table, who_of
from evenhand.programme.api.responses import tagged
from evenhand.programme.api.service import service_of
from evenhand.programme.certificates import Certificate
from evenhand.programme.drift_test import DriftBounds
from evenhand.programme.observations import Observed
from evenhand.programme.programme import Changed

router = APIRouter(prefix="/v1/programme", tags=["programme"])


@router.get("", response_model=schemas.ProgrammeStatus, responses=schemas.reading())
def show_programme(request: Request) -> Response:
    """Status of the programme."""
    programme = service_of(request).programme
    status, plan, drift = programme.status(), programme.current_plan_number(), programme.needs_solving()
    offer = programme.offered()
    fields = status.to_dict() | {"plan": plan, "drift": drift.to_dict()}
    fields |= {"bounds": programme.bounds().to_dict(), "offered": None if offer is None else offer.to_dict()}
    return tagged(request, fields, f"{status.events}-{drift.policy or ''}-{len(drift.why)}")


@router.get("/certificate", response_model=Certificate | None, responses=schemas.refusals())
def show_certificate(request: Request) -> JSONResponse:
    """Certificate of the policy in use for the present roster; null without a policy."""
    found = service_of(request).programme.certificate()
    return JSONResponse(None if found is None else found.to_dict())


@router.post("/bounds", response_model=DriftBounds, responses=schemas.refusals(409))
def set_bounds(payload: schemas.BoundsRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say by how much the roster and the model may drift before something is done about it."""
    service = service_of(request)
    found = service.programme.set_bounds(payload.model_dump(exclude={"who"}), who=who_of(request, payload.who), key=key)
    service.look()
    return JSONResponse(found.to_dict())


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
    programme = service_of(request).programme
    tag = f"{programme.status().events}-{step}-{gone}"
    return tagged(request, {"arms": [arm.to_dict() for arm in programme.arms(step, gone)]}, tag)


@router.post("/arms", response_model=Changed, responses=schemas.refusals(409))
def join(payload: schemas.JoinRequest, request: Request, key: Key = None) -> JSONResponse:
    """Let arms take part."""
    service = service_of(request)
    rows = as_table(payload.arms)
    found = service.programme.join(rows, payload.step, who=who_of(request, payload.who), key=key)
    service.look()
    return JSONResponse(found.to_dict())


@router.delete("/arms", response_model=Changed, responses=schemas.refusals(409))
def leave(
    request: Request,
    arm: Annotated[list[schemas.Name], Query(min_length=1, max_length=1000, description="Who leaves; repeatable.")],
    why: Annotated[schemas.Text, Query(description="A reason.")],
    who: Annotated[str | None, Query(max_length=200, description="Written into the event.")] = None,
    key: Key = None,
) -> JSONResponse:
    """Let arms take part no longer, from the present step on."""
    service = service_of(request)
    found = service.programme.leave(arm, why, who=who_of(request, who), key=key)
    service.look()
    return JSONResponse(found.to_dict())


# What was seen, and done


@router.post("/observations", response_model=Observed, responses=schemas.refusals(409))
def observe(payload: schemas.ObserveRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say in which states arms were seen; late and corrected reports are stored beside the old ones."""
    programme, who = service_of(request).programme, who_of(request, payload.who)
    found = programme.observe(as_table(payload.observations), payload.source, step=payload.step, who=who, key=key)
    return JSONResponse(found.to_dict())


@router.post("/records", response_model=Recorded, responses=schemas.refusals(409))
def record(payload: schemas.RecordRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say what was really done; late and corrected records are stored beside the old ones."""
    programme, who = service_of(request).programme, who_of(request, payload.who)
    found = programme.record(as_table(payload.records), payload.source, who=who, key=key)
    return JSONResponse(found.to_dict())
