"""What Numba compiles for the lattice of counts: the mathematics and the NumPy twins are in `lattice_sweeps`."""

import numpy as np

from evenhand.kernels.compiled import loops_alone
from evenhand.kernels.jit import njit, prange
from evenhand.kernels.threads import threads_for

TASKS = 64
"""Parts that work is cut into; they take every 64th piece, because the size of pieces changes slowly."""

ABREAST = 32
"""Lines that are swept side by side, so that a weight, once loaded, serves them all."""


# -- splits -----------------------------------------------------------------------------------------------------------


@njit(cache=True, parallel=loops_alone(), fastmath={"reassoc", "contract"})
def _sweep(values, points, line_starts, first, row_starts, weights):
    batch = len(values)
    num_lines = len(line_starts) - 1
    groups = (num_lines + ABREAST - 1) // ABREAST
    result = np.empty_like(values)
    for task in prange(min(TASKS, batch * groups)):
        table = np.zeros((len(first), ABREAST))
        row = np.empty(ABREAST)
        for part in range(task, batch * groups, TASKS):
            b, start = part // groups, (part % groups) * ABREAST
            stop = min(start + ABREAST, num_lines)
            # Gather so many lines side by side, one a column: a weight then serves them all.
            for q in range(stop - start):
                begin = line_starts[start + q]
                for m in range(line_starts[start + q + 1] - begin):
                    table[m, q] = values[b, points[begin + m]]
            wide = stop - start
            for m in range(line_starts[start + 1] - line_starts[start]):
                _combine(table, first[m], weights[row_starts[m] : row_starts[m + 1]], row)
                # Lines are the longest first, so those that have ended are the last ones.
                while line_starts[start + wide] - line_starts[start + wide - 1] <= m:
                    wide -= 1
                for q in range(wide):
                    result[b, points[line_starts[start + q] + m]] = row[q]
    return result


@njit(cache=True, fastmath={"reassoc", "contract"}, inline="always")
def _combine(table, first, window, row):
    """Weighted sum of neighbouring rows of a table, four at a time."""
    for q in range(ABREAST):
        row[q] = 0.0
    # Four rows at a time: one load and store of the result for four products.
    fours = len(window) // 4 * 4
    for k in range(0, fours, 4):
        w0, w1, w2, w3 = window[k], window[k + 1], window[k + 2], window[k + 3]
        m = first + k
        for q in range(ABREAST):
            row[q] += w0 * table[m, q] + w1 * table[m + 1, q] + w2 * table[m + 2, q] + w3 * table[m + 3, q]
    for k in range(fours, len(window)):
        w0, m = window[k], first + k
        for q in range(ABREAST):
            row[q] += w0 * table[m, q]


def sweep_lines(values, lines, bands):
    """Apply one split (lattice_sweeps.sweep_lines)."""
    with threads_for(values.size * len(bands.weights) / len(bands.first)):
        return _sweep(values, *lines, *bands)


# -- laws -------------------------------------------------------------------------------------------------------------


@njit(cache=True, parallel=loops_alone())
def _grow(law, rows, leaving, parent, below):
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


def grow_law(law, rows, leaving, parent, below):
    """The law of one arm more (lattice_sweeps.grow_law)."""
    with threads_for(len(leaving) * below.size):
        return _grow(law, rows, leaving, parent, below)


@njit(cache=True, parallel=loops_alone(), fastmath={"reassoc", "contract"})
def _dot(left, right, i, j):
    result = np.empty(len(i))
    for p in prange(len(i)):
        a, b = left[i[p]], right[j[p]]
        total = 0.0
        for k in range(len(a)):
            total += a[k] * b[k]
        result[p] = total
    return result


def dot_rows(left, right, i, j):
    """Products of chosen rows (lattice_sweeps.dot_rows)."""
    with threads_for(len(i) * left.shape[1]):
        return _dot(left, right, i, j)


# -- the maximum by climbing ------------------------------------------------------------------------------------------


