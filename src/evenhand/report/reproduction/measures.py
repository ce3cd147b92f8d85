"""What a claim can be about: each kind of measure finds a number at every place that was run.

    kind              settings                         the number, and what else is known of a place (details)
    loss              of, against, whose               per cent of `against` that `of` lacks
    excess            of, against, whose               per cent of `against` by which `of` exceeds it
    lead              of, over: one or several, whose  how much more `of` has than the best of them
    above_published   columns, sheet, whose            ours less the published figure (column)
    off_published     columns, sheet, whose            how far ours is from the published figure, either way (column)
    spread            columns                          a place a column: mean standard deviation over seeds
    growth            sheet, along                     a place a column: the power of `along` with which figures grow,
                                                       from the first row to the last (factor, from, to, proportional)
    unevenness                                         largest over smallest figure of a column at the same row, over
                                                       all sheets; those without a number of arms count as one row
    ratio             of, over: {target, sheet, row}   a place a column: one row's figure over another's (of, over)
    change            before, after: rows              a place a sheet `outcomes`: the lesser of what `rises` gains and
                      rises, falls: columns            `falls` loses (rises_before, rises_after, falls_before, ...)

`of` may name several methods: then the best of those that are known counts. `whose` is `ours`, `paper`, or `protocol`:
ours measured as the paper does, where there is such a figure. Places are the rows of a target's first sheet unless
said otherwise.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from evenhand.report.reproduction.sheets import Entry, Sheet, loss

Sheets: TypeAlias = Mapping[str, Sequence[Sheet]]
"""The sheets of each target."""

Names: TypeAlias = str | Sequence[str]
"""One name, or several."""

Line: TypeAlias = Mapping[str, str]
"""A row of a sheet: target, sheet, row."""


@dataclass(frozen=True)
class Item:
    """The number at one place."""

    at: str
    """The place, in words."""
    value: float
    details: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """What was found."""

    items: tuple[Item, ...]
    """(place,) in order."""
    total: int | None = None
    """How many places a whole run has, where that is known."""


@dataclass(frozen=True)
class Place:
    """A row of a table: what each method has there."""

    name: str
    entries: Mapping[str, Entry]

    def figure(self, methods: Names, whose: str) -> float | None:
        """The figure of a method, the best one of several; None where there is none."""
        # One name or several: the best of those that are known.
        names = [methods] if isinstance(methods, str) else methods
        known = [figure_of(self.entries[name], whose) for name in names if name in self.entries]
        return max((figure for figure in known if figure is not None), default=None)


def figure_of(entry: Entry, whose: str) -> float | None:
    """Our figure, the published one, or ours as the paper measures."""
    if whose == "paper":
        return entry.paper
    # A figure of ours stands in where it was not measured as the paper does.
    return entry.protocol if whose == "protocol" and entry.protocol is not None else entry.ours


@dataclass(frozen=True)
class Scene:
    """The sheets that a claim is about, and what rows are called."""

    sheets: Sheets
    """Of its targets, in order."""
    names: Mapping[str, str]
    """Target to what its rows are called beside those of others."""

    def name(self, target: str, row: str) -> str:
        """`Exponential, N = 3`; the row alone where its target has no name."""
        return f"{self.names[target]}, {row}" if target in self.names else row

    def places(self) -> list[Place]:
        """The rows of the first sheet of each target."""
        return [
            place
            for target, sheets in self.sheets.items()
            # Further sheets of a target are curves and details.
            for sheet in sheets[:1]
            for place in self._rows(target, sheet)
        ]

    def _rows(self, target: str, sheet: Sheet) -> Iterator[Place]:
        for row in sheet.rows:
            own = {entry.column: entry for entry in sheet.visible if entry.row == row}
            yield Place(self.name(target, row), own)

    def named(self, name: str) -> Iterator[tuple[str, Sheet]]:
        """The sheets of this name, with their targets."""
        for target, sheets in self.sheets.items():
            yield from ((target, sheet) for sheet in sheets if sheet.name == name)


# Methods against each other


def measure_loss(scene: Scene, *, of: Names, against: Names, whose: str = "ours") -> Measured:
    """How far one method is below another."""
    return _compare(scene, of, against, whose, loss)


def measure_excess(scene: Scene, *, of: Names, against: Names, whose: str = "ours") -> Measured:
    """How far one method is above another."""
    return _compare(scene, of, against, whose, lambda value, base: -loss(value, base))


def measure_lead(scene: Scene, *, of: Names, over: Names, whose: str = "ours") -> Measured:
    """How much more a method has than the best of its rivals, who is told where there are several."""
    if isinstance(over, str):
        return _compare(scene, of, over, whose, lambda value, rival: value - rival)
    # Several rivals: whoever is best at that place is the one to beat, and is named.
    items, places = [], scene.places()
    for place in places:
        value = place.figure(of, whose)
        rivals = {rival: figure for rival in over if (figure := place.figure(rival, whose)) is not None}
        if value is not None and rivals:
            best = max(rivals, key=lambda rival: rivals[rival])
            items.append(Item(f"over {best}, {place.name}", value - rivals[best]))
    return Measured(tuple(items), len(places))


def _compare(scene: Scene, of: Names, against: Names, whose: str, compare: Callable[[float, float], float]) -> Measured:
    items, places = [], scene.places()
    for place in places:
        value, base = place.figure(of, whose), place.figure(against, whose)
        if value is not None and base is not None:
            items.append(Item(place.name, compare(value, base)))
    return Measured(tuple(items), len(places))


# Ours against the published figures


def measure_above_published(
    scene: Scene, *, columns: Sequence[str] = (), sheet: str = "welfare", whose: str = "ours"
) -> Measured:
    """How far our figures are above the published ones; of all columns unless some are named."""
    items, total = [], 0
    for target, own in scene.named(sheet):
        for entry in own.visible:
            # Places that have a published figure are counted, whether they were run or not.
            if entry.paper is not None and (not columns or entry.column in columns):
                total += 1
                figure = figure_of(entry, whose)
                # Whose figure it is, but only where ours exists: else it was not run.
                if figure is not None and entry.ours is not None:
                    at, column = scene.name(target, entry.row), {"column": entry.column}
                    items.append(Item(at, figure - entry.paper, column))
    return Measured(tuple(items), total)


def measure_off_published(
    scene: Scene, *, columns: Sequence[str] = (), sheet: str = "welfare", whose: str = "ours"
) -> Measured:
    """How far our figures are from the published ones, either way."""
    found = measure_above_published(scene, columns=columns, sheet=sheet, whose=whose)
    return Measured(tuple(Item(item.at, abs(item.value), item.details) for item in found.items), found.total)


# Columns as a whole


def measure_spread(scene: Scene, *, columns: Sequence[str]) -> Measured:
    """The standard deviation over seeds, the mean over the places at which all these columns have one."""
    spreads: dict[str, list[float]] = {column: [] for column in columns}
    for place in scene.places():
        known = {name: entry.spread for name, entry in place.entries.items()}
        # Only where all columns have a spread, so that means are over the same places.
        if all(known.get(column) is not None for column in columns):
            for column in columns:
                spreads[column].append(known[column] or 0.0)
    return Measured(tuple(Item(column, sum(found) / len(found)) for column, found in spreads.items() if found))


def measure_growth(scene: Scene, *, sheet: str, along: str) -> Measured:
    """How fast figures grow from the first row to the last, in the first target that has such a sheet."""
    lines: dict[str, list[tuple[float, float]]] = {}
    # The first target alone: times of several machines or settings are not one curve.
    for _, own in list(scene.named(sheet))[:1]:
        for entry in own.entries:
            if entry.ours:
                lines.setdefault(entry.column, []).append((float(dict(entry.at)[along]), entry.ours))
    items = []
    for column, line in lines.items():
        (first, start), (last, end) = min(line), max(line)
        if last > first:
            # The slope on logarithmic axes.
            power = math.log(end / start) / math.log(last / first)
            details = {"factor": end / start, "from": first, "to": last, "proportional": last / first}
            items.append(Item(column, power, details))
    return Measured(tuple(items))


def measure_unevenness(scene: Scene) -> Measured:
    """How far the figures of a column are apart at one row, by a factor."""
    found: dict[str, list[float]] = {}
    for sheet in (sheet for sheets in scene.sheets.values() for sheet in sheets):
        for entry in sheet.entries:
            if entry.ours:
                # By budget there are no sizes: all of them are one row.
                row = entry.row if "num_arms" in dict(entry.at) else "all budgets"
                found.setdefault(f"{entry.column}, {row}", []).append(entry.ours)
    return Measured(tuple(Item(at, max(own) / min(own)) for at, own in found.items() if len(own) > 1))


# Rows


def measure_ratio(scene: Scene, *, of: Line, over: Line) -> Measured:
    """The figures of one row over those of another, perhaps in another target."""
    top, bottom = _row(scene, of), _row(scene, over)
    # Without a figure, or with 0, there is no ratio.
    both = [column for column in top if bottom.get(column)]
    return Measured(
        tuple(
            Item(column, top[column] / bottom[column], {"of": top[column], "over": bottom[column]}) for column in both
        )
    )


def _row(scene: Scene, line: Line) -> dict[str, float]:
    """Our figures of a row, by column."""
    found = [sheet for target, sheet in scene.named(line["sheet"]) if target == line["target"]]
    entries = [entry for sheet in found for entry in sheet.entries if entry.row == line["row"]]
    return {entry.column: entry.ours for entry in entries if entry.ours is not None}


def measure_change(scene: Scene, *, before: str, after: str, rises: str, falls: str) -> Measured:
    """What changes from one row to another."""
    items = []
    for sheet in (sheet for sheets in scene.sheets.values() for sheet in sheets if sheet.name.startswith("outcomes")):
        ours = {(entry.row, entry.column): entry.ours for entry in sheet.entries if entry.ours is not None}
        places = {
            "rises_before": (before, rises),
            "rises_after": (after, rises),
            "falls_before": (before, falls),
            "falls_after": (after, falls),
        }
        if all(place in ours for place in places.values()):
            known = {name: ours[place] for name, place in places.items()}
            gain, price = known["rises_after"] - known["rises_before"], known["falls_before"] - known["falls_after"]
            # The lesser of both: it must gain and cost.
            items.append(Item(sheet.caption.partition(":")[0], min(gain, price), known))
    return Measured(tuple(items))


@dataclass(frozen=True)
class Kind:
    """A kind of measure."""

    measure: Callable[..., Measured]
    details: tuple[str, ...] = ()
    """What else is known of a place."""


KINDS = {
    "loss": Kind(measure_loss),
    "excess": Kind(measure_excess),
    "lead": Kind(measure_lead),
    "above_published": Kind(measure_above_published, ("column",)),
    "off_published": Kind(measure_off_published, ("column",)),
    "spread": Kind(measure_spread),
    "growth": Kind(measure_growth, ("factor", "from", "to", "proportional")),
    "unevenness": Kind(measure_unevenness),
    "ratio": Kind(measure_ratio, ("of", "over")),
    "change": Kind(measure_change, ("rises_before", "rises_after", "falls_before", "falls_after")),
}
"""Every kind of measure."""
