"""What requests and answers look like, strictly: a number is no text, a text no number, and nothing may be unknown.

These are checked before anything is read, and described at `/openapi.json`. What a model, a roster or a reason must be
besides is the library's to say.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from evenhand.programme.refitting import TRUST

MOST_SEED = 2**63 - 1
MOST_STEP = 10**9
MOST_ROWS = 200_000


class Strict(BaseModel):
    """Nothing is converted, and nothing unknown let pass."""

    model_config = ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="null")


def _digits(value: object) -> object:
    """Numbers in addresses are digits, and nothing that merely could be read as one."""
    if isinstance(value, str) and not (value.isascii() and value.isdecimal() and len(value) < 20):
        raise ValueError("expected a whole number from 0")
    return int(value) if isinstance(value, str) else value


Step: TypeAlias = Annotated[int, BeforeValidator(_digits), Field(ge=0, le=MOST_STEP)]
"""A step that stands in an address."""


def _yes_or_no(value: object) -> object:
    if isinstance(value, str):
        if value not in ("true", "false"):
            raise ValueError("expected true or false")
        return value == "true"
    return value


Flag: TypeAlias = Annotated[bool, BeforeValidator(_yes_or_no)]
"""Yes or no, in an address."""

Many: TypeAlias = Annotated[int, BeforeValidator(_digits), Field(ge=1, le=10_000)]
"""How many are asked for, in an address."""

Whole: TypeAlias = Annotated[int, Field(ge=0, le=MOST_STEP)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=2000)]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]

_NUMBERS = {"type": "array", "items": {"type": "number"}}
_TABLE = {"type": "array", "items": _NUMBERS}
_NAMES = {"type": "array", "items": {"type": "string"}}
_BLOCK = {
    "type": "object",
    "required": ["transitions", "rewards", "usage"],
    "additionalProperties": False,
    "properties": {
        "transitions": {"type": "array", "items": _TABLE, "description": "[state][action][next_state]"},
        "rewards": {**_TABLE, "description": "[state][action]"},
        "usage": {"type": "array", "items": {}, "description": "[action][resource], or [state][action][resource]"},
        "initial": _NUMBERS,
        "count": {"type": "integer", "minimum": 1},
        "name": {"type": "string"},
        "states": _NAMES,
        "actions": _NAMES,
        "group": {"type": "string"},
        "floor": {"type": "number"},
    },
}
MODEL_SCHEMA = {
    "type": "object",
    "description": "A model, with the keys of a model file.",
    "required": ["budget", "arms"],
    "additionalProperties": False,
    "properties": {
        "discount": {"type": "number"},
        "budget": _NUMBERS,
        "resources": _NAMES,
        "criterion": {"type": "string"},
        "over": {"enum": ["arms", "groups"]},
        "welfare": {"type": "string"},
        "arms": {"type": "array", "items": _BLOCK, "minItems": 1},
    },
}

Model: TypeAlias = Annotated[dict[str, Any], WithJsonSchema(MODEL_SCHEMA)]
Budget: TypeAlias = list[Number] | dict[str, Number]
Method: TypeAlias = Literal["auto", "counts", "joint", "count-lp", "joint-lp", "whittle", "fluid"]


class Fault(Strict):
    """One thing that is wrong."""

    place: str = Field(description="Where, in the words of the request; empty for the whole.")
    message: str = Field(description="What is wrong there.")
    code: str = Field(description="Stable name of the kind of fault.")
    line: int | None = Field(default=None, description="The line of a table or file.")
    named: str | None = Field(default=None, description="The place by the names of the model.")


class Problem(Strict):
    """Why something was not done (RFC 9457)."""

    type: str = Field(description="`urn:evenhand:` and a word for the kind.")
    code: str = Field(description="Stable name of the kind of error.")
    title: str = Field(description="The kind in words.")
    status: int = Field(description="As the status of the answer.")
    detail: str = Field(description="What was wrong this time.")
    faults: list[Fault] = Field(description="Everything that was wrong.")


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How problems are described at an endpoint.

    Args:
        statuses: those that are its own; those that any endpoint may answer come to them.
    """
    schema = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    listed = sorted({*statuses, 400, 401, 403, 408, 413, 415, 421, 422, 429, 500, 503})
    return {status: {"model": Problem, "content": schema} for status in listed}


