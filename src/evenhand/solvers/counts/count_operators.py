"""The operators of identical arms: the expected value after a decision, and the maximum over decisions.

After a decision i[s] arms are in base slots and a[e] in extra ones: the *outcome* (i, a). Nothing else of the decision
matters for what comes next, W(i, a) = E[V(x') | i, a]. Outcomes are numbered by *level*, the number t = |a| of arms in
extra slots; within a level by config a, then by the point i of the lattice of N - t arms.

    extra arms first   (M V)(y, a) = sum_z law(a)(z) V(y + z),  then the base rows on the lattice of N - t arms
    base arms first    on a face of few points with many configs: the same with both exchanged, then one product with
                       the laws of where the extra arms arrive
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

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from evenhand.errors import NotConvergedError
from evenhand.kernels.lattice import (
    add_arm,
    lattice_below,
    lattice_chain,
    lattice_index,
    lattice_points,
    lattice_size,
    lattice_tables,
    movers_distribution,
    number_points,
)
from evenhand.kernels.splits import (
    TAIL,
    Lines,
    Listed,
    Split,
    binomial_bands,
    lattice_arrivals,
    lattice_lines,
    lattice_steps,
    product_error,
)
from evenhand.solvers.counts.dominance import Dominance, Rule
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

MOST_VALUES = 1e8
"""Values of outcomes that are stored at once."""

Follow = Callable[[Floats], Floats]
"""The (count state,) expected value after one policy's decisions, of a (count state,) value function."""


# -- arms at their base ----------------------------------------------------------------------------------------------


class Sweeps:
    """The base rows as splits; their `work` is multiplications per point."""

    def __init__(self, slots: Slots, splits: tuple[list[Split], Ints]) -> None:
        self.slots, (self.steps, self.ends) = slots, splits
        bands = self.bands = [binomial_bands(slots.num_arms, p) for _, _, p in self.steps]
        self.work = sum(len(band.weights) / len(band.first) for band in bands)
        self.lines: dict[int, list[Lines]] = {}
        self.relabelled: dict[int, Ints] = {}
        self.error = sum(
            2 * TAIL + (3 * slots.num_arms + int(np.diff(band.starts).max())) * UNIT for band in bands
        ) + slots.num_arms * product_error(slots.base_rows, self.steps, self.ends)

    def all(self, functions: Floats, left: int) -> Floats:
        """(batch, point) expectations of (batch, point) functions of the next counts of so many arms."""
        from evenhand.kernels.lattice_sweeps import sweep_lines

        if left not in self.lines:
            found = {(i, j): lattice_lines(left, self.slots.num_states, i, j) for i, j, _ in self.steps}
            self.lines[left] = [found[i, j] for i, j, _ in self.steps]
            points = lattice_points(left, self.slots.num_states)
            self.relabelled[left] = lattice_index(points[:, np.argsort(self.ends)])
        if (self.ends != np.arange(self.slots.num_states)).any():
            functions = functions[:, self.relabelled[left]]
        functions = np.ascontiguousarray(functions)
        for lines, band in zip(reversed(self.lines[left]), reversed(self.bands), strict=True):
            functions = sweep_lines(functions, lines, band)
        return np.asarray(functions)


class Laws:
    """The base rows as tables of distributions, grown on request, from a face of the lattice."""

    def __init__(self, slots: Slots, free: Sequence[int]) -> None:
        """Begin without arms.

        Args:
            slots: of the arms.
            free: states in which there may be arms; all of them, or those of the face.
        """
        self.slots, self.free = slots, np.array(free)
        self.laws: dict[int, Floats] = {0: np.ones((1, 1))}
        self.error = (slots.num_arms * (slots.num_states + 1) + lattice_size(slots.num_arms, slots.num_states)) * UNIT

    def law(self, left: int) -> Floats:
        """(face point, point) the distribution of the next counts of so many arms."""
        grown = max(n for n in self.laws if n <= left)
        law, S = self.laws[grown], self.slots.num_states
        for n in range(grown + 1, left + 1):
            leaving, below = lattice_chain(n, len(self.free))
            first, parent = self.free[leaving].astype(np.int32), below.astype(np.int32)
            law = add_arm(law, self.slots.base_rows, first, parent, lattice_below(n, S))
        self.laws[left] = law
        return law

    def all(self, functions: Floats, left: int) -> Floats:
        """(batch, face point) expectations of (batch, point) functions of the next counts of so many arms."""
        return np.asarray(functions @ self.law(left).T)


