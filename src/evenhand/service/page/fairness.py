"""The view of fairness: what groups were promised and what they got, who waits longest, and what fairness costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from evenhand.display import counted
from evenhand.programme.auditing import Audit, Books, Earned, MemberRow, Part, audit_of, fairness_over_time
from evenhand.programme.programme import Programme
from evenhand.report.audit import audit_page, unknown_facts
from evenhand.service.page import charts
from evenhand.service.page.telling import figure, share

WAITING = 15
"""Arms that are listed because they wait longest."""

NAMES = {
    "utilitarian": "the best mean",
    "gini:1.2": "the worse-off count a little more",
    "gini:1.5": "the worse-off count somewhat more",
    "gini:2": "the worse-off count more",
    "gini:5": "the worse-off count much more",
    "maximin": "only the worst-off counts",
}
"""Ideas of fairness in words."""


def in_words(welfare: str) -> str:
    """Return the name of a welfare in words."""
    return NAMES.get(welfare, welfare)


@dataclass(frozen=True)
class GroupRow:
    """A group over the whole span."""

    name: str
    arms: int
    realised: str
    promised: str
    interval: str
    share: str
    """Services per step."""
    longest: int
    delay: str
    verdict: str
    """`stored`, `ahead` or `behind`, in words."""
    kind: str
    """The class of the verdict."""


@dataclass(frozen=True)
class Looked:
    """View of the audit of a window."""

    audit: Audit
    groups: tuple[GroupRow, ...]
    drawing: Markup
    windows: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]
    """(steps, for each group (realised, promised, interval))."""
    names: tuple[str, ...]
    waiting: tuple[Any, ...]
    cards: tuple[dict[str, str], ...]
    cost: str
    unknown: tuple[tuple[str, str], ...]
    """Missing information, by name."""


@dataclass(frozen=True)
class Price:
    """View of the price of fairness."""

    drawing: Markup
    rows: tuple[dict[str, Any], ...]
    names: tuple[str, ...]
    """Names of the groups or types with values."""
    left_out: tuple[str, ...]


def look_back(programme: Programme, first: int | None, last: int | None) -> Looked:
    """The audit of a span.

    Args:
        programme: which.
        first: the first step; by default that of the programme.
        last: the last step; by default the last that was accepted.

    Raises:
        InvalidInput: no such steps were accepted.
    """
    books = programme.books(first, last)
    audit = audit_of(books)
    series, windows = _over_time(books)
    label = f"What an arm of each group got a step, over steps {audit.first} to {audit.last}, beside what was promised."
    return Looked(
        audit=audit,
        groups=tuple(_group(row) for row in audit.groups),
        drawing=charts.over_time(series, "value of an arm a step", f"{label} The table below has the same."),
        windows=windows,
        names=tuple(books.groups),
        waiting=audit.longest_waits(WAITING),
        cards=_cards(audit),
        cost=_cost(audit),
        unknown=tuple(unknown_facts(audit)),
    )


def report_of(programme: Programme, first: int | None, last: int | None) -> str:
    """The report of a span, to keep and to send; arguments as of `look_back`."""
    books = programme.books(first, last)
    return audit_page(audit_of(books), books, programme.status().name)


def _over_time(books: Books) -> tuple[list[charts.Series], tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]]:
    """Return the values of groups by part of the window, as series and as a table."""
    parts = fairness_over_time(books)
    series = [charts.Series(name, tuple(_points(parts, name))) for name in books.groups]
    fields = tuple((_steps(part), tuple(_cell(part.groups.get(name)) for name in books.groups)) for part in parts)
    return series, fields


def _points(parts: Sequence[Part], name: str) -> Iterator[charts.Point]:
    for part in parts:
        if (earned := part.groups.get(name)) is not None:
            yield charts.Point(part.last, earned.realised, earned.lower, earned.upper, earned.promised)


def _steps(part: Part) -> str:
    return f"{part.first} to {part.last}" if part.first < part.last else str(part.first)


def _cell(earned: Earned | None) -> tuple[str, str, str]:
    if earned is None:
        return ("–", "–", "–")
    return (figure(earned.realised, 3), figure(earned.promised, 3), _interval(earned.lower, earned.upper))


def _interval(lower: float, upper: float) -> str:
    return f"{figure(lower, 3)} to {figure(upper, 3)}"


def _group(row: MemberRow) -> GroupRow:
    earned, service = row.earned, row.service
    verdict, kind = (
        ("behind its promise beyond chance", "bad") if row.behind else ("as promised, but for chance", "good")
    )
    return GroupRow(
        name=row.name,
        arms=row.arms,
        realised=figure(earned.realised, 3),
        promised=figure(earned.promised, 3),
        interval=_interval(earned.lower, earned.upper),
        share=share(service.share, 1),
        longest=service.longest_wait,
        delay="–" if service.delay is None else figure(service.delay, 2),
        verdict=verdict,
        kind=kind,
    )


def _cards(audit: Audit) -> tuple[dict[str, str], ...]:
    worst, service = audit.group_value, audit.service
    served = sum(row.service.served for row in audit.groups)
    unseen = audit.unknown.unseen / max(audit.unknown.steps, 1)
    gini = "–" if service.gini_coefficient is None else figure(service.gini_coefficient, 2)
    return (
        {
            "name": "Worst-off group",
            "value": worst.worst_off,
            "more": f"{figure(worst.worst, 3)} a step; the mean of groups is {figure(worst.mean, 3)}",
        },
        {"name": "Served", "value": share(served / max(audit.unknown.steps, 1), 1), "more": "of the steps of all"},
        {
            "name": "How unequal is service?",
            "value": gini,
            "more": "Gini coefficient over arms: 0 is equal, 1 is all for one",
        },
        {"name": "Conditions not seen", "value": share(unseen), "more": "of steps of arms; beliefs were used there"},
    )


def _cost(audit: Audit) -> str:
    """Describe the cost of overrides."""
    if not audit.overrides:
        return "No plan was changed by hand."
    number, cost = counted(len(audit.overrides), "decision"), audit.override_cost
    if abs(cost) < 5e-4:
        return f"{number} changed by hand; together they cost next to nothing."
    verb = "cost" if cost > 0 else "gained"
    return f"{number} changed by hand; together they {verb} {figure(abs(cost), 3)} in value, by the model."


def price_of(answer: Mapping[str, Any]) -> Price:
    """Return the view of the price of fairness from the answer of its job.

    Args:
        answer: as `programme.views.price_of_fairness` gives it.
    """
    rows: Sequence[dict[str, Any]] = answer["rows"]
    spots = [charts.Spot(in_words(row["welfare"]), row["mean"], row["worst"], row["today"]) for row in rows]
    today = next((row for row in rows if row["today"]), rows[0])
    label = (
        f"Ideas of fairness by the mean and by the worst-off. Today's ({in_words(today['welfare'])}) has a mean of "
        f"{figure(today['mean'])} and gives the worst-off {figure(today['worst'])}."
    )
    fields = tuple(
        {
            "name": in_words(row["welfare"]),
            "today": row["today"],
            "mean": figure(row["mean"]),
            "worst": figure(row["worst"]),
            "price": share(max(row["price"], 0.0), 1),
            "values": [figure(value) for value in row["values"].values()],
        }
        for row in rows
    )
    drawing = charts.frontier(spots, "mean value", "value of the worst-off", f"{label} The table below has the same.")
    left_out = tuple(f"{in_words(name)}: {why}" for name, why in answer["left_out"].items())
    return Price(drawing, fields, tuple(rows[0]["values"]), left_out)
