"""Fair resource allocation in weakly coupled Markov decision processes.

The public names are listed in `__init__.pyi`, one line each, with their modules. They are loaded when first used, so
that importing the library costs nothing.
"""

import re
from importlib import import_module
from pathlib import Path

_LINE = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)
_HOMES = {
    name: module for module, name in _LINE.findall(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
}

__all__ = [
    "AlphaFair", "Arm", "ArmWriter", "CoupledMDP", "Evaluation", "Gini", "Leximin", "Maximin", "MixturePolicy",
    "Plan", "Policy", "Simulator", "Solution", "SolveMethod", "TimeVaryingPolicy", "Utilitarian", "Welfare",
    "__version__", "backtest", "bound", "check", "check_policy", "check_welfare", "clean_records", "compare",
    "errors", "evaluate", "fit", "indices", "load", "load_plan", "load_policy", "make_policy", "open_arms",
    "parse_welfare", "policies", "price_of_fairness", "problems", "register_welfare", "save", "save_policy",
    "save_solution", "simulate", "simulate_counts", "solve", "study", "train", "uncertainty",
    "write_arms",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    home = _HOMES[name]
    value: object = import_module(f"evenhand.{name}") if home == "evenhand" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
