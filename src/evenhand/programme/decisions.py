"""Plans of a programme: from what is stored to what every arm gets, and back to what is shown.

A plan is a function of its *inputs*: the step, the model, the policy, the seed, the budget, and what is known of each
arm. A digest stands for all of them; who asks for a plan with the same inputs gets the same plan. Its *outputs* are the
action of each arm and who would be next; a digest stands for them, so that a plan can be computed again, later and
elsewhere, and compared. Reasons are stored, and not part of the digest.

A plan is accepted with overrides, each with a reason, within the budget, and only while the plan knows what is known:
one that was made before something changed is refused, with what changed: who joined or left, where arms are now, the
model. What was reported again and says the same changes nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from evenhand.checks import LARGEST
from evenhand.display import counted
from evenhand.errors import Fault
from evenhand.model import SHOWN_FAULTS, CoupledMDP, quoted
from evenhand.model.io.text_table import Table
from evenhand.model.labels import quantity
from evenhand.planning import Plan
from evenhand.planning.plan import Decisions
from evenhand.programme import ledger, schema
from evenhand.programme.belief import BELIEVED, SEEN, Known
from evenhand.programme.certificates import Certificate
from evenhand.programme.named_model import Words
from evenhand.programme.roster import match_names, raise_faults, transferred, unknown_arm
from evenhand.report.format import spelled
from evenhand.typing import Ints

_PREFERRED = re.compile(r"(?<=^waits: the promise to )\d+(?= \()")


@dataclass(frozen=True)
class Planned(ledger.Result):
    """Result of planning."""

    plan: int
    """The number of the plan; `Programme.plan_of` has all of it."""

    step: int
    """For which step."""

    event: int
    """The event by which it was made."""

    arms: int
    """Number of arms."""

    served: int
    """Number of arms served."""

    believed: int
    """Number of arms not observed at this step."""

    used: dict[str, float]
    """Resource use."""

    budget: dict[str, float]
    """Budget."""

    replaced: int | None
    """The plan of the same step that it takes the place of."""


@dataclass(frozen=True)
class PlanRow(ledger.Result):
    """One arm of a plan."""

    arm: str
    type: str
    group: str
    state: str
    """Observed or most likely state."""

    known: str
    """`seen` at this step, or `believed`."""

    seen_step: int | None
    """The step at which it was last seen."""

    chance: float
    """Probability of that state; 1 if observed."""

    action: str
    """Planned action."""

    served: bool
    """Whether the action uses a resource."""

    reason: str
    """Why."""

    next_in_line: int | None
    """Rank in the order of service if the budget were larger; None if served, or without an order."""

    accepted: str | None
    """Accepted action; None while the plan is a proposal."""

    who: str | None
    """Author of the override, if any."""

    why: str | None
    """Reason of the override."""

    arm_id: int = 0
    """The number of the arm in the store."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        content = dict(vars(self))
        del content["arm_id"]
        return content


@dataclass(frozen=True)
class StoredPlan(ledger.Result):
    """A plan as it is stored."""

    id: int
    step: int
    status: str
    """`proposed`, `accepted` or `superseded`."""

    model: str
    """The digest of the model."""

    policy: str
    """The digest of the policy."""

    seed: int
    budget: dict[str, float]
    """Budget per resource."""

    used: dict[str, float]
    """Use per resource."""

    accepted_used: dict[str, float] | None
    """Use of the accepted actions; None while it is a proposal, and in lists of plans."""

    inputs: str
    """Digest of the inputs."""

    outputs: str
    """Digest of the decisions."""

    known_event: int
    """Last event taken into account."""

    missing: int
    """Arms not observed at this step."""

    late: int
    """Reports on earlier steps that came since the last plan was accepted."""

    arms: int
    served: int
    part: dict[str, Any] | None
    """The part of a mixture that acts: its number, share and name."""

    note: str
    """Difference from the problem that the policy was solved for, in words."""

    warnings: tuple[str, ...]
    """Promises that were not met, and decisions that rest on few observations, in words."""

    event: int
    at: str
    accepted_by: str | None
    accepted_at: str | None
    accepted_event: int | None
    approved_by: str | None
    """Who approved it while it was proposed, if that is required."""

    certificate: Certificate | None
    """Certificate of the policy for this roster, if known; `Programme.certificate` computes it."""

    rows: tuple[PlanRow, ...]
    """Arms in the order in which they joined; empty in lists of plans."""


