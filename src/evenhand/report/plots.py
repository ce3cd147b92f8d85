"""Figures with matplotlib, as inline SVG of a page and as figures of a notebook (`.plot()`), in one style.

A `Plot` is a height and a function that draws into an empty figure. `svg` gives real text, no metadata, no dates, and
the same bytes for the same data; every id has the figure's own prefix, because several figures share one page.
`figure_of` gives a figure that a notebook shows by itself, without pyplot, and that can be changed and saved like any
other. Colours are those of Okabe and Ito, distinct for the colour-blind too; marks and dashes differ as well.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.standard_errors import CONFIDENCE
from evenhand.model.labels import type_names
from evenhand.model.simulator import Problem
from evenhand.planning.compare import Comparison, Row
from evenhand.planning.price_of_fairness import PriceOfFairness
from evenhand.planning.solution import Solution
from evenhand.policies.index import TypeIndices
from evenhand.report.comparison import bound_title, by_inequality
from evenhand.report.format import decimals_of, fixed, listed, number, shortened
from evenhand.report.models import member
from evenhand.typing import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from evenhand.learning.environments import Scene
    from evenhand.learning.training import Training

BLUE, ORANGE, GREEN, RED, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, FAINT = "#222222", "#8a8a8a"
MARKS = tuple(zip((BLUE, ORANGE, GREEN, PINK, SKY, RED), "osD^vP", strict=True))
"""Colour and shape of the marks of each type."""

LINES = ((BLUE, "-"), (GREEN, (0, (5, 2))), (RED, (0, (1.5, 1.5))))
"""Colour and dashes of Lorenz curves."""

_ONE_AT_A_TIME = RLock()

WIDTH, DPI = 4.6, 120
"""Inches, narrow enough for a phone; dots per inch in a notebook."""

MOST_DOTS, MOST_BARS = 60, 24
"""Arms (or groups of equal ones) drawn one by one, and types or arms with a bar each."""

UNEVEN = 0.05
"""Gini coefficient from which a Lorenz curve is visibly below the diagonal."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar in a name is a dollar
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.0,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
}


@dataclass(frozen=True)
class Plot:
    """Height in inches, a function that draws into an empty figure, and for a page its name and text alternative."""

    height: float
    draw: Callable[[Figure], None]
    name: str = ""
    label: str = ""

    def svg(self) -> str:
        """Return the SVG element."""
        return svg(self.name, self.label, self)


class NotebookFigure(Figure):
    """Figure that a notebook shows by itself."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        stream = io.BytesIO()
        # Twice the dots at the stated size: sharp on screens of high resolution.
        self.savefig(stream, format="png", dpi=2 * DPI)
        width, height = self.get_size_inches()
        return stream.getvalue(), {"width": round(width * DPI), "height": round(height * DPI)}


def figure_of(plot: Plot) -> NotebookFigure:
    """Return the figure of a plot, for a notebook."""
    with styled():
        figure = NotebookFigure(figsize=(WIDTH, plot.height), dpi=DPI, layout="constrained")
        plot.draw(figure)
        figure.draw_without_rendering()  # ticks are made at the first drawing, in the style of that moment
    return figure


def svg(name: str, label: str, plot: Plot) -> str:
    """Return the SVG element of a plot, safe to embed in a page.

    Args:
        name: name of the figure, unique on the page.
        label: text alternative; escaped here.
        plot: the plot.
    """
    stream = io.StringIO()
    with styled({"svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, plot.height), layout="constrained")
        FigureCanvasSVG(figure)
        plot.draw(figure)
        figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = stream.getvalue()
    body = re.sub(r"<!--.*?-->\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    opening, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    rest = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", rest)
    rest = re.sub(r"font: (\S+) [^;\"]*", r"font-size: \1", rest)
    return f'<svg {box[0] if box else ""} role="img" aria-label="{escape(label)}">{rest.strip()}'


@contextmanager
def styled(more: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Draw in the style of the reports, independent of the user's own settings.

    Args:
        more: further settings of matplotlib.
    """
    with _ONE_AT_A_TIME, mpl.rc_context(), warnings.catch_warnings():  # settings of the process, not of a thread
        # The reader's browser has glyphs that the font used for measuring lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        mpl.rcdefaults()
        mpl.rcParams.update({**_STYLE, **(more or {})})
        yield


