"""The methods of `solve`: exact ones, and those that simulate policies of single arms under the relaxation's bound.

An exact method is a reduction, a solver on it, and the policy lifted back, with the welfare it is proved to have.

The welfare that is reported is that of the returned policy, evaluated once more, never the solver's word; on the
lattice of counts, where that would cost as much as solving, what is proved of it.

On a problem of one type the best mean is the best of every welfare, since W(v) <= W(mean, ..., mean) for a concave and
symmetric W, and arms that are treated alike have equal values (the paper's Theorem 3.4 and its corollary). So one
weighted sum answers all of them: `_by_lattice` and `count-lp`.
"""

import contextlib
from typing import Any

import numpy as np

from evenhand.display import counted
from evenhand.errors import InfeasibleError, NotApplicableError, NotConvergedError
from evenhand.evaluation.evaluate import Evaluation, evaluate_within
from evenhand.evaluation.long_run import LongRunLimits
from evenhand.kernels.compilation import work_clock
from evenhand.model import MixturePolicy, Objective, Policy, StatefulPolicy, TabularMDP, Utilitarian
from evenhand.model.policy import described
from evenhand.planning.mixture_search import Blend, find_mixture, report_parts
from evenhand.planning.policy_scoring import LENGTHENED, ScoredPolicy, mix, step_cost
from evenhand.planning.relaxation import FLUID_TOLERANCE, relax, tightest
from evenhand.planning.solution import Part, Solution, rounding
from evenhand.planning.task import Stopwatch, Task, gap_share
from evenhand.policies.fluid import choice_of
from evenhand.policies.index import whittle
from evenhand.solvers.closed_classes import one_long_run
from evenhand.solvers.column_generation import best_mixture
from evenhand.solvers.counts import TypedPlan, TypedPricing, plan_counts, plan_types, solve_counts
from evenhand.solvers.counts.reduction import Counts, count_policy, num_count_states, typed_policy
from evenhand.solvers.dynamic_programming import start_matters
from evenhand.solvers.fluid import FluidSolution
from evenhand.solvers.joint import Joint
from evenhand.solvers.linear_programs import count_lp, gini_lp
from evenhand.solvers.pricing import TabularPricing, values_of_parts, weighed
from evenhand.typing import Floats

LOOSE = 1e-5
"""Relative gap that linear programs, and the evaluation of a policy, may leave to rounding."""

MOST_SECONDS = 3600.0
"""Time limit of a linear program."""

Parts = list[tuple[float, Floats]]
"""Shares and tables of policies that are drawn at the start."""


def by_counts(task: Task) -> Solution:
    """Dynamic programming on counts: at once for identical arms, by column generation for several types."""
    if task.problem.is_symmetric and not task.problem.has_floors:
        try:
            return _by_lattice(task)
        except (NotApplicableError, NotConvergedError):  # the start matters, or the long run is slow: tables can tell
            if num_count_states(task.problem) > task.effort.tabulated_states:
                raise
    watch = Stopwatch()
    task.tell("counts: listing the allocations", 0.0)
    plan = plan_types(task.problem)
    if plan.num_pairs * task.problem.criterion.num_layers > task.effort.tabulated_pairs:
        try:
            return _by_types(task, plan, watch)
        except (NotApplicableError, NotConvergedError):  # the same
            if plan.num_states > task.effort.tabulated_states:
                raise
    return by_mixture(task, "counts", Counts(task.problem), task.by_types, watch)


def by_joint(task: Task) -> Solution:
    """Column generation over the product space."""
    return by_mixture(task, "joint", Joint(task.problem), task.by_arms, Stopwatch())


def _by_lattice(task: Task) -> Solution:
    """Solve a symmetric problem, where only the mean matters."""
    watch, problem = Stopwatch(), task.problem
    plan = plan_counts(problem)
    watch.lap("build")
    best = solve_counts(plan, problem.types.initial[0], task.method.tolerance, task.tell_gap("counts"))
    # What is proved of the policy, from below; evaluating it would cost as much as solving.
    objective, values = task.by_types, np.array([best.lower_bound])
    objective.check_domain(values)
    policy = count_policy(problem, best.cells, best.base, best.choices)
    bound = objective(np.array([best.upper_bound]))
    return _reached(_solution(task, "counts", objective, values, bound, policy, watch), task.method.tolerance)


