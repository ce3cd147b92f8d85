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

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from evenhand.checks import as_seed, available_memory, check_positive_int, fits_in_memory, human_bytes, is_number
from evenhand.display import heard, shows_bar, size_in_words
from evenhand.errors import InvalidInput, NotApplicable, NotConverged, OutOfDomain, TooLarge, UnknownName
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.naming import type_names
from evenhand.model.objective import read_welfare
from evenhand.model.parquet import StoredArms
from evenhand.model.policy import Policy, Starting
from evenhand.model.simulator import Problem, needs_tables
from evenhand.model.welfare import PowerMean, Welfare
from evenhand.parallel import Pool
from evenhand.planning import exact, played
from evenhand.planning.relaxed import check_sound
from evenhand.planning.solution import Solution
from evenhand.planning.task import Task
from evenhand.reductions.counts import num_count_states
from evenhand.reductions.joint import Joint, num_joint_states
from evenhand.solvers.count_dynamics import CountPlan
from evenhand.solvers.count_dynamics.plan import MOST_OPERATIONS as REFUSED
from evenhand.solvers.service import best_values
from evenhand.solvers.typed_counts import TypedPlan, plan_types
from evenhand.typing import Progress, Rng

DEFAULT_TOLERANCE = 1e-8
"""Relative gap at which exact methods stop."""

MOST_COUNT_STATES, MOST_JOINT_STATES, MOST_OPERATIONS = 20_000, 70_000, 1e12
"""Sizes up to which `auto` takes an exact method: minutes, not hours. The first two are for tables, the last is for
what is computed without them: the counts of identical arms, or of several types."""

ROUNDING = 1e-10
"""Share of the largest attainable value up to which a best value counts as 0."""

SWEEPS = 50
"""Steps of a finite horizon that cost as much as an endless one, which takes many sweeps to settle."""

METHODS: dict[str, Callable[[Task], Solution]] = {
    "counts": exact.by_counts,
    "joint": exact.by_joint,
    "count-lp": exact.by_count_lp,
    "joint-lp": exact.by_joint_lp,
    "whittle": played.by_whittle,
    "fluid": played.by_fluid,
}
"""Every method that has a name."""


_OF_SAMPLES = (
    "Use train, which learns from samples, or compare: it plays baselines, networks and scores of your own "
    "(policies.ExchangeablePriority)."
)