@dataclass(frozen=True)
class Inputs:
    """All that a plan follows from."""

    step: int
    model: str
    policy: str
    seed: int
    budget: list[float]
    known: list[Known]
    known_event: int

    @cached_property
    def digest(self) -> str:
        """Stands for all of it but the event: the same knowledge is the same, whenever it was come by."""
        arms = [
            [
                *(row.arm.id, row.arm.type, row.arm.group),
                *(row.state, row.known, row.seen_step, row.chance, row.waiting, row.unserved),
            ]
            for row in self.known
        ]
        return ledger.digest_of([self.step, self.model, self.policy, self.seed, self.budget, arms])


def check_budget(model: CoupledMDP, budget: Any) -> list[float]:
    """(resource,) budget of a step: the given one, else the model's."""
    found: list[float] = (model if budget is None else model.with_budget(budget)).budget.tolist()
    return found


def decide(plan: Plan, inputs: Inputs, words: Words, evidence: Ints | None = None) -> Decisions:
    """Decide the action of every arm, as `evenhand act` does with the same policy, states, seed, budget and step.

    Arms go by their numbers: names draw lots and may be erased, and a plan can be computed again all the same. Of arms
    of one type and state those that have waited longest are served first.

    Args:
        plan: the policy.
        inputs: of the plan.
        words: of the model.
        evidence: (block, state, action) number of observations behind the model, -1 if unknown.

    Raises:
        NotApplicableError: the policy is a table for other numbers, or for more budget.
    """
    states = {
        "arm": [str(row.arm.id) for row in inputs.known],
        "type": [row.arm.type for row in inputs.known],
        "group": [row.arm.group for row in inputs.known],
        "state": [words.states[row.block][row.state] for row in inputs.known],
        "waiting": [row.waiting for row in inputs.known],
    }
    cells = ([row.block for row in inputs.known], [row.state for row in inputs.known])
    seen = None if evidence is None else evidence[cells]
    waits = np.array([[row.waiting, row.unserved] for row in inputs.known]).reshape(-1, 2)
    return plan.act(states, inputs.seed, budget=inputs.budget, step=inputs.step, observations=seen, waits=waits)


def overdue(inputs: Inputs, decisions: Decisions, words: Words) -> list[str]:
    """Return a warning if arms have waited longer than promised, also those that are served now.

    Args:
        inputs: of the plan.
        decisions: of the plan.
        words: of the model.
    """
    limits = words.model.max_waits
    late = [
        (row.waiting - int(limits[row.block, row.state]), row.arm.id, done.served, row.waiting)
        for row, done in zip(inputs.known, decisions.rows, strict=True)
        if 0 <= limits[row.block, row.state] < row.waiting
    ]
    if not late:
        return []
    unserved = sum(not served for _, _, served, _ in late)
    longest = max(waiting for *_, waiting in late)
    rest = f"{unserved} of them are not served now" if unserved else "all of them are served now"
    return [f"{counted(len(late), 'arm')} waited longer than promised, up to {counted(longest, 'step')}; {rest}"]


