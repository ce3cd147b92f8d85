"""Posterior files beside model files: `model.posterior.npz` beside `model.toml`.

    format (), schema ()       `evenhand-posterior`, 1
    names ()                   JSON text of the names of its `types`, `states` and `actions`
    concentration              (type, state, action, next_state) of Dirichlet rows; optionally with
    known, like                (type, state, action) certain rows, and the action whose row it copies
    leans, counts, strength,   for pooled rows also the arrays of `Pooled` and `PooledPrior`
    weight, common, certainty,
    even
    mean, draws                or else: the estimate, and (draw, ...) a sample

A posterior belongs to a model whose blocks have the names of its types, and its states and actions by name, in any
order. The transitions of such a block must be the mean of its type: everything else may be edited, and edited
transitions are refused. A block with another name is taken as known (`Uncertain.known`).
"""

import io
import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.checks import Faults, as_seed, check_memory, check_positive_int, plain, why_unreadable
from evenhand.errors import EvenhandError, Fault, InvalidInputError, ModelError, nearest
from evenhand.fitting.hierarchical_dirichlet import PooledPrior
from evenhand.fitting.pooled_posterior import Pooled
from evenhand.fitting.posterior import Dirichlet, Drawn, Posterior
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import write_atomically
from evenhand.model.io.array_archive import ARRAY_OVERHEAD, DAMAGE, read_member
from evenhand.model.places import quoted
from evenhand.typing import Array, Bools, Floats, Ints, Rng

FORMAT, SCHEMA = "evenhand-posterior", 1

TOLERANCE = 1e-9
"""Largest difference between probabilities of a model and the mean of its posterior."""

HOW_TO_FIT = "`evenhand fit` writes it beside the model."

PRIOR = {"strength": 3, "weight": 3, "common": 4, "certainty": 3, "even": 3}
"""Arrays of a `PooledPrior` and their number of axes: a point of the grid, but for `even`, and a pair."""

POOLED = {"leans": 3, "counts": 4} | PRIOR
"""Arrays that pooled rows have in addition to those of Dirichlet rows, and their number of axes."""

_TEXTS = ("format", "names")
_AXES = {"schema": 0, "concentration": 4, "known": 3, "like": 3, "mean": 4, "draws": 5} | POOLED


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

    def one(self, seed: int, number: int) -> CoupledMDP:
        """Problem of one draw; blocks of one type have the same transitions.

        Args:
            seed: of all draws.
            number: of the draw, from 0.
        """
        tables = replace(self.problem.tables, transitions=self.placed(self.named.posterior.one(seed, number)))
        return replace(self.problem, arms=tables)


def drawn_problems(problem: CoupledMDP, named: Named, num_draws: int, rng: Rng = 0) -> Iterator[CoupledMDP]:
    """Yield the problem with drawn transitions; the first draws do not depend on their number.

    Args:
        problem: the model of the posterior.
        named: from `load_posterior`.
        num_draws: number of draws.
        rng: a seed, or a generator.

    Raises:
        ModelError: the posterior is of another model.
    """
    uncertain, seed = matched(named, problem), as_seed(rng)
    return (uncertain.one(seed, number) for number in range(check_positive_int(num_draws, "num_draws")))


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
    names = {key: list(getattr(named, key)) for key in ("types", "states", "actions")}
    arrays: dict[str, Array] = {
        "format": np.array(FORMAT),
        "schema": np.array(SCHEMA),
        "names": np.array(json.dumps(names, ensure_ascii=False).encode()),
        **_arrays_of(named.posterior),
    }
    faults = Faults()
    _check_named(named, faults)
    if faults:
        raise ModelError(faults.found, f"{path}: not written")
    body = io.BytesIO()
    np.savez_compressed(body, **arrays)  # type: ignore[arg-type]
    write_atomically(path, body.getvalue())


def _arrays_of(posterior: Posterior) -> dict[str, Array]:
    if isinstance(posterior, Pooled):
        own = {"leans": posterior.leans, "counts": posterior.counts}
        prior = {key: getattr(posterior.prior, key) for key in PRIOR}
        return _arrays_of(posterior.rows) | own | {key: array for key, array in prior.items() if array is not None}
    if isinstance(posterior, Dirichlet):
        optional = {"known": posterior.known, "like": posterior.like}
        return {"concentration": posterior.concentration} | {k: v for k, v in optional.items() if v is not None}
    if isinstance(posterior, Drawn):
        return {"mean": posterior.mean, "draws": posterior.draws}
    raise InvalidInputError(f"a posterior of type {type(posterior).__name__} cannot be saved")


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
    except ModelError as error:
        raise ModelError(error.faults, str(file)) from None
    except EvenhandError as error:
        raise ModelError([Fault("", str(error))], str(file)) from None
    except OSError as error:
        reason = why_unreadable(file, error, [".npz"])
        raise InvalidInputError(f"{file}: cannot be read: {reason}. {HOW_TO_FIT}") from None
    except DAMAGE as error:
        message = f"not a posterior, or a damaged one: {error}. {HOW_TO_FIT}"
        raise ModelError([Fault("", message)], str(file)) from None


