"""The model: what it says, what was fitted to the programme's own records, how sure, and what to record."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import InvalidInputError
from evenhand.planning.check import check
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.api.service import service_of
from evenhand.programme.decisions import StoredPlan
from evenhand.programme.named_model import Words
from evenhand.programme.programme import Programme
from evenhand.programme.refit import ENOUGH, TRUST, Moved, Refitted
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web import layout
from evenhand.programme.web.counterfactual_page import NAMES
from evenhand.programme.web.forms import Form
from evenhand.report.format import percent
from evenhand.report.models import arm_summary
from evenhand.report.summary import Section, Table, table

router = APIRouter(include_in_schema=False)


@router.get("/model")
async def show_model(request: Request) -> Response:
    """Show the model."""
    job = service_of(request).jobs.find(layout.query_of(request).text("job"))
    return await run_in_threadpool(_model, request, job)


def _model(request: Request, job: Job | None, form: Form | None = None, refusal: ErrorView | None = None) -> Response:
    view, work = _view(layout.programme_of(request)), layout.work_of(job, "The model is being fitted", "/model")
    refusal = refusal or layout.failure_of(job, "The model was not fitted")
    return layout.show(request, "model", "Model", refusal, form, view=view, job=work)


@router.post("/model/refit")
async def refit(request: Request, form: layout.Sending) -> Response:
    """Fit the model to the programme's own log, in the background; nothing is adopted."""
    service = service_of(request)
    how = {"trust": TRUST, "prior": None, "seconds": service.settings.refit_seconds}
    job = await service.refit(how | layout.author(request, form), request.state.holder.name)
    await job.ended(1.0)
    return layout.remembers(layout.to("/model", job=job.id), form)


@router.post("/model/decline")
def decline(request: Request, form: layout.Sending) -> Response:
    """Keep the model in use although another is offered."""

    def write(**by: Any) -> int | None:
        return layout.programme_of(request).decline(form.number("refit"), form.text("why"), **by).declined_event

    return _submit(request, form, "Nothing was declined", write)


@router.post("/model/adopt")
def adopt(request: Request, form: layout.Sending) -> Response:
    """Run the programme by a model that was fitted, or go back to one that was in use."""

    def write(**by: Any) -> int | None:
        if not form.text("sure"):
            raise InvalidInputError("tick the box that says that plans will be made by it from now on")
        return layout.programme_of(request).adopt(form.number("refit"), **by).adopted_event

    return _submit(request, form, "The model stays as it is", write)


@router.post("/model/need")
def set_need(request: Request, form: layout.Sending) -> Response:
    """Set the states in which an arm is in need."""

    def write(**by: Any) -> int | None:
        return layout.programme_of(request).set_need(form.texts("state"), **by).event

    return _submit(request, form, "The conditions of need stay as they are", write)


def _submit(request: Request, form: Form, what: str, write: Callable[..., int | None]) -> Response:
    return layout.submit(request, form, what, write, lambda refusal, _: _model(request, None, form, refusal), "/model")


def _view(programme: Programme) -> dict[str, Any]:
    """Return the values of the view.

    Raises:
        InvalidInputError: no arm takes part.
    """
    problem, _, _ = programme.present_problem()
    found, fits, model = check(problem, problem.welfare), programme.refits(), programme.status().model
    words, own = Words(programme.model()), programme.vocabulary()
    adopted, offer = [one for one in fits if one.adopted_event is not None], programme.offered()
    shown = next((one for one in fits if offer is not None and one.id == offer.refit), fits[0] if fits else None)
    return {
        "check": own.summary(
            Section("What the model says", facts=[_fact(name, text, own) for name, text in found.facts])
        ),
        "notes": [own.say(str(note)) for note in found.notes],
        "types": [
            own.summary(
                replace(arm_summary(words.model.arms[block]), title=name if name == group else f"{name}, {group}")
            )
            for (name, group), block in words.blocks.items()
        ],
        "fit": _fit(shown, model, programme.current_plan()) if shown else None,
        "used": next((one for one in adopted if one.model == model), None),
        "need": (chosen := programme.need()),
        "states": list(dict.fromkeys([*(name for own in words.states for name in own), *chosen])),
        "earlier": [one for one in adopted if one.model != model],
    }


def _fact(name: str, text: str, words: Vocabulary) -> tuple[str, str]:
    """Return a fact on the model in the words of the page."""
    if name == "welfare":
        idea, _, rest = text.partition(" over ")
        return "What is fair", f"{NAMES.get(idea, idea)}, over {rest}"
    if name == "criterion":
        return "Over time", text
    resource, _, rest = text.partition(": ")
    return name.capitalize(), f"{words.resource(resource).many}: {rest}" if name in ("budget", "") else text


def _fit(fit: Refitted, model: str, plan: StoredPlan | None) -> dict[str, Any]:
    """Return a refit with its comparison to the model in use, or to the one before if it is in use itself."""
    used = fit.model == model
    planned = {row.arm: row.action for row in plan.rows} if plan is not None and plan.model == fit.before else None
    is_today = planned is not None and all(planned.get(arm) == action for arm, action, _ in fit.plan)
    return {
        "fit": fit,
        "table": _moves_table(fit.moved, "before" if used or fit.before != model else "in use"),
        "wanted": _wanted(fit),
        "is_used": used,
        "may_adopt": not used and fit.before == model,
        "is_today": is_today,
    }


def _moves_table(moves: Sequence[Moved], before: str, most: int = 60) -> Table:
    ordered = sorted(moves, key=lambda row: (-abs(row.after - row.before), row.type, row.state, row.action))
    cells = []
    for row in ordered[:most]:
        note = "beyond chance" if row.is_beyond_chance else "seen too seldom to decide" if row.seen < ENOUGH else ""
        interval = f"{percent(row.lower, 0)} to {percent(row.upper, 0)}"
        values = [percent(row.before), percent(row.after), interval, str(row.seen)]
        cells.append([f"{row.type}, {row.state}, {row.action}", row.next_state, *values, note])
    heads = ["type, state, action", "next state", before, "fitted", "95 % interval", "observations", "note"]
    caption = "Fitted probabilities, the largest changes first"
    return table(caption, heads, cells, len(ordered) - most, (heads[1], heads[-1]))


def _wanted(fit: Refitted, most: int = 20) -> list[tuple[tuple[str, str, str], int]]:
    """Return the most useful next records, with their numbers: unobserved pairs, then rarely observed ones."""
    seen = {(row.type, row.state, row.action): int(row.seen) for row in reversed(fit.moved)}
    seldom = sorted((many, pair) for pair, many in seen.items() if many < ENOUGH)
    return [*((pair, 0) for pair in fit.unseen), *((pair, many) for many, pair in seldom)][:most]
