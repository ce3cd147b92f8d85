"""`open_arms`: a model in Parquet whose arms stay in the files; its metadata and columns."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.checks import Faults, check_memory, plain, read_names
from evenhand.display import counted
from evenhand.errors import Fault, MissingExtraError, ModelError, TableError
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, CoupledMDP, Over, SharedResources, read_fields
from evenhand.model.criterion import Criterion, parse_criterion
from evenhand.model.io import Location
from evenhand.model.io.document import HEAD_KEYS, check_keys, head_of, parse_json, read_head, tidy
from evenhand.model.parquet.rows import (
    ARRAYS,
    BATCH_ROWS,
    MOST_FAULTS,
    ROW_KEYS,
    ArmRows,
    FileRows,
    RowRange,
    batches_of,
    is_list,
    parts_of,
    schema_of,
)
from evenhand.typing import Floats, Indices, Ints

VERSION = 1
"""Version of the format."""

KEY = b"evenhand"
"""Key of the metadata."""

HEADER_KEYS = ("version", *HEAD_KEYS, "states", "actions")


def metadata_of(shared: Any, states: Sequence[str] = (), actions: Sequence[str] = ()) -> dict[bytes, bytes]:
    """Return the metadata of a table.

    Args:
        shared: the problem or opened model.
        states: labels of the states of every arm, or none.
        actions: labels of the actions of every arm, or none.
    """
    labels = {key: list(names) for key, names in (("states", states), ("actions", actions)) if names}
    return {KEY: json.dumps({"version": VERSION, **head_of(shared), **labels}).encode()}


def read_metadata(text: bytes, faults: Faults) -> dict[str, Any]:
    """Return the fields of a model that all arms share; empty if there are faults.

    Args:
        text: the metadata, in JSON.
        faults: list to which faults are added.
    """
    own = Faults()
    try:
        given = tidy(parse_json(text), "", own)
    except ModelError as error:
        own.found, given = list(error.faults), {}
    read: dict[str, Any] = {}
    if not isinstance(given, dict):
        own.add("", "expected a JSON object")
    elif given.get("version") != VERSION and not own:
        own.add("version", f"expected {VERSION}, which this evenhand reads, got {plain(given.get('version'))}")
    elif given:
        check_keys(given, HEADER_KEYS, (), "", own)
        fields = read_head(given, own) | {"counts": None, "groups": (), "floors": None}
        read = fields | read_fields(fields, None, None, own)
        if read["spend"]:
            own.add("spend", "models in Parquet spend at most the budget; save the model as .npz, .toml or .json")
        read |= {key: read_names(given.get(key, []), None, key, own) for key in ("states", "actions")}
    faults.found.extend(own.found)
    shared = ("budget", "discount", "criterion", "over", "welfare", "resources", "states", "actions")
    return {} if own else {key: read[key] for key in shared}


def check_columns(schema: Any, faults: Faults) -> None:
    """Add faults of columns that are missing, repeated or of a wrong kind; other columns are not read.

    Args:
        schema: of one file.
        faults: where faults are added, under the name of the column.
    """
    import pyarrow.types as is_

    needed, lists = ("transitions", "rewards", "usage"), (*ARRAYS, "states", "actions")
    for name in needed:
        if name not in schema.names:
            faults.add(name, f"the column is missing; the file has {', '.join(schema.names) or 'none'}")
    for name in dict.fromkeys(name for name in schema.names if name in (*lists, *ROW_KEYS)):
        if schema.names.count(name) > 1:
            faults.add(name, "there are several columns of this name")
            continue
        depth, leaf = 0, schema.field(name).type
        while is_list(leaf):
            depth, leaf = depth + 1, leaf.value_type
        leaf = leaf.value_type if is_.is_dictionary(leaf) else leaf
        kinds = {
            "numbers": is_.is_integer(leaf) or is_.is_floating(leaf),
            "whole numbers": is_.is_integer(leaf),
            "text": is_.is_string(leaf) or is_.is_large_string(leaf) or is_.is_string_view(leaf),
        }
        expected = "whole numbers" if name == "count" else "numbers" if name in (*ARRAYS, "floor") else "text"
        if not kinds[expected] or (depth > 0) != (name in lists):
            several = "lists of " if name in lists else ""
            faults.add(name, f"expected {several}{expected}, got {schema.field(name).type}")


def needs_pyarrow() -> None:
    """Raise MissingExtraError if PyArrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise MissingExtraError("arms in Parquet", "cluster") from None


