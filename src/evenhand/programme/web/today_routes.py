"""The addresses of today: conditions, the plan, its changes, and what was done."""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.api.service import service_of
from evenhand.programme.web import layout, today_view
from evenhand.programme.web.forms import Form
from evenhand.programme.web.today_view import Change, Typed, show_today

router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_page(request: Request) -> Response:
    """Show today's plan."""
    query = layout.query_of(request)
    job = service_of(request).jobs.find(query.text("job"))
    if job is not None and job.status == "done":
        return layout.to("/", ready=1, there=query.text("there"))
    refusal = layout.failure_of(job, "No policy was found, so the plan was not made", "Make the plan again.")
    work = layout.work_of(job, "A policy is being found for the arms that take part; then the plan can be made", "/")
    return await run_in_threadpool(_today, request, refusal=refusal, job=work)


def _today(
    request: Request,
    form: Form | None = None,
    place: str = "",
    refusal: ErrorView | None = None,
    sent: Any = None,
    job: Any = None,
    changes: tuple[Change, ...] | None = None,
) -> Response:
    """Show the view with a form as it was sent."""
    typed = Typed()
    if form is not None:
        typed = Typed(_changes(form) if changes is None else changes, form.text("text"), form.text("source"), place)
    query = layout.query_of(request, "/")
    view = show_today(layout.programme_of(request), query, typed)
    is_ready = bool(query.text("ready")) and not view["is_open"] and refusal is None
    values = {"view": view, "sent": sent, "job": job, "shown": today_view.SHOWN, "is_ready": is_ready}
    return layout.show(request, "today", f"Step {view['heading']}", refusal, form, **values)


def _changes(form: Form) -> tuple[Change, ...]:
    arms, actions, whys = (form.texts(name) for name in ("change-arm", "change-action", "change-why"))
    whys += [""] * len(arms)
    return tuple(Change(arm, action, why) for arm, action, why in zip(arms, actions, whys, strict=False))


@router.post("/today/conditions")
def send_conditions(request: Request, form: layout.Sending) -> Response:
    """Take observations."""
    programme = layout.programme_of(request)
    return layout.submit(
        request,
        form,
        "The conditions were not stored",
        lambda **by: programme.observe(today_view.only_seen(form.table()), form.text("source"), **by).event,
        lambda *refused: _today(request, form, "conditions", *refused),
    )


@router.get("/today/conditions.csv")
def conditions_table(request: Request) -> Response:
    """Return the arms, to fill in their states."""
    return _file(today_view.conditions_csv(layout.programme_of(request)), "conditions.csv")


@router.get("/today")
@router.get("/today/{_}")
def leave_form() -> Response:
    """The address of a form, loaded again or come back to: the page as it is now."""
    return layout.to("/")


@router.get("/plans/{plan}.csv")
def plan_table(plan: int, request: Request) -> Response:
    """Return a plan as a table."""
    return _file(today_view.actions_csv(layout.programme_of(request).plan_of(plan)), f"plan-{plan}.csv")


def _file(text: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return PlainTextResponse(text, headers=headers, media_type="text/csv; charset=utf-8")


@router.post("/today/plan")
async def make_plan(request: Request, form: layout.Sending) -> Response:
    """Make the plan; where a policy must be found first, in the background."""
    service, programme = service_of(request), layout.programme_of(request)
    drift = await run_in_threadpool(programme.needs_solving)
    if drift.policy is None and drift.needed:
        job = await service.solve(who=layout.author(request, form)["who"])
        if not await job.ended(1.0):
            return layout.remembers(layout.to("/", job=job.id, there=",".join(form.texts("budget"))), form)
    return await run_in_threadpool(
        layout.submit,
        request,
        form,
        "No plan was made",
        lambda **by: programme.plan(budget=form.budget(programme.status().budget), **by).event,
        lambda *refused: _today(request, form, "", *refused),
    )


@router.post("/today/changes")
def edit_changes(request: Request, form: layout.Sending) -> Response:
    """Another field for a change, or one less; nothing is stored. Only browsers without scripts come here."""
    changes = [one for one in _changes(form) if one.arm != form.text("drop")]
    added = form.text("add")
    if added and all(one.arm != added for one in changes):
        changes.append(Change(added))
    return _today(request, form, form.text("place"), changes=tuple(changes))


@router.post("/today/accept")
def accept_plan(request: Request, form: layout.Sending) -> Response:
    """Accept the plan, with its changes."""
    programme, changes = layout.programme_of(request), _changes(form)
    rows = [{"arm": one.arm, "action": one.action, "why": one.why} for one in changes]

    def again(refusal: ErrorView, _: Any) -> Response:
        faults = list(refusal.faults)
        for number, one in enumerate(changes, 1):  # faults by the names of arms, not by invisible rows
            faults = [fault.replace(f"row {number}: ", f"{one.arm}: ", 1) for fault in faults]
        if programme.current_plan_number() is None:  # no form shows the changes
            for one in changes:
                why = f" ({one.why})" if one.why else ""
                faults.append(f"Your change was not stored: {one.arm} gets {one.action}{why}")
        return _today(request, form, "accept", replace(refusal, faults=tuple(faults)))

    what = "The plan was not accepted"
    return layout.submit(
        request, form, what, lambda **by: programme.accept(form.number("plan"), rows, **by).event, again
    )


@router.post("/today/record")
def record_step(request: Request, form: layout.Sending) -> Response:
    """Take records."""
    programme, is_table = layout.programme_of(request), form.text("how") == "table"

    def write(**by: Any) -> int:
        if is_table:
            return programme.record(form.table(), "planner", **by).event
        others = {one.arm: one.action for one in _changes(form)}
        return programme.record_rest(form.number("plan"), others, "planner", **by).event

    def again(refusal: ErrorView, sent: Any) -> Response:
        return _today(request, form, "record" if is_table else "record-form", refusal, sent)

    return layout.submit(request, form, "Nothing was recorded", write, again)
