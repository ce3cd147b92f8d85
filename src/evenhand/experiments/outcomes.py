"""What each kind of cell finds: one frozen dataclass a kind, which is the schema of its records.

`cells` fills one, `records` keeps its fields as JSON, `read_outcome` checks them when a record is read, and the report
reads the dataclass. `VALUES` has the class of every kind. Values are the same in every run; timings are seconds and
never are, each class names those that must be there (`TIMED`). Records outlive the code that wrote them: a field that
is added later needs a default, and fields that are no longer declared are passed over.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, TypeAlias, get_args, get_origin, get_type_hints

from evenhand.errors import InvalidInput, UnknownName

Number: TypeAlias = float | None
"""A number; None where JSON has none for it (infinite, or not a number)."""


# -- one class a kind ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Values:
    """What a cell found."""

    TIMED: ClassVar[tuple[str, ...]] = ("total",)
    """The timings that belong to it."""


@dataclass(frozen=True, kw_only=True)
class OptimumValues(Values):
    """The best policy."""

    welfare: Number
    upper_bound: Number
    states: int
    """Of the space it was solved on."""
    method: str


@dataclass(frozen=True, kw_only=True)
class FluidValues(Values):
    """The fair fluid relaxation."""

    upper_bound: Number


@dataclass(frozen=True, kw_only=True)
class Figures(Values):
    """A policy, measured as well as possible, and as the paper does."""

    welfare: Number
    """Exact where that is possible, else pooled over arms that are treated alike."""
    exact: bool
    stderr: Number
    """Standard error of welfare, 0 if exact."""
    plug_in: Number
    """The paper's figure, always simulated by its protocol: the welfare of the arms' means."""
    plug_in_stderr: Number
    mean: Number
    worst: Number


@dataclass(frozen=True, kw_only=True)
class PolicyValues(Figures):
    """A policy that has a name."""

    TIMED: ClassVar[tuple[str, ...]] = ("evaluate", "simulate")

    applies: bool = True
    gini_coefficient: Number
    budget_used: tuple[Number, ...]
    """(resource,) the share of the budget that was used."""


@dataclass(frozen=True, kw_only=True)
class NotForProblem(Values):
    """A policy that has a name and is not for the problem."""

    TIMED: ClassVar[tuple[str, ...]] = ()

    applies: bool = False
    reason: str


@dataclass(frozen=True, kw_only=True)
class SizeFigures(Figures):
    """A trained network, played on one size."""

    num_arms: int
    budget: float | tuple[float, ...]
    """One number, or one a resource."""


@dataclass(frozen=True, kw_only=True)
class TrainValues(Values):
    """What was learnt."""

    TIMED: ClassVar[tuple[str, ...]] = ("train", "evaluate")

    score: Number
    """Of the best network, as judged in training."""
    exact: bool
    """Whether it was judged exactly."""
    curve: tuple[tuple[int, Number], ...]
    """(judgement,) steps and score; the score is the welfare where the problem's arms are identical."""
    steps: int
    """Really played."""
    evaluations: tuple[SizeFigures, ...]
    """(size,) in the order of the setting `evaluate`."""


@dataclass(frozen=True, kw_only=True)
class TimingValues(Values):
    """How an episode was timed."""

    TIMED: ClassVar[tuple[str, ...]] = ("per_episode", "per_episode_deviation")
    """The median of the repeats, and their standard deviation."""

    episodes: int
    """How many were timed at a time."""
    horizon: int
    repeats: int


STAGES = ("data", "build", "solve", "extract", "total")
"""Of a linear program, in this order; the last is their sum."""


@dataclass(frozen=True, kw_only=True)
class ProgramValues(Values):
    """One of the paper's linear programs."""

    TIMED: ClassVar[tuple[str, ...]] = (*STAGES, *(f"{stage}_deviation" for stage in STAGES))
    """Means over the repeats, and standard deviations."""

    constraints: int
    variables: int
    paper_constraints: int
    """As the paper counts them."""
    paper_variables: int
    welfare: Number
    upper_bound: Number
    repeats: int


@dataclass(frozen=True)
class Group:
    """Arms that fare alike."""

    name: str
    count: int
    value: Number


@dataclass(frozen=True, kw_only=True)
class FairnessValues(Values):
    """The best policy for one idea of fairness."""

    method: str
    exact: bool
    """Whether it is proved optimal."""
    welfare: Number
    upper_bound: Number
    stderr: Number
    mean: Number
    worst: Number
    gini_coefficient: Number
    groups: tuple[Group, ...]
    measures: dict[str, Number]
    """The result weighed by other ideas; None outside their domain."""


