"""Charts of the page, as SVG with classes instead of colours, which the style sheet sets for its light and dark modes.

Each chart is an image with a text label (`role="img"`), and its figures are in a table beside it. Series differ by mark
as well as by colour.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

COLOURS = 6
"""Classes `s0`, `f0`, ... of the style sheet, for strokes and for areas."""

WIDTH, HEIGHT, NARROW = 740.0, 300.0, 460.0
"""Size of a chart, and the width of one that a phone shows whole."""

LEFT, RIGHT, TOP, BASE = 58.0, 724.0, 14.0, 256.0
"""Edges of the plot area."""

LETTER, LINE = 7.2, 17.0
"""Approximate width of a letter and height of a line."""


class Point(NamedTuple):
    """A measurement at a step, with its interval and expectation."""

    step: int
    value: float
    lower: float
    upper: float
    promised: float | None = None


class Series(NamedTuple):
    """Measurements of one group."""

    name: str
    points: tuple[Point, ...]


class Spot(NamedTuple):
    """A welfare by two of its results."""

    name: str
    across: float
    up: float
    marked: bool = False


class Pair(NamedTuple):
    """A figure beside today's."""

    name: str
    before: float
    after: float


class Visit(NamedTuple):
    """State of an arm at a step, whether it was observed, and the action if it was served."""

    step: int
    state: str
    known: bool
    action: str = ""


class _Scale:
    """Map from figures to places."""

    def __init__(self, values: Iterable[float], begin: float, end: float, most: int = 0) -> None:
        """Span finite values, rounded to at most `most` ticks if given."""
        found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(found), max(found)
        if high - low < 1e-9 * max(1.0, abs(high)):
            low, high = low - 0.5, high + 0.5
        self.marks = ticks(low, high, most) if most else [low, high]
        self._low, self._begin, self._per_unit = self.marks[0], begin, (end - begin) / (self.marks[-1] - self.marks[0])

    def __call__(self, value: float) -> float:
        return self._begin + (value - self._low) * self._per_unit


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round figures that span an interval, at most about `most`."""
    width = (high - low) / max(most - 1, 1)
    if not width > 0 or not math.isfinite(width):
        return [low]
    size = 10.0 ** math.floor(math.log10(width))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= width * 0.999)
    return [step * place for place in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


# Elements


def tag(name: str, inside: Markup | str = "", **attributes: object) -> Markup:
    """Return an SVG element; attribute names have `_` for `-`, and numbers are rounded."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    texts = {
        key: f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value for key, value in given.items()
    }
    head = Markup("").join(Markup(' {}="{}"').format(key, value) for key, value in texts.items())
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), head, inside)


def _svg(parts: Iterable[Markup], label: str, width: float = WIDTH, height: float = HEIGHT, **more: object) -> Markup:
    box = f"0 0 {width:g} {height:g}"
    return tag("svg", Markup("\n").join(parts), viewBox=box, role="img", aria_label=label, **more)


def _text(x: float, y: float, text: str, kind: str | None = None, most: int = 40) -> Markup:
    return tag("text", escape(text if len(text) <= most else text[: most - 1] + "…"), x=x, y=y, class_=kind)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _path(points: Iterable[tuple[float, float]], kind: str) -> Markup:
    return tag("polyline", points=_points(points), class_=kind)


def _circle(x: float, y: float, kind: str, r: float = 4.6) -> Markup:
    return tag("circle", cx=x, cy=y, r=r, class_=kind)


def _mark(x: float, y: float, number: int) -> Markup:
    """Return a dot, square or triangle, by the number of the series."""
    kind = f"dot f{number % COLOURS}"
    if number % 3 == 0:
        return _circle(x, y, kind, 4.2)
    if number % 3 == 1:
        return tag("rect", x=x - 3.8, y=y - 3.8, width=7.6, height=7.6, class_=kind)
    return tag("polygon", points=_points([(x, y - 5), (x + 4.8, y + 4), (x - 4.8, y + 4)]), class_=kind)


def _frame(up: _Scale, up_name: str, across: _Scale, across_name: str, marks: Sequence[float]) -> list[Markup]:
    parts = [_line(LEFT, up(mark), RIGHT, up(mark), "grid") for mark in up.marks]
    parts += [_text(LEFT - 8, up(mark) + 4.5, f"{mark:.6g}", "quiet end") for mark in up.marks]
    parts += [_text(across(mark), BASE + 18, f"{mark:.6g}", "quiet middle") for mark in marks]
    parts.append(tag("text", escape(up_name), transform="translate(13 150) rotate(-90)", class_="quiet middle"))
    return [*parts, _line(LEFT, BASE, RIGHT, BASE, "axis"), _text(RIGHT, BASE + 36, across_name, "quiet end")]


