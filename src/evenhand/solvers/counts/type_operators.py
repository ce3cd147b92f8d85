"""Improvement, expectation and push-forward, each applied type by type (`kernels.boxes`).

Following and pushing need the outcomes that one policy leads to, one a state; equal ones are treated once. Those that
begin with the same outcome of the first type are one piece of work, and pieces are shared out among threads. Their
number does not depend on that of the threads, hence neither does a sum over them.

The maximum. Choosing walks down the tree of uses that fit together: at a type, for each use that the budget still
allows, the axis of its next counts becomes one of the outcomes of that use, and the types behind it are treated given
these. Blocks of outcomes are small enough for the processor's cache. Those of the first type are treated side by side,
in threads, and compared in their order, so that the answer does not depend on how many threads there are.

Rounding. A law is grown arm by arm, each with S + 1 roundings; an expectation adds up to as many terms as a law has
entries. So a computed T V - V is within

    error (max|V| + max|r|),    error = [sum_t (N_t (S_t + 1) + entries of a law of t) + 4 M + 8] 2^-53,

of the true one; ties of 4 roundings a type are within it.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from math import prod
from types import ModuleType

import numpy as np

from evenhand.kernels.boxes import Best, Joined, Leaves, Rows, join
from evenhand.kernels.compilation import in_pieces
from evenhand.parallel import in_order, num_threads
from evenhand.solvers.counts.post_decision import UNIT
from evenhand.solvers.counts.type_plan import BLOCK, TypedPlan
from evenhand.typing import Array, Floats

PARTS, CUT_FROM = 4, 20_000
"""Pieces that the outcomes of a policy are cut into, and the number of outcomes from which it is worth while."""

ALONE_BELOW = 5000
"""States below which one thread takes the maximum."""


class Operators:
    """Operators on values and distributions over the counts of several types."""

    def __init__(
        self, plan: TypedPlan, kernels: ModuleType | None = None, block: int = BLOCK, parts: int | None = None
    ) -> None:
        """Prepare the operators.

        Args:
            plan: the problem, planned.
            kernels: the loops; by default compiled.
            block: values of a block of outcomes in the maximum.
            parts: pieces that the outcomes of a policy are cut into; by default one, if they are few.
        """
        self.plan, self.types, self.block, self.num_parts = plan, plan.types, block, parts
        from evenhand.kernels import type_sweeps

        self.kernels = kernels or type_sweeps

    @cached_property
    def laws(self) -> Joined:
        """The laws of the next counts."""
        return join([moves.laws() for moves in self.types], self.plan.sizes)

    @cached_property
    def _rows(self) -> list[Rows]:
        return [self.laws.rows_of(t) for t in range(len(self.types))]

    @cached_property
    def first_law(self) -> Floats:
        """(state,) the law of the first counts."""
        law: Floats = np.ones(1)
        for moves in self.types:
            law = np.outer(law, moves.first_law).reshape(-1)
        return law

    @cached_property
    def error(self) -> float:
        """Relative to max|V| + max|r|: how far a computed T V - V may be from the true one (see the file's head)."""
        growing = sum(moves.tables.num_arms * (len(moves.tables.initial) + 1) for moves in self.types)
        adding = sum(int(np.diff(rows.starts).max()) for rows in self._rows)
        return float(growing + adding + 4 * len(self.types) + 8) * UNIT

    # -- the maximum ---------------------------------------------------------------------------------------------------

    @cached_property
    def _strides(self) -> list[int]:
        """(type,) stride of its pairs in the code of a decision; the pair of the first type is the first digit."""
        numbers = [len(moves.allocations) for moves in self.types]
        return [prod(numbers[t + 1 :]) for t in range(len(numbers))]

    def improve(self, gains: Sequence[Floats], values: Floats, tie: float) -> tuple[Floats, Array]:
        """(state,) the best of gain and value after it, and the (type, state) pairs that have it.

        Args:
            gains: of each type (pair,) what its pairs earn at once.
            values: (state,) what the next states are worth, discounted.
            tie: what counts as equal.
        """
        box = values.reshape(1, self.plan.sizes[0], -1)
        best = self._descend(0, gains, box, np.zeros_like(self.plan.limit), tie)
        picks, codes = np.empty((len(self.types), len(values)), dtype=self.plan.pick_type), best.codes.reshape(-1)
        for t, stride in enumerate(self._strides):
            picks[t], codes = np.divmod(codes, stride)
        return best.values.reshape(-1), picks

    def _descend(self, kind: int, gains: Sequence[Floats], values: Floats, used: Floats, tie: float) -> Best:
        """The best from one type on, where the types before it have used some of the budget.

        Args:
            kind: the type.
            gains: of each type (pair,).
            values: (lane, point, rest) values: lane the outcomes of the types before, rest the points of those behind.
            used: (resource,) what the types before use.
            tie: what counts as equal.
        """
        moves, rows, stride = self.types[kind], self._rows[kind], self._strides[kind]
        fits = (used + moves.uses <= self.plan.limit).all(axis=1)
        if kind == len(self.types) - 1:
            fits &= (used + moves.uses >= self.plan.least).all(axis=1)
            # The last type: expectation and maximum at once, for whatever the others have left of the budget.
            # Neighbouring uses that fit make one range of outcomes.
            spans = moves.starts[np.flatnonzero(np.diff(fits, prepend=False, append=False))].reshape(-1, 2)
            return Best(*self.kernels.best_last(rows, moves.pairs, gains[kind], spans, stride, values[:, :, 0], tie))
        size = self.plan.sizes[kind + 1]

        def look_behind(block: tuple[int, int, int]) -> Best:
            use, first, last = block
            expected = self.kernels.expand(rows, first, last, values)
            behind = expected.reshape(-1, size, values.shape[2] // size)
            found = self._descend(kind + 1, gains, behind, used + moves.uses[use], tie)
            return Best(found.values.reshape(expected.shape), found.codes.reshape(expected.shape))

        # Uses that the budget still allows, and their outcomes, a few at a time.
        step = max(1, self.block // (len(values) * values.shape[2]))
        blocks = [
            (use, first, min(first + step, int(moves.starts[use + 1])))
            for use in np.flatnonzero(fits).tolist()
            for first in range(int(moves.starts[use]), int(moves.starts[use + 1]), step)
        ]
        kept = Best(np.full(values.shape, -np.inf), np.zeros(values.shape, dtype=np.int64))
        # Threads for the blocks of the first type only: the types behind it are work within a block.
        alone = kind > 0 or values.size < ALONE_BELOW
        threads = 1 if alone else min(num_threads(), len(blocks))
        for (_, first, last), found in zip(blocks, in_order(look_behind, blocks, threads), strict=True):
            self.kernels.keep_best(moves.pairs, gains[kind], first, last, stride, found, kept, tie)
        return kept

    # -- one policy ----------------------------------------------------------------------------------------------------

    def fix(self, picks: Array) -> "Fixed":
        """The operator of one policy.

        Args:
            picks: (type, state) the pair of each type.
        """
        return Fixed(self, picks)


class Fixed:
    """The operator of one policy, which has one outcome in each state."""

    def __init__(self, operators: Operators, picks: Array) -> None:
        self.operators = operators
        numbers = [len(moves.movers) for moves in operators.types]
        # The outcomes of all types as digits of one number; `TypedPlan.check` has seen to it that it fits.
        code = np.zeros(picks.shape[1], dtype=np.int64)
        for moves, number, own in zip(operators.types, numbers, picks, strict=True):
            code = code * number + moves.outcomes[own]
        distinct, self.leaf_of_state = np.unique(code, return_inverse=True)
        rows = np.stack(np.unravel_index(distinct, numbers), axis=1).astype(np.int32)
        # The first leaf differs from the one before it in all types, as it were.
        differs = np.ones(rows.shape, dtype=np.bool_)
        differs[1:] = rows[1:] != rows[:-1]
        self.leaves = Leaves(rows, differs.argmax(axis=1).astype(np.int32))
        # A piece may only begin where the outcome of the first type changes: what begins alike shares its sums.
        begins = np.flatnonzero(self.leaves.changes == 0)
        number = operators.num_parts or (PARTS if len(rows) >= CUT_FROM else 1)
        edges = np.unique(np.append(begins[np.arange(number) * len(begins) // number], len(rows)))
        pieces = [slice(int(first), int(last)) for first, last in pairwise(edges)]
        self.parts = [(piece, Leaves(rows[piece], self.leaves.changes[piece])) for piece in pieces]

    def follow(self, values: Floats) -> Floats:
        """(state,) the expected value after the policy's decision."""
        own = self.operators
        found = in_pieces(lambda part: own.kernels.follow(own.laws, part[1], values), self.parts)
        return np.asarray(np.concatenate(found)[self.leaf_of_state])

    def push(self, law: Floats) -> Floats:
        """(state,) the distribution after one step."""
        own = self.operators
        # States with the same outcomes push as one.
        masses = np.bincount(self.leaf_of_state, weights=law, minlength=len(self.leaves.rows))
        return np.asarray(sum(in_pieces(lambda part: own.kernels.push(own.laws, part[1], masses[part[0]]), self.parts)))
