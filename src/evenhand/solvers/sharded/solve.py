"""`solve_sharded`: the fair fluid relaxation, wherever its arms are and wherever the work runs."""

import hashlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from evenhand.errors import InvalidInput, NotApplicable
from evenhand.execution import Executor, opened
from evenhand.model.coupled import CoupledMDP
from evenhand.model.parquet.reading import StoredArms
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, as_welfare, is_lexicographic, is_mean
from evenhand.solvers.fluid.programs import Rounds, as_ranked
from evenhand.solvers.sharded.search import (
    Asked,
    LeximinSearch,
    MeanSearch,
    PowerSearch,
    ShardedSolution,
    ShardSearch,
)
from evenhand.solvers.sharded.sources import InMemory, InTable, Source, check_driver
from evenhand.typing import Ints

SHARD_ROWS = 1 << 18
"""Rows of a shard, at the most, unless a number of shards is asked for: so much of an answer is on its way at once."""


def solve_sharded(
    arms: CoupledMDP | StoredArms | Source,
    welfare: str | Welfare,
    on: str | Executor | None = None,
    tolerance: float = 1e-4,
    num_shards: int | None = None,
    checkpoint: str | Path | None = None,
    progress: Rounds | None = None,
) -> ShardedSolution:
    """Solve the fair fluid relaxation by shards; results are the same to the last bit for any shards and executor.

    Args:
        arms: a problem in memory, or a table of arms (`open_arms`) of which every shard reads its rows.
        welfare: what is maximised, as text or object: the mean, rank-weighted, a power mean, leximin.
        on: where it runs: `local`, `local:2`, `ray`, `ray://host:port`, or an executor.
        tolerance: the relative gap to stop at.
        num_shards: how many shards; as many as keep all workers busy when absent.
        checkpoint: a file in which it is kept after every round how far the search has come; where it is there, the
            search goes on from it. It is removed at the end.
        progress: called each round with its number and the gap.

    Raises:
        NotApplicable: the welfare, or what the problem asks for, is not solved by shards.
        OutOfDomain: the welfare needs positive values, and the budget does not reach for all arms.
        ClusterError: the workers cannot be reached, run another version, or die again and again.
        NotConverged: the gap did not close.
    """
    source = source_of(arms)
    if not 0 < tolerance < 1:
        raise InvalidInput(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    check_driver(source.shared.whole)
    weighed_by = as_welfare(welfare, source.counts.num_arms)
    kind, weighed_by = _kind_of(weighed_by, source)
    kept = None if checkpoint is None else (Path(checkpoint), _signature(source, weighed_by, tolerance))
    with opened(on) as executor:
        asked = place(source, executor, num_shards)
        before = executor.num_replaced
        try:
            search = kind(asked, weighed_by, tolerance, progress, kept)
            solution = _run(search)
        finally:
            asked.shards.forget()
        if kept is not None:
            kept[0].unlink(missing_ok=True)
        return replace(solution, num_replaced=executor.num_replaced - before)


def source_of(arms: CoupledMDP | StoredArms | Source) -> Source:
    """Arms as a source of shards.

    Args:
        arms: a problem in memory, a table, or a source already.
    """
    if isinstance(arms, CoupledMDP):
        return InMemory(arms)
    return InTable(arms) if isinstance(arms, StoredArms) else arms


def _kind_of(welfare: Welfare, source: Source) -> tuple[type[ShardSearch], Welfare]:
    members = source.counts.num_arms
    if is_mean(welfare, members):
        return MeanSearch, as_ranked(welfare, members)
    if is_lexicographic(welfare) and len(source.shared.budget) == 1:
        return LeximinSearch, welfare
    if isinstance(welfare, RankWeighted) and not is_lexicographic(welfare):
        return ShardSearch, welfare
    if isinstance(welfare, PowerMean):
        return PowerSearch, welfare
    raise NotApplicable(
        f"{welfare.name} is not solved by shards, which is for the mean, Gini and other rank-weighted welfare, "
        "power means, and leximin with one resource; read the model into memory (load)"
    )


def _run(search: ShardSearch) -> ShardedSolution:
    if isinstance(search, LeximinSearch):
        return search.fill_levels()
    return search.by_bisection() if isinstance(search, PowerSearch) and search.single else search.by_cuts()


def _signature(source: Source, welfare: Welfare, tolerance: float) -> str:
    return hashlib.sha256(repr((source.signature, welfare.name, repr(welfare), tolerance)).encode()).hexdigest()


def place(source: Source, executor: Executor, num_shards: int | None = None) -> Asked:
    """The shards of a source on an executor.

    Args:
        source: the arms.
        executor: where they are to be.
        num_shards: how many; as many as keep all workers busy when absent.
    """
    cuts = _cuts(source, executor.num_workers, num_shards)
    recipes = [source.recipe(int(start), int(stop)) for start, stop in pairwise(cuts)]
    return Asked(executor.place(recipes), cuts, source.counts, source.shared)


def _cuts(source: Source, workers: int, num_shards: int | None) -> Ints:
    """(shard + 1,) the rows at which shards begin: those of blocks."""
    rows, block = source.shared.whole, source.shared.block
    blocks = -(-rows // block)
    if num_shards is None:
        each = -(-rows // workers)
        num_shards = workers * max(1, -(-each // SHARD_ROWS))
    if num_shards < 1:
        raise InvalidInput(f"num_shards: expected at least 1, got {num_shards}")
    begins = np.linspace(0, blocks, min(num_shards, blocks) + 1).astype(np.int64) * block
    return np.asarray(np.minimum(begins, rows))
