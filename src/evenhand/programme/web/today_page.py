"""Today: what to record of the last step, the conditions of this one, its plan, and what is accepted."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError, InvalidInputError
from evenhand.model.io.text_table import csv_text
from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.api.service import service_of
from evenhand.programme.decisions import PlanCells, PlanRow, StoredPlan, drawn_part
from evenhand.programme.named_model import Words
from evenhand.programme.programme import Programme, Status
from evenhand.programme.reports import read_observations, read_records
from evenhand.programme.roster import arms_named, present_step
from evenhand.programme.vocabulary import Vocabulary, vocabulary_of
from evenhand.programme.web import layout
from evenhand.programme.web.forms import Form, Proposal, propose_table, refusal_of
from evenhand.programme.web.render import Listing, TableQuery, age_of, list_rows, matches, natural
from evenhand.report.format import capitalised, percent

router = APIRouter(include_in_schema=False)

WINDOW = 100
"""Steps over which last services and needs are looked up."""

Line = dict[str, Any]
"""An arm of a plan as a planner sees it.

    row          the arm of the plan
    condition    source and age of the state
    action       the action, as accepted if the plan is
    served       whether it uses a resource
    why          reason
    turn         rank in the order of service if the budget were larger
    done         recorded action; empty if unknown
    changed      author and reason of the override
    actions      feasible actions
    mine         whether an override was typed and is not accepted yet
"""

SHOWN: dict[str, tuple[str, Callable[[Line], bool]]] = {
    "": ("all", lambda _: True),
    "served": ("who gets something", lambda line: line["served"]),
    "line": ("who is next in line", lambda line: line["turn"] is not None),
    "believed": ("not seen at this step", lambda line: line["row"].known != "seen"),
    "changed": ("changed by hand", lambda line: bool(line["changed"]) or line["mine"]),
}
"""Filters of the table."""


@dataclass(frozen=True)
class Change:
    """Another action than planned, as it was typed so far."""

    arm: str
    action: str = ""
    why: str = ""
    actions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Typed:
    """Entries of the forms to show again."""

    changes: tuple[Change, ...] = ()
    text: str = ""
    """The rows of a table."""
    source: str = ""
    place: str = ""
    """The form that was refused."""


# The view


@router.get("/")
async def show_page(request: Request) -> Response:
    """Show today's plan."""
    query = layout.query_of(request)
    job = service_of(request).jobs.find(query.text("job"))
    if job is not None and job.status == "done":
        return layout.to("/", ready=1, there=query.text("there"))
    refusal = layout.failure_of(job, "The plan was not made: its preparation failed", "Make the plan again.")
    work = layout.work_of(job, "The plan is being prepared for all who take part; then it can be made", "/")
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
        text = form.text("text")
        if refusal is not None and refusal.code == "same-as-earlier":  # a file must be sent again as text
            text = form.given_table[1].decode("utf-8", errors="replace")
        typed = Typed(_changes(form) if changes is None else changes, text, form.text("source"), place)
    query = layout.query_of(request, "/")
    view = show_today(layout.programme_of(request), query, typed)
    is_ready = bool(query.text("ready")) and not view["is_open"] and refusal is None
    values = {"view": view, "sent": sent, "job": job, "shown": SHOWN, "is_ready": is_ready}
    return layout.show(request, "today", capitalised(view["words"].name(view["heading"])), refusal, form, **values)


def _changes(form: Form) -> tuple[Change, ...]:
    arms, actions, whys = (form.texts(name) for name in ("change-arm", "change-action", "change-why"))
    whys += [""] * len(arms)
    return tuple(Change(arm, action, why) for arm, action, why in zip(arms, actions, whys, strict=False))


