"""Registry of named policies: add one entry, and `solve`, `compare`, `evaluate` and the command line know it.

Light: makers are imported when they are called, so that names are checked and completed without loading solvers.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.errors import UnknownNameError

if TYPE_CHECKING:
    from evenhand.model.policy import Policy, StatefulPolicy
    from evenhand.model.simulator import Problem
    from evenhand.model.welfare import Welfare


@dataclass(frozen=True)
class NamedPolicy:
    """A policy that has a name."""

    name: str
    """Name that a user types."""

    abbreviation: str
    """The paper's name, also accepted."""

    summary: str
    """One line for people."""

    maker: str
    """Function of (problem), `module:name` in this package; with `fair`, of (problem, welfare, name)."""

    fair: bool = False
    """True if the policy depends on the welfare."""

    @property
    def is_heuristic(self) -> bool:
        """True if it needs neither a relaxation nor a trained network: it depends on the problem alone."""
        return self.maker.startswith("policies:")

    def build(self, problem: "Problem", welfare: "str | Welfare | None" = None) -> "Policy | StatefulPolicy":
        """Make the policy.

        Args:
            problem: the problem.
            welfare: welfare that it is made for; the problem's own by default.

        Raises:
            NotApplicableError: it cannot treat this problem.
            TooLargeError: it would need too much memory or time.
        """
        module, name = self.maker.split(":")
        make = getattr(import_module(f"evenhand.{module}"), name)
        policy: Policy | StatefulPolicy = make(problem, welfare, self.name) if self.fair else make(problem)
        return policy


REGISTRY: tuple[NamedPolicy, ...] = (
    NamedPolicy(
        "optimal", "OPT", "the best policy for this welfare, by an exact method", "planning.solve:optimal_policy", True
    ),
    NamedPolicy(
        "fair-index", "FIP", "highest gain per price first, by the welfare", "planning.relaxation:fluid_policy", True
    ),
    NamedPolicy(
        "occupancy-priority",
        "FOP",
        "draws actions from the occupancy measure of the fluid relaxation, repairs them to the budget and fills up",
        "planning.relaxation:fluid_policy",
        True,
    ),
    NamedPolicy(
        "re-solving",
        "FRP",
        "as fair-index, at prices found again from the present states",
        "planning.relaxation:fluid_policy",
        True,
    ),
    NamedPolicy("whittle", "WIP", "highest Whittle index first, only if it is positive", "policies:whittle"),
    NamedPolicy(
        "cp-drl",
        "CPD",
        "a network on count proportions that ships with the package, for the problems it was trained on",
        "planning.shipped:shipped_network",
    ),
    NamedPolicy(
        "random", "RDM", "repeated random choice among stopping and everything that fits", "policies:random_feasible"
    ),
    NamedPolicy(
        "oldest-first", "OFT", "the arm in the worst state for its type first, always spending", "policies:worst_first"
    ),
    NamedPolicy("myopic", "MYP", "the largest gain of this step first, only if there is one", "policies:myopic"),
    NamedPolicy("equal-resources", "EQR", "every arm in turn, whatever its state", "policies:RoundRobin"),
    NamedPolicy("never-act", "IDLE", "every arm idles", "policies:never_act"),
)
"""All named policies, in the order of a comparison."""


def find_policy(name: str) -> NamedPolicy:
    """Return the entry of a name or abbreviation, in any case.

    Raises:
        UnknownNameError: it is neither.
    """
    for entry in REGISTRY:
        if name.lower() in (entry.name, entry.abbreviation.lower()):
            return entry
    raise UnknownNameError("policy", name, [entry.name for entry in REGISTRY])


def is_file(policy: str) -> bool:
    """Return whether a text means a saved policy rather than a name; `./whittle` means a file of that name."""
    if any(policy.lower() in (entry.name, entry.abbreviation.lower()) for entry in REGISTRY):
        return False
    return Path(policy).exists() or bool(Path(policy).suffix) or "/" in policy
