"""Figures of a fit: effects, shares of states over time, served arms, clusters and backtests."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator

from evenhand.display import counted
from evenhand.errors import NotApplicableError
from evenhand.fitting.clusters import CLEARLY, Clusters
from evenhand.fitting.diagnostics.effects import Effect, Effects
from evenhand.fitting.diagnostics.selection import Choices
from evenhand.fitting.diagnostics.state_shares import Shares
from evenhand.report.format import fixed, number, percent, shortened
from evenhand.report.plots import BLUE, FAINT, GREEN, INK, ORANGE, Plot, figure_of, row_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from evenhand.planning.backtest import Backtest

MOST_EFFECTS, MOST_PANELS, MOST_STATES = 24, 6, 16
"""Effects, panels of states and bars of states that are drawn."""


# -- effects ---------------------------------------------------------------------------------------------------------


def effects_plot(found: Effects) -> Plot:
    """Return means and intervals of effects: all overall ones, and those with most observations in their own order."""
    often = sorted(found.each, key=lambda effect: -effect.visits)[: MOST_EFFECTS - len(found.overall)]
    chosen = {id(effect) for effect in often}
    effects = [*found.overall, *(effect for effect in found.each if id(effect) in chosen)]
    names = [_effect_name(effect) for effect in effects]

    def draw(figure: "Figure") -> None:
        """Draw one line per effect."""
        axes = figure.subplots()
        axes.axvline(0, color=FAINT, linewidth=0.8)
        for y, effect in enumerate(effects):
            mean, lower, upper = _estimate(effect)
            colour = BLUE if effect.is_sure else FAINT
            axes.plot([lower, upper], [y, y], color=colour, linewidth=1.6, solid_capstyle="round")
            axes.plot([mean], [y], "o" if effect.state else "D", color=colour, markersize=5, markeredgecolor="white")
        row_labels(axes, names, 46)
        first = effects[0]
        labels = {"reward": "reward a step later", "places": f"places towards {first.ends[1]}"}
        axes.set_xlabel(shortened(labels.get(first.unit or "", "more that come to one next state"), 40))

    pairs = zip(names, effects, strict=True)
    texts = "; ".join(f"{name} {fixed(_estimate(effect)[0], 2)}" for name, effect in pairs)
    return Plot(0.85 + 0.27 * len(effects), draw, "effects", f"Effects of actions: {texts}")


def _estimate(effect: Effect) -> tuple[float, float, float]:
    return effect.rise if effect.gain is None else effect.gain


def _effect_name(effect: Effect) -> str:
    where = f"in {effect.state}" if effect.state else "in all states"
    return shortened(f"{effect.action} {where}" + (f" ({effect.type})" if effect.type else ""), 46)


# -- shares of states and served arms --------------------------------------------------------------------------------


def shares_plot(found: Shares) -> Plot:
    """Return one panel per state: recorded and predicted shares over time."""
    # Rounded, so that the choice does not depend on the last bit.
    largest = np.argsort(-np.round(found.observed.mean(axis=0), 9), kind="stable")[:MOST_PANELS]
    states = sorted(largest.tolist())
    rows = (len(states) + 1) // 2

    def draw(figure: "Figure") -> None:
        """Draw the panels and their legend."""
        panels = figure.subplots(rows, min(2, len(states)), sharex=True, squeeze=False).ravel()
        for axes, state in zip(panels, states, strict=False):
            _draw_state(axes, found, state)
        for axes in panels[len(states) :]:
            axes.set_visible(False)
        figure.supxlabel("steps since the first record", fontsize=9)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, handlelength=1.6, columnspacing=1.4)

    label = f"Shares of states over time, recorded and predicted: {', '.join(found.states[s] for s in states)}"
    return Plot(0.75 + 1.15 * rows, draw, "shares", label)


def _draw_state(axes: "Axes", found: Shares, state: int) -> None:
    times, predicted, spread = found.times, found.predicted[:, state], found.spread[:, state]
    lower, upper = np.maximum(predicted - spread, 0), np.minimum(predicted + spread, 1)
    axes.fill_between(times, lower, upper, color=ORANGE, alpha=0.22, linewidth=0, label="95 % by chance")
    axes.plot(times, predicted, color=ORANGE, linewidth=1.5, label="predicted")
    style = "." if len(times) <= 60 else "-"  # dots as long as they are distinct
    axes.plot(times, found.observed[:, state], style, color=BLUE, markersize=4, linewidth=0.7, label="recorded")
    axes.set_title(shortened(found.states[state], 24), fontsize=9, loc="left")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")


def choices_plot(found: Choices) -> Plot:
    """Return two bars per state: its share among served arms and among the others."""
    either = np.maximum(found.served_in, found.idle_in)
    states = sorted(np.argsort(-np.round(either, 9), kind="stable")[:MOST_STATES].tolist())

    def draw(figure: "Figure") -> None:
        """Draw the bars and their legend."""
        axes, places = figure.subplots(), np.arange(len(states))
        for shift, colour, shares, label in (
            (-0.18, BLUE, found.served_in, f"served ({found.served:,})"),
            (0.18, "#b9c4cc", found.idle_in, f"not served ({found.idle:,})"),
        ):
            axes.barh(places + shift, [100 * shares[s] for s in states], 0.34, color=colour, label=label)
        row_labels(axes, [found.states[s] for s in states])
        axes.set_xlabel("% of the rows")
        figure.legend(loc="outside upper center", ncols=2, handlelength=1.2)

    pairs = zip(found.states, found.served_in, found.idle_in, strict=True)
    texts = "; ".join(f"{state} {percent(served, 0)} and {percent(idle, 0)}" for state, served, idle in pairs)
    return Plot(0.95 + 0.36 * len(states), draw, "choices", f"States of served arms and of others: {texts}")


# -- clusters and backtests ------------------------------------------------------------------------------------------


def clusters_figure(found: Clusters) -> "Figure":
    """Return held-out log-likelihood and BIC by the number of types, for a notebook."""
    if not found.tried:
        raise NotApplicableError("nothing to draw: the number of types was given, or the arms have too few moves")
    return figure_of(clusters_plot(found))


def clusters_plot(found: Clusters) -> Plot:
    """Return held-out log-likelihood and BIC by the number of types."""

    def draw(figure: "Figure") -> None:
        held, bic = figure.subplots(1, 2)
        numbers = [one.number for one in found.tried]
        errors = [CLEARLY * one.error for one in found.tried]
        held.errorbar(numbers, [one.held_out for one in found.tried], errors, marker="o", color=BLUE, capsize=3)
        held.set_ylabel("held-out log-likelihood\nper arm")
        bic.plot(numbers, [one.bic for one in found.tried], marker="o", color=GREEN)
        bic.set_ylabel("BIC (smaller is better)")
        for panel in (held, bic):
            panel.axvline(found.number, color=INK, linewidth=0.8, linestyle=":")
            panel.set_xlabel("types")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))

    texts = "; ".join(f"{counted(one.number, 'type')} {number(one.held_out)}" for one in found.tried)
    return Plot(2.8, draw, "clusters", f"Held-out log-likelihood per arm by the number of types: {texts}")


def backtest_figure(found: "Backtest") -> "Figure":
    """Return recorded and expected numbers of each action, for a notebook."""
    return figure_of(backtest_plot(found))


def backtest_plot(found: "Backtest") -> Plot:
    """Return recorded and expected numbers of each action."""
    panels_needed = max(len(found.actions) - 1, 1)

    def draw(figure: "Figure") -> None:
        panels = figure.subplots(panels_needed, 1, sharex=True, squeeze=False)[:, 0]
        so_far, interval = found.so_far, f"interval of {100 * found.level:.10g} %"
        for place, (axes, action) in enumerate(zip(panels, found.actions[1:], strict=False)):
            lower, upper = np.maximum(so_far.lower[:, place], 0), so_far.upper[:, place]
            axes.fill_between(found.steps, lower, upper, color=BLUE, alpha=0.18, linewidth=0, label=interval)
            axes.plot(found.steps, so_far.mean[:, place], color=BLUE, linestyle="--", linewidth=1.2, label="expected")
            axes.step(found.steps, so_far.seen[:, place], color=INK, linewidth=1.4, where="post", label="recorded")
            axes.set_ylabel(f"{shortened(action, 20)}, so far")
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set_ylim(bottom=0)
        panels[0].legend(loc="upper left")
        panels[-1].set_xlabel("step")

    label = f"Number of actions so far, recorded and expected: {', '.join(found.actions[1:])}"
    return Plot(2.2 * panels_needed + 0.4, draw, "backtest", label)
