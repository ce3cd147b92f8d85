"""Expectations and maxima over the counts of several types, one type at a time.

Values stand in a box with one axis a type, V(x_1, ..., x_M). After its decision type t is at an *outcome* o_t; row o_t
of P_t is the law of its next counts, and types move independently. Three things are done with such a box:

    choose   (T V)(x) = max over the types' pairs (x_t, u_t) that fit together of
                 sum_t g_t(x_t, u_t) + sum_x' prod_t P_t(o_t(x_t, u_t), x'_t) V(x')
    follow   the sum over x' for one outcome of each state
    push     its transpose: where a law on the states goes

Choosing goes down the types and up again. On the way down `expand` turns an axis of next counts into one of outcomes.
At the last type `best_last` takes the expectation and at once the maximum over that type's own pairs. On the way up
`keep_best` turns an axis of outcomes into one of counts, by the maximum over the pairs that lead to them. So outcomes
(o_1, ..., o_t) are visited once, however many decisions lead to them. A decision is coded in one number, the sum over
types of stride times the number of the pair. Of decisions that are equal but for a `tie` the first is retained.

Following and pushing take one outcome a state. Distinct ones, the *leaves*, are in lexicographic order, so that those
which begin alike share the sums over their beginning.

The loops are compiled (`type_sweeps`); here is what they need.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenhand.typing import Floats, Indices, Ints


class Rows(NamedTuple):
    """The laws of a type, one row an outcome, in compressed form."""

    starts: Ints
    """(outcome + 1,) where the entries of each row begin."""

    columns: Indices
    """(entry,) the next point."""

    weights: Floats
    """(entry,) its probability."""


class Joined(NamedTuple):
    """The laws of all types in one piece; those of each type are views of it (`rows_of`)."""

    starts: Ints
    """(outcome of any type + 1 for each type,) where the entries of each row begin."""

    columns: Indices
    """(entry,) the next point."""

    weights: Floats
    """(entry,) its probability."""

    bases: Ints
    """(type + 1,) where the starts of each type begin."""

    sizes: Ints
    """(type,) how many points each type has."""

    @property
    def rests(self) -> Ints:
        """(type,) how many values stand behind one point of each type."""
        return np.array([int(np.prod(self.sizes[t + 1 :])) for t in range(len(self.sizes))], dtype=np.int64)

    def rows_of(self, kind: int) -> Rows:
        """The laws of one type."""
        return Rows(self.starts[self.bases[kind] : self.bases[kind + 1]], self.columns, self.weights)


class Pairs(NamedTuple):
    """The pairs of a type, in the order of their outcomes."""

    starts: Ints
    """(outcome + 1,) where the pairs of each outcome begin."""

    points: Indices
    """(pair,) the point that the pair is for."""


class Leaves(NamedTuple):
    """The outcomes that one policy leads to."""

    rows: Indices
    """(leaf, type) the outcome of each type, in lexicographic order, none twice."""

    changes: Indices
    """(leaf,) the first type in which it differs from the leaf before; 0 for the first."""


class Best(NamedTuple):
    """The best that can be had, and how."""

    values: Floats
    codes: Ints


# -- laws in one piece ------------------------------------------------------------------------------------------------


def join(types: Sequence[Rows], sizes: Sequence[int]) -> Joined:
    """Put the laws of all types into one piece.

    Args:
        types: the laws of each.
        sizes: (type,) how many points each has.
    """
    entries = np.cumsum([0, *(len(rows.columns) for rows in types)])
    return Joined(
        # Entries of later types stand behind those of earlier ones.
        starts=np.concatenate([rows.starts + entries[t] for t, rows in enumerate(types)]),
        columns=np.concatenate([rows.columns for rows in types]),
        weights=np.concatenate([rows.weights for rows in types]),
        bases=np.cumsum([0, *(len(rows.starts) for rows in types)]),
        sizes=np.array(sizes, dtype=np.int64),
    )