def few_observations(decisions: Decisions, enough: int = 10) -> list[str]:
    """Return the decisions that rest on few observations, in words, the fewest first.

    Args:
        decisions: of a plan.
        enough: number of observations that are not few.
    """
    few = [row for row in decisions.rows if row.observations is not None and row.observations < enough]
    cells = Counter((row.observations, row.action, row.type, row.state) for row in few)
    found = []
    for (seen, action, kind, state), many in sorted(cells.items()):
        rests = "was never observed" if not seen else f"rests on {seen} observation{'s' if seen != 1 else ''} only"
        found.append(f"{action} for {kind} in {state} {rests} ({counted(many, 'arm')})")
    return found


def outputs_of(inputs: Inputs, decisions: Decisions) -> str:
    """Digest of the decisions of a plan."""
    rows = zip(inputs.known, decisions.rows, decisions.line, strict=True)
    return ledger.digest_of([[known.arm.id, row.action, row.served, place] for known, row, place in rows])


def drawn_part(part: Mapping[str, Any]) -> str:
    """Return the sentence on the part of a mixture that acts, without its full stop.

    Args:
        part: JSON form of a `PlanPart`; the seed of the programme draws it, the same at every step.
    """
    drawn = f"One of {spelled(part['parts'])} variants was drawn when this way of planning began"
    return f"{drawn}; it stays variant {part['number']}"


# Writing


def store_plan(tx: Connection, inputs: Inputs, decisions: Decisions, words: Words, late: int, who: str) -> Planned:
    """Propose a plan; one that was proposed for the step before is superseded.

    Args:
        tx: a transaction from `Store.writing`.
        inputs: what it follows from.
        decisions: what it says.
        words: of the model.
        late: reports on earlier steps that came since the last plan was accepted.
        who: author.
    """
    table = schema.plans
    older = proposal(tx, inputs.step)
    replaced = None if older is None else int(older.id)
    number = ledger.next_id(tx, table)
    digests = {"inputs": inputs.digest, "outputs": outputs_of(inputs, decisions)}
    event = ledger.append(tx, "planned", who, {"plan": number, "step": inputs.step, "replaced": replaced} | digests)
    content = {
        "arms": len(inputs.known),
        "served": sum(row.served for row in decisions.rows),
        "missing": sum(row.known == BELIEVED for row in inputs.known),
        "late": late,
        "used": decisions.used,
        "budget": decisions.budget,
        "part": None if decisions.part is None else decisions.part.to_dict(),
        "note": decisions.note,
        "warnings": [*overdue(inputs, decisions, words), *few_observations(decisions)],
        "replaced": replaced,
    }
    row = {name: getattr(inputs, name) for name in ("step", "model", "policy", "seed", "known_event")}
    row |= {
        "budget_json": ledger.as_text(inputs.budget),
        "summary_json": ledger.as_text(content),
        "status": schema.PROPOSED,
    }
    if replaced is not None:
        ledger.change_rows(tx, table, [{"id": replaced, "status": schema.SUPERSEDED}])
    ledger.add_rows(tx, table, [{"id": number} | row | digests | {"at": ledger.now(), "event": event}])
    decided = zip(inputs.known, decisions.rows, decisions.line, strict=True)
    rows = [
        {
            "plan": number,
            "arm": known.arm.id,
            "place": place,
            "state": words.states[known.block][known.state],
            "planned": one.action,
            "served": int(one.served),
            "reason": one.reason,
            "next_in_line": line,
        }
        | {name: getattr(known, name) for name in ("known", "seen_step", "chance")}
        for place, (known, one, line) in enumerate(decided)
    ]
    ledger.add_rows(tx, schema.decisions, rows)
    return _planned(number, inputs.step, event, content)


def _planned(number: int, step: int, event: int, content: Mapping[str, Any]) -> Planned:
    counts = (content["arms"], content["served"], content["missing"])
    return Planned(number, step, event, *counts, dict(content["used"]), dict(content["budget"]), content["replaced"])


# Reading


def proposal(tx: Connection, step: int) -> Any:
    """The row of the plan that is proposed for a step; None without one."""
    table = schema.plans
    return tx.execute(select(table).where(table.c.step == step, table.c.status == schema.PROPOSED)).first()


