"""Decisions under uncertainty about the transitions of a fitted model.

`draw_scenarios` draws `Scenarios` from the posterior; `compare_scenarios` evaluates policies over them
(`ScenarioComparison`); `plan_scenarios` adds the value of information and the plan with the best CVaR (`ScenarioPlan`).

Example:
    >>> import evenhand as eh
    >>> log = {"van": list("aaaabbbb"), "week": [1, 2, 3, 4] * 2, "state": list("ggbbgbgb"), "done": list("00010010")}
    >>> terms = {"budget": [1], "discount": 0.9, "rewards": {"g": 1, "b": 0}, "unseen": "forbid"}
    >>> fitted = eh.fit(log, arm="van", time="week", state="state", action="done", model=terms)
    >>> eh.uncertainty.draw_scenarios(fitted.problem, fitted, num_draws=20)
    Scenarios(20 of CoupledMDP(2 arms, identical, 1 resource, discount 0.9))
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
