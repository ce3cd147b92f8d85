"""Measure: what a policy is worth, to whom, and how sure we are.

evaluate -> Evaluation; exact (by a linear solve) and Monte Carlo; standard errors near kinks; inequality measures.
"""

from evenhand.evaluation.evaluate import Evaluation, evaluate
from evenhand.evaluation.inequality import gini_coefficient, lorenz_curve, relative_loss

__all__ = ["Evaluation", "evaluate", "gini_coefficient", "lorenz_curve", "relative_loss"]