def _whole(steps: Sequence[int]) -> list[float]:
    """Return whole ticks within the steps."""
    return [mark for mark in ticks(min(steps), max(steps), 9) if mark == int(mark) and min(steps) <= mark <= max(steps)]


# Charts


def budget_bar(used: float, budget: float, label: str) -> Markup:
    """Return a bar of the used share of a budget."""
    share = min(max(used / budget, 0.0), 1.0) if budget > 0 else 0.0
    bars = [(399.0, "track"), *([(399.0 * share, "fill")] if share else [])]
    parts = [tag("rect", x=0.5, y=0.5, width=width, height=11, rx=4, class_=kind) for width, kind in bars]
    return _svg(parts, label, 400, 12, preserveAspectRatio="none")


def interval_bar(mean: float, lower: float, upper: float, label: str) -> Markup:
    """Return a probability with its interval, on a scale from 0 to 1."""
    x = _Scale((0.0, 1.0), 6, 194)
    parts = [_line(6, 8, 194, 8, "grid"), _line(x(lower), 8, x(upper), 8, "line s0"), _circle(x(mean), 8, "dot f0")]
    return _svg(parts, label, 200, 16, class_="mini")


def over_time(series: Sequence[Series], name: str, label: str) -> Markup:
    """Return a line with its interval per group over the steps, and dashed its expectation.

    Args:
        series: measurements per group.
        name: name of the quantity.
        label: text equivalent.
    """
    points = [point for one in series for point in one.points]
    promises = [point.promised for point in points if point.promised is not None]
    up = _Scale([*promises, *(y for point in points for y in (point.lower, point.upper, point.value))], BASE, TOP, 6)
    steps = [point.step for point in points] or [0]
    across = _Scale(steps, LEFT + 10, RIGHT - 10)
    parts = _frame(up, name, across, "step", _whole(steps) or steps[:1])
    for number, one in enumerate(series):
        parts += _series(one, number, across, up)
    x, row = LEFT, 0
    for number, text in enumerate([*(one.name for one in series), *(["dashed: promised"] if promises else [])]):
        width = 34 + LETTER * min(len(text), 40)
        x, row = (LEFT, row + 1) if x + width > RIGHT and x > LEFT else (x, row)
        y, own = HEIGHT + 8 + 22 * row, number < len(series)
        parts.append(_line(x, y - 4, x + 20, y - 4, f"line s{number % COLOURS}" if own else "promise s5"))
        parts += [_mark(x + 10, y - 4, number)] if own else []
        parts.append(_text(x + 26, y, text))
        x += width + 12
    return _svg(parts, label, height=HEIGHT + 22 * (row + 1))


