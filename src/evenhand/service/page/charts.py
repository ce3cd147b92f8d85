"""Drawings for the page, as SVG without colours: classes stand for them, and the style sheet has both its modes.

Each drawing is an image with words (`role="img"`, a label), and the figures in it stand in a table beside it. Series
are told apart by their marks, too, not by colour alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

COLOURS = 6
"""Classes `s0`, `f0`, ... of the style sheet, for strokes and for areas."""

WIDTH, HEIGHT = 740.0, 300.0
NARROW = 460.0
"""The width of a drawing that a phone shows whole; one that is wider is moved to and fro there."""

LEFT, RIGHT, TOP, BOTTOM = 58.0, 16.0, 14.0, 44.0
LETTER, LINE = 7.2, 17.0
"""About how wide a letter is, and how high a line of them."""


@dataclass(frozen=True)
class Point:
    """Something that was measured at a step."""

    step: int
    value: float
    lower: float
    """Where its interval begins; the value itself where it has none."""
    upper: float
    promised: float | None = None
    """What was to be expected there."""


@dataclass(frozen=True)
class Series:
    """What was measured of one group."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Spot:
    """An idea of fairness by what it gives."""

    name: str
    across: float
    up: float
    marked: bool = False
    """Whether it is the one of today."""


@dataclass(frozen=True)
class Pair:
    """A figure beside the one of today."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Visit:
    """Where an arm was at a step, and what it got."""

    step: int
    state: str
    known: bool
    """Seen, not only believed."""
    action: str = ""
    """What it got, where that used anything."""


@dataclass(frozen=True)
class _Scale:
    """From figures to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def tag(name: str, text: str | Markup = "", **attributes: object) -> Markup:
    """An element; its texts are escaped.

    Args:
        name: of the element.
        text: within it.
        **attributes: their names with `_` for `-`; `class_` is a class.
    """
    told = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _short(value))
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{}{}>{}</{}>").format(Markup(name), told, text, Markup(name))


def _short(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _drawing(parts: Iterable[Markup], label: str, width: float = WIDTH, height: float = HEIGHT) -> Markup:
    inside = Markup("\n").join(parts)
    kind = "narrow" if width == NARROW else None
    return tag("svg", inside, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label, class_=kind)


def _words(x: float, y: float, text: str, kind: str = "") -> Markup:
    return tag("text", escape(text), x=x, y=y, class_=kind or None)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _path(points: Iterable[tuple[float, float]], kind: str) -> Markup:
    return tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=kind)


