"""Which figure each target has: from its sheets to SVG for the page and for a file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evenhand.experiments.spec import Target
from evenhand.report.reproduction.figures import (
    LEAST_LOSS,
    Axis,
    Crowd,
    Panel,
    crowds_figure,
    loss_figure,
    panel_figure,
)
from evenhand.report.reproduction.sheets import NOTHING, Entry, Sheet

LEARNING_FLOOR = 7.0
"""Where the paper's learning curves start, to see more of what matters."""

HOLLOW = "Filled: ours; hollow: the paper's."
SHADED = "Shaded: one standard deviation over seeds to either side."
WHISKERS = "Thin lines: one standard deviation over seeds to either side."


@dataclass(frozen=True)
class Drawings:
    """The figures of a target."""

    inline: tuple[str, ...] = ()
    """SVG elements for the page, side by side where there is room."""
    file: str | None = None
    """One SVG file."""
    caption: str = ""


def draw_target(target: Target, sheets: Sequence[Sheet]) -> Drawings:
    """The figures of a target, from its sheets."""
    own = {sheet.name: sheet for sheet in sheets}
    # From the most particular sheets to plain welfare: a target has one kind of figure.
    if "curve" in own and own["curve"].entries:
        return _learning(target, own["curve"], own["welfare"])
    if "outcomes-1" in own:
        return _fairness(target, own)
    if "times" in own:
        return _programs(target, own["times"])
    if "seconds" in own or "shares" in own:
        return _episodes(target, own)
    if "welfare" in own:
        return _welfare(target, own["welfare"])
    return Drawings()


def _one(svg: str | None, caption: str) -> Drawings:
    return Drawings() if svg is None else Drawings((svg,), standalone(svg), caption)


def standalone(svg: str) -> str:
    """An SVG element as a file."""
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    sans = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"'
    # On the page the style sheet sets the letters, and namespaces are not needed; a file needs both.
    return re.sub(r"^<svg ", f"<svg {spaces} {sans} ", svg) + "\n"


# Welfare


def _welfare(target: Target, sheet: Sheet) -> Drawings:
    # Without published figures, and by size: curves. Else losses, which show small differences.
    if not target.published and all(entry.at[0][0] == "num_arms" for entry in sheet.visible):
        return _by_size(target, sheet)
    # The optimum, or the nearest thing to it.
    best = _optimum_of(sheet) or _bound_of(sheet)
    caption = (
        "How much of the best possible welfare is lost, a row a method and a shape a size; further left is better. "
        f"{_if_spread(sheet.visible, WHISKERS)}"
    )
    if any(entry.paper is not None for entry in sheet.visible):
        caption += f" {HOLLOW}"
    return _one(loss_figure(target.name, sheet, best), caption)


def _if_spread(entries: Sequence[Entry], words: str) -> str:
    """What explains spreads, where there are any."""
    return words if any((entry.spread or 0.0) >= NOTHING for entry in entries) else ""


def _optimum_of(sheet: Sheet) -> dict[str, float]:
    """The optimum of each row: ours, else the published one."""
    found = {
        entry.row: entry.ours if entry.ours is not None else entry.paper
        for entry in sheet.entries
        if entry.column == "OPT"
    }
    return {row: value for row, value in found.items() if value is not None}


def _bound_of(sheet: Sheet) -> dict[str, float]:
    return {e.row: e.ours for e in sheet.entries if e.column == "fluid bound" and e.ours is not None}


def _by_size(target: Target, sheet: Sheet) -> Drawings:
    largest = max(float(dict(entry.at)["num_arms"]) for entry in sheet.visible)
    smallest = min(float(dict(entry.at)["num_arms"]) for entry in sheet.visible)
    # More than a decade of sizes would crowd the small ones.
    x = Axis("number of machines N", logarithmic=largest > 12 * smallest)
    panels = [Panel("", sheet.visible, "num_arms", x, Axis("welfare (GGF)"))]
    losses = _loss_entries(sheet)
    if losses:
        # Losses span decades.
        y = Axis("away from the optimum, %", logarithmic=True)
        panels.append(Panel("", tuple(losses), "num_arms", x, y))
    caption = (
        "Top: welfare. Bottom: how far from the exact optimum on a logarithmic scale, the bound above it and the "
        f"others below it; less than {LEAST_LOSS:g} % is drawn as {LEAST_LOSS:g} %."
    )
    told = (caption if losses else "", _if_spread(sheet.visible, SHADED))
    return _one(panel_figure(target.name, panels), " ".join(filter(None, told)))


