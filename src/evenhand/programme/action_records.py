"""Records of actions done and rewards. Records are never changed: the last on an arm and step counts.

A record on a step before the last accepted one is *late*; one that says something else than the record before it is a
*correction*. A next state is an observation of the step after, and is stored as one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, exists, func, select

from evenhand.errors import ConflictError, Fault, InvalidInputError
from evenhand.model.io.text_table import SHOWN_FAULTS, Table
from evenhand.model.places import quoted
from evenhand.programme import schema
from evenhand.programme.decisions import PlanRow
from evenhand.programme.ledger import add_rows, now
from evenhand.programme.named_model import Words
from evenhand.programme.observations import ReportRow, read_arms_and_steps
from evenhand.programme.roster import RosterArm, in_order, raise_faults

MOST_REWARD = 1e100
"""Rewards are smaller than this."""


@dataclass(frozen=True)
class Recorded:
    """Result of a table of records."""

    event: int
    """The number of the event."""

    records: int
    """Number of rows."""

    late: int
    """Number of rows on steps before the last accepted one."""

    corrected: int
    """Number of rows that differ from the record before."""

    differing: int
    """Number of rows that differ from the accepted action."""

    observations: int
    """Number of rows with a next state."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Record:
    """Record of one arm at one step."""

    row: ReportRow
    action: str
    reward: float | None
    next_state: str | None


@dataclass(frozen=True)
class Unrecorded:
    """A step of which it is not known of all arms what was done."""

    step: int
    plan: int
    """The plan that was accepted for it."""

    arms: int
    """Of how many it is not known."""


def read_records(table: Table, arms: Sequence[RosterArm], words: Words, present: int) -> list[Record]:
    """The rows of a table with the columns arm and action, and perhaps step, reward and next_state.

    Args:
        table: as it was given.
        arms: every arm that ever joined.
        words: of the model.
        present: the step that is not yet accepted.

    Raises:
        TableError: with every fault and its row.
    """
    rows, others = read_arms_and_steps(table, arms, max(present - 1, 0))
    found: list[Record] = []
    faults: list[Fault] = []
    for row in rows:
        record = _read(table, row, words, present, hint=len(faults) < SHOWN_FAULTS)
        if isinstance(record, Record):
            found.append(record)
        else:
            faults += [Fault(row.place, content) for content in record]
    raise_faults(in_order([*others, *faults, *table.faults]), table.source)
    return found


def _read(table: Table, row: ReportRow, words: Words, present: int, hint: bool) -> "Record | list[str]":
    """One record; or all that is wrong with it."""
    block = words.blocks[row.arm.type, row.arm.group]
    blank = [""] * len(table.rows)
    texts = (table.columns.get(name, blank)[row.number] for name in ("action", "reward", "next_state"))
    action_text, reward_text, state_text = texts
    action = words.action(block, action_text, hint)
    state = words.state(block, state_text, hint) if state_text else None
    reward = _reward(reward_text)
    faults = [content for content in (action, state) if isinstance(content, str)]
    if reward is not None and math.isnan(reward):
        faults.append(f"reward {quoted(reward_text)} must be a number")
    if row.step >= present:
        faults.append(f"step {row.step} has no accepted plan yet: what was done is recorded afterwards")
    if faults or isinstance(action, str) or isinstance(state, str):
        return faults
    name = None if state is None else words.states(block)[state]
    return Record(row, words.actions(block)[action], reward, name)


def _reward(text: str) -> float | None:
    """A reward that was typed; None where there is none, and NaN if it is not a number."""
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        return math.nan
    return found if abs(found) < MOST_REWARD else math.nan


def keep_records(tx: Connection, found: Sequence[Record], source: str, event: int) -> None:
    """Write what was done.

    Args:
        tx: a transaction from `Store.writing`.
        found: the records.
        source: source of the report.
        event: the event that says so.
    """
    same = {"source": source, "at": now(), "event": event}
    rows = [
        {"arm": one.row.arm.id, "step": one.row.step, "action": one.action, "reward": one.reward} | same
        for one in found
    ]
    add_rows(tx, schema.records, rows)


def known_records(tx: Connection, steps: Sequence[int]) -> dict[tuple[int, int], tuple[str, float | None]]:
    """Return the last record of each arm at some steps: action and reward."""
    table = schema.records
    query = select(table.c.arm, table.c.step, table.c.action, table.c.reward).where(
        table.c.step >= min(steps), table.c.step <= max(steps)
    )
    rows = tx.execute(query.order_by(table.c.event, table.c.id))
    return {(arm, step): (action, reward) for arm, step, action, reward in rows}


def rows_to_record(
    plan: int,
    step: int,
    rows: Sequence[PlanRow],
    others: Mapping[str, str],
    known: Mapping[int, tuple[str, float | None]],
) -> list[dict[str, str]]:
    """Return the new records of a step done as accepted, except for some arms; earlier records stay.

    Args:
        plan: the number of an accepted plan.
        step: its step.
        rows: of the plan.
        others: what was done instead, by arm.
        known: what was recorded last, by the arm's number; a reward is stored where only the action is another.

    Raises:
        ConflictError: all of it is recorded, and nothing else is said.
        InvalidInputError: the plan has no such arm.
    """
    arms = {row.arm for row in rows}
    if unknown := [Fault(name, f"is not in plan {plan}") for name in others if name not in arms]:
        raise InvalidInputError("of these nothing can be recorded:", unknown)
    found = []
    for row in rows:
        before, reward = known.get(row.arm_id, (None, None))
        action = others.get(row.arm, before or row.accepted or row.action)
        if action != before:
            content = "" if reward is None else repr(reward)
            found.append({"arm": row.arm, "step": str(step), "action": action, "reward": content})
    if not found:
        raise ConflictError(f"all of step {step} is recorded already, and nothing else was said now")
    return found


def unrecorded_steps(tx: Connection, first: int, last: int) -> list[Unrecorded]:
    """Accepted steps of a span of which it is not known of all arms what was done.

    Args:
        tx: a transaction.
        first: the first step.
        last: the last step.
    """
    plans, decided, stored = schema.plans, schema.decisions, schema.records
    span = (plans.c.step >= first) & (plans.c.step <= last) & (plans.c.status == schema.ACCEPTED)
    done = exists().where(stored.c.arm == decided.c.arm, stored.c.step == plans.c.step)
    query = select(plans.c.step, plans.c.id, func.count()).join(decided, decided.c.plan == plans.c.id)
    rows = tx.execute(query.where(span, ~done).group_by(plans.c.step, plans.c.id).order_by(plans.c.step))
    return [Unrecorded(*row) for row in rows]


def records_of(tx: Connection, arm: int) -> list[Mapping[str, Any]]:
    """Every record of one arm, in the order in which they came."""
    table = schema.records
    rows = tx.execute(select(table).where(table.c.arm == arm).order_by(table.c.id)).mappings()
    return [dict(row) for row in rows]
