"""Accepting a plan: overrides with reasons, within the budget, and only while the plan knows what is known.

A plan that was made before something changed is refused, with what changed: who joined or left, where arms are now,
the model. What was reported again and says the same changes nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from evenhand.errors import ConflictError, Fault
from evenhand.model.io.text_table import SHOWN_FAULTS, Table
from evenhand.model.labels import quantity
from evenhand.model.places import quoted
from evenhand.programme import schema
from evenhand.programme.belief import SEEN, Known
from evenhand.programme.decisions import PlanRow
from evenhand.programme.ledger import MOST_TEXT, change_rows, now
from evenhand.programme.named_model import Words
from evenhand.programme.roster import raise_faults, unknown_arm


@dataclass(frozen=True)
class Accepted:
    """Result of accepting a plan."""

    event: int
    """The number of the event."""

    plan: int
    """Which plan."""

    step: int
    """The step that is closed by it; the present one is the next."""

    overridden: int
    """Arms that get something else than was planned."""

    used: dict[str, float]
    """Use per resource."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Override:
    """Something else than was planned, for one arm."""

    place: int
    """Of the arm in the plan, from 0."""

    action: str
    why: str


class PlanCells:
    """The arms of a plan as places in the model's tables."""

    def __init__(self, words: Words, rows: Sequence[PlanRow]) -> None:
        """Look every arm up.

        Args:
            words: of the model.
            rows: of the plan.
        """
        self.words, self.rows = words, rows
        self.blocks = [words.blocks[row.type, row.group] for row in rows]
        self.states = [words.state_number(block, row.state) for block, row in zip(self.blocks, rows, strict=True)]

    def action(self, place: int, text: str, hint: bool = False) -> int | str:
        """The number of an action that an arm can get where it is; or what is wrong, perhaps with the nearest name."""
        block, state = self.blocks[place], self.states[place]
        found = self.words.action(block, text, hint)
        if isinstance(found, str) or self.words.model.tables.valid[block, state, found]:
            return found
        return f"{quoted(text)} cannot be done in state {quoted(self.rows[place].state)}"


def read_overrides(table: Table, cells: PlanCells, budget: Sequence[float]) -> list[Override]:
    """The overrides of a table with the columns arm, action and why.

    Args:
        table: as it was given.
        cells: the arms of the plan.
        budget: (resource,) what there is.

    Raises:
        TableError: with every fault and its row; also where the budget would be exceeded.
    """
    faults: list[Fault] = []
    places = {row.arm: place for place, row in enumerate(cells.rows)}
    met: dict[str, str] = {}
    found: list[Override] = []
    for number, row in enumerate(table.rows):
        name, text, why = (table.columns[column][number] for column in ("arm", "action", "why"))
        hint = len(faults) < SHOWN_FAULTS
        wrong = _fault_of_row(name, why, places, met, hint)
        action = cells.action(places[name], text, hint) if name in places else ""
        wrong += [action] if isinstance(action, str) and action else []
        faults += [Fault(row, content) for content in wrong]
        met.setdefault(name, row)
        if not wrong and isinstance(action, int):
            place = places[name]
            found.append(Override(place, cells.words.actions(cells.blocks[place])[action], why))
    raise_faults(faults or exceeded(cells, found, budget), table.source)
    return found


def _fault_of_row(name: str, why: str, places: dict[str, int], met: dict[str, str], hint: bool) -> list[str]:
    wrong = []
    if name not in places:
        wrong.append(unknown_arm(name, places, hint) if name else "has no arm")
    elif name in met:
        wrong.append(f"arm {quoted(name)} is also in {met[name]}")
    if not why:
        wrong.append("has no reason (why): an override needs one")
    elif len(why) > MOST_TEXT:
        wrong.append(f"a reason has at most {MOST_TEXT} characters")
    return wrong


