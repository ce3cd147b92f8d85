"""Settings: words and calendar, lasting changes with their effects, past records, and undo."""

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError, InvalidInputError
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.api.routes import check_undo
from evenhand.programme.api.schemas import ChangeRequest
from evenhand.programme.api.service import service_of
from evenhand.programme.changes import ChangePreview
from evenhand.programme.named_model import Words
from evenhand.programme.programme import Programme
from evenhand.programme.vocabulary import NOUNS, PERIODS, Vocabulary
from evenhand.programme.web import layout
from evenhand.programme.web.counterfactual_page import NAMES, compared
from evenhand.programme.web.forms import Form, propose_table, refusal_of
from evenhand.programme.web.today_page import show_proposal
from evenhand.report.format import number
from evenhand.report.summary import Section, table

router = APIRouter(include_in_schema=False)

FIELDS = (*NOUNS, "value", "start", "period")
"""Fields of the form of words, besides one per resource."""

KINDS = {
    "observed": "conditions",
    "recorded": "records of what was done",
    "accepted": "an accepted plan",
    "joined": "arms that joined",
    "imported": "records from before",
    "changed": "a lasting change",
}
"""Events that can be undone, in words."""


@router.get("/settings")
async def show_settings(request: Request) -> Response:
    """Show the settings."""
    job = service_of(request).jobs.find(layout.query_of(request).text("job"))
    return await run_in_threadpool(_settings, request, job)


@router.get("/undo")
@router.get("/settings/{_}")
def leave_form() -> Response:
    """Go from the address of a form, loaded again, to the page as it is now."""
    return layout.to("/settings")


def _settings(
    request: Request, job: Job | None, form: Form | None = None, refusal: ErrorView | None = None, sent: Any = None
) -> Response:
    programme = layout.programme_of(request)
    status, words = programme.status(), programme.vocabulary()
    refusal = refusal or layout.failure_of(job, "The effect was not computed")
    given = job.arguments["given"] if job is not None and job.kind == "change" else {}
    names = ("close", "into", "arm", "group", "start", "welfare", "state", "steps", "of")
    is_words = form is not None and bool(form.texts("word"))
    typed: dict[str, Any] = {name: form.text(name) if form and not is_words else "" for name in names}
    typed |= {name: value for name, value in given.items() if name in ("start", "welfare") and value is not None}
    typed |= (given.get("transfer") or [{}])[0] | {"budget": given.get("budget") or {}}
    typed["close"], typed["into"] = next(iter(given.get("close", {}).items()), (typed["close"], typed["into"]))
    for row in given.get("max_wait", []):
        typed |= {
            "state": row["state"],
            "steps": "" if row["steps"] is None else row["steps"],
            "of": row["group"] or "",
        }
    typed["welfare"] = typed["welfare"] or status.welfare
    day = words.day(status.step)
    is_done = job is not None and job.kind == "change" and job.answer is not None
    own = words.to_dict() | {"resources": {name: str(words.resource(name)) for name in status.budget}}
    view = {
        "own": _words(form) if form is not None and is_words else own,
        "periods": list(PERIODS),
        "step": status.step,
        "day": None if day is None else day.isoformat(),
        "budget": status.budget,
        "welfares": list((NAMES | {status.welfare: f"{NAMES.get(status.welfare, status.welfare)}, as now"}).items()),
        "groups": list(dict.fromkeys([*status.groups, *programme.model().group_names])),
        "states": list(dict.fromkeys(name for own in Words(programme.model()).states for name in own)),
        "typed": typed,
        "effect": _effect(ChangePreview.of(job.answer), words) if is_done and job is not None and job.answer else None,
        "given": json.dumps(given),
        "log": [one | {"text": one["said"] or words.say(KINDS[one["kind"]])} for one in programme.changes.recent()],
    }
    work = layout.work_of(job, "The effect of the change is being computed", "/settings")
    return layout.show(request, "settings", "Settings", refusal, form, view=view, job=work, sent=sent)


def _words(form: Form) -> dict[str, Any]:
    own = dict(zip(form.texts("resource"), form.texts("word"), strict=False))
    return {name: form.text(name) for name in FIELDS} | {"resources": own}


@router.post("/settings/words")
def set_words(request: Request, form: layout.Sending) -> Response:
    """Change words and calendar."""
    programme, given = layout.programme_of(request), _words(form)
    given["resources"] = {name: word for name, word in given["resources"].items() if word and word != name}

    def write(**by: Any) -> int:
        programme.set_words(given, **by)
        return programme.status().events

    return _submit(request, form, "The words stay as they were", write)


