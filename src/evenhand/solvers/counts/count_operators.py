"""The operators of identical arms: the expected value after a decision, and the maximum over decisions.

After a decision i[s] arms are in base slots and a[e] in extra ones: the *outcome* (i, a). Nothing else of the decision
matters for what comes next, W(i, a) = E[V(x') | i, a]. Outcomes are numbered by *level*, the number t = |a| of arms in
extra slots; within a level by config a, then by the point i of the lattice of N - t arms.

    extra arms first   (M V)(y, a) = sum_z law(a)(z) V(y + z),  then the base rows on the lattice of N - t arms
    or, as mixtures    the base rows once on the whole lattice, then the mixture of slots that a stands for

Base rows. The expectation over the next counts of arms at their base is the symmetric power of the matrix of base rows:
sweeps over lines if the matrix is a product of splits, else a table of distributions (`kernels.splits` has the
mathematics of both). Each bounds its error relative to the largest value: cut tails, rounding, and the difference of
the product from the matrix.

A sweep of all outcomes serves the maximum; following one policy needs one outcome a count state, and only the configs
that some state uses.

The maximum over allocations is taken in every count state at once.

    climbing   cell by cell and unit by unit (`kernels.splits`), O(count states * cells * units)
    listing    through the list of allocations, O(count states * allocations), but for those that were surely not best

Elimination. If an allocation was worse than the best by c at a value function, wherever it is possible, then at another
one it is worse by c - gamma span, span that of the difference of both: expectations of it differ by no more. As long as
that is positive its outcomes are left out, and nothing changes.

Both give the same result; `post_decision.choose_algorithm` chooses between them. Small problems have explicit tables
(`Tables`) of every pair of a count state and an allocation, and of the distribution of the next counts after every
outcome: nothing is compiled for them.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evenhand.kernels.lattice import (
    lattice_below,
    lattice_index,
    lattice_points,
    lattice_tables,
    movers_distribution,
    number_points,
)
from evenhand.kernels.splits import TAIL, Listed, Split, binomial_bands, lattice_lines, lattice_steps, product_error
from evenhand.solvers.counts.post_decision import (
    MIXTURE_ERROR,
    SAME_ROW,
    UNIT,
    Climb,
    CountAlgorithm,
    Slots,
    spread_extras,
)
from evenhand.typing import Array, Floats, Indices, Ints

Follow = Callable[[Floats], Floats]
"""The (count state,) expected value after one policy's decisions, of a (count state,) value function."""


# -- arms at their base ----------------------------------------------------------------------------------------------


class Sweeps:
    """The base rows as splits."""

    def __init__(self, slots: Slots, splits: tuple[list[Split], Ints], levels: range) -> None:
        steps, self.ends = splits
        bands = [binomial_bands(slots.num_arms, p) for _, _, p in steps]
        self.sweeps = {}
        self.relabelled = {}
        for left in (slots.num_arms - t for t in levels):
            lines = {(i, j): lattice_lines(left, slots.num_states, i, j) for i, j, _ in steps}
            self.sweeps[left] = [(lines[i, j], band) for (i, j, _), band in zip(steps, bands, strict=True)]
            if (self.ends != np.arange(slots.num_states)).any():
                points = lattice_points(left, slots.num_states)
                self.relabelled[left] = lattice_index(points[:, np.argsort(self.ends)])
        self.error = sum(
            2 * TAIL + (3 * slots.num_arms + int(np.diff(band.starts).max())) * UNIT for band in bands
        ) + slots.num_arms * product_error(slots.base_rows, steps, self.ends)

    def all(self, functions: Floats, left: int) -> Floats:
        """(batch, point) expectations of (batch, point) functions of the next counts of so many arms."""
        from evenhand.kernels.lattice_sweeps import sweep_lines

        if self.relabelled:
            functions = functions[:, self.relabelled[left]]
        functions = np.ascontiguousarray(functions)
        for lines, band in reversed(self.sweeps[left]):
            functions = sweep_lines(functions, lines, band)
        return np.asarray(functions)


