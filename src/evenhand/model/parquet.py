"""Models in Parquet: written as arms come, opened without reading them, and read by rows.

    metadata  `evenhand`: JSON with version, budget, discount, criterion, over, welfare, resources, states, actions
    columns   transitions, rewards, usage           lists of numbers, one row per arm or per block of equal arms
              initial, count, group, floor, name    optional
              states, actions                       optional labels of a row; by default those of the metadata

Lists are flat, in the order of the axes, or nested. With S states, A actions and K resources `transitions` has S A S
numbers, `rewards` S A, `usage` A K or S A K. In a folder all files `*.parquet` are parts of one table, in the order of
their names; if `types.parquet` is among them, it has the columns above and a `name` each, and the others have one row
per arm with its `type`.

An opened model (`StoredArms`) holds a few numbers per file, and 8 bytes per row if rows stand for several arms. Ranges
of rows (`RowRange`) are small, can be sent to workers, and read the same wherever they are read. Only this module knows
PyArrow, which is imported when a table is opened.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import Faults, check_memory, plain, why_unreadable
from evenhand.display import Shown, counted
from evenhand.errors import Fault, InvalidInput, MissingExtra, ModelError, TableError, nearest
from evenhand.model.arm import Arm, ArmTables
from evenhand.model.coupled import (
    MOST_ARMS,
    CoupledMDP,
    Over,
    read_budget,
    read_criterion,
    read_names,
    read_over,
    read_welfare_text,
)
from evenhand.model.criterion import Criterion, parse_criterion
from evenhand.model.files import Location, replacing, sweep
from evenhand.typing import Array, Bools, Floats, Indices, Ints

VERSION = 1
KEY = b"evenhand"
"""Version of the format, and key of the metadata."""

TYPES = "types.parquet"
"""The table of types in a folder."""

DEPTHS = {"transitions": 3, "rewards": 2, "usage": 3, "initial": 1}
"""Numeric columns, and the number of their axes."""

HEADER_KEYS = ("version", "budget", "discount", "criterion", "over", "welfare", "resources", "states", "actions")
ROW_KEYS = ("name", "type", "group", "count", "floor")

IN_MEMORY_ROWS = 100_000
"""Default number of rows up to which a model is read into memory."""

BATCH_ROWS = 65_536
"""Rows that are read or written at once; also those of a row group."""

ROWS_PER_PART = 1_000_000
"""Rows per file in a folder."""

MOST_FAULTS, SHOWN_ROWS = 50, 20
"""Faults after which reading ends, and faulty rows of one kind and batch that are reported."""


# -- metadata and columns ---------------------------------------------------------------------------------------------


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
    while _is_list(leaf):
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


def _is_list(kind: Any) -> bool:
    import pyarrow.types as is_

    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def needs_pyarrow() -> None:
    """Raise MissingExtra if PyArrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise MissingExtra("arms in Parquet", "cluster") from None


# -- rows -------------------------------------------------------------------------------------------------------------


class RowFaults:
    """Faults of one file, with its name and the row, counted from 1."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Fault] = []

    def add(self, row: int, place: str, message: str) -> None:
        """Add one fault of a row, counted from 0."""
        self.found.append(Fault(f"{self.file}, row {row + 1}, {place}", message))

    def flag(self, rows: Ints, bad: Bools, place: str, message: str) -> None:
        """Add a fault for every bad row, up to a limit."""
        wrong = rows[bad].tolist()
        for row in wrong[:SHOWN_ROWS]:
            self.add(row, place, message)
        if (more := len(wrong) - SHOWN_ROWS) > 0:
            self.found.append(Fault(f"{self.file}, {place}", f"... and {more} more such rows", stands_for=more))


class Piece(NamedTuple):
    """Consecutive rows of one file."""

    path: str
    first_row: int
    num_rows: int


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of a table: a small picklable function that reads them."""

    pieces: tuple[Piece, ...]
    num_resources: int
    types: str | None = None
    """The table of types, if rows name theirs."""

    def __call__(self, labels: Any = None) -> "ArmRows":
        """Read the rows.

        Args:
            labels: (states, actions) of the header, if labels are required.

        Raises:
            TableError: with every fault of these rows.
        """
        columns = ROW_KEYS if self.types else (*ROW_KEYS, *DEPTHS, "states", "actions")
        if labels is None:
            columns = tuple(name for name in columns if name not in ("name", "states", "actions"))
        faults: list[Fault] = []
        read = [rows for piece in self.pieces for rows in _read(piece, columns, self.num_resources, faults, labels)]
        tables, kinds = None, np.zeros(0, dtype=np.int32)
        if self.types is not None and not faults:
            tables, names = _read_types(self.types, self.num_resources, labels)
            kinds = self._kinds([name for rows in read for name in rows.kinds], names, faults)
        if faults:
            raise TableError(faults, str(Path(self.pieces[0].path).parent) if len(self.pieces) > 1 else "")
        if tables is None:
            tables = _joined([rows.tables for rows in read if rows.tables is not None])
            kinds = np.arange(len(tables), dtype=np.int32)
        counts, floors = (np.concatenate([getattr(rows, key) for rows in read]) for key in ("counts", "floors"))
        groups = tuple(group for rows in read for group in rows.groups)
        return ArmRows(tables, kinds, counts, floors, groups, sum(rows.num_normalised for rows in read))

    def _kinds(self, named: Sequence[str], numbers: Mapping[str, int], faults: list[Fault]) -> Indices:
        """(row,) the number of the type of each row."""
        kinds = np.array([numbers.get(name, -1) for name in named], dtype=np.int32)
        places = ((piece.path, piece.first_row + row + 1) for piece in self.pieces for row in range(piece.num_rows))
        for name, kind, (path, row) in zip(named, kinds, places, strict=True) if (kinds < 0).any() else ():
            if kind < 0 and len(faults) < MOST_FAULTS:
                near = nearest(name, numbers)
                hint = f"; did you mean {near!r}?" if near else ""
                faults.append(Fault(f"{path}, row {row}, type", f"unknown type {name!r} in {TYPES}{hint}"))
        return kinds


