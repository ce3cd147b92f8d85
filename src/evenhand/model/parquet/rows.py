"""Rows of Parquet files as arms; every fault with its file and row."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import why_unreadable
from evenhand.errors import Fault, InvalidInputError, TableError
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS
from evenhand.typing import Bools, Floats, Indices, Ints

ARRAYS = ("transitions", "rewards", "usage", "initial")
"""Columns of lists of numbers."""

ROW_KEYS = ("name", "group", "count", "floor")

BATCH_ROWS = 65_536
"""Rows that are read or written at once; also those of a row group."""

MOST_FAULTS = 50
"""Faults after which reading ends; also faulty rows of one kind and batch that are reported."""


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
        for row in wrong[:MOST_FAULTS]:
            self.add(row, place, message)
        if (more := len(wrong) - MOST_FAULTS) > 0:
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

    def __call__(self, labels: Any = None) -> "ArmRows":
        """Read the rows.

        Args:
            labels: (states, actions) of the header, if labels are required.

        Raises:
            TableError: with every fault of these rows.
        """
        columns: tuple[str, ...] = (*ROW_KEYS, *ARRAYS, "states", "actions")
        if labels is None:
            columns = tuple(name for name in columns if name not in ("name", "states", "actions"))
        faults = list[Fault]()
        read = [rows for piece in self.pieces for rows in _read(piece, columns, self.num_resources, faults, labels)]
        if faults:
            raise TableError(faults, str(Path(self.pieces[0].path).parent) if len(self.pieces) > 1 else "")
        tables = ArmTables.stack([rows.tables for rows in read])
        counts, floors = (np.concatenate([getattr(rows, key) for rows in read]) for key in ("counts", "floors"))
        groups = tuple(group for rows in read for group in rows.groups)
        return ArmRows(tables, counts, floors, groups, sum(rows.num_normalised for rows in read))


@dataclass(frozen=True, eq=False)
class ArmRows:
    """Rows of a model in memory."""

    tables: ArmTables
    """One arm per row."""

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


def _read(
    piece: FileRows, columns: Sequence[str], num_resources: int, faults: list[Fault], labels: Any
) -> Iterator[ArmRows]:
    """The rows of a piece, batch by batch; faults are added."""
    try:
        for first, batch in batches_of(piece, columns):
            own = RowFaults(piece.path)
            rows = _decode(batch, num_resources, np.arange(first, first + batch.num_rows), own, labels)
            faults.extend(own.found)
            if rows is not None:
                yield rows
            if len(faults) >= MOST_FAULTS:
                return
    except TableError as error:  # damage
        faults.extend(error.faults)


def _decode(batch: Any, num_resources: int, rows: Ints, faults: RowFaults, labels: Any) -> ArmRows | None:
    """The rows of a batch, or None and faults; a null stands for the default."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    counts, floors = np.ones(len(rows), dtype=np.int64), np.zeros(len(rows))
    if "count" in columns:
        counts = columns["count"].fill_null(1).to_numpy(zero_copy_only=False)
        faults.flag(rows, (counts < 1) | (counts > MOST_ARMS), "count", f"expected at least 1 and at most {MOST_ARMS}")
    if "floor" in columns:
        floors = np.asarray(columns["floor"].fill_null(0).to_numpy(zero_copy_only=False), dtype=np.float64)
        faults.flag(rows, ~((floors >= 0) & (floors <= 1)), "floor", "expected a share of time from 0 to 1")
    tables = _tables(batch, num_resources, rows, faults, labels)
    if tables is None or faults.found:
        return None
    uneven = len({fault.place.partition("]")[0] for fault in tables.nearly()})
    groups = tuple(group or "" for group in columns["group"].to_pylist()) if "group" in columns else ()
    return ArmRows(tables.tidied(), counts.astype(np.int64), floors, groups, uneven)


class _Lists(NamedTuple):
    """A column of lists of numbers, flat or nested; a null is not a number."""

    values: Floats
    """(number,) of all rows, one after another."""

    lengths: Ints
    """(row,) numbers per row."""

    levels: tuple[Ints, ...]
    """Lengths of the lists at each depth."""


def is_list(kind: Any) -> bool:
    """Return True for an Arrow type of lists."""
    import pyarrow.types as is_

    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def _lists(column: Any) -> _Lists:
    import pyarrow as pa
    import pyarrow.compute as pc

    levels: list[Ints] = []
    ends = np.arange(len(column) + 1)
    while is_list(column.type):
        levels.append(np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False), np.int64))
        ends = np.concatenate([[0], np.cumsum(levels[-1])])[ends]
        column = column.flatten()
    return _Lists(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.diff(ends), tuple(levels))


def _tables(batch: Any, num_resources: int, rows: Ints, faults: RowFaults, labels: Any) -> ArmTables | None:
    """Arms of rows; faults are added."""
    lists = {name: _lists(batch.column(name)) for name in ARRAYS if name in batch.schema.names}
    sizes, fits = _sizes(lists, num_resources)
    for row in np.flatnonzero(~fits)[:MOST_FAULTS].tolist():
        lengths = ", ".join(f"{name} {found.lengths[row]}" for name, found in lists.items())
        expected = f"S A S, S A, A K or S A K, and S, where K = {num_resources} is the number of resources"
        empty = next((name for name, found in lists.items() if not found.lengths[row]), "transitions")
        faults.add(int(rows[row]), empty, f"numbers of entries do not agree ({lengths}): expected {expected}")
    if not fits.all():
        import pyarrow as pa

        rest = batch.filter(pa.array(fits))
        return _tables(rest, num_resources, rows[fits], faults, labels) if rest.num_rows else None
    s, a, _ = sizes.T
    tables = ArmTables(
        **_stacked(lists, sizes, num_resources),
        num_states=s.astype(np.int32),
        num_actions=a.astype(np.int32),
        labels=() if labels is None else _labels(batch, {"states": s, "actions": a}, rows, faults, labels),
    )
    for fault in tables.find_faults().found:
        head, _, rest = fault.place.partition(".")
        if head.startswith("arms["):
            faults.add(int(rows[int(head[5:-1])]), rest, fault.message)
        else:
            faults.found.append(Fault(faults.file, fault.message))
    return tables