# -- all of them -----------------------------------------------------------------------------------------------------

VALUES: dict[str, type[Values]] = {
    "optimum": OptimumValues,
    "fluid": FluidValues,
    "named-policy": PolicyValues,
    "train": TrainValues,
    "timing": TimingValues,
    "lp": ProgramValues,
    "fairness": FairnessValues,
}
"""What every kind of cell finds; a named policy may also be NotForProblem."""


@dataclass(frozen=True)
class Outcome:
    """What came of a cell."""

    values: Values
    """What is the same in every run."""

    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds."""


# -- reading what was kept -------------------------------------------------------------------------------------------


def read_outcome(kind: str, values: Any, timings: Any) -> Outcome:
    """What a record holds, checked.

    Args:
        kind: of the cell.
        values: as JSON has them.
        timings: as JSON has them.

    Raises:
        InvalidInput: something is missing or of another type; tells all of it.
    """
    if kind not in VALUES:
        raise UnknownName("kind", kind, VALUES)
    # The one kind with two schemas, told apart by a field that both have.
    refused = kind == "named-policy" and isinstance(values, Mapping) and values.get("applies") is False
    schema = NotForProblem if refused else VALUES[kind]
    faults: list[str] = []
    found = _read(schema, values, "values", faults)
    seconds = _read(dict[str, float], timings, "timings", faults)
    # Timings that are missing are told with the rest.
    faults += [f"timings.{name}: expected a number, got nothing" for name in schema.TIMED if name not in seconds]
    if faults:
        raise InvalidInput("; ".join(faults))
    return Outcome(found, seconds)


WORDS: dict[Any, str] = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}


def _read(expected: Any, value: Any, place: str, faults: list[str]) -> Any:
    """A value of JSON as what is declared; notes a fault where it does not fit."""
    shape, parts = get_origin(expected), get_args(expected)
    # From the particular to the plain: unions, tables, lists, mappings, then numbers and texts.
    if shape is types.UnionType:
        return _read_one_of(parts, value, place, faults)
    if is_dataclass(expected) and isinstance(value, Mapping):
        return _read_fields(expected, value, place, faults)
    # (x, ...) is a list of any length, (x, y) one of two.
    if shape is tuple and isinstance(value, list) and (parts[-1] is ... or len(parts) == len(value)):
        kinds = [parts[0]] * len(value) if parts[-1] is ... else parts
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(_read(kind, each, f"{place}[{index}]", faults) for index, (kind, each) in pairs)
    if shape is dict and isinstance(value, Mapping):
        return {str(key): _read(parts[1], each, f"{place}.{key}", faults) for key, each in value.items()}
    if _is_plain(expected, value):
        # JSON has one kind of number: 3 is a float where one is declared.
        return float(value) if expected is float else value
    faults.append(f"{place}: expected {_said(expected)}, got {value!r}")
    # An empty table lets the caller go on and note what else is missing.
    return {} if shape is dict else None


def _read_one_of(options: tuple[Any, ...], value: Any, place: str, faults: list[str]) -> Any:
    """The first option that fits; where none does, what the first one lacks is told."""
    if value is None and types.NoneType in options:
        return None
    # Each option notes faults of its own, which are dropped where another fits.
    told: list[list[str]] = []
    for option in options:
        told.append([])
        found = _read(option, value, place, told[-1])
        if not told[-1]:
            return found
    faults += told[0]
    return None


def _read_fields(expected: Any, table: Mapping[str, Any], place: str, faults: list[str]) -> Any:
    # Hints of the class are texts until they are resolved.
    before, hints = len(faults), get_type_hints(expected)
    found = {}
    for each in fields(expected):
        # A field that has a default may be absent: it was added later.
        if each.name in table or each.default is MISSING:
            known = table.get(each.name, _ABSENT)
            found[each.name] = _read(hints[each.name], known, f"{place}.{each.name}", faults)
    return expected(**found) if len(faults) == before else None


class _Absent:
    """A field that is not there, which is not the same as null."""

    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def _is_plain(expected: Any, value: Any) -> bool:
    # True is an int to Python, and no number to a reader.
    if expected in (int, float) and isinstance(value, bool):
        return False
    return expected in WORDS and isinstance(value, (int, float) if expected is float else expected)


def _said(expected: Any) -> str:
    if expected in WORDS:
        return WORDS[expected]
    return "a table" if is_dataclass(expected) or get_origin(expected) is dict else "a list"
