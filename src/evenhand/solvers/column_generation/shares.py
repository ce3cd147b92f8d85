"""Best mixtures of fixed vectors, for every welfare; raising their least value.

    max t   with   (V theta)_n >= base_n + t  for free rows n,   (V theta)_n >= fixed_n  for the others

With multipliers y of the rows, sum over the free ones 1, no mixture raises the level above max_j y.v^j - y.due. Leximin
raises the least value, fixes the members that hold it down (y > 0), and raises the least of the others.

Estimated vectors, V + noise, must not let chance decide leximin: a first level that is higher by next to nothing would
decide for all others. So a level t with multipliers y (of the free rows, sum 1) is held to within the standard error d
of y.V theta:

    stage    max t   with   (V theta)_n >= t  for free n,   (V theta)_n >= t_n - d_n  for n fixed at an earlier t_n

and a stage fixes only those with much of y: to raise n by x costs the level y_n x, so that giving up d buys d / y_n.
A later mixture has y.V theta >= max_i y.v^i - d, so that no vector has a larger share than d / (max_j y.v^j - y.v^i).
Without error these are the stages of leximin, and no vector but the best at y has any share later on.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from evenhand.errors import InfeasibleError, OutOfDomainError
from evenhand.model.welfare import PowerMean, Welfare, is_lexicographic
from evenhand.solvers.column_generation.master import FLOOR_SLACK, LP_TOLERANCE, Master, on_simplex
from evenhand.solvers.highs import LinearProgram, solve_program
from evenhand.solvers.welfare_cuts import Support
from evenhand.typing import ArrayLike, Bools, Floats, Ints

ROWS_PER_ROUND = 50
"""Violated rows that join a program of many rows at a time."""

SAME = 1e-8
"""Relative difference up to which numbers are equal in the stages of leximin."""

MIN_SHARE = 1e-3
"""Share below which a vector of estimates is left out of later stages."""

MAX_STAGES = 20
"""Stages of estimated vectors: later ones are determined by noise."""

ErrorOfSum = Callable[[Floats, Floats], float]
"""Standard error of a sum of a mixture's values: of (policy,) shares and (member,) weights."""


def exact_values(shares: Floats, weights: Floats) -> float:
    """Return 0, the standard error of exact vectors.

    Args:
        shares: (policy,) of a mixture.
        weights: (member,) of a sum of its values.
    """
    return 0.0


class Raised(NamedTuple):
    """Result of raising the least of the free objectives."""

    level: float
    """Least value reached."""

    shares: Floats
    """(policy,) shares at which it is reached."""

    multipliers: Floats
    """(row,) multipliers of the rows; those of the free ones sum to 1."""

    bound: float
    """Upper bound on the level of every policy."""


class Stage(NamedTuple):
    """A stage of leximin."""

    raised: Raised
    """Level of the members that no earlier stage has fixed."""

    held: Bools
    """(member,) members that it fixed."""


def leximin_stages(
    matrix: Floats, number: int, floors: Floats, precision: float = 1e-9, error: ErrorOfSum = exact_values
) -> tuple[Floats, list[Stage]]:
    """Raise the members of fixed vectors stage by stage, until the fixed ones determine all others.

    Args:
        matrix: (objective, policy) the members of welfare, then the objectives with floors.
        number: number of members.
        floors: (floor,) lower bounds of the other objectives.
        precision: distance by which a level may fall in later stages, relative to the size of its objective.
        error: standard error of a weighted sum of the members.

    Returns:
        The (policy,) shares, and the stages.
    """
    levels, used = np.full(number, -np.inf), np.arange(matrix.shape[1])
    stages: list[Stage] = []
    is_estimate = False
    units = units_of(matrix)[:number]
    # Levels are held to the precision, or rounding in the values of the worst-off would decide for all others.
    slack = precision * units + FLOOR_SLACK * units.max()
    while True:
        raised = raise_fixed(matrix[:, used], np.concatenate([levels, floors]))
        shares = np.zeros(matrix.shape[1])
        shares[used] = raised.shares
        holding = np.where(np.isinf(levels), raised.multipliers[:number], 0.0)
        # The first level may fall by twice the error: it is chosen among all policies, each level after it among few.
        uncertain = (1 if stages else 2) * error(shares, holding)
        held = holding >= 0.2 * holding.max() if uncertain > 0 else holding_members(levels, holding)
        stages.append(Stage(raised, held))
        levels[held] = raised.level - slack[held] - uncertain
        # Vectors whose share is bounded by d / (max_j y.v^j - y.v^i) < MIN_SHARE are left out.
        sums = raised.multipliers @ matrix[:, used]
        size = raised.multipliers @ np.abs(matrix[:, used]).max(axis=1)
        useful = sums >= sums.max() - max(SAME, precision) * size - uncertain / MIN_SHARE
        used = used[useful | (raised.shares > 0)]
        is_estimate |= uncertain > 0
        fixed = np.isfinite(levels)
        done = len(stages) >= MAX_STAGES if is_estimate else _determine_all(matrix[:number, used], fixed)
        if done or fixed.all():
            return shares, stages


