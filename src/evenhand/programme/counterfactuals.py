"""Counterfactual plans of the present roster: the price of fairness, and other budgets or welfares.

    price_of_fairness    best plan per welfare, the programme's own among them
    suppose              best plans under other budgets, or for another welfare

Both solve, which takes seconds to minutes, and report progress.

More is never worse. The plan in use and those of earlier what-ifs compete, all on the same episodes, which depend on
the programme's seed alone (`planning.budget_sweep.CommonEpisodes`). The figures of a what-if are those of the
certificate in use plus paired differences. Today's own budget is today's plan, and a plan for less that is found to be
better than today's could be used today: neither is a difference. If the plan that was found, resized to today's budget,
is better than the plan in use, that part of the difference needs no other budget (`by_plan`).
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from evenhand.evaluation import simulate
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.model import CoupledMDP, Policy, StatefulPolicy, read_welfare
from evenhand.model.composite import components_for_good
from evenhand.model.policy import described
from evenhand.model.welfare import DEFAULT
from evenhand.planning import Plan, SolveMethod, relax, save_policy
from evenhand.planning.budget_sweep import PAIRED, Budget, BudgetRow, CommonEpisodes, step_between
from evenhand.planning.policy_scoring import step_cost
from evenhand.planning.price_of_fairness import PriceOfFairness, price_of_fairness
from evenhand.planning.solution import Solution
from evenhand.planning.solve import solve
from evenhand.planning.task import FAILURES
from evenhand.programme.certificates import (
    METHOD,
    Certificate,
    Numbers,
    certificate_of,
    numbers_of,
    to_bytes,
)
from evenhand.programme.cycle import Cycle
from evenhand.programme.library import Library
from evenhand.programme.named_model import Words
from evenhand.typing import Floats, Progress


@dataclass(frozen=True)
class StateNumber:
    """Expected number of arms in a state at a step, as the criterion weighs steps."""

    state: str
    """Its name."""

    today: float
    """Under the plan in use."""

    then: float
    """Under the supposed plan."""

    stderr: float
    """Standard error of the difference, on common episodes."""

    measurable: bool
    """True if the difference is larger than its standard error."""

    at_most: float | None = None
    """Largest number under any plan with the supposed budget; None if it was not computed."""


@dataclass(frozen=True)
class Supposed(Certificate):
    """Best plan under another budget, or for another welfare, for the present roster."""

    budget: dict[str, float]
    """The amount of each resource, under its name."""

    reused_from: dict[str, float] | None
    """The budget of the plan in use, or of an earlier supposition, whose plan this is; None for a new plan."""

    difference: dict[str, Any] | None
    """`welfare` beyond the plan in use, its `stderr`, and whether it is `measurable`; `by_plan`, the part of it that a
    better plan gives under today's budget, if that is measurable. None without a plan in use."""

    states: tuple[StateNumber, ...]
    """Expected numbers of arms by state, the largest change first, which has `at_most`; empty without a plan in use."""

    today: Certificate | None
    """Certificate of the plan in use by the programme's own welfare; None without one."""

    body: bytes = field(default=b"", repr=False)
    """The file of the plan."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without the file."""
        content = super().to_dict()
        del content["body"]
        return content


class Counterfactuals:
    """Plans of the present roster for other welfares and budgets; nothing is stored."""

    def __init__(self, library: Library, cycle: Cycle) -> None:
        """Use the store, models and policies of a programme, and its plans."""
        self._library, self._cycle = library, cycle

    def price_of_fairness(
        self,
        family: Sequence[str] | None = None,
        *,
        price_limit: float = 0.1,
        seconds: float | None = None,
        progress: Progress | bool | None = None,
    ) -> PriceOfFairness:
        """Return the best plan of the present roster per welfare, the programme's own among them.

        Args:
            family: welfares, as text, by default those of `evenhand.price_of_fairness`; the programme's own is among
                them in any case.
            price_limit: share of the best mean over arms that the recommended plan may give up.
            seconds: approximate time limit.
            progress: called with phase and share completed.
        """
        problem, _, seed = self._cycle.present_problem()
        wanted = None if family is None else (problem.welfare or DEFAULT, *family)
        how: Any = {"price_limit": price_limit, "progress": progress, "rng": seed}
        return price_of_fairness(problem, wanted, SolveMethod(METHOD, seconds=seconds), **how)

    def suppose(
        self,
        budgets: Sequence[Budget] = (),
        welfare: str | None = None,
        *,
        seconds: float | None = None,
        progress: Progress | bool | None = None,
        earlier: Sequence[Plan] = (),
    ) -> tuple[Supposed, ...]:
        """Evaluate the best plans of the present roster under other budgets, or for another welfare.

        The plan in use competes: no budget that contains today's gets a worse one, and today's own has no difference.

        Args:
            budgets: as of `evenhand.solve`; by default the present one alone.
            welfare: what would be fair; by default the programme's own.
            seconds: approximate time limit of each.
            progress: called with phase and share completed.
            earlier: plans of earlier suppositions, which compete, too.
        """
        problem, arms, seed = self._cycle.present_problem()
        today, before = self._cycle.certificate(), self._cycle.plan_in_use(problem)
        own_welfare = read_welfare(problem, welfare).name == read_welfare(problem, None).name
        beside = None if today is None or before is None else PlanInUse(before, today, seed, own_welfare)
        method = SolveMethod(METHOD, seconds=seconds, plans=list(earlier))
        return suppose_budgets(problem, numbers_of(arms), beside, budgets, welfare, method, progress, seed)


