"""Explicit tables of small count problems, for which nothing is compiled.

They hold every pair of a count state and an allocation, and the distribution of the next counts after every outcome.
"""

import numpy as np

from evenhand.kernels.lattice import lattice_points
from evenhand.kernels.lattice_laws import law_of_movers
from evenhand.solvers.counts.algorithm import spread_extras
from evenhand.solvers.counts.expectation import Follow, shifts
from evenhand.solvers.counts.improvement import Choice
from evenhand.solvers.counts.post_decision import SAME_ROW, Slots
from evenhand.solvers.counts.transition import UNIT
from evenhand.typing import Floats, Ints


class Tables:
    """Expectation and maximum by explicit tables; the interface of `Outcomes` and of `Chooser`."""

    def __init__(self, slots: Slots, allocations: Ints, gains: Floats) -> None:
        """Tabulate the pairs.

        Args:
            slots: of the arms.
            allocations: (allocation, cell) all amounts within the budget.
            gains: (cell,) reward of a cell beyond the base.
        """
        self.slots, self.allocations = slots, allocations
        self.points = lattice_points(slots.num_arms, slots.num_states)
        takes, lands = shifts(slots, allocations)
        state, self.allocation = np.nonzero((self.points[:, None] >= takes).all(axis=2))
        self.starts, self.state = np.searchsorted(state, np.arange(len(self.points))), state
        # Arms per slot after the decision of each pair; pairs with the same have one outcome.
        base = self.points[state] + (lands - takes)[self.allocation]
        movers = np.column_stack([base, spread_extras(slots, allocations)[self.allocation]])
        used, outcome = np.unique(movers, axis=0, return_inverse=True)
        self.outcome, self.gains = outcome.reshape(-1), (allocations @ gains)[self.allocation]
        self.distribution = law_of_movers(used, np.concatenate([slots.base_rows, slots.extra_rows]))

    @property
    def error(self) -> float:
        """Bound on the error of a computed T V - V, relative to max|V| + max|r| (`Outcomes.error`)."""
        slots = self.slots
        growing = slots.num_arms * (slots.num_states + 1) + len(self.points)
        rows = slots.num_arms * slots.num_states * SAME_ROW if len(slots.cells) else 0.0
        return float(growing + 4 + slots.num_states + len(slots.cells)) * UNIT + rows

    def expect(self, value: Floats) -> Floats:
        """(outcome,) the expected value after every outcome."""
        return np.asarray(self.distribution @ value)

    def follow(self, targets: Ints) -> Follow:
        """The expected value after one outcome per count state, as a function of the value function."""
        chosen = self.distribution[targets]
        return lambda value: np.asarray(chosen @ value)

    def improve(self, worth: Floats) -> tuple[Floats, Choice]:
        """(count state,) the best gain plus value of the (outcome,) outcome, and the first choice that has it."""
        offers = self.gains + worth[self.outcome]
        best = np.maximum.reduceat(offers, self.starts)
        pairs = np.where(offers == best[self.state], np.arange(len(offers)), len(offers))
        first = np.minimum.reduceat(pairs, self.starts)
        amounts = self.allocations[self.allocation[first]].astype(np.int32)
        return best, Choice(amounts, self.gains[first], self.outcome[first])