def _read(archive: zipfile.ZipFile) -> Named:
    faults = Faults()
    members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
    if "format" not in members or len(members) < len(archive.infolist()):
        raise ModelError([Fault("", f"not a posterior of evenhand. {HOW_TO_FIT}")])
    size = sum(member.file_size for member in members.values())
    check_memory(ARRAY_OVERHEAD * size, "to read this posterior", "Fit with fewer draws.")
    arrays = {}
    for key, member in members.items():
        if key not in (*_TEXTS, *_AXES):
            faults.add(key[:60], "unknown array")
        elif (array := read_member(archive, member, key, _header_fault, faults)) is not None:
            arrays[key] = array
    faults.raise_if_any()
    _check_head(arrays, faults)
    faults.raise_if_any()
    named = _built(arrays, faults)
    _check_named(named, faults)
    faults.raise_if_any()
    return named


def _header_fault(key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    if key in _TEXTS:
        return "" if dtype.kind in "US" and not shape else f"expected one text, got {dtype} of shape {shape}"
    if dtype.kind not in {"known": "b", "leans": "b", "like": "iu", "schema": "iu"}.get(key, "f"):
        return f"has the wrong kind of numbers, {dtype}"
    if len(shape) != _AXES[key]:
        return f"expected {_AXES[key]} axes, got shape {shape}"
    return "is empty" if 0 in shape else ""


def _check_head(arrays: dict[str, Array], faults: Faults) -> None:
    if str(arrays["format"].item()) != FORMAT:
        faults.add("format", f"not a posterior of evenhand. {HOW_TO_FIT}")
    elif "schema" not in arrays or int(arrays["schema"]) != SCHEMA:
        faults.add("schema", f"is {int(arrays['schema']) if 'schema' in arrays else 'missing'}; {SCHEMA} is read here")
    elif "names" not in arrays:
        faults.add("names", "missing")
    if ("concentration" in arrays) == ("draws" in arrays) or ("mean" in arrays) != ("draws" in arrays):
        faults.add("", "expected either concentration, or mean and draws")
    elif "draws" in arrays and ("known" in arrays or "like" in arrays):
        faults.add("", "known and like require concentration")
    some = [key for key in POOLED if key in arrays]
    if some and ("draws" in arrays or len(some) < len(POOLED)):
        faults.add("", f"{', '.join(POOLED)} require each other and concentration")


def _built(arrays: dict[str, Array], faults: Faults) -> Named:
    posterior: Posterior
    if "concentration" in arrays:
        posterior = Dirichlet(_doubles(arrays["concentration"]), arrays.get("known"), _whole(arrays.get("like")))
        if "leans" in arrays:
            prior = PooledPrior(**{key: _doubles(arrays[key]) for key in PRIOR})
            posterior = Pooled(posterior, arrays["leans"], _doubles(arrays["counts"]), prior)
    else:
        posterior = Drawn(_doubles(arrays["mean"]), _doubles(arrays["draws"]))
    return Named(posterior, **_read_names(arrays["names"], faults))


def _doubles(array: Array) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float64)


def _whole(array: Array | None) -> Array | None:
    """Indices of actions; larger ones are invalid anyway."""
    return None if array is None else np.clip(array, -1, np.iinfo(np.int32).max).astype(np.int32)


def _read_names(given: Array, faults: Faults) -> dict[str, tuple[str, ...]]:
    try:
        text = given.item()
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        faults.add("names", f"not a JSON text: {error}")
        faults.raise_if_any()
    keys = ("types", "states", "actions")
    sound = isinstance(names, dict) and set(names) == set(keys)
    if not sound or not all(_are_names(names[key]) for key in keys):
        faults.add("names", "expected lists of different names: types, states, actions")
        faults.raise_if_any()
    return {key: tuple(names[key]) for key in keys}


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _check_named(named: Named, faults: Faults) -> None:
    """Collect invalid numbers and shapes of a posterior."""
    shape = (len(named.types), len(named.states), len(named.actions), len(named.states))
    for key, array in _arrays_of(named.posterior).items():
        own, expected = array.shape, shape[1:] if key in PRIOR else shape
        if key == "draws" or (key in PRIOR and key != "even"):
            own = own[1:]  # draws, or points of a grid
        if own != expected[: len(own)] or array.ndim != _AXES[key]:
            faults.add(key, f"has the shape {array.shape}, which does not match its names")
    if faults:
        return
    if isinstance(named.posterior, Dirichlet):
        _check_dirichlet(named.posterior, named, faults)
    elif isinstance(named.posterior, Pooled):
        _check_dirichlet(named.posterior.rows, named, faults)
        _check_prior(named.posterior, faults)
    elif isinstance(named.posterior, Drawn):
        for key, rows in (("mean", named.posterior.mean), ("draws", named.posterior.draws)):
            _check_rows(key, rows, faults)


