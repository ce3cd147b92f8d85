"""Opened Parquet models that are too large for memory: solve, evaluate, check, and plans as tables.

`solve` returns the fair fluid relaxation, whose dual prices and weights (the derivative of the welfare with respect to
the value of each row) define the index policy `fair-index`. A plan is a table with one row per row of the model:

    metadata  `evenhand`: JSON with version, plan: {policy, prices, criterion, budget}, model: its path
    columns   row, name; weight if the policy is fair-index; other results

`load_plan` reads it, and `act` decides one step for all arms of the model.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.display import Shown, counted
from evenhand.errors import Fault, InvalidInputError, NotApplicableError, TableError
from evenhand.evaluation.block_evaluation import BlockPolicy, RankedArms, evaluate_blocks, objective_of
from evenhand.evaluation.evaluate import Evaluation
from evenhand.model.arm import ROOM
from evenhand.model.io import Location, is_stored
from evenhand.model.objective import Objective
from evenhand.model.parquet import (
    BATCH_ROWS,
    KEY,
    MOST_FAULTS,
    VERSION,
    RowRange,
    StoredArms,
    TableWriter,
    list_column,
    needs_pyarrow,
    open_arms,
    write_rows,
)
from evenhand.model.welfare import Welfare, check_welfare, is_named
from evenhand.parallel import Pool, Report
from evenhand.planning.check import ResourceFacts
from evenhand.planning.policy_registry import find_policy
from evenhand.planning.task import SolveMethod, gap_share
from evenhand.policies.index import RowIndices
from evenhand.solvers.fluid import solve_blocks
from evenhand.typing import Floats, Indices, Progress, Rng

TOLERANCE = 1e-4
"""Default relative gap of the relaxation."""

SHOWN_VALUES = 200_000
"""Rows up to which the JSON form has the value of every row."""


# -- solve ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Relaxation(Shown):
    """The fair fluid relaxation of an opened model, and its index policy."""

    model: StoredArms
    """The model."""

    objective: Objective
    """The objective, with one value per row."""

    welfare: float
    """Welfare of the solution of the relaxation, which no policy need attain."""

    upper_bound: float
    """No policy has a larger welfare."""

    gap: float
    """Relative gap `(upper_bound - welfare) / |upper_bound|`."""

    values: Floats = field(repr=False)
    """(row,) value of an arm in the relaxation."""

    weights: Floats = field(repr=False)
    """(row,) derivative of the welfare with respect to the value of one arm."""

    prices: dict[str, float]
    """Dual price of one unit more of each resource per step."""

    budget_used: list[float]
    """Share of the budget of each resource that the relaxation uses."""

    policy: BlockPolicy
    """The index policy of these weights and prices."""

    rounds: int
    """Number of prices tried."""

    num_blocks: int
    """Number of blocks."""

    backend: str
    """Backend that computed the blocks; results do not depend on it."""

    seconds: float
    """Wall time."""

    method: str = "fluid"

    def __repr__(self) -> str:
        return (
            f"Relaxation({self.objective.welfare.name} {self.welfare:.6g}, at most {self.upper_bound:.6g}, "
            f"gap {100 * self.gap:.3f} %, {counted(self.model.num_arms, 'arm')})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; above SHOWN_VALUES rows without values."""
        return {
            "method": self.method,
            "criterion": self.model.criterion.name,
            "welfare": {
                "of": "relaxation",
                "name": self.objective.welfare.name,
                "value": self.welfare,
                "upper_bound": self.upper_bound,
                "gap": self.gap,
            },
            "values": self.values.tolist() if len(self.values) <= SHOWN_VALUES else None,
            "prices": self.prices,
            "budget_used": self.budget_used,
            "arms": self.model.num_arms,
            "rounds": self.rounds,
            "backend": self.backend,
            "seconds": {"solve": self.seconds},
        }

    def save(self, path: Location) -> None:
        """Write the value and weight of every row: a plan.

        Args:
            path: a file `.parquet` or a folder.
        """
        columns = {"value": self.values, "weight": self.weights}
        write_rows(path, self.model, columns, plan_metadata(self.policy, self.model))


