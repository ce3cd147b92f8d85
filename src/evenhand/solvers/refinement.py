"""Linear programs solved beyond the tolerances of the solver, by iterative refinement.

A solver in floating point calls a basis optimal when no constraint is broken by more than its tolerance, 1e-10 at best
and often 1e-8. Masters of column generation need more: their multipliers must tell policies apart that differ by less.
With an approximate optimum x, y of  max c.x,  A x = b,  l <= x <= u,  the *corrections* solve the same program around
it, with what is left magnified (Gleixner, Steffy and Wolter, INFORMS J. on Computing 28, 2016):

    max  D (c - A'y).z    subject to    A z = P (b - A x),    P (l - x) <= z <= P (u - x)
    x <- x + z / P,    y <- y + (multipliers) / D

P and D are the inverses of the largest violations; each round begins at the basis of the last and takes few pivots. An
error of the tolerance in a magnified program is one of tolerance / P in the original. Rows that are not equations get a
column for their activity, A x - s = 0, so that their multipliers are reduced costs like any other.
"""

import numpy as np
from scipy import sparse

from evenhand.errors import EvenhandError
from evenhand.solvers._highs import LinearOptimum, LinearProgram, WarmProgram
from evenhand.typing import Bools, Floats

MOST_ROUNDS = 4
"""Corrections; each gains as many digits as the solver's tolerance has, so that two are usual."""

MOST_MAGNIFIED = 2.0**40
"""How much a round magnifies at most what the last one left; exact powers of two lose nothing."""


def solve_precisely(program: LinearProgram) -> LinearOptimum:
    """Solve a small linear program as exactly as floating point allows.

    Args:
        program: what to maximise.

    Raises:
        Infeasible: its constraints contradict each other.
        InvalidInput: the program is unbounded, or not sound.
        NotConverged: the solver ended without an optimum.
    """
    # Rows that are equations need no column for their activity.
    free = program.row_lower < program.row_upper
    full = _with_activities(program, free)
    warm = WarmProgram(full)
    first = warm.solve()
    x, y = _refine(full, warm, first.primal, first.duals)
    primal = x[: program.num_columns]
    return LinearOptimum(primal, y, float(program.gains @ primal), first.seconds, first.iterations)


def _with_activities(program: LinearProgram, free: Bools) -> LinearProgram:
    """All rows as equations; the activities of the free ones are columns of their own."""
    number = int(free.sum())
    activity = sparse.csc_array((-np.ones(number), (np.flatnonzero(free), np.arange(number))), (len(free), number))
    right = np.where(free, 0.0, program.row_lower)
    return LinearProgram(
        gains=np.concatenate([program.gains, np.zeros(number)]),
        matrix=sparse.hstack([program.matrix, activity], format="csc"),
        row_lower=right,
        row_upper=right,
        lower=np.concatenate([program.lower, program.row_lower[free]]),
        upper=np.concatenate([program.upper, program.row_upper[free]]),
    )


def _refine(program: LinearProgram, warm: WarmProgram, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The optimum, corrected until nothing is left or the solver gives up."""
    magnified = np.ones(2)
    for _ in range(MOST_ROUNDS):
        x = np.clip(x, program.lower, program.upper)
        left = program.row_lower - program.matrix @ x
        gains = program.gains - program.matrix.T @ y
        # How far the rows are from their sides, and by how much some column would still gain.
        broken = np.array([np.abs(left).max(initial=0.0), _unsound(program, x, gains)])
        if not broken.any():
            break
        # Powers of two, so that magnifying rounds nothing; not too much at once, or the program would be all noise.
        magnified = np.minimum(_power_above(1 / np.maximum(broken, 1e-300)), magnified * MOST_MAGNIFIED)
        P, D = magnified
        warm.change(D * gains, (P * left, P * left), (P * (program.lower - x), P * (program.upper - x)))
        try:
            correction = warm.solve(patient=False)
        except EvenhandError:  # beyond what floating point can tell: the last optimum is the best there is
            break
        x, y = x + correction.primal / P, y + correction.duals / D
    return np.clip(x, program.lower, program.upper), y


def _unsound(program: LinearProgram, x: Floats, gains: Floats) -> float:
    """By how much a column that could move would gain."""
    up = np.where(x < program.upper, gains, 0.0)
    down = np.where(x > program.lower, -gains, 0.0)
    return float(np.maximum(up, down).max(initial=0.0))


def _power_above(numbers: Floats) -> Floats:
    return np.asarray(2.0 ** np.ceil(np.log2(numbers)))