def _check_dirichlet(posterior: Dirichlet, named: Named, faults: Faults) -> None:
    values, like = posterior.concentration, posterior.like
    if not np.isfinite(values).all() or (values < 0).any():
        faults.add("concentration", "has entries that are negative, infinite or not a number")
    if like is not None and ((like < 0) | (like >= len(named.actions))).any():
        faults.add("like", "has indices of unknown actions")
    if not faults and not np.isfinite(posterior.mean).all():
        kind, state, action = (int(i) for i in np.argwhere(np.isnan(posterior.mean))[0][:3])
        where = f"{named.types[kind]}, {named.states[state]}, {named.actions[action]}"
        faults.add("concentration", f"has unknown rows, the first of {where}")


def _check_prior(posterior: Pooled, faults: Faults) -> None:
    prior = posterior.prior
    for key, array in {"counts": posterior.counts, **{key: getattr(prior, key) for key in PRIOR}}.items():
        if not np.isfinite(array).all() or (array < 0).any():
            faults.add(key, "has entries that are negative, infinite or not a number")
    if len({len(getattr(prior, key)) for key in PRIOR if key != "even"}) > 1:
        faults.add("", "strength, weight, common and certainty must have the same number of points")
    if faults:
        return
    if (np.abs(prior.weight.sum(axis=0) - 1) > TOLERANCE).any():
        faults.add("weight", "has sums over its points that are not 1")
    if ((posterior.counts.sum(axis=-1) == 0) & posterior.leans).any():
        faults.add("leans", "has rows without counts of their own")
    # Draws and intervals follow from counts and prior: their mean must be the stored one.
    with np.errstate(all="ignore"):
        off = np.abs(prior.matched(posterior.counts).mean - replace(posterior.rows, like=None).mean)
    if not (off[posterior.leans] <= TOLERANCE).all():
        faults.add("counts", "do not give the means of concentration under the prior")


def _check_rows(key: str, rows: Floats, faults: Faults) -> None:
    if not (np.isfinite(rows).all() and (rows >= 0).all() and (np.abs(rows.sum(axis=-1) - 1) <= TOLERANCE).all()):
        faults.add(key, "has rows that are not probabilities")


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
    labels = problem.tables.labels or (("", (), ()),) * len(problem.tables)
    kinds = [named.types.index(name) if name in named.types else -1 for name, _, _ in labels]
    if max(kinds) < 0:
        theirs, ours = (", ".join(map(quoted, _few(names))) for names in (named.types, [name for name, *_ in labels]))
        faults.add("", f"the posterior is of another model: it has the types {theirs}; the model has {ours}")
        faults.raise_if_any("posterior")
    states, actions = [], []
    for kind, (name, own_states, own_actions) in zip(kinds, labels, strict=True):
        known = kind < 0
        states.append(_places(name, "state", () if known else own_states, () if known else named.states, faults))
        actions.append(_places(name, "action", () if known else own_actions, () if known else named.actions, faults))
    faults.raise_if_any("posterior")
    uncertain = Uncertain(problem, named, np.array(kinds, dtype=np.int64), tuple(states), tuple(actions))
    _check_transitions(uncertain, faults)
    faults.raise_if_any("posterior")
    return uncertain


def _few(names: Sequence[str]) -> list[str]:
    shown = [name or "(no name)" for name in names[:5]]
    return [*shown, "..."] if len(names) > 5 else shown


def _places(name: str, what: str, own: Sequence[str], theirs: Sequence[str], faults: Faults) -> Ints:
    """Index of each label of the block in the posterior."""
    if set(own) != set(theirs):
        missing = [label for label in theirs if label not in own]
        more = [label for label in own if label not in theirs]
        found = [f"the model lacks the {what} {quoted(label)}" for label in missing[:3]]
        found += [
            f"the records have no {what} {quoted(label)}" + (f", {quoted(near)}?" if near else "")
            for label, near in ((label, nearest(label, missing)) for label in more[:3])
        ]
        faults.add(f"type {quoted(name)}", "; ".join(found) or f"its {what}s have no names in the model")
        return np.zeros(0, dtype=np.int64)
    return np.array([list(theirs).index(label) for label in own], dtype=np.int64)


def _check_transitions(uncertain: Uncertain, faults: Faults) -> None:
    """Collect types whose transitions in the model are not the mean of the posterior."""
    tables, named = uncertain.problem.tables, uncertain.named
    mean = uncertain.placed(named.posterior.mean)
    off: Bools = np.abs(mean - tables.transitions) > TOLERANCE
    reported: set[int] = set()
    for block in np.flatnonzero(off.any(axis=(1, 2, 3))).tolist():
        kind = int(uncertain.type_of_block[block])
        if kind in reported:
            continue
        reported.add(kind)
        s, a, j = (int(i) for i in np.argwhere(off[block])[0])
        name, states, actions = tables.labels[block]
        faults.add(
            f"type {quoted(name)}",
            f"its transitions were edited after the fit: from {quoted(states[s])} under {quoted(actions[a])} "
            f"to {quoted(states[j])} it is {plain(tables.transitions[block, s, a, j])} in the model and "
            f"{plain(mean[block, s, a, j])} in the posterior. Fit again, or rename the type to take it as known",
        )
