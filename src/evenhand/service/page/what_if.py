"""The view of what if: other budgets, another idea of fairness, and what they would give, beside today's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
from markupsafe import Markup

from evenhand.errors import InvalidInput
from evenhand.model.objective import num_members, read_welfare
from evenhand.model.welfare import RankWeighted, Welfare
from evenhand.programme.programme import Programme, Status
from evenhand.programme.solving import Certificate
from evenhand.programme.views import Supposed
from evenhand.service.page import charts
from evenhand.service.page.fairness import NAMES, in_words
from evenhand.service.page.telling import MINUS, amount, figure, share

SECONDS = 20.0
"""Approximate limit of a what-if computation, in seconds."""


@dataclass(frozen=True)
class Slider:
    """A budget to choose."""

    name: str
    value: float
    today: float
    most: float
    step: float


@dataclass(frozen=True)
class Compared:
    """One figure beside today's."""

    name: str
    before: str
    after: str
    difference: str


@dataclass(frozen=True)
class Answer:
    """View of a what-if and its results."""

    words: str
    rows: tuple[Compared, ...]
    groups: tuple[Compared, ...]
    drawing: Markup
    sure: str
    same_welfare: bool


@dataclass(frozen=True)
class Supposing:
    """All that the view shows."""

    status: Status
    sliders: tuple[Slider, ...]
    ideas: tuple[tuple[str, str], ...]
    """(text form, words)."""
    is_scale: bool
    """Whether the welfares are ordered from the mean to the worst-off, as a slider needs."""
    chosen: str
    answer: Answer | None
    prices: tuple[tuple[str, str], ...]
    """Dual price, if known."""


def show_what_if(programme: Programme, request: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> Supposing:
    """The view.

    Args:
        programme: which.
        request: what was supposed, `budget` and `welfare`; None where nothing was.
        found: its result, a `Supposed` as JSON.
    """
    status = programme.status()
    supposed = None if found is None else Supposed.of(found)
    today = _known(programme) if supposed is None else supposed.today
    budget = dict(status.budget) | dict((request or {}).get("budget") or {})
    welfare = (request or {}).get("welfare") or status.welfare
    ideas, is_scale = in_order(tuple(dict.fromkeys((*NAMES, status.welfare, welfare))), programme)
    return Supposing(
        status=status,
        sliders=tuple(_slider(name, budget[name], there) for name, there in status.budget.items()),
        ideas=tuple((name, in_words(name) + (" (today)" if name == status.welfare else "")) for name in ideas),
        is_scale=is_scale,
        chosen=welfare,
        answer=None if supposed is None or today is None else _answer(status, budget, welfare, today, supposed),
        prices=() if today is None or today.prices is None else _prices(today.prices),
    )


def in_order(names: Sequence[str], programme: Programme) -> tuple[tuple[str, ...], bool]:
    """Ideas from the best mean to the worst-off alone, by the mean rank of the weight; and whether all have one.

    Args:
        names: their text forms.
        programme: for whose members.
    """
    try:
        problem = programme.present_problem()[0]
    except InvalidInput:  # no arm takes part
        return tuple(names), False
    ranks = {name: _mean_rank(read_welfare(problem, name), num_members(problem)) for name in names}
    return tuple(sorted(names, key=lambda name: ranks[name])), all(map(isfinite, ranks.values()))


def _mean_rank(welfare: Welfare, members: int) -> float:
    """Order of welfares by the weight of the worst-off; infinite for those that depend on values."""
    if not isinstance(welfare, RankWeighted):
        return inf
    return round(-float(welfare.rank_weights(members) @ np.arange(members)), 9)


def _known(programme: Programme) -> Certificate | None:
    """Return the known certificate of today's policy, without computation."""
    plan = programme.current_plan()
    return None if plan is None else plan.certificate


def _slider(name: str, value: float, today: float) -> Slider:
    whole = float(today).is_integer()
    step = 1.0 if whole else float(f"{max(today, 1e-9) / 20:.1g}")
    return Slider(name, value, today, max(2 * today, value, 1.0), step)


def _prices(prices: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    return tuple((name, figure(price, 3)) for name, price in prices.items())


def _answer(status: Status, budget: Mapping[str, float], welfare: str, today: Certificate, then: Supposed) -> Answer:
    same, more = welfare == status.welfare, then.difference
    pairs = [
        charts.Pair(name, today.groups[name], value) for name, value in then.groups.items() if name in today.groups
    ]
    label = "; ".join(f"{pair.name}: {figure(pair.after)}, today {figure(pair.before)}" for pair in pairs)
    measurable = more is None or bool(more["measurable"])
    rows = [_compared("Welfare", today.welfare, then.welfare, measurable)] if same else []
    rows += [_compared("No plan could give more than", today.upper_bound, then.upper_bound)] if same else []
    worst = min(today.groups.values()), min(then.groups.values())
    return Answer(
        words=_words(status, budget, welfare),
        rows=(*rows, _compared("Mean of all arms", _mean(today), _mean(then)), _compared("Worst-off group", *worst)),
        groups=tuple(_compared(pair.name, pair.before, pair.after) for pair in pairs),
        drawing=charts.side_by_side(pairs, "today", "supposed", f"Values of the groups. {label}."),
        sure=f"The plan found is within {share(max(then.gap, 0.0), 1)} of the best there could be.",
        same_welfare=same,
    )


def _words(status: Status, budget: Mapping[str, float], welfare: str) -> str:
    """Return the budget and welfare of a form."""
    fields = [f"{amount(budget[name])} {name} (today {amount(there)})" for name, there in status.budget.items()]
    return f"{', '.join(fields)}; {in_words(welfare)}"


def _mean(one: Certificate) -> float:
    """Over all arms."""
    values = {(row.type, row.group): row.value for row in one.values}
    total = sum(many for _, _, many in one.numbers)
    return sum(many * values[kind, group] for kind, group, many in one.numbers) / total


def _compared(name: str, before: float, after: float, measurable: bool = True) -> Compared:
    fields = figure(before), figure(after)
    if not measurable:
        return Compared(name, *fields, "no measurable difference")
    more = (
        after - before if fields[0] != fields[1] else 0.0
    )  # what cannot be seen in them is no difference: it is chance
    sign = "+" if more > 0 else MINUS if more < 0 else ""
    return Compared(name, *fields, f"{sign}{figure(abs(more), 3)}")
