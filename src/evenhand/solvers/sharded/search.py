"""The driver: the search for prices over shards.

It keeps the values of the answer at hand (8 bytes a row), sorts them for the welfare, and has the master program. Arms
answer by rules of a few numbers (`stops`), so that cuts need no memory an arm, and a mixture of cuts is a mixture of
rules. Under the mean a round moves a few numbers a shard; under ranks the values; the proof moves marginal costs and
weights.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenhand.errors import InvalidInput, NotConverged, OutOfDomain
from evenhand.execution import Shards
from evenhand.kernels.exact_sums import Exact, added, rounded
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare
from evenhand.solvers.fluid_programs import Rounds
from evenhand.solvers.levels import AlphaAnswers, RankAnswers
from evenhand.solvers.price_search import PriceSearch, SoFar, excess_of, highest_level
from evenhand.solvers.sharded import kept, shard
from evenhand.solvers.sharded.cuts import ShardCut, ShardProof
from evenhand.solvers.sharded.grid import LevelGrid, choose_cells, per_block
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

    counts: Ints
    """(row,) how many arms each row stands for."""

    shared: Shared
    """What all blocks have in common."""

    @property
    def num_arms(self) -> int:
        """How many arms there are."""
        return int(self.counts.sum())

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.shared.whole // self.shared.block)

    def split(self, rows: Floats) -> list[tuple[Floats]]:
        """Numbers of all rows, shard by shard."""
        return [(part,) for part in np.split(rows, self.cuts[1:-1])]

    def total(self, mixture: Mixture) -> Floats:
        """(resource + 1,) the use and the value of all arms."""
        return rounded(added(self.shards.ask(shard.totals, mixture)))

    def values(self, mixture: Mixture) -> tuple[Floats, Floats]:
        """(row,) values, and (resource + 1,) the use and the value of all arms."""
        return self._gathered(self.shards.ask(shard.values, mixture))

    def settled(self, mixture: Mixture, excess: float) -> tuple[Floats, Floats]:
        """(row,) values computed anew, and (resource,) the use of all arms."""
        return self._gathered(self.shards.ask(shard.settled, mixture, excess))

    def _gathered(self, answers: Sequence[tuple[Floats, Exact]]) -> tuple[Floats, Floats]:
        values, sums = zip(*answers, strict=True)
        return np.concatenate(values), rounded(added(sums))


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
        super().__init__(asked.shared.budget * asked.shared.criterion.total, tolerance, progress)
        self.begin = time.perf_counter()
        self.asked, self.welfare, self._checkpoint = asked, welfare, checkpoint
        self._numbers = 0
        self._most = per_block(asked.num_blocks)
        self._surveys = self._survey(self.unit)
        self.scale = max(survey.largest for survey in self._surveys)
        self._grid: LevelGrid | None = None

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
        return LevelGrid.of(cells, free, table, self.ranks.mass)

    @property
    def ranks(self) -> RankAnswers:
        """How ranks are weighed."""
        assert isinstance(self.welfare, RankWeighted)
        return RankAnswers(self.welfare, self.asked.counts)

    def measured(self, mixture: Mixture) -> tuple[Floats, float, float, float]:
        """(resource,) the use of a mixture, its utility, its welfare and the rate dW/dF."""
        values, sums = self.asked.values(mixture)
        welfare = float(self.welfare(values, self.asked.counts))
        return sums[:-1], welfare, welfare, 1.0

    def weights(self, cut: ShardCut) -> Floats:
        """(row,) weights g with W(u) <= g.u for all u, near the answer."""
        pairs = self.asked.shards.ask(shard.marginals, cut.rule)
        below, above = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        del pairs
        if not cut.prices.any():
            below, above = np.zeros_like(below), np.where(np.isinf(above), np.inf, 0.0)
        values, _ = self.asked.values(((1.0, cut.rule),))
        return self.ranks.weights_between(below, above, values, within=True)

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
        values, _ = self.asked.values(mixture)
        return float(self.welfare(values, self.asked.counts))

    def prove(self, cut: ShardCut) -> ShardProof:
        """The certified bound of a cut."""
        return self.proof(self.weights(cut), cut.prices * cut.rate, cut.rule)

    def proof(self, weights: Floats, prices: Floats, rule: Rule) -> ShardProof:
        """The bound of weights and prices; policies of the rule are good ones to start from."""
        answers = self.asked.shards.ask(shard.bound, rule, prices, each=self.asked.split(weights))
        return ShardProof(weights, prices, float(rounded(added(answers))[0]) + float(prices @ self.allowance))

    def mixed(self, active: Sequence[ShardCut], shares: Floats, proof: ShardProof) -> ShardedSolution:
        """The solution that mixes cuts."""
        mixture = self.spend(active, shares) if self.single else _mixture(active, shares)
        return self.finish(mixture, proof)

    def finish(self, mixture: Mixture, proof: ShardProof) -> ShardedSolution:
        """The solution, with its welfare computed anew from its occupancy measures, within the budget exactly."""
        values, use = self.asked.settled(mixture, 0.0)
        if (use > self.allowance).any():  # rounding; what costs least takes its place
            free = rounded(added(self.asked.shards.ask(shard.free_use)))
            values, use = self.asked.settled(mixture, excess_of(use, free, self.allowance))
        welfare = float(self.welfare(values, self.asked.counts))
        upper = max(proof.bound, welfare)
        return ShardedSolution(
            welfare=welfare,
            upper_bound=upper,
            gap=self.gap(welfare, upper),
            values=values,
            weights=proof.weights,
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

    def weights(self, cut: ShardCut) -> Floats:
        """(row,) 1/N."""
        return np.full(self.asked.shared.whole, 1.0 / self.asked.num_arms)


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
        most, _ = asked.values(((1.0, Rule(self.unit, UpTo(np.inf))),))
        if most.min() < 0 or (most.min() == 0 and welfare.aversion >= 1):
            raise OutOfDomain(
                f"{welfare.name} needs positive values, but even without a budget "
                f"the worst-off arm has at most {most.min():.6g}. Use a Gini welfare, or shift the rewards."
            )
        reference = float(welfare(most, asked.counts)) or 1.0
        self.answers = AlphaAnswers(welfare, welfare.aversion, asked.counts, reference)

    def stop_at(self, prices: Floats) -> Stop:
        """Where the marginal utility meets the slope."""
        return MarginalUtility(self.answers.alpha, self.answers.reference, self.asked.num_arms)

    def measured(self, mixture: Mixture) -> tuple[Floats, float, float, float]:
        """(resource,) the use of a mixture, its utility, its welfare and the rate dW/dF."""
        values, sums = self.asked.values(mixture)
        utility = self.answers.utility(values)
        if not np.isfinite(utility):
            return sums[:-1], -np.inf, -np.inf, 0.0
        return sums[:-1], utility, float(self.welfare(values, self.asked.counts)), self.answers.rate(values)

    def weights(self, cut: ShardCut) -> Floats:
        """(row,) the gradient."""
        return self.answers.gradient(self.asked.values(((1.0, cut.rule),))[0])

    def check_domain(self) -> None:
        """Raise OutOfDomain where the budget cannot bring every arm to a positive value."""
        free, _ = self.asked.values(((1.0, Rule(self.unit, UpTo(-np.inf))),))
        if self.answers.inside(free).all():
            return
        needed = float(self.asked.total(((1.0, Rule(self.unit, UpTo(0.0))),))[0])
        if needed >= self.allowance[0]:
            raise self.out_of_reach()


class LeximinSearch(ShardSearch):
    """Leximin with one resource: all arms are raised to one level, as far as each can be."""

    def fill_levels(self) -> ShardedSolution:
        """The level to which every arm is raised."""
        free, full = (self.asked.values(((1.0, Rule(self.unit, UpTo(level))),)) for level in (-np.inf, np.inf))
        low, high = float(free[0].min()), float(full[0].max())
        del free
        level = high if full[1][0] <= self.allowance[0] else highest_level(low, high, self._fits)
        del full
        rule = Rule(self.unit, UpTo(level))
        return self.closed(self.finish(((1.0, rule),), self._prove_least(rule)))

    def _fits(self, level: float) -> bool:
        self.rounds += 1
        return bool(self.asked.total(((1.0, Rule(self.unit, UpTo(level))),))[0] <= self.allowance[0])

    def _prove_least(self, rule: Rule) -> ShardProof:
        """Nobody's least value can be more: the worst-off cannot have more, or what they use costs all there is."""
        values, _ = self.asked.values(((1.0, rule),))
        above = np.concatenate([pair[1] for pair in self.asked.shards.ask(shard.marginals, rule)])
        worst = np.flatnonzero(values <= float(values.min()) + 1e-13 * self.scale)
        weights, counts, prices = np.zeros(len(values)), self.asked.counts, np.zeros(1)
        saturated = worst[np.isinf(above[worst])]
        if len(saturated):
            weights[saturated[0]] = 1.0 / counts[saturated[0]]
        else:
            prices = 1.0 / np.atleast_1d(counts[worst] @ above[worst])
            weights[worst] = above[worst] * prices[0]
        return self.proof(weights, prices, rule)
