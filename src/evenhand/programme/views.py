"""What pictures of a programme are made from: values of groups over time, the price of fairness, other budgets.

    fairness_over_time   an audit of every part of a span: what groups were promised from where they stood when it
                         began, and what they got in it
    price_of_fairness    the best plan of the present roster for each idea of welfare, the programme's own marked
    suppose              the best plans of the present roster under other budgets, or for another welfare

The last two solve, which takes seconds to minutes: they are for the background, and tell how far they are.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenhand.checks import check_positive_int
from evenhand.model.coupled import CoupledMDP
from evenhand.model.welfare import DEFAULT
from evenhand.planning.fairness import Fairness, fairness
from evenhand.planning.what_if import Budget, what_if
from evenhand.programme.auditing import Books, Earned
from evenhand.programme.solving import METHOD, Certificate, Numbers, certificate_of
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


def suppose(
    problem: CoupledMDP,
    numbers: Numbers,
    budgets: Sequence[Budget] = (),
    welfare: str | None = None,
    progress: Progress | bool | None = None,
    seconds: float | None = None,
    seed: int = 0,
) -> tuple[Certificate, ...]:
    """What the best plans of a roster under several budgets are worth. More is never worth less.

    Args:
        problem: of the roster.
        numbers: of the roster.
        budgets: as of `evenhand.what_if`; the present one alone where there are none.
        welfare: what would be fair; the programme's own when absent.
        progress: called now and then with what is being done and the share done.
        seconds: how long each may take, about.
        seed: of what is played.
    """
    asked = list(budgets) or [problem.named_budget]
    rows = what_if(problem, asked, welfare, METHOD, progress=progress, rng=seed, seconds=seconds)
    return tuple(certificate_of(row.solution, "", numbers) for row in rows)
