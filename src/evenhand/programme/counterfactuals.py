"""Counterfactual plans of the present roster: the price of fairness, and other budgets or welfares.

    price_of_fairness    best plan per welfare, the programme's own among them
    suppose              best plans under other budgets, or for another welfare

Both solve, which takes seconds to minutes, and report progress.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evenhand.model.welfare import DEFAULT
from evenhand.planning import Plan, SolveMethod
from evenhand.planning.budget_sweep import Budget
from evenhand.planning.price_of_fairness import PriceOfFairness, price_of_fairness
from evenhand.planning.solve import solve
from evenhand.programme.certificates import METHOD, Certificate, certificate_of, numbers_of, plan_in_use, to_bytes
from evenhand.programme.cycle import Cycle
from evenhand.programme.library import Library
from evenhand.typing import Progress

FAMILY = ("utilitarian", "gini:1.2", "gini:1.5", "gini:2", "gini:5", "maximin")
"""Welfares from the best mean to the worst-off alone."""


@dataclass(frozen=True)
class Supposed(Certificate):
    """Best plan under another budget, or for another welfare, for the present roster."""

    budget: dict[str, float]
    """The amount of each resource, under its name."""

    reused_from: dict[str, float] | None
    """The budget of the plan in use, or of an earlier supposition, whose plan this is; None for a new plan."""

    difference: dict[str, Any] | None
    """`welfare` beyond the plan in use, its `stderr`, and whether it is `measurable`; None without a plan in use."""

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
        self, family: Sequence[str] = FAMILY, *, seconds: float | None = None, progress: Progress | bool | None = None
    ) -> PriceOfFairness:
        """Return the best plan of the present roster per welfare, the programme's own among them.

        Args:
            family: welfares, as text; the programme's own is among them in any case.
            seconds: approximate time limit.
            progress: called with phase and share completed.
        """
        problem, _, seed = self._cycle.present_problem()
        wanted, method = (
            list(dict.fromkeys((*family, problem.welfare or DEFAULT))),
            SolveMethod(METHOD, seconds=seconds),
        )
        return price_of_fairness(problem, wanted, method, progress=progress, rng=seed)

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

        The plan in use competes: no budget that contains today's gets a worse one.

        Args:
            budgets: as of `evenhand.solve`; by default the present one alone.
            welfare: what would be fair; by default the programme's own.
            seconds: approximate time limit of each.
            progress: called with phase and share completed.
            earlier: plans of earlier suppositions, which compete, too.
        """
        problem, arms, seed = self._cycle.present_problem()
        today, plans = self._cycle.certificate(), list(earlier)
        if today is not None:
            with self._library.store.reading() as tx:
                plan = self._library.policy(tx, today.policy)
            plans.insert(0, plan_in_use(plan, today, problem))
        method = SolveMethod(METHOD, seconds=seconds, plans=plans)
        wanted = list(budgets) or [problem.named_budget]
        found = []
        for row in solve(problem, welfare, method, budgets=wanted, progress=progress, rng=seed):
            # Read again, a plan acts with the budget of its file: that must be the one that its figures are for.
            made_for = problem.with_budget(row.reused_from or row.budget)
            body = to_bytes(replace(row.solution, problem=made_for))[1]
            names = ("welfare", "stderr", "measurable")
            more = None if today is None else {name: getattr(row.beside[0], name) for name in names}
            own = vars(certificate_of(row.solution, "", numbers_of(arms)))
            found.append(
                Supposed(**own, budget=row.budget, reused_from=row.reused_from, difference=more, today=today, body=body)
            )
        return tuple(found)