def reading(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How answers are described at an endpoint whose answer has a tag.

    Args:
        statuses: those that are its own.
    """
    return {304: {"description": "It is what the client has (If-None-Match)."}, **refusals(*statuses)}


# Deciding


class Place(Strict):
    """Where an arm is."""

    arm: Name = Field(description="What it is called.")
    state: str | Whole = Field(description="Where it is, by name or number.")
    type: str | Whole | None = Field(
        None, description="Its type, by name or number; where there is one, it may be absent."
    )
    group: str | None = Field(default=None, description="Its group, where types are in several.")


class DecideRequest(Strict):
    """A model, and where its arms are."""

    model: Model
    states: list[Place] = Field(min_length=1, max_length=MOST_ROWS, description="One for each arm, in any order.")
    welfare: str | None = Field(default=None, description="What is fair; the model's own when absent.")
    criterion: str | None = Field(
        None, description="`discounted`, `average` or `finite:T`; the model's own when absent."
    )
    over: Literal["arms", "groups"] | None = Field(default=None, description="Whose values welfare weighs.")
    method: Method = Field(default="auto", description="How it is solved.")
    budget: Budget | None = Field(default=None, description="What there is today; as in the model when absent.")
    seed: int = Field(default=0, ge=0, le=MOST_SEED, description="Of all draws.")
    step: Whole = Field(default=0, description="Of a plan by steps.")
    part: int | None = Field(default=None, ge=1, le=MOST_STEP, description="Of a mixture; drawn when absent.")


class Action(Strict):
    """What an arm gets."""

    arm: str
    type: str
    state: str
    action: str
    reason: str


class Part(Strict):
    """The part of a mixture that acts."""

    number: int
    share: float
    name: str


class Decided(Strict):
    """What to do now; as `evenhand act --json`."""

    actions: list[Action] = Field(description="In the order of the states.")
    used: dict[str, float] = Field(description="What is used of each resource.")
    budget: dict[str, float] = Field(description="What there is of each.")
    step: int | None = Field(description="Of a plan by steps.")
    part: Part | None = Field(description="What was drawn, where the plan is a mixture.")
    note: str | None = Field(default=None, description="What differs from what the plan was made for.")


# Jobs


class JobShape(Strict):
    """A long computation."""

    id: str = Field(description="What it is called.")
    kind: str = Field(description="What is computed.")
    status: Literal["waiting", "running", "done", "failed", "cancelled"]
    progress: float = Field(ge=0, le=1, description="The share that is done.")
    message: str = Field(description="What is being done.")
    answer: dict[str, Any] | None = Field(description="What came of it.")
    problem: Problem | None = Field(description="Why it failed.")


class JobList(Strict):
    """What is computed, waits or was."""

    jobs: list[JobShape]


# A programme


class Status(Strict):
    """What a programme is, and where it stands."""

    name: str
    step: int = Field(description="The step that is to be planned next.")
    arms: dict[str, int] = Field(description="How many take part, by type.")
    groups: dict[str, int] = Field(description="How many take part, by group.")
    observed: int = Field(description="How many of them were seen at this step.")
    budget: dict[str, float] = Field(description="What there is of each resource at every step.")
    welfare: str
    criterion: str
    over: str
    model: str = Field(description="The digest of its model.")
    events: int = Field(description="The version of all that is stored.")


class Drift(Strict):
    """Whether a policy is to be solved anew."""

    needed: bool
    why: list[str] = Field(description="What drifted beyond its bound.")
    policy: str | None = Field(description="The digest of the policy that is used now.")


class Bounds(Strict):
    """By how much things may drift before something is done about it."""

    change: float = Field(description="Share by which numbers of arms may change before a policy is solved anew.")
    gap: float = Field(description="How much larger a policy's gap may get before it is solved anew.")
    level: float = Field(description="The chance at most that the model is ever said not to fit although it does.")
    records: int = Field(description="Reports after which the model is held against what is seen.")


class Offer(Strict):
    """A fit that is offered, and neither adopted nor declined."""

    refit: int = Field(description="Its number.")
    why: list[str] = Field(description="What spoke against the model in use.")


class ProgrammeShape(Status):
    """What a programme is, where it stands, and whether its policy fits."""

    plan: int | None = Field(description="The plan that is proposed for this step.")
    drift: Drift
    bounds: Bounds
    offered: Offer | None = Field(description="A fit that is offered, since the model no longer fits what is seen.")


class ArmShape(Strict):
    """An arm of the roster."""

    arm: str
    type: str
    group: str
    joined: int = Field(description="The first step at which it takes part.")
    left: int | None = Field(default=None, description="The first at which it no longer does.")
    why: str | None = Field(default=None, description="Why it left.")


class ArmList(Strict):
    """Who takes part."""

    arms: list[ArmShape]


class Newcomer(Strict):
    """An arm that joins."""

    arm: Name
    type: str | Whole | None = Field(
        default=None, description="By name or number; where there is one type, it may be absent."
    )
    group: str | None = None
    state: str | Whole | None = Field(default=None, description="Where it is, if that is known.")


class Who(Strict):
    """Who does something, in their own words."""

    who: str | None = Field(default=None, max_length=200, description="Written into the event.")


class BoundsRequest(Who):
    """By how much things may drift; what is absent stays as it is."""

    change: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False, description="Share of arms.")
    gap: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False, description="Of the policy.")
    level: float | None = Field(default=None, gt=0, lt=1, allow_inf_nan=False, description="Of the test of the model.")
    records: int | None = Field(default=None, ge=1, lt=2**31, description="Reports between two tests.")


class JoinRequest(Who):
    """Arms that are to take part."""

    arms: list[Newcomer] = Field(min_length=1, max_length=MOST_ROWS)
    step: Whole | None = Field(
        default=None, description="The first step at which they do; the present one when absent."
    )


class Changed(Strict):
    """What came of arms joining or leaving."""

    event: int
    arms: list[str]
    step: int


class Seen(Strict):
    """What an arm was seen in."""

    arm: Name
    state: str | Whole = Field(description="By name or number.")
    step: Whole | None = Field(default=None, description="The present one when absent.")


class ObserveRequest(Who):
    """What arms were seen in."""

    observations: list[Seen] = Field(min_length=1, max_length=MOST_ROWS)
    source: Text = Field(description="Who says so.")
    step: Whole | None = Field(default=None, description="Of rows that name none.")


class Observed(Strict):
    """What came of observations."""

    event: int
    observations: int
    late: int = Field(description="Of steps before the present one.")
    corrected: int = Field(description="Those that say something else than was known.")


class Done(Strict):
    """What was really done with an arm."""

    arm: Name
    action: str | Whole = Field(description="By name or number.")
    step: Whole | None = Field(default=None, description="The last accepted one when absent.")
    reward: Number | None = None
    next_state: str | Whole | None = Field(default=None, description="Kept as an observation of the step after.")


class RecordRequest(Who):
    """What was really done."""

    records: list[Done] = Field(min_length=1, max_length=MOST_ROWS)
    source: Text = Field(description="Who says so.")


class Recorded(Strict):
    """What came of records."""

    event: int
    records: int
    late: int
    corrected: int
    differing: int = Field(description="Those that say something else than was accepted.")
    observations: int


class PlanRequest(Who):
    """What to plan for."""

    step: Whole | None = Field(
        default=None, description="The present step, to be sure that it is the one that is meant."
    )
    budget: Budget | None = Field(
        default=None, description="What there is at this step; as the model says when absent."
    )


class PlanRow(Strict):
    """What a plan has of one arm."""

    arm: str
    type: str
    group: str
    state: str = Field(description="Where it is taken to be.")
    known: Literal["seen", "believed"]
    seen_step: int | None = Field(description="The step at which it was last seen.")
    chance: float = Field(description="How likely it is in that state.")
    action: str = Field(description="What the plan gives it.")
    served: bool = Field(description="Whether that uses anything.")
    reason: str
    next_in_line: int | None = Field(description="Whose turn it would be if there was more, 1 first.")
    accepted: str | None = Field(description="What was accepted.")
    who: str | None = Field(description="Who overrode the plan.")
    why: str | None = Field(description="Why they did.")


class TypeValue(Strict):
    """What an arm of a type and group is worth."""

    type: str
    group: str
    value: float


class Certificate(Strict):
    """What a policy is worth for a roster, beside what any policy could be."""

    policy: str
    numbers: list[tuple[str, str, int]] = Field(description="(type, group, how many).")
    welfare: float
    stderr: float
    upper_bound: float
    gap: float
    prices: dict[str, float] | None = Field(description="What one unit more of each resource is worth.")
    values: list[TypeValue]
    groups: dict[str, float] = Field(description="The mean value of the arms of each group.")
    for_roster: bool = Field(description="Whether the policy was solved for just this roster.")


class PlanHead(Strict):
    """A plan without its arms."""

    id: int
    step: int
    status: Literal["proposed", "accepted", "superseded"]
    model: str
    policy: str
    seed: int
    budget: dict[str, float]
    used: dict[str, float]
    accepted_used: dict[str, float] | None
    inputs: str = Field(description="Stands for all that the plan follows from.")
    outputs: str = Field(description="Stands for what it says.")
    known_event: int = Field(description="It knew everything up to this event.")
    missing: int = Field(description="Arms that were not seen at this step.")
    late: int = Field(description="Reports on earlier steps since the last plan was accepted.")
    arms: int
    served: int
    part: Part | None
    note: str
    event: int
    at: str
    accepted_by: str | None
    accepted_at: str | None
    accepted_event: int | None
    certificate: Certificate | None
    rows: list[PlanRow] = Field(description="Arm by arm; none in lists of plans.")


class PlanList(Strict):
    """Plans, the newest first, without their arms."""

    plans: list[PlanHead]


class Override(Strict):
    """Something else than was planned, for one arm."""

    arm: Name
    action: str | Whole
    why: Text


class AcceptRequest(Who):
    """A plan is accepted."""

    overrides: list[Override] = Field(default_factory=list, max_length=MOST_ROWS)


class Accepted(Strict):
    """What came of accepting a plan."""

    event: int
    plan: int
    step: int = Field(description="The step that is closed by it.")
    overridden: int
    used: dict[str, float]


class EventShape(Strict):
    """One thing that happened."""

    id: int
    kind: str
    who: str
    at: str
    body: dict[str, Any]
    chain: str = Field(description="The digest of this event and all before it.")


class EventList(Strict):
    """What happened, in its order."""

    events: list[EventShape]


class SolveRequest(Who):
    """A policy is to be found."""

    method: Method = "fluid"
    seconds: float | None = Field(
        default=None, gt=0, le=86400, allow_inf_nan=False, description="How long it may take, about."
    )


class WhatIfRequest(Strict):
    """Another budget or welfare."""

    budget: Budget | None = Field(default=None, description="As the model says when absent.")
    welfare: str | None = Field(default=None, description="The programme's own when absent.")
    seconds: float | None = Field(
        default=None, gt=0, le=86400, allow_inf_nan=False, description="How long it may take, about."
    )


# Looking back


class Entry(Strict):
    """Something that happened to an arm."""

    event: int
    step: int
    kind: Literal["joined", "left", "seen", "decided", "recorded"]
    overridden: bool
    state: str | None = None
    known: str | None = None
    planned: str | None = None
    action: str | None = None
    reward: float | None = None
    expected: str | None = Field(default=None, description="The state that was most likely.")
    chance: float | None = None
    expected_reward: float | None = None
    who: str | None = None
    why: str | None = None
    source: str | None = None
    plan: int | None = None
    at: str | None = None


class History(Strict):
    """One arm's history, in the order in which it was written down."""

    arm: str
    entries: list[Entry]


class AuditShape(BaseModel):
    """Who was served how often and how late, what was promised and what came of it; as `programme audit --json`."""

    first: int = Field(description="The first step.")
    last: int = Field(description="The last step.")
    event: int = Field(description="What was known at this event, and nothing later.")
    level: float = Field(description="The probability of intervals.")
    arms: list[dict[str, Any]] = Field(description="Arm by arm.")
    types: list[dict[str, Any]] = Field(description="Type by type.")
    groups: list[dict[str, Any]] = Field(description="Group by group.")
    overrides: list[dict[str, Any]] = Field(description="One by one, with what they cost.")
    warnings: list[str] = Field(description="Groups that fell behind beyond chance.")


class DeclineRequest(Who):
    """A fit that is offered is not to be adopted."""

    why: Text = Field(description="A reason.")


class RefitRequest(Who):
    """The model is to be fitted anew."""

    trust: float = Field(
        default=TRUST,
        ge=0,
        le=1e9,
        allow_inf_nan=False,
        description="How many observations of every pair the present model counts as; 0 lets the records speak alone.",
    )
    prior: float | None = Field(
        default=None, ge=0, le=1e9, allow_inf_nan=False, description="What other types are worth to a sparse row."
    )
    seconds: float | None = Field(
        default=None, gt=0, le=86400, allow_inf_nan=False, description="How long solving may take, about."
    )


class Moved(Strict):
    """One probability, before and after."""

    type: str
    state: str
    action: str
    next_state: str
    before: float
    after: float
    lower: float
    upper: float
    seen: int


class Refitted(Strict):
    """A model fitted to the programme's own log, and what it would change."""

    id: int
    event: int
    before: str = Field(description="The digest of the model that it would replace.")
    model: str = Field(description="The digest of the new model.")
    policy: str
    rows: int
    likelihood: list[float | None] = Field(description="Under the present model, and under the new one.")
    moved: list[Moved]
    unseen: list[list[str]] = Field(description="(type, state, action) pairs that were never seen.")
    plan: list[list[str]] = Field(description="(arm, action now, action then) what would change today.")
    welfare: list[float | None] = Field(description="Of the present policy in the new model, and of a new one.")
    adopted_event: int | None = Field(description="The last event by which it was adopted.")
    why: list[str] = Field(description="What spoke against the model before, where a server offered it.")
    declined_event: int | None = Field(description="The event by which it was declined.")


class RefitList(Strict):
    """Models that were fitted, the newest first."""

    refits: list[Refitted]
