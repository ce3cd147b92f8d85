"""Trained networks that ship with the package, so that they can be played without torch.

Each was made by the command that its manifest names.
"""

import json
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from evenhand.errors import NotApplicableError
from evenhand.model.simulator import Problem, needs_tables
from evenhand.planning.plan import load_policy
from evenhand.policies.network import CountNetworkPolicy, usage_of

FOLDER = Path(__file__).parent


def shipped_network(problem: Problem) -> CountNetworkPolicy:
    """The network that was trained on such arms.

    Raises:
        NotApplicableError: there is none; says how to train one.
    """
    problem = needs_tables(problem, "cp-drl")
    usage_of(problem)  # refuses arms that are not identical
    arm = problem.types.digests[0].hex()
    for path, manifest in manifests().items():
        if manifest["problem"]["arm"]["digest"] == arm and manifest["problem"]["discount"] == problem.discount:
            policy = load_policy(path, problem)
            return cast(CountNetworkPolicy, policy)
    raise NotApplicableError("no trained network ships for such arms; make one with `evenhand train`")


@lru_cache(maxsize=1)
def manifests() -> dict[Path, dict[str, Any]]:
    """The manifests of all shipped networks."""
    found = {}
    for path in sorted(FOLDER.glob("*.zip")):
        with zipfile.ZipFile(path) as file:
            found[path] = json.loads(file.read("manifest.json"))
    return found
