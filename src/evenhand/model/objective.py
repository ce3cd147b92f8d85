"""The objective: one object for solvers, bounds, evaluation and reports.

An objective has *values*, one per type or per arm, in the order of a reduction. Welfare is over its *members*:

    over arms     the values themselves; a type counts as many members as it has arms
    over groups   the mean value of the arms of each group, each group one member:  m_g = sum_n c_n v_n / sum_n c_n

The criterion defines a value, the floors how often an arm must be served. Welfare is any concave, symmetric, monotone
function with a supergradient; its `structure` lets solvers take a shorter way.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.model.criterion import Criterion
from evenhand.model.simulator import Problem
from evenhand.model.welfare import DEFAULT, Structure, Welfare, as_welfare, structure
from evenhand.typing import Floats, Indices, Ints


@dataclass(frozen=True, eq=False)
class Objective:
    """Welfare of the members under a criterion."""

    criterion: Criterion
    """Value of rewards over time."""

    welfare: Welfare
    """Welfare of the members' values."""

    counts: Ints
    """(objective,) number of arms of each value."""

    groups: Indices | None
    """(objective,) group of each value; None if welfare is over arms."""

    floors: Floats
    """(objective,) smallest share of time in which each of its arms is served."""

    @classmethod
    def of_types(cls, problem: Problem, welfare: str | Welfare | None) -> "Objective":
        """Create with one value per type.

        Args:
            problem: the problem, with its criterion and groups.
            welfare: as text or object; by default the problem's own.
        """
        groups = problem.group_of_type if problem.over == "groups" else None
        return cls(problem.criterion, read_welfare(problem, welfare), problem.type_counts, groups, problem.type_floors)

    @classmethod
    def of_arms(cls, problem: Problem, welfare: str | Welfare | None) -> "Objective":
        """Create with one value per arm.

        Args:
            problem: the problem, with its criterion and groups.
            welfare: as text or object; by default the problem's own.
        """
        kinds = problem.type_of_arm
        groups = problem.group_of_type[kinds] if problem.over == "groups" else None
        ones = np.ones(problem.num_arms, dtype=np.int64)
        return cls(problem.criterion, read_welfare(problem, welfare), ones, groups, problem.type_floors[kinds])

    @property
    def num_values(self) -> int:
        """Number of values."""
        return len(self.counts)

    @cached_property
    def structure(self) -> Structure:
        """Structure of the welfare."""
        return structure(self.welfare, int(self.sizes.sum()))

    @cached_property
    def sizes(self) -> Ints:
        """(member,) number of members of welfare per entry of `members`: a type's arms, or one per group."""
        return self.counts if self.groups is None else np.ones(int(self.groups.max()) + 1, dtype=np.int64)

    @cached_property
    def shares(self) -> Floats:
        """(objective,) share of each value in its member: 1 over arms, else its part of the arms of its group."""
        if self.groups is None:
            return np.ones(self.num_values)
        return np.asarray(self.counts / np.bincount(self.groups, weights=self.counts)[self.groups])

    def members(self, values: Floats) -> Floats:
        """(..., member) values of the members.

        Args:
            values: (..., objective) values.
        """
        if self.groups is None:
            return values
        order = np.argsort(self.groups, kind="stable")
        starts = np.searchsorted(self.groups[order], np.arange(len(self.sizes)))
        return np.asarray(np.add.reduceat((values * self.shares)[..., order], starts, axis=-1))

    def spread(self, weights: Floats) -> Floats:
        """(..., objective) weights of members as weights of values: the transpose of `members`.

        Args:
            weights: (..., member) weights of the members.
        """
        return weights if self.groups is None else np.asarray(weights[..., self.groups] * self.shares)

    def __call__(self, values: Floats) -> float:
        """Return the welfare of some values.

        Args:
            values: (objective,) values.
        """
        return float(self.welfare(self.members(values), self.sizes))

    def supergradient(self, values: Floats) -> Floats:
        """(objective,) weights g, each of all arms of the value, with W(u) <= W(v) + g.(u - v).

        Args:
            values: (objective,) values.
        """
        return self.spread(self.welfare.supergradient(self.members(values), self.sizes))

    def check_domain(self, values: Floats) -> None:
        """Raise OutOfDomainError if the welfare is not defined.

        Args:
            values: (..., objective) values.
        """
        self.welfare.check_domain(self.members(values))


def num_members(problem: Problem) -> int:
    """Number of members of the welfare: arms, or groups."""
    return len(problem.group_names) if problem.over == "groups" else problem.num_arms


def read_welfare(problem: Problem, welfare: str | Welfare | None) -> Welfare:
    """Return a welfare, checked for the number of members of the problem.

    Args:
        problem: the problem.
        welfare: a text form or a welfare; by default the problem's own, else `welfare.DEFAULT`.
    """
    meant = welfare if welfare is not None else getattr(problem, "welfare", None) or DEFAULT
    return as_welfare(meant, num_members(problem))
