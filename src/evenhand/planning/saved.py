"""Policies as files: arrays and a manifest in one zip archive, nothing that could run.

    manifest.json   format, schema, kind, the problem's signature and shape, what made it, and of every array
                    its shape, dtype and SHA-256
    NAME.npy        one array each, never pickled

A file is read only if its manifest is understood, every array is the one the manifest describes, and the policy was
made for the very problem it is asked to play.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evenhand._version import __version__
from evenhand.checks import check_memory
from evenhand.errors import NotApplicable, PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import write_atomically
from evenhand.model.policy import Policy, Starting
from evenhand.planning.solution import Solution
from evenhand.policies.fluid import OccupancyPriority, Resolving
from evenhand.policies.priority import ExchangeablePriority
from evenhand.reductions.counts import CountChoices, Counts, CountTable
from evenhand.reductions.joint import Joint, JointTable
from evenhand.typing import Array

FORMAT = "evenhand-policy"
SCHEMA = 1
MOST_MANIFEST = 1_000_000
"""Bytes of the largest manifest that is read."""


def save_policy(
    policy: Policy | Starting, problem: CoupledMDP, path: str | Path, about: dict[str, Any] | None = None
) -> None:
    """Write a policy that is a table.

    Args:
        policy: from `solve`.
        problem: what it was made for.
        path: where to; an existing file is replaced as a whole.
        about: facts for the manifest, such as the method and the certificate.
    """
    kind, arrays = _take_apart(policy)
    bodies = {name: _npy(array) for name, array in arrays.items()}
    manifest = {
        "format": FORMAT,
        "schema": SCHEMA,
        "evenhand": __version__,
        "kind": kind,
        "problem": _identity(problem),
        "about": about or {},
        "arrays": {name: _facts(arrays[name], bodies[name]) for name in arrays},
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        _add(file, "manifest.json", json.dumps(manifest, indent=1).encode())
        for name, body in bodies.items():
            _add(file, f"{name}.npy", body)
    write_atomically(Path(path), archive.getvalue())


def save_solution(solution: Solution, path: str | Path) -> None:
    """Write a solution's policy, with its certificate in the manifest."""
    about = {
        "method": solution.method,
        "welfare": solution.measure.name,
        "value": solution.welfare,
        "upper_bound": solution.upper_bound,
        "gap": solution.gap,
    }
    save_policy(solution.policy, solution.problem, path, about)


def load_policy(path: str | Path, problem: CoupledMDP) -> Policy | Starting:
    """Read a policy for a problem.

    Raises:
        PolicyError: the file is not sound, or the policy was made for another problem; says how they differ.
    """
    try:
        manifest, arrays = _read(Path(path))
        _check_identity(manifest["problem"], problem)
        return _BUILDERS[manifest["kind"]](problem, arrays)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None
    except Exception as error:  # noqa: BLE001  # the file is a stranger's: whatever it provokes is its fault
        raise PolicyError(f"{path}: not a policy file that can be read ({type(error).__name__}: {error})") from None


def _take_apart(policy: Policy | Starting) -> tuple[str, dict[str, Array]]:
    if isinstance(policy, CountChoices):
        return "count-choices", {"cells": policy.cells, "base": policy.base, "amounts": policy.amounts}
    if isinstance(policy, (CountTable, JointTable)):
        pairs = np.flatnonzero(policy.probabilities)
        kind = "count-table" if isinstance(policy, CountTable) else "joint-table"
        return kind, {"pairs": pairs, "probabilities": policy.probabilities[pairs]}
    if isinstance(policy, ExchangeablePriority) and not policy.stop:
        return "priority", {"scores": policy.scores, "threshold": np.array(policy.threshold)}
    if isinstance(policy, OccupancyPriority):
        return "occupancy-priority", {"occupancy": policy.occupancy, "weights": policy.weights, "prices": policy.prices}
    if isinstance(policy, Resolving):
        steps = {"every": np.array(policy.every), "points": np.array(policy.points)}
        return "re-solving", {"weights": policy.weights, "prices": policy.prices, **steps}
    raise NotApplicable(f"a policy of type {type(policy).__name__} is not a table and cannot be saved; use its name")


def _npy(array: Array) -> bytes:
    body = io.BytesIO()
    np.lib.format.write_array(body, np.asarray(array, order="C"), allow_pickle=False)
    return body.getvalue()


def _facts(array: Array, body: bytes) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": array.dtype.str, "sha256": hashlib.sha256(body).hexdigest()}


def _add(file: zipfile.ZipFile, name: str, body: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))  # the same policy is the same file
    entry.compress_type = zipfile.ZIP_DEFLATED
    file.writestr(entry, body)


def _identity(problem: CoupledMDP) -> dict[str, Any]:
    return {
        "signature": problem.signature,
        "num_arms": problem.num_arms,
        "num_types": problem.num_types,
        "num_states": [int(s) for s in problem.types.num_states[:100]],
        "num_actions": [int(a) for a in problem.types.num_actions[:100]],
        "budget": [float(b) for b in problem.budget],
        "discount": problem.discount,
    }