IN_MEMORY_ROWS = 100_000
"""Default number of rows up to which a model is read into memory."""


@dataclass(frozen=True, eq=False)
class StoredArms(SharedResources):
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

    path: str = ""
    """The file or folder."""

    parts: tuple[FileRows, ...] = ()
    """The files, each with all its rows."""

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
        """True if the model has more rows than are read into memory."""
        return self.num_rows > self.in_memory_rows

    @property
    def has_floors(self) -> bool:
        """True if arms may have floors."""
        return "floor" in self.columns

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
        rows = "" if self.ends is None else f" in {counted(self.num_rows, 'row')}"
        return f"StoredArms({counted(self.num_arms, 'arm')}{rows}, {self._in_short})"

    def with_criterion(self, criterion: str | Criterion | None = None, over: Over | None = None) -> "StoredArms":
        """The same arms under another criterion, or with welfare over other members."""
        chosen = parse_criterion(criterion, self.discount) if isinstance(criterion, str) else criterion
        return replace(self, criterion=chosen or self.criterion, over=over or self.over)

    def with_budget(self, budget: Any) -> "StoredArms":
        """The same arms with another budget, given as to `CoupledMDP.with_budget`."""
        return replace(self, budget=self._other_budget(budget))

    def row_reader(self, start: int, stop: int) -> RowRange:
        """A small picklable function that reads some rows."""
        pieces, first = [], 0
        for part in self.parts:
            low, high = max(start, first), min(stop, first + part.num_rows)
            if low < high:
                pieces.append(FileRows(part.path, low - first, high - low))
            first += part.num_rows
        return RowRange(tuple(pieces), self.num_resources)

    def read_column(self, name: str) -> Iterator[Any]:
        """Arrow arrays of one column, some rows at a time; nothing if the column is missing."""
        for part in self.parts if name in self.columns else ():
            yield from (batch.column(name) for _, batch in batches_of(part, [name]))

    def problem(self) -> CoupledMDP:
        """The whole model in memory, with its labels.

        Raises:
            TooLargeError: it does not fit.
            TableError: with every fault, each with its file and row.
        """
        size = sum(Path(part.path).stat().st_size for part in self.parts)
        check_memory(3.0 * size, f"a table of {self.num_rows} rows", "Use the opened model (open_arms).")
        faults, read = list[Fault](), list[ArmRows]()
        for start in range(0, self.num_rows, BATCH_ROWS):
            try:
                rows = self.row_reader(start, min(start + BATCH_ROWS, self.num_rows))
                read.append(rows((self.states, self.actions)))
            except TableError as error:
                faults.extend(error.faults)
            if len(faults) >= MOST_FAULTS:
                faults[MOST_FAULTS:] = [Fault("", f"... and perhaps more: reading ended at {MOST_FAULTS} faults")]
                break
        if faults:
            raise TableError(faults, self.path)
        groups = tuple(group for arms in read for group in arms.groups)
        return CoupledMDP(
            arms=ArmTables.stack([arms.tables for arms in read]),
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
        InvalidInputError: the file or folder does not exist.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=3), "machines.parquet")
        >>> eh.open_arms("machines.parquet").num_arms
        3
    """
    needs_pyarrow()
    files = parts_of(Path(path))
    faults: list[Fault] = []
    schemas, shared = {}, dict[str, Any]()
    for file in files:
        found = schema_of(file, faults)
        if found is None:
            continue
        schema, own, head = found[0], Faults(), Faults()
        schemas[file] = found
        check_columns(schema, own)
        if KEY not in (schema.metadata or {}):
            example = '{"version": 1, "budget": [1], "discount": 0.95}'
            head.add("", f"the key 'evenhand' is missing: use evenhand.write_arms, or write it as JSON: {example}")
        else:
            shared = read_metadata(schema.metadata[KEY], head)
        own.found.extend(fault.within("metadata") for fault in head.found)
        faults.extend(Fault(f"{file}, {fault.place}", fault.message) for fault in own.found)
    if not faults:
        _compare([(file, schemas[file][0]) for file in files], faults)
    parts = tuple(FileRows(str(file), 0, schemas[file][1]) for file in files if file in schemas and schemas[file][1])
    if not parts and not faults:
        faults.append(Fault("", "there are no rows; a problem needs at least one arm"))
    if faults:
        raise TableError(faults, str(path))
    names = tuple(schemas[files[0]][0].names)
    stored = StoredArms(**shared, path=str(path), parts=parts, columns=names)
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
