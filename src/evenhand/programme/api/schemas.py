"""Schemas of requests and responses: strict types, no unknown fields.

These are checked before anything is read, and described at `/openapi.json`. What a model, a roster or a reason must be
besides is the library's to say. Responses are the JSON forms of the library's dataclasses, which describe themselves.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Header
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from evenhand.programme.audit import Audit, NeedSet
from evenhand.programme.certificates import Certificate, Drift, TypeValue
from evenhand.programme.changes import ChangeAdopted, LastingChange, Undone
from evenhand.programme.decisions import Accepted, PlanRow, StoredPlan
from evenhand.programme.drift_test import DriftBounds
from evenhand.programme.ledger import Event
from evenhand.programme.past_records import Imported
from evenhand.programme.programme import MOST_SEED, Changed, Status
from evenhand.programme.refit import TRUST, Moved, Offer, Refitted
from evenhand.programme.reports import HistoryEntry, Observed, Recorded
from evenhand.programme.roster import MOST_STEP
from evenhand.programme.safeguards import View

MOST_ROWS = 200_000
"""Maximum number of rows per request."""


class Strict(BaseModel):
    """Strict types; unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="null")


# Parts of addresses and headers


def _digits(value: object) -> object:
    """Read a number of an address: decimal digits only."""
    if isinstance(value, str) and not (value.isascii() and value.isdecimal() and len(value) < 20):
        raise ValueError("expected a whole number from 0")
    return int(value) if isinstance(value, str) else value


def _boolean(value: object) -> object:
    if value not in ("true", "false", True, False):
        raise ValueError("expected true or false")
    return value in ("true", True)


Step: TypeAlias = Annotated[int, BeforeValidator(_digits), Field(ge=0, le=MOST_STEP)]
Flag: TypeAlias = Annotated[bool, BeforeValidator(_boolean)]
Many: TypeAlias = Annotated[int, BeforeValidator(_digits), Field(ge=1, le=10_000)]
Key: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern="^[!-~]{1,200}$",
        description="Idempotency key: a repeated request has the same response and no further effect.",
    ),
]

# Fields


Model: TypeAlias = Annotated[dict[str, Any], Field(description="A model, with the keys of a model file.")]
Method: TypeAlias = Literal["auto", "counts", "joint", "count-lp", "joint-lp", "whittle", "fluid"]
Whole: TypeAlias = Annotated[int, Field(ge=0, le=MOST_STEP)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Label: TypeAlias = Annotated[str | Whole, Field(description="By name or number.")]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=2000)]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Weight: TypeAlias = Annotated[Number, Field(ge=0, le=1e9)]
Budget: TypeAlias = list[Number] | dict[str, Number]
Seconds: TypeAlias = Annotated[Number, Field(gt=0, le=86400, description="Approximate time limit in seconds.")]


# Problems


class FaultDetail(Strict):
    """A fault."""

    place: str = Field(description="Place in the request; empty for the whole.")
    message: str = Field(description="Message.")
    code: str = Field(description="Stable name of the kind of fault.")
    line: int | None = Field(default=None, description="The line of a table or file.")
    named: str | None = Field(default=None, description="The place by the names of the model.")


