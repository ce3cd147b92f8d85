"""The driver: the search for prices over shards.

It has the master program, and what ranks take (`ranks`). Arms answer by rules of a few numbers (`stops`), so that cuts
need no memory an arm, and a mixture of cuts is a mixture of rules. Under the mean and power means a round moves a few
numbers a shard; under ranks counts by bins of value. Only the proof under ranks, and the end, move numbers of all rows.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenhand.errors import InvalidInput, NotConverged, OutOfDomain
from evenhand.execution import Shards
from evenhand.kernels import runs
from evenhand.kernels.exact_sums import Exact, added, rounded
from evenhand.model.coupled import usable_amount
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare
from evenhand.solvers.fluid.dual_search import PriceSearch, SoFar, excess_of, highest_level
from evenhand.solvers.fluid.price_response import RankAnswers, in_domain, power_value
from evenhand.solvers.fluid.programs import Rounds
from evenhand.solvers.sharded import kept, ranks, shard
from evenhand.solvers.sharded.cuts import ShardCut, ShardProof
from evenhand.solvers.sharded.grid import LevelGrid, choose_cells, per_block
from evenhand.solvers.sharded.rows import RowCounts
from evenhand.solvers.sharded.shard import Alike, Binned, CostOfMore, Gradient, Weighing
from evenhand.solvers.sharded.sources import Shared
from evenhand.solvers.sharded.stops import MarginalUtility, Mixture, Rule, Stop, UpTo, WorthMore
from evenhand.typing import Floats, Ints


@dataclass(frozen=True, eq=False)
class ShardedSolution:
    """A feasible solution of the fluid relaxation by shards, and a proof of how good it is."""

    welfare: float
    """Welfare of the solution: a lower bound on the fluid optimum."""

    upper_bound: float
    """No solution of the relaxation, and no policy of the coupled problem, has more welfare."""

    gap: float
    """(upper_bound - welfare) / |upper_bound|; where the bound is nearly 0, relative to the values of the arms."""

    values: Floats
    """(row,) value of an arm."""

    weights: Floats
    """(row,) what a unit of value of one arm is worth in welfare."""

    prices: Floats
    """(resource,) what a unit of use, by the criterion's weights, is worth in welfare."""

    use: Floats
    """(resource,) use of all arms over all time, by the criterion's weights."""

    rounds: int
    """How many prices were tried."""

    num_shards: int
    """How many shards there were; results do not depend on it."""

    num_replaced: int
    """Workers that died on the way and were replaced; results do not depend on them."""

    seconds: float
    """Wall time."""


@dataclass(frozen=True, eq=False)
class Asked:
    """The shards of a problem, and which rows they have."""

    shards: Shards
    cuts: Ints
    """(shard + 1,) the row at which each begins."""

    counts: RowCounts
    """How many arms each row stands for."""

    shared: Shared
    """What all blocks have in common."""

    @property
    def num_arms(self) -> int:
        """How many arms there are."""
        return self.counts.num_arms

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.shared.whole // self.shared.block)

    def usable_budget(self) -> Floats:
        """(resource,) the most of the budget that actions can use up."""
        parts = zip(*self.shards.ask(shard.uses), strict=True)
        together = zip(self.shared.budget.tolist(), parts, strict=True)
        return np.array([usable_amount(budget, np.unique(np.concatenate(uses))) for budget, uses in together])

    def split(self, rows: Floats) -> list[tuple[Floats]]:
        """Numbers of all rows, shard by shard."""
        return [(part,) for part in np.split(rows, self.cuts[1:-1])]

    def total(self, mixture: Mixture) -> Floats:
        """(resource + 1,) the use and the value of all arms."""
        return rounded(added(self.shards.ask(shard.totals, mixture)))

    def values(self, mixture: Mixture) -> Floats:
        """(row,) values."""
        return self._gathered(self.shards.answers(shard.values, mixture))[0]

    def settled(self, mixture: Mixture, excess: float) -> tuple[Floats, Floats]:
        """(row,) values computed anew, and (resource,) the use of all arms."""
        return self._gathered(self.shards.answers(shard.settled, mixture, excess))

    def weights(self, rule: Rule, weighing: Weighing) -> Floats:
        """(row,) weights that shards find by themselves."""
        return self._gathered(self.shards.answers(shard.weights, rule, weighing))[0]

    def marginals(self, rule: Rule) -> tuple[Floats, Floats]:
        """(row,) the cost of the last unit of value and of one more."""
        below, above = np.empty(self.shared.whole), np.empty(self.shared.whole)
        for place, (own_below, own_above) in self.shards.answers(shard.marginals, rule):
            rows = self._rows(place)
            below[rows], above[rows] = own_below, own_above
        return below, above

    def binned(self, mixture: Mixture, edges: Floats, step: float) -> tuple[Binned, Floats]:
        """How many arms have which values, and (resource + 1,) the use and the value of all arms."""
        whole, sums = None, []
        for _, (own, exact) in self.shards.answers(shard.binned, mixture, edges, step):
            whole = own if whole is None else whole.plus(own)
            sums.append(exact)
        assert whole is not None
        return whole, rounded(added(sums))

    def extremes(self, mixture: Mixture) -> tuple[float, float]:
        """The least and the largest value."""
        least, most = zip(*self.shards.ask(shard.extremes, mixture), strict=True)
        return min(least), max(most)

    def _rows(self, place: int) -> slice:
        return slice(int(self.cuts[place]), int(self.cuts[place + 1]))

    def _gathered(self, answers: Iterable[tuple[int, tuple[Floats, Exact]]]) -> tuple[Floats, Floats]:
        """Numbers of all rows, each shard's in its place as they come, and sums."""
        whole, sums = np.empty(self.shared.whole), []
        for place, (own, exact) in answers:
            whole[self._rows(place)] = own
            sums.append(exact)
        return whole, rounded(added(sums))


