"""Column generation with an exact oracle.

Each round the master returns the best mixture of the vectors so far with a support of the welfare there, and the oracle
prices a support. Its bound is one on the welfare of every policy: where no policy has more than b of g.V + phi.S, no
policy that meets the floors f has more welfare than b - phi.f + c. The loop ends when the two meet.

Supports are smoothed between rounds (Wentges, 1997): pricing at a point between the best support so far and the
master's avoids the swings of plain column generation. Rounds: a few times the number of objectives in practice. If
numbers of very different size leave master and oracle no digits to distinguish policies, the loop ends with the bound
proved so far: the gap that it reports is a true one.

Floors and the domain of power means are reached by raising the least value over all policies, leximin by raising it
stage by stage: with multipliers y of the level program (`shares`), no policy raises the level above
max_pi y.V - y.due.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from evenhand.errors import InfeasibleError, InvalidInputError, NotConvergedError, OutOfDomainError
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, is_lexicographic
from evenhand.solvers.column_generation.master import FLOOR_SLACK, Master, Mixture, Oracle
from evenhand.solvers.column_generation.shares import Raised, holding_members, raise_fixed
from evenhand.solvers.welfare_cuts import Support
from evenhand.typing import ArrayLike, Floats, Ints

MAX_ROUNDS = 2000
"""Calls of the oracle after which column generation ends with the gap that is left."""

SMOOTHING = 0.3
"""Share of the best support so far in the one that is priced next."""

MAX_STALLED = 2
"""Times that the master's own support brings neither a new vector nor a better bound before the gap is left."""


def best_mixture(
    oracle: Oracle,
    welfare: Welfare,
    counts: Ints,
    tolerance: float = 1e-7,
    progress: Callable[[int, float], None] | None = None,
    floors: ArrayLike = (),
    max_rounds: int = MAX_ROUNDS,
) -> Mixture:
    """Maximise a concave welfare over all policies.

    Args:
        oracle: finds policies for weighted sums; its objectives are the members of welfare, then those with floors.
        welfare: welfare to maximise.
        counts: (member,) multiplicity of each of the first objectives.
        tolerance: relative gap between the welfare and its bound at which to stop.
        progress: called each round with its number and the gap.
        floors: (floor,) lower bounds of the other objectives.
        max_rounds: calls of the oracle after which to end with the gap that is left.

    Raises:
        InfeasibleError: the floors cannot all be reached.
        OutOfDomainError: no policy is in the domain of the welfare.
    """
    least = np.asarray(floors, dtype=np.float64)
    search = _Search(oracle, tolerance, progress, counts, least, max_rounds)
    # The mean first: its policy is the first vector, and its bound holds for every welfare that is at most the mean.
    mean = Support(np.concatenate([counts / counts.sum(), np.zeros(len(least))]), 0.0)
    _, bound = search.add(mean.weights, tolerance)
    start = search.meet_floors()
    if is_lexicographic(welfare):
        return search.leximin(welfare)
    if isinstance(welfare, (RankWeighted, PowerMean)):
        search.upper_bound = bound
    if isinstance(welfare, PowerMean) and welfare.aversion > 0:
        start = search.enter_domain(start)
    return search.generate(welfare, Master(welfare, counts, least, start, 0.1 * tolerance), mean)


