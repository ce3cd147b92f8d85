"""Arms and results as Parquet, written as they come: beside their place first, then renamed.

A path that ends in `.parquet` becomes one file, any other a folder of parts. An interrupted write leaves what was
there before; what a killed process left is swept away by the next one that writes there.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.errors import InvalidInput
from evenhand.model.arm import Arm, ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.io import Location, replacing, sweep
from evenhand.model.parquet.schema import KEY, TYPES, Header, header_of, needs_pyarrow
from evenhand.typing import Array, Floats

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS_PER_GROUP = 65_536
"""Rows that are kept in memory before they are written."""

ROWS_PER_PART = 1_000_000
"""Rows of a file in a folder."""


class ArmWriter:
    """Writes tables of arms part by part; used by `with`, and nothing is there until its block ended well.

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
        """Say what all arms share.

        Args:
            path: a file `.parquet`, or a folder; what is there already is replaced.
            budget: one number a resource.
            discount: what a reward one step later is worth.
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
            columns: counts, names, groups, floors: one entry a row.

        Raises:
            ModelError: some arm is not sound, or has other resources.
        """
        tables = arms if isinstance(arms, ArmTables) else ArmTables.stack([arms] if isinstance(arms, Arm) else arms)
        tables.find_faults().raise_if_any()
        if (number := tables.usage.shape[-1]) != len(self.header.budget):
            raise InvalidInput(f"arms: use {number} resources where the budget has {len(self.header.budget)}")
        self._table.write(arm_columns(tables, **columns))


def write_arms(
    arms: Iterable[ArmTables | Arm],
    path: Location,
    budget: float | Floats | list[float],
    discount: float | None = None,
    criterion: str | Criterion = "discounted",
    **others: Any,
) -> None:
    """Write arms as they come, however many there are, as a model in Parquet.

    Args:
        arms: arms, or tables of arms; they are taken one after another.
        path: a file `.parquet`, or a folder; what is there already is replaced.
        budget: one number a resource.
        discount: what a reward one step later is worth.
        criterion: as text or object.
        others: over, welfare, resources, and states and actions, labels that all arms have in common.

    Example:
        >>> import evenhand as eh
        >>> one = eh.problems.machine_replacement(num_arms=1).arms[0]
        >>> from evenhand.model.parquet.writing import write_arms
        >>> write_arms((one for _ in range(1000)), "many.parquet", budget=100, discount=0.95)
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
        types: a problem whose blocks, each with a name of its own, are the types; its counts do not matter.
        arms: columns of arms, some at a time: `type`, and perhaps name, group, count, floor.
        path: the folder.
    """
    needs_pyarrow()
    import pyarrow as pa

    names = [label[0] for label in types.tables.labels]
    if not names or len(set(names)) < len(names) or not all(names):
        raise InvalidInput("types: every block needs a name of its own")
    with replacing_folder(Path(path)) as folder:
        with TableWriter(folder / TYPES, _header(types, ()).as_metadata()) as writer:
            writer.write(arm_columns(types.tables, names=names, own_labels=True))
        with TableWriter(folder / "arms.parquet", {KEY: b"{}"}) as writer:
            for columns in arms:
                writer.write({key: pa.array(value) for key, value in columns.items()})


def save_parquet(problem: CoupledMDP, path: Location) -> None:
    """Write a problem that is in memory, with its labels, as `save` does."""
    needs_pyarrow()
    tables = problem.tables
    labels = {(states, actions) for _, states, actions in tables.labels}
    common = next(iter(labels)) if len(labels) == 1 else ((), ())
    alike = (tables.num_states == tables.num_states[0]).all() and (tables.num_actions == tables.num_actions[0]).all()
    with TableWriter(path, _header(problem, common if alike else ((), ())).as_metadata()) as writer:
        for start in range(0, len(tables), ROWS_PER_GROUP):
            rows = np.arange(start, min(start + ROWS_PER_GROUP, len(tables)))
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


def _header(problem: CoupledMDP, labels: Any) -> Header:
    states, actions = labels or ((), ())
    return Header(
        problem.budget,
        problem.discount,
        problem.criterion,
        problem.over,
        problem.welfare,
        tuple(problem.resources),
        tuple(states),
        tuple(actions),
    )