def show_today(programme: Programme, query: TableQuery, typed: Typed | None = None) -> dict[str, Any]:
    """Return the values of the view.

    Args:
        programme: the programme.
        query: of the address.
        typed: entries that were not stored.
    """
    typed, status, pending = typed or Typed(), programme.status(), programme.current_plan()
    vocabulary = programme.vocabulary()
    last = _last_step(programme, status.step)
    looks_back = last is not None and (query.text("of") == "last" or typed.place in ("record", "record-form"))
    proposed = None if looks_back else pending
    plan = proposed or (programme.plan_of(last["plan"]) if last else None)
    waits = pending.step if pending is not None and proposed is None else None
    words = Words(programme.model())
    # Arms of which a change was typed and is not accepted yet; a script names them in the address.
    mine = {*query.given.get("mine", "").split("\n"), *(one.arm for one in typed.changes)} - {""}
    line = _Lines(plan, words, vocabulary, mine)
    changed = [vocabulary.say(str(one)) for one in programme.changed_since(proposed.id)] if proposed else []
    used = _used(proposed, words, typed) if proposed and proposed.model == status.model else None
    found = _list_rows(query, line)
    rows = found.rows
    done = programme.recorded(plan.step, [row.arm_id for row in rows]) if plan and last and proposed is None else {}
    table: Any = replace(
        cast(Any, found), rows=tuple(line.full(row) | {"done": done.get(row.arm_id, "")} for row in rows)
    )
    to_record = not proposed and waits is None and last is not None and not last["is_recorded"]
    names = {one.arm for one in typed.changes}
    feasible = {row.arm: line.actions(row) for row in (plan.rows if plan and names else ()) if row.arm in names}
    changes = tuple(replace(one, actions=feasible.get(one.arm, ())) for one in typed.changes)
    return {
        "words": vocabulary,
        "status": status,
        "heading": last["step"] if last is not None and (to_record or waits is not None) else status.step,
        "arms": sum(status.arms.values()),
        "plan": plan,
        "is_open": proposed is not None,
        "needs_approval": proposed is not None and programme.safeguards.needs_approval(proposed.id),
        "pending": pending,
        "waits": waits,
        "changed": changed,
        "there": _budget(query, status.budget) or (status.budget if pending is None else pending.budget),
        "last": last,
        "earlier": programme.unrecorded(status.step - 2),
        "parts": _parts(status, pending, last is None or last["is_recorded"], bool(changed)),
        "used": used or (plan and (plan.accepted_used or plan.used)),
        "has_changes": used is not None,
        "table": table,
        "looked": WINDOW,
        "last_served": programme.last_served(rows, plan.step, WINDOW) if plan else {},
        "needs": programme.in_need(rows, plan.step, WINDOW) if plan else {},
        "groups": list(status.groups),
        "kinds": list(status.arms),
        "typed": replace(typed, changes=changes),
        "drawn_part": drawn_part(plan.part) if plan and plan.part else "",
    }


def _last_step(programme: Programme, present: int) -> dict[str, Any] | None:
    """Return the step before the present one, and of how many arms it was recorded what was done."""
    accepted = programme.plans("accepted", 1)
    if not accepted or accepted[0].step != present - 1:
        return None
    arms, done = accepted[0].arms, programme.num_recorded(present - 1)
    facts = {"step": present - 1, "plan": accepted[0].id, "arms": arms}
    return facts | {"recorded": done, "is_recorded": done >= arms}


def _budget(query: TableQuery, usual: Mapping[str, float]) -> dict[str, float] | None:
    """Return the budget typed before a policy had to be solved; None if there is none."""
    try:
        amounts = [float(text) for text in query.text("there").split(",")]
    except ValueError:
        return None
    is_valid = len(amounts) == len(usual) and all(0 <= one < math.inf for one in amounts)
    return dict(zip(usual, amounts, strict=True)) if is_valid else None


def _used(plan: StoredPlan, words: Words, typed: Typed) -> dict[str, float] | None:
    """Return the use of a proposed plan with the typed overrides; None without overrides."""
    if not typed.changes or typed.place != "accept":
        return None
    cells = PlanCells(words, plan.rows)
    given = {one.arm: one.action for one in typed.changes if one.arm in cells.rows}
    return cells.used({arm: action for arm, action in given.items() if isinstance(cells.action(arm, action), int)})


def _parts(status: Status, plan: StoredPlan | None, is_recorded: bool, is_stale: bool) -> list[str]:
    """Return the state of the four parts of a day, of which the first that is not done is to be done now."""
    is_seen = status.observed >= sum(status.arms.values()) > 0
    done = [is_recorded, is_seen, plan is not None and not is_stale, False]
    # Conditions may be missing: the plan then goes by beliefs. They do not delay the plan.
    now = 2 if is_stale else 3 if plan else done.index(False)
    return ["now" if place == now else "done" if is_done else "" for place, is_done in enumerate(done)]


# The table


def uses_resource(words: Words, kind: tuple[str, str], state: str, action: str) -> bool | None:
    """Return whether an action uses a resource in a state; None if the model does not know them.

    Args:
        words: names of the model.
        kind: type and group of an arm.
        state: name of its state.
        action: name of its action.
    """
    block = words.blocks[kind]
    s, a = words.state(block, state), words.action(block, action)
    return None if isinstance(s, str) or isinstance(a, str) else bool(np.any(words.model.tables.usage[block, s, a]))


