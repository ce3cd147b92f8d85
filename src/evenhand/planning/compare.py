"""Evaluation of one policy by name, and comparison of several on common random numbers with the best known bound."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from evenhand import evaluation
from evenhand.checks import as_seed
from evenhand.display import FrameLibrary, Shown, as_frame, counted, from_report, progress_or_none, with_progress_bar
from evenhand.errors import EvenhandError, Fault, InvalidInputError, NotApplicableError, OutOfDomainError, TooLargeError
from evenhand.evaluation.evaluate import Evaluation, Method
from evenhand.model import CoupledMDP, Criterion, Policy, StatefulPolicy, Welfare, read_welfare
from evenhand.model.io import Location
from evenhand.model.parquet import StoredArms
from evenhand.model.simulator import Problem, check_problem, needs_tables
from evenhand.parallel import Pool
from evenhand.planning.policy_registry import Chosen, NamedPolicy, Several, make_policy, read_policies
from evenhand.planning.promises import share_broken
from evenhand.planning.relaxation import bound, tightest
from evenhand.planning.solution import check_bound
from evenhand.planning.solve import solve
from evenhand.planning.task import FAILURES, SolveMethod, current_effort
from evenhand.policies.deadlines import Deadlines, keep_promises, without_promises
from evenhand.solvers.counts.reduction import num_count_states
from evenhand.solvers.joint import num_joint_states
from evenhand.typing import Progress, Rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evenhand.planning.budget_sweep import Budget, BudgetComparison, BudgetSweep

OPTIMAL = 1e-5
"""The relative gap up to which a bound counts as the optimum."""

NO_BOUND = "upper bound"
"""Key of `left_out` with the reason for a missing bound."""

MAKING, BOUNDING = 0.05, 0.15
"""Shares of the work after which policies are made, and a bound is found; the rest is to play them."""


# -- one policy ------------------------------------------------------------------------------------------------------


def evaluate(
    problem: Problem | StoredArms,
    policy: "Chosen",
    welfare: str | Welfare | None = None,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = 0,
    method: Method = "auto",
    progress: Progress | bool | None = None,
    *,
    criterion: str | Criterion | None = None,
    over: Any = None,
    backend: str | Pool | None = None,
) -> Evaluation:
    """Evaluate a policy by name, file or object; the docstring is that of `evaluation.evaluate`."""
    if isinstance(problem, StoredArms):
        model = problem.with_criterion(criterion, over)
        if model.is_large:
            from evenhand.planning.stored_models import evaluate_stored

            report = progress if callable(progress) else None
            return evaluate_stored(model, policy, welfare, num_episodes, horizon, rng, report, backend)
        problem = model.problem()
    if backend is not None:
        raise InvalidInputError("backend: for large opened models; one policy in memory is evaluated in this process")
    check_problem(problem, "evaluate(problem, policy)")
    # Named policies are made for the criterion of the evaluation.
    evaluated = problem.with_criterion(criterion, over)
    actor = make_policy(evaluated, policy, welfare)
    found = evaluation.evaluate(evaluated, actor, welfare, num_episodes, horizon, rng, method, progress)
    return _with_promises(evaluated, actor, found)


def _with_promises(problem: Problem, policy: Policy | StatefulPolicy, found: Evaluation) -> Evaluation:
    """Return an evaluation with the share of broken promises, if the problem has some."""
    if not isinstance(problem, CoupledMDP) or not problem.has_max_wait:
        return found
    return replace(found, broken_promises=share_broken(problem, policy, 0, 4e6))


evaluate.__doc__ = evaluation.evaluate.__doc__

# -- what a comparison is --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row(Shown):
    """One policy's figures."""

    policy: str
    """Its name."""

    evaluation: Evaluation
    """Its evaluation."""

    def __repr__(self) -> str:
        return f"Row({self.policy!r}, welfare {self.evaluation.welfare_words})"


