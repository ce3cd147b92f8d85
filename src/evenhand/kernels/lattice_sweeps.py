"""Expectations and maxima on the lattice of counts, one line of the lattice at a time.

Splits. An elementary split (i -> j, p) moves each arm of slot i to slot j with probability p, independently. On counts

    (E f)(z) = sum_l Bin(l; z_i, 1 - p) f(z with l arms left in i and the others in j),

which mixes only points of one line {z + k (e_i - e_j)}, by the same triangular matrix on every line. When every arm
of slot i moves by row B_i, the expectation over the next counts is the symmetric power of B, and symmetric powers
multiply: B = E_1 ... E_m P with splits E and a permutation P gives the expectation as m sweeps over lines. `factorise`
looks for such a product: from the left, row_i = (1 - p) row_i' + p row_j; from the right the same with columns; each
with the largest p that leaves no negative entry, so that one entry more becomes 0. All entries stay probabilities,
hence nothing cancels. Matrices without cycles always have a product, and so do all of two states; others may.

Laws. Where there is none, the law of n arms is a table, grown by one arm at a time with sums of positive terms,

    law_n(z)(y) = sum_j B_ij law_{n-1}(z - e_i)(y - e_j)        (any i with z_i > 0).

Climbing the budget. With cells k = 1..C, each worth g_k and using d_k units for one arm moved along a step of the
lattice (s_k -> l_k), the best value with j units from cell k on is

    F_k(z, j) = max( F_{k+1}(z, j),  g_k + F_k(z - e_{s_k} + e_{l_k}, j - d_k) ),      F_{C+1}(z, j) = f(z),

two comparisons a point, cell and unit, in place of all allocations. It needs that no arm is served twice: l_k is not
the source of cell k or of a later one.

Each function here that has a twin in `compiled_sweeps` says the same in NumPy.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from evenhand.kernels.lattice import lattice_index, lattice_points, lattice_tables
from evenhand.typing import Array, Bools, Floats, Indices, Ints

TAIL = 1e-16
"""Probability that a binomial window may leave out, before it is scaled back to a law."""

_MOST_NODES = 1500
"""Matrices that `factorise` may look at."""

_ROUNDING = 1e-14
"""How near the product of splits must be to the matrix, and what counts as 0 in it."""


class Split(NamedTuple):
    """Each arm of one slot moves to another with some probability."""

    source: int
    target: int
    probability: float


class Bands(NamedTuple):
    """The triangular matrix of a split, row by row, without what is negligible."""

    first: Indices
    """(row,) the first column kept."""

    starts: Ints
    """(row + 1,) where the weights of each row begin."""

    weights: Floats
    """(entry,) weights of neighbouring columns; each row sums to 1."""


class Lines(NamedTuple):
    """A lattice cut into lines along which one arm moves between two slots."""

    points: Indices
    """(point,) points line by line, by the number of arms in the source."""

    starts: Ints
    """(line + 1,) where each line begins."""


# -- splits: a matrix as a product of them, and their sweeps ----------------------------------------------------------


def factorise(matrix: Floats) -> tuple[list[Split], Ints] | None:
    """Splits and a permutation whose product is the matrix, or None where none was found.

    Args:
        matrix: (slot, next_state) probabilities.

    Returns:
        Splits in the order in which arms go through them, and the (slot,) state where each slot ends.
    """
    # The search may branch for very long: it gives up after so many matrices.
    nodes = iter(range(_MOST_NODES))
    found = _search(matrix, nodes, set())
    if found is None:
        return None
    left, ends, right = found
    # Splits found from the right act on states, behind the permutation; by the slots that end in those states they can
    # be applied before it, so that the permutation comes last.
    splits = left + [Split(_slot_of(ends, source), _slot_of(ends, target), p) for source, target, p in reversed(right)]
    return (splits, ends) if product_error(matrix, splits, ends) <= len(matrix) * _ROUNDING else None


def _slot_of(ends: Ints, state: int) -> int:
    return int(np.flatnonzero(ends == state)[0])


def product_error(matrix: Floats, splits: list[Split], ends: Ints) -> float:
    """How far the product of splits is from the matrix: the largest sum of a row of differences."""
    product = np.eye(len(matrix))
    for source, target, p in splits:
        product[:, target] += p * product[:, source]
        product[:, source] *= 1 - p
    return float(np.abs(product - matrix[:, ends]).sum(axis=1).max())


Found = tuple[list[Split], Ints, list[Split]]


def _search(matrix: Floats, nodes: Iterator[int], seen: set[bytes]) -> Found | None:
    """Depth first over eliminations; each leaves one entry less, so the depth is at most S^2."""
    if next(nodes, None) is None:
        return None
    pattern = matrix > 0
    # At most one entry a row and column: nothing is left but a permutation.
    if pattern.sum(axis=0).max() <= 1 and pattern.sum(axis=1).max() <= 1:
        return [], _ends(pattern), []
    for from_left, step, smaller in _eliminations(matrix):
        # Different orders of elimination often meet the same matrix again: what failed once is not tried twice.
        key = np.round(smaller, 12).tobytes()
        if key in seen:
            continue
        seen.add(key)
        rest = _search(smaller, nodes, seen)
        if rest is not None:
            left, ends, right = rest
            return ([step, *left], ends, right) if from_left else (left, ends, [step, *right])
    return None


def _ends(pattern: Bools) -> Ints:
    """(slot,) the column of each row's only entry; rows of slots that were emptied share out the other columns."""
    ends = np.where(pattern.any(axis=1), pattern.argmax(axis=1), -1)
    # No arm is in an emptied slot, so where it ends is open, as long as all columns are used.
    ends[ends < 0] = np.setdiff1d(np.arange(len(pattern)), ends)
    return ends.astype(np.int64)


