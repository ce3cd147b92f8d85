"""The page of an audit: who was served, what was promised and what came, who decided otherwise, what is not known."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evenhand._version import __version__
from evenhand.display import counted
from evenhand.model.files import Location, write_atomically
from evenhand.programme.auditing import (
    ArmRow,
    Audit,
    Books,
    Earned,
    Inequality,
    MemberRow,
    Part,
    fairness_over_time,
)
from evenhand.report import words
from evenhand.report.rendering import render
from evenhand.report.svg import BLUE, FAINT, INK, ORANGE, drawn
from evenhand.report.tables import Cell, Table, TableRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_GROUPS = 8
"""Groups that are drawn over time; tables have all."""

MOST_ARMS = 30
"""Arms that are listed: those who wait longest. The CSV has all."""

MOST_OVERRIDES = 60
"""Overrides that are listed: the dearest."""

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


def write_audit(found: Audit, books: Books, path: Location, called: str, command: str = "") -> None:
    """Write the page into a file, wholly or not at all.

    Args:
        found: the audit.
        books: what it was made from.
        path: the HTML file; one that is there is replaced.
        called: what the programme is called.
        command: what a person typed to get here, told at the end of the page.
    """
    write_atomically(path, audit_page(found, books, called, command).encode("utf-8", errors="replace"))


def audit_page(found: Audit, books: Books, called: str, command: str = "") -> str:
    """The page; arguments as of `write_audit`."""
    return render(
        "audit.html",
        title=f"{called}: steps {found.first} to {found.last}",
        lead=_lead(found),
        warnings=[f"{line}." for line in found.warnings],
        cards=_cards(found),
        groups=members_table(found.groups, "What each group was promised and got, a step of an arm", True),
        split=split_table(found.groups),
        # Each group has a panel: some of them, where there are many. The tables have all.
        over_time=over_time_figure(fairness_over_time(books), books.groups[:MOST_GROUPS]),
        types=members_table(found.types, "The same by type", False),
        served=served_figure(found),
        waiting=arms_table(found.longest_waits(MOST_ARMS)),
        more_arms=_more(len(found.arms), MOST_ARMS, "arms"),
        by_who=who_table(found),
        overrides=overrides_table(found),
        more_overrides=_more(len(found.overrides), MOST_OVERRIDES, "decisions"),
        unknown=what_is_not_known(found),
        reading=_reading(found),
        notes=[f"{words.capitalised(note)}." for note in found.notes],
        command=command,
        making=f"Made by evenhand {__version__}, from what was known at event {found.event}.",
    )


# Words


def _lead(found: Audit) -> list[str]:
    # Only what chance cannot explain is called behind.
    behind = [row.name for row in found.groups if row.behind]
    verdict = (
        f"{words.listed(behind)} fell behind what was promised by more than chance explains."
        if behind
        else "No group fell behind what was promised by more than chance explains."
    )
    worst = found.group_value
    return [
        f"{counted(len(found.arms), 'arm')} took part in {counted(found.last + 1 - found.first, 'step')}. {verdict}",
        f"The worst-off group is {worst.worst_off}, with {words.number(worst.worst, 3)} a step of an arm.",
    ]


def _cards(found: Audit) -> list[tuple[str, str, str]]:
    served = sum(row.service.served for row in found.groups)
    return [
        # A step of an arm is what shares are of.
        ("Served", str(served), f"times, {words.percent(served / max(found.unknown.steps, 1))} of steps"),
        ("Gini of service", _gini(found.service), f"worst-off: {found.service.worst_off}"),
        ("Gini of value", _gini(found.value), f"worst-off: {found.value.worst_off}"),
        ("Decided otherwise", str(len(found.overrides)), f"cost {words.number(found.override_cost, 3)} in value"),
    ]


def _gini(found: Inequality) -> str:
    return "not defined" if found.gini_coefficient is None else words.number(found.gini_coefficient, 3)


def _more(there: int, most: int, what: str) -> str:
    return f"{there - most} more {what} are in the table that --csv writes, or in --json." if there > most else ""


def what_is_not_known(found: Audit) -> list[tuple[str, str]]:
    """What an audit did not know, by name, with numbers.

    Args:
        found: the audit.
    """
    it = found.unknown
    rows = [
        ("Not seen", it.unseen, "steps of arms without a report: believed from what was seen and done before"),
        ("Told late", it.late, "conditions, after the plan was accepted: the plan did not know them"),
        ("Corrected", it.corrected, "conditions: the last word counts here"),
        ("Never seen", it.never_seen, "arms: they begin as the model says"),
        ("Not confirmed", it.unconfirmed, "actions without a record: taken as accepted"),
        ("Done otherwise", it.undone, "actions that are recorded as other than accepted"),
        ("Without a reward", it.without_reward, "steps of arms: the model's reward of what was seen and done is taken"),
        ("Impossible", it.impossible, "moves that the model holds impossible: it is wrong, or the reports are"),
    ]
    return [(name, f"{number} {text}") for name, number, text in rows]


def _reading(found: Audit) -> list[tuple[str, str]]:
    level = words.percent(found.level, 0)
    return [
        ("Promised", "What the model gave to expect of each step's plan from where the arms were then, step by step."),
        ("Got", "Recorded rewards; else the model's, of the condition that was seen and what was done."),
        ("By chance", f"Where what they got lies with {level} probability if the model is right and plans are kept."),
        (
            "p",
            "How likely chance alone puts a group as far behind, at most, with regard to how many groups there are. "
            f"Below {words.number(1 - found.level, 2)} there is a warning: at most so many audits have a wrong one.",
        ),
        ("Wait", "Steps between one service and the next, also from the first step and to the last."),
        (
            "Delay",
            "Steps from a condition in which the roster's fair relaxation would serve an arm to its service.",
        ),
        (
            "Cost of a decision",
            "What the planned action is worth more than the chosen one, by the programme's criterion, if the arm goes "
            "on as the relaxation has it; what others did with what was freed is not in it.",
        ),
    ]


# Tables


def _cells(*texts: str) -> tuple[Cell, ...]:
    """Texts in their places; a tilde marks words, which are set from the left."""
    return tuple(Cell(text.removeprefix("~"), is_text=text.startswith("~")) for text in texts)


def members_table(rows: Sequence[MemberRow], caption: str, tested: bool) -> Table:
    """Service, promise and value of groups or types."""
    heads = ("arms", "served", "longest wait", "delay", "got", "promised", "by chance", *(("p",) if tested else ()))
    return Table(caption, _cells("~group" if tested else "~type", *heads), tuple(_member(row) for row in rows))


def _member(row: MemberRow) -> TableRow:
    service, earned = row.service, row.earned
    cells = [
        str(row.arms),
        words.percent(service.share),
        str(service.longest_wait),
        "–" if service.delay is None else words.number(service.delay, 2),
        words.number(earned.realised, 3),
        words.number(earned.promised, 3),
        f"{words.number(earned.lower, 3)} to {words.number(earned.upper, 3)}",
    ]
    # The last column is there where groups were tested.
    told = cells if row.corrected is None else [*cells, words.number(row.corrected, 2)]
    note = "behind its promise beyond chance" if row.behind else ""
    return TableRow(row.name, _cells(*told), note=note)


def split_table(rows: Sequence[MemberRow]) -> Table:
    """Where the difference comes from."""
    heads = _cells("~group", "difference", "decided otherwise", "not done", "moves", "recorded rewards")
    return Table("Where the difference comes from", heads, tuple(_split(row) for row in rows))


def _split(row: MemberRow) -> TableRow:
    it = row.earned
    parts = (it.realised - it.promised, it.overrides, it.undone, it.moves, it.rewards)
    # +0.0, so that a rounded loss of nothing does not read as -0.0000.
    return TableRow(row.name, _cells(*(f"{round(part, 4) + 0.0:+.4f}" for part in parts)))


def arms_table(rows: Sequence[ArmRow]) -> Table:
    """Who waits longest."""
    heads = _cells("~arm", "~type", "~group", "in need for", "not served for", "served", "got", "promised")
    told = [
        TableRow(
            row.arm,
            _cells(f"~{row.type}", f"~{row.group}", str(row.in_need), str(row.waiting), str(row.service.served),
                   words.number(row.earned.realised, 3), words.number(row.earned.promised, 3)),
        )
        for row in rows
    ]  # fmt: skip
    return Table("Those who take part at the end, the longest in need first; in steps", heads, tuple(told))


def who_table(found: Audit) -> Table | None:
    """Overrides by who."""
    rows = [
        TableRow(one["who"] or "nobody named", _cells(str(one["overrides"]), words.number(one["cost"], 3)))
        for one in found.by_who()
    ]
    return Table("Who decided otherwise", _cells("~who", "decisions", "cost in value"), tuple(rows)) if rows else None


def overrides_table(found: Audit) -> Table | None:
    """The dearest overrides."""
    # Rounded, for a stable order among equal costs.
    dearest = sorted(found.overrides, key=lambda row: (-round(row.cost, 9), row.step, row.arm))[:MOST_OVERRIDES]
    rows = [
        TableRow(one.arm, _cells(str(one.step), f"~{one.planned}", f"~{one.accepted}", words.number(one.cost, 3),
                                 f"~{one.who}", f"~{one.why}"))
        for one in dearest
    ]  # fmt: skip
    heads = _cells("~arm", "step", "~planned", "~chosen", "cost", "~who", "~why")
    return Table("Decisions other than planned, the dearest first", heads, tuple(rows)) if rows else None


# Figures


def over_time_figure(parts: Sequence[Part], groups: Sequence[str]) -> str:
    """A panel a group: what it got, what was promised, and where that lies by chance."""
    told = "; ".join(f"{group}: {_ends(parts, group)}" for group in groups)
    height = 0.75 + 1.15 * len(groups)
    return drawn("over-time", f"Value of a step over time. {told}", height, lambda it: _draw_parts(it, parts, groups))


def _ends(parts: Sequence[Part], group: str) -> str:
    there = [part.groups[group] for part in parts if group in part.groups]
    return f"from {words.number(there[0].realised, 3)} to {words.number(there[-1].realised, 3)}" if there else "absent"


def _draw_parts(figure: "Figure", parts: Sequence[Part], groups: Sequence[str]) -> None:
    panels = figure.subplots(len(groups), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        _draw_group(axes, parts, group)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    panels[-1].set_xlabel("step")


def _draw_group(axes: "Axes", parts: Sequence[Part], group: str) -> None:
    there = [part for part in parts if group in part.groups]
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
    axes.set_title(words.shortened(group, 40), loc="left", fontsize=9)


def _is_outside(it: Earned) -> bool:
    """Whether more than chance was at work, beside what was decided or done otherwise: that is known, and no chance."""
    # What people decided otherwise is no chance, and is taken out before chance is asked.
    by_itself = it.realised - it.overrides - it.undone
    return not it.lower - 1e-9 <= by_itself <= it.upper + 1e-9


def served_figure(found: Audit) -> str:
    """A row a group: how often each of its arms was served."""
    groups = [row.name for row in found.groups]
    told = "; ".join(f"{row.name}: {words.percent(row.service.share)} of steps" for row in found.groups)
    height = 0.75 + 0.4 * len(groups)
    return drawn("served", f"How often arms were served. {told}", height, lambda it: _draw_served(it, found, groups))


def _draw_served(figure: "Figure", found: Audit, groups: Sequence[str]) -> None:
    axes = figure.subplots()
    for y, row in enumerate(found.groups):
        shares = np.sort([arm.service.share for arm in found.arms if arm.group == row.name])
        # Arms of the same share stand above each other, so that every one of them is seen.
        values, starts, many = np.unique(shares.round(6), return_index=True, return_counts=True)
        rank = np.arange(len(shares)) - np.repeat(starts, many)
        # No higher than the row has room for.
        lift = np.minimum(rank * 0.09, 0.42)
        axes.plot(100 * np.repeat(values, many), y - lift, MARKS[y % len(MARKS)], color=BLUE, markersize=3.5, alpha=0.7)
        axes.plot([100 * row.service.share] * 2, [y - 0.45, y + 0.2], color=ORANGE, linewidth=1.5)
    axes.set_yticks(range(len(groups)), [words.shortened(name, 24) for name in groups])
    axes.set_ylim(len(groups) - 0.5, -0.75)
    axes.set_xlim(left=-1)
    axes.set_xlabel("served, % of the steps at which an arm took part")
    axes.grid(axis="x")
    axes.axvline(0, color=FAINT, linewidth=0.6)
