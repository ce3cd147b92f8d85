"""The addresses of arms: the list, one of them, who joins, who leaves, who was seen."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from evenhand.errors import EvenhandError
from evenhand.programme.api.problem_details import ErrorView, status_of
from evenhand.programme.api.service import service_of
from evenhand.programme.web import arms_view
from evenhand.programme.web.event_messages import told_event
from evenhand.programme.web.form_errors import Sent, refusal_of, sent_rows
from evenhand.programme.web.forms import Form
from evenhand.programme.web.layout import (
    Sending,
    arm_address,
    frame_of,
    number_of,
    programme_of,
    query_of,
    remembers,
    show,
    table_of,
    to,
    typed_name,
    writer_of,
)
from evenhand.programme.web.paged_table import TableQuery

router = APIRouter(include_in_schema=False)

EMPTY_FORM = {"arm": "", "state": "", "text": "", "kind": "", "ask": "", "who": ""}
"""Empty entries of the forms of the list."""


@router.get("/arms")
def show_arms(request: Request) -> Response:
    """Arms that take part."""
    return _arms(request)


def _arms(
    request: Request,
    refusal: ErrorView | None = None,
    sent: Sent | None = None,
    typed: dict[str, str] | None = None,
    status: int = 200,
) -> Response:
    programme, query = programme_of(request), TableQuery("/arms", dict(request.query_params))
    view, where = arms_view.show_arms(programme, query), programme.status()
    facts: dict[str, Any] = {
        "title": "Arms",
        "frame": frame_of(request, "/arms", where.name, where.events),
        "view": view,
        "happened": told_event(programme, query.text("event")),
        "refusal": refusal,
        "sent": sent,
        "typed": EMPTY_FORM | (typed or {}),
        "states": list(dict.fromkeys(state for kind in view.kinds for state in kind.states)),
        "shown": arms_view.SHOWN,
        "who": (typed or EMPTY_FORM)["who"] or typed_name(request),
        "arm_address": arm_address,
    }
    return show("arms.html", facts, status)


@router.post("/arms/join")
def join(request: Request, form: Sending) -> Response:
    """Let arms take part."""
    programme, name, body = programme_of(request), "", b""
    try:
        if form.text("how") == "table":
            name, body = form.table("file", "text")
            rows: Any = table_of(body, name)
        else:
            rows = [_newcomer(request, form)]
        names = [row["arm"] for row in rows] if isinstance(rows, list) else rows.columns.get("arm", [])
        doubts = () if form.text("sure") else arms_view.doubts(names, programme.arms(gone=True))
        if doubts:
            return remembers(_asking(request, form, doubts, body), form)
        done = programme.join(rows, who=writer_of(request, form), key=form.text("key") or None)
    except EvenhandError as error:
        sent = sent_rows(body, error, name)
        typed = {key: form.text(key) for key in EMPTY_FORM}
        refusal = refusal_of(error, "No arm joined", placed=sent is not None)
        return remembers(_arms(request, refusal, sent, typed, status_of(error)), form)
    service_of(request).look()
    return remembers(to("/arms", event=done.event), form)


def _asking(request: Request, form: Form, doubts: tuple[str, ...], body: bytes) -> Response:
    """The forms with what was sent, and a question."""
    typed = {key: form.text(key) for key in EMPTY_FORM} | {"ask": form.text("how") or "one"}
    typed |= {"text": body.decode("utf-8", errors="replace")} if body else {}
    refusal = ErrorView("No arm joined yet", doubts, "If that is meant, tick the box below and send it again.")
    return _arms(request, refusal, None, typed, 409)


def _newcomer(request: Request, form: Form) -> dict[str, str]:
    kinds = arms_view.kinds_of(programme_of(request))
    kind = kinds[min(number_of(form, "kind"), len(kinds) - 1)]
    fields = {"arm": form.text("arm"), "type": kind.type, "group": kind.group}
    return fields | ({"state": form.text("state")} if form.text("state") else {})


@router.get("/arms/one")
def show_arm(request: Request) -> Response:
    """One arm: its conditions, decisions, changes, and what was expected."""
    return _arm(request, query_of(request).text("arm"))


def _arm(request: Request, name: str, refusal: ErrorView | None = None, status: int = 200) -> Response:
    programme = programme_of(request)
    view, where = arms_view.show_arm(programme, name), programme.status()
    facts = {
        "title": name,
        "frame": frame_of(request, "/arms", where.name, where.events),
        "view": view,
        "happened": told_event(programme, query_of(request).text("event")),
        "refusal": refusal,
        "who": typed_name(request),
    }
    return show("arm.html", facts, status)


@router.post("/arms/seen")
def report(request: Request, form: Sending) -> Response:
    """Say where one arm is, or was."""
    name = form.text("arm")
    row = {"arm": name, "state": form.text("state"), "step": form.text("step")}
    try:
        done = programme_of(request).observe(
            [row], form.text("source"), who=writer_of(request, form), key=form.text("key") or None
        )
    except EvenhandError as error:
        refusal = refusal_of(error, "The condition was not stored")
        return remembers(_arm(request, name, refusal, status_of(error)), form)
    return remembers(to("/arms/one", arm=name, event=done.event), form)


@router.post("/arms/leave")
def leave(request: Request, form: Sending) -> Response:
    """Let one arm take part no longer."""
    name = form.text("arm")
    try:
        done = programme_of(request).leave(
            [name], form.text("why"), who=writer_of(request, form), key=form.text("key") or None
        )
    except EvenhandError as error:
        refusal = refusal_of(error, f"{name} takes part as before")
        return remembers(_arm(request, name, refusal, status_of(error)), form)
    service_of(request).look()
    return remembers(to("/arms/one", arm=name, event=done.event), form)
