"""The best mixture of vectors that do not grow: a master by itself, for every welfare.

Many members are cheap: a rank-weighted welfare of theirs goes by proximal steps, and leximin by programs with the few
rows that matter; never is there a row for each member and rank.

Vectors that were estimated, V + noise, have a say in leximin that chance must not have: a first level that is higher by
next to nothing would decide for all others. So a level t with multipliers y (of the free rows, sum 1) is held to within
the doubt d about y.V theta, some standard errors of it:

    stage    max t   with   (V theta)_n >= t  for free n,   (V theta)_n >= t_n - d_n  for n fixed at an earlier t_n

and a stage fixes only those with much of y: to raise n by x costs the level y_n x, so that giving up d buys d / y_n.

A later mixture has y.V theta >= max_i y.v^i - d, so that no vector has a larger share than d / (max_j y.v^j - y.v^i).
Without doubt these are the stages of leximin, and no vector but the best at y has any share later on.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evenhand.errors import Infeasible, OutOfDomain
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare, is_lexicographic
from evenhand.solvers.mixtures.leximin import Raised, Rows, level_master, who_holds
from evenhand.solvers.mixtures.masters import Master, master_of
from evenhand.solvers.mixtures.search import FLOOR_SLACK, Support
from evenhand.typing import ArrayLike, Bools, Floats, Ints

ALIKE = 1e-8
"""What differs by no more than this share of its size is taken for equal in the stages of leximin."""


FIRST = 2.0
"""How many times the doubt the first level may fall: it is chosen among all policies, each level after it among few."""

ROUNDED = 1e-9
"""What values may be rounded by, as a share of the largest of all."""

LEAST_USE = 1e-3
"""Vectors that can have no larger share than this, where there is doubt, are left out of the later stages."""

MOST_STAGES = 20
"""Stages after which the others are left as they are, where there is doubt: those that are fixed do not tell them."""

MUCH = 0.2
"""Where there is doubt, a stage fixes those whose multiplier is no smaller than this share of the largest."""

Doubt = Callable[[Floats, Floats], float]
"""How far a sum of a mixture's values may be from the truth: of (policy,) shares and (member,) weights."""


def no_doubt(shares: Floats, weights: Floats) -> float:
    """None: of vectors that are exact.

    Args:
        shares: (policy,) of a mixture.
        weights: (member,) of a sum of its values.
    """
    return 0.0


# -- masters of vectors that do not grow ------------------------------------------------------------------------------


