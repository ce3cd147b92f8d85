"""Posterior files beside model files: `model.posterior.npz` beside `model.toml`.

    format (), schema ()       `evenhand-posterior`, 1
    names ()                   JSON text of the names of its `types`, `states` and `actions`
    concentration              (type, state, action, next_state) of Dirichlet rows; optionally with
    known, like                (type, state, action) certain rows, and the action whose row it copies
    leans, counts, strength,   for pooled rows also the arrays of `Pooled` and `PooledPrior`
    weight, common, certainty,
    even
    mean, draws                or else: the estimate, and (draw, ...) a sample
    seen                       (type, state, action) number of observed transitions; optional

A posterior belongs to a model whose blocks have the names of its types, and its states and actions by name, in any
order. The transitions of such a block must be the mean of its type: everything else may be edited, and edited
transitions are refused. A block with another name is taken as known (`Uncertain.known`).
"""

import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.checks import Faults, check_memory, plain, why_unreadable
from evenhand.errors import EvenhandError, Fault, InvalidInputError, ModelError
from evenhand.fitting.hierarchical_dirichlet import PooledPrior
from evenhand.fitting.posterior import Dirichlet, Drawn, Pooled, Posterior
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import write_atomically
from evenhand.model.io.npz import ARRAY_OVERHEAD, read_member
from evenhand.model.labels import quoted
from evenhand.typing import Array, Floats, Ints

FORMAT, SCHEMA = "evenhand-posterior", 1

TOLERANCE = 1e-9
"""Largest difference between probabilities of a model and the mean of its posterior."""

HOW_TO_FIT = "`evenhand fit` writes it beside the model."

NAMES = ("types", "states", "actions")

AXES = {
    "format": "", "schema": "", "names": "",
    "concentration": "tsan", "known": "tsa", "like": "tsa",
    "leans": "tsa", "counts": "tsan", "strength": "psa", "weight": "psa", "common": "psan", "certainty": "psa",
    "even": "san",
    "mean": "tsan", "draws": "dtsan",
    "seen": "tsa",
}  # fmt: skip
"""Axes of each array: type, state, action, next state; point of the grid of a prior; draw."""

POOLED = ("leans", "counts", *(field.name for field in fields(PooledPrior)))
"""Arrays that pooled rows have in addition to those of Dirichlet rows."""


@dataclass(frozen=True, eq=False)
class Named:
    """A posterior with the names of its types, states and actions."""

    posterior: Posterior
    """The distribution."""

    types: tuple[str, ...]
    """(type,) names."""

    states: tuple[str, ...]
    """(state,) names."""

    actions: tuple[str, ...]
    """(action,) names."""

    seen: Ints | None = None
    """(type, state, action) number of observed transitions; None if unknown."""

    def observations(self) -> dict[str, dict[str, dict[str, int]]] | None:
        """Numbers of observed transitions by the names of type, state and action; None if unknown."""
        if self.seen is None:
            return None
        names = (self.types, self.states, self.actions)
        types, states, actions = (tuple(enumerate(own)) for own in names)
        numbers = self.seen.tolist()
        return {t: {s: {a: numbers[i][j][k] for k, a in actions} for j, s in states} for i, t in types}


@dataclass(frozen=True, eq=False)
class Uncertain:
    """A problem with the posterior of its blocks."""

    problem: CoupledMDP
    """The model."""

    named: Named
    """The posterior, in the order of its file."""

    type_of_block: Ints
    """(block,) its type in the posterior; -1 for a known block."""

    states: tuple[Ints, ...]
    """(block, state) index of each state in the posterior; none for a known block."""

    actions: tuple[Ints, ...]
    """(block, action) index of each action in the posterior."""

    @property
    def known(self) -> tuple[str, ...]:
        """Names of the known blocks."""
        labels = self.problem.tables.labels
        blocks = np.flatnonzero(self.type_of_block < 0).tolist()
        return tuple(labels[i][0] if labels else "" for i in blocks)

    def placed(self, rows: Floats) -> Floats:
        """(block, state, action, next_state) transitions in the order of the problem.

        Args:
            rows: (type, state, action, next_state) transitions in the order of the posterior.
        """
        transitions = np.array(self.problem.tables.transitions)
        for block, kind in enumerate(self.type_of_block.tolist()):
            if kind >= 0:
                s, a = self.states[block], self.actions[block]
                transitions[block, : len(s), : len(a), : len(s)] = rows[kind][np.ix_(s, a, s)]
        return transitions


def posterior_path(model: str | os.PathLike[str]) -> Path:
    """Path of the posterior of a model file: `fleet.posterior.npz` beside `fleet.toml`.

    Args:
        model: the model file.
    """
    return Path(model).with_suffix(".posterior.npz")


