"""What a Parquet model says of itself: a header in the metadata of its schema, and the columns.

    metadata  `evenhand`: JSON with version, budget, discount, criterion, over, welfare, resources, states, actions
    columns   transitions, rewards, usage           lists of numbers, one row an arm or a block of equal arms
              initial, count, group, floor, name    optional
              states, actions                       optional labels of a row's own; else those of the header

Lists are flat, row by row in the order of the axes, or nested. The number of states S of a row is the length of
`transitions` over that of `rewards`, the number of actions A that of `rewards` over S. `usage` has A K numbers, or
S A K where it depends on the state, with K resources.

In a folder all files `*.parquet` are parts of one table, in the order of their names. If `types.parquet` is among
them, it has the columns above and a `name` each, and the others have a row an arm with its `type`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.checks import Faults, plain, read_names
from evenhand.errors import Fault, MissingExtra, ModelError
from evenhand.model.arm import ROOM
from evenhand.model.coupled import (
    Over,
    read_budget,
    read_criterion,
    read_over,
    read_welfare_text,
)
from evenhand.model.criterion import Criterion, parse_criterion
from evenhand.typing import Floats

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
"""Of the format; a file of another version is refused."""

KEY = b"evenhand"
"""Of the metadata."""

TYPES = "types.parquet"
"""The table of types in a folder."""

NEEDED = ("transitions", "rewards", "usage")
NUMBERS = (*NEEDED, "initial")
LABELS = ("name", "group")
LISTS_OF_LABELS = ("states", "actions")
COLUMNS = (*LABELS, "count", "floor", *NUMBERS, *LISTS_OF_LABELS)
COLUMNS_BY_TYPE = ("name", "type", "group", "count", "floor")
HEADER_KEYS = (
    "version", "budget", "discount", "criterion", "over", "welfare", "resources", "states", "actions", "policy",
)  # fmt: skip

DEPTHS = {"transitions": 3, "rewards": 2, "usage": 3, "initial": 1}
"""Axes of each array: a list is flat, or nested as deep."""


@dataclass(frozen=True, eq=False)
class Header:
    """What all arms of a table share."""

    budget: Floats
    """(resource,) what is available of each resource at every step."""

    discount: float
    """What a reward one step later is worth."""

    criterion: Criterion
    """What rewards over time are worth."""

    over: Over = "arms"
    """Whose values welfare weighs."""

    welfare: str | None = None
    """How values are weighed unless something else is asked for, as text."""

    resources: tuple[str, ...] = ()
    """The name of each resource, or none."""

    states: tuple[str, ...] = ()
    """Labels of the states of every arm, or none."""

    actions: tuple[str, ...] = ()
    """Labels of the actions of every arm, or none."""

    policy: Mapping[str, Any] | None = None
    """Of a plan: which policy the column `scores` is of, and its threshold."""

    @property
    def budget_limit(self) -> Floats:
        """(resource,) the budget with room for rounding, as `CoupledMDP.budget_limit`."""
        return np.asarray(self.budget * ROOM)

    @property
    def resource_names(self) -> tuple[str, ...]:
        """The name of each resource; `resource 0` and so on where none was given."""
        return self.resources or tuple(f"resource {k}" for k in range(len(self.budget)))

    def as_metadata(self) -> dict[bytes, bytes]:
        """The header as it is written."""
        said = {
            "version": VERSION,
            "budget": self.budget.tolist(),
            "discount": self.discount,
            "criterion": self.criterion.name,
            "over": self.over,
            "welfare": self.welfare,
            "resources": list(self.resources),
            "states": list(self.states),
            "actions": list(self.actions),
            "policy": None if self.policy is None else dict(self.policy),
        }
        return {KEY: json.dumps({key: value for key, value in said.items() if value not in (None, [])}).encode()}


def read_header(metadata: Mapping[bytes, bytes] | None, faults: Faults) -> Header | None:
    """The header of a file, or faults.

    Args:
        metadata: of the schema.
        faults: where faults are noted, in the words of the header.
    """
    said = _read_json(metadata, faults)
    if said is None or not _version_is_known(said, faults):
        return None
    before = len(faults.found)
    for key in said:
        if key not in HEADER_KEYS:
            faults.add(f"metadata.{key}", f"unknown key; known are {', '.join(HEADER_KEYS)}")
    if "budget" not in said:
        faults.add("metadata.budget", "missing")
    own = Faults()
    budget = read_budget(said.get("budget", [0.0]), None, own)
    asked = said.get("criterion", "discounted")
    if "discount" not in said and asked == "discounted":
        own.add("discount", "missing; give one below 1, or a criterion that needs none: average or finite:T")
    discount, criterion = read_criterion(said.get("discount", 1.0 if asked != "discounted" else 0.0), asked, own)
    over, welfare = said.get("over", "arms"), said.get("welfare")
    read_over(over, own)
    read_welfare_text(welfare, None, own)
    names = {key: said.get(key, []) for key in ("resources", "states", "actions")}
    read = {
        key: read_names(value, len(budget) if key == "resources" else None, key, own) for key, value in names.items()
    }
    faults.found.extend(Fault(f"metadata.{fault.place}", fault.message) for fault in own.found)
    if len(faults.found) > before or criterion is None:
        return None
    return Header(budget, discount, criterion, over, welfare, **read, policy=said.get("policy"))


def _read_json(metadata: Mapping[bytes, bytes] | None, faults: Faults) -> dict[str, Any] | None:
    text = (metadata or {}).get(KEY)
    if text is None:
        faults.add(
            "metadata",
            "there is no key 'evenhand', which has the version and the budget: write it with evenhand.ArmWriter, "
            'or as JSON: {"version": 1, "budget": [1], "discount": 0.95}',
        )
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        faults.add("metadata.evenhand", f"not a JSON text: {error}")
        return None
    if not isinstance(said, dict):
        faults.add("metadata.evenhand", "expected a JSON table")
        return None
    return said


def _version_is_known(said: Mapping[str, Any], faults: Faults) -> bool:
    if said.get("version") == VERSION:
        return True
    got = "no version" if "version" not in said else f"version {plain(said['version'])}"
    faults.add("metadata.version", f"{got}; this evenhand reads version {VERSION}")
    return False


def header_of(
    budget: Any,
    discount: float | None,
    criterion: str | Criterion = "discounted",
    **others: Any,
) -> Header:
    """A header of what a user says, checked.

    Args:
        budget: amounts, or one.
        discount: what a reward one step later is worth; 1 when absent, if the criterion allows that.
        criterion: as text or object.
        others: over, welfare, resources, states, actions, policy.

    Raises:
        ModelError: with every fault.
    """
    faults = Faults()
    text = criterion.name if isinstance(criterion, Criterion) else criterion
    amounts = np.atleast_1d(np.asarray(budget)).tolist()
    said = {"version": VERSION, "budget": amounts, "criterion": text, **others}
    said |= {} if discount is None else {"discount": discount}
    said = {key: list(value) if isinstance(value, tuple) else value for key, value in said.items()}
    read = read_header({KEY: json.dumps(said).encode()}, faults)
    if read is None:
        raise ModelError([Fault(fault.place.removeprefix("metadata."), fault.message) for fault in faults.found])
    return read


def under(header: Header, criterion: str | Criterion | None, over: Over | None = None) -> Header:
    """The same header under another criterion, or with welfare over something else."""
    from dataclasses import replace

    chosen = parse_criterion(criterion, header.discount) if isinstance(criterion, str) else criterion
    return replace(header, criterion=chosen or header.criterion, over=over or header.over)


def check_columns(schema: "pa.Schema", by_type: bool, faults: Faults) -> None:
    """Note columns that are missing, unknown, or of a wrong kind.

    Args:
        schema: of one file.
        by_type: whether its rows name a type in the place of arrays of their own.
        faults: where faults are noted, under the name of the column.
    """
    for name in ("type",) if by_type else NEEDED:
        if name not in schema.names:
            faults.add(name, f"there is no such column; the file has {', '.join(schema.names) or 'none'}")
    for name in dict.fromkeys(schema.names):
        if schema.names.count(name) > 1:
            faults.add(name, "there are several columns of this name")
        elif wrong := _kind_fault(name, schema.field(name).type, by_type):
            faults.add(name, wrong)


def _kind_fault(name: str, kind: "pa.DataType", by_type: bool) -> str:
    """Why a column cannot be of this kind; empty when it can, and for columns that are nobody's business."""
    import pyarrow.types as is_

    depth, leaf = 0, kind
    while is_.is_list(leaf) or is_.is_large_list(leaf) or is_.is_fixed_size_list(leaf):
        depth, leaf = depth + 1, leaf.value_type
    leaf = leaf.value_type if is_.is_dictionary(leaf) else leaf
    number = is_.is_integer(leaf) or is_.is_floating(leaf)
    text = is_.is_string(leaf) or is_.is_large_string(leaf) or is_.is_string_view(leaf)
    if name in DEPTHS and not by_type:
        allowed = {1, DEPTHS[name], *((2,) if name == "usage" else ())}
        return "" if number and depth in allowed else f"expected lists of numbers, got {kind}"
    if name in LISTS_OF_LABELS and not by_type:
        return "" if text and depth == 1 else f"expected lists of names, got {kind}"
    if name in LABELS or (name == "type" and by_type):
        return "" if text and depth == 0 else f"expected texts, got {kind}"
    if name == "count":
        return "" if is_.is_integer(leaf) and depth == 0 else f"expected whole numbers, got {kind}"
    return f"expected numbers, got {kind}" if name == "floor" and not (number and depth == 0) else ""


def needs_pyarrow() -> None:
    """Say how to install what reads and writes Parquet, where it is absent."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise MissingExtra("arms in Parquet", "cluster") from None
