"""Compiled loops on the lattice of counts; the mathematics is in `splits`, NumPy versions are in tests/oracles.

Large work is cut into parts for threads, which do not change the result.
"""

import numpy as np

from evenhand.kernels.compilation import in_parts, njit
from evenhand.kernels.splits import Arrivals, Bands, Lines, Listed, Steps
from evenhand.parallel import num_threads
from evenhand.typing import Array, Floats, Indices, Ints

ABREAST = 32
"""Lines that are swept side by side, so that a weight, once loaded, serves them all."""


# -- splits -----------------------------------------------------------------------------------------------------------


def sweep_lines(values: Floats, lines: Lines, bands: Bands) -> Floats:
    """Apply one split.

    Args:
        values: (batch, point) functions on the lattice.
        lines: the lines between the split's slots.
        bands: the split's triangular matrix.

    Returns:
        (batch, point) their expectations.
    """
    result = np.empty_like(values)
    work = values.size * len(bands.weights) / len(bands.first)
    in_parts(_sweep, work, values, lines, bands, result)
    return result


@njit(fastmath={"reassoc", "contract"})
def _sweep(part, parts, values, lines, bands, result):
    points, line_starts = lines
    first, row_starts, weights = bands
    batch = len(values)
    num_lines = len(line_starts) - 1
    groups = (num_lines + ABREAST - 1) // ABREAST
    table = np.zeros((len(first), ABREAST))
    row = np.empty(ABREAST)
    # The length of lines changes slowly: each part takes every so manieth group.
    for number in range(part, batch * groups, parts):
        b, start = number // groups, (number % groups) * ABREAST
        stop = min(start + ABREAST, num_lines)
        # Gather so many lines side by side, one per column: a weight then serves them all.
        for q in range(stop - start):
            begin = line_starts[start + q]
            for m in range(line_starts[start + q + 1] - begin):
                table[m, q] = values[b, points[begin + m]]
        wide = stop - start
        for m in range(line_starts[start + 1] - line_starts[start]):
            row[:] = 0.0
            # Four rows at a time: one load and store of the result for four products.
            begin, end = row_starts[m], row_starts[m + 1]
            fours = begin + (end - begin) // 4 * 4
            k, n = begin, first[m]
            while k < fours:
                w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
                for q in range(ABREAST):
                    row[q] += w0 * table[n, q] + w1 * table[n + 1, q] + w2 * table[n + 2, q] + w3 * table[n + 3, q]
                k, n = k + 4, n + 4
            while k < end:
                w0 = weights[k]
                for q in range(ABREAST):
                    row[q] += w0 * table[n, q]
                k, n = k + 1, n + 1
            # Lines are the longest first, so those that have ended are the last ones.
            while line_starts[start + wide] - line_starts[start + wide - 1] <= m:
                wide -= 1
            for q in range(wide):
                result[b, points[line_starts[start + q] + m]] = row[q]


# -- distributions ----------------------------------------------------------------------------------------------------


def grow_distribution(law: Floats, rows: Floats, leaving: Indices, parent: Indices, below: Indices) -> Floats:
    """The distribution of one arm more.

    Args:
        law: (point before, next point before) distribution of one arm less.
        rows: (slot, next_state) probabilities.
        leaving: (point,) the slot whose arm is added last.
        parent: (point,) the point without that arm.
        below: (next point, state) the next point without an arm of that state, -1 if it has none.

    Returns:
        (point, next point) probabilities.
    """
    grown = np.empty((len(leaving), len(below)))
    in_parts(_grow, len(leaving) * below.size, law, rows, leaving, parent, below, grown)
    return grown


@njit
def _grow(part, parts, law, rows, leaving, parent, below, grown):
    num_next, num_states = below.shape
    for i in range(part, len(leaving), parts):
        before = law[parent[i]]
        row = rows[leaving[i]]
        for y in range(num_next):
            total = 0.0
            for j in range(num_states):
                if below[y, j] >= 0:
                    total += row[j] * before[below[y, j]]
            grown[i, y] = total


def mix_arm(functions: Floats, rows: Floats, parent: Ints, arrivals: Arrivals) -> Floats:
    """(config, point) expectations over where one arm more arrives.

    Args:
        functions: (parent, point with the arm) functions.
        rows: (config, state) its probabilities.
        parent: (config,) the function of each config.
        arrivals: of the lattice without it.
    """
    mixed = np.empty((len(rows), int(arrivals.runs[-1])))
    in_parts(_mix, mixed.size * rows.shape[1], functions, rows, parent, arrivals, mixed)
    return mixed


@njit(fastmath={"contract"})
def _mix(part, parts, functions, rows, parent, arrivals, mixed):
    runs, offsets = arrivals
    num_states, num_runs = offsets.shape
    for i in range(part, len(rows), parts):
        before, row, own = functions[parent[i]], rows[i], mixed[i]
        for run in range(num_runs):
            begin, end = runs[run], runs[run + 1]
            here = own[begin:end]
            for j in range(num_states):
                p, there = row[j], before[begin + offsets[j, run] : end + offsets[j, run]]
                if j == 0:
                    for y in range(len(here)):
                        here[y] = p * there[y]
                else:
                    for y in range(len(here)):
                        here[y] += p * there[y]


