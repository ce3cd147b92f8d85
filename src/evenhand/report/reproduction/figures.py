"""Figures of the reproduction, drawn from sheets: ours filled and solid, the paper's hollow and dashed.

A method has the same colour and shape in every figure. Colours are those of Okabe and Ito; shapes and dashes tell the
same, for those who do not see colours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenhand.report.reproduction.sheets import Entry, Sheet, loss
from evenhand.report.svg import BLUE, FAINT, GREEN, INK, ORANGE, PINK, RED, SKY, drawn
from evenhand.report.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOLID: Any = "-"
DASHED: Any = (0, (4, 2))
DOTTED: Any = (0, (1.2, 1.6))
LEAST_LOSS = 0.01
"""Per cent. Smaller losses are drawn here: a logarithmic axis has no zero."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    colour: str
    shape: str
    dashes: Any = SOLID


LOOKS = {
    "OPT": Look(INK, "_", DASHED),
    "fluid bound": Look(FAINT, "", DOTTED),
    "WIP": Look(ORANGE, "v"),
    "WIP exact": Look(GREEN, "^"),
    "CP-DRL": Look(BLUE, "o"),
    "CP-DRL(PS)": Look(SKY, "P"),
    "CP-DRL(MT)": Look(PINK, "s"),
    "CP-DRL(SC)": Look(PINK, "s"),
    "V-DRL": Look(SKY, "D"),
    "PPO": Look(BLUE, "o"),
    "SAC": Look(ORANGE, "s"),
    "TD3": Look(GREEN, "^"),
    "RDM": Look(RED, "P", DOTTED),
}
SPARE = (Look(BLUE, "o"), Look(ORANGE, "s"), Look(GREEN, "^"), Look(PINK, "D"), Look(RED, "P"), Look(SKY, "v"))
"""For methods without a look of their own, in turn."""

BOUNDS = ("OPT", "fluid bound")
"""What others are measured against."""

SHAPES = "osD^vP*X"
"""Of the sizes in a figure of losses."""


def looks(columns: Sequence[str]) -> dict[str, Look]:
    """A look for each column, no two alike where that is possible."""
    known = {column: LOOKS[column] for column in columns if column in LOOKS}
    # Methods without a look of their own take colours that nobody has.
    used = {look.colour for look in known.values()}
    spare = [look for look in SPARE if look.colour not in used] or list(SPARE)
    unknown = [column for column in columns if column not in known]
    return known | {column: spare[index % len(spare)] for index, column in enumerate(unknown)}


# Losses against the optimum: a row a method, a shape a size


def loss_figure(name: str, sheet: Sheet, optimum: Mapping[str, float]) -> str | None:
    """What each method loses against the optimum, in per cent on a logarithmic axis; None where nothing is known.

    Args:
        name: of the figure, unique on the page.
        sheet: welfare by size (rows) and method (columns).
        optimum: the optimum of each row.
    """
    # Rows without an optimum have no loss.
    rows = [row for row in sheet.rows if optimum.get(row)]
    # Bounds are what losses are measured against.
    columns = [column for column in sheet.columns if column not in BOUNDS and _losses(sheet, column, optimum)]
    if not rows or not columns:
        return None
    label = "Welfare lost against the optimum: " + "; ".join(_loss_words(sheet, each, optimum) for each in columns)
    height = 0.95 + 0.42 * len(columns)
    return drawn(name, label, height, lambda figure: _draw_losses(figure, sheet, columns, rows, optimum))


def _losses(sheet: Sheet, column: str, optimum: Mapping[str, float]) -> list[float]:
    own = [entry for entry in sheet.visible if entry.column == column and optimum.get(entry.row)]
    return [loss(entry.ours, optimum[entry.row]) for entry in own if entry.ours is not None]


def _loss_words(sheet: Sheet, column: str, optimum: Mapping[str, float]) -> str:
    losses = _losses(sheet, column, optimum)
    return f"{column} {number(max(0.0, min(losses)), 2)} to {number(max(0.0, *losses, 0.0), 2)} per cent"


