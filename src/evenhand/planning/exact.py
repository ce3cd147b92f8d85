"""The exact methods: a reduction, a solver on it, and the policy lifted back, with the welfare it is proved to have.

The welfare that is reported is that of the returned policy, evaluated once more, never the solver's word; on the
lattice of counts, where that would cost as much as solving, what is proved of it.

On a problem of one type the best mean is the best of every welfare, since W(v) <= W(mean, ..., mean) for a concave and
symmetric W, and arms that are treated alike have equal values (the paper's Theorem 3.4 and its corollary). So one
weighted sum answers all of them: `_by_lattice` and `count-lp`.
"""

from collections.abc import Callable

import numpy as np

from evenhand.errors import InfeasibleError, NotApplicableError, NotConvergedError
from evenhand.model.composite import MixturePolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.objective import Objective
from evenhand.model.policy import Policy, StatefulPolicy
from evenhand.model.tabular import TabularMDP
from evenhand.model.welfare import Utilitarian
from evenhand.planning.certificate import rounding
from evenhand.planning.solution import Solution
from evenhand.planning.task import Stopwatch, Task, gap_share
from evenhand.reductions.counts import Counts, count_policy, num_count_states, typed_policy
from evenhand.reductions.joint import Joint
from evenhand.solvers.closed_classes import one_long_run
from evenhand.solvers.column_generation import best_mixture
from evenhand.solvers.counts import SMALL, CountPlan, TypedPlan, TypedPricing, plan_counts, plan_types, solve_counts
from evenhand.solvers.dynamic_programming import start_matters
from evenhand.solvers.linear_programs import LinearProgramSolution, count_lp, gini_lp
from evenhand.solvers.pricing import TabularPricing, values_of_parts, weighed
from evenhand.typing import Floats

MOST_TABULATED = 6000
"""Count states up to which an average that is refused without tables is tried by them."""

TABLES_UP_TO = 25_000
"""Pairs of count states and decisions of several types, at all steps, up to which the explicit table is quicker."""

NOTHING = 1e-12
"""A welfare below this share of the largest reward is 0 but for rounding."""

LOOSE = 1e-5
"""A relative gap that linear programs, and the evaluation of a policy, may leave to rounding."""

MOST_SECONDS = 3600.0
"""After which a linear program is given up."""

Parts = list[tuple[float, Floats]]
"""Shares and tables of policies that are drawn at the start."""


def by_counts(task: Task) -> Solution:
    """Dynamic programming on counts: at once for identical arms, by column generation for several types."""
    if task.problem.is_symmetric and not task.problem.has_floors:
        try:
            return _by_lattice(task)
        except (
            NotApplicableError,
            NotConvergedError,
        ):  # the long run depends on the start, or comes slowly: tables can tell
            if num_count_states(task.problem) > MOST_TABULATED:
                raise
    watch, report = Stopwatch(), _PricingProgress(task)
    report.tell("listing the allocations")
    plan = task.typed_plan or plan_types(task.problem)
    if plan.num_pairs * task.problem.criterion.num_layers > TABLES_UP_TO:
        try:
            return _by_types(task, plan, report, watch)
        except (NotApplicableError, NotConvergedError):  # the same
            if plan.num_states > MOST_TABULATED:
                raise
    return _by_mixture(task, "counts", Counts(task.problem), task.by_types, watch)


def plan_lattice(problem: CoupledMDP, small: float = SMALL) -> CountPlan:
    """The dynamic program of identical arms on counts, not yet begun.

    Args:
        problem: with identical arms.
        small: entries of explicit tables up to which they are used.
    """
    types = problem.types
    return plan_counts(
        transitions=types.transitions[0],
        rewards=types.rewards[0],
        usage=types.usage[0],
        limit=problem.budget_limit,
        num_arms=problem.num_arms,
        criterion=problem.criterion,
        small=small,
    )


def by_joint(task: Task) -> Solution:
    """Column generation over the product space."""
    return _by_mixture(task, "joint", Joint(task.problem), task.by_arms, Stopwatch())