def row_labels(axes: "Axes", names: Sequence[str], most: int = 22) -> None:
    """Label one line of the figure per name, first on top."""
    axes.set_yticks(range(len(names)), [shortened(name, most) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


# -- comparisons -----------------------------------------------------------------------------------------------------


def comparison_figure(comparison: Comparison, kind: Literal["welfare", "spread", "lorenz"]) -> NotebookFigure:
    """Return bars of welfare, the values of the arms, or Lorenz curves."""
    if not comparison.rows:
        raise NotApplicableError("there is nothing to draw: no policy was compared")
    lorenz = lorenz_rows(comparison.rows, 0.0)
    if kind == "lorenz" and not lorenz:
        raise NotApplicableError("Lorenz curves need values that are not negative, not all of them 0")
    plots = {
        "welfare": lambda: welfare_plot(comparison.as_shown()),
        "spread": lambda: spread_plot(comparison),
        "lorenz": lambda: lorenz_plot(lorenz, len(comparison.rows)),
    }
    return _figure_of_kind(kind, plots)


def _figure_of_kind(kind: str, plots: Mapping[str, Callable[[], Plot]]) -> NotebookFigure:
    if kind not in plots:
        raise InvalidInputError(f"kind: expected {listed([repr(known) for known in plots], 'or')}, got {kind!r}")
    return figure_of(plots[kind]())


def lorenz_rows(rows: Sequence[Row], uneven_from: float = UNEVEN) -> list[Row]:
    """Return the best, the most equal and the most unequal policy; none if values are negative or nearly equal.

    Args:
        rows: policies, best first.
        uneven_from: Gini coefficient that one of them must have.
    """
    sound = [row for row in rows if row.evaluation.worst >= 0]
    ordered = by_inequality(sound)
    if not ordered or ordered[-1].evaluation.gini_coefficient < uneven_from:
        return []
    best = next(row for row in sound if math.isfinite(row.evaluation.gini_coefficient))
    return list({id(row): row for row in (best, ordered[0], ordered[-1])}.values())


def quantile(values: Floats, counts: Ints, share: float) -> float:
    """Return the smallest value that at least a share of the arms does not exceed, from (unit,) values and counts."""
    order = np.argsort(values)
    below = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(below, share * below[-1])])


