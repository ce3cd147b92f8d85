"""Points: one figure of one cell each, put in its place and gathered over seeds into entries of a sheet."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from evenhand.experiments.spec import Published, Target
from evenhand.report.reproduction.sheets import NOT_RUN, Entry, Key

At: TypeAlias = tuple[tuple[str, Key], ...]
"""A row: names and values."""

PublishedFigures: TypeAlias = Mapping[tuple[At, str], tuple[float, float | None]]
"""Figure and deviation by row and column."""

KEYS = {"N": "num_arms", "b": "budget", "b/N": "budget_share"}
"""What the names in an instance such as `N=10, b/N=0.5` stand for."""


@dataclass(frozen=True)
class Point:
    """One figure of one cell, and its place."""

    at: At
    column: str
    value: float | None = None
    plug_in: float | None = None
    exact: bool = True
    stderr: float = 0.0
    deviation: float | None = None
    trouble: str | None = None


def entries(points: Iterable[Point], published: PublishedFigures) -> list[Entry]:
    """Points gathered by place, beside what was published there; in the order of rows.

    Args:
        points: of all seeds.
        published: figure and deviation by place; places without points become entries that were not run.
    """
    gathered: dict[tuple[At, str], list[Point]] = {}
    for point in points:
        gathered.setdefault((point.at, point.column), []).append(point)
    for place in published:
        gathered.setdefault(place, [Point(*place, trouble=NOT_RUN)])
    made = [_entry(place, own, published.get(place, (None, None))) for place, own in gathered.items()]
    return sorted(made, key=lambda entry: row_order(entry.at))


def row_order(at: At) -> tuple[tuple[str, float], ...]:
    """Numbers rise; texts stay in the order they came, as sorting is stable."""
    return tuple(("", value) if isinstance(value, int | float) else ("text", 0.0) for _, value in at)


def _entry(place: tuple[At, str], points: Sequence[Point], paper: tuple[float | None, float | None]) -> Entry:
    return Entry(
        at=place[0],
        column=place[1],
        paper=paper[0],
        paper_spread=paper[1],
        values=tuple(point.value for point in points if point.value is not None),
        plug_in=tuple(point.plug_in for point in points if point.plug_in is not None),
        exact=all(point.exact for point in points),
        stderr=max((point.stderr for point in points), default=0.0),
        deviation=next((point.deviation for point in points if point.deviation is not None), None),
        troubles=tuple(point.trouble for point in points if point.trouble is not None),
    )


def place_of(instance: str) -> At:
    """`N=10 b=5` as keys and numbers; any other text as an instance."""
    pairs = [re.fullmatch(r"([\w/]+)=(\d+(?:\.\d+)?)", part) for part in re.split(r"[,\s]+", instance.strip())]
    if all(pair is not None and pair[1] in KEYS for pair in pairs):
        return tuple((KEYS[pair[1]], _numeric(pair[2])) for pair in pairs if pair is not None)
    return (("instance", instance),)


def _numeric(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def published_by_place(
    target: Target, quantity: str, aliases: Mapping[str, Sequence[str]] | None = None
) -> PublishedFigures:
    """The published figures of a quantity by place and method.

    Args:
        target: with its published numbers.
        quantity: which of them.
        aliases: columns beside which a published method is shown too.
    """
    found = {}
    for series in target.published:
        if series.quantity == quantity:
            for column in (series.method, *(aliases or {}).get(series.method, ())):
                for place, figures in _by_instance(target, series):
                    found[place, column] = figures
    return found


def _by_instance(target: Target, series: Published) -> Iterator[tuple[At, tuple[float, float | None]]]:
    spread: Sequence[float | None] = series.deviations or [None] * len(series.values)
    for instance, value, deviation in zip(target.instances, series.values, spread, strict=False):
        yield place_of(instance), (value, deviation)
