"""Compiled loops over the counts of several types; the mathematics is in `boxes`, NumPy versions in tests/oracles."""

import numpy as np

from evenhand.kernels.compilation import njit

LANES = 64
"""Values that are treated side by side, so that a weight, once loaded, serves them all; what they need stays near."""


# -- choosing ---------------------------------------------------------------------------------------------------------


@njit(fastmath={"contract"})
def expand(rows, first, last, values):
    """(lane, outcome, rest) the expectation over the next counts of one type.

    Args:
        rows: the distributions of the type (`Rows`).
        first: the first outcome.
        last: the outcome after the last.
        values: (lane, point, rest) values.
    """
    starts, columns, weights = rows
    lanes, _, rest = values.shape
    result = np.zeros((lanes, last - first, rest))
    for lane in range(lanes):
        for o in range(first, last):
            begin, end, to = starts[o], starts[o + 1], o - first
            # Four at a time: one load and store of the result for four products.
            fours = begin + (end - begin) // 4 * 4
            for k in range(begin, fours, 4):
                w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
                c0, c1, c2, c3 = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
                for q in range(rest):
                    result[lane, to, q] += (w0 * values[lane, c0, q] + w1 * values[lane, c1, q]) + (
                        w2 * values[lane, c2, q] + w3 * values[lane, c3, q]
                    )
            for k in range(fours, end):
                w0, c0 = weights[k], columns[k]
                for q in range(rest):
                    result[lane, to, q] += w0 * values[lane, c0, q]
    return result


@njit(fastmath={"contract"})
def best_last(rows, pairs, gains, spans, stride, values, tie):
    """(lane, point) value of the best pair of the last type, and its code.

    Args:
        rows: the distributions of the type (`Rows`).
        pairs: its pairs (`Pairs`).
        gains: (pair,) gain of each.
        spans: (span, 2) the outcomes that the budget allows, as ranges.
        stride: of the type in codes.
        values: (lane, point) values.
        tie: difference up to which values are equal.
    """
    starts, columns, weights = rows
    pair_starts, points = pairs
    lanes, num_points = values.shape
    best, codes = np.empty((lanes, num_points)), np.empty((lanes, num_points), dtype=np.int64)
    table, top = np.zeros((num_points, LANES)), np.empty((num_points, LANES))
    code, row = np.empty((num_points, LANES), dtype=np.int64), np.empty(LANES)
    # Lanes that are beyond the width are computed with what stands there, and not read.
    for left in range(0, lanes, LANES):
        width = min(LANES, lanes - left)
        top[:] = -np.inf
        for q in range(width):
            for x in range(num_points):
                table[x, q] = values[left + q, x]
        # As `expand`, into one row ...
        for span in range(len(spans)):
            for o in range(spans[span, 0], spans[span, 1]):
                begin, end = starts[o], starts[o + 1]
                fours = begin + (end - begin) // 4 * 4
                row[:] = 0.0
                for k in range(begin, fours, 4):
                    w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
                    c0, c1, c2, c3 = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
                    for q in range(LANES):
                        row[q] += (w0 * table[c0, q] + w1 * table[c1, q]) + (w2 * table[c2, q] + w3 * table[c3, q])
                for k in range(fours, end):
                    w0, c0 = weights[k], columns[k]
                    for q in range(LANES):
                        row[q] += w0 * table[c0, q]
                # ... and at once the maximum over the pairs of this outcome.
                for pair in range(pair_starts[o], pair_starts[o + 1]):
                    x, gain, some = points[pair], gains[pair], 0
                    for q in range(LANES):
                        some += gain + row[q] > top[x, q] + tie
                    if some == 0:  # most pairs better nothing: looking is quicker than writing
                        continue
                    for q in range(LANES):
                        candidate = gain + row[q]
                        better = candidate > top[x, q] + tie
                        top[x, q] = candidate if better else top[x, q]
                        code[x, q] = pair if better else code[x, q]
        for q in range(width):
            for x in range(num_points):
                best[left + q, x] = top[x, q]
                codes[left + q, x] = code[x, q] * stride
    return best, codes