@njit(cache=True, parallel=loops_alone())
def _climb(final, gains, units, run_starts, offsets, begins, ends, strides, num_units):
    num_cells, num_points = len(gains), len(final)
    depth = units.max() + 1
    best = np.empty((depth, num_cells, num_points))
    code = np.zeros((depth, num_cells, num_points), dtype=strides.dtype)
    # At budget 0 every F_k is the final value.
    for p in prange(num_points):
        for layer in range(depth):
            for k in range(num_cells):
                best[layer, k, p] = final[p]
    num_runs = len(run_starts) - 1
    tasks = min(TASKS, num_runs)
    # Budgets one after the other; within one, runs are independent, since steps lead to smaller budgets.
    for j in range(1, num_units + 1):
        for task in prange(tasks):
            for run in range(task, num_runs, tasks):
                start, stop = run_starts[run], run_starts[run + 1]
                value = final[start:stop]
                choice = np.zeros(stop - start, dtype=strides.dtype)
                for k in range(num_cells - 1, -1, -1):
                    # F_k begins as F_{k+1}, and serving one arm more is offered.
                    new_value, new_choice = best[j % depth, k, start:stop], code[j % depth, k, start:stop]
                    for p in range(stop - start):
                        new_value[p], new_choice[p] = value[p], choice[p]
                    value, choice = new_value, new_choice
                    if j >= units[k]:
                        low, high = begins[k, run], ends[k, run]
                        before = (j - units[k]) % depth
                        if high > low:
                            other = start + offsets[k, run]
                            _offer(
                                value[low:high],
                                choice[low:high],
                                best[before, k, other + low : other + high],
                                code[before, k, other + low : other + high],
                                gains[k],
                                strides[k],
                            )
    return best[num_units % depth, 0], code[num_units % depth, 0]


@njit(cache=True, inline="always")
def _offer(value, choice, value_before, choice_before, gain, stride):
    # Without a branch in it the loop can use vector registers.
    for p in range(len(value)):
        offer = gain + value_before[p]
        better = offer > value[p]
        value[p] = offer if better else value[p]
        choice[p] = choice_before[p] + stride if better else choice[p]


def climb_budget(final, gains, units, steps, strides, num_units):
    """The best use of a budget, cell after cell (lattice_sweeps.climb_budget)."""
    with threads_for(len(final) * len(gains)):
        return _climb(final, gains, units, *steps, strides, num_units)  # type: ignore[call-arg]


# -- decoding ---------------------------------------------------------------------------------------------------------


@njit(cache=True, parallel=loops_alone())
def _decode(points, code, gains, sources, landings, base, tables):
    num_points, num_states = points.shape
    num_cells = len(gains)
    amounts = np.empty((num_points, num_cells), dtype=np.int32)
    worth = np.empty(num_points)
    targets = np.empty(num_points, dtype=np.int64)
    for task in prange(TASKS):
        reached = np.empty(num_states, dtype=np.int64)
        for p in range(task * num_points // TASKS, (task + 1) * num_points // TASKS):
            for s in range(num_states):
                reached[s] = points[p, s]
            left, total = np.int64(code[p]), 0.0
            # Digits of the code, the first cell's last; the last cell takes what is left.
            for k in range(num_cells):
                amount = left % base if k < num_cells - 1 else left
                left //= base
                amounts[p, k] = amount
                total += gains[k] * amount
                reached[sources[k]] -= amount
                reached[landings[k]] += amount
            worth[p] = total
            # The number of the point reached, as in `lattice_index`.
            left, index = tables.shape[1] - 1, np.int64(0)
            for s in range(num_states - 1):
                after = left - reached[s]
                index += tables[num_states - 1 - s, left] - tables[num_states - 1 - s, after]
                left = after
            targets[p] = index
    return amounts, worth, targets


def decode_climb(points, code, gains, sources, landings, base, tables):
    """What coded choices are (lattice_sweeps.decode_climb)."""
    with threads_for(10 * points.size):
        return _decode(points, code, gains, sources, landings, base, tables)


# -- the maximum by a list --------------------------------------------------------------------------------------------


@njit(cache=True, parallel=loops_alone())
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
    with threads_for(points.size * len(listed.gains)):
        return _best_listed(points, *listed, tables, values)  # type: ignore[call-arg]