def _sizes(lists: Mapping[str, _Lists], num_resources: int) -> tuple[Ints, Bools]:
    """(row, 3) states, actions, whether usage depends on the state; (row,) whether all lists have such lengths."""
    moves, earned, used = (lists[name].lengths for name in ("transitions", "rewards", "usage"))
    s = np.maximum(moves // np.maximum(earned, 1), 1)
    a = np.maximum(earned // s, 1)
    by_state = used == s * a * num_resources
    fits = (earned == s * a) & (moves == s * a * s) & (by_state | (used == a * num_resources))
    if "initial" in lists:
        fits &= lists["initial"].lengths == s
    axes = {"transitions": (s, a, s), "rewards": (s, a), "usage": (s, a, np.full_like(s, num_resources))}
    for name, wanted in axes.items():
        # Nested lists must have the sizes of their axes at every depth.
        row, levels = np.arange(len(s)), lists[name].levels if len(lists[name].levels) > 1 else ()
        fits &= len(levels) <= len(wanted)
        for got, size in zip(levels, wanted[len(wanted) - len(levels) :], strict=False):
            np.logical_and.at(fits, row, got == size[row])
            row = np.repeat(row, got)
    return np.stack([s, a, by_state], axis=1), fits


def _stacked(lists: Mapping[str, _Lists], sizes: Ints, num_resources: int) -> dict[str, Any]:
    """Padded arrays of rows whose sizes (states, actions, usage by state) are given."""
    (S, A, _), kinds = sizes.max(axis=0), np.unique(sizes, axis=0).tolist()
    full = {"transitions": (S, A, S), "rewards": (S, A), "usage": (S, A, num_resources), "initial": (S,)}
    arrays = {name: np.zeros((len(sizes), *shape)) for name, shape in full.items()}
    for s, a, by_state in kinds:
        mine = np.flatnonzero((sizes == (s, a, by_state)).all(axis=1))
        shapes = {"transitions": (s, a, s), "rewards": (s, a), "initial": (s,)}
        shapes["usage"] = (s if by_state else 1, a, num_resources)
        for name, shape in shapes.items():
            corner: Any = (mine, *map(slice, (s, a, s if name == "transitions" else num_resources)[: len(shape)]))
            if name not in lists:
                arrays[name][corner] = 1 / s
            elif len(kinds) == 1:
                arrays[name][corner] = lists[name].values.reshape(-1, *shape)
            else:
                starts = (np.cumsum(lists[name].lengths) - lists[name].lengths)[mine]
                arrays[name][corner] = (
                    lists[name].values[starts[:, None] + np.arange(np.prod(shape))].reshape(-1, *shape)
                )
    return arrays


def _labels(batch: Any, sizes: Mapping[str, Ints], rows: Ints, faults: RowFaults, common: Any) -> Any:
    """(row,) name, states and actions; empty if there are none."""
    columns: dict[str, list[Any]] = {}
    for (key, size), shared in zip(sizes.items(), common, strict=True):
        own = batch.column(key).to_pylist() if key in batch.schema.names else [None] * len(rows)
        columns[key] = [tuple(name or "" for name in given) if given else tuple(shared) for given in own]
        number = np.array([len(names) for names in columns[key]])
        twice = np.array([len(set(names)) < len(names) for names in columns[key]])
        wrong = ((number > 0) & (number != size)) | twice
        faults.flag(rows, wrong, key, f"expected a different label for each of its {key}")
    names = batch.column("name").to_pylist() if "name" in batch.schema.names else [""] * len(rows)
    found = tuple((name or "", *labels) for name, *labels in zip(names, *columns.values(), strict=True))
    return found if any(any(label) for label in found) else ()


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


def parts_of(path: Path) -> list[Path]:
    """The parts of a table in the order of their names."""
    if not path.exists():
        raise InvalidInputError(f"{path}: cannot be read: {why_unreadable(path, FileNotFoundError(), ['.parquet'])}")
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.glob("*.parquet") if not file.name.startswith((".", "_")))
    if not found:
        raise InvalidInputError(f"{path}: the folder contains no part of a table, NAME.parquet")
    return found


def schema_of(file: Path, faults: list[Fault]) -> tuple[Any, int] | None:
    """The schema and the number of rows of a file; None if it is damaged, which is added."""
    try:
        with _file(str(file)) as parquet:
            return parquet.schema_arrow, parquet.metadata.num_rows
    except _damage() as error:
        faults.append(Fault(str(file), f"not a Parquet file, or a damaged one: {_message(error)}"))
        return None


def batches_of(piece: FileRows, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Batches of a piece, each with the number of its first row in the file; raises TableError at damage."""
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
        fault = Fault(f"{piece.path}, from row {first + 1} on", f"cannot be read: {_message(error)}")
        raise TableError([fault]) from None
