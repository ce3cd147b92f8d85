"""A table of arms that stays where it is: opened by its footers, cut into shards, read in batches.

A *shard* is a recipe: which rows of which files, and which arms these are. It is small, can be sent anywhere and read
again after a failure, and what it reads as depends on nothing but the files. `StoredArms` keeps a few numbers a file,
and 8 bytes a row where rows stand for several arms.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.checks import Faults, check_memory, check_positive_int, why_unreadable
from evenhand.display import Shown, counted
from evenhand.errors import Fault, InvalidInput, TableError, nearest
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, CoupledMDP, Over
from evenhand.model.criterion import Criterion
from evenhand.model.parquet.decoding import Rows, Sink, decode
from evenhand.model.parquet.schema import (
    COLUMNS,
    COLUMNS_BY_TYPE,
    LISTS_OF_LABELS,
    TYPES,
    Header,
    check_columns,
    needs_pyarrow,
    read_header,
    under,
)
from evenhand.typing import Floats, Indices, Ints

if TYPE_CHECKING:
    import os

    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH_ROWS = 65_536
"""Rows that are read at once."""

MOST_FAULTS = 50
"""Faults after which reading ends."""

OVERHEAD = 3.0
"""Bytes of memory for a byte of numbers, while a table is read whole."""


@dataclass(frozen=True)
class Piece:
    """Some rows of one file."""

    path: str
    """The file."""

    first_row: int
    """The first of the rows, from 0."""

    num_rows: int
    """How many there are."""


@dataclass(frozen=True)
class Shard:
    """Some rows of a table: all that it takes to read them, here or elsewhere, now or again."""

    pieces: tuple[Piece, ...]
    """Where the rows are, in order."""

    first_row: int
    """The number of the first row in the whole table."""

    first_arm: int
    """The number of its first arm."""

    num_arms: int
    """How many arms the rows stand for."""

    num_resources: int
    """How many resources the arms use."""

    types: str | None = None
    """The table of types, where rows name theirs."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(piece.num_rows for piece in self.pieces)

    def __len__(self) -> int:
        return self.num_rows


@dataclass(frozen=True, eq=False)
class ShardArms:
    """The arms of a shard, in memory."""

    tables: ArmTables
    """One arm a row; or one a type of the whole table, where rows name theirs."""

    kinds: Indices
    """(row,) which of the tables each row has."""

    counts: Ints
    """(row,) how many arms each row stands for."""

    floors: Floats
    """(row,) the least share of time in which each arm is served."""

    groups: tuple[str, ...]
    """(row,) the group of each row, "" for none; empty where the table has none."""

    shard: Shard
    """Which rows they are."""

    num_normalised: int = 0
    """Rows whose probabilities did not quite sum to 1, and were divided by their sums."""

    @cached_property
    def row_of_arm(self) -> Indices:
        """(arm,) the row of each arm of the shard, within it."""
        return np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)

    @cached_property
    def kind_of_arm(self) -> Indices:
        """(arm,) which of the tables each arm has."""
        return np.asarray(self.kinds if (self.counts == 1).all() else self.kinds[self.row_of_arm])

    def expanded(self) -> ArmTables:
        """One arm a row, also where rows name their types."""
        own = len(self.kinds) == len(self.tables) and (self.kinds == np.arange(len(self.kinds))).all()
        return self.tables if own else self.tables.select(self.kinds)


