"""Helpers of the page's routes: the frame of every view, forms, answers, jobs and events."""

from collections.abc import Callable
from html import unescape
from typing import Annotated, Any
from urllib.parse import unquote_plus, urlencode

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError
from evenhand.programme.api.auth import ROLES, Holder, session_names
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.middleware import UNDOING, why_forbidden, why_not_undone
from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.api.routes import key_of, who_of
from evenhand.programme.api.service import programme_of, service_of
from evenhand.programme.ledger import Event
from evenhand.programme.programme import Programme
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web.forms import Form, read_form, refusal_of, sent_rows
from evenhand.programme.web.render import VIEWS, Frame, TableQuery, render, without_forms
from evenhand.report.summary import Table

WHO = "evenhand_who"
"""The cookie with the name that was typed last."""


def words_of(request: Request) -> Vocabulary:
    """The words of the programme that is served."""
    return programme_of(request).vocabulary()


def query_of(request: Request, path: str = "") -> TableQuery:
    """Return the query of the address."""
    return TableQuery(path or request.url.path, dict(request.query_params))


async def _form_of(request: Request) -> Form:
    """Parse the form that was sent in a thread: a large one takes a while."""
    return await run_in_threadpool(read_form, await request.body(), request.headers.get("content-type", ""))


Sending = Annotated[Form, Depends(_form_of)]
"""The form that was sent, as an argument of a route."""


def show(
    request: Request, template: str, title: str, refusal: ErrorView | None, form: Form | None = None, **values: Any
) -> HTMLResponse:
    """Return a view in its frame.

    Args:
        request: what is answered.
        template: name of the file without its suffix.
        title: of the view.
        refusal: what was refused, if anything.
        form: the form that was refused, or is to be continued.
        values: further values of the template.
    """
    service, holder = service_of(request), request.state.holder
    found = service.programme.overview()
    status, offer = found.status, found.offer
    demo = service.settings.labels.get("demo", "")
    frame = Frame(
        name=status.name,
        view={"today": "/", "arm": "/arms", "what_if": "/what-if"}.get(template, f"/{template}"),
        holder=holder.name if service.settings.tokens is not None else "",
        roles=holder.roles,
        has_session=bool(session_names(request.headers.get("host", ""), request.headers.get("cookie", ""))),
        events=status.events,
        has_plan=found.plan is not None,
        label=f"This is a demonstration with {demo}: try anything." if demo else "",
        offered=None if offer is None else offer.refit,
        views=tuple(view for view in VIEWS if not why_forbidden(holder, "GET", view[0])),
        rights=_rights(holder),
    )
    words = service.programme.vocabulary()
    typed = unescape(unquote_plus(request.cookies.get(WHO, "")))[:200]
    facts = {
        "title": title,
        "frame": frame,
        "refusal": refusal and refusal.in_words(words),
        "event": None if refusal else event_of(programme_of(request), query_of(request).text("event")),
        "who": (form.text("who") if form else "") or typed,
        "arm_address": arm_address,
        "may_undo": lambda kind: kind in UNDOING and not why_not_undone(holder, kind),
        "words": words,
    }
    page = render(f"{template}.html", facts | values)
    if holder.roles < set(ROLES) or holder.groups is not None:
        page = without_forms(page, lambda path: why_forbidden(holder, "POST", path))
    return HTMLResponse(page, refusal.status if refusal else 200)


def _rights(holder: Holder) -> str:
    """Describe what a holder sees, if that is not everything, or all that a holder may do."""
    if holder.groups is not None:
        return f"You see {', '.join(sorted(holder.groups))} alone."
    return "You see everything here, and change nothing." if holder.roles == {"read"} else ""


def to(path: str, **request: object) -> RedirectResponse:
    """Go there: what a form did is never done again by loading the page again."""
    fields = {key: value for key, value in request.items() if value not in (None, "")}
    return RedirectResponse(f"{path}?{urlencode(fields)}" if fields else path, 303)


def author(request: Request, form: Form) -> dict[str, Any]:
    """Return the author of an event and the idempotency key of a form."""
    who = who_of(request, form.text("who")[:200] or None)
    return {"who": who, "key": key_of(request, form.text("key") or None)}


def submit(
    request: Request,
    form: Form,
    what: str,
    write: Callable[..., int | None],
    again: Callable[[ErrorView, Table | None], Response],
    path: str = "/",
    **query: str,
) -> Response:
    """Write into the programme, and go to the view that reports the event; or show what was refused.

    Args:
        request: what is answered.
        form: the form that was sent.
        what: was not done, if it is refused.
        write: called with `who` and `key`; returns the number of the event.
        again: the view with an error, the table that was sent with its faults, and the form as it was sent.
        path: address of the view.
        query: of that address.
    """
    try:
        event = write(**author(request, form))
    except EvenhandError as caught:
        error = words_of(request).reworded(caught)
        sent = sent_rows(form, error)
        return remembers(again(refusal_of(error, what, sent is not None), sent), form)
    service_of(request).look()
    return remembers(to(path, **query, event=event), form)


def remembers(response: Response, form: Form) -> Response:
    """Let the browser keep the name that was typed, for the next form."""
    if form.text("who"):
        name = form.text("who")[:200].encode("ascii", "xmlcharrefreplace").decode()
        response.set_cookie(WHO, urlencode({"n": name})[2:], max_age=365 * 86400, httponly=True, samesite="strict")
    return response


def arm_address(name: str) -> str:
    """Return the address of an arm's page."""
    return f"/arms/one?{urlencode({'arm': name})}"


# Jobs


def work_of(job: Job | None, title: str, back: str) -> dict[str, Any] | None:
    """Return a job that is under way; None if there is none, or it has ended."""
    if job is None or job.has_ended:
        return None
    return {"id": job.id, "title": title, "message": job.message, "progress": job.progress, "back": back}


def failure_of(job: Job | None, what: str, advice: str = "Change the request and repeat it.") -> ErrorView | None:
    """Return the error of a job that failed or was cancelled."""
    if job is None or not job.has_ended or job.status == "done":
        return None
    if job.problem is None:
        return ErrorView(what, (f"It was stopped: {job.message}.",), "Start it again.")
    faults = tuple(str(fault["message"]) for fault in job.problem["faults"]) or (str(job.problem["detail"]),)
    return ErrorView(what, faults, advice)


# Events


def event_of(programme: Programme, number: str) -> Event | None:
    """Return an event by its number in an address; None if there is none.

    Args:
        programme: whose log is read.
        number: as it stands in the address.
    """
    if not (number.isascii() and number.isdecimal() and 0 < len(number) < 10):
        return None
    found = programme.events(after=int(number) - 1, most=1)
    return found[0] if found and found[0].id == int(number) else None
