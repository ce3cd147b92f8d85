"""Records from before a programme: what was seen and done at steps before 0.

Plans then know where each arm was last seen, when it was last served and for how long it has waited.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from evenhand.errors import Fault
from evenhand.model import SHOWN_FAULTS, quoted
from evenhand.model.io.text_table import Table
from evenhand.programme import schema
from evenhand.programme.ledger import Result, append
from evenhand.programme.named_model import Words
from evenhand.programme.reports import read_reward, store_reports
from evenhand.programme.roster import RosterArm, in_order, match_names, raise_faults
from evenhand.programme.vocabulary import Vocabulary


@dataclass(frozen=True)
class Imported(Result):
    """Result of an import of past records."""

    event: int
    """The number of the event."""

    first: int
    """The earliest step; the programme begins at step 0."""

    observations: int
    """Number of states stored, one per arm and step."""

    records: int
    """Number of actions stored, one per arm and step."""

    left_out: int
    """Number of rows on arms that do not take part, or on steps from 0 on."""


@dataclass(frozen=True)
class PastRecords:
    """Past observations and actions, as rows of the store."""

    seen: list[dict[str, Any]]
    done: list[dict[str, Any]]
    left_out: int

    def store(self, tx: Connection, source: str, who: str) -> Imported:
        """Write them as one event."""
        first = min(row["step"] for row in [*self.seen, *self.done])
        content = {"source": source, "first": first, "seen": len(self.seen), "done": len(self.done)}
        event = append(tx, "imported", who, content | {"left_out": self.left_out})
        store_reports(tx, schema.observations, self.seen, source, event)
        store_reports(tx, schema.records, self.done, source, event)
        return Imported(event, first, len(self.seen), len(self.done), self.left_out)


def read_past(
    table: Table, arms: Sequence[RosterArm], words: Words, calendar: Vocabulary, most_steps: int = 5_000
) -> PastRecords:
    """Read records from before the programme: observations and actions at steps before 0.

    Times are steps or dates. Steps from 0 on are counted back from the largest, which becomes -1; negative ones stay.
    Dates go by the calendar. Of several rows on an arm and step the last state counts, and the last action that uses a
    resource, else the last. Rows on arms that do not take part are left out.

    Args:
        table: with the columns arm, time or step, state and perhaps action and reward.
        arms: of the roster.
        words: of the model.
        calendar: of the programme.
        most_steps: between the first record and the programme; beliefs and audits go through every step since.

    Raises:
        TableError: with every fault and its row.
    """
    blank = [""] * len(table.rows)
    texts = {name: table.columns.get(name, blank) for name in ("arm", "state", "action", "reward")}
    steps, faults = _steps_of(table, calendar)
    named = {arm.name: arm for arm in arms}
    match, served = match_names(named), words.model.tables.served
    seen: dict[tuple[int, int], str] = {}
    done: dict[tuple[int, int], tuple[str, float | None, bool]] = {}
    left_out = 0
    for number in sorted(range(len(steps)), key=lambda number: steps[number] or 0):
        arm, step, place = named.get(match(texts["arm"][number])), steps[number], table.rows[number]
        if arm is None or step is None or step >= 0:
            left_out += 1
            continue
        if step < -most_steps:
            far = f"is {-step:,} {calendar.step.many} before the programme begins; {most_steps:,} can be stored"
            faults.append(Fault(place, f"{far}. Check the time, or leave the row out"))
            continue
        block, hint, cell = words.blocks[arm.type, arm.group], len(faults) < SHOWN_FAULTS, (arm.id, step)
        if text := texts["state"][number]:
            state = words.state(block, text, hint)
            if isinstance(state, int):
                seen[cell] = words.states[block][state]
            else:
                faults.append(Fault(place, state))
        if text := texts["action"][number]:
            action, reward = words.action(block, text, hint), read_reward(texts["reward"][number])
            if isinstance(action, str):
                faults.append(Fault(place, action))
            elif reward is not None and math.isnan(reward):
                faults.append(Fault(place, f"reward {quoted(texts['reward'][number])} must be a number"))
            elif (uses := bool(served[block, :, action].any())) or not done.get(cell, ("", None, False))[2]:
                done[cell] = words.actions[block][action], reward, uses
    if not seen and not done and not faults:
        faults.append(Fault("", "no row is about an arm of the roster before the programme begins"))
    raise_faults(in_order([*faults, *table.faults]), table.source)
    return PastRecords(
        [{"arm": arm, "step": step, "state": state} for (arm, step), state in sorted(seen.items())],
        [
            {"arm": arm, "step": step, "action": action, "reward": reward}
            for (arm, step), (action, reward, _) in sorted(done.items())
        ],
        left_out,
    )


def _steps_of(table: Table, calendar: Vocabulary) -> tuple[list[int | None], list[Fault]]:
    """The step of every row, and faults."""
    column = "step" if "step" in table.columns else "time"
    texts = table.columns[column]
    numbers = [int(text) for text in texts if re.fullmatch(r"-?[0-9]{1,9}", text)]
    if len(numbers) == len(texts):
        back = 0 if min(numbers) < 0 else 1 + max(numbers)
        return [number - back for number in numbers], []
    if calendar.start is None:
        return [], [Fault(column, "these are not steps, and dates need a calendar: give its start and period")]
    steps = [calendar.step_of(text) for text in texts]
    wrong = [(row, text) for row, text, step in zip(table.rows, texts, steps, strict=True) if step is None]
    message = "must be a whole number, a date such as 2026-06-29, or a month such as 2026-06"
    return steps, [Fault(row, f"{column} {quoted(text)} {message}") for row, text in wrong]
