"""A policy for other numbers of the same arms: vans come and go, and a plan made last month still says who is next.

Policies that rank conditions (type, state, action), or that a network gives for any number of arms, do not depend on
how many arms there are. Tables over counts or joint states do, and are refused for other numbers or a smaller budget;
a larger one they leave unused. Where the same arms start elsewhere, a problem may have other types, in another order:
a table then plays the arms at their seats in its own problem (`seat_policy`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenhand.display import ShownPolicy
from evenhand.errors import NotApplicable, PolicyError
from evenhand.model.acting import on_batches
from evenhand.model.composite import BySteps, Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting, capabilities, is_exchangeable
from evenhand.model.same_arms import all_made_for, match_types, same_places
from evenhand.model.simulator import Problem
from evenhand.policies.fluid import OccupancyPriority, Resolving
from evenhand.policies.network import CountNetworkPolicy
from evenhand.policies.priority import ExchangeablePriority, PriorityPolicy
from evenhand.policies.round_robin import RoundRobin
from evenhand.typing import Floats, Indices, Ints


def other_numbers(problem: CoupledMDP, kinds: Sequence[int], counts: Ints, budget: Sequence[float]) -> CoupledMDP:
    """The same types of arms, as many as are counted, and what they share.

    Args:
        problem: what a plan was made for.
        kinds: (kept type,) the types of which there are any, in rising order.
        counts: (kept type,) how many.
        budget: (resource,) what there is.
    """
    over_groups = problem.over == "groups"
    return CoupledMDP(
        arms=problem.types.select(np.asarray(kinds)),
        budget=np.asarray(budget, dtype=np.float64),
        discount=problem.discount,
        counts=np.asarray(counts),
        resources=problem.resources,
        groups=[problem.group_names[problem.group_of_type[kind]] for kind in kinds] if over_groups else (),
        floors=problem.type_floors[np.asarray(kinds)],
        criterion=problem.criterion,
        over=problem.over,
    )


def fit_policy(policy: Policy | Starting, problem: CoupledMDP, kinds: Sequence[int]) -> Policy | Starting:
    """The same policy for other numbers of arms.

    Args:
        policy: of a plan.
        problem: the other numbers, from `other_numbers`.
        kinds: (type,) the plan's types that the problem has.

    Raises:
        NotApplicable: it is a table that has no entry for them.
    """
    # A policy made of others is taken apart; the others keep the rows of the types that are left.
    _, S, A = problem.types.valid.shape
    cells = np.ix_(np.asarray(kinds), np.arange(S), np.arange(A))  # kept types may have fewer states and actions
    rows = np.asarray(kinds)
    if isinstance(policy, Mixture):
        return Mixture([fit_policy(part, problem, kinds) for part in policy.parts], policy.shares, policy.rotate)
    if isinstance(policy, BySteps):
        parts = [fit_policy(part, problem, kinds) for part in policy.parts]
        return BySteps([part for part in parts if isinstance(part, Policy)])
    if isinstance(policy, ExchangeablePriority):
        return ExchangeablePriority(problem, policy.scores[cells], policy.threshold, policy.stop)
    if isinstance(policy, PriorityPolicy):
        return PriorityPolicy(problem, policy.scores[cells], policy.threshold)
    if isinstance(policy, OccupancyPriority):
        return OccupancyPriority.of_tables(problem, policy.laws[cells], policy.scores[cells])
    if isinstance(policy, Resolving):
        pay = None if policy.floor_prices is None else policy.floor_prices[rows]
        return Resolving(problem, policy.weights[rows], policy.prices, policy.every, policy.points, pay)
    if isinstance(policy, CountNetworkPolicy):
        return CountNetworkPolicy(problem, policy.network, policy.rule)
    if isinstance(policy, RoundRobin):
        return RoundRobin(problem)
    # What is left are tables over counts or joint states, which have no entry for other numbers.
    raise NotApplicable("the plan is a table for just the numbers of arms and the budget that it was made for")


class Seated(ShownPolicy):
    """A policy on the same arms in another order."""

    def __init__(self, policy: Policy, seats: Ints) -> None:
        """Keep who sits where.

        Args:
            policy: without a memory.
            seats: (arm,) the place of each arm among those that the policy was made for.
        """
        self.policy, self.seats = policy, seats
        self.exchangeable = is_exchangeable(policy)

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """What the policy does with the arms at their seats."""
        # Arms go to their seats, and what the policy says there comes back to them.
        seated = np.empty_like(states)
        seated[:, self.seats] = states
        return np.asarray(self.policy.act(seated, rng)[:, self.seats])


class SeatedCounts(Seated):
    """An exchangeable policy on the same types in another order."""

    def __init__(self, policy: Any, seats: Ints, kinds: Ints) -> None:
        """Keep who sits where, and which type is which.

        Args:
            policy: with `allocate` and `allocation_law`.
            seats: (arm,) the place of each arm among those that the policy was made for.
            kinds: (type,) the policy's type of each type, each of them once.
        """
        super().__init__(policy, seats)
        self.kinds, self.order = kinds, np.argsort(kinds)
        self.deterministic = capabilities(policy).deterministic
        self._counts = policy

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """What the policy does with the counts of its types."""
        return np.asarray(self._counts.allocate(counts[:, self.order], rng)[:, self.kinds])

    def allocation_law(self, counts: Ints) -> tuple[Ints, Floats]:
        """The distribution of that."""
        allocations, chances = self._counts.allocation_law(counts[self.order])
        return allocations[:, self.kinds], chances


def fitted(policy: Policy | Starting, problem: Problem) -> Policy | Starting:
    """The same policy on the arms of a problem: as it is if each is at its place, else for their types and numbers.

    Args:
        policy: made for this problem or another; one that has no problem is left as it is.
        problem: what it is to play.

    Raises:
        PolicyError: it was made for other arms, or is a table for other numbers of them; says which.
    """
    if isinstance(policy, (Mixture, BySteps)):
        parts = [fitted(part, problem) for part in policy.parts]
        if all(one is other for one, other in zip(parts, policy.parts, strict=True)):
            return policy
        if isinstance(policy, Mixture):
            return Mixture(parts, policy.shares, policy.rotate)
        return BySteps([part for part in parts if isinstance(part, Policy)])
    for made_for in all_made_for(policy):
        # Under its own criterion, as it was made; it is evaluated under any.
        here = problem.with_criterion(made_for.criterion, made_for.over)
        if getattr(policy, "any_number", False) is True or same_places(made_for, here):
            continue
        numbers = f"the policy was made for {made_for.num_arms} arms, and here are {problem.num_arms}"
        numbers = numbers if made_for.num_arms != problem.num_arms else "the policy was made for other arms"
        if not isinstance(made_for, CoupledMDP) or not isinstance(here, CoupledMDP):
            raise PolicyError(numbers)
        try:
            kinds = match_types(made_for, here)
            try:
                return fit_policy(policy, here, kinds)
            except NotApplicable:
                return seat_policy(policy, made_for, here, kinds)
        except NotApplicable as error:
            raise PolicyError(f"{numbers}: {error}") from None
    return policy


def seat_policy(
    policy: Policy | Starting, made_for: CoupledMDP, problem: CoupledMDP, kinds: Sequence[int]
) -> Policy | Starting:
    """A table for the same arms from other states, and perhaps a larger budget, of which it leaves the rest.

    Args:
        policy: of a plan.
        made_for: the plan's problem.
        problem: the other one.
        kinds: (type,) the plan's type of each of the problem's, from `match_types`.

    Raises:
        NotApplicable: there are other arms, a smaller budget, or the table tells apart who moves alike; says which.
    """
    # (arm,) the plan's type of each arm that is here.
    own = np.asarray(kinds)[problem.type_of_arm]
    if problem.num_arms != made_for.num_arms:
        number = f"{made_for.num_arms} arms, and here are {problem.num_arms}"
        raise NotApplicable(f"the plan is a table for just the numbers of arms that it was made for: {number}")
    if not is_enough(made_for, problem.budget.tolist()):
        raise NotApplicable("the plan is a table for the budget that it was made for, and here is less")
    # The plan must have a seat of the right type for every arm.
    if not np.array_equal(np.bincount(own, minlength=made_for.num_types), made_for.type_counts):
        raise NotApplicable(
            "the plan is a table for other numbers of arms of each type, or tells arms apart that move alike, by their "
            "groups or where they began, and here these differ"
        )
    seats = np.empty(problem.num_arms, dtype=np.int64)
    # Of each type, the first arm here takes the first seat there, and so on.
    seats[np.argsort(own, kind="stable")] = np.argsort(made_for.type_of_arm, kind="stable")
    return _seated(policy, seats, np.asarray(kinds))


def is_enough(made_for: CoupledMDP, budget: Sequence[float]) -> bool:
    """Whether a table can be played with a budget: it is nowhere smaller than the one that it was made for."""
    return bool((np.asarray(budget) >= made_for.budget).all())


def _seated(policy: Policy | Starting, seats: Ints, kinds: Ints) -> Policy | Starting:
    if isinstance(policy, Mixture):
        return Mixture([_seated(part, seats, kinds) for part in policy.parts], policy.shares, policy.rotate)
    if isinstance(policy, BySteps):
        parts = [_seated(part, seats, kinds) for part in policy.parts]
        return BySteps([part for part in parts if isinstance(part, Policy)])
    can = capabilities(policy)
    # Types that were split here cannot be counted for it: then arms take their seats one by one.
    if can.allocates is not None and can.law is not None and len(set(kinds.tolist())) == len(kinds):
        return SeatedCounts(policy, seats, kinds)
    if isinstance(policy, Policy) and not isinstance(policy, Starting):
        return Seated(policy, seats)
    raise NotApplicable(f"the plan is a policy with a memory of its own ({type(policy).__name__})")
