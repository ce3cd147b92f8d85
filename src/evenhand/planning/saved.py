"""Policies as files: arrays and a manifest in one zip archive, nothing that could run.

    manifest.json   format, schema, kind, the problem's signature and shape, what made it, and of every array
                    its shape, dtype and SHA-256
    NAME.npy        one array each, never pickled

A file is read only if its manifest is understood, every array is the one the manifest describes, and the policy was
made for the very problem it is asked to play. Trained networks have files of their own kind (`networks`).
"""

import hashlib
import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evenhand._version import __version__
from evenhand.errors import NotApplicable, PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting, capabilities
from evenhand.model.simulator import Simulator
from evenhand.planning import networks
from evenhand.planning.archives import check_parts, guarded, read_manifest, read_part, write_archive
from evenhand.planning.solution import Solution
from evenhand.policies.fluid import OccupancyPriority, Resolving
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy
from evenhand.policies.priority import ExchangeablePriority
from evenhand.reductions.counts import CountChoices, Counts, CountTable
from evenhand.reductions.joint import Joint, JointTable
from evenhand.typing import Array

FORMAT = "evenhand-policy"
SCHEMA = 1


def save_policy(
    policy: Policy | Starting, problem: CoupledMDP, path: str | Path, about: dict[str, Any] | None = None
) -> None:
    """Write a policy that is a table or a trained network.

    Args:
        policy: from `solve`.
        problem: what it was made for.
        path: where to; an existing file is replaced as a whole.
        about: facts for the manifest, such as the method and the certificate.
    """
    if isinstance(policy, (CountNetworkPolicy, JointNetworkPolicy)):
        networks.save_network(policy, path, about)
        return
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
    write_archive(Path(path), manifest, {f"{name}.npy": body for name, body in bodies.items()})


def save_solution(solution: Solution, path: str | Path) -> None:
    """Write a solution's policy, with its certificate in the manifest."""
    about = {
        "method": solution.method,
        "welfare": solution.objective.welfare.name,
        "value": solution.welfare,
        "upper_bound": solution.upper_bound,
        "gap": solution.gap,
    }
    save_policy(solution.policy, solution.problem, path, about)


def load_policy(path: str | Path, problem: CoupledMDP | Simulator) -> Policy | Starting:
    """Read a policy for a problem.

    A table plays the very problem it was made for. A trained network plays any number of such arms, with any budget.

    Raises:
        PolicyError: the file is not sound, or the policy was made for another problem; says how they differ.
    """
    found: tuple[Policy | Starting, bool] = guarded(Path(path), lambda file: _read(file, problem))
    policy, strange = found
    if strange:
        told = "this network was trained on arms with other transitions, rewards or first states"
        warnings.warn(told, networks.OtherDynamics, stacklevel=2)
    return policy


def _take_apart(policy: Policy | Starting) -> tuple[str, dict[str, Array]]:
    if isinstance(policy, CountChoices):
        return "count-choices", {"cells": policy.cells, "base": policy.base, "amounts": policy.amounts}
    if (table := capabilities(policy).table) is not None:
        pairs = np.flatnonzero(table.probabilities)
        kind = "count-table" if isinstance(table.reduction, Counts) else "joint-table"
        return kind, {"pairs": pairs, "probabilities": table.probabilities[pairs]}
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


def _read(file: zipfile.ZipFile, problem: CoupledMDP | Simulator) -> tuple[Policy | Starting, bool]:
    """The policy, and whether it is a network that meets dynamics which it was not trained on."""
    manifest = read_manifest(file, (FORMAT, networks.FORMAT), SCHEMA)
    if manifest["format"] == networks.FORMAT:
        return networks.read_network(file, manifest, problem), networks.other_dynamics(manifest, problem)
    if isinstance(problem, Simulator):
        raise PolicyError("it is a table; only a trained network plays a simulator")
    arrays = _read_arrays(file, manifest)
    _check_identity(manifest["problem"], problem)
    return _BUILDERS[manifest["kind"]](problem, arrays), False


def _read_arrays(file: zipfile.ZipFile, manifest: dict[str, Any]) -> dict[str, Array]:
    kind, described = manifest.get("kind"), manifest.get("arrays")
    if kind not in _ARRAYS:
        raise PolicyError(f"its kind {kind!r} is not known to this version")
    if not isinstance(described, dict) or set(described) != set(_ARRAYS[kind]):
        raise PolicyError(f"a policy of kind {kind} has the arrays {', '.join(_ARRAYS[kind])}")
    check_parts(file, [f"{name}.npy" for name in described])
    arrays = {name: _read_array(file, name, facts) for name, facts in described.items()}
    for name, (letters, axes) in _ARRAYS[kind].items():
        if arrays[name].dtype.kind not in letters or arrays[name].ndim != axes:
            raise PolicyError(f"its array {name} is not of the right type and shape")
    return arrays


def _read_array(file: zipfile.ZipFile, name: str, facts: dict[str, Any]) -> Array:
    body = read_part(file, f"{name}.npy", facts["sha256"], f"array {name}")
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
    return CountTable(space, probabilities) if isinstance(space, Counts) else JointTable(space, probabilities)


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
