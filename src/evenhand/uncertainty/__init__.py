"""Decisions under uncertainty about the transitions of a fitted model.

`draw_scenarios` draws `Scenarios` from the posterior; `compare_scenarios` evaluates policies over them
(`ScenarioComparison`); `plan_scenarios` adds the value of information and the plan with the best CVaR (`ScenarioPlan`).
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.uncertainty.batched_values import simulate_scenarios
    from evenhand.uncertainty.cvar import best_tail, tail_mean, tail_weights
    from evenhand.uncertainty.robust_plan import (
        CVaRResult,
        PlanSearch,
        ScenarioPlan,
        check_tail,
        plan_scenarios,
        upper_bounds,
    )
    from evenhand.uncertainty.scenario_evaluation import (
        EvaluationBudget,
        ScenarioComparison,
        ScenarioValues,
        compare_scenarios,
        denoised,
    )
    from evenhand.uncertainty.scenarios import Scenarios, draw_scenarios
    from evenhand.uncertainty.value_of_information import RowValue, ValueOfInformation

__getattr__, __dir__ = attach(__name__, __file__)
