"""The maximum over allocations, in every count state at once.

    climbing   cell by cell and unit by unit (`kernels.splits`), O(count states * cells * units)
    listing    through the list of allocations, O(count states * allocations)

Both give the same result; `algorithm` chooses between them. Small problems have explicit tables (`Tables`) of every
pair of a count state and an allocation, and of the distribution of the next counts after every outcome: nothing is
compiled for them.
"""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.lattice import lattice_points, number_points
from evenhand.kernels.lattice_distributions import movers_distribution
from evenhand.kernels.splits import Listed, lattice_steps
from evenhand.solvers.counts.algorithm import Climb, spread_extras
from evenhand.solvers.counts.expectation import Follow, Outcomes, shifts
from evenhand.solvers.counts.post_decision import SAME_ROW, UNIT, Slots
from evenhand.typing import Floats, Indices, Ints


class Choice(NamedTuple):
    """The decision in each count state."""

    amounts: Indices
    """(count state, cell) arms that get each cell."""

    gains: Floats
    """(count state,) its reward beyond the base actions."""

    targets: Ints
    """(count state,) the outcome it leads to."""


class Climber:
    """The maximum by climbing the budget."""

    def __init__(self, outcomes: Outcomes, gains: Floats, climb: Climb) -> None:
        slots = outcomes.slots
        self.outcomes, self.climb, self.gains = outcomes, climb, gains
        self.steps = lattice_steps(outcomes.points, slots.cells[climb.order, 0], slots.landings[climb.order])
        # a choice is coded in one number, a digit a cell; the narrow type halves the traffic where it suffices
        self.digits = climb.num_units + 1
        kind = np.int32 if float(self.digits) ** len(climb.order) < 2**31 else np.int64
        self.strides = (self.digits ** np.arange(len(climb.order), dtype=np.int64)).astype(kind)

    def improve(self, worth: Floats) -> tuple[Floats, Choice]:
        """Climb, and decode the choice."""
        from evenhand.kernels.lattice_sweeps import climb_budget

        outcomes, order, units = self.outcomes, self.climb.order, self.climb.units[self.climb.order]
        best, code = climb_budget(worth, self.gains[order], units, self.steps, self.strides, self.climb.num_units)
        amounts, reached = np.empty((len(code), len(order)), dtype=np.int32), outcomes.points.copy()
        for cell in order:
            rest = code // self.digits
            amount, code = code - rest * self.digits, rest
            amounts[:, cell] = amount
            reached[:, outcomes.slots.cells[cell, 0]] -= amount
            reached[:, outcomes.slots.landings[cell]] += amount
        targets = number_points(reached, np.int64(outcomes.slots.num_arms), outcomes.tables)
        return best, Choice(amounts, amounts @ self.gains, targets)


class Lister:
    """The maximum by going through the list of allocations."""

    def __init__(self, outcomes: Outcomes, gains: Floats) -> None:
        self.outcomes, self.allocations = outcomes, outcomes.algorithm.allocations
        takes, lands = shifts(outcomes.slots, self.allocations)
        left, begins = outcomes.places(self.allocations)
        self.listed = Listed(
            takes=takes.astype(np.int32),
            shifts=(lands - takes).astype(np.int32),
            arms=left.astype(np.int32),
            offsets=begins,
            gains=self.allocations @ gains,
        )

    def improve(self, worth: Floats) -> tuple[Floats, Choice]:
        """Compare all, and look up the choice."""
        from evenhand.kernels.lattice_sweeps import best_listed

        points, listed, tables = self.outcomes.points, self.listed, self.outcomes.tables
        best, number = best_listed(points, listed, tables, worth)
        reached = number_points(points + listed.shifts[number], listed.arms[number], tables)
        amounts = self.allocations[number].astype(np.int32)
        return best, Choice(amounts, listed.gains[number], listed.offsets[number] + reached)


class Tables:
    """Expectation and maximum by explicit tables; the interface of `Outcomes`, and of `Climber` and `Lister`."""

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
        self.distribution = movers_distribution(used, np.concatenate([slots.base_rows, slots.extra_rows]))

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
