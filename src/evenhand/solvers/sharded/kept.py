"""How far a search by cuts has come, as a file of arrays: prices and columns, and no number an arm.

Written beside and renamed after every round. A driver that was lost goes on after the last round that was written; the
answer is the same to the last bit, since a round depends on nothing else. A file of another problem is refused.
"""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.errors import InvalidInput
from evenhand.solvers.fluid.dual_search import Cuts, SoFar
from evenhand.solvers.sharded.cuts import ShardCut
from evenhand.solvers.sharded.stops import Limits, MarginalUtility, Rule, Stop, UpTo, WorthMore
from evenhand.typing import Array, Floats

SCHEMA = 1
_KINDS: tuple[type[Any], ...] = (UpTo, WorthMore, MarginalUtility, Limits)


def _numbers(stop: Stop) -> Floats:
    """A stop as one row of numbers."""
    if isinstance(stop, Limits):
        return np.concatenate([stop.levels, stop.limits])
    return np.array(list(vars(stop).values()), dtype=np.float64)


def _stop(kind: int, numbers: Floats) -> Stop:
    if _KINDS[kind] is Limits:
        half = len(numbers) // 2
        return Limits(numbers[:half], numbers[half:])
    if _KINDS[kind] is MarginalUtility:
        return MarginalUtility(float(numbers[0]), float(numbers[1]), int(numbers[2]))
    stop: Stop = _KINDS[kind](float(numbers[0]))
    return stop


def write(path: Path, signature: str, rounds: int, so_far: SoFar[ShardCut]) -> None:
    """Write how far it has come.

    Args:
        path: the file.
        signature: of the problem and what is asked of it.
        rounds: how many prices were tried.
        so_far: the state of the search.
    """
    every = [*so_far.cuts.cuts, so_far.best]
    stops = [_numbers(cut.rule.stop) for cut in every]
    arrays: dict[str, Array] = {
        "schema": np.array(SCHEMA),
        "signature": np.frombuffer(signature.encode(), dtype=np.uint8),
        "counts": np.array([rounds, *so_far.cuts.idle]),
        "search": np.array([so_far.best_bound, so_far.target, so_far.smoothing, so_far.proven, so_far.cuts.cap]),
        "kinds": np.array([[_KINDS.index(type(cut.rule.stop)), cut.rule.number] for cut in every]),
        "cuts": np.array([[cut.utility, cut.welfare, cut.rate] for cut in every]),
        "prices": np.array([[cut.prices, cut.rule.prices, cut.total] for cut in every]),
        "lengths": np.array([len(stop) for stop in stops]),
        "stops": np.concatenate(stops),
    }
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # NumPy takes any arrays by name
    beside = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    try:
        beside.write_bytes(content.getvalue())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read(path: Path, signature: str, allowance: Floats) -> tuple[int, SoFar[ShardCut]] | None:
    """How many prices were tried and how far that came; None where there is no file.

    Args:
        path: the file.
        signature: of the problem and what is asked of it.
        allowance: (resource,) the budget of all steps.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if int(arrays["schema"]) != SCHEMA:
            raise ValueError("another schema")
        theirs = arrays["signature"].tobytes().decode()
        state = _restored(arrays, allowance)
    except (OSError, ValueError, KeyError, IndexError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{path}: is not a checkpoint of the relaxation: {error}") from None
    if theirs != signature:
        raise InvalidInput(
            f"{path}: is a checkpoint of another problem, welfare, tolerance or version; remove it to begin anew"
        )
    return state


def _restored(arrays: dict[str, Array], allowance: Floats) -> tuple[int, SoFar[ShardCut]]:
    stops = np.split(arrays["stops"], np.cumsum(arrays["lengths"])[:-1])
    every = [
        ShardCut(prices, total, utility, welfare, rate, Rule(own, _stop(int(kind), stop), int(number)))
        for (kind, number), (utility, welfare, rate), (prices, own, total), stop in zip(
            arrays["kinds"], arrays["cuts"].tolist(), arrays["prices"], stops, strict=True
        )
    ]
    best_bound, target, smoothing, proven, cap = arrays["search"].tolist()
    cuts = Cuts(allowance, every[:-1])
    rounds, *cuts.idle = arrays["counts"].tolist()
    cuts.cap = cap
    return int(rounds), SoFar(cuts, every[-1], best_bound, target, smoothing, proven)
