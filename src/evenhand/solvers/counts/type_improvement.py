"""The maximum over all decisions, taken type by type (`kernels.boxes`).

Choosing walks down the tree of uses that fit together: at a type, for each use that the budget still allows, the axis
of its next counts becomes one of the outcomes of that use, and the types behind it are treated given these. Blocks of
outcomes are small enough for the processor's cache. Those of the first type are treated side by side, in
threads, and compared in their order, so that the answer does not depend on how many threads there are.

*Narrowed*, it knows only some pairs of each type: those that good policies were seen to take. They are a fifth or so,
and their outcomes a third of each type, so that a narrow maximum costs a small part of the full one. It is a lower
bound; the full maximum is taken where something is to be proved.
"""

from collections.abc import Iterator, Sequence
from math import prod
from types import ModuleType
from typing import NamedTuple

import numpy as np

from evenhand.kernels.boxes import Best, Pairs, Rows
from evenhand.parallel import in_order, num_threads
from evenhand.solvers.counts.outcomes import Moves
from evenhand.solvers.counts.type_plan import BLOCK
from evenhand.typing import Array, Bools, Floats, Ints

ALONE_BELOW = 5000
"""States below which one thread takes the maximum."""


class Side(NamedTuple):
    """One type, as the maximum needs it."""

    rows: Rows
    """The law of each outcome."""

    pairs: Pairs
    """The pairs of each outcome."""

    uses: Floats
    """(use, resource) what is used ..."""

    starts: Ints
    """(use + 1,) ... by the outcomes from here on."""

    numbers: Ints
    """(pair,) the number of each pair among all pairs of the type."""

    size: int
    """Points of the type."""


# -- what is known of a type ------------------------------------------------------------------------------------------


def whole_side(moves: Moves, rows: Rows) -> Side:
    """All pairs of a type.

    Args:
        moves: of the type.
        rows: the laws of its outcomes.
    """
    return Side(rows, moves.pairs, moves.uses, moves.starts, np.arange(len(moves.allocations)), moves.num_points)


def narrow_side(side: Side, known: Bools) -> Side:
    """Some pairs of a type.

    Args:
        side: all of them.
        known: (pair,) which.
    """
    pairs = np.flatnonzero(known)
    # Phase 1: the outcomes of the retained pairs, and where their pairs begin.
    outcome_of_pair = np.repeat(np.arange(len(side.pairs.starts) - 1), np.diff(side.pairs.starts))[pairs]
    outcomes, first = np.unique(outcome_of_pair, return_index=True)
    # Phase 2: the entries of their laws, row after row.
    lengths = np.diff(side.rows.starts)[outcomes]
    ends = np.cumsum(lengths)
    entries = np.arange(int(ends[-1])) + np.repeat(side.rows.starts[outcomes] - (ends - lengths), lengths)
    # Phase 3: uses that have lost all outcomes go.
    starts = np.searchsorted(outcomes, side.starts)
    there = np.diff(starts) > 0
    return Side(
        rows=Rows(np.append(0, ends), side.rows.columns[entries], side.rows.weights[entries]),
        pairs=Pairs(np.append(first, len(pairs)), side.pairs.points[pairs]),
        uses=side.uses[there],
        starts=np.append(starts[:-1][there], len(outcomes)),
        numbers=side.numbers[pairs],
        size=side.size,
    )


# -- the maximum ------------------------------------------------------------------------------------------------------


