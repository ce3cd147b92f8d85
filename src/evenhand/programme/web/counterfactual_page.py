"""Fairness and what-if: audits of past steps, the price of fairness, and other budgets or welfares."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError, InvalidInputError
from evenhand.model.objective import num_members, read_welfare
from evenhand.model.welfare import Welfare, structure
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.api.service import service_of
from evenhand.programme.audit import audit_of
from evenhand.programme.audit_report import audit_page
from evenhand.programme.audit_window import Books
from evenhand.programme.certificates import Certificate
from evenhand.programme.counterfactuals import Supposed
from evenhand.programme.programme import Programme, Status
from evenhand.programme.web.forms import Form, refusal_of
from evenhand.programme.web.layout import Sending, failure_of, programme_of, query_of, show, to, words_of, work_of
from evenhand.report.format import amount, number, percent, shortened
from evenhand.report.html import page
from evenhand.report.summary import Figure, Section, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

router = APIRouter(include_in_schema=False)

LAST = "evenhand_what_if"
"""The cookie with the last what-if, so that its answer is there when one comes back."""

NAMES = {
    "utilitarian": "the best mean",
    "gini:1.2": "the worse-off count a little more",
    "gini:1.5": "the worse-off count somewhat more",
    "gini:2": "the worse-off count more",
    "gini:5": "the worse-off count much more",
    "maximin": "only the worst-off counts",
}
"""Welfares of the page, in words."""


# Fairness


@router.get("/fairness")
async def show_fairness(request: Request) -> Response:
    """Show promised and realised values of groups, waiting times, and the price of fairness."""
    service = service_of(request)
    job = service.jobs.find((await service.price("")).id)
    return await run_in_threadpool(_fairness, request, job)


def _fairness(request: Request, job: Job | None) -> Response:
    query, status, words = query_of(request), programme_of(request).status(), words_of(request)
    refusal, audit, view, nothing = None, None, None, ""
    try:
        books = _books(request)
        audit = audit_of(books)
        view = words.summary(audit_page(audit, books, status.name))
    except EvenhandError as caught:
        error = words.reworded(caught)
        nothing = f"There is nothing to look back on yet: {error}."
        if query.text("first") or query.text("last"):
            refusal = refusal_of(error, words.say("These steps cannot be audited"))
    if query.text("job"):
        refusal = refusal or failure_of(job, "The price of fairness was not computed")
    work = work_of(job, "The price of fairness is being computed", "/fairness")
    price = words.summary(_price_section(job.answer, status.welfare)) if job is not None and job.answer else None
    values: dict[str, Any] = {"audit": audit, "view": view, "nothing": nothing, "job": work, "price": price}
    return show(request, "fairness", "Fairness", refusal, None, **values)


def _books(request: Request) -> Books:
    """Return the accounts of the steps of the address."""
    texts, words = [query_of(request).text(name) for name in ("first", "last")], words_of(request)
    first, last = (words.find_step(text) if text else None for text in texts)
    return programme_of(request).books(first, last)


@router.get("/fairness/report")
def report(request: Request) -> Response:
    """Return the audit of a window as a file."""
    books = _books(request)
    found = words_of(request).summary(audit_page(audit_of(books), books, programme_of(request).status().name))
    return Response(
        page(found), media_type="text/html", headers={"Content-Disposition": 'attachment; filename="report.html"'}
    )


@router.post("/fairness/price")
async def price(request: Request, form: Sending) -> Response:
    """Compute the price of fairness, in the background."""
    service = service_of(request)
    return to("/fairness", job=service.jobs.submit(await service.price(request.state.holder.name)).id)


def _price_section(answer: Mapping[str, Any], own: str) -> Section:
    """Return the price of fairness from the JSON form of `PriceOfFairness`; the programme's own welfare is marked."""
    from evenhand.report.plots import trade_svg

    rows: Sequence[dict[str, Any]] = sorted(answer["rows"], key=lambda row: (row["worst"], -row["mean"]))
    names = [_welfare_name(row["welfare"], own) for row in rows]
    drawing = trade_svg([(name, row["mean"], row["worst"]) for name, row in zip(names, rows, strict=True)], "member")
    values = [row.get("groups") or row["values"] for row in rows]
    cells = [
        [name, number(row["mean"]), number(row["worst"]), percent(max(row["price"], 0.0)), *map(number, each.values())]
        for name, row, each in zip(names, rows, values, strict=True)
    ]
    caption = (
        "Values of arms that start as in the model, under the best plan found for each welfare; the policy in use may "
        "differ from it in the last digits."
    )
    title = "The price of fairness: values per welfare, and the share of the best mean that is given up"
    return Section(
        "",
        figures=[] if drawing is None else [Figure(drawing, caption)],
        tables=[table(title, ["welfare", "mean", "worst-off", "price", *values[0]], cells)],
        notes=[f"{NAMES.get(name, name)}: {why}" for name, why in answer["left_out"].items()],
    )