class Laws:
    """The base rows as tables of distributions."""

    def __init__(self, slots: Slots, levels: range) -> None:
        from evenhand.kernels.lattice_sweeps import grow_distribution

        self.laws: dict[int, Floats] = {}
        law = np.ones((1, 1))
        for n in range(slots.num_arms + 1):
            if n:
                points = lattice_points(n, slots.num_states)
                below = lattice_below(n, slots.num_states)
                leaving = (points > 0).argmax(axis=1).astype(np.int32)
                parent = below[np.arange(len(points)), leaving]
                law = grow_distribution(law, slots.base_rows, leaving, parent, below)
            if slots.num_arms - n in levels:
                self.laws[n] = law
        self.error = (slots.num_arms * (slots.num_states + 1) + len(law)) * UNIT

    def all(self, functions: Floats, left: int) -> Floats:
        """(batch, point) expectations of (batch, point) functions of the next counts of so many arms."""
        return np.asarray(functions @ self.laws[left].T)

    def some(self, functions: Floats, left: int, point: Ints, config: Ints) -> Floats:
        """(pair,) expectations at chosen points of chosen functions."""
        from evenhand.kernels.lattice_sweeps import dot_rows

        return np.asarray(dot_rows(self.laws[left], functions, point, config))


# -- outcomes --------------------------------------------------------------------------------------------------------


class Level(NamedTuple):
    """Outcomes with one number of arms in extra slots."""

    arms: int
    """Arms left in base slots."""

    size: int
    """Points of their lattice."""

    offset: int
    """Number of the first outcome of this level; config by config, and point by point within."""

    law: Floats
    """(config, arrival) law of where the extra arms arrive."""

    reached: Indices
    """(arrival, point) the point of the whole lattice after that arrival."""