def _eliminations(matrix: Floats) -> Iterator[tuple[bool, Split, Floats]]:
    """Every split that can be divided out, from the left and then from the right, and the matrix without it."""
    slots = range(len(matrix))
    for source in slots:
        for target in slots:
            if source != target and (step := _left_step(matrix, source, target)) is not None:
                yield True, *step
    for source in slots:
        for target in slots:
            if source != target and (step := _right_step(matrix, source, target)) is not None:
                yield False, *step


def _left_step(matrix: Floats, source: int, target: int) -> tuple[Split, Floats] | None:
    """Divide out a split before the others: row_source = (1 - p) row_source' + p row_target."""
    support = matrix[target] > 0
    if not support.any() or not matrix[source].any():
        return None
    # The largest p that leaves no entry of the rest negative.
    p = min(float((matrix[source, support] / matrix[target, support]).min()), 1.0)
    if p <= _ROUNDING:
        return None
    smaller = matrix.copy()
    rest = matrix[source] - p * matrix[target]
    rest[rest < _ROUNDING] = 0.0
    # Where nothing is left, all arms of the source go on to the target.
    smaller[source] = rest / rest.sum() if rest.any() else 0.0
    return Split(source, target, p if rest.any() else 1.0), smaller


def _right_step(matrix: Floats, source: int, target: int) -> tuple[Split, Floats] | None:
    """Divide out a split behind the others: column_target = column_target' + p/(1 - p) column_source."""
    support = matrix[:, source] > 0
    if not support.any():
        return None
    odds = float((matrix[support, target] / matrix[support, source]).min())
    if odds <= _ROUNDING:
        return None
    smaller = matrix.copy()
    smaller[:, target] -= odds * matrix[:, source]
    # Arms that went on to the target are those of the source again: its column regains them.
    smaller[:, source] *= 1 + odds
    smaller[smaller < _ROUNDING] = 0.0
    return Split(source, target, odds / (1 + odds)), smaller


