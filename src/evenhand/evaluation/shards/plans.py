"""Plans for tables of arms: a table of results that says which policy it is of, and of which model.

    metadata  `evenhand`: JSON with version, plan: {policy, prices, budget, criterion}, model: the path of the table
    columns   row; weight where the policy needs one; whatever else was computed

`act_on_arms` reads a plan, its model and where the arms are, decides one step by shards, and streams the actions to
Parquet. The states are in the order of the arms; where they have names, these are compared row by row.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.errors import Fault, InvalidInput, TableError
from evenhand.evaluation.shards.driving import Play
from evenhand.evaluation.shards.naming import named
from evenhand.evaluation.shards.scoring import Rule
from evenhand.execution.places import opened
from evenhand.execution.protocol import Executor
from evenhand.model.io import is_stored
from evenhand.model.parquet.decoding import Sink
from evenhand.model.parquet.reading import BATCH_ROWS, StoredArms, batches_of, open_arms, rows_of
from evenhand.model.parquet.schema import KEY, VERSION, needs_pyarrow
from evenhand.model.parquet.writing import TableWriter
from evenhand.typing import Floats, Indices, Rng

MOST_FAULTS = 50
"""Faults after which reading ends."""


def plan_metadata(rule: Rule, arms: StoredArms) -> dict[bytes, bytes]:
    """What a table of results says of itself, so that it can be acted by.

    Args:
        rule: the policy.
        arms: the model.
    """
    said = {
        "version": VERSION,
        "plan": {
            "policy": rule.name,
            "prices": list(rule.prices),
            "largest_weight": rule.largest_weight,
            "criterion": arms.criterion.name,
            "budget": arms.budget.tolist(),
        },
        "model": str(Path(arms.path).resolve()),
    }
    return {KEY: json.dumps(said).encode()}


@dataclass(frozen=True, eq=False)
class ArmsPlan:
    """A policy for a table of arms."""

    rule: Rule
    """Which."""

    arms: StoredArms
    """The model, under the plan's budget and criterion."""

    weights: Floats | None
    """(row,) the relaxation's welfare weights, where the policy needs them."""


def is_plan(path: "str | os.PathLike[str]") -> bool:
    """Whether a file or folder is a plan for a table of arms."""
    if not is_stored(path) or not Path(path).exists():
        return False
    needs_pyarrow()
    return "plan" in _said(Path(path), Sink(str(path)))


def read_plan(path: "str | os.PathLike[str]", model: "str | os.PathLike[str] | None" = None) -> ArmsPlan:
    """A plan and its model.

    Args:
        path: the plan, a file or a folder.
        model: where the model is now; where the plan says when absent.

    Raises:
        InvalidInput: it is no plan, or its model is gone or has another number of rows.
    """
    needs_pyarrow()
    sink = Sink(str(path))
    said = _said(Path(path), sink)
    if sink.found:
        raise TableError(sink.found)
    plan = said.get("plan")
    if said.get("version") != VERSION or not isinstance(plan, dict):
        raise InvalidInput(f"{path}: not a plan for a table of arms: write one by index_arms, or solve --out")
    rule = Rule(plan["policy"], tuple(plan.get("prices", ())), float(plan.get("largest_weight", 1.0)))
    arms = open_arms(said["model"] if model is None else model).with_criterion(plan["criterion"])
    arms = replace(arms, header=replace(arms.header, budget=np.array(plan["budget"], dtype=np.float64)))
    weights = _weights(path, arms.num_rows) if rule.name == "fair-index" else None
    return ArmsPlan(rule, arms, weights)


