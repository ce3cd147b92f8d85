"""The fair fluid relaxation of arms in blocks, for more arms than one process can treat (`fluid` has the mathematics).

A block is BLOCK rows of the model by their position. It belongs to one worker, which holds the frontiers of its arms,
and is a pure function of its arms and a *rule*: at prices lambda an arm follows the edges of its frontier up to a stop,
and stops fall as slopes s rise (`levels.follow`),

    mean            to the end if s <= 1/N, else not at all
    power mean      to r (N r s)^(-1/alpha), where the marginal utility equals the slope
    rank-weighted   to the last level whose limit is at least s; limits fall as levels rise
    leximin         to one level

so that a rule is a few numbers, and a mixture of responses is a mixture of rules. Sums of blocks are added in their
order: results depend neither on the number of workers nor on the backend.

Limits of rank weights. Up to a constant W(v) - sum_n c_n(v_n) is an integral over levels t, and every level is solved
alone (`kernels.fluid_sweeps`): of the arms sorted by their marginal costs c_n'(t) those are above t that maximise

    G(m) - sum of the m least costs,        G(m) the sum of the m smallest rank weights.

Of the arms this takes only how many have which marginal cost at which level: blocks count on a grid of levels and bins
of costs chosen from a sample of the vertices. If the grid contains all vertices this is exact. Else arms whose cost is
within a bin of the limit may be misplaced, which changes the response to second order; any point on the frontiers is a
valid cut, and the certificate is Bellman's inequality of every arm at weights that are projected onto the
permutahedron.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import InvalidInput, NotApplicable, NotConverged, OutOfDomain
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_USES, CoupledMDP, usable_amount
from evenhand.model.criterion import Criterion
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, as_welfare, is_lexicographic, is_mean
from evenhand.parallel import Blocks, Pool
from evenhand.solvers.arms import check_communicating
from evenhand.solvers.fluid_programs import Rounds, as_ranked
from evenhand.solvers.frontiers import FluidModel, Frontiers
from evenhand.solvers.levels import follow, in_domain, power_gradient, power_utility, power_value, share_evenly
from evenhand.solvers.permutahedron import project_types
from evenhand.solvers.price_search import Cut, PriceSearch, excess_of, highest_level
from evenhand.typing import Floats, Ints

BLOCK = 1 << 16
"""Rows per block; results depend on it by rounding only."""

NUM_LEVELS, NUM_BINS = 2048, 1024
"""Largest number of levels, and of bins of marginal costs, of the grid."""

CACHED_RULES = 24
"""Responses whose values a block caches."""


# -- the source of the blocks -----------------------------------------------------------------------------------------


class BlockSource(Protocol):
    """Arms by rows, each of which stands for one or several equal arms."""

    @property
    def budget(self) -> Floats:
        """(resource,) amounts available per step."""
        ...

    @property
    def criterion(self) -> Criterion:
        """Criterion of the values."""
        ...

    @property
    def row_counts(self) -> Ints:
        """(row,) number of arms per row."""
        ...

    def row_reader(self, start: int, stop: int) -> Callable[[], "ArmRows"]:
        """A small picklable function that reads some rows."""
        ...


class ArmRows(Protocol):
    """Rows of a model in memory."""

    @property
    def counts(self) -> Ints:
        """(row,) number of arms per row."""
        ...

    def expanded(self) -> ArmTables:
        """One arm per row."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """The types of a problem as a source of blocks."""

    problem: CoupledMDP

    @property
    def budget(self) -> Floats:
        """(resource,) amounts available per step."""
        return self.problem.budget

    @property
    def criterion(self) -> Criterion:
        """Criterion of the values."""
        return self.problem.criterion

    @property
    def row_counts(self) -> Ints:
        """(row,) number of arms per type."""
        return self.problem.type_counts

    def row_reader(self, start: int, stop: int) -> "_Rows":
        """The arrays of some types."""
        return _Rows(_trimmed(self.problem.types, slice(start, stop)), self.row_counts[start:stop])


class _Rows(NamedTuple):
    tables: ArmTables
    counts: Ints

    def __call__(self) -> "_Rows":
        return self

    def expanded(self) -> ArmTables:
        return self.tables


def _trimmed(tables: ArmTables, part: slice) -> ArmTables:
    """Some arms, without labels and without padding that none of them needs."""
    s, a = int(tables.num_states[part].max()), int(tables.num_actions[part].max())
    return ArmTables(
        transitions=tables.transitions[part, :s, :a, :s],
        rewards=tables.rewards[part, :s, :a],
        usage=tables.usage[part, :s, :a],
        initial=tables.initial[part, :s],
        num_states=tables.num_states[part],
        num_actions=tables.num_actions[part],
    )


class _Builder(NamedTuple):
    """Builds a block where it will stay."""

    reader: Callable[[], ArmRows]
    budget: Floats
    criterion: Criterion
    num_rows: int

    def __call__(self) -> "Block":
        rows = self.reader()
        types = _trimmed(rows.expanded(), slice(None)).within(self.budget)
        model = FluidModel(types, rows.counts, self.budget, self.criterion, types.initial, part_of=self.num_rows)
        if self.criterion.is_average:
            check_communicating(types, model.allowed)
        return Block(model)


# -- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LevelStops:
    """The last level whose limit is at least the slope; minus infinity if there is none, infinity beyond the last."""

    levels: Floats
    """(level,) values, rising."""

    limits: Floats
    """(level,) largest slope that leads up to each, falling."""

    def __call__(self, slopes: Floats) -> Floats:
        """(vertex,) the stop of each slope."""
        passed = len(self.limits) - np.searchsorted(self.limits[::-1], slopes, side="left")
        stops = np.concatenate([[-np.inf], self.levels])[passed]
        return np.where(passed == len(self.limits), np.inf, stops)


def up_to(level: float) -> LevelStops:
    """One level for all slopes: minus infinity is the free value, infinity the largest."""
    return LevelStops(np.array([level, level]), np.array([np.inf, -np.inf]))


@dataclass(frozen=True)
class UtilityStops:
    """The value at which the marginal utility of a power mean equals the slope."""

    alpha: float
    reference: float
    num_arms: int

    def __call__(self, slopes: Floats) -> Floats:
        """(vertex,) r (N r s)^(-1/alpha)."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.reference * (self.num_arms * self.reference * slopes) ** (-1 / self.alpha))


