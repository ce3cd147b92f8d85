"""Dual search: the prices at which the fluid relaxation has its optimum, over blocks of arms (`blocks`).

In memory there is one block. A *cut* is the best response of all arms to prices lambda: its total use U, its utility F
and welfare W. `fair_relaxation` has the mathematics, `price_response` the responses.

    mean, rank-weighted, several resources   by cuts: the master program finds the prices at which the largest cut is
                                             least; the responses are mixed
    power mean, one resource                 by bisection: the price at which the use, which falls with it, is the
                                             allowance
    leximin, one resource                    by bisection of the level to which all arms are raised
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.errors import InvalidInputError, NotConvergedError, OutOfDomainError
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, is_lexicographic, is_mean
from evenhand.parallel import Blocks
from evenhand.solvers.fluid.blocks import NUM_LEVELS, Block, LevelGrid, Mixture, Response, Rule
from evenhand.solvers.fluid.price_cuts import Cut, PriceCuts, mixture_of
from evenhand.solvers.fluid.price_response import (
    AtWeight,
    SettledLevels,
    UpTo,
    UtilityStops,
    excess_of,
    in_domain,
    rank_supergradient,
    unit_prices,
)
from evenhand.solvers.fluid.programs import Proof, Rounds, not_closed, relative_gap
from evenhand.typing import Floats, Ints

MOST_ROUNDS = 400
"""Responses to prices after which the search gives up."""

SMOOTHING = 0.3
"""Share of the best prices so far in the next prices, with several resources."""

MOST_CAP = 1e8
"""Prices, relative to the spread of utility, beyond which the budget is infeasible."""


# -- parts of a search ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DualSolution:
    """A feasible solution of the relaxation and its certificate."""

    welfare: float
    """Welfare of the solution: a lower bound on the optimum of the relaxation."""

    upper_bound: float
    """No solution of the relaxation, and no policy of the coupled problem, has a larger welfare."""

    gap: float
    """(upper_bound - welfare) / |upper_bound|; if the bound is nearly 0, relative to the values."""

    values: Floats
    """(member,) values."""

    use: Floats
    """(resource,) total use, by the criterion's weights."""

    proof: Proof
    """Weights of members, dual prices, and the bound that they prove."""

    mixture: Mixture
    """Mixture of responses of which the solution is made, but for the share `excess`."""

    excess: float
    """Share of free measures in place of the mixture, so that rounding does not exceed the budget."""

    rounds: int
    """Number of prices tried."""

    num_blocks: int = 1
    """Number of blocks."""

    seconds: float = 0.0
    """Wall time."""

    @property
    def weights(self) -> Floats:
        """(member,) derivative of the welfare with respect to the value of one member."""
        return self.proof.weights

    @property
    def prices(self) -> Floats:
        """(resource,) dual prices of a unit of use, by the criterion's weights."""
        return self.proof.prices


def search_for(welfare: Welfare, num_members: int, num_resources: int) -> "type[PriceSearch] | None":
    """Return the search for a welfare; None if members do not respond to prices in closed form.

    Args:
        welfare: welfare to maximise.
        num_members: number of its members.
        num_resources: number of resources.
    """
    if is_mean(welfare, num_members):
        return MeanSearch
    if is_lexicographic(welfare):
        return LeximinSearch if num_resources == 1 else None
    if isinstance(welfare, RankWeighted):
        return RankSearch
    return PowerSearch if isinstance(welfare, PowerMean) else None


