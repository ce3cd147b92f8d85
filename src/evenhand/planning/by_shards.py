"""A plan for a table of arms: the fair fluid relaxation by shards, its certificate, and who is served by it.

The relaxation gives prices, and every row a weight: what a unit of its value is worth in welfare. `fair-index` serves
by them. The table that is written has the value, in the relaxation, and the weight of every row, and is a plan that
`act_on_arms` and `evaluate_arms` take. The welfare that is told is that of the relaxation, and the upper bound is one
on every policy; what the plan itself is worth, `evaluate_arms` plays.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenhand.display import Shown, heard, shows_bar
from evenhand.evaluation.shards.naming import named
from evenhand.evaluation.shards.plans import plan_metadata
from evenhand.evaluation.shards.scoring import Rule
from evenhand.execution import Executor, opened
from evenhand.model.parquet.reading import BATCH_ROWS, StoredArms, open_arms
from evenhand.model.parquet.writing import TableWriter
from evenhand.model.welfare import DEFAULT, Welfare, as_welfare, check_welfare, is_named
from evenhand.solvers.fluid.programs import Rounds
from evenhand.solvers.sharded import ShardedSolution, solve_sharded
from evenhand.typing import Floats, Progress


@dataclass(frozen=True, eq=False)
class ArmsSolution(Shown):
    """The fair relaxation of a table of arms, solved by shards."""

    arms: StoredArms
    """The table."""

    weighed_by: Welfare
    """The welfare."""

    welfare: float
    """Welfare of the relaxation's solution."""

    upper_bound: float
    """No policy of the coupled problem has more welfare."""

    gap: float
    """(upper_bound - welfare) / |upper_bound|."""

    values: Floats
    """(row,) value of an arm in the relaxation."""

    weights: Floats
    """(row,) what a unit of value of one arm is worth in welfare."""

    prices: dict[str, float]
    """What one unit more a step of each resource is worth in welfare."""

    budget_used: list[float]
    """The share of the budget of each resource that the relaxation uses; 0 where there is none of it."""

    rounds: int
    """How many prices were tried."""

    on: str
    """Where it ran."""

    num_shards: int
    """How many shards there were; results do not depend on it."""

    num_replaced: int
    """Workers that died on the way and were replaced; results do not depend on them."""

    seconds: float
    """Wall time."""

    def __repr__(self) -> str:
        return (
            f"ArmsSolution({self.weighed_by.name} {self.welfare:.6g}, at most {self.upper_bound:.6g}, "
            f"gap {100 * self.gap:.3f} %, {self.arms.num_arms} arms)"
        )


@shows_bar
def solve_arms(
    arms: "StoredArms | str | os.PathLike[str]",
    welfare: str | Welfare | None = None,
    on: str | Executor | None = None,
    out: "str | os.PathLike[str] | None" = None,
    tolerance: float = 1e-4,
    progress: Progress | bool | None = None,
    checkpoint: "str | os.PathLike[str] | None" = None,
    num_shards: int | None = None,
) -> ArmsSolution:
    """Solve the fair fluid relaxation of a table of arms by shards; nobody reads it whole.

    Results are the same to the last bit for any number of shards, any executor, and whoever dies on the way.

    Args:
        arms: the table, or its file or folder.
        welfare: what is maximised, as text or object: the mean, rank-weighted, a power mean, leximin with one resource;
            the table's own when absent.
        on: where to run: `local`, `local:2`, `ray`, `ray://host:port`, or an executor; this process when absent.
        out: a file `.parquet` or a folder for row, name, value and weight; it is also a plan, for `act_on_arms`.
        tolerance: the relative gap to stop at.
        progress: True shows a bar; a function is called with the current task and the share done.
        checkpoint: a file that keeps how far the search has come; where it is there, the search goes on from it.
        num_shards: how many shards; as many as keep all workers busy when absent.

    Raises:
        NotApplicable: the welfare, or what the table asks for, is not solved by shards.
        OutOfDomain: the welfare needs positive values, and the budget does not reach for all arms.
        ClusterError: the workers cannot be reached, run another version, or die again and again.
        NotConverged: the gap did not close.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.random_coupled(num_arms=60, num_types=60, budget=6), "fleet.parquet")
        >>> found = eh.solve_arms("fleet.parquet", "gini:half=0.75", num_shards=3, out="plan.parquet")
        >>> found.gap <= 1e-4, len(found.weights)
        (True, 60)
    """
    table = arms if isinstance(arms, StoredArms) else open_arms(arms)
    # Asked for, else the table's own, else the default.
    weighed_by = as_welfare(welfare if welfare is not None else table.welfare or DEFAULT, table.num_arms)
    if not is_named(weighed_by):  # rank-weighted or a power mean: what holds for some values holds for all
        check_welfare(weighed_by, table.num_arms).raise_if_any()
    told = heard(progress)
    with opened(on) as executor:
        kept = None if checkpoint is None else Path(checkpoint)
        found = solve_sharded(table, weighed_by, executor, tolerance, num_shards, kept, _as_rounds(told, tolerance))
        name = executor.name
    if out is not None:
        _write(table, found, out)
    total = table.criterion.total
    return ArmsSolution(
        arms=table,
        weighed_by=weighed_by,
        welfare=found.welfare,
        upper_bound=found.upper_bound,
        gap=found.gap,
        values=found.values,
        weights=found.weights,
        # The search prices a unit at one moment; a unit at every step is worth that for all time.
        prices=dict(zip(table.resource_names, (found.prices * total).tolist(), strict=True)),
        # Both over all time.
        budget_used=_shares(found.use, table.budget * total),
        rounds=found.rounds,
        on=name,
        num_shards=found.num_shards,
        num_replaced=found.num_replaced,
        seconds=found.seconds,
    )


def _as_rounds(told: Progress | None, tolerance: float) -> Rounds | None:
    """Rounds with gaps, as words and a share: gaps fall by about a factor a round."""
    if told is None:
        return None

    def tell(number: int, gap: float) -> None:
        # On a logarithmic scale, for gaps fall by factors; the 1 + keeps the share above 0 where the gap is large.
        share = 0.0 if not np.isfinite(gap) else min(1.0, np.log(1 + 1 / max(gap, 1e-300)) / np.log(1 + 2 / tolerance))
        told(f"prices, round {number}", share)

    return tell


def _shares(use: Floats, allowance: Floats) -> list[float]:
    return [float(used / most) if most > 0 else 0.0 for used, most in zip(use, allowance, strict=True)]


def _write(table: StoredArms, found: ShardedSolution, out: "str | os.PathLike[str]") -> None:
    import pyarrow as pa

    rule = Rule("fair-index", tuple(found.prices.tolist()), float(found.weights.max()))
    names = named(table)
    with TableWriter(out, plan_metadata(rule, table)) as writer:
        # In batches, as the table is read: nobody holds all rows as Arrow arrays.
        for start in range(0, table.num_rows, BATCH_ROWS):
            part = slice(start, min(start + BATCH_ROWS, table.num_rows))
            columns = {"value": pa.array(found.values[part]), "weight": pa.array(found.weights[part])}
            writer.write(names.take(part.stop - part.start) | columns)
