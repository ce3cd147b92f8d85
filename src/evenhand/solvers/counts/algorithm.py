"""Choice of the algorithm, from the slots alone, before anything large exists.

There are three choices, none of which changes the result:

    choosing   climb the budget cell by cell, where one resource binds in whole units and no landing is served again;
               else go through the list of allocations of the cells off base, which does not depend on the counts
    moving     base rows as a product of splits (`kernels.splits`), else as a table of distributions
    extras     arms in extra slots move by themselves; where the extra rows are mixtures of base rows (a replacement
               that may fail), the mixture chooses among slots and the base rows move all arms at once

Nothing here depends on the criterion.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from evenhand.display import size_in_words
from evenhand.errors import TooLargeError
from evenhand.kernels.lattice import lattice_size, list_amounts
from evenhand.kernels.splits import Split, factorise
from evenhand.solvers.counts.post_decision import Slots
from evenhand.typing import Floats, Ints

MOST_ALLOCATIONS = 3_000_000
"""Listed allocations beyond which a problem is refused."""

MIXTURE_ERROR = 1e-15
"""Largest error, per entry, of a mixture of base rows that replaces an extra row."""

INSTEAD = "Use fewer arms, a smaller budget, or a bound from the fluid relaxation."

_LARGEST_RATIO = 16
"""Largest use of a cell, as a multiple of the unit of use."""


class Climb(NamedTuple):
    """Cells in an order in which no landing is served again, and units of the one resource that binds."""

    order: Ints
    """(cell,) cells, the first served first."""

    units: Ints
    """(cell,) whole units that one arm uses."""

    num_units: int
    """Number of units in the budget."""


class CountAlgorithm(NamedTuple):
    """The algorithm for a problem."""

    slots: Slots
    climb: Climb | None

    allocations: Ints
    """(allocation, cell) the list, empty when climbing."""

    extras: list[Ints]
    """By number of arms in extra slots: (config, extra) how they may be spread over the extra rows."""

    mixtures: Floats | None
    """(extra, slot) weights that make extra rows of base rows, where there are such."""

    splits: tuple[list[Split], Ints] | None
    """The base rows as splits, and the (slot,) state where each slot ends."""

    @property
    def num_points(self) -> int:
        """Number of count states."""
        return self.size_of(0)

    def size_of(self, extra: int) -> int:
        """Points of the lattice of base slots when so many arms are in extra ones."""
        return lattice_size(self.slots.num_arms - extra, self.slots.num_states)

    @property
    def num_outcomes(self) -> int:
        """Number of counts of slots after a decision."""
        return sum(len(configs) * self.size_of(t) for t, configs in enumerate(self.extras))

    @property
    def base_levels(self) -> range:
        """Numbers of extra arms for which the base rows act on a lattice of their own."""
        return range(1 if self.mixtures is not None else len(self.extras))


def choose_algorithm(slots: Slots) -> CountAlgorithm:
    """The cheapest algorithm.

    Raises:
        TooLargeError: there are too many count states or allocations.
    """
    num_points = lattice_size(slots.num_arms, slots.num_states)
    # Points are numbered in 32 bits.
    if num_points >= 2**31:
        raise TooLargeError(f"there are {size_in_words(num_points)} count states. {INSTEAD}")
    climb = _climbing(slots)
    allocations = np.zeros((0, len(slots.cells)), dtype=np.int64)
    if climb is None:
        allocations = list_allocations(slots, num_points)
    extras = _extra_configs(slots, allocations)
    mixtures = _mixtures(slots.extra_rows, slots.base_rows) if len(extras) > 1 else None
    return CountAlgorithm(slots, climb, allocations, extras, mixtures, factorise(slots.base_rows))


# -- choosing: climb or list -----------------------------------------------------------------------------------------


def _climbing(slots: Slots) -> Climb | None:
    """The order and units of climbing the budget, or None if only the list of allocations applies."""
    order = _serving_order(slots)
    # A resource binds if all arms in the dearest cell would use more of it than there is.
    binding = slots.num_arms * slots.needs.max(axis=0, initial=0.0) > slots.limit
    # The climb serves cell after cell: it needs an order, one budget at most, and landings on the lattice itself.
    if order is None or len(slots.cells) == 0 or len(slots.extra_rows) or binding.sum() > 1:
        return None
    # Where nothing binds, the arms themselves are the budget.
    units, room = np.ones(len(slots.cells)), float(slots.num_arms)
    if binding.any():
        need = slots.needs[:, binding][:, 0]
        # A cell must use a unit at least, or the climb would not end with it.
        if need.min() <= 0:
            return None
        units = need / need.min()
        # More than all arms in the dearest cell can use is of no use.
        room = min(slots.limit[binding][0] / need.min(), slots.num_arms * units.max())
    whole = np.rint(units)
    num_units = int(np.floor(room))
    fits = (np.abs(units - whole) <= 1e-12 * whole).all() and whole.max() <= _LARGEST_RATIO
    if not fits or (num_units + 1.0) ** len(slots.cells) >= 2.0**62:  # a choice must fit into one code
        return None
    return Climb(order, whole.astype(np.int64), num_units)


def _serving_order(slots: Slots) -> Ints | None:
    """(cell,) cells such that none lands in the source of itself or of a later one; None if they go round."""
    sources, left, order = slots.cells[:, 0], list(range(len(slots.cells))), list[int]()
    while left:
        # The next cell may land nowhere that is still to be served, itself included.
        following = next((k for k in left if slots.landings[k] not in sources[left]), None)
        if following is None:
            return None
        order.append(following)
        left.remove(following)
    return np.array(order, dtype=np.int64)


def list_allocations(slots: Slots, num_points: int) -> Ints:
    """(allocation, cell) all amounts within the budget."""

    def check(number: float) -> None:
        if number > MOST_ALLOCATIONS:
            raise TooLargeError(
                f"each of {num_points} count states would choose among more than {number:.3g} allocations. {INSTEAD}"
            )

    kinds, arms = np.zeros(len(slots.cells), dtype=np.int64), np.array([slots.num_arms])
    return list_amounts(slots.needs, kinds, arms, slots.limit, check, takes_rest=False)[0].astype(np.int64)


# -- arms in extra slots ---------------------------------------------------------------------------------------------


def _extra_configs(slots: Slots, allocations: Ints) -> list[Ints]:
    """By number of arms in extra slots: the (config, extra) ways in which listed allocations spread them."""
    if len(slots.extra_rows) == 0:
        return [np.zeros((1, 0), dtype=np.int64)]
    spread = np.unique(spread_extras(slots, allocations), axis=0)
    # With an allocation the list has every smaller one: no config lacks those of one arm less.
    totals = spread.sum(axis=1)
    return [spread[totals == t] for t in range(int(totals.max()) + 1)]


def spread_extras(slots: Slots, amounts: Ints) -> Ints:
    """(row, extra) arms that land in each extra slot, of (row, cell) amounts."""
    to_extra = slots.landings[:, None] == slots.num_states + np.arange(len(slots.extra_rows))
    return np.asarray(amounts @ to_extra.astype(np.int64))


def _mixtures(extra_rows: Floats, base_rows: Floats) -> Floats | None:
    """(extra, slot) weights that make every extra row a mixture of base rows, or None."""
    weights = np.zeros((len(extra_rows), len(base_rows)))
    for e, row in enumerate(extra_rows):
        # the row of ones asks for weights that sum to 1
        solution, _ = nnls(np.vstack([base_rows.T, np.ones(len(base_rows))]), np.append(row, 1.0))
        solution[solution < 1e-15] = 0.0
        # One row that is not a mixture, and arms in extra slots move by themselves.
        if not solution.any() or np.abs(solution @ base_rows - row).max() > MIXTURE_ERROR:
            return None
        weights[e] = solution / solution.sum()
    return weights
