"""The figures of a comparison: bars of welfare, the spread over arms, Lorenz curves."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.kinks import CONFIDENCE
from evenhand.model.simulator import Problem
from evenhand.planning.compare import Comparison, Row
from evenhand.report.svg import BLUE, FAINT, GREEN, INK, ORANGE, PINK, RED, SKY, drawn
from evenhand.report.words import (
    bound_title,
    decimals_of,
    is_level,
    member,
    most_equal,
    most_unequal,
    number,
    number_text,
    shortened,
    type_names,
)
from evenhand.typing import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = tuple(zip((BLUE, ORANGE, GREEN, PINK, SKY, RED), "osD^vP", strict=True))
"""Colour and shape of the dots of each type."""

LINES = ((BLUE, "-"), (GREEN, (0, (5, 2))), (RED, (0, (1.5, 1.5))))
"""Colour and dashes of the Lorenz curves."""

MOST_DOTS = 60
"""Arms (or groups of equal ones) that are shown one by one."""

UNEVEN = 0.05
"""A Gini coefficient from which a Lorenz curve can be told from the diagonal by eye."""


def welfare_figure(comparison: Comparison) -> str:
    """Bars of welfare, best on top, with 95 % error bars and the bound as a line."""
    # In words for who cannot see the figure.
    alternative = "; ".join(f"{row.policy} {number(row.evaluation.welfare)}" for row in comparison.rows)
    bound = "" if comparison.upper_bound is None else f"; {bound_title(comparison)} {number(comparison.upper_bound)}"
    label = f"Welfare by policy: {alternative}{bound}"
    return drawn("welfare", label, welfare_height(comparison), lambda f: draw_welfare(f, comparison))


def welfare_height(comparison: Comparison) -> float:
    """Inches that the bars of welfare take."""
    return 0.85 + 0.3 * len(comparison.rows)


def spread_figure(comparison: Comparison, problem: Problem) -> str | None:
    """The values of the arms, a row a policy; None where every arm has the same value under every policy."""
    # A picture of one number says nothing.
    if all(is_level(row.evaluation) for row in comparison.rows):
        return None
    alternative = "; ".join(
        f"{row.policy} from {number(float(row.evaluation.unit_values.min()))} to "
        f"{number(float(row.evaluation.unit_values.max()))}, mean {number(mean_of_arms(row.evaluation))}"
        for row in comparison.rows
    )
    label = f"Values of the arms by policy: {alternative}"
    return drawn("spread", label, spread_height(comparison), lambda f: draw_spread(f, comparison.rows, problem))


def mean_of_arms(found: Evaluation) -> float:
    """The mean value of the arms, also where welfare, and so `Evaluation.mean`, is over groups.

    Args:
        found: what a policy is worth.
    """
    return float(np.average(found.unit_values, weights=found.unit_counts))


def spread_height(comparison: Comparison) -> float:
    """Inches that the rows of values take."""
    return 1.1 + 0.34 * len(comparison.rows)


def lorenz_figure(comparison: Comparison) -> str | None:
    """Lorenz curves of the best, the most equal and the most unequal policy; None where all are nearly straight."""
    chosen = lorenz_rows(comparison.rows)
    if not chosen:
        return None
    alternative = "; ".join(
        f"{row.policy}, Gini coefficient {number_text(row.evaluation.gini_coefficient, 3)}" for row in chosen
    )
    return drawn("lorenz", f"Lorenz curves: {alternative}", 3.4, lambda f: draw_lorenz(f, chosen))


def lorenz_rows(rows: Sequence[Row], uneven_from: float = UNEVEN) -> list[Row]:
    """The policies whose Lorenz curves say something: none where values are negative or nearly equal.

    Args:
        rows: the policies, best first.
        uneven_from: the Gini coefficient that one of them must have.
    """
    sound = [row for row in rows if row.evaluation.worst >= 0 and math.isfinite(row.evaluation.gini_coefficient)]
    uneven = most_unequal(sound)
    # Nearly equal shares cannot be told from the diagonal by eye.
    if uneven is None or uneven.evaluation.gini_coefficient < uneven_from:
        return []
    # By identity: the best may be the most equal, too.
    chosen = {id(row): row for row in (sound[0], most_equal(sound), uneven) if row is not None}
    return list(chosen.values())


def shows_dots(evaluation: Evaluation) -> bool:
    """Whether the spread figure shows the arms one by one."""
    return len(evaluation.unit_values) <= MOST_DOTS


def marks_types(problem: Problem) -> bool:
    """Whether the spread figure tells types apart."""
    return 2 <= problem.num_types <= len(MARKS)


def quantile(values: Floats, counts: Ints, share: float) -> float:
    """The value that at least this share of the arms does not exceed.

    Args:
        values: (group,) values.
        counts: (group,) how many arms have each.
        share: from 0 to 1.
    """
    # Counts, not groups: a large group counts for all its arms.
    order = np.argsort(values)
    below = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(below, share * below[-1])])


# The drawings


def _policy_rows(axes: "Axes", rows: Sequence[Row]) -> None:
    """One line of the figure for each policy, first on top."""
    axes.set_yticks(range(len(rows)), [shortened(row.policy, 22) for row in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _column(axes: "Axes", texts: Sequence[str], title: str) -> None:
    """Numbers at the right edge, aligned right."""
    width = max(len(text) for text in (*texts, title))
    # By the number of letters: texts of a figure have no width before they are drawn.
    at = 1.03 + 0.021 * width
    for y, text in enumerate(texts):
        axes.text(at, y, text, transform=axes.get_yaxis_transform(), ha="right", va="center")
    axes.text(at, -0.62, title, transform=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=8, color=FAINT)


def draw_welfare(figure: "Figure", comparison: Comparison) -> None:
    """Bars of welfare with error bars, under the bound."""
    rows, bound = comparison.rows, comparison.upper_bound
    axes = figure.subplots()
    welfare = np.array([row.evaluation.welfare for row in rows])
    errors = CONFIDENCE * np.array([row.evaluation.welfare_stderr for row in rows])
    # The best in full colour.
    colours = [BLUE] + ["#8fbfdc"] * (len(rows) - 1)
    axes.barh(range(len(rows)), welfare, height=0.62, color=colours)
    # A single episode has no error that could be drawn.
    _error_bars(axes, welfare, np.where(np.isfinite(errors), errors, 0.0))
    axes.axvline(0, color=FAINT, linewidth=0.6)
    _policy_rows(axes, rows)
    if bound is not None:
        axes.axvline(bound, color=RED, linewidth=1.3, linestyle=(0, (4, 2)))
        words = f"{bound_title(comparison)} {number(bound)}"
        # Words on the side that has room.
        side = "right" if bound >= sum(axes.get_xlim()) / 2 else "left"
        axes.text(bound, -0.62, words, color="#a84700", ha=side, va="bottom", fontsize=8)
    decimals = decimals_of([*welfare])
    _column(axes, [number_text(value, decimals) for value in welfare], "welfare")
    axes.margins(x=0.02)


def _error_bars(axes: "Axes", welfare: Floats, errors: Floats) -> None:
    simulated = np.flatnonzero(errors > 0)
    if len(simulated):
        axes.errorbar(
            welfare[simulated], simulated, xerr=errors[simulated], fmt="none", ecolor=INK, elinewidth=1.1, capsize=2.5
        )


def draw_spread(figure: "Figure", rows: Sequence[Row], problem: Problem) -> None:
    """The values of the arms, a line a policy."""
    axes = figure.subplots()
    for y, row in enumerate(rows):
        _spread(axes, y, row.evaluation, problem)
    axes.plot([], [], "|", color=INK, markersize=9, markeredgewidth=1.4, label="mean")
    if marks_types(problem) and all(shows_dots(row.evaluation) for row in rows):
        # Marks for the legend only: they have no place in the figure.
        for (colour, shape), name in zip(MARKS, type_names(problem), strict=False):
            axes.plot([], [], shape, color=colour, markersize=5, linestyle="", label=shortened(name, 22))
    _policy_rows(axes, rows)
    axes.margins(x=0.04)
    axes.set_xlabel("value of an arm")
    figure.legend(
        loc="outside lower center", ncols=4 if problem.num_types <= 3 else 3, handletextpad=0.3, columnspacing=1.4
    )


def _spread(axes: "Axes", y: int, found: Evaluation, problem: Problem) -> None:
    """One policy: a thin line from worst to best; dots for the arms, or a thick line for the middle half."""
    values, counts = found.unit_values, found.unit_counts
    axes.plot([values.min(), values.max()], [y, y], color="#b5b5b5", linewidth=1.2, solid_capstyle="round")
    if shows_dots(found):
        _dots(axes, y, found, problem)
    else:
        middle = [quantile(values, counts, share) for share in (0.25, 0.75)]
        axes.plot(middle, [y, y], color=BLUE, linewidth=5.5, solid_capstyle="butt")
    axes.plot([mean_of_arms(found)], [y], "|", color=INK, markersize=11, markeredgewidth=1.4, zorder=5)


def _dots(axes: "Axes", y: int, found: Evaluation, problem: Problem) -> None:
    kinds = np.arange(problem.num_types) if found.by_type else problem.type_of_arm
    for kind in np.unique(kinds):
        colour, shape = MARKS[int(kind)] if marks_types(problem) else MARKS[0]
        own = found.unit_values[kinds == kind]
        # Types stand a little above each other, so that equal values do not hide each other.
        shift = (kind - (problem.num_types - 1) / 2) * min(0.2, 0.6 / problem.num_types) * marks_types(problem)
        axes.plot(
            own,
            np.full(len(own), y + shift),
            shape,
            color=colour,
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.5,
        )


def draw_lorenz(figure: "Figure", rows: Sequence[Row]) -> None:
    """Lorenz curves, at most three."""
    axes = figure.subplots()
    who = member(rows[0].evaluation.problem)
    axes.plot([0, 100], [0, 100], color=FAINT, linewidth=0.9, label=f"all {who}s equal")
    # At most three lines have a look.
    for row, (colour, dashes) in zip(rows, LINES, strict=False):
        arms, value = (_thinned(shares) for shares in row.evaluation.lorenz)
        axes.plot(
            100 * arms, 100 * value, color=colour, linestyle=dashes, linewidth=1.8, label=shortened(row.policy, 30)
        )
    axes.set(xlim=(0, 100), ylim=(0, 100), xlabel=f"worst-off {who}s, % of all", ylabel="their share of all value, %")
    axes.set_aspect("equal")
    axes.grid()
    axes.legend(loc="upper left", handlelength=2.6)


def _thinned(points: Floats, most: int = 200) -> Floats:
    """At most so many of the points, the ends among them."""
    if len(points) <= most:
        return points
    return points[np.linspace(0, len(points) - 1, most).round().astype(np.int64)]