class _Lines:
    """The arms of a plan as a planner sees them; only those of the page that is shown are put into words."""

    def __init__(self, plan: StoredPlan | None, words: Words, vocabulary: Vocabulary, mine: set[str]) -> None:
        self.plan, self.words, self.vocabulary, self.mine = plan, words, vocabulary, mine
        self.rows = plan.rows if plan else ()
        self._actions = cache(self._find_actions)

    def actions(self, row: PlanRow) -> tuple[str, ...]:
        """Feasible actions."""
        return self._actions(row.type, row.group, row.state)

    def _find_actions(self, kind: str, group: str, state: str) -> tuple[str, ...]:
        block = self.words.blocks[kind, group]
        found, names = self.words.state(block, state), self.words.actions[block]
        valid = self.words.model.tables.valid
        return names if isinstance(found, str) else tuple(names[a] for a in np.flatnonzero(valid[block, found]))

    def is_served(self, row: PlanRow) -> bool:
        """Return whether an arm gets a resource, as accepted if the plan is."""
        served = None
        if row.accepted not in (None, row.action):
            served = uses_resource(self.words, (row.type, row.group), row.state, row.accepted or "")
        return row.served if served is None else served

    def short(self, row: PlanRow) -> Line:
        """Return what filters and orders look at."""
        is_override = row.why is not None
        by = f" by {row.who}" if row.who else ""
        return {
            "row": row,
            "action": row.accepted or row.action,
            "served": self.is_served(row),
            "why": f"by hand: {row.why}" if is_override else self.vocabulary.say(row.reason),
            "turn": None if is_override else row.next_in_line,
            "changed": f"changed from {row.action}{by}" if is_override else "",
            "mine": row.arm in self.mine,
        }

    def full(self, row: PlanRow) -> Line:
        """Return the line of a row but for what was done."""
        believed = "" if row.known == "seen" else f"most likely ({percent(row.chance, 0)}); "
        age = age_of(self.vocabulary, self.plan.step, row.seen_step) if self.plan else ""
        return self.short(row) | {"condition": believed + age, "actions": self.actions(row)}


def _list_rows(query: TableQuery, lines: _Lines) -> Listing[PlanRow]:
    words, group, kind, show = (query.text(name) for name in ("q", "group", "type", "show"))

    def keep(row: PlanRow) -> bool:
        if group not in ("", row.group) or kind not in ("", row.type):
            return False
        line = lines.short(row) if words or show else {}
        texts = (row.arm, row.type, row.group, row.state, line["action"], line["why"], line["changed"]) if words else ()
        return SHOWN.get(show, SHOWN[""])[1](line) and matches(words, *texts)

    def turn(row: PlanRow) -> float:
        """Return the place in the line of waiting arms; infinite if there is none."""
        return math.inf if row.why is not None else row.next_in_line or math.inf

    keys: dict[str, Callable[[PlanRow], tuple[Any, ...]]] = {
        "order": lambda row: (not lines.is_served(row), turn(row)),
        "arm": lambda _: (),
        "group": lambda row: (natural(row.group), natural(row.type)),
        "condition": lambda row: (row.state, row.known != "seen"),
        "action": lambda row: (not lines.is_served(row), row.accepted or row.action),
        "next": lambda row: (turn(row),),
    }
    return list_rows(query, lines.rows, keys, keep, "order", name=lambda row: row.arm)


# Conditions


@router.post("/today/conditions")
def send_conditions(request: Request, form: layout.Sending) -> Response:
    """Take observations."""
    programme = layout.programme_of(request)
    return layout.submit(
        request,
        form,
        "The conditions were not stored",
        lambda **by: (
            programme.observe(form.table(), form.text("source"), confirmed=bool(form.text("confirmed")), **by).event
        ),
        lambda *refused: (
            _repaired(request, form, "state", "conditions", refused[0]) or _today(request, form, "conditions", *refused)
        ),
    )


