"""NumPy versions of the compiled loops on the lattice of counts (`evenhand.kernels.lattice_sweeps`)."""

import numpy as np

from evenhand.kernels import Bands, Lines, Listed, Steps, lattice_index, number_points
from evenhand.typing import Bools, Floats, Indices, Ints


def sweep_lines(values: Floats, lines: Lines, bands: Bands) -> Floats:
    """Apply one split.

    Args:
        values: (batch, point) functions on the lattice.
        lines: the lines between the split's slots.
        bands: the split's triangular matrix.

    Returns:
        (batch, point) their expectations.
    """
    size = np.diff(lines.starts)
    line = np.repeat(np.arange(len(size)), size)
    stay = np.arange(len(line)) - lines.starts[line]
    # The same triangular matrix for every line; lines are the columns of a table.
    matrix = _full(bands)
    result = np.empty_like(values)
    for b, function in enumerate(values):
        table = np.zeros((len(matrix), len(size)))
        table[stay, line] = function[lines.points]
        result[b, lines.points] = (matrix @ table)[stay, line]
    return result


def _full(bands: Bands) -> Floats:
    """(row, column) the triangular matrix spelt out."""
    size = np.diff(bands.starts)
    row = np.repeat(np.arange(len(size)), size)
    matrix = np.zeros((len(size), len(size)))
    matrix[row, np.arange(len(row)) - bands.starts[row] + bands.first[row]] = bands.weights
    return matrix


def grow_distribution(law: Floats, rows: Floats, leaving: Indices, parent: Indices, below: Indices) -> Floats:
    """The law of one arm more.

    Args:
        law: (point before, next point before) law of one arm less.
        rows: (slot, next_state) probabilities.
        leaving: (point,) the slot whose arm is added last.
        parent: (point,) the point without that arm.
        below: (next point, state) the next point without an arm of that state, -1 where it has none.

    Returns:
        (point, next point) probabilities.
    """
    # A point that is not there is the last column, and 0.
    padded = np.concatenate([law, np.zeros((len(law), 1))], axis=1)[parent]
    grown = np.zeros((len(leaving), len(below)))
    for state in range(rows.shape[1]):
        grown += rows[leaving, state][:, None] * padded[:, below[:, state]]
    return grown


def mix_arm(functions: Floats, rows: Floats, parent: Ints, points: Ints) -> Floats:
    """(config, point) expectations over where one arm more arrives.

    Args:
        functions: (parent, point with the arm) functions.
        rows: (config, state) its probabilities.
        parent: (config,) the function of each config.
        points: (point, state) the lattice without it.
    """
    after = [lattice_index(points + unit) for unit in np.eye(points.shape[1], dtype=np.int64)]
    return sum(row[:, None] * functions[parent][:, place] for row, place in zip(rows.T, after, strict=True))


def climb_budget(
    final: Floats, gains: Floats, units: Ints, steps: Steps, strides: Ints, num_units: int
) -> tuple[Floats, Ints]:
    """The best use of a budget, cell after cell.

    Args:
        final: (point,) what the point reached is worth.
        gains: (cell,) what serving one arm is worth.
        units: (cell,) units that it uses, at least 1.
        steps: where serving one arm leads.
        strides: (cell,) what one arm served adds to the code of a choice.
        num_units: the budget.

    Returns:
        (point,) best values, and the (point,) codes of the choices.
    """
    # F_k(., j) looks back by d_k units at most, so a ring of that many budgets is all that is kept.
    depth = int(units.max()) + 1
    best = np.tile(final, (depth, len(gains), 1))
    code = np.zeros(best.shape, dtype=strides.dtype)
    able, after = _spell_out(steps)
    for j in range(1, num_units + 1):
        # From the last cell to the first: `value` is F_{k+1}(., j) when cell k is looked at, and F_k(., j) after it.
        value, choice = final, np.zeros(len(final), dtype=strides.dtype)
        for k in range(len(gains) - 1, -1, -1):
            # One arm more by cell k. Only if that is strictly better: nobody is served for nothing.
            if j >= units[k]:
                before = (j - units[k]) % depth
                offer = np.where(able[k], gains[k] + best[before, k, after[k]], -np.inf)
                choice = np.where(offer > value, strides[k] + code[before, k, after[k]], choice)
                value = np.maximum(value, offer)
            best[j % depth, k], code[j % depth, k] = value, choice
    return best[num_units % depth, 0], code[num_units % depth, 0]


def _spell_out(steps: Steps) -> tuple[Bools, Ints]:
    """(cell, point) whether there is an arm to serve, and the point after it."""
    run = np.repeat(np.arange(len(steps.runs) - 1), np.diff(steps.runs))
    point = np.arange(len(run))
    place = point - steps.runs[run]
    able = (steps.begins[:, run] <= place) & (place < steps.ends[:, run])
    return able, np.where(able, point + steps.offsets[:, run], 0)


def decode_climb(
    points: Indices, code: Ints, gains: Floats, sources: Ints, landings: Ints, base: int, tables: Ints
) -> tuple[Indices, Floats, Ints]:
    """What coded choices are.

    Args:
        points: (point, state) the whole lattice.
        code: (point,) amounts as digits, the first cell's last.
        gains: (cell,) what serving one arm is worth.
        sources: (cell,) the state that it leaves.
        landings: (cell,) the state that it enters.
        base: what the digits count to.
        tables: (behind, left) binomials (`lattice_tables`) up to the number of arms.

    Returns:
        (point, cell) amounts, (point,) what they are worth, and the (point,) numbers of the points reached.
    """
    amounts = np.empty((len(points), len(gains)), dtype=np.int32)
    reached = points.astype(np.int64)
    for k, (source, landing) in enumerate(zip(sources, landings, strict=True)):
        # The last cell has what is left of the code, which no base needs to limit.
        amounts[:, k] = code % base if k < len(gains) - 1 else code
        code = code // base
        reached[:, source] -= amounts[:, k]
        reached[:, landing] += amounts[:, k]
    index = number_points(reached, np.int64(tables.shape[1] - 1), tables)
    return amounts, amounts @ gains, index


def best_listed(points: Indices, listed: Listed, tables: Ints, values: Floats) -> tuple[Floats, Ints]:
    """The best of the listed allocations that a point has the arms for.

    Args:
        points: (point, state) arms in each state.
        listed: the allocations.
        tables: (behind, left) binomials (`lattice_tables`).
        values: (outcome,) what is reached is worth.

    Returns:
        (point,) best values, and the (point,) numbers of the first best allocations.
    """
    best = np.full(len(points), -np.inf)
    choice = np.zeros(len(points), dtype=np.int64)
    for a in range(len(listed.gains)):
        # Only points that have the arms to take.
        on_face = (points == listed.takes[a]) | ((listed.faces[a] >> np.arange(points.shape[1])) & 1 == 0)
        able = np.flatnonzero(((points >= listed.takes[a]) & on_face).all(axis=1))
        index = number_points(points[able] + listed.shifts[a], np.int64(listed.arms[a]), tables)
        offer = listed.gains[a] + values[listed.offsets[a] + index]
        better = offer > best[able]
        best[able[better]], choice[able[better]] = offer[better], a
    return best, choice