@dataclass
class _Search:
    """Vectors found so far, and the best bound."""

    oracle: Oracle
    tolerance: float
    progress: Callable[[int, float], None] | None
    counts: Ints
    floors: Floats
    max_rounds: int
    vectors: list[Floats] = field(default_factory=list)
    upper_bound: float = np.inf
    rounding: float = 0.0
    rounds: int = 0

    # -- vectors and gaps ---------------------------------------------------------------------------------------------

    def add(self, weights: Floats, tolerance: float) -> tuple[Floats, float]:
        """Call the oracle, store its vectors, and return the best of them with the bound on the weighted sum."""
        priced = self.oracle(weights, tolerance)
        self.rounds += 1
        self.rounding = priced.rounding
        self.vectors.extend(priced.vectors.T)
        return priced.vectors[:, (weights @ priced.vectors).argmax()], priced.bound

    @property
    def matrix(self) -> Floats:
        """(objective, policy) the vectors side by side."""
        return np.column_stack(self.vectors)

    def members(self, values: Floats) -> Floats:
        """(member, ...) values of the members of welfare."""
        return values[: len(self.counts)]

    def gap(self, value: float, bound: float, rounding: float, rows: Ints) -> float:
        """Return the gap relative to the bound; where that is nearly 0, to the values of some objectives."""
        difference = bound - value
        # Differences within a few roundings of the bound count as none.
        return difference / self.scale(bound, rows) if difference > 8 * rounding else 0.0

    def scale(self, value: float, rows: Ints) -> float:
        """Return the unit of differences from a value: the value, or where it is nearly 0, some objectives."""
        return max(abs(value), 1e-6 * float(np.abs(self.vectors[0][rows]).max()), 1e-300)

    def report(self, gap: float) -> None:
        """Pass on the gap."""
        if self.progress is not None:
            self.progress(self.rounds, gap)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def generate(self, welfare: Welfare, master: Master, best: Support) -> Mixture:
        """Alternate between master and oracle until welfare and bound meet."""
        members = np.arange(len(self.counts))
        smoothing = SMOOTHING if np.isfinite(self.upper_bound) else 0.0
        stalled, rounding = 0, 0.0  # that of the prices below: floors are of another size
        while True:
            shares, support = master(self.matrix)
            values = self.matrix @ shares
            value = float(welfare(self.members(values), self.counts))
            gap = self.gap(value, self.upper_bound, rounding, members)
            self.report(gap)
            _check_support(welfare, value, self.upper_bound)
            if gap <= self.tolerance or stalled > MAX_STALLED or self.rounds >= self.max_rounds:
                return Mixture(shares, values, value, self.upper_bound, self.rounds)
            # Price a support between the best so far and the master's own; a wide gap needs no precise policies.
            tried = support.towards(best, smoothing)
            loose = 0.01 * min(gap, 1.0) if not stalled else 0.0
            found, most = self.add(tried.weights, max(0.1 * self.tolerance, loose))
            rounding = max(rounding, self.rounding)
            bound = self._bound(tried, most)
            better = self.upper_bound - bound > 0.01 * (self.upper_bound - value)
            if bound < self.upper_bound:
                self.upper_bound, best = bound, tried
            # If the master's own support gains nothing by the vector, that support is priced next. If the bound stays
            # then, master and oracle have no more digits.
            promised = self._bound(support, float(support.weights @ found))
            useful = promised > value + 0.1 * self.tolerance * self.scale(value, members)
            stalled = 0 if useful or better or smoothing else stalled + 1
            smoothing = SMOOTHING if useful else 0.0

    def _bound(self, support: Support, most: float) -> float:
        """Return the bound on welfare of a support whose weighted sum is at most `most`."""
        return most - float(support.weights[len(self.counts) :] @ self.floors) + support.constant

    # -- raising the least over all policies --------------------------------------------------------------------------

    def meet_floors(self) -> Floats:
        """Return shares that meet every floor; raise Infeasible if there are none."""
        number = len(self.floors)
        first = np.zeros(len(self.vectors))
        first[0] = 1.0
        if number == 0 or (self.vectors[0][-number:] >= self.floors).all():
            return first
        rows = np.arange(len(self.counts), len(self.vectors[0]))
        level, shares, _, bound = self._raise(rows, np.full(number, -np.inf), self.floors, enough=0.0)
        if level >= -FLOOR_SLACK:
            return shares
        if bound >= -FLOOR_SLACK:
            raise NotConvergedError("rounding errors are too large to decide whether the floors are feasible")
        most = self._raise(rows, np.full(number, -np.inf), np.zeros(number)).level
        raise InfeasibleError(
            "the floors need more than the budget allows: the largest floor that all arms with a floor can have "
            f"together is {np.floor(max(most, 0.0) * 1e6 + 0.01) / 1e6:.6g}"
        )

    def enter_domain(self, start: Floats) -> Floats:
        """Return shares at which every value is positive, the domain of power means."""
        if (self.members(self.matrix[:, : len(start)] @ start) > 0).all():
            return start
        raised = self._raise_members(np.full(len(self.counts), -np.inf))
        if raised.level <= 0:
            raise OutOfDomainError(
                "alpha-fairness needs positive values, but no policy gives every arm one: "
                f"the worst-off arm has at most {raised.bound:.6g}. Use a Gini welfare, or shift the rewards."
            )
        return raised.shares

    def leximin(self, welfare: Welfare) -> Mixture:
        """Raise the least value, fix the members that hold it down, and raise the least of the others."""
        levels = np.full(len(self.counts), -np.inf)
        first: Raised | None = None
        while np.isinf(levels).any():
            raised = self._raise_members(levels)
            first = first or raised
            # With the slack of earlier levels a level may exceed its own bound.
            levels[holding_members(levels, self.members(raised.multipliers))] = min(raised.level, raised.bound)
        assert first is not None
        shares = np.pad(raised.shares, (0, len(self.vectors) - len(raised.shares)))
        value = float(welfare(self.members(self.matrix @ shares), self.counts))
        if first.bound - value > self.tolerance * abs(first.bound):
            # Each stage held the levels before it up to a slack, and these add up: one more program, in which later
            # levels give way to the first.
            given = np.maximum(levels - 100 * FLOOR_SLACK * np.abs(levels), levels.min())
            base = np.append(given, np.zeros(len(self.floors)))
            shares = raise_fixed(self.matrix, np.append(np.full(len(levels), -np.inf), self.floors), base).shares
        values = self.matrix @ shares
        value = float(welfare(self.members(values), self.counts))
        return Mixture(shares, values, value, first.bound, self.rounds)

    def _raise_members(self, levels: Floats) -> Raised:
        fixed = np.concatenate([levels, self.floors])
        return self._raise(np.arange(len(fixed)), fixed, np.zeros(len(fixed)))

    def _raise(self, rows: Ints, fixed: Floats, base: Floats, enough: float = np.inf) -> Raised:
        """Raise the least of the free objectives above their base while the others stay at their fixed values.

        Args:
            rows: (row,) objectives.
            fixed: (row,) lower bounds; -inf of free objectives.
            base: (row,) offsets of free objectives.
            enough: level at which to stop early.
        """
        free = np.isinf(fixed)
        due = np.where(free, base, fixed)
        units = self.oracle.units
        units = np.where(units > 0, units, self.members(units).max() or 1.0)
        weights = np.zeros(len(self.vectors[0]))
        bound, rounding, stalled = np.inf, 0.0, False
        while True:
            level, shares, multipliers, _ = raise_fixed(self.matrix[rows], fixed, base, units[rows])
            if level >= enough:
                return Raised(level, shares, multipliers, bound)
            # Weights that sum to 1 give the oracle's tolerance the same meaning at every stage.
            scale = float(multipliers.sum())
            weights[rows] = multipliers / scale
            found, most = self.add(weights, 0.1 * self.tolerance)
            bound = min(bound, most * scale - float(multipliers @ due))
            rounding = max(rounding, scale * self.rounding)
            gap = self.gap(level, bound, rounding, rows[free])
            self.report(gap)
            # Two vectors in a row that raise no level show that no digits are left.
            lifts = float(weights @ found) * scale - float(multipliers @ due) > level + 1e-14 * abs(level)
            over = self.rounds >= self.max_rounds or (stalled and not lifts)
            if gap <= self.tolerance or over or bound < enough - FLOOR_SLACK < np.inf:
                shares = np.pad(shares, (0, len(self.vectors) - len(shares)))
                return Raised(level, shares, multipliers, bound)
            stalled = not lifts


def _check_support(welfare: Welfare, value: float, bound: float) -> None:
    """Raise InvalidInputError if a user's own welfare contradicts its supergradients: then nothing is proved."""
    known = isinstance(welfare, (RankWeighted, PowerMean))
    if not known and value > bound + 1e-4 * max(abs(value), abs(bound)):
        raise InvalidInputError(
            f"welfare {welfare.name}: a policy has {value:.6g}, but its supergradients say that none has more than "
            f"{bound:.6g}: they do not bound it from above, or it is not concave"
        )