def binomial_bands(num_arms: int, leave: float) -> Bands:
    """The laws Bin(m, 1 - leave) of the arms that stay, for m = 0 to num_arms, cut where TAIL is left out.

    Row by row, Bin(m)(l) = (1 - leave) Bin(m - 1)(l - 1) + leave Bin(m - 1)(l): sums of positive terms.
    """
    row = np.ones(1)
    first, pieces = [0], [row]
    for m in range(1, num_arms + 1):
        longer = np.zeros(m + 1)
        longer[1:] = (1 - leave) * row
        longer[:-1] += leave * row
        longer[longer < 1e-300] = 0.0  # no slow subnormal numbers
        row = longer
        # The whole row is kept for the next one, so that cuts do not add up; only what is stored is cut and scaled.
        low = int(np.searchsorted(np.cumsum(row), TAIL / 2))
        high = len(row) - int(np.searchsorted(np.cumsum(row[::-1]), TAIL / 2))
        first.append(low)
        pieces.append(row[low:high] / row[low:high].sum())
    starts = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])])
    return Bands(np.array(first, dtype=np.int32), starts.astype(np.int64), np.concatenate(pieces))


def lattice_lines(num_arms: int, num_states: int, source: int, target: int) -> Lines:
    """The lines between two slots of the lattice, longest first."""
    ends = lattice_points(num_arms, num_states - 1)  # arms of source and target counted together, last
    # By length: the compiled sweep takes several neighbouring lines abreast, as far as the longest of them goes.
    ends = ends[np.argsort(-ends[:, -1], kind="stable")]
    together = ends[:, -1]
    starts = np.concatenate([[0], np.cumsum(together + 1)])
    line = np.repeat(np.arange(len(ends)), together + 1)
    stay = np.arange(starts[-1]) - starts[line]
    # (point, state) along each line by the number of arms that stay.
    points = np.empty((len(line), num_states), dtype=np.int64)
    others = [state for state in range(num_states) if state not in (source, target)]
    points[:, others] = ends[line, :-1]
    points[:, source] = stay
    points[:, target] = together[line] - stay
    return Lines(lattice_index(points).astype(np.int32), starts.astype(np.int64))


def sweep_lines(values: Floats, lines: Lines, bands: Bands) -> Floats:
    """Apply one split, in NumPy.

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


# -- laws, where there is no product ----------------------------------------------------------------------------------


def grow_law(law: Floats, rows: Floats, leaving: Indices, parent: Indices, below: Indices) -> Floats:
    """The law of one arm more, in NumPy.

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


def dot_rows(left: Floats, right: Floats, i: Ints, j: Ints) -> Floats:
    """(pair,) the products of chosen rows, in NumPy.

    Args:
        left: (row, entry) one table.
        right: (row, entry) the other.
        i: (pair,) rows of `left`.
        j: (pair,) rows of `right`.
    """
    return np.array([left[a] @ right[b] for a, b in zip(i, j, strict=True)])


# -- the maximum by climbing the budget -------------------------------------------------------------------------------


class Steps(NamedTuple):
    """Where serving one arm leads, by runs: points that differ in their last two states only are neighbours in number.

    Within a run the step of a cell adds the same to the number of a point, wherever there is an arm to serve.
    """

    runs: Ints
    """(run + 1,) where each run begins."""

    offsets: Ints
    """(cell, run) what a step adds to the number."""

    begins: Ints
    """(cell, run) the first place in the run with an arm to serve ..."""

    ends: Ints
    """(cell, run) ... and the end of these places."""


def lattice_steps(points: Array, sources: Ints, landings: Ints) -> Steps:
    """The steps of cells on a lattice.

    Args:
        points: (point, state) the whole lattice.
        sources: (cell,) the state that an arm leaves.
        landings: (cell,) the state that it enters.
    """
    # Within a run the last but one state counts up from 0, and the last one down.
    runs = np.append(np.flatnonzero(points[:, -2] == 0), len(points))
    sizes = np.diff(runs)
    offsets, begins, ends = (np.zeros((len(sources), len(sizes)), dtype=np.int64) for _ in range(3))
    for k, (source, landing) in enumerate(zip(sources, landings, strict=True)):
        # Within a run the places with an arm to serve are neighbours: all but the first or the last, all, or none.
        able = points[:, source] > 0
        number = np.add.reduceat(able, runs[:-1], dtype=np.int64)
        begins[k] = (points[runs[:-1], source] == 0) & (number > 0)
        ends[k] = begins[k] + number
        some = np.flatnonzero(number)
        origin = runs[some] + begins[k, some]
        moved = points[origin]
        moved[:, source] -= 1
        moved[:, landing] += 1
        offsets[k, some] = lattice_index(moved) - origin
    return Steps(runs.astype(np.int64), offsets, begins, ends)


