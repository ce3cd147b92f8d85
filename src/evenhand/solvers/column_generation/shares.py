"""Best mixture of vectors that do not grow, for every welfare, and where the master problem begins."""

import numpy as np

from evenhand.errors import InfeasibleError, OutOfDomainError
from evenhand.model.welfare import PowerMean, Welfare, is_lexicographic
from evenhand.solvers.column_generation.leximin import ErrorOfSum, exact_values, leximin_stages, raise_fixed
from evenhand.solvers.column_generation.master import FLOOR_SLACK, Master
from evenhand.solvers.welfare_cuts import Support
from evenhand.typing import ArrayLike, Floats, Ints


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