def _by_lattice(task: Task) -> Solution:
    """A symmetric problem: the mean is all that matters."""
    watch, problem = Stopwatch(), task.problem
    # Planned already where it was planned to choose the method.
    plan = task.plan or plan_lattice(problem)
    watch.lap("build")
    best = solve_counts(plan, problem.types.initial[0], task.tolerance, task.tell_gap("counts"))
    # What is proved of the policy, from below; evaluating it would cost as much as solving.
    objective, values = task.by_types, np.array([best.lower_bound])
    objective.check_domain(values)
    policy = count_policy(problem, best.cells, best.base, best.choices)
    watch.lap("solve")
    solution = Solution(
        method="counts",
        reason=task.reason,
        objective=objective,
        welfare=objective(values),
        upper_bound=objective(np.array([best.upper_bound])),
        unit_values=values,
        by_type=True,
        policy=policy,
        problem=problem,
        seconds=watch.seconds,
    )
    return _reached(solution, task.tolerance)


def _reached(solution: Solution, requested: float, loosest: float = 0.0) -> Solution:
    """The solution, if its gap is within the requested tolerance, or within the loosest one that its method may leave.

    Raises:
        NotConvergedError: the gap is wider, by more than rounding.
    """
    problem, apart = solution.problem, solution.upper_bound - solution.welfare
    size = max(abs(solution.upper_bound), abs(solution.welfare))
    # No relative gap can be closed at an optimum of 0.
    nothing = NOTHING * float(np.abs(problem.types.rewards).max()) * problem.criterion.total
    tolerance = max(requested, loosest)
    if apart > max(tolerance * size, 8 * rounding(problem), nothing if size <= nothing else 0.0):
        accepted = f" (the rounding of a linear program may leave {loosest:.2g})" if loosest > requested else ""
        raise NotConvergedError(
            f"{solution.method} ended with a relative gap of {solution.gap:.2g}, and {requested:.2g} was requested"
            f"{accepted}. The arms move very slowly or the rewards differ too much in size: use a larger tolerance."
        )
    return solution


def _by_types(task: Task, plan: TypedPlan, report: "_PricingProgress", watch: Stopwatch) -> Solution:
    """Several types: column generation, where each weighted sum is solved type by type."""
    problem, objective = task.problem, task.by_types
    pricing = TypedPricing(plan, objective, report.tell)
    watch.lap("build")
    sizes, floors = objective.sizes, pricing.floors
    mixture = best_mixture(pricing, objective.welfare, sizes, task.tolerance, report.tell_gap, floors)
    # Parts without a share are left out.
    used = np.flatnonzero(mixture.shares > 0)
    values = sum(mixture.shares[i] * pricing.type_values[i] for i in used)
    allocations = [moves.allocations for moves in plan.types]
    parts = [typed_policy(problem, allocations, pricing.picks[i]) for i in used]
    welfare = objective(values)
    watch.lap("solve")
    solution = Solution(
        method="counts",
        reason=task.reason,
        objective=objective,
        welfare=welfare,
        # Floors are met to rounding only, and what that gains no bound knows.
        upper_bound=max(mixture.upper_bound, welfare) if problem.has_floors else mixture.upper_bound,
        unit_values=values,
        by_type=True,
        policy=parts[0] if len(parts) == 1 else MixturePolicy(parts, mixture.shares[used]),
        problem=problem,
        seconds=watch.seconds,
    )
    return _reached(solution, task.tolerance)


class _PricingProgress:
    """Progress of column generation: the current policy, task and gap."""

    def __init__(self, task: Task) -> None:
        self.task, self.share, self.words = task, 0.0, "counts"

    def tell(self, what: str) -> None:
        """Pass on what is being done."""
        self.task.tell(f"{self.words}: {what}", self.share)

    def tell_gap(self, rounds: int, gap: float) -> None:
        """Remember how far it is, and pass it on."""
        self.share = gap_share(gap, self.task.tolerance)
        self.words = f"counts, policy {rounds + 1}, gap {gap:.0e}"
        self.task.tell(self.words, self.share)


def _by_mixture(task: Task, method: str, space: Joint | Counts, objective: Objective, watch: Stopwatch) -> Solution:
    """Column generation, and the policy of the best mixture, evaluated once more."""
    task.tell(f"{method}: listing the states", 0.0)
    mdp, floors = weighed(space.mdp, objective)
    pricing = TabularPricing(mdp)
    watch.lap("build")
    mixture = best_mixture(pricing, objective.welfare, objective.sizes, task.tolerance, task.tell_gap(method), floors)
    parts, bound = pricing.mixed_parts(mixture.shares), mixture.upper_bound
    return _reached(_of_parts(task, method, space, objective, parts, bound, watch), task.tolerance)


