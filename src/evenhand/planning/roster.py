"""Every policy that has a name, and how it is made: add to `NAMES` and `_MAKERS`, and compare and evaluate know it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from evenhand.errors import TooLarge
from evenhand.model.policy import Policy, Starting
from evenhand.model.simulator import Problem, needs_tables
from evenhand.model.welfare import Welfare
from evenhand.planning.names import NAMES, find_name
from evenhand.planning.plain import PLAIN
from evenhand.planning.relaxed import fluid_policy
from evenhand.planning.shipped import shipped_network
from evenhand.planning.solve import choose_method, solve


class Build(Protocol):
    """Makes a policy for a problem and a welfare; raises NotApplicable or TooLarge if it cannot."""

    def __call__(self, problem: Problem, welfare: str | Welfare | None = None) -> Policy | Starting:
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


def _optimal(problem: Problem, welfare: str | Welfare | None = None) -> Policy | Starting:
    known = needs_tables(problem, "optimal")
    method, reason = choose_method(known)
    if method == "fluid":
        raise TooLarge(reason)
    return solve(known, welfare, method).policy


def _relaxed(name: str) -> Build:
    """The policy of this name from the fair fluid relaxation."""

    def build(problem: Problem, welfare: str | Welfare | None = None) -> Policy | Starting:
        return fluid_policy(problem, welfare, name)

    return build


def _any_welfare(make: Callable[[Problem], Policy | Starting]) -> Build:
    """A policy that is the same for every welfare."""

    def build(problem: Problem, welfare: str | Welfare | None = None) -> Policy | Starting:
        return make(problem)

    return build


_MAKERS: dict[str, Build] = {
    "optimal": _optimal,
    "fair-index": _relaxed("fair-index"),
    "occupancy-priority": _relaxed("occupancy-priority"),
    "re-solving": _relaxed("re-solving"),
    "whittle": _any_welfare(PLAIN["whittle"]),
    "cp-drl": _any_welfare(shipped_network),
    "random": _any_welfare(PLAIN["random"]),
    "oldest-first": _any_welfare(PLAIN["oldest-first"]),
    "myopic": _any_welfare(PLAIN["myopic"]),
    "equal-resources": _any_welfare(PLAIN["equal-resources"]),
    "never-act": _any_welfare(PLAIN["never-act"]),
}

ROSTER: tuple[RosterEntry, ...] = tuple(RosterEntry(*known, _MAKERS[known.name]) for known in NAMES)


def find_policy(name: str) -> RosterEntry:
    """The entry of a name or abbreviation."""
    found = find_name(name)
    return next(entry for entry in ROSTER if entry.name == found.name)
