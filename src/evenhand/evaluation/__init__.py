"""Measure: what a policy is worth, to whom, and how sure we are.

evaluate -> Evaluation; exact (by a linear solve) and Monte Carlo; errors near kinks; fairness measures.
"""

from evenhand.evaluation.evaluate import Evaluation, evaluate
from evenhand.evaluation.fairness import gini_coefficient, lorenz_curve, price_of_fairness

__all__ = ["Evaluation", "evaluate", "gini_coefficient", "lorenz_curve", "price_of_fairness"]