class Rule(NamedTuple):
    """A response to prices."""

    prices: Floats
    """(resource,) prices."""

    stop: Callable[[Floats], Floats]
    """Value up to which an edge of given slope is followed."""

    number: int = 0
    """Key under which blocks cache the values; 0 for none."""


Mixture = tuple[tuple[float, Rule], ...]
"""Shares of responses."""


# -- a block ----------------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """A sample of the vertices of a block."""

    values: Floats
    slopes: Floats
    complete: bool
    largest: float
    """Largest absolute value."""


class Block:
    """Some arms, their frontiers at the last prices, and the values of some responses; all but the arms is a cache."""

    def __init__(self, model: FluidModel) -> None:
        self.model = model
        self._traced: dict[bytes, Frontiers] = {}
        self._values: dict[int, Floats] = {}

    def frontiers(self, prices: Floats) -> Frontiers:
        """Frontiers at some prices; with one resource they differ by a factor only."""
        base = np.ones(1) if len(prices) == 1 else prices
        key = base.tobytes()
        if key not in self._traced:
            self._traced.clear()  # first, so that two are never in memory
            self._traced[key] = self.model.trace(base)
        found = self._traced[key]
        return found.at_price(float(prices[0])) if len(prices) == 1 and prices[0] != 1 else found

    def follow(self, rule: Rule) -> Floats:
        """(row,) values of a response."""
        if rule.number in self._values:
            return self._values[rule.number]
        frontiers = self.frontiers(rule.prices)
        values = follow(frontiers, rule.stop(frontiers.slopes))
        if rule.number:
            if len(self._values) >= CACHED_RULES:
                del self._values[min(self._values)]
            self._values[rule.number] = values
        return values

    def values(self, mixture: Mixture) -> Floats:
        """(row,) values of a mixture."""
        if len(mixture) == 1:
            return self.follow(mixture[0][1])
        return np.asarray(sum(share * self.follow(rule) for share, rule in mixture))

    def total(self, mixture: Mixture) -> Floats:
        """(resource + 1,) use and value of all arms in a mixture; with several resources, of one rule."""
        values = self.values(mixture)
        use = self.frontiers(mixture[0][1].prices).use(values)
        return np.asarray(self.model.counts @ np.column_stack([use, values]))

    def utility(self, mixture: Mixture, alpha: float, reference: float) -> float:
        """Sum of the utilities of a power mean; minus infinity outside its domain."""
        values = self.values(mixture)
        if not in_domain(values, alpha).all():
            return -np.inf
        return float(self.model.counts @ power_utility(values, alpha, reference))

    def marginals(self, rule: Rule) -> Floats:
        """(2, row) cost of the last unit of value, and of one more."""
        return np.stack(self.frontiers(rule.prices).marginal(self.follow(rule)))

    def bound(self, rule: Rule, prices: Floats, weights: Floats) -> float:
        """Sum of the certified bounds of all arms at prices of welfare and weights; policies of the rule start it."""
        frontiers = self.frontiers(rule.prices)
        start = None if frontiers.policies is None else frontiers.policies[frontiers.locate(self.follow(rule))[0]]
        return float(self.model.counts @ self.model.bounds(weights, prices, start)[0])

    def settled(self, mixture: Mixture, excess: float, unit: Floats) -> tuple[Floats, Floats]:
        """(row,) values and (resource,) use of the occupancy measures of a mixture, a share of them for free ones."""
        if len(unit) == 1:
            measure = self.model.occupancy_at(self.frontiers(unit), self.values(mixture))
        else:
            parts = ((share, rule, self.frontiers(rule.prices)) for share, rule in mixture)
            measure = sum(share * self.model.occupancy_at(at, self.follow(rule)) for share, rule, at in parts)
        if excess > 0:
            free = self.frontiers(unit)
            measure = (1 - excess) * measure + excess * self.model.occupancy_at(free, free.values[free.first])
        values, use = self.model.totals(measure)
        return values, np.asarray(self.model.counts @ use)

    def uses(self) -> list[Floats]:
        """The different uses of each resource; not all of them if they are very many."""
        chosen = self.model.types.usage[self.model.allowed]
        return [np.unique(column)[: MOST_USES + 1] for column in chosen.T]

    def sample(self, prices: Floats, size: int) -> Sample:
        """Evenly spaced order statistics of the values and slopes of the vertices."""
        frontiers = self.frontiers(prices)
        slopes = frontiers.slopes[np.isfinite(frontiers.slopes)]
        largest = float(np.abs(frontiers.values).max())
        return Sample(
            _spaced(np.unique(frontiers.values), size),
            _spaced(np.unique(slopes), size),
            len(frontiers.values) <= size,
            largest,
        )

    def count(self, prices: Floats, levels: Floats, edges: Floats) -> tuple[Ints, Ints]:
        """(level + 1,) arms whose free value is below each level, and (bin, level + 1) changes of the counts of arms.

        The second is by how many more arms than at the level before have a marginal cost in each bin.
        """
        frontiers, wide = self.frontiers(prices), len(levels) + 1
        begins = np.flatnonzero(np.isfinite(frontiers.slopes))
        arms = self.model.counts[frontiers.owner[begins]]
        row = np.searchsorted(edges, frontiers.slopes[begins], side="left") * wide
        table = np.zeros(len(edges) * wide)
        for vertices, sign in ((begins, 1.0), (begins + 1, -1.0)):
            place = row + np.searchsorted(levels, frontiers.values[vertices], side="right")
            table += sign * np.bincount(place, weights=arms, minlength=len(table))
        place = np.searchsorted(levels, frontiers.values[frontiers.first], side="right")
        free = np.bincount(place, weights=self.model.counts, minlength=wide)
        return free.astype(np.int64), table.reshape(len(edges), wide).astype(np.int64)