@dataclass(eq=False)
class PriceSearch:
    """A search for prices; subclasses have the responses under a welfare."""

    blocks: Blocks[Block]
    """The members."""

    edges: Sequence[int]
    """(block + 1,) members at which blocks begin."""

    sizes: Ints
    """(member,) how many members of welfare each stands for."""

    allowance: Floats
    """(resource,) budget of all steps."""

    welfare: Welfare
    """Welfare to maximise."""

    tolerance: float
    """Relative gap to stop at."""

    progress: Rounds | None = None
    """Called each round with its number and the gap."""

    most_rounds: int = MOST_ROUNDS
    """Responses to prices after which the search gives up."""

    num_levels: int = NUM_LEVELS
    """Levels of the grid of several blocks."""

    def __post_init__(self) -> None:
        """Trace the frontiers."""
        self.num_arms = int(self.sizes.sum())
        self.unit = unit_prices(self.allowance)
        self.rounds = self._numbers = 0
        # Largest value of an arm, the unit of a gap if the bound is nearly 0.
        self.scale = max(self.blocks.map(Block.largest, self.unit))

    def run(self) -> DualSolution:
        """Search."""
        return self.by_cuts()

    @property
    def single(self) -> bool:
        """True if there is one resource."""
        return len(self.unit) == 1

    # -- what differs by welfare --------------------------------------------------------------------------------------

    def response(self, prices: Floats) -> Response:
        """Return the best response to prices."""
        raise NotImplementedError

    def measured(self, mixture: Mixture) -> tuple[float, float, float]:
        """Return utility, welfare and the rate dW/dF of a mixture."""
        welfare = float(self.welfare(self.values(mixture), self.sizes))
        return welfare, welfare, 1.0

    def weights(self, cut: Cut) -> Floats:
        """(member,) weights g with W(u) <= g.u for all u, near the response."""
        raise NotImplementedError

    def check_domain(self) -> None:
        """Raise OutOfDomainError if the budget cannot bring every arm into the domain of the welfare."""

    # -- values, cuts and proofs --------------------------------------------------------------------------------------

    def values(self, mixture: Mixture) -> Floats:
        """(member,) values of a mixture."""
        return np.concatenate(self.blocks.map(Block.values, mixture))

    def total(self, mixture: Mixture) -> Floats:
        """(resource + 1,) use and value of all members."""
        return np.asarray(np.sum(self.blocks.map(Block.total, mixture), axis=0))

    def end(self, level: float) -> Mixture:
        """Return the response that raises all members to one level, at any price."""
        return ((1.0, Rule(self.unit, UpTo(level))),)

    @cached_property
    def free(self) -> Mixture:
        """The values that cost least."""
        return self.end(-np.inf)

    def cut(self, prices: Floats, response: Response, at: Floats | None = None) -> Cut:
        """Return the cut of a response; with several resources, on the frontiers of given prices."""
        self._numbers += 1
        rule = Rule(prices if at is None else at, response, self._numbers)
        mixture: Mixture = ((1.0, rule),)
        return Cut(prices, self.total(mixture)[:-1], *self.measured(mixture), rule)

    def ends(self) -> tuple[Cut, Cut]:
        """Return the cuts of the values that cost nothing, and of the largest."""
        nothing = np.zeros_like(self.unit)
        return self.cut(nothing, UpTo(-np.inf), self.unit), self.cut(nothing, UpTo(np.inf), self.unit)

    def answer(self, prices: Floats) -> Cut:
        """Return the best response to prices, and count a round."""
        self.rounds += 1
        return self.cut(prices, self.response(prices))

    def spend(self, cuts: Sequence[Cut], shares: Floats) -> Mixture:
        """One resource: move a mixture towards its costliest cut until the budget is used.

        Mixtures on the frontier cost less than the mixture of costs. Costs are convex along the way, so the chord to
        the far end crosses the budget before the cost does, and each step ends within the budget.
        """
        active = np.flatnonzero(shares > 0)
        costliest = max(active.tolist(), key=lambda i: float(cuts[i].total[0]))
        most, allowance = float(cuts[costliest].total[0]), float(self.allowance[0])
        shares = shares.copy()
        for _ in range(3 if self.single and len(active) > 1 else 0):
            spent = float(self.total(mixture_of(cuts, shares))[0])
            if most <= spent or spent >= allowance:
                break
            step = min(1.0, (allowance - spent) / (most - spent))
            shares *= 1 - step
            shares[costliest] += step
        return mixture_of(cuts, shares)

    def lower(self, cuts: Sequence[Cut], shares: Floats) -> float:
        """Return the welfare of a mixture of cuts."""
        return self.measured(self.spend(cuts, shares))[1]

    def prove(self, cut: Cut) -> Proof:
        """Return the certified bound of a cut."""
        # The prices are of utility; times dW/dF they are those of welfare.
        return self.proof(self.weights(cut), cut.prices * cut.rate, cut.rule)

    def proof(self, weights: Floats, prices: Floats, rule: Rule) -> Proof:
        """Return the bound of weights and prices; policies of a rule are good ones to start from."""
        each = [(part,) for part in np.split(weights, self.edges[1:-1])]
        bounds, floor_prices = zip(*self.blocks.map(Block.bound, rule, prices, each=each), strict=True)
        return Proof(weights, prices, sum(bounds) + float(prices @ self.allowance), np.concatenate(floor_prices))

    def finish(self, mixture: Mixture, proof: Proof) -> DualSolution:
        """Return the solution, computed anew from its occupancy measures and within the budget exactly."""
        values, use = self._settled(mixture)
        excess = 0.0
        if (use > self.allowance).any():  # rounding; what costs least takes its place
            free_values, free_use = self._settled(self.free)
            excess = excess_of(use, free_use, self.allowance)
            values, use = (1 - excess) * values + excess * free_values, (1 - excess) * use + excess * free_use
        welfare = float(self.welfare(values, self.sizes))
        # By rounding a solution may beat its bound; no bound is below what was reached.
        upper = max(proof.bound, welfare)
        gap = self.gap(welfare, upper)
        return DualSolution(welfare, upper, gap, values, use, proof, mixture, excess, self.rounds)

    def _settled(self, mixture: Mixture) -> tuple[Floats, Floats]:
        values, uses = zip(*self.blocks.map(Block.settled, mixture), strict=True)
        return np.concatenate(values), np.sum(uses, axis=0)

    def closed(self, found: DualSolution) -> DualSolution:
        """Return the solution, if its gap is within the tolerance."""
        if found.gap > self.tolerance:
            raise not_closed(found.gap, self.rounds, self.tolerance)
        return found

    def gap(self, lower: float, upper: float) -> float:
        """Return the gap relative to the bound; if that is nearly 0, to the values."""
        return relative_gap(lower, upper, self.scale)

    def report(self, gap: float) -> None:
        """Pass on the gap."""
        if self.progress is not None:
            self.progress(self.rounds, gap)

    def dual(self, cut: Cut) -> float:
        """Return the bound of a cut before it is certified."""
        return cut.welfare + cut.rate * float(cut.prices @ (self.allowance - cut.total))

    def out_of_reach(self) -> InvalidInputError:
        """Return the error if no point of the domain is within the budget."""
        return OutOfDomainError(
            f"{self.welfare.name} needs positive values, and the budget does not suffice to give every arm one. "
            "Use a Gini welfare, or shift the rewards."
        )

    # -- by cuts ------------------------------------------------------------------------------------------------------

    def by_cuts(self, patience: int = 12) -> DualSolution:
        """Cutting planes in the space of prices.

        Args:
            patience: proofs that gain nothing before the search gives up.
        """
        # Phase 1: the two ends. If the largest values fit, nothing is scarce and there is nothing to search.
        free, full = self.ends()
        if (full.total <= self.allowance).all():
            return self.closed(self.finish(mixture_of([full], np.ones(1)), self.prove(full)))
        cuts = PriceCuts(self.allowance, [full])
        # The values that cost nothing may be outside the domain: then there is no cut.
        if np.isfinite(free.utility):
            cuts.add(free)
        # Half of the tolerance is left for the loss by certification.
        best, best_bound, target = full, self.dual(full), self.tolerance / 2
        smoothing, gap, proven, idle = SMOOTHING, np.inf, np.inf, 0
        # Phase 2: prices from the master and responses to them, until lower and upper bound meet.
        while self.rounds < self.most_rounds:
            shares, prices, missing = cuts.master()
            # The master buys shortage at any price: no mixture of responses is within the budget.
            if missing and cuts.cap > MOST_CAP:
                raise self.out_of_reach()
            lower = -np.inf if missing else self.lower(cuts.cuts, shares)
            gap = self.gap(lower, best_bound) if np.isfinite(lower) else np.inf
            self.report(gap)
            if gap <= target:
                found = self.finish(self.spend(cuts.cuts, shares), self.prove(best))
                if found.gap <= self.tolerance:
                    return found
                # Certification lost more than half of the tolerance: the cuts must be closer.
                idle = idle + 1 if found.gap > 0.99 * proven else 0
                proven, target = min(proven, found.gap), target / 4
                if idle > patience or (self.single and any(prices[0] == cut.prices[0] for cut in cuts.cuts)):
                    break  # the response to these prices is known, and no others will follow
            # With several resources the master's own prices swing from end to end.
            if not missing and not self.single:
                prices = smoothing * best.prices + (1 - smoothing) * prices
            new = self.answer(np.maximum(prices, self.least_prices(best)))
            cuts.add(new)
            bound = self.dual(new)
            # If nothing was gained, the master's own prices come next.
            smoothing = SMOOTHING if bound < best_bound else 0.0
            if bound < best_bound:
                best, best_bound = new, bound
        raise not_closed(proven if np.isfinite(proven) else gap, self.rounds, self.tolerance)

    def least_prices(self, best: Cut) -> Floats:
        """Return prices so small that they do not affect the bound, but prevent needless use of free resources."""
        if self.single:
            return np.zeros(1)
        # A thousandth of the tolerance is nothing to the gap.
        value = 1e-3 * self.tolerance * max(abs(best.welfare), 1e-6 * self.scale)
        return np.asarray(self.unit * (value / max(best.rate, 1e-300) / len(self.unit)))

    # -- by bisection -------------------------------------------------------------------------------------------------

    def by_bisection(self) -> DualSolution:
        """One resource, alpha-fairness: the price at which the use, which falls with it, is the allowance."""
        allowance = float(self.allowance[0])
        _, full = self.ends()
        if full.total[0] <= allowance:
            return self.closed(self.finish(mixture_of([full], np.ones(1)), self.prove(full)))
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
            self.report(gap)
            if gap <= self.tolerance / 2 or high - low <= 1e-15 * abs(high):
                return self.closed(self.finish(mixture_of([cut], np.ones(1)), self.prove(cut)))
            for _ in range(4):
                half = (low + high) / 2
                over = self.spent(middle + half) > allowance
                low, high = (half, high) if over else (low, half)

    def spent(self, log_price: float) -> float:
        """Return the total use at a price."""
        # Beyond this exp leaves the doubles.
        if abs(log_price) > 700:
            raise NotConvergedError("no price meets the budget: the values or the budget are of extreme size")
        self.rounds += 1
        prices = np.exp([log_price])
        return float(self.total(((1.0, Rule(prices, self.response(prices))),))[0])


