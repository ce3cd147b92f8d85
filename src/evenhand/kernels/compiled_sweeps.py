"""What Numba compiles for the lattice of counts: the mathematics and the NumPy twins are in `lattice_sweeps`."""

import numpy as np
from numba import njit, prange

TASKS = 64
"""Parts that work is cut into; they take every 64th line, because the length of lines changes slowly."""


@njit(cache=True, parallel=True, fastmath={"reassoc", "contract"})
def _sweep(values, points, line_starts, first, row_starts, weights):
    batch, num_points = values.shape
    num_lines = len(line_starts) - 1
    longest = len(first)
    result = np.empty_like(values)
    for task in prange(TASKS):
        line = np.empty(longest)
        for part in range(task, batch * num_lines, TASKS):
            b, start = part // num_lines, line_starts[part % num_lines]
            size = line_starts[part % num_lines + 1] - start
            for m in range(size):
                line[m] = values[b, points[start + m]]
            for m in range(size):
                window = weights[row_starts[m] : row_starts[m + 1]]
                before = line[first[m] : first[m] + len(window)]
                total = 0.0
                for k in range(len(window)):
                    total += window[k] * before[k]
                result[b, points[start + m]] = total
    return result


def sweep_lines(values, lines, bands):
    """Apply one split (lattice_sweeps.sweep_lines)."""
    return _sweep(values, lines.points, lines.starts, bands.first, bands.starts, bands.weights)


@njit(cache=True, parallel=True)
def grow_law(law, rows, leaving, parent, below):
    """The law of one arm more (lattice_sweeps.grow_law)."""
    num_points, num_next = len(leaving), len(below)
    num_states = rows.shape[1]
    grown = np.empty((num_points, num_next))
    for i in prange(num_points):
        before = law[parent[i]]
        row = rows[leaving[i]]
        for y in range(num_next):
            total = 0.0
            for j in range(num_states):
                if below[y, j] >= 0:
                    total += row[j] * before[below[y, j]]
            grown[i, y] = total
    return grown


@njit(cache=True, parallel=True, fastmath={"reassoc", "contract"})
def dot_rows(left, right, i, j):
    """Products of chosen rows (lattice_sweeps.dot_rows)."""
    result = np.empty(len(i))
    for p in prange(len(i)):
        a, b = left[i[p]], right[j[p]]
        total = 0.0
        for k in range(len(a)):
            total += a[k] * b[k]
        result[p] = total
    return result


@njit(cache=True, parallel=True)
def climb_budget(final, gains, units, steps, strides, num_units):
    """The best use of a budget, cell after cell (lattice_sweeps.climb_budget)."""
    num_cells, num_points = steps.shape
    depth = units.max() + 1
    best = np.empty((depth, num_cells, num_points))
    code = np.zeros((depth, num_cells, num_points), dtype=np.int64)
    for p in prange(num_points):
        for layer in range(depth):
            for k in range(num_cells):
                best[layer, k, p] = final[p]
    for j in range(1, num_units + 1):
        layer = j % depth
        for p in prange(num_points):
            value, choice = final[p], np.int64(0)
            for k in range(num_cells - 1, -1, -1):
                after = steps[k, p]
                if j >= units[k] and after >= 0:
                    before = (j - units[k]) % depth
                    offer = gains[k] + best[before, k, after]
                    if offer > value:
                        value, choice = offer, strides[k] + code[before, k, after]
                best[layer, k, p] = value
                code[layer, k, p] = choice
    return best[num_units % depth, 0], code[num_units % depth, 0]


@njit(cache=True, parallel=True)
def _best_listed(points, takes, shifts, arms, offsets, gains, tables, values):
    num_points, num_states = points.shape
    best = np.full(num_points, -np.inf)
    choice = np.zeros(num_points, dtype=np.int64)
    for task in prange(TASKS):
        for p in range(task, num_points, TASKS):
            for a in range(len(gains)):
                able = True
                for s in range(num_states):
                    able = able and points[p, s] >= takes[a, s]
                if not able:
                    continue
                left = arms[a]
                index = offsets[a]
                for s in range(num_states - 1):
                    after = left - points[p, s] - shifts[a, s]
                    index += tables[num_states - 1 - s, left] - tables[num_states - 1 - s, after]
                    left = after
                offer = gains[a] + values[index]
                if offer > best[p]:
                    best[p], choice[p] = offer, a
    return best, choice


def best_listed(points, listed, tables, values):
    """The best of the listed allocations (lattice_sweeps.best_listed)."""
    return _best_listed(points, *listed, tables, values)