def save_posterior(named: Named, path: str | os.PathLike[str]) -> None:
    """Write a posterior atomically.

    Args:
        named: the posterior; every row must be known.
        path: from `posterior_path`; an existing file is replaced.
    """
    arrays = _arrays_of(named.posterior) | ({} if named.seen is None else {"seen": named.seen})
    faults = Faults()
    _check_arrays(named, arrays, faults)
    if faults:
        raise ModelError(faults.found, f"{path}: not written")
    names = {key: list(getattr(named, key)) for key in NAMES}
    head = {"format": FORMAT, "schema": SCHEMA, "names": json.dumps(names, ensure_ascii=False).encode()}
    body = io.BytesIO()
    np.savez_compressed(body, **{key: np.array(value) for key, value in head.items()}, **arrays)  # type: ignore[arg-type]
    write_atomically(path, body.getvalue())


def _arrays_of(posterior: Posterior) -> dict[str, Array]:
    if isinstance(posterior, Drawn):
        return {"mean": posterior.mean, "draws": posterior.draws}
    rows = posterior.rows if isinstance(posterior, Pooled) else posterior
    arrays = {"concentration": rows.concentration, "known": rows.known, "like": rows.like}
    if isinstance(posterior, Pooled):
        arrays |= {"leans": posterior.leans, "counts": posterior.counts, **vars(posterior.prior)}
    return {key: array for key, array in arrays.items() if array is not None}


def load_posterior(path: str | os.PathLike[str]) -> Named:
    """Read a posterior.

    Args:
        path: from `save_posterior`.

    Raises:
        ModelError: with every fault of the file.
        InvalidInputError: the file cannot be read.
    """
    file = Path(path)
    try:
        with zipfile.ZipFile(file) as archive:
            return _read(archive)
    except EvenhandError as error:
        faults = error.faults if isinstance(error, ModelError) else [Fault("", str(error))]
        raise ModelError(faults, str(file)) from None
    except OSError as error:
        reason = why_unreadable(file, error, [".npz"])
        raise InvalidInputError(f"{file}: cannot be read: {reason}. {HOW_TO_FIT}") from None
    except Exception as error:  # noqa: BLE001  # zipfile raises errors of many kinds
        message = f"not a posterior, or a damaged one: {error}. {HOW_TO_FIT}"
        raise ModelError([Fault("", message)], str(file)) from None


def _read(archive: zipfile.ZipFile) -> Named:
    faults, arrays = Faults(), {}
    size = sum(member.file_size for member in archive.infolist())
    check_memory(ARRAY_OVERHEAD * size, "to read this posterior", "Fit with fewer draws.")
    for member in archive.infolist():
        key = member.filename.removesuffix(".npy")
        if key not in AXES or key in arrays:
            faults.add(key[:60], "unknown array")
        elif (array := read_member(archive, member, key, _header_fault, faults)) is not None:
            arrays[key] = array
    faults.raise_if_any()
    head = {key: arrays.pop(key).item() if key in arrays else None for key in ("format", "schema", "names")}
    seen = arrays.pop("seen", None)
    given = set(arrays) if "draws" in arrays else set(arrays) - {"known", "like"}
    if str(head["format"]) != FORMAT:
        faults.add("format", f"not a posterior of evenhand. {HOW_TO_FIT}")
    elif head["schema"] != SCHEMA:
        faults.add("schema", f"is {head['schema'] or 'missing'}; {SCHEMA} is read here")
    elif given not in ({"mean", "draws"}, {"concentration"}, {"concentration", *POOLED}):
        expected = f"concentration, concentration with {', '.join(POOLED)}, or mean with draws"
        faults.add("", f"has the arrays {', '.join(sorted(arrays))}; expected {expected}")
    faults.raise_if_any()
    names = json.loads(head["names"] or "null")
    lists = names.values() if isinstance(names, dict) and set(names) == set(NAMES) else [None]
    if not all(isinstance(one, list) and len(set(map(str, one))) == len(one) for one in lists):
        raise ModelError([Fault("names", f"expected lists of different names: {', '.join(NAMES)}")])
    floats = {key: np.ascontiguousarray(array, np.float64) for key, array in arrays.items() if array.dtype.kind == "f"}
    posterior: Posterior
    if "draws" in arrays:
        posterior = Drawn(floats["mean"], floats["draws"])
    else:
        # Indices of actions; larger ones are invalid anyway.
        like = np.clip(arrays["like"], -1, np.iinfo(np.int32).max).astype(np.int32) if "like" in arrays else None
        posterior = Dirichlet(floats["concentration"], arrays.get("known"), like)
        if "leans" in arrays:
            prior = PooledPrior(**{field.name: floats[field.name] for field in fields(PooledPrior)})
            posterior = Pooled(posterior, arrays["leans"], floats["counts"], prior)
    named = Named(posterior, **{key: tuple(map(str, names[key])) for key in NAMES}, seen=seen)
    _check_arrays(named, _arrays_of(posterior) | ({} if seen is None else {"seen": seen}), faults)
    faults.raise_if_any()
    return named