def _draw_losses(
    figure: "Figure", sheet: Sheet, columns: Sequence[str], rows: Sequence[str], optimum: Mapping[str, float]
) -> None:
    axes = figure.subplots()
    for y, column in enumerate(columns):
        axes.axhspan(y - 0.5, y + 0.5, color="#f6f6f6" if y % 2 else "white", zorder=0)
        for index, row in enumerate(rows):
            # Not every method was run on every size.
            entry = next((e for e in sheet.visible if (e.row, e.column) == (row, column)), None)
            if entry is not None:
                _draw_loss(axes, y, entry, optimum[row], SHAPES[index % len(SHAPES)])
    _percent_axis(axes)
    axes.set_yticks(range(len(columns)), columns)
    axes.set_ylim(len(columns) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("welfare lost against the optimum, % (log scale)")
    for index, row in enumerate(rows):
        axes.plot([], [], SHAPES[index % len(SHAPES)], color=BLUE, markersize=5, linestyle="", label=row)
    if any(entry.paper is not None for entry in sheet.visible if entry.column in columns):
        axes.plot([], [], "o", color=ORANGE, markerfacecolor="white", markersize=5, linestyle="", label="the paper's")
    # Long names of rows need two columns in the legend.
    ncols = 5 if sum(map(len, rows)) < 40 else 2
    figure.legend(loc="outside upper center", ncols=ncols, handletextpad=0.1, columnspacing=1.0, borderpad=0.1)


def _draw_loss(axes: "Axes", y: float, entry: Entry, optimum: float, shape: str) -> None:
    if entry.ours is not None:
        if entry.spread:
            # The spread from the better to the worse end; what is beyond the axis is kept at its edge.
            ends = [_kept(loss(entry.ours + side * entry.spread, optimum)) for side in (1, -1)]
            # Ours a little above the line of the method, the paper's a little below.
            axes.plot(ends, [y - 0.17] * 2, color=BLUE, linewidth=1.0, alpha=0.6, zorder=2)
        at = _kept(loss(entry.ours, optimum))
        axes.plot(at, y - 0.17, shape, color=BLUE, markersize=5.5, markeredgecolor="white", markeredgewidth=0.5)
    if entry.paper is not None:
        at = _kept(loss(entry.paper, optimum))
        axes.plot(at, y + 0.2, shape, color=ORANGE, markerfacecolor="white", markersize=5, markeredgewidth=1.1)


def _kept(loss_percent: float) -> float:
    return max(LEAST_LOSS, loss_percent)


def _percent_axis(axes: "Axes") -> None:
    axes.set_xscale("log")
    axes.set_xlim(LEAST_LOSS / 1.35, 100)
    ticks = (0.01, 0.1, 1, 10, 100)
    axes.set_xticks(ticks, ["≤ 0.01", *(f"{tick:g}" for tick in ticks[1:])])
    axes.minorticks_off()
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)


# Curves: a line a method


@dataclass(frozen=True)
class Axis:
    """What an axis says, and how it is scaled."""

    label: str
    logarithmic: bool = False
    least: float | None = None


@dataclass(frozen=True)
class Panel:
    """One set of axes: the entries of a sheet against a key of their rows."""

    title: str
    entries: tuple[Entry, ...]
    key: str
    x: Axis
    y: Axis
    levels: tuple[Entry, ...] = ()
    """Entries that are drawn as level lines."""
    linear: bool = False
    """Whether a line shows what growth in proportion would look like."""
    ticks: bool = True
    """Whether the values of the key are the ticks."""


def panel_figure(name: str, panels: Sequence[Panel], side_by_side: bool = False) -> str | None:
    """Panels below or beside one another, with one legend; None where there is nothing to draw."""
    panels = [panel for panel in panels if any(_is_drawn(entry) for entry in panel.entries)]
    if not panels:
        return None
    label = "; ".join(filter(None, (_panel_words(panel) for panel in panels)))
    # Side by side panels share a line; below one another each has its own.
    height = 2.9 if side_by_side else 0.4 + 2.5 * len(panels)
    return drawn(name, label, height, lambda figure: _draw_panels(figure, panels, side_by_side, height))


def _is_drawn(entry: Entry) -> bool:
    return entry.ours is not None or entry.paper is not None


def _panel_words(panel: Panel) -> str:
    """The first and the last point of each line."""
    words = []
    for column in dict.fromkeys(entry.column for entry in panel.entries):
        # Lines are told by their ends.
        line = [entry for entry in panel.entries if entry.column == column and entry.ours is not None]
        if line:
            ends = [line[0], line[-1]] if len(line) > 1 else line
            words.append(f"{column} " + " to ".join(f"{number(e.ours or 0.0)} ({e.row})" for e in ends))
    title = f"{panel.title}: " if panel.title else ""
    return f"{title}{panel.y.label} by {panel.x.label}: {', '.join(words)}" if words else ""


