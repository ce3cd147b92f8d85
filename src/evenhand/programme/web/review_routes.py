"""The addresses of fairness, of what-if, and of the model: looking back, ahead, and at what plans are made by."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError, InvalidInputError
from evenhand.model.objective import read_welfare
from evenhand.programme.api.jobs import Job, name_of
from evenhand.programme.api.problem_details import ErrorView, status_of
from evenhand.programme.api.service import service_of
from evenhand.programme.audit import audit_of
from evenhand.programme.audit_report import audit_page, audit_page_summary
from evenhand.programme.certificates import numbers_of
from evenhand.programme.refit import TRUST
from evenhand.programme.web import counterfactual_view, model_view
from evenhand.programme.web.event_messages import told_event
from evenhand.programme.web.form_errors import refusal_of
from evenhand.programme.web.layout import (
    Sending,
    arm_address,
    budget_of,
    frame_of,
    number_of,
    programme_of,
    query_of,
    remembers,
    show,
    to,
    typed_name,
    work_of,
    writer_of,
)

router = APIRouter(include_in_schema=False)

SECONDS = 45.0
"""Approximate limit of computing the price of fairness or a refit, in seconds."""

LAST = "evenhand_what_if"
"""The cookie in which a browser keeps what was supposed last, so that the answer is there when one comes back."""

PRICED = {"seconds": SECONDS}
"""Request of the price of fairness."""


def _job(request: Request, number: str) -> Job | None:
    return service_of(request).jobs.find(number)


def _failed(job: Job | None, what: str) -> ErrorView | None:
    """Return the error of a job that failed or was cancelled."""
    if job is None or not job.has_ended or job.status == "done":
        return None
    if job.status == "cancelled":
        return ErrorView(what, (f"It was stopped: {job.message}.",), "Ask for it again.")
    fields = job.failed or {"detail": job.message, "faults": []}
    faults = tuple(str(fault["message"]) for fault in fields["faults"]) or (str(fields["detail"]),)
    return ErrorView(what, faults, "Change the request and repeat it.")


async def _begin(request: Request, kind: str, payload: dict[str, Any], secret: dict[str, Any]) -> Job:
    """Begin long work, or join it where it is under way or done already."""
    service = service_of(request)
    where = {"address": service.programme.store.full_address}
    name = await run_in_threadpool(_name, request, kind, payload)
    return service.jobs.submit(Job(name, kind, payload, where | secret, owner=request.state.holder.name))


def _name(request: Request, kind: str, payload: dict[str, Any]) -> str:
    """Return the identifier of a job about the present model and roster."""
    programme = programme_of(request)
    status = programme.status()
    numbers = [list(row) for row in numbers_of(programme.arms())]
    return name_of(kind, status.model, numbers, status.welfare, payload)


def _frame(request: Request, view: str) -> Any:
    status = programme_of(request).status()
    return frame_of(request, view, status.name, status.events)


# Fairness


@router.get("/fairness")
async def show_fairness(request: Request) -> Response:
    """Show promised and realised values of groups, waiting times, and the price of fairness."""
    job = _job(request, await run_in_threadpool(_name, request, "price", PRICED))
    return await run_in_threadpool(_fairness, request, job)


def _fairness(request: Request, job: Job | None) -> Response:
    query, refusal, audit, view, nothing, status = query_of(request), None, None, None, "", 200
    try:
        first, last = (_step(query.text(name)) for name in ("first", "last"))
        books = programme_of(request).books(first, last)
        audit = audit_of(books)
        view = audit_page_summary(audit, books, programme_of(request).status().name)
    except EvenhandError as error:
        nothing = f"There is nothing to look back on yet: {error}."
        if query.text("first") or query.text("last"):
            refusal, status = refusal_of(error, "These steps cannot be audited"), status_of(error)
    facts = {
        "title": "Fairness",
        "frame": _frame(request, "/fairness"),
        "audit": audit,
        "view": view,
        "nothing": nothing,
        "refusal": refusal or (_failed(job, "The price of fairness was not computed") if query.text("job") else None),
        "job": work_of(job, "The price of fairness is being computed", "/fairness"),
        "price": counterfactual_view.price_section(job.answer) if job is not None and job.answer else None,
        "arm_address": arm_address,
    }
    return show("fairness.html", facts, status)


def _step(text: str) -> int | None:
    """A step of an address; None where there is none."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidInputError(f"a step is a whole number from 0, not {text[:40]!r}")
    return int(text)


@router.get("/fairness/report")
def report(request: Request) -> Response:
    """The report of a span, as a file."""
    query = query_of(request)
    first, last = (_step(query.text(name)) for name in ("first", "last"))
    books = programme_of(request).books(first, last)
    page = audit_page(audit_of(books), books, programme_of(request).status().name)
    return Response(page, media_type="text/html", headers={"Content-Disposition": 'attachment; filename="report.html"'})


