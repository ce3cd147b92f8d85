"""Rows of a Parquet file as ArmTables, whatever sizes they have; every fault with its row.

A batch goes through three sieves, and each notes what it holds back: rows with nulls, rows whose lists have lengths
that do not agree, arms that are not sound. What a later sieve sees is whole, so that one bad row does not hide the
faults of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evenhand.errors import Fault
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS
from evenhand.model.parquet.schema import DEPTHS, NUMBERS
from evenhand.typing import Array, Bools, Floats, Ints

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN_ROWS = 20
"""Faulty rows of one kind and batch that are shown."""


class Sink:
    """Where faults of one file are noted: with its name and the row, counted from 1."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Fault] = []

    def add(self, row: int, place: str, message: str) -> None:
        """Note one fault.

        Args:
            row: the number of the row in the file, from 0.
            place: what of it.
            message: what is wrong there.
        """
        self.found.append(Fault(f"{self.file}, row {row + 1}, {place}", message))

    def flag(self, rows: Ints, bad: Bools, place: str, message: str) -> None:
        """Note every row that is bad, up to a limit.

        Args:
            rows: (row,) numbers of the rows in the file.
            bad: (row,) which of them are bad.
            place: what of them.
            message: what is wrong there.
        """
        wrong = rows[bad].tolist()
        for row in wrong[:SHOWN_ROWS]:
            self.add(row, place, message)
        if len(wrong) > SHOWN_ROWS:
            more = len(wrong) - SHOWN_ROWS
            self.found.append(Fault(f"{self.file}, {place}", f"... and {more} more such rows", stands_for=more))


class Lists(NamedTuple):
    """A column of lists of numbers."""

    values: Floats
    """(number,) those of all rows, one after another."""

    lengths: Ints
    """(row,) how many each row has."""

    levels: tuple[Ints, ...]
    """The lengths of the lists at each depth."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What was read of some rows."""

    tables: ArmTables | None
    """One arm a row; None where rows name their type."""

    kinds: Sequence[str]
    """(row,) the type that each row names; empty where it has arrays of its own."""

    counts: Ints
    """(row,) how many arms each stands for."""

    floors: Floats
    """(row,) the least share of time in which each arm is served."""

    groups: tuple[str, ...]
    """(row,) the group of each row, "" for none; empty where there is no such column."""

    num_normalised: int
    """Rows whose probabilities did not quite sum to 1, and were divided by their sums."""


def decode(batch: "pa.RecordBatch", num_resources: int, first_row: int, sink: Sink, labels: Any = None) -> Rows | None:
    """Rows of a batch; None where some are faulty, which are noted.

    Args:
        batch: the columns that were asked for.
        num_resources: how many resources the header has.
        first_row: the number of the first row in the file.
        sink: where faults are noted.
        labels: (states, actions) of the header, where labels are wanted.
    """
    rows = np.arange(first_row, first_row + batch.num_rows)
    whole = _without_nulls(batch, rows, sink)
    counts, floors = _counts(batch, rows, whole, sink), _floors(batch, rows, whole, sink)
    if not whole.all():
        batch, rows = batch.filter(_mask(whole)), rows[whole]
    tables = None
    if "transitions" in batch.schema.names and batch.num_rows:
        tables = _tables(batch, num_resources, rows, sink, labels)
    if sink.found:
        return None
    uneven = 0
    if tables is not None:
        uneven = len({fault.place.partition("]")[0] for fault in tables.nearly()})
        tables = tables.tidied()
    kinds = batch.column("type").to_pylist() if "type" in batch.schema.names else ()
    return Rows(tables, kinds, counts, floors, _groups(batch), uneven)


def _mask(keep: Bools) -> "pa.Array":
    import pyarrow as pa

    return pa.array(keep)


def _groups(batch: "pa.RecordBatch") -> tuple[str, ...]:
    if "group" not in batch.schema.names:
        return ()
    return tuple(group or "" for group in batch.column("group").to_pylist())


# Nulls, counts, floors


def _without_nulls(batch: "pa.RecordBatch", rows: Ints, sink: Sink) -> Bools:
    """(row,) whether nothing that is needed is null; notes where it is."""
    whole = np.ones(len(rows), dtype=np.bool_)
    for name in (name for name in (*NUMBERS, "type", "count", "floor") if name in batch.schema.names):
        column = batch.column(name)
        gone = np.asarray(column.is_null())
        sink.flag(rows, gone, name, "is null")
        inside = _nulls_inside(column) & ~gone if name in NUMBERS else np.zeros_like(gone)
        sink.flag(rows, inside, name, "has a null among its numbers")
        whole &= ~(gone | inside)
    return whole


def _nulls_inside(column: "pa.Array") -> Bools:
    """(row,) whether a list has a null somewhere within."""
    if not _is_list(column.type):
        return np.asarray(column.is_null())
    inner, lengths = column.flatten(), _lengths(column)
    if inner.null_count == 0 and not _is_list(inner.type):
        return np.zeros(len(lengths), dtype=np.bool_)
    before = np.concatenate([[0], np.cumsum(_nulls_inside(inner) | np.asarray(inner.is_null()))])
    ends = np.cumsum(lengths)
    return np.asarray(before[ends] > before[ends - lengths])