@dataclass(frozen=True)
class Comparison(Shown):
    """Policies side by side, best first."""

    welfare: Welfare
    """The welfare."""

    rows: tuple[Row, ...]
    """By welfare, best first."""

    left_out: dict[str, str]
    """Policies that do not apply, with the reason; under `upper bound` why there is none, if that is so."""

    upper_bound: float | None
    """No policy has more welfare than this; None if no bound is known."""

    bound_name: str
    """Kind of bound, such as "optimum"."""

    problem: Problem = field(repr=False)
    """The problem, with the requested criterion and members."""

    policies: dict[str, Policy | StatefulPolicy] = field(default_factory=dict, repr=False)
    """The policies by name, in the order of the rows."""

    @property
    def no_bound(self) -> str:
        """Reason for a missing upper bound; empty if there is one."""
        return self.left_out.get(NO_BOUND, "")

    @property
    def policies_left_out(self) -> dict[str, str]:
        """Policies that do not apply, with the reason."""
        return {name: reason for name, reason in self.left_out.items() if name != NO_BOUND}

    def is_above_bound(self, row: Row) -> bool:
        """Return whether a policy was estimated above the upper bound, which is due to chance."""
        found = row.evaluation
        return self.upper_bound is not None and not found.exact and found.welfare > self.upper_bound

    def shown_welfare(self, row: Row) -> float:
        """Return the welfare to show: an estimate above the bound is at the bound."""
        bound, found = self.upper_bound, row.evaluation.welfare
        return found if bound is None or not self.is_above_bound(row) else bound

    def as_shown(self) -> "Comparison":
        """Return the comparison to show: estimates above the bound are at the bound."""
        shown = [replace(row.evaluation, welfare=self.shown_welfare(row)) for row in self.rows]
        rows = [Row(row.policy, found) for row, found in zip(self.rows, shown, strict=True)]
        return replace(self, rows=tuple(rows))

    def __repr__(self) -> str:
        bound = "" if self.upper_bound is None else f"; {self.bound_name or 'bound'} {self.upper_bound:.6g}"
        best = f", best {self.rows[0].policy!r} with {self.rows[0].evaluation.welfare_words}" if self.rows else ""
        return f"Comparison({counted(len(self.rows), 'policy', 'policies')} by {self.welfare.name}{best}{bound})"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per policy, best first: welfare, mean, worst, with their errors, and how they were measured.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        found = [row.evaluation for row in self.rows]
        columns: dict[str, list[Any]] = {"policy": [row.policy for row in self.rows]}
        for name in ("welfare", "welfare_stderr", "mean", "mean_stderr", "worst", "gini_coefficient"):
            columns[name] = [getattr(each, name) for each in found]
        for number, name in enumerate(self.problem.resource_names):
            column = "budget_used" if self.problem.num_resources == 1 else f"used: {name}"
            columns[column] = [float(each.budget_used[number]) for each in found]
        columns["upper_bound"] = [math.nan if self.upper_bound is None else self.upper_bound] * len(found)
        for name in ("exact", "num_episodes", "horizon", "seconds"):
            columns[name] = [getattr(each, name) for each in found]
        return as_frame(columns, library)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "welfare": self.welfare.name,
            "criterion": self.problem.criterion.name,
            "over": self.problem.over,
            "budget": self.problem.named_budget,
            "upper_bound": self.upper_bound,
            "bound": self.bound_name or None,
            "rows": [
                {"policy": row.policy, **row.evaluation.figures(), "above_bound": self.is_above_bound(row)}
                for row in self.rows
            ],
            "left_out": self.left_out,
        }

    def plot(self, kind: Literal["welfare", "spread", "lorenz"] = "welfare") -> "Figure":
        """Return a figure of the report.

        Args:
            kind: `welfare` (bars with 95 % error bars, under the bound), `spread` (the values of the arms under each
                policy) or `lorenz` (how evenly values are shared, by the best, the most equal and the most unequal
                policy).
        """
        figure: Figure = from_report("plots", "comparison_figure")(self, kind)
        return figure

    def report(self, path: Location, title: str | None = None, seed: int | None = None) -> None:
        """Write the report: one HTML page with its tables and figures, that needs nothing else.

        Args:
            path: the HTML file; one that is there is replaced.
            title: heading; generated by default.
            seed: random seed, stated on the page.
        """
        from_report("html", "write_page")(from_report("comparison", "comparison_report")(self, title, seed), path)


# -- comparing -------------------------------------------------------------------------------------------------------


class EvaluateOptions(TypedDict, total=False):
    """Options that `compare` passes to `evaluate`."""

    num_episodes: int
    """Episodes to play if a policy must be simulated; 1000 by default."""

    horizon: int | None
    """Steps per episode; by default the criterion's own."""

    rng: Rng
    """Seed or generator, the same for every policy; 0 by default, None for other numbers each time."""

    method: Method
    """`auto`, `exact` or `monte-carlo`."""