class Outcomes:
    """The outcomes of decisions, and expectations over what follows them."""

    def __init__(self, algorithm: CountAlgorithm) -> None:
        self.algorithm, self.slots = algorithm, algorithm.slots
        self.points = lattice_points(self.slots.num_arms, self.slots.num_states).astype(np.int32)
        self.tables = lattice_tables(self.slots.num_arms, self.slots.num_states)
        self.levels = self._levels()
        self.move: Sweeps | Laws
        if algorithm.splits is not None:
            self.move = Sweeps(self.slots, algorithm.splits, algorithm.base_levels)
        else:
            self.move = Laws(self.slots, algorithm.base_levels)

    def _levels(self) -> list[Level]:
        rows = self.algorithm.mixtures if self.algorithm.mixtures is not None else self.slots.extra_rows
        levels, offset = [], 0
        for t, configs in enumerate(self.algorithm.extras):
            law = movers_distribution(configs, rows)
            left = self.slots.num_arms - t
            points = lattice_points(left, self.slots.num_states)
            arrivals = lattice_points(t, self.slots.num_states)
            # Arrivals that no config of the level can have are left out.
            possible = law.any(axis=0)
            columns = [lattice_index(points + z).astype(np.int32) for z in arrivals[possible]]
            levels.append(Level(left, len(points), offset, law[:, possible], np.array(columns)))
            offset += len(law) * len(points)
        return levels

    @cached_property
    def error(self) -> float:
        """Relative to max|V| + max|r|: how far a computed T V - V may be from the true one, for the given V.

        Added up from how the laws are made (cut tails, rounding, rows taken for the same), from the sums over arrivals
        and slots, from the additions of the choice, and from rewards, sum and difference at the end.
        """
        slots, most = self.slots, len(self.levels) - 1
        mixing = max(level.law.shape[1] for level in self.levels) + most * (slots.num_states + 2)
        climb = self.algorithm.climb
        steps = 4 + slots.num_states + (climb.num_units if climb is not None else len(slots.cells))
        rows = slots.num_arms * slots.num_states * SAME_ROW if len(slots.cells) else 0.0
        rows += most * slots.num_states * MIXTURE_ERROR if self.algorithm.mixtures is not None else 0.0
        return float(self.move.error + (mixing + steps) * UNIT + rows)

    # -- which outcome ------------------------------------------------------------------------------------------------

    def places(self, amounts: Ints) -> tuple[Ints, Ints]:
        """(row,) arms left in base slots by (row, cell) amounts, and where the outcomes of their config begin."""
        spread = spread_extras(self.slots, amounts)
        extra = spread.sum(axis=1)
        size = np.array([level.size for level in self.levels])
        offset = np.array([level.offset for level in self.levels])
        return self.slots.num_arms - extra, offset[extra] + self._config(spread) * size[extra]

    def _config(self, spread: Ints) -> Ints:
        """(row,) the number of each (row, extra) config within its level."""
        if spread.shape[1] == 0:
            return np.zeros(len(spread), dtype=np.int64)
        # Configs are identified by their contents, and numbered within their level.
        known = {tuple(config): i for configs in self.algorithm.extras for i, config in enumerate(configs)}
        used, row = np.unique(spread, axis=0, return_inverse=True)
        return np.array([known[tuple(config)] for config in used], dtype=np.int64)[row.reshape(-1)]

    # -- the expected value after it ----------------------------------------------------------------------------------

    def expect(self, value: Floats, levels: Sequence[Level] | None = None) -> Floats:
        """(outcome,) the expected value after every outcome, or after those of some levels only."""
        levels = self.levels if levels is None else levels
        if self.algorithm.mixtures is not None:
            # All arms move by base rows, once for every level; only the slots from which they move are mixed.
            moved = self.move.all(value[None], self.slots.num_arms)[0]
            parts = [self._mix(moved, level) for level in levels]
        else:
            parts = [self.move.all(self._mix(value, level), level.arms) for level in levels]
        return np.concatenate([part.reshape(-1) for part in parts])

    def _mix(self, function: Floats, level: Level) -> Floats:
        """(config, point) expectation over where the extra arms arrive."""
        if level.arms == self.slots.num_arms:
            # No arm is in an extra slot.
            return function[None]
        return np.asarray(level.law @ function[level.reached])

    def follow(self, targets: Ints) -> Follow:
        """The expected value after one outcome a count state, as a function of the value function.

        Args:
            targets: (count state,) outcomes.
        """
        levels, level_of, config, point = self.used(targets)
        here = [np.flatnonzero(level_of == t) for t in range(len(levels))]
        # Mixtures: one move on the whole lattice, then the few arrivals of each state's own config.
        if self.algorithm.mixtures is not None:
            arrivals = [
                (at, level.law[config[at]].T, level.reached[:, point[at]])
                for at, level in zip(here, levels, strict=True)
            ]

            def by_mixtures(value: Floats) -> Floats:
                moved, expected = self.move.all(value[None], self.slots.num_arms)[0], np.empty(len(value))
                for at, chances, reached in arrivals:
                    expected[at] = (chances * moved[reached]).sum(axis=0)
                return expected

            return by_mixtures
        # Laws: a row of a table for each state, and no other row.
        if isinstance(self.move, Laws):
            laws = self.move

            def by_laws(value: Floats) -> Floats:
                expected = np.empty(len(value))
                for at, level in zip(here, levels, strict=True):
                    expected[at] = laws.some(self._mix(value, level), level.arms, point[at], config[at])
                return expected

            return by_laws
        # Splits sweep whole lattices: all outcomes of the configs that are used, and then the requested ones.
        places = _places(levels, level_of, config, point)
        return lambda value: self.expect(value, levels)[places]

    def used(self, targets: Ints) -> tuple[list[Level], Ints, Ints, Ints]:
        """Levels cut down to the configs that some target has; each target's level, config and point in them."""
        # Outcomes are numbered level by level, so the last level that begins before a target is its own.
        level_of = np.searchsorted([level.offset for level in self.levels], targets, side="right") - 1
        levels, offset = list[Level](), 0
        config, point, new_level = (np.zeros(len(targets), dtype=np.int64) for _ in range(3))
        for t, level in enumerate(self.levels):
            here = np.flatnonzero(level_of == t)
            if len(here):
                old, point[here] = np.divmod(targets[here] - level.offset, level.size)
                used, config[here] = np.unique(old, return_inverse=True)
                new_level[here] = len(levels)
                levels.append(level._replace(offset=offset, law=level.law[used]))
                offset += len(used) * level.size
        return levels, new_level, config, point


def _places(levels: Sequence[Level], level_of: Ints, config: Ints, point: Ints) -> Ints:
    """(row,) the numbers of outcomes among those of some levels."""
    offset, size = np.array([level.offset for level in levels]), np.array([level.size for level in levels])
    return np.asarray(offset[level_of] + config * size[level_of] + point)


