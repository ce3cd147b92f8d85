"""The methods that play: policies of single arms, the best of them by simulation, under the bound of the relaxation."""

import numpy as np

from evenhand.errors import NotApplicable, NotConverged
from evenhand.evaluation.evaluate import evaluate
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.planning.relaxed import FLUID_TOLERANCE, fluid_policies, keeping_floors, meet_floors, relax
from evenhand.planning.solution import Solution
from evenhand.planning.task import Stopwatch, Task
from evenhand.policies.baselines import worst_first
from evenhand.policies.index import whittle
from evenhand.policies.round_robin import RoundRobin
from evenhand.solvers.fluid import FluidSolution
from evenhand.typing import Rng

ARM_STEPS, STEPS = 3e7, 6e5
"""Simulated steps of arms, and of episodes, that a policy is judged by."""


CHOOSING = 400
"""Steps by which candidates are chosen under an average: their differences show sooner than their means."""


def by_whittle(task: Task) -> Solution:
    """Whittle indices."""
    watch = Stopwatch()
    if task.problem.has_floors:
        raise NotApplicable("Whittle indices know no floors. Use --method fluid, or an exact method.")
    task.tell("indices of the arms", 0.0)
    policy = whittle(task.problem)
    watch.lap("build")
    return _by_playing(task, "whittle", {"whittle": policy}, _relaxed(task, watch), watch)


def by_fluid(task: Task) -> Solution:
    """The policies of the relaxation, and candidates of the user's."""
    watch = Stopwatch()
    relaxed = _relaxed(task, watch)
    tried = {**fluid_policies(task.problem, relaxed), **task.candidates}
    if task.problem.has_floors:
        tried = _within_floors(task, tried)
    watch.lap("build")
    return _by_playing(task, "fluid", tried, relaxed, watch)


def _within_floors(task: Task, tried: dict[str, Policy | Starting]) -> dict[str, Policy | Starting]:
    """Who keeps the floors as it is, and a mixture that does; the plainest policies join, for they spread service."""
    task.tell("meeting the floors", 0.1)
    plain = {"equal-resources": RoundRobin(task.problem), "oldest-first": worst_first(task.problem)}
    kept = keeping_floors(task.problem, {**tried, **plain}, _seed(task))
    try:
        return {**kept, "within-floors": meet_floors(task.problem, task.welfare, tried, _seed(task))}
    except NotConverged:
        if not kept:
            raise
        return kept


def _seed(task: Task) -> Rng:
    """A stream of its own for the policies that are mixed; a generator is not used up."""
    return task.rng if isinstance(task.rng, int) else 0


def _relaxed(task: Task, watch: Stopwatch) -> FluidSolution:
    task.tell("fluid relaxation", 0.0)
    relaxed = relax(task.problem, task.welfare, max(task.tolerance, FLUID_TOLERANCE))
    watch.lap("solve")
    return relaxed


def _by_playing(
    task: Task, method: str, candidates: dict[str, Policy | Starting], relaxed: FluidSolution, watch: Stopwatch
) -> Solution:
    """The best candidate: chosen on one stream of random numbers, reported on another."""
    choosing, reporting = np.random.default_rng(task.rng).spawn(2)
    horizon = task.problem.criterion.judging_steps()
    most = int(np.clip(STEPS / horizon, 20, 2000))
    episodes = int(np.clip(ARM_STEPS / (task.problem.num_arms * horizon), 20, most))
    best, reason = next(iter(candidates)), task.reason
    if len(candidates) > 1:
        few = min(horizon, CHOOSING) if task.problem.criterion.is_average else horizon
        best = _best_of(task, candidates, max(20, episodes // 4), few, int(choosing.integers(2**63)))
        reason = f"{reason}; best of {', '.join(candidates)} in simulation: {best}"
    task.tell(f"playing {best}", len(candidates) / (len(candidates) + 1))
    found = evaluate(candidates[best], task.problem, task.welfare, episodes, horizon, reporting)
    values = found.unit_values + _least_tail(task.problem, found.horizon)
    objective = task.by_types if found.by_type else task.by_arms
    watch.lap("play")
    return Solution(
        method=method,
        reason=reason,
        objective=objective,
        welfare=objective(values),
        upper_bound=relaxed.upper_bound,
        welfare_stderr=found.welfare_stderr,
        unit_values=values,
        by_type=found.by_type,
        policy=candidates[best],
        problem=task.problem,
        seconds=watch.seconds,
    )


def _best_of(task: Task, candidates: dict[str, Policy | Starting], episodes: int, horizon: int, seed: int) -> str:
    """The candidate of most welfare, all on the same episodes, so that chance hardly favours one.

    Of those that differ by rounding only, the first is taken.
    """
    scores = {}
    for number, (name, policy) in enumerate(candidates.items()):
        task.tell(f"trying {name}", number / (len(candidates) + 1))
        tried = evaluate(policy, task.problem, task.welfare, episodes, horizon, seed, method="monte-carlo")
        scores[name] = tried.welfare
    most = max(scores.values())
    return next(name for name, score in scores.items() if score >= most - 1e-9 * abs(most))


def _least_tail(problem: CoupledMDP, horizon: int | None) -> float:
    """What an arm gets at the least after the horizon; 0 for exact values, and where the horizon is all there is."""
    beyond = 0.0 if horizon is None else problem.criterion.beyond(horizon)
    return float(problem.types.rewards[problem.types.valid].min()) * beyond if beyond else 0.0
