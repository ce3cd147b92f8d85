"""The names of policies, and nothing that makes one: told, checked and completed without loading what plays them."""

from pathlib import Path
from typing import NamedTuple

from evenhand.errors import UnknownName


class PolicyName(NamedTuple):
    """What a policy is called."""

    name: str
    """What a user types."""

    abbreviation: str
    """The paper's name for it, also accepted."""

    summary: str
    """One line for people."""


NAMES: tuple[PolicyName, ...] = (
    PolicyName("optimal", "OPT", "the best policy for this welfare, found by an exact method"),
    PolicyName("fair-index", "FIP", "the highest worth per price first, by the welfare"),
    PolicyName(
        "occupancy-priority", "FOP", "draws what the fluid relaxation would do, repairs it to the budget and fills up"
    ),
    PolicyName("re-solving", "FRP", "as fair-index, at prices found anew from where the arms are"),
    PolicyName("whittle", "WIP", "the highest Whittle index first, only where it is positive"),
    PolicyName(
        "cp-drl",
        "CPD",
        "a network on count proportions that ships with the package, for the problems it was trained on",
    ),
    PolicyName("random", "RDM", "again and again a random choice among stopping and what fits"),
    PolicyName("oldest-first", "OFT", "the arm in the worst state for its type first, always spending"),
    PolicyName("myopic", "MYP", "the largest gain of this step first, only where there is one"),
    PolicyName("equal-resources", "EQR", "every arm in turn, whatever its state"),
    PolicyName("never-act", "IDLE", "every arm idles"),
)
"""In the order in which they are compared; `roster` makes them."""


def find_name(name: str) -> PolicyName:
    """What is meant by a name or abbreviation."""
    for known in NAMES:
        if name.lower() in (known.name, known.abbreviation.lower()):
            return known
    raise UnknownName("policy", name, [known.name for known in NAMES])


def is_file(policy: str) -> bool:
    """Whether this means a saved policy rather than the name of one; a file of such a name is told by `./whittle`."""
    if any(policy.lower() in (known.name, known.abbreviation.lower()) for known in NAMES):
        return False
    return Path(policy).exists() or bool(Path(policy).suffix) or "/" in policy