@dataclass(frozen=True, eq=False)
class StoredArms(Shown):
    """A model in Parquet that stays where it is.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=3), "machines.parquet")
        >>> arms = eh.open_arms("machines.parquet")
        >>> arms
        StoredArms(3 arms in 1 row, 1 resource, discount 0.95)
        >>> arms.problem()
        CoupledMDP(3 arms, identical, 1 resource, discount 0.95)
    """

    path: str
    """The file or folder."""

    header: Header
    """What all arms share."""

    parts: tuple[Piece, ...]
    """The files, each with all its rows."""

    types: str | None = None
    """The table of types, where rows name theirs."""

    columns: tuple[str, ...] = ()
    """Which columns the parts have."""

    ends: Ints | None = field(default=None, repr=False)
    """(row,) how many arms there are up to and with each row; None where every row is one arm."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(part.num_rows for part in self.parts)

    @property
    def num_arms(self) -> int:
        """How many arms there are."""
        return self.num_rows if self.ends is None else int(self.ends[-1])

    @property
    def num_resources(self) -> int:
        """How many resources they share."""
        return len(self.header.budget)

    @property
    def budget(self) -> Floats:
        """(resource,) what is available of each resource at every step."""
        return self.header.budget

    @property
    def discount(self) -> float:
        """What a reward one step later is worth."""
        return self.header.discount

    @property
    def criterion(self) -> Criterion:
        """What rewards over time are worth."""
        return self.header.criterion

    @property
    def over(self) -> Over:
        """Whose values welfare weighs."""
        return self.header.over

    @property
    def welfare(self) -> str | None:
        """How values are weighed unless something else is asked for."""
        return self.header.welfare

    @property
    def resource_names(self) -> tuple[str, ...]:
        """The name of each resource."""
        return self.header.resource_names

    def __repr__(self) -> str:
        worth = f"discount {self.discount}" if self.criterion.name == "discounted" else self.criterion.name
        arms = counted(self.num_arms, "arm")
        rows = "" if self.ends is None else f" in {counted(self.num_rows, 'row')}"
        return f"StoredArms({arms}{rows}, {counted(self.num_resources, 'resource')}, {worth})"

    def with_criterion(self, criterion: str | Criterion | None = None, over: Over | None = None) -> "StoredArms":
        """The same arms under another criterion, or with welfare over something else."""
        return replace(self, header=under(self.header, criterion, over))

    def with_budget(self, budget: Any) -> "StoredArms":
        """The same arms with another budget, given as to `CoupledMDP.with_budget`."""
        one = CoupledMDP(
            [_idle_arm(self.num_resources)], self.budget, self.discount, resources=self.header.resources,
            criterion=self.criterion,
        )  # fmt: skip
        return replace(self, header=replace(self.header, budget=one.with_budget(budget).budget))

    def shards(self, number: int) -> tuple[Shard, ...]:
        """The table cut into so many shards of about equally many rows; fewer where it has fewer rows.

        Args:
            number: how many.
        """
        check_positive_int(number, "number")
        cuts = np.linspace(0, self.num_rows, min(number, self.num_rows) + 1).astype(np.int64).tolist()
        return tuple(self.shard(start, stop) for start, stop in pairwise(cuts))

    def shard(self, start: int, stop: int) -> Shard:
        """The rows from `start` to before `stop`."""
        first = self.arms_before(start)
        return Shard(
            tuple(self._pieces(start, stop)),
            start,
            first,
            self.arms_before(stop) - first,
            self.num_resources,
            self.types,
        )

    def arms_before(self, row: int) -> int:
        """How many arms there are in the rows before one."""
        return row if self.ends is None else 0 if row == 0 else int(self.ends[row - 1])

    def _pieces(self, start: int, stop: int) -> Iterator[Piece]:
        first = 0
        for part in self.parts:
            low, high = max(start, first), min(stop, first + part.num_rows)
            if low < high:
                yield Piece(part.path, low - first, high - low)
            first += part.num_rows

    def read_batches(self, rows: int = BATCH_ROWS) -> Iterator[ShardArms]:
        """All arms, some rows at a time.

        Args:
            rows: how many at once.

        Raises:
            TableError: with the faults of the first batch that has any, each with its file and row.
        """
        for start in range(0, self.num_rows, rows):
            yield read_shard(self.shard(start, min(start + rows, self.num_rows)))

    def read_names(self, rows: int = BATCH_ROWS) -> Iterator["pa.Array"]:
        """The names of the rows, some at a time; nothing where they have none."""
        if "name" in self.columns:
            for part in self.parts:
                for _, batch in batches_of(part, ["name"], rows, Sink(part.path)):
                    yield batch.column("name")

    def find_faults(self, rows: int = BATCH_ROWS) -> list[Fault]:
        """Every fault of the table with its file and row, up to a limit; empty if it is sound."""
        faults: list[Fault] = []
        for _ in self._sound_batches(rows, None, faults):
            pass
        return faults

    def _sound_batches(self, rows: int, labels: Any, faults: list[Fault]) -> Iterator[ShardArms]:
        """The batches without faults; those of the others are noted, up to a limit."""
        for start in range(0, self.num_rows, rows):
            try:
                yield read_shard(self.shard(start, min(start + rows, self.num_rows)), labels)
            except TableError as error:
                faults.extend(error.faults)
            if len(faults) >= MOST_FAULTS:
                faults[MOST_FAULTS:] = [Fault("", f"... and perhaps more: reading ended at {MOST_FAULTS} faults")]
                return

    def problem(self) -> CoupledMDP:
        """All of it in memory, with its labels.

        Raises:
            TooLarge: it does not fit.
            TableError: with every fault, each with its file and row.
        """
        size = sum(Path(part.path).stat().st_size for part in self.parts)
        check_memory(OVERHEAD * size, f"a table of {self.num_rows} rows", "Work by shards: open_arms, or --on.")
        faults: list[Fault] = []
        read = list(self._sound_batches(BATCH_ROWS, (self.header.states, self.header.actions), faults))
        if faults:
            raise TableError(faults, self.path)
        groups = tuple(group for arms in read for group in arms.groups)
        return CoupledMDP(
            arms=_joined([arms.expanded() for arms in read]),
            budget=self.budget,
            discount=self.discount,
            counts=np.concatenate([arms.counts for arms in read]),
            resources=self.header.resources,
            groups=groups if any(groups) else (),
            floors=np.concatenate([arms.floors for arms in read]),
            criterion=self.criterion,
            over=self.over,
            welfare=self.welfare,
        )


def open_arms(path: "str | os.PathLike[str]") -> StoredArms:
    """Open a model in Parquet without reading its arms: only what its files say of themselves is looked at.

    Args:
        path: a file `.parquet`, or a folder of them.

    Raises:
        TableError: with every fault of the files as a whole: columns, metadata, damage.
        InvalidInput: no such file or folder.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=3), "machines.parquet")
        >>> eh.open_arms("machines.parquet").num_arms
        3
    """
    needs_pyarrow()
    files, types = _files(Path(path))
    faults: list[Fault] = []
    opened = {file: _Footer.read(file, types is not None and file != types, faults) for file in [*files, types] if file}
    sound = {file: footer for file, footer in opened.items() if footer is not None}
    if not faults:
        _compare([(file, sound[file]) for file in files], faults)
    if faults:
        raise TableError(faults, str(path))
    header = sound[types or files[0]].header
    assert header is not None
    parts = tuple(Piece(str(file), 0, sound[file].num_rows) for file in files if sound[file].num_rows)
    stored = StoredArms(str(path), header, parts, str(types) if types else None, sound[files[0]].names)
    if not parts:
        raise TableError([Fault("", "there are no rows; a problem needs at least one arm")], str(path))
    return replace(stored, ends=_arms_by_row(stored))


def _files(path: Path) -> tuple[list[Path], Path | None]:
    """The parts of a table in the order of their names, and its table of types."""
    if not path.exists():
        raise InvalidInput(f"{path}: cannot be read: {why_unreadable(path, FileNotFoundError(), ['.parquet'])}")
    if not path.is_dir():
        return [path], None
    found = sorted(file for file in path.glob("*.parquet") if not file.name.startswith((".", "_")))
    types = [file for file in found if file.name == TYPES]
    parts = [file for file in found if file.name != TYPES]
    if not parts:
        raise InvalidInput(f"{path}: there is no part of a table, NAME.parquet, in this folder")
    return parts, types[0] if types else None


@dataclass(frozen=True)
class _Footer:
    """What one file says of itself."""

    header: Header | None
    """None in a part whose rows name their types: there the header is that of the types."""

    metadata: bytes
    """The header as it is written."""

    kinds: dict[str, str]
    """The kind of each column."""

    num_rows: int
    """How many rows it has."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @classmethod
    def read(cls, file: Path, by_type: bool, faults: list[Fault]) -> "_Footer | None":
        """A footer, or faults.

        Args:
            file: of Parquet.
            by_type: whether its rows name types.
            faults: where they are noted, with the file.
        """
        try:
            with _opened(str(file)) as parquet:
                schema, num_rows = parquet.schema_arrow, parquet.metadata.num_rows
        except _damage() as error:
            faults.append(Fault(str(file), f"not a Parquet file, or a damaged one: {_told(error)}"))
            return None
        own = Faults()
        check_columns(schema, by_type, own)
        header = None if by_type else read_header(schema.metadata, own)
        if file.name == TYPES and not by_type and "name" not in schema.names:
            own.add("name", "there is no such column; arms name their types by it")
        faults.extend(Fault(f"{file}, {fault.place}", fault.message) for fault in own.found)
        kinds = {field.name: str(field.type) for field in schema}
        return None if own else cls(header, (schema.metadata or {}).get(b"evenhand", b""), kinds, num_rows)