def _draw_panels(figure: "Figure", panels: Sequence[Panel], side_by_side: bool, height: float) -> None:
    if side_by_side:
        figure.set_size_inches(3.1 * len(panels), height)
    shape = (1, len(panels)) if side_by_side else (len(panels), 1)
    grid = figure.subplots(*shape, squeeze=False).ravel()
    columns = list(dict.fromkeys(entry.column for panel in panels for entry in (*panel.entries, *panel.levels)))
    # One look for a method in all panels.
    style = looks(columns)
    for axes, panel in zip(grid, panels, strict=True):
        _draw_panel(axes, panel, style)
    # One legend for all: each name once.
    handles: dict[str, Any] = {}
    for axes in grid:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    ncols = min(len(handles), 6 if len(panels) > 1 and side_by_side else 3)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=ncols, columnspacing=1.2)


def _draw_panel(axes: "Axes", panel: Panel, style: Mapping[str, Look]) -> None:
    for column in dict.fromkeys(entry.column for entry in panel.entries):
        _draw_line(axes, [e for e in panel.entries if e.column == column], panel.key, column, style[column])
    for entry in panel.levels:
        _draw_level(axes, entry, style[entry.column])
    _scale(axes, panel)
    if panel.linear:
        _draw_proportion(axes, panel)
    axes.set_xlabel(panel.x.label)
    axes.set_ylabel(panel.y.label)
    if panel.title:
        axes.set_title(panel.title, fontsize=9, loc="left", fontweight="bold")
    axes.grid()


def _draw_line(axes: "Axes", entries: Sequence[Entry], key: str, column: str, look: Look) -> None:
    ours = [(float(dict(e.at)[key]), e.ours, e.spread or 0.0) for e in entries if e.ours is not None]
    if ours:
        x, y, spread = (list(part) for part in zip(*sorted(ours), strict=True))
        # Points of a learning curve are too many for marks.
        many = len(x) > 25
        marks: dict[str, Any] = {} if many else {"marker": look.shape, "markersize": 5, "markeredgecolor": "white"}
        axes.plot(x, y, color=look.colour, linestyle=look.dashes, linewidth=1.5, label=column, **marks)
        if any(spread):
            low, high = ([a + side * b for a, b in zip(y, spread, strict=True)] for side in (-1, 1))
            axes.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)
    paper = [(float(dict(e.at)[key]), e.paper) for e in entries if e.paper is not None]
    if paper:
        x, y = (list(part) for part in zip(*sorted(paper), strict=True))
        axes.plot(
            x,
            y,
            color=look.colour,
            linestyle=DASHED,
            linewidth=0.9,
            marker=look.shape or "o",
            markerfacecolor="white",
            markersize=5,
            label=f"{column}, paper",
        )


def _draw_level(axes: "Axes", entry: Entry, look: Look) -> None:
    if entry.ours is not None:
        axes.axhline(entry.ours, color=look.colour, linestyle=look.dashes, linewidth=1.3, label=entry.column)
    if entry.paper is not None:
        # At the right edge, by height alone.
        at = axes.get_yaxis_transform()
        axes.plot(
            [1.0],
            [entry.paper],
            marker="<",
            color=look.colour,
            markerfacecolor="white",
            markersize=6,
            linestyle="",
            transform=at,
            clip_on=False,
        )


def _scale(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import LogLocator

    for axis, side in ((panel.x, axes.xaxis), (panel.y, axes.yaxis)):
        if axis.logarithmic:
            getattr(axes, f"set_{side.axis_name}scale")("log")
            side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=7))
            side.set_major_formatter(lambda value, _: f"{value:,g}")  # powers of ten would need mathematics
            side.set_minor_formatter(lambda value, _: "")
    places = sorted({float(dict(entry.at)[panel.key]) for entry in panel.entries})
    if panel.ticks and len(places) <= 12:
        axes.set_xticks(places, [f"{place:,g}" for place in places])
        axes.minorticks_off()
    if panel.y.least is not None:
        low, _ = axes.get_ylim()
        # The highest figure decides the upper end, not the spread of a noisy start.
        highest = max(entry.ours for entry in (*panel.entries, *panel.levels) if entry.ours is not None)
        axes.set_ylim(max(low, panel.y.least), max(highest + 0.06 * abs(highest), panel.y.least + 1))


