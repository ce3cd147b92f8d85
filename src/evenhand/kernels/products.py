"""Transition operators of many independent arms, applied arm by arm and never written out.

Both operators map a value function on joint states to its expectation on *outcomes*. With N arms of S states a full
matrix has S^N columns; applied mode by mode the cost is that of N products with S x S matrices.

    ProductKernel   outcome = the transition row each arm moves by:  (K v)[i] = sum_s prod_n R_n[i_n, s_n] v[s]
    ActionKernel    outcome = (joint action, joint state):           (K v)[a, s] = sum_z prod_n P_n[a_n][s_n, z_n] v[z]

ProductKernel has prod_n (rows of arm n) outcomes, which is best when actions lead to rows that occur anyway;
ActionKernel has one block of S^N outcomes for each joint action, and shares the work of equal beginnings
(a_1, ..., a_n) of the actions, so a budget that allows few joint actions makes it small. Contracting the leading axis
and moving it to the end keeps every product a plain matrix product; after N of them the axes are back in order.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from scipy import sparse

from evenhand.typing import Floats, Ints


class ProductKernel:
    """The Kronecker product of one matrix an arm."""

    def __init__(self, parts: list[Floats]) -> None:
        """Keep the parts.

        Args:
            parts: for each arm (row, state).
        """
        self.parts = parts
        self.shape = (prod(len(part) for part in parts), prod(part.shape[1] for part in parts))

    def __matmul__(self, vector: Floats) -> Floats:
        """(outcome,) expectations of a (state,) value function."""
        for part in self.parts:
            # The leading axis is contracted and goes to the end; after all arms the axes are in order again.
            vector = (part @ vector.reshape(part.shape[1], -1)).T.reshape(-1)
        return vector

    @property
    def entries_per_row(self) -> int:
        """The most next states that an outcome can have."""
        return prod(int((part > 0).sum(axis=1).max()) for part in self.parts)

    @cached_property
    def T(self) -> "ProductKernel":  # noqa: N802  # as arrays spell it
        """The transpose, which moves measures instead of value functions."""
        return ProductKernel([np.ascontiguousarray(part.T) for part in self.parts])

    def __getitem__(self, outcomes: Ints) -> sparse.csr_array:
        """(outcome, state) some rows, written out."""
        numbers = np.stack(np.unravel_index(outcomes, [len(part) for part in self.parts]), axis=1)
        return kronecker_rows([part[numbers[:, n]] for n, part in enumerate(self.parts)])


class ActionKernel:
    """A block of joint states for each joint action; actions that begin alike share the work."""

    def __init__(self, matrices: list[Floats], actions: Ints) -> None:
        """Keep the matrices and plan the levels.

        Args:
            matrices: for each arm (action, state, next_state).
            actions: (joint action, arm) in lexicographic order, none twice.
        """
        self.matrices = matrices
        self.actions = actions
        self.num_states = prod(matrix.shape[1] for matrix in matrices)
        self.shape = (len(actions) * self.num_states, self.num_states)
        self._levels = [_level(actions, arm) for arm in range(len(matrices))]

    def __matmul__(self, vector: Floats) -> Floats:
        """(outcome,) expectations of a (state,) value function."""
        blocks = vector.reshape(1, -1)
        for (parents, chosen), matrix in zip(self._levels, self.matrices, strict=True):
            modes = blocks.reshape(len(blocks), matrix.shape[1], -1)
            # (beginning, rest, state): a block for each distinct beginning of a joint action.
            following = np.empty((len(parents), modes.shape[2], modes.shape[1]))
            # One product for all beginnings that go on with the same action.
            for action in np.unique(chosen):
                rows = np.flatnonzero(chosen == action)
                following[rows] = (matrix[action] @ modes[parents[rows]]).transpose(0, 2, 1)
            blocks = following.reshape(len(parents), -1)
        return blocks.reshape(-1)

    @property
    def entries_per_row(self) -> int:
        """The most next states that an outcome can have."""
        return prod(int((matrix > 0).sum(axis=2).max()) for matrix in self.matrices)

    @property
    def T(self) -> "sparse.linalg.LinearOperator":  # noqa: N802  # as arrays spell it
        """The transpose, which moves measures instead of value functions."""
        return sparse.linalg.LinearOperator(self.shape[::-1], matvec=self._push, dtype=np.float64)

    def _push(self, measure: Floats) -> Floats:
        """(state,) where a (outcome,) measure goes in one step."""
        blocks = measure.reshape(len(self.actions), -1)
        sizes = [1, *(len(parents) for parents, _ in self._levels)]
        levels = list(zip(self._levels, self.matrices, pairwise(sizes), strict=True))
        # From the last arm to the first, the way of `__matmul__` backwards.
        for (parents, chosen), matrix, (above, _) in reversed(levels):
            modes = blocks.reshape(len(parents), -1, matrix.shape[1]).transpose(0, 2, 1)
            merged = np.zeros((above, matrix.shape[1], modes.shape[2]))
            for action in np.unique(chosen):
                rows = np.flatnonzero(chosen == action)
                # Within one action no parent comes twice, so that += loses nothing.
                merged[parents[rows]] += matrix[action].T @ modes[rows]
            blocks = merged.reshape(above, -1)
        return blocks.reshape(-1)

    def __getitem__(self, outcomes: Ints) -> sparse.csr_array:
        """(outcome, state) some rows, written out."""
        action, state = np.divmod(outcomes, self.num_states)
        states = np.unravel_index(state, [matrix.shape[1] for matrix in self.matrices])
        choices = self.actions[action]
        return kronecker_rows([matrix[choices[:, n], states[n]] for n, matrix in enumerate(self.matrices)])


def _level(actions: Ints, arm: int) -> tuple[Ints, Ints]:
    """For each distinct beginning up to `arm`: the number of the beginning before it, and the arm's action."""
    before = (
        # Without arms before it there is one beginning, the empty one.
        np.unique(actions[:, :arm], axis=0, return_inverse=True)[1].reshape(-1) if arm else np.zeros(len(actions), int)
    )
    steps = np.unique(np.column_stack([before, actions[:, arm]]), axis=0)
    return steps[:, 0], steps[:, 1]


def kronecker_rows(rows: Sequence[Floats | sparse.csr_array]) -> sparse.csr_array:
    """(row, state) the Kronecker product of the rows of several arms, row by row.

    Args:
        rows: for each arm (row, state), all with the same number of rows.
    """
    found, *others = (sparse.csr_array(part) for part in rows)
    for part in others:
        wide = np.diff(part.indptr)
        sizes = np.diff(found.indptr) * wide
        row = np.repeat(np.arange(found.shape[0]), sizes)
        # The entries of a product row, numbered: the left entry is the quotient, the right one the remainder.
        place = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        i, j = np.divmod(place, wide[row])
        i, j = i + found.indptr[row], j + part.indptr[row]
        columns = found.indices[i].astype(np.int64) * part.shape[1] + part.indices[j]
        shape, starts = (found.shape[0], found.shape[1] * part.shape[1]), np.concatenate([[0], np.cumsum(sizes)])
        found = sparse.csr_array((found.data[i] * part.data[j], columns, starts), shape=shape)
    return found


def distinct_rows(rows: Floats) -> tuple[Ints, Floats]:
    """(row,) the number of each row among the distinct ones, and these."""
    distinct, numbers = np.unique(rows, axis=0, return_inverse=True)
    return numbers.reshape(-1), distinct