def same_plan(tx: Connection, inputs: Inputs) -> Planned | None:
    """The plan that is proposed for the step, if it follows from the same."""
    row = proposal(tx, inputs.step)
    if row is None or row.inputs != inputs.digest:
        return None
    return _planned(row.id, row.step, row.event, json.loads(row.summary_json))


def plan_row(tx: Connection, number: object) -> Any:
    """A plan's row by its number."""
    return ledger.find_row(tx, schema.plans, number, "plan")


def rows_of(tx: Connection, plan: int) -> tuple[PlanRow, ...]:
    """A plan arm by arm."""
    table, arms = schema.decisions, schema.arms
    renamed = {"arm": arms.c.name, "type": arms.c.type, "group": arms.c.group_name, "action": table.c.planned,
               "arm_id": table.c.arm}  # fmt: skip
    names = [one.name for one in fields(PlanRow)]
    query = select(*(renamed[name] if name in renamed else table.c[name] for name in names))
    query = query.join(arms, arms.c.id == table.c.arm).where(table.c.plan == plan).order_by(table.c.place)
    served = names.index("served")  # stored as a number
    read: Any = tx.execute(query).cursor
    rows = tuple(PlanRow(*[*row[:served], bool(row[served]), *row[served + 1 :]]) for row in read.fetchall())
    rows = _with_names(rows)
    made = plan_row(tx, plan)
    if not (kinds := transferred(tx, made.step, made.event)):
        return rows
    known = ((row, kinds.get(row.arm_id, (row.type, row.group))) for row in rows)
    return tuple(replace(row, type=kind, group=group) for row, (kind, group) in known)


def _with_names(rows: tuple[PlanRow, ...]) -> tuple[PlanRow, ...]:
    """Replace the number of the arm that a promise prefers, which is stored, by its name, which may be erased."""
    name = {str(row.arm_id): row.arm for row in rows}
    return tuple(
        replace(row, reason=_PREFERRED.sub(lambda found: name.get(found[0], found[0]), row.reason)) for row in rows
    )


def stored_plan(
    row: Any, rows: tuple[PlanRow, ...], certificate: Certificate | None, accepted_used: dict[str, float] | None
) -> StoredPlan:
    """A plan from its row in the store, and its arms."""
    own = {"accepted_used": accepted_used, "certificate": certificate, "rows": rows}
    summary = json.loads(row.summary_json)
    known = {**row._mapping, **summary, **own, "warnings": tuple(summary["warnings"])}
    return StoredPlan(**{one.name: known[one.name] for one in fields(StoredPlan)})


# Accepting


@dataclass(frozen=True)
class Accepted(ledger.Result):
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


class PlanCells:
    """The arms of a plan as places in the model's tables."""

    def __init__(self, words: Words, rows: Sequence[PlanRow]) -> None:
        """Look every arm up.

        Args:
            words: of the model.
            rows: of the plan.
        """
        self.words, self.rows = words, {row.arm: row for row in rows}
        self.cells = {
            row.arm: (block, words.states[block].index(row.state))
            for row in rows
            for block in [words.blocks[row.type, row.group]]
        }

    def action(self, arm: str, text: str, hint: bool = False) -> int | str:
        """The number of an action that is feasible for an arm; or what is wrong, perhaps with the nearest name."""
        block, state = self.cells[arm]
        found = self.words.action(block, text, hint)
        if isinstance(found, str):
            return found
        tables, there = self.words.model.tables, f"in state {quoted(self.rows[arm].state)}"
        if not tables.valid[block, state, found]:
            return f"{quoted(text)} cannot be done {there}"
        if (tables.usage[block, state, found] >= LARGEST).any():  # as a fit forbids a pair that was never seen
            return f"{quoted(text)} is forbidden {there} by the model"
        return found

    def used(self, otherwise: Mapping[str, str]) -> dict[str, float]:
        """Return the use per resource, by the planned actions but for some arms."""
        model, total = self.words.model, self.words.model.tables.usage[0, 0, 0] * 0.0
        times = Counter((*cell, otherwise.get(arm, self.rows[arm].action)) for arm, cell in self.cells.items())
        for (block, state, action), many in times.items():
            total = total + many * model.tables.usage[block, state, self.words.actions[block].index(action)]
        return {name: round(float(use), 9) for name, use in zip(model.resource_names, total, strict=True)}


