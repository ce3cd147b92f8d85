"""Explanations of decisions: the reason for each arm's action, and the order in which conditions are served.

A *condition* is a type and a state. Policies that rank (condition, action) cells are explained by rank. Arms are served
in the order of (rank, lot), so with

    left(r) = budget - use of the arms served by a rank before r

an arm that waits at its best rank r either needs more than left(r), and then arms of higher priority have what it
lacks; or others of its own rank were served. Tables are explained by how many arms of the same condition
get an action. The methods `explain` and `service_order` of policies are built from these functions.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evenhand.model.coupled import CoupledMDP
from evenhand.model.labels import Labels
from evenhand.model.policy import Policy
from evenhand.typing import Bools, Floats, Indices

GAINS_NOTHING = {
    "whittle": "its index is not positive: idling is as good here, even if serving were free",
    "fair-index": "serving gains nothing here, even if it were free",
    "re-solving": "serving gains nothing here, even if it were free",
    "myopic": "serving gains nothing at once here",
    "never-act": "the plan never serves anyone",
}
"""Reason why a condition has no rank, by the name of the policy."""


UNRANKED = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class DecisionStep:
    """One decision: the arms in the order of the problem, their states, and the chosen actions."""

    problem: CoupledMDP
    """The problem that was played."""

    states: Indices
    """(arm,) states."""

    actions: Indices
    """(arm,) actions."""

    step: int
    """Step of a time-varying plan, from 0."""

    family: str
    """Name of the policy, such as fair-index; may be empty."""

    rng: np.random.Generator
    """The policy's stream as it was before it acted."""

    actor: Policy
    """The actor that the policy started, as it is after the decision; the policy itself if it is stateless."""

    names: tuple[str, ...] = ()
    """(arm,) names, if they have some."""

    @property
    def types(self) -> Indices:
        """(arm,) types."""
        return self.problem.type_of_arm

    @cached_property
    def idle(self) -> Indices:
        """(arm,) the first action that uses nothing."""
        return np.asarray(self.problem.types.idle[self.types, self.states])

    @cached_property
    def served(self) -> Bools:
        """(arm,) whether the action uses any resource."""
        return np.asarray(self.problem.types.served[self.types, self.states, self.actions])

    def each(self, served: str, idle: str) -> list[str]:
        """(arm,) one reason for served arms, another for idle ones."""
        return [served if busy else idle for busy in self.served]


def policy_family(name: str) -> str:
    """Return the policy that a part of a plan is named after: details follow a comma or `for`."""
    return name.partition(",")[0].partition(" for ")[0]


# -- places in the order of service ----------------------------------------------------------------------------------


def queue_places(decision: DecisionStep, ranks: Indices | None) -> list[int | None]:
    """(arm,) place among waiting arms if there was more budget: 1 first; arms of equal rank share a place.

    None for served arms, for arms that are never served, and without ranks.

    Args:
        decision: the decision.
        ranks: (arm, action) ranks, 0 first and -1 never; None if the policy has none.
    """
    if ranks is None:
        return [None] * len(decision.states)
    ranks = ranks.copy()
    ranks[np.arange(len(ranks)), decision.idle] = -1
    level = np.where(ranks >= 0, ranks, UNRANKED).min(axis=1)
    waits = ~decision.served & (ranks >= 0).any(axis=1)
    before = np.searchsorted(np.sort(level[waits]), level, side="left")
    return [int(place) + 1 if wait else None for place, wait in zip(before, waits, strict=True)]


def served_places(decision: DecisionStep, ranks: Indices | None) -> list[int | None]:
    """(arm,) place of each served arm's action in the policy's order, 1 first; None for others, or without ranks."""
    if ranks is None:
        return [None] * len(decision.states)
    taken = ranks[np.arange(len(ranks)), decision.actions]
    ranked = decision.served & (taken >= 0)
    return [int(place) + 1 if has else None for place, has in zip(taken, ranked, strict=True)]


# -- reasons ---------------------------------------------------------------------------------------------------------