@dataclass(frozen=True, eq=False)
class ArmRows:
    """Rows of a model in memory."""

    tables: ArmTables
    """One arm per row; or one per type, if rows name theirs."""

    kinds: Indices
    """(row,) which of the tables each row has."""

    counts: Ints
    """(row,) number of arms per row."""

    floors: Floats
    """(row,) least share of time in which each arm is served."""

    groups: tuple[str, ...]
    """(row,) group of each row, "" for none; empty if the table has none."""

    num_normalised: int = 0
    """Rows whose probabilities did not quite sum to 1 and were divided by their sums."""

    @cached_property
    def row_of_arm(self) -> Indices:
        """(arm,) row of each arm."""
        return np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)

    @cached_property
    def kind_of_arm(self) -> Indices:
        """(arm,) which of the tables each arm has."""
        return np.asarray(self.kinds if (self.counts == 1).all() else self.kinds[self.row_of_arm])

    def expanded(self) -> ArmTables:
        """One arm per row, also if rows name their types."""
        own = len(self.kinds) == len(self.tables) and (self.kinds == np.arange(len(self.kinds))).all()
        return self.tables if own else self.tables.select(self.kinds)


def _read_types(path: str, num_resources: int, labels: Any) -> tuple[ArmTables, dict[str, int]]:
    """A table of types, and the number of each by its name."""
    faults: list[Fault] = []
    with _file(path) as parquet:
        whole = Piece(path, 0, parquet.metadata.num_rows)
    columns = [*DEPTHS, "name", "group", "floor", "states", "actions"]
    read = list(_read(whole, columns, num_resources, faults, labels or ((), ())))
    if not faults and not read:
        faults.append(Fault(path, "there are no rows"))
    numbers: dict[str, int] = {}
    tables = None if faults else _joined([rows.tables for rows in read if rows.tables is not None])
    for number, (name, _, _) in enumerate(tables.labels if tables is not None else ()):
        if not name or name in numbers:
            message = f"{name!r} is also the name of an earlier row" if name else "has no name"
            faults.append(Fault(f"{path}, row {number + 1}, name", message))
        numbers.setdefault(name, number)
    if tables is None or faults or not numbers:
        raise TableError(faults or [Fault(path, "types have no names")])
    return tables if labels is not None else replace(tables, labels=()), numbers


class _Decoded(NamedTuple):
    """Rows of one batch."""

    tables: ArmTables | None
    kinds: Sequence[str]
    counts: Ints
    floors: Floats
    groups: tuple[str, ...]
    num_normalised: int


def _read(
    piece: Piece, columns: Sequence[str], num_resources: int, faults: list[Fault], labels: Any
) -> Iterator[_Decoded]:
    """The rows of a piece, batch by batch; faults are added."""
    damage = RowFaults(piece.path)
    for first, batch in batches_of(piece, columns, damage):
        own = RowFaults(piece.path)
        rows = _decode(batch, num_resources, np.arange(first, first + batch.num_rows), own, labels)
        faults.extend(own.found)
        if rows is not None:
            yield rows
        if len(faults) >= MOST_FAULTS:
            return
    faults.extend(damage.found)


def _decode(batch: Any, num_resources: int, rows: Ints, faults: RowFaults, labels: Any) -> _Decoded | None:
    """The rows of a batch, or None and faults.

    Rows with nulls, rows whose lists have inconsistent lengths, and arms that are invalid are found one after the
    other, so that one bad row does not hide the faults of others.
    """
    names = batch.schema.names
    whole = np.ones(len(rows), dtype=np.bool_)
    for name in (name for name in (*DEPTHS, "type", "count", "floor") if name in names):
        null = np.asarray(batch.column(name).is_null())
        inside = _nulls_inside(batch.column(name)) & ~null if name in DEPTHS else np.zeros_like(null)
        faults.flag(rows, null, name, "is null")
        faults.flag(rows, inside, name, "contains a null")
        whole &= ~(null | inside)
    counts, floors = np.ones(len(rows), dtype=np.int64), np.zeros(len(rows))
    if "count" in names:
        counts = batch.column("count").fill_null(1).to_numpy(zero_copy_only=False)
        faults.flag(rows, whole & (counts < 1), "count", "expected at least 1")
        faults.flag(rows, whole & (counts > MOST_ARMS), "count", f"too many; at most {MOST_ARMS} are supported")
        counts = np.clip(counts, 1, MOST_ARMS).astype(np.int64)
    if "floor" in names:
        floors = np.asarray(batch.column("floor").fill_null(0).to_numpy(zero_copy_only=False), dtype=np.float64)
        faults.flag(rows, whole & ~((floors >= 0) & (floors <= 1)), "floor", "expected a share of time from 0 to 1")
    batch, rows = _filtered(batch, whole), rows[whole]
    tables, uneven = None, 0
    if "transitions" in names and batch.num_rows:
        tables = _tables(batch, num_resources, rows, faults, labels)
    if faults.found:
        return None
    if tables is not None:
        uneven = len({fault.place.partition("]")[0] for fault in tables.nearly()})
        tables = tables.tidied()
    kinds = batch.column("type").to_pylist() if "type" in names else ()
    groups = tuple(group or "" for group in batch.column("group").to_pylist()) if "group" in names else ()
    return _Decoded(tables, kinds, counts, floors, groups, uneven)