def _counts(batch: "pa.RecordBatch", rows: Ints, whole: Bools, sink: Sink) -> Ints:
    if "count" not in batch.schema.names:
        return np.ones(len(rows), dtype=np.int64)
    counts = batch.column("count").fill_null(1).to_numpy(zero_copy_only=False)
    sink.flag(rows, whole & (counts < 1), "count", "expected at least 1")
    sink.flag(rows, whole & (counts > MOST_ARMS), "count", f"too many; at most {MOST_ARMS} are supported")
    return np.asarray(np.clip(counts, 1, MOST_ARMS), dtype=np.int64)


def _floors(batch: "pa.RecordBatch", rows: Ints, whole: Bools, sink: Sink) -> Floats:
    if "floor" not in batch.schema.names:
        return np.zeros(len(rows))
    floors = np.asarray(batch.column("floor").fill_null(0).to_numpy(zero_copy_only=False), dtype=np.float64)
    sink.flag(rows, whole & ~((floors >= 0) & (floors <= 1)), "floor", "expected a share of time from 0 to 1")
    return floors


# Lists and their sizes


def _is_list(kind: "pa.DataType") -> bool:
    import pyarrow.types as is_

    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def _lengths(column: "pa.Array") -> Ints:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column)
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)


def read_lists(column: "pa.Array") -> Lists:
    """A column of lists without nulls, flat or nested."""
    import pyarrow as pa

    levels: list[Ints] = []
    ends: Ints | None = None
    while _is_list(column.type):
        lengths = _lengths(column)
        sums = np.concatenate([[0], np.cumsum(lengths)])
        ends = sums if ends is None else sums[ends]
        levels.append(lengths)
        column = column.flatten()
    assert ends is not None
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return Lists(values, np.diff(ends), tuple(levels))


class Sizes(NamedTuple):
    """How large each row is."""

    states: Ints
    """(row,)"""

    actions: Ints
    """(row,)"""

    by_state: Bools
    """(row,) whether usage depends on the state."""


def _tables(batch: "pa.RecordBatch", num_resources: int, rows: Ints, sink: Sink, labels: Any) -> ArmTables | None:
    """Sound arms of rows without nulls; or None, with the faults noted."""
    lists = {name: read_lists(batch.column(name)) for name in NUMBERS if name in batch.schema.names}
    sizes, agree = _sizes(lists, num_resources, rows, sink)
    if not agree.all():
        if not agree.any():
            return None
        part = batch.filter(_mask(agree))
        return _tables(part, num_resources, rows[agree], sink, labels)
    tables = _stack(lists, sizes, num_resources, () if labels is None else _labels(batch, sizes, rows, sink, labels))
    for fault in tables.find_faults().found:
        _note(fault, rows, sink)
    return tables


def _note(fault: Fault, rows: Ints, sink: Sink) -> None:
    """A fault of arms in a batch as one of rows in the file."""
    head, _, rest = fault.place.partition(".")
    if head.startswith("arms["):
        sink.add(int(rows[int(head[5:-1])]), rest, fault.message)
    else:
        sink.found.append(Fault(sink.file, fault.message))