class RankedService:
    """Arms served at each rank, and the budget left before it."""

    def __init__(self, decision: DecisionStep, ranks: Indices, num_ranks: int, num_drawn: int = 0) -> None:
        """Reconstruct the service from its result.

        Args:
            decision: the decision.
            ranks: (arm, action) ranks, 0 first and -1 never.
            num_ranks: number of ranks of the policy.
            num_drawn: number of ranks, the first ones, for actions that were drawn beforehand.
        """
        self.decision, self.labels = decision, Labels(decision.problem)
        self.num_ranks, self.num_drawn = num_ranks, num_drawn
        arms = np.arange(len(decision.states))
        self.usage = decision.problem.types.usage[decision.types, decision.states]
        ranks = ranks.copy()
        ranks[arms, decision.idle] = -1  # idling competes with no other arm
        self.taken = ranks[arms, decision.actions]
        # The best rank of each arm; any action if it has none, for the level is then -1.
        self.best = np.where(ranks >= 0, ranks, UNRANKED).argmin(axis=1)
        self.level = ranks[arms, self.best]
        rows, spent = np.flatnonzero(self.taken >= 0), np.zeros((num_ranks + 1, decision.problem.num_resources))
        # Row r + 1 holds the use of rank r, so that the running sum is the use of all ranks before r.
        np.add.at(spent, self.taken[rows] + 1, self.usage[rows, decision.actions[rows]])
        self.left = decision.problem.budget_limit - np.cumsum(spent, axis=0)
        self.served_at = Counter(self.taken[rows].tolist())
        # An arm competes at every rank up to the one at which it was served, or at all of its ranks if it was not.
        still = (ranks >= 0) & ((self.taken[:, None] < 0) | (ranks <= self.taken[:, None]))
        # Once per arm and rank, though two actions of an arm may share a rank.
        self.competing = Counter(level for _, level in {(int(n), int(ranks[n, a])) for n, a in np.argwhere(still)})

    def reason(self, arm: int) -> str:
        """Reason for one arm's action; empty if the arm has no rank."""
        level, taken = int(self.level[arm]), int(self.taken[arm])
        if level < 0:
            return ""
        if taken == level:
            return self._place(level)
        wanted = self.labels.doing(int(self.decision.types[arm]), int(self.best[arm]))
        if taken >= 0:
            return f"{self._place(taken)}; for {wanted}, its first choice, {self._obstacle(arm, level)}"
        return f"{wanted} has {self._place(level, lot=False)}, but {self._obstacle(arm, level)}"

    def _place(self, level: int, lot: bool = True) -> str:
        if level < self.num_drawn:
            text = f"priority {level + 1} of {self.num_drawn}"
        else:
            rest = " for what is left of the budget" if self.num_drawn else ""
            text = f"priority {level - self.num_drawn + 1} of {self.num_ranks - self.num_drawn}{rest}"
        number, served = self.competing[level], self.served_at[level]
        return f"{text}, enough for {served} of {number} arms of that priority" if lot and served != number else text

    def _obstacle(self, arm: int, level: int) -> str:
        needed = self.usage[arm, self.best[arm]]
        if short := np.flatnonzero(needed > self.left[level]).tolist():
            return f"arms of higher priority left too few {self.labels.resources(short)}"
        return f"there was enough for {self.served_at[level]} of {self.competing[level]} arms of that priority"


def explain_by_rank(decision: DecisionStep, ranks: Indices, never: str = "", also: str = "") -> list[str]:
    """(arm,) reasons from ranks.

    Args:
        decision: the decision.
        ranks: (type, state, action) ranks, 0 first and -1 never.
        never: reason for arms without a rank; by default from the name of the policy.
        also: text after every other reason.
    """
    never = never or GAINS_NOTHING.get(decision.family, "the plan never serves this condition")
    service = RankedService(decision, ranks[decision.types, decision.states], int(ranks.max()) + 1)
    cells = list(zip(decision.types.tolist(), decision.states.tolist(), decision.actions.tolist(), strict=True))
    # Arms of one condition and action share a reason.
    reasons = {cell: service.reason(arm) for cell, arm in first_of_each(cells).items()}
    return [reasons[cell] + also if reasons[cell] else never for cell in cells]


