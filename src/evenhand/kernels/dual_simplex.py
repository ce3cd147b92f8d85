"""The dual simplex method from one basis for many right-hand sides, with memory of its pivots.

In the variables z = (x_B, x_N) of a dual feasible basis B, numbered in this order, z >= 0 (or z = 0 if `fixed`), and

    x_B = beta - T x_N,    beta = B^-1 b,    T = B^-1 N,    reduced costs d.

The variable that leaves is the one with the largest violation; the ratio test, which chooses the one that enters, does
not look at b. So bases form a tree whose edges are the rows that leave, and a right-hand side is solved along a path
from its root: b is seen by beta alone. A node knows its pivot column alpha, beta_r -> beta_r / alpha_r and
beta_i -> beta_i - alpha_i beta_r / alpha_r, and its reduced costs; it is computed once, by the product form

    e_r' B^-1 = e_r' E_k ... E_1 B_0^-1,    B^-1 a_q = E_k ... E_1 B_0^-1 a_q.

Nodes for which there is no room are computed each time. The optimum depends on b alone, not on those before.
"""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.compilation import njit
from evenhand.typing import Floats, Ints

LEAST_PIVOT = 1e-8
"""Least magnitude of a pivot: smaller ones lose digits."""

DUAL_TOLERANCE = 1e-10
"""By which reduced costs may violate their sign in a ratio test, in favour of a larger pivot."""


class PivotTree(NamedTuple):
    """Nodes, the first of which is the root; the last ones are work space of a path beyond those that are stored."""

    links: Ints
    """(node, 4): first child, next sibling, leaving row (twice, plus 1 if it falls to an upper bound), entering."""

    columns: Floats
    """(node, row) pivot columns."""

    costs: Floats
    """(node, variable) reduced costs."""

    stored: Ints
    """(1,) number of nodes."""


def make_tree(costs: Floats, num_rows: int, most_pivots: int, most_bytes: float) -> PivotTree:
    """Return a tree of its root.

    Args:
        costs: (variable,) reduced costs of the basis.
        num_rows: number of rows.
        most_pivots: length of a path.
        most_bytes: size.
    """
    number = 1 + most_pivots + int(most_bytes / (8.0 * (len(costs) + num_rows)))
    tree = PivotTree(
        np.full((number, 4), -1), np.empty((number, num_rows)), np.empty((number, len(costs))), np.ones(1, np.int64)
    )
    tree.costs[0] = costs
    return tree


@njit
def find_basis(beta, basis, table, fixed, tree, most_pivots, tolerance):
    """Return whether a primal feasible basis was found; changes `beta` and `basis` to it.

    Args:
        beta: (row,) basic variables.
        basis: (row,) their numbers: 0, 1, ...
        table: (row, nonbasic) T.
        fixed: (variable,) whether a variable must be 0.
        tree: its nodes.
        most_pivots: length of a path.
        tolerance: by which variables may violate their bounds.
    """
    number, path, node = len(beta), np.empty(most_pivots, np.int64), 0
    room = len(tree.links) - most_pivots
    for depth in range(most_pivots + 1):
        row, worst, above = -1, tolerance, 0
        for i in range(number):
            over = beta[i] > 0 and fixed[basis[i]]
            short = beta[i] if over else -beta[i]
            if short > worst:
                row, worst, above = i, short, 1 if over else 0
        if row < 0:
            return True
        if depth == most_pivots:
            return False
        child = tree.links[node, 0] if node < room else -1
        while child >= 0 and tree.links[child, 2] != 2 * row + above:
            child = tree.links[child, 1]
        if child < 0:
            is_stored = tree.stored[0] < room and node < room
            child = tree.stored[0] if is_stored else room + depth
            if not _pivot(row, above, node, child, path[:depth], basis, table, fixed, tree):
                return False
            if is_stored:
                tree.links[child, 1], tree.links[node, 0] = tree.links[node, 0], child
                tree.stored[0] += 1
        path[depth], node = child, child
        _apply(tree.columns[child], row, beta)
        basis[row] = tree.links[child, 3]
    return False


@njit
def _apply(column, row, vector):
    """Multiply a vector by the elementary matrix of a pivot."""
    step = vector[row] / column[row]
    if step != 0:
        for i in range(len(vector)):
            vector[i] -= step * column[i]
    vector[row] = step


@njit
def _pivot(row, above, parent, node, path, basis, table, fixed, tree):
    """Choose the variable that enters for a row, and write the node; return False if none can."""
    number = len(basis)
    left = np.zeros(number)
    left[row] = 1.0
    for k in range(len(path) - 1, -1, -1):
        column, own = tree.columns[path[k]], tree.links[path[k], 2] // 2
        total = left[own]
        for i in range(number):
            if i != own:
                total -= left[i] * column[i]
        left[own] = total / column[own]
    across = np.zeros(number + table.shape[1])
    for i in range(number):
        across[i] = left[i]
        if left[i] != 0:
            for j in range(table.shape[1]):
                across[number + j] += left[i] * table[i, j]
    for i in range(number):
        across[basis[i]] = 0.0
    # The largest pivot among those that keep the reduced costs' signs, within a tolerance (Harris, 1973).
    sign, costs = 1.0 if above else -1.0, tree.costs[parent]
    most, largest, enters = np.inf, LEAST_PIVOT, -1
    for j in range(len(across)):
        if sign * across[j] > LEAST_PIVOT and not fixed[j]:
            most = min(most, (costs[j] + DUAL_TOLERANCE) / (sign * across[j]))
    for j in range(len(across)):
        if sign * across[j] > largest and not fixed[j] and costs[j] <= most * sign * across[j]:
            enters, largest = j, sign * across[j]
    if enters < 0:
        return False
    column = tree.columns[node]
    for i in range(number):
        column[i] = table[i, enters - number] if enters >= number else 0.0
    if enters < number:
        column[enters] = 1.0
    for k in range(len(path)):
        _apply(tree.columns[path[k]], tree.links[path[k], 2] // 2, column)
    if abs(column[row] - across[enters]) > 1e-6 * abs(across[enters]):
        return False
    ratio = costs[enters] / across[enters]
    for j in range(len(across)):
        tree.costs[node, j] = max(costs[j] - ratio * across[j], 0.0)
    tree.costs[node, basis[row]] = abs(ratio)
    tree.costs[node, enters] = 0.0
    tree.links[node, 0], tree.links[node, 2], tree.links[node, 3] = -1, 2 * row + above, enters
    return True
