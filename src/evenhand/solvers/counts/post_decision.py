"""Post-decision states of identical arms, how many are in each slot; and the choice of the algorithm.

In each state one idle action is the *base*. An arm left at its base is in the slot of its state. An arm that gets
another *cell* (s, a) lands in the slot of the state whose base row is the same, or else in an extra slot for its row.
Cells that cannot matter are left out: those that no budget affords, and those that are dominated by a cell of the same
state and row with no larger usage and no smaller reward.

Under the criterion `average` the long run must not depend on the start. The graph of one arm decides the plainest case:
if the affordable actions together leave more than one closed class, an arm stays for ever in the one it started in.

The algorithm follows from the slots alone, before anything large exists and whatever the criterion. There are three
choices, none of which changes the result:

    choosing   climb the budget cell by cell, where one resource binds in whole units and no landing is served again;
               else go through the list of allocations of the cells off base, which does not depend on the counts
    moving     base rows as a product of splits (`kernels.splits`), else as a table of distributions
    extras     arms in extra slots move by themselves; where the extra rows are mixtures of base rows (a replacement
               that may fail), the mixture chooses among slots and the base rows move all arms at once
"""

from typing import NamedTuple

import numpy as np
import scipy

from evenhand.display import size_in_words
from evenhand.errors import NotApplicableError, TooLargeError
from evenhand.kernels.lattice import lattice_size, lattice_tables, list_amounts
from evenhand.kernels.splits import Split, factorise
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.solvers.closed_classes import closed_classes
from evenhand.typing import Bools, Floats, Ints

SAME_ROW = 4e-16
"""Rows this near in every entry are the same row; counted as an error of the law."""

UNIT = 2.0**-53
"""Relative error of one rounding."""

INSTEAD_OF_AVERAGE = "Use the criterion discounted with a discount near 1, or finite:T."


class TypeTables(NamedTuple):
    """The tables of an arm of one type, the number of such arms, and the budget."""

    transitions: Floats
    """(state, action, next_state) probabilities."""

    rewards: Floats
    """(state, action) rewards of an arm."""

    usage: Floats
    """(state, action, resource) usage."""

    served: Floats
    """(state, action) 1 where the action serves the arm, else 0."""

    valid: Bools
    """(state, action) which actions there are."""

    initial: Floats
    """(state,) distribution of the first state."""

    num_arms: int

    limit: Floats
    """(resource,) the budget, with its room for rounding."""

    least: Floats
    """(resource,) least use, with its room for rounding; 0 if the budget need not be spent."""

    @property
    def affordable(self) -> Bools:
        """(state, action) actions that the budget allows."""
        return np.asarray((self.usage <= self.limit).all(axis=2) & self.valid)


class Slots(NamedTuple):
    """The arms in terms of slots: which cells matter, and where their arms land."""

    num_arms: int

    base: Ints
    """(state,) the idle action."""

    base_rows: Floats
    """(state, next_state) how arms at their base move."""

    extra_rows: Floats
    """(extra, next_state) how arms in extra slots move."""

    cells: Ints
    """(cell, 2) state and action."""

    needs: Floats
    """(cell, resource) usage of one arm."""

    landings: Ints
    """(cell,) the slot where its arms land."""

    limit: Floats
    """(resource,) the budget."""

    least: Floats
    """(resource,) least use: positive if the budget must be spent."""

    base_rewards: Floats
    """(state,) reward of an arm left at its base, as a share of the mean over all arms."""

    gains: Floats
    """(cell,) reward of a cell beyond that."""

    largest_reward: float
    """Bound on the magnitude of the mean reward."""

    @property
    def num_states(self) -> int:
        """Number of states of an arm."""
        return len(self.base)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_tables(problem: CoupledMDP) -> list[TypeTables]:
    """The tables of each type, without padding."""
    types, found = problem.types, []
    for t, (S, A) in enumerate(zip(types.num_states, types.num_actions, strict=True)):
        tables = types.transitions[t, :S, :A, :S], types.rewards[t, :S, :A], types.usage[t, :S, :A]
        served, valid = types.served[t, :S, :A].astype(np.float64), types.valid[t, :S, :A]
        number = int(problem.type_counts[t])
        found.append(
            TypeTables(*tables, served, valid, types.initial[t, :S], number, problem.budget_limit, problem.least_use)
        )
    return found


