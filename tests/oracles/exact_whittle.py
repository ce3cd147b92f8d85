"""Whittle indices of a tiny arm in exact arithmetic: all policies, each with the charges at which it is optimal.

The advantage of acting in a state is a - c b under a policy, with a and b fractions. A policy is optimal on one
interval of charges c, and passive is optimal in a state on the union of the intervals of the policies that are passive
there. The arm is indexable if and only if each union is a half-line; the index is where it begins.
"""

from fractions import Fraction
from itertools import pairwise, product
from math import inf


def solved(matrix, right):
    """The solution of a regular system, by Gauss and Jordan."""
    rows = [[*row, *more] for row, more in zip(matrix, right, strict=True)]
    size = len(rows)
    for k in range(size):
        pivot = next(i for i in range(k, size) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(size):
            if i != k and rows[i][k]:
                rows[i] = [entry - rows[i][k] * other for entry, other in zip(rows[i], rows[k], strict=True)]
    return [row[size:] for row in rows]


def charges_of(moves, rewards, discount, active):
    """The least and the largest charge at which a policy is optimal; the first is above the second if there is none."""
    states = range(len(rewards))
    system = [[Fraction(i == j) - discount * moves[i][active[i]][j] for j in states] for i in states]
    values = solved(system, [[rewards[i][active[i]], Fraction(active[i])] for i in states])
    least, most = -inf, inf
    for s in states:
        gain = [discount * sum((moves[s][1][j] - moves[s][0][j]) * values[j][k] for j in states) for k in (0, 1)]
        a, b = rewards[s][1] - rewards[s][0] + gain[0], 1 + gain[1]
        a, b = (a, b) if active[s] else (-a, -b)  # a - c b must not be negative
        if b > 0:
            most = min(most, a / b)
        elif b < 0:
            least = max(least, a / b)
        elif a < 0:
            return inf, -inf
    return least, most


def exact_indices(transitions, rewards, discount):
    """Whether the arm is indexable, and (state,) the least charge at which passive is optimal.

    `transitions` are (state, action, next_state) and `rewards` (state, action), passive first; all numbers are taken as
    the doubles they are.
    """
    moves = [[[Fraction(p) for p in row] for row in rows] for rows in transitions.tolist()]
    paid = [[Fraction(r) for r in row] for row in rewards.tolist()]
    passive = [[] for _ in paid]
    for active in product((0, 1), repeat=len(paid)):
        least, most = charges_of(moves, paid, Fraction(discount), active)
        for s in range(len(paid)):
            if not active[s] and least <= most:
                passive[s].append((least, most))
    indexable, indices = True, []
    for found in map(sorted, passive):
        reached = [max(most for _, most in found[: i + 1]) for i in range(len(found))]
        gaps = any(now[0] > end for end, (_, now) in zip(reached, pairwise(found), strict=False))
        indexable &= not gaps and reached[-1] == inf
        indices.append(float(found[0][0]))
    return indexable, indices
