"""Every policy that has a name, in one list. A new capability adds its entry here, and compare and evaluate know it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from evenhand.errors import TooLarge, UnknownName
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Welfare
from evenhand.planning.plain import PLAIN
from evenhand.planning.relaxed import fluid_policy
from evenhand.planning.shipped import shipped_network
from evenhand.planning.solve import choose_method, solve


class Build(Protocol):
    """Makes a policy for a problem and a welfare; raises NotApplicable or TooLarge if it cannot."""

    def __call__(self, problem: CoupledMDP, welfare: str | Welfare = "gini:2") -> Policy | Starting:
        """The policy."""
        ...


@dataclass(frozen=True)
class RosterEntry:
    """A named policy."""

    name: str
    """What a user types."""

    abbreviation: str
    """The paper's name for it, also accepted."""

    summary: str
    """One line for people."""

    build: Build
    """Makes it."""


def _optimal(problem: CoupledMDP, welfare: str | Welfare = "gini:2") -> Policy | Starting:
    method, reason = choose_method(problem)
    if method == "fluid":
        raise TooLarge(reason)
    return solve(problem, welfare, method).policy


def _relaxed(name: str) -> Build:
    """The policy of this name from the fair fluid relaxation."""

    def build(problem: CoupledMDP, welfare: str | Welfare = "gini:2") -> Policy | Starting:
        return fluid_policy(problem, welfare, name)

    return build


def _any_welfare(make: Callable[[CoupledMDP], Policy | Starting]) -> Build:
    """A policy that is the same for every welfare."""

    def build(problem: CoupledMDP, welfare: str | Welfare = "gini:2") -> Policy | Starting:
        return make(problem)

    return build


ROSTER: tuple[RosterEntry, ...] = (
    RosterEntry("optimal", "OPT", "the best policy for this welfare, found by an exact method", _optimal),
    RosterEntry("fair-index", "FIP", "the highest worth per price first, by the welfare", _relaxed("fair-index")),
    RosterEntry(
        "occupancy-priority",
        "FOP",
        "draws what the fluid relaxation would do, repairs it to the budget and fills up",
        _relaxed("occupancy-priority"),
    ),
    RosterEntry(
        "re-solving", "FRP", "as fair-index, at prices found anew from where the arms are", _relaxed("re-solving")
    ),
    RosterEntry(
        "whittle", "WIP", "the highest Whittle index first, only where it is positive", _any_welfare(PLAIN["whittle"])
    ),
    RosterEntry(
        "cp-drl",
        "CPD",
        "a network on count proportions that ships with the package, for the problems it was trained on",
        _any_welfare(shipped_network),
    ),
    RosterEntry(
        "random",
        "RDM",
        "again and again a random choice among stopping and what fits",
        _any_welfare(PLAIN["random"]),
    ),
    RosterEntry(
        "oldest-first", "OFT", "the arm in the worst state first, always spending", _any_welfare(PLAIN["oldest-first"])
    ),
    RosterEntry(
        "myopic", "MYP", "the largest gain of this step first, only where there is one", _any_welfare(PLAIN["myopic"])
    ),
    RosterEntry(
        "equal-resources", "EQR", "every arm in turn, whatever its state", _any_welfare(PLAIN["equal-resources"])
    ),
    RosterEntry("never-act", "IDLE", "every arm idles", _any_welfare(PLAIN["never-act"])),
)


def find_policy(name: str) -> RosterEntry:
    """The entry of a name or abbreviation."""
    for entry in ROSTER:
        if name.lower() in (entry.name, entry.abbreviation.lower()):
            return entry
    raise UnknownName("policy", name, [entry.name for entry in ROSTER])
