"""Policies for other numbers of the same arms, or for these arms in another order.

Policies that rank conditions (type, state, action), and networks for any number of arms, do not depend on the number of
arms: their method `resized` returns the same policy. Tables over counts or joint states do depend on it. They are
refused for other numbers or a smaller budget, and leave the rest of a larger one unused; if the same arms start in
other states, a problem may have other types in another order, and a table then plays the arms at their places in its
own problem (`Reordered`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model.arm_matching import all_made_for, has_same_arms, matched_types
from evenhand.model.composite import CompositePolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import BasePolicy, Policy, StatefulPolicy, capabilities, described, is_exchangeable
from evenhand.model.simulator import Problem
from evenhand.model.stateful_policy import on_batches
from evenhand.typing import Floats, Indices, Ints


def fitted(policy: Policy | StatefulPolicy, problem: Problem) -> Policy | StatefulPolicy:
    """Return the same policy for the arms of a problem: itself if each is at its place, else resized or reordered.

    Args:
        policy: made for this problem or another; one that has no problem is returned as it is.
        problem: the problem to play.

    Raises:
        PolicyError: it was made for other arms, or is a table for other numbers of them; says which.
    """
    if isinstance(policy, CompositePolicy) and not hasattr(policy, "problem"):
        parts = [fitted(part, problem) for part in policy.parts]
        same = all(one is other for one, other in zip(parts, policy.parts, strict=True))
        return policy if same else policy.with_parts(parts)
    for made_for in all_made_for(policy):
        # Under its own criterion, as it was made; it is evaluated under any.
        here = problem.with_criterion(made_for.criterion, made_for.over)
        if getattr(policy, "any_number", False) is True or has_same_arms(made_for, here):
            continue
        numbers = f"the policy was made for {made_for.num_arms} arms, and here are {problem.num_arms}"
        numbers = numbers if made_for.num_arms != problem.num_arms else "the policy was made for other arms"
        if not isinstance(made_for, CoupledMDP) or not isinstance(here, CoupledMDP):
            raise PolicyError(numbers)
        try:
            return resized_or_reordered(policy, made_for, here)
        except NotApplicableError as error:
            raise PolicyError(f"{numbers}: {error}") from None
    return policy


def resized_or_reordered(
    policy: Policy | StatefulPolicy, made_for: CoupledMDP, problem: CoupledMDP
) -> Policy | StatefulPolicy:
    """Return a policy for another problem with the same types of arms.

    Args:
        policy: the policy.
        made_for: the problem that it was made for.
        problem: the other problem.

    Raises:
        NotApplicableError: it is a table for other numbers or more budget, or does not know some of the arms.
    """
    types = matched_types(made_for, problem).tolist()
    try:
        return described(policy).resized(problem, types)
    except NotApplicableError:
        return _reordered(policy, _places(made_for, problem, types), np.asarray(types))


def is_enough(made_for: CoupledMDP, budget: Sequence[float]) -> bool:
    """Return whether a table can be played with a budget: it is nowhere smaller than the one it was made for."""
    return bool((np.asarray(budget) >= made_for.budget).all())


def _places(made_for: CoupledMDP, problem: CoupledMDP, types: Sequence[int]) -> Ints:
    """(arm,) the place of each arm of a problem in another one, from the (type,) types that they have there."""
    own = np.asarray(types)[problem.type_of_arm]
    if problem.num_arms != made_for.num_arms:
        number = f"{made_for.num_arms} arms, and here are {problem.num_arms}"
        raise NotApplicableError(f"the plan is a table for just the numbers of arms that it was made for: {number}")
    if not is_enough(made_for, problem.budget.tolist()):
        raise NotApplicableError("the plan is a table for the budget that it was made for, and here is less")
    if not np.array_equal(np.bincount(own, minlength=made_for.num_types), made_for.type_counts):
        raise NotApplicableError(
            "the plan is a table for other numbers of arms of each type, or distinguishes arms that move alike by "
            "groups or initial states that differ here"
        )
    places = np.empty(problem.num_arms, dtype=np.int64)
    # Of each type, the first arm here takes the first place there, and so on.
    places[np.argsort(own, kind="stable")] = np.argsort(made_for.type_of_arm, kind="stable")
    return places


def _reordered(policy: Policy | StatefulPolicy, places: Ints, types: Ints) -> Policy | StatefulPolicy:
    if isinstance(policy, CompositePolicy) and not hasattr(policy, "problem"):
        return policy.with_parts([_reordered(part, places, types) for part in policy.parts])
    can = capabilities(policy)
    # Types that are split in the problem cannot be counted for the policy: then arms take their places one by one.
    if can.allocates is not None and can.law is not None and len(set(types.tolist())) == len(types):
        return ReorderedCounts(policy, places, types)
    if isinstance(policy, Policy) and not isinstance(policy, StatefulPolicy):
        return Reordered(policy, places)
    raise NotApplicableError(f"the plan is a stateful policy ({type(policy).__name__})")


class Reordered(BasePolicy):
    """A policy on the same arms in another order."""

    def __init__(self, policy: Policy, places: Ints) -> None:
        """Store the order.

        Args:
            policy: a stateless policy.
            places: (arm,) the place of each arm among those that the policy was made for.
        """
        self.original, self.places = policy, places
        self.exchangeable = is_exchangeable(policy)

    @property
    def decides(self) -> str:
        """Description of how it decides."""
        return described(self.original).decides

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Return the policy's actions for the arms at their places."""
        ordered = np.empty_like(states)
        ordered[:, self.places] = states
        return np.asarray(self.original.act(ordered, rng)[:, self.places])


class ReorderedCounts(Reordered):
    """An exchangeable policy on the same types in another order."""

    def __init__(self, policy: Any, places: Ints, types: Ints) -> None:
        """Store the orders.

        Args:
            policy: with `allocate` and `allocation_distribution`.
            places: (arm,) the place of each arm among those that the policy was made for.
            types: (type,) the policy's type of each type, each of them once.
        """
        super().__init__(policy, places)
        self.types, self.order = types, np.argsort(types)
        self.deterministic = capabilities(policy).deterministic
        self._counts = policy

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """Return the policy's allocation of the counts of its types."""
        return np.asarray(self._counts.allocate(counts[:, self.order], rng)[:, self.types])

    def allocation_distribution(self, counts: Ints) -> tuple[Ints, Floats]:
        """Return the distribution of the allocation."""
        allocations, chances = self._counts.allocation_distribution(counts[self.order])
        return allocations[:, self.types], chances