def _filtered(batch: Any, keep: Bools) -> Any:
    import pyarrow as pa

    return batch if keep.all() else batch.filter(pa.array(keep))


def _lengths(column: Any) -> Ints:
    import pyarrow.compute as pc

    return np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _nulls_inside(column: Any) -> Bools:
    """(row,) whether a list contains a null at any depth."""
    if not _is_list(column.type):
        return np.asarray(column.is_null())
    inner, ends = column.flatten(), np.cumsum(_lengths(column))
    before = np.concatenate([[0], np.cumsum(_nulls_inside(inner) | np.asarray(inner.is_null()))])
    return np.asarray(before[ends] > before[ends - _lengths(column)])


class _Lists(NamedTuple):
    """A column of lists of numbers, flat or nested."""

    values: Floats
    """(number,) of all rows, one after another."""

    lengths: Ints
    """(row,) numbers per row."""

    levels: tuple[Ints, ...]
    """Lengths of the lists at each depth."""


def _lists(column: Any) -> _Lists:
    import pyarrow as pa

    levels: list[Ints] = []
    ends = np.arange(len(column) + 1)
    while _is_list(column.type):
        levels.append(_lengths(column))
        ends = np.concatenate([[0], np.cumsum(levels[-1])])[ends]
        column = column.flatten()
    return _Lists(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.diff(ends), tuple(levels))


def _tables(batch: Any, num_resources: int, rows: Ints, faults: RowFaults, labels: Any) -> ArmTables | None:
    """Valid arms of rows without nulls; or None, and faults."""
    lists = {name: _lists(batch.column(name)) for name in DEPTHS if name in batch.schema.names}
    s, a, by_state, agree = _sizes(lists, num_resources, rows, faults)
    if not agree.all():
        rest = _filtered(batch, agree)
        return _tables(rest, num_resources, rows[agree], faults, labels) if rest.num_rows else None
    named = () if labels is None else _labels(batch, {"states": s, "actions": a}, rows, faults, labels)
    tables = ArmTables(
        **_stacked(lists, np.stack([s, a, by_state], axis=1), num_resources),
        num_states=s.astype(np.int32),
        num_actions=a.astype(np.int32),
        labels=named,
    )
    for fault in tables.find_faults().found:
        head, _, rest = fault.place.partition(".")
        if head.startswith("arms["):
            faults.add(int(rows[int(head[5:-1])]), rest, fault.message)
        else:
            faults.found.append(Fault(faults.file, fault.message))
    return tables


