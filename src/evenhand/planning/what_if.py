"""What if there was more, or less: one problem under several budgets, and what each step is worth.

A larger budget never gives a worse plan: whatever keeps the smaller budget keeps the larger one too, and is worth the
same there. Exact methods find that by themselves. Plans that are found by playing are looked for anew under each
budget, so the plans of all smaller ones, and those that are known beforehand, such as the plan in use,

    compete       as candidates of `solve`; a known plan of a larger budget is resized for that
    are kept      with the figures they have, where the new plan still comes out lower, if only by chance

What no plan exceeds under a budget, none exceeds under a smaller one: bounds never fall as budgets rise, either.

The budgets are solved from the smaller to the larger, on the same random numbers, and told in the order in which they
came. A step is the welfare less that of the largest budget in a row above that is nowhere larger (of several, neither
of which holds the other, the nearest row); without such a row there is no step, for more of one thing and less of
another is no step. Where the plans are estimated, their errors add up as if they were independent, which overstates
the error of a step.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.checks import as_seed
from evenhand.display import heard, in_turn, shows_bar
from evenhand.errors import InvalidInput, NotApplicable
from evenhand.evaluation.evaluate import Evaluation, Method, evaluate
from evenhand.model.base_policy import described
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.objective import Objective
from evenhand.model.policy import Policy, Starting
from evenhand.model.simulator import needs_tables
from evenhand.model.welfare import Welfare, is_lexicographic
from evenhand.planning.compare import Comparison, compare
from evenhand.planning.mixed import AS_GOOD
from evenhand.planning.plan import Plan, plan_of
from evenhand.planning.solution import Solution
from evenhand.planning.solve import DEFAULT_TOLERANCE, choose_method, solve
from evenhand.typing import Floats, Progress, Rng

Budget = float | Sequence[float] | Floats | Mapping[str, float]
"""What `CoupledMDP.with_budget` takes."""

DOUBT = 3.0
"""Standard errors by which the worst-off must be worse off for a plan for leximin to be given up: its levels are held
within errors only, for the sake of those after them."""


@dataclass(frozen=True, eq=False)
class Step:
    """What the change from a smaller budget in a row above, or from a known plan, is worth."""

    welfare: float
    """The difference in welfare."""

    stderr: float
    """Its standard error; 0 where both are exact, or the plan is the same."""

    since: dict[str, float]
    """The budget that it is measured from: the amount of each resource, under its name."""

    measurable: bool
    """Whether the difference is larger than its standard error, and than rounding."""


@dataclass(frozen=True, eq=False)
class BudgetRow:
    """The best plan for one budget."""

    budget: dict[str, float]
    """The amount of each resource, under its name."""

    solution: Solution
    """The plan, with its bound."""

    step: Step | None
    """What the change from a smaller budget above is worth; None where no row above has one."""

    kept_from: dict[str, float] | None = None
    """The budget of the known plan, or of the row with a smaller budget, whose plan this is; None for a new plan."""

    beside: tuple[Step, ...] = ()
    """The change from each of the known plans, in their order."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        own = {"budget": self.budget, **_step_dict(self.step), "kept_from": self.kept_from}
        return own | self.solution.to_dict() | {"policy": None}


