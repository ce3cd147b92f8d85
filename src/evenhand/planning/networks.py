"""Trained networks as files: safetensors and a manifest in one zip archive, nothing that could run.

    manifest.json         format, schema, kind; versions of the libraries; the problem's signature, shape, usage and
                          labels; settings, seed, score and learning curve; SHA-256 of the tensors
    network.safetensors   weight and bias of each layer, float32

A network on count proportions plays any number of arms and any budget. It is refused on a problem with other states,
actions, resources or usage; on other transitions or rewards it plays, with a warning.
"""

import hashlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from evenhand._version import __version__
from evenhand.errors import NotApplicable, PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.rules import ALLOCATION_RULES
from evenhand.model.simulator import Simulator
from evenhand.planning import carried
from evenhand.planning.archives import check_parts, read_facts, read_part, write_archive
from evenhand.policies.network import (
    CountNetworkPolicy,
    JointNetworkPolicy,
    Network,
    usage_of,
)
from evenhand.typing import Singles

FORMAT = "evenhand-network"
SCHEMA = 1
TENSORS = "network.safetensors"
MOST_BYTES = 64_000_000
"""The largest network file that is unpacked."""

MOST_LAYERS = 32


class OtherDynamics(UserWarning):
    """A network plays arms with other transitions or rewards than those it was trained on."""


