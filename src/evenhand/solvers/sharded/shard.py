"""What a shard keeps, and the questions it answers.

A shard has blocks of arms, their frontiers at the prices asked last (with one resource they are all alike, and traced
once), and the values of a few answers. All of it is memory that can be lost: every question says all it takes.

    question      up (numbers)          down (numbers)
    survey        1                     a sample of values and slopes
    costs         levels and bins       how many arms cost how much at each level
    totals        a mixture of rules    its use and value, summed exactly: O(resources)
    values        a mixture of rules    8 bytes an arm
    marginals     a rule                16 bytes an arm
    bound         weights, 8 an arm     the certificate's sum, exactly: O(1)
    settled       a mixture of rules    8 bytes an arm, and the use, summed exactly
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evenhand.kernels.exact_sums import Exact, added, exact_sum, exact_sums
from evenhand.solvers.frontiers import FluidModel, Frontiers
from evenhand.solvers.levels import follow
from evenhand.solvers.sharded.stops import Mixture, Rule
from evenhand.typing import Floats, Ints

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


@dataclass(eq=False)
class Shard:
    """Blocks of arms."""

    blocks: list[FluidModel]
    traced: dict[bytes, list[Frontiers]] = field(default_factory=dict)
    remembered: dict[int, Floats] = field(default_factory=dict)

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
    for part in shard.frontiers(prices):
        slopes = part.slopes[np.isfinite(part.slopes)]
        values, steep = _spread(part.values, most), _spread(slopes, most)
        few = len(part.values) <= most
        found.append(Survey(values, steep, few, float(np.abs(part.values).max())))
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
    return mixed, () if len(mixture) > 1 and len(mixture[0][1].prices) > 1 else _totals(shard, mixture, mixed)


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


def bound(shard: Shard, rule: Rule, prices: Floats, weights: Floats | float) -> Exact:
    """(1,) the sum of the bounds of all arms at prices and weights, exactly.

    Args:
        shard: the shard.
        rule: an answer near which the best policies are.
        prices: (resource,) prices of welfare.
        weights: (arm,) what a unit of value of each arm is worth; or one number for all.
    """
    heavy = np.full(sum(map(len, shard.blocks)), weights) if isinstance(weights, float) else weights
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
