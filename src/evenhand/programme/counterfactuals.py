"""Counterfactual plans of the present roster: the price of fairness, and other budgets or welfares.

    price_of_fairness    best plan per welfare, the programme's own marked
    suppose              best plans under other budgets, or for another welfare

Both solve, which takes seconds to minutes, and report progress.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from evenhand.model.coupled import CoupledMDP
from evenhand.model.welfare import DEFAULT
from evenhand.planning.budget_sweep import Budget, BudgetRow
from evenhand.planning.plan import Plan
from evenhand.planning.price_of_fairness import PriceOfFairness
from evenhand.planning.price_of_fairness import price_of_fairness as find_prices
from evenhand.planning.solve import solve
from evenhand.planning.task import SolveMethod
from evenhand.programme.certificates import METHOD, Certificate, Numbers, certificate_of, fields_of, to_bytes
from evenhand.typing import Progress

FAMILY = ("utilitarian", "gini:1.2", "gini:1.5", "gini:2", "gini:5", "maximin")
"""Welfares from the best mean to the worst-off alone."""


@dataclass(frozen=True)
class Price:
    """Results of one welfare."""

    welfare: str
    """Welfare, as text."""

    mean: float
    """The mean value of the members, arms or groups, under its best plan."""

    worst: float
    """The value of the worst-off member."""

    gini_coefficient: float
    """Gini coefficient of the members' values."""

    price: float
    """The share of the best mean that is given up."""

    values: dict[str, float]
    """The value of each group, or of an arm of each type."""

    today: bool
    """Whether it is the programme's own welfare."""


@dataclass(frozen=True)
class Prices:
    """The price of fairness as a curve."""

    rows: tuple[Price, ...]
    """One per welfare, from the best mean to the best for the worst-off."""

    left_out: dict[str, str]
    """Welfares without a plan, with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def price_of_fairness(
    problem: CoupledMDP,
    welfare: str | None,
    family: Sequence[str] = FAMILY,
    progress: Progress | bool | None = None,
    seconds: float | None = None,
    seed: int = 0,
) -> Prices:
    """Return the best plan of a roster per welfare.

    Args:
        problem: of the roster.
        welfare: the programme's own, which is among them in any case.
        family: the others.
        progress: called with phase and share completed.
        seconds: approximate time limit.
        seed: of what is played.
    """
    own = welfare or DEFAULT
    ideas = list(dict.fromkeys((*family, own)))
    found = find_prices(problem, ideas, SolveMethod(METHOD, seconds=seconds), progress=progress, rng=seed)
    rows = [_price(found, number, own) for number in range(len(found.rows))]
    return Prices(tuple(sorted(rows, key=lambda row: (row.worst, -row.mean))), dict(found.left_out))


def _price(found: PriceOfFairness, number: int, own: str) -> Price:
    row = found.rows[number]
    values = row.groups or row.values
    content = (row.welfare, row.mean, row.worst, row.gini_coefficient, row.price)
    return Price(*content, values=dict(values), today=row.welfare == own)


@dataclass(frozen=True)
class Supposed(Certificate):
    """Best plan under another budget, or for another welfare, for the present roster."""

    budget: dict[str, float]
    """The amount of each resource, under its name."""

    kept_from: dict[str, float] | None
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
        return content | {"today": None if self.today is None else self.today.to_dict()}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Supposed":
        """Read the JSON form."""
        today = content["today"]
        return cls(**fields_of(content) | {"today": None if today is None else Certificate.of(today)})


def suppose(
    problem: CoupledMDP,
    numbers: Numbers,
    budgets: Sequence[Budget] = (),
    welfare: str | None = None,
    progress: Progress | bool | None = None,
    seconds: float | None = None,
    seed: int = 0,
    plans: Sequence[Plan] = (),
    today: Certificate | None = None,
) -> tuple[Supposed, ...]:
    """Evaluate the best plans of a roster under several budgets; welfare is monotone in the budget.

    Args:
        problem: of the roster.
        numbers: of the roster.
        budgets: as of `evenhand.solve`; the present one alone where there are none.
        welfare: what would be fair; by default the programme's own.
        progress: called with phase and share completed.
        seconds: approximate time limit of each.
        seed: of what is played.
        plans: plans that compete; the first is the one in use, if there is one.
        today: what the plan in use is worth.
    """
    request = list(budgets) or [problem.named_budget]
    chosen = SolveMethod(METHOD, seconds=seconds, plans=plans)
    rows = solve(problem, welfare, chosen, budgets=request, progress=progress, rng=seed)
    return tuple(_supposed(row, problem, numbers, today) for row in rows)


def _supposed(row: BudgetRow, problem: CoupledMDP, numbers: Numbers, today: Certificate | None) -> Supposed:
    # Read again, a plan acts with the budget of its file: that must be the one that its figures are for.
    made_for = problem.with_budget(row.kept_from or row.budget)
    body = to_bytes(replace(row.solution, problem=made_for))[1]
    beside = None if today is None else row.beside[0]
    more = (
        None
        if beside is None
        else {"welfare": beside.welfare, "stderr": beside.stderr, "measurable": beside.measurable}
    )
    found = certificate_of(row.solution, "", numbers)
    return Supposed(**vars(found), budget=row.budget, kept_from=row.kept_from, difference=more, today=today, body=body)