def _draw_proportion(axes: "Axes", panel: Panel) -> None:
    """A line that grows as the key does, from the middle of the curves' first points."""
    # Without a positive figure there is no logarithm.
    points = [(float(dict(e.at)[panel.key]), e.ours) for e in panel.entries if e.ours]
    if len({x for x, _ in points}) < 2:
        return
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    # Through the geometric mean of the first points, which is the middle of them on a logarithmic axis.
    start = math.exp(sum(math.log(y) for x, y in points if x == first) / sum(x == first for x, _ in points))
    axes.plot(
        [first, last],
        [start, start * last / first],
        color=FAINT,
        linestyle=DOTTED,
        linewidth=1.2,
        label="growth in proportion",
    )


# Who gets how much


@dataclass(frozen=True)
class Crowd:
    """Values of groups under several ideas of fairness."""

    title: str
    entries: tuple[Entry, ...]
    """A row an idea, a column a group."""
    means: Mapping[str, float]
    """The mean of all arms by row."""


def crowds_figure(name: str, crowds: Sequence[Crowd]) -> str | None:
    """A row an idea of fairness, a mark a group, a stroke the mean; None where there is nothing to draw."""
    crowds = [crowd for crowd in crowds if any(entry.ours is not None for entry in crowd.entries)]
    if not crowds:
        return None
    heights = [0.75 + 0.22 * len(_rows_of(crowd)) for crowd in crowds]
    label = "; ".join(_crowd_words(crowd) for crowd in crowds)
    return drawn(name, label, sum(heights) + 0.3 * len(crowds), lambda figure: _draw_crowds(figure, crowds, heights))


def _rows_of(crowd: Crowd) -> list[str]:
    return list(dict.fromkeys(entry.row for entry in crowd.entries))


def _crowd_words(crowd: Crowd) -> str:
    told = []
    for row in _rows_of(crowd):
        values = [entry.ours for entry in crowd.entries if entry.row == row and entry.ours is not None]
        if values:
            told.append(f"{row} from {number(min(values))} to {number(max(values))}")
    return f"{crowd.title}: values of the groups, {', '.join(told)}"


def _draw_crowds(figure: "Figure", crowds: Sequence[Crowd], heights: Sequence[float]) -> None:
    # A figure each, with its own legend, for groups differ from problem to problem.
    parts = figure.subfigures(len(crowds), 1, squeeze=False, height_ratios=list(heights)).ravel()
    for part, crowd in zip(parts, crowds, strict=True):
        _draw_crowd(part.subplots(), crowd)
        ncols = 4 if all(len(entry.column) < 10 for entry in crowd.entries) else 2
        part.legend(loc="outside lower center", ncols=ncols, handletextpad=0.1, columnspacing=1.0)


def _draw_crowd(axes: "Axes", crowd: Crowd) -> None:
    rows = _rows_of(crowd)
    style = looks(list(dict.fromkeys(entry.column for entry in crowd.entries)))
    for y, row in enumerate(rows):
        own = [entry for entry in crowd.entries if entry.row == row and entry.ours is not None]
        values = [entry.ours or 0.0 for entry in own]
        if values:
            axes.plot([min(values), max(values)], [y, y], color="#c9c9c9", linewidth=1.2, zorder=1)
        for entry, value in zip(own, values, strict=True):
            look = style[entry.column]
            axes.plot(value, y, look.shape, color=look.colour, markersize=5.5, markeredgecolor="white", zorder=3)
        if row in crowd.means:
            axes.plot(crowd.means[row], y, "|", color=INK, markersize=10, markeredgewidth=1.4, zorder=4)
    for column, look in style.items():
        axes.plot([], [], look.shape, color=look.colour, markersize=5, linestyle="", label=column)
    axes.plot([], [], "|", color=INK, markersize=9, markeredgewidth=1.4, linestyle="", label="mean of all arms")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("value of an arm (discounted reward)")
    axes.set_title(crowd.title, fontsize=9, loc="left", fontweight="bold")
    axes.grid(axis="x")
