"""Rows of Parquet files as arms; every fault with its file and row."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import why_unreadable
from evenhand.errors import Fault, InvalidInputError, TableError, nearest
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS
from evenhand.model.parquet.header import DEPTHS, is_list
from evenhand.typing import Array, Bools, Floats, Indices, Ints

TYPES = "types.parquet"
"""The table of types in a folder."""

ROW_KEYS = ("name", "type", "group", "count", "floor")

BATCH_ROWS = 65_536
"""Rows that are read or written at once; also those of a row group."""

MOST_FAULTS, SHOWN_ROWS = 50, 20
"""Faults after which reading ends, and faulty rows of one kind and batch that are reported."""


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


class FileRows(NamedTuple):
    """Consecutive rows of one file."""

    path: str
    first_row: int
    num_rows: int


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of a table: a small picklable function that reads them."""

    pieces: tuple[FileRows, ...]
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
            tables = joined([rows.tables for rows in read if rows.tables is not None])
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
        whole = FileRows(path, 0, parquet.metadata.num_rows)
    columns = [*DEPTHS, "name", "group", "floor", "states", "actions"]
    read = list(_read(whole, columns, num_resources, faults, labels or ((), ())))
    if not faults and not read:
        faults.append(Fault(path, "there are no rows"))
    numbers: dict[str, int] = {}
    tables = None if faults else joined([rows.tables for rows in read if rows.tables is not None])
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
    piece: FileRows, columns: Sequence[str], num_resources: int, faults: list[Fault], labels: Any
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
    if not is_list(column.type):
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
    while is_list(column.type):
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
                corner: tuple[Any, ...] = tuple(slice(size) for size in part.shape[1:])
                arrays[name][(mine, *corner)] = part
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


def joined(tables: Sequence[ArmTables]) -> ArmTables:
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
        raise InvalidInputError(f"{path}: cannot be read: {why_unreadable(path, FileNotFoundError(), ['.parquet'])}")
    if not path.is_dir():
        return [path], None
    found = sorted(file for file in path.glob("*.parquet") if not file.name.startswith((".", "_")))
    parts = [file for file in found if file.name != TYPES]
    if not parts:
        raise InvalidInputError(f"{path}: the folder contains no part of a table, NAME.parquet")
    return parts, path / TYPES if len(parts) < len(found) else None


def schema_of(file: Path, faults: list[Fault]) -> tuple[Any, int] | None:
    """The schema and the number of rows of a file; None if it is damaged, which is added."""
    try:
        with _file(str(file)) as parquet:
            return parquet.schema_arrow, parquet.metadata.num_rows
    except _damage() as error:
        faults.append(Fault(str(file), f"not a Parquet file, or a damaged one: {_message(error)}"))
        return None


def batches_of(piece: FileRows, columns: Sequence[str], faults: RowFaults) -> Iterator[tuple[int, Any]]:
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