def _loss_entries(sheet: Sheet) -> list[Entry]:
    """Every figure as its distance from the optimum in per cent."""
    best = {e.row: e.ours for e in sheet.visible if e.column == "OPT" and e.ours}
    found = []
    for entry in sheet.visible:
        top = best.get(entry.row)
        if entry.column != "OPT" and top and entry.values:
            losses = tuple(max(LEAST_LOSS, 100 * abs(top - value) / abs(top)) for value in entry.values)
            found.append(replace(entry, values=losses, paper=None, plug_in=()))
    return found


def _learning(target: Target, curve: Sheet, welfare: Sheet) -> Drawings:
    panels = [panel for row in welfare.rows if (panel := _curve_panel(row, curve, welfare)).entries]
    inline = [panel_figure(f"{target.name}-{index}", [panel], True) for index, panel in enumerate(panels)]
    file = panel_figure(target.name, panels, side_by_side=True)
    caption = (
        f"The network's welfare while it learns. {SHADED} Level lines: the optimum, index policies and the random "
        "agent. Hollow: the paper's figures, at the right edge."
    )
    return Drawings(tuple(svg for svg in inline if svg), standalone(file) if file else None, caption)


def _curve_panel(row: str, curve: Sheet, welfare: Sheet) -> Panel:
    own = [entry for entry in curve.entries if entry.row.startswith(f"{row}, ")]
    if own:
        trained = next((e for e in welfare.visible if (e.row, e.column) == (row, own[-1].column)), None)
        # The paper's figure stands at the end of its curve.
        own[-1] = replace(own[-1], paper=trained.paper if trained else None)
    levels = [e for e in welfare.visible if e.row == row and e.column in ("OPT", "WIP", "WIP exact", "RDM")]
    # The exact index is ours: the paper's figure belongs to its own.
    levels = [replace(entry, paper=None) if entry.column == "WIP exact" else entry for entry in levels]
    y = Axis("welfare (GGF)", least=LEARNING_FLOOR)
    return Panel(row, tuple(own), "episode", Axis("episodes of 300 steps"), y, tuple(levels), ticks=False)


# Times


def _episodes(target: Target, own: Mapping[str, Sheet]) -> Drawings:
    panels = []
    y = Axis("seconds per episode", logarithmic=True)
    if "seconds" in own:
        x = Axis("number of machines N", logarithmic=True)
        panels.append(Panel("", own["seconds"].visible, "num_arms", x, y, linear=True))
    if "shares" in own:
        shown = own["shares"].visible
        panels.append(Panel("", shown, "budget_share", Axis("share of machines that can be replaced, b/N"), y))
    caption = "Times are on a logarithmic scale. The dotted line shows what growth in proportion to N would look like."
    return _one(panel_figure(target.name, panels), caption)


def _programs(target: Target, times: Sheet) -> Drawings:
    total = [
        # Columns are `N = 3`: here the number is the place on the axis.
        replace(entry, at=(("num_arms", int(re.sub(r"\D", "", entry.column) or 0)),), column="total time")
        for entry in times.visible
        if entry.row == "Total"
    ]
    y = Axis("total time, seconds (logarithmic)", logarithmic=True)
    panel = Panel("", tuple(total), "num_arms", Axis("number of machines N"), y)
    return _one(panel_figure(target.name, [panel]), f"{HOLLOW} Their machine and solver were others than ours.")


# Fairness


def _fairness(target: Target, own: Mapping[str, Sheet]) -> Drawings:
    crowds = []
    for name, groups in own.items():
        if name.startswith("groups-"):
            outcomes = own[name.replace("groups", "outcomes")]
            means = {e.row: e.ours for e in outcomes.visible if e.column == "mean" and e.ours is not None}
            crowds.append(Crowd(groups.caption.partition(":")[0], groups.visible, means))
    inline = [crowds_figure(f"{target.name}-{index}", [crowd]) for index, crowd in enumerate(crowds)]
    file = crowds_figure(target.name, crowds)
    caption = (
        "A row for each idea of fairness, under the policy that is best for it. Marks are the values of the groups, "
        "the stroke is the mean of all arms: the shorter the line, the more equal, the further right, the better."
    )
    return Drawings(tuple(svg for svg in inline if svg), standalone(file) if file else None, caption)
