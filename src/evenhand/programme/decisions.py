"""Plans of a programme: from what is stored to what every arm gets, and back to what is shown.

A plan is a function of its *inputs*: the step, the model, the policy, the seed, the budget, and what is known of each
arm. A digest stands for all of them; who asks for a plan with the same inputs gets the same plan. Its *outputs* are the
action of each arm and who would be next; a digest stands for them, so that a plan can be computed again, later and
elsewhere, and compared. Reasons are stored, and not part of the digest.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, func, select

from evenhand.errors import NotFoundError
from evenhand.model.coupled import CoupledMDP
from evenhand.planning.plan import Decisions, Plan
from evenhand.programme import schema
from evenhand.programme.belief import BELIEVED, Known
from evenhand.programme.certificates import Certificate
from evenhand.programme.ledger import add_rows, append, as_text, change_rows, digest_of, now
from evenhand.programme.named_model import Words

ROUNDED = 9
"""Digits of sums of usage."""


@dataclass(frozen=True)
class Planned:
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

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class PlanRow:
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
class KeptPlan:
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

    event: int
    at: str
    accepted_by: str | None
    accepted_at: str | None
    accepted_event: int | None
    certificate: Certificate | None
    """Certificate of the policy for this roster, if known; `Programme.certificate` computes it."""

    rows: tuple[PlanRow, ...]
    """Arms in the order in which they joined; empty in lists of plans."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content["certificate"] = None if self.certificate is None else self.certificate.to_dict()
        content["rows"] = [row.to_dict() for row in self.rows]
        return content


@dataclass(frozen=True)
class Inputs:
    """All that a plan follows from."""

    step: int
    model: str
    policy: str
    seed: int
    budget: tuple[float, ...]
    known: tuple[Known, ...]
    known_event: int

    @cached_property
    def digest(self) -> str:
        """Stands for all of it but the event: the same knowledge is the same, whenever it was come by."""
        arms = [
            [row.arm.id, row.arm.name, row.arm.type, row.arm.group, row.state, row.known, row.seen_step, row.chance]
            for row in self.known
        ]
        return digest_of([self.step, self.model, self.policy, self.seed, list(self.budget), arms])


def check_budget(model: CoupledMDP, budget: Any) -> tuple[float, ...]:
    """(resource,) what there is at a step: what was given, else what the model says."""
    return tuple((model if budget is None else model.with_budget(budget)).budget.tolist())


def decide(plan: Plan, inputs: Inputs, words: Words) -> Decisions:
    """Decide the action of every arm, as `evenhand act` does with the same policy, states, seed, budget and step.

    Args:
        plan: the policy.
        inputs: of the plan.
        words: of the model.

    Raises:
        NotApplicableError: the policy is a table for other numbers, or for more budget.
    """
    return plan.act(as_states(inputs.known, words), inputs.seed, budget=list(inputs.budget), step=inputs.step)


def as_states(known: Sequence[Known], words: Words) -> dict[str, list[str]]:
    """Return the states of arms as the table that `Plan.act` reads."""
    return {
        "arm": [row.arm.name for row in known],
        "type": [row.arm.type for row in known],
        "group": [row.arm.group for row in known],
        "state": [words.states(row.block)[row.state] for row in known],
    }


def outputs_of(inputs: Inputs, decisions: Decisions) -> str:
    """Stands for what a plan says."""
    rows = zip(inputs.known, decisions.rows, decisions.line, strict=True)
    return digest_of([[known.arm.id, row.action, row.served, place] for known, row, place in rows])


# Writing


def keep_plan(tx: Connection, inputs: Inputs, decisions: Decisions, words: Words, late: int, who: str) -> Planned:
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
    number = int(tx.execute(select(func.max(table.c.id))).scalar() or 0) + 1
    outputs = outputs_of(inputs, decisions)
    body = {"plan": number, "step": inputs.step, "inputs": inputs.digest, "outputs": outputs, "replaced": older}
    event = append(tx, "planned", who, body)
    content = _told(inputs, decisions, late)
    row = {
        "id": number,
        "step": inputs.step,
        "status": schema.PROPOSED,
        "model": inputs.model,
        "policy": inputs.policy,
        "seed": inputs.seed,
        "budget_json": as_text(list(inputs.budget)),
        "inputs": inputs.digest,
        "outputs": outputs,
        "known_event": inputs.known_event,
        "told_json": as_text(content | {"replaced": older}),
        "at": now(),
        "event": event,
    }
    if older is not None:
        change_rows(tx, table, [{"id": older, "status": schema.SUPERSEDED}])
    add_rows(tx, table, [row])
    add_rows(tx, schema.decisions, _decision_rows(number, inputs, decisions, words))
    return _planned(number, inputs.step, event, content | {"replaced": older})