def read_slots(arm: TypeTables) -> Slots:
    """Read the tables of an arm that has an idle action in every state."""
    base = _best_free(arm, np.asarray((arm.usage == 0).all(axis=2)))
    base_rows = arm.transitions[np.arange(len(base)), base]
    # Cells off base that are affordable and not dominated by a cell of the same state and row.
    useful = [(s, a) for s, a in np.argwhere(arm.affordable) if a != base[s] and not _is_dominated(arm, s, a)]
    cells = np.array(useful, dtype=np.int64).reshape(-1, 2)
    landings, extra_rows = _land(arm.transitions, cells, base_rows)
    at_base = arm.rewards[np.arange(len(base)), base]
    gains = (arm.rewards[cells[:, 0], cells[:, 1]] - at_base[cells[:, 0]]) / arm.num_arms
    return Slots(
        num_arms=arm.num_arms,
        base=base,
        base_rows=base_rows,
        extra_rows=extra_rows,
        cells=cells,
        needs=arm.usage[cells[:, 0], cells[:, 1]],
        landings=landings,
        limit=arm.limit,
        least=arm.least,
        base_rewards=at_base / arm.num_arms,
        gains=gains,
        # A mean over N arms: max|at_base| at the most at their base, and each of the N may add a gain.
        largest_reward=float(np.abs(at_base).max() + arm.num_arms * np.abs(gains).max(initial=0.0)),
    )


def check_one_class(arm: TypeTables, criterion: Criterion) -> None:
    """Refuse averages of arms whose affordable actions leave more than one closed class of states."""
    if not criterion.is_stationary or criterion.contracts:
        return
    moves = ((arm.transitions > 0) & arm.affordable[:, :, None]).any(axis=1)
    closed = [states.tolist() for states in closed_classes(np.asarray(moves, dtype=np.float64))]
    if len(closed) > 1:
        raise NotApplicableError(
            f"the criterion average needs one recurrent class, and an arm has {len(closed)} groups of states that no "
            f"action leaves (such as the states {closed[0][:5]} and {closed[1][:5]}): its mean reward depends on "
            f"where it starts. {INSTEAD_OF_AVERAGE}"
        )


def _same(left: Floats, right: Floats) -> bool:
    return bool(np.abs(left - right).max() <= SAME_ROW)


def _best_free(arm: TypeTables, free: Bools) -> Ints:
    """(state,) the first idle action, or one with the same row and a better reward."""
    base = free.argmax(axis=1)
    for s, first in enumerate(base):
        alike = [a for a in np.flatnonzero(free[s]) if _same(arm.transitions[s, a], arm.transitions[s, first])]
        # Same row, same use: the better reward is never worse. The first of equals, as `max` has it.
        base[s] = max(alike, key=lambda a: arm.rewards[s, a])
    return np.asarray(base, dtype=np.int64)


def _is_dominated(arm: TypeTables, s: np.int64, a: np.int64) -> bool:
    """Return True if another action of the state has the same row, no larger usage and no smaller reward.

    What must be spent must be the same.
    """
    usage, rewards, exact = arm.usage[s], arm.rewards[s], arm.least > 0
    rivals = (b for b in range(len(rewards)) if b != a and _same(arm.transitions[s, a], arm.transitions[s, b]))
    return any(
        (usage[b] <= usage[a]).all()
        and (usage[b] == usage[a])[exact].all()
        and rewards[b] >= rewards[a]
        and (b < a or rewards[b] > rewards[a] or (usage[b] < usage[a]).any())  # of equals the first stays
        for b in rivals
    )


def _land(transitions: Floats, cells: Ints, base_rows: Floats) -> tuple[Ints, Floats]:
    """(cell,) the slot of each cell, and the (extra, next_state) rows of slots beyond the states."""
    rows = list(base_rows)
    landings = []
    # Base rows come first: landing on the lattice costs nothing, an extra slot makes outcomes more.
    for s, a in cells:
        alike = (slot for slot, row in enumerate(rows) if _same(row, transitions[s, a]))
        slot = next(alike, len(rows))
        if slot == len(rows):
            rows.append(transitions[s, a])
        landings.append(slot)
    extra = np.array(rows[len(base_rows) :]).reshape(-1, base_rows.shape[1])
    return np.array(landings, dtype=np.int64), extra