def holding_members(levels: Floats, multipliers: Floats) -> Bools:
    """(member,) the free members that hold the level down.

    Args:
        levels: (member,) levels; -inf of free members.
        multipliers: (member,) multipliers.
    """
    free = np.isinf(levels)
    # A multiplier that small is rounding; but some member must be fixed, or the stages would not end.
    held = free & (multipliers > 1e-6)
    return held if held.any() else np.asarray(free & (multipliers >= multipliers[free].max()))


def _determine_all(matrix: Floats, fixed: Bools) -> bool:
    """Return whether mixtures with equal values of the fixed members have equal values of all."""
    units = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-300)
    # Shares sum to 1, so a common part of all vectors has no effect.
    centred = (matrix - matrix.mean(axis=1, keepdims=True)) / units
    ranks = [np.linalg.matrix_rank(rows, tol=SAME * np.sqrt(len(rows))) for rows in (centred[fixed], centred)]
    return bool(ranks[0] == ranks[1])


# -- the level program ------------------------------------------------------------------------------------------------


def raise_fixed(matrix: Floats, fixed: Floats, base: Floats | None = None, units: Floats | None = None) -> Raised:
    """Return the largest t with (V theta)_n >= base_n + t where free and >= its fixed value elsewhere.

    Few rows hold the level down. A program of some rows is solved, the most violated of the others join, and so on
    until none is violated.

    Args:
        matrix: (row, policy) objectives of the policies.
        fixed: (row,) lower bounds; -inf of free rows.
        base: (row,) offsets of free rows; 0 by default.
        units: (row,) largest possible magnitude of each objective; as found in the matrix by default.
    """
    base = np.zeros(len(fixed)) if base is None else base
    if units is None:
        units = units_of(matrix)
    else:
        # As large as observed, within reason: the largest possible magnitude may be far from any that occurs.
        units = np.clip(np.maximum(np.abs(matrix).max(axis=1), np.abs(base)), 1e-6 * units, units)
    free = np.isinf(fixed)
    due = np.where(free, base, fixed)
    # First the lowest rows of each policy and of their mean. Free rows share one level, others have their own units.
    over = np.column_stack([matrix, matrix.mean(axis=1)]) - due[:, None]
    inside = np.zeros(len(matrix), dtype=np.bool_)
    for rows, scale in ((np.flatnonzero(free), 1.0), (np.flatnonzero(~free), units[~free, None])):
        inside[rows[(over[rows] / scale).argmin(axis=0)] if len(rows) else rows] = True
    while True:
        some = np.flatnonzero(inside)
        level, shares, found = _with_slack(matrix[some], due[some], free[some], units[some])
        violated = (due + np.where(free, level, 0.0) - matrix @ shares) / units
        violated[inside] = -np.inf
        worst = np.argsort(-violated)[:ROWS_PER_ROUND]
        if violated[worst[0]] <= FLOOR_SLACK:
            multipliers = np.zeros(len(matrix))
            multipliers[some] = found
            return Raised(level, shares, multipliers, level)
        inside[worst[violated[worst] > FLOOR_SLACK]] = True


def units_of(matrix: Floats) -> Floats:
    """(row,) magnitude of each objective; that of the largest where it is 0."""
    largest = np.abs(matrix).max(axis=1)
    return np.where(largest > 0, largest, largest.max() or 1.0)


def _with_slack(matrix: Floats, due: Floats, free: Bools, units: Floats) -> tuple[float, Floats, Floats]:
    """Solve the level program; levels that were reached only to rounding can contradict and get more slack."""
    slack = FLOOR_SLACK
    while True:
        try:
            return _level_program(matrix, due - np.where(free, 0.0, slack * units), free, units)
        except InfeasibleError:
            slack *= 10
            if slack > 1e-5:
                raise


