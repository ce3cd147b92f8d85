"""Views of the price of fairness and of what-if plans: from results of jobs to sections of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

from evenhand.errors import InvalidInputError
from evenhand.model.objective import num_members, read_welfare
from evenhand.model.welfare import Welfare, structure
from evenhand.programme.certificates import Certificate
from evenhand.programme.counterfactuals import Supposed
from evenhand.programme.programme import Programme, Status
from evenhand.programme.web.figures import change_svg
from evenhand.report.format import amount, number, percent
from evenhand.report.summary import Figure, Section, table

SECONDS = 20.0
"""Approximate time limit of a what-if computation, in seconds."""

NAMES = {
    "utilitarian": "the best mean",
    "gini:1.2": "the worse-off count a little more",
    "gini:1.5": "the worse-off count somewhat more",
    "gini:2": "the worse-off count more",
    "gini:5": "the worse-off count much more",
    "maximin": "only the worst-off counts",
}
"""Welfares of the page, in words."""


def welfare_name(welfare: str) -> str:
    """Return the name of a welfare in words."""
    return NAMES.get(welfare, welfare)


def price_section(answer: Mapping[str, Any]) -> Section:
    """Return the price of fairness.

    Args:
        answer: JSON form of `counterfactuals.Prices`.
    """
    from evenhand.report.plots import trade_svg

    rows: Sequence[dict[str, Any]] = answer["rows"]
    names = [welfare_name(row["welfare"]) + (" (today)" if row["today"] else "") for row in rows]
    drawing = trade_svg([(name, row["mean"], row["worst"]) for name, row in zip(names, rows, strict=True)], "member")
    cells = [
        [name, number(row["mean"]), number(row["worst"]), percent(max(row["price"], 0.0)),
         *(number(value) for value in row["values"].values())]
        for name, row in zip(names, rows, strict=True)
    ]  # fmt: skip
    caption = (
        "Values of arms that start as in the model, under the best plan found for each welfare; the policy in use may "
        "differ from it in the last digits."
    )
    return Section(
        "",
        figures=[] if drawing is None else [Figure(drawing, caption)],
        tables=[
            table(
                "The price of fairness: values per welfare, and the share of the best mean that is given up",
                ["welfare", "mean", "worst-off", "price", *rows[0]["values"]],
                cells,
            )
        ],
        notes=[f"{welfare_name(name)}: {why}" for name, why in answer["left_out"].items()],
    )


@dataclass(frozen=True)
class Slider:
    """Budget to choose."""

    name: str
    value: float
    today: float
    most: float
    step: float


@dataclass(frozen=True)
class WhatIfView:
    """Form and answer of a what-if."""

    status: Status
    sliders: tuple[Slider, ...]
    welfares: tuple[tuple[str, str], ...]
    """(text form, name)."""
    is_scale: bool
    """Whether the welfares are ordered from the mean to the worst-off, as a slider needs."""
    chosen: str
    answer: Section | None
    prices: str
    """Dual prices; empty if unknown."""


def show_what_if(
    programme: Programme, request: Mapping[str, Any] | None, found: Mapping[str, Any] | None
) -> WhatIfView:
    """Return the view of a what-if.

    Args:
        programme: the programme.
        request: `budget` and `welfare` of the what-if; None without one.
        found: JSON form of its result, a `Supposed`.
    """
    status, supposed = programme.status(), None if found is None else Supposed.of(found)
    plan = programme.current_plan()
    today = (None if plan is None else plan.certificate) if supposed is None else supposed.today
    budget = status.budget | ((request or {}).get("budget") or {})
    welfare = (request or {}).get("welfare") or status.welfare
    welfares, is_scale = in_order(tuple(dict.fromkeys((*NAMES, status.welfare, welfare))), programme)
    prices = {} if today is None or today.prices is None else today.prices
    return WhatIfView(
        status=status,
        sliders=tuple(_slider(name, budget[name], there) for name, there in status.budget.items()),
        welfares=tuple((name, welfare_name(name) + " (today)" * (name == status.welfare)) for name in welfares),
        is_scale=is_scale,
        chosen=welfare,
        answer=None if supposed is None or today is None else _answer(status, budget, welfare, today, supposed),
        prices=", ".join(f"{name} {number(price, 3)}" for name, price in prices.items()),
    )


def in_order(names: Sequence[str], programme: Programme) -> tuple[tuple[str, ...], bool]:
    """Return welfares by the mean rank of their weight, and whether all have one.

    Args:
        names: text forms.
        programme: the programme whose members they are for.
    """
    try:
        problem = programme.present_problem()[0]
    except InvalidInputError:  # no arm takes part
        return tuple(names), False
    ranks = {name: _mean_rank(read_welfare(problem, name), num_members(problem)) for name in names}
    return tuple(sorted(names, key=lambda name: ranks[name])), all(map(isfinite, ranks.values()))


def _mean_rank(welfare: Welfare, members: int) -> float:
    """Order of welfares by the weight of the worst-off; infinite for those that depend on values."""
    ranked = structure(welfare, members).ranked
    if ranked is None:
        return inf
    return round(-float(ranked.rank_weights(members) @ np.arange(members)), 9)


def _slider(name: str, value: float, today: float) -> Slider:
    step = 1.0 if float(today).is_integer() else float(f"{max(today, 1e-9) / 20:.1g}")
    return Slider(name, value, today, max(2 * today, value, 1.0), step)


def _answer(status: Status, budget: Mapping[str, float], welfare: str, today: Certificate, then: Supposed) -> Section:
    same, more = welfare == status.welfare, then.difference
    rows = []
    if same:
        rows.append(compared("welfare", today.welfare, then.welfare, more is None or bool(more["measurable"])))
        rows.append(compared("upper bound", today.upper_bound, then.upper_bound))
    rows.append(compared("mean of all arms", _mean(today), _mean(then)))
    rows.append(compared("worst-off group", min(today.groups.values()), min(then.groups.values())))
    groups = {name: value for name, value in then.groups.items() if name in today.groups}
    rows += [compared(f"group {name}", today.groups[name], value) for name, value in groups.items()]
    amounts = [f"{amount(budget[name])} {name} (today {amount(there)})" for name, there in status.budget.items()]
    notes = [f"The plan found is within {percent(max(then.gap, 0.0))} of the upper bound."]
    notes += [] if same else ["Welfare is not compared: the two plans have different welfares."]
    return Section(
        "Supposed",
        paragraphs=[f"{', '.join(amounts)}; {welfare_name(welfare)}"],
        figures=[Figure(change_svg(today.groups, groups), "Value of an arm per group: today, and as supposed.")],
        tables=[table("Compared with the policy in use", ["", "today", "supposed", "difference"], rows)],
        notes=notes,
    )


def _mean(one: Certificate) -> float:
    values = {(row.type, row.group): row.value for row in one.values}
    total = sum(many for _, _, many in one.numbers)
    return sum(many * values[kind, group] for kind, group, many in one.numbers) / total


def compared(name: str, before: float, after: float, measurable: bool = True) -> list[str]:
    """Return a row: two numbers and their difference, which is 0 if both have the same digits."""
    texts = [number(before), number(after)]
    if not measurable:
        return [name, *texts, "no measurable difference"]
    more = after - before if texts[0] != texts[1] else 0.0
    return [name, *texts, f"{'+' if more > 0 else ''}{number(more, 3)}"]
