"""The lattice of counts: the ways to spread N arms over S states.

    X(N, S) = {x in N^S : x_1 + ... + x_S = N},     |X(N, S)| = C(N + S - 1, S - 1)

Points are numbered in lexicographic order. With r_i = N - x_1 - ... - x_{i-1} arms left before state i and
p_i = S - i states behind it, the number of a point is

    sum_i [ C(r_i + p_i, p_i) - C(r_i - x_i + p_i, p_i) ],

since C(r + p, p) - C(r - x + p, p) points agree before i and are smaller at i. O(S) a point, no search.
"""

from collections.abc import Callable
from math import comb

import numpy as np
from scipy.special import gammaln, xlogy

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


def multinomial_probabilities(points: Array, law: Floats) -> Floats:
    """(point,) probability that independent arms with this law spread like each (point, state) point.

    By log-gamma, so it overflows at no number of arms; normalised, since its rounding grows with them.
    """
    arms = points[0].sum()
    logs = gammaln(arms + 1) - gammaln(points + 1).sum(axis=1) + xlogy(points, law).sum(axis=1)
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