def _level_program(matrix: Floats, due: Floats, free: Bools, units: Floats) -> tuple[float, Floats, Floats]:
    """Each row in its own unit, so that neither shares of time nor small values drown in large ones."""
    number, num_vectors = matrix.shape
    # The level has the smallest unit of the rows that it raises.
    unit = float(units[free].min())
    program = np.zeros((number + 1, num_vectors + 1))
    program[:number, :num_vectors] = matrix / units[:, None]
    program[:number, num_vectors] = np.where(free, -unit / units, 0.0)
    program[number, :num_vectors] = 1.0
    solution = solve_program(
        LinearProgram(
            gains=np.append(np.zeros(num_vectors), 1.0),
            matrix=sparse.csc_array(program),
            row_lower=np.append(due / units, 1.0),
            row_upper=np.append(np.full(number, np.inf), 1.0),
            lower=np.append(np.zeros(num_vectors), -np.inf),
        ),
        tolerance=LP_TOLERANCE,
    )
    # Back from units; a dual of a >= row is not positive.
    multipliers = np.maximum(-solution.duals[:number], 0.0) * unit / units
    shares = on_simplex(solution.primal[:-1])
    return float(solution.primal[-1]) * unit, shares, multipliers / multipliers[free].sum()


# -- mixtures for every welfare ---------------------------------------------------------------------------------------


def best_shares(
    matrix: Floats,
    welfare: Welfare,
    counts: Ints,
    floors: ArrayLike = (),
    precision: float = 1e-9,
    error: ErrorOfSum = exact_values,
) -> tuple[Floats, Support]:
    """Maximise a concave welfare over mixtures of some vectors.

    Args:
        matrix: (objective, policy) the members of welfare, then the objectives with floors.
        welfare: welfare to maximise.
        counts: (member,) multiplicity of each of the first objectives.
        floors: (floor,) lower bounds of the other objectives.
        precision: relative gap at which to stop.
        error: standard error of sums of the vectors' values, for the stages of leximin.

    Returns:
        The (policy,) shares, and a support of the welfare: no mixture has more than the best weighted sum of a vector
        and the constant, less the value of the floors at their prices. For leximin, the support of its first stage.

    Raises:
        InfeasibleError: no mixture meets the floors.
        OutOfDomainError: no mixture is in the domain of the welfare.
    """
    matrix, least = np.asarray(matrix, dtype=np.float64), np.asarray(floors, dtype=np.float64)
    if is_lexicographic(welfare):
        shares, stages = leximin_stages(matrix, len(counts), least, precision, error)
        return shares, Support(stages[0].raised.multipliers, 0.0)
    return master_from(matrix, welfare, counts, least, precision)(matrix)


def master_from(matrix: Floats, welfare: Welfare, counts: Ints, floors: Floats, precision: float) -> Master:
    """Return the master problem of vectors that may grow in number, with a start that meets the floors.

    Args:
        matrix: (objective, policy) the first vectors.
        welfare: welfare to maximise; not leximin.
        counts: (member,) multiplicity of each of the first objectives.
        floors: (floor,) lower bounds of the other objectives.
        precision: relative gap at which to stop.

    Raises:
        InfeasibleError: no mixture meets the floors.
        OutOfDomainError: no mixture is in the domain of the welfare.
    """
    number = len(counts)
    start = _feasible(matrix[number:], floors)
    if not _in_interior(welfare, matrix[:number] @ start):
        raised = raise_fixed(matrix, np.concatenate([np.full(number, -np.inf), floors]))
        start = raised.shares
        if isinstance(welfare, PowerMean) and raised.level <= 0:
            raise OutOfDomainError(
                f"no mixture gives every arm a positive value: the worst-off has at most {raised.level:.6g}"
            )
    return Master(welfare, counts, floors, start, precision)


def _feasible(matrix: Floats, floors: Floats) -> Floats:
    """(policy,) shares that meet the floors: those of one vector if possible, which needs no program."""
    short = np.maximum(floors[:, None] - matrix, 0.0).sum(axis=0)
    shares = np.zeros(matrix.shape[1])
    shares[short.argmin()] = 1.0
    if short.min() <= 0:
        return shares
    raised = raise_fixed(matrix, np.full(len(floors), -np.inf), floors)
    if raised.level < -FLOOR_SLACK:
        raise InfeasibleError(f"no mixture meets the floors: one is missed by at least {-raised.level:.6g}")
    return raised.shares


def _in_interior(welfare: Welfare, values: Floats) -> bool:
    """Return whether the welfare has a value and a slope at some values."""
    if isinstance(welfare, PowerMean) and welfare.aversion > 0:
        return bool((values > 0).all())
    try:
        welfare.check_domain(values)
    except OutOfDomainError:
        return False
    return True