def _repaired(request: Request, form: Form, role: str, place: str, refusal: ErrorView) -> Response | None:
    """Show how a refused table would be stored after repairs, or what is wrong with a sheet; None if it is a text.

    Args:
        request: what is answered.
        form: with the table.
        role: `state` for conditions, `action` for records.
        place: of the form on the page.
        refusal: of the table as it was sent.
    """
    if refusal.status != 422 or form.text("cleaned"):
        return None
    programme, groups = service_of(request).programme, request.state.holder.groups
    with suppress(InvalidInputError):
        if {"arm", role} <= (sent := programme.library.table(form.table())).columns.keys() and sent.faults:
            return None  # lines of a wrong length are mended by hand: a repair would leave them out
    try:
        with programme.store.reading() as tx:
            words, step, arms = programme.library.model(tx)[1], present_step(tx), arms_named(tx, (), groups=groups)
            names = words.states if role == "state" else words.actions
            known, calendar = {role: sorted({name for own in names for name in own})}, vocabulary_of(tx)
            found = propose_table(form, known, calendar).at_steps(calendar, 0, step if role == "state" else step - 1)
            if role == "state":
                read_observations(found.table, arms, words, step, step)
            else:
                read_records(found.table, arms, words, step)
    except EvenhandError as error:
        if not form.is_sheet:
            return None
        wrong = layout.words_of(request).reworded(error)
        return _today(request, form, place, refusal_of(wrong, refusal.title))
    address, name = ("/today/conditions", "conditions") if role == "state" else ("/today/record", "records")
    return show_proposal(request, form, found, address, name)


def show_proposal(request: Request, form: Form, found: Proposal, address: str, name: str) -> Response:
    """Show what was understood of a table and what would be changed, to be confirmed; nothing is stored.

    Args:
        request: what is answered.
        form: with the table.
        found: the proposal.
        address: of the form that stores it.
        name: of what is stored.
    """
    values = {"found": found, "address": address, "name": name, "source": form.text("source") or "planner"}
    return layout.show(request, "upload", "Check the table", None, form, **values)


@router.get("/today/conditions.csv")
def conditions_table(request: Request) -> Response:
    """Return the arms, to fill in their states."""
    rows = [(arm.name, arm.type, arm.group, "") for arm in layout.programme_of(request).arms()]
    return _csv(request, ("arm", "type", "group", "state"), rows, "conditions.csv")


@router.get("/today")
@router.get("/today/{_}")
def leave_form() -> Response:
    """Go from the address of a form, loaded again, to the page as it is now."""
    return layout.to("/")


@router.get("/plans/{plan}.csv")
def plan_table(plan: int, request: Request) -> Response:
    """Return a plan as a table, which can be sent back as records."""
    found, say = layout.programme_of(request).plan_of(plan).rows, layout.words_of(request).say
    rows = [(row.arm, row.type, row.group, row.state, row.accepted or row.action, say(row.reason)) for row in found]
    return _csv(request, ("arm", "type", "group", "state", "action", "reason"), rows, f"plan-{plan}.csv")


def _csv(request: Request, columns: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Response:
    """Return a CSV file."""
    head = [layout.words_of(request).head(column) for column in columns]
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return PlainTextResponse(csv_text([head, *rows], "\r\n"), headers=headers, media_type="text/csv; charset=utf-8")


# The plan


@router.post("/today/plan")
async def make_plan(request: Request, form: layout.Sending) -> Response:
    """Make the plan; if a policy must be found first, in the background."""
    service, programme = service_of(request), layout.programme_of(request)
    job = await service.missing_policy(layout.author(request, form)["who"])
    if job is not None and not await job.ended(1.0):
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
    """Add or remove the fields of a change; nothing is stored. Only browsers without scripts come here."""
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

    what, holder = "The plan was not accepted", request.state.holder.name
    return layout.submit(
        request, form, what, lambda **by: programme.accept(form.number("plan"), rows, holder=holder, **by).event, again
    )


@router.post("/today/approve")
def approve_plan(request: Request, form: layout.Sending) -> Response:
    """Approve a plan with more than the usual budget."""
    programme, holder = layout.programme_of(request), request.state.holder.name
    return layout.submit(
        request,
        form,
        "The plan was not approved",
        lambda **by: programme.approve(form.number("plan"), holder=holder, **by).event,
        lambda *refused: _today(request, form, "", *refused),
    )


@router.post("/today/record")
def record_step(request: Request, form: layout.Sending) -> Response:
    """Take records."""
    programme, is_table = layout.programme_of(request), form.text("how") == "table"

    def write(**by: Any) -> int:
        if is_table:
            return programme.record(form.table(), "planner", confirmed=bool(form.text("confirmed")), **by).event
        others = {one.arm: one.action for one in _changes(form)}
        return programme.record_rest(form.number("plan"), others, "planner", **by).event

    place = "record" if is_table else "record-form"

    def again(refusal: ErrorView, sent: Any) -> Response:
        repaired = _repaired(request, form, "action", place, refusal) if is_table else None
        return repaired or _today(request, form, place, refusal, sent)

    return layout.submit(request, form, "Nothing was recorded", write, again)
