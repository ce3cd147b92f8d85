"""The figures of results as matplotlib's: what `.plot()` gives, in the style of the reports.

A `Picture` is a figure that a notebook shows by itself, without pyplot. It can be changed and saved like any other:
`figure.savefig("welfare.pdf")`, `figure.axes[0].set_title(...)`.
"""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from evenhand.errors import InvalidInput, NotApplicable
from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.kinks import CONFIDENCE
from evenhand.planning.compare import Comparison, Row
from evenhand.planning.solution import Solution
from evenhand.policies.index import TypeIndices
from evenhand.report.figures import (
    MARKS,
    draw_lorenz,
    draw_spread,
    draw_welfare,
    lorenz_rows,
    spread_height,
    welfare_height,
)
from evenhand.report.svg import BLUE, FAINT, GREEN, INK, RED, WIDTH, styled
from evenhand.report.words import number, shortened, type_names
from evenhand.typing import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from evenhand.learning.environments import Scene
    from evenhand.learning.training import Training
    from evenhand.model.simulator import Problem
    from evenhand.planning.replay import Replay

DPI = 120
"""Dots an inch in a notebook: letters of about the size of its text."""

MOST_BARS = 24
"""Types or arms that have a bar each; more of them are a curve."""


class Picture(Figure):
    """A figure that a notebook shows by itself."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        stream = io.BytesIO()
        # Twice the dots, at the size told: sharp on screens of high resolution.
        self.savefig(stream, format="png", dpi=2 * DPI)
        width, height = self.get_size_inches()
        return stream.getvalue(), {"width": round(width * DPI), "height": round(height * DPI)}


def pictured(height: float, draw: Callable[[Figure], None]) -> Picture:
    """Draw a figure in the style of the reports.

    Args:
        height: inches.
        draw: puts axes into an empty figure.
    """
    # Within the style: what is drawn keeps it.
    with styled():
        picture = Picture(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
        draw(picture)
        picture.draw_without_rendering()  # ticks are made when first drawn, by the style of that moment
    return picture


def comparison_picture(comparison: Comparison, kind: Literal["welfare", "spread", "lorenz"]) -> Picture:
    """Bars of welfare, the values of the arms, or Lorenz curves."""
    # Each kind of figure has its own reason to be impossible.
    if not comparison.rows:
        raise NotApplicable("there is nothing to draw: no policy was compared")
    if kind == "welfare":
        return pictured(welfare_height(comparison), lambda figure: draw_welfare(figure, comparison.as_shown()))
    if kind == "spread":
        height = spread_height(comparison)
        return pictured(height, lambda figure: draw_spread(figure, comparison.rows, comparison.problem))
    if kind == "lorenz":
        # Asked for by name, curves are drawn however straight they are.
        if not (rows := lorenz_rows(comparison.rows, 0.0)):
            raise NotApplicable(
                "Lorenz curves are of shares: they need values that are not negative, not all of them 0"
            )
        return pictured(3.4, lambda figure: _draw_few_lorenz(figure, rows, len(comparison.rows)))
    raise InvalidInput(f"kind: expected 'welfare', 'spread' or 'lorenz', got {kind!r}")


def _draw_few_lorenz(figure: Figure, rows: Sequence[Row], compared: int) -> None:
    """Lorenz curves, and which ones they are where not all policies have theirs."""
    draw_lorenz(figure, rows)
    if len(rows) < compared:
        title = f"of {compared:,} policies: the best, the most equal, the most unequal"
        figure.axes[0].set_title(title, fontsize=9, loc="left")


def solution_picture(solution: Solution, kind: Literal["values", "history"]) -> Picture:
    """The values of types or arms, or how the search went."""
    if kind == "values":
        marks = [(solution.welfare, f"welfare {number(solution.welfare)}")]
        return _values_picture(solution.problem, solution.by_type, solution.unit_values, None, marks)
    if kind == "history":
        if not solution.history:
            raise NotApplicable(f"the method {solution.method} has no history: only mixtures found by playing have one")
        return pictured(2.6, lambda figure: _draw_history(figure, solution))
    raise InvalidInput(f"kind: expected 'values' or 'history', got {kind!r}")


def evaluation_picture(found: Evaluation) -> Picture:
    """The values of types or arms, with error bars where they are estimates."""
    # Bars of 95 % confidence, where values are estimates.
    errors = None if found.exact else CONFIDENCE * found.unit_stderr
    marks = [(found.welfare, f"welfare {number(found.welfare)}")]
    return _values_picture(found.problem, found.by_type, found.unit_values, errors, marks)


def replay_picture(found: "Replay") -> Picture:
    """How often each action was taken so far, as it came and as it was to be expected."""
    return pictured(replay_height(found), lambda figure: draw_replay(figure, found))


def replay_height(found: "Replay") -> float:
    """Inches that the panels of a replay take."""
    return 2.2 * max(len(found.actions) - 1, 1) + 0.4


def draw_replay(figure: Figure, found: "Replay") -> None:
    """A panel an action: how often it was taken so far, and how often that was to be expected.

    Args:
        figure: an empty one.
        found: what was replayed.
    """
    # One panel at least, even where nothing but idling was recorded.
    panels = figure.subplots(max(len(found.actions) - 1, 1), 1, sharex=True, squeeze=False)[:, 0]
    so_far = found.so_far
    for place, (axes, action) in enumerate(zip(panels, found.actions[1:], strict=False)):
        lower, upper = np.maximum(so_far.lower[:, place], 0), so_far.upper[:, place]
        axes.fill_between(found.steps, lower, upper, color=BLUE, alpha=0.18, linewidth=0, label=_interval(found))
        axes.plot(found.steps, so_far.mean[:, place], color=BLUE, linestyle="--", linewidth=1.2, label="expected")
        axes.step(found.steps, so_far.seen[:, place], color=INK, linewidth=1.4, where="post", label="recorded")
        axes.set_ylabel(f"{shortened(action, 20)}, so far")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_ylim(bottom=0)
    panels[0].legend(loc="upper left")
    panels[-1].set_xlabel("step")


def _interval(found: "Replay") -> str:
    return f"interval of {100 * found.level:.10g} %"


def training_picture(training: "Training") -> Picture:
    """The learning curve."""
    return pictured(2.6, lambda figure: _draw_learning(figure, training))


def indices_picture(found: TypeIndices) -> Picture:
    """The index of each state."""
    if not found.indexable.any():
        raise NotApplicable(f"no type is indexable. {found.result.explain(0)}")
    draw = _draw_indices if found.indices.ndim == 2 else _draw_index_steps
    return pictured(2.8, lambda figure: draw(figure, found))


def scene_pixels(scene: "Scene") -> "NDArray[np.uint8]":
    """(height, width, 3) colours: the arms in each state, and what was done there at the last step."""
    # The canvas that gives pixels is loaded only here.
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with styled():
        figure = Figure(figsize=(WIDTH, 1.3 + 0.3 * len(scene.states)), dpi=DPI, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        _draw_scene(figure, scene)
        canvas.draw()  # type: ignore[no-untyped-call]
        return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()  # type: ignore[no-untyped-call]


# The drawings


def _draw_scene(figure: Figure, scene: "Scene") -> None:
    """Bars of arms now; above each a thinner one of what was done, action by action."""
    axes = figure.subplots()
    # Actions of the last step side by side, above the arms that are there now.
    places = np.arange(len(scene.states))
    axes.barh(places + 0.14, scene.counts, height=0.42, color="#c9c9c9", label="arms now")
    left = np.zeros(len(places))
    for action, name in enumerate(scene.actions):
        colour = MARKS[action % len(MARKS)][0]
        served = scene.allocation[:, action]
        axes.barh(places - 0.24, served, left=left, height=0.24, color=colour, label=f"was given {shortened(name, 14)}")
        left = left + served
    axes.set_yticks(places, [shortened(name, 18) for name in scene.states])
    axes.set_ylim(len(places) - 0.45, -0.55)
    axes.set_xlim(0, max(1, int(scene.counts.sum())))  # the same from frame to frame
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(scene.title, fontsize=9, loc="left")
    figure.legend(loc="outside lower center", ncols=3, handlelength=1.2, columnspacing=1.2)


def _values_picture(
    problem: "Problem", by_type: bool, values: Floats, errors: Floats | None, marks: Sequence[tuple[float, str]]
) -> Picture:
    # More than a screen of bars is a curve.
    if len(values) > MOST_BARS:
        return pictured(2.6, lambda figure: _draw_ranked(figure, problem, by_type, values, marks))
    height = 0.9 + 0.27 * len(values)
    return pictured(height, lambda figure: _draw_bars(figure, problem, by_type, values, errors, marks))


def _draw_bars(
    figure: Figure,
    problem: "Problem",
    by_type: bool,
    values: Floats,
    errors: Floats | None,
    marks: Sequence[tuple[float, str]],
) -> None:
    axes = figure.subplots()
    names = type_names(problem)
    if not by_type:
        names = [f"{arm} {names[kind]}" for arm, kind in enumerate(problem.type_of_arm)]
    places = np.arange(len(values))
    axes.barh(places, values, height=0.62, color=BLUE)
    # Errors that are not finite would blow up the axis.
    if errors is not None and np.isfinite(errors).all():
        axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=1.1, capsize=2.5)
    axes.set_yticks(places, [shortened(name, 22) for name in names])
    axes.set_ylim(len(values) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.axvline(0, color=FAINT, linewidth=0.6)
    _mark(axes, marks)
    axes.margins(x=0.02)
    axes.set_xlabel("value of an arm")


def _mark(axes: "Axes", marks: Sequence[tuple[float, str]]) -> None:
    """Dashed lines, each with its words on top."""
    for place, words in marks:
        axes.axvline(place, color=RED, linewidth=1.3, linestyle=(0, (4, 2)))
        side = "right" if place >= sum(axes.get_xlim()) / 2 else "left"
        at = axes.get_xaxis_transform()
        axes.text(place, 1.01, words, color="#a84700", ha=side, va="bottom", fontsize=8, transform=at)


def _draw_ranked(
    figure: Figure, problem: "Problem", by_type: bool, values: Floats, marks: Sequence[tuple[float, str]]
) -> None:
    """All arms from worst to best, as a curve."""
    axes = figure.subplots()
    # Each type takes as much room as it has arms.
    counts = problem.type_counts if by_type else np.ones(len(values), dtype=np.int64)
    order = np.argsort(values)
    # Shares of arms, from 0; the first value twice, for a step begins on the left.
    shares = 100 * np.concatenate([[0], np.cumsum(counts[order])]) / counts.sum()
    axes.step(shares, np.concatenate([values[order[:1]], values[order]]), where="pre", color=BLUE, linewidth=1.6)
    for place, words in marks:
        axes.axhline(place, color=RED, linewidth=1.3, linestyle=(0, (4, 2)))
        at = axes.get_yaxis_transform()
        axes.text(0.01, place, words, color="#a84700", ha="left", va="bottom", fontsize=8, transform=at)
    axes.grid(axis="y")
    axes.set(xlabel="arms from worst to best, % of all", ylabel="value of an arm", xlim=(0, 100))


def _draw_history(figure: Figure, solution: Solution) -> None:
    axes = figure.subplots()
    policies, welfare = zip(*solution.history, strict=True)
    axes.plot(policies, welfare, "o-", color=BLUE, markersize=4, linewidth=1.4, label="welfare of the best mixture")
    axes.axhline(solution.upper_bound, color=RED, linewidth=1.3, linestyle=(0, (4, 2)), label="upper bound")
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="policies so far", ylabel="welfare")
    axes.legend(loc="lower right")


def _draw_learning(figure: Figure, training: "Training") -> None:
    axes = figure.subplots()
    steps, scores = (np.array(column, dtype=np.float64) for column in zip(*training.curve, strict=True))
    axes.plot(steps, scores, color=BLUE, linewidth=1.5, label="the network at that moment")
    best = np.maximum.accumulate(scores)
    axes.plot(steps, best, color=GREEN, linewidth=1.2, linestyle=(0, (4, 2)), label="the best so far")
    place = int(scores.argmax())
    axes.plot(steps[place], scores[place], "o", color=GREEN, markersize=5)
    axes.annotate(
        number(float(scores[place])),
        (steps[place], scores[place]),
        xytext=(0, -12),
        textcoords="offset points",
        ha="right" if steps[place] > steps.max() / 2 else "left",
        fontsize=8,
    )
    axes.grid(axis="y")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(xlabel="steps played", ylabel="mean value of an arm" + ("" if training.exact else ", estimated"))
    axes.legend(loc="lower right")


def _draw_indices(figure: Figure, found: TypeIndices) -> None:
    """One line a type over its states; beyond six types all are thin and grey."""
    axes = figure.subplots()
    problem, shown = found.problem, np.flatnonzero(found.indexable)
    names = type_names(problem) if len(shown) <= len(MARKS) else []
    # Many lines make a band; more of them would only take time.
    for place, kind in enumerate(shown[:200]):
        own = found.indices[kind, : problem.types.num_states[kind]]
        states = np.arange(len(own))
        if names:
            colour, shape = MARKS[place]
            axes.plot(
                states, own, shape + "-", color=colour, markersize=5, linewidth=1.2, label=shortened(names[kind], 22)
            )
        else:
            axes.plot(states, own, "-", color=FAINT, linewidth=0.6, alpha=0.6)
    axes.axhline(0, color=FAINT, linewidth=0.6)
    _label_states(axes, found)
    axes.grid(axis="y")
    axes.set_ylabel("Whittle index")
    if len(names) > 1:
        axes.legend(loc="best")


def _label_states(axes: "Axes", found: TypeIndices) -> None:
    """The labels of the states where all types share them, else numbers."""
    # Labels are told where all types share them.
    labels = {states for _, states, _ in found.problem.types.labels}
    num_states = found.indices.shape[-1]
    if len(labels) == 1 and (own := next(iter(labels))) and num_states <= 8:
        axes.set_xticks(range(num_states), [shortened(label, 12) for label in own])
        return
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("state")


def _draw_index_steps(figure: Figure, found: TypeIndices) -> None:
    """A finite horizon: one line a state of the first indexable type over the steps that are left."""
    axes = figure.subplots()
    kind = int(np.flatnonzero(found.indexable)[0])
    num_states, num_steps = int(found.problem.types.num_states[kind]), found.indices.shape[1]
    labels = found.problem.types.labels[kind][1] if found.problem.types.labels else ()
    for state in range(num_states):
        colour, shape = MARKS[state % len(MARKS)]
        name = shortened(labels[state], 18) if labels else f"state {state}"
        style = {"marker": shape, "markersize": 3.5, "markevery": max(1, num_steps // 12)}
        # Steps to go, so that the end is on one side for any horizon.
        left = num_steps - np.arange(num_steps)
        axes.plot(left, found.indices[kind, :, state], color=colour, linewidth=1.2, label=name, **style)
    axes.axhline(0, color=FAINT, linewidth=0.6)
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    title = f", {shortened(type_names(found.problem)[kind], 22)}" if found.problem.num_types > 1 else ""
    axes.set(xlabel="steps to go", ylabel=f"Whittle index{title}")
    if num_states <= 8:
        axes.legend(loc="best")
