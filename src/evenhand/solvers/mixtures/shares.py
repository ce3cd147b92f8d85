"""The best mixture of vectors that do not grow: a master by itself, for every welfare.

Nothing here costs more than members x vectors a step: a rank-weighted welfare of many members is treated by cuts in the
shares, never as a program with a row for each member and rank.
"""

import numpy as np

from evenhand.errors import Infeasible, OutOfDomain
from evenhand.model.welfare import PowerMean, Welfare, is_lexicographic
from evenhand.solvers.mixtures.leximin import Raised, Rows, level_master, raise_in_turn
from evenhand.solvers.mixtures.masters import master_of
from evenhand.solvers.mixtures.search import FLOOR_SLACK, Support
from evenhand.typing import ArrayLike, Floats, Ints


def best_shares(
    matrix: Floats, welfare: Welfare, counts: Ints, floors: ArrayLike = (), precision: float = 1e-9
) -> tuple[Floats, Support]:
    """Maximise a concave welfare over mixtures of some vectors.

    Args:
        matrix: (objective, policy) the members of welfare, then the objectives with floors.
        welfare: what is maximised.
        counts: (member,) how many members each of the first objectives stands for.
        floors: (floor,) the least that the other objectives must reach.
        precision: the relative gap at which to stop.

    Returns:
        The (policy,) shares, and a support of the welfare: no mixture has more than the best weighted sum of a vector
        and the constant, less what its prices say the floors cost. For leximin, the support of its first stage.

    Raises:
        Infeasible: no mixture keeps the floors.
        OutOfDomain: no mixture is in the domain of the welfare.
    """
    matrix, least = np.asarray(matrix, dtype=np.float64), np.asarray(floors, dtype=np.float64)
    number = len(counts)
    if is_lexicographic(welfare):
        last, first = raise_in_turn(lambda levels: _raise(matrix, np.concatenate([levels, least])), number)
        return last.shares, Support(first.multipliers, 0.0)
    feasible = _feasible(matrix[number:], least)
    if isinstance(welfare, PowerMean) and welfare.aversion > 0:
        feasible = _positive(matrix, number, least, feasible)
    return master_of(welfare, counts, least, feasible, precision)(matrix)


def _feasible(matrix: Floats, floors: Floats) -> Floats:
    """(policy,) shares that keep the floors: those of one vector if there is one."""
    short = np.maximum(floors[:, None] - matrix, 0.0).sum(axis=0)
    shares = np.zeros(matrix.shape[1])
    shares[short.argmin()] = 1.0
    if short.min() <= 0:
        return shares
    raised = _raise(matrix, np.full(len(floors), -np.inf), floors)
    if raised.level < -FLOOR_SLACK:
        raise Infeasible(f"no mixture keeps the floors: one is missed by at least {-raised.level:.6g}")
    return raised.shares


def _positive(matrix: Floats, number: int, floors: Floats, feasible: Floats) -> Floats:
    """(policy,) shares that keep the floors and leave every member with something."""
    if (matrix[:number] @ feasible > 0).all():
        return feasible
    raised = _raise(matrix, np.concatenate([np.full(number, -np.inf), floors]))
    if raised.level <= 0:
        raise OutOfDomain(f"no mixture gives every arm a positive value: the worst-off has at most {raised.level:.6g}")
    return raised.shares


def _raise(matrix: Floats, fixed: Floats, base: Floats | None = None) -> Raised:
    rows = Rows(np.arange(len(fixed)), fixed, np.zeros(len(fixed)) if base is None else base)
    level, shares, multipliers = level_master(matrix, rows, _units(matrix))
    return Raised(level, shares, multipliers, level)


def _units(matrix: Floats) -> Floats:
    """(row,) how large each objective is; that of the largest where it is 0."""
    largest = np.abs(matrix).max(axis=1)
    return np.where(largest > 0, largest, largest.max() or 1.0)