def _mark(x: float, y: float, number: int, kind: str = "dot") -> Markup:
    """A dot, a square, a triangle, ...: by the number of its series."""
    classes = f"{kind} f{number % COLOURS}" if kind == "dot" else f"{kind} s{number % COLOURS}"
    match number % 3:
        case 0:
            return tag("circle", cx=x, cy=y, r=4.2, class_=classes)
        case 1:
            return tag("rect", x=x - 3.8, y=y - 3.8, width=7.6, height=7.6, class_=classes)
    return tag(
        "polygon", points=f"{x:.1f},{y - 5:.1f} {x + 4.8:.1f},{y + 4:.1f} {x - 4.8:.1f},{y + 4:.1f}", class_=classes
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round figures that span an interval, at most about so many."""
    width = (high - low) / max(most - 1, 1)
    if not width > 0 or not math.isfinite(width):
        return [low]
    size = 10.0 ** math.floor(math.log10(width))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= width * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * place for place in range(first, last + 1)]


def figure_text(value: float) -> str:
    """A number of an axis."""
    return f"{value:.6g}"


def _span(values: Iterable[float]) -> tuple[float, float]:
    """What the values span, never nothing."""
    found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(found), max(found)
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    return low, high


def _scale_up(values: Iterable[float], top: float = TOP, bottom: float = HEIGHT - BOTTOM) -> tuple[_Scale, list[float]]:
    marks = ticks(*_span(values))
    return _Scale(marks[0], marks[-1], bottom, top), marks


def _frame(up: _Scale, marks: Sequence[float], name: str) -> list[Markup]:
    parts = [_line(LEFT, up(mark), WIDTH - RIGHT, up(mark), "grid") for mark in marks]
    parts += [_words(LEFT - 8, up(mark) + 4.5, figure_text(mark), "quiet end") for mark in marks]
    turned = tag("text", escape(name), transform=f"translate(13 {HEIGHT / 2:g}) rotate(-90)", class_="quiet middle")
    return [*parts, turned]


def budget_bar(used: float, budget: float, label: str) -> Markup:
    """How much of a budget is used.

    Args:
        used: of it.
        budget: all of it.
        label: the same in words.
    """
    share = min(max(used / budget, 0.0), 1.0) if budget > 0 else 0.0
    parts = [tag("rect", x=0.5, y=0.5, width=399, height=11, rx=4, class_="track")]
    if share:
        parts.append(tag("rect", x=0.5, y=0.5, width=399 * share, height=11, rx=4, class_="fill"))
    inside = Markup("").join(parts)
    return tag("svg", inside, viewBox="0 0 400 12", preserveAspectRatio="none", role="img", aria_label=label)


def over_time(series: Sequence[Series], name: str, label: str) -> Markup:
    """Lines over the steps: what came, with its interval, and dashed what was promised.

    Args:
        series: one a group.
        name: of what is measured.
        label: what the drawing shows, in words.
    """
    points = [point for one in series for point in one.points]
    steps = sorted({point.step for point in points}) or [0]
    promises = [point.promised for point in points if point.promised is not None]
    up, marks = _scale_up([bound for point in points for bound in (point.lower, point.upper, point.value)] + promises)
    across = _Scale(*_span(steps), LEFT + 10, WIDTH - RIGHT - 10)
    parts = _frame(up, marks, name) + _step_axis(across, steps)
    for number, one in enumerate(series):
        parts += _series(one, number, across, up)
    legend, rows = _legend([one.name for one in series], bool(promises))
    return _drawing(parts + legend, label, height=HEIGHT + 22.0 * rows)


def _step_axis(across: _Scale, steps: Sequence[int]) -> list[Markup]:
    base = HEIGHT - BOTTOM
    shown = [mark for mark in ticks(steps[0], steps[-1], 9) if mark == int(mark) and steps[0] <= mark <= steps[-1]]
    parts = [_words(across(mark), base + 18, f"{mark:.0f}", "quiet middle") for mark in shown or steps[:1]]
    return [
        _line(LEFT, base, WIDTH - RIGHT, base, "axis"),
        *parts,
        _words(WIDTH - RIGHT, base + 36, "step", "quiet end"),
    ]


def _series(one: Series, number: int, across: _Scale, up: _Scale) -> list[Markup]:
    colour = number % COLOURS
    upper = [(across(point.step), up(point.upper)) for point in one.points]
    lower = [(across(point.step), up(point.lower)) for point in reversed(one.points)]
    band = " ".join(f"{x:.1f},{y:.1f}" for x, y in upper + lower)
    parts = [tag("polygon", points=band, class_=f"band f{colour}")]
    if len(one.points) == 1:  # a band has no width there
        parts = [_line(*upper[0], *lower[0], f"line s{colour}")]
    promised = [(across(point.step), up(point.promised)) for point in one.points if point.promised is not None]
    if len(promised) == 1:
        (x, y) = promised[0]
        promised = [(x - 14, y), (x + 14, y)]
    if promised:
        parts.append(_path(promised, f"promise s{colour}"))
    parts.append(_path([(across(point.step), up(point.value)) for point in one.points], f"line s{colour}"))
    every = max(1, len(one.points) // 8)
    marked = [point for place, point in enumerate(one.points) if place % every == 0 or place == len(one.points) - 1]
    return parts + [_mark(across(point.step), up(point.value), number) for point in marked]


def _legend(names: Sequence[str], promised: bool) -> tuple[list[Markup], int]:
    """Under a drawing; and how many lines it takes."""
    parts: list[Markup] = []
    x, row = LEFT, 0
    entries = [(name, number) for number, name in enumerate(names)] + ([("dashed: promised", None)] if promised else [])
    for name, number in entries:
        shown = name if len(name) <= 40 else name[:39] + "…"
        width = 34 + LETTER * len(shown)
        if x + width > WIDTH - RIGHT and x > LEFT:
            x, row = LEFT, row + 1
        y = HEIGHT + 8 + 22 * row
        kind = "promise s5" if number is None else f"line s{number % COLOURS}"
        parts.append(_line(x, y - 4, x + 20, y - 4, kind))
        if number is not None:
            parts.append(_mark(x + 10, y - 4, number))
        parts.append(_words(x + 26, y, shown))
        x += width + 12
    return parts, row + 1


def frontier(spots: Sequence[Spot], across_name: str, up_name: str, label: str) -> Markup:
    """The price of fairness: ideas by what they give the mean and the worst-off, with the one of today marked.

    Args:
        spots: one an idea.
        across_name: what goes to the right.
        up_name: what goes up.
        label: what the drawing shows, in words.
    """
    up, marks = _scale_up([spot.up for spot in spots])
    base = HEIGHT - BOTTOM
    along = ticks(*_span(spot.across for spot in spots), 7)
    across = _Scale(along[0], along[-1], LEFT + 30, WIDTH - RIGHT - 70)
    parts = [*_frame(up, marks, up_name), _line(LEFT, base, WIDTH - RIGHT, base, "axis")]
    parts += [_words(across(mark), base + 18, figure_text(mark), "quiet middle") for mark in along]
    parts.append(_words(WIDTH - RIGHT, base + 36, across_name, "quiet end"))
    ordered = sorted(spots, key=lambda spot: (spot.across, -spot.up))
    parts.append(_path([(across(spot.across), up(spot.up)) for spot in ordered], "line s0"))
    for spot in sorted(ordered, key=lambda spot: spot.marked):  # the one of today lies on top
        x, y = across(spot.across), up(spot.up)
        parts.append(
            tag("circle", cx=x, cy=y, r=7.5 if spot.marked else 4.6, class_="dot f1" if spot.marked else "dot f0")
        )
    return _drawing(parts + _spot_names(ordered, across, up), label)


def _spot_names(spots: Sequence[Spot], across: _Scale, up: _Scale) -> list[Markup]:
    """Names beside their spots, one below the other where spots lie upon each other."""
    places: list[tuple[float, float, list[Spot]]] = []
    for spot in sorted(spots, key=lambda spot: not spot.marked):
        x, y = across(spot.across), up(spot.up)
        near = next((names for there, at, names in places if abs(x - there) < 60 and abs(y - at) < LINE), None)
        if near is None:
            places.append((x, y, [spot]))
        else:
            near.append(spot)
    return [words for x, y, names in places for words in _names_at(x, y, names)]


def _names_at(x: float, y: float, spots: Sequence[Spot]) -> list[Markup]:
    """The names of spots at one place, within the frame."""
    texts = [f"{spot.name} (today)" if spot.marked else spot.name for spot in spots]
    width = LETTER * max(len(text) for text in texts)
    left = x + 12 + width > WIDTH - 4
    last = HEIGHT - BOTTOM - 8 - LINE * (len(texts) - 1)
    first = min(max(y + 5, TOP + 12), last)
    kinds = ["halo" + (" strong" if spot.marked else "") + (" end" if left else "") for spot in spots]
    return [
        _words(x - 12 if left else x + 12, first + LINE * place, text, kind)
        for place, (text, kind) in enumerate(zip(texts, kinds, strict=True))
    ]


def side_by_side(pairs: Sequence[Pair], before: str, after: str, label: str) -> Markup:
    """Figures beside those of today, one line each.

    Args:
        pairs: what is compared.
        before: what the first of each is called.
        after: what the second is called.
        label: what the drawing shows, in words.
    """
    name_width = min(max((len(pair.name) for pair in pairs), default=4) * LETTER + 14, 230.0)
    # From 0 on, so that lengths are to each other as the values are.
    marks = ticks(*_span([0.0, *(value for pair in pairs for value in (pair.before, pair.after))]), 6)
    across = _Scale(marks[0], marks[-1], name_width + 8, NARROW - 70)
    bottom = 16 + 34.0 * len(pairs)
    parts = [_line(across(mark), 10, across(mark), bottom, "grid") for mark in marks]
    parts += [_words(across(mark), bottom + 18, figure_text(mark), "quiet middle") for mark in marks]
    for place, pair in enumerate(pairs):
        parts += _pair(pair, 28 + 34.0 * place, across, name_width)
    y = bottom + 42
    parts += [tag("circle", cx=name_width + 12, cy=y - 4, r=5, class_="ring s5"), _words(name_width + 24, y, before)]
    x = name_width + 40 + LETTER * len(before)
    parts += [tag("circle", cx=x, cy=y - 4, r=5.5, class_="dot f0"), _words(x + 12, y, after)]
    return _drawing(parts, label, NARROW, bottom + 54)


def _pair(pair: Pair, y: float, across: _Scale, name_width: float) -> list[Markup]:
    most = int(name_width / LETTER)
    name = pair.name if len(pair.name) <= most else pair.name[: most - 1] + "…"
    here, there = across(pair.before), across(pair.after)
    # The number is that of the full dot, and stands on its side, away from the ring.
    aside = (there - 10, "strong end halo") if there < here else (there + 10, "strong")
    return [
        _words(name_width, y + 4.5, name, "end"),
        _line(here, y, there, y, "axis"),
        tag("circle", cx=here, cy=y, r=5, class_="ring s5"),
        tag("circle", cx=there, cy=y, r=5.5, class_="dot f0"),
        _words(aside[0], y + 4.5, f"{pair.after:.4g}", aside[1]),
    ]


def course(visits: Sequence[Visit], states: Sequence[str], label: str) -> Markup:
    """Where one arm was, step by step: a full dot where it was seen, a ring where that is only believed.

    Args:
        visits: in the order of the steps.
        states: from top to bottom.
        label: what the drawing shows, in words.
    """
    left = min(max((len(state) for state in states), default=4) * LETTER + 18, 200.0)
    gap = 30.0
    base = 20 + gap * len(states)
    steps = [visit.step for visit in visits] or [0]
    across = _Scale(*_span(steps), left + 16, WIDTH - RIGHT - 14)
    level = {state: 16 + gap * place for place, state in enumerate(states)}
    parts = [_line(left, y, WIDTH - RIGHT, y, "grid") for y in level.values()]
    parts += [
        _words(left - 8, y + 4.5, state if len(state) < 26 else state[:25] + "…", "end") for state, y in level.items()
    ]
    places = [(across(visit.step), level[visit.state]) for visit in visits if visit.state in level]
    parts.append(_path(places, "line s5"))
    for visit in visits:
        if visit.state in level:
            parts += _visit(visit, across(visit.step), level[visit.state], base)
    shown = [mark for mark in ticks(steps[0], steps[-1], 9) if mark == int(mark) and steps[0] <= mark <= steps[-1]]
    parts += [_words(across(mark), base + 36, f"{mark:.0f}", "quiet middle") for mark in shown or steps[:1]]
    parts.append(_words(left - 8, base + 14, "served", "quiet end"))
    parts.append(_words(left - 8, base + 36, "step", "quiet end"))
    return _drawing(parts, label, height=base + 46)


def _visit(visit: Visit, x: float, y: float, base: float) -> list[Markup]:
    dot = tag("circle", cx=x, cy=y, r=4.6, class_="dot f0" if visit.known else "ring s0")
    if not visit.action:
        return [dot]
    named = tag("title", escape(f"step {visit.step}: {visit.action}"))
    points = f"{x:.1f},{base + 3:.1f} {x + 6:.1f},{base + 14:.1f} {x - 6:.1f},{base + 14:.1f}"
    return [dot, tag("polygon", named, points=points, class_="dot f1")]


def interval_bar(mean: float, lower: float, upper: float, label: str) -> Markup:
    """A probability with its interval, on a scale from 0 to 1.

    Args:
        mean: what is believed.
        lower: where its interval begins.
        upper: where it ends.
        label: the same in words.
    """
    parts = [
        _line(6, 8, 194, 8, "grid"),
        _line(6 + 188 * lower, 8, 6 + 188 * upper, 8, "line s0"),
        tag("circle", cx=6 + 188 * mean, cy=8, r=4.6, class_="dot f0"),
    ]
    return tag("svg", Markup("").join(parts), viewBox="0 0 200 16", role="img", aria_label=label, class_="mini")