def save_network(
    policy: CountNetworkPolicy | JointNetworkPolicy,
    path: str | Path,
    about: dict[str, Any] | None = None,
    carry: bool = True,
) -> None:
    """Write a trained network.

    Args:
        policy: from `train`.
        path: where to; an existing file is replaced as a whole.
        about: facts for the manifest, such as settings, seed, score and learning curve.
        carry: whether the file carries the policy's problem, so that it can act by itself; a simulator never is.
    """
    from safetensors.numpy import save as save_tensors

    network = policy.network
    # A user's own model behind the same class has weights that this file cannot hold.
    if not isinstance(network, Network):
        raise NotApplicable(
            f"a policy that asks {network!r} cannot be saved here, for its network is not ours; save the model itself, "
            "or train with `train`"
        )
    tensors: dict[str, Singles] = {}
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        tensors |= {f"{layer}.weight": np.ascontiguousarray(weight), f"{layer}.bias": np.ascontiguousarray(bias)}
    body = save_tensors(tensors)
    counts, problem = isinstance(policy, CountNetworkPolicy), policy.problem
    # A simulator is a user's function: there is nothing to carry.
    carries, carried_bodies = carried.pack(problem) if carry and isinstance(problem, CoupledMDP) else ({}, {})
    manifest = {
        "format": FORMAT,
        "schema": SCHEMA,
        "kind": "count-network" if counts else "joint-network",
        "versions": _versions(),
        "problem": _identity(policy.problem),
        "network": {"layers": len(network.weights), "squash": network.squash},
        # A joint network has no rule: its logits say who is served.
        "allocation": policy.rule if isinstance(policy, CountNetworkPolicy) else None,
        "about": about or {},
        "carries": carries,
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    write_archive(Path(path), manifest, {TENSORS: body, **carried_bodies})


def read_network(
    file: zipfile.ZipFile, manifest: dict[str, Any], problem: CoupledMDP | Simulator
) -> CountNetworkPolicy | JointNetworkPolicy:
    """The policy of an archive whose manifest has been read, for a problem that it fits; see `other_dynamics`."""
    beside = carried.parts_of(manifest)
    # Sizes before contents: an archive may claim to unpack into more than there is memory.
    check_parts(file, [TENSORS, *beside], MOST_BYTES + sum(file.getinfo(name).file_size for name in beside))
    # What is carried is checked as well, though the policy may play another problem.
    carried.check(file, manifest)
    facts = read_facts(manifest, "network", {"layers": int, "squash": bool})
    # The tensors are read only if their hash is the one that the manifest has.
    network = _read_layers(read_part(file, TENSORS, manifest.get("sha256"), "network"), facts)
    _check_fits(manifest["problem"], problem)
    kind = manifest.get("kind")
    if kind == "count-network":
        if manifest.get("allocation") not in ALLOCATION_RULES:
            raise PolicyError(f"its allocation {manifest.get('allocation')!r} is not known to this version")
        return CountNetworkPolicy(problem, network, manifest["allocation"])
    if kind != "joint-network":
        raise PolicyError(f"its kind {kind!r} is not known to this version")
    if isinstance(problem, Simulator):
        raise PolicyError("a joint network plays a problem with matrices")
    return JointNetworkPolicy(problem, network)


def _read_layers(body: bytes, facts: dict[str, Any]) -> Network:
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_tensors

    layers = facts["layers"]
    # The number of layers sizes a loop, and comes from a file.
    if not 1 <= layers <= MOST_LAYERS:
        raise PolicyError(f"it says it has {layers!r} layers")
    try:
        tensors = load_tensors(body)
    except (SafetensorError, ValueError, KeyError):
        raise PolicyError("its network is not a file of tensors") from None
    # Exactly these tensors: one too many is as strange as one too few.
    names = {f"{layer}.{part}" for layer in range(layers) for part in ("weight", "bias")}
    if set(tensors) != names or any(tensor.dtype != np.float32 for tensor in tensors.values()):
        raise PolicyError("its tensors are not the weights and biases its manifest speaks of")
    weights = [tensors[f"{layer}.weight"] for layer in range(layers)]
    return Network(weights, [tensors[f"{layer}.bias"] for layer in range(layers)], facts["squash"] is True)


def _versions() -> dict[str, str]:
    """Versions of the libraries that took part."""
    found = {"evenhand": __version__, "numpy": np.__version__}
    for name in ("torch", "stable_baselines3", "gymnasium"):
        # Only what was imported can have taken part; asking for a version must import nothing.
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found


def _identity(problem: CoupledMDP | Simulator) -> dict[str, Any]:
    usage = usage_of(problem)
    shape = {"num_states": usage.shape[0], "num_actions": usage.shape[1], "num_resources": usage.shape[2]}
    facts: dict[str, Any] = {**shape, "usage": usage.tolist(), "num_arms": problem.num_arms}
    facts |= {"budget": [float(b) for b in problem.budget], "discount": problem.discount}
    facts |= {"signature": None, "arm": None, "states": [], "actions": []}
    if isinstance(problem, CoupledMDP):
        labels = problem.types.labels[0] if problem.types.labels else ("", (), ())
        facts |= {"signature": problem.signature, "arm": problem.types.digests[0].hex()}
        facts |= {"states": list(labels[1]), "actions": list(labels[2])}
    return facts


def _check_fits(made_for: dict[str, Any], problem: CoupledMDP | Simulator) -> None:
    """Refuse another kind of arm."""
    here = _identity(problem)
    faults = [
        f"{name} was {made_for.get(name)}, here {here[name]}"
        # Labels need agree only where both sides have some.
        for name in ("num_states", "num_actions", "num_resources", "states", "actions")
        if made_for.get(name) != here[name]
        and not (name in ("states", "actions") and not (made_for.get(name) and here[name]))
    ]
    # Only where sizes agree can amounts be compared.
    if not faults and made_for.get("usage") != here["usage"]:
        faults = ["actions use other amounts of the resources"]
    if faults:
        raise PolicyError(f"trained for another kind of arm ({'; '.join(faults)})")


def other_dynamics(manifest: dict[str, Any], problem: CoupledMDP | Simulator) -> bool:
    """Whether a network was trained on arms with other transitions, rewards or first states than the problem's."""
    trained_on, here = manifest["problem"].get("arm"), _identity(problem)["arm"]
    return bool(trained_on and here and trained_on != here)