def _compare(parts: Sequence[tuple[Path, _Footer]], faults: list[Fault]) -> None:
    """All parts have the columns and the header of the first."""
    first, wanted = parts[0]
    for file, got in parts[1:]:
        for name in dict.fromkeys((*wanted.kinds, *got.kinds)):
            ours, theirs = got.kinds.get(name), wanted.kinds.get(name)
            if ours != theirs:
                told = (
                    f"is {ours or 'absent'} here and {theirs or 'absent'} in {first.name}; parts of a table are alike"
                )
                faults.append(Fault(f"{file}, {name}", told))
        if got.metadata != wanted.metadata:
            faults.append(Fault(f"{file}, metadata", f"differs from that of {first.name}; parts of a table are alike"))


def _arms_by_row(stored: StoredArms) -> Ints | None:
    """(row,) how many arms there are up to each row; None where every row is one."""
    if "count" not in stored.columns:
        return None
    ends = np.empty(stored.num_rows, dtype=np.int64)
    place, before = 0, 0
    for part in stored.parts:
        sink = Sink(part.path)
        for _, batch in batches_of(part, ["count"], BATCH_ROWS, sink):
            counts = np.clip(batch.column("count").fill_null(1).to_numpy(zero_copy_only=False), 1, MOST_ARMS)
            ends[place : place + len(counts)] = before + np.cumsum(counts, dtype=np.int64)
            place, before = place + len(counts), int(ends[place + len(counts) - 1])
        if sink.found:
            raise TableError(sink.found, stored.path)
    if before > MOST_ARMS:
        raise TableError([Fault("count", f"{before} arms in all; at most {MOST_ARMS} are supported")], stored.path)
    return None if before == len(ends) else ends


