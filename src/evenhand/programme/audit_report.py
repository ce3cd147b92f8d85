"""Summary and page of an audit: service, expectations and outcomes, overrides, and what is unknown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evenhand.display import counted
from evenhand.programme.audit import UNKNOWN, Audit, Books, Earned, MemberRow, WindowPart, fairness_over_time
from evenhand.report.format import capitalised, fixed, listed, number, percent, shortened
from evenhand.report.summary import Figure, Section, Summary, Table, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MOST_GROUPS, MOST_ARMS, MOST_OVERRIDES = 8, 20, 60
"""Groups drawn over time, arms with the longest waits, and overrides of the highest cost that are listed."""

SHAPES = "os^DvPX*"


def audit_summary(found: Audit, called: str) -> Summary:
    """Return the tables and notes of an audit.

    Args:
        found: the audit.
        called: name of the programme.
    """
    groups, types = (_members_table(rows, kind) for rows, kind in ((found.groups, "group"), (found.types, "type")))
    tables = [groups, types, _differences_table(found.groups), _waits_table(found)]
    title = f"{called}: steps {found.first} to {found.last}"
    return Summary(title, tables=[*tables, *_override_tables(found)], notes=_notes(found))


def _members_table(rows: Sequence[MemberRow], kind: str) -> Table:
    heads = [kind, "arms", "served", "longest wait", "delay", "got", "promised", "by chance"]
    cells = []
    for row in rows:
        service, earned = row.service, row.earned
        delay = "" if service.delay is None else fixed(service.delay, 2)
        got, promised, lower, upper = (
            fixed(x, 3) for x in (earned.realised, earned.promised, earned.lower, earned.upper)
        )
        waits = [percent(service.share), str(service.longest_wait), delay]
        cells.append([row.name, str(row.arms), *waits, got, promised, f"{lower} to {upper}"])
        if row.corrected is not None:  # only groups are tested
            cells[-1].append(f"{row.corrected:.2g}{' *' if row.behind else ''}")
    return table(f"service and value per step and arm, by {kind}", heads + ["p"] * (kind == "group"), cells)


def _differences_table(rows: Sequence[MemberRow]) -> Table:
    heads = ["group", "difference", "decided otherwise", "not done", "moves", "recorded rewards"]
    cells = []
    for row in rows:
        it = row.earned
        parts = (it.realised - it.promised, it.overrides, it.undone, it.moves, it.rewards)
        cells.append([row.name, *(f"{round(part, 4) + 0.0:+.4f}" for part in parts)])  # a rounded zero has no sign
    return table("difference between got and promised, by its causes", heads, cells)


def _waits_table(found: Audit) -> Table:
    rows = [
        [row.arm, row.type, row.group, str(row.in_need), str(row.waiting), str(row.service.served)]
        for row in found.longest_waits(MOST_ARMS)
    ]
    heads = ["arm", "type", "group", "in need for", "not served for", "served"]
    return table("longest waits, in steps", heads, rows, len(found.arms) - len(rows), heads[1:3])


def _override_tables(found: Audit) -> list[Table]:
    if not found.overrides:
        return []
    rows = [[one["who"] or "unnamed", str(one["overrides"]), fixed(one["cost"], 3)] for one in found.by_who()]
    # Rounded, for a stable order among equal costs.
    dearest = sorted(found.overrides, key=lambda row: (-round(row.cost, 9), row.step, row.arm))[:MOST_OVERRIDES]
    single = [[o.arm, str(o.step), o.planned, o.accepted, fixed(o.cost, 3), o.who, o.why] for o in dearest]
    heads = ["arm", "step", "planned", "chosen", "cost", "who", "why"]
    more = len(found.overrides) - MOST_OVERRIDES
    return [
        table("overrides by person", ["who", "decisions", "cost in value"], rows),
        table("overrides, highest cost first", heads, single, more, [heads[2], heads[3], *heads[5:]]),
    ]


def _notes(found: Audit) -> list[str]:
    notes = [f"Warning: {line}." for line in found.warnings]
    for what, own, worst in (
        ("Service of arms", found.service, percent(found.service.worst)),
        ("Value of arms", found.value, f"{fixed(found.value.worst, 3)} a step"),
    ):
        gini = "undefined" if own.gini_coefficient is None else fixed(own.gini_coefficient, 3)
        notes.append(f"{what}: Gini coefficient {gini}; the worst-off is {own.worst_off} with {worst}.")
    many = counted(len(found.overrides), "decision")
    cost = f"{many} other than planned, at a cost of {fixed(found.override_cost, 3)} in value."
    notes.append(cost if found.overrides else "Every plan was accepted without overrides.")
    notes += [f"{name}: {text}." for name, text in unknown_facts(found)]
    return [*notes, *(f"{capitalised(note)}." for note in found.notes)]


def unknown_facts(found: Audit) -> list[tuple[str, str]]:
    """Return what an audit does not know, with numbers.

    Args:
        found: the audit.
    """
    total = dict.fromkeys(("unseen", "unconfirmed"), f"of {found.unknown['steps']} ")
    return [(title, f"{found.unknown[name]} {total.get(name, '')}{text}") for name, (title, text) in UNKNOWN.items()]


# -- the page --------------------------------------------------------------------------------------------------------


def audit_page(found: Audit, books: Books, called: str) -> Summary:
    """Return the page of an audit, for `report.page` and `report.write_page`.

    Args:
        found: the audit.
        books: its data.
        called: name of the programme.
    """
    plain = audit_summary(found, called)
    groups, types, differences, waits, *overrides = plain.tables
    parts, names = fairness_over_time(books), books.groups[:MOST_GROUPS]
    over_time = (
        "Value per step and arm in each part of the span, and its expectation from the states at its begin. Squares "
        "are outside of what chance explains, after overrides."
    )
    served = "One mark per arm; the line is the mean of the group."
    return Summary(
        plain.title,
        lead=_lead(found),
        cards=_cards(found),
        sections=[
            Section("Promised, and got", [f"Warning: {line}." for line in found.warnings],
                    [Figure(_over_time_svg(parts, names), over_time)], tables=[groups, differences, types]),
            Section("Who was served, and who waits", figures=[Figure(_served_svg(found), served)], tables=[waits]),
            Section("Decided otherwise", [] if overrides else ["Every plan was accepted as it was."], tables=overrides),
            Section("What is not known", facts=unknown_facts(found), notes=[f"{capitalised(n)}." for n in found.notes]),
            Section("How to read this", facts=_glossary(found)),
        ],
        made=f"It uses what was known at event {found.event}.",
    )  # fmt: skip


def _lead(found: Audit) -> list[str]:
    behind = [row.name for row in found.groups if row.behind]
    verdict = f"{listed(behind) if behind else 'No group'} fell behind what was promised by more than chance explains."
    worst = found.group_value
    return [
        f"{counted(len(found.arms), 'arm')} took part in {counted(found.last + 1 - found.first, 'step')}. {verdict}",
        f"The worst-off group is {worst.worst_off}, with {number(worst.worst, 3)} per step and arm.",
    ]


def _cards(found: Audit) -> list[tuple[str, str, str]]:
    served = sum(row.service.served for row in found.groups)
    cards = [("Served", str(served), f"times, {percent(served / max(found.unknown['steps'], 1))} of steps")]
    for name, own in (("service", found.service), ("value", found.value)):
        gini = "undefined" if own.gini_coefficient is None else number(own.gini_coefficient, 3)
        cards.append((f"Gini of {name}", gini, f"worst-off: {own.worst_off}"))
    cost = f"cost {number(found.override_cost, 3)} in value"
    return [*cards, ("Decided otherwise", str(len(found.overrides)), cost)]


def _glossary(found: Audit) -> list[tuple[str, str]]:
    level, most = percent(found.level, 0), number(1 - found.level, 2)
    need = "Steps from a state in which the roster's fair relaxation would serve an arm to its service."
    return [
        ("Promised", "Expectation of each step's plan in the model, from the states of the arms at that step."),
        ("Got", "Recorded rewards; else the model's, of the observed state and the action done."),
        ("By chance", f"Interval of probability {level} if the model is right and plans are followed."),
        ("p", f"Corrected for the number of groups; a warning (*) below {most} is wrong in at most so many audits."),
        ("Wait", "Steps between one service and the next, also from the first step and to the last."),
        ("Delay", need),
        ("Cost of a decision", "Value of the planned action less that of the chosen one, in the relaxation."),
    ]


# -- figures ---------------------------------------------------------------------------------------------------------


def _over_time_svg(parts: Sequence[WindowPart], groups: Sequence[str]) -> str:
    """Return one panel per group: outcome, expectation and its interval."""
    from evenhand.report.plots import Plot, svg

    present = {group: [part for part in parts if group in part.groups] for group in groups}

    def draw(figure: "Drawing") -> None:
        panels = figure.subplots(len(groups), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, group in zip(panels, groups, strict=True):
            _draw_group(axes, present[group], group)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
        panels[-1].xaxis.get_major_locator().set_params(integer=True)
        panels[-1].set_xlabel("step")

    texts = []
    for group, there in present.items():
        ends = [number(part.groups[group].realised, 3) for part in there]
        texts.append(f"{group}: from {ends[0]} to {ends[-1]}" if ends else f"{group}: absent")
    label = f"Value of a step over time. {'; '.join(texts)}"
    return svg("over-time", label, Plot(0.75 + 1.15 * len(groups), draw))


def _draw_group(axes: "Axes", there: Sequence[WindowPart], group: str) -> None:
    from evenhand.report.plots import BLUE, INK, ORANGE

    # A part of several steps stands at its middle.
    steps = [(part.first + part.last) / 2 for part in there]
    earned = [part.groups[group] for part in there]
    lower, upper = [it.lower for it in earned], [it.upper for it in earned]
    axes.fill_between(steps, lower, upper, color=BLUE, alpha=0.15, linewidth=0, label="by chance")
    axes.plot(steps, [it.promised for it in earned], color=BLUE, linestyle="--", linewidth=1.0, label="promised")
    axes.plot(steps, [it.realised for it in earned], color=INK, marker="o", markersize=3, linewidth=1.0, label="got")
    if len(there) == 1:  # a band has no width there
        axes.vlines(steps, lower, upper, color=BLUE, alpha=0.3, linewidth=4)
    outside = [i for i, it in enumerate(earned) if _is_outside(it)]
    axes.plot([steps[i] for i in outside], [earned[i].realised for i in outside], "s", color=ORANGE, markersize=5)
    axes.grid(axis="y")
    axes.set_title(shortened(group, 40), loc="left", fontsize=9)


def _is_outside(it: Earned) -> bool:
    """Return whether the outcome without overrides is outside of its interval."""
    by_itself = it.realised - it.overrides - it.undone
    return not it.lower - 1e-9 <= by_itself <= it.upper + 1e-9


def _served_svg(found: Audit) -> str:
    """Return one row per group: the share of steps in which each of its arms was served."""
    from evenhand.report.plots import BLUE, FAINT, ORANGE, Plot, svg

    def draw(figure: "Drawing") -> None:
        axes = figure.subplots()
        for y, row in enumerate(found.groups):
            shares = np.sort([arm.service.share for arm in found.arms if arm.group == row.name]).round(6)
            # Arms of the same share are stacked, so that each is visible.
            _, starts, many = np.unique(shares, return_index=True, return_counts=True)
            lift = np.minimum((np.arange(len(shares)) - np.repeat(starts, many)) * 0.09, 0.42)
            axes.plot(100 * shares, y - lift, SHAPES[y % len(SHAPES)], color=BLUE, markersize=3.5, alpha=0.7)
            axes.plot([100 * row.service.share] * 2, [y - 0.45, y + 0.2], color=ORANGE, linewidth=1.5)
        axes.set_yticks(range(len(found.groups)), [shortened(row.name, 24) for row in found.groups])
        axes.set_ylim(len(found.groups) - 0.5, -0.75)
        axes.set_xlim(left=-1)
        axes.set_xlabel("served, % of the steps at which an arm took part")
        axes.grid(axis="x")
        axes.axvline(0, color=FAINT, linewidth=0.6)

    texts = "; ".join(f"{row.name}: {percent(row.service.share)} of steps" for row in found.groups)
    return svg("served", f"How often arms were served. {texts}", Plot(0.75 + 0.4 * len(found.groups), draw))
