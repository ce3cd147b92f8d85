"""The figure of each target, as SVG: filled marks are ours, hollow ones are the paper's."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from paper.tables import Entry, Table, row_number
from paper.targets import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_LOSS = 1e-3
"""Losses below this many percent are drawn here, as a logarithmic axis has no 0."""

LEARNING_FLOOR = 7.0
"""Welfare at which the paper's learning curves start."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#666666")
MARKERS = "osD^vP"


def draw(target: Target, tables: Sequence[Table]) -> str | None:
    """The figure of a target; None if it has no figures of ours."""
    own = {table.name: table for table in tables if any(entry.values for entry in table.entries.values())}
    if "curve" in own:
        return _curves(own["curve"], own["welfare"])
    if "times" in own:
        return _programs(own["times"])
    if "seconds" in own:
        return _lines_figure([own[name] for name in ("seconds", "shares") if name in own], "seconds per episode", True)
    if "outcomes-1" in own:
        return _groups([table for name, table in own.items() if name.startswith("groups")])
    if "welfare" not in own:
        return None
    if not target.published and all(row_number(row) for row in own["welfare"].rows):
        return _lines_figure([own["welfare"]], "welfare (GGF)", False)
    return _losses(own["welfare"])


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _svg(figure: "Figure") -> str:
    """The figure as an SVG element with selectable text and nothing that changes from run to run."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "evenhand"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return re.sub(r"^.*?(?=<svg)", "", file.getvalue(), flags=re.DOTALL)


def _style(axes: "Axes", grid: str = "both") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e5e5e5", linewidth=0.7)
    axes.set_axisbelow(True)


def _plot(axes: "Axes", points: Iterable[tuple[float, Entry]], colour: str, marker: str, label: str) -> None:
    """Our figures of a column as a line with its deviation shaded, the published ones as hollow marks."""
    points = sorted(points, key=lambda point: point[0])
    ours = [(x, entry.ours, entry.deviation or 0.0) for x, entry in points if entry.ours is not None]
    paper = [(x, entry.paper) for x, entry in points if entry.paper is not None]
    if ours:
        xs, ys, deviations = zip(*ours, strict=True)
        size = 4 if len(xs) < 30 else 0
        axes.plot(xs, ys, color=colour, marker=marker, markersize=size, linewidth=1.3, label=label)
        low, high = ([y + sign * d for y, d in zip(ys, deviations, strict=True)] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
    if paper:
        xs, ys = zip(*paper, strict=True)
        axes.plot(xs, ys, color=colour, marker=marker, markerfacecolor="white", linestyle="--", linewidth=0.9)


def _lines_figure(tables: Sequence[Table], y_label: str, logarithmic: bool) -> str:
    """A panel per table: a line per column against the number in the row's name."""
    figure = _figure(7, 3.2 * len(tables))
    for axes, table in zip(figure.subplots(len(tables), 1, squeeze=False).ravel(), tables, strict=True):
        for index, column in enumerate(table.columns):
            points = [(row_number(row) or 0.0, entry) for (row, own), entry in table.entries.items() if own == column]
            _plot(axes, points, COLOURS[index % 7], MARKERS[index % 6], column)
        places = sorted(row_number(row) or 0.0 for row in table.rows)
        if places[-1] > 12 * places[0]:
            axes.set_xscale("log")
        if len(places) <= 12:
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.minorticks_off()
        if logarithmic:
            axes.set_yscale("log")
        axes.set_xlabel(
            "number of machines N" if table.rows[0].startswith("N") else "share of machines that can be replaced, b/N"
        )
        axes.set_ylabel(y_label)
        axes.legend(fontsize=8, frameon=False)
        _style(axes)
    return _svg(figure)


