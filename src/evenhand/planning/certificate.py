"""Certificates: what rounding leaves uncertain in a value, and the check that no welfare exceeds its proved bound."""

import numpy as np
from scipy import stats

from evenhand.errors import ContradictionError
from evenhand.model.coupled import CoupledMDP

OPERATIONS, MEMORY = 16.0, 1000.0
"""Operations per step in which a value is rounded, and the most steps over which such errors add up."""

SIGNIFICANT, CLOSE, EXACTLY = 4.0, 1e-5, 1e-8
"""Standard errors, and shares of the bound for estimates (what lies beyond their horizon is extrapolated) and for exact
values (linear programs are solved to about as much), beyond which a welfare above its bound contradicts it."""


def rounding(problem: CoupledMDP) -> float:
    """Largest error of a value by rounding: some units in the last place of the largest value, per step."""
    criterion = problem.criterion
    memory = 1 / (1 - criterion.factor) if criterion.factor < 1 else np.inf
    steps = min(memory, MEMORY) if criterion.is_stationary else criterion.num_layers
    largest = float(np.abs(problem.types.rewards).max()) * criterion.total
    return OPERATIONS * steps * float(np.finfo(float).eps) * largest


def check_bound(problem: CoupledMDP, welfare: float, stderr: float, num_episodes: int | None, bound: float) -> None:
    """Raise Contradiction if a welfare lies above its bound by more than chance and rounding explain.

    Args:
        problem: the problem.
        welfare: exact, or an estimate.
        stderr: its standard error; 0 if it is exact.
        num_episodes: episodes behind the standard error; None if it is exact.
        bound: upper bound on the welfare of every policy.
    """
    # With few episodes their spread is uncertain itself: as rare as SIGNIFICANT errors are with many.
    quantile = stats.t.isf(stats.norm.sf(SIGNIFICANT), max((num_episodes or np.inf) - 1, 1)) if stderr else 0.0
    close = CLOSE if stderr else EXACTLY
    if welfare - bound > stderr * float(quantile) + close * abs(bound) + rounding(problem):
        error = f" ± {stderr:.2g}" if stderr else ""
        raise ContradictionError(
            f"the welfare {welfare:.9g}{error} lies above its proved bound {bound:.9g}, so one of them is wrong. This "
            "is an error of the library: please report it with the model."
        )
