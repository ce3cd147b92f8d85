"""NumPy versions of the compiled loops over the counts of several types (`evenhand.kernels.type_sweeps`)."""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from evenhand.kernels import Best, Joined, Leaves, Pairs, Rows
from evenhand.typing import Floats, Indices, Ints


def _matrix(rows: Rows, first: int, last: int, num_points: int) -> sparse.csr_array:
    """(outcome, point) some rows as a matrix."""
    here = slice(rows.starts[first], rows.starts[last])
    starts = rows.starts[first : last + 1] - rows.starts[first]
    return sparse.csr_array((rows.weights[here], rows.columns[here], starts), shape=(last - first, num_points))


# -- choosing ---------------------------------------------------------------------------------------------------------


def expand(rows: Rows, first: int, last: int, values: Floats) -> Floats:
    """(lane, outcome, rest) the expectation over the next counts of one type.

    Args:
        rows: the laws of the type.
        first: the first outcome that is asked for.
        last: the first one after it that is not.
        values: (lane, point, rest) values.
    """
    matrix = _matrix(rows, first, last, values.shape[1])
    return np.stack([matrix @ lane for lane in values])


def best_last(
    rows: Rows, pairs: Pairs, gains: Floats, spans: Ints, stride: int, values: Floats, tie: float
) -> tuple[Floats, Ints]:
    """(lane, point) the best pair of the last type, and its code.

    Args:
        rows: the laws of the type.
        pairs: its pairs.
        gains: (pair,) what they earn at once.
        spans: (span, 2) the outcomes that the budget allows, as ranges.
        stride: of the type in codes.
        values: (lane, point) values.
        tie: what counts as equal.
    """
    kept = Best(np.full(values.shape, -np.inf)[:, :, None], np.zeros(values.shape, dtype=np.int64)[:, :, None])
    for first, last in spans:
        expected = expand(rows, first, last, values[:, :, None])
        # Behind the last type there is nothing, hence no code.
        nothing = Best(expected, np.zeros(expected.shape, dtype=np.int64))
        keep_best(pairs, gains, first, last, stride, nothing, kept, tie)
    return kept.values[:, :, 0], kept.codes[:, :, 0]


def keep_best(
    pairs: Pairs, gains: Floats, first: int, last: int, stride: int, found: Best, kept: Best, tie: float
) -> None:
    """Let the pairs that lead to some outcomes compete with what was kept so far.

    Args:
        pairs: of the type.
        gains: (pair,) what they earn at once.
        first: the first outcome.
        last: the first one after it that is not meant.
        stride: of the type in codes.
        found: (lane, outcome, rest) the best after each of these outcomes.
        kept: (lane, point, rest) the best so far, changed in place.
        tie: what counts as equal.
    """
    numbers = np.arange(pairs.starts[first], pairs.starts[last])
    row = np.repeat(np.arange(last - first), np.diff(pairs.starts[first : last + 1]))
    points = pairs.points[numbers]
    # In rounds, since an assignment to the same point twice would keep one of them only.
    for tried in _one_a_point(points):
        at, candidates = points[tried], found.values[:, row[tried]] + gains[numbers[tried], None]
        better = candidates > kept.values[:, at] + tie
        codes = found.codes[:, row[tried]] + numbers[tried, None] * stride
        kept.values[:, at] = np.where(better, candidates, kept.values[:, at])
        kept.codes[:, at] = np.where(better, codes, kept.codes[:, at])


def _one_a_point(points: Indices) -> Iterator[Ints]:
    """The pairs in rounds, in each of which a point occurs at most once: its first pair, its second, and so on."""
    order = np.argsort(points, kind="stable")
    # The number of each pair among those of its point, in the order of pairs.
    sizes = np.unique(points, return_counts=True)[1]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    for number in range(int(rank.max(initial=-1)) + 1):
        yield order[rank == number]


# -- following and pushing --------------------------------------------------------------------------------------------


def follow(laws: Joined, leaves: Leaves, values: Floats) -> Floats:
    """(leaf,) the expected value after each leaf.

    Args:
        laws: of all types.
        leaves: the outcomes.
        values: (state,) values.
    """
    # (beginning, values behind it): one value of all types first, one value a leaf in the end.
    blocks = values.reshape(1, -1)
    for t, (chosen, parents) in enumerate(_levels(leaves)):
        matrix, modes = _chosen(laws, t, chosen), blocks.reshape(len(blocks), laws.sizes[t], -1)
        blocks = np.stack([row @ modes[parent] for row, parent in zip(matrix, parents, strict=True)])
    return blocks[:, 0]


def push(laws: Joined, leaves: Leaves, masses: Floats) -> Floats:
    """(state,) where the mass at each leaf goes.

    Args:
        laws: of all types.
        leaves: the outcomes.
        masses: (leaf,) how much is at each.
    """
    blocks = masses.reshape(-1, 1)
    for t, (chosen, parents) in reversed(list(enumerate(_levels(leaves)))):
        # The other way round: leaves with the same beginning gather there.
        merged = np.zeros((int(parents[-1]) + 1, laws.sizes[t], blocks.shape[1]))
        np.add.at(merged, parents, _chosen(laws, t, chosen)[:, :, None] * blocks[:, None, :])
        blocks = merged.reshape(len(merged), -1)
    return np.asarray(blocks[0])


def _chosen(laws: Joined, kind: int, chosen: Indices) -> Floats:
    """(row, point) some laws of one type, written out."""
    rows = laws.rows_of(kind)
    return np.asarray(_matrix(rows, 0, len(rows.starts) - 1, int(laws.sizes[kind]))[chosen].toarray())


def _levels(leaves: Leaves) -> list[tuple[Indices, Ints]]:
    """For each type: the outcome at each distinct beginning up to it, and the number of the beginning before."""
    levels = []
    parent_of_leaf = np.zeros(len(leaves.rows), dtype=np.int64)
    for t in range(leaves.rows.shape[1]):
        # A beginning up to type t is new where the leaf differs from the one before in t or earlier.
        new = leaves.changes <= t
        new[0] = True
        levels.append((leaves.rows[new, t], parent_of_leaf[new]))
        parent_of_leaf = np.cumsum(new) - 1
    return levels
