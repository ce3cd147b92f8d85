"""Dual search: the prices at which the fluid relaxation has its optimum, for arms in memory or in blocks.

A *cut* is the best response of all arms to prices lambda: its total use U, its utility F and welfare W. The arms enter
through the abstract methods of `PriceSearch` only; `relaxation` has the mathematics.

    by cuts        the master program finds the prices at which the largest cut is least; the responses are mixed
    by bisection   one resource, power means: the price at which the use, which falls with it, is the allowance
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from scipy import sparse

from evenhand.errors import InvalidInputError, NotConvergedError
from evenhand.solvers._highs import LinearProgram, solve_program
from evenhand.solvers.fluid.programs import Rounds, relative_gap
from evenhand.typing import Floats

MOST_ROUNDS = 400
"""Responses to prices after which the search gives up."""

SMOOTHING = 0.3
"""Share of the best prices so far in the next prices, with several resources."""

MOST_CAP = 1e8
"""Prices, relative to the spread of utility, beyond which the budget is infeasible."""


# -- state of a search ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cut:
    """Best response to some prices."""

    prices: Floats
    """(resource,) the prices."""

    total: Floats
    """(resource,) use of all arms."""

    utility: float
    """F of their values; minus infinity outside the domain."""

    welfare: float
    """W of their values."""

    rate: float
    """The derivative dW/dF there."""


AnyCut = TypeVar("AnyCut", bound=Cut)
Proof = TypeVar("Proof")
Found = TypeVar("Found")


@dataclass(eq=False)
class SoFar(Generic[AnyCut]):
    """State of a search by cuts: all that the next round depends on."""

    cuts: "Cuts[AnyCut]"
    best: AnyCut
    best_bound: float
    target: float
    smoothing: float = SMOOTHING
    proven: float = field(default=np.inf)


class PriceSearch(ABC, Generic[AnyCut, Proof, Found]):
    """A search for prices."""

    scale: float
    """Largest value of an arm, the unit of a gap if the bound is nearly 0."""

    def __init__(self, allowance: Floats, tolerance: float, progress: Rounds | None) -> None:
        """Begin a search.

        Args:
            allowance: (resource,) budget of all steps.
            tolerance: relative gap to stop at.
            progress: called each round with its number and the gap.
        """
        self.allowance, self.tolerance, self.progress = allowance, tolerance, progress
        scale = np.where(allowance > 0, allowance, 1.0)
        # For one resource a price of 1; for several, prices at which each allowance costs 1.
        self.unit = np.ones(1) if len(scale) == 1 else 1 / scale
        self.rounds = 0

    @abstractmethod
    def ends(self) -> tuple[AnyCut, AnyCut]:
        """Return the cuts of the values that cost nothing, and of the largest."""

    @abstractmethod
    def respond(self, prices: Floats) -> AnyCut:
        """Return the best response to prices."""

    @abstractmethod
    def lower(self, cuts: Sequence[AnyCut], shares: Floats) -> float:
        """Return the welfare of a mixture of cuts."""

    @abstractmethod
    def prove(self, cut: AnyCut) -> Proof:
        """Return the certified bound of a cut."""

    @abstractmethod
    def mixed(self, active: Sequence[AnyCut], shares: Floats, proof: Proof) -> Found:
        """Return the solution that mixes cuts."""

    @abstractmethod
    def gap_of(self, solution: Found) -> float:
        """Return the true gap of a solution."""

    @abstractmethod
    def closed(self, solution: Found) -> Found:
        """Return the solution, if its gap is within the tolerance; else raise NotConvergedError."""

    @abstractmethod
    def check_domain(self) -> None:
        """Raise OutOfDomainError if the budget cannot bring every arm into the domain of the welfare."""

    @abstractmethod
    def out_of_reach(self) -> InvalidInputError:
        """Return the error if no point of the domain, or none within the floors, is within the budget."""

    def resumed(self) -> SoFar[AnyCut] | None:
        """Return the state of an earlier search, if one was stored."""
        return None

    def keep(self, state: SoFar[AnyCut]) -> None:
        """Store the state after a round."""

    def gap(self, lower: float, upper: float) -> float:
        """Return the gap relative to the bound; if that is nearly 0, to the values."""
        return relative_gap(lower, upper, self.scale)

    def tell(self, gap: float) -> None:
        """Pass on the gap."""
        if self.progress is not None:
            self.progress(self.rounds, gap)

    def answer(self, prices: Floats) -> AnyCut:
        """Return the best response to prices, and count a round."""
        self.rounds += 1
        return self.respond(prices)

    def dual(self, cut: AnyCut) -> float:
        """Return the bound of a cut before it is certified."""
        return cut.welfare + cut.rate * float(cut.prices @ (self.allowance - cut.total))

    # -- by cuts ------------------------------------------------------------------------------------------------------

    def by_cuts(self) -> Found:
        """Cutting planes in the space of prices."""
        state = self.resumed()
        if state is None:
            # Phase 1: the two ends. If the largest values fit, nothing is scarce and there is nothing to search.
            free, full = self.ends()
            if (full.total <= self.allowance).all():
                return self.closed(self.mixed([full], np.ones(1), self.prove(full)))
            cuts = Cuts(self.allowance, [full])
            # The values that cost nothing may be outside the domain: then there is no cut.
            if np.isfinite(free.utility):
                cuts.add(free)
            # Half of the tolerance is left for the loss by certification.
            state = SoFar(cuts, full, self.dual(full), self.tolerance / 2)
        gap = np.inf
        # Phase 2: prices from the master and responses to them, until lower and upper bound meet.
        while self.rounds < MOST_ROUNDS:
            shares, prices, missing = state.cuts.master()
            # The master buys shortage at any price: no mixture of responses is within the budget.
            if missing and state.cuts.cap > MOST_CAP:
                raise self.out_of_reach()
            lower = -np.inf if missing else self.lower(state.cuts.cuts, shares)
            gap = self.gap(lower, state.best_bound) if np.isfinite(lower) else np.inf
            self.tell(gap)
            if gap <= state.target:
                if (solution := self._finished(state, shares)) is not None:
                    return solution
                if len(prices) == 1 and any(prices[0] == cut.prices[0] for cut in state.cuts.cuts):
                    break  # the response to these prices is known, and no others will follow
            # With several resources the master's own prices swing from end to end.
            if not missing and len(prices) > 1:
                prices = state.smoothing * state.best.prices + (1 - state.smoothing) * prices
            self._learn(state, self.answer(np.maximum(prices, self.least_prices(state.best))))
            self.keep(state)
        reached = state.proven if np.isfinite(state.proven) else gap
        raise NotConvergedError(
            f"the gap of the fluid relaxation is {reached:.2g} after {self.rounds} rounds, not {self.tolerance:.2g}; "
            "use a larger tolerance"
        )

    def _finished(self, state: SoFar[AnyCut], shares: Floats) -> Found | None:
        """Return the solution, if its true gap is within the tolerance; else tighten the target of the search."""
        active = [cut for cut, share in zip(state.cuts.cuts, shares, strict=True) if share > 0]
        solution = self.mixed(active, shares[shares > 0], self.prove(state.best))
        if self.gap_of(solution) <= self.tolerance:
            return solution
        # Certification lost more than half of the tolerance: the cuts must be closer.
        state.proven, state.target = min(state.proven, self.gap_of(solution)), state.target / 4
        return None

    def _learn(self, state: SoFar[AnyCut], found: AnyCut) -> None:
        """Add a cut."""
        state.cuts.add(found)
        bound = self.dual(found)
        # If nothing was gained, the master's own prices come next.
        state.smoothing = SMOOTHING if bound < state.best_bound else 0.0
        if bound < state.best_bound:
            state.best, state.best_bound = found, bound

    def least_prices(self, best: AnyCut) -> Floats:
        """Return prices so small that they do not affect the bound, but prevent needless use of free resources."""
        if len(self.unit) == 1:
            return np.zeros(1)
        # A thousandth of the tolerance is nothing to the gap.
        value = 1e-3 * self.tolerance * max(abs(best.welfare), 1e-6 * self.scale)
        return np.asarray(self.unit * (value / max(best.rate, 1e-300) / len(self.unit)))

    # -- by bisection -------------------------------------------------------------------------------------------------

    def by_bisection(self) -> Found:
        """One resource, alpha-fairness: the price at which the use, which falls with it, is the allowance."""
        allowance = float(self.allowance[0])
        _, full = self.ends()
        if full.total[0] <= allowance:
            return self.closed(self.mixed([full], np.ones(1), self.prove(full)))
        self.check_domain()
        # Invariant of the last loop: too much is used at `low`, and not too much at `high`.
        low, high = -1.0, 1.0  # of the logarithm, around a price of the right size
        middle = np.log(1.0 / max(float(full.total[0]), 1e-300))
        while self.spent(middle + high) > allowance:
            low, high = high, 2 * high
        while low < 0 and self.spent(middle + low) <= allowance:
            low, high = 2 * low, low
        while True:
            # At `high` the response is within the budget, so it is a solution.
            cut = self.answer(np.exp([middle + high]))
            gap = self.gap(cut.welfare, self.dual(cut))
            self.tell(gap)
            if gap <= self.tolerance / 2 or high - low <= 1e-15 * abs(high):
                return self.closed(self.mixed([cut], np.ones(1), self.prove(cut)))
            for _ in range(4):
                half = (low + high) / 2
                over = self.spent(middle + half) > allowance
                low, high = (half, high) if over else (low, half)

    def spent(self, log_price: float) -> float:
        """Return the total use at a price."""
        # Beyond this exp leaves the doubles.
        if abs(log_price) > 700:
            raise NotConvergedError("no price meets the budget: the values or the budget are of extreme size")
        return float(self.answer(np.exp([log_price])).total[0])


# -- the master program -----------------------------------------------------------------------------------------------


class Cuts(Generic[AnyCut]):
    """Responses so far, and the master program over them."""

    def __init__(self, allowance: Floats, cuts: list[AnyCut]) -> None:
        """Begin with some cuts.

        Args:
            allowance: (resource,) the budget of all steps.
            cuts: first responses.
        """
        self.allowance = allowance
        self.cuts = cuts
        self.idle = [0] * len(cuts)
        self.most = 20 + 15 * len(allowance)
        self.cap = 1.0

    def add(self, cut: AnyCut) -> None:
        """Add a cut; of too many, drop the one without a share for longest."""
        if len(self.cuts) >= self.most:
            oldest = int(np.argmax(self.idle))
            del self.cuts[oldest], self.idle[oldest]
        self.cuts.append(cut)
        self.idle.append(0)

    def master(self) -> tuple[Floats, Floats, bool]:
        """Return the best shares of the cuts, the prices, and whether no mixture is within the allowance yet."""
        utilities = np.array([cut.utility for cut in self.cuts])
        # Utilities count from the largest, in units of their spread, so that the cap means the same for all problems.
        spread = float(np.ptp(utilities)) or max(1.0, float(abs(utilities[0])))
        scale = np.where(self.allowance > 0, self.allowance, 1.0)
        rows, columns = len(scale), len(self.cuts)
        matrix = np.zeros((rows + 1, columns + rows))
        matrix[:rows, :columns] = np.column_stack([cut.total for cut in self.cuts]) / scale[:, None]
        # A column per resource for shortage, at the price `cap`: by duality no price is above it.
        matrix[:rows, columns:] = -np.eye(rows)
        matrix[rows, :columns] = 1.0
        # If a cut fits alone there is no shortage, and prices have no cap.
        feasible = (matrix[:rows, :columns] <= 1).all(axis=0).any()
        optimum = solve_program(
            LinearProgram(
                gains=np.concatenate([(utilities - utilities.max()) / spread, np.full(rows, -self.cap)]),
                matrix=sparse.csc_array(matrix),
                row_lower=np.append(np.full(rows, -np.inf), 1.0),
                row_upper=np.ones(rows + 1),
                lower=np.zeros(columns + rows),
                upper=np.concatenate([np.ones(columns), np.full(rows, 0.0 if feasible else np.inf)]),
            )
        )
        shares = np.maximum(optimum.primal[:columns], 0.0)
        # Shares that small are rounding errors of the solver.
        shares[shares < 1e-12] = 0.0
        shares /= shares.sum()
        self.idle = [0 if share > 0 else age + 1 for share, age in zip(shares, self.idle, strict=True)]
        missing = bool((optimum.primal[columns:] > 1e-7).any())
        # The cap was too low to remove shortage: raise it.
        if missing:
            self.cap *= 4.0
        return shares, np.maximum(optimum.duals[:rows], 0.0) * spread / scale, missing


def highest_level(low: float, high: float, fits: Callable[[float], bool]) -> float:
    """Return the highest level that fits, to the last bit, if the lower end does.

    Args:
        low: a level that fits.
        high: one that does not.
        fits: whether a level fits; from some level on none does.
    """
    # Until there is no double between the two.
    while True:
        middle = low + (high - low) / 2
        if not low < middle < high:
            return low
        low, high = (middle, high) if fits(middle) else (low, middle)


def excess_of(total: Floats, free: Floats, allowance: Floats) -> float:
    """Return the share of a free solution with which the total use is within the allowance."""
    over = (total > allowance) & (total > free)
    needed = (total[over] - allowance[over]) / (total[over] - free[over])
    return min(1.0, float(needed.max(initial=0.0)) * (1 + 1e-12))