def _solution(
    task: Task,
    method: str,
    objective: Objective,
    values: Floats,
    upper_bound: float,
    policy: Policy | StatefulPolicy,
    watch: Stopwatch,
) -> Solution:
    welfare = objective(values)
    watch.lap("solve")
    return Solution(
        method=method,
        reason=task.reason,
        objective=objective,
        welfare=welfare,
        # Floors are met up to rounding, which the bound does not include.
        upper_bound=max(upper_bound, welfare) if task.problem.has_floors else upper_bound,
        unit_values=values,
        by_type=method in ("counts", "count-lp"),
        policy=policy,
        problem=task.problem,
        seconds=watch.seconds,
    )


def _reached(solution: Solution, requested: float, loosest: float = 0.0) -> Solution:
    """Return the solution if its gap is within the requested tolerance, or the loosest that its method may leave.

    Raises:
        NotConvergedError: the gap is wider, by more than rounding.
    """
    problem, apart = solution.problem, solution.upper_bound - solution.welfare
    size = max(abs(solution.upper_bound), abs(solution.welfare))
    # No relative gap can be closed at an optimum of 0.
    nothing = 1e-12 * float(np.abs(problem.types.rewards).max()) * problem.criterion.total
    tolerance = max(requested, loosest)
    if apart > max(tolerance * size, 8 * rounding(problem), nothing if size <= nothing else 0.0):
        accepted = f" (the rounding of a linear program may leave {loosest:.2g})" if loosest > requested else ""
        raise NotConvergedError(
            f"{solution.method} ended with a relative gap of {solution.gap:.2g}, and {requested:.2g} was requested"
            f"{accepted}. The arms move very slowly or the rewards differ too much in size: use a larger tolerance."
        )
    return solution


def _by_types(task: Task, plan: TypedPlan, watch: Stopwatch) -> Solution:
    """Solve several types by column generation, where each weighted sum is solved type by type."""
    problem, objective, share = task.problem, task.by_types, 0.0

    def tell_gap(rounds: int, gap: float) -> None:
        nonlocal share
        share = gap_share(gap, task.method.tolerance)
        task.tell(f"counts, policy {rounds + 1}, gap {gap:.0e}", share)

    pricing = TypedPricing(plan, objective, lambda what: task.tell(f"counts: {what}", share))
    watch.lap("build")
    sizes, floors = objective.sizes, pricing.floors
    mixture = best_mixture(pricing, objective.welfare, sizes, task.method.tolerance, tell_gap, floors)
    # Parts without a share are left out.
    used = np.flatnonzero(mixture.shares > 0)
    values = sum(mixture.shares[i] * pricing.type_values[i] for i in used)
    allocations = [moves.allocations for moves in plan.types]
    parts = [typed_policy(problem, allocations, pricing.picks[i]) for i in used]
    policy = parts[0] if len(parts) == 1 else MixturePolicy(parts, mixture.shares[used])
    return _reached(
        _solution(task, "counts", objective, values, mixture.upper_bound, policy, watch), task.method.tolerance
    )


def by_mixture(task: Task, method: str, space: Any, objective: Objective, watch: Stopwatch) -> Solution:
    """Return the policy of the best mixture, by column generation, evaluated once more.

    Args:
        task: the task.
        method: name of the method.
        space: Joint, Counts, or another space with a tabular problem `mdp` and a method `lift`.
        objective: over the units of the space.
        watch: of the run time.
    """
    task.tell(f"{method}: listing the states", 0.0)
    mdp, floors = weighed(space.mdp, objective)
    pricing = TabularPricing(mdp)
    watch.lap("build")
    mixture = best_mixture(
        pricing, objective.welfare, objective.sizes, task.method.tolerance, task.tell_gap(method), floors
    )
    parts, bound = pricing.mixed_parts(mixture.shares), mixture.upper_bound
    return _reached(_of_parts(task, method, space, objective, parts, bound, watch), task.method.tolerance)


def _of_parts(
    task: Task,
    method: str,
    space: Any,
    objective: Objective,
    parts: Parts,
    upper_bound: float,
    watch: Stopwatch,
) -> Solution:
    """Return a solution whose welfare is that of the returned policy, evaluated exactly."""
    values, visits = values_of_parts(space.mdp, parts)
    lifted = [space.lift(table) for _, table in parts]
    policy = lifted[0] if len(parts) == 1 else MixturePolicy(lifted, [share for share, _ in parts])
    solution = _solution(task, method, objective, values, upper_bound, policy, watch)
    if objective.criterion.is_average:
        _check_start(solution, space.mdp, visits, max(LOOSE, 10 * task.method.tolerance))
    return solution


