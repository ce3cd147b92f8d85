"""The best policy and its certificate, by the method that fits.

    method     on                 by                                             for
    counts     count space        dynamic programming (symmetric), or            any welfare; arms of few types
                                  column generation over it (several types)
    joint      product space      column generation over dynamic programming     any welfare; few arms, all different
    count-lp   count space        the paper's count dual LP                      symmetric: any welfare; else the mean
    joint-lp   product space      the paper's GGF-LP                             rank-weighted welfare; very few arms
    whittle    single arms        Whittle indices, simulated                     two actions, one resource, any N
    fluid      single arms        the best mixture of policies of single arms,   any welfare, any N
                                  by column generation, chosen by simulation

All of them are for every criterion, over arms or groups; the exact ones keep floors exactly. The last two are not
exact: they come with the fair fluid bound, and their own welfare is an estimate with an error (or exact, where the
count space is small).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack, overload

import numpy as np

from evenhand.checks import as_seed, available_memory, fits_in_memory, human_bytes
from evenhand.display import progress_or_none, size_in_words, with_progress_bar
from evenhand.errors import (
    InvalidInputError,
    NotApplicableError,
    NotConvergedError,
    OutOfDomainError,
    TooLargeError,
    UnknownNameError,
)
from evenhand.model import CoupledMDP, Criterion, Policy, StatefulPolicy, Welfare, read_welfare, type_names
from evenhand.model.parquet import StoredArms
from evenhand.model.simulator import Problem, needs_tables
from evenhand.model.welfare import MOST_APART, is_named
from evenhand.parallel import Pool
from evenhand.planning import methods
from evenhand.planning.promises import solve_promised
from evenhand.planning.relaxation import check_sound
from evenhand.planning.solution import Solution
from evenhand.planning.task import SolveMethod, Task, current_effort
from evenhand.solvers.counts import CountPlan, TypedPlan, plan_counts, plan_types
from evenhand.solvers.counts.optimum import MOST_OPERATIONS as REFUSED
from evenhand.solvers.counts.reduction import num_count_states
from evenhand.solvers.joint import Joint, num_joint_states
from evenhand.solvers.service import best_values
from evenhand.typing import Progress, Rng

if TYPE_CHECKING:
    from evenhand.planning.budget_sweep import Budget, BudgetRow, BudgetSweep

SWEEPS = 50
"""Steps of a finite horizon that cost as much as an endless one, which takes many sweeps to settle."""

METHODS: dict[str, Callable[[Task], Solution]] = {
    "counts": methods.by_counts,
    "joint": methods.by_joint,
    "count-lp": methods.by_count_lp,
    "joint-lp": methods.by_joint_lp,
    "whittle": methods.by_whittle,
    "fluid": methods.by_fluid,
}
"""All methods by name."""


class SolveOptions(TypedDict, total=False):
    """Keyword arguments of `solve` in its overloads."""

    criterion: str | Criterion | None
    over: str | None
    rng: Rng
    progress: Progress | bool | None
    backend: str | Pool | None


Model: TypeAlias = CoupledMDP | StoredArms
ByName: TypeAlias = str | Welfare | None


@overload
def solve(
    problem: Model,
    welfare: ByName = None,
    method: str | SolveMethod = "auto",
    *,
    budgets: None = None,
    **options: Unpack[SolveOptions],
) -> Solution: ...


@overload
def solve(
    problem: Model,
    welfare: ByName = None,
    method: str | SolveMethod = "auto",
    *,
    budgets: "Sequence[Budget]",
    **options: Unpack[SolveOptions],
) -> "BudgetSweep[BudgetRow]": ...


@with_progress_bar
def solve(
    problem: CoupledMDP | StoredArms,
    welfare: str | Welfare | None = None,
    method: str | SolveMethod = "auto",
    *,
    criterion: str | Criterion | None = None,
    over: str | None = None,
    budgets: "Sequence[Budget] | None" = None,
    rng: Rng = 0,
    progress: Progress | bool | None = None,
    backend: str | Pool | None = None,
) -> "Solution | BudgetSweep[BudgetRow]":
    """Find the best policy for a welfare, with an upper bound that proves how good it is.

    Args:
        problem: the problem, or an opened Parquet model. Of more than 100,000 rows the result is the relaxation and its
            index policy (`planning.stored_models.Relaxation`), without a search for mixtures.
        welfare: welfare to maximise, as text or object; by default the problem's own (`CoupledMDP.welfare`).
        method: name of a method, or a `SolveMethod` with settings.
        criterion: `discounted`, `average` or `finite:T`; by default the problem's own.
        over: welfare over `arms` or `groups`; by default the problem's own.
        budgets: several budgets, each as of `CoupledMDP.with_budget`, to solve for each: a larger one never gives a
            worse plan. By default the problem's own budget.
        rng: seed or generator of the simulations that whittle and fluid need.
        progress: True shows a bar; a function is called with the current task and the share done.
        backend: where policies are simulated, and blocks of a large opened model solved: `threads:2`, `processes:2`,
            `ray`, `ray://host:port`, or a pool; by default this process. Results do not depend on it.

    Returns:
        A `Solution`; with several budgets a `BudgetSweep`.

    Raises:
        TooLargeError: the method does not fit this machine; says how large it would be and what to use instead.
        NotApplicableError: this method cannot treat this problem or welfare, or a custom welfare is not concave,
            monotone, symmetric and consistent (see `check_welfare`).
        InfeasibleError: the floors exceed the budget.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> solution = eh.solve(problem, welfare="gini:2")
        >>> solution
        Solution(gini:2 14.0793, at most 14.0793, gap 0.000 %, by counts)
        >>> solution.policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
        >>> for row in eh.solve(problem, budgets=[[0], [1], [2]]):
        ...     print(row.budget, round(row.solution.welfare, 3))
        {'resource 0': 0.0} 2.774
        {'resource 0': 1.0} 14.079
        {'resource 0': 2.0} 14.252
    """
    settings = SolveMethod.of(method)
    if isinstance(problem, StoredArms):
        model = problem.with_criterion(criterion, over)  # type: ignore[arg-type]  # checked where it is read
        if model.is_large and model.over == "arms" and not model.has_floors and budgets is None:
            from evenhand.planning.stored_models import solve_stored

            return solve_stored(model, welfare, settings, progress_or_none(progress), backend)  # type: ignore[return-value]
        problem = model.problem()
    advice = "Use train, which learns from samples, or compare, which plays baselines and policies of your own."
    evaluated = needs_tables(problem, "solve", advice).with_criterion(criterion, over)
    weighed_by, seed = read_welfare(evaluated, welfare), as_seed(rng)  # streams are split from the seed repeatedly
    if budgets is not None:
        from evenhand.planning.budget_sweep import solve_budgets  # it calls `solve` per budget

        if backend is not None:
            raise InvalidInputError("backend: several budgets are solved in this process")
        return solve_budgets(evaluated, budgets, weighed_by, settings, progress_or_none(progress), seed)
    if backend is not None:
        if settings.name in METHODS and settings.name != "fluid":
            raise InvalidInputError(
                f"backend: the method {settings.name} runs in this process; only the method fluid runs elsewhere"
            )
        Pool(backend).check_picklable({f"the policy {name}": one for name, one in settings.candidates.items()})
    check_sound(evaluated, weighed_by)
    with Pool(backend) as pool:
        task = Task(evaluated, weighed_by, settings, progress_or_none(progress), rng=seed, sweep=pool)
        _check_positive(task)
        solution = _solve(task)
    if not is_named(weighed_by) and evaluated.num_arms <= MOST_APART:
        check_sound(evaluated, weighed_by, solution.values)
    notes = ""
    if settings.redraw_every is not None and solution.welfare_without_redraw is None:
        notes += "; no redraw, since it is not a mixture of fluid policies"
    if not pool.used and not pool.is_default:
        notes += f"; nothing ran on {pool.name}, since no policies were tried"
    return replace(solution, reason=solution.reason + notes) if notes else solution


def _check_positive(task: Task) -> None:
    """Raise OutOfDomainError if a best value is not positive, for alpha in (0, 1): the slope at 0 is infinite."""
    problem, welfare = task.problem, task.welfare
    if not 0 < (task.by_types.structure.aversion or 0) < 1:
        return
    best = task.by_types.members(best_values(problem.types, problem.types.valid, problem.criterion))
    least = int(np.argmin(np.where(np.isnan(best), np.inf, best)))
    size = float(np.abs(problem.types.rewards).max()) * problem.criterion.total
    if best[least] <= 1e-10 * size:
        names = list(problem.group_names) if problem.over == "groups" else type_names(problem)
        raise OutOfDomainError(
            f"{welfare.name} needs positive values, and {names[least]} has at most {best[least] + 0.0:.6g}. "
            "Leave it out of the model, shift the rewards, or use a Gini welfare."
        )


def _solve(task: Task) -> Solution:
    name = task.method.name
    if task.problem.has_max_wait:
        return solve_promised(task, _solve)
    if task.method.candidates:
        return METHODS["fluid"](replace(task, reason="candidates compete"))
    if name != "auto":
        if name not in METHODS:
            raise UnknownNameError("method", name, ["auto", *METHODS])
        return METHODS[name](task)
    name, reason = choose_method(task.problem)
    try:
        return METHODS[name](replace(task, reason=reason))
    except NotConvergedError as error:
        if name == "fluid":
            raise
        reason = f"{reason}, but {name} did not converge ({str(error).partition('. ')[0]})"
        return METHODS["fluid"](replace(task, reason=reason))


# -- choosing a method -----------------------------------------------------------------------------------------------


def optimal_policy(problem: Problem, welfare: str | Welfare | None, name: str) -> Policy | StatefulPolicy:
    """Return the policy of the exact method that fits.

    Args:
        problem: the problem.
        welfare: welfare that is maximised.
        name: name for messages.

    Raises:
        TooLargeError: no exact method fits.
    """
    known = needs_tables(problem, name)
    method, reason = choose_method(known)
    if method == "fluid":
        raise TooLargeError(reason)
    return solve(known, welfare, method).policy


def choose_method(problem: CoupledMDP) -> tuple[str, str]:
    """Return the exact method that fits this problem and machine, else fluid; and the reason."""
    # By sizes, and by plans that are not begun: nothing is built to choose.
    effort, counts, joint = current_effort(), num_count_states(problem), num_joint_states(problem)
    steps = problem.criterion.num_layers
    sizes = f"the count space has {size_in_words(counts)} states; the product space has {size_in_words(joint)} states"
    if steps > 1:
        sizes += f"; each for {steps} steps"
    # A finite horizon is one sweep per step, an infinite one takes about SWEEPS of them.
    work = max(1.0, steps / SWEEPS)
    # Identical arms: one lattice for all of them, which reaches far more states than tables do.
    if problem.is_symmetric and not problem.has_floors:
        alike = f"all {problem.num_arms} arms are identical"
        try:
            limit = _exceeded_limit(lambda: plan_counts(problem))
        except NotApplicableError:  # the long run may depend on the start: tables can tell
            if work * counts > effort.count_states:
                raise
            return "counts", f"{alike}, and {sizes}"
        if limit:
            why = f"too many for an exact method ({limit}), which a smaller budget or fewer arms would be within"
            return "fluid", f"{alike}, but {sizes}: {why}"
        return "counts", f"{alike}, and the count space has {size_in_words(counts)} states"
    kinds = f"the arms are of {problem.num_types} types" if problem.num_types > 1 else "the arms have a floor"
    # Several types: by counts, unless the arms are so few that their product space is smaller still.
    limit = "counts: no fewer states than joint"
    if counts <= joint and not (limit := _exceeded_limit(lambda: plan_types(problem), 200.0 * counts)):
        return "counts", f"{kinds}, and {sizes}"
    refused = Joint.accepts(problem)
    if refused is None:
        if work * joint <= effort.joint_states:
            return "joint", f"{kinds}, and the product space has {size_in_words(joint)} states"
        times = "" if work == 1 else f", each counted {work:.3g} times for {steps} steps"
        refused = f"{size_in_words(joint)} states{times}, above {effort.joint_states}{_lifted('joint')}"
    why = f"too many for an exact method in reasonable time ({limit}; joint: {refused})"
    return "fluid", f"{kinds}, and {sizes}: {why}"


def _lifted(method: str) -> str:
    """Return advice about a limit of `auto` alone."""
    return f", a limit that method '{method}' lifts"


def _exceeded_limit(make: Callable[[], CountPlan | TypedPlan], least_bytes: float = 0.0) -> str:
    """Return the limit of memory or time that a dynamic program on counts exceeds; empty if it fits."""
    need, allowed, plan = least_bytes, 1.0, None
    if fits_in_memory(need, allowed):  # else it is not even worth a plan
        try:
            plan = make()
        except TooLargeError as error:
            return f"counts: {str(error).partition('. ')[0]}"
        need, allowed = plan.size_in_bytes, 0.5  # the tables are not all that a run needs
    if plan is None or not fits_in_memory(need, allowed):
        lifted = _lifted("counts") if fits_in_memory(need) else ""
        free = human_bytes(available_memory())
        return f"counts: {human_bytes(need)} of memory, above {allowed:.0%} of the {free} that are free{lifted}"
    most = current_effort().operations
    lifted = _lifted("counts") if plan.operations <= REFUSED else ""
    return "" if plan.operations < most else f"counts: {plan.operations:.2g} operations, above {most:.2g}{lifted}"
