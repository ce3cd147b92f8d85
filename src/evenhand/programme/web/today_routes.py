"""The addresses of today: conditions, the plan, its changes, and what was done."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError
from evenhand.model.io.text_table import Table
from evenhand.programme.api.problem_details import ErrorView, status_of
from evenhand.programme.api.service import service_of
from evenhand.programme.web import today_view
from evenhand.programme.web.event_messages import Happened, told_event
from evenhand.programme.web.form_errors import Sent, refusal_of, sent_rows
from evenhand.programme.web.forms import Form
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
    table_of,
    to,
    typed_name,
    work_of,
    writer_of,
)
from evenhand.programme.web.paged_table import TableQuery
from evenhand.programme.web.today_view import Change, Typed, show_today

router = APIRouter(include_in_schema=False)


# Today


@router.get("/")
async def show_page(request: Request) -> Response:
    """Show today's plan."""
    job = service_of(request).jobs.find(query_of(request).text("job"))
    refusal = None
    if job is not None and job.has_ended and job.status != "done":
        said = "" if job.failed is None else str(job.failed["detail"])
        refusal = ErrorView(
            "No policy was found, so the plan was not made", (said or job.message,), "Make the plan again."
        )
    work = work_of(job, "A policy is being found for the arms that take part; then the plan can be made", "/")
    if job is not None and job.status == "done":
        return to("/", ready=1, there=query_of(request).text("there"))
    return await run_in_threadpool(_today, request, refusal=refusal, job=work)


def _today(
    request: Request,
    typed: Typed | None = None,
    refusal: ErrorView | None = None,
    sent: Sent | None = None,
    status: int = 200,
    job: Any = None,
) -> Response:
    programme = programme_of(request)
    query = TableQuery("/", dict(request.query_params))
    view = show_today(programme, query, typed)
    happened = told_event(programme, query.text("event")) if refusal is None else None
    if query.text("ready") and not view.is_open and refusal is None:
        happened = Happened("A policy is found for the arms that take part.", "You can make the plan now.")
    facts = {
        "title": f"Step {view.heading}",
        "frame": frame_of(request, "/", view.status.name, view.status.events),
        "view": view,
        "happened": happened,
        "refusal": refusal,
        "sent": sent,
        "job": job,
        "who": typed_name(request),
        "shown": today_view.SHOWN,
        "arm_address": arm_address,
    }
    return show("today.html", facts, status)


@router.get("/today")
@router.get("/today/conditions")
@router.get("/today/plan")
@router.get("/today/changes")
@router.get("/today/accept")
@router.get("/today/record")
def leave_form() -> Response:
    """The address of a form, loaded again or come back to: the page as it is now."""
    return to("/")


@router.post("/today/conditions")
def send_conditions(request: Request, form: Sending) -> Response:
    """Take observations."""
    programme, source = programme_of(request), form.text("source")

    def do(table: Table) -> int:
        return programme.observe(
            today_view.only_seen(table), source, who=writer_of(request, form), key=form.text("key") or None
        ).event

    return _with_table(request, form, do, "The conditions were not stored", "conditions", source)


def _with_table(
    request: Request, form: Form, do: Callable[[Table], int], what: str, place: str, source: str = ""
) -> Response:
    """Process a table; its faults are shown in its rows."""
    name, body = "", b""
    try:
        name, body = form.table("file", "text")
        event = do(table_of(body, name))
    except EvenhandError as error:
        sent = sent_rows(body, error, name)
        typed = Typed(who=form.text("who"), text=form.text("text"), source=source, place=place)
        refusal = refusal_of(error, what, placed=sent is not None)
        return remembers(_today(request, typed, refusal, sent, status_of(error)), form)
    return remembers(to("/", event=event), form)


@router.get("/today/conditions.csv")
def conditions_table(request: Request) -> Response:
    """The arms, to fill in where they are."""
    return _file(today_view.conditions_csv(programme_of(request)), "conditions.csv")


@router.get("/plans/{plan}.csv")
def plan_table(plan: int, request: Request) -> Response:
    """Return a plan as a table."""
    return _file(today_view.actions_csv(programme_of(request).plan_of(plan)), f"plan-{plan}.csv")