def _spaced(ordered: Floats, most: int) -> Floats:
    return ordered if len(ordered) <= most else ordered[np.linspace(0, len(ordered) - 1, most).astype(np.int64)]


# -- levels and bins of costs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LevelGrid:
    """Gain and cost of each level if the arms of the first bins are above it."""

    levels: Floats
    edges: Floats
    """(bin,) largest cost of each."""

    gains: Floats
    """(level, bin + 1) rank weights of the arms above a level."""

    costs: Floats
    """(level, bin + 1) their costs, at the prices of the grid."""

    @classmethod
    def of(
        cls, blocks: Blocks[Block], samples: Sequence[Sample], prices: Floats, mass: Callable[[Ints], Floats]
    ) -> "LevelGrid":
        """Choose levels and bins from samples, and let the blocks count.

        Args:
            blocks: the blocks.
            samples: (block,) of their vertices.
            prices: (resource,) prices.
            mass: sum of the m smallest rank weights, for many m.
        """
        values, slopes = (np.unique(np.concatenate([sample[k] for sample in samples])) for k in (0, 1))
        levels, edges = _spaced(values, NUM_LEVELS), _spaced(slopes if len(slopes) else np.zeros(1), NUM_BINS)
        exact = all(sample.complete for sample in samples) and len(values) <= NUM_LEVELS and len(slopes) <= NUM_BINS
        counts = blocks.map(Block.count, prices, levels, edges)
        free, table = (np.sum([one[k] for one in counts], axis=0) for k in (0, 1))
        # Costs of a bin count as its middle, unless the grid contains all of them.
        middles = edges if exact else (np.concatenate([edges[:1], edges[:-1]]) + edges) / 2
        always = free.sum() - np.cumsum(free)[:-1]
        arms = np.cumsum(table, axis=1)[:, :-1].T
        above, costs = np.zeros((2, len(arms), arms.shape[1] + 1))
        np.cumsum(arms, axis=1, out=above[:, 1:])
        np.cumsum(arms * middles, axis=1, out=costs[:, 1:])
        number = above.astype(np.int64) + always[:, None]
        return cls(levels, edges, mass(number) - mass(always)[:, None], costs)

    def stops(self, price: float) -> LevelStops:
        """The limits of the levels if the prices of the grid are multiplied by one number."""
        net = self.gains - price * self.costs
        last = net.shape[1] - 1 - net[:, ::-1].argmax(axis=1)  # the most arms among equals
        limits = np.concatenate([[-np.inf], self.edges * price])[last]
        return LevelStops(self.levels, np.minimum.accumulate(limits))