def read_shard(shard: Shard, labels: Any = None) -> ShardArms:
    """The arms of a shard, checked.

    Args:
        shard: which rows.
        labels: (states, actions) of the header, where labels are wanted too.

    Raises:
        TableError: with every fault of these rows, each with its file and row.
    """
    faults: list[Fault] = []
    columns = list(COLUMNS_BY_TYPE if shard.types else COLUMNS)
    if labels is None:
        columns = [name for name in columns if name != "name" and name not in LISTS_OF_LABELS]
    read = [rows for piece in shard.pieces for rows in _read_piece(piece, columns, shard.num_resources, faults, labels)]
    if shard.types is not None:
        tables, names = read_types(shard.types, shard.num_resources, labels)
        kinds = _match(shard, [kind for rows in read for kind in rows.kinds], names, faults)
    if faults:
        raise TableError(faults, str(Path(shard.pieces[0].path).parent) if len(shard.pieces) > 1 else "")
    if shard.types is None:
        tables = _joined([rows.tables for rows in read if rows.tables is not None])
        kinds = np.arange(len(tables), dtype=np.int32)
    return ShardArms(
        tables,
        kinds,
        np.concatenate([rows.counts for rows in read]),
        np.concatenate([rows.floors for rows in read]),
        tuple(group for rows in read for group in rows.groups),
        shard,
        sum(rows.num_normalised for rows in read),
    )


def read_types(path: str, num_resources: int, labels: Any = None) -> tuple[ArmTables, dict[str, int]]:
    """A table of types, and the number of each by its name.

    Raises:
        TableError: with every fault.
    """
    faults: list[Fault] = []
    with _opened(path) as parquet:
        whole = Piece(path, 0, parquet.metadata.num_rows)
    named = ((), ()) if labels is None else labels
    read = list(_read_piece(whole, [name for name in COLUMNS if name != "count"], num_resources, faults, named))
    if not faults and not read:
        faults.append(Fault(path, "there are no rows"))
    tables = None if faults else _joined([rows.tables for rows in read if rows.tables is not None])
    numbers: dict[str, int] = {}
    for number, (name, _, _) in enumerate(tables.labels if tables is not None else ()):
        if not name or name in numbers:
            told = f"{name!r} is the name of an earlier row, too" if name else "has no name"
            faults.append(Fault(f"{path}, row {number + 1}, name", told))
        numbers.setdefault(name, number)
    if tables is None or faults or not numbers:
        raise TableError(faults or [Fault(path, "types have no names")])
    return (tables if labels is not None else replace(tables, labels=())), numbers