def best_shares(
    matrix: Floats,
    welfare: Welfare,
    counts: Ints,
    floors: ArrayLike = (),
    precision: float = 1e-9,
    doubt: Doubt = no_doubt,
) -> tuple[Floats, Support]:
    """Maximise a concave welfare over mixtures of some vectors.

    Args:
        matrix: (objective, policy) the members of welfare, then the objectives with floors.
        welfare: what is maximised.
        counts: (member,) how many members each of the first objectives stands for.
        floors: (floor,) the least that the other objectives must reach.
        precision: the relative gap at which to stop.
        doubt: about the vectors, which the stages of leximin allow for.

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
        shares, stages = leximin_stages(matrix, number, least, precision, doubt)
        return shares, Support(stages[0].raised.multipliers, 0.0)
    return growing_master(matrix, welfare, counts, least, precision)(matrix)


def growing_master(matrix: Floats, welfare: Welfare, counts: Ints, floors: Floats, precision: float) -> Master:
    """A master for vectors that grow in number, which remembers what it learned; leximin has none.

    Args:
        matrix: (objective, policy) the vectors to begin with.
        welfare: what is maximised.
        counts: (member,) how many members each of the first objectives stands for.
        floors: (floor,) the least that the other objectives must reach.
        precision: the relative gap at which to stop.

    Raises:
        Infeasible: no mixture keeps the floors.
        OutOfDomain: no mixture is in the domain of the welfare.
    """
    number = len(counts)
    feasible = _feasible(matrix[number:], floors)
    if isinstance(welfare, PowerMean) and welfare.aversion > 0:
        feasible = _positive(matrix, number, floors, feasible)
    elif not isinstance(welfare, RankWeighted) and not _is_defined(welfare, matrix[:number] @ feasible):
        feasible = _highest(matrix, number, floors).shares
    return master_of(welfare, counts, floors, feasible, precision)


# -- leximin in stages ------------------------------------------------------------------------------------------------


class Stage(NamedTuple):
    """A stage of leximin."""

    raised: Raised
    """How far the least of those that no stage before it has fixed was raised."""

    held: Bools
    """(member,) whom it fixed."""


def leximin_stages(
    matrix: Floats, number: int, floors: Floats, precision: float = 1e-9, doubt: Doubt = no_doubt
) -> tuple[Floats, list[Stage]]:
    """Stage by stage, until those that are fixed tell what all the others have.

    A vector that a stage has no use for has none later, so that this is soon, however many members there are. What
    was reached is held to the precision, or rounding in the values of the worst-off would decide for all others; and
    to the doubt, or chance would.

    Args:
        matrix: (objective, policy) the members of welfare, then the objectives with floors.
        number: how many members there are.
        floors: (floor,) the least that the other objectives must reach.
        precision: how far a level may fall in later stages, relative to the size of its objective.
        doubt: about a weighted sum of the members.

    Returns:
        The (policy,) shares, and the stages.
    """
    levels, kept = np.full(number, -np.inf), np.arange(matrix.shape[1])
    stages: list[Stage] = []
    doubted = False
    units = _units(matrix)[:number]
    slack = precision * units + ROUNDED * units.max()
    while True:
        # Phase 1: raise the least of the free members.
        raised = _raise(matrix[:, kept], np.concatenate([levels, floors]))
        shares = np.zeros(matrix.shape[1])
        shares[kept] = raised.shares
        # Phase 2: fix whoever holds it down; the more doubt, the lower.
        holding = np.where(np.isinf(levels), raised.multipliers[:number], 0.0)
        unsure = (1 if stages else FIRST) * doubt(shares, holding)
        held = holding >= MUCH * holding.max() if unsure > 0 else who_holds(levels, holding)
        stages.append(Stage(raised, held))
        levels[held] = raised.level - slack[held] - unsure
        # Phase 3: vectors that cannot have a share of LEAST_USE any more go: d / (max_j y.v^j - y.v^i) bounds it.
        useful = _useful(matrix[:, kept], raised, max(ALIKE, precision), unsure / LEAST_USE)
        kept = kept[useful | (raised.shares > 0)]
        doubted |= unsure > 0
        # Phase 4: stop where the others have no choice left.
        fixed = np.isfinite(levels)
        told = len(stages) >= MOST_STAGES if doubted else _tell_all(matrix[:number, kept], fixed)
        if told or fixed.all():
            return shares, stages


def _useful(matrix: Floats, raised: Raised, alike: float, doubt: float) -> Bools:
    """(policy,) whether a vector may have a share where the level is reached, by the multipliers."""
    worth = raised.multipliers @ matrix
    size = raised.multipliers @ np.abs(matrix).max(axis=1)
    return np.asarray(worth >= worth.max() - alike * size - doubt)


def _tell_all(matrix: Floats, fixed: Bools) -> bool:
    """Whether mixtures with the same values of the fixed members have the same values of all."""
    units = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-300)
    # Shares sum to 1, so what all vectors have in common tells nothing.
    apart = (matrix - matrix.mean(axis=1, keepdims=True)) / units
    return _rank(apart[fixed]) == _rank(apart)


def _rank(rows: Floats) -> int:
    return int(np.linalg.matrix_rank(rows, tol=ALIKE * np.sqrt(len(rows))))


# -- where masters may begin ------------------------------------------------------------------------------------------


def _feasible(matrix: Floats, floors: Floats) -> Floats:
    """(policy,) shares that keep the floors: those of one vector if there is one."""
    short = np.maximum(floors[:, None] - matrix, 0.0).sum(axis=0)
    shares = np.zeros(matrix.shape[1])
    shares[short.argmin()] = 1.0
    # A single vector that keeps them is as good as a mixture, and needs no program.
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
    raised = _highest(matrix, number, floors)
    if raised.level <= 0:
        raise OutOfDomain(f"no mixture gives every arm a positive value: the worst-off has at most {raised.level:.6g}")
    return raised.shares


def _is_defined(welfare: Welfare, values: Floats) -> bool:
    try:
        welfare.check_domain(values)
    except OutOfDomain:
        return False
    return True


def _highest(matrix: Floats, number: int, floors: Floats) -> Raised:
    """Where the worst-off has most, within the floors."""
    return _raise(matrix, np.concatenate([np.full(number, -np.inf), floors]))


def _raise(matrix: Floats, fixed: Floats, base: Floats | None = None) -> Raised:
    rows = Rows(np.arange(len(fixed)), fixed, np.zeros(len(fixed)) if base is None else base)
    level, shares, multipliers = level_master(matrix, rows, _units(matrix))
    return Raised(level, shares, multipliers, level)


def _units(matrix: Floats) -> Floats:
    """(row,) how large each objective is; that of the largest where it is 0."""
    largest = np.abs(matrix).max(axis=1)
    return np.where(largest > 0, largest, largest.max() or 1.0)
