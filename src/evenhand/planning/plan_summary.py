"""Summary of a plan: the conditions that it serves in their order, and the value of one more unit of budget.

A *condition* is a type and a state. Policies that serve by rank have an order of conditions. Tables and networks have
none: they are simulated for a short time from the plan's own start, and conditions are ordered by the frequency of
service,

    share(t, s, a) = visits of (t, s) in which a is given / visits of (t, s),

weighted over time as the criterion weights rewards. A mixture is described by the first conditions that its parts have
in common, and by those that come next in each part.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from evenhand.display import counted
from evenhand.evaluation import simulate, simulate_counts
from evenhand.evaluation.standard_errors import CONFIDENCE
from evenhand.model import CoupledMDP, Finite
from evenhand.model.composite import is_time_varying, redraw_period
from evenhand.model.explanations import ServedCondition, ServiceOrder
from evenhand.model.labels import Labels, amount_of, listed, one_more, promises_in_words, quantity
from evenhand.model.policy import Policy, StatefulPolicy, described, plays_by_counts
from evenhand.planning.plan import Plan, PlanPart

ARM_STEPS, STEPS = 2e4, 60
"""Steps of arms, and steps of an episode, for which a policy without ranks is simulated."""

MOST_ARMS = 2_000
"""Arms up to which it is simulated arm by arm; beyond, by counts if it can be."""

SHORT, LONG = 3, 12
"""Conditions in the short and in the long form."""

SHADES, WIDTH = "█▓▒░", 110
"""Shades from the first to the last in the order, and characters of a line."""

SLOPE_OF_BOUND = "the gain of a plan may be larger or smaller: solve again with that budget"
"""Remark beside the slope of a bound."""

# -- the order of service --------------------------------------------------------------------------------------------


def order_of(policy: Policy | StatefulPolicy, problem: CoupledMDP, step: int = 0) -> ServiceOrder:
    """Return the order of service of a policy: its own, else the frequencies of a simulation.

    Args:
        policy: not a mixture.
        problem: the problem it was made for.
        step: the step of a time-varying policy, from 0.
    """
    own = described(policy)
    if (order := own.service_order(step)) is not None:
        return order
    if problem.num_arms > MOST_ARMS and not plays_by_counts(policy):
        return ServiceOrder((), f"{own.decides}; there are too many arms to simulate it here", ranked=False)
    return _simulated_order(problem, policy, own.decides)


def _simulated_order(problem: CoupledMDP, policy: Policy | StatefulPolicy, how: str) -> ServiceOrder:
    types, criterion = problem.types, problem.criterion
    _, S, A = types.valid.shape
    if isinstance(criterion, Finite) and criterion.steps > STEPS:
        criterion, how = replace(criterion, steps=STEPS), f"{how}, in its first {STEPS} steps"
    steps = STEPS if criterion.is_stationary else criterion.num_layers
    problem = problem.with_criterion(criterion)
    episodes = int(np.clip(ARM_STEPS / (problem.num_arms * steps), 4, 50))
    # One reward function per cell, 1 there and 0 elsewhere: returns are then visits.
    cells = np.zeros((S * A, *types.valid.shape))
    for number, (state, action) in enumerate(np.ndindex(S, A)):
        cells[number, :, state, action] = 1.0
    if problem.num_arms > MOST_ARMS:
        by_type = simulate_counts(problem, policy, episodes, steps, 0, rewards=cells)
        visits = by_type.returns.mean(axis=1).T
    else:
        by_arm = simulate(problem, policy, episodes, steps, 0, rewards=cells).returns.mean(axis=1)
        visits = np.stack([by_arm[:, problem.type_of_arm == kind].mean(axis=1) for kind in range(problem.num_types)])
    visits = visits.reshape(problem.num_types, S, A)
    present = visits.sum(axis=2)
    shares = np.where(types.served, visits, 0.0) / np.where(present > 0, present, 1.0)[:, :, None]
    # Conditions are left out if arms are hardly ever in them, or hardly ever served there.
    frequent = (present > 1e-3 * present.sum(axis=1, keepdims=True)) & (shares.max(axis=2) > 5e-3)
    rows = [
        ServedCondition(0, kind, state, int(shares[kind, state].argmax()), float(shares[kind, state].max()))
        for kind, state in np.argwhere(frequent).tolist()
    ]
    # Two digits decide the order: the simulation has no more.
    rows.sort(key=lambda row: (-round(row.share or 0.0, 2), row.kind, row.state))
    return ServiceOrder(tuple(row._replace(level=i) for i, row in enumerate(rows, start=1)), how, ranked=False)


# -- in words --------------------------------------------------------------------------------------------------------


def often(share: float, what: str = "times") -> str:
    """Return a frequency as `always` or `86 of 100 times`; one drawn for good is counted in `starts`."""
    if share == 0:  # never drawn, but used to fill up the budget
        return "if budget is left"
    if share < 0.005:
        return "hardly ever"
    return "always" if share > 0.995 else f"{100 * share:.0f} of 100 {what}"


def often_each(shares: Sequence[float], what: str = "times") -> list[str]:
    """The same for shares that sum to 1: whole hundredths that sum to 100, by the largest remainders."""
    hundredths = [100 * share for share in shares]
    whole = [math.floor(share + 1e-9) for share in hundredths]
    rest = sorted(range(len(whole)), key=lambda i: (round(whole[i] - hundredths[i], 9), i))
    for i in rest[: round(sum(hundredths)) - sum(whole)]:
        whole[i] += 1
    return [often(share if part == 0 else part / 100, what) for share, part in zip(shares, whole, strict=True)]


def levels_of(order: ServiceOrder, labels: Labels, shares: bool = True) -> list[tuple[str, ...]]:
    """Return the conditions of each level, such as `Ford and Opel in poor (overhaul)`: types that read alike together.

    Args:
        order: an order of service.
        labels: labels of its problem.
        shares: whether to add frequencies.
    """
    levels: dict[int, dict[str, list[int]]] = {}
    for row in order.rows:
        share = "" if row.share is None or not shares else f", {often(row.share)}"
        text = f"{labels.being(row.kind, row.state)} ({labels.doing(row.kind, row.action)}{share})"
        levels.setdefault(row.level, {}).setdefault(text, []).append(row.kind)
    return [tuple(f"{labels.types(kinds)} {text}" for text, kinds in own.items()) for own in levels.values()]


def level_words(conditions: Sequence[str]) -> str:
    """Return the conditions of one level in a line: two by name, of more the first."""
    first, *rest = conditions
    return first if not rest else f"{first} and {rest[0] if len(rest) == 1 else len(rest)} alike"


def short_words(order: ServiceOrder, labels: Labels, skip: int = 0) -> str:
    """Return the first few conditions in one line, without the first `skip` levels."""
    if not order.rows:
        return order.how
    levels = levels_of(order, labels, shares=not order.ranked)[skip:]
    more = f", then {len(levels) - SHORT} more" if len(levels) > SHORT else ""
    return listed(map(level_words, levels[:SHORT])) + more if levels else "no others, in just this order"


class PartWords(NamedTuple):
    """Description of one part of a plan."""

    part: PlanPart
    """The part."""

    words: str
    """Conditions that it serves first, after those common to all parts."""

    order: ServiceOrder
    """The whole order."""


def parts_of(plan: Plan, step: int = 0) -> tuple[list[PartWords], list[str]]:
    """Return the parts of a plan, the largest share first, and the levels that all of them begin with."""
    labels, parts = Labels(plan.problem), plan.parts
    orders = [order_of(part.policy, plan.problem, step) for part in parts]
    common: list[str] = []
    if plan.is_mixture and all(order.ranked and order.rows for order in orders):
        levels = zip(*(levels_of(order, labels, shares=False) for order in orders), strict=False)
        alike = takewhile(lambda level: len(set(level)) == 1, levels)
        common = [level_words(level[0]) for level in alike]
    texts = [short_words(order, labels, len(common)) for order in orders]
    if plan.is_mixture:
        texts = [f"{text}; {order.how}" if order.rows else text for text, order in zip(texts, orders, strict=True)]
    return list(map(PartWords, parts, texts, orders)), common


def worth_of_more(problem: CoupledMDP, prices: dict[str, float] | None, scale: float) -> list[str]:
    """Return the rise of the bound by one more unit of each resource, such as `a fourth bay: nothing`, largest first.

    That is the slope of the relaxation in the budget, whose bound is concave: no more than this.

    Args:
        problem: with the budget.
        prices: dual prices by resource, or None.
        scale: the welfare.
    """
    amounts = dict(zip(problem.resource_names, problem.budget.tolist(), strict=True))
    rows = sorted(((name, price) for name, price in (prices or {}).items() if name in amounts), key=lambda row: -row[1])
    texts = []
    for name, price in rows:
        rise = f"at most {price:.4f}" if price >= 5e-5 else "less than 0.0001"
        # The tolerance of the relaxation is about 1e-6 of the welfare.
        text = "nothing" if price <= 1e-6 * max(1.0, abs(scale)) else f"the bound rises by {rise}"
        texts.append(f"{one_more(name)}: {text}")
    return texts


# -- as a picture ----------------------------------------------------------------------------------------------------


def picture(order: ServiceOrder, problem: CoupledMDP) -> list[str]:
    """Return a line per type and a column per state, with the place in the order and the action.

    Empty if it would be too large, or types differ in their states.
    """
    labels, types = Labels(problem), problem.types
    if not order.rows or problem.num_types > 30 or types.valid.shape[1] > 8:
        return []
    names = [[labels.state(kind, state) for state in range(types.num_states[kind])] for kind in range(len(types))]
    if any(own != names[0] for own in names):
        return []
    last = max(row.level for row in order.rows)
    cells = {(row.kind, row.state): _cell(row, labels, last, order) for row in order.rows}
    rows: dict[tuple[str, ...], list[int]] = {}
    for kind in range(len(types)):
        texts = [cells.get((kind, state), "·") for state in range(len(names[0]))]
        rows.setdefault((labels.base(kind), *texts), []).append(kind)
    lines = [["", *names[0]], *([labels.types(kinds), *texts] for (_, *texts), kinds in rows.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(text.ljust(size) for text, size in zip(line, widths, strict=True)).rstrip() for line in lines]


def _cell(row: ServedCondition, labels: Labels, last: int, order: ServiceOrder) -> str:
    action = labels.doing(row.kind, row.action)
    if not order.ranked:
        share = row.share or 0.0
        return f"{SHADES[min(int(4 * (1 - share)), 3)]} {100 * share:.0f} % {action}"
    times = "" if row.share is None or row.share > 0.995 else f" {100 * row.share:.0f} %" if row.share else "*"
    return f"{SHADES[min(int(4 * (row.level - 1) / max(last, 1)), 3)]} {order.place(row)} {action}{times}"


# -- the whole -------------------------------------------------------------------------------------------------------


def show_plan(plan: Plan, step: int = 0) -> str:
    """Return a plan as text and a small picture."""
    parts, common = parts_of(plan, step)
    lines = [*_wrapped(_title(plan)), "", *_certificate(plan)]
    if plan.is_mixture:
        lines += ["", f"One of {len(parts)} ways to serve, {drawn_words(plan)}:"]
        if common:
            beginning = listed(common[:LONG]) + (" ..." if len(common) > LONG else "")
            lines += _wrapped(f"all of them serve first {beginning}; then", "  ", "    ")
        for one, times in zip(parts, part_frequencies(plan), strict=True):
            lines += _wrapped(f"{one.part.number}. {times}: {one.words}", "  ", "     ")
    seen: dict[tuple[str, ...], int] = {}
    for one in parts[:SHORT]:
        drawn = tuple(picture(one.order, plan.problem) or _list_of_levels(one.order, Labels(plan.problem)))
        # A picture that was drawn for an earlier part is not repeated.
        first = seen.setdefault(drawn or (one.order.how,), one.part.number)
        lines += ["", *_part_lines(plan, one, step, drawn, first)]
    if len(parts) > SHORT:
        lines += ["", f"... and {counted(len(parts) - SHORT, 'part')} of smaller shares"]
    if more := worth_of_more(plan.problem, _prices(plan), _number(plan.about.get("value"))):
        lines += ["", f"One unit more at every step, by the bound of the fluid relaxation ({SLOPE_OF_BOUND}):"]
        lines += [f"  {text}" for text in more]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, first: str = "", then: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=then, break_long_words=False)


def _title(plan: Plan) -> str:
    problem, labels = plan.problem, Labels(plan.problem)
    # Types that differ only in their initial state are one type to a reader.
    numbers: dict[str, int] = {}
    for kind, count in enumerate(problem.type_counts.tolist()):
        numbers[labels.base(kind)] = numbers.get(labels.base(kind), 0) + count
    types = [f"{count} {name}" for name, count in numbers.items()]
    more = f" and {counted(len(types) - LONG, 'more type')}" if len(types) > LONG else ""
    shared = ", ".join(map(amount_of, problem.resource_names, problem.budget.tolist()))
    welfare = f"; welfare {plan.about['welfare']}" if isinstance(plan.about.get("welfare"), str) else ""
    criterion = "" if problem.criterion.name == "discounted" else f", criterion {problem.criterion.name}"
    groups = f", over {counted(len(problem.group_names), 'group')}" if problem.over == "groups" else ""
    arms = f"{counted(problem.num_arms, 'arm')} ({listed(types[:LONG])}{more})"
    verb = "shares" if problem.num_arms == 1 else "share"
    return f"{plan.source}: {arms} {verb} {shared}{welfare}{criterion}{groups}"


def _certificate(plan: Plan) -> list[str]:
    about, labels = plan.about, Labels(plan.problem)
    lines = []
    # Facts come from a file: only numbers are formatted.
    if all(_is_number(about.get(key)) for key in ("value", "upper_bound", "gap")):
        error = _number(about.get("stderr"))
        gap = "the best there is" if error == 0 else "the simulation shows no difference"
        gap = f"within {100 * about['gap']:.2g} % of the best" if about["gap"] > 1e-8 else gap
        low, high = about["value"] - CONFIDENCE * error, about["value"] + CONFIDENCE * error
        interval = f" (simulated; 95 % interval {low:.4f} to {high:.4f})" if error > 0 else ""
        bound = f"upper bound {about['upper_bound']:.4f} ({gap})"
        lines.append(f"  welfare {about['value']:.4f}{interval}; {bound}")
    lines += [f"  promised: {text}" for text in promises_in_words(plan.problem)[:LONG]]
    values = about.get("values")
    if about.get("by") == "type" and isinstance(values, list) and len(values) == plan.problem.num_types <= LONG:
        texts = [f"{labels.type(kind)} {_number(value):.4f}" for kind, value in enumerate(values)]
        lines.append(f"  value of an arm: {listed(texts)}")
    if _is_number(about.get("score")):
        lines.append(f"  welfare {about['score']:.4f}, as evaluated in training")
    return lines or ["  (its welfare was not saved with it)"]


def drawn_words(plan: Plan) -> str:
    """Return when the part of a mixture is drawn."""
    period = redraw_period(plan.policy)
    return "drawn once at the start" if period is None else f"drawn again every {period} steps"


def part_frequencies(plan: Plan) -> list[str]:
    """(part,) how often each part of a mixture is drawn, the largest share first."""
    what = "starts" if redraw_period(plan.policy) is None else "times"
    return often_each([part.share for part in plan.parts], what)


def _part_lines(plan: Plan, one: PartWords, step: int, drawn: Sequence[str], like: int) -> list[str]:
    """The heading and the picture of a part; `like` is the first part with the same picture."""
    order, number = one.order, one.part.number
    of = f", part {number}" if plan.is_mixture else ""
    when = f" at step {step}" if order.ranked and varies_by_step(plan) else ""
    if not order.rows:
        return [f"Who comes first{of}{when}: {order.how}"]
    if like != number:
        return [f"Who comes first{of}{when}: as in part {like} ({order.how})"]
    if order.ranked:
        left = ", * of what is left of the budget" if any(row.share == 0 for row in order.rows) else ""
        head = f"Who comes first{of}{when} ({order.how}; 1 is served first{left}, · never):"
    else:
        how = f"{order.how}, as simulated from the plan's start; · rare, or rarely served"
        head = f"Who is served how often{of}{when} ({how}):"
    lines = [head, *(f"  {line}" for line in drawn)]
    if order.ranked and order.num_ranks > len({row.level for row in order.rows}):
        lines.append("  (a missing number is of an action that a condition gets if the first is not available)")
    return lines


def _list_of_levels(order: ServiceOrder, labels: Labels) -> list[str]:
    """The levels one below the other, in place of a picture that would be too large."""
    places = list(dict.fromkeys(map(order.place_text, order.rows)))
    lines = []
    for place, conditions in zip(places[:LONG], levels_of(order, labels), strict=False):
        lines += _wrapped(f"{place}. {level_words(conditions)}", "", "   ")
    return lines + ([f"... {len(places) - LONG} more"] if len(places) > LONG else [])


def varies_by_step(plan: Plan) -> bool:
    """Return whether some part has one policy per step."""
    return any(is_time_varying(part.policy) for part in plan.parts)


def _prices(plan: Plan) -> dict[str, float] | None:
    prices = plan.about.get("prices")
    return {str(name): _number(price) for name, price in prices.items()} if isinstance(prices, dict) else None


def _is_number(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return whole or (isinstance(value, float) and math.isfinite(value))


def _number(value: Any) -> float:
    """A number of a file; 0 for anything else."""
    return float(value) if _is_number(value) else 0.0


def plan_facts(plan: Plan, step: int = 0) -> dict[str, Any]:
    """Return the summary as a JSON value."""
    problem, about, labels = plan.problem, plan.about, Labels(plan.problem)
    parts, common = parts_of(plan, step)
    prices, figures = _prices(plan), ("value", "upper_bound", "gap", "stderr")
    welfare = {"name": about.get("welfare")} | {key: about.get(key) for key in figures}
    return {
        "method": about.get("method"),
        "welfare": welfare,
        "criterion": problem.criterion.name,
        "over": problem.over,
        "types": [{"name": labels.type(kind), "arms": int(count)} for kind, count in enumerate(problem.type_counts)],
        "budget": {name: quantity(b) for name, b in zip(problem.resource_names, problem.budget.tolist(), strict=True)},
        "by": about.get("by"),
        "values": about.get("values"),
        "prices": prices,
        "one_unit_more": worth_of_more(problem, prices, _number(about.get("value"))),
        "step": step if varies_by_step(plan) else None,
        "redraw_every": redraw_period(plan.policy),
        "first": list(common),
        "parts": [_part_facts(part, labels) for part in parts],
    }


def _part_facts(one: PartWords, labels: Labels) -> dict[str, Any]:
    part, words, order = one
    rows = [
        {
            "place": order.place(row),
            "type": labels.type(row.kind),
            "state": labels.state(row.kind, row.state),
            "action": labels.action(row.kind, row.action),
            "share": row.share,
        }
        for row in order.rows
    ]
    facts = {"number": part.number, "share": part.share, "policy": part.name, "words": words, "how": order.how}
    return facts | {"order": rows}