def _file(text: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return PlainTextResponse(text, headers=headers, media_type="text/csv; charset=utf-8")


@router.post("/today/plan")
async def make_plan(request: Request, form: Sending) -> Response:
    """Make the plan; where a policy must be found first, in the background."""
    service = service_of(request)
    try:
        drift = await run_in_threadpool(service.programme.needs_solving)
        if drift.policy is None and drift.needed:
            job = await service.solver.solve(who=writer_of(request, form))
            if not await job.ended(1.0):
                return remembers(to("/", job=job.id, there=",".join(form.texts("budget"))), form)
        event = await run_in_threadpool(_plan, request, form)
    except EvenhandError as error:
        refusal = refusal_of(error, "No plan was made")
        return remembers(await run_in_threadpool(_today, request, None, refusal, None, status_of(error)), form)
    return remembers(to("/", event=event), form)


def _plan(request: Request, form: Form) -> int:
    programme = programme_of(request)
    budget = budget_of(form, programme.status().budget)
    made = programme.plan(budget=budget, who=writer_of(request, form), key=form.text("key") or None)
    return made.event


def _changes(form: Form) -> tuple[Change, ...]:
    arms, actions, whys = (form.texts(name) for name in ("change-arm", "change-action", "change-why"))
    whys += [""] * len(arms)
    return tuple(Change(arm, action, why) for arm, action, why in zip(arms, actions, whys, strict=False))


@router.post("/today/changes")
def edit_changes(request: Request, form: Sending) -> Response:
    """Another field for a change, or one less; nothing is stored. Only browsers without scripts come here."""
    changes = [one for one in _changes(form) if one.arm != form.text("drop")]
    added = form.text("add")
    if added and all(one.arm != added for one in changes):
        changes.append(Change(added))
    return _today(request, Typed(tuple(changes), form.text("who"), place=form.text("place")))


@router.post("/today/accept")
def accept_plan(request: Request, form: Sending) -> Response:
    """Accept the plan, with its changes."""
    changes = _changes(form)
    try:
        rows = [{"arm": one.arm, "action": one.action, "why": one.why} for one in changes]
        number = number_of(form, "plan")
        found = programme_of(request).accept(number, rows, who=writer_of(request, form), key=form.text("key") or None)
    except EvenhandError as error:
        typed = Typed(changes, form.text("who"), place="accept")
        refusal = _named(error, changes)
        if programme_of(request).current_plan_number() is None:
            refusal = replace(refusal, faults=refusal.faults + _not_kept(changes))
        return remembers(_today(request, typed, refusal, status=status_of(error)), form)
    service_of(request).look()
    return remembers(to("/", event=found.event), form)


def _not_kept(changes: tuple[Change, ...]) -> tuple[str, ...]:
    """Describe changes that no form shows, because no plan is open."""
    return tuple(
        f"Your change was not stored: {one.arm} gets {one.action}" + (f" ({one.why})" if one.why else "")
        for one in changes
    )


def _named(error: EvenhandError, changes: tuple[Change, ...]) -> ErrorView:
    """Faults of changes by the names of their arms, not by invisible rows."""
    refusal = refusal_of(error, "The plan was not accepted")
    names = {f"row {number}: ": f"{one.arm}: " for number, one in enumerate(changes, 1)}
    faults = []
    for fault in refusal.faults:
        row = next((row for row in names if fault.startswith(row)), "")
        faults.append(names[row] + fault.removeprefix(row) if row else fault)
    return replace(refusal, faults=tuple(faults))


@router.post("/today/record")
def record_step(request: Request, form: Sending) -> Response:
    """Take records."""
    programme, who, key = programme_of(request), writer_of(request, form), form.text("key") or None
    if form.text("how") == "table":

        def do(table: Table) -> int:
            return programme.record(table, "planner", who=who, key=key).event

        return _with_table(request, form, do, "Nothing was recorded", "record")
    changes = _changes(form)
    try:
        others = {one.arm: one.action for one in changes}
        event = programme.record_rest(number_of(form, "plan"), others, "planner", who=who, key=key).event
    except EvenhandError as error:
        typed = Typed(changes, form.text("who"), place="record-form")
        refusal = refusal_of(error, "Nothing was recorded")
        return remembers(_today(request, typed, refusal, status=status_of(error)), form)
    return remembers(to("/", event=event), form)
