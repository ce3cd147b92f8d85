"""What a shard keeps, and the questions it answers.

A shard has blocks of arms, their frontiers at the prices asked last (with one resource they are all alike, and traced
once), and the values of a few answers. All of it is memory that can be lost: every question says all it takes.

    question      up (numbers)              down (numbers)
    survey        1                         a sample of values and slopes
    costs         levels and bins           how many arms cost how much at each level
    totals        a mixture of rules        its use and value, summed exactly: O(resources)
    binned        a mixture, edges of bins  the same, and how many arms have which values: O(bins)
    picked        a mixture, some bins      the values in them
    utilities     a mixture                 the use, and the sum of utilities, exactly: O(resources)
    extremes      a mixture                 the least and the largest value
    worst         a rule and a level        what it costs to raise those at the level: O(1)
    values        a mixture of rules        8 bytes an arm
    marginals     a rule                    16 bytes an arm
    bound         weights, 8 bytes an arm   the certificate's sum, exactly: O(1)
                  or how they are found
    weights       how they are found        8 bytes an arm
    settled       a mixture of rules        8 bytes an arm, and the use, summed exactly
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from evenhand.kernels.exact_sums import Exact, added, exact_sum, exact_sums
from evenhand.model.coupled import MOST_USES
from evenhand.solvers.fluid.frontiers import FluidModel, Frontiers
from evenhand.solvers.fluid.price_response import follow, in_domain, power_gradient, power_utility
from evenhand.solvers.sharded.stops import Mixture, Rule
from evenhand.typing import Bools, Floats, Ints

ONE = np.ones(1, dtype=np.int64)
"""How many arms each row stands for, where that is one."""

REMEMBERED = 24
"""Answers whose values a shard keeps."""


class Survey(NamedTuple):
    """A few numbers of each block."""

    values: Floats
    """Some values of vertices; all where there are few."""

    slopes: Floats
    """Some slopes of edges; all where there are few."""

    whole: bool
    """Whether these are all."""

    largest: float
    """The largest absolute value."""

    most: float
    """What no policy's value is beyond, at any prices and with either sign."""


class Binned(NamedTuple):
    """How many arms have which values, by bins of value."""

    arms: Ints
    """(bin,) how many arms."""

    sums: Ints
    """(bin,) the sum of their values, each rounded to a whole number of steps."""

    least: Floats
    """(bin,) the least value; infinity where there is none."""

    most: Floats
    """(bin,) the largest value; minus infinity where there is none."""

    def plus(self, other: "Binned") -> "Binned":
        """Both together.

        Args:
            other: in the same bins.
        """
        arms, sums = self.arms + other.arms, self.sums + other.sums
        return Binned(arms, sums, np.minimum(self.least, other.least), np.maximum(self.most, other.most))


class Picked(NamedTuple):
    """Some rows."""

    values: Floats
    """(row,) their values."""

    arms: Ints | None
    """(row,) how many arms each stands for; None where each stands for one."""


class Weighing(Protocol):
    """How shards find the weights of their arms by themselves."""

    def __call__(self, shard: "Shard", rule: Rule) -> Floats:
        """(arm,) the weights at an answer."""
        ...


@dataclass(frozen=True)
class Alike:
    """The mean: one weight for all."""

    weight: float

    def __call__(self, shard: "Shard", rule: Rule) -> Floats:
        """(arm,) the weight."""
        return np.full(len(shard), self.weight)


@dataclass(frozen=True)
class Gradient:
    """A power mean: its gradient."""

    alpha: float
    welfare: float
    num_arms: int

    def __call__(self, shard: "Shard", rule: Rule) -> Floats:
        """(arm,) the gradient at the values of the rule."""
        return power_gradient(shard.follow(rule), self.alpha, self.welfare, self.num_arms)


@dataclass(frozen=True)
class CostOfMore:
    """Leximin: for those at the lowest level the cost of one more unit of value, for others nothing."""

    level: float
    price: float

    def __call__(self, shard: "Shard", rule: Rule) -> Floats:
        """(arm,) the costs."""
        above = marginals(shard, rule)[1]
        return np.where(shard.follow(rule) <= self.level, above * self.price, 0.0)