def _check_start(solution: Solution, mdp: TabularMDP, visits: Floats, most_gap: float) -> None:
    """Raise NotApplicableError if the parts of an average, from the initial states, differ from the solution.

    Args:
        solution: with the policy's own values.
        mdp: the problem.
        visits: (pair,) those of the policy.
        most_gap: the largest gap that is left to rounding.
    """
    apart = solution.upper_bound - solution.welfare
    if (
        solution.gap > most_gap and not one_long_run(mdp) and apart > 1e-9 * np.abs(mdp.rewards).max()
    ):  # a best mean of 0 is met but for rounding
        raise NotApplicableError(start_matters(apart))
    if mdp.served is not None and (short := float((solution.objective.floors - visits @ mdp.served).max())) > most_gap:
        raise NotApplicableError(
            f"the floors are met from some states of the arms and not from others (of the share of time {short:.3g} is "
            "lacking), and the criterion average is for problems where the start does not matter in the long run. Use "
            "finite:T, or discounted with a discount near 1."
        )


def by_count_lp(task: Task) -> Solution:
    """The paper's count dual LP."""
    problem, objective = task.problem, task.by_types
    # With several types the best mean is not the best of other welfares.
    if not problem.is_symmetric and not objective.structure.is_mean:
        raise NotApplicableError(
            f"count-lp maximises the mean, which is the optimum of {task.welfare.name} only if all arms are identical; "
            f"this problem has {problem.num_types} types. Use the method counts."
        )
    # The mean over members: each weighs as many arms as it has.
    weights = objective.sizes / objective.sizes.sum()
    return _by_program(task, "count-lp", Counts(problem), objective, weights)


def by_joint_lp(task: Task) -> Solution:
    """The paper's GGF-LP."""
    objective = task.by_arms
    if objective.structure.ranked is None or objective.structure.lexicographic:
        raise NotApplicableError(f"joint-lp is for Gini-like welfare, not {task.welfare.name}. Use the method joint.")
    # w_1 >= ... >= w_N of the paper's LP.
    ranks = objective.structure.ranked.rank_weights(len(objective.sizes))
    return _by_program(task, "joint-lp", Joint(task.problem), objective, ranks)


def _by_program(
    task: Task,
    method: str,
    space: Joint | Counts,
    objective: Objective,
    weights: Floats,
) -> Solution:
    """The policy of a linear program over occupancy measures."""
    watch = Stopwatch()
    task.tell(f"{method}: listing the states", 0.0)
    mdp, floors = weighed(space.mdp, objective)
    watch.lap("build")
    task.tell(f"{method}: solving", 0.1)

    def waiting(seconds: float) -> None:
        task.tell(f"{method}: solving, {seconds:.0f} s of at most {MOST_SECONDS:.0f}", 0.1)

    try:
        program = count_lp if method == "count-lp" else gini_lp
        solved = program(mdp, weights, floors, time_limit=MOST_SECONDS, waiting=waiting)
    except (InfeasibleError, NotConvergedError) as error:  # a solver that stalls may have met floors just out of reach
        if len(floors):  # dynamic programming finds out how far they reach, and raises
            best_mixture(TabularPricing(mdp), Utilitarian(), objective.sizes, floors=floors)
        if isinstance(error, NotConvergedError):
            raise NotConvergedError(f"{error}. Use the methods joint or counts, by dynamic programming.") from None
        raise
    bound = solved.upper_bound
    if method == "count-lp":  # members are equal, as identical arms are: the bound on the mean is one on every welfare
        bound = float(task.welfare(np.full(len(objective.sizes), bound), objective.sizes))
    solution = _of_parts(task, method, space, objective, solved.parts, bound, watch)
    return _reached(solution, task.method.tolerance, max(LOOSE, 10 * task.method.tolerance))


# -- methods that simulate ------------------------------------------------------------


def by_whittle(task: Task) -> Solution:
    """Whittle indices."""
    watch = Stopwatch()
    if task.problem.has_floors:
        raise NotApplicableError("Whittle indices know no floors. Use the method fluid, or an exact method.")
    task.tell("indices of the arms", 0.0)
    policy = whittle(task.problem)
    watch.lap("build")
    relaxed = _relaxed(task, watch)
    nothing = np.zeros((0, task.problem.num_types))  # there was no choice to play it for
    column = ScoredPolicy("whittle", policy, choice_of(task.problem, relaxed.occupancy), nothing, nothing)
    plan = Blend((column,), np.ones(1), np.nan, 1, 0)
    return _simulated(task, "whittle", task.reason, plan, relaxed, watch)


