"""Fairness and what-if: audits of past steps, the price of fairness, and other budgets or welfares."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from evenhand.errors import EvenhandError, InvalidInputError
from evenhand.model.objective import num_members, read_welfare
from evenhand.model.welfare import Welfare, structure
from evenhand.planning.price_of_fairness import Recommendation
from evenhand.programme.api.jobs import Job
from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.api.service import service_of
from evenhand.programme.audit import Audit, audit_of
from evenhand.programme.audit_report import as_of, audit_page
from evenhand.programme.audit_window import Books
from evenhand.programme.certificates import Certificate
from evenhand.programme.counterfactuals import StateNumber, Supposed
from evenhand.programme.programme import Programme, Status
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web.forms import Form, refusal_of
from evenhand.programme.web.layout import Sending, failure_of, programme_of, query_of, show, to, words_of, work_of
from evenhand.report.format import amount, capitalised, listed, number, percent, shortened
from evenhand.report.html import page
from evenhand.report.summary import Figure, Section, Summary, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

router = APIRouter(include_in_schema=False)

LAST = "evenhand_what_if"
"""The cookie with the last what-if, so that its answer is there when one comes back."""

NAMES = {
    "utilitarian": "the best mean",
    "gini:half=0.6": "the worse-off count a little more",
    "gini:half=0.75": "the worse-off count more",
    "gini:half=0.9": "the worse-off count much more",
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
        audit, view = _audited(_books(request), status.name)
        view = words.summary(view)
    except EvenhandError as caught:
        error = words.reworded(caught)
        nothing = f"There is nothing to look back on yet: {error}."
        if query.text("first") or query.text("last"):
            refusal = refusal_of(error, words.say("These steps cannot be audited"))
    if query.text("job"):
        refusal = refusal or failure_of(job, "The price of fairness was not computed")
    work = work_of(job, "The price of fairness is being computed", "/fairness")
    price = _price_section(job.answer, status.welfare, words) if job is not None and job.answer else None
    values: dict[str, Any] = {"audit": audit, "view": view, "nothing": nothing, "job": work, "price": price}
    return show(request, "fairness", "Fairness", refusal, None, **values)


def _audited(books: Books, name: str) -> tuple[Audit, Summary]:
    """Return an audit and its page."""
    found, view = _audit_and_page(books, name)
    return replace(found, event=books.event), replace(view, made=as_of(books.event))


@lru_cache(maxsize=2)
def _audit_and_page(books: Books, name: str) -> tuple[Audit, Summary]:
    """Return an audit and its page, the same for equal accounts: those that differ in their last event alone."""
    found = audit_of(books)
    return found, audit_page(found, books, name)


def _books(request: Request) -> Books:
    """Return the accounts of the steps of the address."""
    texts, words = [query_of(request).text(name) for name in ("first", "last")], words_of(request)
    first, last = (words.find_step(text) if text else None for text in texts)
    return programme_of(request).books(first, last)


@router.get("/fairness/report")
def report(request: Request) -> Response:
    """Return the audit of a window as a file."""
    found = words_of(request).summary(_audited(_books(request), programme_of(request).status().name)[1])
    return Response(
        page(found), media_type="text/html", headers={"Content-Disposition": 'attachment; filename="report.html"'}
    )


@router.post("/fairness/price")
async def price(request: Request, form: Sending) -> Response:
    """Compute the price of fairness, in the background."""
    service = service_of(request)
    return to("/fairness", job=service.jobs.submit(await service.price(request.state.holder.name)).id)


def _price_section(answer: Mapping[str, Any], own: str, words: Vocabulary) -> Section:
    """Return the price of fairness from the JSON form of `PriceOfFairness`; the programme's own welfare is marked."""
    from evenhand.report.plots import trade_svg

    rows: Sequence[dict[str, Any]] = sorted(answer["rows"], key=lambda row: (row["worst"], -row["mean"]))
    ideas = NAMES | {"maximin over groups": f"only the worst-off {words.group.one} counts"}
    names = [ideas.get(row["welfare"], row["welfare"]) + " (today)" * (row["welfare"] == own) for row in rows]
    who = words.group.one if answer["over"] == "groups" else words.arm.one
    drawing = trade_svg([(name, row["mean"], row["worst"]) for name, row in zip(names, rows, strict=True)], who)
    groups = [row.get("groups") or row["values"] for row in rows]
    # The price is a share of the mean that is best for the members: of groups it is not that of their arms.
    both = answer["over"] == "groups"
    cells, people = [], []
    for name, row, each in zip(names, rows, groups, strict=True):
        means = [number(row["mean_of_arms"]), *([number(row["mean"])] if both else [])]
        figures = [*means, percent(max(row["price"], 0.0)), number(row["worst"])]
        cells.append([name, *figures, *map(number, each.values())])
        moved = [f"+{row['gaining'][one]:,} −{row['losing'][one]:,}" for one in row["gaining"]]
        people.append([name, *(f"{sum(row[way].values()):,}" for way in ("gaining", "losing")), *moved])
    advice = Recommendation(**{name: value for name, value in answer["recommended"].items() if name != "reason"})
    reason = advice.reason(words.arm.one, words.arm.many, words.group.one)
    caption = (
        f"Values of {words.arm.many} that start as in the model, under the best plan found for each idea; the "
        "policy in use may differ from it in the last digits."
    )
    means = [f"mean of {words.arm.many}", *([f"mean of {words.group.many}"] if both else [])]
    heads = ["best plan for", *means, "given up", f"worst-off {who}", *groups[0]]
    gains = f"{capitalised(words.arm.many)} that gain and lose beside the best mean, by more than chance explains"
    return Section(
        "",
        paragraphs=[f"Recommended: {ideas.get(advice.welfare, advice.welfare)}. {reason}"],
        figures=[] if drawing is None else [Figure(drawing, caption)],
        tables=[
            table(
                f"The price of fairness: {words.value}, and the share of the best {means[-1]} given up", heads, cells
            ),
            table(gains, ["best plan for", "gain", "lose", *rows[0]["gaining"]], people),
        ],
        notes=[f"{ideas.get(name, name)}: {why}" for name, why in answer["left_out"].items()],
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
        "answer": _answer(status, words, welfare, today, found) if found and today else None,
        "prices": listed([f"{number(price, 3)} per {words.resource(name).one}" for name, price in prices.items()]),
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


def _answer(status: Status, words: Vocabulary, welfare: str, today: Certificate, then: Supposed) -> Section:
    same, more, value = welfare == status.welfare, then.difference, capitalised(words.value)
    measurable = more is None or bool(more["measurable"])
    rows = []
    if same:
        rows.append(compared("fair mean, by what is fair", today.welfare, then.welfare, measurable))
        rows.append(compared("the most that any plan gives", today.upper_bound, then.upper_bound))
    rows.append(compared(f"mean of all {words.arm.many}", _mean(today), _mean(then), measurable))
    rows.append(
        compared(f"worst-off {words.group.one}", min(today.groups.values()), min(then.groups.values()), measurable)
    )
    groups = {name: value for name, value in then.groups.items() if name in today.groups}
    rows += [compared(f"{words.group.one} {name}", today.groups[name], value) for name, value in groups.items()]
    amounts = [
        f"{words.resource(name).counted(then.budget[name])} (today {amount(there)})"
        for name, there in status.budget.items()
    ]
    notes = [f"The plan found is within {percent(max(then.gap, 0.0))} of the most that any plan gives."]
    if more is not None and more.get("by_plan"):
        notes.append(
            f"A better plan for today’s budget was found on the way, by {number(more['by_plan'], 2)} in the "
            "fair mean: that part needs no other budget, only a new search for a plan."
        )
    notes += [] if same else ["The fair mean is not compared: the two plans have different ideas of what is fair."]
    states = [compared(one.state, one.today, one.then, one.measurable) for one in then.states]
    caption = f"{words.arm.many} in each condition in an average {words.step.one}"
    heads = ["", "today", "supposed", "difference"]
    return Section(
        "Supposed",
        paragraphs=[
            f"{', '.join(amounts)}; {NAMES.get(welfare, welfare)}",
            *people_sentences(then.states, sum(status.arms.values()), words),
        ],
        figures=[
            Figure(
                change_svg(today.groups, groups),
                f"{capitalised(words.value)} per {words.group.one}: today, and as supposed.",
            )
        ],
        tables=[
            *([table(capitalised(caption), heads, states)] if states else []),
            table(f"{value}, by today’s plan and by the supposed one", heads, rows),
        ],
        notes=notes,
    )


def people_sentences(states: Sequence[StateNumber], total: int, words: Vocabulary) -> list[str]:
    """Return the difference of a what-if in arms: "About 2 more patients in stable.", and the most it could be.

    Args:
        states: from `Supposed.states`.
        total: number of arms.
        words: of the programme.
    """
    if not states:
        return []
    first, by = states[0], states[0].then - states[0].today
    if all(one.then == one.today for one in states):
        return ["No change."]
    if not first.measurable:
        return [f"No measurable difference: about as many {words.arm.many} in each condition as today."]
    rest = [one for one in states[1:] if one.measurable and (one.then - one.today) * by < 0]
    moved: list[str] = []
    for one in (first, *sorted(rest, key=lambda one: -abs(one.then - one.today))[:1]):
        size = number(abs(one.then - one.today), 1 if abs(one.then - one.today) < 10 else 2)
        noun = "" if moved else f" {words.arm.one if size == '1' else words.arm.many}"
        moved.append(f"{size} {'more' if one.then > one.today else 'fewer'}{noun} in “{one.state}”")
    found = [f"About {' and '.join(moved)}, of {total:,}, in an average {words.step.one}."]
    if first.at_most is not None:
        most = first.at_most - first.today
        limit = f"at most {number(most, 2)} more" if most > 0 else f"at least {number(-most, 2)} fewer"
        found.append(f"With any plan for this budget: {limit} in “{first.state}” than today.")
    return found


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
        # From 0, so that lengths are proportional to values.
        axes.set_xlim(min(0.0, *before, *after), 1.04 * max(0.0, *before, *after) or None)
        axes.grid(axis="x")
        figure.legend(loc="outside upper left", ncols=2)

    texts = "; ".join(f"{name}: {number(then[name])}, today {number(today[name])}" for name in names)
    return svg("change", f"Values of the groups. {texts}.", Plot(0.9 + 0.35 * len(names), draw))