# -- a search for each welfare ----------------------------------------------------------------------------------------


class RankSearch(PriceSearch):
    """Rank-weighted: exact levels in memory, levels of a grid over several blocks."""

    welfare: RankWeighted

    def __post_init__(self) -> None:
        """Check that the welfare has as many weights as there are members."""
        super().__post_init__()
        self.welfare.check_num_arms(self.num_arms)
        self._settle = SettledLevels(self.welfare, self.sizes)
        self._grid: LevelGrid | None = None

    def response(self, prices: Floats) -> Response:
        """Return the levels on which members settle."""
        if len(self.blocks) == 1:
            return self._settle
        if not self.single:
            return self._grid_at(prices).stops(1.0)
        # With one resource any other price only stretches the slopes: one grid serves the whole search.
        self._grid = self._grid or self._grid_at(self.unit)
        return self._grid.stops(float(prices[0]))

    def _grid_at(self, prices: Floats) -> LevelGrid:
        return LevelGrid.of(self.blocks, prices, self._settle.mass, self.num_levels)

    def weights(self, cut: Cut) -> Floats:
        """(member,) weights in the permutahedron, between the marginal costs as far as they can be."""
        below, above = np.concatenate(self.blocks.map(Block.marginals, cut.rule), axis=1)
        if not cut.prices.any():
            below, above = np.zeros_like(below), np.where(np.isfinite(above), 0.0, above)
        return rank_supergradient(self.values(((1.0, cut.rule),)), below, above, self.sizes, self.welfare)


