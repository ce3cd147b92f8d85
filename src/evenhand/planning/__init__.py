"""Planning: methods and policies for a problem, their comparison, and plans.

solve, bound, compare, price_of_fairness    -> Solution, FluidSolution, Comparison, PriceOfFairness
check, backtest                             -> Check, Backtest
load_plan, save_solution, save_policy       plan files; a Plan acts, explains and describes itself
REGISTRY                                    all named policies
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.planning.budget_sweep import BudgetComparison, BudgetSweep, Step
    from evenhand.planning.check import SHOWN, look_alike
    from evenhand.planning.compare import Comparison, Row
    from evenhand.planning.plan import Plan, load_plan, load_policy, plan_of, save_solution
    from evenhand.planning.plan_file import OtherDynamicsWarning, read_contents, save_policy
    from evenhand.planning.plan_summary import (
        levels_of,
        often,
        often_each,
        order_of,
        parts_of,
        picture,
        plan_facts,
        short_words,
        worth_of_more,
    )
    from evenhand.planning.policy_registry import REGISTRY, find_policy
    from evenhand.planning.policy_scoring import PolicyScorer, ScoredPolicy, mix
    from evenhand.planning.relaxation import budget_worth, build_policy, fluid_policy, relax, tightest
    from evenhand.planning.shipped import manifests, shipped_network
    from evenhand.planning.solution import Samples, Solution
    from evenhand.planning.solve import METHODS, choose_method
    from evenhand.planning.stored_models import save_indices
    from evenhand.planning.task import SolveMethod, Stopwatch, Task, limited_effort
    from evenhand.planning.trajectory_forecast import heads_interval
    from evenhand.policies.fluid import choice_of

__getattr__, __dir__ = attach(__name__, __file__)