class ProblemDetails(Strict):
    """Problem details (RFC 9457)."""

    type: str = Field(description="`urn:evenhand:` and a word for the kind.")
    code: str = Field(description="Stable name of the kind of error.")
    title: str = Field(description="Kind of error in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="Message.")
    faults: list[FaultDetail] = Field(description="All faults.")


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of the errors of an endpoint.

    Args:
        statuses: those that are its own; those that any endpoint may answer come to them.
    """
    schema = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    listed = sorted({*statuses, 400, 401, 403, 408, 413, 415, 421, 422, 429, 500, 503})
    return {status: {"model": ProblemDetails, "content": schema} for status in listed}


def reading(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of an endpoint with an ETag.

    Args:
        statuses: those that are its own.
    """
    return {304: {"description": "It is what the client has (If-None-Match)."}, **refusals(*statuses)}


# Deciding and jobs


class NewArm(Strict):
    """An arm that joins."""

    arm: Name
    type: Label | None = Field(default=None, description="By name or number; optional with a single type.")
    group: str | None = Field(default=None, description="Group, if the type is in several.")
    state: Label | None = Field(default=None, description="State, if it is known.")


class ArmState(NewArm):
    """State of an arm."""

    state: Label
    waiting: Whole = Field(default=0, description="Steps in promised states without service, so far.")


class DecideRequest(Strict):
    """A model and the states of its arms."""

    model: Model
    states: list[ArmState] = Field(min_length=1, max_length=MOST_ROWS, description="One for each arm, in any order.")
    welfare: str | None = Field(default=None, description="Welfare; by default that of the model.")
    criterion: str | None = Field(
        None, description="`discounted`, `average` or `finite:T`; by default the model's own."
    )
    over: Literal["arms", "groups"] | None = Field(default=None, description="Members of welfare.")
    method: Method = Field(default="auto", description="Method of `solve`.")
    budget: Budget | None = Field(default=None, description="Budget of this step; by default that of the model.")
    seed: int = Field(default=0, ge=0, le=MOST_SEED, description="Random seed.")
    step: Whole = Field(default=0, description="Step of a time-varying plan.")
    part: int | None = Field(default=None, ge=1, le=MOST_STEP, description="Part of a mixture; by default drawn.")


class Decided(Strict):
    """Decisions."""

    actions: list[dict[str, str]] = Field(
        description="Arm, type, state, action and reason, in the order of the states."
    )
    used: dict[str, float] = Field(description="Use of each resource.")
    budget: dict[str, float] = Field(description="Budget of each resource.")
    step: int | None = Field(description="Step of a time-varying plan.")
    part: dict[str, Any] | None = Field(description="Number, share and name of the drawn part of a mixture.")
    note: str | None = Field(default=None, description="Differences from the problem of the plan.")


class JobStatus(Strict):
    """A long computation."""

    id: str = Field(description="Name.")
    kind: str = Field(description="Kind of computation.")
    status: Literal["waiting", "running", "done", "failed", "cancelled"]
    progress: float = Field(ge=0, le=1, description="Share completed.")
    message: str = Field(description="Current phase.")
    answer: dict[str, Any] | None = Field(description="Result.")
    problem: ProblemDetails | None = Field(description="Error, if it failed.")


class JobList(Strict):
    """Running, waiting and ended jobs."""

    jobs: list[JobStatus]


# Responses of a programme: the dataclasses of the library are the schemas of their JSON forms


@dataclass(frozen=True)
class ProgrammeStatus(Status):
    """Status of a programme, with its plan, policy and model."""

    plan: int | None
    """Number of the plan proposed for the present step."""

    drift: Drift
    bounds: DriftBounds
    offered: Offer | None
    """Refit proposed because the model no longer fits."""


for _response in (
    *(
        Accepted,
        Certificate,
        Changed,
        Drift,
        DriftBounds,
        Event,
        HistoryEntry,
        StoredPlan,
        Moved,
        NeedSet,
        Observed,
        Offer,
    ),
    *(PlanRow, ProgrammeStatus, Recorded, Refitted, TypeValue, ChangeAdopted, LastingChange, Undone, Imported),
):
    _response.__pydantic_config__ = ConfigDict(  # type: ignore[union-attr]  # where pydantic looks for it
        strict=True, extra="forbid", use_attribute_docstrings=True
    )
Audit.__pydantic_config__ = ConfigDict(use_attribute_docstrings=True)  # type: ignore[attr-defined]


class ArmDetail(Strict):
    """An arm of the roster."""

    arm: str
    type: str
    group: str
    joined: int = Field(description="The first step at which it takes part.")
    left: int | None = Field(default=None, description="The first at which it no longer does.")
    why: str | None = Field(default=None, description="Why it left.")


class ArmList(Strict):
    """Arms that take part."""

    arms: list[ArmDetail]


class PlanList(Strict):
    """Plans, the newest first, without their arms."""

    plans: list[StoredPlan]


class EventList(Strict):
    """Events in order."""

    events: list[Event]


class RefitList(Strict):
    """Models that were fitted, the newest first."""

    refits: list[Refitted]


class History(Strict):
    """One arm's history, in the order in which it was written down."""

    arm: str
    entries: list[HistoryEntry]


# Requests of a programme


class Who(Strict):
    """Author of a change."""

    who: str | None = Field(default=None, max_length=200, description="Written into the event.")


class BoundsRequest(Who):
    """Bounds of drift; a bound that is absent stays as it is."""

    change: Weight | None = Field(default=None, description="Share of arms.")
    gap: Weight | None = Field(default=None, description="Of the policy.")
    level: float | None = Field(default=None, gt=0, lt=1, allow_inf_nan=False, description="Of the test of the model.")
    records: int | None = Field(default=None, ge=1, lt=2**31, description="Reports between two tests.")


class NeedRequest(Who):
    """States of need."""

    states: list[Name] = Field(max_length=1000, description='Names, or "type: state"; none for the default.')


Word: TypeAlias = Annotated[str, Field(max_length=80, description="One word, or singular and plural: person, people.")]


class ProgrammeWords(Strict):
    """Words and calendar of a programme."""

    arm: Word
    group: Word
    step: Word
    value: Word = Field(description="Meaning of a reward, such as weeks on treatment.")
    resources: dict[str, Word] = Field(description="By the name of the resource in the model.")
    start: str | None = Field(description="First day of step 0; null without a calendar.")
    period: str | None = Field(description="Length of a step: day, week, month, quarter or year.")


class WordsRequest(Who):
    """Words and calendar; what is absent stays as it is, and null stands for the library's own."""

    arm: Word | None = None
    group: Word | None = None
    step: Word | None = None
    value: Word | None = None
    resources: dict[Name, Word] | None = Field(default=None, max_length=1000)
    start: str | None = Field(default=None, max_length=10, description="First day of step 0, such as 2026-06-29.")
    period: Literal["day", "week", "month", "quarter", "year"] | None = None


class JoinRequest(Who):
    """Arms that are to take part."""

    arms: list[NewArm] = Field(min_length=1, max_length=MOST_ROWS)
    step: Whole | None = Field(default=None, description="The first step at which they do; by default the present one.")


class ObservationRow(Strict):
    """Observation of an arm."""

    arm: Name
    state: Label | None = Field(description="Null or empty if it was not seen.")
    step: Whole | None = Field(default=None, description="By default the present one.")


class ObserveRequest(Who):
    """Observations."""

    observations: list[ObservationRow] = Field(min_length=1, max_length=MOST_ROWS)
    source: Text = Field(description="Source of the reports.")
    step: Whole | None = Field(default=None, description="Of rows that name none.")
    confirmed: bool = Field(default=False, description="Also if the rows look like those of an earlier step.")


class RecordRow(Strict):
    """Record of an arm."""

    arm: Name
    action: Label | None = Field(description="Null or empty if it is not known.")
    step: Whole | None = Field(default=None, description="By default the last accepted one.")
    reward: Number | None = None
    next_state: Label | None = Field(default=None, description="Stored as an observation of the step after.")


class RecordRequest(Who):
    """Records of actions."""

    records: list[RecordRow] = Field(min_length=1, max_length=MOST_ROWS)
    source: Text = Field(description="Source of the reports.")
    confirmed: bool = Field(default=False, description="Also if the rows look like those of the step before.")


class PastRow(Strict):
    """State and action of an arm before the programme began."""

    arm: Name
    time: str | int = Field(description="A date, or the number of a step.")
    state: Label | None = None
    action: Label | None = None
    reward: Number | None = None


class HistoryRequest(Who):
    """Records from before the programme."""

    records: list[PastRow] = Field(min_length=1, max_length=MOST_ROWS)
    source: Text = Field(description="Source of the records.")


class UndoRequest(Who):
    """Undo of an event."""

    why: str = Field(default="", max_length=2000, description="A reason.")


class TransferRow(Strict):
    """Another group or type of an arm."""

    arm: Name
    group: Name | None = None
    type: Name | None = None


class PromiseRow(Strict):
    """A promised wait."""

    state: Label
    steps: Whole | None = Field(description="Longest wait without service; null for no promise.")
    type: Name | None = None
    group: Name | None = None


class ChangeRequest(Strict):
    """A lasting change."""

    budget: Budget | None = Field(default=None, description="Amount per resource and step.")
    welfare: str | None = Field(default=None, max_length=200, description="Welfare.")
    max_wait: list[PromiseRow] = Field(default_factory=list, max_length=1000)
    close: dict[Name, Name] = Field(
        default_factory=dict, max_length=1000, description="Groups that close, each with the group its arms go to."
    )
    transfer: list[TransferRow] = Field(default_factory=list, max_length=MOST_ROWS)
    start: Whole | Name | None = Field(
        default=None, description="Step or date from which on it holds; by default the present step."
    )

    @property
    def given(self) -> dict[str, Any]:
        """Arguments of `Programme.change`."""
        return self.model_dump(exclude={"who", "why", "seconds"})


class PreviewRequest(ChangeRequest):
    """A lasting change that is evaluated."""

    seconds: Seconds | None = None


class AdoptRequest(ChangeRequest, Who):
    """A lasting change that is adopted."""

    why: str = Field(default="", max_length=2000, description="A reason.")


class PlanRequest(Who):
    """Arguments of a plan."""

    step: Whole | None = Field(default=None, description="The present step; another one is refused.")
    budget: Budget | None = Field(default=None, description="Budget of this step; by default that of the model.")


class OverrideRequest(Strict):
    """Another action than planned, for one arm."""

    arm: Name
    action: Label
    why: Text


class AcceptRequest(Who):
    """Acceptance of a plan."""

    overrides: list[OverrideRequest] = Field(default_factory=list, max_length=MOST_ROWS)


class SolveRequest(Who):
    """Arguments of a new policy."""

    method: Method = "fluid"
    seconds: Seconds | None = None


class WhatIfRequest(Strict):
    """Another budget or welfare."""

    budget: Budget | None = Field(default=None, description="By default as in the model.")
    welfare: str | None = Field(default=None, description="By default the programme's own.")
    seconds: Seconds | None = None


class FairnessRequest(Strict):
    """Ideas of fairness to compare."""

    welfares: list[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=20,
        description="As text; by default from the best mean to the worst-off.",
    )
    price_limit: Annotated[Number, Field(ge=0, le=1)] = Field(
        default=0.1, description="Share of the best mean over arms that the recommended plan may give up."
    )
    seconds: Seconds | None = None


class RefitRequest(Who):
    """Arguments of a refit."""

    trust: Weight = Field(default=TRUST, description="Weight of the present model, in observations per pair.")
    prior: Weight | None = Field(default=None, description="Weight of the other types in a row, in observations.")
    seconds: Seconds | None = None


class EraseRequest(Who):
    """Arms that are erased."""

    arms: list[Name] = Field(default=[], max_length=10_000, description="Names of arms that left.")
    older_than: Whole | None = Field(default=None, description="Also all that left at least so many steps ago.")


class ViewList(Strict):
    """Views of arms."""

    views: list[View]


class DeclineRequest(Who):
    """Refusal of a refit that is offered."""

    why: Text = Field(description="A reason.")
