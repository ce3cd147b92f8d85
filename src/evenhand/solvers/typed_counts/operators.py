"""The third room: choosing, following and pushing, each applied type by type (`kernels.type_sweeps`).

Choosing walks down the tree of uses that fit together: at a type, for each use that the budget still allows, the axis
of its next counts becomes one of the outcomes of that use, and the types behind it are treated given these. Blocks of
outcomes are kept so small that they stay near the processor.

Rounding. A law is grown arm by arm, each with S + 1 roundings; an expectation adds up to as many terms as a law has
entries. So a computed T V - V is within

    error (max|V| + max|r|),    error = [sum_t (N_t (S_t + 1) + entries of a law of t) + 4 M + 8] 2^-53,

of the true one; ties of 4 roundings a type are within it.
"""

from collections.abc import Iterator
from functools import cached_property
from math import prod
from types import ModuleType

import numpy as np

from evenhand.kernels import type_sweeps
from evenhand.kernels.type_sweeps import Best, Joined, Leaves, Rows, join
from evenhand.solvers.count_dynamics.moving import UNIT
from evenhand.solvers.typed_counts.plan import BLOCK, TypedPlan
from evenhand.typing import Array, Floats, Ints

COMPILE_FROM = 1e8
"""Elementary operations from which compiled code pays, its compilation included when it is not cached."""


class Operators:
    """What can be done with values on the counts of several types."""

    def __init__(self, plan: TypedPlan) -> None:
        self.plan, self.types = plan, plan.types
        self.kernels: ModuleType = _compiled() if plan.operations >= COMPILE_FROM else type_sweeps
        numbers = [len(moves.allocations) for moves in self.types]
        self.strides = [prod(numbers[t + 1 :]) for t in range(len(numbers))]
        self._spans: dict[tuple[int, bytes], Ints] = {}

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

    def improve(self, gains: list[Floats], values: Floats, tie: float) -> tuple[Floats, Array]:
        """(state,) the best of gain and value after it, and the (type, state) pairs that have it.

        Args:
            gains: of each type (pair,) what its pairs earn at once.
            values: (state,) what the next states are worth, discounted.
            tie: what counts as equal.
        """
        box = values.reshape(1, self.plan.sizes[0], -1)
        best = self._descend(0, gains, box, np.zeros_like(self.plan.limit), tie)
        return best.values.reshape(-1), self._decode(best.codes.reshape(-1))

    def _descend(self, kind: int, gains: list[Floats], values: Floats, used: Floats, tie: float) -> Best:
        """The best from one type on, where the types before it have used some of the budget.

        Args:
            kind: the type.
            gains: of each type (pair,).
            values: (lane, point, rest) values: lane the outcomes of the types before, rest the points of those behind.
            used: (resource,) what the types before use.
            tie: what counts as equal.
        """
        moves, rows, stride = self.types[kind], self._rows[kind], self.strides[kind]
        if kind == len(self.types) - 1:
            spans, flat = self._fitting(kind, used), values[:, :, 0]
            return Best(*self.kernels.best_last(rows, moves.pairs, gains[kind], spans, stride, flat, tie))
        kept = Best(np.full(values.shape, -np.inf), np.zeros(values.shape, dtype=np.int64))
        for use, first, last in self._blocks(kind, used, len(values) * values.shape[2]):
            block = self.kernels.expand(rows, first, last, values)
            behind = block.reshape(-1, self.plan.sizes[kind + 1], values.shape[2] // self.plan.sizes[kind + 1])
            found = self._descend(kind + 1, gains, behind, used + moves.uses[use], tie)
            shaped = Best(found.values.reshape(block.shape), found.codes.reshape(block.shape))
            self.kernels.keep_best(moves.pairs, gains[kind], first, last, stride, shaped, kept, tie)
        return kept

    def _blocks(self, kind: int, used: Floats, width: int) -> Iterator[tuple[int, int, int]]:
        """Uses that the budget still allows, and their outcomes, a few at a time."""
        moves, step = self.types[kind], max(1, BLOCK // width)
        for use in np.flatnonzero((used + moves.uses <= self.plan.limit).all(axis=1)):
            end = int(moves.starts[use + 1])
            for first in range(int(moves.starts[use]), end, step):
                yield int(use), first, min(first + step, end)

    def _fitting(self, kind: int, used: Floats) -> Ints:
        """(span, 2) ranges of outcomes that the budget still allows."""
        key = kind, used.tobytes()
        if key not in self._spans:
            moves = self.types[kind]
            fits = (used + moves.uses <= self.plan.limit).all(axis=1)
            edges = np.flatnonzero(np.diff(np.concatenate([[False], fits, [False]]).astype(np.int64)))
            self._spans[key] = moves.starts[edges].reshape(-1, 2)
        return self._spans[key]

    def _decode(self, codes: Ints) -> Array:
        """(type, state) the pair of each type."""
        picks = np.empty((len(self.types), len(codes)), dtype=self.plan.pick_type)
        for t, stride in enumerate(self.strides):
            picks[t], codes = np.divmod(codes, stride)
        return picks

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
        code = np.zeros(picks.shape[1], dtype=np.int64)
        for moves, number, own in zip(operators.types, numbers, picks, strict=True):
            code = code * number + moves.outcomes[own]
        distinct, self.leaf_of_state = np.unique(code, return_inverse=True)
        rows = np.stack(np.unravel_index(distinct, numbers), axis=1).astype(np.int32)
        differs = np.ones(rows.shape, dtype=np.bool_)
        differs[1:] = rows[1:] != rows[:-1]
        self.leaves = Leaves(rows, differs.argmax(axis=1).astype(np.int32))

    def follow(self, values: Floats) -> Floats:
        """(state,) the expected value after the policy's decision."""
        own = self.operators
        return np.asarray(own.kernels.follow(own.laws, self.leaves, values)[self.leaf_of_state])

    def push(self, law: Floats) -> Floats:
        """(state,) where a law on the states goes."""
        own = self.operators
        masses = np.bincount(self.leaf_of_state, weights=law, minlength=len(self.leaves.rows))
        return np.asarray(own.kernels.push(own.laws, self.leaves, masses))


def _compiled() -> ModuleType:
    from evenhand.kernels import compiled_types

    return compiled_types
