"""One problem under several budgets, and the gain of each step.

A larger budget never gives a worse plan: a plan that satisfies the smaller budget satisfies the larger one too, with
the same value. Exact methods find that by themselves. Plans that are found by simulation are searched anew under each
budget, so the plans of all smaller ones, and existing plans such as the one in use,

    compete        as candidates of `solve`, as they are, and an existing plan also resized to the budget
    are reused     with the figures they have, if the new plan comes out lower, if only by chance

An upper bound under a budget is one under every smaller budget: bounds never fall as budgets rise, either.

Budgets are solved from the smaller to the larger, and reported in the given order. A step is the welfare less that of
the largest budget in a row above that is nowhere larger (of several, neither of which contains the other, the nearest
row); without such a row the step is None. Plans that are found by simulation are all evaluated on the same episodes
(`CommonEpisodes`), which depend on the seed alone: the error of a step is that of paired differences, and separate
sweeps with one seed agree on the figures of a plan.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np

from evenhand.display import Shown, counted, task_progress
from evenhand.errors import InvalidInputError, NotApplicableError, NotConvergedError, OutOfDomainError
from evenhand.evaluation.evaluate import Evaluation, evaluate, treats_alike
from evenhand.evaluation.long_run import mean_by_type
from evenhand.model import CoupledMDP, Objective, Welfare, read_welfare
from evenhand.model.composite import components_for_good
from evenhand.model.criterion import JUDGED
from evenhand.model.policy import Policy, StatefulPolicy, described
from evenhand.planning.compare import Comparison, compare
from evenhand.planning.mixture_search import AS_GOOD
from evenhand.planning.plan import Plan, plan_of
from evenhand.planning.policy_scoring import PolicyScorer, step_cost
from evenhand.planning.relaxation import relax
from evenhand.planning.solution import Part, Samples, Solution
from evenhand.planning.solve import choose_method, solve
from evenhand.planning.task import FAILURES, SolveMethod, current_effort
from evenhand.policies.deadlines import keep_promises
from evenhand.policies.fluid import choice_of
from evenhand.typing import Floats, Progress

Budget = float | Sequence[float] | Floats | Mapping[str, float]
"""Argument of `CoupledMDP.with_budget`."""

DOUBT = 3.0
"""Standard errors by which the worst-off must be worse off for a plan for leximin to be given up: its levels are held
within errors only, for the sake of those after them."""


PAIRED = 6
"""Episodes at the least on which plans are compared, where decisions are programs: their differences vary little."""


@dataclass(frozen=True, eq=False)
class Step:
    """Gain over a smaller budget in a row above, or over an existing plan."""

    welfare: float
    """The difference in welfare."""

    stderr: float
    """Its standard error; 0 if both are exact, or the plan is the same."""

    since: dict[str, float]
    """The budget that it is measured from: the amount of each resource, under its name."""

    measurable: bool
    """True if the difference is larger than its standard error, and than rounding."""


@dataclass(frozen=True, eq=False)
class BudgetRow:
    """The best plan for one budget."""

    budget: dict[str, float]
    """The amount of each resource, under its name."""

    solution: Solution
    """The plan, with its bound."""

    step: Step | None
    """Gain over a smaller budget above; None if no row above has one."""

    reused_from: dict[str, float] | None = None
    """The budget of the known plan, or of the row with a smaller budget, whose plan this is; None for a new plan."""

    beside: tuple[Step, ...] = ()
    """The change from each of the known plans, in their order."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        own = {"budget": self.budget, **_step_dict(self.step), "reused_from": self.reused_from}
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
    """Evaluation of the best."""

    step: Step | None
    """Gain of the best over a smaller budget above; None if no row above has one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = self.evaluation
        best = {"policy": self.best, "welfare": found.welfare, "welfare_stderr": found.welfare_stderr}
        return {"budget": self.budget, "best": best, **_step_dict(self.step), **self.comparison.to_dict()}


Row = TypeVar("Row", BudgetRow, BudgetComparison)


@dataclass(frozen=True, eq=False)
class BudgetSweep(Shown, Generic[Row]):
    """Plans, or comparisons, for several budgets."""

    welfare: str
    """Name of the welfare."""

    rows: tuple[Row, ...]
    """One per budget, in the given order."""

    known: tuple[Solution, ...] = ()
    """The existing plans, with the figures that steps are measured from."""

    def __repr__(self) -> str:
        return f"BudgetSweep({counted(len(self.rows), 'budget')} by {self.welfare})"

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Row:
        return self.rows[number]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"welfare": self.welfare, "budgets": [row.to_dict() for row in self.rows]}


def _step_dict(step: Step | None) -> dict[str, Any]:
    names = {"step": "welfare", "step_stderr": "stderr", "step_from": "since", "step_measurable": "measurable"}
    return {key: None if step is None else getattr(step, name) for key, name in names.items()}


def solve_budgets(
    evaluated: CoupledMDP,
    budgets: Sequence[Budget],
    welfare: Welfare,
    method: SolveMethod,
    progress: Progress | None,
    seed: int,
) -> BudgetSweep[BudgetRow]:
    """Solve a problem under several budgets; see `solve`.

    Raises:
        NotApplicableError: an existing plan was made for other arms.
        InvalidInputError: an existing plan misses the floors of the problem.
    """
    problems, order = _read(evaluated, budgets)
    judge = CommonEpisodes.of(evaluated, welfare, seed)
    number_of_tasks = len(method.plans) + len(order)
    known = [
        judge(figured(plan, evaluated, welfare, seed, task_progress(progress, "known plan", turn, number_of_tasks)))
        for turn, plan in enumerate(method.plans)
    ]
    found: dict[int, Solution] = {}
    made_for: dict[int, CoupledMDP | None] = {}
    # From the smaller to the larger: whatever is found for one may be played under all that contain it.
    for turn, number in enumerate(order):
        budgeted = problems[number]
        name = f"budget {budget_in_words(budgeted)}"
        tell = task_progress(progress, name, len(known) + turn, number_of_tasks)
        # A plan reused from row to row is named after the budget that it was found for.
        earlier = [(made_for[i] or problems[i], found[i]) for i in order[:turn]]
        rivals = [(own, one) for own, one in [*((one.problem, one) for one in known), *earlier] if _fits(own, budgeted)]
        # Exact methods find the best by themselves, and take no candidates.
        by_search = method.name == "fluid" or (method.name == "auto" and choose_method(budgeted)[0] == "fluid")
        tried = {**method.candidates, **_candidates(rivals, known, budgeted)} if by_search else {}
        own = judge(solve(budgeted, welfare, replace(method, candidates=tried), progress=tell, rng=seed))
        best, at = _no_worse(own, rivals, _tightest_bound(budgeted, [own, *known]))
        # Resized, a known plan uses what a plan that is reused leaves.
        for plan in known if at is not None else ():
            if np.array_equal(plan.problem.budget, budgeted.budget):
                continue
            fitted = judge.resized(plan, budgeted)
            if fitted is not None and fitted.welfare >= best.welfare:
                best, at = replace(fitted, upper_bound=own.upper_bound), None
        found[number], made_for[number] = best, at
    bounds = {i: _tightest_bound(problems[i], [*found.values(), *known]) for i in order}
    rows: list[BudgetRow] = []
    for number, budgeted in enumerate(problems):
        solution = replace(found[number], upper_bound=bounds[number])
        smaller = made_for[number]
        step, beside = (
            _step_to(problems, number, found),
            tuple(step_between(one, solution, one.problem) for one in known),
        )
        rows.append(
            BudgetRow(budgeted.named_budget, solution, step, None if smaller is None else smaller.named_budget, beside)
        )
    return BudgetSweep(welfare.name, tuple(rows), tuple(known))


@dataclass(frozen=True, eq=False)
class CommonEpisodes:
    """Evaluation of plans on the same episodes, so that plans differ by what they do."""

    choice: Floats | None
    """(type, state, action) of the control variate; None without a relaxation: then plans stay as they are."""

    seed: int
    """Of the episodes."""

    @classmethod
    def of(cls, problem: CoupledMDP, welfare: Welfare, seed: int) -> "CommonEpisodes":
        """Return the episodes of a problem, the same under all budgets.

        Args:
            problem: under any budget.
            welfare: the welfare in question.
            seed: of the sweep.
        """
        try:
            return cls(choice_of(problem, relax(problem, welfare).occupancy), seed)
        except FAILURES:
            return cls(None, seed)

    def __call__(self, found: Solution) -> Solution:
        """Return a solution with its figures on these episodes, which all parts of a mixture play; exact ones stay."""
        if self.choice is None or not found.welfare_stderr:
            return found
        parts, shares = components_for_good(found.policy)
        by_type = all(treats_alike(found.problem, part) for part in parts)
        steps = current_effort().paired_steps
        scorer = PolicyScorer(found.problem, by_type, steps, self.seed, PAIRED, most_episodes=4000, left_out=JUDGED)
        try:
            played = [scorer("", part, self.choice) for part in parts]
        except NotConvergedError:
            return found
        # Programs play fewer episodes than ranks, and long runs of an average differ in their number.
        number = max((len(one.returns) for one in played if not one.exact), default=1)
        weighted = list(zip(shares.tolist(), played, strict=True))
        returns = np.sum([share * _extended(one.returns, number) for share, one in weighted if not one.exact], axis=0)
        returns = returns + np.sum([share * one.returns for share, one in weighted if one.exact], axis=0)
        beyond = sum(
            (share * one.beyond for share, one in weighted if one.beyond is not None), np.zeros(returns.shape[1])
        )
        objective = (Objective.of_types if by_type else Objective.of_arms)(found.problem, found.objective.welfare)
        values, samples = returns.mean(axis=0), Samples(np.ones(1), (returns,), beyond) if number > 1 else None
        return replace(
            found,
            objective=objective,
            welfare=objective(values),
            welfare_stderr=0.0 if samples is None else samples.error(objective, values),
            unit_values=values,
            unit_stderr=None if samples is None else samples.errors(),
            by_type=by_type,
            samples=samples,
        )

    def resized(self, found: Solution, problem: CoupledMDP) -> Solution | None:
        """Return a plan resized to the budget of a problem, on these episodes; None if it is exact, or a table.

        Args:
            found: the plan.
            problem: the problem under another budget.
        """
        if self.choice is None or not found.welfare_stderr:
            return None
        try:
            policy = described(found.policy).resized(problem, range(problem.num_types))
        except NotApplicableError:
            return None
        return self(replace(found, policy=policy, problem=problem, upper_bound=np.inf))


def compare_budgets(
    evaluated: CoupledMDP,
    budgets: Sequence[Budget],
    arguments: Mapping[str, Any],
    progress: Progress | None,
) -> BudgetSweep[BudgetComparison]:
    """Compare policies under several budgets; see `compare`.

    Named policies are made anew for each budget, and one may well be worse with a larger one. The best never is: the
    best policy of a smaller budget can be reused.

    Args:
        evaluated: the problem.
        budgets: as of `CoupledMDP.with_budget`.
        arguments: arguments of `compare`.
        progress: called with the current task and the share done.
    """
    problems, order = _read(evaluated, budgets)
    found: dict[int, Comparison] = {}
    best: dict[int, tuple[str, Evaluation]] = {}
    for turn, number in enumerate(order):
        tell = task_progress(progress, f"budget {budget_in_words(problems[number])}", turn, len(order))
        found[number] = cast(Comparison, compare(problems[number], progress=tell, **arguments))
        # Rows are sorted: the first is the best of this budget.
        first = found[number].rows[0]
        best[number] = first.policy, first.evaluation
        for i in order[:turn]:
            # Strictly better, so that a budget's own policy is preferred to an equal one of a smaller budget.
            if _fits(problems[i], problems[number]) and best[i][1].welfare > best[number][1].welfare:
                made = "" if " made for " in best[i][0] else f" made for {budget_in_words(problems[i])}"
                best[number] = best[i][0] + made, best[i][1]
    values = {number: evaluation for number, (_, evaluation) in best.items()}
    rows = tuple(
        BudgetComparison(budgeted.named_budget, found[number], *best[number], _step_to(problems, number, values))
        for number, budgeted in enumerate(problems)
    )
    return BudgetSweep(rows[0].comparison.welfare.name, rows)


def budget_in_words(problem: CoupledMDP) -> str:
    """`4,4`: as it is typed."""
    return ",".join(f"{amount:.10g}" for amount in problem.budget)


def _read(evaluated: CoupledMDP, budgets: Sequence[Budget]) -> tuple[list[CoupledMDP], list[int]]:
    """Return the problem under each budget, and an order in which no budget comes before one that it contains."""
    if isinstance(budgets, (str, Mapping)) or not isinstance(budgets, (Sequence, np.ndarray)) or not len(budgets):
        raise InvalidInputError(f"budgets: expected a list of budgets, as in [[3, 5], [4, 5]], got {budgets!r}")
    problems = [evaluated.with_budget(budget) for budget in budgets]
    # By sum: what a budget contains has no larger sum, and among equals the earlier comes first.
    return problems, sorted(range(len(problems)), key=lambda i: float(problems[i].budget.sum()))


def _fits(smaller: CoupledMDP, larger: CoupledMDP) -> bool:
    """Return whether the budget of one problem is nowhere larger than that of the other."""
    return bool((smaller.budget <= larger.budget).all())


def figured(
    plan: Solution | Plan,
    problem: CoupledMDP,
    welfare: str | Welfare | None,
    seed: int,
    progress: Progress | None = None,
) -> Solution:
    """Return a known plan as a solution for its own budget, under the criterion and welfare in question.

    Args:
        plan: from `solve` or `load_plan`.
        problem: the problem in question, under any budget.
        welfare: the welfare in question.
        seed: of the evaluation that is necessary if the plan was evaluated by something else.
        progress: called with phase and share completed of that evaluation.

    Raises:
        InvalidInputError: the plan misses the floors of the problem.
    """
    made = plan_of(plan) if isinstance(plan, Solution) else plan
    own = problem.with_budget(made.problem.budget)
    # The signature has no promises. Under others a plan acts otherwise, by the deadline rule of these.
    same_plan = made.problem.signature == own.signature and np.array_equal(made.problem.max_waits, own.max_waits)
    policy = made.policy if same_plan else keep_promises(own, made.fitted(own))
    about, weighed_by = made.about, read_welfare(own, welfare)
    # Figures are reused if they are those of this policy, criterion, welfare, members and floors.
    asked = {"welfare": weighed_by.name, "criterion": own.criterion.name, "over": own.over}
    same_members = own.over != "groups" or np.array_equal(made.problem.group_of_type, own.group_of_type)
    same = asked.items() <= about.items() and same_members and np.array_equal(made.problem.floors, own.floors)
    if same and same_plan and about.get("values") is not None:
        by_type, values = about["by"] == "type", np.asarray(about["values"])
        figures = about["value"], about["upper_bound"], about["stderr"]
    else:
        # Figures that those on common episodes replace, unless they may miss floors.
        most, cost = current_effort().arm_steps, described(policy).decision_cost
        size = own.criterion.judging_steps() * step_cost(own, cost, own.num_arms, most)
        number = 1000 if own.has_floors else int(np.clip(most / size, 2, 1000))
        played = evaluate(own, policy, welfare, number, rng=seed, progress=progress)
        if played.floors_missed:
            raise InvalidInputError(f"plans: the plan for {budget_in_words(own)} misses the floors of the problem")
        by_type, values = played.by_type, played.unit_values
        figures = played.welfare, np.inf, played.welfare_stderr
    return Solution(
        method=str(about.get("method", "")),
        reason="known beforehand",
        objective=(Objective.of_types if by_type else Objective.of_arms)(own, weighed_by),
        welfare=figures[0],
        upper_bound=figures[1],
        unit_values=values,
        by_type=by_type,
        policy=policy,
        problem=own,
        seconds={},
        welfare_stderr=figures[2],
        parts=tuple(Part(one["policy"], one["share"]) for one in about.get("parts", ())),
    )


Rival = tuple[CoupledMDP, Solution]
"""A plan, and the problem with the budget that it was made for."""


def _candidates(
    rivals: Sequence[Rival], known: Sequence[Solution], problem: CoupledMDP
) -> dict[str, Policy | StatefulPolicy]:
    """Policies that compete in the search under a budget; known plans of other budgets are resized if they can be."""
    found = {f"plan for {budget_in_words(own)}": solution.policy for own, solution in rivals}
    kinds = range(problem.num_types)
    for plan in known:
        if not np.array_equal(plan.problem.budget, problem.budget):
            name = f"plan for {budget_in_words(plan.problem)}, resized"
            with contextlib.suppress(NotApplicableError):  # a table for its own budget alone
                found[name] = described(plan.policy).resized(problem, kinds)
    return found


def _no_worse(own: Solution, rivals: Sequence[Rival], bound: float) -> tuple[Solution, CoupledMDP | None]:
    """Return the own plan, or a rival that is the same or better; and the problem that the rival was made for."""
    proved = bound - AS_GOOD * abs(bound)
    # A solution of one part may be a candidate under its name: then it is that plan, and keeps the figures that it has.
    names = {f"plan for {budget_in_words(made_for)}": (made_for, other) for made_for, other in rivals}
    at, best = names.get(own.parts[0].name, (None, own)) if len(own.parts) == 1 else (None, own)
    for made_for, other in rivals:
        doubt = DOUBT * float(np.hypot(best.welfare_stderr, other.welfare_stderr))
        # Leximin holds its worst level within errors only; every other welfare is compared as a number.
        better = other.welfare > best.welfare + (doubt if own.objective.structure.lexicographic else 0.0)
        # More than the bound is there only by chance: a plan that is proved to reach the bound is as good.
        if better or (best.welfare > bound and best.welfare_stderr > other.welfare_stderr and other.welfare >= proved):
            at, best = made_for, other
    if at is None:
        return own, None
    reason = f"{own.reason}; the plan for {budget_in_words(at)} is reused, since no better one was found"
    return replace(best, problem=own.problem, upper_bound=own.upper_bound, seconds=own.seconds, reason=reason), at


def _tightest_bound(problem: CoupledMDP, found: Sequence[Solution]) -> float:
    """The least of the bounds under budgets that contain a problem's own."""
    return min(one.upper_bound for one in found if _fits(problem, one.problem))