class ShardSearch(PriceSearch[ShardCut, ShardProof, ShardedSolution]):
    """The search for prices where arms are in shards."""

    def __init__(
        self,
        asked: Asked,
        welfare: Welfare,
        tolerance: float,
        progress: Rounds | None = None,
        checkpoint: tuple[Path, str] | None = None,
    ) -> None:
        """Trace the frontiers and look at their size.

        Args:
            asked: the shards.
            welfare: rank-weighted or a power mean; the mean as utilitarian.
            tolerance: the relative gap to stop at.
            progress: called each round with its number and the gap.
            checkpoint: the file in which it is kept how far the search has come, and the signature of the problem.
        """
        super().__init__(asked.usable_budget() * asked.shared.criterion.total, tolerance, progress)
        self.begin = time.perf_counter()
        self.asked, self.welfare, self._checkpoint = asked, welfare, checkpoint
        self._numbers = 0
        self._most = per_block(asked.num_blocks)
        self._surveys = self._survey(self.unit)
        self.scale = max(survey.largest for survey in self._surveys)
        self._step = ranks.step_for(max(survey.most for survey in self._surveys), asked.num_arms)
        self._edges = ranks.choose_edges(self._surveys)
        self._grid: LevelGrid | None = None
        if isinstance(welfare, RankWeighted):
            welfare.check_num_arms(asked.num_arms)

    def _survey(self, prices: Floats) -> list[shard.Survey]:
        return [one for part in self.asked.shards.ask(shard.survey, prices, self._most) for one in part]

    @property
    def single(self) -> bool:
        """Whether there is one resource."""
        return len(self.unit) == 1

    # What differs by welfare

    def rule_at(self, prices: Floats) -> Rule:
        """The rule by which arms answer to prices."""
        self._numbers += 1
        return Rule(prices, self.stop_at(prices), self._numbers)

    def stop_at(self, prices: Floats) -> Stop:
        """How far arms follow their frontiers at some prices: under ranks, by levels and bins."""
        if not self.single:
            return self._grid_at(prices, self._survey(prices)).limits(1.0)
        if self._grid is None:
            self._grid = self._grid_at(self.unit, self._surveys)
        return self._grid.limits(float(prices[0]))

    def _grid_at(self, prices: Floats, surveys: Sequence[shard.Survey]) -> LevelGrid:
        cells = choose_cells(surveys)
        free, table = np.zeros(len(cells.levels) + 1, dtype=np.int64), None
        for _, (own, counts) in self.asked.shards.answers(shard.costs, prices, cells.levels, cells.edges):
            free += own
            table = counts if table is None else table + counts
        assert table is not None
        return LevelGrid.of(cells, free, table, RankAnswers(self.ranked, np.array([self.asked.num_arms])).mass)

    @property
    def ranked(self) -> RankWeighted:
        """The welfare, by which ranks are weighed."""
        assert isinstance(self.welfare, RankWeighted)
        return self.welfare

    def measured(self, mixture: Mixture) -> tuple[Floats, float, float, float]:
        """(resource,) the use of a mixture, its utility, its welfare and the rate dW/dF; to a part of the tolerance."""
        bins, sums = self.asked.binned(mixture, self._edges, self._step)
        sketch = ranks.Sketch.of(self.ranked, bins, self._step)
        allowed = ranks.ALLOWED * self.tolerance * max(abs(sketch.welfare), 1e-6 * self.scale)
        welfare, unsure = sketch.welfare, sketch.unsure(allowed)
        if len(unsure):
            chosen = np.zeros(len(self._edges) + 1, dtype=np.bool_)
            chosen[sketch.filled[unsure]] = True
            picked = ranks.joined(self.asked.shards.ask(shard.picked, mixture, self._edges, chosen))
            welfare = sketch.settled(self.ranked, unsure, self._edges, *picked)
        return sums[:-1], welfare, welfare, 1.0

    def weights(self, cut: ShardCut) -> Floats | Weighing:
        """(row,) weights g with W(u) <= g.u for all u, near the answer; or how shards find them."""
        counts = self.asked.counts
        levels = ranks.Levels.of(self.ranked, self.asked.values(((1.0, cut.rule),)), counts)
        below, above = self.asked.marginals(cut.rule)
        if not cut.prices.any():
            below.fill(0.0)
            above[np.isfinite(above)] = 0.0
        weights = ranks.weights_of(self.ranked, levels, below, above, counts)
        del below, above
        return ranks.projected(self.ranked, weights, counts)

    def welfare_of(self, values: Floats) -> float:
        """The welfare of the values of all rows."""
        return ranks.welfare_of(self.ranked, values, self.asked.counts)

    # The questions of a search

    def cut(self, prices: Floats, rule: Rule) -> ShardCut:
        """The cut of a rule."""
        return ShardCut(prices, *self.measured(((1.0, rule),)), rule)

    def ends(self) -> tuple[ShardCut, ShardCut]:
        """The cuts of the values that cost nothing, and of the largest."""
        nothing = np.zeros_like(self.unit)
        free, full = (self.cut(nothing, self._up_to(level)) for level in (-np.inf, np.inf))
        return free, full

    def _up_to(self, level: float) -> Rule:
        self._numbers += 1
        return Rule(self.unit, UpTo(level), self._numbers)

    def respond(self, prices: Floats) -> ShardCut:
        """How arms answer to prices."""
        return self.cut(prices, self.rule_at(prices))

    def spend(self, cuts: Sequence[ShardCut], shares: Floats) -> Mixture:
        """One resource: mixtures on the frontier cost less than the mixture of costs; go on towards the costlier cut.

        Along the way the cost is convex, so the chord to the far end crosses the budget before the cost does.
        """
        active = np.flatnonzero(shares > 0)
        costliest = max(active.tolist(), key=lambda i: float(cuts[i].total[0]))
        most, allowance = float(cuts[costliest].total[0]), float(self.allowance[0])
        shares = shares.copy()
        for _ in range(3 if len(active) > 1 else 0):
            spent = float(self.asked.total(_mixture(cuts, shares))[0])
            if most <= spent or spent >= allowance:
                break
            step = min(1.0, (allowance - spent) / (most - spent))
            shares *= 1 - step
            shares[costliest] += step
        return _mixture(cuts, shares)

    def lower(self, cuts: Sequence[ShardCut], shares: Floats) -> float:
        """The welfare of a mixture of cuts."""
        mixture = self.spend(cuts, shares) if self.single else _mixture(cuts, shares)
        return self.measured(mixture)[2]

    def prove(self, cut: ShardCut) -> ShardProof:
        """The certified bound of a cut."""
        return self.proof(self.weights(cut), cut.prices * cut.rate, cut.rule)

    def proof(self, weights: Floats | Weighing, prices: Floats, rule: Rule) -> ShardProof:
        """The bound of weights and prices; policies of the rule are good ones to start from."""
        shards = self.asked.shards
        if isinstance(weights, np.ndarray):
            answers = shards.ask(shard.bound, rule, prices, each=self.asked.split(weights))
        else:
            answers = shards.ask(shard.bound, rule, prices, weights)
        return ShardProof(weights, rule, prices, float(rounded(added(answers))[0]) + float(prices @ self.allowance))

    def mixed(self, active: Sequence[ShardCut], shares: Floats, proof: ShardProof) -> ShardedSolution:
        """The solution that mixes cuts."""
        mixture = self.spend(active, shares) if self.single else _mixture(active, shares)
        return self.finish(mixture, proof)

    def finish(self, mixture: Mixture, proof: ShardProof) -> ShardedSolution:
        """The solution, with its welfare computed anew from its occupancy measures, within the budget exactly."""
        values, use = self.asked.settled(mixture, 0.0)
        if (use > self.allowance).any():  # rounding; what costs least takes its place
            free = rounded(added(self.asked.shards.ask(shard.free_use)))
            del values  # before, so that two are never in memory
            values, use = self.asked.settled(mixture, excess_of(use, free, self.allowance))
        welfare = self.welfare_of(values)
        upper = max(proof.bound, welfare)
        weights = proof.weights
        if not isinstance(weights, np.ndarray):
            weights = self.asked.weights(proof.rule, weights)
        return ShardedSolution(
            welfare=welfare,
            upper_bound=upper,
            gap=self.gap(welfare, upper),
            values=values,
            weights=weights,
            prices=proof.prices,
            use=use,
            rounds=self.rounds,
            num_shards=len(self.asked.shards),
            num_replaced=0,
            seconds=time.perf_counter() - self.begin,
        )

    def gap_of(self, solution: ShardedSolution) -> float:
        """The true gap of a solution."""
        return solution.gap

    def closed(self, solution: ShardedSolution) -> ShardedSolution:
        """The solution, if its gap is within the tolerance."""
        if solution.gap > self.tolerance:
            raise NotConverged(
                f"the gap of the fluid relaxation is {solution.gap:.2g} after {solution.rounds} rounds, "
                f"not {self.tolerance:.2g}; ask for a larger tolerance"
            )
        return solution

    def spent(self, log_price: float) -> float:
        """The total use at a price, for which a few numbers a shard are enough."""
        if abs(log_price) > 700:
            return super().spent(log_price)
        self.rounds += 1
        prices = np.exp([log_price])
        return float(self.asked.total(((1.0, Rule(prices, self.stop_at(prices))),))[0])

    def check_domain(self) -> None:
        """Nothing to check: every value is in the domain."""

    def out_of_reach(self) -> InvalidInput:
        """What to say when no point of the domain is within the budget."""
        return OutOfDomain(
            f"{self.welfare.name} needs positive values, and the budget does not reach to give every arm one. "
            "Use a Gini welfare, or shift the rewards."
        )

    # What is kept

    def resumed(self) -> SoFar[ShardCut] | None:
        """How far an earlier search came."""
        found = None if self._checkpoint is None else kept.read(*self._checkpoint, self.allowance)
        if found is None:
            return None
        self.rounds, so_far = found
        self._numbers = max(cut.rule.number for cut in (*so_far.cuts.cuts, so_far.best))
        return so_far

    def keep(self, state: SoFar[ShardCut]) -> None:
        """Write how far it has come."""
        if self._checkpoint is not None:
            kept.write(*self._checkpoint, self.rounds, state)