class MeanSearch(PriceSearch):
    """The mean: every member alone."""

    def response(self, prices: Floats) -> Response:
        """Return the best vertices at weight 1/N."""
        return AtWeight(1.0 / self.num_arms)

    def measured(self, mixture: Mixture) -> tuple[float, float, float]:
        """Return the mean; with several resources, of one rule."""
        mean = float(self.total(mixture)[-1]) / self.num_arms
        return mean, mean, 1.0

    def lower(self, cuts: Sequence[Cut], shares: Floats) -> float:
        """Return the welfare of a mixture of cuts."""
        return super().lower(cuts, shares) if self.single else float(shares @ [cut.welfare for cut in cuts])

    def weights(self, cut: Cut) -> Floats:
        """(member,) 1/N."""
        return np.full(len(self.sizes), 1.0 / self.num_arms)


class PowerSearch(PriceSearch):
    """A power mean: every member alone."""

    def __post_init__(self) -> None:
        """Also find the welfare without a budget, the reference of utilities."""
        super().__post_init__()
        assert isinstance(self.welfare, PowerMean)
        self.alpha = self.welfare.aversion
        most = self.values(self.end(np.inf))
        if (least := most.min()) < 0 or (least == 0 and self.alpha >= 1):
            raise OutOfDomainError(
                f"{self.welfare.name} needs positive values, but even without a budget "
                f"the worst-off arm has at most {least:.6g}. Use a Gini welfare, or shift the rewards."
            )
        self.reference = float(self.welfare(most, self.sizes)) or 1.0

    def run(self) -> DualSolution:
        """Search: with one resource by bisection of the price."""
        return self.by_bisection() if self.single else self.by_cuts()

    def response(self, prices: Floats) -> Response:
        """Return the values at which marginal utilities equal the slopes."""
        return UtilityStops(self.alpha, self.reference, self.num_arms)

    def measured(self, mixture: Mixture) -> tuple[float, float, float]:
        """Return mean utility, welfare and the rate dW/dF = r (W / r)^alpha of a mixture."""
        utility = sum(self.blocks.map(Block.utility, mixture, self.alpha, self.reference)) / self.num_arms
        if not np.isfinite(utility):
            return -np.inf, -np.inf, 0.0
        # The value whose utility is the mean one: the power mean.
        with np.errstate(divide="ignore"):
            rest = 1 - self.alpha
            log = utility if rest == 0 else np.log1p(max(rest * utility, -1.0)) / rest
        welfare = float(self.reference * np.exp(log))
        return utility, welfare, self.reference * (welfare / self.reference) ** self.alpha

    def weights(self, cut: Cut) -> Floats:
        """(member,) the gradient (W / v)^alpha / N; a member that cannot have more than 0 has no weight."""
        values = self.values(((1.0, cut.rule),))
        ratio = np.where(values > 0, cut.welfare / np.where(values > 0, values, 1.0), 0.0)
        return np.asarray(ratio**self.alpha / self.num_arms)

    def check_domain(self) -> None:
        """Raise OutOfDomainError if the budget cannot bring every member to a positive value."""
        # All members at 0: slightly more is inside the domain, if budget is left for it.
        inside = in_domain(self.values(self.free), self.alpha).all()
        if not inside and self.total(self.end(0.0))[0] >= self.allowance[0]:
            raise self.out_of_reach()


