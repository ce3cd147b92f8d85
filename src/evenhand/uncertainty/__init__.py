"""Decisions under uncertainty about the transitions of a fitted model.

`draw_scenarios` draws `Scenarios` from the posterior; `compare_scenarios` evaluates policies over them
(`ScenarioComparison`); `plan_scenarios` adds the value of information and the plan with the best CVaR (`ScenarioPlan`).
"""

from evenhand.uncertainty.robust_plan import CVaRResult, PlanSearch, ScenarioPlan, plan_scenarios
from evenhand.uncertainty.scenario_evaluation import (
    EvaluationBudget,
    ScenarioComparison,
    ScenarioValues,
    compare_scenarios,
)
from evenhand.uncertainty.scenarios import Scenarios, draw_scenarios
from evenhand.uncertainty.value_of_information import ValueOfInformation

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