def _mixture(cuts: Sequence[ShardCut], shares: Floats) -> Mixture:
    return tuple((float(share), cut.rule) for cut, share in zip(cuts, shares, strict=True) if share > 0)


class MeanSearch(ShardSearch):
    """Under the mean: every arm alone, and a few numbers a shard in every round."""

    def stop_at(self, prices: Floats) -> Stop:
        """Every edge that is worth more than it costs."""
        return WorthMore(1.0 / self.asked.num_arms)

    def measured(self, mixture: Mixture) -> tuple[Floats, float, float, float]:
        """(resource,) the use of a mixture, and its mean."""
        sums = self.asked.total(mixture)
        mean = float(sums[-1]) / self.asked.num_arms
        return sums[:-1], mean, mean, 1.0

    def lower(self, cuts: Sequence[ShardCut], shares: Floats) -> float:
        """The mean of a mixture of cuts."""
        if not self.single:
            return float(sum(share * cut.welfare for cut, share in zip(cuts, shares, strict=True)))
        return self.measured(self.spend(cuts, shares))[2]

    def weights(self, cut: ShardCut) -> Floats | Weighing:
        """1/N for all."""
        return Alike(1.0 / self.asked.num_arms)


class PowerSearch(ShardSearch):
    """Under a power mean: every arm alone."""

    def __init__(
        self,
        asked: Asked,
        welfare: Welfare,
        tolerance: float,
        progress: Rounds | None = None,
        checkpoint: tuple[Path, str] | None = None,
    ) -> None:
        """Also find the welfare without a budget, by which values are measured.

        Args:
            asked: the shards.
            welfare: a power mean.
            tolerance: the relative gap to stop at.
            progress: called each round with its number and the gap.
            checkpoint: the file in which it is kept how far the search has come, and the signature of the problem.
        """
        super().__init__(asked, welfare, tolerance, progress, checkpoint)
        assert isinstance(welfare, PowerMean)
        self.alpha, self.reference = welfare.aversion, self.scale or 1.0
        most: Mixture = ((1.0, Rule(self.unit, UpTo(np.inf))),)
        least, _ = asked.extremes(most)
        if least < 0 or (least == 0 and self.alpha >= 1):
            raise OutOfDomain(
                f"{welfare.name} needs positive values, but even without a budget "
                f"the worst-off arm has at most {least:.6g}. Use a Gini welfare, or shift the rewards."
            )
        self.reference = self._told(self.utility(most)[0])[1] or 1.0

    def stop_at(self, prices: Floats) -> Stop:
        """Where the marginal utility meets the slope."""
        return MarginalUtility(self.alpha, self.reference, self.asked.num_arms)

    def utility(self, mixture: Mixture) -> tuple[float, Floats]:
        """The mean utility of a mixture, minus infinity outside of the domain, and its (resource + 1,) totals."""
        found, sums = zip(*self.asked.shards.ask(shard.utilities, mixture, self.alpha, self.reference), strict=True)
        return self._mean_of(found), rounded(added(sums))

    def _mean_of(self, found: Sequence[Exact | None]) -> float:
        inside = [part for part in found if part is not None]
        return float(rounded(added(inside))[0]) / self.asked.num_arms if len(inside) == len(found) else -np.inf

    def _told(self, utility: float) -> tuple[float, float, float]:
        """A mean utility, the welfare, and the rate dW/dF = r (W / r)^alpha."""
        if not np.isfinite(utility):
            return -np.inf, -np.inf, 0.0
        welfare = power_value(utility, self.alpha, self.reference)
        return utility, welfare, self.reference * (welfare / self.reference) ** self.alpha

    def measured(self, mixture: Mixture) -> tuple[Floats, float, float, float]:
        """(resource,) the use of a mixture, its utility, its welfare and the rate dW/dF."""
        utility, sums = self.utility(mixture)
        return sums[:-1], *self._told(utility)

    def weights(self, cut: ShardCut) -> Floats | Weighing:
        """The gradient, which shards find by themselves."""
        return Gradient(self.alpha, cut.welfare, self.asked.num_arms)

    def welfare_of(self, values: Floats) -> float:
        """The welfare of the values of all rows."""
        counts = self.asked.counts
        parts = [
            shard.utility_sum(values[part], counts[part], self.alpha, self.reference)
            for part in runs.pieces(slice(0, len(values)))
        ]
        return self._told(self._mean_of(parts))[1]

    def check_domain(self) -> None:
        """Raise OutOfDomain where the budget cannot bring every arm to a positive value."""
        least, _ = self.asked.extremes(((1.0, Rule(self.unit, UpTo(-np.inf))),))
        if in_domain(np.array([least]), self.alpha).all():
            return
        needed = float(self.asked.total(((1.0, Rule(self.unit, UpTo(0.0))),))[0])
        if needed >= self.allowance[0]:
            raise self.out_of_reach()