def _said(path: Path, sink: Sink) -> dict[str, Any]:
    """The metadata of the first file; damage is noted."""
    metadata, _ = rows_of(path, sink)
    try:
        said = json.loads(metadata.get(KEY, b"{}"))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _weights(path: "str | os.PathLike[str]", number: int) -> Floats:
    sink = Sink(str(path))
    _, pieces = rows_of(Path(path), sink)
    parts = [
        np.asarray(batch.column("weight").to_numpy(zero_copy_only=False), dtype=np.float64)
        for piece in pieces
        for _, batch in batches_of(piece, ["weight"], BATCH_ROWS, sink)
        if "weight" in batch.schema.names
    ]
    weights = np.concatenate(parts) if parts else np.zeros(0)
    if len(weights) != number or not np.isfinite(weights).all() or sink.found:
        told = sink.found or [Fault(str(path), f"expected a finite weight for each of {number} rows of its model")]
        raise TableError(told)
    return weights


@dataclass(frozen=True)
class ArmsDecisions:
    """What to do now, in all."""

    num_arms: int
    """How many arms were decided on."""

    num_served: int
    """How many get an action that uses something."""

    used: dict[str, float]
    """What is used of each resource."""

    budget: dict[str, float]
    """What there is of each."""

    out: str
    """Where the actions are, arm by arm."""


def act_on_arms(
    plan: "str | os.PathLike[str] | ArmsPlan",
    states: "str | os.PathLike[str] | Indices",
    out: "str | os.PathLike[str]",
    rng: Rng = 0,
    on: str | Executor | None = None,
    budget: Any = None,
    num_shards: int | None = None,
) -> ArmsDecisions:
    """What every arm of a table gets now, by a plan, written to Parquet.

    Args:
        plan: what `index_arms` or `solve --out` wrote; or a plan that was read.
        states: a Parquet file or folder with a column `state`, and perhaps `arm`, in the order of the arms; or (arm,)
            numbers of states.
        out: a file `.parquet` or a folder for arm, state and action.
        rng: seed or generator, for ties.
        on: where to run; this process when absent.
        budget: another budget than the plan's, given as to `with_budget`.
        num_shards: into how many parts the table is cut; as many as are good when absent.

    Raises:
        TableError: with every fault of the states, each with its row.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=5), "machines.parquet")
        >>> found = eh.index_arms("machines.parquet", out="indices.parquet")
        >>> eh.act_on_arms("indices.parquet", [0, 2, 1, 2, 0], "actions.parquet").used
        {'resource 0': 1.0}
    """
    known = plan if isinstance(plan, ArmsPlan) else read_plan(plan)
    arms = known.arms if budget is None else known.arms.with_budget(budget)
    places = _read_states(states, arms)
    with opened(on) as executor:
        play = Play(arms, known.rule, executor, known.weights, num_shards, places)
        try:
            _check_states(play, places)
            actions, used = play.act(rng)
            served = _write(out, arms, places, actions, play)
        finally:
            play.close()
    names = arms.resource_names
    amounts = [float(f"{amount:.12g}") for amount in used]
    return ArmsDecisions(
        arms.num_arms,
        served,
        dict(zip(names, amounts, strict=True)),
        dict(zip(names, arms.budget.tolist(), strict=True)),
        str(out),
    )


def _read_states(states: Any, arms: StoredArms) -> Indices:
    """(arm,) numbers of states."""
    if not isinstance(states, (str, os.PathLike)):
        places = np.asarray(states)
        if places.shape != (arms.num_arms,) or places.dtype.kind not in "iu":
            raise InvalidInput(f"states: expected whole numbers of shape (arm={arms.num_arms},), got {places.shape}")
        return places.astype(np.int32)
    needs_pyarrow()
    sink = Sink(str(states))
    parts = list(_state_batches(Path(states), arms, sink))
    places = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
    if not sink.found and len(places) != arms.num_arms:
        sink.found.append(Fault(str(states), f"has {len(places)} rows where the model has {arms.num_arms} arms"))
    if sink.found:
        raise TableError(sink.found[:MOST_FAULTS], str(states))
    return places


