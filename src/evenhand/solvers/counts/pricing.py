"""The oracle of column generation for several types.

For weights g of the members of welfare and prices phi of the floors, a pair of type t gains

    g_t r_t(x_t, u_t) + phi_t served_t(x_t, u_t) / total,

where g_t is the weight of the type in its member, and the sum over types is maximised over all policies. The policy
that is found is deterministic. Its values are sums over its visits, so all objectives are evaluated at once, from the
law of the first counts, as closely as rounding allows. A mixture of such policies is drawn at the start.
"""

import numpy as np

from evenhand.model.objective import Objective
from evenhand.solvers.column_generation.oracle import Priced
from evenhand.solvers.counts.type_iteration import Tell, Visits, solve_types
from evenhand.solvers.counts.type_operators import Operators
from evenhand.solvers.counts.type_plan import TypedPlan
from evenhand.typing import Array, Floats, Ints


class TypedPricing:
    """Solves weighted sums type by type, each from where the last one ended, and keeps the policies."""

    def __init__(self, plan: TypedPlan, objective: Objective, tell: Tell | None = None) -> None:
        """Keep what is to be solved.

        Args:
            plan: the problem, planned.
            objective: says who the members are and which floors there are; one value a type.
            tell: called with a description of the current work.

        Raises:
            TooLargeError: it would not fit, or take for ever.
            NotApplicableError: an average whose long run depends on where the arms start.
        """
        plan.check()
        plan.check_long_run()
        self.objective, self.tell = objective, tell
        self.operators = Operators(plan)
        self.picks: list[Array] = []
        self.type_values: list[Floats] = []
        self._visits = Visits(self.operators)
        self._last: Floats | None = None

    def __call__(self, weights: Floats, tolerance: float) -> Priced:
        """A policy that is best to the tolerance, and a bound on the weighted sum of every policy."""
        best = solve_types(self.operators, self._gains(weights), tolerance, self._last, self.tell)
        self._last = best.value_function
        if self.tell is not None:
            self.tell("evaluating")
        facts = [np.column_stack([moves.rewards, moves.served]) for moves in self.operators.types]
        values, served = np.stack(self._visits.sums(best.picks, facts), axis=1)
        self.picks.append(best.picks)
        self.type_values.append(values)
        shares = served[self._floored] / self.objective.criterion.total
        vector = np.concatenate([self.objective.members(values), shares])
        return Priced(vector[:, None], best.upper_bound, best.rounding)

    @property
    def _floored(self) -> Ints:
        """(floor,) the types that have one."""
        return np.flatnonzero(self.objective.floors > 0)

    @property
    def floors(self) -> Floats:
        """(floor,) the least share of time of each."""
        return self.objective.floors[self._floored]

    @property
    def _num_members(self) -> int:
        return len(self.objective.sizes)

    def _gains(self, weights: Floats) -> list[Floats]:
        """Of each type (pair,) what its pairs gain by the weights."""
        of_types = self.objective.spread(weights[: self._num_members])
        prices = np.zeros(len(of_types))
        prices[self._floored] = weights[self._num_members :] / self.objective.criterion.total
        types = zip(self.operators.types, of_types, prices, strict=True)
        return [weight * moves.rewards + price * moves.served for moves, weight, price in types]

    @property
    def units(self) -> Floats:
        """(objective,) how large each objective can be at most, in magnitude."""
        types = self.operators.types
        rewards = np.array([np.abs(moves.rewards).max() for moves in types]) * self.objective.criterion.total
        served = np.array([moves.served.max() for moves in types])
        return np.concatenate([self.objective.members(rewards), served[self._floored]])