class LeximinSearch(PriceSearch):
    """Leximin with one resource: all members are raised to one level, as far as each can be."""

    def run(self) -> DualSolution:
        """Find the level by bisection."""
        free, full = self.values(self.free), self.values(self.end(np.inf))
        level, high = float(free.min()), float(full.max())
        if self._fits(high):
            level = high
        # Until there is no double between the highest level that fits and the lowest that does not.
        while level < (middle := level + (high - level) / 2) < high:
            level, high = (middle, high) if self._fits(middle) else (level, middle)
        # The least value cannot rise: some worst-off member is at its most, or raising them uses the whole budget.
        mixture = self.end(level)
        values, rule = self.values(mixture), mixture[0][1]
        above = np.concatenate(self.blocks.map(Block.marginals, rule), axis=1)[1]
        worst = values <= values.min() + 1e-13 * self.scale
        weights, prices = np.zeros(len(values)), np.zeros(1)
        if len(stuck := np.flatnonzero(worst & np.isinf(above))):
            weights[stuck[0]] = 1.0 / self.sizes[stuck[0]]
        else:
            # In proportion to the cost of one more unit; they sum to 1 by sizes, so min v <= g.v.
            prices = 1.0 / np.atleast_1d(self.sizes[worst] @ above[worst])
            weights[worst] = above[worst] * prices[0]
        return self.closed(self.finish(mixture, self.proof(weights, prices, rule)))

    def _fits(self, level: float) -> bool:
        self.rounds += 1
        return bool(self.total(self.end(level))[0] <= self.allowance[0])
