"""Policies of someone's own, as files: arrays, and what their class is called.

    class FirstWornOut:
        kind = "first-worn-out"                     what files call it
        def arrays(self): ...                       all that it consists of, beside the problem
        @classmethod
        def from_arrays(cls, problem, arrays): ...  the same again

Whoever reads such a file has the class and gives it. The file only says which one is meant.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from evenhand.errors import InvalidInput, NotApplicable, PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Savable, SavableKind, Starting
from evenhand.typing import Array

OWN = "own"
"""The kind of all of them, in manifests."""

MOST_AXES = 8
MOST_ARRAYS = 1000

Kinds: TypeAlias = Mapping[str, SavableKind]
"""Classes by what files call them."""

_KIND = re.compile(r"[a-z][a-z0-9-]{0,63}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def read_kinds(kinds: Sequence[SavableKind]) -> Kinds:
    """Classes under what files call them, if they can be used."""
    if not isinstance(kinds, (list, tuple)):
        raise InvalidInput(f"kinds: expected a list of classes, got {kinds!r}")
    found: dict[str, SavableKind] = {}
    for each in kinds:
        if not isinstance(getattr(each, "kind", None), str) or not callable(getattr(each, "from_arrays", None)):
            raise InvalidInput(f"kinds: {each!r} needs a text `kind` and a class method from_arrays(problem, arrays)")
        if found.setdefault(each.kind, each) is not each:
            raise InvalidInput(f"kinds: two classes are of the kind '{each.kind}'")
    return found


def take_own_apart(policy: Savable) -> tuple[dict[str, Any], dict[str, Array]]:
    """What the manifest says of a policy of one's own, and its arrays, each checked."""
    who = type(policy).__name__
    if not isinstance(policy.kind, str) or not _KIND.fullmatch(policy.kind):
        raise NotApplicable(f"{who}.kind: expected a text such as 'first-worn-out', got {policy.kind!r}")
    if not callable(getattr(type(policy), "from_arrays", None)):
        raise NotApplicable(f"{who} needs a class method from_arrays(problem, arrays), or nobody could read its file")
    given = policy.arrays()
    if not isinstance(given, Mapping) or len(given) > MOST_ARRAYS:
        raise NotApplicable(f"{who}.arrays(): expected arrays under names, at most {MOST_ARRAYS}, got {given!r}")
    arrays = {name: np.asarray(array) for name, array in given.items()}
    for name, array in arrays.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise NotApplicable(f"{who}.arrays(): names are of letters, digits and _, unlike {name!r}")
        if array.dtype.kind not in "biuf" or array.ndim > MOST_AXES:
            raise NotApplicable(
                f"{who}.arrays(): '{name}' must be numbers with at most {MOST_AXES} axes, and is {array.dtype} of "
                f"shape {array.shape}"
            )
    return {"kind": OWN, "class": policy.kind, "names": sorted(arrays)}, arrays


def own_names(form: dict[str, Any]) -> list[str]:
    """The names of the arrays that a manifest speaks of."""
    names = form.get("names")
    sound = isinstance(names, list) and len(names) <= MOST_ARRAYS
    if not sound or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names or ()):
        raise PolicyError("it does not say what its arrays are")
    return list(names or ())


def build_own(form: dict[str, Any], problem: CoupledMDP, arrays: dict[str, Array], kinds: Kinds) -> Policy | Starting:
    """The policy, by the class that was given for its kind."""
    kind = form.get("class")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise PolicyError("it does not say which class its policy is of")
    if kind not in kinds:
        raise PolicyError(
            f"it holds a policy of someone's own, of the kind '{kind}'. In Python, "
            "load_plan(path, kinds=[...]), or load_policy(path, problem, kinds=[...]), reads it with its class"
        )
    maker = kinds[kind]
    try:
        found = maker.from_arrays(problem, arrays)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise PolicyError(f"its arrays are nothing that the class given for '{kind}' can read ({told})") from error
    if not isinstance(found, (Policy, Starting)):
        raise PolicyError(f"the class given for '{kind}' made no policy of it, but {type(found).__name__}")
    return found