def _header_fault(key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    kinds = {"format": "US", "names": "US", "schema": "iu", "known": "b", "leans": "b", "like": "iu", "seen": "iu"}.get(
        key, "f"
    )
    if dtype.kind not in kinds or len(shape) != len(AXES[key]):
        return f"expected {len(AXES[key])} axes of other entries, got {dtype} of shape {shape}"
    return "is empty" if 0 in shape else ""


def _check_arrays(named: Named, arrays: dict[str, Array], faults: Faults) -> None:
    """Collect invalid shapes and numbers."""
    number = len(named.states)
    sizes = {"t": len(named.types), "s": number, "a": len(named.actions), "n": number}
    for key, array in arrays.items():
        lengths = [sizes.setdefault(axis, length) for axis, length in zip(AXES[key], array.shape, strict=False)]
        if array.ndim != len(AXES[key]) or lengths != list(array.shape):
            faults.add(key, f"has the shape {array.shape}, which does not match its names or the other arrays")
        elif array.dtype.kind == "f" and not ((array >= 0) & np.isfinite(array)).all():
            faults.add(key, "has entries that are negative, infinite or not a number")
        elif key == "seen" and (array < 0).any():
            faults.add(key, "has negative numbers")
        elif key in ("mean", "draws") and (np.abs(array.sum(axis=-1) - 1) > TOLERANCE).any():
            faults.add(key, "has rows that are not probabilities")
    if "like" in arrays and ((arrays["like"] < 0) | (arrays["like"] >= len(named.actions))).any():
        faults.add("like", "has indices of unknown actions")
    if not faults and np.isnan(named.posterior.mean).any():
        t, s, a = np.argwhere(np.isnan(named.posterior.mean).any(axis=-1))[0].tolist()
        faults.add("", f"has unknown rows, the first of {named.types[t]}, {named.states[s]}, {named.actions[a]}")
    if isinstance(named.posterior, Pooled) and not faults:
        # Draws and intervals follow from counts and prior: their mean must be the stored one.
        pooled = named.posterior
        with np.errstate(all="ignore"):
            off = np.abs(pooled.prior.matched(pooled.counts).mean - replace(pooled.rows, like=None).mean)
        weighted = np.abs(pooled.prior.weight.sum(axis=0) - 1) <= TOLERANCE
        valid = (off <= TOLERANCE).all(axis=-1) & (pooled.counts.sum(axis=-1) > 0) & weighted
        if not valid[pooled.leans].all():
            faults.add("counts", "do not give the means of concentration under the prior")


# A posterior and a problem


def matched(named: Named, problem: CoupledMDP) -> Uncertain:
    """Match a posterior with the blocks of a problem.

    Args:
        named: from `load_posterior`.
        problem: its model, of which everything but the transitions may be edited.

    Raises:
        ModelError: with every block that does not match.
    """
    faults = Faults()
    places: tuple[list[Ints], list[Ints]] = [], []
    labels = problem.tables.labels or (("", (), ()),) * len(problem.tables)
    kinds = [named.types.index(name) if name in named.types else -1 for name, _, _ in labels]
    if max(kinds) < 0:
        known, ours = (_listed(names) for names in (named.types, [name for name, *_ in labels]))
        raise ModelError([Fault("", f"is of another model, of the types {known}; the model has {ours}")], "posterior")
    for kind, (name, *own) in zip(kinds, labels, strict=True):
        for what, found, mine, theirs in zip(NAMES[1:], places, own, (named.states, named.actions), strict=True):
            if kind >= 0 and set(mine) != set(theirs):
                message = f"has the {what} {_listed(mine)}, and in the posterior {_listed(theirs)}"
                faults.add(f"type {quoted(name)}", message)
            found.append(np.array([theirs.index(label) for label in mine if label in theirs and kind >= 0], np.int64))
    faults.raise_if_any("posterior")
    uncertain = Uncertain(problem, named, np.array(kinds, dtype=np.int64), tuple(places[0]), tuple(places[1]))
    # Only edited transitions differ from the mean; one per type is reported.
    mean, transitions = uncertain.placed(named.posterior.mean), problem.tables.transitions
    edited = np.argwhere(np.abs(mean - transitions) > TOLERANCE).tolist()
    for block, s, a, j in {kinds[place[0]]: place for place in reversed(edited)}.values():
        name, own_states, own_actions = labels[block]
        move = f"from {quoted(own_states[s])} under {quoted(own_actions[a])} to {quoted(own_states[j])}"
        values = f"{plain(transitions[block, s, a, j])} in the model and {plain(mean[block, s, a, j])} in the posterior"
        hint = "Fit again, or rename the type to take it as known"
        faults.add(f"type {quoted(name)}", f"its transitions were edited after the fit: {move} it is {values}. {hint}")
    faults.raise_if_any("posterior")
    return uncertain


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*(quoted(name) for name in names[:5]), *["..."] * (len(names) > 5)]) or "without names"