@with_progress_bar
def compare(
    problem: Problem,
    policies: "Several | None" = None,
    welfare: str | Welfare | None = None,
    *,
    criterion: str | Criterion | None = None,
    over: str | None = None,
    budgets: "Sequence[Budget] | None" = None,
    progress: Progress | bool | None = None,
    backend: str | Pool | None = None,
    **options: Unpack[EvaluateOptions],
) -> "Comparison | BudgetSweep[BudgetComparison]":
    """Evaluate policies on one problem, all on the same random numbers.

    Args:
        problem: the problem, or a simulator.
        policies: names from the registry, files of saved policies and policies themselves, one or several, or under
            names of one's own; by default all that apply. A name that does not apply is left out, with the reason,
            unless none of them does.
        welfare: the welfare, as text or object; by default the problem's own.
        criterion: criterion, as text or object; by default the problem's own. Named policies
            and the bound are made for it.
        over: welfare over `arms` or `groups`; by default the problem's own.
        budgets: several budgets, each as of `CoupledMDP.with_budget`, to compare under each; the best policy is never
            worse under a larger one. By default the problem's own budget.
        progress: True shows a bar; a function is called with the current task and the share done.
        backend: where policies are simulated: `threads:2`, `processes:2`, `ray`, `ray://host:port`, or a
            pool; by default this process, one after the other. Results do not depend on it.
        options: `num_episodes`, `horizon`, `rng` and `method` of `evaluate`. Every policy gets the same random numbers.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=3)
        >>> mine = eh.policies.worst_first(machines, ties="first")
        >>> found = eh.compare(machines, ["whittle", "never-act", mine], num_episodes=100, rng=0)
        >>> [row.policy for row in found.rows]
        ['whittle', 'PriorityPolicy', 'never-act']
    """
    check_problem(problem, "compare(problem, policies)")
    evaluated = problem.with_criterion(criterion, over)
    evaluated.criterion.simulated_steps(options.get("horizon"))  # an invalid horizon is refused before any work
    weighed_by = read_welfare(evaluated, welfare)
    report = progress_or_none(progress)
    options["rng"] = as_seed(options.get("rng", 0))
    if budgets is not None:
        from evenhand.planning.budget_sweep import compare_budgets  # it imports this module

        arguments = {"policies": policies, "welfare": weighed_by, "backend": backend, **options}
        return compare_budgets(needs_tables(evaluated, "several budgets"), budgets, arguments, report)
    chosen, left_out = _build(evaluated, weighed_by, policies, _share_of(report, 0.0, MAKING))
    most, bound_name, best = best_bound(evaluated, weighed_by, left_out, _share_of(report, MAKING, BOUNDING))
    # The bound computation found it already.
    if best is not None and policies is None:
        chosen = {"optimal": best, **chosen}
    # Policies of one's own were made for the problem as it was given.
    arguments = {"welfare": weighed_by, **options}
    with Pool(backend) as pool:
        pool.check_picklable({"the problem": evaluated, **{f"the policy {name}": one for name, one in chosen.items()}})
        cells = [(evaluated, policy, arguments) for policy in chosen.values()]
        evaluations = pool.map(evaluate_one, cells, list(chosen), _share_of(report, BOUNDING, 1.0))
    found = dict(zip(chosen, evaluations, strict=True))
    refused = {name: error for name, error in found.items() if isinstance(error, EvenhandError)}
    rows = [Row(name, evaluation) for name, evaluation in found.items() if isinstance(evaluation, Evaluation)]
    if not rows:
        raise none_applies(refused)
    _check_bound(rows, most)
    ranked = _best_first(rows, most)
    left_out |= {name: str(error) for name, error in refused.items()}
    named = {row.policy: chosen[row.policy] for row in ranked}
    return Comparison(weighed_by, ranked, left_out, most, bound_name, evaluated, named)


def evaluate_one(
    cell: tuple[Problem, Policy | StatefulPolicy, dict[str, Any]], tell: Progress | None = None
) -> Evaluation | EvenhandError:
    """The evaluation of one policy, or the error that prevents it."""
    problem, policy, arguments = cell
    try:
        return _with_promises(problem, policy, evaluation.evaluate(problem, policy, progress=tell, **arguments))
    except FAILURES as error:
        return error


