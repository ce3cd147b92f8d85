"""Evaluation: simulation of policies, their values with standard errors, inequality.

evaluate -> Evaluation, exact (by a linear solve) or by Monte Carlo; simulate, simulate_counts -> Rollout.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach
from evenhand.evaluation.count_simulation import simulate_counts
from evenhand.evaluation.evaluate import Evaluation, evaluate
from evenhand.evaluation.inequality import gini_coefficient, lorenz_curve, relative_loss
from evenhand.evaluation.policy_check import check_policy
from evenhand.evaluation.rollout import Rollout, simulate

if TYPE_CHECKING:
    from evenhand.evaluation.block_evaluation import BlockPolicy, RankedArms, evaluate_blocks
    from evenhand.evaluation.evaluate import Method, evaluate_within
    from evenhand.evaluation.exact import exact_values, exact_work, independent_values
    from evenhand.evaluation.long_run import LongRunLimits, mean_by_type, play_long_run
    from evenhand.evaluation.rollout import simulate_events
    from evenhand.evaluation.standard_errors import CONFIDENCE, welfare_error

__getattr__, __dir__ = attach(__name__, __file__)

__all__ = [
    "Evaluation",
    "Rollout",
    "check_policy",
    "evaluate",
    "gini_coefficient",
    "lorenz_curve",
    "relative_loss",
    "simulate",
    "simulate_counts",
]