MOST_ALLOCATIONS = 3_000_000
"""Listed allocations beyond which a problem is refused."""

MIXTURE_ERROR = 1e-15
"""Largest error, per entry, of a mixture of base rows that replaces an extra row."""

INSTEAD = "Use fewer arms, a smaller budget, or the method fluid, which proves how far it may be from the optimum."


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
        reached = range(1)
        if len(self.extras) > 1:  # if the budget must be spent, not all numbers of arms
            reached = np.unique(spread_extras(self.slots, self.allocations).sum(axis=1)).tolist()
        return sum(len(self.extras[t]) * self.size_of(t) for t in reached)

    def values_after(self, allocations: Ints, faces: Ints) -> tuple[Ints, Ints]:
        """(allocation,) number of outcomes, and of points where the arms in extra slots arrive.

        Args:
            allocations: their numbers.
            faces: (allocation,) bit s is set if no outcome that matters has an arm in slot s.
        """
        tables = lattice_tables(self.slots.num_arms, self.slots.num_states)
        extra = spread_extras(self.slots, self.allocations[allocations]).sum(axis=1)
        behind = self.slots.num_states - 1 - (faces[:, None] >> np.arange(self.slots.num_states) & 1).sum(axis=1)
        return tables[np.maximum(behind, 0), self.slots.num_arms - extra], tables[-1, extra]

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
    # There is no order if a budget must be spent, since every state has a cell then (`CoupledMDP.check_spend`).
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
    fits = (np.abs(units - whole) <= 1e-12 * whole).all() and whole.max() <= 16  # as many budgets are stored
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
    amounts, used = list_amounts(slots.needs, kinds, arms, slots.limit, check, takes_rest=False)
    return amounts[(used >= slots.least).all(axis=1)].astype(np.int64)


# -- arms in extra slots ---------------------------------------------------------------------------------------------


def _extra_configs(slots: Slots, allocations: Ints) -> list[Ints]:
    """By number of arms in extra slots: the (config, extra) ways in which listed allocations spread them."""
    if len(slots.extra_rows) == 0:
        return [np.zeros((1, 0), dtype=np.int64)]
    spread = np.unique(spread_extras(slots, allocations), axis=0)
    totals = spread.sum(axis=1)
    levels = [spread[totals == t] for t in range(int(totals.max()) + 1)]
    # With every config the one without an arm of its first extra slot: it is missing if the budget must be spent.
    for t in range(len(levels) - 1, 0, -1):
        first = (levels[t] > 0).argmax(axis=1)[:, None]
        fewer = levels[t] - (np.arange(spread.shape[1]) == first)
        levels[t - 1] = np.unique(np.concatenate([levels[t - 1], fewer]), axis=0)
    return levels


def spread_extras(slots: Slots, amounts: Ints) -> Ints:
    """(row, extra) arms that land in each extra slot, of (row, cell) amounts."""
    to_extra = slots.landings[:, None] == slots.num_states + np.arange(len(slots.extra_rows))
    return np.asarray(amounts @ to_extra.astype(np.int64))


def _mixtures(extra_rows: Floats, base_rows: Floats) -> Floats | None:
    """(extra, slot) weights that make every extra row a mixture of base rows, or None."""
    weights = np.zeros((len(extra_rows), len(base_rows)))
    for e, row in enumerate(extra_rows):
        # the row of ones asks for weights that sum to 1
        solution, _ = scipy.optimize.nnls(np.vstack([base_rows.T, np.ones(len(base_rows))]), np.append(row, 1.0))
        solution[solution < 1e-15] = 0.0
        # One row that is not a mixture, and arms in extra slots move by themselves.
        if not solution.any() or np.abs(solution @ base_rows - row).max() > MIXTURE_ERROR:
            return None
        weights[e] = solution / solution.sum()
    return weights