class LeximinSearch(ShardSearch):
    """Leximin with one resource: all arms are raised to one level, as far as each can be."""

    def fill_levels(self) -> ShardedSolution:
        """The level to which every arm is raised."""
        free, full = (((1.0, Rule(self.unit, UpTo(level))),) for level in (-np.inf, np.inf))
        low, high = self.asked.extremes(free)[0], self.asked.extremes(full)[1]
        level = high if self._fits(high) else highest_level(low, high, self._fits)
        rule = Rule(self.unit, UpTo(level))
        return self.closed(self.finish(((1.0, rule),), self._prove_least(rule)))

    def _fits(self, level: float) -> bool:
        self.rounds += 1
        return bool(self.asked.total(((1.0, Rule(self.unit, UpTo(level))),))[0] <= self.allowance[0])

    def _prove_least(self, rule: Rule) -> ShardProof:
        """Nobody's least value can be more: the worst-off cannot have more, or what they use costs all there is."""
        lowest = self.asked.extremes(((1.0, rule),))[0] + 1e-13 * self.scale
        stuck, costs = zip(*self.asked.shards.ask(shard.worst, rule, lowest), strict=True)
        rows = [int(self.asked.cuts[place]) + row for place, row in enumerate(stuck) if row >= 0]
        if rows:
            weights = np.zeros(self.asked.shared.whole)
            weights[rows[0]] = 1.0 / self.asked.counts[rows[0] : rows[0] + 1][0]
            return self.proof(weights, np.zeros(1), rule)
        prices = 1.0 / rounded(added(costs))
        return self.proof(CostOfMore(lowest, float(prices[0])), prices, rule)