def _check_identity(made_for: dict[str, Any], problem: CoupledMDP) -> None:
    here = _identity(problem)
    if made_for.get("signature") == here["signature"]:
        return
    names = [name for name in here if name != "signature" and made_for.get(name) != here[name]]
    details = "; ".join(f"{name} was {made_for.get(name)}, here {here[name]}" for name in names)
    raise PolicyError(f"made for another problem ({details or 'other transitions, rewards, usage or initial states'})")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    with zipfile.ZipFile(path) as file:
        manifest = _read_manifest(file)
        described = manifest["arrays"]
        expected = {"manifest.json", *(f"{name}.npy" for name in described)}
        if set(file.namelist()) != expected or len(file.namelist()) != len(expected):
            raise PolicyError("its parts are not those its manifest lists")
        check_memory(3.0 * sum(entry.file_size for entry in file.infolist()), f"{path}", "It is not a policy of ours.")
        arrays = {name: _read_array(file, name, facts) for name, facts in described.items()}
    for name, (letters, axes) in _ARRAYS[manifest["kind"]].items():
        if arrays[name].dtype.kind not in letters or arrays[name].ndim != axes:
            raise PolicyError(f"its array {name} is not of the right type and shape")
    return manifest, arrays


def _read_manifest(file: zipfile.ZipFile) -> dict[str, Any]:
    if file.getinfo("manifest.json").file_size > MOST_MANIFEST:
        raise PolicyError("its manifest is too large")
    manifest = json.loads(file.read("manifest.json"))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PolicyError("it is not an evenhand policy")
    if manifest.get("schema") != SCHEMA:
        raise PolicyError(f"its schema is {manifest.get('schema')}; this version reads {SCHEMA}")
    kind = manifest.get("kind")
    if kind not in _ARRAYS:
        raise PolicyError(f"its kind {kind!r} is not known to this version")
    if not isinstance(manifest.get("arrays"), dict) or set(manifest["arrays"]) != set(_ARRAYS[kind]):
        raise PolicyError(f"a policy of kind {kind} has the arrays {', '.join(_ARRAYS[kind])}")
    return manifest


def _read_array(file: zipfile.ZipFile, name: str, facts: dict[str, Any]) -> Array:
    body = file.read(f"{name}.npy")
    if hashlib.sha256(body).hexdigest() != facts["sha256"]:
        raise PolicyError(f"its array {name} is not the one its manifest describes (hash differs)")
    array: Array = np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
    if list(array.shape) != facts["shape"] or array.dtype.str != facts["dtype"]:
        raise PolicyError(f"its array {name} has another shape or type than its manifest says")
    return array


def _build_choices(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    cells, base, amounts = arrays["cells"], arrays["base"], arrays["amounts"]
    if not problem.is_symmetric:
        raise PolicyError("it is for identical arms")
    S, A = problem.types.valid.shape[1:]
    fits = (
        cells.shape == (amounts.shape[1], 2)
        and base.shape == (S,)
        and amounts.shape[0] == Counts(problem).num_states
        and (cells >= 0).all()
        and (cells < (S, A)).all()
        and ((base >= 0) & (base < A)).all()
        and (amounts >= 0).all()
    )
    if not fits:
        raise PolicyError("its tables do not fit the problem")
    return CountChoices(problem, cells, base, amounts)


def _build_table(space: Counts | Joint, arrays: dict[str, Array]) -> Policy:
    pairs, chances = arrays["pairs"], arrays["probabilities"]
    probabilities = np.zeros(space.mdp.num_pairs)
    if pairs.shape != chances.shape or pairs.min(initial=0) < 0 or pairs.max(initial=0) >= len(probabilities):
        raise PolicyError("its pairs do not exist in this problem")
    probabilities[pairs] = chances
    return space.lift(probabilities)


def _build_priority(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    return ExchangeablePriority(problem, arrays["scores"], float(arrays["threshold"]))


def _build_drawn(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    return OccupancyPriority(problem, arrays["occupancy"], arrays["weights"], arrays["prices"])


def _build_resolving(problem: CoupledMDP, arrays: dict[str, Array]) -> Starting:
    steps = int(arrays["every"]), int(arrays["points"])
    return Resolving(problem, arrays["weights"], arrays["prices"], *steps)


_TABLE = {"pairs": ("iu", 1), "probabilities": ("f", 1)}
_ARRAYS: dict[str, dict[str, tuple[str, int]]] = {
    "count-choices": {"cells": ("iu", 2), "base": ("iu", 1), "amounts": ("iu", 2)},
    "count-table": _TABLE,
    "joint-table": _TABLE,
    "priority": {"scores": ("f", 3), "threshold": ("f", 0)},
    "re-solving": {"weights": ("f", 1), "prices": ("f", 1), "every": ("iu", 0), "points": ("iu", 0)},
    "occupancy-priority": {"occupancy": ("f", 3), "weights": ("f", 1), "prices": ("f", 1)},
}
"""The arrays of each kind: letters of the dtype, number of axes."""

_BUILDERS: dict[str, Callable[[CoupledMDP, dict[str, Array]], Policy | Starting]] = {
    "count-choices": _build_choices,
    "count-table": lambda problem, arrays: _build_table(Counts(problem), arrays),
    "joint-table": lambda problem, arrays: _build_table(Joint(problem), arrays),
    "priority": _build_priority,
    "occupancy-priority": _build_drawn,
    "re-solving": _build_resolving,
}