def shifts(slots: Slots, amounts: Array) -> tuple[Ints, Ints]:
    """(row, state) arms that (row, cell) amounts take out of each state, and arms that land in its slot."""
    states = np.arange(slots.num_states)
    takes = amounts @ (slots.cells[:, :1] == states).astype(np.int64)
    lands = amounts @ (slots.landings[:, None] == states).astype(np.int64)
    return takes, lands


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

    def __init__(self, outcomes: Outcomes, climb: Climb) -> None:
        slots = outcomes.slots
        self.outcomes, self.climb, self.gains = outcomes, climb, slots.gains
        self.steps = lattice_steps(outcomes.points, slots.cells[climb.order, 0], slots.landings[climb.order])
        # a choice is coded in one number, a digit a cell; the narrow type halves the traffic where it suffices
        self.digits = climb.num_units + 1
        kind = np.int32 if float(self.digits) ** len(climb.order) < 2**31 else np.int64
        self.strides = (self.digits ** np.arange(len(climb.order), dtype=np.int64)).astype(kind)

    def improve(self, value: Floats, factor: float) -> tuple[Floats, Choice]:
        """Climb, and decode the choice (`Lister.improve`)."""
        from evenhand.kernels.lattice_sweeps import climb_budget

        worth = factor * self.outcomes.expect(value)
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

    def __init__(self, outcomes: Outcomes) -> None:
        self.outcomes, self.allocations = outcomes, outcomes.algorithm.allocations
        takes, lands = shifts(outcomes.slots, self.allocations)
        left, begins = outcomes.places(self.allocations)
        self.listed = Listed(
            takes=takes.astype(np.int32),
            shifts=(lands - takes).astype(np.int32),
            arms=left.astype(np.int32),
            offsets=begins,
            gains=self.allocations @ outcomes.slots.gains,
        )

        self.deficits, self.last = np.zeros(len(self.allocations)), np.zeros(len(outcomes.points))

    def improve(self, value: Floats, factor: float) -> tuple[Floats, Choice]:
        """(count state,) the best gain plus discounted value of the next counts, and the choice that has it.

        Args:
            value: (count state,) value function.
            factor: discount.
        """
        from evenhand.kernels.lattice_sweeps import best_listed

        points, listed, tables = self.outcomes.points, self.listed, self.outcomes.tables
        self.deficits -= factor * float(np.ptp(value - self.last))
        # Rounding is much less than this share of the values.
        possible = np.flatnonzero(self.deficits <= 1e-9 * float(np.abs(value).max()))
        levels, *where = self.outcomes.used(listed.offsets[possible])
        rest = Listed(
            takes=listed.takes[possible],
            shifts=listed.shifts[possible],
            arms=listed.arms[possible],
            offsets=_places(levels, *where),
            gains=listed.gains[possible],
        )
        found = best_listed(points, rest, tables, factor * self.outcomes.expect(value, levels))
        best, number = found[0], possible[found[1]]
        self.deficits[possible], self.last = found[2], value
        reached = number_points(points + listed.shifts[number], listed.arms[number], tables)
        amounts = self.allocations[number].astype(np.int32)
        return best, Choice(amounts, listed.gains[number], listed.offsets[number] + reached)


class Tables:
    """Expectation and maximum by explicit tables; the interface of `Outcomes`, and of `Climber` and `Lister`."""

    def __init__(self, slots: Slots, allocations: Ints) -> None:
        """Tabulate the pairs.

        Args:
            slots: of the arms.
            allocations: (allocation, cell) all amounts within the budget.
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
        self.outcome, self.gains = outcome.reshape(-1), (allocations @ slots.gains)[self.allocation]
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

    def improve(self, value: Floats, factor: float) -> tuple[Floats, Choice]:
        """(count state,) the best gain plus discounted value, and the first choice that has it (`Lister.improve`)."""
        offers = self.gains + (factor * self.expect(value))[self.outcome]
        best = np.maximum.reduceat(offers, self.starts)
        pairs = np.where(offers == best[self.state], np.arange(len(offers)), len(offers))
        first = np.minimum.reduceat(pairs, self.starts)
        amounts = self.allocations[self.allocation[first]].astype(np.int32)
        return best, Choice(amounts, self.gains[first], self.outcome[first])