def solve_stored(
    model: StoredArms,
    welfare: str | Welfare | None = None,
    method: SolveMethod = SolveMethod(),  # noqa: B008  # frozen
    progress: Report | None = None,
    backend: str | Pool | None = None,
) -> Relaxation:
    """Solve the fair fluid relaxation of an opened model, block by block.

    Args:
        model: arms without floors, with welfare over arms.
        welfare: the mean, rank-weighted, a power mean, or leximin with one resource; by default the model's.
        method: auto or fluid, with a tolerance; other settings need the model in memory and are refused.
        progress: called with the current activity and the completed share.
        backend: where blocks are computed; results do not depend on it.
    """
    others = {"candidates": method.candidates, "seconds": method.seconds, "redraw_every": method.redraw_every}
    given = [name for name, value in others.items() if value]
    if given or method.name not in ("auto", "fluid"):
        raise NotApplicableError(f"{(given or [method.name])[0]}: not for a large opened model; read it (load)")
    if model.over == "groups" or model.has_floors:
        raise NotApplicableError("welfare over groups and floors are solved in memory: read the model (load)")
    tolerance = TOLERANCE if method.tolerance == SolveMethod().tolerance else method.tolerance
    objective = objective_of(model, welfare)
    if not is_named(objective.welfare):  # rank-weighted or a power mean: valid for some values is valid for all
        check_welfare(objective.welfare, model.num_arms).raise_if_any()

    def tell(number: int, gap: float) -> None:
        if progress is not None:
            progress(f"prices, round {number}", gap_share(gap, tolerance))

    with Pool(backend) as pool:
        found = solve_blocks(model, objective.welfare, pool, tolerance, tell)
    total = model.criterion.total
    allowance = model.budget * total
    shared = ("welfare", "upper_bound", "gap", "values", "weights", "rounds", "num_blocks", "seconds")
    return Relaxation(
        model=model,
        objective=objective,
        prices=dict(zip(model.resource_names, (found.prices * total).tolist(), strict=True)),
        budget_used=np.where(allowance > 0, found.use / np.where(allowance > 0, allowance, 1.0), 0.0).tolist(),
        policy=BlockPolicy("fair-index", tuple(found.prices.tolist()), found.weights),
        backend=pool.name,
        **{name: getattr(found, name) for name in shared},
    )


# -- evaluate ---------------------------------------------------------------------------------------------------------


def evaluate_stored(
    model: StoredArms,
    policy: Any,
    welfare: str | Welfare | None = None,
    num_episodes: int = 10,
    horizon: int | None = None,
    rng: Rng = 0,
    progress: Progress | None = None,
    backend: str | Pool | None = None,
) -> Evaluation:
    """Simulate a policy on an opened model, block by block.

    Args:
        model: the arms, under the criterion and over the members of the evaluation.
        policy: whittle, random or never-act; a relaxation or a plan of the model, or the file of one.
        welfare: as text or object; by default the model's.
        num_episodes: number of episodes.
        horizon: steps per episode; by default the criterion's.
        rng: seed or generator.
        progress: called with the current activity and the completed share.
        backend: where blocks are computed; results do not depend on it.
    """
    if isinstance(policy, (str, os.PathLike)) and is_stored(policy):
        policy = load_table_plan(policy, model.path)
    if isinstance(policy, (Relaxation, TablePlan)):
        policy = policy.policy
    elif isinstance(policy, str):
        policy = BlockPolicy(find_policy(policy).name)
    if not isinstance(policy, BlockPolicy):
        raise NotApplicableError(
            "policy: a large opened model takes whittle, random, never-act, or a relaxation or plan of that model; "
            "read the model into memory for others"
        )
    return evaluate_blocks(model, policy, welfare, num_episodes, horizon, rng, backend, progress)


