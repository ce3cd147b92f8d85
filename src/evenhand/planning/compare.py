"""Policies side by side, in the same world, under the best bound known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evenhand.errors import Infeasible, InvalidInput, NotApplicable, NotConverged, OutOfDomain, TooLarge
from evenhand.evaluation.evaluate import Evaluation, Method, evaluate
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.objective import read_welfare
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Welfare
from evenhand.planning.relaxed import tightest
from evenhand.planning.roster import ROSTER, find_policy
from evenhand.planning.solve import solve
from evenhand.reductions.counts import num_count_states
from evenhand.reductions.joint import num_joint_states
from evenhand.typing import Progress, Rng


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

    problem: CoupledMDP = field(repr=False)
    """What they were compared on, under the criterion and over the members that were asked for."""


def compare(
    problem: CoupledMDP,
    policies: Sequence[str] | Mapping[str, Policy | Starting] | None = None,
    welfare: str | Welfare | None = None,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = None,
    method: Method = "auto",
    progress: Progress | None = None,
    solve_up_to: int = 3_000,
    criterion: str | Criterion | None = None,
    over: str | None = None,
) -> Comparison:
    """Evaluate policies on one problem, all in the same world.

    Args:
        problem: the problem.
        policies: names from the roster, or policies under names of one's own; when absent, all that apply.
        welfare: how values are weighed, as text or object; the problem's own when absent.
        num_episodes: episodes to play where a policy must be simulated.
        horizon: steps an episode; when absent, the criterion's own (see `evaluate`).
        rng: seed or generator; every policy gets the same.
        method: see `evaluate`.
        progress: called now and then with what is being done and the share that is done.
        solve_up_to: the optimum is computed too if its space has no more states than this; beyond, the fluid bound.
        criterion: what rewards over time are worth, as text or object; the problem's own when absent. Named policies
            and the bound are made for it.
        over: whose values are weighed, `arms` or `groups`; the problem's own when absent.
    """
    judged = problem.under(criterion, over)
    judged.criterion.simulated_steps(horizon)  # a horizon that does not fit is refused before any work
    weighed_by = read_welfare(judged, welfare)
    chosen, left_out = _build(judged, weighed_by, policies)
    bound, bound_name, best = _bound(judged, weighed_by, solve_up_to, left_out, progress)
    if best is not None and policies is None:
        chosen = {"optimal": best, **chosen}
    seed = rng if isinstance(rng, int) else int(np.random.default_rng(rng).integers(2**63))
    rows: list[Row] = []
    for number, (name, policy) in enumerate(chosen.items()):
        tell = None if progress is None else _turn_of(progress, name, number, len(chosen))
        try:
            # Policies of one's own were made for the problem as it was given.
            judging = judged.criterion, judged.over
            found = evaluate(policy, problem, weighed_by, num_episodes, horizon, seed, method, tell, *judging)
            rows.append(Row(name, found))
        except (NotApplicable, TooLarge, OutOfDomain) as error:
            if number + 1 == len(chosen) and not rows:
                raise
            left_out[name] = str(error)
    rows.sort(key=lambda row: -float(f"{row.evaluation.welfare:.9g}"))  # of equals the first stays first
    return Comparison(weighed_by, tuple(rows), left_out, bound, bound_name, judged)


def _bound(
    problem: CoupledMDP, welfare: Welfare, solve_up_to: int, left_out: dict[str, str], progress: Progress | None
) -> tuple[float | None, str, Policy | Starting | None]:
    """The best bound at hand and its name; also the optimal policy where it was quick to find."""
    try:
        if min(num_count_states(problem), num_joint_states(problem)) <= solve_up_to:
            best = solve(problem, welfare, "auto", 1e-6, progress)
            if best.method != "fluid":
                return best.upper_bound, "optimum" if best.gap <= 1e-5 else "upper bound", best.policy
        return tightest(problem, welfare).upper_bound, "fluid bound", None
    except (NotApplicable, Infeasible, TooLarge, OutOfDomain, NotConverged) as error:
        left_out["upper bound"] = str(error)
        return None, "", None


def _turn_of(progress: Progress, name: str, number: int, total: int) -> Progress:
    """Progress of one of several policies, told under its name."""
    progress(name, number / total)
    return lambda _, share: progress(name, (number + share) / total)


def _build(
    problem: CoupledMDP, welfare: Welfare, policies: Sequence[str] | Mapping[str, Policy | Starting] | None
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
            chosen[entry.name] = entry.build(problem, welfare)
        except (NotApplicable, Infeasible, TooLarge, OutOfDomain, NotConverged) as error:
            if named is not None:
                raise
            left_out[entry.name] = str(error)
    return chosen, left_out
