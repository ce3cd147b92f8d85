"""Newton steps on the simplex: a concave quadratic is maximised over shares by an active set.

    max  b.x - x'Hx / 2    subject to    x >= 0,  sum x = 1

The support of the start is the first guess of who has a share. On a support the optimum solves one linear system; where
it leaves the simplex, the step goes to the boundary, and who hits it leaves the support; where it does not, whoever
would gain most joins, until nobody would (Lawson and Hanson, 1974, with one equation). A little of the identity makes
every system regular.
"""

import numpy as np

from evenhand.typing import Bools, Floats

RIDGE = 1e-6
"""The share of the largest curvature that every direction has at least."""


def climb(theta: Floats, gradient: Floats, curvature: Floats) -> Floats:
    """(policy,) the shares that maximise the quadratic model of a concave function.

    Args:
        theta: (policy,) shares, where the gradient is taken.
        gradient: (policy,) its slope there.
        curvature: (policy, policy) minus its Hessian.
    """
    size = len(theta)
    top = float(np.trace(curvature)) or float(np.abs(gradient).max()) or 1.0
    hessian = curvature + RIDGE * top * np.eye(size)
    right = gradient + hessian @ theta
    x, inside = theta.copy(), theta > 0
    for _ in range(10 * size + 100):
        x, inside = _settle(x, inside, right, hessian)
        slope = right - hessian @ x
        level = float(slope @ x)
        gain = np.where(inside, -np.inf, slope - level)
        if gain.max() <= 1e-13 * (abs(level) + float(np.abs(slope).max())):
            break
        inside[gain.argmax()] = True
    return x


def _settle(x: Floats, inside: Bools, right: Floats, hessian: Floats) -> tuple[Floats, Bools]:
    """The optimum on a support, from which leaves whoever would have less than nothing."""
    inside = inside.copy()
    while True:
        rows = np.flatnonzero(inside)
        goal = _on_support(right[rows], hessian[np.ix_(rows, rows)])
        if (goal > 0).all():
            settled = np.zeros_like(x)
            settled[rows] = goal / goal.sum()
            return settled, inside
        below = goal <= 0
        room = x[rows] / np.where(below, np.maximum(x[rows] - goal, 1e-300), 1.0)
        part = float(room[below].min())
        moved = np.maximum(x[rows] + part * (goal - x[rows]), 0.0)
        moved[below & (room <= part)] = 0.0
        x = np.zeros_like(x)
        x[rows] = moved / moved.sum()
        inside = x > 0


def _on_support(right: Floats, hessian: Floats) -> Floats:
    """The optimum with the sum 1, of whatever sign."""
    solved = np.linalg.solve(hessian, np.column_stack([right, np.ones(len(right))]))
    free, each = solved.T
    return np.asarray(free + (1.0 - free.sum()) / each.sum() * each)