# -- the maximum by climbing ------------------------------------------------------------------------------------------


def climb_budget(
    final: Floats, gains: Floats, units: Ints, steps: Steps, strides: Array, num_units: int
) -> tuple[Floats, Ints]:
    """The best use of a budget, cell after cell.

    Args:
        final: (point,) the value of the point that is reached.
        gains: (cell,) the value of serving one arm.
        units: (cell,) units that it uses, at least 1.
        steps: where serving one arm leads.
        strides: (cell,) what one arm served adds to the code of a choice.
        num_units: the budget.

    Returns:
        (point,) best values, and the (point,) codes of the choices.
    """
    # F_k(., j) depends on at most d_k units less, so a ring of that many budgets is enough. At budget 0, and beyond the
    # last cell, it is `final`.
    depth = int(units.max()) + 1
    best = np.tile(final, (depth, len(gains) + 1, 1))
    code = np.zeros(best.shape, dtype=strides.dtype)
    # Budgets one after the other; within one, runs are independent, since steps lead to smaller budgets.
    for j in range(1, num_units + 1):
        in_parts(_climb, 10.0 * final.size * len(gains), j, (gains, units, strides), steps, best, code)
    return best[num_units % depth, 0], code[num_units % depth, 0]


@njit
def _climb(part, parts, j, cells, steps, best, code):
    gains, units, strides = cells
    run_starts, offsets, begins, ends = steps
    depth, num_points = len(best), best.shape[2]
    here = j % depth
    # Neighbouring runs, so that threads do not write next to each other.
    run = np.searchsorted(run_starts, part * num_points // parts)
    while run_starts[run] < (part + 1) * num_points // parts:
        start, stop = run_starts[run], run_starts[run + 1]
        for k in range(len(gains) - 1, -1, -1):
            # F_k begins as F_{k+1}, and serving one arm more is offered.
            value, choice = best[here, k, start:stop], code[here, k, start:stop]
            value_without, choice_without = best[here, k + 1, start:stop], code[here, k + 1, start:stop]
            low, high = begins[k, run], ends[k, run]
            if j < units[k]:
                low, high = 0, 0
            # Element by element: the assignment of a slice takes three seconds to compile.
            for p in range(low):
                value[p], choice[p] = value_without[p], choice_without[p]
            for p in range(high, stop - start):
                value[p], choice[p] = value_without[p], choice_without[p]
            before, other = (j - units[k]) % depth, start + offsets[k, run]
            value_with = best[before, k, other + low : other + high]
            choice_with = code[before, k, other + low : other + high]
            value, value_without = value[low:high], value_without[low:high]
            choice, choice_without = choice[low:high], choice_without[low:high]
            gain, stride = gains[k], strides[k]
            # Without a branch in it the loop can use vector registers.
            for p in range(high - low):
                offer = gain + value_with[p]
                better = offer > value_without[p]
                value[p] = offer if better else value_without[p]
                choice[p] = choice_with[p] + stride if better else choice_without[p]
        run += 1


# -- the maximum by a list --------------------------------------------------------------------------------------------


def best_listed(points: Array, listed: Listed, tables: Ints, values: Floats) -> tuple[Floats, Ints, Floats]:
    """The best of the listed allocations that a point has the arms for.

    Args:
        points: (point, state) arms in each state.
        listed: the allocations.
        tables: (behind, left) binomials (`lattice_tables`).
        values: (outcome,) the value of what is reached.

    Returns:
        (point,) best values, the (point,) numbers of the first best allocations, and (allocation,) by how much each is
        worse than the best at least, wherever there are the arms for it.
    """
    best, choice = np.empty(len(points)), np.empty(len(points), dtype=np.int64)
    deficits = np.full((num_threads(), len(listed.gains)), np.inf)
    in_parts(_best_listed, points.size * len(listed.gains), points, listed, tables, values, best, choice, deficits)
    return best, choice, deficits.min(axis=0)


@njit
def _best_listed(part, parts, points, listed, tables, values, best, choice, deficits):
    takes, faces, shifts, arms, offsets, gains = listed
    num_points, num_states = points.shape
    offers, least = np.empty(len(gains)), deficits[part]
    for p in range(part, num_points, parts):
        top, first = -np.inf, 0
        for a in range(len(gains)):
            able = True
            for s in range(num_states):
                able = able and points[p, s] >= takes[a, s]
                able = able and (points[p, s] == takes[a, s] or not (faces[a] >> s) & 1)
            offers[a] = -np.inf
            if not able:
                continue
            left, index, behind = arms[a], offsets[a], num_states - 1
            for s in range(num_states):
                behind -= (faces[a] >> s) & 1
            # On the face, slots without arms are left out.
            for s in range(num_states):
                if not (faces[a] >> s) & 1 and behind > 0:
                    after = left - points[p, s] - shifts[a, s]
                    index += tables[behind, left] - tables[behind, after]
                    left, behind = after, behind - 1
            offers[a] = gains[a] + values[index]
            if offers[a] > top:
                top, first = offers[a], a
        best[p], choice[p] = top, first
        for a in range(len(gains)):
            least[a] = min(least[a], top - offers[a])