def _match(shard: Shard, named: Sequence[str], numbers: dict[str, int], faults: list[Fault]) -> Indices:
    """(row,) the number of the type of each row."""
    kinds = np.array([numbers.get(name, -1) for name in named], dtype=np.int32)
    places = [(piece, row) for piece in shard.pieces for row in (piece.first_row,)]
    for unknown in np.flatnonzero(kinds < 0)[:MOST_FAULTS].tolist() if not faults else ():
        at, piece = unknown, places[0][0]
        for piece, _ in places:
            if at < piece.num_rows:
                break
            at -= piece.num_rows
        near = nearest(named[unknown], numbers)
        hint = f"; did you mean {near!r}?" if near else ""
        told = f"{named[unknown]!r} is no type of {TYPES}{hint}"
        faults.append(Fault(f"{piece.path}, row {piece.first_row + at + 1}, type", told))
    return kinds


def _read_piece(
    piece: Piece, columns: Sequence[str], num_resources: int, faults: list[Fault], labels: Any
) -> Iterator[Rows]:
    """The rows of a piece, batch by batch; the faults of those that are not sound are noted."""
    for first, batch in batches_of(piece, columns, BATCH_ROWS, sink := Sink(piece.path)):
        own = Sink(piece.path)
        rows = decode(batch, num_resources, first, own, labels)
        faults.extend(own.found)
        if rows is not None:
            yield rows
        if len(faults) >= MOST_FAULTS:
            return
    faults.extend(sink.found)


def batches_of(piece: Piece, columns: Sequence[str], rows: int, sink: Sink) -> Iterator[tuple[int, "pa.RecordBatch"]]:
    """Batches of a piece, each with the number of its first row in the file; damage is noted."""
    start, stop = piece.first_row, piece.first_row + piece.num_rows
    first = start
    try:
        with _opened(piece.path) as parquet:
            groups, first = _row_groups(parquet, start, stop)
            known = [name for name in columns if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(rows, groups, known, use_threads=False):
                low, high = max(start, first), min(stop, first + batch.num_rows)
                if low < high:
                    yield low, batch.slice(low - first, high - low)
                first += batch.num_rows
    except _damage() as error:
        sink.found.append(Fault(f"{piece.path}, from row {first + 1} on", f"cannot be read: {_told(error)}"))


def rows_of(path: Path, sink: Sink) -> tuple[dict[bytes, bytes], list[Piece]]:
    """The metadata of the first file of any table in Parquet, and its files with all their rows; damage is noted.

    Args:
        path: a file, or a folder.
        sink: where damage is noted.
    """
    metadata: dict[bytes, bytes] = {}
    pieces = []
    for file in _files(path)[0]:
        try:
            with _opened(str(file)) as parquet:
                metadata = metadata or dict(parquet.schema_arrow.metadata or {})
                pieces.append(Piece(str(file), 0, parquet.metadata.num_rows))
        except _damage() as error:
            sink.found.append(Fault(str(file), f"not a Parquet file, or a damaged one: {_told(error)}"))
    return metadata, pieces


def _row_groups(parquet: "pq.ParquetFile", start: int, stop: int) -> tuple[list[int], int]:
    """The row groups that have some of the rows, and the number of the first row in them."""
    sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
    ends = np.cumsum(sizes)
    groups = [i for i, end in enumerate(ends) if end > start and end - sizes[i] < stop]
    return groups, int(ends[groups[0]] - sizes[groups[0]]) if groups else 0


def _opened(path: str) -> "pq.ParquetFile":
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)


def _damage() -> tuple[type[BaseException], ...]:
    import pyarrow as pa

    return (pa.ArrowException, OSError)


def _told(error: BaseException) -> str:
    """What PyArrow says, on one line, without names of its own."""
    said = re.sub(r"\[Errno -?\d+\]|\b\w*(Exception|Error)\b:?", "", str(error))
    return " ".join(said.split())[:200].rstrip(" .:")


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
    some = any(table.labels for table in tables)
    return ArmTables(
        **arrays,
        num_states=np.concatenate([table.num_states for table in tables]),
        num_actions=np.concatenate([table.num_actions for table in tables]),
        labels=tuple(label for table in tables for label in (table.labels or _none(table))) if some else (),
    )


def _none(table: ArmTables) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    return (("", (), ()),) * len(table)


def _idle_arm(num_resources: int) -> Any:
    """The smallest arm there is, to ask a problem how budgets are read."""
    from evenhand.model.arm import Arm

    return Arm(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros((1, num_resources)))
