"""Exact values of a policy, by one linear solve on the joint or the count space.

A policy given by a table knows its own space. Any other policy whose law on counts is known (`allocation_law`) is
tabulated first: at every count state its possible allocations are the pairs, and their probabilities the policy.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.errors import NotApplicable
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Capabilities, Lawful, Space, capabilities
from evenhand.reductions.counts import Counts, num_count_states
from evenhand.reductions.joint import Joint, num_joint_states
from evenhand.simulation.rollout import check_budget
from evenhand.solvers.occupancy import occupancy
from evenhand.typing import Floats, Ints

MOST_STATES = 6000
"""Count states up to which a policy that is not a table is tabulated."""


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
    can = capabilities(policy)
    if can.table is not None and can.table.reduction.problem == problem:
        return _of_table(can.table.reduction, can.table.probabilities)
    if can.tabulates is not None and num_joint_states(problem) <= MOST_STATES:
        return exact_values(can.tabulates.on(Joint(problem)), problem)
    if can.law is not None:
        return _of_law(can, can.law, problem)
    raise NotApplicable("this policy has no known law on counts, so it can only be simulated")


def _of_table(reduction: Space, probabilities: Floats) -> ExactValues:
    measure = occupancy(reduction.mdp, probabilities)
    values, used = measure @ reduction.mdp.rewards, measure @ reduction.usage
    if isinstance(reduction, Counts):
        return ExactValues(values, reduction.problem.type_counts, True, used)
    return ExactValues(values, np.ones(len(values), dtype=np.int64), False, used)


def _of_law(can: Capabilities, law: Lawful, problem: CoupledMDP) -> ExactValues:
    if (number := num_count_states(problem)) > MOST_STATES:
        raise NotApplicable(f"the count space has {number:.6g} states; up to {MOST_STATES} are tabulated")
    space = Counts(problem)
    state, allocations, probabilities = _tabulate(can, law, space)
    check_budget(problem, space.usage_of(allocations), 0)
    mdp = space.tabulate(state, allocations)
    measure = occupancy(mdp, probabilities)
    return ExactValues(measure @ mdp.rewards, problem.type_counts, True, measure @ space.usage_of(allocations))


def _tabulate(can: Capabilities, law: Lawful, space: Counts) -> tuple[Ints, Ints, Floats]:
    """The (pair,) count states, (pair, type, state, action) allocations and (pair,) probabilities of a policy."""
    if can.allocates is not None and can.deterministic:
        allocations = can.allocates.allocate(
            space.states, np.random.default_rng(0)
        )  # nothing is drawn: all states at once
        return np.arange(len(allocations)), allocations, np.ones(len(allocations))
    laws = [law.allocation_law(counts) for counts in space.states]
    state = np.repeat(np.arange(len(laws)), [len(probabilities) for _, probabilities in laws])
    allocations = np.concatenate([allocations for allocations, _ in laws])
    return state, allocations, np.concatenate([probabilities for _, probabilities in laws])