class Chooser:
    """Takes the maximum over the pairs of all types that fit together."""

    def __init__(self, sides: Sequence[Side], limit: Floats, kernels: ModuleType) -> None:
        """Keep what is known of each type.

        Args:
            sides: of each type.
            limit: (resource,) the budget.
            kernels: the loops.
        """
        self.sides, self.limit, self.kernels = sides, limit, kernels
        numbers = [len(side.numbers) for side in sides]
        # The pair of the first type is the first digit.
        self.strides = [prod(numbers[t + 1 :]) for t in range(len(numbers))]

    def improve(self, gains: Sequence[Floats], values: Floats, tie: float) -> tuple[Floats, list[Ints]]:
        """(state,) the best of gain and value after it, and of each type the (state,) pair that has it.

        Args:
            gains: of each type (pair,) what its pairs earn at once, among all pairs of the type.
            values: (state,) what the next states are worth, discounted.
            tie: what counts as equal.
        """
        known = [own[side.numbers] for own, side in zip(gains, self.sides, strict=True)]
        box = values.reshape(1, self.sides[0].size, -1)
        best = self._descend(0, known, box, np.zeros_like(self.limit), tie)
        return best.values.reshape(-1), self._decode(best.codes.reshape(-1))

    def _descend(self, kind: int, gains: Sequence[Floats], values: Floats, used: Floats, tie: float) -> Best:
        """The best from one type on, where the types before it have used some of the budget.

        Args:
            kind: the type.
            gains: of each type (pair,).
            values: (lane, point, rest) values: lane the outcomes of the types before, rest the points of those behind.
            used: (resource,) what the types before use.
            tie: what counts as equal.
        """
        side, stride = self.sides[kind], self.strides[kind]
        if kind == len(self.sides) - 1:
            # The last type: expectation and maximum at once, for whatever the others have left of the budget.
            spans, flat = self._fitting(side, used), values[:, :, 0]
            return Best(*self.kernels.best_last(side.rows, side.pairs, gains[kind], spans, stride, flat, tie))

        def look_behind(block: tuple[int, int, int]) -> Best:
            use, first, last = block
            expected = self.kernels.expand(side.rows, first, last, values)
            behind = expected.reshape(-1, self.sides[kind + 1].size, values.shape[2] // self.sides[kind + 1].size)
            found = self._descend(kind + 1, gains, behind, used + side.uses[use], tie)
            return Best(found.values.reshape(expected.shape), found.codes.reshape(expected.shape))

        kept = Best(np.full(values.shape, -np.inf), np.zeros(values.shape, dtype=np.int64))
        blocks = list(self._blocks(side, used, len(values) * values.shape[2]))
        # Threads for the blocks of the first type only: the types behind it are work within a block.
        alone = kind > 0 or values.size < ALONE_BELOW
        for (_, first, last), found in zip(
            blocks, in_order(look_behind, blocks, 1 if alone else min(num_threads(), len(blocks))), strict=True
        ):
            self.kernels.keep_best(side.pairs, gains[kind], first, last, stride, found, kept, tie)
        return kept

    def _blocks(self, side: Side, used: Floats, width: int) -> Iterator[tuple[int, int, int]]:
        """Uses that the budget still allows, and their outcomes, a few at a time."""
        step = max(1, BLOCK // width)
        for use in np.flatnonzero((used + side.uses <= self.limit).all(axis=1)):
            end = int(side.starts[use + 1])
            for first in range(int(side.starts[use]), end, step):
                yield int(use), first, min(first + step, end)

    def _fitting(self, side: Side, used: Floats) -> Ints:
        """(span, 2) ranges of outcomes that the budget still allows."""
        fits = (used + side.uses <= self.limit).all(axis=1)
        # Neighbouring uses that fit make one range.
        edges = np.flatnonzero(np.diff(fits, prepend=False, append=False))
        return side.starts[edges].reshape(-1, 2)

    def _decode(self, codes: Ints) -> list[Ints]:
        """Of each type the (state,) pair."""
        picks = []
        for side, stride in zip(self.sides, self.strides, strict=True):
            number, codes = np.divmod(codes, stride)
            picks.append(side.numbers[number])
        return picks


# -- pairs that were seen ---------------------------------------------------------------------------------------------


class Seen:
    """The pairs that policies were seen to take."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.known = [np.zeros(len(side.numbers), dtype=np.bool_) for side in sides]
        self.grown = True

    def add(self, picks: Array) -> None:
        """Take note of the (type, state) pairs of a policy."""
        for known, own in zip(self.known, picks, strict=True):
            new = np.bincount(own, minlength=len(known)) > 0
            self.grown |= bool((new & ~known).any())
            known |= new