def suppose_budgets(
    problem: CoupledMDP,
    numbers: Numbers,
    beside: "PlanInUse | None",
    budgets: Sequence[Budget],
    welfare: str | None,
    method: SolveMethod,
    progress: Progress | bool | None,
    seed: int,
) -> tuple[Supposed, ...]:
    """Return the best plans of a roster under other budgets, or for another welfare.

    Args:
        problem: of the roster.
        numbers: of the roster.
        beside: the plan in use, which competes; None without one.
        budgets: as of `evenhand.solve`; if empty the problem's own.
        welfare: by default the problem's own.
        method: as of `solve`; its plans compete, too.
        progress: called with phase and share completed.
        seed: the programme's.
    """
    wanted = [problem.with_budget(budget) for budget in budgets] or [problem]
    same_welfare = beside is not None and beside.own_welfare
    is_new = [not same_welfare or not np.array_equal(one.budget, problem.budget) for one in wanted]
    new = [one.budget for one, is_one in zip(wanted, is_new, strict=True) if is_one]
    if beside is not None:
        method = replace(method, plans=[beside.plan, *method.plans])
    sweep = solve(problem, welfare, method, budgets=new, progress=progress, rng=seed) if new else None
    rows, found = iter(sweep or ()), []
    for is_one in is_new:
        if not is_one and beside is not None:
            found.append(beside.supposed)
            continue
        row = next(rows)
        # Read again, a plan acts with the budget of its file: that must be the one that its figures are for.
        made_for = problem.with_budget(row.reused_from or row.budget)
        body = to_bytes(replace(row.solution, problem=made_for))[1]
        same: dict[str, Any] = {"budget": row.budget, "reused_from": row.reused_from, "body": body}
        certificate = certificate_of(row.solution, "", numbers)
        if beside is None or sweep is None:
            found.append(Supposed(**vars(certificate), **same, difference=None, states=(), today=None))
        else:
            found.append(replace(beside.compared(certificate, row, sweep.known[0]), **same))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class PlanInUse:
    """The plan in use, and what other plans of its roster are beside it."""

    plan: Plan
    """The plan, for the roster's problem under today's budget."""

    today: Certificate
    """Its certificate, by the programme's own welfare."""

    seed: int
    """The programme's."""

    own_welfare: bool
    """True if the other plans are for the programme's own welfare, too."""

    with_states: bool = True
    """True if expected numbers of arms by state are reported."""

    @cached_property
    def supposed(self) -> Supposed:
        """The plan in use itself: no difference."""
        stream, budget = io.BytesIO(), self.plan.problem.named_budget
        save_policy(self.plan.problem, self.plan.policy, stream, self.plan.about)
        return Supposed(
            **vars(self.today),
            budget=budget,
            reused_from=budget,
            difference={"welfare": 0.0, "stderr": 0.0, "measurable": False, "by_plan": 0.0},
            states=self._states(self.plan.problem, self.plan.policy),
            today=self.today,
            body=stream.getvalue(),
        )

    def compared(self, found: Certificate, row: BudgetRow, known: Solution) -> Supposed:
        """Return another plan, with the figures of today's certificate plus paired differences.

        Args:
            found: certificate of the plan, by its own figures.
            row: its row of the sweep.
            known: the plan in use on the episodes of the sweep.
        """
        problem, step = self.plan.problem, row.beside[0]
        smaller = row.solution.problem
        if self.own_welfare and step.welfare >= 0 and (smaller.budget <= problem.budget).all():
            none = self.supposed  # the plan for less could be used today
            return replace(none, difference=(none.difference or {}) | {"by_plan": step.welfare * step.measurable})
        blocks = np.repeat(np.arange(len(problem.counts)), problem.counts)
        more = np.bincount(blocks, row.solution.values - known.values) / problem.counts
        values = np.array([one.value for one in self.today.values]) + more
        of_group = problem.group_of_block
        groups = np.bincount(of_group, problem.counts * values) / np.bincount(of_group, problem.counts)
        welfare = self.today.welfare + step.welfare if self.own_welfare else found.welfare
        difference = welfare - self.today.welfare if self.own_welfare else step.welfare
        bound = max(found.upper_bound, welfare)
        own = vars(found) | {
            "welfare": welfare,
            "upper_bound": bound,
            "gap": (bound - welfare) / abs(bound) if bound else 0.0,
            "values": tuple(
                replace(one, value=value) for one, value in zip(self.today.values, values.tolist(), strict=True)
            ),
            "groups": dict(zip(problem.group_names, groups.tolist(), strict=True)),
        }
        made_for = problem.with_budget(row.reused_from or row.budget)
        return replace(
            self.supposed,
            **own,
            difference={
                "welfare": difference,
                "stderr": step.stderr,
                "measurable": step.measurable,
                "by_plan": self._by_plan(row.solution, known),
            },
            states=self._states(made_for, row.solution.policy, problem.with_budget(row.budget)),
        )

    def _by_plan(self, found: Solution, known: Solution) -> float:
        """Return the gain of a plan, resized to today's budget, over the plan in use; 0 if it is not measurable."""
        problem = self.plan.problem
        judge = CommonEpisodes.of(problem, found.objective.welfare, self.seed)
        resized = judge.resized(found, problem)
        step = None if resized is None or not self.own_welfare else step_between(known, resized, problem)
        return step.welfare if step is not None and step.measurable and step.welfare > 0 else 0.0

    @cached_property
    def _masks(self) -> dict[str, Floats]:
        """(type, state, action) 1 in the cells of each state, by its name."""
        masks: dict[str, Floats] = {}
        first = np.unique(self.plan.problem.type_of_block, return_index=True)[1]
        names = Words(self.plan.problem).states
        for kind, block in enumerate(first.tolist()):
            for state, name in enumerate(names[block]):
                masks.setdefault(name, np.zeros(self.plan.problem.types.valid.shape))[kind, state] = 1.0
        return masks

    @cached_property
    def _numbers(self) -> Callable[[float], Floats]:
        """Numbers under the plan in use, by the cost of a decision that sets the number of episodes."""
        return cache(partial(self._play, self.plan.problem, self.plan.policy))

    def _play(
        self, problem: CoupledMDP, policy: Policy | StatefulPolicy, cost: float, arm_steps: float = 2e6
    ) -> Floats:
        """(episode, state) mean numbers of arms, on the same episodes under all budgets."""
        horizon = problem.criterion.judging_steps(1e-2)
        # Programs at every step are worth more work, as in `PolicyScorer.episodes`.
        width = step_cost(problem, cost / 10, problem.num_arms, arm_steps)
        episodes = int(np.clip(arm_steps / (width * horizon), PAIRED, 1000))
        tables, total = np.stack(list(self._masks.values())), 0.0
        for part, share in zip(*components_for_good(policy), strict=True):
            total += share * simulate(problem, part, episodes, horizon, self.seed, rewards=tables).returns.sum(axis=2)
        return np.asarray(total).T / float(problem.criterion.time_weights(horizon).sum())

    def _states(
        self, made_for: CoupledMDP, policy: Policy | StatefulPolicy, budgeted: CoupledMDP | None = None
    ) -> tuple[StateNumber, ...]:
        """Return the numbers of two plans side by side: the largest gain first, with less budget the largest loss."""
        if not self.with_states:
            return ()
        cost = max(described(one).decision_cost for one in (self.plan.policy, policy))
        now = self._numbers(cost)
        then = now if budgeted is None else self._play(made_for, policy, cost)
        today, errors = now.mean(axis=0), standard_errors(then - now)
        more = then.mean(axis=0) - today
        states = [
            StateNumber(name, float(now), float(now + by), float(error), bool(abs(by) > max(error, 1e-9)))
            for name, now, by, error in zip(self._masks, today, more, errors, strict=True)
        ]
        if budgeted is None:
            return tuple(states)
        sign = -1 if (budgeted.budget <= self.plan.problem.budget).all() else 1
        first = max(range(len(states)), key=lambda i: (states[i].measurable, sign * more[i]))
        states[first] = replace(states[first], at_most=self._most(budgeted, states[first].state))
        return (states.pop(first), *states)

    def _most(self, budgeted: CoupledMDP, state: str) -> float | None:
        """Return an upper bound on the number of arms in a state under any plan: the best mean of its indicator."""
        rewards = self._masks[state][budgeted.type_of_block]
        problem = replace(budgeted.with_criterion(over="arms"), arms=replace(budgeted.tables, rewards=rewards))
        try:
            return relax(problem, "utilitarian").upper_bound / problem.criterion.total * problem.num_arms
        except FAILURES:
            return None
