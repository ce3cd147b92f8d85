"""The exact oracle on a tabular MDP, and the policy of a mixture.

Mixing policies by their shares theta mixes their occupancy measures, and the policy of the mixed measure,

    pi(u | x) = sum_i theta_i q_i(x) [u = u_i(x)] / sum_i theta_i q_i(x),

has exactly the mixed values (Puterman, Theorem 6.9.1), step by step under a finite horizon. Under `average` that holds
within each closed class of the mixed measure; several classes are several policies, drawn at the start (`parts_of`).
"""

from dataclasses import replace

import numpy as np

from evenhand.model.objective import Objective
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.column_generation.master import Priced
from evenhand.solvers.dynamic_programming import solve_weighted
from evenhand.solvers.occupancy import CLASSES_UP_TO, SELDOM, occupancy_measure, parts_of, total_visits
from evenhand.typing import Floats, Ints


def weighed(mdp: TabularMDP, objective: Objective) -> tuple[TabularMDP, Floats]:
    """The problem with the members of welfare as objectives and, behind them, the share of time of each floor.

    Args:
        mdp: the problem, one objective a value.
        objective: members and floors.

    Returns:
        The same problem with other rewards, and the (floor,) least shares.
    """
    members = objective.members(mdp.rewards)
    # Floors are shares of time, so visits are divided by the total.
    floored = np.flatnonzero(objective.floors > 0)
    if not len(floored):
        return (mdp if members is mdp.rewards else replace(mdp, rewards=members)), np.zeros(0)
    assert mdp.served is not None
    served = mdp.served[:, floored] / mdp.criterion.total
    return replace(mdp, rewards=np.hstack([members, served])), objective.floors[floored]


class TabularPricing:
    """Solves weighted sums by dynamic programming, each from where the last one ended, and keeps the policies."""

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        self.choices: list[Ints] = []
        self.visits: list[Floats] = []
        self._last: Floats | None = None

    def __call__(self, weights: Floats, tolerance: float) -> Priced:
        """A policy that is best to the tolerance, and a bound on the weighted sum of every policy."""
        best = solve_weighted(self.mdp, weights, tolerance, self._last)
        self._last = best.value_function
        chosen = np.zeros((*best.choices.shape[:-1], self.mdp.num_pairs))
        # A deterministic policy as a table of 0 and 1, by steps if there are.
        np.put_along_axis(chosen, best.choices, 1.0, axis=-1)
        visits = np.take_along_axis(occupancy_measure(self.mdp, chosen), best.choices, axis=-1)
        self.choices.append(best.choices)
        self.visits.append(visits)
        values = visits.reshape(-1) @ self.mdp.rewards[best.choices.reshape(-1)]
        return Priced(values[:, None], best.upper_bound, best.rounding)

    @property
    def units(self) -> Floats:
        """(objective,) how large each objective can be at most, in magnitude."""
        return np.asarray(np.abs(self.mdp.rewards).max(axis=0) * self.mdp.criterion.total)

    def mixed_parts(self, shares: Floats) -> list[tuple[float, Floats]]:
        """The policies that are to be drawn at the start, with their shares; but for `average` there is one.

        Where no part of the mixture ever goes, the first priced policy is followed.

        Args:
            shares: (policy,) shares of the priced policies.
        """
        measure = np.zeros((*self.choices[0].shape[:-1], self.mdp.num_pairs))
        for share, choices, visits in zip(shares, self.choices, self.visits, strict=True):
            if share > 0:
                # Several policies may take the same pair: their visits add up.
                mixed = np.take_along_axis(measure, choices, axis=-1) + share * visits
                np.put_along_axis(measure, choices, mixed, axis=-1)
        # Shares found by elimination are right to the last digit, however small.
        seldom = 0.0 if self.mdp.num_states <= CLASSES_UP_TO else SELDOM
        return parts_of(self.mdp, measure, self.choices[0], seldom)


def values_of_parts(mdp: TabularMDP, parts: list[tuple[float, Floats]]) -> tuple[Floats, Floats]:
    """(objective,) values of policies drawn at the start, evaluated exactly, and the (pair,) visits of all steps.

    Args:
        mdp: the problem.
        parts: shares and probabilities.
    """
    visits = sum(share * total_visits(occupancy_measure(mdp, probabilities)) for share, probabilities in parts)
    return np.asarray(visits @ mdp.rewards), np.asarray(visits)