def first_of_each(cells: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    """Each distinct cell with the number of its first occurrence."""
    return dict(zip(reversed(cells), reversed(range(len(cells))), strict=True))


def explain_by_table(decision: DecisionStep) -> list[str]:
    """(arm,) reasons from the numbers of arms of one condition that get an action.

    Args:
        decision: the decision of a policy on counts.
    """
    labels = Labels(decision.problem)
    conditions = list(zip(decision.types.tolist(), decision.states.tolist(), strict=True))
    present = Counter(conditions)
    same = Counter(zip(conditions, decision.actions.tolist(), strict=True))
    others = _served_conditions(decision, labels)
    reasons = []
    for arm, (kind, state) in enumerate(conditions):
        number, alike = present[kind, state], same[(kind, state), int(decision.actions[arm])]
        if alike == number and not decision.served[arm]:
            reasons.append(f"with the arms as they are, the plan serves {others}")
            continue
        of = f"{labels.type(kind)} {labels.being(kind, state)}"
        whom = f"the only {of}" if number == 1 else f"all {number} {of}"
        whom = whom if alike == number else f"{alike} of the {number} {of}"
        gets = labels.doing(kind, int(decision.actions[arm]))
        reasons.append(f"with the arms as they are, the plan gives {gets} to {whom}")
    return reasons


def _served_conditions(decision: DecisionStep, labels: Labels, most: int = 3) -> str:
    rows = np.flatnonzero(decision.served)
    cells = (decision.types[rows].tolist(), decision.states[rows].tolist(), decision.actions[rows].tolist())
    times = Counter(zip(*cells, strict=True))
    texts = [
        f"{number} {labels.type(kind)} {labels.being(kind, state)} ({labels.doing(kind, action)})"
        for (kind, state, action), number in times.most_common(most)
    ]
    more = [f"{len(times) - most} more conditions"] if len(times) > most else []
    return ", ".join([*texts, *more]) or "no arm"


# -- the order of service --------------------------------------------------------------------------------------------


class ServedCondition(NamedTuple):
    """One condition in the order of a policy."""

    level: int
    """Rank from 1; equal conditions share it."""

    kind: int
    """The type."""

    state: int
    """The state."""

    action: int
    """The action that comes first there."""

    share: float | None
    """Frequency of the action; None if it is always given when there is budget."""


@dataclass(frozen=True, eq=False)
class ServiceOrder:
    """Conditions that a policy serves, the first first."""

    rows: tuple[ServedCondition, ...]
    """Conditions that are served."""

    how: str
    """Description of the kind of order."""

    ranked: bool
    """True if it is the policy's own order; else frequencies from a simulation."""

    num_ranks: int = 0
    """Ranks of the policy, with those of actions that do not come first in their condition."""

    num_drawn: int = 0
    """Ranks, the first ones, of actions that are drawn; the others fill up the budget."""

    def place(self, row: ServedCondition) -> int:
        """Number of a row's priority, as in a reason: it begins again for what is left of the budget."""
        return row.level - self.num_drawn if self.num_drawn and row.level > self.num_drawn else row.level

    def place_text(self, row: ServedCondition) -> str:
        """The same with a star for what is left of the budget."""
        return f"{self.place(row)}{'*' if self.num_drawn and row.level > self.num_drawn else ''}"


def order_by_rank(
    problem: CoupledMDP, ranks: Indices, how: str, probabilities: Floats | None = None, num_drawn: int = 0
) -> ServiceOrder:
    """Order conditions by the rank of the action that comes first in them.

    Args:
        problem: the problem.
        ranks: (type, state, action) ranks, 0 first and -1 never.
        how: description of the order.
        probabilities: (type, state, action) with which actions are drawn; None if they are not drawn.
        num_drawn: number of ranks, the first ones, of drawn actions.
    """
    types = problem.types
    if len(types) > 20_000:
        return ServiceOrder((), f"{how}; there are too many types to list", ranked=True)
    kinds, states = np.indices(types.idle.shape)
    own = ranks.copy()
    own[kinds, states, types.idle] = -1  # idling is not a service
    first = np.where(own >= 0, own, UNRANKED)
    action, best = first.argmin(axis=2), first.min(axis=2)
    # Padding has no valid action.
    cells = np.argwhere((best < UNRANKED) & types.valid.any(axis=2)).tolist()
    cells.sort(key=lambda cell: (int(best[tuple(cell)]), cell))
    rows = []
    for kind, state in cells:
        given = int(action[kind, state])
        share = None if probabilities is None else float(probabilities[kind, state, given])
        rows.append(ServedCondition(int(best[kind, state]) + 1, kind, state, given, share))
    return ServiceOrder(tuple(rows), how if rows else "no arm", True, int(ranks.max()) + 1, num_drawn)