def _series(one: Series, number: int, across: _Scale, up: _Scale) -> list[Markup]:
    colour = number % COLOURS
    upper, lower, middle = ([(across(p.step), up(y)) for p, y in ((p, getattr(p, name)) for p in one.points)]
                            for name in ("upper", "lower", "value"))  # fmt: skip
    promised = [(across(point.step), up(point.promised)) for point in one.points if point.promised is not None]
    if len(one.points) == 1:  # neither band nor lines would have a width
        parts = [_line(*upper[0], *lower[0], f"line s{colour}")]
        promised = [(x + off, y) for x, y in promised for off in (-14, 14)]
    else:
        parts = [tag("polygon", points=_points([*upper, *reversed(lower)]), class_=f"band f{colour}")]
    parts += [_path(promised, f"promise s{colour}")] if promised else []
    parts.append(_path(middle, f"line s{colour}"))
    every = max(1, len(middle) // 8)
    return parts + [_mark(*at, number) for n, at in enumerate(middle) if n % every == 0 or n == len(middle) - 1]


def frontier(spots: Sequence[Spot], across_name: str, up_name: str, label: str) -> Markup:
    """Return welfares by two of their results, with today's marked.

    Args:
        spots: welfares.
        across_name: name of the horizontal result.
        up_name: name of the vertical result.
        label: text equivalent.
    """
    up = _Scale([spot.up for spot in spots], BASE, TOP, 6)
    across = _Scale([spot.across for spot in spots], LEFT + 30, RIGHT - 70, 7)
    parts = _frame(up, up_name, across, across_name, across.marks)
    ordered = sorted(spots, key=lambda spot: (spot.across, -spot.up))
    parts.append(_path([(across(spot.across), up(spot.up)) for spot in ordered], "line s0"))
    taken: list[tuple[float, float]] = []
    for spot in sorted(ordered, key=lambda spot: spot.marked):  # today's is drawn last
        x, y, text = across(spot.across), up(spot.up), spot.name + " (today)" * spot.marked
        parts.append(_circle(x, y, "dot f1" if spot.marked else "dot f0", 7.5 if spot.marked else 4.6))
        left = x + 12 + LETTER * len(text) > WIDTH - 4
        rows = [y + 5 + LINE * shift for shift in sorted(range(-20, 21), key=lambda shift: (abs(shift), shift < 0))]
        free = [row for row in rows if TOP + 10 <= row <= BASE - 6
                and all(abs(x - there) >= 60 or abs(row - at) >= LINE - 1 for there, at in taken)]  # fmt: skip
        taken.append((x, free[0] if free else y))
        kind = "halo" + " strong" * spot.marked + " end" * left
        parts.append(_text(x - 12 if left else x + 12, taken[-1][1], text, kind))
    return _svg(parts, label)


def side_by_side(pairs: Sequence[Pair], before: str, after: str, label: str) -> Markup:
    """Return figures beside today's, one line per pair.

    Args:
        pairs: figures.
        before: name of the first of each.
        after: name of the second.
        label: text equivalent.
    """
    names = min(max((len(pair.name) for pair in pairs), default=4) * LETTER + 14, 230.0)
    # From 0, so that lengths are proportional to values.
    across = _Scale([0.0, *(value for pair in pairs for value in pair[1:])], names + 8, NARROW - 70, 6)
    bottom = 16 + 34.0 * len(pairs)
    parts = [_line(across(mark), 10, across(mark), bottom, "grid") for mark in across.marks]
    parts += [_text(across(mark), bottom + 18, f"{mark:.6g}", "quiet middle") for mark in across.marks]
    for place, pair in enumerate(pairs):
        y, here, there = 28 + 34.0 * place, across(pair.before), across(pair.after)
        parts += [_text(names, y + 4.5, pair.name, "end", int(names / LETTER)), _line(here, y, there, y, "axis")]
        parts += [_circle(here, y, "ring s5", 5), _circle(there, y, "dot f0", 5.5)]
        # The number belongs to the full dot and stands on its side, away from the ring.
        aside, kind = (there - 10, "strong end halo") if there < here else (there + 10, "strong")
        parts.append(_text(aside, y + 4.5, f"{pair.after:.4g}", kind))
    x, y = names + 40 + LETTER * len(before), bottom + 42
    parts += [_circle(names + 12, y - 4, "ring s5", 5), _text(names + 24, y, before)]
    parts += [_circle(x, y - 4, "dot f0", 5.5), _text(x + 12, y, after)]
    return _svg(parts, label, NARROW, bottom + 54, class_="narrow")


def course(visits: Sequence[Visit], states: Sequence[str], label: str) -> Markup:
    """Return the states of one arm by step: a dot if observed, a ring if believed, a triangle below if served.

    Args:
        visits: states by step.
        states: all states, from top to bottom.
        label: text equivalent.
    """
    left = min(max((len(state) for state in states), default=4) * LETTER + 18, 200.0)
    base = 20 + 30.0 * len(states)
    steps = [visit.step for visit in visits] or [0]
    across = _Scale(steps, left + 16, RIGHT - 14)
    level = {state: 16 + 30.0 * place for place, state in enumerate(states)}
    parts = [_line(left, y, RIGHT, y, "grid") for y in level.values()]
    parts += [_text(left - 8, y + 4.5, state, "end", 26) for state, y in level.items()]
    shown = [visit for visit in visits if visit.state in level]
    parts.append(_path([(across(visit.step), level[visit.state]) for visit in shown], "line s5"))
    for visit in shown:
        x = across(visit.step)
        parts.append(_circle(x, level[visit.state], "dot f0" if visit.known else "ring s0"))
        if visit.action:
            title = tag("title", escape(f"step {visit.step}: {visit.action}"))
            corners = _points([(x, base + 3), (x + 6, base + 14), (x - 6, base + 14)])
            parts.append(tag("polygon", title, points=corners, class_="dot f1"))
    parts += [_text(across(mark), base + 36, f"{mark:.0f}", "quiet middle") for mark in _whole(steps) or steps[:1]]
    parts += [_text(left - 8, base + 14, "served", "quiet end"), _text(left - 8, base + 36, "step", "quiet end")]
    return _svg(parts, label, height=base + 46)
