"""The lattice of counts: the ways to spread N arms over S states.

    X(N, S) = {x in N^S : x_1 + ... + x_S = N},     |X(N, S)| = C(N + S - 1, S - 1)

Points are numbered in lexicographic order. With r_i = N - x_1 - ... - x_{i-1} arms left before state i and
p_i = S - i states behind it, the number of a point is

    sum_i [ C(r_i + p_i, p_i) - C(r_i - x_i + p_i, p_i) ],

since C(r + p, p) - C(r - x + p, p) points agree before i and are smaller at i. O(S) a point, no search.

The next counts of identical arms, m[r] of which move by row r, are a sum of multinomials. Their distribution follows by
adding one arm at a time,

    law(m)(y) = sum_j row_r(j) law(m - e_r)(y - e_j)        (any r with m_r > 0),

a sum of positive terms, exact at any number of arms. Vectors m that become equal without an arm share the work.
"""

from collections.abc import Callable
from functools import lru_cache
from math import comb

import numpy as np
from scipy.special import gammaln, xlogy

from evenhand.kernels.products import distinct_rows
from evenhand.typing import Array, Floats, Indices, Ints


def lattice_size(num_arms: int, num_states: int) -> int:
    """Number of points of the lattice."""
    return comb(num_arms + num_states - 1, num_states - 1)


def lattice_points(num_arms: int, num_states: int) -> Ints:
    """(point, state) all points, in lexicographic order."""
    if num_states == 1:
        return np.full((1, 1), num_arms, dtype=np.int64)
    points = np.arange(num_arms + 1, dtype=np.int64)[:, None]
    for _ in range(num_states - 2):
        left = num_arms - points.sum(axis=1)
        parents = np.repeat(points, left + 1, axis=0)
        starts = np.cumsum(left + 1) - (left + 1)
        following = np.arange(len(parents)) - np.repeat(starts, left + 1)
        points = np.column_stack([parents, following])
    return np.column_stack([points, num_arms - points.sum(axis=1)])


def list_amounts(
    needs: Floats, kinds: Ints, arms: Ints, limit: Floats, check: Callable[[float], None], takes_rest: bool = True
) -> tuple[Indices, Floats]:
    """(row, cell) all numbers of arms per cell within a budget, cell by cell, and their (row, resource) use.

    Args:
        needs: (cell, resource) what one arm in each cell uses.
        kinds: (cell,) the type of each cell, in ascending order.
        arms: (type,) number of arms.
        limit: (resource,) the budget.
        check: called with the number of rows before they grow; raises if there are too many.
        takes_rest: whether the last cell of a type takes all arms that are left.
    """
    chosen, used, left = np.zeros((1, 0), dtype=np.int32), np.zeros((1, len(limit))), np.zeros(1, dtype=np.int64)
    for i, need in enumerate(needs):
        if i == 0 or kinds[i - 1] != kinds[i]:
            left = np.full(len(chosen), arms[kinds[i]], dtype=np.int64)
        # Every beginning branches into all amounts that the cell may have: up to the arms left and the room in the
        # budget. If the rest does not fit, the branch ends.
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(need > 0, np.floor((limit - used) / need), np.inf).min(axis=1, initial=np.inf)
        is_last = i + 1 == len(kinds) or kinds[i + 1] != kinds[i]
        least = left if takes_rest and is_last else np.zeros_like(left)
        number = np.maximum(np.minimum(left, room).astype(np.int64) - least + 1, 0)
        check(float(number.sum()))
        parent = np.repeat(np.arange(len(number)), number)
        amount = np.arange(len(parent)) - np.repeat(np.cumsum(number) - number, number) + least[parent]
        chosen = np.column_stack([chosen[parent], amount.astype(np.int32)])
        used, left = used[parent] + amount[:, None] * need, left[parent] - amount
    return chosen, used


def lattice_index(points: Array) -> Ints:
    """(...,) the number of each (..., state) point in its lattice."""
    totals = points.sum(axis=-1)
    return number_points(points, totals, lattice_tables(int(totals.max(initial=0)), points.shape[-1]))


def lattice_tables(num_arms: int, num_states: int) -> Ints:
    """(behind, left) the binomials C(left + behind, behind) that number the points of lattices of up to `num_arms`."""
    table = np.ones((num_states, num_arms + 1), dtype=np.int64)
    for behind in range(1, num_states):
        table[behind] = np.cumsum(table[behind - 1])
    return table


def number_points(points: Array, num_arms: Array | np.int64, tables: Ints) -> Ints:
    """(...,) numbers by tables of binomials; with (...,) numbers of arms, each in the lattice of its own.

    Args:
        points: (..., state) points.
        num_arms: how many arms they have.
        tables: (behind, left) binomials (`lattice_tables`).
    """
    last = points.shape[-1] - 1
    left = np.broadcast_to(num_arms, points.shape[:-1])
    index = np.zeros(points.shape[:-1], dtype=np.int64)
    for s in range(last):
        after = left - points[..., s]
        index += tables[last - s, left] - tables[last - s, after]
        left = after
    return index