def read_overrides(table: Table, cells: PlanCells, budget: Sequence[float]) -> dict[str, tuple[str, str]]:
    """The overrides of a table with the columns arm, action and why: action and reason by arm.

    Args:
        table: as it was given.
        cells: the arms of the plan.
        budget: (resource,) what there is.

    Raises:
        TableError: with every fault and its row; also where the budget would be exceeded.
    """
    faults: list[Fault] = []
    met: dict[str, str] = {}
    found: dict[str, tuple[str, str]] = {}
    match = match_names(cells.rows)
    for row, typed, text, why in zip(table.rows, *(table.columns[c] for c in ("arm", "action", "why")), strict=True):
        name, hint, wrong = match(typed), len(faults) < SHOWN_FAULTS, list[str]()
        if name not in cells.rows:
            wrong.append(unknown_arm(name, cells.rows, hint))
        elif name in met:
            wrong.append(f"arm {quoted(name)} is also in {met[name]}")
        if not why:
            wrong.append("has no reason (why): an override needs one")
        elif len(why) > ledger.MOST_TEXT:
            wrong.append(f"a reason has at most {ledger.MOST_TEXT} characters")
        action = cells.action(name, text, hint) if name in cells.rows else ""
        if isinstance(action, int):
            found[name] = cells.words.actions[cells.cells[name][0]][action], why
        elif action:
            wrong.append(action)
        faults += [Fault(row, content) for content in wrong]
        met.setdefault(name, row)
    if not faults:
        used = cells.used({arm: action for arm, (action, _) in found.items()})
        limits = cells.words.model.with_budget(list(budget)).budget_limit.tolist()
        for (name, use), there, limit in zip(used.items(), budget, limits, strict=True):
            if use > limit:
                text = f"{name}: {quantity(use)} would be used, and there are {quantity(there)}"
                faults.append(Fault("", text))
    raise_faults(faults, table.source)
    return found


# Has anything changed?


def changes(rows: Sequence[PlanRow], known: Sequence[Known], words: Words, beliefs: bool = True) -> list[Fault]:
    """Return all information that arrived after a plan was made, one fault per arm.

    Args:
        rows: of the plan.
        known: of the arms that take part now.
        words: of the model.
        beliefs: whether unobserved arms are compared; under another model all their beliefs change.
    """
    then, present = {row.arm_id: row for row in rows}, {row.arm.id for row in known}
    content = [Fault(row.arm.name, "joined since") for row in known if row.arm.id not in then]
    content += [Fault(row.arm, "left since") for row in rows if row.arm_id not in present]
    for row in known:
        old = then.get(row.arm.id) if beliefs or row.known == SEEN else None
        now = words.states[row.block][row.state], row.known, row.seen_step, row.chance
        if row.arm.id in then and (row.arm.type, row.arm.group) != (then[row.arm.id].type, then[row.arm.id].group):
            content.append(Fault(row.arm.name, f"is in {row.arm.group} now"))
        if old is not None and (old.state, old.known, old.seen_step, old.chance) != now:
            said = f"is {row.known} in {quoted(now[0])}{_chance(row.chance)}"
            before = f"{quoted(old.state)}, {old.known}{_chance(old.chance)}"
            content.append(Fault(row.arm.name, f"{said}; the plan took {before}"))
    return content


def _chance(chance: float) -> str:
    return "" if chance == 1 else f" (chance {chance:.3g})"