def _state_batches(path: Path, arms: StoredArms, sink: Sink) -> Iterator[Indices]:
    _, pieces = rows_of(path, sink)
    names = named(arms) if arms.ends is None else None
    for piece in pieces:
        for first, batch in batches_of(piece, ["arm", "state"], BATCH_ROWS, sink):
            if "state" not in batch.schema.names:
                sink.found.append(Fault(f"{piece.path}, state", "there is no such column"))
                return
            rows = np.arange(first, first + batch.num_rows)
            own = Sink(piece.path)
            if names is not None and "arm" in batch.schema.names:
                _compare(batch.column("arm"), names.take(batch.num_rows).get("name"), rows, own)
            yield _numbers(batch.column("state"), arms, rows, own)
            sink.found.extend(own.found)
            if len(sink.found) >= MOST_FAULTS:
                return


def _compare(given: Any, wanted: Any, rows: Any, sink: Sink) -> None:
    """The names of the arms are those of the model, in its order."""
    if wanted is None or len(wanted) != len(given):
        return
    texts = np.array(given.to_pylist(), dtype=object)
    other = np.array(wanted.to_pylist(), dtype=object)
    for place in np.flatnonzero(texts != other)[:5].tolist():
        told = f"{texts[place]!r} where the model has {other[place]!r}; states are in the order of its arms"
        sink.add(int(rows[place]), "arm", told)


def _numbers(column: Any, arms: StoredArms, rows: Any, sink: Sink) -> Indices:
    """(arm,) numbers of states that may be labels."""
    import pyarrow as pa

    sink.flag(rows, np.asarray(column.is_null()), "state", "is null")
    if pa.types.is_integer(column.type):
        return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int32)
    known = {name: number for number, name in enumerate(arms.header.states)}
    texts = column.cast(pa.string()).to_pylist()
    found = np.array([known.get(text, int(text) if text and text.isdecimal() else -1) for text in texts])
    wrong = (found < 0) & ~np.asarray(column.is_null())
    labels = ", ".join(known) or "numbers from 0"
    sink.flag(rows, wrong, "state", f"is no state of the model; known are {labels}")
    return found.astype(np.int32)


def _check_states(play: Play, places: Indices) -> None:
    """Every arm is in a state that it has."""
    each = [(places[rows.first_arm : rows.first_arm + rows.num_arms],) for rows in play.rows]
    wrong = [
        rows.first_arm + place
        for rows, found in zip(play.rows, play.shards.ask(_beyond, each=each), strict=True)
        for place in found
    ]
    if wrong:
        told = [Fault(f"row {arm + 1}, state", f"there is no state {places[arm]}") for arm in wrong[:MOST_FAULTS]]
        raise TableError(told, "states")


def _beyond(shard: Any, states: Indices) -> list[int]:
    """The first arms of a shard that are in states which they do not have."""
    have = shard.world.valid.any(axis=2).sum(axis=1)[shard.kinds]
    return [int(arm) for arm in np.flatnonzero((states < 0) | (states >= have))[:MOST_FAULTS]]


def _served(shard: Any, states: Indices, actions: Indices) -> int:
    return int(shard.world.serves[shard.kinds, states, actions].sum())


def _write(out: Any, arms: StoredArms, places: Indices, actions: list[Indices], play: Play) -> int:
    """Actions arm by arm; how many arms are served."""
    import pyarrow as pa

    split = [(places[r.first_arm : r.first_arm + r.num_arms], a) for r, a in zip(play.rows, actions, strict=True)]
    served = sum(play.shards.ask(_served, each=split))
    chosen = np.concatenate(actions)
    names = named(arms) if arms.ends is None else None
    with TableWriter(out) as writer:
        for at in range(0, len(chosen), BATCH_ROWS):
            now, do = places[at : at + BATCH_ROWS], chosen[at : at + BATCH_ROWS]
            columns = {"arm": pa.array(np.arange(at, at + len(now)))}
            if names is not None and "name" in (taken := names.take(len(now))):
                columns["name"] = taken["name"]
            columns |= {"state": _labelled(now, arms.header.states), "action": _labelled(do, arms.header.actions)}
            writer.write(columns)
    return served


def _labelled(numbers: Indices, labels: tuple[str, ...]) -> Any:
    """Numbers, or the labels that all arms share."""
    import pyarrow as pa

    return pa.array(np.array(labels, dtype=object)[numbers], pa.string()) if labels else pa.array(numbers)
