"""The objective: what is maximised, as one object that solvers, bounds, evaluation and reports ask.

An objective has *values*, one for each type or each arm, in the order of a reduction. Welfare weighs its *members*:

    over arms     the values themselves; a type stands for as many members as it has arms
    over groups   the mean value of the arms of each group, each group one member:  m_g = sum_n c_n v_n / sum_n c_n

The criterion says what a value is, the floors how often an arm must be served. Welfare itself is any concave,
symmetric, monotone function with a supergradient; what more is known of it (`RankWeighted`, `PowerMean`,
`lexicographic`, see `welfare`) lets solvers take a shorter way.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.model.criterion import Criterion
from evenhand.model.simulator import Problem
from evenhand.model.welfare import DEFAULT, Welfare, as_welfare
from evenhand.typing import Floats, Indices, Ints


@dataclass(frozen=True, eq=False)
class Objective:
    """Whose values count, in which way, over which time."""

    criterion: Criterion
    """What rewards over time are worth."""

    welfare: Welfare
    """How the members' values are weighed."""

    counts: Ints
    """(objective,) how many arms each value stands for."""

    groups: Indices | None
    """(objective,) the group of each value; None where welfare is over arms."""

    floors: Floats
    """(objective,) the least share of time in which each of its arms is served."""

    @classmethod
    def of_types(cls, problem: Problem, welfare: str | Welfare | None) -> "Objective":
        """One value a type.

        Args:
            problem: the problem, which says the criterion and whom welfare is over.
            welfare: as text or object; the problem's own when absent.
        """
        groups = problem.group_of_type if problem.over == "groups" else None
        return cls(problem.criterion, read_welfare(problem, welfare), problem.type_counts, groups, problem.type_floors)

    @classmethod
    def of_arms(cls, problem: Problem, welfare: str | Welfare | None) -> "Objective":
        """One value an arm.

        Args:
            problem: the problem, which says the criterion and whom welfare is over.
            welfare: as text or object; the problem's own when absent.
        """
        kinds = problem.type_of_arm
        groups = problem.group_of_type[kinds] if problem.over == "groups" else None
        ones = np.ones(problem.num_arms, dtype=np.int64)
        return cls(problem.criterion, read_welfare(problem, welfare), ones, groups, problem.type_floors[kinds])

    @property
    def num_values(self) -> int:
        """How many values there are."""
        return len(self.counts)

    @cached_property
    def sizes(self) -> Ints:
        """(member,) how many members of welfare each of `members` stands for: a type's arms, or one a group."""
        return self.counts if self.groups is None else np.ones(int(self.groups.max()) + 1, dtype=np.int64)

    @cached_property
    def shares(self) -> Floats:
        """(objective,) the share of each value in its member: 1 over arms, its part of the arms of its group else."""
        if self.groups is None:
            return np.ones(self.num_values)
        return np.asarray(self.counts / np.bincount(self.groups, weights=self.counts)[self.groups])

    def members(self, values: Floats) -> Floats:
        """(..., member) what welfare weighs.

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
            weights: (..., member) weights, each of all that the member stands for.
        """
        return weights if self.groups is None else np.asarray(weights[..., self.groups] * self.shares)

    def __call__(self, values: Floats) -> float:
        """The welfare of some values.

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
        """Raise OutOfDomain where the welfare is not defined.

        Args:
            values: (..., objective) values.
        """
        self.welfare.check_domain(self.members(values))


def num_members(problem: Problem) -> int:
    """How many members welfare has: arms, or groups."""
    return len(problem.group_names) if problem.over == "groups" else problem.num_arms


def read_welfare(problem: Problem, welfare: str | Welfare | None) -> Welfare:
    """The welfare that was meant, checked to be for as many members as the problem has.

    Args:
        problem: the problem.
        welfare: a text form or a welfare; the problem's own when absent, and where it has none `welfare.DEFAULT`. This
            is the one place that knows a default.
    """
    meant = welfare if welfare is not None else getattr(problem, "welfare", None) or DEFAULT
    return as_welfare(meant, num_members(problem))