def by_fluid(task: Task) -> Solution:
    """The best mixture of policies of single arms, and candidates of the user's."""
    watch, begin = Stopwatch(), work_clock()
    relaxed = _relaxed(task, watch)
    plan = find_mixture(task, relaxed, begin)
    watch.lap("solve")
    made = f"a mixture of {len(plan.columns)}" if len(plan.columns) > 1 else plan.columns[0].name
    looked = f"of {counted(plan.tried, 'policy', 'policies')}, {counted(plan.rounds, 'round')}"
    looked += ", stopped by the time given" if plan.stopped else ""
    reason = f"{task.reason}; {looked}: {made}"
    return _simulated(task, "fluid", reason, plan, relaxed, watch)


def _relaxed(task: Task, watch: Stopwatch) -> FluidSolution:
    task.tell("fluid relaxation", 0.0)
    relaxed = relax(task.problem, task.welfare, max(task.method.tolerance, FLUID_TOLERANCE))
    watch.lap("solve")
    return relaxed


def _simulated(task: Task, method: str, reason: str, plan: Blend, relaxed: FluidSolution, watch: Stopwatch) -> Solution:
    """Return a plan as reported: on episodes on which nothing was chosen."""
    upper_bound = plan.upper_bound
    if upper_bound is None:
        upper_bound = tightest(task.problem, task.welfare, relaxed).upper_bound
    watch.lap("solve")
    given = np.inf if task.method.seconds is None else task.method.seconds * plan.pace  # steps of arms
    by_type = plan.columns[0].returns.shape[1] == task.problem.num_types
    objective = task.by_types if by_type else task.by_arms
    values, samples = report_parts(task, plan.columns, plan.shares, objective, 0.2 * given)
    policy = mix(plan.columns, plan.shares)
    reported = welfare = objective(values)
    error, errors, without_redraw = samples.error(objective, values), samples.errors(), None
    if rotates := task.method.redraw_every is not None and isinstance(policy, MixturePolicy):
        policy = policy.with_redraw_every(task.method.redraw_every)
    seen: Evaluation | None = None
    if rotates:
        seen = play(task, policy, task.effort.report_steps, 0.2 * given, thorough=True)
        values, welfare, error, without_redraw = seen.unit_values, seen.welfare, seen.welfare_stderr, reported
        errors, objective, by_type = seen.unit_stderr, seen.objective, seen.by_type
    elif 2.0 * task.problem.num_arms * task.problem.criterion.judging_steps() <= max(0.1 * given, 1e5):
        with contextlib.suppress(NotConvergedError):  # the values are known, only how they vary between arms is not
            seen = play(task, policy, task.effort.inequality_steps, 0.1 * given)
    watch.lap("play")
    order = np.argsort(-plan.shares, kind="stable")
    return Solution(
        method=method,
        reason=reason,
        objective=objective,
        welfare=welfare,
        upper_bound=upper_bound,
        welfare_stderr=error,
        unit_values=values,
        unit_stderr=errors if errors.any() else None,
        by_type=by_type,
        policy=policy,
        problem=task.problem,
        seconds=watch.seconds,
        parts=tuple(Part(plan.columns[i].name, float(plan.shares[i])) for i in order),
        selection_bias=None if np.isnan(plan.welfare) else plan.welfare - reported,
        welfare_without_redraw=without_redraw,
        samples=None if rotates else samples,
        realised_gini=None if seen is None else seen.realised_gini_coefficient,
        realised_gini_stderr=None if seen is None else seen.realised_gini_stderr,
        stopped=plan.stopped,
        history=plan.history,
    )


def play(
    task: Task, policy: Policy | StatefulPolicy, arm_steps: float, most: float, thorough: bool = False
) -> Evaluation:
    """Evaluate a policy arm by arm, within the time limit apart from a fraction of a second."""
    horizon, most = task.problem.criterion.judging_steps(), max(most, 1e5)
    size = horizon * step_cost(task.problem, described(policy).decision_cost, task.problem.num_arms, arm_steps)
    episodes = int(max(2, min(np.clip(arm_steps / size, 20, 2000), most / size)))
    stream = np.random.default_rng(task.rng).spawn(4)[3]
    # An average is played until it has forgotten its start.
    steps = task.problem.criterion.fixed_steps(horizon)
    limits = LongRunLimits(most_work=LENGTHENED * min(max(arm_steps, episodes * size), most), thorough=thorough)
    return evaluate_within(task.problem, policy, task.welfare, episodes, steps, stream, limits)