@dataclass(eq=False)
class Shard:
    """Blocks of arms."""

    blocks: list[FluidModel]
    traced: dict[bytes, list[Frontiers]] = field(default_factory=dict)
    remembered: dict[int, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many rows."""
        return sum(map(len, self.blocks))

    @property
    def counts(self) -> Ints:
        """(row,) how many arms each stands for."""
        return np.concatenate([block.counts for block in self.blocks])

    def frontiers(self, prices: Floats) -> list[Frontiers]:
        """The frontiers of all blocks at some prices."""
        if len(prices) == 1:
            unit = self._traced(np.ones(1))
            return [part.at_price(float(prices[0])) for part in unit] if prices[0] != 1 else unit
        return self._traced(prices)

    def _traced(self, prices: Floats) -> list[Frontiers]:
        key = prices.tobytes()
        if key not in self.traced:
            self.traced.clear()  # before, so that two are never in memory
            self.traced[key] = [block.trace(prices) for block in self.blocks]
        return self.traced[key]

    def follow(self, rule: Rule) -> Floats:
        """(arm,) the values of a rule."""
        if rule.number in self.remembered:
            return self.remembered[rule.number]
        parts = self.frontiers(rule.prices)
        values = np.concatenate([follow(part, rule.stop(part.slopes)) for part in parts])
        if rule.number:
            if len(self.remembered) >= REMEMBERED:
                del self.remembered[min(self.remembered)]
            self.remembered[rule.number] = values
        return values

    def mix(self, mixture: Mixture) -> Floats:
        """(arm,) the values of a mixture."""
        (share, rule), *others = mixture
        if share == 1 and not others:
            return self.follow(rule)
        return np.asarray(sum(share * self.follow(rule) for share, rule in mixture))

    def by_block(self, rows: Floats) -> list[Floats]:
        """Numbers of all arms, block by block."""
        return np.split(rows, np.cumsum([len(block) for block in self.blocks])[:-1])


def _spread(numbers: Floats, most: int) -> Floats:
    """Evenly spaced order statistics of the different numbers, with the least and the largest."""
    different = np.unique(numbers)
    if len(different) <= most:
        return different
    return different[np.linspace(0, len(different) - 1, most).astype(np.int64)]


def survey(shard: Shard, prices: Floats, most: int) -> list[Survey]:
    """(block,) a sample of the frontiers of each block.

    Args:
        shard: the shard.
        prices: (resource,) the prices.
        most: how many numbers of each kind.
    """
    found = []
    for block, part in zip(shard.blocks, shard.frontiers(prices), strict=True):
        slopes = part.slopes[np.isfinite(part.slopes)]
        values, steep = _spread(part.values, most), _spread(slopes, most)
        few = len(part.values) <= most
        reward = float(np.abs(block.types.rewards).max())
        found.append(Survey(values, steep, few, float(np.abs(part.values).max()), reward * block.criterion.total))
    return found


def costs(shard: Shard, prices: Floats, levels: Floats, edges: Floats) -> tuple[Ints, Ints]:
    """How many arms have a level for nothing, and how many could be raised to it at a marginal cost in each bin.

    Args:
        shard: the shard.
        prices: (resource,) the prices.
        levels: (level,) values, rising.
        edges: (bin,) the largest slope of each bin, rising.

    Returns:
        (level + 1,) how many arms' free value lies before each level, and (bin, level + 1) by how many more arms have a
        marginal cost in the bin than at the level before.
    """
    wide = len(levels) + 1
    free, table = np.zeros(wide), np.zeros(len(edges) * wide)
    for block, part in zip(shard.blocks, shard.frontiers(prices), strict=True):
        begins = np.flatnonzero(np.isfinite(part.slopes))
        arms = block.counts[part.owner[begins]]
        row = np.searchsorted(edges, part.slopes[begins], side="left") * wide
        for values, sign in ((part.values[begins], 1.0), (part.values[begins + 1], -1.0)):
            place = row + np.searchsorted(levels, values, side="right")
            table += sign * np.bincount(place, weights=arms, minlength=len(table))
        place = np.searchsorted(levels, part.values[part.first], side="right")
        free += np.bincount(place, weights=block.counts, minlength=wide)
    return free.astype(np.int64), table.reshape(len(edges), wide).astype(np.int64)


def totals(shard: Shard, mixture: Mixture) -> Exact:
    """(resource + 1,) the use and the value of all arms in a mixture, summed exactly.

    Args:
        shard: the shard.
        mixture: of rules; with several resources one rule.
    """
    return _totals(shard, mixture, shard.mix(mixture))


def values(shard: Shard, mixture: Mixture) -> tuple[Floats, Exact]:
    """(arm,) the values of a mixture, and the totals of it.

    Args:
        shard: the shard.
        mixture: of rules; with several resources one rule, or the totals are none.
    """
    mixed = shard.mix(mixture)
    return mixed, _totals_if_one(shard, mixture, mixed)


def binned(shard: Shard, mixture: Mixture, edges: Floats, step: float) -> tuple[Binned, Exact]:
    """The values of a mixture, counted in bins, and the totals of it.

    Args:
        shard: the shard.
        mixture: of rules; with several resources one rule, or the totals are none.
        edges: (edge,) values between bins, rising; a value that is an edge is in the bin above it.
        step: the unit in which values are summed, a power of two.
    """
    mixed = shard.mix(mixture)
    return bins_of(mixed, shard.counts, edges, step), _totals_if_one(shard, mixture, mixed)


def bins_of(values: Floats, counts: Ints, edges: Floats, step: float) -> Binned:
    """Values, counted in bins.

    Args:
        values: (row,) values.
        counts: (row,) how many arms have each.
        edges: (edge,) values between bins, rising; a value that is an edge is in the bin above it.
        step: the unit in which values are summed, a power of two.
    """
    ascending, arms = _ascending(values, counts)
    ends = np.concatenate([[0], np.searchsorted(ascending, edges, side="left"), [len(values)]])
    steps = np.cumsum(np.rint(ascending / step).astype(np.int64) * arms)
    sums = np.diff(np.concatenate([[0], steps])[ends])
    number = np.diff(ends if arms is ONE else np.concatenate([[0], np.cumsum(arms)])[ends])
    filled = np.diff(ends) > 0
    least, most = np.full(len(filled), np.inf), np.full(len(filled), -np.inf)
    least[filled], most[filled] = ascending[ends[:-1][filled]], ascending[ends[1:][filled] - 1]
    return Binned(number, sums, least, most)


def _ascending(values: Floats, counts: Ints) -> tuple[Floats, Ints]:
    """Sorted values, and how many arms have each: ONE where all are one's."""
    if (counts == 1).all():
        return np.sort(values), ONE
    order = np.argsort(values)
    return values[order], counts[order]


def picked(shard: Shard, mixture: Mixture, edges: Floats, chosen: Bools) -> Picked:
    """The values of a mixture in some bins, in the order of the rows.

    Args:
        shard: the shard.
        mixture: of rules.
        edges: (edge,) values between bins, rising.
        chosen: (bin,) which bins.
    """
    return pick(shard.mix(mixture), shard.counts, edges, chosen)


def pick(values: Floats, counts: Ints, edges: Floats, chosen: Bools) -> Picked:
    """The values in some bins, in the order of the rows.

    Args:
        values: (row,) values.
        counts: (row,) how many arms have each.
        edges: (edge,) values between bins, rising.
        chosen: (bin,) which bins.
    """
    mine = chosen[np.searchsorted(edges, values, side="right")]
    return Picked(values[mine], None if (counts == 1).all() else counts[mine])


def utilities(shard: Shard, mixture: Mixture, alpha: float, reference: float) -> tuple[Exact | None, Exact]:
    """(1,) the sum of the utilities of all arms under a power mean, None outside of its domain; and the totals.

    Args:
        shard: the shard.
        mixture: of rules; with several resources one rule, or the totals are none.
        alpha: the aversion.
        reference: the value by which values are measured.
    """
    mixed = shard.mix(mixture)
    return utility_sum(mixed, shard.counts, alpha, reference), _totals_if_one(shard, mixture, mixed)


def utility_sum(values: Floats, counts: Ints, alpha: float, reference: float) -> Exact | None:
    """(1,) the sum of utilities under a power mean, exactly; None where a value is outside of its domain.

    Args:
        values: (row,) values.
        counts: (row,) how many arms have each.
        alpha: the aversion.
        reference: the value by which values are measured.
    """
    if not in_domain(values, alpha).all():
        return None
    each = counts * power_utility(values, alpha, reference)
    return (exact_sum(each),) if np.isfinite(each).all() else None


def extremes(shard: Shard, mixture: Mixture) -> tuple[float, float]:
    """The least and the largest value of a mixture.

    Args:
        shard: the shard.
        mixture: of rules.
    """
    mixed = shard.mix(mixture)
    return float(mixed.min()), float(mixed.max())


def worst(shard: Shard, rule: Rule, level: float) -> tuple[int, Exact]:
    """The first row at a level, at the most, that cannot be raised, -1 if all can; and what a unit for all costs.

    Args:
        shard: the shard.
        rule: an answer to prices.
        level: rows with more are left out.
    """
    above, mine = marginals(shard, rule)[1], shard.follow(rule) <= level
    stuck = np.flatnonzero(mine & np.isinf(above))
    if len(stuck):
        return int(stuck[0]), (0,)
    return -1, (exact_sum(shard.counts[mine] * above[mine]) if mine.any() else 0,)


def _totals_if_one(shard: Shard, mixture: Mixture, mixed: Floats) -> Exact:
    """The totals, unless several rules use several resources."""
    return () if len(mixture) > 1 and len(mixture[0][1].prices) > 1 else _totals(shard, mixture, mixed)


def _totals(shard: Shard, mixture: Mixture, mixed: Floats) -> Exact:
    sums = []
    parts = zip(shard.blocks, shard.frontiers(mixture[0][1].prices), shard.by_block(mixed), strict=True)
    for block, part, own in parts:
        columns = np.concatenate([part.use(own), own[:, None]], axis=1)
        sums.append(exact_sums(block.counts[:, None] * columns))
    return added(sums)


def marginals(shard: Shard, rule: Rule) -> tuple[Floats, Floats]:
    """(arm,) the cost of the last unit of value and of one more, at the values of a rule.

    Args:
        shard: the shard.
        rule: an answer to prices.
    """
    own = shard.by_block(shard.follow(rule))
    pairs = [part.marginal(at) for part, at in zip(shard.frontiers(rule.prices), own, strict=True)]
    below, above = zip(*pairs, strict=True)
    return np.concatenate(below), np.concatenate(above)


def weights(shard: Shard, rule: Rule, weighing: Weighing) -> tuple[Floats, Exact]:
    """(arm,) the weights of an answer, and nothing to add up.

    Args:
        shard: the shard.
        rule: the answer.
        weighing: how they are found.
    """
    return weighing(shard, rule), ()


def bound(shard: Shard, rule: Rule, prices: Floats, weighed: Floats | Weighing) -> Exact:
    """(1,) the sum of the bounds of all arms at prices and weights, exactly.

    Args:
        shard: the shard.
        rule: an answer near which the best policies are.
        prices: (resource,) prices of welfare.
        weighed: (arm,) what a unit of value of each arm is worth; or how that is found.
    """
    heavy = weighed if isinstance(weighed, np.ndarray) else weighed(shard, rule)
    at, sums = shard.by_block(shard.follow(rule)), 0
    parts = zip(shard.blocks, shard.frontiers(rule.prices), at, shard.by_block(heavy), strict=True)
    for block, part, own, of in parts:
        policies = None if part.policies is None else part.policies[part.locate(own)[0]]
        sums += exact_sum(block.counts * block.bounds(of, prices, policies)[0])
    return (sums,)


def settled(shard: Shard, mixture: Mixture, excess: float) -> tuple[Floats, Exact]:
    """(arm,) the values of occupancy measures, computed anew from them, and their use, summed exactly.

    Args:
        shard: the shard.
        mixture: of rules: on the frontiers, with one resource; else of their measures.
        excess: the share that is given up for what costs nothing.
    """
    measures = _measures(shard, mixture)
    found, sums = [], []
    nothing = shard.frontiers(_unit(shard)) if excess > 0 else [None] * len(shard.blocks)
    for block, measure, free in zip(shard.blocks, measures, nothing, strict=True):
        kept = measure
        if free is not None:
            kept = (1 - excess) * measure + excess * block.occupancy_at(free, free.values[free.first])
        value, use = block.totals(kept)
        found.append(value)
        sums.append(exact_sums(block.counts[:, None] * use))
    return np.concatenate(found), added(sums)


def uses(shard: Shard) -> list[Floats]:
    """The different uses of each resource, of actions that may be chosen; not all if they are too many for a step.

    Args:
        shard: the shard.
    """
    chosen = [block.types.usage[block.allowed] for block in shard.blocks]
    every = [np.unique(np.concatenate([use[:, k] for use in chosen])) for k in range(chosen[0].shape[1])]
    return [own[: MOST_USES + 1] for own in every]


def free_use(shard: Shard) -> Exact:
    """(resource,) the use of what costs nothing, summed exactly.

    Args:
        shard: the shard.
    """
    sums = []
    for block, part in zip(shard.blocks, shard.frontiers(_unit(shard)), strict=True):
        use = block.totals(block.occupancy_at(part, part.values[part.first]))[1]
        sums.append(exact_sums(block.counts[:, None] * use))
    return added(sums)


def _unit(shard: Shard) -> Floats:
    """(resource,) prices at which all resources cost something."""
    allowance = shard.blocks[0].allowance
    return np.ones(1) if len(allowance) == 1 else 1 / np.where(allowance > 0, allowance, 1.0)


def _measures(shard: Shard, mixture: Mixture) -> list[Floats]:
    if len(mixture[0][1].prices) == 1:
        at = shard.by_block(shard.mix(mixture))
        parts = zip(shard.blocks, shard.frontiers(np.ones(1)), at, strict=True)
        return [block.occupancy_at(part, own) for block, part, own in parts]
    sums: list[Floats] | None = None
    for share, rule in mixture:
        at = shard.by_block(shard.follow(rule))
        parts = zip(shard.blocks, shard.frontiers(rule.prices), at, strict=True)
        more = [share * block.occupancy_at(part, own) for block, part, own in parts]
        sums = more if sums is None else [old + new for old, new in zip(sums, more, strict=True)]
    assert sums is not None
    return sums
