"""The pricing step on a tabular MDP, and the one stationary policy of a mixture.

Mixing policies by their shares theta mixes their occupancy measures, and the stationary policy of the mixed measure,

    pi(u | x) = sum_i theta_i q_i(x) [u = u_i(x)] / sum_i theta_i q_i(x),

has exactly the mixed values (Puterman, Theorem 6.9.1).
"""

import numpy as np

from evenhand.model.tabular import TabularMDP
from evenhand.solvers.dynamic_programming import solve_weighted
from evenhand.solvers.occupancy import occupancy, policy_of
from evenhand.typing import Floats, Ints


class TabularPricing:
    """Solves weighted sums by dynamic programming, each from where the last one ended, and keeps the policies."""

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        self.choices: list[Ints] = []
        self.visits: list[Floats] = []
        self._last: Floats | None = None

    def __call__(self, weights: Floats, tolerance: float) -> tuple[Floats, float]:
        """The values of a policy that is best to the tolerance, and a bound on the weighted sum of every policy."""
        best = solve_weighted(self.mdp, weights, tolerance, self._last)
        self._last = best.value_function
        chosen = np.zeros(self.mdp.num_pairs)
        chosen[best.choices] = 1.0
        visits = occupancy(self.mdp, chosen)[best.choices]
        self.choices.append(best.choices)
        self.visits.append(visits)
        return visits @ self.mdp.rewards[best.choices], best.upper_bound

    def mixed_policy(self, shares: Floats) -> Floats:
        """(pair,) the stationary policy of a mixture; where no part of it ever goes, the first priced policy.

        Args:
            shares: (policy,) shares of the priced policies.
        """
        measure = np.zeros(self.mdp.num_pairs)
        for share, choices, visits in zip(shares, self.choices, self.visits, strict=True):
            if share > 0:
                measure[choices] += share * visits
        return policy_of(self.mdp, measure, self.choices[0])
