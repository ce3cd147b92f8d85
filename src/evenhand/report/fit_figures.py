"""The figures of a fit: effects with their intervals, shares of states over time, who was served, and rows in small."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenhand.display import counted
from evenhand.fitting.diagnostics.effects import Effect, Effects
from evenhand.fitting.diagnostics.selection import Choices
from evenhand.fitting.diagnostics.state_shares import Shares
from evenhand.fitting.result import Fitted
from evenhand.report.svg import BLUE, FAINT, ORANGE, drawn
from evenhand.report.words import number_text, percent, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_EFFECTS = 24
"""Effects that are drawn; the table has more."""

MOST_PANELS = 6
"""States whose shares are drawn."""

MOST_TRACKS = 6
"""Next states in the picture of a row."""

MOST_ROWS = 60
"""Rows that have a picture: those that were seen most often."""


# Effects


def effects_figure(found: Effects) -> str:
    """A line an effect: its mean and its interval, and a line at 0."""
    shown = drawn_effects(found)
    told = "; ".join(f"{_name(effect)} {number_text(_estimate(effect)[0], 2)}" for effect in shown)
    height = 0.85 + 0.27 * len(shown)
    return drawn("effects", f"Effects of actions: {told}", height, lambda figure: _draw_effects(figure, shown))


def drawn_effects(found: Effects) -> list[Effect]:
    """The overall ones, then those of states given most often."""
    # Overall effects always; of the others those with most to say, in their own order.
    often = sorted(found.each, key=lambda effect: -effect.visits)[: MOST_EFFECTS - len(found.overall)]
    kept = {id(effect) for effect in often}
    return [*found.overall, *(effect for effect in found.each if id(effect) in kept)]


def _estimate(effect: Effect) -> tuple[float, float, float]:
    return effect.rise if effect.gain is None else effect.gain


def _name(effect: Effect) -> str:
    where = f"in {effect.state}" if effect.state else "wherever given"
    return shortened(f"{effect.action} {where}" + (f" ({effect.type})" if effect.type else ""), 46)


def _draw_effects(figure: "Figure", effects: Sequence[Effect]) -> None:
    axes = figure.subplots()
    axes.axvline(0, color=FAINT, linewidth=0.8)
    for y, effect in enumerate(effects):
        mean, lower, upper = _estimate(effect)
        # Grey where the interval holds 0.
        colour = BLUE if effect.is_sure else FAINT
        axes.plot([lower, upper], [y, y], color=colour, linewidth=1.6, solid_capstyle="round")
        shape, size = ("D", 6) if not effect.state else ("o", 5)
        axes.plot([mean], [y], shape, color=colour, markersize=size, markeredgecolor="white", markeredgewidth=0.6)
    axes.set_yticks(range(len(effects)), [_name(effect) for effect in effects])
    axes.set_ylim(len(effects) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel(effect_axis(effects[0]))


def effect_axis(effect: Effect) -> str:
    """What effects are counted in, in words."""
    if effect.unit == "reward":
        return "reward a step later"
    if effect.unit == "places":
        return shortened(f"places towards {effect.ends[1]}", 40)
    return "more that come to one next state"


# Shares over time


def shares_figure(found: Shares) -> str:
    """A panel a state: seen as dots, predicted as a line."""
    states = drawn_states(found)
    label = f"Shares of states over time, seen and predicted: {', '.join(found.states[s] for s in states)}"
    rows = (len(states) + 1) // 2
    height = 0.75 + 1.15 * rows
    return drawn("shares", label, height, lambda figure: _draw_shares(figure, found, states, rows))


def drawn_states(found: Shares) -> list[int]:
    """Those of the largest shares, in their order."""
    # Rounded, so that the choice does not hang on the last bit.
    largest = np.argsort(-np.round(found.observed.mean(axis=0), 9), kind="stable")[:MOST_PANELS]
    return sorted(largest.tolist())


def _draw_shares(figure: "Figure", found: Shares, states: list[int], rows: int) -> None:
    panels = figure.subplots(rows, min(2, len(states)), sharex=True, squeeze=False).ravel()
    for axes, state in zip(panels, states, strict=False):
        _draw_state(axes, found, state)
    for axes in panels[len(states) :]:
        # An odd number of states leaves a panel empty.
        axes.set_visible(False)
    figure.supxlabel("steps since the first record", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, handlelength=1.6, columnspacing=1.4)


def _draw_state(axes: "Axes", found: Shares, state: int) -> None:
    times, given = found.times, found.predicted[:, state]
    spread = found.spread[:, state]
    lower, upper = np.maximum(given - spread, 0), np.minimum(given + spread, 1)
    axes.fill_between(times, lower, upper, color=ORANGE, alpha=0.22, linewidth=0, label="95 % by chance")
    axes.plot(times, given, color=ORANGE, linewidth=1.5, label="predicted")
    # Dots while they can be told apart, else a line.
    few = len(times) <= 60
    axes.plot(
        times, found.observed[:, state], "." if few else "-", color=BLUE, markersize=4, linewidth=0.7, label="seen"
    )
    axes.set_title(shortened(found.states[state], 24), fontsize=9, loc="left")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")


# Who was served


def choices_figure(found: Choices) -> str:
    """Two bars a state: its share among those who were served, and among the others."""
    pairs = zip(found.states, found.served_in, found.idle_in, strict=True)
    told = "; ".join(f"{state} {percent(served, 0)} and {percent(idle, 0)}" for state, served, idle in pairs)
    states = _often(found)
    height = 0.95 + 0.36 * len(states)
    return drawn("choices", f"States of the served and of others: {told}", height, lambda f: _draw(f, found, states))


def _often(found: Choices, most: int = 16) -> list[int]:
    either = np.maximum(found.served_in, found.idle_in)
    # Often among the served or among the others.
    return sorted(np.argsort(-np.round(either, 9), kind="stable")[:most].tolist())


def _draw(figure: "Figure", found: Choices, states: list[int]) -> None:
    axes = figure.subplots()
    places = np.arange(len(states))
    for shift, colour, shares, label in (
        (-0.18, BLUE, found.served_in, f"served ({found.served:,})"),
        (0.18, "#b9c4cc", found.idle_in, f"not served ({found.idle:,})"),
    ):
        axes.barh(places + shift, [100 * shares[s] for s in states], 0.34, color=colour, label=label)
    axes.set_yticks(places, [shortened(found.states[s], 24) for s in states])
    axes.set_ylim(len(states) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("% of the rows")
    axes.grid(axis="x")
    figure.legend(loc="outside upper center", ncols=2, handlelength=1.2)


# Rows in small: drawn by the template, so that their texts are escaped there


@dataclass(frozen=True)
class Track:
    """A next state in the picture of a row."""

    name: str
    text: str
    """`0.65 [0.57, 0.72]`."""
    y: int
    """All in units of the picture."""
    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class SmallRow:
    """The picture of a row."""

    title: str
    note: str
    height: int
    tracks: tuple[Track, ...]
    more: str
    """How many next states are not shown."""
    kind: str
    """`thin` where it was seen seldom, `unseen` where never; else empty."""


LEFT, WIDE, LINE = 100, 110, 22
"""Of a picture: where the scale begins, how long it is, and how far tracks are apart."""


def small_rows(fitted: Fitted, few: int) -> list[SmallRow]:
    """Pictures of the rows, in the order of types, states and actions.

    Args:
        fitted: what was fitted.
        few: visits below which a row is thin.
    """
    visits = fitted.moves.departures
    # Seen most often, then in the order of the model.
    often = np.argsort(-visits.ravel(), kind="stable")[:MOST_ROWS]
    places = [tuple(map(int, np.unravel_index(row, visits.shape))) for row in sorted(often.tolist())]
    return [_small_row(fitted, place, int(visits[place]), few) for place in places]


def _small_row(fitted: Fitted, place: tuple[int, ...], visits: int, few: int) -> SmallRow:
    log = fitted.log
    mean = fitted.posterior.mean[place]
    lower, upper = (bound[place] for bound in fitted.interval)
    order = [k for k in np.argsort(-np.round(mean, 9), kind="stable").tolist() if mean[k] > 0]
    # The likeliest next states, in the order of the states.
    shown = sorted(order[:MOST_TRACKS])
    tracks = [
        Track(
            shortened(log.states[k], 15),
            f"{mean[k]:.2f} [{lower[k]:.2f}, {upper[k]:.2f}]",
            LINE * number + 15,
            # From probabilities to units of the picture.
            *(round(LEFT + WIDE * float(value), 1) for value in (mean[k], lower[k], upper[k])),
        )
        for number, k in enumerate(shown)
    ]
    whose = f"{log.types[place[0]]}: " if len(log.types) > 1 else ""
    title = f"{whose}{log.states[place[1]]}, {log.actions[place[2]]}"
    rest = len(order) - len(shown)
    more = (
        f"and {counted(rest, 'next state')}, {percent(float(mean[order[MOST_TRACKS:]].sum()))} in all" if rest else ""
    )
    note = counted(visits, "move") if visits else "never seen"
    kind = "" if visits >= few else "thin" if visits else "unseen"
    return SmallRow(title, note, LINE * len(tracks) + 4, tuple(tracks), more, kind)
