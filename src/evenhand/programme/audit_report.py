"""Summary and page of an audit: its verdict, service, expectations and outcomes, deviations, and what is unknown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evenhand.display import counted
from evenhand.programme.audit import UNKNOWN, Audit, MemberRow
from evenhand.programme.audit_verdict import DEFINITIONS, Verdict
from evenhand.programme.audit_window import Books, Earned, WindowPart, fairness_over_time
from evenhand.programme.vocabulary import Vocabulary
from evenhand.report.format import amount, capitalised, fixed, number, percent, shortened
from evenhand.report.summary import Figure, Section, Summary, Table, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MOST_GROUPS, MOST_ARMS, MOST_OVERRIDES = 8, 20, 60
"""Groups drawn over time, arms with the longest waits, and unserved arms and deviations that are listed."""

SHAPES = "os^DvPX*"


def audit_summary(found: Audit, words: Vocabulary, called: str) -> Summary:
    """Return the verdict, tables and notes of an audit.

    Args:
        found: the audit.
        words: words of the programme.
        called: name of the programme.
    """
    facts: list[tuple[str, str]] = []
    for title, sentences in _verdict(found):
        facts += zip([title.lower(), *[""] * (len(sentences) - 1)], sentences, strict=True)
    tables = [one for part in _tables(found, words).values() for one in part]
    title = f"{called}: {words.name(found.first)} to {words.name(found.last)}"
    return Summary(title, facts=facts, tables=tables, notes=_notes(found, words))


def _verdict(found: Audit) -> list[tuple[str, tuple[str, ...]]]:
    it = found.verdict or Verdict((), (), (), ())
    return [("In need", it.need), ("Served", it.services), ("Tests", it.tests), ("Deviations", it.deviations)]


def _tables(found: Audit, words: Vocabulary) -> dict[str, list[Table]]:
    """Return the tables of an audit by section."""
    groups, types = (
        _members_table(rows, kind, words) for rows, kind in ((found.groups, words.group.one), (found.types, "type"))
    )
    differences = _differences_table(found.groups, words)
    return {
        "need": [*_need_tables(found, words), _waits_table(found, words)],
        "services": [_services_table(found, words)],
        "values": [groups, differences, types],
        "deviations": [*_deviation_tables(found, words), *_override_tables(found, words)],
    }


def _need_tables(found: Audit, words: Vocabulary) -> list[Table]:
    group, arm, steps = words.group.one, words.arm.one, words.step.many
    cells = [
        [r.group, r.state, str(r.arms), str(r.unserved), str(r.steps), str(r.served), str(r.longest)]
        for r in found.needs
    ]
    heads = [group, "condition", f"{words.arm.many} in need", "not served", f"{steps} in need", "served", "longest"]
    tables = [table(f"in need, by {group} and condition", heads, cells, text=heads[:2])] if cells else []
    rows = [
        [r.arm, r.group, r.state, str(r.steps), words.name(r.since), "yes" if r.lasts else "no", str(r.served)]
        for r in found.unserved[:MOST_OVERRIDES]
    ]
    heads = [arm, group, "condition", f"{steps} in need", "since", "lasts", "served"]
    more = len(found.unserved) - MOST_OVERRIDES
    unserved = table("in need and not served, longest first", heads, rows, more, [*heads[1:3], *heads[4:6]])
    return [*tables, *([unserved] if rows else [])]


def _services_table(found: Audit, words: Vocabulary) -> Table:
    cells = []
    for row in found.services:
        known = row.lower is not None and row.upper is not None
        promised = [fixed(row.promised, 1), f"{row.lower} to {row.upper}"] if known else ["", ""]
        power = "" if not known else "none" if row.detectable is None else percent(row.detectable, 0)
        cells.append([row.group, str(row.planned), str(row.done), *promised, power])
    heads = [words.group.one, "planned", "done", "promised", "by chance", "least shortfall found"]
    return table(f"services by {words.group.one}", heads, cells)


def _deviation_tables(found: Audit, words: Vocabulary) -> list[Table]:
    budgets = [[words.name(r.step), r.resource, amount(r.planned), amount(r.usual)] for r in found.budgets]
    undone = [[r.arm, r.group, words.name(r.step), r.accepted, r.done] for r in found.undone]
    usual = [words.step.one, "resource", "planned with", "usually"]
    others = [words.arm.one, words.group.one, words.step.one, "accepted", "done"]
    return [
        table(caption, heads, rows[:MOST_OVERRIDES], len(rows) - MOST_OVERRIDES, text)
        for caption, heads, rows, text in (
            ("other than the usual budget", usual, budgets, usual[:2]),
            ("done otherwise than accepted", others, undone, others),
        )
        if rows
    ]


def _members_table(rows: Sequence[MemberRow], kind: str, words: Vocabulary) -> Table:
    heads = [kind, words.arm.many, "served", "longest wait", "delay", "got", "promised", "by chance"]
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
    tested = ["p"] * (rows[0].corrected is not None)
    return table(
        f"service and {words.value} per {words.step.one} and {words.arm.one}, by {kind}", heads + tested, cells
    )


def _differences_table(rows: Sequence[MemberRow], words: Vocabulary) -> Table:
    heads = [words.group.one, "difference", "decided otherwise", "not done", "moves", "recorded rewards"]
    cells = []
    for row in rows:
        it = row.earned
        parts = (it.realised - it.promised, it.overrides, it.undone, it.moves, it.rewards)
        cells.append([row.name, *(f"{round(part, 4) + 0.0:+.4f}" for part in parts)])  # a rounded zero has no sign
    return table("difference between got and promised, by its causes", heads, cells)


def _waits_table(found: Audit, words: Vocabulary) -> Table:
    rows = [
        [row.arm, row.type, row.group, str(row.in_need), str(row.waiting), str(row.service.served)]
        for row in found.longest_waits(MOST_ARMS)
    ]
    heads = [words.arm.one, "type", words.group.one, "in need for", "not served for", "served"]
    return table(
        f"longest waits at the end, in {words.step.many}", heads, rows, len(found.arms) - len(rows), heads[1:3]
    )


def _override_tables(found: Audit, words: Vocabulary) -> list[Table]:
    if not found.overrides:
        return []
    rows = [[one["who"] or "unnamed", str(one["overrides"]), fixed(one["cost"], 3)] for one in found.by_who()]
    # Rounded, for a stable order among equal costs.
    dearest = sorted(found.overrides, key=lambda row: (-round(row.cost, 9), row.step, row.arm))[:MOST_OVERRIDES]
    single = [[o.arm, words.name(o.step), o.planned, o.accepted, fixed(o.cost, 3), o.who, o.why] for o in dearest]
    heads = [words.arm.one, words.step.one, "planned", "chosen", "cost", "who", "why"]
    more = len(found.overrides) - MOST_OVERRIDES
    return [
        table("overrides by person", ["who", "decisions", f"cost in {words.value}"], rows),
        table("overrides, highest cost first", heads, single, more, [*heads[1:4], *heads[5:]]),
    ]


def _notes(found: Audit, words: Vocabulary) -> list[str]:
    notes = [f"Warning: {line}." for line in found.warnings]
    for what, own, worst in (
        (f"Service of {words.arm.many}", found.service, percent(found.service.worst)),
        (
            f"{capitalised(words.value)} of {words.arm.many}",
            found.value,
            f"{fixed(found.value.worst, 3)} per {words.step.one}",
        ),
    ):
        gini = "undefined" if own.gini_coefficient is None else fixed(own.gini_coefficient, 3)
        notes.append(f"{what}: Gini coefficient {gini}; the worst-off is {own.worst_off} with {worst}.")
    many = counted(len(found.overrides), "decision")
    cost = f"{many} other than planned, at a cost of {fixed(found.override_cost, 3)} in {words.value}."
    notes.append(cost if found.overrides else "Every plan was accepted without overrides.")
    notes += [f"{name}: {text}." for name, text in unknown_facts(found, words)]
    return [*notes, *(f"{capitalised(note)}." for note in found.notes)]


def unknown_facts(found: Audit, words: Vocabulary) -> list[tuple[str, str]]:
    """Return what an audit does not know, with numbers.

    Args:
        found: the audit.
        words: words of the programme.
    """
    nouns = {"arms": words.arm.many, "steps": words.step.many}
    total = dict.fromkeys(("unseen", "unconfirmed"), f"of {found.unknown['steps']} ")
    facts = UNKNOWN.items()
    return [
        (title, f"{found.unknown[name]} {total.get(name, '')}{text.format(**nouns)}") for name, (title, text) in facts
    ]


# -- the page --------------------------------------------------------------------------------------------------------


def as_of(event: int) -> str:
    """Return the last event that an audit takes into account, in words."""
    return f"It uses the records up to event {event}."


def audit_page(found: Audit, books: Books, called: str) -> Summary:
    """Return the page of an audit, for `report.page` and `report.write_page`.

    Args:
        found: the audit.
        books: its data.
        called: name of the programme.
    """
    words, tables = books.words, _tables(found, books.words)
    parts, names = fairness_over_time(books), books.groups[:MOST_GROUPS]
    step, arm = words.step.one, words.arm.one
    over_time = (
        f"{capitalised(words.value)} per {step} and {arm} in each part of the span, and its expectation from the "
        "conditions at its begin. Squares are outside of what chance explains, after overrides."
    )
    served = f"One mark per {arm}; the line is the mean of the {words.group.one}."
    (_, need), (_, services), (_, tests), (_, deviations) = _verdict(found)
    return Summary(
        f"{called}: {words.name(found.first)} to {words.name(found.last)}",
        lead=need[:1],
        sections=[
            Section("Who was in need and not served", need[1:], facts=_key_facts(found, words), tables=tables["need"]),
            Section("Served, and promised", services, [Figure(_served_svg(found, words), served)],
                    tables=tables["services"]),
            Section("Tests, and their power", [f"Warning: {line}." for line in found.warnings] + list(tests),
                    [Figure(_over_time_svg(parts, names, words), over_time)], tables=tables["values"]),
            Section("Other than usual, or than planned", deviations, tables=tables["deviations"]),
            Section("What is not known", facts=unknown_facts(found, words),
                    notes=[f"{capitalised(note)}." for note in found.notes]),
            Section("How to read this", facts=_glossary(found, words)),
        ],
        made=as_of(found.event),
    )  # fmt: skip


def _key_facts(found: Audit, words: Vocabulary) -> list[tuple[str, str]]:
    served = sum(row.service.served for row in found.groups)
    share = percent(served / max(found.unknown["steps"], 1))
    facts = [
        ("Not served in need", f"{len(found.unserved)} of {words.arm.counted(found.in_need)} in need"),
        ("Served", f"{counted(served, 'time')}, {share} of {words.step.many}"),
    ]
    for name, own in (("service", found.service), ("value", found.value)):
        gini = "undefined" if own.gini_coefficient is None else number(own.gini_coefficient, 3)
        facts.append((f"Gini of {name}", f"{gini}; worst-off: {own.worst_off}"))
    cost = f"cost {number(found.override_cost, 3)} in {words.value}"
    return [*facts, ("Decided otherwise", f"{counted(len(found.overrides), 'time')}; {cost}")]


def _glossary(found: Audit, words: Vocabulary) -> list[tuple[str, str]]:
    level, most = percent(found.level, 0), number(1 - found.level, 2)
    step, steps = words.step.one, capitalised(words.step.many)
    services = f"Services that the plans in use give in the model, from the conditions at the first {step}."
    return [
        ("In need", f"{capitalised(DEFINITIONS[found.need_by])}."),
        ("Promised services", f"{services} By chance: an interval that contains what was done with {level}."),
        ("Least shortfall found", "If each service were missed with this probability, 8 of 10 audits would find it."),
        ("Promised", f"Expectation of each plan in the model, from the conditions at its {step}."),
        ("Got", "Recorded rewards; else the model's, of the observed condition and the action done."),
        ("By chance", f"Interval of probability {level} if the model is right and plans are followed."),
        ("p", f"Corrected for the number of {words.group.many}; a warning (*) below {most} is wrong in at most so many "
              "audits."),
        ("Wait", f"{steps} between one service and the next, also from the first and to the last."),
        ("Delay", f"{steps} from coming into need to service."),
        ("Cost of a decision", "Value of the planned action less that of the chosen one, in the fair relaxation."),
    ]  # fmt: skip


# -- figures ---------------------------------------------------------------------------------------------------------


def _over_time_svg(parts: Sequence[WindowPart], groups: Sequence[str], words: Vocabulary) -> str:
    """Return one panel per group: outcome, expectation and its interval."""
    from evenhand.report.plots import Plot, svg

    present = {group: [part for part in parts if group in part.groups] for group in groups}

    def draw(figure: "Drawing") -> None:
        panels = figure.subplots(len(groups), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, group in zip(panels, groups, strict=True):
            _draw_group(axes, present[group], group)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
        panels[-1].xaxis.get_major_locator().set_params(integer=True)
        panels[-1].xaxis.set_major_formatter(lambda step, _: words.tick(step))
        panels[-1].set_xlabel(words.step.one)

    texts = []
    for group, there in present.items():
        ends = [number(part.groups[group].realised, 3) for part in there]
        texts.append(f"{group}: from {ends[0]} to {ends[-1]}" if ends else f"{group}: absent")
    label = f"{capitalised(words.value)} per {words.step.one} over time. {'; '.join(texts)}"
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


def _served_svg(found: Audit, words: Vocabulary) -> str:
    """Return one row per group: the share of steps in which each of its arms was served."""
    from evenhand.report.plots import BLUE, FAINT, ORANGE, Plot, svg

    def draw(figure: "Drawing") -> None:
        axes = figure.subplots()
        for y, row in enumerate(found.groups):
            shares = np.sort([arm.service.share for arm in found.arms if arm.group == row.name]).round(6)
            # Arms of the same share are stacked, so that each is visible.
            _, starts, many = np.unique(shares, return_index=True, return_counts=True)
            place = np.arange(len(shares)) - np.repeat(starts, many)
            shown = place <= 5  # further marks would all be in the same place
            shares, lift = shares[shown], np.minimum(place[shown] * 0.09, 0.42)
            axes.plot(100 * shares, y - lift, SHAPES[y % len(SHAPES)], color=BLUE, markersize=3.5, alpha=0.7)
            axes.plot([100 * row.service.share] * 2, [y - 0.45, y + 0.2], color=ORANGE, linewidth=1.5)
        axes.set_yticks(range(len(found.groups)), [shortened(row.name, 24) for row in found.groups])
        axes.set_ylim(len(found.groups) - 0.5, -0.75)
        axes.set_xlim(left=-1)
        axes.set_xlabel(f"served, % of {words.step.many} of each {words.arm.one}")
        axes.grid(axis="x")
        axes.axvline(0, color=FAINT, linewidth=0.6)

    texts = "; ".join(f"{row.name}: {percent(row.service.share)} of {words.step.many}" for row in found.groups)
    return svg("served", f"How often {words.arm.many} were served. {texts}", Plot(0.75 + 0.4 * len(found.groups), draw))
