"""Policies side by side, in the same world, under the best bound known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.errors import InvalidInput, NotApplicable, NotConverged, OutOfDomain, TooLarge
from evenhand.evaluation.evaluate import Evaluation, Method, evaluate
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Welfare, as_welfare
from evenhand.planning.relaxed import relax
from evenhand.planning.roster import ROSTER, find_policy
from evenhand.planning.solve import solve
from evenhand.reductions.counts import num_count_states
from evenhand.reductions.joint import num_joint_states
from evenhand.typing import Rng

Told = Callable[[str, float], None]
"""Told what is being done, and the share of all the work that is done."""


@dataclass(frozen=True)
class Row:
    """One policy's figures."""

    policy: str
    """Its name."""

    evaluation: Evaluation
    """What it is worth."""


@dataclass(frozen=True)
class Comparison:
    """Policies side by side, best first."""

    welfare: Welfare
    """How values are weighed."""

    rows: tuple[Row, ...]
    """By welfare, best first."""

    left_out: dict[str, str]
    """Policies that do not apply, with the reason."""

    upper_bound: float | None
    """No policy has more welfare than this; None if no bound is known."""

    bound_name: str
    """Where the bound is from: "optimum", or what kind of bound it is."""


def compare(
    problem: CoupledMDP,
    policies: Sequence[str] | Mapping[str, Policy | Starting] | None = None,
    welfare: str | Welfare = "gini:2",
    num_episodes: int = 1000,
    horizon: int = 300,
    rng: Rng = None,
    method: Method = "auto",
    told: Told | None = None,
    solve_up_to: int = 3_000,
) -> Comparison:
    """Evaluate policies on one problem, all in the same world.

    Args:
        problem: the problem.
        policies: names from the roster, or policies under names of one's own; when absent, all that apply.
        welfare: how values are weighed, as text or object.
        num_episodes: episodes to play where a policy must be simulated.
        horizon: steps an episode.
        rng: seed or generator; every policy gets the same.
        method: see `evaluate`.
        told: called now and then with what is being done and the share that is done.
        solve_up_to: the optimum is computed too if its space has no more states than this; beyond, the fluid bound.
    """
    measure = as_welfare(welfare, problem.num_arms)
    chosen, left_out = _build(problem, measure, policies)
    bound, bound_name, best = _bound(problem, measure, solve_up_to, left_out, told)
    if best is not None and policies is None:
        chosen = {"optimal": best, **chosen}
    seed = rng if isinstance(rng, int) else int(np.random.default_rng(rng).integers(2**63))
    rows: list[Row] = []
    for number, (name, policy) in enumerate(chosen.items()):
        progress = None if told is None else _progress(told, name, number, len(chosen))
        try:
            found = evaluate(policy, problem, measure, num_episodes, horizon, seed, method, progress)
            rows.append(Row(name, found))
        except (NotApplicable, TooLarge, OutOfDomain) as error:
            if number + 1 == len(chosen) and not rows:
                raise
            left_out[name] = str(error)
    rows.sort(key=lambda row: -round(row.evaluation.welfare, 9))  # of equals the first stays first
    return Comparison(measure, tuple(rows), left_out, bound, bound_name)


def _bound(
    problem: CoupledMDP, measure: Welfare, solve_up_to: int, left_out: dict[str, str], told: Told | None
) -> tuple[float | None, str, Policy | Starting | None]:
    """The best bound at hand and its name; also the optimal policy where it was quick to find."""
    try:
        if min(num_count_states(problem), num_joint_states(problem)) <= solve_up_to:
            best = solve(problem, measure, tolerance=1e-6, told=told)
            if best.method != "fluid":
                return best.upper_bound, "optimum" if best.gap <= 1e-5 else "upper bound", best.policy
        return relax(problem, measure).upper_bound, "fluid bound", None
    except (NotApplicable, TooLarge, OutOfDomain, NotConverged) as error:
        left_out["upper bound"] = str(error)
        return None, "", None


def _progress(told: Told, name: str, number: int, total: int) -> Callable[[float], None]:
    told(name, number / total)
    return lambda share: told(name, (number + share) / total)


def _build(
    problem: CoupledMDP, measure: Welfare, policies: Sequence[str] | Mapping[str, Policy | Starting] | None
) -> tuple[dict[str, Policy | Starting], dict[str, str]]:
    """The policies under their names, and those that do not apply; the optimal one is asked for by name only."""
    if isinstance(policies, Mapping):
        return dict(policies), {}
    if isinstance(policies, str):
        policies = [policies]
    if policies is not None and not all(isinstance(name, str) for name in policies):
        raise InvalidInput("policies: expected names, or a dictionary of policies under names of your own")
    named = [find_policy(name) for name in policies] if policies is not None else None
    chosen: dict[str, Policy | Starting] = {}
    left_out: dict[str, str] = {}
    for entry in named if named is not None else ROSTER:
        if named is None and entry.name == "optimal":
            continue
        try:
            chosen[entry.name] = entry.build(problem, measure)
        except (NotApplicable, TooLarge, OutOfDomain, NotConverged) as error:
            if named is not None:
                raise
            left_out[entry.name] = str(error)
    return chosen, left_out