def _step_to(
    problems: Sequence[CoupledMDP], number: int, found: Mapping[int, Solution] | Mapping[int, Evaluation]
) -> Step | None:
    """Return the gain over the largest budget in a row above that is nowhere larger; None if there is none."""
    below = [row for row in range(number) if _fits(problems[row], problems[number])]
    largest = [
        row
        for row in below
        if all(_fits(problems[other], problems[row]) or not _fits(problems[row], problems[other]) for other in below)
    ]
    return step_between(found[largest[-1]], found[number], problems[largest[-1]]) if largest else None


def step_between(before: Solution | Evaluation, after: Solution | Evaluation, since: CoupledMDP) -> Step:
    """Return the change from one plan to another; exactly 0 if their values are the same.

    Args:
        before: plan, or evaluation of a policy.
        after: another, best on the same episodes.
        since: problem with the budget of the first.
    """
    same = np.array_equal(before.unit_values, after.unit_values)
    error = 0.0 if same else _error_of_difference(before, after)
    difference = after.welfare - before.welfare
    measurable = abs(difference) > max(error, AS_GOOD * abs(after.welfare))
    return Step(difference, error, since.named_budget, measurable)


def _error_of_difference(before: Solution | Evaluation, after: Solution | Evaluation, resamples: int = 200) -> float:
    """Return the standard error of a difference in welfare: by the bootstrap of common episodes, else as if apart."""
    apart = float(np.hypot(before.welfare_stderr, after.welfare_stderr))
    first, second = _episodes(before), _episodes(after)
    if first is None or second is None or min(len(first), len(second)) < 2:
        return apart
    number = max(len(first), len(second))
    first, second = _extended(first, number), _extended(second, number)
    # Both from the same episodes: what they share by chance is not in the difference.
    weights = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=resamples) / number
    means = zip(weights @ first, weights @ second, strict=True)
    try:
        spread = np.std([after.objective(then) - before.objective(now) for now, then in means], ddof=1)
    except OutOfDomainError:
        return apart
    return min(apart, float(spread * np.sqrt(number / (number - 1))))


def _extended(returns: Floats, number: int) -> Floats:
    """Return (number, unit) returns with the same mean and standard error; those beyond the played ones are the mean.

    Args:
        returns: (episode, unit) of at most so many episodes.
        number: of episodes.
    """
    played, mean = len(returns), returns.mean(axis=0)
    if played in (1, number):
        return np.broadcast_to(mean, (number, len(mean))) if played < number else returns
    wider = np.sqrt(number * (number - 1) / (played * (played - 1)))
    return np.concatenate([mean + wider * (returns - mean), np.broadcast_to(mean, (number - played, len(mean)))])


def _episodes(found: Solution | Evaluation) -> Floats | None:
    """(episode, unit) returns of a plan on common episodes; None if it is exact, or a mixture was played in parts."""
    if isinstance(found, Solution):
        return found.samples.returns[0] if found.samples is not None and len(found.samples.returns) == 1 else None
    if found.returns is None or found.episode_weights is None or np.ptp(found.episode_weights) > 0:
        return None
    own = found.returns.shape[1] == found.objective.num_values
    return found.returns if own else mean_by_type(found.problem, found.returns) if found.by_type else None