def welfare_plot(comparison: Comparison) -> Plot:
    """Return bars of welfare, best on top, with 95 % error bars and the bound as a line."""
    rows, bound = comparison.rows, comparison.upper_bound
    line = "" if bound is None else f"{bound_title(comparison)} {number(bound)}"

    def draw(figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = figure.subplots()
        welfare = np.array([row.evaluation.welfare for row in rows])
        errors = CONFIDENCE * np.array([row.evaluation.welfare_stderr for row in rows])
        axes.barh(range(len(rows)), welfare, height=0.62, color=[BLUE] + ["#8fbfdc"] * (len(rows) - 1))
        _error_bars(axes, welfare, errors)
        axes.axvline(0, color=FAINT, linewidth=0.6)
        row_labels(axes, [row.policy for row in rows])
        if bound is not None:
            _mark_line(axes, bound, line)
        _numbers(axes, [fixed(value, decimals_of([*welfare])) for value in welfare], "welfare")
        axes.margins(x=0.02)

    texts = [f"{row.policy} {number(row.evaluation.welfare)}" for row in rows]
    label = f"Welfare by policy: {'; '.join([*texts, line] if line else texts)}"
    return Plot(0.85 + 0.3 * len(rows), draw, "welfare", label)


def _error_bars(axes: "Axes", values: Floats, errors: Floats) -> None:
    """Draw the error bars that are finite: a single episode has none."""
    shown = np.flatnonzero((errors > 0) & np.isfinite(errors))
    if len(shown):
        axes.errorbar(values[shown], shown, xerr=errors[shown], fmt="none", ecolor=INK, elinewidth=1.1, capsize=2.5)


def _numbers(axes: "Axes", texts: Sequence[str], title: str) -> None:
    """Write numbers at the right edge, aligned right; their width is estimated from the number of letters."""
    at = 1.03 + 0.021 * max(len(text) for text in (*texts, title))
    for y, text in enumerate(texts):
        axes.text(at, y, text, transform=axes.get_yaxis_transform(), ha="right", va="center")
    axes.text(at, -0.62, title, transform=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=8, color=FAINT)


def _mark_line(axes: "Axes", place: float, text: str) -> None:
    """Draw a dashed vertical line with its text on top, on the side that has room."""
    axes.axvline(place, color=RED, linewidth=1.3, linestyle=(0, (4, 2)))
    side = "right" if place >= sum(axes.get_xlim()) / 2 else "left"
    at = axes.get_xaxis_transform()
    axes.text(place, 1.01, text, color="#a84700", ha=side, va="bottom", fontsize=8, transform=at)


@dataclass(frozen=True)
class Spread:
    """Values of units (arms, types or groups) under one plan."""

    name: str
    values: Floats
    counts: Ints
    """(unit,) number of arms."""
    marks: Ints
    """(unit,) number of the mark."""
    mean: float


def spread_plot(comparison: Comparison) -> Plot:
    """Return the values of the arms under each policy; each type has a mark of its own if there are few."""
    problem, found = comparison.problem, [row.evaluation for row in comparison.rows]
    marked = 2 <= problem.num_types <= len(MARKS) and all(len(each.unit_values) <= MOST_DOTS for each in found)
    rows, texts = [], []
    for row, each in zip(comparison.rows, found, strict=True):
        types = np.arange(problem.num_types) if each.by_type else problem.type_of_arm.astype(np.int64)
        values, mean = each.unit_values, float(np.average(each.unit_values, weights=each.unit_counts))
        rows.append(Spread(row.policy, values, each.unit_counts, types * marked, mean))
        low, high, middle = (number(float(value)) for value in (values.min(), values.max(), mean))
        texts.append(f"{row.policy} from {low} to {high}, mean {middle}")
    plot = _spread_plot(rows, type_names(problem) if marked else [], "value of an arm")
    return replace(plot, name="spread", label=f"Values of the arms by policy: {'; '.join(texts)}")


def _spread_plot(rows: Sequence[Spread], names: Sequence[str], label: str) -> Plot:
    """Return a thin line from worst to best per row, its mean, and dots or a thick line for the middle half.

    Names are those of the marks; empty if there is only one.
    """

    def draw(figure: Figure) -> None:
        """Draw the rows and the legend."""
        axes = figure.subplots()
        for y, row in enumerate(rows):
            axes.plot([row.values.min(), row.values.max()], [y, y], color="#b5b5b5", linewidth=1.2)
            if len(row.values) > MOST_DOTS:
                middle = [quantile(row.values, row.counts, share) for share in (0.25, 0.75)]
                axes.plot(middle, [y, y], color=BLUE, linewidth=5.5, solid_capstyle="butt")
            for mark in np.unique(row.marks) if len(row.values) <= MOST_DOTS else ():
                colour, shape = MARKS[mark]
                # Marks are shifted a little, so that equal values do not hide each other.
                shift = (mark - (len(names) - 1) / 2) * min(0.2, 0.6 / len(names)) if names else 0.0
                own = row.values[row.marks == mark]
                axes.plot(own, np.full(len(own), y + shift), shape, color=colour, markersize=5.5, mec="white", mew=0.5)
            axes.plot([row.mean], [y], "|", color=INK, markersize=11, markeredgewidth=1.4, zorder=5)
        axes.plot([], [], "|", color=INK, markersize=9, markeredgewidth=1.4, label="mean")
        for (colour, shape), name in zip(MARKS, names, strict=False):
            axes.plot([], [], shape, color=colour, markersize=5, linestyle="", label=shortened(name, 22))
        ncols = 4 if len(names) <= 3 else 3
        figure.legend(loc="outside lower center", ncols=ncols, handletextpad=0.3, columnspacing=1.4)
        row_labels(axes, [row.name for row in rows])
        axes.margins(x=0.04)
        axes.set_xlabel(label)

    return Plot(1.1 + 0.35 * len(rows), draw)


def lorenz_plot(rows: Sequence[Row], compared: int) -> Plot:
    """Return Lorenz curves of at most three policies out of those compared."""

    def draw(figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = figure.subplots()
        who = member(rows[0].evaluation.problem)
        axes.plot([0, 100], [0, 100], color=FAINT, linewidth=0.9, label=f"all {who}s equal")
        for row, (colour, dashes) in zip(rows, LINES, strict=False):
            arms, value = row.evaluation.lorenz
            shown = np.unique(np.linspace(0, len(arms) - 1, 200).round().astype(np.int64))
            label = shortened(row.policy, 30)
            axes.plot(100 * arms[shown], 100 * value[shown], color=colour, linestyle=dashes, linewidth=1.8, label=label)
        share = "their share of all value, %"
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel=f"worst-off {who}s, % of all", ylabel=share)
        axes.set_aspect("equal")
        axes.grid()
        axes.legend(loc="upper left", handlelength=2.6)
        if len(rows) < compared:
            title = f"of {compared:,} policies: the best, the most equal, the most unequal"
            axes.set_title(title, fontsize=9, loc="left")

    texts = [f"{row.policy}, Gini coefficient {fixed(row.evaluation.gini_coefficient, 3)}" for row in rows]
    return Plot(3.4, draw, "lorenz", f"Lorenz curves: {'; '.join(texts)}")


# -- the price of fairness -------------------------------------------------------------------------------------------


def fairness_figure(found: PriceOfFairness, kind: str) -> NotebookFigure:
    """Return the values under each plan, or the mean against the worst-off."""
    trade = partial(_trade_plot, trade_points(found), member(found.problem))
    return _figure_of_kind(kind, {"values": lambda: fairness_plot(found), "trade": trade})


def fairness_plot(found: PriceOfFairness) -> Plot:
    """Return the values of types or groups, one row per welfare."""
    counts = np.array(list(found.counts.values()))
    marked = len(counts) <= len(MARKS)
    marks = np.arange(len(counts)) * marked
    rows = [Spread(row.welfare, np.array(list(row.values.values())), counts, marks, row.mean) for row in found.rows]
    axis = "value of an arm" if found.who == "type" else "value of a group"
    texts = "; ".join(f"{row.welfare} from {number(row.worst)}, mean {number(row.mean)}" for row in found.rows)
    plot = _spread_plot(rows, list(found.counts) if marked else [], axis)
    return replace(plot, name="values", label=f"Values by {found.who}: {texts}")


def trade_points(found: PriceOfFairness) -> list[tuple[str, float, float]]:
    """Return name, mean and worst-off of each plan."""
    return [(row.welfare, row.mean, row.worst) for row in found.rows]


def trade_svg(points: Sequence[tuple[str, float, float]], who: str) -> str | None:
    """Return the mean against the worst-off; None if all points are the same.

    Args:
        points: name, mean and worst-off per plan.
        who: what has values, such as `arm`.
    """
    if len(_distinct_places(points)) < 2:
        return None
    texts = "; ".join(f"{name} {number(mean)} and {number(worst)}" for name, mean, worst in points)
    return svg("trade", f"Mean and worst-off by welfare: {texts}", _trade_plot(points, who))


def _distinct_places(points: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Return the points with their names joined if they agree in three digits, or their labels would overlap."""
    spots = np.array([point[1:] for point in points])
    units = np.maximum(np.ptp(spots, axis=0) / 15, 1e-3 * np.abs(spots).max(axis=0))
    places: dict[tuple[float, float], list[tuple[str, float, float]]] = {}
    for point in points:
        near = (key for key in places if abs(key[0] - point[1]) <= units[0] and abs(key[1] - point[2]) <= units[1])
        places.setdefault(next(near, point[1:]), []).append(point)
    return [(", ".join(name for name, _, _ in own), *own[0][1:]) for own in places.values()]


def _trade_plot(points: Sequence[tuple[str, float, float]], who: str) -> Plot:
    def draw(figure: Figure) -> None:
        """Draw into an empty figure."""
        axes, places = figure.subplots(), _distinct_places(points)
        means = [mean for _, mean, _ in places]
        middle = (min(means) + max(means)) / 2
        for (colour, shape), (name, mean, worst) in zip(MARKS * len(places), places, strict=False):
            axes.plot(mean, worst, shape, color=colour, markersize=7, markeredgecolor="white")
            shift, side = (7, "left") if mean <= middle else (-7, "right")  # text to the side that has more room
            style: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "center", "fontsize": 8}
            axes.annotate(shortened(name, 40), (mean, worst), xytext=(shift, 0), **style)
        axes.axvline(max(means), color=FAINT, linewidth=0.7, linestyle=(0, (4, 2)))
        axes.set(xlabel=f"mean value of the {who}s", ylabel=f"value of the worst-off {who}")
        axes.grid()
        axes.margins(x=0.12, y=0.12)

    return Plot(3.2, draw)


# -- solutions and evaluations ---------------------------------------------------------------------------------------


def solution_figure(solution: Solution) -> NotebookFigure:
    """Return the values of types or arms."""
    values = solution.unit_values
    return figure_of(_values_plot(solution.problem, solution.by_type, values, None, solution.welfare))


def evaluation_figure(found: Evaluation) -> NotebookFigure:
    """Return the values of types or arms, with error bars of 95 % if they are estimates."""
    errors = None if found.exact else CONFIDENCE * found.unit_stderr
    return figure_of(_values_plot(found.problem, found.by_type, found.unit_values, errors, found.welfare))


def _values_plot(problem: Problem, by_type: bool, values: Floats, errors: Floats | None, welfare: float) -> Plot:
    def draw_bars(figure: Figure) -> None:
        """Draw one bar per type or arm."""
        axes, names = figure.subplots(), type_names(problem)
        if not by_type:
            names = [f"{arm} {names[kind]}" for arm, kind in enumerate(problem.type_of_arm)]
        axes.barh(np.arange(len(values)), values, height=0.62, color=BLUE)
        if errors is not None:
            _error_bars(axes, values, errors)
        row_labels(axes, names)
        axes.axvline(0, color=FAINT, linewidth=0.6)
        _mark_line(axes, welfare, f"welfare {number(welfare)}")
        axes.margins(x=0.02)
        axes.set_xlabel("value of an arm")

    if len(values) <= MOST_BARS:
        return Plot(0.9 + 0.27 * len(values), draw_bars)
    counts = problem.type_counts if by_type else np.ones(len(values), dtype=np.int64)
    mean = float(np.average(values, weights=counts))
    row = Spread(f"welfare {number(welfare)}", values, counts, np.zeros(len(values), dtype=np.int64), mean)
    return _spread_plot([row], [], "value of an arm")


# -- training, indices and scenes -------------------------------------------------------------------------------------


def training_figure(training: "Training") -> NotebookFigure:
    """Return the learning curve."""

    def draw(figure: Figure) -> None:
        """Draw the scores, the best so far and the best of all."""
        axes = figure.subplots()
        steps, scores = (np.array(column, dtype=np.float64) for column in zip(*training.curve, strict=True))
        axes.plot(steps, scores, color=BLUE, linewidth=1.5, label="the network at that moment")
        best = np.maximum.accumulate(scores)
        axes.plot(steps, best, color=GREEN, linewidth=1.2, linestyle=(0, (4, 2)), label="the best so far")
        place = int(scores.argmax())
        at, side = (steps[place], scores[place]), "right" if steps[place] > steps.max() / 2 else "left"
        axes.plot(*at, "o", color=GREEN, markersize=5)
        axes.annotate(number(at[1]), at, xytext=(0, -12), textcoords="offset points", ha=side, fontsize=8)
        axes.grid(axis="y")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set(xlabel="steps played", ylabel="mean value of an arm" + ("" if training.exact else ", estimated"))
        axes.legend(loc="lower right")

    return figure_of(Plot(2.6, draw))


def indices_figure(found: TypeIndices) -> NotebookFigure:
    """Return the index of each state: one line per type, or by steps to go one line per state of one type."""
    if not found.indexable.any():
        raise NotApplicableError(f"no type is indexable. {found.result.explain(0)}")
    draw = _draw_indices if found.indices.ndim == 2 else _draw_index_steps
    return figure_of(Plot(2.8, lambda figure: draw(figure.subplots(), found)))


def _draw_indices(axes: "Axes", found: TypeIndices) -> None:
    """Draw one line per type over its states, labelled if all types share the labels."""
    problem, names = found.problem, type_names(found.problem)
    # Many lines make a band; more of them would only take time.
    shown = np.flatnonzero(found.indexable)[:200]
    lines = [(names[t], np.arange(n := problem.types.num_states[t]), found.indices[t, :n]) for t in shown]
    labels, num_states = {states for _, states, _ in problem.types.labels}, found.indices.shape[-1]
    _draw_lines(axes, lines)
    axes.set(xlabel="state", ylabel="Whittle index")
    if len(labels) == 1 and (own := next(iter(labels))) and num_states <= 8:
        axes.set_xticks(range(num_states), [shortened(label, 12) for label in own])
        axes.set_xlabel("")


def _draw_index_steps(axes: "Axes", found: TypeIndices) -> None:
    """Draw one line per state of the first indexable type over the steps to go, so that the end is on one side."""
    kind = int(np.flatnonzero(found.indexable)[0])
    num_states, num_steps = int(found.problem.types.num_states[kind]), found.indices.shape[1]
    labels = found.problem.types.labels[kind][1] if found.problem.types.labels else ()
    names = labels or [f"state {state}" for state in range(num_states)]
    steps = num_steps - np.arange(num_steps)
    _draw_lines(axes, [(names[state], steps, found.indices[kind, :, state]) for state in range(num_states)])
    title = f", {shortened(type_names(found.problem)[kind], 22)}" if found.problem.num_types > 1 else ""
    axes.set(xlabel="steps to go", ylabel=f"Whittle index{title}")


def _draw_lines(axes: "Axes", lines: Sequence[tuple[str, Ints, Floats]]) -> None:
    """Draw lines with marks and a legend; beyond eight all are thin and grey."""
    for place, (name, x, y) in enumerate(lines):
        colour, shape = MARKS[place % len(MARKS)]
        style: dict[str, Any] = {"color": FAINT, "linewidth": 0.6, "alpha": 0.6}
        if len(lines) <= 8:
            style = {"color": colour, "marker": shape, "markersize": 4.5, "linewidth": 1.2}
        axes.plot(x, y, label=shortened(name, 22), markevery=max(1, len(x) // 12), **style)
    axes.axhline(0, color=FAINT, linewidth=0.6)
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if 1 < len(lines) <= 8:
        axes.legend(loc="best")


def scene_pixels(scene: "Scene") -> "NDArray[np.uint8]":
    """Return (height, width, 3) colours: the arms per state, and above each bar a thinner one of the last actions."""
    # The canvas that gives pixels is loaded only here.
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with styled():
        figure = Figure(figsize=(WIDTH, 1.3 + 0.3 * len(scene.states)), dpi=DPI, layout="constrained")
        canvas, axes, places = FigureCanvasAgg(figure), figure.subplots(), np.arange(len(scene.states))
        axes.barh(places + 0.14, scene.counts, height=0.42, color="#c9c9c9", label="arms now")
        starts = np.cumsum(scene.allocation, axis=1) - scene.allocation
        for action, name in enumerate(scene.actions):
            bars: dict[str, Any] = {"left": starts[:, action], "height": 0.24, "color": MARKS[action % len(MARKS)][0]}
            axes.barh(places - 0.24, scene.allocation[:, action], label=f"was given {shortened(name, 14)}", **bars)
        row_labels(axes, scene.states, 18)
        axes.grid(visible=False)
        axes.set_xlim(0, max(1, int(scene.counts.sum())))  # the same from frame to frame
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title(scene.title, fontsize=9, loc="left")
        figure.legend(loc="outside lower center", ncols=3, handlelength=1.2, columnspacing=1.2)
        canvas.draw()  # type: ignore[no-untyped-call]
        return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()  # type: ignore[no-untyped-call]
