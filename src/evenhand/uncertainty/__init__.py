"""Decisions under uncertainty about the transitions of a fitted model.

`draw_scenarios` draws `Scenarios` from the posterior; `compare_scenarios` evaluates policies over them
(`ScenarioComparison`); `plan_scenarios` adds the value of information and the plan with the best CVaR (`ScenarioPlan`).
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach
from evenhand.uncertainty.robust_plan import CVaRResult, PlanSearch, ScenarioPlan, plan_scenarios
from evenhand.uncertainty.scenario_evaluation import (
    EvaluationBudget,
    ScenarioComparison,
    ScenarioValues,
    compare_scenarios,
)
from evenhand.uncertainty.scenarios import Scenarios, draw_scenarios
from evenhand.uncertainty.value_of_information import ValueOfInformation

if TYPE_CHECKING:
    from evenhand.uncertainty.batched_values import simulate_scenarios
    from evenhand.uncertainty.cvar import best_tail, tail_mean, tail_weights
    from evenhand.uncertainty.robust_plan import check_tail, upper_bounds
    from evenhand.uncertainty.scenario_evaluation import denoised
    from evenhand.uncertainty.value_of_information import RowValue

__getattr__, __dir__ = attach(__name__, __file__)

__all__ = [
    "CVaRResult",
    "EvaluationBudget",
    "PlanSearch",
    "ScenarioComparison",
    "ScenarioPlan",
    "ScenarioValues",
    "Scenarios",
    "ValueOfInformation",
    "compare_scenarios",
    "draw_scenarios",
    "plan_scenarios",
]
