"""Ranks of all rows, with little memory and little on the wire.

**A round** needs the welfare of an answer to a small part of the tolerance. Shards count their values in bins of value
and tell for each how many arms it has, the sum of their values in whole steps, the least and the largest. A bin of m
arms whose rank weights lie within dw of each other and values within dv then adds to the welfare its mass of rank
weights times its mean value, but for at most m dw dv / 4 (Gruess). Where that is too much, the values of the bin are
brought together and sorted. All that is added up is whole numbers or is sorted first, so that neither the shards nor
the order of their answers matter.

**The end** needs it exactly, and the weights of a proof. Both take the values of all rows, 8 bytes each:

    welfare    a sorted copy, walked in runs                                                         16 bytes a row
    weights    the order; then, in place of the values, the even weight of every row or its level    16
               marginal costs from below and above; the common weight of each level                  24
               the order of the weights; blocks of the projection                                    16 and few more

Where rows stand for several arms, 8 more; where most rows have a twin to the last bit, up to 20 more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from evenhand.kernels import runs
from evenhand.model.welfare import RankWeighted
from evenhand.solvers.fluid.price_response import HALVINGS
from evenhand.solvers.permutahedron import project_in_runs
from evenhand.solvers.sharded.rows import RowCounts
from evenhand.solvers.sharded.shard import Binned, Picked, Survey
from evenhand.typing import Bools, Floats, Ints

NUM_BINS = 4096
"""Bins of value, at the most."""

FEW = 1 << 16
"""Arms whose values are all brought together, as they cost nothing: then nothing is wrong but for rounding."""

ALLOWED = 1e-2
"""How far the welfare of a round may be wrong, as a part of the tolerance."""

UNDECIDED = 16
"""The common weights of levels are sought among all rows until only one in so many matters any more."""


# A round: welfare from bins


def choose_edges(surveys: Sequence[Survey]) -> Floats:
    """(edge,) values between bins, with about equally many of the sampled vertices between them.

    Args:
        surveys: (block,) samples, in the order of the blocks.
    """
    ordered = np.sort(np.concatenate([survey.values for survey in surveys]))
    return np.unique(ordered[np.linspace(0, len(ordered) - 1, min(NUM_BINS, len(ordered))).astype(np.int64)])


def step_for(largest: float, num_arms: int) -> float:
    """A power of two: in whole numbers of it, the values of so many arms are summed within 63 bits.

    Args:
        largest: no value is larger, with either sign.
        num_arms: how many arms there are.
    """
    return float(2.0 ** (np.frexp(largest)[1] + num_arms.bit_length() - 61))


@dataclass(frozen=True, eq=False)
class Sketch:
    """What bins tell of the welfare."""

    worst: float
    """The least value."""

    filled: Ints
    """(part,) the bins that are not empty."""

    first: Ints
    """(part,) how many arms come before each."""

    arms: Ints
    """(part,) how many each has."""

    gains: Floats
    """(part,) what each adds to the worst value, nearly."""

    errors: Floats
    """(part,) by how much that may be wrong."""

    @classmethod
    def of(cls, welfare: RankWeighted, bins: Binned, step: float) -> "Sketch":
        """From bins.

        Args:
            welfare: gives the rank weights.
            bins: of all shards.
            step: the unit of their sums.
        """
        filled = np.flatnonzero(bins.arms)
        arms, least, most = bins.arms[filled], bins.least[filled], bins.most[filled]
        last, number = np.cumsum(arms), int(bins.arms.sum())
        first, worst = last - arms, float(least[0])
        means = np.where(least == most, least, bins.sums[filled] / arms * step)
        heavy = welfare.rank_mass(first, first + 1, number) - welfare.rank_mass(last - 1, last, number)
        gains = welfare.rank_mass(first, last, number) * (means - worst)
        return cls(worst, filled, first, arms, gains, np.maximum(heavy, 0.0) * arms * (most - least) / 4)

    @property
    def welfare(self) -> float:
        """The welfare, nearly."""
        return self.worst + float(self.gains.sum())

    def unsure(self, allowed: float) -> Ints:
        """(chosen part,) those to look at more closely: all where they are few, else as many as it takes.

        Args:
            allowed: how far the welfare may be wrong.
        """
        by_error = np.argsort(-self.errors, kind="stable")
        by_error = by_error[self.errors[by_error] > 0]
        falling = self.errors[by_error]
        left = falling.sum() - np.cumsum(falling)
        needed = 0 if falling.sum() <= allowed else int(np.argmax(left <= allowed)) + 1
        return np.sort(by_error if self.arms[by_error].sum() <= FEW else by_error[:needed])

    def settled(self, welfare: RankWeighted, chosen: Ints, edges: Floats, values: Floats, arms: Ints | None) -> float:
        """The welfare, with some bins by their values.

        Args:
            welfare: gives the rank weights.
            chosen: (chosen part,) those that were looked at.
            edges: (edge,) between the bins.
            values: (row,) their values, in the order of the rows; in any other afterwards.
            arms: (row,) how many arms have each; None where each is one's.
        """
        shift = self.first[chosen] - (np.cumsum(self.arms[chosen]) - self.arms[chosen])
        order = None if arms is None else np.argsort(values, kind="stable")
        if order is None:
            values.sort()
        seen, number, sums = 0, int(self.arms.sum()), [float(np.delete(self.gains, chosen).sum())]
        for ranks in runs.pieces(slice(0, len(values))):
            own = values[ranks] if order is None else values[order[ranks]]
            many = np.ones(len(own), dtype=np.int64) if order is None or arms is None else arms[order[ranks]]
            part = np.searchsorted(self.filled, np.searchsorted(edges, own, side="right"))
            last = seen + np.cumsum(many) + shift[np.searchsorted(chosen, part)]
            seen += int(many.sum())
            sums.append(float((welfare.rank_mass(last - many, last, number) * (own - self.worst)).sum()))
        return self.worst + fsum(sums)


def joined(picked: Sequence[Picked]) -> tuple[Floats, Ints | None]:
    """(row,) the values that were picked, and how many arms have each; None where each is one's.

    Args:
        picked: (shard,) in the order of the shards.
    """
    values = np.concatenate([part.values for part in picked])
    if all(part.arms is None for part in picked):
        return values, None
    ones = (np.ones(len(part.values), dtype=np.int64) if part.arms is None else part.arms for part in picked)
    return values, np.concatenate(list(ones))


# The end: welfare of values


def welfare_of(welfare: RankWeighted, values: Floats, counts: RowCounts) -> float:
    """The welfare of the values of all rows, with a sorted copy of them or their order beside them.

    Args:
        welfare: gives the rank weights.
        values: (row,) values.
        counts: how many arms each row stands for.
    """
    found = _alone(welfare, np.sort(values)) if counts.single else _weighed(welfare, values, counts)
    return float(found)


def _alone(welfare: RankWeighted, ascending: Floats) -> float:
    worst, parts, least = float(ascending[0]), [], np.inf
    for ranks in runs.pieces(slice(0, len(ascending))):
        below = np.arange(ranks.start, ranks.stop)
        # As `rank_weights`: almost equal weights must not come out rising.
        masses = np.minimum(np.minimum.accumulate(welfare.rank_mass(below, below + 1, len(ascending))), least)
        least = float(masses[-1])
        parts.append(float(((ascending[ranks] - worst) * masses).sum()))
    return worst + fsum(parts)


def _weighed(welfare: RankWeighted, values: Floats, counts: RowCounts) -> float:
    order = np.argsort(values, kind="stable")
    worst, parts, seen = float(values[order[0]]), [], 0
    for ranks in runs.pieces(slice(0, len(order))):
        rows = order[ranks]
        last = seen + np.cumsum(counts[rows])
        masses = welfare.rank_mass(np.concatenate([[seen], last[:-1]]), last, counts.num_arms)
        parts.append(float(((values[rows] - worst) * masses).sum()))
        seen = int(last[-1])
    return worst + fsum(parts)


# The proof: weights in the permutahedron


@dataclass(frozen=True, eq=False)
class Levels:
    """Values as levels: which rows are alone on theirs, and the levels that are shared."""

    rows: Floats
    """(row,) the even weight of a row that is alone; -1 - level of one that shares its level."""

    masses: Floats
    """(level,) the rank weights of the arms of each shared level together."""

    @classmethod
    def of(cls, welfare: RankWeighted, values: Floats, counts: RowCounts) -> "Levels":
        """From values, in the place of which the rows are written.

        Args:
            welfare: gives the rank weights.
            values: (row,) values; gone afterwards.
            counts: how many arms each row stands for.
        """
        # Exact equality is meant: arms of one level were given the very same number.
        order = np.argsort(values)
        seen, masses, number = 0, [np.zeros(0)], 0
        for ranks, tied in runs.tied_runs(values, order):
            if tied and ranks.stop - ranks.start > 1:
                arms = sum(int(counts[order[piece]].sum()) for piece in runs.pieces(ranks))
                mass = welfare.rank_mass(np.array([seen]), np.array([seen + arms]), counts.num_arms)
                for piece in runs.pieces(ranks):
                    values[order[piece]] = -1.0 - number
                seen, number = seen + arms, number + 1
            else:
                rows = order[ranks]
                codes, mass, seen = _codes(welfare, values[rows], counts[rows], seen, counts.num_arms, number)
                values[rows] = codes
                number += len(mass)
            masses.append(mass)
        return cls(values, np.concatenate(masses))

    def shared_in(self, rows: slice) -> tuple[Ints, Ints]:
        """(chosen row,) which of some rows share a level, within the slice, and which level."""
        mine = np.flatnonzero(self.rows[rows] < 0)
        return mine, (-1 - self.rows[rows][mine]).astype(np.int64)


def _codes(
    welfare: RankWeighted, ascending: Floats, arms: Ints, seen: int, num_arms: int, number: int
) -> tuple[Floats, Floats, int]:
    """(rank,) even weights or numbers of levels, (level,) masses of shared ones, and the arms up to here."""
    heads = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    sizes, rows = np.add.reduceat(arms, heads), np.diff(np.append(heads, len(ascending)))
    last = seen + np.cumsum(sizes)
    mass = welfare.rank_mass(last - sizes, last, num_arms)
    shared = rows > 1
    codes = np.where(shared, -1.0 - (number + np.cumsum(shared) - 1), mass / sizes)
    return np.repeat(codes, rows), mass[shared], int(last[-1])


def weights_of(welfare: RankWeighted, levels: Levels, below: Floats, above: Floats, counts: RowCounts) -> Floats:
    """(row,) weights in the permutahedron, each between two marginal costs as far as it can be; see `levels`.

    Args:
        welfare: gives the rank weights.
        levels: of the values; gone afterwards.
        below: (row,) the cost of the last unit of value; gone afterwards.
        above: (row,) the cost of one more.
        counts: how many arms each row stands for.
    """
    common = _common_weights(levels, below, above, counts)
    weights = levels.rows
    for part in runs.pieces(slice(0, len(weights))):
        mine, level = levels.shared_in(part)
        even, low, high = weights[part], below[part], above[part]
        even[mine] = np.clip(common[level], low[mine], np.minimum(high[mine], levels.masses[level]))
        even[:] = np.minimum(np.maximum(even, low), high)
    return weights


@dataclass(frozen=True, eq=False)
class _Shared:
    """Some rows that share levels."""

    level: Ints
    low: Floats
    high: Floats
    arms: Ints

    def plus(self, chosen: Bools) -> "_Shared":
        return _Shared(self.level[chosen], self.low[chosen], self.high[chosen], self.arms[chosen])


def _common_weights(levels: Levels, below: Floats, above: Floats, counts: RowCounts) -> Floats:
    """(level,) the weight omega at which min(max(omega, below), above) of its arms sum to the mass of the level.

    By bisection of all levels at once. A row whose costs both lie outside of what is left of the interval adds a
    constant, one whose costs enclose it adds omega: when few others are left, only they are looked at.
    """
    mass = levels.masses
    left, right = np.zeros(len(mass)), mass.copy()
    fixed, slope = np.zeros(len(mass)), np.zeros(len(mass))
    few: _Shared | None = None
    for halving in range(HALVINGS if len(mass) else 0):
        if few is None and halving % 6 == 5:
            fixed, slope, few = _decided(levels, below, above, counts, left, right)
        middle = (left + right) / 2
        parts = _all_shared(levels, below, above, counts) if few is None else [few]
        sums = fixed + slope * middle
        for part in parts:
            own = part.arms * np.clip(middle[part.level], part.low, part.high)
            sums += np.bincount(part.level, weights=own, minlength=len(mass))
        left, right = np.where(sums < mass, middle, left), np.where(sums < mass, right, middle)
    return right


def _all_shared(levels: Levels, below: Floats, above: Floats, counts: RowCounts) -> Iterable[_Shared]:
    for part in runs.pieces(slice(0, len(below))):
        mine, level = levels.shared_in(part)
        if len(mine):
            yield _Shared(level, below[part][mine], above[part][mine], counts[part][mine])


def _decided(
    levels: Levels, below: Floats, above: Floats, counts: RowCounts, left: Floats, right: Floats
) -> tuple[Floats, Floats, _Shared | None]:
    """(level,) what decided rows add, constant and by omega, and the rows that are not; nothing, if they are many."""
    number = len(left)
    fixed, slope, found, many = np.zeros(number), np.zeros(number), [], 0
    for part in _all_shared(levels, below, above, counts):
        least, most = left[part.level], right[part.level]
        under, over = part.high <= least, part.low >= most
        through = ~under & ~over & (part.low <= least) & (part.high >= most)
        constant = np.where(under, part.high, part.low) * part.arms
        fixed += np.bincount(part.level, weights=np.where(under | over, constant, 0.0), minlength=number)
        slope += np.bincount(part.level, weights=np.where(through, part.arms, 0), minlength=number)
        open_ = ~under & ~over & ~through
        many += int(open_.sum())
        if many > max(len(below) // UNDECIDED, runs.RUN):
            return np.zeros(number), np.zeros(number), None
        found.append(part.plus(open_))
    return fixed, slope, _joined(found)


def _joined(parts: Sequence[_Shared]) -> _Shared:
    level, low, high, arms = (
        np.concatenate(column) for column in zip(*((p.level, p.low, p.high, p.arms) for p in parts), strict=True)
    )
    return _Shared(level, low, high, arms)


def projected(welfare: RankWeighted, weights: Floats, counts: RowCounts) -> Floats:
    """(row,) the nearest weights in the permutahedron, in the place of those given.

    The bisection leaves a rounding error, and costs of coarse levels more; only an exact member of the permutahedron
    proves W(u) <= g.u.

    Args:
        welfare: gives the rank weights.
        weights: (row,) any numbers; gone afterwards.
        counts: how many arms each row stands for.
    """
    return project_in_runs(weights, counts.__getitem__, welfare, counts.num_arms)
