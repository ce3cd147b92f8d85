"""The order of service of an index or priority policy, arm by arm: what a shard can tell of its own arms alone.

    whittle      the index of the state for a unit of the resource, where it is positive
    fair-index   first what is best at the relaxation's prices; within each kind by the logarithm of worth per price
    random       all alike, and stopping competes
    never-act    nobody

Scores that are equal but for rounding are equal: `rounding` says how near that is, as in `policies.priority`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.errors import NotApplicable
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Problem
from evenhand.policies.baselines import never_act, random_feasible
from evenhand.policies.fluid import LEAST_WEIGHT, fair_worth
from evenhand.policies.index import whittle
from evenhand.policies.priority import NOISE, ROUNDING, ExchangeablePriority, serveable_cells
from evenhand.typing import Bools, Floats

PLAIN: dict[str, Callable[[Problem], object]] = {"whittle": whittle, "random": random_feasible, "never-act": never_act}
"""Policies whose scores of an arm depend on the arm alone."""

SCORED = (*PLAIN, "fair-index")
"""Policies that can be played by shards."""


@dataclass(frozen=True)
class Rule:
    """A policy by its name, with what it takes to score any arm."""

    name: str
    """One of SCORED."""

    prices: tuple[float, ...] = ()
    """(resource,) of the relaxation, for `fair-index`."""

    largest_weight: float = 1.0
    """The largest welfare weight of all arms, for `fair-index`."""

    def __post_init__(self) -> None:
        if self.name not in SCORED:
            raise NotApplicable(f"by shards these policies can be played: {', '.join(SCORED)}; not {self.name!r}")

    @property
    def stop(self) -> bool:
        """Whether stopping competes with all arms."""
        return self.name == "random"

    def apart(self, ordered: Floats, largest: float) -> Floats:
        """(score,) for all but the first of scores from the highest, by how much it is below its neighbour at least.

        Args:
            ordered: different scores.
            largest: the largest of all scores by its absolute value.
        """
        if self.name == "fair-index":
            return np.full(len(ordered) - 1, ROUNDING)
        return np.maximum(ROUNDING * np.abs(ordered[1:]), NOISE * max(1.0, largest))


@dataclass(frozen=True, eq=False)
class Scores:
    """Who comes first."""

    scores: Floats
    """(arm, state, action) the highest first; -inf for never."""

    first: Bools | None
    """(arm, state, action) which come before all others whatever their score; None for none."""


def score(rule: Rule, problem: CoupledMDP, weights: Floats | None = None) -> Scores:
    """The scores of all arms of a problem.

    Args:
        rule: the policy.
        problem: some arms, with the budget that all share.
        weights: (block,) what a unit of their value is worth, for `fair-index`.

    Raises:
        NotApplicable: an arm has no score, or there is one for each step of a finite horizon.
    """
    if problem.criterion.num_steps is not None and rule.name != "random":
        raise NotApplicable(f"{rule.name}: a finite horizon has an order for each step; by shards only one can be kept")
    if rule.name == "fair-index":
        if weights is None:
            raise NotApplicable("fair-index: by shards it needs the weights and prices of the relaxation")
        least = LEAST_WEIGHT * rule.largest_weight
        worth, preferred = fair_worth(problem, np.maximum(weights, least), np.array(rule.prices))
        return Scores(np.where(serveable_cells(problem), worth, -np.inf), preferred)
    policy = PLAIN[rule.name](problem)
    assert isinstance(policy, ExchangeablePriority)
    served = serveable_cells(problem) & (policy.scores > policy.threshold)
    return Scores(np.where(served, policy.scores, -np.inf), None)


def own_problem(problem: CoupledMDP) -> CoupledMDP:
    """The same problem, every block a type of its own: equal arms are not looked for."""
    problem.__dict__["type_of_block"] = np.arange(len(problem.tables), dtype=np.int32)
    return problem
