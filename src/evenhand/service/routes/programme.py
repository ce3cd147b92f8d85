"""A programme: where it stands, who takes part, what was seen and done, what happened."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from evenhand.service import shapes
from evenhand.service.answers import tagged
from evenhand.service.asking import Key, as_table, who_of
from evenhand.service.state import service_of

router = APIRouter(prefix="/v1/programme", tags=["programme"])


@router.get("", response_model=shapes.ProgrammeShape, responses=shapes.reading())
def show_programme(request: Request) -> Response:
    """What the programme is, and where it stands."""
    programme = service_of(request).programme
    status, plan, drift = programme.status(), programme.current_plan_number(), programme.needs_solving()
    offer = programme.offered()
    told = status.as_dict() | {"plan": plan, "drift": drift.as_dict()}
    told |= {"bounds": programme.bounds().as_dict(), "offered": None if offer is None else offer.as_dict()}
    return tagged(request, told, f"{status.events}-{drift.policy or ''}-{len(drift.why)}")


@router.get("/certificate", response_model=shapes.Certificate | None, responses=shapes.refusals())
def show_certificate(request: Request) -> JSONResponse:
    """What the present policy is worth for those who take part; null where none was found yet."""
    found = service_of(request).programme.certificate()
    return JSONResponse(None if found is None else found.as_dict())


@router.post("/bounds", response_model=shapes.Bounds, responses=shapes.refusals(409))
def set_bounds(asked: shapes.BoundsRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say by how much the roster and the model may drift before something is done about it."""
    service = service_of(request)
    found = service.programme.set_bounds(asked.model_dump(exclude={"who"}), who=who_of(request, asked.who), key=key)
    service.look()
    return JSONResponse(found.as_dict())


@router.get("/events", response_model=shapes.EventList, responses=shapes.refusals())
def list_events(
    request: Request,
    after: Annotated[shapes.Step, Query(description="Only events with a larger number.")] = 0,
    most: Annotated[shapes.Many, Query(description="At most so many.")] = 100,
) -> JSONResponse:
    """What happened, one after the other."""
    found = service_of(request).programme.events(after, most)
    return JSONResponse({"events": [vars(event) for event in found]})


# Arms


@router.get("/arms", response_model=shapes.ArmList, responses=shapes.reading())
def list_arms(
    request: Request,
    step: Annotated[shapes.Step | None, Query(description="At this step; the present one when absent.")] = None,
    gone: Annotated[shapes.Flag, Query(description="Also those who take part no longer, or not yet.")] = False,
) -> Response:
    """Who takes part."""
    programme = service_of(request).programme
    tag = f"{programme.status().events}-{step}-{gone}"
    return tagged(request, {"arms": [arm.as_dict() for arm in programme.arms(step, gone)]}, tag)


@router.post("/arms", response_model=shapes.Changed, responses=shapes.refusals(409))
def join(asked: shapes.JoinRequest, request: Request, key: Key = None) -> JSONResponse:
    """Let arms take part."""
    service = service_of(request)
    rows = as_table(asked.arms)
    found = service.programme.join(rows, asked.step, who=who_of(request, asked.who), key=key)
    service.look()
    return JSONResponse(found.as_dict())


@router.delete("/arms", response_model=shapes.Changed, responses=shapes.refusals(409))
def leave(
    request: Request,
    arm: Annotated[list[shapes.Name], Query(min_length=1, max_length=1000, description="Who leaves; repeatable.")],
    why: Annotated[shapes.Text, Query(description="A reason.")],
    who: Annotated[str | None, Query(max_length=200, description="Written into the event.")] = None,
    key: Key = None,
) -> JSONResponse:
    """Let arms take part no longer, from the present step on."""
    service = service_of(request)
    found = service.programme.leave(arm, why, who=who_of(request, who), key=key)
    service.look()
    return JSONResponse(found.as_dict())


# What was seen, and done


@router.post("/observations", response_model=shapes.Observed, responses=shapes.refusals(409))
def observe(asked: shapes.ObserveRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say in which states arms were seen; late and corrected reports are kept beside the old ones."""
    programme, who = service_of(request).programme, who_of(request, asked.who)
    found = programme.observe(as_table(asked.observations), asked.source, step=asked.step, who=who, key=key)
    return JSONResponse(found.as_dict())


@router.post("/records", response_model=shapes.Recorded, responses=shapes.refusals(409))
def record(asked: shapes.RecordRequest, request: Request, key: Key = None) -> JSONResponse:
    """Say what was really done; late and corrected records are kept beside the old ones."""
    programme, who = service_of(request).programme, who_of(request, asked.who)
    found = programme.record(as_table(asked.records), asked.source, who=who, key=key)
    return JSONResponse(found.as_dict())
