"""Whether what is claimed holds here: every verdict and every number in a text is computed from the sheets.

A claim is checked place by place (a size, a cost). It holds where every place that was run bears it out, holds in part
where some do, and does not hold where none does or where it is one statement on all places together. Nothing turns on
the last digits of a number: what is required must be missed, or two places differ, by more than ROUNDING.
"""

import itertools
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from evenhand.report.reproduction.measures import KINDS, Item, Measured, Scene, Sheets
from evenhand.report.reproduction.statements import LIMITS, Measure, Part, Statement
from evenhand.report.reproduction.wording import Figure, in_cells, signed_text
from evenhand.report.words import listed

Verdict: TypeAlias = Literal["holds", "holds in part", "does not hold", "not run"]

ROUNDING = 1e-9
"""Differences that are no differences."""

MOST_TOLD = 4
"""Failing places that are told one by one."""


@dataclass(frozen=True)
class Claim:
    """A statement, what became of it, and the figures."""

    title: str
    verdict: Verdict
    evidence: str
    targets: tuple[str, ...]
    """Where it is shown."""


def judge(statement: Statement, sheets: Sheets, names: Mapping[str, str]) -> Claim:
    """Check one statement.

    Args:
        statement: what is claimed.
        sheets: of all targets.
        names: target to what its rows are called.
    """
    # Targets that were not run are not there: what is left is checked.
    own = {target: sheets[target] for target in statement.targets if target in sheets}
    scene = Scene(own, names)
    found = _take(statement.measure, scene)
    # A trend needs two places at least.
    if not found.items or ("falling" in statement.measure.required and len(found.items) < 2):
        needs = f"This needs {listed(list(statement.targets))}."
        return Claim(statement.title, "not run", needs, statement.targets)
    good = bears_out(found.items, statement.measure.required)
    verdict: Verdict = "holds" if all(good) else "holds in part" if any(good) else "does not hold"
    evidence = _told(statement, scene, found)
    return Claim(statement.title, verdict, evidence, statement.targets)


def _take(measure: Measure, scene: Scene) -> Measured:
    return KINDS[measure.kind].measure(scene, **measure.settings)


# What is required


HOLDS: dict[str, Callable[[float, float], bool]] = {
    "at_least": lambda value, limit: value >= limit - ROUNDING,
    "at_most": lambda value, limit: value <= limit + ROUNDING,
    "more_than": lambda value, limit: value > limit + ROUNDING,
    "less_than": lambda value, limit: value < limit - ROUNDING,
}


def bears_out(items: Sequence[Item], required: Mapping[str, Any]) -> list[bool]:
    """(place,) whether it bears the claim out; one answer for all where places are judged together."""
    if "falling" in required:
        # Judged together: one answer, so that the claim holds or does not.
        return [all(later.value < earlier.value - ROUNDING for earlier, later in itertools.pairwise(items))]
    if "lowest" in required:
        own = [item.value for item in items if item.at == required["lowest"]]
        # The named place must have the least, but for rounding.
        return [bool(own) and own[0] <= min(item.value for item in items) + ROUNDING]
    limits = {name: limit for name, limit in required.items() if name in LIMITS}
    return [all(HOLDS[name](item.value, limit) for name, limit in limits.items()) for item in items]


# The text


Facts: TypeAlias = dict[str, str | Figure]


class _Template(string.Formatter):
    """Fills names with dots as they are."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs[field_name], field_name


def _told(statement: Statement, scene: Scene, found: Measured) -> str:
    """The text of a claim; parts for which nothing was found are left out."""
    facts = _facts(found, statement.measure.required, statement.unit) | _lists(found, statement)
    places = {item.at for item in found.items}
    for name, measure in statement.also.items():
        also = _take(measure, scene)
        # Only at the places of the first measure: figures of others would tell of something else.
        same = Measured(tuple(item for item in also.items if item.at in places), also.total)
        if same.items:
            facts |= {f"{name}.{key}": fact for key, fact in _facts(same, measure.required, statement.unit).items()}
    # Which of two texts a part has depends on the first measure alone.
    holds = all(bears_out(found.items, statement.measure.required))
    return "".join(_filled(part, facts, holds) for part in statement.evidence)


def _filled(part: Part, facts: Facts, holds: bool) -> str:
    text = part if isinstance(part, str) else part["holds" if holds else "fails"]
    try:
        return _Template().vformat(text, (), facts)
    except KeyError:  # names were checked when the file was read: this one has no figures in this run
        return ""


def _facts(found: Measured, required: Mapping[str, Any], unit: str) -> Facts:
    """What can be said of any measure."""
    items, good = found.items, bears_out(found.items, required)
    smallest, largest = _extreme(items, min), _extreme(items, max)
    facts: Facts = {
        "in_cells": in_cells(sum(good), len(good), found.total, unit),
        "span": _span(smallest, largest, len(items)),
    }
    # A text can tell one limit; where there are several, the first.
    if limits := [limit for name, limit in required.items() if name in LIMITS]:
        facts["limit"] = Figure(limits[0])
    for end, item in (("first", items[0]), ("last", items[-1]), ("smallest", smallest), ("largest", largest)):
        facts |= {end: Figure(item.value), f"{end}.at": item.at}
        facts |= {f"{end}.{name}": _fact(detail) for name, detail in item.details.items()}
    return facts


def _lists(found: Measured, statement: Statement) -> Facts:
    """The places of the first measure, told one by one."""
    told = [_each(statement.each, item) for item in found.items]
    facts: Facts = {"each": listed(told), "sentences": ". ".join(told)}
    good = bears_out(found.items, statement.measure.required)
    # Judged together there is one answer for all places: `strict=False` then tells the first place.
    failing = [text for text, fine in zip(told, good, strict=False) if not fine]
    return facts | ({"failing": listed(failing[:MOST_TOLD])} if failing else {})


def _fact(detail: float | str) -> str | Figure:
    return detail if isinstance(detail, str) else Figure(detail)


def _each(text: str, item: Item) -> str:
    details = {name: _fact(detail) for name, detail in item.details.items()}
    return _Template().vformat(text, (), {"at": item.at, "value": Figure(item.value), **details})


def _extreme(items: Sequence[Item], pick: Callable[..., float]) -> Item:
    """The first place that has the least or the greatest number, but for rounding."""
    end = pick(item.value for item in items)
    return next(item for item in items if abs(item.value - end) <= ROUNDING)


def _span(smallest: Item, largest: Item, count: int) -> str:
    """`+0.11 (N = 2) to +1.17 (N = 5)`."""
    low, high = signed_text(smallest.value), signed_text(largest.value)
    if low == high:
        return f"{low} ({smallest.at})" if count == 1 else f"{low} throughout"
    return f"{low} ({smallest.at}) to {high} ({largest.at})"
