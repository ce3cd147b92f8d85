"""Blocks of arms in the fair fluid relaxation, for more arms than one process can treat.

`fair_relaxation` has the mathematics, and `dual_search` the search for prices. In memory there is one block.

A block is BLOCK rows of the model by their position. It belongs to one worker, which holds the frontiers of its arms,
and is a pure function of its arms and a *rule*: at prices lambda an arm follows the edges of its frontier up to a stop,
and stops fall as slopes s rise (`price_response.follow`),

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

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evenhand.model.arm import MOST_USES
from evenhand.model.criterion import Criterion
from evenhand.parallel import Blocks
from evenhand.solvers.fluid.frontiers import FluidModel, Frontiers
from evenhand.solvers.fluid.price_response import LevelStops, in_domain, power_utility
from evenhand.solvers.single_arm import check_communicating
from evenhand.typing import Floats, Ints

if TYPE_CHECKING:
    from evenhand.model.parquet.rows import RowRange

BLOCK = 1 << 16
"""Rows per block; results depend on it by rounding only."""

NUM_LEVELS = 2048
"""Largest number of levels of the grid; it has half as many bins of marginal costs."""

CACHED_RULES = 24
"""Responses whose values a block caches."""


@dataclass(frozen=True, eq=False)
class BlockBuilder:
    """Builds a block where it will stay."""

    reader: "RowRange"
    budget: Floats
    criterion: Criterion

    def __call__(self) -> "Block":
        """Read the rows and build the block, without padding that none of the arms needs."""
        rows = self.reader()
        types = rows.tables.tidied().within(self.budget)
        model = FluidModel(types, rows.counts, self.budget, self.criterion, types.initial)
        check_communicating(types, model.types.valid, self.criterion)
        return Block(model)


# -- rules ------------------------------------------------------------------------------------------------------------

Response = Callable[[Frontiers], Floats]
"""(member,) values of the best response on frontiers, whose slopes are marginal costs (`price_response`)."""


class Rule(NamedTuple):
    """A response to prices."""

    prices: Floats
    """(resource,) prices."""

    response: Response
    """Values on the frontiers at these prices."""

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


class Block:
    """Some arms, their frontiers at the last prices, and the values of some responses; all but the arms is a cache."""

    def __init__(self, model: FluidModel, num_cached: int = CACHED_RULES, is_whole: bool = False) -> None:
        """Begin without a cache.

        Args:
            model: the arms.
            num_cached: responses whose values are cached.
            is_whole: whether these are all arms: their last measures, which are part of the solution, are cached.
        """
        self.model, self.num_cached, self.is_whole = model, num_cached, is_whole
        self._measured: list[tuple[Mixture, Floats]] = []
        self._traced: dict[bytes, Frontiers] = {}
        self._values: dict[int, Floats] = {}
        self._totals: dict[tuple[tuple[float, int], ...], Floats] = {}

    def traced(self, prices: Floats) -> Frontiers:
        """Frontiers at some prices; with one resource at a price of 1, which differ by a factor of their slopes."""
        base = np.ones(1) if len(prices) == 1 else prices
        key = base.tobytes()
        if key not in self._traced:
            self._traced.clear()  # first, so that two are never in memory
            self._traced[key] = self.model.trace(base)
        return self._traced[key]

    def frontiers(self, prices: Floats) -> Frontiers:
        """Frontiers at some prices."""
        found = self.traced(prices)
        return found.at_price(float(prices[0])) if len(prices) == 1 and prices[0] != 1 else found

    def follow(self, rule: Rule) -> Floats:
        """(member,) values of a response."""
        if rule.number in self._values:
            return self._values[rule.number]
        values = rule.response(self.frontiers(rule.prices))
        if rule.number:
            if len(self._values) >= self.num_cached:
                del self._values[min(self._values)]
            self._values[rule.number] = values
        return values

    def values(self, mixture: Mixture) -> Floats:
        """(member,) values of a mixture."""
        if len(mixture) == 1:
            return self.follow(mixture[0][1])
        return np.asarray(sum(share * self.follow(rule) for share, rule in mixture))

    def total(self, mixture: Mixture) -> Floats:
        """(resource + 1,) use and value of all members in a mixture; with several resources, of one rule."""
        key = tuple((share, rule.number) for share, rule in mixture)
        if not all(number for _, number in key) or key not in self._totals:
            values = self.values(mixture)
            use = self.traced(mixture[0][1].prices).use(values)
            self._totals[key] = np.append(self.model.sizes @ use, self.model.sizes @ values)
        return self._totals[key]

    def utility(self, mixture: Mixture, alpha: float, reference: float) -> float:
        """Sum of the utilities of a power mean; minus infinity outside its domain."""
        values = self.values(mixture)
        if not in_domain(values, alpha).all():
            return -np.inf
        return float(self.model.sizes @ power_utility(values, alpha, reference))

    def marginals(self, rule: Rule) -> Floats:
        """(2, member) cost of the last unit of value, and of one more."""
        return np.stack(self.frontiers(rule.prices).marginal(self.follow(rule)))

    def bound(self, rule: Rule, prices: Floats, weights: Floats) -> tuple[float, Floats]:
        """Sum of the certified bounds of all arms at prices of welfare and weights, and (type,) prices of floors.

        Policies of the rule start policy iteration. Without floors there are no prices of them.
        """
        frontiers, model = self.frontiers(rule.prices), self.model
        start = None if frontiers.policies is None else frontiers.policies[frontiers.locate(self.follow(rule))[0]]
        best, floor_prices = model.bounds(model.weights_of_types(weights), prices, start)
        return float(model.counts @ best), floor_prices if model.floors is not None else np.zeros(0)

    def measure(self, mixture: Mixture) -> Floats:
        """(type, ...) occupancy measures of a mixture."""
        for known, measure in self._measured:
            if known is mixture:
                return measure
        if len(mixture[0][1].prices) == 1:
            found = self.model.occupancy_at(self.traced(np.ones(1)), self.values(mixture))
        else:  # frontiers of different prices cannot be mixed in values, but measures can
            parts = ((share, rule, self.frontiers(rule.prices)) for share, rule in mixture)
            found = np.asarray(sum(share * self.model.occupancy_at(at, self.follow(rule)) for share, rule, at in parts))
        if self.is_whole:  # the mixture that is found, and the free one that may make room for it
            self._measured = [*self._measured[-1:], (mixture, found)]
        return found

    def settled(self, mixture: Mixture) -> tuple[Floats, Floats]:
        """(member,) values and (resource,) use of the occupancy measures of a mixture."""
        values, use = self.model.totals(self.measure(mixture))
        return self.model.members(values), np.asarray(self.model.counts @ use)

    def largest(self, prices: Floats) -> float:
        """Largest absolute value of a vertex."""
        return float(np.abs(self.traced(prices).values).max())

    def uses(self) -> list[Floats]:
        """The different uses of each resource; not all of them if they are very many."""
        chosen = self.model.types.usage[self.model.types.valid]
        return [np.unique(column)[: MOST_USES + 1] for column in chosen.T]

    def sample(self, prices: Floats, size: int) -> Sample:
        """Evenly spaced order statistics of the values and slopes of the vertices."""
        frontiers = self.frontiers(prices)
        slopes = frontiers.slopes[np.isfinite(frontiers.slopes)]
        values = frontiers.values
        return Sample(_spaced(np.unique(values), size), _spaced(np.unique(slopes), size), len(values) <= size)

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
        cls, blocks: Blocks[Block], prices: Floats, mass: Callable[[Ints], Floats], num_levels: int = NUM_LEVELS
    ) -> "LevelGrid":
        """Choose levels and bins from samples, and let the blocks count.

        Args:
            blocks: the blocks.
            prices: (resource,) prices.
            mass: sum of the m smallest rank weights, for many m.
            num_levels: largest number of levels.
        """
        samples = blocks.map(Block.sample, prices, max(64, -(-8 * num_levels // len(blocks))))
        values, slopes = (np.unique(np.concatenate([sample[k] for sample in samples])) for k in (0, 1))
        levels, edges = _spaced(values, num_levels), _spaced(slopes if len(slopes) else np.zeros(1), num_levels // 2)
        exact = all(sample.complete for sample in samples) and len(values) + len(slopes) == len(levels) + len(edges)
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