def _told(inputs: Inputs, decisions: Decisions, late: int) -> dict[str, Any]:
    """Return the summary of a plan."""
    return {
        "arms": len(inputs.known),
        "served": sum(row.served for row in decisions.rows),
        "missing": sum(row.known == BELIEVED for row in inputs.known),
        "late": late,
        "used": decisions.used,
        "budget": decisions.budget,
        "part": None if decisions.part is None else decisions.part._asdict(),
        "note": decisions.note,
    }


def _planned(number: int, step: int, event: int, content: Mapping[str, Any]) -> Planned:
    counts = (content["arms"], content["served"], content["missing"])
    return Planned(number, step, event, *counts, dict(content["used"]), dict(content["budget"]), content["replaced"])


def _decision_rows(plan: int, inputs: Inputs, decisions: Decisions, words: Words) -> list[dict[str, Any]]:
    return [
        {
            "plan": plan,
            "arm": known.arm.id,
            "place": place,
            "state": words.states(known.block)[known.state],
            "known": known.known,
            "seen_step": known.seen_step,
            "chance": known.chance,
            "planned": row.action,
            "served": int(row.served),
            "reason": row.reason,
            "next_in_line": line,
        }
        for place, (known, row, line) in enumerate(zip(inputs.known, decisions.rows, decisions.line, strict=True))
    ]


# Reading


def proposal(tx: Connection, step: int) -> int | None:
    """The number of the plan that is proposed for a step."""
    table = schema.plans
    query = select(table.c.id).where(table.c.step == step, table.c.status == schema.PROPOSED)
    found = tx.execute(query).scalar()
    return None if found is None else int(found)


def same_plan(tx: Connection, inputs: Inputs) -> Planned | None:
    """The plan that is proposed for the step, if it follows from the same."""
    table = schema.plans
    query = select(table).where(table.c.step == inputs.step, table.c.status == schema.PROPOSED)
    row = tx.execute(query).first()
    if row is None or row.inputs != inputs.digest:
        return None
    return _planned(row.id, row.step, row.event, json.loads(row.told_json))


def plan_row(tx: Connection, number: object) -> Any:
    """A plan's row by its number.

    Raises:
        NotFoundError: there is none.
    """
    table = schema.plans
    known = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 2**31
    row = tx.execute(select(table).where(table.c.id == number)).first() if known else None
    if row is None:
        raise NotFoundError(f"plan: unknown number {number!r}")
    return row


def rows_of(tx: Connection, plan: int) -> tuple[PlanRow, ...]:
    """A plan arm by arm."""
    table, arms = schema.decisions, schema.arms
    columns = (  # in the order of the fields
        *(arms.c.name, arms.c.type, arms.c.group_name, table.c.state, table.c.known, table.c.seen_step),
        *(table.c.chance, table.c.planned, table.c.served, table.c.reason, table.c.next_in_line),
        *(table.c.accepted, table.c.who, table.c.why, table.c.arm),
    )
    query = select(*columns).join(arms, arms.c.id == table.c.arm).where(table.c.plan == plan).order_by(table.c.place)
    return tuple(_kept_row(list(row)) for row in tx.execute(query))


def _kept_row(values: list[Any]) -> PlanRow:
    """A row whose values are in the order of the fields; databases keep yes and no as numbers."""
    values[8] = bool(values[8])
    return PlanRow(*values)


def kept_plan(
    row: Any, rows: tuple[PlanRow, ...], certificate: Certificate | None, accepted_used: dict[str, float] | None
) -> KeptPlan:
    """A plan from its row in the store, and its arms."""
    content = json.loads(row.told_json)
    same = ("step", "status", "model", "policy", "seed", "inputs", "outputs", "known_event", "event", "at")
    taken = {name: getattr(row, name) for name in (*same, "accepted_by", "accepted_at", "accepted_event")}
    stored = {name: content[name] for name in ("budget", "used", "missing", "late", "arms", "served", "part", "note")}
    return KeptPlan(id=row.id, accepted_used=accepted_used, certificate=certificate, rows=rows, **taken, **stored)


def usage_of(words: Words, rows: Sequence[tuple[int, int, int]]) -> dict[str, float]:
    """Return the use of some actions per resource.

    Args:
        words: of the model.
        rows: (block, state, action) of each arm.
    """
    names, usage = words.model.resource_names, words.model.tables.usage
    total = sum((usage[row] for row in rows), usage[0, 0, 0] * 0.0)
    return {name: round(float(amount), ROUNDED) for name, amount in zip(names, total, strict=True)}


def accepted_usage(words: Words, rows: Sequence[PlanRow]) -> dict[str, float]:
    """Return the use of the accepted actions of a plan."""
    cells = []
    for row in rows:
        block = words.blocks[row.type, row.group]
        action = words.action_number(block, row.accepted or row.action)
        cells.append((block, words.state_number(block, row.state), action))
    return usage_of(words, cells)
