"""The law of the next counts of identical arms, some of which move by one row, some by another.

With m[r] arms that move by row r, their next counts are a sum of multinomials, and the law follows by adding one arm at
a time,

    law(m)(y) = sum_j row_r(j) law(m - e_r)(y - e_j)        (any r with m_r > 0),

a sum of positive terms, exact at any number of arms. Vectors m that become equal without an arm share the work.
"""

import numpy as np
from scipy.special import gammaln

from evenhand.kernels.lattice import lattice_below, lattice_size
from evenhand.kernels.products import distinct_rows
from evenhand.typing import Array, Floats, Indices, Ints

COMPILE_FROM = 1e8
"""Elementary operations from which laws are computed by compiled code."""


def count_movers(amounts: Array, rows: Floats) -> tuple[Ints, Floats]:
    """(mover, row) how many arms move by each distinct row, and the (row, next_state) distinct rows.

    Args:
        amounts: (mover, cell) numbers of arms.
        rows: (cell, next_state) the row of each cell.
    """
    numbers, distinct = distinct_rows(rows)
    movers = np.zeros((len(amounts), len(distinct)), dtype=np.int64)
    for number, column in zip(numbers, amounts.T, strict=True):
        movers[:, number] += column
    return movers, distinct


def movers_distribution(movers: Ints, rows: Floats) -> Floats:
    """(mover, point) the law of where arms arrive.

    Args:
        movers: (mover, row) how many arms move by each row; the same number of arms in all for each mover.
        rows: (row, next_state) the rows.
    """
    num_states, num_arms = rows.shape[1], int(movers[0].sum())
    work = float(len(movers)) * lattice_size(num_arms, num_states) * num_states * num_arms / 5
    if work <= COMPILE_FROM:
        return np.asarray(movers_distributions(movers, rows[None])[0])
    from evenhand.kernels.lattice_sweeps import grow_distribution

    law = np.ones((1, 1))
    for total, (first, parent) in enumerate(_predecessors(movers), start=1):
        law = grow_distribution(law, rows, first, parent, lattice_below(total, num_states))
    return np.asarray(law)


def movers_distributions(movers: Ints, rows: Floats) -> Floats:
    """(world, mover, point) the law of where arms arrive, in many worlds at once.

    Args:
        movers: (mover, row) how many arms move by each row; the same number of arms in all for each mover.
        rows: (world, row, next_state) the rows of each world.
    """
    law = np.ones((len(rows), 1, 1))
    for total, (first, parent) in enumerate(_predecessors(movers), start=1):
        below = lattice_below(total, rows.shape[2])
        before = np.pad(law, ((0, 0), (0, 0), (0, 1)))[:, parent]  # a point that is not there is the last, and 0
        law = np.zeros((len(rows), len(first), len(below)))
        for j in range(rows.shape[2]):
            law += rows[:, first, j, None] * before[..., below[:, j]]
    return law


def _predecessors(movers: Ints) -> list[tuple[Indices, Indices]]:
    """By number of arms, from one: the row whose arm came last, and where the vector without it stands."""
    levels = []
    vectors = movers
    for _ in range(int(movers[0].sum())):
        first = (vectors > 0).argmax(axis=1)
        smaller = vectors.copy()
        smaller[np.arange(len(vectors)), first] -= 1
        # From many arms down to none; vectors that become equal share their law, so levels stay small.
        vectors, parent = np.unique(smaller, axis=0, return_inverse=True)
        levels.append((first.astype(np.int32), parent.reshape(-1).astype(np.int32)))
    return levels[::-1]


def support_of_movers(movers: Ints, rows: Floats) -> Floats:
    """(mover,) upper bound on the number of reachable next points, without the distribution.

    Arms that move by a row with k possible states spread in C(m + k - 1, k - 1) ways.

    Args:
        movers: (mover, row) how many arms move by each row.
        rows: (row, next_state) the rows.
    """
    wide = (rows > 0).sum(axis=1).astype(np.float64)
    ways = gammaln(movers + wide) - gammaln(wide) - gammaln(movers + 1.0)
    most = lattice_size(int(movers[0].sum()), rows.shape[1])
    return np.asarray(np.minimum(np.exp(np.minimum(ways.sum(axis=1), 700.0)), float(most)))