def arm_columns(
    tables: ArmTables,
    names: Any = None,
    groups: Any = None,
    counts: Any = None,
    floors: Any = None,
    own_labels: bool = False,
) -> dict[str, "pa.Array"]:
    """The columns of some arms, without padding.

    Args:
        tables: the arms.
        names: (arm,) what they are called, or none.
        groups: (arm,) their groups, or none.
        counts: (arm,) how many there are of each, or none for 1.
        floors: (arm,) the least shares of time in which they are served, or none.
        own_labels: whether states and actions are labelled row by row.
    """
    import pyarrow as pa

    given = {"name": (names, pa.string()), "group": (groups, pa.string()), "count": (counts, pa.int64())}
    given["floor"] = (floors, pa.float64())
    columns = {key: pa.array(list(value), kind) for key, (value, kind) in given.items() if value is not None}
    if own_labels and tables.labels:
        kind = pa.list_(pa.string())
        columns["states"] = pa.array([list(label[1]) for label in tables.labels], kind)
        columns["actions"] = pa.array([list(label[2]) for label in tables.labels], kind)
    arrays = {"transitions": tables.transitions, "rewards": tables.rewards, "initial": tables.initial}
    s, a = tables.num_states, tables.num_actions
    sizes = {"transitions": (s, a, s), "rewards": (s, a), "initial": (s,)}
    for key, array in arrays.items():
        columns[key] = list_column(array, sizes[key])
    by_action = bool(((tables.usage == tables.usage[:, :1]) | ~tables.valid[..., None]).all())
    k = np.full(len(tables), tables.usage.shape[-1])
    columns["usage"] = list_column(tables.usage[:, 0], (a, k)) if by_action else list_column(tables.usage, (s, a, k))
    return columns


def list_column(array: Array, sizes: tuple[Array, ...]) -> "pa.Array":
    """(row, ...) padded arrays as a column of flat lists without padding.

    Args:
        array: the numbers.
        sizes: for each axis but the first, how many of its entries are real in each row.
    """
    import pyarrow as pa

    real = np.ones(array.shape, dtype=np.bool_)
    lengths = np.ones(len(array), dtype=np.int64)
    for axis, size in enumerate(sizes, start=1):
        shape = [1] * array.ndim
        shape[axis] = -1
        rows = [-1] + [1] * (array.ndim - 1)
        real &= np.arange(array.shape[axis]).reshape(shape) < np.asarray(size).reshape(rows)
        lengths = lengths * size
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = np.ascontiguousarray(array).reshape(-1) if real.all() else array[real]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


# Files and folders, whole or not at all


class TableWriter:
    """Writes columns as they come, into one file or a folder of parts; used by `with`."""

    def __init__(self, path: Location, metadata: Mapping[bytes, bytes] | None = None) -> None:
        self.path = Path(path)
        self.metadata = dict(metadata or {})
        self._stack = contextlib.ExitStack()
        self._place: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None
        self._rows = self._parts = 0

    def __enter__(self) -> "TableWriter":
        one = self.path.suffix.lower() == ".parquet" and not self.path.is_dir()
        self._place = self._stack.enter_context(replacing(self.path) if one else replacing_folder(self.path))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._finish_part()
            if error is None and self._schema is None:
                raise InvalidInput(f"{self.path}: not written: there is no row")
        except BaseException as later:
            self._stack.__exit__(type(later), later, later.__traceback__)
            raise
        self._stack.__exit__(kind, error, trace)

    def write(self, columns: Mapping[str, "pa.Array"]) -> None:
        """Write some rows; every call has the same columns."""
        import pyarrow as pa

        table = pa.table(dict(columns))
        if self._schema is None:
            self._schema = table.schema.with_metadata(self.metadata)
        elif table.schema.names != self._schema.names:
            raise InvalidInput(f"{self.path}: rows with the columns {table.schema.names} after {self._schema.names}")
        if isinstance(self._place, Path) and self._rows >= ROWS_PER_PART:
            self._finish_part()
        if self._writer is None:
            self._writer = self._start()
        self._writer.write_table(table.cast(self._schema), row_group_size=ROWS_PER_GROUP)
        self._rows += table.num_rows

    def _start(self) -> "pq.ParquetWriter":
        import pyarrow.parquet as pq

        folder = isinstance(self._place, Path)
        place = str(self._place / f"part-{self._parts:05d}.parquet") if folder else self._place
        assert self._schema is not None
        texts = [field.name for field in self._schema if str(field.type) in ("string", "int64", "int32", "bool")]
        self._parts, self._rows = self._parts + 1, 0
        return pq.ParquetWriter(place, self._schema, compression="zstd", use_dictionary=texts, write_page_checksum=True)

    def _finish_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder that takes the place of `path` when the block ends well, and vanishes when it does not."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise InvalidInput(f"{path}: cannot be written: it is not a folder")
    if target.is_dir() and any(entry.suffix != ".parquet" for entry in target.iterdir()):
        raise InvalidInput(f"{path}: cannot be written: the folder holds other files than Parquet")
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
