"""Where the arms are, and how a shard of them is built: from arrays in memory, or from rows of a table.

A block is BLOCK arms by their place in the whole, whatever the shards; padding is that of its own arms. A shard is
whole blocks, so that every number is computed in the same way, however the blocks are shared out.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from evenhand._version import __version__
from evenhand.checks import check_memory
from evenhand.errors import NotApplicable
from evenhand.execution import Recipe
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.parquet.reading import Shard as RowsOfTable
from evenhand.model.parquet.reading import StoredArms, read_shard
from evenhand.solvers.fluid.frontiers import CHUNK, FluidModel
from evenhand.solvers.sharded.rows import RowCounts
from evenhand.solvers.sharded.shard import Shard
from evenhand.solvers.single_arm import check_communicating
from evenhand.typing import Floats, Ints

BLOCK = CHUNK
"""Arms of a block; part of a result, as rounding goes by it."""


@dataclass(frozen=True, eq=False)
class Shared:
    """What all blocks have in common."""

    budget: Floats
    """(resource,) what is available at every step."""

    criterion: Criterion
    """What rewards over time are worth."""

    whole: int
    """How many rows there are in all."""

    block: int
    """How many rows a block has."""


class Source(Protocol):
    """Arms, by rows that stand for one or several of them."""

    @property
    def shared(self) -> Shared:
        """What all blocks have in common."""
        ...

    @property
    def counts(self) -> RowCounts:
        """How many arms each row stands for."""
        ...

    @property
    def signature(self) -> str:
        """A digest by which a checkpoint knows its problem."""
        ...

    def recipe(self, start: int, stop: int) -> Recipe[Shard]:
        """How the shard of some rows is built.

        Args:
            start: the first row, that of a block.
            stop: the row after the last one.
        """
        ...


def build(tables: ArmTables, counts: Ints, shared: Shared) -> Shard:
    """A shard of rows that begin with a block.

    Args:
        tables: one arm a row.
        counts: (row,) how many arms each stands for.
        shared: what all blocks have in common.
    """
    blocks = []
    for start in range(0, len(tables), shared.block):
        part = slice(start, start + shared.block)
        types = _trimmed(tables, part).within(shared.budget)
        block = FluidModel(types, counts[part], shared.budget, shared.criterion, types.initial, part_of=shared.whole)
        if shared.criterion.is_average:
            check_communicating(types, block.allowed)
        blocks.append(block)
    return Shard(blocks)


def _trimmed(tables: ArmTables, part: slice) -> ArmTables:
    """Some arms, without padding that none of them needs and without labels."""
    s, a = int(tables.num_states[part].max()), int(tables.num_actions[part].max())
    return ArmTables(
        transitions=tables.transitions[part, :s, :a, :s],
        rewards=tables.rewards[part, :s, :a],
        usage=tables.usage[part, :s, :a],
        initial=tables.initial[part, :s],
        num_states=tables.num_states[part],
        num_actions=tables.num_actions[part],
    )


@dataclass(frozen=True, eq=False)
class FromArrays:
    """A recipe: the arrays themselves."""

    tables: ArmTables
    counts: Ints
    shared: Shared

    def __call__(self) -> Shard:
        """The shard."""
        return build(self.tables, self.counts, self.shared)


@dataclass(frozen=True, eq=False)
class InMemory:
    """The types of a problem in memory."""

    problem: CoupledMDP
    block: int = BLOCK

    def __post_init__(self) -> None:
        if self.problem.over == "groups" or self.problem.has_floors:
            raise NotApplicable(REFUSED)

    @property
    def shared(self) -> Shared:
        """What all blocks have in common."""
        problem = self.problem
        return Shared(problem.budget, problem.criterion, problem.num_types, self.block)

    @cached_property
    def counts(self) -> RowCounts:
        """Arms of each type."""
        return RowCounts.of(self.problem.type_counts)

    @cached_property
    def signature(self) -> str:
        """A digest of the arrays."""
        types, digest = self.problem.types, hashlib.sha256(_header(self.shared))
        for table in (types.transitions, types.rewards, types.usage, types.initial, self.problem.type_counts):
            digest.update(np.ascontiguousarray(table).data)
        return digest.hexdigest()

    def recipe(self, start: int, stop: int) -> Recipe[Shard]:
        """The arrays of some rows.

        Args:
            start: the first row, that of a block.
            stop: the row after the last one.
        """
        part = slice(start, stop)
        types = self.problem.types
        own = replace(
            types,
            transitions=types.transitions[part],
            rewards=types.rewards[part],
            usage=types.usage[part],
            initial=types.initial[part],
            num_states=types.num_states[part],
            num_actions=types.num_actions[part],
            labels=(),
            usable=None,
        )
        return FromArrays(own, np.array(self.counts[part]), self.shared)


@dataclass(frozen=True, eq=False)
class FromRows:
    """A recipe: rows of a table, read when and where the shard is built."""

    rows: RowsOfTable
    shared: Shared

    def __call__(self) -> Shard:
        """The shard."""
        arms = read_shard(self.rows)
        if (arms.floors > 0).any():
            raise NotApplicable(REFUSED)
        return build(arms.expanded(), arms.counts, self.shared)


@dataclass(frozen=True, eq=False)
class InTable:
    """A table of arms that stays where it is."""

    stored: StoredArms
    block: int = BLOCK

    def __post_init__(self) -> None:
        if self.stored.over == "groups":
            raise NotApplicable(REFUSED)

    @property
    def shared(self) -> Shared:
        """What all blocks have in common."""
        return Shared(self.stored.budget, self.stored.criterion, self.stored.num_rows, self.block)

    @property
    def counts(self) -> RowCounts:
        """How many arms each row stands for."""
        return RowCounts(self.stored.num_rows, self.stored.ends)

    @cached_property
    def signature(self) -> str:
        """A digest of the header, and of the names, rows, sizes and times of the files."""
        digest = hashlib.sha256(_header(self.shared))
        paths = [part.path for part in self.stored.parts] + ([self.stored.types] if self.stored.types else [])
        for path in map(Path, paths):
            about = path.stat()
            digest.update(f"{path.name}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def recipe(self, start: int, stop: int) -> Recipe[Shard]:
        """Which rows of which files.

        Args:
            start: the first row, that of a block.
            stop: the row after the last one.
        """
        return FromRows(self.stored.shard(start, stop), self.shared)


REFUSED = "welfare over groups and floors are not solved by shards: read the model into memory, or leave them out"


def _header(shared: Shared) -> bytes:
    told = (__version__, shared.budget.tolist(), shared.criterion.name, shared.criterion.factor, shared.whole)
    return repr((*told, shared.block)).encode()


def check_driver(num_rows: int) -> None:
    """Refuse what the driver could not sort.

    Args:
        num_rows: how many rows there are.
    """
    check_memory(32.0 * num_rows, f"the values and weights of {num_rows} rows", "Use rows that stand for several arms.")
