"""Arms that can have no value, under alpha-fairness with alpha < 1.

Some arms have the value 0 whatever is done: those without rewards, and those whose rewards are where they never get, by
actions that no budget allows, after the last step, or, on average, where they cannot stay. With alpha < 1 the welfare
of values some of which are 0 is defined, though its slope there is not, and methods that climb along slopes cannot
begin. With beta = 1 - alpha and Z of N members at 0,

    W(v)^beta = 1/N sum_n v_n^beta          the members at 0 add nothing, and cannot be helped

so such arms are paid a constant at every step while the problem is solved: each has the value k then, whatever is done,

    W_k(v)^beta = W(v)^beta + Z/N k^beta

which is the same order of policies and has slopes everywhere. The policy is that of the problem itself, and what is
known of W_k, the bound above all, is turned into what it says of W: W = (W_k^beta - Z/N k^beta)^(1/beta). Nothing is
approximated. An arm that could have a value below 0 is no such arm: whether the welfare is defined depends on what is
done then, and where no policy gives everybody more than 0 it is refused: with whom that is, and what they can have.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from evenhand.errors import OutOfDomain
from evenhand.model.composite import Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.naming import type_names
from evenhand.model.objective import Objective, num_members
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import AlphaFair
from evenhand.planning.saved import rebuilt
from evenhand.planning.solution import Solution
from evenhand.planning.task import Task
from evenhand.solvers.service import best_values, empty_blocks
from evenhand.typing import Bools

PAID = 0.731
"""Of the largest reward: as large as what others get, and unlike what anybody gets."""

_ROUNDING = 1e-15
_DUST = 1e-10
"""Of the largest value there could be: a best value up to this is 0."""


def solve_with_zeros(task: Task, solve: Callable[[Task], Solution]) -> Solution:
    """Solve a task, whose arms without rewards are no hindrance where their welfare is defined.

    Args:
        task: what is to be solved.
        solve: solves it, if all values can be positive.
    """
    welfare, problem = task.welfare, task.problem
    if not isinstance(welfare, AlphaFair) or not 0 < welfare.alpha < 1:
        return solve(task)
    empty = empty_blocks(problem)
    if not empty.any():
        return _or_say_who(task, solve)
    paid = PAID * (float(np.abs(problem.arms.rewards).max()) or 1.0)  # type: ignore[attr-defined]  # they are tables
    # What never counts is left as it is: without it, types that differ in nothing else would become one.
    rewards = problem.arms.rewards + paid * (empty[:, None, None] & problem.arms.valid)  # type: ignore[attr-defined]
    lifted = replace(problem, arms=replace(problem.arms, rewards=rewards))  # type: ignore[type-var]
    found = _or_say_who(replace(task, problem=lifted), solve)
    scale = _Scale(1 - welfare.alpha, _share(problem, empty), paid * problem.criterion.total)
    return _brought_back(found, task, scale)


def _or_say_who(task: Task, solve: Callable[[Task], Solution]) -> Solution:
    """Solve it; a refusal says who cannot have more than 0, where that is the reason."""
    try:
        return solve(task)
    except OutOfDomain as refusal:
        told = _who_has_no_more(task.problem)
        if not told:
            raise
        raise OutOfDomain(f"{task.welfare.name} is for values of at least 0, and {told}") from refusal


def _who_has_no_more(problem: CoupledMDP) -> str:
    """The worst-off arm or group that cannot have more than 0, and what it can have; empty if there is none."""
    types, weights, names = problem.types, problem.type_counts.astype(float), type_names(problem)
    best = best_values(types, problem.affordable, problem.criterion)
    if problem.over == "groups":
        arms = np.bincount(problem.group_of_type, weights)
        best, names = np.bincount(problem.group_of_type, weights * best) / arms, list(problem.group_names)
    size = float(np.abs(types.rewards).max()) * problem.criterion.total
    least = int(np.argmin(np.where(np.isnan(best), np.inf, best)))
    if not best[least] <= _DUST * size:
        return ""
    remedy = "Use a Gini welfare, or shift the rewards."
    if best[least] < -_DUST * size:
        return f"{names[least]} has at most {best[least]:.6g} whatever is done. {remedy}"
    return (
        f"{names[least]} can have 0 at best and less by some of what may be done: plans without a welfare stand next "
        f"to the best one, and no plan gives everybody a positive value, where the methods begin. {remedy}"
    )


def _share(problem: CoupledMDP, empty: Bools) -> float:
    """Z / N."""
    if problem.over == "groups":
        return len(np.unique(problem.group_of_type[problem.type_of_block][empty])) / num_members(problem)
    return float(problem.counts[empty].sum() / problem.num_arms)


@dataclass(frozen=True)
class _Scale:
    """Between the welfare of what is solved and the welfare that was asked for."""

    beta: float
    share: float
    value: float

    def back(self, welfare: float, upwards: float = 0.0) -> float:
        """The welfare that was asked for; rounded upwards by a relative error where it is a bound."""
        rest = (1 + upwards) * welfare**self.beta - self.share * self.value**self.beta
        return float(max(rest, 0.0) ** (1 / self.beta))


def _of_problem(policy: Policy | Starting, task: Task) -> Policy | Starting:
    """A policy of the problem itself; those of the user's own are that already."""
    if any(policy is candidate for candidate in task.candidates.values()):
        return policy
    if isinstance(policy, Mixture) and task.candidates:
        return Mixture([_of_problem(part, task) for part in policy.parts], policy.shares, policy.rotate)
    return rebuilt(policy, task.problem)


def _brought_back(found: Solution, task: Task, scale: _Scale) -> Solution:
    """The solution of the problem itself."""
    problem = task.problem
    objective = (Objective.of_types if found.by_type else Objective.of_arms)(problem, found.objective.welfare)
    blocks = empty_blocks(problem)
    kinds = np.zeros(problem.num_types, dtype=bool)
    kinds[problem.type_of_block[blocks]] = True
    values = np.where(kinds if found.by_type else kinds[problem.type_of_arm], 0.0, found.unit_values)
    welfare = objective(values)
    slope = (found.welfare / welfare) ** (scale.beta - 1) if welfare > 0 else 0.0
    return replace(
        found,
        objective=objective,
        welfare=welfare,
        upper_bound=max(scale.back(found.upper_bound, _ROUNDING), welfare if not found.welfare_stderr else 0.0),
        unit_values=values,
        policy=_of_problem(found.policy, task),
        problem=problem,
        reason=f"{found.reason}; {int(problem.counts[blocks].sum())} of the arms can have no value",
        welfare_stderr=slope * found.welfare_stderr,
        optimism=None if found.optimism is None else slope * found.optimism,
        kept_welfare=None if found.kept_welfare is None else scale.back(found.kept_welfare),
        samples=None,
        history=tuple((number, scale.back(welfare)) for number, welfare in found.history),
    )