def _effect(found: ChangePreview, words: Vocabulary) -> Section:
    """Return the effect of a change: welfare, and the mean value of each group before and after."""
    rows = [
        compared(f"{row.group}, {words.arm.counted(row.arms)}", row.before, row.after)
        if row.before is not None
        else [row.group, "", number(row.after), ""]
        for row in found.groups
    ]
    if found.before is not None:
        rows.insert(0, compared("fair mean", found.before.welfare, found.after.welfare, found.measurable))
    notes = [f"No plan gives a fair mean of more than {number(found.after.upper_bound)} then."]
    if found.before is None:
        notes.append("There is no plan yet to compare it with.")
    heads = ["", "before", "after", "difference"]
    caption = f"Mean {words.value}, by the {words.group.one} before the change"
    return Section(
        "Its effect",
        paragraphs=[f"{line}." for line in found.change.said],
        tables=[table(caption, heads, rows)],
        notes=notes,
    )


def _given(programme: Programme, form: Form) -> dict[str, Any]:
    """Return the change of a form, as `Programme.change` takes it."""
    status = programme.status()
    given: dict[str, Any] = {"budget": form.budget(status.budget), "start": form.text("start") or None}
    given["welfare"] = form.text("welfare") if form.text("welfare") not in ("", status.welfare) else None
    steps = form.text("steps")
    if steps and not (steps.isascii() and steps.isdecimal() and len(steps) < 10):
        raise InvalidInputError(f"longest wait: expected a whole number, or nothing for none, got {steps[:50]!r}")
    promise = {
        "state": form.text("state"),
        "steps": int(steps) if steps else None,
        "group": form.text("of") or None,
    }
    given["max_wait"] = [promise] if form.text("state") else []
    given["close"] = {form.text("close"): form.text("into")} if form.text("close") else {}
    arm = {"arm": form.text("arm"), "group": form.text("group") or None}
    return given | {"transfer": [arm] if form.text("arm") else []}


@router.post("/settings/preview")
async def preview(request: Request, form: layout.Sending) -> Response:
    """Compute the effect of a change, in the background."""
    service = service_of(request)
    given = await run_in_threadpool(_given, service.programme, form)
    arguments = {"given": given, "seconds": service.settings.what_if_seconds}
    job = await service.preview_change(arguments, request.state.holder.name)
    await job.ended(1.0)
    return layout.to("/settings", job=job.id)


@router.post("/settings/adopt")
def adopt(request: Request, form: layout.Sending) -> Response:
    """Adopt a change whose effect was shown."""

    def write(**by: Any) -> int:
        try:
            given = ChangeRequest.model_validate_json(form.text("change")).given
        except ValidationError:
            raise InvalidInputError("the form cannot be read; load the page again, and send it again") from None
        return layout.programme_of(request).change(given, why=form.text("why"), **by).event

    return _submit(request, form, "Nothing was changed", write)


@router.post("/settings/history")
def import_history(request: Request, form: layout.Sending) -> Response:
    """Show what was understood of past records; if that was confirmed, store them."""
    programme = layout.programme_of(request)
    if form.text("cleaned"):
        source = form.text("source") or "planner"
        what = "The records were not stored"
        return _submit(request, form, what, lambda **by: programme.import_history(form.table(), source, **by).event)
    words = Words(programme.model())
    names = {"state": words.states, "action": words.actions}
    known = {role: sorted({name for own in of_blocks for name in own}) for role, of_blocks in names.items()}
    try:
        found = propose_table(form, known, programme.vocabulary())
    except EvenhandError as error:
        return _settings(request, None, form, refusal_of(error, "The records were not read"))
    return show_proposal(request, form, found, "/settings/history", "records from before")


@router.post("/undo")
def undo(request: Request, form: layout.Sending) -> Response:
    """Undo an event."""
    back = "/settings" if form.text("back") == "/settings" else "/"

    def write(**by: Any) -> int:
        check_undo(request, event := form.number("event"))
        return layout.programme_of(request).undo(event, form.text("why"), **by).event

    return _submit(request, form, "Nothing was undone", write, back)


def _submit(request: Request, form: Form, what: str, write: Any, path: str = "/settings") -> Response:
    return layout.submit(request, form, what, write, lambda *refused: _settings(request, None, form, *refused), path)
