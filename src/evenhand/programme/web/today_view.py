"""The view of today: what to record of the last step, the conditions of this one, its plan, and what is accepted."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from evenhand.model.io.text_table import Table
from evenhand.programme.decisions import KeptPlan, PlanCells, PlanRow
from evenhand.programme.named_model import Words
from evenhand.programme.programme import Programme, Status
from evenhand.programme.web.paged_table import Listing, TableQuery, list_rows, matches, natural
from evenhand.programme.web.render import age_of
from evenhand.report.format import percent

LOOKED = 100
"""Steps over which last services and needs are looked up."""

SHOWN: dict[str, tuple[str, Callable[["Line"], bool]]] = {
    "": ("all arms", lambda _: True),
    "served": ("who gets something", lambda line: line.served),
    "line": ("who is next in line", lambda line: line.turn is not None),
    "believed": ("not seen at this step", lambda line: line.row.known != "seen"),
    "changed": ("changed by hand", lambda line: bool(line.changed) or line.mine),
}
"""Filters of the table."""


@dataclass(frozen=True)
class Line:
    """An arm of a plan as a planner sees it."""

    row: PlanRow
    condition: str
    """Source and age of the state."""
    action: str
    """Action, as accepted if the plan is."""
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
    mine: bool
    """Whether an override was typed and is not accepted yet."""


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


@dataclass(frozen=True)
class LastStep:
    """The step that was accepted last."""

    step: int
    plan: int
    arms: int
    done: Mapping[int, str]
    """Recorded actions by arm number."""

    @property
    def recorded(self) -> int:
        """Number of recorded arms."""
        return len(self.done)

    @property
    def is_recorded(self) -> bool:
        """All arms are recorded."""
        return self.recorded >= self.arms


def show_today(programme: Programme, query: TableQuery, typed: Typed | None = None) -> dict[str, Any]:
    """Return the values of the view.

    Args:
        programme: which.
        query: of the address.
        typed: entries that were not stored.
    """
    typed, status, pending = typed or Typed(), programme.status(), programme.current_plan()
    last = _last_step(programme, status.step)
    looks_back = last is not None and (query.text("of") == "last" or typed.place in ("record", "record-form"))
    proposed = None if looks_back else pending
    plan = proposed or (programme.plan_of(last.plan) if last else None)
    waits = pending.step if pending is not None and proposed is None else None
    words = Words(programme.model())
    # Arms of which a change was typed and is not accepted yet; a script names them in the address.
    mine = {*query.given.get("mine", "").split("\n"), *(one.arm for one in typed.changes)} - {""}
    lines = _lines(plan, words, last.done if last and proposed is None else {}, mine) if plan else []
    changed = [str(fault) for fault in programme.changed_since(proposed.id)] if proposed else []
    used = _used(proposed, words, typed) if proposed and proposed.model == status.model else None
    table = _list_lines(query, lines)
    rows = [line.row for line in table.rows]
    to_record = not proposed and waits is None and last is not None and not last.is_recorded
    feasible = {line.row.arm: line.actions for line in lines}
    changes = tuple(replace(one, actions=feasible.get(one.arm, ())) for one in typed.changes)
    return {
        "status": status,
        "heading": last.step if last is not None and (to_record or waits is not None) else status.step,
        "arms": sum(status.arms.values()),
        "plan": plan,
        "is_open": proposed is not None,
        "pending": pending,
        "waits": waits,
        "changed": changed,
        "there": _budget(query, status.budget) or (status.budget if pending is None else pending.budget),
        "last": last,
        "earlier": programme.unrecorded(status.step - 2),
        "parts": _parts(status, pending, last, bool(changed)),
        "used": used or (plan and (plan.accepted_used or plan.used)),
        "has_changes": used is not None,
        "table": table,
        "looked": LOOKED,
        "last_served": programme.last_served(rows, plan.step, LOOKED) if plan else {},
        "needs": programme.in_need(rows, plan.step, LOOKED) if plan else {},
        "groups": list(status.groups),
        "kinds": list(status.arms),
        "typed": replace(typed, changes=changes),
    }


def _last_step(programme: Programme, present: int) -> LastStep | None:
    """Return the step before the present one, and the actions that were recorded then."""
    accepted = programme.plans("accepted", 1)
    if not accepted or accepted[0].step != present - 1:
        return None
    return LastStep(present - 1, accepted[0].id, accepted[0].arms, programme.recorded(present - 1))


def _budget(query: TableQuery, usual: Mapping[str, float]) -> dict[str, float] | None:
    """Return the budget typed before a policy had to be solved; None if there is none."""
    try:
        amounts = [float(text) for text in query.text("there").split(",")]
    except ValueError:
        return None
    is_valid = len(amounts) == len(usual) and all(0 <= one < math.inf for one in amounts)
    return dict(zip(usual, amounts, strict=True)) if is_valid else None


def _used(plan: KeptPlan, words: Words, typed: Typed) -> dict[str, float] | None:
    """Return the use of a proposed plan with the typed overrides; None without overrides."""
    if not typed.changes or typed.place != "accept":
        return None
    cells = PlanCells(words, plan.rows)
    return cells.used({
        one.arm: one.action
        for one in typed.changes
        if one.arm in cells.rows and isinstance(cells.action(one.arm, one.action), int)
    })  # fmt: skip


def _parts(status: Status, plan: KeptPlan | None, last: LastStep | None, is_stale: bool) -> list[str]:
    """Return the state of the four parts of a day, of which the first that is not done is to be done now."""
    is_seen = status.observed >= sum(status.arms.values()) > 0
    done = [last is None or last.is_recorded, is_seen, plan is not None and not is_stale, False]
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


def _lines(plan: KeptPlan, words: Words, done: Mapping[int, str], mine: set[str]) -> list[Line]:
    """Return the arms of a plan, with the actions that were done by arm number, and the arms with typed changes."""

    @cache
    def actions(kind: str, group: str, state: str) -> tuple[str, ...]:
        block = words.blocks[kind, group]
        found, names = words.state(block, state), words.actions(block)
        valid = words.model.tables.valid
        return names if isinstance(found, str) else tuple(names[a] for a in np.flatnonzero(valid[block, found]))

    def line(row: PlanRow) -> Line:
        served, is_override = None, row.why is not None
        if row.accepted not in (None, row.action):
            served = uses_resource(words, (row.type, row.group), row.state, row.accepted or "")
        by = f" by {row.who}" if row.who else ""
        believed = "" if row.known == "seen" else f"believed, {percent(row.chance, 0)} likely; "
        return Line(
            row=row,
            condition=believed + age_of(plan.step, row.seen_step),
            action=row.accepted or row.action,
            served=row.served if served is None else served,
            why=f"by hand: {row.why}" if is_override else row.reason,
            turn=None if is_override else row.next_in_line,
            done=done.get(row.arm_id, ""),
            changed=f"changed from {row.action}{by}" if is_override else "",
            actions=actions(row.type, row.group, row.state),
            mine=row.arm in mine,
        )

    return [line(row) for row in plan.rows]


def _list_lines(query: TableQuery, lines: Sequence[Line]) -> Listing[Line]:
    words, group, kind, show = (query.text(name) for name in ("q", "group", "type", "show"))

    def keep(line: Line) -> bool:
        row, is_shown = line.row, SHOWN.get(show, SHOWN[""])[1]
        texts = (row.arm, row.type, row.group, row.state, line.action, line.why, line.changed)
        fits = group in ("", row.group) and kind in ("", row.type)
        return is_shown(line) and fits and matches(words, *texts)

    def turn(line: Line) -> float:
        return line.turn or math.inf

    keys: dict[str, Callable[[Line], tuple[Any, ...]]] = {
        "order": lambda line: (not line.served, turn(line)),
        "arm": lambda _: (),
        "group": lambda line: (natural(line.row.group), natural(line.row.type)),
        "condition": lambda line: (line.row.state, line.row.known != "seen"),
        "action": lambda line: (not line.served, line.action),
        "next": lambda line: (turn(line),),
    }
    return list_rows(query, lines, keys, keep, "order", name=lambda line: line.row.arm)


# Files to take along


def only_seen(table: Table) -> Table:
    """Return a table of conditions without the rows that were left blank: these arms were not observed.

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
    """Return the arms that take part, to fill in their states."""
    return _csv(("arm", "type", "group", "state"), [(arm.name, arm.type, arm.group, "") for arm in programme.arms()])


def actions_csv(plan: KeptPlan) -> str:
    """Return a plan as a CSV table, which can be sent back as records."""
    rows = [(row.arm, row.type, row.group, row.state, row.accepted or row.action, row.reason) for row in plan.rows]
    return _csv(("arm", "type", "group", "state", "action", "reason"), rows)


def _csv(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A CSV file; texts that a spreadsheet would take for a formula are left as they are, for they are read back."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\r\n").writerows([head, *rows])
    return stream.getvalue()