def _sizes(
    lists: Mapping[str, _Lists], num_resources: int, rows: Ints, faults: RowFaults
) -> tuple[Ints, Ints, Bools, Bools]:
    """(row,) states, actions, whether usage depends on the state, and whether all lists have consistent lengths."""
    moves, earned, used = (lists[name].lengths for name in ("transitions", "rewards", "usage"))
    some = (moves > 0) & (earned > 0)
    faults.flag(rows, ~some, "transitions", "transitions and rewards need at least one state and one action")
    s = np.where(some, moves // np.maximum(earned, 1), 1)
    a = np.where(some, earned // np.maximum(s, 1), 1)
    fits = some & (s > 0) & (earned == s * a) & (moves == s * a * s)
    faults.flag(rows, some & ~fits, "transitions", "expected S A S numbers, where rewards has S A")
    by_state = used == s * a * num_resources
    use_fits = by_state | (used == a * num_resources)
    faults.flag(
        rows,
        fits & ~use_fits,
        "usage",
        f"expected A K or S A K numbers, with K = {num_resources} resources of the budget",
    )
    start_fits = lists["initial"].lengths == s if "initial" in lists else some
    faults.flag(rows, fits & ~start_fits, "initial", "expected one number per state")
    agree = fits & use_fits & start_fits
    axes = (s, a, s), (s, a), (s, a, np.full_like(s, num_resources))
    for name, wanted in zip(("transitions", "rewards", "usage"), axes, strict=True):
        ragged, row = np.zeros(len(rows), dtype=np.bool_), np.arange(len(rows))
        levels = lists[name].levels if len(lists[name].levels) > 1 else ()
        for got, size in zip(levels, wanted[len(wanted) - len(levels) :], strict=True):
            np.logical_or.at(ragged, row[got != size[row]], True)
            row = np.repeat(row, got)
        faults.flag(rows, agree & ragged, name, "its lists have unequal lengths")
        agree &= ~ragged
    return s, a, by_state, agree


def _stacked(lists: Mapping[str, _Lists], keys: Ints, num_resources: int) -> dict[str, Array]:
    """Padded arrays of rows whose sizes (states, actions, usage by state) are given."""
    S, A = int(keys[:, 0].max()), int(keys[:, 1].max())
    sizes = np.unique(keys, axis=0).tolist()
    full = {"transitions": (S, A, S), "rewards": (S, A), "usage": (S, A, num_resources), "initial": (S,)}
    arrays = {name: np.zeros((len(keys), *shape)) for name, shape in full.items()} if len(sizes) > 1 else {}
    for s, a, by_state in sizes:
        mine = np.flatnonzero((keys == (s, a, by_state)).all(axis=1))
        shapes = {
            "transitions": (s, a, s),
            "rewards": (s, a),
            "usage": (s if by_state else 1, a, num_resources),
            "initial": (s,),
        }
        for name, shape in shapes.items():
            if name not in lists:
                part = np.full((len(mine), s), 1 / s)
            elif len(sizes) == 1:
                part = lists[name].values.reshape(len(mine), *shape)
            else:
                starts = (np.cumsum(lists[name].lengths) - lists[name].lengths)[mine]
                part = lists[name].values[starts[:, None] + np.arange(int(np.prod(shape)))].reshape(len(mine), *shape)
            if name == "usage":
                part = np.broadcast_to(part, (len(mine), s, a, num_resources))
            if len(sizes) == 1:
                arrays[name] = part
            else:
                arrays[name][(mine, *map(slice, part.shape[1:]))] = part
    return arrays


def _labels(batch: Any, sizes: Mapping[str, Ints], rows: Ints, faults: RowFaults, common: Any) -> Any:
    """(row,) name, states and actions; empty if there are none."""
    columns: dict[str, list[Any]] = {}
    for (key, size), shared in zip(sizes.items(), common, strict=True):
        own = batch.column(key).to_pylist() if key in batch.schema.names else [None] * len(rows)
        columns[key] = [tuple(name or "" for name in given) if given else tuple(shared) for given in own]
        number = np.array([len(names) for names in columns[key]])
        faults.flag(rows, (number > 0) & (number != size), key, f"expected one label for each of its {key}")
        twice = np.array([len(set(names)) < len(names) for names in columns[key]])
        faults.flag(rows, twice, key, "contains the same name twice")
    names = batch.column("name").to_pylist() if "name" in batch.schema.names else [""] * len(rows)
    found = tuple((name or "", *labels) for name, *labels in zip(names, *columns.values(), strict=True))
    return found if any(any(label) for label in found) else ()


def _joined(tables: Sequence[ArmTables]) -> ArmTables:
    """Arms of several tables as one, padded to the largest."""
    if len(tables) == 1:
        return tables[0]
    S, A = (max(table.rewards.shape[axis] for table in tables) for axis in (1, 2))
    number, K = sum(map(len, tables)), tables[0].usage.shape[3]
    shapes = {"transitions": (S, A, S), "rewards": (S, A), "usage": (S, A, K), "initial": (S,)}
    arrays = {name: np.zeros((number, *shape)) for name, shape in shapes.items()}
    first = 0
    for table in tables:
        for name, array in arrays.items():
            part = getattr(table, name)
            array[(slice(first, first + len(table)), *map(slice, part.shape[1:]))] = part
        first += len(table)
    labels = tuple(label for table in tables for label in (table.labels or (("", (), ()),) * len(table)))
    return ArmTables(
        **arrays,
        num_states=np.concatenate([table.num_states for table in tables]),
        num_actions=np.concatenate([table.num_actions for table in tables]),
        labels=labels if any(table.labels for table in tables) else (),
    )


# -- files ------------------------------------------------------------------------------------------------------------


def _file(path: str) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)


def _damage() -> tuple[type[BaseException], ...]:
    import pyarrow as pa

    return (pa.ArrowException, OSError)


def _message(error: BaseException) -> str:
    """PyArrow's message on one line, without names of its classes."""
    text = re.sub(r"\[Errno -?\d+\]|\b\w*(Exception|Error)\b:?", "", str(error))
    return " ".join(text.split())[:200].rstrip(" .:")


def parts_of(path: Path) -> tuple[list[Path], Path | None]:
    """The parts of a table in the order of their names, and its table of types."""
    if not path.exists():
        raise InvalidInput(f"{path}: cannot be read: {why_unreadable(path, FileNotFoundError(), ['.parquet'])}")
    if not path.is_dir():
        return [path], None
    found = sorted(file for file in path.glob("*.parquet") if not file.name.startswith((".", "_")))
    parts = [file for file in found if file.name != TYPES]
    if not parts:
        raise InvalidInput(f"{path}: the folder contains no part of a table, NAME.parquet")
    return parts, path / TYPES if len(parts) < len(found) else None


def schema_of(file: Path, faults: list[Fault]) -> tuple[Any, int] | None:
    """The schema and the number of rows of a file; None if it is damaged, which is added."""
    try:
        with _file(str(file)) as parquet:
            return parquet.schema_arrow, parquet.metadata.num_rows
    except _damage() as error:
        faults.append(Fault(str(file), f"not a Parquet file, or a damaged one: {_message(error)}"))
        return None


def batches_of(piece: Piece, columns: Sequence[str], faults: RowFaults) -> Iterator[tuple[int, Any]]:
    """Batches of a piece, each with the number of its first row in the file; damage is added."""
    start, stop = piece.first_row, piece.first_row + piece.num_rows
    first = start
    try:
        with _file(piece.path) as parquet:
            sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
            ends = np.cumsum(sizes)
            groups = [i for i, end in enumerate(ends) if end > start and end - sizes[i] < stop]
            first = int(ends[groups[0]] - sizes[groups[0]]) if groups else start
            known = [name for name in columns if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(BATCH_ROWS, groups, known, use_threads=False):
                low, high = max(start, first), min(stop, first + batch.num_rows)
                if low < high:
                    yield low, batch.slice(low - first, high - low)
                first += batch.num_rows
    except _damage() as error:
        faults.found.append(Fault(f"{piece.path}, from row {first + 1} on", f"cannot be read: {_message(error)}"))


# -- an opened model --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StoredArms(Header, Shown):
    """An opened model in Parquet; its arms stay in the files.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=3), "machines.parquet")
        >>> arms = eh.open_arms("machines.parquet")
        >>> arms
        StoredArms(3 arms in 1 row, 1 resource, discount 0.95)
        >>> arms.problem()
        CoupledMDP(3 arms, identical, 1 resource, discount 0.95)
    """

    path: str = ""
    """The file or folder."""

    parts: tuple[Piece, ...] = ()
    """The files, each with all its rows."""

    types: str | None = None
    """The table of types, if rows name theirs."""

    columns: tuple[str, ...] = ()
    """Columns of the parts."""

    ends: Ints | None = field(default=None, repr=False)
    """(row,) number of arms up to and including each row; None if every row is one arm."""

    in_memory_rows: int = IN_MEMORY_ROWS
    """Rows up to which the model is read into memory; larger ones are treated block by block."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(part.num_rows for part in self.parts)

    @property
    def num_arms(self) -> int:
        """Number of arms."""
        return self.num_rows if self.ends is None else int(self.ends[-1])

    @property
    def is_large(self) -> bool:
        """Whether the model has more rows than are read into memory."""
        return self.num_rows > self.in_memory_rows

    @property
    def has_floors(self) -> bool:
        """Whether arms may have floors."""
        return "floor" in self.columns

    @property
    def num_resources(self) -> int:
        """Number of shared resources."""
        return len(self.budget)

    @property
    def resource_names(self) -> tuple[str, ...]:
        """Names of the resources; `resource 0` and so on by default."""
        return self.resources or tuple(f"resource {k}" for k in range(self.num_resources))

    @property
    def named_budget(self) -> dict[str, float]:
        """Budget by the names of the resources."""
        return dict(zip(self.resource_names, self.budget.tolist(), strict=True))

    @property
    def row_counts(self) -> Ints:
        """(row,) number of arms per row."""
        return np.broadcast_to(np.int64(1), self.num_rows) if self.ends is None else np.diff(self.ends, prepend=0)

    @property
    def type_of_arm(self) -> Indices:
        """(arm,) row of each arm; in results every row is a type."""
        return np.repeat(np.arange(self.num_rows, dtype=np.int32), self.row_counts)

    @cached_property
    def _groups(self) -> tuple[Indices, tuple[str, ...]]:
        numbers: dict[str, int] = {}
        names = (name for column in self.read_column("group") for name in column.to_pylist())
        texts = list(names) if "group" in self.columns else [None] * self.num_rows
        codes = [numbers.setdefault(name or f"row {row + 1}", len(numbers)) for row, name in enumerate(texts)]
        return np.array(codes, dtype=np.int32), tuple(numbers)

    @property
    def group_of_type(self) -> Indices:
        """(row,) group of each row; a row without one is a group of its own."""
        return self._groups[0]

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups."""
        return self._groups[1]

    def __repr__(self) -> str:
        criterion = f"discount {self.discount}" if self.criterion.name == "discounted" else self.criterion.name
        rows = "" if self.ends is None else f" in {counted(self.num_rows, 'row')}"
        return (
            f"StoredArms({counted(self.num_arms, 'arm')}{rows}, {counted(self.num_resources, 'resource')}, {criterion})"
        )

    def under(self, criterion: str | Criterion | None = None, over: Over | None = None) -> "StoredArms":
        """The same arms under another criterion, or with welfare over other members."""
        chosen = parse_criterion(criterion, self.discount) if isinstance(criterion, str) else criterion
        return replace(self, criterion=chosen or self.criterion, over=over or self.over)

    def with_budget(self, budget: Any) -> "StoredArms":
        """The same arms with another budget, given as to `CoupledMDP.with_budget`."""
        idle = Arm(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros((1, self.num_resources)))
        one = CoupledMDP([idle], self.budget, self.discount, resources=self.resources, criterion=self.criterion)
        return replace(self, budget=one.with_budget(budget).budget)

    def row_reader(self, start: int, stop: int) -> RowRange:
        """A small picklable function that reads some rows."""
        pieces, first = [], 0
        for part in self.parts:
            low, high = max(start, first), min(stop, first + part.num_rows)
            if low < high:
                pieces.append(Piece(part.path, low - first, high - low))
            first += part.num_rows
        return RowRange(tuple(pieces), self.num_resources, self.types)

    def arms_before(self, row: int) -> int:
        """Number of arms in the rows before one."""
        return row if self.ends is None else 0 if row == 0 else int(self.ends[row - 1])

    def read_column(self, name: str) -> Iterator[Any]:
        """Arrow arrays of one column, some rows at a time; nothing if there is no such column."""
        for part in self.parts if name in self.columns else ():
            faults = RowFaults(part.path)
            yield from (batch.column(name) for _, batch in batches_of(part, [name], faults))
            if faults.found:
                raise TableError(faults.found, self.path)

    def find_faults(self) -> list[Fault]:
        """Every fault of the table with its file and row, up to a limit; empty if it is sound."""
        faults: list[Fault] = []
        for _ in self._valid_batches(None, faults):
            pass
        return faults

    def _valid_batches(self, labels: Any, faults: list[Fault]) -> Iterator[ArmRows]:
        for start in range(0, self.num_rows, BATCH_ROWS):
            try:
                yield self.row_reader(start, min(start + BATCH_ROWS, self.num_rows))(labels)
            except TableError as error:
                faults.extend(error.faults)
            if len(faults) >= MOST_FAULTS:
                faults[MOST_FAULTS:] = [Fault("", f"... and perhaps more: reading ended at {MOST_FAULTS} faults")]
                return

    def problem(self) -> CoupledMDP:
        """The whole model in memory, with its labels.

        Raises:
            TooLarge: it does not fit.
            TableError: with every fault, each with its file and row.
        """
        size = sum(Path(part.path).stat().st_size for part in self.parts)
        check_memory(3.0 * size, f"a table of {self.num_rows} rows", "Use the opened model (open_arms).")
        faults: list[Fault] = []
        read = list(self._valid_batches((self.states, self.actions), faults))
        if faults:
            raise TableError(faults, self.path)
        groups = tuple(group for arms in read for group in arms.groups)
        return CoupledMDP(
            arms=_joined([arms.expanded() for arms in read]),
            budget=self.budget,
            discount=self.discount,
            counts=np.concatenate([arms.counts for arms in read]),
            resources=self.resources,
            groups=groups if any(groups) else (),
            floors=np.concatenate([arms.floors for arms in read]),
            criterion=self.criterion,
            over=self.over,
            welfare=self.welfare,
        )


def open_arms(path: Location, in_memory_rows: int = IN_MEMORY_ROWS) -> StoredArms:
    """Open a model in Parquet; only the metadata of its files is read.

    Args:
        path: a file `.parquet`, or a folder of them.
        in_memory_rows: rows up to which `solve` and others read the model into memory; larger ones are treated block
            by block.

    Raises:
        TableError: with every fault of the files as a whole: columns, metadata, damage.
        InvalidInput: the file or folder does not exist.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=3), "machines.parquet")
        >>> eh.open_arms("machines.parquet").num_arms
        3
    """
    needs_pyarrow()
    files, types = parts_of(Path(path))
    faults: list[Fault] = []
    headers, schemas = {}, {}
    for file in [*files, types] if types else files:
        found = schema_of(file, faults)
        if found is None:
            continue
        own, by_type = Faults(), types is not None and file != types
        check_columns(found[0], by_type, own)
        headers[file] = None if by_type else read_header(found[0].metadata, own)
        if file == types and "name" not in found[0].names:
            own.add("name", "the column is missing; arms name their types by it")
        faults.extend(Fault(f"{file}, {fault.place}", fault.message) for fault in own.found)
        schemas[file] = found
    if not faults:
        _compare([(file, schemas[file][0]) for file in files], faults)
    parts = tuple(Piece(str(file), 0, schemas[file][1]) for file in files if file in schemas and schemas[file][1])
    if not parts and not faults:
        faults.append(Fault("", "there are no rows; a problem needs at least one arm"))
    if faults:
        raise TableError(faults, str(path))
    header = headers[types or files[0]]
    assert header is not None
    about = (str(path), parts, str(types) if types else None, tuple(schemas[files[0]][0].names))
    stored = StoredArms(*(getattr(header, field.name) for field in fields(Header)), *about)
    return replace(stored, ends=_arm_ends(stored), in_memory_rows=in_memory_rows)


def _compare(parts: Sequence[tuple[Path, Any]], faults: list[Fault]) -> None:
    """All parts must have the columns and the metadata of the first."""
    first, expected = parts[0]
    kinds = {field.name: str(field.type) for field in expected}
    for file, schema in parts[1:]:
        own = {field.name: str(field.type) for field in schema}
        for name in dict.fromkeys((*kinds, *own)):
            if own.get(name) != kinds.get(name):
                message = f"is {own.get(name, 'absent')} here and {kinds.get(name, 'absent')} in {first.name}"
                faults.append(Fault(f"{file}, {name}", f"{message}; parts of a table must agree"))
        if (schema.metadata or {}).get(KEY) != (expected.metadata or {}).get(KEY):
            faults.append(Fault(f"{file}, metadata", f"differs from that of {first.name}; parts of a table must agree"))


def _arm_ends(stored: StoredArms) -> Ints | None:
    """(row,) number of arms up to each row; None if every row is one arm."""
    import pyarrow.compute as pc

    counts = [pc.fill_null(column, 1).to_numpy(zero_copy_only=False) for column in stored.read_column("count")]
    if not counts:
        return None
    ends = np.cumsum(np.clip(np.concatenate(counts), 1, MOST_ARMS), dtype=np.int64)
    if ends[-1] > MOST_ARMS:
        raise TableError([Fault("count", f"{ends[-1]} arms in all; at most {MOST_ARMS} are supported")], stored.path)
    return None if ends[-1] == len(ends) else ends


# -- writing ----------------------------------------------------------------------------------------------------------


class TableWriter:
    """Writes columns as they come, into one file `.parquet` or a folder of parts; a context manager.

    Written beside its place first, then renamed: an interrupted write leaves the previous content.
    """

    def __init__(self, path: Location, metadata: Mapping[bytes, bytes] | None = None) -> None:
        self.path, self.metadata = Path(path), dict(metadata or {})
        self._stack = contextlib.ExitStack()
        self._place: Any = None
        self._writer: Any = None
        self._schema: Any = None
        self._rows = self._parts = 0

    def __enter__(self) -> "TableWriter":
        one = self.path.suffix.lower() == ".parquet" and not self.path.is_dir()
        self._place = self._stack.enter_context(replacing(self.path) if one else _replacing_folder(self.path))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._finish_part()
            if error is None and self._schema is None:
                raise InvalidInput(f"{self.path}: not written: there are no rows")
        except BaseException as later:
            self._stack.__exit__(type(later), later, later.__traceback__)
            raise
        self._stack.__exit__(kind, error, trace)

    def write(self, columns: Mapping[str, Any]) -> None:
        """Write some rows; every call has the same columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(dict(columns))
        if self._schema is None:
            self._schema = table.schema.with_metadata(self.metadata)
        elif table.schema.names != self._schema.names:
            raise InvalidInput(f"{self.path}: rows with the columns {table.schema.names} after {self._schema.names}")
        folder = isinstance(self._place, Path)
        if folder and self._rows >= ROWS_PER_PART:
            self._finish_part()
        if self._writer is None:
            place = str(self._place / f"part-{self._parts:05d}.parquet") if folder else self._place
            texts = [field.name for field in self._schema if str(field.type) in ("string", "int64", "int32", "bool")]
            options: dict[str, Any] = {"compression": "zstd", "use_dictionary": texts, "write_page_checksum": True}
            self._writer = pq.ParquetWriter(place, self._schema, **options)
            self._parts, self._rows = self._parts + 1, 0
        self._writer.write_table(table.cast(self._schema), row_group_size=BATCH_ROWS)
        self._rows += table.num_rows

    def _finish_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@contextlib.contextmanager
def _replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder that replaces `path` if the block succeeds, and is removed otherwise."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise InvalidInput(f"{path}: cannot be written: it is not a folder")
    if target.is_dir() and any(entry.suffix != ".parquet" for entry in target.iterdir()):
        raise InvalidInput(f"{path}: cannot be written: the folder contains other files than Parquet")
    if not target.parent.is_dir():
        raise InvalidInput(f"{path}: cannot be written: there is no directory {path.parent}")
    sweep(target)
    beside = target.with_name(f".evenhand-{target.name}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        beside.mkdir()
    except PermissionError:
        raise InvalidInput(f"{path}: cannot be written: permission denied") from None
    try:
        yield beside
        before = beside.with_name(f"{beside.stem}-old.tmp") if target.exists() else None
        if before is not None:
            target.rename(before)
        beside.rename(target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)


class ArmWriter:
    """Writes arms part by part; a context manager, whose file appears when its block succeeds.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=3)
        >>> with eh.ArmWriter("fleet.parquet", budget=2, discount=0.95) as writer:
        ...     for number in range(4):
        ...         writer.write(machines.tables, counts=[10], names=[f"plant {number}"])
        >>> eh.open_arms("fleet.parquet")
        StoredArms(40 arms in 4 rows, 1 resource, discount 0.95)
    """

    def __init__(
        self,
        path: Location,
        budget: float | Floats | list[float],
        discount: float | None = None,
        criterion: str | Criterion = "discounted",
        **others: Any,
    ) -> None:
        """Set the part that all arms share.

        Args:
            path: a file `.parquet`, or a folder; an existing one is replaced.
            budget: one number per resource.
            discount: value of a reward one step later.
            criterion: as text or object.
            others: over, welfare, resources, and states and actions, labels that all arms have in common.

        Raises:
            ModelError: with every fault of these.
        """
        needs_pyarrow()
        self.header = header_of(budget, discount, criterion, **others)
        self._table = TableWriter(path, self.header.as_metadata())

    def __enter__(self) -> "ArmWriter":
        self._table.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._table.__exit__(*error)

    def write(self, arms: ArmTables | Arm | list[Arm], **columns: Any) -> None:
        """Write some arms, one row each.

        Args:
            arms: tables, or arms.
            columns: counts, names, groups, floors: one entry per row.

        Raises:
            ModelError: some arm is invalid, or has other resources.
        """
        tables = arms if isinstance(arms, ArmTables) else ArmTables.stack([arms] if isinstance(arms, Arm) else arms)
        tables.find_faults().raise_if_any()
        if (number := tables.usage.shape[-1]) != len(self.header.budget):
            raise InvalidInput(f"arms: they use {number} resources, but the budget has {len(self.header.budget)}")
        self._table.write(arm_columns(tables, **columns))


def write_arms(
    arms: Iterable[ArmTables | Arm],
    path: Location,
    budget: float | Floats | list[float],
    discount: float | None = None,
    criterion: str | Criterion = "discounted",
    **others: Any,
) -> None:
    """Write any number of arms as a model in Parquet.

    Args:
        arms: arms, or tables of arms; they are taken one after another.
        path: a file `.parquet`, or a folder; an existing one is replaced.
        budget: one number per resource.
        discount: value of a reward one step later.
        criterion: as text or object.
        others: over, welfare, resources, and states and actions, labels that all arms have in common.

    Example:
        >>> import evenhand as eh
        >>> one = eh.problems.machine_replacement(num_arms=1).arms[0]
        >>> eh.write_arms((one for _ in range(1000)), "many.parquet", budget=100, discount=0.95)
        >>> eh.open_arms("many.parquet")
        StoredArms(1,000 arms, 1 resource, discount 0.95)
    """
    with ArmWriter(path, budget, discount, criterion, **others) as writer:
        waiting: list[Arm] = []
        for given in arms:
            if isinstance(given, ArmTables):
                writer.write(given)
                continue
            waiting.append(given)
            if len(waiting) == 1000:
                writer.write(waiting)
                waiting = []
        if waiting:
            writer.write(waiting)


def write_by_type(types: CoupledMDP, arms: Iterable[Mapping[str, Any]], path: Location) -> None:
    """Write a folder with a table of types and one of arms.

    Args:
        types: a problem whose blocks, each with a name of its own, are the types; its counts are not used.
        arms: columns of arms, some at a time: `type`, and optionally name, group, count, floor.
        path: the folder.
    """
    needs_pyarrow()
    names = [label[0] for label in types.tables.labels]
    if not names or len(set(names)) < len(names) or not all(names):
        raise InvalidInput("types: every block needs a name of its own")
    with _replacing_folder(Path(path)) as folder:
        with TableWriter(folder / TYPES, _header(types).as_metadata()) as writer:
            writer.write(arm_columns(types.tables, names=names, own_labels=True))
        with TableWriter(folder / "arms.parquet", {KEY: b"{}"}) as writer:
            for columns in arms:
                writer.write(columns)


def save_parquet(problem: CoupledMDP, path: Location) -> None:
    """Write a problem with its labels."""
    needs_pyarrow()
    tables = problem.tables
    labels = {(states, actions) for _, states, actions in tables.labels}
    alike = (tables.num_states == tables.num_states[0]).all() and (tables.num_actions == tables.num_actions[0]).all()
    common = next(iter(labels)) if len(labels) == 1 and alike else ((), ())
    with TableWriter(path, _header(problem, *common).as_metadata()) as writer:
        for start in range(0, len(tables), BATCH_ROWS):
            rows = np.arange(start, min(start + BATCH_ROWS, len(tables)))
            part = tables.select(rows)
            columns = arm_columns(
                part,
                names=[label[0] for label in part.labels] if any(label[0] for label in tables.labels) else None,
                groups=[problem.groups[row] for row in rows.tolist()] if problem.groups else None,
                counts=problem.counts[rows] if (problem.counts > 1).any() else None,
                floors=problem.floors[rows] if problem.has_floors else None,
                own_labels=len(labels) > 1 or not alike,
            )
            writer.write(columns)


def _header(problem: CoupledMDP, states: Sequence[str] = (), actions: Sequence[str] = ()) -> Header:
    shared = (problem.budget, problem.discount, problem.criterion, problem.over, problem.welfare)
    return Header(*shared, tuple(problem.resources), tuple(states), tuple(actions))


def arm_columns(
    tables: ArmTables,
    names: Any = None,
    groups: Any = None,
    counts: Any = None,
    floors: Any = None,
    own_labels: bool = False,
) -> dict[str, Any]:
    """Arrow columns of some arms, without padding.

    Args:
        tables: the arms.
        names: (arm,) names, or none.
        groups: (arm,) groups, or none.
        counts: (arm,) numbers of equal arms; 1 by default.
        floors: (arm,) least shares of time in which they are served, or none.
        own_labels: whether states and actions are labelled per row.
    """
    import pyarrow as pa

    given = {"name": (names, pa.string()), "group": (groups, pa.string()), "count": (counts, pa.int64())}
    given["floor"] = (floors, pa.float64())
    columns = {key: pa.array(list(value), kind) for key, (value, kind) in given.items() if value is not None}
    if own_labels and tables.labels:
        for place, key in enumerate(("states", "actions"), start=1):
            columns[key] = pa.array([list(label[place]) for label in tables.labels], pa.list_(pa.string()))
    s, a = tables.num_states, tables.num_actions
    columns["transitions"] = list_column(tables.transitions, (s, a, s))
    columns["rewards"] = list_column(tables.rewards, (s, a))
    columns["initial"] = list_column(tables.initial, (s,))
    by_action = bool(((tables.usage == tables.usage[:, :1]) | ~tables.valid[..., None]).all())
    k = np.full(len(tables), tables.usage.shape[-1])
    columns["usage"] = list_column(tables.usage[:, 0], (a, k)) if by_action else list_column(tables.usage, (s, a, k))
    return columns


def list_column(array: Array, sizes: tuple[Array, ...]) -> Any:
    """(row, ...) padded arrays as a column of flat lists without padding.

    Args:
        array: the numbers.
        sizes: for each axis but the first, (row,) how many of its entries are real.
    """
    import pyarrow as pa

    real = np.ones(array.shape, dtype=np.bool_)
    for axis, size in enumerate(sizes, start=1):
        places = np.arange(array.shape[axis]).reshape([-1 if i == axis else 1 for i in range(array.ndim)])
        real &= places < np.asarray(size).reshape([-1] + [1] * (array.ndim - 1))
    lengths = np.prod(np.stack([np.asarray(size, dtype=np.int64) for size in sizes]), axis=0)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(array[real]))


def write_rows(
    path: Location, model: StoredArms, columns: Mapping[str, Any], metadata: Mapping[bytes, bytes] | None = None
) -> None:
    """Write results with one row per row of a model: its number, its name if it has one, and the results.

    Args:
        path: a file `.parquet` or a folder.
        model: the model.
        columns: (row,) arrays, of NumPy or Arrow.
        metadata: of the schema.
    """
    import pyarrow as pa

    names = list(model.read_column("name"))
    own = {"row": np.arange(model.num_rows)}
    if names:
        own["name"] = pa.chunked_array(names).cast(pa.string()).combine_chunks()
    with TableWriter(path, metadata) as writer:
        for start in range(0, model.num_rows, BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            writer.write(
                {
                    name: pa.array(column[part]) if isinstance(column, np.ndarray) else column[part]
                    for name, column in (own | dict(columns)).items()
                }
            )
