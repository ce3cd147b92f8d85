"""Fair resource allocation in weakly coupled Markov decision processes.

Names are loaded when first used, so that importing the library costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from evenhand._version import __version__

if TYPE_CHECKING:
    from evenhand import errors, policies, problems, uncertainty
    from evenhand.evaluation import Evaluation, gini_coefficient, lorenz_curve
    from evenhand.fitting.fit import fit
    from evenhand.fitting.result import FitResult
    from evenhand.learning import Training, Trainings, train, train_seeds
    from evenhand.model.arm import Arm
    from evenhand.model.composite import MixturePolicy, TimeVaryingPolicy
    from evenhand.model.coupled import CoupledMDP
    from evenhand.model.io import load, save
    from evenhand.model.parquet import ArmWriter, StoredArms, open_arms, write_arms
    from evenhand.model.policy import Policy
    from evenhand.model.simulator import Simulator
    from evenhand.model.welfare import (
        AlphaFair,
        Gini,
        Leximin,
        Maximin,
        Utilitarian,
        Welfare,
        WelfareCheck,
        check_welfare,
        parse_welfare,
        register_welfare,
    )
    from evenhand.planning.backtest import Backtest, backtest
    from evenhand.planning.budget_sweep import BudgetSweep
    from evenhand.planning.check import Check, check
    from evenhand.planning.compare import Comparison, compare
    from evenhand.planning.plan import Decisions, Plan, load_plan, load_policy, save_solution
    from evenhand.planning.plan_file import save_policy
    from evenhand.planning.policy_argument import evaluate, make_policy
    from evenhand.planning.price_of_fairness import PriceOfFairness, price_of_fairness
    from evenhand.planning.solution import Solution
    from evenhand.planning.solve import solve
    from evenhand.planning.task import SolveMethod
    from evenhand.policies.index import TypeIndices, indices
    from evenhand.simulation import Rollout, check_policy, simulate, simulate_counts

_HOMES = {
    "errors": "",
    "policies": "",
    "problems": "",
    "uncertainty": "",
    "Evaluation": "evaluation",
    "evaluate": "planning.policy_argument",
    "make_policy": "planning.policy_argument",
    "gini_coefficient": "evaluation",
    "lorenz_curve": "evaluation",
    "fit": "fitting.fit",
    "FitResult": "fitting.result",
    "Training": "learning",
    "Trainings": "learning",
    "train": "learning",
    "train_seeds": "learning",
    "Arm": "model.arm",
    "TimeVaryingPolicy": "model.composite",
    "MixturePolicy": "model.composite",
    "CoupledMDP": "model.coupled",
    "load": "model.io",
    "save": "model.io",
    "ArmWriter": "model.parquet",
    "StoredArms": "model.parquet",
    "open_arms": "model.parquet",
    "write_arms": "model.parquet",
    "Policy": "model.policy",
    "Simulator": "model.simulator",
    "AlphaFair": "model.welfare",
    "Gini": "model.welfare",
    "Leximin": "model.welfare",
    "Maximin": "model.welfare",
    "Utilitarian": "model.welfare",
    "Welfare": "model.welfare",
    "WelfareCheck": "model.welfare",
    "check_welfare": "model.welfare",
    "parse_welfare": "model.welfare",
    "register_welfare": "model.welfare",
    "Check": "planning.check",
    "check": "planning.check",
    "Comparison": "planning.compare",
    "compare": "planning.compare",
    "PriceOfFairness": "planning.price_of_fairness",
    "price_of_fairness": "planning.price_of_fairness",
    "Decisions": "planning.plan",
    "Plan": "planning.plan",
    "load_plan": "planning.plan",
    "Backtest": "planning.backtest",
    "backtest": "planning.backtest",
    "load_policy": "planning.plan",
    "save_policy": "planning.plan_file",
    "save_solution": "planning.plan",
    "Solution": "planning.solution",
    "solve": "planning.solve",
    "SolveMethod": "planning.task",
    "BudgetSweep": "planning.budget_sweep",
    "TypeIndices": "policies.index",
    "indices": "policies.index",
    "Rollout": "simulation",
    "check_policy": "simulation",
    "simulate": "simulation",
    "simulate_counts": "simulation",
}
"""The module each public name lives in; empty for modules themselves."""

__all__ = [
    "AlphaFair",
    "Arm",
    "ArmWriter",
    "Backtest",
    "BudgetSweep",
    "Check",
    "Comparison",
    "CoupledMDP",
    "Decisions",
    "Evaluation",
    "FitResult",
    "Gini",
    "Leximin",
    "Maximin",
    "MixturePolicy",
    "Plan",
    "Policy",
    "PriceOfFairness",
    "Rollout",
    "Simulator",
    "Solution",
    "SolveMethod",
    "StoredArms",
    "TimeVaryingPolicy",
    "Training",
    "Trainings",
    "TypeIndices",
    "Utilitarian",
    "Welfare",
    "WelfareCheck",
    "__version__",
    "backtest",
    "check",
    "check_policy",
    "check_welfare",
    "compare",
    "errors",
    "evaluate",
    "fit",
    "gini_coefficient",
    "indices",
    "load",
    "load_plan",
    "load_policy",
    "lorenz_curve",
    "make_policy",
    "open_arms",
    "parse_welfare",
    "policies",
    "price_of_fairness",
    "problems",
    "register_welfare",
    "save",
    "save_policy",
    "save_solution",
    "simulate",
    "simulate_counts",
    "solve",
    "train",
    "train_seeds",
    "uncertainty",
    "write_arms",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    home = _HOMES[name]
    value: object = import_module(f"evenhand.{home or name}")
    if home:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
