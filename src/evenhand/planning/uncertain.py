"""A solution where the model is fitted: its draws, what is worth knowing, and the plan for the worst draws."""

import contextlib
from dataclasses import replace
from typing import NamedTuple

from evenhand.checks import check_fraction
from evenhand.errors import InvalidInput, NotApplicable, TooLarge
from evenhand.evaluation.drawing import USUAL_DRAWS, Known, playing_seed, read_worlds
from evenhand.evaluation.draws import PolicyDraws, UnderDraws
from evenhand.evaluation.evaluate import evaluate
from evenhand.evaluation.worlds import Worlds
from evenhand.model.coupled import CoupledMDP
from evenhand.parallel import Pool
from evenhand.planning.draws import Candidates, add_drawn_plans
from evenhand.planning.knowing import worth_knowing
from evenhand.planning.policy_registry import REGISTRY
from evenhand.planning.robust import RobustPlan, robust_plan
from evenhand.planning.solution import Solution
from evenhand.planning.task import Stopwatch
from evenhand.typing import Progress

DRAWN_PLANS = 6
"""Drawn worlds whose plans are weighed beside the plan for the model itself."""


def check_robust(robust: float | None) -> float | None:
    """A share of the draws above 0, or None."""
    if robust is None:
        return None
    share = check_fraction(robust, "robust")
    if share == 0:
        raise InvalidInput("robust: expected a share of the draws above 0, such as 0.1 for the worst tenth, got 0")
    return share


class Asked(NamedTuple):
    """What is asked of the draws."""

    worlds: Worlds
    """The draws that choices may see."""

    held_out: Worlds | None
    """Others."""

    share: float | None
    """The share of the worst draws whose mean is maximised; None where nothing is."""

    seed: int
    """Of draws and episodes."""


def read_asked(
    problem: CoupledMDP, posterior: Known | None, num_draws: int | None, robust: float | None, seed: int
) -> Asked:
    """Read what is asked, before any work.

    Args:
        problem: under the criterion and over the members that were asked for.
        posterior: what is known of the transitions.
        num_draws: how many draws; the usual number when absent.
        robust: the share of the worst draws whose mean is maximised; nothing is, when absent.
        seed: of draws and episodes.
    """
    share = check_robust(robust)
    if share is not None and problem.has_floors:
        raise NotApplicable("robust: floors are kept in the model's own world only, so that plans cannot be mixed")
    number = USUAL_DRAWS if num_draws is None else num_draws
    worlds, held_out = read_worlds(problem, posterior, number, seed, held_out=share is not None)
    return Asked(worlds, held_out, share, seed)


def over_draws(solution: Solution, asked: Asked, sweep: Pool, progress: Progress | None) -> Solution:
    """The same solution with what is known of it; or, where that is asked for, the plan for the worst draws.

    Args:
        solution: the plan for the model itself.
        asked: the draws, and what is asked of them.
        sweep: where plans are weighed, and drawn worlds planned for.
        progress: called now and then with what is being done and the share done.
    """
    watch, worlds = Stopwatch(), asked.worlds
    candidates = Candidates(worlds, solution.objective.welfare, playing_seed(asked.seed), progress, sweep)
    first = candidates.row("plan", candidates.add("plan", solution.policy))
    add_drawn_plans(candidates, first.seen, DRAWN_PLANS)
    rows: tuple[PolicyDraws, ...] = (first,)
    decided = solution
    if asked.share is not None:
        plain = {}
        # None of them may be better in the worst draws than the plan for them.
        for entry in (entry for entry in REGISTRY if entry.is_heuristic):
            with contextlib.suppress(NotApplicable, TooLarge):
                plain[entry.name] = entry.build(worlds.problem)
        candidates.add_all(plain, if_they_fit=True)
        plan = robust_plan(candidates, asked.share, asked.held_out)
        rows, decided = (candidates.row("robust plan", plan.found), first), _robust_solution(solution, plan, asked.seed)
    knowing = worth_knowing(candidates.draws(), worlds)
    watch.lap("draws")
    return replace(
        decided,
        draws=UnderDraws(worlds.problem, candidates.welfare, rows),
        worth_knowing=knowing,
        seconds=solution.seconds | {"draws": watch.seconds["draws"]},
    )


def _robust_solution(solution: Solution, plan: RobustPlan, seed: int) -> Solution:
    """The robust plan, weighed in the model's own world."""
    if plan.policy is solution.policy:
        return replace(solution, robust=plan.facts)
    found = evaluate(plan.policy, solution.problem, solution.objective.welfare, rng=seed)
    return replace(
        solution,
        method="robust",
        reason=f"the mean of the worst {100 * plan.facts.share:.3g} % of {plan.facts.num_draws} draws is maximised; "
        f"{plan.facts.words}",
        objective=found.objective,
        welfare=found.welfare,
        welfare_stderr=found.welfare_stderr,
        unit_values=found.unit_values,
        unit_stderr=None if found.exact else found.unit_stderr,
        by_type=found.by_type,
        policy=plan.policy,
        parts=plan.facts.parts,
        optimism=None,
        kept_welfare=None,
        realised_gini=found.realised_gini_coefficient,
        realised_gini_stderr=found.realised_gini_stderr,
        samples=None,
        history=(),
        robust=plan.facts,
    )
