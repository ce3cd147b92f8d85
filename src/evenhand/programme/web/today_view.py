"""The view of today: what to record of the last step, the conditions of this one, its plan, and what is accepted."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from evenhand.display import counted
from evenhand.model.io.text_table import Table
from evenhand.programme.acceptance import Override, PlanCells, used_by
from evenhand.programme.action_records import Unrecorded
from evenhand.programme.decisions import ROUNDED, KeptPlan, PlanRow
from evenhand.programme.named_model import Words
from evenhand.programme.programme import Programme, Status
from evenhand.programme.web.paged_table import Listing, TableQuery, list_rows, matches, natural
from evenhand.programme.web.render import age_of
from evenhand.report.format import amount, percent

LAST = 10**9
"""Sort key of arms without a rank: behind all others."""


LOOKED = 100
"""Steps over which it is looked who was served last."""


@dataclass(frozen=True)
class DayStep:
    """A part of the day."""

    name: str
    text: str
    anchor: str
    state: str = ""
    """`done`, `now`, or nothing."""


@dataclass(frozen=True)
class Bar:
    """Use of a budget."""

    name: str
    text: str
    used: float
    budget: float


@dataclass(frozen=True)
class Line:
    """An arm of a plan as a planner sees it."""

    arm: str
    kind: str
    group: str
    state: str
    known: bool
    """Seen at this step, not only believed."""
    condition: str
    """Source and age of the state."""
    action: str
    """Action, as accepted if the plan is."""
    planned: str
    served: bool
    why: str
    turn: int | None
    """Rank in the order of service if the budget were larger."""
    done: str
    """Recorded action; empty if unknown."""
    changed: str
    """Author and reason of the override."""
    actions: tuple[str, ...]
    """Feasible actions."""
    mine: bool = False
    """Whether an override was typed and is not accepted yet."""


@dataclass(frozen=True)
class Change:
    """Something else than planned, as it was typed so far."""

    arm: str
    action: str = ""
    why: str = ""
    actions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Typed:
    """Entries of the forms to show again."""

    changes: tuple[Change, ...] = ()
    who: str = ""
    text: str = ""
    """The rows of a table."""
    source: str = ""
    place: str = ""
    """The form that was refused."""


@dataclass(frozen=True)
class LastStep:
    """The step that was accepted last."""

    step: int
    plan: int
    recorded: int
    """Arms of which it is known what was done."""
    arms: int
    done: Mapping[int, str]
    """Recorded actions by arm number."""

    @property
    def is_recorded(self) -> bool:
        """All arms are recorded."""
        return self.recorded >= self.arms


@dataclass(frozen=True)
class Today:
    """All that the view shows."""

    status: Status
    arms: int
    plan: KeptPlan | None
    """The one that is proposed, else the one that was accepted last."""
    is_open: bool
    """Whether the plan can be accepted."""
    waits: int | None
    """Step of a plan that is open while another one is shown."""
    changed: tuple[str, ...]
    """Why the plan would be refused now: what is known and was not when it was made."""
    there: Mapping[str, float]
    """Budget in the form that makes a plan."""
    last: LastStep | None
    earlier: tuple[Unrecorded, ...]
    """Steps before the last of which it is not known of all arms what was done."""
    parts: tuple[DayStep, ...]
    bars: tuple[Bar, ...]
    table: Listing[Line] | None
    served: Mapping[str, str]
    """When the arms that are shown were last served before this step, in words."""
    needs: Mapping[str, str]
    """For how long those that are shown have been in need, in words."""
    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    worth: str
    """Value of the plan, in words."""
    typed: Typed = field(default_factory=Typed)

    @property
    def is_doing(self) -> bool:
        """The last step is not fully recorded."""
        return not self.is_open and self.waits is None and self.last is not None and not self.last.is_recorded

    @property
    def heading(self) -> int:
        """The step that the work is about."""
        return (
            self.last.step if self.last is not None and (self.is_doing or self.waits is not None) else self.status.step
        )


def show_today(programme: Programme, request: TableQuery, typed: Typed | None = None) -> Today:
    """The view.

    Args:
        programme: which.
        request: what the address asks of the table.
        typed: what was typed and not stored.
    """
    typed, status, pending = typed or Typed(), programme.status(), programme.current_plan()
    last = _last_step(programme, status.step)
    looks_back = last is not None and (request.text("of") == "last" or typed.place in ("record", "record-form"))
    proposed = None if looks_back else pending
    plan = proposed or (programme.plan_of(last.plan) if last else None)
    done = last.done if last and proposed is None else {}
    words = Words(programme.model())
    lines = [] if plan is None else lines_of(plan, words, done)
    mine = _mine(request, typed)
    lines = [replace(line, mine=line.arm in mine) for line in lines] if mine else lines
    changed = () if proposed is None else tuple(str(fault) for fault in programme.changed_since(proposed.id))
    used = None if proposed is None or proposed.model != status.model else _used(proposed, words, typed)
    table = None if plan is None else list_lines(request, lines)
    return Today(
        status=status,
        arms=sum(status.arms.values()),
        plan=plan,
        is_open=proposed is not None,
        waits=pending.step if pending is not None and proposed is None else None,
        changed=changed,
        there=_there(request, status.budget) or (status.budget if pending is None else pending.budget),
        last=last,
        earlier=tuple(programme.unrecorded(status.step - 2)),
        parts=_parts(status, pending, last, bool(changed)),
        bars=() if plan is None else bars_of(plan, status.budget, used),
        table=table,
        served={} if plan is None or table is None else _served(programme, plan, table),
        needs={} if plan is None or table is None else _needs(programme, plan, table),
        groups=tuple(status.groups),
        kinds=tuple(status.arms),
        worth="" if plan is None else _worth(plan),
        typed=_with_actions(typed, lines),
    )


def _served(programme: Programme, plan: KeptPlan, table: Listing[Line]) -> dict[str, str]:
    """When the arms of one page of the table were last served."""
    shown = {line.arm for line in table.rows}
    rows = [row for row in plan.rows if row.arm in shown]
    found = programme.last_served(rows, plan.step, LOOKED)
    never = "not so far" if plan.step <= LOOKED else f"not in the last {LOOKED} steps"
    return {row.arm: _steps_ago(plan.step - found[row.arm_id]) if row.arm_id in found else never for row in rows}


def _needs(programme: Programme, plan: KeptPlan, table: Listing[Line]) -> dict[str, str]:
    """For how long the arms of one page of the table have been in need."""
    shown = {line.arm for line in table.rows}
    rows = [row for row in plan.rows if row.arm in shown]
    found = programme.in_need(rows, plan.step, LOOKED)
    if found is None:
        return {row.arm: "not known" for row in rows}
    return {row.arm: _in_need(found.get(row.arm_id, 0)) for row in rows}


def _in_need(steps: int) -> str:
    if steps > LOOKED:
        return f"more than {LOOKED} steps"
    return ("–", "new")[steps] if steps < 2 else f"{steps} steps"


def _steps_ago(steps: int) -> str:
    return "one step ago" if steps == 1 else f"{steps} steps ago"


def _mine(request: TableQuery, typed: Typed) -> set[str]:
    """Arms of which a change was typed and is not accepted yet; a script names them in the address."""
    return {*request.given.get("mine", "").split("\n"), *(one.arm for one in typed.changes)} - {""}


def _there(request: TableQuery, usual: Mapping[str, float]) -> dict[str, float] | None:
    """Return the budget typed before a policy had to be solved; None if there is none."""
    texts = request.text("there").split(",")
    try:
        amounts = [float(text) for text in texts]
    except ValueError:
        return None
    sound = len(amounts) == len(usual) and all(0 <= one < math.inf for one in amounts)
    return dict(zip(usual, amounts, strict=True)) if sound else None


def _used(plan: KeptPlan, words: Words, typed: Typed) -> dict[str, float] | None:
    """Return the use of a proposed plan with the typed overrides; None without overrides."""
    if not typed.changes or typed.place != "accept":
        return None
    cells = PlanCells(words, plan.rows)
    places = {row.arm: place for place, row in enumerate(plan.rows)}
    sound = [
        Override(places[one.arm], one.action, one.why)
        for one in typed.changes
        if one.arm in places and isinstance(cells.action(places[one.arm], one.action), int)
    ]
    used = [round(use, ROUNDED) for use in used_by(cells, sound)]
    return dict(zip(words.model.resource_names, used, strict=True))


def _last_step(programme: Programme, present: int) -> LastStep | None:
    """The step before the present one, and of how many arms it is known what was done then."""
    accepted = programme.plans("accepted", 1)
    if not accepted or accepted[0].step != present - 1:
        return None
    plan, done = accepted[0], programme.recorded(present - 1)
    return LastStep(plan.step, plan.id, len(done), plan.arms, done)


def _parts(status: Status, proposed: KeptPlan | None, last: LastStep | None, stale: bool) -> tuple[DayStep, ...]:
    """The four parts of a day; the first that is not done is to be done now, and a plan that is out of date is not."""
    arms = sum(status.arms.values())
    record = DayStep("Record", "no step to record yet" if last is None else _recorded(last), "#record")
    seen = f"{status.observed} of {counted(arms, 'arm')} seen at step {status.step}"
    plan = "not made yet" if proposed is None else f"{proposed.served} of {proposed.arms} arms get something"
    plan = "out of date: make it again" if stale else plan
    done = [last is None or last.is_recorded, status.observed >= arms > 0, proposed is not None and not stale, False]
    found = [
        record,
        DayStep("Conditions", seen, "#conditions"),
        DayStep("Plan", plan, "#plan"),
        DayStep(
            "Accept",
            "changes need a reason"
            if done[2]
            else "when there is a plan that is up to date"
            if stale
            else "when there is a plan",
            "#accept" if proposed else "#plan",
        ),
    ]
    # Conditions may be missing: the plan then goes by beliefs. They do not delay the plan.
    now = 2 if stale else 3 if proposed else next(place for place, is_done in enumerate(done) if not is_done)
    states = ["now" if place == now else "done" if is_done else "" for place, is_done in enumerate(done)]
    return tuple(DayStep(one.name, one.text, one.anchor, state) for one, state in zip(found, states, strict=True))


def _recorded(last: LastStep) -> str:
    if last.is_recorded:
        return f"step {last.step} is recorded"
    if not last.recorded:
        return f"what was done at step {last.step}?"
    return f"step {last.step}: {last.recorded} of {counted(last.arms, 'arm')} recorded"


def _worth(plan: KeptPlan) -> str:
    """Describe the quality of the policy for the present roster."""
    sure = plan.certificate
    if sure is None or sure.upper_bound <= 0 or sure.gap > 1:
        return ""
    near = percent(max(sure.gap, 0.0))
    return f"This policy is within {near} of the best that any could do for these {counted(plan.arms, 'arm')}."


def bars_of(plan: KeptPlan, names: Iterable[str], changed: Mapping[str, float] | None = None) -> tuple[Bar, ...]:
    """Return the use of each budget by a plan.

    Args:
        plan: which.
        names: of the resources, in their order.
        changed: what it would use with changes that are not accepted yet.
    """
    used = changed or plan.accepted_used or plan.used
    return tuple(_bar(name, used.get(name, 0.0), plan.budget[name], changed is not None) for name in names)


def _bar(name: str, use: float, there: float, changed: bool) -> Bar:
    over = ": more than there is" if use > there * (1 + 1e-9) else ""
    text = f"{amount(use)} of {amount(there)} used" + (" with the changes" if changed else "") + over
    return Bar(name, text, use, there)


# The table


def lines_of(plan: KeptPlan, words: Words, done: Mapping[int, str] | None = None) -> list[Line]:
    """The arms of a plan.

    Args:
        plan: which.
        words: of the model.
        done: what was done, by the numbers of the arms.
    """
    tables = words.model.tables

    @cache
    def actions(kind: str, group: str, state: str) -> tuple[str, ...]:
        block = words.blocks[kind, group]
        found = words.state(block, state)
        names = words.actions(block)
        return names if isinstance(found, str) else tuple(names[a] for a in np.flatnonzero(tables.valid[block, found]))

    def serves(row: PlanRow) -> bool:
        if row.accepted in (None, row.action):
            return row.served
        block = words.blocks[row.type, row.group]
        state, action = words.state(block, row.state), words.action(block, row.accepted or "")
        if isinstance(state, str) or isinstance(action, str):
            return row.served
        return bool(np.any(tables.usage[block, state, action]))

    known = done or {}
    return [
        _line(row, plan.step, actions(row.type, row.group, row.state), serves(row), known.get(row.arm_id, ""))
        for row in plan.rows
    ]


def _line(row: PlanRow, step: int, actions: tuple[str, ...], served: bool, done: str) -> Line:
    known = row.known == "seen"
    sure = "" if known else f"believed, {percent(row.chance, 0)} likely; "
    return Line(
        arm=row.arm,
        kind=row.type,
        group=row.group,
        state=row.state,
        known=known,
        condition=sure + age_of(step, row.seen_step),
        action=row.accepted or row.action,
        planned=row.action,
        served=served,
        why=row.reason if row.why is None else f"by hand: {row.why}",
        turn=row.next_in_line if row.why is None else None,
        done=done,
        changed="" if row.why is None else f"changed from {row.action}" + (f" by {row.who}" if row.who else ""),
        actions=actions,
    )


SHOWN = {
    "": "all arms",
    "served": "who gets something",
    "line": "who is next in line",
    "believed": "not seen at this step",
    "changed": "changed by hand",
}
"""Filters of the table."""


def _is_shown(line: Line, show: str) -> bool:
    """Return whether a line passes one of the filters `SHOWN`."""
    match show:
        case "served":
            return line.served
        case "line":
            return line.turn is not None
        case "believed":
            return not line.known
        case "changed":
            return bool(line.changed) or line.mine
    return True


def list_lines(request: TableQuery, lines: Sequence[Line]) -> Listing[Line]:
    """Return the requested table."""
    words, group, kind, show = (request.text(name) for name in ("q", "group", "type", "show"))

    def keep(line: Line) -> bool:
        return (
            _is_shown(line, show)
            and group in ("", line.group)
            and kind in ("", line.kind)
            and matches(words, line.arm, line.kind, line.group, line.state, line.action, line.why, line.changed)
        )

    keys: dict[str, Callable[[Line], Any]] = {
        "order": lambda line: (not line.served, line.turn or LAST, natural(line.arm)),
        "arm": lambda line: natural(line.arm),
        "group": lambda line: (natural(line.group), natural(line.kind), natural(line.arm)),
        "condition": lambda line: (line.state, not line.known, natural(line.arm)),
        "action": lambda line: (not line.served, line.action, natural(line.arm)),
        "next": lambda line: (line.turn or LAST, natural(line.arm)),
    }
    return list_rows(request, lines, keys, keep, "order")


def _with_actions(typed: Typed, lines: Sequence[Line]) -> Typed:
    """Changes with what each arm can get."""
    known = {line.arm: line for line in lines}
    changes = tuple(
        Change(one.arm, one.action, one.why, known[one.arm].actions if one.arm in known else ())
        for one in typed.changes
    )
    return Typed(changes, typed.who, typed.text, typed.source, typed.place)


# Files to take along


def only_seen(table: Table) -> Table:
    """A table of conditions without the rows that were left blank: these arms were not observed.

    Args:
        table: such as the page's own list, filled in.
    """
    blank = [""] * len(table.rows)
    names, states = table.columns.get("arm", blank), table.columns.get("state", blank)
    filled = [place for place, (name, state) in enumerate(zip(names, states, strict=True)) if state or not name]
    if not filled or len(filled) == len(table.rows):
        return table
    columns = {name: [column[place] for place in filled] for name, column in table.columns.items()}
    return replace(table, columns=columns, rows=[table.rows[place] for place in filled])


def conditions_csv(programme: Programme) -> str:
    """The arms that take part, to fill in where they are."""
    return _csv(("arm", "type", "group", "state"), [(arm.name, arm.type, arm.group, "") for arm in programme.arms()])


def actions_csv(plan: KeptPlan) -> str:
    """Return a plan as a CSV table, which can be sent back as records."""
    rows = [(row.arm, row.type, row.group, row.state, row.accepted or row.action, row.reason) for row in plan.rows]
    return _csv(("arm", "type", "group", "state", "action", "reason"), rows)


def _csv(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A CSV file; texts that a spreadsheet would take for a formula are left as they are, for they are read back."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(head)
    writer.writerows(rows)
    return stream.getvalue()
