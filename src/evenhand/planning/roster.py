"""Every policy that has a name, in one list. A new capability adds its entry here, and compare and evaluate know it."""

from collections.abc import Callable
from dataclasses import dataclass

from evenhand import policies
from evenhand.errors import UnknownName
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting


@dataclass(frozen=True)
class RosterEntry:
    """A named policy."""

    name: str
    """What a user types."""

    abbreviation: str
    """The paper's name for it, also accepted."""

    summary: str
    """One line for people."""

    build: Callable[[CoupledMDP], Policy | Starting]
    """Makes it for a problem. Raises NotApplicable if it cannot treat the problem."""


ROSTER: tuple[RosterEntry, ...] = (
    RosterEntry(
        "random", "RDM", "again and again a random choice among stopping and what fits", policies.random_feasible
    ),
    RosterEntry("oldest-first", "OFT", "the arm in the worst state first, always spending", policies.worst_first),
    RosterEntry("myopic", "MYP", "the largest gain of this step first, only where there is one", policies.myopic),
    RosterEntry("equal-resources", "EQR", "every arm in turn, whatever its state", policies.RoundRobin),
    RosterEntry("never-act", "IDLE", "every arm idles", policies.never_act),
)


def find_policy(name: str) -> RosterEntry:
    """The entry of a name or abbreviation."""
    for entry in ROSTER:
        if name.lower() in (entry.name, entry.abbreviation.lower()):
            return entry
    raise UnknownName("policy", name, [entry.name for entry in ROSTER])