@shows_bar
def solve(
    problem: CoupledMDP | StoredArms,
    welfare: str | Welfare | None = None,
    method: str = "auto",
    tolerance: float = DEFAULT_TOLERANCE,
    progress: Progress | bool | None = None,
    rng: Rng = 0,
    candidates: Mapping[str, Policy | Starting] | None = None,
    criterion: str | Criterion | None = None,
    over: str | None = None,
    seconds: float | None = None,
    rotate: int | None = None,
    draws: int | None = None,
    posterior: Any = None,
    robust: float | None = None,
    backend: str | Pool | None = None,
) -> Solution:
    """Find the best policy for a welfare, and prove how good it is.

    Args:
        problem: the problem, or an opened Parquet model. Of more than 100,000 rows the result is the relaxation and its
            index policy (`planning.stored_models.Relaxation`), without a search for mixtures.
        welfare: what to maximise, as text or object; the problem's own when absent (`CoupledMDP.welfare`).
        method: counts, joint, count-lp, joint-lp, whittle, fluid, or auto: the exact method that fits, else fluid.
        tolerance: the relative gap to stop at. The linear programs end as close as HiGHS gets; for whittle and fluid
            it is the gap of the relaxation, at least 1e-5, and not that of the policy.
        progress: True shows a bar; a function is called now and then with what is being done and the share done.
        rng: seed or generator of the simulations that whittle and fluid need.
        candidates: policies under names of one's own, such as trained ones, that compete with those of the method
            fluid; auto then takes that method.
        criterion: `discounted`, `average` or `finite:T`; the problem's own when absent.
        over: welfare over `arms` or `groups`; as the problem says when absent.
        seconds: how long the method fluid may take, at most about twice this; until nothing is gained by default. Half
            of it is for the search, the rest for playing what was found again; where two episodes of a policy take
            longer, no more are played. The time in which code is compiled does not count, and exact methods do not
            look at it.
        rotate: steps after which a mixture is drawn anew; it is drawn once and kept when absent. What that is worth is
            told for both.
        draws: over how many draws of the posterior to weigh the plan, for a model that was fitted; see `posterior`.
        posterior: what is known of the model's transitions: the model file (its posterior stands beside it), the file
            of the posterior itself, or what `fit` gave.
        robust: the share of the worst draws whose mean welfare is maximised, such as 0.1; the plan is then a mixture
            that does well in them, and what that costs on average is told. 200 draws, unless `draws` says else.
        backend: where policies are tried and draws weighed, several at a time: `processes:2`, `ray`,
            `ray://host:port`, or a pool; this process by default. Results do not depend on it. It applies to the method
            fluid, to draws, and to large opened models; exact methods run in this process.

    Raises:
        TooLarge: it would not fit; says how large it would be and what to use instead.
        NotApplicable: this method cannot treat this problem or welfare, or a welfare of one's own is not concave,
            monotone and symmetric (see `check_welfare`).
        Infeasible: the floors ask for more than the budget allows.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> solution = eh.solve(problem, welfare="gini:2")
        >>> solution
        Solution(gini:2 14.0793, at most 14.0793, gap 0.000 %, by counts)
        >>> solution.policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
    """
    if not is_number(tolerance) or not 0 < tolerance < 1:
        raise InvalidInput(f"tolerance: expected a number between 0 and 1, got {tolerance!r}")
    if isinstance(problem, StoredArms):
        model = problem.under(criterion, over)  # type: ignore[arg-type]  # checked where it is read
        if model.is_large and model.over == "arms" and not model.has_floors:
            from evenhand.planning.stored_models import TOLERANCE, solve_stored

            others = {"candidates": candidates, "seconds": seconds, "rotate": rotate, "draws": draws, "robust": robust}
            if given := [name for name, value in others.items() if value] + [method] * (
                method not in ("auto", "fluid")
            ):
                raise NotApplicable(f"{given[0]}: not for a large opened model, of which the relaxation is solved")
            chosen = TOLERANCE if tolerance == DEFAULT_TOLERANCE else tolerance
            found = (model, welfare, chosen, heard(progress), backend)
            return solve_stored(*found)  # type: ignore[return-value]  # documented above
        problem = model.problem()
    problem = needs_tables(problem, "solve", _OF_SAMPLES).under(criterion, over)
    _check_candidates(candidates)
    _check_place(backend, method, draws is not None or robust is not None, candidates)
    task = Task(
        problem,
        read_welfare(problem, welfare),
        tolerance,
        heard(progress),
        rng=as_seed(rng),  # the streams of a method are split from it again and again
        candidates=dict(candidates or {}),
        seconds=_check_seconds(seconds),
        rotate=None if rotate is None else check_positive_int(rotate, "rotate"),
        sweep=Pool(backend),
    )
    if candidates and method not in ("auto", "fluid"):
        raise InvalidInput(f"candidates compete with the policies of the method fluid, not with {method}")
    check_sound(problem, task.welfare)
    with task.sweep:
        if draws is None and robust is None:
            return _told_of_place(task, _found(task, method))
        from evenhand.planning.uncertain import over_draws, read_asked  # it asks for plans in turn

        asked = read_asked(problem, posterior, draws, robust, as_seed(task.rng))
        return over_draws(_found(task, method), asked, task.sweep, task.progress)


def _found(task: Task, method: str) -> Solution:
    """The plan for the model itself."""
    _check_positive(task)
    return _told_of_rotation(task, _solve(task, method))