# -- outcomes --------------------------------------------------------------------------------------------------------


class Level(NamedTuple):
    """Outcomes with one number of arms in extra slots, on one face of the lattice of the other arms."""

    extra: int
    """Number of arms in extra slots."""

    arms: int
    """Arms left in base slots."""

    face: int
    """Bit s is set if no outcome that matters has an arm in slot s; 0 for all outcomes."""

    size: int
    """Points of the face."""

    offset: int
    """Number of the first outcome of this level; config by config, and point by point within."""

    configs: Ints
    """(config,) numbers of the configs among all of as many arms, in ascending order."""

    @property
    def num_outcomes(self) -> int:
        """Number of outcomes."""
        return len(self.configs) * self.size


class Outcomes:
    """The outcomes of decisions, and expectations over what follows them."""

    def __init__(self, algorithm: CountAlgorithm) -> None:
        self.algorithm, self.slots = algorithm, algorithm.slots
        self.points = lattice_points(self.slots.num_arms, self.slots.num_states).astype(np.int32)
        self.tables = lattice_tables(self.slots.num_arms, self.slots.num_states)
        self.levels, offset = list[Level](), 0
        for t, configs in enumerate(algorithm.extras):
            level = Level(t, self.slots.num_arms - t, 0, algorithm.size_of(t), offset, np.arange(len(configs)))
            self.levels.append(level)
            offset += level.num_outcomes
        every = range(self.slots.num_states)
        self.on_faces = {0: Laws(self.slots, every)}
        self.move: Sweeps | Laws = self.on_faces[0]
        if algorithm.splits is not None:
            self.move = Sweeps(self.slots, algorithm.splits)
        self.arrivals = cache(lambda left: lattice_arrivals(left, self.slots.num_states))
        self.extra_laws: dict[tuple[int, bytes], Floats] = {}

    @cached_property
    def chain(self) -> list[tuple[Indices, Ints]]:
        """By number of extra arms, from 1: (config,) the row of the last one, and the config without it."""
        steps, known = [], {config.tobytes(): number for number, config in enumerate(self.algorithm.extras[0])}
        for configs in self.algorithm.extras[1:]:
            first = (configs > 0).argmax(axis=1)
            fewer = configs - (np.arange(configs.shape[1]) == first[:, None])
            parent = np.array([known[config.tobytes()] for config in fewer], dtype=np.int64)
            steps.append((first.astype(np.int32), parent))
            known = {config.tobytes(): number for number, config in enumerate(configs)}
        return steps

    @cached_property
    def error(self) -> float:
        """Relative to max|V| + max|r|: how far a computed T V - V may be from the true one, for the given V.

        Added up from how the laws are made (cut tails, rounding, rows taken for the same), from the sums over arrivals
        and slots, from the additions of the choice, and from rewards, sum and difference at the end.
        """
        slots, most = self.slots, len(self.levels) - 1
        mixing = most * (slots.num_states + 2)
        if self.algorithm.mixtures is None and most:  # faces: arms one by one, and sums over all points of a lattice
            mixing += slots.num_arms * (slots.num_states + 2) + len(self.points)
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
        """(outcome,) the expected value after the outcomes of some levels, of all by default."""
        levels = self.levels if levels is None else levels
        expected = np.empty(levels[-1].offset + levels[-1].num_outcomes)
        results = [expected[level.offset :][: level.num_outcomes].reshape(-1, level.size) for level in levels]
        if self.algorithm.mixtures is not None:
            # All arms move by base rows, once for every level; only the slots from which they move are mixed.
            value = self.move.all(value[None], self.slots.num_arms)[0]
        base_first = {face for face in {level.face for level in levels} if self._starts_with_base(face, levels)}
        for face in base_first:
            mine = [number for number, level in enumerate(levels) if level.face == face]
            for number, found in zip(mine, self._base_first(value, [levels[n] for n in mine]), strict=True):
                results[number][:] = found
        rest = [number for number, level in enumerate(levels) if level.face not in base_first]
        for number in reversed(rest):  # distributions grow with the number of arms
            if base := self._laws_on(levels[number]):
                base.law(levels[number].arms)
        for number, functions in zip(rest, self._mixed(value, [levels[n] for n in rest]), strict=True):
            results[number][:] = self._move(levels[number], functions)
        return expected

    def _move(self, level: Level, functions: Floats) -> Floats:
        """(config, face point) expectations over the arms in base slots, of (config, point) functions."""
        if self.algorithm.mixtures is not None or level.arms == 0:
            return functions
        if base := self._laws_on(level):
            return base.all(functions, level.arms)
        moved = self.move.all(functions, level.arms)
        if not level.face:
            return moved
        free = self.free(level.face)
        points = np.zeros((level.size, self.slots.num_states), dtype=np.int64)
        points[:, free] = lattice_points(level.arms, len(free))
        return moved[:, lattice_index(points)]

    def _ancestors(self, levels: Sequence[Level]) -> list[Ints]:
        """By number of extra arms: (config,) the configs through which those of some levels are reached."""
        wanted = [np.zeros(0, dtype=np.int64)] * (levels[-1].extra + 1 if levels else 0)
        for level in levels:
            wanted[level.extra] = np.union1d(wanted[level.extra], level.configs)
        for t in range(len(wanted) - 1, 0, -1):
            wanted[t - 1] = np.union1d(wanted[t - 1], self.chain[t - 1][1][wanted[t]])
        return wanted

    def _mixed(self, value: Floats, levels: Sequence[Level]) -> Iterator[Floats]:
        """Per level: (config, point) expectations over where the extra arms arrive, one arm after the other."""
        from evenhand.kernels.lattice_sweeps import mix_arm

        rows = self.slots.extra_rows if self.algorithm.mixtures is None else self.algorithm.mixtures
        wanted, functions = self._ancestors(levels), value[None]
        for t, configs in enumerate(wanted):
            if t > 0:
                first, parent = self.chain[t - 1]
                place = np.searchsorted(wanted[t - 1], parent[configs])
                functions = mix_arm(functions, rows[first[configs]], place, self.arrivals(self.slots.num_arms - t))
            for level in levels:
                if level.extra == t:
                    same = len(level.configs) == len(configs)
                    yield functions if same else functions[np.searchsorted(configs, level.configs)]

    def free(self, face: int) -> list[int]:
        """Slots of a face in which there may be arms."""
        return [s for s in range(self.slots.num_states) if not face >> s & 1]

    def _laws_on(self, level: Level) -> Laws | None:
        """The base rows on a face as distributions; None if sweeps of the whole lattice take less work."""
        free = self.free(level.face)
        few = level.face and level.extra == 0 and level.size <= self.work
        if level.arms == 0 or self.algorithm.mixtures is not None or (isinstance(self.move, Sweeps) and not few):
            return None
        if level.face not in self.on_faces:
            self.on_faces[level.face] = Laws(self.slots, free)
        return self.on_faces[level.face]

    @property
    def work(self) -> float:
        """Multiplications per point of moving the arms in base slots on the whole lattice."""
        return self.move.work if isinstance(self.move, Sweeps) else float("inf")

    # -- on small faces, with many configs ----------------------------------------------------------------------------

    def _starts_with_base(self, face: int, levels: Sequence[Level]) -> bool:
        """Return True if on this face it is less work to move the arms in base slots before the extra ones."""
        mine = [level for level in levels if level.face == face and level.arms > 0]
        if self.algorithm.mixtures is not None or not face or not mine or mine[-1].extra == 0:
            return False
        arms, S, free = self.slots.num_arms, self.slots.num_states, len(self.free(face))
        reached = [len(configs) for configs in self._ancestors(mine)]
        mixing: float = S * sum(number * lattice_size(arms - t, S) for t, number in enumerate(reached))
        mixing += sum(len(level.configs) * lattice_size(level.arms, S) * self.work for level in mine)
        growing: float = S * sum(lattice_size(n, free) * lattice_size(arms - n, S) for n in range(mine[0].arms + 1))
        growing += S * sum(number * lattice_size(t, S) for t, number in enumerate(reached)) // 4
        return growing + sum(level.num_outcomes * lattice_size(level.extra, S) // 4 for level in mine) < mixing

    def _base_first(self, value: Floats, levels: Sequence[Level]) -> Iterator[Floats]:
        """Per level of one face: (config, face point) expectations, the arms in base slots before the extra ones."""
        from evenhand.kernels.lattice_sweeps import mix_arm

        free = np.array(self.free(levels[0].face), dtype=np.int64)
        arms, needed = self.slots.num_arms, {level.arms for level in levels}
        functions, moved = value[None], dict[int, Floats]()
        for n in range(max(needed) + 1):
            if n > 0:
                leaving, parent = lattice_chain(n, len(free))
                functions = mix_arm(functions, self.slots.base_rows[free[leaving]], parent, self.arrivals(arms - n))
            if n in needed:
                moved[n] = functions
        for level, law in zip(levels, self._laws_of_extras(levels), strict=True):
            yield law @ moved.pop(level.arms).T

    def _laws_of_extras(self, levels: Sequence[Level]) -> list[Floats]:
        """Per level: (config, point) the distribution of where its extra arms arrive."""
        keys = [(level.extra, level.configs.tobytes()) for level in levels]
        if any(key not in self.extra_laws for key in keys):
            self.extra_laws.clear()
            wanted, law = self._ancestors(levels), np.ones((1, 1))
            for t, configs in enumerate(wanted):
                if t > 0:
                    first, parent = self.chain[t - 1]
                    place = np.searchsorted(wanted[t - 1], parent[configs]).astype(np.int32)
                    below = lattice_below(t, self.slots.num_states)
                    law = add_arm(law, self.slots.extra_rows, first[configs], place, below)
                for key, level in zip(keys, levels, strict=True):
                    if level.extra == t:
                        self.extra_laws[key] = law[np.searchsorted(configs, level.configs)]
        return [self.extra_laws[key] for key in keys]

    # -- following a policy -------------------------------------------------------------------------------------------

    def follow(self, targets: Ints) -> Follow:
        """The expected value after one outcome a count state, as a function of the value function.

        Args:
            targets: (count state,) outcomes.
        """
        levels, *where = self.used(targets)
        places = _places(levels, *where)
        return lambda value: self.expect(value, levels)[places]

    def used(self, targets: Ints, faces: Ints | None = None) -> tuple[list[Level], Ints, Ints, Ints]:
        """Levels cut down to the configs that some target has; each target's level, config and point in them.

        Args:
            targets: (row,) outcomes.
            faces: (row,) faces on which all outcomes of the config matter; by default those of the targets alone.
        """
        # Outcomes are numbered level by level, so the last level that begins before a target is its own.
        level_of = np.searchsorted([level.offset for level in self.levels], targets, side="right") - 1
        levels, offset = list[Level](), 0
        config, point, new_level = (np.zeros(len(targets), dtype=np.int64) for _ in range(3))
        bits = 1 << np.arange(self.slots.num_states)
        for t in np.unique(level_of).tolist():
            level, here = self.levels[t], np.flatnonzero(level_of == t)
            old, number = np.divmod(targets[here] - level.offset, level.size)
            used, row = np.unique(old, return_inverse=True)
            points = lattice_points(level.arms, self.slots.num_states)[number]
            shared = np.full(len(used), bits.sum() if self.algorithm.mixtures is None else 0)
            np.bitwise_and.at(shared, row, (points == 0) @ bits if faces is None else faces[here])
            for face in np.unique(shared).tolist():
                same, free = shared[row] == face, self.free(face)
                configs, own = np.flatnonzero(shared == face), here[same]
                new_level[own], config[own] = len(levels), np.searchsorted(configs, row[same])
                point[own] = lattice_index(points[same][:, free]) if free else 0
                size = lattice_size(level.arms, len(free)) if free else 1
                levels.append(Level(level.extra, level.arms, face, size, offset, used[configs]))
                offset += levels[-1].num_outcomes
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
            faces=np.zeros(len(takes), dtype=np.int64),
            shifts=(lands - takes).astype(np.int32),
            arms=left.astype(np.int32),
            offsets=begins,
            gains=self.allocations @ outcomes.slots.gains,
        )

        self.deficits, self.last = np.zeros(len(self.allocations)), np.zeros(len(outcomes.points))
        self.dominance = find_dominance(outcomes.algorithm)

    def improve(
        self, value: Floats, factor: float, trusted: frozenset[Rule] | None = None, most: float = MOST_VALUES
    ) -> tuple[Floats, Choice]:
        """(count state,) the best gain plus discounted value of the next counts, and the choice that has it.

        Args:
            value: (count state,) value function.
            factor: discount.
            trusted: rules of dominance that are taken for true, unproved; by default those that hold at the values.
            most: values that are stored at once; if there are more allocations, they are examined part by part.

        Raises:
            NotConvergedError: the trusted rules contradict each other.
        """
        # Rounding is much less than this share of the values.
        least, faces = 1e-9 * float(np.abs(value).max()), np.zeros(len(self.allocations), dtype=np.int64)
        deficits = self.deficits - factor * float(np.ptp(value - self.last))
        margins = np.full(len(deficits), np.inf)
        if trusted is not None:
            deficits[:] = 0.0
        if self.dominance is not None:
            rules = self.dominance.margins(value, factor) if trusted is None else dict.fromkeys(trusted, np.inf)
            faces, nowhere, margins = self.dominance.find(rules, least)
            deficits[nowhere] = np.maximum(deficits, margins)[nowhere]
        possible = np.flatnonzero(deficits <= least)
        # Values after an allocation, and the law of where its extra arms arrive.
        number_of_values = float(np.sum(self.outcomes.algorithm.values_after(possible, faces[possible])))
        if number_of_values > most:  # neighbours in a part share their configs but for the first
            possible = possible[np.lexsort(self.allocations[possible].T)]
        best, number = np.full(len(self.outcomes.points), -np.inf), np.zeros(len(self.outcomes.points), dtype=np.int64)
        for part in np.array_split(possible, int(np.ceil(number_of_values / most))) if len(possible) else []:
            found, choice, deficits[part] = self._examine(part, faces[part], value, factor)
            better = found > best
            best[better], number[better] = found[better], part[choice[better]]
        if np.isneginf(best).any():
            raise NotConvergedError("the trusted rules of dominance leave no allocation at some counts")
        if trusted is None:
            deficits[possible] = np.minimum(deficits, margins)[possible]
            self.deficits, self.last = deficits, value
        listed, points = self.listed, self.outcomes.points
        reached = number_points(points + listed.shifts[number], listed.arms[number], self.outcomes.tables)
        amounts = self.allocations[number].astype(np.int32)
        return best, Choice(amounts, listed.gains[number], listed.offsets[number] + reached)

    def _examine(self, part: Ints, faces: Ints, value: Floats, factor: float) -> tuple[Floats, Ints, Floats]:
        """The best of some allocations (`best_listed`)."""
        from evenhand.kernels.lattice_sweeps import best_listed

        levels, *where = self.outcomes.used(self.listed.offsets[part], faces)
        rest = Listed(
            takes=self.listed.takes[part],
            faces=np.array([level.face for level in levels])[where[0]],  # of all allocations with the same config
            shifts=self.listed.shifts[part],
            arms=self.listed.arms[part],
            offsets=_places(levels, *where),
            gains=self.listed.gains[part],
        )
        return best_listed(
            self.outcomes.points, rest, self.outcomes.tables, factor * self.outcomes.expect(value, levels)
        )


def find_dominance(algorithm: CountAlgorithm) -> Dominance | None:
    """The rules of dominance, where served arms move by rows of their own."""
    by_rows = algorithm.mixtures is None and len(algorithm.slots.extra_rows) > 0
    return Dominance(algorithm.slots, algorithm.allocations) if by_rows else None


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
