"""The search for prices of the fair fluid relaxation over blocks of arms (`blocks`)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import InvalidInputError, NotApplicableError, NotConvergedError, OutOfDomainError
from evenhand.model.coupled import usable_amount
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, as_welfare, is_lexicographic, is_mean
from evenhand.parallel import Blocks, Pool
from evenhand.solvers.blocks import (
    BLOCK,
    Block,
    BlockBuilder,
    BlockSource,
    LevelGrid,
    LevelStops,
    Mixture,
    Rule,
    Sample,
    UtilityStops,
    sample_size,
    up_to,
)
from evenhand.solvers.fluid.dual_search import Cut, PriceSearch, excess_of, highest_level
from evenhand.solvers.fluid.price_response import in_domain, power_gradient, power_value, share_evenly
from evenhand.solvers.fluid.programs import Rounds, as_ranked
from evenhand.solvers.permutahedron import project_types
from evenhand.typing import Floats, Ints


@dataclass(frozen=True, eq=False)
class BlockSolution:
    """A feasible solution of the relaxation, and its certificate."""

    welfare: float
    """Welfare of the solution: a lower bound on the optimum of the relaxation."""

    upper_bound: float
    """No solution of the relaxation, and no policy of the coupled problem, has a larger welfare."""

    gap: float
    """(upper_bound - welfare) / |upper_bound|."""

    values: Floats
    """(row,) value of one arm."""

    weights: Floats
    """(row,) derivative of the welfare with respect to the value of one arm."""

    prices: Floats
    """(resource,) dual prices of a unit of use, by the criterion's weights."""

    use: Floats
    """(resource,) total use, by the criterion's weights."""

    rounds: int
    """Number of prices tried."""

    num_blocks: int
    """Number of blocks."""

    seconds: float
    """Wall time."""


@dataclass(frozen=True, eq=False)
class BlockCut(Cut):
    """The response of all arms to some prices."""

    rule: Rule


class _Proof(NamedTuple):
    weights: Floats
    prices: Floats
    bound: float