@njit
def keep_best(pairs, gains, first, last, stride, found_best, kept_best, tie):
    """Replace values and codes by those of pairs that lead to some outcomes, where these are better.

    Args:
        pairs: the pairs of the type (`Pairs`).
        gains: (pair,) gain of each.
        first: the first outcome.
        last: the outcome after the last.
        stride: of the type in codes.
        found_best: (lane, outcome, rest) values and codes behind these outcomes (`Best`).
        kept_best: (lane, point, rest) the best so far; replaced.
        tie: difference up to which values are equal.
    """
    pair_starts, points = pairs
    found, found_codes = found_best
    kept, kept_codes = kept_best
    lanes, _, rest = found.shape
    for lane in range(lanes):
        for o in range(first, last):
            to = o - first
            for pair in range(pair_starts[o], pair_starts[o + 1]):
                x, gain, own, some = points[pair], gains[pair], pair * stride, 0
                for q in range(rest):
                    some += gain + found[lane, to, q] > kept[lane, x, q] + tie
                # As in `best_last`: looking is quicker than writing.
                if some == 0:
                    continue
                for q in range(rest):
                    candidate = gain + found[lane, to, q]
                    better = candidate > kept[lane, x, q] + tie
                    kept[lane, x, q] = candidate if better else kept[lane, x, q]
                    kept_codes[lane, x, q] = own + found_codes[lane, to, q] if better else kept_codes[lane, x, q]


# -- following and pushing --------------------------------------------------------------------------------------------


@njit(fastmath={"reassoc", "contract"})
def _follow(laws, rests, places, leaves, values, room):
    starts, columns, weights, bases, _ = laws
    chosen, changes = leaves
    num_types = len(rests)
    result = np.empty(len(chosen))
    for leaf in range(len(chosen)):
        # Beginnings shared with the leaf before are known: go on where it differs.
        for t in range(changes[leaf], num_types):
            o = bases[t] + chosen[leaf, t]
            begin, end, rest = starts[o], starts[o + 1], rests[t]
            source = values if t == 0 else room[places[t] : places[t + 1]]
            if t == num_types - 1:
                total = 0.0
                for k in range(begin, end):
                    total += weights[k] * source[columns[k]]
                result[leaf] = total
            else:
                target = room[places[t + 1] : places[t + 1] + rest]
                target[:] = 0.0
                fours = begin + (end - begin) // 4 * 4
                for k in range(begin, fours, 4):  # as in `expand`
                    w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
                    c0, c1, c2, c3 = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
                    b0, b1 = source[c0 * rest : (c0 + 1) * rest], source[c1 * rest : (c1 + 1) * rest]
                    b2, b3 = source[c2 * rest : (c2 + 1) * rest], source[c3 * rest : (c3 + 1) * rest]
                    for q in range(rest):
                        target[q] += (w0 * b0[q] + w1 * b1[q]) + (w2 * b2[q] + w3 * b3[q])
                for k in range(fours, end):
                    weight, block = weights[k], source[columns[k] * rest : (columns[k] + 1) * rest]
                    for q in range(rest):
                        target[q] += weight * block[q]
    return result


@njit(fastmath={"reassoc", "contract"})
def _push(laws, rests, places, leaves, masses, room):
    starts, columns, weights, bases, _ = laws
    chosen, changes = leaves
    num_types = len(rests)
    for leaf in range(len(chosen) + 1):
        # What has gathered behind a beginning that ends here moves on to the beginning before it.
        change = changes[leaf] if leaf < len(chosen) else 0
        if leaf > 0:
            for t in range(num_types - 2, change - 1, -1):
                o, rest = bases[t] + chosen[leaf - 1, t], rests[t]
                source = room[places[t + 1] : places[t + 1] + rest]
                for k in range(starts[o], starts[o + 1]):
                    begin = places[t] + columns[k] * rest
                    target, weight = room[begin : begin + rest], weights[k]
                    for q in range(rest):
                        target[q] += weight * source[q]
                source[:] = 0.0
        if leaf < len(chosen):
            # The last type spreads the mass of the leaf itself.
            t = num_types - 1
            o = bases[t] + chosen[leaf, t]
            for k in range(starts[o], starts[o + 1]):
                room[places[t] + columns[k]] += weights[k] * masses[leaf]
    return room


def _places(laws):
    """(type + 1,) where the values before each type is treated stand: all of them first, then fewer and fewer."""
    return np.cumsum([0, int(np.prod(laws.sizes)), *laws.rests[:-1]])


def follow(laws, leaves, values):
    """The expected value after each leaf."""
    # `follow` reads its values where they are, so their place in the room is left out.
    places = _places(laws) - len(values)
    return _follow(laws, laws.rests, places, leaves, values, np.empty(places[-1]))


def push(laws, leaves, masses):
    """Push the mass at each leaf forward by one step."""
    places = _places(laws)
    return _push(laws, laws.rests, places, leaves, masses, np.zeros(places[-1]))[: places[1]].copy()