def _sizes(lists: dict[str, Lists], num_resources: int, rows: Ints, sink: Sink) -> tuple[Sizes, Bools]:
    """The sizes of each row, and whether all its lists agree with them; notes where they do not."""
    moves, earned, used = (lists[name].lengths for name in ("transitions", "rewards", "usage"))
    some = (moves > 0) & (earned > 0)
    sink.flag(rows, ~some, "transitions", "transitions and rewards need at least one state and one action")
    S = np.where(some, moves // np.maximum(earned, 1), 1)
    A = np.where(some, earned // np.maximum(S, 1), 1)
    fits = some & (S > 0) & (earned == S * A) & (moves == S * A * S)
    told = "has a length that does not go with rewards: S A S numbers where rewards has S A"
    sink.flag(rows, some & ~fits, "transitions", told)
    by_state = used == S * A * num_resources
    use_fits = by_state | (used == A * num_resources)
    told = f"expected A K or S A K numbers for A actions, S states and K = {num_resources} resources of the budget"
    sink.flag(rows, fits & ~use_fits, "usage", told)
    start_fits = lists["initial"].lengths == S if "initial" in lists else np.ones(len(rows), dtype=np.bool_)
    sink.flag(rows, fits & ~start_fits, "initial", "expected one number a state")
    agree = fits & use_fits & start_fits
    sizes = Sizes(S, A, by_state)
    return sizes, agree & _nested_agree(lists, sizes, num_resources, agree, rows, sink)


def _nested_agree(
    lists: dict[str, Lists], sizes: Sizes, num_resources: int, agree: Bools, rows: Ints, sink: Sink
) -> Bools:
    """(row,) whether the lists within lists are as long as the sizes say, where lists are nested."""
    wanted = {
        "transitions": (sizes.states, sizes.actions, sizes.states),
        "rewards": (sizes.states, sizes.actions),
        "usage": (sizes.states, sizes.actions, np.full_like(sizes.states, num_resources)),
    }
    good = np.ones(len(rows), dtype=np.bool_)
    for name, lengths in wanted.items():
        levels = lists[name].levels
        if len(levels) > 1:
            wrong = agree & ~_as_deep(levels, lengths[DEPTHS[name] - len(levels) :])
            sink.flag(rows, wrong, name, "its lists are of unequal lengths")
            good &= ~wrong
    return good


def _as_deep(levels: Sequence[Ints], lengths: Sequence[Ints]) -> Bools:
    """(row,) whether at each depth all lists of a row have the length that is wanted there."""
    good = np.ones(len(levels[0]), dtype=np.bool_)
    row = np.arange(len(good))
    for got, wanted in zip(levels, lengths, strict=True):
        np.logical_and.at(good, row[got != wanted[row]], False)
        row = np.repeat(row, got)
    return good


def _stack(lists: dict[str, Lists], sizes: Sizes, num_resources: int, labels: Any) -> ArmTables:
    """Arms whose lists agree with their sizes, padded to the largest."""
    number = len(sizes.states)
    S, A = int(sizes.states.max()), int(sizes.actions.max())
    alike = _alike(lists, sizes, num_resources, S, A)
    if alike is not None:
        arrays = alike
    else:
        shapes = {"transitions": (S, A, S), "rewards": (S, A), "usage": (S, A, num_resources), "initial": (S,)}
        arrays = {name: np.zeros((number, *shape)) for name, shape in shapes.items()}
        starts = {name: np.cumsum(lists[name].lengths) - lists[name].lengths for name in lists}
        keys = np.stack([*sizes[:2], sizes.by_state], axis=1)
        for s, a, by_state in np.unique(keys, axis=0).tolist():
            mine = np.flatnonzero((keys == (s, a, by_state)).all(axis=1))
            _fill(arrays, lists, starts, mine, (s, a, num_resources, bool(by_state)))
    return ArmTables(
        **arrays, num_states=sizes.states.astype(np.int32), num_actions=sizes.actions.astype(np.int32), labels=labels
    )


def _alike(lists: dict[str, Lists], sizes: Sizes, num_resources: int, S: int, A: int) -> dict[str, Array] | None:
    """The arrays where all rows have one size, without a copy where that is possible; else None."""
    same = (sizes.states == S).all() and (sizes.actions == A).all()
    if not (same and (sizes.by_state.all() or not sizes.by_state.any())):
        return None
    number = len(sizes.states)
    usage = lists["usage"].values.reshape(number, S if sizes.by_state.all() else 1, A, num_resources)
    starts = lists["initial"].values.reshape(number, S) if "initial" in lists else np.full((number, S), 1 / S)
    return {
        "transitions": lists["transitions"].values.reshape(number, S, A, S),
        "rewards": lists["rewards"].values.reshape(number, S, A),
        "usage": np.broadcast_to(usage, (number, S, A, num_resources)),
        "initial": starts,
    }


def _fill(
    arrays: dict[str, Array],
    lists: dict[str, Lists],
    starts: dict[str, Ints],
    mine: Array,
    size: tuple[int, int, int, bool],
) -> None:
    """Put the rows of one size into the padded arrays."""
    s, a, k, by_state = size
    shapes = {"transitions": (s, a, s), "rewards": (s, a), "usage": (s if by_state else 1, a, k), "initial": (s,)}
    cut = {
        name: lists[name].values[starts[name][mine][:, None] + np.arange(np.prod(shape))].reshape(len(mine), *shape)
        for name, shape in shapes.items()
        if name in lists
    }
    arrays["transitions"][mine, :s, :a, :s] = cut["transitions"]
    arrays["rewards"][mine, :s, :a] = cut["rewards"]
    arrays["usage"][mine, :s, :a] = cut["usage"]
    arrays["initial"][mine, :s] = cut.get("initial", 1 / s)


def _labels(batch: "pa.RecordBatch", sizes: Sizes, rows: Ints, sink: Sink, common: Any) -> Any:
    """(row,) name, states and actions of each; empty where nobody has any."""
    size = {"states": sizes.states, "actions": sizes.actions}
    columns: dict[str, list[Any]] = {}
    for key, shared in zip(("states", "actions"), common, strict=True):
        own = batch.column(key).to_pylist() if key in batch.schema.names else [None] * len(rows)
        columns[key] = [tuple(name or "" for name in given) if given else tuple(shared) for given in own]
        number = np.array([len(names) for names in columns[key]])
        sink.flag(rows, (number > 0) & (number != size[key]), key, f"expected one label for each of its {key}")
        twice = np.array([len(set(names)) < len(names) for names in columns[key]])
        sink.flag(rows, twice, key, "has the same name twice")
    names = batch.column("name").to_pylist() if "name" in batch.schema.names else [""] * len(rows)
    found = tuple((name or "", *labels) for name, *labels in zip(names, *columns.values(), strict=True))
    return found if any(any(label) for label in found) else ()
