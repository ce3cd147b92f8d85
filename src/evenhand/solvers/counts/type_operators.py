"""Improvement, expectation and push-forward, each applied type by type (`kernels.boxes`).

Following and pushing need the outcomes that one policy leads to, one a state; equal ones are treated once. Those that
begin with the same outcome of the first type are one piece of work, and pieces are shared out among threads. Their
number does not depend on that of the threads, hence neither does a sum over them.

Rounding. A law is grown arm by arm, each with S + 1 roundings; an expectation adds up to as many terms as a law has
entries. So a computed T V - V is within

    error (max|V| + max|r|),    error = [sum_t (N_t (S_t + 1) + entries of a law of t) + 4 M + 8] 2^-53,

of the true one; ties of 4 roundings a type are within it.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from types import ModuleType

import numpy as np

from evenhand.kernels.boxes import Joined, Leaves, Rows, join
from evenhand.parallel import in_order, num_threads
from evenhand.solvers.counts.transition import UNIT
from evenhand.solvers.counts.type_improvement import Chooser, Seen, Side, narrow_side, whole_side
from evenhand.solvers.counts.type_plan import TypedPlan
from evenhand.typing import Array, Floats

PARTS, CUT_FROM = 4, 20_000
"""Pieces that the outcomes of a policy are cut into, and the number of outcomes from which it is worth while."""


class Operators:
    """Operators on values and distributions over the counts of several types."""

    def __init__(self, plan: TypedPlan, kernels: ModuleType | None = None) -> None:
        """Prepare the operators.

        Args:
            plan: the problem, planned.
            kernels: the loops; by default compiled.
        """
        self.plan, self.types = plan, plan.types
        from evenhand.kernels import type_sweeps

        self.kernels = kernels or type_sweeps
        self._narrow: Chooser

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
    def _sides(self) -> list[Side]:
        return [whole_side(moves, rows) for moves, rows in zip(self.types, self._rows, strict=True)]

    @cached_property
    def _whole(self) -> Chooser:
        return Chooser(self._sides, self.plan.limit, self.kernels)

    @cached_property
    def _seen(self) -> Seen:
        return Seen(self._sides)

    @property
    def has_seen(self) -> bool:
        """True after the first call of `improve`."""
        return bool(self._seen.known[0].any())

    def improve(self, gains: Sequence[Floats], values: Floats, tie: float) -> tuple[Floats, Array]:
        """(state,) the best of gain and value after it, and the (type, state) pairs that have it.

        Args:
            gains: of each type (pair,) what its pairs earn at once.
            values: (state,) what the next states are worth, discounted.
            tie: what counts as equal.
        """
        best, picks = self._whole.improve(gains, values, tie)
        packed = np.array(picks, dtype=self.plan.pick_type)
        self._seen.add(packed)
        return best, packed

    def improve_among_seen(self, gains: Sequence[Floats], values: Floats, tie: float) -> tuple[Floats, Array]:
        """The same over pairs that `improve` has chosen somewhere, ever.

        Args:
            gains: of each type (pair,) what its pairs earn at once.
            values: (state,) what the next states are worth, discounted.
            tie: what counts as equal.
        """
        # A narrow chooser serves until some policy takes a pair that it does not know.
        if self._seen.grown:
            self._seen.grown = False
            sides = [narrow_side(side, known) for side, known in zip(self._sides, self._seen.known, strict=True)]
            self._narrow = Chooser(sides, self.plan.limit, self.kernels)
        best, picks = self._narrow.improve(gains, values, tie)
        return best, np.array(picks, dtype=self.plan.pick_type)

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

        self.parts = self._cut()

    def _cut(self) -> list[tuple[slice, Leaves]]:
        """The leaves in pieces that begin with different outcomes of the first type."""
        # A piece may only begin where the outcome of the first type changes: what begins alike shares its sums.
        begins = np.flatnonzero(self.leaves.changes == 0)
        number = PARTS if len(self.leaves.rows) >= CUT_FROM else 1
        edges = np.unique(np.append(begins[np.arange(number) * len(begins) // number], len(self.leaves.rows)))
        pieces = [slice(int(first), int(last)) for first, last in pairwise(edges)]
        return [(piece, Leaves(self.leaves.rows[piece], self.leaves.changes[piece])) for piece in pieces]

    def follow(self, values: Floats) -> Floats:
        """(state,) the expected value after the policy's decision."""
        own = self.operators
        work = in_order(lambda part: own.kernels.follow(own.laws, part[1], values), self.parts, self._threads)
        return np.asarray(np.concatenate(list(work))[self.leaf_of_state])

    def push(self, law: Floats) -> Floats:
        """(state,) the distribution after one step."""
        own = self.operators
        # States with the same outcomes push as one.
        masses = np.bincount(self.leaf_of_state, weights=law, minlength=len(self.leaves.rows))
        work = in_order(lambda part: own.kernels.push(own.laws, part[1], masses[part[0]]), self.parts, self._threads)
        return np.asarray(sum(work))

    @property
    def _threads(self) -> int:
        return min(num_threads(), len(self.parts))
