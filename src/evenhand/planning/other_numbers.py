"""A policy for other numbers of the same arms: vans come and go, and a plan made last month still says who is next.

Policies that rank conditions (type, state, action), or that a network gives for any number of arms, do not depend on
how many arms there are. Tables over counts or joint states do, and are refused for other numbers or a smaller budget;
a larger one they leave unused. Where the same arms start elsewhere, a problem may have other types, in another order:
a table then plays the arms at their seats in its own problem (`seat_policy`).
"""

from collections.abc import Sequence

import numpy as np

from evenhand.display import ShownPolicy
from evenhand.errors import NotApplicable
from evenhand.model.acting import on_batches
from evenhand.model.composite import BySteps, Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting, is_exchangeable
from evenhand.planning.labels import Labels
from evenhand.policies.fluid import OccupancyPriority, Resolving
from evenhand.policies.network import CountNetworkPolicy
from evenhand.policies.priority import ExchangeablePriority
from evenhand.policies.round_robin import RoundRobin
from evenhand.typing import Indices, Ints


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


def same_moves(made_for: CoupledMDP, problem: CoupledMDP) -> list[int]:
    """(type,) the type that each of a problem's types is in another problem, wherever it starts.

    Args:
        made_for: the problem that a plan was made for.
        problem: another, such as the same from where its arms are now.

    Raises:
        NotApplicable: some arm of the problem is not in the other.
    """
    # Reversed, so that of types which move alike the first is meant.
    known = {_moves(made_for, kind): kind for kind in reversed(range(made_for.num_types))}
    found = [known.get(_moves(problem, kind)) for kind in range(problem.num_types)]
    if None in found:
        missing = Labels(problem).type(found.index(None))
        raise NotApplicable(f"the plan was made for other arms: it does not know {missing}")
    return [kind for kind in found if kind is not None]


def _moves(problem: CoupledMDP, kind: int) -> bytes:
    """All numbers of an arm but where it starts."""
    arm = problem.types[kind]
    # By repr: floats are told apart to the last bit, and arrays of one shape only are equal.
    return repr((arm.transitions.tolist(), arm.rewards.tolist(), arm.usage.tolist())).encode()


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


def seat_policy(
    policy: Policy | Starting, made_for: CoupledMDP, problem: CoupledMDP, kinds: Sequence[int]
) -> Policy | Starting:
    """A table for the same arms from other states, and perhaps a larger budget, of which it leaves the rest.

    Args:
        policy: of a plan.
        made_for: the plan's problem.
        problem: the other one.
        kinds: (type,) the plan's type of each of the problem's, from `same_moves`.

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
        alike = len({_moves(made_for, kind) for kind in range(made_for.num_types)}) < made_for.num_types
        told = "that tells arms apart that move alike, by their groups or where they began, and here these differ"
        raise NotApplicable(f"the plan is a table {told if alike else 'for other numbers of arms of each type'}")
    seats = np.empty(problem.num_arms, dtype=np.int64)
    # Of each type, the first arm here takes the first seat there, and so on.
    seats[np.argsort(own, kind="stable")] = np.argsort(made_for.type_of_arm, kind="stable")
    return _seated(policy, seats)


def is_enough(made_for: CoupledMDP, budget: Sequence[float]) -> bool:
    """Whether a table can be played with a budget: it is nowhere smaller than the one that it was made for."""
    return bool((np.asarray(budget) >= made_for.budget).all())


def _seated(policy: Policy | Starting, seats: Ints) -> Policy | Starting:
    if isinstance(policy, Mixture):
        return Mixture([_seated(part, seats) for part in policy.parts], policy.shares, policy.rotate)
    if isinstance(policy, BySteps):
        return BySteps([part for part in (_seated(part, seats) for part in policy.parts) if isinstance(part, Policy)])
    if isinstance(policy, Policy):
        return Seated(policy, seats)
    raise NotApplicable(f"the plan is a policy with a memory of its own ({type(policy).__name__})")
