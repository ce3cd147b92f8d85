"""Whittle indices of a table of arms, shard by shard, streamed to Parquet.

An arm's index is a matter of the arm alone, so shards are cells of work: they may end in any order, and are written in
the order of the rows. The driver holds those that wait for an earlier one.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evenhand.display import Shown, counted, heard, shows_bar
from evenhand.errors import ClusterError, NotApplicable
from evenhand.evaluation.shards.naming import named
from evenhand.evaluation.shards.plans import plan_metadata
from evenhand.evaluation.shards.scoring import Rule, own_problem
from evenhand.execution.places import opened
from evenhand.execution.protocol import Executor, Lost
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.parquet.reading import Shard, StoredArms, open_arms, read_shard
from evenhand.model.parquet.schema import Header
from evenhand.model.parquet.writing import TableWriter, list_column
from evenhand.policies.index import indices_of, num_choices
from evenhand.typing import Bools, Floats, Indices, Ints, Progress

ROWS_AT_ONCE = 50_000
"""Rows of a cell of work."""


class Part(NamedTuple):
    """The indices of some rows."""

    indices: Floats
    """(row, state)"""

    indexable: Bools
    """(row,)"""

    refused: Bools
    """(row,) where the question has no answer: a mean that depends on the start."""

    num_states: Ints
    """(row,)"""

    active: Indices
    """(row, state) the action that is not idle."""


@dataclass(frozen=True)
class ArmsIndices(Shown):
    """What came of a table's indices."""

    num_rows: int
    """How many rows there are."""

    num_indexable: int
    """How many of them are indexable."""

    num_refused: int
    """For how many indices are not defined."""

    first_without: tuple[int, ...]
    """The first rows without an index, counted from 1."""

    low: float
    """The lowest index."""

    high: float
    """The highest index."""

    criterion: str
    """What values are."""

    def __repr__(self) -> str:
        return f"ArmsIndices({counted(self.num_rows, 'row')}, {self.num_indexable} indexable, {self.criterion})"


@shows_bar
def index_arms(
    arms: "StoredArms | str | os.PathLike[str]",
    out: "str | os.PathLike[str] | None" = None,
    on: str | Executor | None = None,
    criterion: str | Criterion | None = None,
    progress: Progress | bool | None = None,
    rows: int = ROWS_AT_ONCE,
) -> ArmsIndices:
    """The Whittle indices of every row of a table of arms, written to Parquet.

    Args:
        arms: the table, or its file or folder.
        out: a file `.parquet` or a folder for row, name, indexable and indices; it is also a plan, for `act_on_arms`.
        on: where to run: `local`, `local:2`, `ray`, `ray://host:port`, or an executor; this process when absent.
        criterion: `discounted` or `average`; the table's own when absent.
        progress: True shows a bar; a function is called now and then with what is being done and the share done.
        rows: of a cell of work.

    Raises:
        NotApplicable: some row has other than two actions, or the criterion is a finite horizon.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=5), "machines.parquet")
        >>> found = eh.index_arms("machines.parquet", out="indices.parquet")
        >>> found, round(found.high, 4)
        (ArmsIndices(1 row, 1 indexable, discounted), 5.0112)
    """
    table = (arms if isinstance(arms, StoredArms) else open_arms(arms)).with_criterion(criterion)
    if table.criterion.num_steps is not None:
        raise NotApplicable("indices of a finite horizon differ by the step: load the model, and ask `indices`")
    number = -(-table.num_rows // rows)
    told, sums = heard(progress), _Sums()
    with opened(on) as executor:
        parts = _in_order(executor, table, number)
        if out is None:
            for place, part in enumerate(parts):
                sums.add(part)
                _tell(told, place, number)
        else:
            with TableWriter(out, plan_metadata(Rule("whittle"), table)) as writer:
                names = named(table)
                for place, part in enumerate(parts):
                    sums.add(part)
                    writer.write(names.take(len(part.indexable)) | _columns(part))
                    _tell(told, place, number)
    return sums.told(table)


def _tell(told: Progress | None, place: int, number: int) -> None:
    if told is not None:
        told("indices", (place + 1) / number)


def _in_order(executor: Executor, table: StoredArms, number: int) -> Iterator[Part]:
    """The parts of all cells, in the order of the rows."""
    waiting: dict[int, Part] = {}
    place = 0
    for came in executor.run(partial(_indices, table.header), table.shards(number)):
        if came is None:
            continue
        if isinstance(came[1], Lost):
            raise ClusterError(f"the indices of a shard were lost: {came[1].words}")
        waiting[came[0]] = came[1]
        while place in waiting:
            yield waiting.pop(place)
            place += 1


def _indices(header: Header, shard: Shard) -> Part:
    """The indices of the rows of a shard."""
    arms = read_shard(shard)
    tables = arms.tables
    problem = own_problem(CoupledMDP(tables, header.budget, header.discount, criterion=header.criterion))
    choices = num_choices(problem)[arms.kinds]
    if (odd := np.flatnonzero(choices != 2)).size:
        row = shard.first_row + int(odd[0])
        raise NotApplicable(f"Whittle indices are for arms with two actions; row {row + 1} has {choices[odd[0]]}")
    found = indices_of(problem)
    refused = np.zeros(len(tables), dtype=np.bool_)
    refused[list(found.result.refused)] = True
    kinds = arms.kinds
    states = tables.num_states.astype(np.int64)
    return Part(found.indices[kinds], found.indexable[kinds], refused[kinds], states[kinds], found.active[kinds])


def _columns(part: Part) -> dict[str, Any]:
    """The columns of some rows; null where there is no index, or no verdict."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = list_column(part.indices, (part.num_states,))
    missing = pa.nulls(len(lists), lists.type)
    return {
        "indexable": pa.array(part.indexable, mask=part.refused),
        "indices": pc.if_else(pa.array(part.indexable), lists, missing),
    }


class _Sums:
    """What is told of all rows together."""

    def __init__(self) -> None:
        self.rows = self.indexable = self.refused = 0
        self.without: list[int] = []
        self.low, self.high = np.inf, -np.inf

    def add(self, part: Part) -> None:
        """Note some rows."""
        bad = np.flatnonzero(~part.indexable)[: 5 - len(self.without)] + self.rows + 1
        self.without += bad.tolist()
        self.rows += len(part.indexable)
        self.indexable += int(part.indexable.sum())
        self.refused += int(part.refused.sum())
        real = (np.arange(part.indices.shape[1]) < part.num_states[:, None]) & part.indexable[:, None]
        self.low = min(self.low, float(part.indices[real].min(initial=np.inf)))
        self.high = max(self.high, float(part.indices[real].max(initial=-np.inf)))

    def told(self, table: StoredArms) -> ArmsIndices:
        """All of it."""
        name = table.criterion.name
        return ArmsIndices(self.rows, self.indexable, self.refused, tuple(self.without), self.low, self.high, name)