def solve_blocks(
    source: BlockSource,
    welfare: str | Welfare,
    backend: str | Pool | None = None,
    tolerance: float = 1e-4,
    progress: Rounds | None = None,
    block_rows: int = BLOCK,
) -> BlockSolution:
    """Solve the fair fluid relaxation block by block.

    Args:
        source: arms without groups and floors.
        welfare: the mean, rank-weighted, a power mean, or leximin with one resource.
        backend: where blocks are computed.
        tolerance: relative gap to stop at.
        progress: called each round with its number and the gap.
        block_rows: rows per block.

    Raises:
        NotApplicableError: the welfare has another structure.
        OutOfDomainError: the welfare needs positive values, and the budget does not suffice for all arms.
        ClusterError: workers cannot be reached or die repeatedly.
        NotConvergedError: the gap did not close.
    """
    if not 0 < tolerance < 1:
        raise InvalidInputError(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    rows = len(source.row_counts)
    check_memory(120.0 * rows, f"the values and weights of {rows} rows", "Use rows that stand for several arms.")
    number = int(source.row_counts.sum())
    objective = as_welfare(welfare, number)
    kind = _search_of(objective, number, len(source.budget))
    cuts = [*range(0, rows, block_rows), rows]
    with Pool(backend) as pool:
        builders = [
            BlockBuilder(source.row_reader(start, stop), source.budget, source.criterion, rows)
            for start, stop in pairwise(cuts)
        ]
        blocks: Blocks[Block] = pool.blocks(builders)
        try:
            search = kind(
                blocks,
                source,
                cuts,
                as_ranked(objective, number) if kind is MeanSearch else objective,
                tolerance,
                progress,
            )
            return search.run()
        finally:
            blocks.close()


def _search_of(welfare: Welfare, num_arms: int, num_resources: int) -> "type[BlockSearch]":
    if is_mean(welfare, num_arms):
        return MeanSearch
    if is_lexicographic(welfare) and num_resources == 1:
        return LeximinSearch
    if isinstance(welfare, RankWeighted) and not is_lexicographic(welfare):
        return BlockSearch
    if isinstance(welfare, PowerMean):
        return PowerSearch
    raise NotApplicableError(
        f"{welfare.name} is not solved block by block, which is for the mean, rank-weighted welfare, power means, and "
        "leximin with one resource; read the model into memory (load)"
    )


class BlockSearch(PriceSearch[BlockCut, _Proof, BlockSolution]):
    """The search for prices under a rank-weighted welfare."""

    def __init__(
        self,
        blocks: Blocks[Block],
        source: BlockSource,
        cuts: Sequence[int],
        welfare: Welfare,
        tolerance: float,
        progress: Rounds | None,
    ) -> None:
        """Trace the frontiers and sample them.

        Args:
            blocks: the blocks.
            source: their arms.
            cuts: (block + 1,) rows at which blocks begin.
            welfare: to maximise.
            tolerance: relative gap to stop at.
            progress: called each round with its number and the gap.
        """
        uses = zip(source.budget.tolist(), zip(*blocks.map(Block.uses), strict=True), strict=True)
        usable = [usable_amount(budget, np.unique(np.concatenate(parts))) for budget, parts in uses]
        super().__init__(np.array(usable) * source.criterion.total, tolerance, progress)
        self.begin = time.perf_counter()
        self.blocks, self.welfare, self.counts = blocks, welfare, source.row_counts
        self.num_arms, self._cuts = int(self.counts.sum()), list(cuts)
        self._samples = self._sample(self.unit)
        self.scale = max(sample.largest for sample in self._samples)
        self._numbers = 0
        self._grid: LevelGrid | None = None
        if isinstance(welfare, RankWeighted):
            welfare.check_num_arms(self.num_arms)

    def run(self) -> BlockSolution:
        """Search."""
        return self.by_cuts()

    @property
    def single(self) -> bool:
        """True if there is one resource."""
        return len(self.unit) == 1

    # What differs by welfare

    def stop_at(self, prices: Floats) -> Callable[[Floats], Floats]:
        """Stops of the best response to prices."""
        if not self.single:
            return LevelGrid.of(self.blocks, self._sample(prices), prices, self._mass).stops(1.0)
        if self._grid is None:
            self._grid = LevelGrid.of(self.blocks, self._samples, self.unit, self._mass)
        return self._grid.stops(float(prices[0]))

    def measured(self, mixture: Mixture) -> tuple[float, float, float]:
        """Utility, welfare and the rate dW/dF of a mixture."""
        welfare = float(self.welfare(self.values(mixture), self.counts))
        return welfare, welfare, 1.0

    def weights(self, cut: BlockCut) -> Floats:
        """(row,) weights g with W(u) <= g.u for all u, near the response."""
        assert isinstance(self.welfare, RankWeighted)
        values = self.values(((1.0, cut.rule),))
        below, above = np.concatenate(self.blocks.map(Block.marginals, cut.rule), axis=1)
        if not cut.prices.any():
            below, above = np.zeros_like(below), np.where(np.isfinite(above), 0.0, above)
        # Rows of one level have the very same number; it shares the weights of its ranks evenly.
        _, level = np.unique(values, return_inverse=True)
        last = np.cumsum(np.bincount(level, weights=self.counts).astype(np.int64))
        mass = self.welfare.rank_mass(np.append(0, last[:-1]), last, self.num_arms)
        even = share_evenly(below, above, self.counts, level, mass)
        return project_types(np.clip(even, below, above), self.counts, self.welfare)

    # The questions of a search

    def values(self, mixture: Mixture) -> Floats:
        """(row,) values of a mixture."""
        return np.concatenate(self.blocks.map(Block.values, mixture))

    def total(self, mixture: Mixture) -> Floats:
        """(resource + 1,) use and value of all arms."""
        return np.asarray(np.sum(self.blocks.map(Block.total, mixture), axis=0))

    def cut(self, prices: Floats, stop: Callable[[Floats], Floats], at: Floats | None = None) -> BlockCut:
        """The cut of a response; with several resources, on the frontiers of given prices."""
        self._numbers += 1
        rule = Rule(prices if at is None else at, stop, self._numbers)
        mixture: Mixture = ((1.0, rule),)
        return BlockCut(prices, self.total(mixture)[:-1], *self.measured(mixture), rule)

    def ends(self) -> tuple[BlockCut, BlockCut]:
        """The cuts of the free values and of the largest."""
        nothing = np.zeros_like(self.unit)
        return self.cut(nothing, up_to(-np.inf), self.unit), self.cut(nothing, up_to(np.inf), self.unit)

    def respond(self, prices: Floats) -> BlockCut:
        """The best response to prices."""
        return self.cut(prices, self.stop_at(prices))

    def spend(self, cuts: Sequence[BlockCut], shares: Floats) -> Mixture:
        """One resource: move a mixture towards its costliest cut until the budget is used.

        Costs are convex along the way, so the chord to the far end crosses the budget before the cost does.
        """
        active = np.flatnonzero(shares > 0)
        costliest = max(active.tolist(), key=lambda i: float(cuts[i].total[0]))
        most, allowance = float(cuts[costliest].total[0]), float(self.allowance[0])
        shares = shares.copy()
        for _ in range(3 if len(active) > 1 else 0):
            spent = float(self.total(_mixture(cuts, shares))[0])
            if most <= spent or spent >= allowance:
                break
            step = min(1.0, (allowance - spent) / (most - spent))
            shares *= 1 - step
            shares[costliest] += step
        return _mixture(cuts, shares)

    def lower(self, cuts: Sequence[BlockCut], shares: Floats) -> float:
        """Welfare of a mixture of cuts."""
        return self.measured(self.spend(cuts, shares) if self.single else _mixture(cuts, shares))[1]

    def prove(self, cut: BlockCut) -> _Proof:
        """The certified bound of a cut."""
        return self.proof(self.weights(cut), cut.prices * cut.rate, cut.rule)

    def proof(self, weights: Floats, prices: Floats, rule: Rule) -> _Proof:
        """The bound of weights and prices."""
        each = [(part,) for part in np.split(weights, self._cuts[1:-1])]
        bound = float(sum(self.blocks.map(Block.bound, rule, prices, each=each)))
        return _Proof(weights, prices, bound + float(prices @ self.allowance))

    def mixed(self, active: Sequence[BlockCut], shares: Floats, proof: _Proof) -> BlockSolution:
        """The solution that mixes cuts."""
        return self.finish(self.spend(active, shares) if self.single else _mixture(active, shares), proof)

    def finish(self, mixture: Mixture, proof: _Proof) -> BlockSolution:
        """The solution, recomputed from its occupancy measures and within the budget exactly."""
        values, use = self._settled(mixture, 0.0)
        if (use > self.allowance).any():  # rounding; a share of free measures replaces it
            free = self._settled(((1.0, Rule(self.unit, up_to(-np.inf))),), 0.0)[1]
            values, use = self._settled(mixture, excess_of(use, free, self.allowance))
        welfare = float(self.welfare(values, self.counts))
        upper = max(proof.bound, welfare)
        return BlockSolution(
            welfare=welfare,
            upper_bound=upper,
            gap=self.gap(welfare, upper),
            values=values,
            weights=proof.weights,
            prices=proof.prices,
            use=use,
            rounds=self.rounds,
            num_blocks=len(self.blocks),
            seconds=time.perf_counter() - self.begin,
        )

    def _settled(self, mixture: Mixture, excess: float) -> tuple[Floats, Floats]:
        values, uses = zip(*self.blocks.map(Block.settled, mixture, excess, self.unit), strict=True)
        return np.concatenate(values), np.sum(uses, axis=0)

    def _sample(self, prices: Floats) -> list[Sample]:
        return self.blocks.map(Block.sample, prices, sample_size(len(self.blocks)))

    def _mass(self, smallest: Ints) -> Floats:
        """Sum of the m smallest rank weights, for many m."""
        assert isinstance(self.welfare, RankWeighted)
        return self.welfare.rank_mass(self.num_arms - smallest, np.full_like(smallest, self.num_arms), self.num_arms)

    def gap_of(self, solution: BlockSolution) -> float:
        """The true gap of a solution."""
        return solution.gap

    def closed(self, solution: BlockSolution) -> BlockSolution:
        """The solution, if its gap is within the tolerance."""
        if solution.gap > self.tolerance:
            raise NotConvergedError(
                f"the gap of the fluid relaxation is {solution.gap:.2g} after {solution.rounds} rounds, "
                f"not {self.tolerance:.2g}; give a larger tolerance"
            )
        return solution

    def spent(self, log_price: float) -> float:
        """Total use at a price."""
        if abs(log_price) > 700:
            return super().spent(log_price)
        self.rounds += 1
        prices = np.exp([log_price])
        return float(self.total(((1.0, Rule(prices, self.stop_at(prices))),))[0])

    def check_domain(self) -> None:
        """Nothing to check: every value is in the domain."""

    def out_of_reach(self) -> InvalidInputError:
        """The error if no point of the domain is within the budget."""
        return OutOfDomainError(
            f"{self.welfare.name} needs positive values, and the budget does not suffice to give every arm one. "
            "Use a Gini welfare, or shift the rewards."
        )


def _mixture(cuts: Sequence[BlockCut], shares: Floats) -> Mixture:
    return tuple((float(share), cut.rule) for cut, share in zip(cuts, shares, strict=True) if share > 0)


class MeanSearch(BlockSearch):
    """The mean: every arm alone."""

    def stop_at(self, prices: Floats) -> Callable[[Floats], Floats]:
        """Every edge of slope 1/N or less."""
        return LevelStops(np.zeros(1), np.array([1.0 / self.num_arms]))

    def measured(self, mixture: Mixture) -> tuple[float, float, float]:
        """The mean of a mixture: that of the means of its rules."""
        mean = sum(share * float(self.total(((1.0, rule),))[-1]) for share, rule in mixture) / self.num_arms
        return mean, mean, 1.0

    def lower(self, cuts: Sequence[BlockCut], shares: Floats) -> float:
        """Welfare of a mixture of cuts."""
        if self.single:
            return float(self.total(self.spend(cuts, shares))[-1]) / self.num_arms
        return float(sum(share * cut.welfare for cut, share in zip(cuts, shares, strict=True)))

    def weights(self, cut: BlockCut) -> Floats:
        """(row,) 1/N."""
        return np.full(len(self.counts), 1.0 / self.num_arms)


class PowerSearch(BlockSearch):
    """A power mean: every arm alone."""

    def __init__(self, *arguments: Any) -> None:
        """Also find the welfare without a budget, the reference of utilities.

        Args:
            arguments: of `BlockSearch`.
        """
        super().__init__(*arguments)
        assert isinstance(self.welfare, PowerMean)
        self.alpha = self.welfare.aversion
        most = self.values(((1.0, Rule(self.unit, up_to(np.inf))),))
        if (least := most.min()) < 0 or (least == 0 and self.alpha >= 1):
            raise OutOfDomainError(
                f"{self.welfare.name} needs positive values, but even without a budget "
                f"the worst-off arm has at most {least:.6g}. Use a Gini welfare, or shift the rewards."
            )
        self.reference = float(self.welfare(most, self.counts)) or 1.0

    def run(self) -> BlockSolution:
        """Search: with one resource by bisection of the price."""
        return self.by_bisection() if self.single else self.by_cuts()

    def stop_at(self, prices: Floats) -> Callable[[Floats], Floats]:
        """The values at which marginal utilities equal the slopes."""
        return UtilityStops(self.alpha, self.reference, self.num_arms)

    def measured(self, mixture: Mixture) -> tuple[float, float, float]:
        """Mean utility, welfare and the rate dW/dF = r (W / r)^alpha of a mixture."""
        utility = sum(self.blocks.map(Block.utility, mixture, self.alpha, self.reference)) / self.num_arms
        if not np.isfinite(utility):
            return -np.inf, -np.inf, 0.0
        welfare = power_value(utility, self.alpha, self.reference)
        return utility, welfare, self.reference * (welfare / self.reference) ** self.alpha

    def weights(self, cut: BlockCut) -> Floats:
        """(row,) the gradient."""
        return power_gradient(self.values(((1.0, cut.rule),)), self.alpha, cut.welfare, self.num_arms)

    def check_domain(self) -> None:
        """Raise OutOfDomainError if the budget cannot bring every arm to a positive value."""
        free = self.values(((1.0, Rule(self.unit, up_to(-np.inf))),))
        if not in_domain(free, self.alpha).all():
            needed = float(self.total(((1.0, Rule(self.unit, up_to(0.0))),))[0])
            if needed >= self.allowance[0]:
                raise self.out_of_reach()


class LeximinSearch(BlockSearch):
    """Leximin with one resource: all arms are raised to one level, as far as each can be."""

    def run(self) -> BlockSolution:
        """Find the level by bisection."""
        free, full = (self.values(((1.0, Rule(self.unit, up_to(level))),)) for level in (-np.inf, np.inf))
        low, high = float(free.min()), float(full.max())
        level = high if self._fits(high) else highest_level(low, high, self._fits)
        rule = Rule(self.unit, up_to(level))
        return self.closed(self.finish(((1.0, rule),), self._prove_least(rule)))

    def _fits(self, level: float) -> bool:
        self.rounds += 1
        return bool(self.total(((1.0, Rule(self.unit, up_to(level))),))[0] <= self.allowance[0])

    def _prove_least(self, rule: Rule) -> _Proof:
        """The least value cannot rise: some worst-off arm is at its maximum, or raising them uses the whole budget."""
        values = self.values(((1.0, rule),))
        above = np.concatenate(self.blocks.map(Block.marginals, rule), axis=1)[1]
        worst = values <= values.min() + 1e-13 * self.scale
        weights, prices = np.zeros(len(values)), np.zeros(1)
        if len(stuck := np.flatnonzero(worst & np.isinf(above))):
            weights[stuck[0]] = 1.0 / self.counts[stuck[0]]
        else:
            # In proportion to the cost of one more unit; they sum to 1 by counts, so min v <= g.v.
            prices = 1.0 / np.atleast_1d(self.counts[worst] @ above[worst])
            weights[worst] = above[worst] * prices[0]
        return self.proof(weights, prices, rule)