def _check_positive(task: Task) -> None:
    """Raise OutOfDomain if a member's best value is not positive, for alpha in (0, 1): the slope at 0 is infinite."""
    problem, welfare = task.problem, task.welfare
    if not isinstance(welfare, PowerMean) or not 0 < welfare.aversion < 1:
        return
    best = task.by_types.members(best_values(problem.types, problem.affordable, problem.criterion))
    least = int(np.argmin(np.where(np.isnan(best), np.inf, best)))
    size = float(np.abs(problem.types.rewards).max()) * problem.criterion.total
    if best[least] <= ROUNDING * size:
        names = list(problem.group_names) if problem.over == "groups" else type_names(problem)
        raise OutOfDomain(
            f"{welfare.name} needs positive values, and {names[least]} has at most {best[least] + 0.0:.6g}. "
            "Leave it out of the model, shift the rewards, or use a Gini welfare."
        )


def _solve(task: Task, method: str) -> Solution:
    if task.candidates:
        return METHODS["fluid"](replace(task, reason="candidates compete"))
    if method == "auto":
        chosen = _choose(task.problem)
        ready = replace(task, reason=chosen.reason, plan=chosen.plan, typed_plan=chosen.typed_plan)
        try:
            return METHODS[chosen.method](ready)
        except NotConverged as error:
            if chosen.method == "fluid":
                raise
            reason = f"{chosen.reason}, but {chosen.method} did not converge ({str(error).partition('. ')[0]})"
            return METHODS["fluid"](replace(task, reason=reason))
    if method not in METHODS:
        raise UnknownName("method", method, ["auto", *METHODS])
    return METHODS[method](task)


def _told_of_rotation(task: Task, solution: Solution) -> Solution:
    """Say so where rotation was asked for and there is nothing to rotate."""
    if task.rotate is None or solution.kept_welfare is not None:
        return solution
    return replace(solution, reason=f"{solution.reason}; nothing to rotate, for it is not a mixture of fluid policies")


def _check_place(
    backend: str | Pool | None, method: str, draws: bool, candidates: Mapping[str, Policy | Starting] | None
) -> None:
    """Refuse a place where nothing would run, and policies that cannot go there."""
    if backend is None:
        return
    if method in METHODS and method != "fluid" and not draws:
        raise InvalidInput(
            f"backend: the method {method} runs in this process; policies of the method fluid, draws of a fitted model "
            "and large opened models run elsewhere"
        )
    Pool(backend).check_picklable({f"the policy {name}": policy for name, policy in (candidates or {}).items()})


def _told_of_place(task: Task, solution: Solution) -> Solution:
    """Say so where a place was named and nothing had to run there."""
    if task.sweep.used or task.sweep.is_default:
        return solution
    return replace(solution, reason=f"{solution.reason}; nothing ran on {task.sweep.name}, for no policies were tried")


def _check_candidates(candidates: Mapping[str, Policy | Starting] | None) -> None:
    if candidates is not None and not isinstance(candidates, Mapping):
        raise InvalidInput(f"candidates: expected policies under names, as in {{'mine': policy}}, got {candidates!r}")
    for name, policy in (candidates or {}).items():
        if not isinstance(policy, (Policy, Starting)):
            raise InvalidInput(f"candidates: {name!r} is no policy, for it has no method act(states, rng): {policy!r}")


def _check_seconds(seconds: float | None) -> float | None:
    if seconds is not None and (not is_number(seconds) or not seconds > 0):
        raise InvalidInput(f"seconds: expected a positive number, got {seconds!r}")
    return seconds


# -- choosing a method -----------------------------------------------------------------------------------------------


class _Choice(NamedTuple):
    """The method that fits."""

    method: str
    reason: str
    plan: CountPlan | None = None
    typed_plan: TypedPlan | None = None


def choose_method(problem: CoupledMDP) -> tuple[str, str]:
    """The exact method that fits this problem and machine, else the fluid policies; and why."""
    return _choose(problem)[:2]


def optimal_policy(problem: Problem, welfare: str | Welfare | None, name: str) -> Policy | Starting:
    """Return the policy of the exact method that fits.

    Args:
        problem: the problem.
        welfare: welfare that is maximised.
        name: name for messages.

    Raises:
        TooLarge: no exact method fits.
    """
    known = needs_tables(problem, name)
    method, reason = choose_method(known)
    if method == "fluid":
        raise TooLarge(reason)
    return solve(known, welfare, method).policy


