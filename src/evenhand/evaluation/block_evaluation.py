"""Evaluation of a policy on an opened Parquet model, block by block.

Values are means over episodes per row, because the arms of a row are alike to the policy. Sums over rows are added in
the order of the blocks. The error of the welfare is that of the delta method, without a correction near kinks.
"""

import math
import os

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import InvalidInputError, OutOfDomainError
from evenhand.evaluation.block_simulation import BlockPolicy, BlockSimulation
from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.standard_errors import standard_error, standard_errors
from evenhand.kernels.compilation import work_clock
from evenhand.model.objective import Objective
from evenhand.model.parquet import StoredArms, write_rows
from evenhand.model.welfare import DEFAULT, Welfare, as_welfare
from evenhand.parallel import Pool
from evenhand.solvers.blocks import BLOCK
from evenhand.typing import Floats, Progress, Rng


def evaluate_blocks(
    model: StoredArms,
    policy: BlockPolicy,
    welfare: str | Welfare | None = None,
    num_episodes: int = 10,
    horizon: int | None = None,
    rng: Rng = 0,
    backend: str | Pool | None = None,
    progress: Progress | None = None,
    weights: Floats | None = None,
    out: "str | os.PathLike[str] | None" = None,
    block_rows: int = BLOCK,
) -> Evaluation:
    """Simulate a policy on a model that stays in its files.

    Args:
        model: the arms.
        policy: what is simulated.
        welfare: as text or object; by default the model's.
        num_episodes: number of episodes.
        horizon: steps per episode; by default the criterion's.
        rng: seed or generator.
        backend: where blocks are computed; results do not depend on it.
        progress: called with the current activity and the completed share.
        weights: (row,) welfare weights of the relaxation, for fair-index.
        out: a file `.parquet` or a folder for value, error and share of time served per row.
        block_rows: rows per block.
    """
    start = work_clock()
    if model.criterion.is_average and horizon is None:
        raise InvalidInputError(
            "horizon: required for an opened model under the criterion average; several times as many steps as the "
            "slowest arm takes to forget its first state"
        )
    time_weights = model.criterion.time_weights(model.criterion.simulated_steps(horizon))
    total = float(time_weights.sum())
    with Pool(backend) as pool:
        if pool.name.startswith(("threads", "processes")):
            text = f"the returns of {num_episodes} episodes of {model.num_arms} arms"
            check_memory(16.0 * num_episodes * model.num_arms, text, "Use fewer episodes, or a cluster.")
        simulation = BlockSimulation(model, policy, pool, weights, block_rows=block_rows)
        used = simulation.run(num_episodes, time_weights, rng, progress)
        moments = np.concatenate(simulation.ask("moments"), axis=1)
        objective = objective_of(model, welfare)
        values, served = moments[0], moments[2] / total
        scale = num_episodes * (num_episodes - 1)
        errors = np.sqrt(moments[[1, 3]] / scale) if scale else np.full((2, len(values)), math.inf)
        shares = objective.spread(objective.sizes / objective.sizes.sum())
        member_errors = errors[0] if objective.groups is None else _group_errors(simulation, objective)
        result = Evaluation(
            welfare=objective(values),
            welfare_stderr=_welfare_error(simulation, objective, values),
            plug_in_welfare=None,
            mean=float(shares @ values),
            mean_stderr=_error(simulation, shares),
            unit_values=values,
            unit_stderr=errors[0],
            unit_served=served,
            unit_served_stderr=errors[1] / total,
            member_stderr=member_errors,
            by_type=True,
            budget_used=np.where(
                model.budget > 0, used / np.where(model.budget > 0, model.budget * total, 1.0), 0.0
            ).mean(0),
            exact=False,
            truncation_bound=_truncation(model, len(time_weights), simulation.largest_reward),
            num_episodes=num_episodes,
            horizon=len(time_weights),
            seconds=work_clock() - start,
            objective=objective,
            problem=model,  # type: ignore[arg-type]  # every row is a type
        )
    if out is not None:
        write_rows(out, model, {"value": values, "stderr": errors[0], "served": served})
    return result


def objective_of(model: StoredArms, welfare: str | Welfare | None) -> Objective:
    """The objective with one value per row."""
    groups = model.group_of_type if model.over == "groups" else None
    number = model.num_arms if groups is None else len(model.group_names)
    chosen = as_welfare(welfare if welfare is not None else model.welfare or DEFAULT, number)
    # Simulated policies are not held to floors.
    return Objective(model.criterion, chosen, model.row_counts, groups, np.broadcast_to(0.0, model.num_rows))


def _welfare_error(simulation: BlockSimulation, objective: Objective, values: Floats) -> float:
    try:
        return _error(simulation, objective.supergradient(values))
    except OutOfDomainError:
        return math.inf


def _error(simulation: BlockSimulation, weights: Floats) -> float:
    """Standard error of a weighted sum of values, from its spread over the episodes."""
    each = [(part,) for part in np.split(weights, simulation.cuts[1:-1])]
    return standard_error(np.sum(simulation.ask("weighted", each=each), axis=0))


def _group_errors(simulation: BlockSimulation, objective: Objective) -> Floats:
    """(group,) standard errors of the values of groups."""
    assert objective.groups is not None
    parts = zip(
        *(np.split(array, simulation.cuts[1:-1]) for array in (objective.shares, objective.groups)), strict=True
    )
    each = [(*part, len(objective.sizes)) for part in parts]
    return standard_errors(np.sum(simulation.ask("weighted", each=each), axis=0))


def _truncation(model: StoredArms, steps: int, largest_reward: float) -> float | None:
    beyond = model.criterion.beyond(steps)
    return None if beyond is None else beyond * largest_reward