def _check_bound(rows: Sequence[Row], bound: float | None) -> None:
    """Raise ContradictionError if a policy has more than no policy has, by more than chance explains."""
    for found in (row.evaluation for row in rows):
        # What lies beyond the horizon may be lost.
        least = found.unit_values - (found.truncation_bound or 0.0)
        with contextlib.suppress(OutOfDomainError):
            if bound is not None and isinstance(found.problem, CoupledMDP):
                welfare = found.welfare if found.truncation_bound in (None, 0.0) else found.objective(least)
                check_bound(found.problem, welfare, found.welfare_stderr, found.num_episodes, bound)


def _best_first(rows: Sequence[Row], bound: float | None) -> tuple[Row, ...]:
    """By welfare, of equals the first first; an estimate above the bound comes after who is proved to be there."""
    exact = [row.evaluation.welfare for row in rows if row.evaluation.exact]
    # The optimum is proved by a policy: then that is the mark, and not a bound a little above it.
    if bound is not None and exact and max(exact) >= bound - OPTIMAL * abs(bound):
        bound = max(exact)

    def place(row: Row) -> tuple[float, bool]:
        found = row.evaluation
        above = bound is not None and not found.exact and found.welfare > bound
        # Nine digits: an order must not hang on the last bit. Of equals, who is proved comes first.
        return -float(f"{bound if above else found.welfare:.9g}"), above

    return tuple(sorted(rows, key=place))


def none_applies(refused: Mapping[str, EvenhandError]) -> EvenhandError:
    """Return the error if no policy applies: the one reason, or all of them."""
    first = next(iter(refused.values()))
    if all(isinstance(error, TooLargeError) or str(error) == str(first) for error in refused.values()):
        return first
    faults = tuple(Fault(name, str(error)) for name, error in refused.items())
    found = NotApplicableError("\n".join(["none of these policies applies", *(f"  {fault}" for fault in faults)]))
    found.faults = faults
    return found


# -- what no policy exceeds ------------------------------------------------------------------------------------------


def best_bound(
    given: Problem, welfare: Welfare, left_out: dict[str, str], progress: Progress | None
) -> tuple[float | None, str, Policy | StatefulPolicy | None]:
    """The best bound at hand and its name; also the optimal policy where it was quick to find."""
    if progress is not None:
        progress("upper bound", 0.0)
    try:
        problem = needs_tables(given, "a bound")
        # The sizes of the tables, before any of them is built.
        small = min(num_count_states(problem), num_joint_states(problem)) <= current_effort().optimum_states
        if problem.has_max_wait and not Deadlines(problem).is_sure:
            return tightest(without_promises(problem), welfare).upper_bound, "fluid bound without promises", None
        if small:
            best = solve(problem, welfare, SolveMethod(tolerance=1e-6), progress=progress)
            # It may have chosen fluid all the same: then its bound is one of the relaxation, and those are found below.
            if best.method != "fluid":
                return best.upper_bound, "optimum" if best.gap <= OPTIMAL else "upper bound", best.policy
        if progress is not None:
            progress("upper bound: fluid relaxation", 0.5)
        return (bound if problem.has_max_wait else tightest)(problem, welfare).upper_bound, "fluid bound", None
    except FAILURES as error:
        left_out[NO_BOUND] = str(error)
        return None, "", None


def _share_of(progress: Progress | None, begin: float, end: float) -> Progress | None:
    """Progress of a part of the work, as a share of the whole."""
    if progress is None:
        return None
    return lambda what, share: progress(what, begin + (end - begin) * share)


def _build(
    problem: Problem, welfare: Welfare, policies: "Several | None", progress: Progress | None
) -> tuple[dict[str, Policy | StatefulPolicy], dict[str, str]]:
    """Return the policies by name, and those that do not apply; the optimal one only by request."""
    chosen: dict[str, Policy | StatefulPolicy] = {}
    refused: dict[str, EvenhandError] = {}
    wanted = read_policies(policies, problem)
    for number, (name, policy) in enumerate(wanted.items()):
        # Files were read, and policies are policies: only names are to be made.
        if not isinstance(policy, NamedPolicy):
            chosen[name] = keep_promises(problem, policy)
            continue
        if progress is not None:
            progress(f"making {name}", number / len(wanted))
        try:
            chosen[name] = policy.build(problem, welfare)
        except FAILURES as error:
            refused[name] = error
    if refused and not chosen:
        raise none_applies(refused)
    return chosen, {name: str(error) for name, error in refused.items()}