@router.post("/fairness/price")
async def price(request: Request, form: Sending) -> Response:
    """Compute what fairness costs, in the background."""
    job = await _begin(request, "price", PRICED, {})
    return to("/fairness", job=job.id)


# What if


@router.get("/what-if")
async def show_what_if(request: Request) -> Response:
    """Other budgets, another idea of fairness."""
    query = query_of(request).text("job")
    job = _job(request, query or request.cookies.get(LAST, ""))
    return await run_in_threadpool(_what_if, request, job if query or (job is not None and job.answer) else None)


def _what_if(
    request: Request,
    job: Job | None,
    refusal: ErrorView | None = None,
    payload: dict[str, Any] | None = None,
    status: int = 200,
) -> Response:
    found = job.answer if job is not None and job.kind == "what-if" else None
    view = counterfactual_view.show_what_if(programme_of(request), payload or (job.request if job else None), found)
    facts = {
        "title": "What if",
        "frame": _frame(request, "/what-if"),
        "view": view,
        "chosen": [name for name, _ in view.welfares].index(view.chosen),
        "refusal": refusal or _failed(job, "Nothing was computed"),
        "job": work_of(job, "The best plan is being looked for", "/what-if"),
    }
    return show("what_if.html", facts, status)


@router.post("/what-if")
async def suppose(request: Request, form: Sending) -> Response:
    """Compute what a supposition would give, in the background."""
    try:
        payload = await run_in_threadpool(_supposed, request, form)
    except EvenhandError as error:
        refusal = refusal_of(error, "Nothing was computed")
        return await run_in_threadpool(_what_if, request, None, refusal, None, status_of(error))
    job = await service_of(request).suppose(payload, request.state.holder.name)
    await job.ended(1.0)
    answer = to("/what-if", job=job.id)
    answer.set_cookie(LAST, job.id, httponly=True, samesite="strict")
    return answer


def _supposed(request: Request, form: Any) -> dict[str, Any]:
    """Return a valid what-if request; faults are raised before any computation."""
    programme = programme_of(request)
    status, (problem, _, _) = programme.status(), programme.present_problem()
    budget, welfare = budget_of(form, status.budget), form.text("welfare") or status.welfare
    read_welfare(problem if budget is None else problem.with_budget(budget), welfare)
    own = None if welfare == status.welfare else welfare
    return {"budget": budget, "welfare": own, "seconds": counterfactual_view.SECONDS}


# The model


@router.get("/model")
async def show_model(request: Request) -> Response:
    """Show the model."""
    job = _job(request, query_of(request).text("job"))
    return await run_in_threadpool(_model, request, job)


def _model(request: Request, job: Job | None, refusal: ErrorView | None = None, status: int = 200) -> Response:
    programme = programme_of(request)
    facts = {
        "title": "Model",
        "frame": _frame(request, "/model"),
        "view": model_view.show_model(programme),
        "happened": told_event(programme, query_of(request).text("event")),
        "refusal": refusal or _failed(job, "The model was not fitted"),
        "job": work_of(job, "The model is being fitted", "/model"),
        "who": typed_name(request),
        "arm_address": arm_address,
    }
    return show("model.html", facts, status)


@router.post("/model/refit")
async def refit(request: Request, form: Sending) -> Response:
    """Fit the model to the programme's own log, in the background; nothing is adopted."""
    status = await run_in_threadpool(programme_of(request).status)
    fields = {"who": writer_of(request, form), "key": form.text("key") or None}
    job = await _begin(
        request, "refit", {"trust": TRUST, "prior": None, "seconds": SECONDS, "events": status.events}, fields
    )
    await job.ended(1.0)
    return remembers(to("/model", job=job.id), form)


@router.post("/model/decline")
def decline(request: Request, form: Sending) -> Response:
    """Keep the model in use although another is offered."""
    try:
        number, who = number_of(form, "refit"), writer_of(request, form)
        done = programme_of(request).decline(number, form.text("why"), who=who, key=form.text("key") or None)
    except EvenhandError as error:
        return remembers(_model(request, None, refusal_of(error, "Nothing was declined"), status_of(error)), form)
    return remembers(to("/model", event=done.declined_event), form)


@router.post("/model/adopt")
def adopt(request: Request, form: Sending) -> Response:
    """Run the programme by a model that was fitted, or go back to one that was in use."""
    try:
        if not form.text("sure"):
            raise InvalidInputError("tick the box that says that plans are to be made by it from now on")
        number = number_of(form, "refit")
        done = programme_of(request).adopt(number, who=writer_of(request, form), key=form.text("key") or None)
    except EvenhandError as error:
        return remembers(_model(request, None, refusal_of(error, "The model stays as it is"), status_of(error)), form)
    service_of(request).look()
    return remembers(to("/model", event=done.adopted_event), form)
