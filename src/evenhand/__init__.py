"""Fair resource allocation in weakly coupled Markov decision processes.

Names are loaded when first used, so that importing the library costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from evenhand._version import __version__

if TYPE_CHECKING:
    from evenhand import errors, policies, problems
    from evenhand.evaluation import Evaluation, gini_coefficient, lorenz_curve, price_of_fairness
    from evenhand.fitting.fit import fit
    from evenhand.fitting.result import Fitted
    from evenhand.learning import Training, Trainings, train, train_seeds
    from evenhand.model.arm import Arm
    from evenhand.model.composite import BySteps, Mixture
    from evenhand.model.coupled import CoupledMDP
    from evenhand.model.files import load, save
    from evenhand.model.parquet import ArmWriter, StoredArms, open_arms, write_arms
    from evenhand.model.policy import Policy
    from evenhand.model.simulator import Simulator
    from evenhand.model.welfare import (
        AlphaFair,
        Gini,
        GiniHalf,
        Leximin,
        Maximin,
        RegularisedMaximin,
        Utilitarian,
        Welfare,
        WelfareCheck,
        check_welfare,
        parse_welfare,
        register_welfare,
    )
    from evenhand.planning.check import Check, check
    from evenhand.planning.compare import Comparison, compare
    from evenhand.planning.fairness import Fairness, fairness
    from evenhand.planning.plan import Decisions, Plan, load_plan, load_policy, save_solution
    from evenhand.planning.plan_file import save_policy
    from evenhand.planning.policy_argument import evaluate, make_policy
    from evenhand.planning.replay import Replay, replay
    from evenhand.planning.solution import Solution
    from evenhand.planning.solve import solve
    from evenhand.planning.what_if import compare_budgets, what_if
    from evenhand.policies.index import TypeIndices, indices
    from evenhand.simulation import Rollout, check_policy, simulate, simulate_counts

_HOMES = {
    "errors": "",
    "policies": "",
    "problems": "",
    "Evaluation": "evaluation",
    "evaluate": "planning.policy_argument",
    "make_policy": "planning.policy_argument",
    "gini_coefficient": "evaluation",
    "lorenz_curve": "evaluation",
    "price_of_fairness": "evaluation",
    "fit": "fitting.fit",
    "Fitted": "fitting.result",
    "Training": "learning",
    "Trainings": "learning",
    "train": "learning",
    "train_seeds": "learning",
    "Arm": "model.arm",
    "BySteps": "model.composite",
    "Mixture": "model.composite",
    "CoupledMDP": "model.coupled",
    "load": "model.files",
    "save": "model.files",
    "ArmWriter": "model.parquet",
    "StoredArms": "model.parquet",
    "open_arms": "model.parquet",
    "write_arms": "model.parquet",
    "Policy": "model.policy",
    "Simulator": "model.simulator",
    "AlphaFair": "model.welfare",
    "Gini": "model.welfare",
    "GiniHalf": "model.welfare",
    "Leximin": "model.welfare",
    "Maximin": "model.welfare",
    "RegularisedMaximin": "model.welfare",
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
    "Fairness": "planning.fairness",
    "fairness": "planning.fairness",
    "Decisions": "planning.plan",
    "Plan": "planning.plan",
    "load_plan": "planning.plan",
    "Replay": "planning.replay",
    "replay": "planning.replay",
    "load_policy": "planning.plan",
    "save_policy": "planning.plan_file",
    "save_solution": "planning.plan",
    "Solution": "planning.solution",
    "solve": "planning.solve",
    "compare_budgets": "planning.what_if",
    "what_if": "planning.what_if",
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
    "BySteps",
    "Check",
    "Comparison",
    "CoupledMDP",
    "Decisions",
    "Evaluation",
    "Fairness",
    "Fitted",
    "Gini",
    "GiniHalf",
    "Leximin",
    "Maximin",
    "Mixture",
    "Plan",
    "Policy",
    "RegularisedMaximin",
    "Replay",
    "Rollout",
    "Simulator",
    "Solution",
    "StoredArms",
    "Training",
    "Trainings",
    "TypeIndices",
    "Utilitarian",
    "Welfare",
    "WelfareCheck",
    "__version__",
    "check",
    "check_policy",
    "check_welfare",
    "compare",
    "compare_budgets",
    "errors",
    "evaluate",
    "fairness",
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
    "replay",
    "save",
    "save_policy",
    "save_solution",
    "simulate",
    "simulate_counts",
    "solve",
    "train",
    "train_seeds",
    "what_if",
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