def _curves(curve: Table, welfare: Table) -> str:
    """Learning curves, a panel per instance, with level lines for the optimum and the policies without learning."""
    rows = [row for row in welfare.rows if any(place.endswith(f", {row}") for place, _ in curve.entries)]
    figure = _figure(3.2 * len(rows), 3.2)
    for axes, row in zip(figure.subplots(1, len(rows), squeeze=False, sharey=True).ravel(), rows, strict=True):
        for column in curve.columns:
            points = [
                (row_number(place) or 0.0, entry)
                for (place, own), entry in curve.entries.items()
                if own == column and place.endswith(f", {row}")
            ]
            _plot(axes, points, COLOURS[0], "o", column)
        for index, column in enumerate(("OPT", "WIP", "WIP exact", "RDM"), start=1):
            entry = welfare.entries.get((row, column))
            if entry is not None and entry.ours is not None:
                axes.axhline(entry.ours, color=COLOURS[index], linestyle=(0, (4, 2)), linewidth=1.2, label=column)
        axes.set_ylim(bottom=LEARNING_FLOOR)
        axes.set_xlabel("episodes of 300 steps")
        axes.set_title(row, fontsize=10)
        _style(axes)
    figure.axes[0].set_ylabel("welfare (GGF)")
    figure.axes[0].legend(fontsize=8, frameon=False)
    return _svg(figure)


def _programs(times: Table) -> str:
    figure = _figure(7, 3.2)
    axes = figure.subplots()
    points = [(row_number(column) or 0.0, entry) for (row, column), entry in times.entries.items() if row == "Total"]
    _plot(axes, points, COLOURS[0], "o", "total time, ours")
    axes.plot([], [], color=COLOURS[0], marker="o", markerfacecolor="white", linestyle="--", label="the paper's")
    axes.set(yscale="log", xlabel="number of machines N", ylabel="seconds")
    axes.legend(fontsize=8, frameon=False)
    _style(axes)
    return _svg(figure)


def _losses(table: Table) -> str:
    """Percent of the optimum (else of the bound) that each method loses, a row per method and a mark per instance."""
    best = _column(table, "OPT") or _column(table, "fluid bound")
    methods = [column for column in table.columns if column not in ("OPT", "fluid bound")]
    figure = _figure(7, 0.9 + 0.3 * len(methods))
    axes = figure.subplots()
    for index, row in enumerate(row for row in table.rows if row in best):
        look = {"marker": MARKERS[index % 6], "color": COLOURS[index % 7], "linestyle": "", "markersize": 6}
        for y, method in enumerate(methods):
            entry = table.entries.get((row, method), Entry())
            for value, filled in ((entry.ours, True), (entry.paper, False)):
                if value is not None:
                    loss = max(LEAST_LOSS, 100 * (best[row] - value) / abs(best[row]))
                    axes.plot(loss, y, markerfacecolor=look["color"] if filled else "white", **look)
        axes.plot([], [], label=row, **look)
    axes.set_xscale("log")
    axes.set_yticks(range(len(methods)), methods)
    axes.invert_yaxis()
    axes.set_xlabel(
        f"percent of the best possible welfare that is lost (less than {LEAST_LOSS:g} is drawn as {LEAST_LOSS:g})"
    )
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _style(axes, "x")
    return _svg(figure)


def _column(table: Table, column: str) -> Mapping[str, float]:
    return {row: entry.ours for (row, own), entry in table.entries.items() if own == column and entry.ours is not None}


def _groups(tables: Sequence[Table]) -> str:
    """Values of the groups, a row per welfare: the shorter the line, the more equal."""
    heights = [1.1 + 0.22 * len(table.rows) for table in tables]
    figure = _figure(7, sum(heights))
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights).ravel()
    for axes, table in zip(panels, tables, strict=True):
        for index, column in enumerate(table.columns):
            values = _column(table, column)
            look = {"marker": MARKERS[index % 6], "color": COLOURS[index % 7], "linestyle": "", "markersize": 5}
            axes.plot(list(values.values()), [table.rows.index(row) for row in values], label=column, **look)
        for y, row in enumerate(table.rows):
            own = [entry.ours for (name, _), entry in table.entries.items() if name == row and entry.ours is not None]
            axes.plot([min(own), max(own)], [y, y], color="#c9c9c9", linewidth=1.2, zorder=0)
        axes.set_yticks(range(len(table.rows)), table.rows, fontsize=8)
        axes.invert_yaxis()
        axes.set_title(table.caption.partition(":")[0], fontsize=9, loc="left")
        axes.set_xlabel("value of an arm")
        axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        _style(axes, "x")
    return _svg(figure)