@dataclass(frozen=True, eq=False)
class BudgetComparison:
    """Policies side by side under one budget."""

    budget: dict[str, float]
    """The amount of each resource, under its name."""

    comparison: Comparison
    """All of them."""

    best: str
    """The name of the best; with the budget that it was made for, where that is a smaller one."""

    evaluation: Evaluation
    """What the best is worth."""

    step: Step | None
    """What the change from a smaller budget above is worth to the best; None where no row above has one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = self.evaluation
        best = {"policy": self.best, "welfare": found.welfare, "welfare_stderr": found.welfare_stderr}
        return {"budget": self.budget, "best": best, **_step_dict(self.step), **self.comparison.to_dict()}


def _step_dict(step: Step | None) -> dict[str, Any]:
    names = {"step": "welfare", "step_stderr": "stderr", "step_from": "since", "step_measurable": "measurable"}
    return {key: None if step is None else getattr(step, name) for key, name in names.items()}


@shows_bar
def what_if(
    problem: CoupledMDP,
    budgets: Sequence[Budget],
    welfare: str | Welfare | None = None,
    method: str = "auto",
    tolerance: float = DEFAULT_TOLERANCE,
    progress: Progress | bool | None = None,
    rng: Rng = 0,
    criterion: str | Criterion | None = None,
    over: str | None = None,
    seconds: float | None = None,
    rotate: int | None = None,
    plans: Sequence[Solution | Plan] = (),
) -> tuple[BudgetRow, ...]:
    """Solve a problem under several budgets. A larger one never gives a worse plan.

    Args:
        problem: the problem; its own budget is used only where a budget names some resources and not all.
        budgets: each one number a resource, or amounts under the names of resources; see `CoupledMDP.with_budget`.
        welfare: what to maximise, as text or object; the problem's own when absent.
        method: see `solve`.
        tolerance: see `solve`.
        progress: True shows a bar; a function is called now and then with what is being done and the share done.
        rng: seed or generator of the simulations that some methods need; every budget gets the same.
        criterion: what rewards over time are worth; the problem's own when absent.
        over: welfare over `arms` or `groups`; as the problem says when absent.
        seconds: how long the method fluid may take, for each budget.
        rotate: see `solve`.
        plans: plans that are known already, such as the one in use, from `solve` or `load_plan`. Each competes under
            every budget, and no budget that contains its own gets a worse one.

    Returns:
        One row a budget, in the order in which they came.

    Raises:
        NotApplicable: a known plan was made for other arms.
        InvalidInput: a known plan misses the floors of the problem.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> for row in eh.what_if(problem, [[0], [1], [2]]):
        ...     print(row.budget, round(row.solution.welfare, 3))
        {'resource 0': 0.0} 2.774
        {'resource 0': 1.0} 14.079
        {'resource 0': 2.0} 14.252
    """
    seed = as_seed(rng)
    judged = needs_tables(problem, "what_if").under(criterion, over)
    # Every budget is read before any is solved, so that a fault in the last one costs nothing.
    problems = [judged.with_budget(budget) for budget in _several(budgets)]
    order = _smaller_first(problems)
    known = [_figured(plan, judged, welfare, seed) for plan in plans]
    found: dict[int, Solution] = {}
    made_for: dict[int, CoupledMDP | None] = {}
    # From the smaller to the larger: whatever is found for one may be played under all that contain it.
    for turn, number in enumerate(order):
        budgeted = problems[number]
        tell = in_turn(heard(progress), f"budget {budget_in_words(budgeted)}", turn, len(order))
        # A plan that is handed on from row to row is told by the budget that it was first found for.
        earlier = [(made_for[i] or problems[i], found[i]) for i in order[:turn]]
        rivals = [(own, one) for own, one in [*((one.problem, one) for one in known), *earlier] if _fits(own, budgeted)]
        # Exact methods find the best by themselves, and take no candidates.
        by_playing = method == "fluid" or (method == "auto" and choose_method(budgeted)[0] == "fluid")
        tried = _candidates(rivals, known, budgeted) if by_playing else None
        own = solve(budgeted, welfare, method, tolerance, tell, seed, tried, seconds=seconds, rotate=rotate)
        found[number], made_for[number] = _no_worse(own, rivals, _tightest_bound(budgeted, [own, *known]))
    bounds = {i: _tightest_bound(problems[i], [*found.values(), *known]) for i in order}
    rows: list[BudgetRow] = []
    for number, budgeted in enumerate(problems):
        solution = replace(found[number], upper_bound=bounds[number])
        smaller = made_for[number]
        step, beside = _step_to(problems, number, found), tuple(_step(one, solution, one.problem) for one in known)
        rows.append(
            BudgetRow(budgeted.named_budget, solution, step, None if smaller is None else smaller.named_budget, beside)
        )
    return tuple(rows)


@shows_bar
def compare_budgets(
    problem: CoupledMDP,
    budgets: Sequence[Budget],
    policies: Sequence[str] | Mapping[str, Policy | Starting | str] | None = None,
    welfare: str | Welfare | None = None,
    num_episodes: int = 1000,
    horizon: int | None = None,
    rng: Rng = 0,
    method: Method = "auto",
    progress: Progress | bool | None = None,
    criterion: str | Criterion | None = None,
    over: str | None = None,
) -> tuple[BudgetComparison, ...]:
    """Compare policies under several budgets, all in the same world.

    Named policies are made anew for each budget, and one may well do worse with a larger one. The best never does: what
    was best under a smaller budget can be kept.

    Args:
        problem: the problem.
        budgets: see `what_if`.
        policies: see `compare`.
        welfare: how values are weighed, as text or object; the problem's own when absent.
        num_episodes: episodes to play where a policy must be simulated.
        horizon: steps an episode; when absent, the criterion's own.
        rng: seed or generator, every policy gets the same; 0 when absent, so that the same call gives the same numbers.
            None for others each time.
        method: see `evaluate`.
        progress: True shows a bar; a function is called now and then with what is being done and the share done.
        criterion: what rewards over time are worth; the problem's own when absent.
        over: welfare over `arms` or `groups`; as the problem says when absent.

    Returns:
        One row a budget, in the order in which they came.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> for row in eh.compare_budgets(problem, [[1], [2]], ["whittle", "random"], rng=0):
        ...     print(row.comparison)
        Comparison(2 policies by gini:2, best 'whittle' with 14.0793; optimum 14.0793)
        Comparison(2 policies by gini:2, best 'whittle' with 14.2522; optimum 14.2522)
    """
    seed = as_seed(rng)
    judged = needs_tables(problem, "compare_budgets").under(criterion, over)
    problems = [judged.with_budget(budget) for budget in _several(budgets)]
    order = _smaller_first(problems)
    found: dict[int, Comparison] = {}
    best: dict[int, tuple[str, Evaluation]] = {}
    for turn, number in enumerate(order):
        tell = in_turn(heard(progress), f"budget {budget_in_words(problems[number])}", turn, len(order))
        found[number] = compare(problems[number], policies, welfare, num_episodes, horizon, seed, method, tell)
        # Rows are sorted: the first is the best of this budget.
        first = found[number].rows[0]
        best[number] = first.policy, first.evaluation
        for i in order[:turn]:
            # Strictly better, so that a budget's own policy is preferred to an equal one of a smaller budget.
            if _fits(problems[i], problems[number]) and best[i][1].welfare > best[number][1].welfare:
                made = "" if " made for " in best[i][0] else f" made for {budget_in_words(problems[i])}"
                best[number] = best[i][0] + made, best[i][1]
    worth = {number: evaluation for number, (_, evaluation) in best.items()}
    return tuple(
        BudgetComparison(budgeted.named_budget, found[number], *best[number], _step_to(problems, number, worth))
        for number, budgeted in enumerate(problems)
    )


def budget_in_words(problem: CoupledMDP) -> str:
    """`4,4`: as it is typed."""
    return ",".join(f"{amount:.10g}" for amount in problem.budget)


def _several(budgets: Sequence[Budget]) -> Sequence[Budget]:
    if isinstance(budgets, (str, Mapping)) or not isinstance(budgets, (Sequence, np.ndarray)) or not len(budgets):
        raise InvalidInput(f"budgets: expected a list of budgets, as in [[3, 5], [4, 5]], got {budgets!r}")
    return budgets


def _smaller_first(problems: Sequence[CoupledMDP]) -> list[int]:
    """An order in which no budget comes before one that it contains."""
    # By sum: what a budget contains has no larger sum, and among equals the earlier comes first.
    return sorted(range(len(problems)), key=lambda i: (float(problems[i].budget.sum()), i))


def _fits(smaller: CoupledMDP, larger: CoupledMDP) -> bool:
    """Whether what keeps one budget keeps the other."""
    return bool((smaller.budget <= larger.budget).all())


def _within(smaller: CoupledMDP, larger: CoupledMDP) -> bool:
    """Whether a budget is smaller than another somewhere, and nowhere larger."""
    return _fits(smaller, larger) and not _fits(larger, smaller)


def _figured(plan: Solution | Plan, problem: CoupledMDP, welfare: str | Welfare | None, seed: int) -> Solution:
    """A known plan as a solution for its own budget, under the criterion and welfare in question.

    Args:
        plan: from `solve` or `load_plan`.
        problem: the problem in question, under any budget.
        welfare: the welfare in question.
        seed: of the evaluation that is necessary if the plan was judged by something else.

    Raises:
        InvalidInput: the plan misses the floors of the problem.
    """
    made = plan_of(plan) if isinstance(plan, Solution) else plan
    own = problem.with_budget(made.problem.budget)
    policy = made.policy if made.problem.signature == own.signature else made.fitted(own)
    objective, about = Objective.of_types(own, welfare), made.about
    if policy is made.policy and about.get("values") is not None and _is_judged_by(made, objective, own):
        by_type, values = about["by"] == "type", np.asarray(about["values"])
        figures = about["value"], about["upper_bound"], about["stderr"]
    else:
        played = evaluate(policy, own, welfare, rng=seed)
        if played.floors_missed:
            raise InvalidInput(f"plans: the plan for {budget_in_words(own)} misses the floors of the problem")
        by_type, values = played.by_type, played.unit_values
        figures = played.welfare, np.inf, played.welfare_stderr
    return Solution(
        method=str(about.get("method", "")),
        reason="known beforehand",
        objective=objective if by_type else Objective.of_arms(own, welfare),
        welfare=figures[0],
        upper_bound=figures[1],
        unit_values=values,
        by_type=by_type,
        policy=policy,
        problem=own,
        seconds={},
        welfare_stderr=figures[2],
    )


def _is_judged_by(plan: Plan, objective: Objective, problem: CoupledMDP) -> bool:
    """Whether the figures of a plan are those of an objective: criterion, welfare, members and floors."""
    asked = {"welfare": objective.welfare.name, "criterion": problem.criterion.name, "over": problem.over}
    return (
        asked.items() <= plan.about.items()
        and (problem.over != "groups" or np.array_equal(plan.problem.group_of_type, problem.group_of_type))
        and np.array_equal(plan.problem.floors, problem.floors)
    )


Rival = tuple[CoupledMDP, Solution]
"""A plan, and the problem with the budget that it was made for."""


def _candidates(
    rivals: Sequence[Rival], known: Sequence[Solution], problem: CoupledMDP
) -> dict[str, Policy | Starting]:
    """Policies that compete in the search under a budget; known plans of other budgets are resized if they can be."""
    found = {f"plan for {budget_in_words(own)}": solution.policy for own, solution in rivals}
    kinds = range(problem.num_types)
    for plan in known:
        if not _fits(plan.problem, problem):
            with contextlib.suppress(NotApplicable):  # a table for its own budget alone
                found[f"plan for {budget_in_words(plan.problem)}"] = described(plan.policy).resized(problem, kinds)
    return found


def _no_worse(own: Solution, rivals: Sequence[Rival], bound: float) -> tuple[Solution, CoupledMDP | None]:
    """The own plan, or a rival if it is the same or came out better; and the problem that the rival was made for."""
    proved = bound - AS_GOOD * abs(bound)
    # A solution of one part may be a candidate under its name: then it is that plan, and keeps the figures that it has.
    names = {f"plan for {budget_in_words(made_for)}": (made_for, other) for made_for, other in rivals}
    at, best = names.get(own.parts[0].name, (None, own)) if len(own.parts) == 1 else (None, own)
    for made_for, other in rivals:
        doubt = DOUBT * float(np.hypot(best.welfare_stderr, other.welfare_stderr))
        # Leximin holds its worst level within errors only; every other welfare is compared as a number.
        better = other.welfare > best.welfare + (doubt if is_lexicographic(own.objective.welfare) else 0.0)
        # More than the bound is there only by chance: a plan that is proved to reach the bound is no worse.
        if better or (best.welfare > bound and best.welfare_stderr > other.welfare_stderr and other.welfare >= proved):
            at, best = made_for, other
    if at is None:
        return own, None
    kept = f"{own.reason}; the plan for {budget_in_words(at)} is kept, for no better one was found"
    return replace(best, problem=own.problem, upper_bound=own.upper_bound, seconds=own.seconds, reason=kept), at


def _tightest_bound(problem: CoupledMDP, found: Sequence[Solution]) -> float:
    """The least of the bounds under budgets that contain a problem's own."""
    return min(one.upper_bound for one in found if _fits(problem, one.problem))


def _step_to(
    problems: Sequence[CoupledMDP], number: int, found: Mapping[int, Solution] | Mapping[int, Evaluation]
) -> Step | None:
    """What a row's budget adds to the largest in a row above that is nowhere larger; None where there is none."""
    since: int | None = None
    for row in range(number):
        # The largest below: a later row replaces an earlier one unless it is contained in it.
        if _fits(problems[row], problems[number]) and (since is None or not _within(problems[row], problems[since])):
            since = row
    if since is None:
        return None
    return _step(found[since], found[number], problems[since])


def _step(before: Solution | Evaluation, after: Solution | Evaluation, since: CoupledMDP) -> Step:
    """The change from one plan to another; of one plan, or two that do the same in the same world, exactly 0."""
    same = np.array_equal(before.unit_values, after.unit_values)
    error = 0.0 if same else float(np.hypot(before.welfare_stderr, after.welfare_stderr))
    difference = after.welfare - before.welfare
    measurable = abs(difference) > max(error, AS_GOOD * abs(after.welfare))
    return Step(difference, error, since.named_budget, measurable)