def lattice_below(num_arms: int, num_states: int) -> Indices:
    """(point, state) the number of each point without an arm of a state, -1 where it has none."""
    points = lattice_points(num_arms, num_states)
    below = np.full(points.shape, -1, dtype=np.int32)
    for state in range(num_states):
        some = points[:, state] > 0
        below[some, state] = lattice_index(points[some] - (np.arange(num_states) == state))
    return below


@lru_cache(maxsize=256)
def lattice_chain(num_arms: int, num_states: int) -> tuple[Ints, Ints]:
    """(point,) the first state with an arm, and the number of the point without that arm."""
    leaving = (lattice_points(num_arms, num_states) > 0).argmax(axis=1)
    return leaving, lattice_below(num_arms, num_states)[np.arange(len(leaving)), leaving].astype(np.int64)


def multinomial_probabilities(points: Array, distribution: Floats) -> Floats:
    """(point,) probability that independent arms with this distribution spread like each (point, state) point.

    By log-gamma, so it overflows at no number of arms; normalised, since its rounding grows with them.
    """
    arms = points[0].sum()
    logs = gammaln(arms + 1) - gammaln(points + 1).sum(axis=1) + xlogy(points, distribution).sum(axis=1)
    probabilities = np.exp(logs)
    return np.asarray(probabilities / probabilities.sum())


def interpolate(function: Floats, num_arms: int, points: Array) -> Floats:
    """(point,) a function of few arms at the same proportions of many, linear on Kuhn's simplices.

    In running sums of the counts the lattice is {0 <= c_1 <= c_2 <= ... <= N}. From the whole parts of scaled sums one
    coordinate after the other goes up, the one with the largest remainder first.

    Args:
        function: (coarse point,) values on the lattice of few arms.
        num_arms: their number.
        points: (point, state) the lattice of many arms.
    """
    sums = np.cumsum(points[:, :-1], axis=1) * (num_arms / points[0].sum())
    corner = np.floor(sums)
    rest = sums - corner
    # Of equal remainders the later coordinate first, so that sums stay ordered.
    order = rest.shape[1] - 1 - np.argsort(rest[:, ::-1], axis=1, kind="stable")[:, ::-1]
    rows, value, before = np.arange(len(points)), np.zeros(len(points)), np.ones(len(points))
    # Each corner of the simplex has the difference of neighbouring remainders as its weight.
    for step in range(rest.shape[1] + 1):
        is_last = step == rest.shape[1]
        after = np.zeros(len(points)) if is_last else rest[rows, order[:, step]]
        whole = np.minimum(corner, num_arms).astype(np.int64)
        counts = np.diff(whole, axis=1, prepend=0, append=num_arms)
        value += (before - after) * function[lattice_index(counts)]
        before = after
        if not is_last:
            corner[rows, order[:, step]] += 1
    return value


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
    """(mover, point) the distribution of where arms arrive.

    Args:
        movers: (mover, row) how many arms move by each row; the same number of arms in all for each mover.
        rows: (row, next_state) the rows.
    """
    law = np.ones((1, 1))
    for total, (first, parent) in enumerate(_predecessors(movers), start=1):
        law = add_arm(law, rows, first, parent, lattice_below(total, rows.shape[1]))
    return law


def add_arm(law: Floats, rows: Floats, first: Indices, parent: Indices, below: Indices) -> Floats:
    """(mover, point) the distribution of one arm more.

    Args:
        law: (parent, point before) the distribution without it.
        rows: (row, next_state) the rows.
        first: (mover,) the row by which the arm moves.
        parent: (mover,) the vector of movers without it.
        below: (point, state) each point without an arm of a state, -1 if there is none.
    """
    if float(len(first)) * below.size <= 1e6:  # not worth compiling
        before = np.pad(law, ((0, 0), (0, 1)))[parent]  # a point that is not there is the last, and 0
        return np.asarray(sum(rows[first, j, None] * before[:, below[:, j]] for j in range(rows.shape[1])))
    from evenhand.kernels.lattice_sweeps import grow_distribution

    return np.asarray(grow_distribution(law, rows, first, parent, below))


def movers_distributions(movers: Ints, rows: Floats) -> Floats:
    """(scenario, mover, point) the distribution of where arms arrive, in many scenarios at once.

    Args:
        movers: (mover, row) how many arms move by each row; the same number of arms in all for each mover.
        rows: (scenario, row, next_state) the rows of each scenario.
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
        # From many arms down to none; vectors that become equal share their distribution, so levels stay small.
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
