"""Arms and results written as Parquet."""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from evenhand.checks import Faults
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.model.arm import Arm, ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.io import Location, replacing, replacing_folder
from evenhand.model.parquet.rows import BATCH_ROWS
from evenhand.model.parquet.stored import KEY, VERSION, StoredArms, metadata_of, needs_pyarrow, read_metadata
from evenhand.typing import Array, Floats


class TableWriter:
    """Writes columns as they come, into one file `.parquet` or a folder of parts; a context manager.

    Written beside its place first, then renamed: an interrupted write leaves the previous content.
    """

    def __init__(
        self, path: Location, metadata: Mapping[bytes, bytes] | None = None, rows_per_part: int = 1_000_000
    ) -> None:
        self.path, self.metadata, self.rows_per_part = Path(path), dict(metadata or {}), rows_per_part
        self._stack = contextlib.ExitStack()
        self._place: Any = None
        self._writer: Any = None
        self._schema: Any = None
        self._rows = self._parts = 0

    def __enter__(self) -> Self:
        one = self.path.suffix.lower() == ".parquet" and not self.path.is_dir()
        self._place = self._stack.enter_context(replacing(self.path) if one else replacing_folder(self.path))
        self._stack.push(self._finish)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _finish(self, kind: Any, error: Any, trace: Any) -> None:
        self._finish_part()
        if error is None and self._schema is None:
            raise InvalidInputError(f"{self.path}: not written: there are no rows")

    def write_columns(self, columns: Mapping[str, Any]) -> None:
        """Write some rows; every call has the same columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(dict(columns))
        if self._schema is None:
            self._schema = table.schema.with_metadata(self.metadata)
        elif table.schema.names != self._schema.names:
            raise InvalidInputError(
                f"{self.path}: rows with the columns {table.schema.names} after {self._schema.names}"
            )
        folder = isinstance(self._place, Path)
        if folder and self._rows >= self.rows_per_part:
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


class ArmWriter(TableWriter):
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
        rows_per_part: int = 1_000_000,
        **others: Any,
    ) -> None:
        """Set the part that all arms share.

        Args:
            path: a file `.parquet`, or a folder; an existing one is replaced.
            budget: one number per resource.
            discount: value of a reward one step later.
            criterion: as text or object.
            rows_per_part: rows per file in a folder.
            others: over, welfare, resources, and states and actions, labels that all arms have in common.

        Raises:
            ModelError: with every fault of these.
        """
        needs_pyarrow()
        faults, amounts = Faults(), np.atleast_1d(np.asarray(budget)).tolist()
        text = criterion.name if isinstance(criterion, Criterion) else criterion
        head = {"version": VERSION, "budget": amounts, "criterion": text, **others}
        metadata = json.dumps(head if discount is None else head | {"discount": discount}).encode()
        read_metadata(metadata, faults)
        faults.raise_if_any()
        self.num_resources = len(amounts)
        super().__init__(path, {KEY: metadata}, rows_per_part)

    def write(self, arms: ArmTables | Arm | Sequence[ArmTables | Arm], **columns: Any) -> None:
        """Write some arms, one row each.

        Args:
            arms: tables, or arms.
            columns: counts, names, groups, floors: one entry per row.

        Raises:
            ModelError: some arm is invalid, or has other resources.
        """
        tables = ArmTables.stack([arms] if isinstance(arms, (Arm, ArmTables)) else arms)
        tables.find_faults().raise_if_any()
        if (number := tables.usage.shape[-1]) != self.num_resources:
            raise InvalidInputError(f"arms: they use {number} resources, but the budget has {self.num_resources}")
        self.write_columns(arm_columns(tables, **columns))


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
        >>> from evenhand.model.parquet import write_arms
        >>> write_arms((one for _ in range(1000)), "many.parquet", budget=100, discount=0.95)
        >>> eh.open_arms("many.parquet")
        StoredArms(1,000 arms, 1 resource, discount 0.95)
    """
    with ArmWriter(path, budget, discount, criterion, **others) as writer:
        for whole, some in groupby(arms, key=lambda given: isinstance(given, ArmTables)):
            while part := list(islice(some, 1 if whole else 1000)):
                writer.write(part)


def save_parquet(problem: CoupledMDP, path: Location) -> None:
    """Write a problem with its labels."""
    needs_pyarrow()
    if problem.has_max_wait:
        raise NotApplicableError("promised waits are not stored in Parquet; save the model as .npz, .toml or .json")
    if problem.spend:
        raise NotApplicableError("models in Parquet spend at most the budget; save the model as .npz, .toml or .json")
    tables = problem.tables
    labels = {(states, actions) for _, states, actions in tables.labels}
    alike = (tables.num_states == tables.num_states[0]).all() and (tables.num_actions == tables.num_actions[0]).all()
    common = next(iter(labels)) if len(labels) == 1 and alike else ((), ())
    with TableWriter(path, metadata_of(problem, *common)) as writer:
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
            writer.write_columns(columns)


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
    k = np.full(len(tables), tables.usage.shape[-1])
    by_state = bool(tables.usage_by_state.any())
    columns["usage"] = list_column(tables.usage, (s, a, k)) if by_state else list_column(tables.usage[:, 0], (a, k))
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
            writer.write_columns(
                {
                    name: pa.array(column[part]) if isinstance(column, np.ndarray) else column[part]
                    for name, column in (own | dict(columns)).items()
                }
            )
