"""Options of `fit`: how the records are read, and the parts of the model that are stated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypeVar

from evenhand.errors import UnknownNameError
from evenhand.fitting.table_reader import Bins
from evenhand.model.io.text_table import TableFormat
from evenhand.typing import Floats

Layout: TypeAlias = Literal["snapshots", "events", "intervals"]
Ties: TypeAlias = Literal["last", "first", "shift"]


@dataclass(frozen=True)
class LogOptions:
    """Reading of the records."""

    group: str | None = None
    """Column of groups, such as wards or districts: arms of one type share their rows in all groups, and are one block
    of the model per group. That of an arm's last row counts; every type is a group by default."""

    reward: str | None = None
    """Column of rewards; their means are taken."""

    used: str | Sequence[str] | None = None
    """Columns of amounts used, one per resource."""

    idle: str | None = None
    """The idle action; by default found by its name, or because it uses nothing. If it is given, it also stands for
    missing actions."""

    step: str | float | None = None
    """Length of a step: a number, or `7 days`, `month`, `12 hours`; the greatest common divisor by default."""

    bins: Bins | None = None
    """Bins of a numeric column of states: a width, cuts, or `quantile:10`."""

    states: str | Sequence[str] | None = None
    """The states in their order; rows must have no others."""

    actions: str | Sequence[str] | None = None
    """The actions; rows must have no others."""

    layout: Layout | None = None
    """`snapshots` if rows are states at chosen times; `events` if they are changes, and a state lasts until the next
    row; `intervals` if they are stays from `time` to `stop`. Snapshots by default, or intervals if `stop` is given; a
    log in which hardly any row repeats a state needs it."""

    stop: str | None = None
    """Column of ends of intervals, of which `time` is the start; blank if the stay goes on."""

    to: str | None = None
    """Column of the states entered at the ends of intervals; by default the next interval of the arm says it."""

    ties: Ties | None = None
    """Rows of one arm at one time: the `last` or `first` counts, or each is moved to the next day, month, integer or
    thousandth after the one before (`shift`). By default they are faults."""

    exact: str | Sequence[str] = ()
    """States whose every entry is a row at its very time, such as death, if times are irregular."""

    covariates: str | Sequence[str] = ()
    """Columns that rates depend on, proportionally: numbers, or names as indicators against the first level. Each value
    is a type of the model; times are taken as irregular."""

    time_cuts: str | Sequence[float] = ()
    """Times at which rates change, in the numbers of the time column, or for dates in units since the earliest record;
    the model has the rates of the last period."""

    gone_after: float | None = None
    """Steps before the end of the records; arms last observed earlier have dropped out and are not counted in the
    model. By default 10 if times are on a calendar; `inf` counts all arms."""

    carry_action: bool = False
    """True if an action goes on through missing steps; else they are idle."""

    format: TableFormat | None = None
    """csv, parquet or json; by the suffix of the file by default."""


@dataclass(frozen=True)
class ModelOptions:
    """Stated parts of a model.

    A table is a file or a table with the key columns type, state, action (and next_state), each optional unless stated
    otherwise; a row with more keys overrides one with fewer. Rewards and usage may also be text.
    """

    rewards: Any = None
    """Table with a column reward or cost; or text, `good=1,poor=0.3,poor/replace=-2`."""

    usage: Any = None
    """Table with one column per resource; or text, `service=1,overhaul/bays=2`. Every action but the idle one uses 1 by
    default."""

    allowed: Any = None
    """The only possible transitions beside staying: `neighbours` in the order of the states, or a table with the
    columns state, next_state and optionally action. All by default."""

    impossible: Any = None
    """Table of impossible transitions, with the columns state, next_state and optionally action."""

    unseen: Any = None
    """Rows of unobserved pairs: `idle` (as the idle action), `forbid` (never chosen), or a table with the columns
    state, action, next_state and probability."""

    only_worse: bool = False
    """True if a state never improves under the idle action, in the order of the states."""

    absorbing: str | Sequence[str] = ()
    """Absorbing states."""

    resources: Sequence[str] = ()
    """Names of the resources, in the order of the budget."""

    budget: float | Sequence[float] | Floats | Mapping[str, float] | None = None
    """Amount of each resource per step; the most that was used in a step by default."""

    discount: float | None = None
    """Discount per step; 0.95 by default."""

    criterion: str | None = None
    """`discounted`, `average` or `finite:T`."""

    welfare: str | None = None
    """Welfare, as text."""

    over: str | None = None
    """Members of the welfare: `arms` or `groups`."""


Options = TypeVar("Options", LogOptions, ModelOptions)


def read_options(kind: type[Options], given: "Options | Mapping[str, Any] | None", argument: str) -> Options:
    """Return options given as such, or by name.

    Args:
        kind: class of the options.
        given: options, a mapping of some of their fields, or None for the defaults.
        argument: name of the argument, for errors.

    Raises:
        UnknownNameError: a name is unknown.
    """
    if isinstance(given, kind):
        return given
    stated = dict(given or {})  # type: ignore[arg-type]  # a mapping
    known = [field.name for field in fields(kind)]
    for name in stated:
        if name not in known:
            raise UnknownNameError(f"option of {argument}", name, known)
    return kind(**stated)


def listed(names: str | Sequence[str]) -> list[str]:
    """Return names given as a sequence or as text with commas."""
    given = names.split(",") if isinstance(names, str) else names
    return [name.strip() for name in given if name.strip()]