def _of_parts(
    task: Task,
    method: str,
    space: Joint | Counts,
    objective: Objective,
    parts: Parts,
    upper_bound: float,
    watch: Stopwatch,
) -> Solution:
    """A solution whose welfare is that of the returned policy, evaluated exactly."""
    values, visits = values_of_parts(space.mdp, parts)
    policy, welfare = _drawn_at_start(space, parts), objective(values)
    if task.problem.has_floors:  # floors hold up to rounding, which the bound does not include
        upper_bound = max(upper_bound, welfare)
    watch.lap("solve")
    solution = Solution(
        method=method,
        reason=task.reason,
        objective=objective,
        welfare=welfare,
        upper_bound=upper_bound,
        unit_values=values,
        by_type=isinstance(space, Counts),
        policy=policy,
        problem=task.problem,
        seconds=watch.seconds,
    )
    if objective.criterion.is_average:
        _check_start(solution, space.mdp, visits, max(LOOSE, 10 * task.tolerance))
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


def _drawn_at_start(space: Joint | Counts, parts: Parts) -> Policy | StatefulPolicy:
    if len(parts) == 1:
        return space.lift(parts[0][1])
    return MixturePolicy([space.lift(table) for _, table in parts], [share for share, _ in parts])


def by_count_lp(task: Task) -> Solution:
    """The paper's count dual LP."""
    problem, objective = task.problem, task.by_types
    # With several types the best mean is not the best of other welfares.
    if not problem.is_symmetric and not objective.structure.is_mean:
        raise NotApplicableError(
            f"count-lp maximises the mean, which is the optimum of {task.welfare.name} only if all arms are identical; "
            f"this problem has {problem.num_types} types. Use the method counts."
        )
    watch, space = Stopwatch(), Counts(problem)
    task.tell("count-lp: listing the states", 0.0)
    mdp, floors = weighed(space.mdp, objective)
    watch.lap("build")
    task.tell("count-lp: solving", 0.1)
    # The mean over members: each weighs as many arms as it has.
    weights = objective.sizes / objective.sizes.sum()
    waiting = _waiting(task, "count-lp")
    solved = _within_floors(
        lambda: count_lp(mdp, weights, floors, time_limit=MOST_SECONDS, waiting=waiting), mdp, objective, floors
    )
    # All members equal, as they are for identical arms: the bound on the mean is one on every welfare.
    bound = float(task.welfare(np.full(len(objective.sizes), solved.upper_bound), objective.sizes))
    solution = _of_parts(task, "count-lp", space, objective, solved.parts, bound, watch)
    return _reached(solution, task.tolerance, max(LOOSE, 10 * task.tolerance))


def _within_floors(
    program: Callable[[], LinearProgramSolution], mdp: TabularMDP, objective: Objective, floors: Floats
) -> LinearProgramSolution:
    """The solution of a program; where its floors contradict each other, the words say which could be met."""
    try:
        return program()
    except (InfeasibleError, NotConvergedError) as error:  # a solver that stalls may have met floors just out of reach
        if len(floors):  # dynamic programming finds out how far they reach, and raises
            best_mixture(TabularPricing(mdp), Utilitarian(), objective.sizes, floors=floors)
        if isinstance(error, NotConvergedError):
            raise NotConvergedError(f"{error}. Use the methods joint or counts, by dynamic programming.") from None
        raise


def _waiting(task: Task, method: str) -> Callable[[float], None]:
    """Report the elapsed time of a solver whose progress is unknown."""
    return lambda seconds: task.tell(f"{method}: solving, {seconds:.0f} s of at most {MOST_SECONDS:.0f}", 0.1)


def by_joint_lp(task: Task) -> Solution:
    """The paper's GGF-LP."""
    structure = task.by_arms.structure
    if structure.ranked is None or structure.lexicographic:
        raise NotApplicableError(f"joint-lp is for Gini-like welfare, not {task.welfare.name}. Use the method joint.")
    watch, space, objective = Stopwatch(), Joint(task.problem), task.by_arms
    task.tell("joint-lp: listing the states", 0.0)
    mdp, floors = weighed(space.mdp, objective)
    watch.lap("build")
    task.tell("joint-lp: solving", 0.1)
    # w_1 >= ... >= w_N of the paper's LP.
    ranks = structure.ranked.rank_weights(len(objective.sizes))
    waiting = _waiting(task, "joint-lp")
    solved = _within_floors(
        lambda: gini_lp(mdp, ranks, floors, time_limit=MOST_SECONDS, waiting=waiting), mdp, objective, floors
    )
    solution = _of_parts(task, "joint-lp", space, objective, solved.parts, solved.upper_bound, watch)
    return _reached(solution, task.tolerance, max(LOOSE, 10 * task.tolerance))
