"""The methods that play: policies of single arms and their mixtures, under the bound of the relaxation."""

import numpy as np

from evenhand.display import counted
from evenhand.errors import NotApplicableError, NotConvergedError
from evenhand.evaluation.evaluate import Evaluation, evaluate_within
from evenhand.evaluation.long_run import LongRunLimits
from evenhand.kernels.compilation import work_clock
from evenhand.model.composite import MixturePolicy
from evenhand.model.policy import Policy, StatefulPolicy
from evenhand.planning.mixture_search import REPORTED, WATCHED, Blend, find_mixture, report_parts
from evenhand.planning.policy_scoring import FEWEST_HURRIED, LENGTHENED, Column, law_of, mix
from evenhand.planning.relaxation import FLUID_TOLERANCE, relax, tightest
from evenhand.planning.solution import Part, Solution
from evenhand.planning.task import Stopwatch, Task
from evenhand.policies.index import whittle
from evenhand.solvers.fluid import FluidSolution

LEAST_SEEN = 1e5
"""The same where time is short: a fraction of a second."""

HURRIED = 0.25
"""Share of this time for the first estimate."""

KNOWN_TO = 0.05
"""Standard error of their inequality, as a share of it, from which time that is short no longer shortens the look."""


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
    column = Column("whittle", policy, law_of(task.problem, relaxed.occupancy), nothing, nothing)
    plan = Blend((column,), np.ones(1), np.nan, 1, 0)
    return _solution(task, "whittle", task.reason, plan, relaxed, watch)


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
    return _solution(task, "fluid", reason, plan, relaxed, watch)


def _relaxed(task: Task, watch: Stopwatch) -> FluidSolution:
    task.tell("fluid relaxation", 0.0)
    relaxed = relax(task.problem, task.welfare, max(task.tolerance, FLUID_TOLERANCE))
    watch.lap("solve")
    return relaxed


def _solution(task: Task, method: str, reason: str, plan: Blend, relaxed: FluidSolution, watch: Stopwatch) -> Solution:
    """A plan as it is reported: on episodes that no choice has seen."""
    upper_bound = plan.upper_bound
    if upper_bound is None:
        upper_bound = tightest(task.problem, task.welfare, relaxed).upper_bound
    watch.lap("solve")
    given = np.inf if task.seconds is None else task.seconds * plan.pace  # steps of arms
    by_type = plan.columns[0].returns.shape[1] == task.problem.num_types
    objective = task.by_types if by_type else task.by_arms
    found = report_parts(task, plan.columns, plan.shares, objective, REPORTED * given)
    policy = mix(plan.columns, plan.shares)
    values, welfare, error, without_redraw = found.values, found.welfare, found.stderr, None
    errors = found.samples.unit_errors()
    if rotates := task.redraw_every is not None and isinstance(policy, MixturePolicy):
        policy = policy.with_redraw_every(task.redraw_every)
    seen: Evaluation | None
    if not rotates:
        seen = _seen(task, policy, WATCHED * given)
    else:
        seen = _watch_it(task, policy, task.effort.report_steps, REPORTED * given, thorough=True)
        values, welfare, error, without_redraw = seen.unit_values, seen.welfare, seen.welfare_stderr, found.welfare
        errors = seen.unit_stderr
        objective, by_type = seen.objective, seen.by_type
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
        selection_bias=None if np.isnan(plan.welfare) else plan.welfare - found.welfare,
        welfare_without_redraw=without_redraw,
        samples=None if rotates else found.samples,
        realised_gini=None if seen is None else seen.realised_gini_coefficient,
        realised_gini_stderr=None if seen is None else seen.realised_gini_stderr,
        stopped=plan.stopped,
        history=plan.history,
    )


def _seen(task: Task, policy: Policy | StatefulPolicy, most: float) -> Evaluation | None:
    """Return realised values: on few episodes if these suffice for their inequality, else on as many as time allows.

    A few episodes show an inequality now above that of the expected values and now below it, where it cannot be.
    """
    try:
        found = _watch_it(task, policy, task.effort.inequality_steps, HURRIED * most)
    except NotConvergedError:  # the values are known, only how they vary between arms is not
        return None
    level, error = found.realised_gini_coefficient, found.realised_gini_stderr
    if level is not None and error is not None and error > KNOWN_TO * abs(level) and np.isfinite(most):
        return _watch_it(task, policy, task.effort.inequality_steps, max(most, LEAST_SEEN))
    return found


def _watch_it(
    task: Task, policy: Policy | StatefulPolicy, arm_steps: float, most: float, thorough: bool = False
) -> Evaluation:
    """Play a policy as it is, and see what arms really get; on no more steps of arms than there is time for."""
    horizon = task.problem.criterion.judging_steps()
    size = task.problem.num_arms * horizon
    episodes = int(max(FEWEST_HURRIED, min(np.clip(arm_steps / size, 20, 2000), most / size)))
    stream = np.random.default_rng(task.rng).spawn(4)[3]
    # An average is played until it has forgotten its start.
    steps = task.problem.criterion.fixed_steps(horizon)
    work = LENGTHENED * min(max(arm_steps, episodes * size), max(most, LEAST_SEEN))
    limits = LongRunLimits(most_work=work, thorough=thorough)
    return evaluate_within(policy, task.problem, task.welfare, episodes, steps, stream, limits)
