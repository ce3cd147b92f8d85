"""The problem inside a saved policy, so that the file is a plan: it can act and be shown without the model file.

    model.npz    the problem as a model file, with its labels, criterion and groups
    arms.json    what its arms are called, where they have names

Both stand in the manifest under `carries`, with their SHA-256. Files without them are read for a problem as before.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evenhand.errors import PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import load, save
from evenhand.planning.archives import read_json, read_part

MODEL, NAMES = "model.npz", "arms.json"


def pack(problem: CoupledMDP) -> tuple[dict[str, str], dict[str, bytes]]:
    """What the manifest says under `carries`, and the parts themselves."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / MODEL
        save(problem, path)
        bodies = {MODEL: path.read_bytes()}
    if problem.arm_names:
        bodies[NAMES] = json.dumps(list(problem.arm_names)).encode()
    return {name: hashlib.sha256(body).hexdigest() for name, body in bodies.items()}, bodies


def parts_of(manifest: dict[str, Any]) -> list[str]:
    """The parts that a manifest says are carried."""
    carried = manifest.get("carries", {})
    if not isinstance(carried, dict) or not set(carried) <= {MODEL, NAMES}:
        raise PolicyError("its manifest does not say what it carries")
    return list(carried)


def check(file: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
    """Refuse a file whose carried parts are not those of its manifest, also where only the policy is read."""
    for name in parts_of(manifest):
        read_part(file, name, manifest["carries"][name], "model" if name == MODEL else "list of arms")


def unpack(file: zipfile.ZipFile, manifest: dict[str, Any]) -> CoupledMDP:
    """The problem that a file carries.

    Raises:
        PolicyError: it carries none, or it is not sound.
    """
    parts = parts_of(manifest)
    if MODEL not in parts:
        raise PolicyError(
            "it carries no model: it was saved by an earlier version, or made for a simulator. "
            "Solve again; in Python, load_policy(path, problem) reads it as it is"
        )
    body = read_part(file, MODEL, manifest["carries"][MODEL], "model")
    problem = load(io.BytesIO(body), "npz")
    if NAMES not in parts:
        return problem
    names = read_json(file, NAMES, manifest["carries"][NAMES], "list of arms")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PolicyError("its list of arms is not a list of names")
    return replace(problem, arm_names=names)
