"""What pictures of a programme are made from: values of groups over time, the price of fairness, other budgets.

    fairness_over_time   an audit of every part of a span: what groups were promised from where they stood when it
                         began, and what they got in it
    price_of_fairness    the best plan of the present roster for each idea of welfare, the programme's own marked
    suppose              the best plans of the present roster under other budgets, or for another welfare

The last two solve, which takes seconds to minutes: they are for the background, and tell how far they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from evenhand.checks import check_positive_int
from evenhand.model.coupled import CoupledMDP
from evenhand.model.welfare import DEFAULT
from evenhand.planning.fairness import Fairness, fairness
from evenhand.planning.plan import Plan
from evenhand.planning.what_if import Budget, BudgetRow, what_if
from evenhand.programme.auditing import Books, Earned
from evenhand.programme.solving import METHOD, Certificate, Numbers, certificate_of, fields_of, to_bytes
from evenhand.typing import Progress

PARTS = 12
"""Parts of a span over time, where nobody says otherwise."""

FAMILY = ("utilitarian", "gini:1.2", "gini:1.5", "gini:2", "gini:5", "maximin")
"""Ideas of welfare from the best mean to the worst-off alone: the curve of the price of fairness."""


@dataclass(frozen=True)
class Part:
    """A part of a span."""

    first: int
    """The first step."""

    last: int
    """The last one; it belongs to the part."""

    groups: dict[str, Earned]
    """What each group that took part was promised and got."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def fairness_over_time(books: Books, parts: int = PARTS) -> tuple[Part, ...]:
    """What groups were promised and got, part by part of a span.

    Args:
        books: of the span, from `Programme.books`.
        parts: how many there are, at most; each has as many steps as the others, but for the last.
    """
    first, last = books.span.first, books.span.last
    size = -(-(last - first + 1) // check_positive_int(parts, "parts"))
    return tuple(_part(books, begin, min(begin + size - 1, last)) for begin in range(first, last + 1, size))


def _part(books: Books, first: int, last: int) -> Part:
    sums = books.between(first, last)
    own = {name: books.group == number for number, name in enumerate(books.groups)}
    there = {name: arms for name, arms in own.items() if sums.account["steps"][arms].any()}
    return Part(first, last, {name: books.earned(sums, arms) for name, arms in there.items()})


@dataclass(frozen=True)
class Price:
    """What one idea of welfare costs and gives."""

    welfare: str
    """The idea."""

    mean: float
    """The mean value of the members, arms or groups, under its best plan."""

    worst: float
    """The value of the worst-off member."""

    gini_coefficient: float
    """How unequal they are."""

    price: float
    """The share of the best mean that is given up."""

    values: dict[str, float]
    """The value of each group, or of an arm of each type."""

    today: bool
    """Whether it is the programme's own."""


@dataclass(frozen=True)
class Prices:
    """The price of fairness as a curve."""

    rows: tuple[Price, ...]
    """One a welfare, from the best mean to the best for the worst-off."""

    left_out: dict[str, str]
    """Ideas for which there is no plan, with the reason."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def price_of_fairness(
    problem: CoupledMDP,
    welfare: str | None,
    family: Sequence[str] = FAMILY,
    progress: Progress | bool | None = None,
    seconds: float | None = None,
    seed: int = 0,
) -> Prices:
    """The best plan of a roster for each of several ideas of welfare.

    Args:
        problem: of the roster.
        welfare: the programme's own, which is among them in any case.
        family: the others.
        progress: called now and then with what is being done and the share done.
        seconds: how long all of it may take, about.
        seed: of what is played.
    """
    own = welfare or DEFAULT
    ideas = list(dict.fromkeys((*family, own)))
    found = fairness(problem, ideas, METHOD, progress=progress, rng=seed, seconds=seconds)
    rows = [_price(found, number, own) for number in range(len(found.rows))]
    return Prices(tuple(sorted(rows, key=lambda row: (row.worst, -row.mean))), dict(found.left_out))


def _price(found: Fairness, number: int, own: str) -> Price:
    row = found.rows[number]
    values = row.groups or row.values
    told = (row.welfare, row.mean, row.worst, row.gini_coefficient, row.price)
    return Price(*told, values=dict(values), today=row.welfare == own)


@dataclass(frozen=True)
class Supposed(Certificate):
    """What the best plan under another budget, or for another welfare, is worth for the present roster."""

    budget: dict[str, float]
    """The amount of each resource, under its name."""

    kept_from: dict[str, float] | None
    """The budget of the plan in use, or of an earlier supposition, whose plan this is; None for a new plan."""

    difference: dict[str, Any] | None
    """`welfare` beyond the plan in use, its `stderr`, and whether it is `measurable`; None without a plan in use."""

    today: Certificate | None
    """What the plan in use is worth by the programme's own welfare; None without one."""

    body: bytes = field(default=b"", repr=False)
    """The file of the plan."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, without the file."""
        told = super().as_dict()
        del told["body"]
        return told | {"today": None if self.today is None else self.today.as_dict()}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Supposed":
        """From the JSON form."""
        today = told["today"]
        return cls(**fields_of(told) | {"today": None if today is None else Certificate.of(today)})


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
    """What the best plans of a roster under several budgets are worth. More is never worth less.

    Args:
        problem: of the roster.
        numbers: of the roster.
        budgets: as of `evenhand.what_if`; the present one alone where there are none.
        welfare: what would be fair; the programme's own when absent.
        progress: called now and then with what is being done and the share done.
        seconds: how long each may take, about.
        seed: of what is played.
        plans: plans that compete; the first is the one in use, if there is one.
        today: what the plan in use is worth.
    """
    asked = list(budgets) or [problem.named_budget]
    rows = what_if(problem, asked, welfare, METHOD, progress=progress, rng=seed, seconds=seconds, plans=plans)
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
