"""Targets: one TOML file per table or figure, with the published numbers and the cells to run.

    title, source, about    the heading, the place in the paper, and what the target shows
    curves                  true if its subject is how welfare rises in training
    [readings]              the reading taken of a method that the paper does not specify fully
    [published]             instances = [...]; one [[published.series]] per method with quantity, values, deviations
    [sizes], [quick]        named values that cells refer to as "$name"; [quick] replaces some of them
    [[cells]]               method, instance, kind, each = [sizes to sweep], and [cells.settings]

A cell is (kind, settings): a function of `cells` and its arguments. The same cell may serve several targets.
"""

import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "targets"
_REFERENCE = re.compile(r"\$(\w+(?:\.\w+)*)")


@dataclass(frozen=True)
class Cell:
    """A unit of work, and its place in a target."""

    method: str
    instance: str
    kind: str
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """Identity of the work: kind and settings as text."""
        return f"{self.kind} {json.dumps(self.settings, sort_keys=True)}"


@dataclass(frozen=True)
class Target:
    """A table, a figure or an open question."""

    name: str
    title: str
    source: str
    about: str
    curves: bool
    """Learning curves are its subject."""
    readings: dict[str, str]
    published: dict[tuple[str, str, str], tuple[float, float | None]]
    """(quantity, method, instance) to the published number and the deviation printed beside it."""
    full: tuple[Cell, ...]
    quick: tuple[Cell, ...]


def read_targets() -> dict[str, Target]:
    """Every target by name."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.toml"))}


def choose(targets: Mapping[str, Target], names: list[str]) -> list[Target]:
    """The targets that the names mean: `all`, a name, or the beginning of several such as `figure-2`.

    Raises:
        KeyError: a name matches no target.
    """
    chosen: dict[str, Target] = {}
    for name in names:
        matching = {key: target for key, target in targets.items() if name == "all" or key.startswith(name)}
        if not matching:
            raise KeyError(f"{name}: unknown target; known are {', '.join(targets)}")
        chosen |= matching
    return list(chosen.values())


def _read(path: Path) -> Target:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    sizes = document.get("sizes", {})
    return Target(
        name=path.stem,
        title=document["title"],
        source=document["source"],
        about=document["about"],
        curves=document.get("curves", False),
        readings=document.get("readings", {}),
        published=dict(_published(document.get("published", {}))),
        full=tuple(_expand(document["cells"], sizes)),
        quick=tuple(_expand(document["cells"], {**sizes, **document.get("quick", {})})),
    )


def _published(table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], tuple[float, float | None]]]:
    for series in table.get("series", ()):
        deviations = series.get("deviations", [None] * len(series["values"]))
        for instance, value, deviation in zip(table["instances"], series["values"], deviations, strict=True):
            yield (series["quantity"], series["method"], instance), (value, deviation)


def _expand(blocks: list[dict[str, Any]], sizes: Mapping[str, Any]) -> Iterator[Cell]:
    """One cell per block and combination of the sizes that it sweeps."""
    for block in blocks:
        swept = [[(name, value) for value in sizes[name]] for name in block.get("each", ())]
        for combination in itertools.product(*swept):
            known = {**sizes, **dict(combination)}
            method, instance = _fill(block["method"], known), _fill(block["instance"], known)
            yield Cell(method, instance, block["kind"], _fill(block["settings"], known))


def _fill(value: Any, sizes: Mapping[str, Any]) -> Any:
    """A setting with its references replaced; a reference that is the whole text keeps the type of the size."""
    if isinstance(value, dict):
        return {key: _fill(entry, sizes) for key, entry in value.items()}
    if isinstance(value, list):
        return [_fill(entry, sizes) for entry in value]
    if not isinstance(value, str):
        return value
    if whole := _REFERENCE.fullmatch(value):
        return reduce(lambda table, name: table[name], whole[1].split("."), sizes)
    return _REFERENCE.sub(lambda found: str(_fill(found[0], sizes)), value)