def exceeded(cells: PlanCells, overrides: Sequence[Override], budget: Sequence[float]) -> list[Fault]:
    """Return the uses beyond the budget, by resource."""
    model = cells.words.model
    total = used_by(cells, overrides)
    limits = model.with_budget(list(budget)).budget_limit.tolist()
    rows = zip(model.resource_names, total, budget, limits, strict=True)
    return [
        Fault("", f"{name}: {quantity(round(use, 9))} would be used, and there are {quantity(there)}")
        for name, use, there, limit in rows
        if use > limit
    ]


def used_by(cells: PlanCells, overrides: Sequence[Override]) -> list[float]:
    """(resource,) what is used, overrides and all."""
    changed = {override.place: override.action for override in overrides}
    usage = cells.words.model.tables.usage
    total = usage[0, 0, 0] * 0.0
    for place, (block, state, row) in enumerate(zip(cells.blocks, cells.states, cells.rows, strict=True)):
        total = total + usage[block, state, cells.words.action_number(block, changed.get(place, row.action))]
    return [float(amount) for amount in total]


# Has anything changed?


def changes(rows: Sequence[PlanRow], known: Sequence[Known], words: Words, beliefs: bool = True) -> list[Fault]:
    """Return all information that arrived after a plan was made, one fault per arm.

    Args:
        rows: of the plan.
        known: of the arms that take part now.
        words: of the model.
        beliefs: whether unobserved arms are compared; under another model all their beliefs change.
    """
    then, now_ = {row.arm_id: row for row in rows}, {row.arm.id: row for row in known}
    content = [Fault(row.arm.name, "joined since") for row in known if row.arm.id not in then]
    content += [Fault(row.arm, "left since") for row in rows if row.arm_id not in now_]
    for row in known:
        old = then.get(row.arm.id) if beliefs or row.known == SEEN else None
        state = words.states(row.block)[row.state]
        if old is not None and (old.state, old.known, old.seen_step, old.chance) != (
            state, row.known, row.seen_step, row.chance
        ):  # fmt: skip
            content.append(Fault(row.arm.name, f"{_said(row.known, state, row)}; the plan took {_said_then(old)}"))
    return content


def _said(known: str, state: str, row: Known) -> str:
    return f"is {known} in {quoted(state)}" + ("" if row.chance == 1 else f" (chance {row.chance:.3g})")


def _said_then(row: PlanRow) -> str:
    return f"{quoted(row.state)}, {row.known}" + ("" if row.chance == 1 else f" (chance {row.chance:.3g})")


def refuse_closed(row: Any) -> None:
    """Refuse a plan that is not a proposal.

    Raises:
        ConflictError: it was accepted, or superseded.
    """
    if row.status == schema.ACCEPTED:
        by = f" by {row.accepted_by}" if row.accepted_by else ""
        raise ConflictError(f"plan {row.id} of step {row.step} was accepted already{by} (event {row.accepted_event})")
    if row.status == schema.SUPERSEDED:
        raise ConflictError(f"plan {row.id} of step {row.step} was superseded by a newer one; look at the present plan")


def refuse_changed(row: Any, faults: Sequence[Fault]) -> None:
    """Refuse a plan that knows less than is known.

    Raises:
        ConflictError: with all that changed.
    """
    if faults:
        known = f"plan {row.id} of step {row.step} was made from what was known at event {row.known_event}"
        raise ConflictError(f"{known}, and since then something changed. Plan again:", faults)


# Writing


def write_accepted(
    tx: Connection, plan: int, rows: Sequence[PlanRow], overrides: Sequence[Override], who: str, event: int
) -> None:
    """Close a plan.

    Args:
        tx: a transaction from `Store.writing`.
        plan: its number.
        rows: of the plan.
        overrides: of the plan.
        who: author, written into the event.
        event: the event that says so.
    """
    same = {"plan": plan, "who": None, "why": None}
    accepted = [same | {"arm": row.arm_id, "accepted": row.action} for row in rows]
    for one in overrides:
        accepted[one.place] |= {"accepted": one.action, "who": who, "why": one.why}
    change_rows(tx, schema.decisions, accepted)
    closed = {"status": schema.ACCEPTED, "accepted_by": who, "accepted_at": now(), "accepted_event": event}
    change_rows(tx, schema.plans, [{"id": plan} | closed])
