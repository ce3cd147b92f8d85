"""The best policy and its certificate, by the method that fits.

    method     on                 by                                             for
    counts     count space        dynamic programming (symmetric), or            any welfare; arms of few types
                                  column generation over it (several types)
    joint      product space      column generation over dynamic programming     any welfare; few arms, all different
    count-lp   count space        the paper's count dual LP                      symmetric: any welfare; else the mean
    joint-lp   product space      the paper's GGF-LP                             rank-weighted welfare; very few arms
    whittle    single arms        Whittle indices, simulated                     two actions, one resource, any N
    fluid      single arms        the best of the fair fluid policies,           any welfare, any N
                                  chosen by simulation

The last two are not exact: they come with the fair fluid bound, and their own welfare is an estimate with an error
(or exact, where the count space is small).

On a symmetric problem the best mean is the best of every welfare here (the paper's Theorem 3.4 and its corollary), so
one utilitarian solve answers all of them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from evenhand.checks import available_memory
from evenhand.errors import InvalidInput, NotApplicable, TooLarge, UnknownName
from evenhand.evaluation.evaluate import evaluate
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Leximin, RankWeighted, Utilitarian, Welfare, as_welfare
from evenhand.planning.relaxed import FLUID_TOLERANCE, fluid_policies, relax
from evenhand.planning.solution import Solution
from evenhand.policies.index import whittle
from evenhand.reductions.counts import CountChoices, Counts, num_count_states
from evenhand.reductions.joint import Joint, num_joint_states
from evenhand.solvers.count_dynamics import count_work, solve_counts
from evenhand.solvers.fluid import FluidSolution
from evenhand.solvers.linear_programs import LinearProgramSolution, count_lp, gini_lp
from evenhand.solvers.mixtures import best_mixture
from evenhand.solvers.occupancy import occupancy
from evenhand.solvers.pricing import TabularPricing
from evenhand.typing import Floats, Ints, Rng

Told = Callable[[str, float], None]
"""Told what is being done, and the share that is done as far as it is known."""

DEFAULT_TOLERANCE = 1e-8
"""Relative gap at which exact methods stop."""

MOST_COUNT_STATES, MOST_JOINT_STATES, MOST_OPERATIONS = 20_000, 70_000, 1e12
"""Sizes up to which `auto` takes an exact method: minutes, not hours."""

ARM_STEPS = 3e7
"""Simulated steps of arms that a policy is judged by."""


@dataclass(frozen=True)
class Task:
    """What is to be solved, and how closely."""

    problem: CoupledMDP
    measure: Welfare
    tolerance: float
    told: Told | None
    rng: Rng = 0
    candidates: dict[str, Policy | Starting] = field(default_factory=dict)

    def tell(self, what: str, rounds: int, gap: float) -> None:
        """Pass on the gap, on a logarithmic scale from 1 to the tolerance."""
        if self.told is not None:
            share = np.log(max(min(gap, 1.0), self.tolerance)) / np.log(self.tolerance)
            self.told(f"{what}, round {rounds}", float(share))


def solve(
    problem: CoupledMDP,
    welfare: str | Welfare = "gini:2",
    method: str = "auto",
    tolerance: float = DEFAULT_TOLERANCE,
    told: Told | None = None,
    rng: Rng = 0,
    candidates: Mapping[str, Policy | Starting] | None = None,
) -> Solution:
    """Find the best policy for a welfare, and prove how good it is.

    Args:
        problem: the problem.
        welfare: what to maximise, as text or object.
        method: counts, joint, count-lp, joint-lp, whittle, fluid, or auto: the exact method that fits, else fluid.
        tolerance: the relative gap to stop at. The linear programs end as close as HiGHS gets; for whittle and fluid
            it is the gap of the relaxation, at least 1e-5, and not that of the policy.
        told: called now and then with what is being done and the share that is done.
        rng: seed or generator of the simulations that whittle and fluid need.
        candidates: policies under names of one's own, such as trained ones, that compete with those of the method
            fluid; auto then takes that method.

    Raises:
        TooLarge: it would not fit; says how large it would be and what to use instead.
        NotApplicable: this method cannot treat this problem or welfare.
    """
    if not 0 < tolerance < 1:
        raise InvalidInput(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    task = Task(problem, as_welfare(welfare, problem.num_arms), tolerance, told, rng, dict(candidates or {}))
    if candidates and method not in ("auto", "fluid"):
        raise InvalidInput(f"candidates compete with the policies of the method fluid, not with {method}")
    if candidates:
        method, reason = "fluid", "candidates compete"
    elif method == "auto":
        method, reason = choose_method(problem)
    elif method in METHODS:
        reason = "asked for"
    else:
        raise UnknownName("method", method, ["auto", *METHODS])
    return METHODS[method](task, reason)


def choose_method(problem: CoupledMDP) -> tuple[str, str]:
    """The exact method that fits this problem and machine, else the fluid policies; and why."""
    counts, joint = num_count_states(problem), num_joint_states(problem)
    sizes = f"the count space has {counts:.6g} states; the product space has {joint:.6g} states"
    if problem.is_symmetric:
        if _lattice_fits(problem):
            return "counts", f"all {problem.num_arms} arms are identical, and the count space has {counts:.6g} states"
        return "fluid", f"all {problem.num_arms} arms are identical, but {sizes}: too many for an exact method"
    kinds = f"the arms are of {problem.num_types} types"
    if counts <= MOST_COUNT_STATES and counts < joint and Counts.accepts(problem) is None:
        return "counts", f"{kinds}, and {sizes}"
    if joint <= MOST_JOINT_STATES and Joint.accepts(problem) is None:
        return "joint", f"{kinds}, and the product space has {joint:.6g} states"
    return "fluid", f"{kinds}, and {sizes}: too many for an exact method in reasonable time"


def _lattice_fits(problem: CoupledMDP) -> bool:
    """Whether the dynamic program of a symmetric problem fits in memory and in reasonable time."""
    types = problem.types
    arm = (types.transitions[0], types.rewards[0], types.usage[0])
    try:
        _, size, operations = count_work(*arm, problem.budget_limit, problem.num_arms)
    except TooLarge:
        return False
    return size < 0.5 * available_memory() and operations < MOST_OPERATIONS


def _by_counts(task: Task, reason: str) -> Solution:
    return _by_lattice(task, reason) if task.problem.is_symmetric else _by_typed_counts(task, reason)


def _by_lattice(task: Task, reason: str) -> Solution:
    """A symmetric problem: the mean is all that matters."""
    problem, types = task.problem, task.problem.types
    start = time.perf_counter()
    best = solve_counts(
        types.transitions[0],
        types.rewards[0],
        types.usage[0],
        problem.budget_limit,
        problem.num_arms,
        types.initial[0],
        problem.discount,
        task.tolerance,
        lambda rounds, gap: task.tell("counts", rounds, gap),
    )
    values = np.array([best.lower_bound])
    task.measure.check_domain(values)
    policy = CountChoices(problem, best.cells, best.base, best.choices)
    seconds = {"build": 0.0, "solve": time.perf_counter() - start}
    return Solution(
        "counts", reason, task.measure, best.lower_bound, best.upper_bound, 0.0, values, True, policy, problem, seconds
    )


def _by_typed_counts(task: Task, reason: str) -> Solution:
    return _by_mixture(task, reason, "counts", Counts(task.problem), task.problem.type_counts)


def _by_joint(task: Task, reason: str) -> Solution:
    return _by_mixture(task, reason, "joint", Joint(task.problem), np.ones(task.problem.num_arms, dtype=np.int64))


def _by_mixture(task: Task, reason: str, method: str, space: Joint | Counts, counts: Ints) -> Solution:
    """Column generation, and the stationary policy of the best mixture, evaluated once more."""
    start = time.perf_counter()
    pricing = TabularPricing(space.mdp)
    built = time.perf_counter()
    mixture = best_mixture(
        pricing, task.measure, counts, task.tolerance, lambda rounds, gap: task.tell(method, rounds, gap)
    )
    probabilities = pricing.mixed_policy(mixture.shares)
    seconds = {"build": built - start, "solve": time.perf_counter() - built}
    return _of_table(task, reason, method, space, counts, probabilities, mixture.upper_bound, seconds)


def _of_table(
    task: Task,
    reason: str,
    method: str,
    space: Joint | Counts,
    counts: Ints,
    probabilities: Floats,
    upper_bound: float,
    seconds: dict[str, float],
) -> Solution:
    """A solution whose welfare is that of the returned policy, evaluated exactly."""
    values = occupancy(space.mdp, probabilities) @ space.mdp.rewards
    value = float(task.measure(values, counts))
    by_type = isinstance(space, Counts)
    policy = space.lift(probabilities)
    return Solution(
        method, reason, task.measure, value, upper_bound, 0.0, values, by_type, policy, task.problem, seconds
    )


def _by_count_lp(task: Task, reason: str) -> Solution:
    problem = task.problem
    if not problem.is_symmetric and not isinstance(task.measure, Utilitarian):
        raise NotApplicable(
            f"count-lp maximises the mean, which is the optimum of {task.measure.name} only if all arms are identical; "
            f"this problem has {problem.num_types} types. Use --method counts."
        )
    start = time.perf_counter()
    space = Counts(problem)
    weights = problem.type_counts / problem.num_arms
    return _of_program(task, reason, "count-lp", space, problem.type_counts, count_lp(space.mdp, weights), start)


def _by_joint_lp(task: Task, reason: str) -> Solution:
    if not isinstance(task.measure, RankWeighted) or isinstance(task.measure, Leximin):
        raise NotApplicable(f"joint-lp is for Gini-like welfare, not {task.measure.name}. Use --method joint.")
    start = time.perf_counter()
    space = Joint(task.problem)
    counts = np.ones(task.problem.num_arms, dtype=np.int64)
    solved = gini_lp(space.mdp, task.measure.rank_weights(task.problem.num_arms))
    return _of_program(task, reason, "joint-lp", space, counts, solved, start)


def _of_program(
    task: Task,
    reason: str,
    method: str,
    space: Joint | Counts,
    counts: Ints,
    solved: LinearProgramSolution,
    start: float,
) -> Solution:
    total = time.perf_counter() - start
    seconds = {"build": total - solved.seconds["solve"], "solve": solved.seconds["solve"]}
    return _of_table(task, reason, method, space, counts, solved.policy, solved.upper_bound, seconds)


def _by_whittle(task: Task, reason: str) -> Solution:
    start = time.perf_counter()
    policy = whittle(task.problem)
    relaxed = relax(task.problem, task.measure, max(task.tolerance, FLUID_TOLERANCE))
    return _by_playing(task, reason, "whittle", {"whittle": policy}, relaxed, start)


def _by_fluid(task: Task, reason: str) -> Solution:
    start = time.perf_counter()
    relaxed = relax(task.problem, task.measure, max(task.tolerance, FLUID_TOLERANCE))
    tried = {**fluid_policies(task.problem, relaxed), **task.candidates}
    return _by_playing(task, reason, "fluid", tried, relaxed, start)


def _by_playing(
    task: Task,
    reason: str,
    method: str,
    candidates: dict[str, Policy | Starting],
    relaxed: FluidSolution,
    start: float,
) -> Solution:
    """The best candidate: chosen on one stream of random numbers, reported on another."""
    built = time.perf_counter()
    choosing, reporting = np.random.default_rng(task.rng).spawn(2)
    horizon = _horizon(task.problem.discount)
    episodes = int(np.clip(ARM_STEPS / (task.problem.num_arms * horizon), 20, 2000))
    best = next(iter(candidates))
    if len(candidates) > 1:
        seed = int(choosing.integers(2**63))
        scores = {}
        for number, (name, policy) in enumerate(candidates.items()):
            if task.told is not None:
                task.told(f"trying {name}", number / (len(candidates) + 1))
            few = max(20, episodes // 4)
            tried = evaluate(policy, task.problem, task.measure, few, horizon, seed, method="monte-carlo")
            scores[name] = tried.welfare  # all on the same episodes, so that chance hardly favours one
        best = max(scores, key=lambda name: scores[name])
        reason = f"{reason}; best of {', '.join(scores)} in simulation: {best}"
    if task.told is not None:
        task.told(f"playing {best}", len(candidates) / (len(candidates) + 1))
    found = evaluate(candidates[best], task.problem, task.measure, episodes, horizon, reporting)
    values = found.group_values + _least_tail(task.problem, found.horizon)
    seconds = {"build": built - start, "solve": time.perf_counter() - built}
    return Solution(
        method,
        reason,
        task.measure,
        float(task.measure(values, found.group_counts)),
        relaxed.upper_bound,
        found.welfare_stderr,
        values,
        found.by_type,
        candidates[best],
        task.problem,
        seconds,
    )


def _least_tail(problem: CoupledMDP, horizon: int | None) -> float:
    """What an arm gets at the least after the horizon; 0 for exact values."""
    if horizon is None:
        return 0.0
    least = float(problem.types.rewards[problem.types.valid].min())
    return least * problem.discount**horizon / (1 - problem.discount)


def _horizon(discount: float) -> int:
    """Steps beyond which less than 1e-5 of all weight lies, within reason."""
    return int(np.clip(np.ceil(np.log(1e-5) / np.log(discount)), 1, 20_000)) if discount > 0 else 1


METHODS: dict[str, Callable[[Task, str], Solution]] = {
    "counts": _by_counts,
    "joint": _by_joint,
    "count-lp": _by_count_lp,
    "joint-lp": _by_joint_lp,
    "whittle": _by_whittle,
    "fluid": _by_fluid,
}
"""Every method that has a name."""
