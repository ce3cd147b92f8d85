"""Helpers of the page's routes: forms, answers and the frame of every view."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import unescape
from typing import Annotated, Any
from urllib.parse import unquote_plus, urlencode

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import InvalidInputError
from evenhand.model.io.text_table import Table, read_table
from evenhand.programme.api.dependencies import who_of
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.service import service_of
from evenhand.programme.programme import Programme
from evenhand.programme.web.forms import Form, read_form
from evenhand.programme.web.paged_table import TableQuery
from evenhand.programme.web.render import Frame, render

WHO = "evenhand_who"
"""The cookie in which a browser keeps the name that was typed last."""


@dataclass(frozen=True)
class JobView:
    """Long work, as the page shows it."""

    id: str
    title: str
    message: str
    progress: float
    back: str

    @property
    def cancel(self) -> str:
        """Address of cancellation."""
        return f"/computing/{self.id}/stop"


def work_of(job: Job | None, title: str, back: str) -> JobView | None:
    """A job that is under way; None where there is none, or it has ended."""
    if job is None or job.has_ended:
        return None
    return JobView(job.id, title, job.message, job.progress, back)


def frame_of(request: Request, view: str, name: str, events: int = 0) -> Frame:
    """The frame around a view.

    Args:
        request: what is answered.
        view: its address.
        name: of the programme.
        events: how many there are in its log.
    """
    service = service_of(request)
    holder = request.state.holder
    label, offer = service.settings.labels.get("demo", ""), service.programme.offered()
    return Frame(
        name=name,
        view=view,
        holder=holder.name if service.settings.tokens is not None else "",
        may_write=holder.may("write"),
        events=events,
        label=f"This is a demonstration with {label}: try anything." if label else "",
        offered=None if offer is None else offer.refit,
    )


def show(template: str, facts: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """A page."""
    return HTMLResponse(render(template, facts), status)


def to(path: str, **request: object) -> RedirectResponse:
    """Go there: what a form did is never done again by loading the page again."""
    fields = {key: value for key, value in request.items() if value not in (None, "")}
    return RedirectResponse(f"{path}?{urlencode(fields)}" if fields else path, 303)


async def form_of(request: Request) -> Form:
    """The form that was sent, parsed in a thread: a large one takes a while."""
    return await run_in_threadpool(read_form, await request.body(), request.headers.get("content-type", ""))


Sending = Annotated[Form, Depends(form_of)]
"""The form that was sent, as an argument of a route."""


def query_of(request: Request) -> TableQuery:
    """Return the query of the address."""
    return TableQuery(request.url.path, dict(request.query_params))


def writer_of(request: Request, form: Form) -> str:
    """Return the author of an event."""
    return who_of(request, form.text("who")[:200] or None)


def remembers(response: Response, form: Form) -> Response:
    """Let the browser keep the name that was typed, for the next form."""
    if form.text("who"):
        name = form.text("who")[:200].encode("ascii", "xmlcharrefreplace").decode()
        response.set_cookie(WHO, urlencode({"n": name})[2:], max_age=365 * 86400, httponly=True, samesite="strict")
    return response


def typed_name(request: Request, form: Form | None = None) -> str:
    """The name that was typed last."""
    given = form.text("who") if form is not None else ""
    return given or unescape(unquote_plus(request.cookies.get(WHO, "")))[:200]


def arm_address(name: str) -> str:
    """Return the address of an arm's page."""
    return f"/arms/one?{urlencode({'arm': name})}"


def programme_of(request: Request) -> Programme:
    """The programme that is served."""
    return service_of(request).programme


def table_of(body: bytes, name: str) -> Table:
    """A table that was sent, under the name of its file; rows of a wrong length are reported with its other faults."""
    return replace(read_table(io.BytesIO(body), "csv", ragged=True), source=name)


def budget_of(form: Form, usual: Mapping[str, float]) -> dict[str, float] | None:
    """Return the budget of a form; None if it is the usual one.

    Raises:
        InvalidInputError: it is not a number.
    """
    given = dict(zip(form.texts("resource"), form.texts("budget"), strict=False))
    found: dict[str, float] = {}
    for name, there in usual.items():
        text = given.get(name, "")
        try:
            found[name] = float(text) if text else there
        except ValueError:
            raise InvalidInputError(f"{name}: expected a number, got {text[:40]!r}") from None
    return None if found == dict(usual) else found


def number_of(form: Form, name: str) -> int:
    """A whole number that stands in a hidden field.

    Raises:
        InvalidInputError: it is none.
    """
    text = form.text(name)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidInputError("the form cannot be read; load the page anew, and send it again")
    return int(text)