def _choose(problem: CoupledMDP) -> _Choice:
    # By sizes, and by plans that are not begun: nothing is built to choose.
    counts, joint = num_count_states(problem), num_joint_states(problem)
    steps = problem.criterion.num_steps or 1
    sizes = f"the count space has {size_in_words(counts)} states; the product space has {size_in_words(joint)} states"
    if steps > 1:
        sizes += f"; each for {steps} steps"
    # A finite horizon is one sweep a step, an endless one takes about SWEEPS of them.
    work = max(1.0, steps / SWEEPS)
    # Identical arms: one lattice for all of them, which reaches far more states than tables do.
    if problem.is_symmetric and not problem.has_floors:
        alike = f"all {problem.num_arms} arms are identical"
        try:
            plan, limit = _fitting_plan(lambda: exact.plan_lattice(problem))
            if plan is not None:
                return _Choice("counts", f"{alike}, and the count space has {size_in_words(counts)} states", plan)
            return _Choice("fluid", f"{alike}, but {sizes}: too many for an exact method ({limit})")
        except NotApplicable:  # the long run may depend on the start: tables can tell
            if work * counts > MOST_COUNT_STATES:
                raise
            return _Choice("counts", f"{alike}, and {sizes}")
    kinds = f"the arms are of {problem.num_types} types" if problem.num_types > 1 else "the arms have a floor"
    # Several types: by counts, unless the arms are so few that their product space is smaller still.
    limit = "counts: no fewer states than joint"
    if counts <= joint:
        typed, limit = _fitting_types(problem, counts)
        if typed is not None:
            return _Choice("counts", f"{kinds}, and {sizes}", typed_plan=typed)
    refused = Joint.accepts(problem)
    if work * joint <= MOST_JOINT_STATES and refused is None:
        return _Choice("joint", f"{kinds}, and the product space has {size_in_words(joint)} states")
    steps_told = "" if work == 1 else f", each counted {work:.3g} times for {steps} steps"
    told = (
        f"joint: {refused}"
        if refused
        else f"joint: {size_in_words(joint)} states{steps_told}, above {MOST_JOINT_STATES}{_lifted('joint')}"
    )
    return _Choice("fluid", f"{kinds}, and {sizes}: too many for an exact method in reasonable time ({limit}; {told})")


def _lifted(method: str) -> str:
    """What to do about a limit that is of `auto` alone."""
    return f", a limit that method '{method}' lifts"


Plan = TypeVar("Plan", CountPlan, TypedPlan)


def _fitting_plan(make: Callable[[], Plan]) -> tuple[Plan | None, str]:
    """A dynamic program, if it fits in memory and in reasonable time; else the limit that it exceeds."""
    try:
        plan = make()
    except TooLarge as error:
        return None, f"counts: {str(error).partition('. ')[0]}"
    # Half of the memory: the tables are not all that a run needs.
    if not fits_in_memory(plan.size_in_bytes, 0.5):
        need, free = human_bytes(plan.size_in_bytes), human_bytes(available_memory())
        lifted = _lifted("counts") if fits_in_memory(plan.size_in_bytes) else ""
        return None, f"counts: {need} of memory, above half of the {free} that are free{lifted}"
    if plan.operations >= MOST_OPERATIONS:
        lifted = _lifted("counts") if plan.operations <= REFUSED else ""
        return None, f"counts: {plan.operations:.1g} operations, above {MOST_OPERATIONS:.1g}{lifted}"
    return plan, ""


def _fitting_types(problem: CoupledMDP, states: float) -> tuple[TypedPlan | None, str]:
    """The dynamic program on the counts of several types, likewise."""
    if not fits_in_memory(200.0 * states, 1.0):  # not even worth a plan
        need, free = human_bytes(200.0 * states), human_bytes(available_memory())
        return None, f"counts: {need} of memory at least, above the {free} that are free"
    return _fitting_plan(lambda: plan_types(problem))
