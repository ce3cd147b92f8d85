"""`solve_arms`: the fair relaxation of a table of arms by shards, and the plan that it gives.

The relaxation has a bound that no policy exceeds, prices of the resources and, for every row, a value and a weight. The
plan is `fair-index` by these weights and prices; it is written as a table, and played by `evaluate_arms`. What it is
worth is not played here: with a few episodes of millions of different arms, the noise of each would be taken for
inequality between them.
"""

import os
from dataclasses import dataclass, field

import numpy as np

from evenhand.display import Shown, counted
from evenhand.errors import NotApplicable
from evenhand.evaluation.shards.naming import named
from evenhand.evaluation.shards.plans import ArmsPlan, plan_metadata
from evenhand.evaluation.shards.scoring import Rule
from evenhand.execution.protocol import Executor
from evenhand.model.criterion import Criterion
from evenhand.model.parquet.reading import BATCH_ROWS, StoredArms, open_arms
from evenhand.model.parquet.writing import TableWriter
from evenhand.model.welfare import DEFAULT, Welfare, as_welfare
from evenhand.solvers.sharded import ShardedSolution, solve_sharded
from evenhand.typing import Floats, Progress


@dataclass(frozen=True)
class ArmsSolution(Shown):
    """The relaxation of a table of arms, and the plan that it gives."""

    upper_bound: float
    """No policy has more welfare."""

    relaxed_welfare: float
    """The welfare of the relaxation's own solution, which keeps the budget in expectation only."""

    relaxed_gap: float
    """(upper_bound - relaxed_welfare) / |upper_bound|: how well the relaxation is solved."""

    values: Floats = field(repr=False)
    """(row,) the value of an arm in the relaxation."""

    weights: Floats = field(repr=False)
    """(row,) what a unit of value of one arm is worth in welfare."""

    prices: dict[str, float]
    """What one unit more of each resource a step is worth in welfare, by the relaxation."""

    plan: ArmsPlan = field(repr=False)
    """The policy `fair-index` by these weights and prices."""

    welfare: Welfare
    """What was maximised."""

    solution: ShardedSolution = field(repr=False)
    """What the search by shards found, with its rounds and shards."""

    seconds: float
    """Wall time."""

    def __repr__(self) -> str:
        arms = counted(self.plan.arms.num_arms, "arm")
        bounds = f"at most {self.upper_bound:.6g}, relaxed {self.relaxed_welfare:.6g}"
        return f"ArmsSolution({self.welfare.name} {bounds}, {arms})"


def solve_arms(
    arms: "StoredArms | str | os.PathLike[str]",
    welfare: str | Welfare | None = None,
    on: str | Executor | None = None,
    tolerance: float = 1e-4,
    out: "str | os.PathLike[str] | None" = None,
    criterion: str | Criterion | None = None,
    checkpoint: "str | os.PathLike[str] | None" = None,
    progress: Progress | None = None,
    num_shards: int | None = None,
) -> ArmsSolution:
    """Solve the fair relaxation of a table of arms by shards, and make a plan of it.

    Args:
        arms: the table, or its file or folder.
        welfare: what is maximised, as text or object; the table's own when absent.
        on: where to run: `local`, `local:2`, `ray`, `ray://host:port`, or an executor; this process when absent.
        tolerance: the relative gap of the relaxation to stop at.
        out: a file `.parquet` or a folder for the plan: row, name, value and weight; `evaluate_arms` and `act_on_arms`
            take it.
        criterion: `discounted` or `average`; the table's own when absent.
        checkpoint: a file in which it is kept how far the search has come, and from which it goes on.
        progress: called with what is being done and the share done.
        num_shards: into how many parts the table is cut; as many as are good when absent.

    Raises:
        NotApplicable: the criterion is a finite horizon, or the welfare or model is not solved by shards.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=10, budget=2), "machines.parquet")
        >>> found = eh.solve_arms("machines.parquet", "gini:2", out="plan.parquet")
        >>> found.relaxed_gap <= 1e-4, found.values.shape
        (True, (1,))
    """
    table = (arms if isinstance(arms, StoredArms) else open_arms(arms)).under(criterion)
    if table.criterion.num_steps is not None:
        raise NotApplicable("a finite horizon is not solved by shards; load the model, and solve it in memory")
    weighs = as_welfare(welfare if welfare is not None else table.welfare or DEFAULT, table.num_arms)
    told = None if progress is None else (lambda rounds, gap: progress(f"round {rounds}, gap {gap:.2g}", 0.0))
    kept = None if checkpoint is None else os.fspath(checkpoint)
    found = solve_sharded(table, weighs, on, tolerance, num_shards, kept, told)
    rule = Rule("fair-index", tuple(found.prices.tolist()), float(found.weights.max()))
    plan = ArmsPlan(rule, table, found.weights)
    if out is not None:
        _write(out, plan, found.values)
    worth = (found.prices * table.criterion.total).tolist()
    return ArmsSolution(
        found.upper_bound,
        found.welfare,
        found.gap,
        found.values,
        found.weights,
        dict(zip(table.resource_names, worth, strict=True)),
        plan,
        weighs,
        found,
        found.seconds,
    )


def _write(out: "str | os.PathLike[str]", plan: ArmsPlan, values: Floats) -> None:
    """The plan as a table, row by row."""
    import pyarrow as pa

    assert plan.weights is not None
    names = named(plan.arms)
    with TableWriter(out, plan_metadata(plan.rule, plan.arms)) as writer:
        for at in range(0, len(values), BATCH_ROWS):
            rows = slice(at, at + BATCH_ROWS)
            figures = {"value": pa.array(values[rows]), "weight": pa.array(np.ascontiguousarray(plan.weights[rows]))}
            writer.write(names.take(len(figures["value"])) | figures)
