"""Exact values of a policy, by one linear solve on the joint or the count space.

A policy given by a table knows its own space. Any other policy whose law on counts is known (`Lawful`) is tabulated
first: at every count state its possible allocations are the pairs, and their probabilities the policy.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from evenhand.errors import NotApplicable
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Exchangeable, Lawful
from evenhand.reductions.counts import Counts, num_count_states
from evenhand.reductions.joint import Joint, JointTable, num_joint_states
from evenhand.simulation.rollout import check_budget
from evenhand.solvers.occupancy import occupancy
from evenhand.typing import Floats, Ints

MOST_STATES = 6000
"""Count states up to which a policy that is not a table is tabulated."""


@runtime_checkable
class Tabulated(Protocol):
    """A policy that is a table over the pairs of a reduction."""

    reduction: Joint | Counts
    probabilities: Floats


@runtime_checkable
class Tabulable(Protocol):
    """A policy on joint states that can be written as a table."""

    def on(self, space: Joint) -> JointTable:
        """The same policy as a table over this space."""
        ...


@dataclass(frozen=True)
class ExactValues:
    """Values without error, but for rounding."""

    values: Floats
    """(group,) expected discounted reward of one arm of each group."""

    counts: Ints
    """(group,) arms a group."""

    by_type: bool
    """Whether the groups are the types, or the arms themselves."""

    used: Floats
    """(resource,) expected discounted usage."""


def exact_values(policy: object, problem: CoupledMDP) -> ExactValues:
    """Evaluate a policy exactly.

    Raises:
        NotApplicable: the policy's law is not known, or the count space is too large to tabulate it.
        TooLarge: the tables would not fit.
    """
    if isinstance(policy, Tabulated) and policy.reduction.problem == problem:
        return _of_table(policy.reduction, policy.probabilities)
    if isinstance(policy, Tabulable) and num_joint_states(problem) <= MOST_STATES:
        return exact_values(policy.on(Joint(problem)), problem)
    if isinstance(policy, Lawful):
        return _of_law(policy, problem)
    raise NotApplicable("this policy has no known law on counts, so it can only be simulated")


def _of_table(reduction: Joint | Counts, probabilities: Floats) -> ExactValues:
    measure = occupancy(reduction.mdp, probabilities)
    values, used = measure @ reduction.mdp.rewards, measure @ reduction.usage
    if isinstance(reduction, Counts):
        return ExactValues(values, reduction.problem.type_counts, True, used)
    return ExactValues(values, np.ones(len(values), dtype=np.int64), False, used)


def _of_law(policy: Lawful, problem: CoupledMDP) -> ExactValues:
    if (number := num_count_states(problem)) > MOST_STATES:
        raise NotApplicable(f"the count space has {number:.6g} states; up to {MOST_STATES} are tabulated")
    space = Counts(problem)
    state, allocations, probabilities = _tabulate(policy, space)
    check_budget(problem, space.usage_of(allocations), 0)
    mdp = space.tabulate(state, allocations)
    measure = occupancy(mdp, probabilities)
    return ExactValues(measure @ mdp.rewards, problem.type_counts, True, measure @ space.usage_of(allocations))


def _tabulate(policy: Lawful, space: Counts) -> tuple[Ints, Ints, Floats]:
    """The (pair,) count states, (pair, type, state, action) allocations and (pair,) probabilities of a policy."""
    if isinstance(policy, Exchangeable) and getattr(policy, "deterministic", False) is True:
        allocations = policy.allocate(space.states, np.random.default_rng(0))  # nothing is drawn: all states at once
        return np.arange(len(allocations)), allocations, np.ones(len(allocations))
    laws = [policy.allocation_law(counts) for counts in space.states]
    state = np.repeat(np.arange(len(laws)), [len(probabilities) for _, probabilities in laws])
    allocations = np.concatenate([allocations for allocations, _ in laws])
    return state, allocations, np.concatenate([probabilities for _, probabilities in laws])
