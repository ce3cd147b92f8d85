"""What requests and answers look like, strictly: a number is no text, a text no number, and nothing may be unknown.

These are checked before anything is read, and described at `/openapi.json`. What a model, a roster or a reason must be
besides is the library's to say.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

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
    line: int | None = Field(None, description="The line of a table or file.")
    named: str | None = Field(None, description="The place by the names of the model.")


class Problem(Strict):
    """Why something was not done (RFC 9457)."""

    type: str = Field(description="`urn:evenhand:` and a word for the kind.")
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


# Deciding


class Place(Strict):
    """Where an arm is."""

    arm: Name = Field(description="What it is called.")
    state: str | Whole = Field(description="Where it is, by name or number.")
    type: str | Whole | None = Field(
        None, description="Its type, by name or number; where there is one, it may be absent."
    )
    group: str | None = Field(None, description="Its group, where types are in several.")


class DecideRequest(Strict):
    """A model, and where its arms are."""

    model: Model
    states: list[Place] = Field(min_length=1, max_length=MOST_ROWS, description="One for each arm, in any order.")
    welfare: str | None = Field(None, description="What is fair; the model's own when absent.")
    criterion: str | None = Field(
        None, description="`discounted`, `average` or `finite:T`; the model's own when absent."
    )
    over: Literal["arms", "groups"] | None = Field(None, description="Whose values welfare weighs.")
    method: Method = Field("auto", description="How it is solved.")
    budget: Budget | None = Field(None, description="What there is today; as in the model when absent.")
    seed: int = Field(0, ge=0, le=MOST_SEED, description="Of all draws.")
    step: Whole = Field(0, description="Of a plan by steps.")
    part: int | None = Field(None, ge=1, le=MOST_STEP, description="Of a mixture; drawn when absent.")


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
    note: str | None = Field(None, description="What differs from what the plan was made for.")


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
