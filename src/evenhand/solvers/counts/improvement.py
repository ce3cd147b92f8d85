"""The maximum over allocations, in every count state at once.

    climbing   cell by cell and unit by unit (`kernels.splits`), O(count states * cells * units)
    listing    through the list of allocations, O(count states * allocations)

Both give the same result; `algorithm` chooses between them.
"""

from typing import NamedTuple, Protocol

import numpy as np

from evenhand.kernels.lattice import number_points
from evenhand.kernels.splits import Listed, lattice_steps
from evenhand.solvers.counts.algorithm import Climb
from evenhand.solvers.counts.expectation import Outcomes, shifts
from evenhand.typing import Floats, Indices, Ints


class Choice(NamedTuple):
    """The decision in each count state."""

    amounts: Indices
    """(count state, cell) arms that get each cell."""

    gains: Floats
    """(count state,) its reward beyond the base actions."""

    targets: Ints
    """(count state,) the outcome it leads to."""


class Chooser(Protocol):
    """The maximum over allocations."""

    def improve(self, worth: Floats) -> tuple[Floats, Choice]:
        """(count state,) the best gain plus worth of the (outcome,) outcome, and how it is reached."""


def find_chooser(outcomes: Outcomes, gains: Floats) -> Chooser:
    """Climbing or listing, for the (cell,) gains of one table of rewards."""
    climb = outcomes.roads.climb
    return Climber(outcomes, gains, climb) if climb is not None else Lister(outcomes, gains)


class Climber:
    """The maximum by climbing the budget."""

    def __init__(self, outcomes: Outcomes, gains: Floats, climb: Climb) -> None:
        slots = outcomes.slots
        self.outcomes, self.climb = outcomes, climb
        self.gains = gains[climb.order]
        self.ends = slots.cells[climb.order, 0], slots.landings[climb.order]
        self.steps = lattice_steps(outcomes.points, *self.ends)
        # a choice is coded in one number, a digit a cell; the narrow type halves the traffic where it suffices
        self.digits = climb.num_units + 1
        kind = np.int32 if float(self.digits) ** len(climb.order) < 2**31 else np.int64
        self.strides = (self.digits ** np.arange(len(climb.order), dtype=np.int64)).astype(kind)

    def improve(self, worth: Floats) -> tuple[Floats, Choice]:
        """Climb, and decode the choice."""
        from evenhand.kernels import lattice_sweeps as kernels

        outcomes, units = self.outcomes, self.climb.units[self.climb.order]
        best, code = kernels.climb_budget(worth, self.gains, units, self.steps, self.strides, self.climb.num_units)
        amounts, gains, targets = kernels.decode_climb(
            outcomes.points, code, self.gains, *self.ends, self.digits, outcomes.tables
        )
        return best, Choice(amounts[:, np.argsort(self.climb.order)], gains, targets)


class Lister:
    """The maximum by going through the list of allocations."""

    def __init__(self, outcomes: Outcomes, gains: Floats) -> None:
        self.outcomes, self.allocations = outcomes, outcomes.roads.allocations
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
