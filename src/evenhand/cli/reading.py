"""From what a user typed to a problem."""

from collections.abc import Sequence
from pathlib import Path

from evenhand.errors import InvalidInput, UnknownName
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import load
from evenhand.model.policy import Policy, Starting
from evenhand.planning.roster import find_policy
from evenhand.planning.saved import load_policy
from evenhand.problems import catalog

SUFFIXES = (".toml", ".json", ".npz")


def read_problem(model: str, parameters: Sequence[str]) -> CoupledMDP:
    """A model file, or a built-in problem with its parameters."""
    if model in catalog.names():
        return catalog.build(model, read_parameters(parameters))
    if not model.endswith(SUFFIXES) and not Path(model).exists():
        raise InvalidInput(f"{UnknownName('problem', model, catalog.names())} Or give a file ({', '.join(SUFFIXES)}).")
    if parameters:
        raise InvalidInput("-p sets parameters of built-in problems; edit the model file instead")
    return load(model)


def read_parameters(parameters: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE texts as a dictionary."""
    broken = [text for text in parameters if "=" not in text]
    if broken:
        raise InvalidInput(f"-p: expected KEY=VALUE, got {', '.join(map(repr, broken))}")
    pairs = [text.split("=", 1) for text in parameters]
    keys = [key.strip().replace("-", "_") for key, _ in pairs]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise InvalidInput(f"-p: given twice: {', '.join(twice)}")
    return {key.strip(): value.strip() for key, value in pairs}


def read_policy(policy: str, problem: CoupledMDP) -> Policy | Starting:
    """A saved policy, or one that has a name."""
    path = Path(policy)
    if path.exists() or path.suffix or "/" in policy:
        return load_policy(path, problem)
    return find_policy(policy).build(problem)
