"""Observations of states. Reports are never changed: of several on an arm and step the last counts.

A report on an earlier step is *late*; one that says something else than the report before it is a *correction*. Both
are stored beside the old ones, and plans say which they knew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, select

from evenhand.errors import Fault
from evenhand.model.io.text_table import SHOWN_FAULTS, Table
from evenhand.model.places import quoted
from evenhand.programme import schema
from evenhand.programme.ledger import add_rows, now
from evenhand.programme.named_model import Words
from evenhand.programme.roster import MOST_STEP, RosterArm, in_order, raise_faults, unknown_arm


@dataclass(frozen=True)
class Observed:
    """Result of a table of observations."""

    event: int
    """The number of the event."""

    observations: int
    """Number of rows."""

    late: int
    """Number of rows on steps before the present one."""

    corrected: int
    """Number of rows that differ from the report before."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class ReportRow:
    """One row of a table that is about arms at steps."""

    place: str
    """Place in the table, such as `line 4`."""

    arm: RosterArm
    step: int
    number: int
    """Its place in the table, from 0."""


def read_arms_and_steps(table: Table, arms: Sequence[RosterArm], usual: int) -> tuple[list[ReportRow], list[Fault]]:
    """Which arm and step each row is about; and what is wrong with the others.

    Args:
        table: with the column arm, and perhaps step.
        arms: every arm that ever joined.
        usual: the step of rows that name none.
    """
    named: dict[str, list[RosterArm]] = {}
    for arm in arms:
        named.setdefault(arm.name, []).append(arm)
    rows: list[ReportRow] = []
    faults: list[Fault] = []
    met: dict[tuple[int, int], str] = {}
    steps = table.columns.get("step", [""] * len(table.rows))
    for number, (place, name, text) in enumerate(zip(table.rows, table.columns["arm"], steps, strict=True)):
        step = _step(text, usual)
        found = next((arm for arm in named.get(name, []) if arm.takes_part(step)), None)
        if step < 0:
            faults.append(Fault(place, f"step {quoted(text)} must be a whole number from 0"))
        elif name not in named:
            faults.append(Fault(place, unknown_arm(name, named, len(faults) < SHOWN_FAULTS)))
        elif found is None:
            faults.append(Fault(place, f"arm {quoted(name)} does not take part at step {step}"))
        elif (found.id, step) in met:
            faults.append(Fault(place, f"arm {quoted(name)} is also in {met[found.id, step]}, at the same step"))
        else:
            met[found.id, step] = place
            rows.append(ReportRow(place, found, step, number))
    return rows, faults


def _step(text: str, usual: int) -> int:
    """The step that was typed; -1 where it is none."""
    if not text:
        return usual
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= MOST_STEP else -1


def read_observations(
    table: Table, arms: Sequence[RosterArm], words: Words, usual: int, present: int
) -> list[tuple[ReportRow, str]]:
    """The rows of a table, each with the name of a state.

    Args:
        table: with the columns arm and state, and perhaps step.
        arms: every arm that ever joined.
        words: of the model.
        usual: the step of rows that name none.
        present: the present step, the last that anybody can have seen.

    Raises:
        TableError: with every fault and its row.
    """
    rows, others = read_arms_and_steps(table, arms, usual)
    found: list[tuple[ReportRow, str]] = []
    faults: list[Fault] = []
    for row in rows:
        block = words.blocks[row.arm.type, row.arm.group]
        state = words.state(block, table.columns["state"][row.number], hint=len(faults) < SHOWN_FAULTS)
        if isinstance(state, str):
            faults.append(Fault(row.place, state))
        elif row.step > present:
            faults.append(Fault(row.place, f"step {row.step} is still to come; the present one is {present}"))
        else:
            found.append((row, words.states(block)[state]))
    raise_faults(in_order([*others, *faults, *table.faults]), table.source)
    return found


def keep_observations(tx: Connection, seen: Sequence[tuple[int, int, str]], source: str, event: int) -> None:
    """Write what was seen.

    Args:
        tx: a transaction from `Store.writing`.
        seen: (arm's number, step, state).
        source: source of the report.
        event: the event that says so.
    """
    same = {"source": source, "at": now(), "event": event}
    add_rows(tx, schema.observations, [{"arm": arm, "step": step, "state": state} | same for arm, step, state in seen])


def count_corrections(tx: Connection, seen: Sequence[tuple[int, int, str]]) -> int:
    """Return the number of reports that differ from the report before."""
    table = schema.observations
    steps = sorted({step for _, step, _ in seen})
    known: dict[tuple[int, int], str] = {}
    for start in range(0, len(steps), 500):
        part = select(table.c.arm, table.c.step, table.c.state).where(table.c.step.in_(steps[start : start + 500]))
        known |= {(arm, step): state for arm, step, state in tx.execute(part.order_by(table.c.id))}
    return sum(known.get((arm, step), state) != state for arm, step, state in seen)


def observations_of(tx: Connection, arm: int) -> list[Mapping[str, Any]]:
    """Every report on one arm, in the order in which they came."""
    table = schema.observations
    rows = tx.execute(select(table).where(table.c.arm == arm).order_by(table.c.id)).mappings()
    return [dict(row) for row in rows]