# -- the search for prices --------------------------------------------------------------------------------------------


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
        NotApplicable: the welfare has another structure.
        OutOfDomain: the welfare needs positive values, and the budget does not suffice for all arms.
        ClusterError: workers cannot be reached or die repeatedly.
        NotConverged: the gap did not close.
    """
    if not 0 < tolerance < 1:
        raise InvalidInput(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    rows = len(source.row_counts)
    check_memory(120.0 * rows, f"the values and weights of {rows} rows", "Use rows that stand for several arms.")
    number = int(source.row_counts.sum())
    objective = as_welfare(welfare, number)
    kind = _search_of(objective, number, len(source.budget))
    cuts = [*range(0, rows, block_rows), rows]
    with Pool(backend) as pool:
        builders = [
            _Builder(source.row_reader(start, stop), source.budget, source.criterion, rows)
            for start, stop in pairwise(cuts)
        ]
        blocks = pool.blocks(builders)
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
    raise NotApplicable(
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
        self._numbers, self._grid = 0, None
        if isinstance(welfare, RankWeighted):
            welfare.check_num_arms(self.num_arms)

    def run(self) -> BlockSolution:
        """Search."""
        return self.by_cuts()

    @property
    def single(self) -> bool:
        """Whether there is one resource."""
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
        return np.sum(self.blocks.map(Block.total, mixture), axis=0)

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
        size = max(64, -(-8 * NUM_LEVELS // len(self.blocks)))
        return self.blocks.map(Block.sample, prices, size)

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
            raise NotConverged(
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

    def out_of_reach(self) -> InvalidInput:
        """The error if no point of the domain is within the budget."""
        return OutOfDomain(
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
            raise OutOfDomain(
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
        """Raise OutOfDomain if the budget cannot bring every arm to a positive value."""
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
