"""Expectations and maxima on the lattice of counts, one line of the lattice at a time.

Splits. An elementary split (i -> j, p) moves each arm of slot i to slot j with probability p, independently. On counts

    (E f)(z) = sum_l Bin(l; z_i, 1 - p) f(z with l arms left in i and the others in j),

which mixes only points of one line {z + k (e_i - e_j)}, by the same triangular matrix on every line. When every arm
of slot i moves by row B_i, the expectation over the next counts is the symmetric power of B, and symmetric powers
multiply: B = E_1 ... E_m P with splits E and a permutation P gives the expectation as m sweeps over lines. `factorise`
looks for such a product: from the left, row_i = (1 - p) row_i' + p row_j; from the right the same with columns; each
with the largest p that leaves no negative entry, so that one entry more becomes 0. All entries stay probabilities,
hence nothing cancels. Matrices without cycles always have a product, and so do all of two states; others may.

Distributions. Without such a product, the distribution of n arms is a table, grown by one arm at a time,

    p_n(z)(y) = sum_j B_ij p_{n-1}(z - e_i)(y - e_j)        (any i with z_i > 0).

Climbing the budget. With cells k = 1..C, each worth g_k and using d_k units for one arm moved along a step of the
lattice (s_k -> l_k), the best value with j units from cell k on is

    F_k(z, j) = max( F_{k+1}(z, j),  g_k + F_k(z - e_{s_k} + e_{l_k}, j - d_k) ),      F_{C+1}(z, j) = f(z),

two comparisons a point, cell and unit, in place of all allocations. It needs that no arm is served twice: l_k is not
the source of cell k or of a later one.

The loops over the lattice are compiled (`lattice_sweeps`); here is what they need.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np

from evenhand.kernels.lattice import lattice_index, lattice_points
from evenhand.typing import Array, Bools, Floats, Indices, Ints

TAIL = 1e-16
"""Probability that a binomial window may leave out, before it is scaled back to a law."""

_MOST_NODES = 1500
"""Matrices that `factorise` may look at."""

_ROUNDING = 1e-14
"""Largest error of the product of splits, and largest entry that counts as 0."""


class Split(NamedTuple):
    """Each arm of one slot moves to another with some probability."""

    source: int
    target: int
    probability: float


class Bands(NamedTuple):
    """The triangular matrix of a split, row by row, without what is negligible."""

    first: Indices
    """(row,) the first stored column."""

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
    slots = np.argsort(ends).tolist()
    splits = left + [Split(slots[source], slots[target], p) for source, target, p in reversed(right)]
    return (splits, ends) if product_error(matrix, splits, ends) <= len(matrix) * _ROUNDING else None


def product_error(matrix: Floats, splits: list[Split], ends: Ints) -> float:
    """Distance of the product of splits from the matrix: the largest sum of a row of differences."""
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
    for from_left, divide in ((True, _left_step), (False, _right_step)):
        for source, target in permutations(range(len(matrix)), 2):
            if (step := divide(matrix, source, target)) is not None:
                yield from_left, *step


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
        # The whole row is retained for the next one, so that cuts do not add up; only what is stored is cut and scaled.
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


# -- the maximum by climbing the budget -------------------------------------------------------------------------------


class Steps(NamedTuple):
    """Effect of serving one arm, by runs: points that differ in their last two states only are neighbours in number.

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


# -- arms that move one by one ----------------------------------------------------------------------------------------


class Arrivals(NamedTuple):
    """Effect of one arm more, by runs (`Steps`): within a run it adds the same to the number of a point."""

    runs: Ints
    """(run + 1,) where each run of the lattice without the arm begins."""

    offsets: Ints
    """(state, run) what the arm in a state adds to the number, which is then one of the lattice with it."""


def lattice_arrivals(num_arms: int, num_states: int) -> Arrivals:
    """The arrivals of one arm more than so many.

    Args:
        num_arms: number of arms without it.
        num_states: number of states.
    """
    points = lattice_points(num_arms, num_states)
    # With one state there is one point, its own run.
    begins = np.flatnonzero(points[:, -2] == 0) if num_states > 1 else np.zeros(1, dtype=np.int64)
    after = [lattice_index(points[begins] + unit) - begins for unit in np.eye(num_states, dtype=np.int64)]
    return Arrivals(np.append(begins, len(points)), np.array(after))


# -- the maximum by going through a list ------------------------------------------------------------------------------


class Listed(NamedTuple):
    """Allocations, each with what it takes and where it leads."""

    takes: Indices
    """(allocation, state) arms taken out of each state."""

    faces: Ints
    """(allocation,) bit s is set if it is for points alone where it takes all arms of state s."""

    shifts: Indices
    """(allocation, state) arms that come in, less those taken."""

    arms: Indices
    """(allocation,) arms that the lattice has afterwards."""

    offsets: Ints
    """(allocation,) where the values of that lattice begin."""

    gains: Floats
    """(allocation,) what the allocation is worth."""
