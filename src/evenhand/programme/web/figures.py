"""Figures of the page: the SVG of `report.plots` as images, and the two that only the page has.

The content security policy of the page forbids inline styles, which matplotlib writes; an image may contain them.
"""

import base64
from collections.abc import Mapping, Sequence
from html import unescape
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from evenhand.report.format import number, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROOT = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" font-family="sans-serif" '


class Visit(NamedTuple):
    """State of an arm at a step, whether it was observed, and whether the arm was served."""

    step: int
    state: str
    is_observed: bool
    is_served: bool


def image(svg: str) -> Markup:
    """Return an SVG element of `report.plots.svg` as an image with its label."""
    label = unescape(svg.partition('aria-label="')[2].partition('"')[0])
    data = base64.b64encode(svg.replace("<svg ", _ROOT, 1).encode()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, label)


def states_svg(arm: str, visits: Sequence[Visit], states: Sequence[str]) -> str:
    """Return the states of one arm by step, from the first state at the top to the last."""
    from evenhand.report.plots import BLUE, FAINT, ORANGE, Plot, svg

    places = {state: place for place, state in enumerate(states)}
    shown = [visit for visit in visits if visit.state in places]

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        axes.plot([v.step for v in shown], [places[v.state] for v in shown], color=FAINT, linewidth=0.8)
        for kind, face, label in ((True, BLUE, "observed"), (False, "white", "inferred")):
            own = [v for v in shown if v.is_observed == kind]
            at = [v.step for v in own], [places[v.state] for v in own]
            axes.plot(*at, "o", color=BLUE, markerfacecolor=face, markersize=4, label=label)
        served = [v.step for v in shown if v.is_served]
        axes.plot(served, [len(states) - 0.4] * len(served), "^", color=ORANGE, markersize=4, label="served")
        axes.set_yticks(range(len(states)), [shortened(state, 24) for state in states])
        axes.set_ylim(len(states) - 0.1, -0.5)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("step")
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=3)

    served = sum(visit.is_served for visit in visits)
    label = f"{arm}: its state at {len(visits)} steps, of which it was served at {served}. The table has the same."
    return svg("states", label, Plot(1.1 + 0.3 * len(states), draw))


def change_svg(today: Mapping[str, float], then: Mapping[str, float]) -> str:
    """Return the values of groups today (rings) and under a what-if plan (dots)."""
    from evenhand.report.plots import BLUE, FAINT, Plot, svg

    names = [name for name in then if name in today]
    rows = range(len(names))

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        before, after = [today[name] for name in names], [then[name] for name in names]
        axes.hlines(rows, before, after, color=FAINT, linewidth=0.8)
        axes.plot(before, rows, "o", color=FAINT, markerfacecolor="white", label="today")
        axes.plot(after, rows, "o", color=BLUE, label="supposed")
        axes.set_yticks(rows, [shortened(name, 24) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(left=min(0.0, *before, *after))  # from 0, so that lengths are proportional to values
        axes.grid(axis="x")
        figure.legend(loc="outside upper left", ncols=2)

    texts = "; ".join(f"{name}: {number(then[name])}, today {number(today[name])}" for name in names)
    return svg("change", f"Values of the groups. {texts}.", Plot(0.9 + 0.35 * len(names), draw))
