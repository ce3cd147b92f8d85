"""Metadata and columns of a model in Parquet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.checks import Faults, plain, read_names
from evenhand.errors import Fault, MissingExtraError, ModelError
from evenhand.model.coupled import Over, read_budget, read_criterion, read_over, read_welfare_text
from evenhand.model.criterion import Criterion
from evenhand.typing import Floats

VERSION = 1
"""Version of the format."""

KEY = b"evenhand"
"""Key of the metadata."""

DEPTHS = {"transitions": 3, "rewards": 2, "usage": 3, "initial": 1}
"""Numeric columns, and the number of their axes."""

HEADER_KEYS = ("version", "budget", "discount", "criterion", "over", "welfare", "resources", "states", "actions")


@dataclass(frozen=True, eq=False)
class Header:
    """The part of a model that all arms share."""

    budget: Floats
    """(resource,) amounts available per step."""

    discount: float
    """Value of a reward one step later."""

    criterion: Criterion
    """Criterion of the values."""

    over: Over = "arms"
    """Members of the welfare: arms or groups."""

    welfare: str | None = None
    """The default welfare, as text."""

    resources: tuple[str, ...] = ()
    """Names of the resources, or none."""

    states: tuple[str, ...] = ()
    """Labels of the states of every arm, or none."""

    actions: tuple[str, ...] = ()
    """Labels of the actions of every arm, or none."""

    def as_metadata(self) -> dict[bytes, bytes]:
        """The header as it is written."""
        said = {key: getattr(self, key) for key in HEADER_KEYS[1:]} | {
            "budget": self.budget.tolist(),
            "criterion": self.criterion.name,
        }
        chosen = {key: value for key, value in said.items() if value not in (None, ())}
        return {KEY: json.dumps({"version": VERSION, **chosen}).encode()}


def read_header(metadata: Mapping[bytes, bytes] | None, faults: Faults) -> Header | None:
    """The header in the metadata of a schema, or faults.

    Args:
        metadata: of the schema.
        faults: where faults are added.
    """
    said = _metadata(metadata, faults)
    if said is None:
        return None
    before, own = len(faults.found), Faults()
    for key in said:
        if key not in HEADER_KEYS:
            faults.add(f"metadata.{key}", f"unknown key; known are {', '.join(HEADER_KEYS)}")
    if "budget" not in said:
        faults.add("metadata.budget", "missing")
    budget = read_budget(said.get("budget", [0.0]), None, own)
    name = said.get("criterion", "discounted")
    if "discount" not in said and name == "discounted":
        own.add("discount", "missing; give one below 1, or a criterion without discount: average or finite:T")
    discount, criterion = read_criterion(said.get("discount", 1.0 if name != "discounted" else 0.0), name, own)
    over, welfare = said.get("over", "arms"), said.get("welfare")
    read_over(over, own)
    read_welfare_text(welfare, None, own)
    sizes = {"resources": len(budget), "states": None, "actions": None}
    names = {key: read_names(said.get(key, []), size, key, own) for key, size in sizes.items()}
    faults.found.extend(Fault(f"metadata.{fault.place}", fault.message) for fault in own.found)
    if len(faults.found) > before or criterion is None:
        return None
    return Header(budget, discount, criterion, over, welfare, **names)


def _metadata(metadata: Mapping[bytes, bytes] | None, faults: Faults) -> dict[str, Any] | None:
    text = (metadata or {}).get(KEY)
    if text is None:
        example = '{"version": 1, "budget": [1], "discount": 0.95}'
        faults.add(
            "metadata", f"the key 'evenhand' is missing: use evenhand.write_arms, or write it as JSON: {example}"
        )
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        faults.add("metadata.evenhand", f"invalid JSON: {error}")
        return None
    if not isinstance(said, dict):
        faults.add("metadata.evenhand", "expected a JSON object")
    elif said.get("version") != VERSION:
        got = f"version {plain(said['version'])}" if "version" in said else "no version"
        faults.add("metadata.version", f"{got}; this evenhand reads version {VERSION}")
    else:
        return said
    return None


def header_of(budget: Any, discount: float | None, criterion: str | Criterion = "discounted", **others: Any) -> Header:
    """A checked header.

    Args:
        budget: amounts, or one.
        discount: value of a reward one step later; 1 by default, if the criterion allows that.
        criterion: as text or object.
        others: over, welfare, resources, states, actions.

    Raises:
        ModelError: with every fault.
    """
    faults = Faults()
    text = criterion.name if isinstance(criterion, Criterion) else criterion
    said = {"version": VERSION, "budget": np.atleast_1d(np.asarray(budget)).tolist(), "criterion": text, **others}
    said |= {} if discount is None else {"discount": discount}
    found = read_header({KEY: json.dumps(said).encode()}, faults)
    if found is None:
        raise ModelError([Fault(fault.place.removeprefix("metadata."), fault.message) for fault in faults.found])
    return found


def check_columns(schema: Any, by_type: bool, faults: Faults) -> None:
    """Add faults of columns that are missing, repeated or of a wrong kind.

    Args:
        schema: of one file.
        by_type: whether its rows name a type instead of having arrays of their own.
        faults: where faults are added, under the name of the column.
    """
    for name in ("type",) if by_type else ("transitions", "rewards", "usage"):
        if name not in schema.names:
            faults.add(name, f"the column is missing; the file has {', '.join(schema.names) or 'none'}")
    for name in dict.fromkeys(schema.names):
        if schema.names.count(name) > 1:
            faults.add(name, "there are several columns of this name")
        elif expected := _wrong_kind(name, schema.field(name).type, by_type):
            faults.add(name, f"expected {expected}, got {schema.field(name).type}")


def _wrong_kind(name: str, kind: Any, by_type: bool) -> str:
    """The kind that a column must have; empty if it has it, and for columns that are not read."""
    import pyarrow.types as is_

    depth, leaf = 0, kind
    while is_list(leaf):
        depth, leaf = depth + 1, leaf.value_type
    leaf = leaf.value_type if is_.is_dictionary(leaf) else leaf
    whole = is_.is_integer(leaf)
    number, text = (
        whole or is_.is_floating(leaf),
        is_.is_string(leaf) or is_.is_large_string(leaf) or is_.is_string_view(leaf),
    )
    if name in DEPTHS and not by_type:
        depths = {1, DEPTHS[name], *((2,) if name == "usage" else ())}
        return "" if number and depth in depths else "lists of numbers"
    if name in ("states", "actions") and not by_type:
        return "" if text and depth == 1 else "lists of names"
    if name in ("name", "group") or (name == "type" and by_type):
        return "" if text and depth == 0 else "text"
    if name == "count":
        return "" if whole and depth == 0 else "whole numbers"
    return "numbers" if name == "floor" and not (number and depth == 0) else ""


def is_list(kind: Any) -> bool:
    """Return True for an Arrow type of lists."""
    import pyarrow.types as is_

    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def needs_pyarrow() -> None:
    """Raise MissingExtraError if PyArrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise MissingExtraError("arms in Parquet", "cluster") from None