def climb_budget(
    final: Floats, gains: Floats, units: Ints, steps: Steps, strides: Ints, num_units: int
) -> tuple[Floats, Ints]:
    """The best use of a budget, cell after cell, in NumPy.

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
    """What coded choices are, in NumPy.

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


def number_points(points: Array, num_arms: Array | np.int64, tables: Ints) -> Ints:
    """(point,) numbers by tables of binomials; with (point,) numbers of arms, each in the lattice of its own.

    Args:
        points: (point, state) points.
        num_arms: how many arms they have.
        tables: (behind, left) binomials (`lattice_tables`).
    """
    last = points.shape[1] - 1
    left = np.broadcast_to(num_arms, len(points))
    index = np.zeros(len(points), dtype=np.int64)
    for s in range(last):
        after = left - points[:, s]
        index += tables[last - s, left] - tables[last - s, after]
        left = after
    return index


# -- from few arms to many --------------------------------------------------------------------------------------------


def interpolate(function: Floats, num_arms: int, points: Ints) -> Floats:
    """(point,) a function of few arms at the same proportions of many, linear on Kuhn's simplices.

    In running sums of the counts the lattice is {0 <= c_1 <= c_2 <= ... <= N}; from the whole parts of scaled sums,
    one coordinate after the other goes up, the one with the largest remainder first.

    Args:
        function: (coarse point,) values on the lattice of few arms.
        num_arms: how few.
        points: (point, state) the lattice of many arms.
    """
    # Running sums of the counts at the scale of few arms.
    sums = np.cumsum(points[:, :-1], axis=1) * (num_arms / points[0].sum())
    corner = np.floor(sums)
    rest = sums - corner
    order = np.argsort(rest[:, ::-1], axis=1, kind="stable")[:, ::-1]
    order = rest.shape[1] - 1 - order  # of equal remainders the later coordinate first, so that sums stay ordered
    # From corner to corner of the simplex, each with the difference of neighbouring remainders as its weight.
    tables = lattice_tables(num_arms, points.shape[1])
    rows = np.arange(len(points))
    value, before = np.zeros(len(points)), np.ones(len(points))
    for step in range(rest.shape[1] + 1):
        after = rest[rows, order[:, step]] if step < rest.shape[1] else np.zeros(len(points))
        whole = np.minimum(corner, num_arms).astype(np.int64)
        counts = np.diff(whole, axis=1, prepend=0, append=num_arms)
        value += (before - after) * function[number_points(counts, np.int64(num_arms), tables)]
        before = after
        if step < rest.shape[1]:
            corner[rows, order[:, step]] += 1
    return value


# -- the maximum by going through a list ------------------------------------------------------------------------------


class Listed(NamedTuple):
    """Allocations, each with what it takes and where it leads."""

    takes: Indices
    """(allocation, state) arms taken out of each state."""

    shifts: Indices
    """(allocation, state) arms that come in, less those taken."""

    arms: Indices
    """(allocation,) arms that the lattice has afterwards."""

    offsets: Ints
    """(allocation,) where the values of that lattice begin."""

    gains: Floats
    """(allocation,) what the allocation is worth."""


def best_listed(points: Indices, listed: Listed, tables: Ints, values: Floats) -> tuple[Floats, Ints]:
    """The best of the listed allocations that a point has the arms for, in NumPy.

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
        able = np.flatnonzero((points >= listed.takes[a]).all(axis=1))
        index = number_points(points[able] + listed.shifts[a], np.int64(listed.arms[a]), tables)
        offer = listed.gains[a] + values[listed.offsets[a] + index]
        better = offer > best[able]
        best[able[better]], choice[able[better]] = offer[better], a
    return best, choice