# -- check ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StoredCheck(Shown):
    """Facts of a sound opened model."""

    model: StoredArms
    """The model."""

    states: tuple[int, int]
    """Fewest and most states of an arm."""

    actions: tuple[int, int]
    """Fewest and most actions of an arm."""

    rewards: tuple[float, float]
    """Lowest and highest reward."""

    resources: tuple[ResourceFacts, ...]
    """Budget and largest possible use of each resource."""

    num_unserved: int
    """Arms that no action within the budget serves."""

    notes: tuple[str, ...]
    """Oddities."""

    def __repr__(self) -> str:
        return f"StoredCheck({counted(self.model.num_arms, 'arm')}, sound)"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        model = self.model
        return {
            "model": model.path,
            "sound": True,
            "arms": model.num_arms,
            "rows": model.num_rows,
            "criterion": model.criterion.name,
            "discount": model.discount,
            "over": model.over,
            "states": list(self.states),
            "actions": list(self.actions),
            "rewards": list(self.rewards),
            "resources": [asdict(resource) for resource in self.resources],
            "unserved": self.num_unserved,
            "notes": [{"message": note} for note in self.notes],
        }


def check_stored(model: StoredArms, progress: Report | None = None, backend: str | Pool | None = None) -> StoredCheck:
    """Read an opened model once and return its facts.

    Args:
        model: the model.
        progress: called with the current activity and the completed share.
        backend: where rows are read.

    Raises:
        TableError: with every fault up to a limit, each with its file and row.
    """
    starts = range(0, model.num_rows, BATCH_ROWS)
    tasks = [(model.row_reader(row, min(row + BATCH_ROWS, model.num_rows)), model.budget) for row in starts]
    with Pool(backend) as pool:
        parts = pool.map(_facts, tasks, [f"rows from {row}" for row in starts], progress)
    if faults := [fault for part in parts if isinstance(part, list) for fault in part]:
        if len(faults) > MOST_FAULTS:
            faults[MOST_FAULTS:] = [Fault("", f"... and perhaps more: reading ended at {MOST_FAULTS} faults")]
        raise TableError(faults, model.path)
    lows, highs, used, unserved, normalised = zip(*parts, strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    resources = tuple(map(ResourceFacts, model.resource_names, model.budget.tolist(), np.sum(used, axis=0).tolist()))
    notes = [
        f"{one.name}: the budget never binds; all arms together use at most {one.most_used:g}"
        for one in resources
        if one.most_used <= one.budget * ROOM
    ]
    if num_unserved := sum(unserved):
        notes.insert(0, f"{counted(num_unserved, 'arm')} can never be served within the budget")
    if number := sum(normalised):
        rows = counted(number, "row")
        notes.append(f"{rows} with probabilities that did not quite sum to 1 were divided by their sums")
    sizes = [(int(low[i]), int(high[i])) for i in range(2)]
    return StoredCheck(model, sizes[0], sizes[1], (low[2], high[2]), resources, num_unserved, tuple(notes))


def _facts(task: tuple[RowRange, Floats], progress: Report | None = None) -> Any:
    """Least and largest sizes and rewards of some rows, their use, unserved arms, normalised rows; or the faults."""
    reader, budget = task
    try:
        rows = reader()
    except TableError as error:
        return list(error.faults)
    tables = rows.tables
    affordable = np.asarray((tables.usage <= budget * ROOM).all(axis=-1))
    served = np.asarray((tables.served & affordable).any(axis=(1, 2)))
    most = np.where(affordable[..., None], tables.usage, 0.0).max(axis=(1, 2))
    rewards = tables.rewards[tables.valid]
    sizes = tables.num_states, tables.num_actions, rewards
    return (
        [float(array.min()) for array in sizes],
        [float(array.max()) for array in sizes],
        most.T @ rows.counts,
        int(rows.counts[~served].sum()),
        rows.num_normalised,
    )


# -- plans as tables --------------------------------------------------------------------------------------------------


def plan_metadata(policy: BlockPolicy, model: StoredArms) -> dict[bytes, bytes]:
    """The metadata of a plan."""
    plan = {
        "policy": policy.name,
        "prices": list(policy.prices),
        "criterion": model.criterion.name,
        "budget": model.budget.tolist(),
    }
    return {KEY: json.dumps({"version": VERSION, "plan": plan, "model": str(Path(model.path).resolve())}).encode()}


def save_indices(found: RowIndices, path: Location) -> None:
    """Write the Whittle indices of an opened model: a plan.

    Args:
        found: the indices.
        path: a file `.parquet` or a folder.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = list_column(found.indices, (np.isfinite(found.indices).sum(axis=1),))
    undefined = np.zeros(len(found.indexable), dtype=np.bool_)
    undefined[list(found.result.refused)] = True
    columns = {
        "indexable": pa.array(found.indexable, mask=undefined),
        "indices": pc.if_else(pa.array(found.indexable), lists, pa.nulls(len(lists), lists.type)),
    }
    write_rows(path, found.model, columns, plan_metadata(BlockPolicy("whittle"), found.model))


@dataclass(frozen=True)
class TableDecisions(Shown):
    """The decisions of one step, as totals; the actions are in a table."""

    num_arms: int
    """Number of arms."""

    num_served: int
    """Arms whose action uses something."""

    used: dict[str, float]
    """Use of each resource."""

    budget: dict[str, float]
    """Budget of each resource."""

    out: str
    """The table of the actions."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"arms": self.num_arms, "served": self.num_served, "used": self.used, "out": self.out}


@dataclass(frozen=True, eq=False)
class TablePlan(Shown):
    """An index policy for an opened model."""

    policy: BlockPolicy
    """The policy."""

    model: StoredArms
    """The model, with the budget and the criterion of the plan."""

    def act(
        self,
        states: Any,
        out: Location,
        rng: Rng = 0,
        budget: float | Sequence[float] | Mapping[str, float] | None = None,
        backend: str | Pool | None = None,
    ) -> TableDecisions:
        """Decide one step for all arms, and write arm, state and action.

        Args:
            states: a Parquet file or folder with a column `state`, and optionally `arm`, in the order of the arms; or
                (arm,) numbers of states.
            out: a file `.parquet` or a folder.
            rng: seed or generator, for ties.
            budget: instead of the plan's, as `with_budget` takes it.
            backend: where blocks are computed.

        Raises:
            TableError: with every fault of the states, each with its row.
        """
        model = self.model if budget is None else self.model.with_budget(budget)
        places = _read_states(states, model)
        with Pool(backend) as pool:
            arms = RankedArms(model, self.policy, pool)
        wrong = np.flatnonzero((places < 0) | (places >= arms.types.num_states[arms.type_of_arm]))
        if len(wrong):
            faults = [Fault(f"row {arm + 1}, state", f"unknown state {places[arm]}") for arm in wrong[:MOST_FAULTS]]
            raise TableError(faults, "states")
        actions, used, served = arms.act(places, rng)
        _write_actions(out, model, places, actions)
        amounts = [float(f"{amount:.12g}") for amount in used]
        by_name = dict(zip(model.resource_names, amounts, strict=True))
        return TableDecisions(model.num_arms, served, by_name, model.named_budget, str(out))


def _read_table(path: Location, columns: Sequence[str]) -> Any:
    """Those of the columns that a Parquet file or folder has, with its metadata."""
    needs_pyarrow()
    import pyarrow as pa
    import pyarrow.dataset as ds

    try:
        found = ds.dataset(path, format="parquet")
        table = found.to_table(columns=[name for name in columns if name in found.schema.names])
        return table.replace_schema_metadata(found.schema.metadata)
    except (OSError, pa.ArrowException) as error:
        raise TableError([Fault(str(path), f"cannot be read as Parquet: {error}")]) from None


def load_table_plan(path: Location, model: Location | None = None) -> TablePlan:
    """Read a plan and open its model.

    Args:
        path: the plan, a file or a folder.
        model: the model, if it has moved.

    Raises:
        InvalidInputError: the table is not a plan, or its model is missing or has another number of rows.
    """
    table = _read_table(path, ["weight"])
    try:
        said = json.loads((table.schema.metadata or {}).get(KEY, b"{}"))
        plan = said["plan"]
        policy = BlockPolicy(plan["policy"], tuple(plan["prices"]))
        place, criterion, budget = said["model"], plan["criterion"], np.array(plan["budget"], dtype=np.float64)
    except (ValueError, TypeError, KeyError):
        raise InvalidInputError(f"{path}: not a plan for an opened model; write one with solve or indices") from None
    opened = replace(open_arms(place if model is None else model).with_criterion(criterion), budget=budget)
    if policy.name != "fair-index":
        return TablePlan(policy, opened)
    weights = table["weight"].to_numpy().astype(np.float64) if table.num_columns else np.zeros(0)
    if len(weights) != opened.num_rows or not np.isfinite(weights).all():
        raise TableError(
            [Fault(str(path), f"expected a finite weight for each of the {opened.num_rows} rows of its model")]
        )
    return TablePlan(replace(policy, weights=weights), opened)


def _read_states(states: Any, model: StoredArms) -> Indices:
    """(arm,) numbers of states."""
    if not isinstance(states, (str, os.PathLike)):
        places = np.asarray(states)
        if places.shape != (model.num_arms,) or places.dtype.kind not in "iu":
            raise InvalidInputError(f"states: expected integers of shape (arm={model.num_arms},), got {places.shape}")
        return places.astype(np.int32)
    table = _read_table(states, ["arm", "state"])
    if "state" not in table.column_names:
        raise TableError([Fault(f"{states}, state", "the column is missing")])
    if table.num_rows != model.num_arms:
        raise TableError([Fault(str(states), f"has {table.num_rows} rows, but the model has {model.num_arms} arms")])
    given = table["state"].to_pylist()
    known = {name: number for number, name in enumerate(model.states)}
    places = np.array([_state_number(state, known) for state in given], dtype=np.int32)
    faults = [
        Fault(f"{states}, row {row + 1}, state", f"unknown state {given[row]!r}")
        for row in np.flatnonzero(places < 0)[:MOST_FAULTS].tolist()
    ]
    names = _names(model)
    if "arm" in table.column_names and names is not None:
        pairs = enumerate(zip(table["arm"].to_pylist(), names.to_pylist(), strict=True))
        faults += [
            Fault(f"{states}, row {row + 1}, arm", f"{arm!r} instead of {name!r}; states are in the order of the arms")
            for row, (arm, name) in pairs
            if arm != name
        ][:5]
    if faults:
        raise TableError(faults, str(states))
    return places


def _state_number(state: Any, known: Mapping[str, int]) -> int:
    """Number of a state, from its label or number; -1 if it is unknown."""
    if isinstance(state, int):
        return state
    return known.get(state, int(state) if isinstance(state, str) and state.isascii() and state.isdecimal() else -1)


def _names(model: StoredArms) -> Any:
    """(arm,) Arrow array of the names of the arms; None if they have none, or a row stands for several."""
    import pyarrow as pa

    names = list(model.read_column("name")) if model.ends is None else []
    return pa.chunked_array(names).cast(pa.string()).combine_chunks() if names else None


def _write_actions(out: Location, model: StoredArms, places: Indices, actions: Indices) -> None:
    import pyarrow as pa

    columns: dict[str, Any] = {"arm": pa.array(np.arange(len(places)))}
    if (names := _names(model)) is not None:
        columns["name"] = names
    for key, numbers, labels in (("state", places, model.states), ("action", actions, model.actions)):
        columns[key] = pa.array(np.array(labels, dtype=object)[numbers], pa.string()) if labels else pa.array(numbers)
    with TableWriter(out) as writer:
        for start in range(0, len(places), BATCH_ROWS):
            writer.write_columns({key: column[start : start + BATCH_ROWS] for key, column in columns.items()})