def _welfare_name(welfare: str, own: str) -> str:
    return NAMES.get(welfare, welfare) + " (today)" * (welfare == own)


# What if


@router.get("/what-if")
async def show_what_if(request: Request) -> Response:
    """Show other budgets or another welfare."""
    number = query_of(request).text("job")
    job = service_of(request).jobs.find(number or request.cookies.get(LAST, ""))
    return await run_in_threadpool(_what_if, request, job if number or (job is not None and job.answer) else None)


def _what_if(request: Request, job: Job | None, form: Form | None = None, refusal: ErrorView | None = None) -> Response:
    programme = programme_of(request)
    arguments = job.arguments if job is not None and job.kind == "what-if" else {}
    found = Supposed.of(job.answer) if job is not None and arguments and job.answer else None
    status, plan, words = programme.status(), programme.current_plan(), programme.vocabulary()
    today = found.today if found else plan.certificate if plan else None
    budget, welfare = status.budget | (arguments.get("budget") or {}), arguments.get("welfare") or status.welfare
    welfares, is_scale = in_order(tuple(dict.fromkeys((*NAMES, status.welfare, welfare))), programme)
    prices = (today.prices if today else None) or {}
    view = {
        "sliders": [_slider(name, budget[name], there) for name, there in status.budget.items()],
        "welfares": [(name, _welfare_name(name, status.welfare)) for name in welfares],
        "is_scale": is_scale,
        "chosen": welfare,
        "place": welfares.index(welfare),
        "answer": words.summary(_answer(status, budget, welfare, today, found)) if found and today else None,
        "prices": ", ".join(f"{words.resource(name).one} {number(price, 3)}" for name, price in prices.items()),
    }
    refusal = refusal or failure_of(job, "Nothing was computed")
    work = work_of(job, "The best plan is being looked for", "/what-if")
    return show(request, "what_if", "What if", refusal, form, view=view, job=work)


@router.post("/what-if")
async def suppose(request: Request, form: Sending) -> Response:
    """Compute a what-if, in the background; an invalid one is refused before."""
    programme, service = programme_of(request), service_of(request)

    def read() -> dict[str, Any]:
        status, (problem, _, _) = programme.status(), programme.present_problem()
        budget, welfare = form.budget(status.budget), form.text("welfare") or status.welfare
        read_welfare(problem if budget is None else problem.with_budget(budget), welfare)
        own = None if welfare == status.welfare else welfare
        return {"budget": budget, "welfare": own, "seconds": service.settings.what_if_seconds}

    try:
        arguments = await run_in_threadpool(read)
    except EvenhandError as error:
        return await run_in_threadpool(
            _what_if, request, None, form, refusal_of(words_of(request).reworded(error), "Nothing was computed")
        )
    job = await service.suppose(arguments, request.state.holder.name)
    await job.ended(1.0)
    answer = to("/what-if", job=job.id)
    answer.set_cookie(LAST, job.id, httponly=True, samesite="strict")
    return answer


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
    return inf if ranked is None else round(-float(ranked.rank_weights(members) @ np.arange(members)), 9)


def _slider(name: str, value: float, today: float) -> dict[str, Any]:
    step = 1.0 if float(today).is_integer() else float(f"{max(today, 1e-9) / 20:.1g}")
    return {"name": name, "value": value, "today": today, "most": max(2 * today, value, 1.0), "step": step}


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
        paragraphs=[f"{', '.join(amounts)}; {NAMES.get(welfare, welfare)}"],
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


def change_svg(today: Mapping[str, float], then: Mapping[str, float]) -> str:
    """Return the values of groups today (rings) and under a what-if plan (dots)."""
    from evenhand.report.plots import BLUE, FAINT, Plot, svg

    names = [name for name in then if name in today]
    rows = range(len(names))

    def draw(figure: "Drawing") -> None:
        axes = figure.subplots()
        before, after = [today[name] for name in names], [then[name] for name in names]
        axes.hlines(rows, before, after, color=FAINT, linewidth=0.8)
        axes.plot(before, rows, "o", color=FAINT, markerfacecolor="white", label="today")
        axes.plot(after, rows, "o", color=BLUE, label="supposed")
        axes.set_yticks(rows, [shortened(name, 24) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(left=min(0.0, *before, *after))  # from 0, so that lengths are proportional to values
        axes.grid(axis="x")
        figure.legend(loc="outside upper left", ncols=2)

    texts = "; ".join(f"{name}: {number(then[name])}, today {number(today[name])}" for name in names)
    return svg("change", f"Values of the groups. {texts}.", Plot(0.9 + 0.35 * len(names), draw))
