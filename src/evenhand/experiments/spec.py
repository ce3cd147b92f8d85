"""What a target is: one TOML file a table or figure, with the published numbers and the cells to run.

```toml
title = "GGF scores, Exponential-RCCC"
source = "Table 1"                # where in the paper; "beyond the paper" for open questions
about = "..."                     # what it shows, in plain words
curves = true                     # optional: it is about how welfare rises while learning

[readings]                        # how we read a method that the paper does not specify fully; shown beside it
OFT = "..."

[published]                       # the paper's numbers; absent if it prints none
instances = ["N=2", "N=3"]
[[published.series]]
method = "CP-DRL"
quantity = "welfare"
values = [14.12, 13.95]           # one an instance
deviations = [0.01, 0.02]         # optional

[sizes]                           # names for what is swept or reduced: numbers, texts, lists, lists of tables
num_arms = [2, 3, 4, 5]
seed = [0, 1, 2, 3, 4]
steps = 240_000

[quick]                           # what replaces them under --quick
seed = [0]
steps = 24_000

[[cells]]
method = "CP-DRL"                 # the label of the row, column or curve
instance = "N=$num_arms"
kind = "train"                    # of cells.py
each = ["num_arms", "seed"]       # one cell for every combination of these sizes
[cells.settings]                  # of that kind; "$name" is a size, of those in `each` the current one
problem = "machine-replacement"
parameters = { num_arms = "$num_arms", operating_cost = "exponential" }
steps = "$steps"
seed = "$seed"
```

A size that is a table gives its entries as `$size.num_arms`. Every fault of a file is told at once, with its place.
"""

import inspect
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import Fault, InvalidInput, ModelError, UnknownName, nearest
from evenhand.experiments.cells import CHOICES, find_kind
from evenhand.experiments.names import choose_names, target_paths
from evenhand.model.welfare import parse_welfare
from evenhand.problems import catalog

KEYS = ("title", "source", "about", "curves", "readings", "published", "sizes", "quick", "cells")
BLOCK_KEYS = ("method", "instance", "kind", "each", "settings")
_UNKNOWN = object()  # what a reference to no size stands for; its fault is told already
_REFERENCE = re.compile(r"\$([A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*)")


# -- what a target is made of ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """A row, column or curve of the paper."""

    method: str
    """As the cells call it."""

    quantity: str
    """What the numbers are: welfare, constraints, total, ..."""

    values: tuple[float, ...]
    """(instance,) the numbers."""

    deviations: tuple[float, ...] | None
    """(instance,) what the paper prints behind plus-minus, or in parentheses."""


@dataclass(frozen=True)
class Cell:
    """A unit of work."""

    kind: str
    """A kind of `cells`."""

    settings: dict[str, Any]
    """Its arguments, defaults included."""


@dataclass(frozen=True)
class Planned:
    """A cell and what it is in a target."""

    cell: Cell
    target: str
    method: str
    instance: str

    @property
    def seed(self) -> int | None:
        """Its seed, if it has one."""
        seed = self.cell.settings.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def label(self) -> dict[str, Any]:
        """The target, instance, method and seed."""
        return {"target": self.target, "instance": self.instance, "method": self.method, "seed": self.seed}

    def __str__(self) -> str:
        seed = "" if self.seed is None else f" seed {self.seed}"
        return f"{self.target} {self.method} {self.instance}{seed}"


@dataclass(frozen=True)
class Target:
    """A table, a figure or an open question."""

    name: str
    """What a user types: the file's name."""

    title: str
    """One line."""

    source: str
    """Where in the paper."""

    about: str
    """What it shows."""

    curves: bool
    """Whether it is about how welfare rises while learning."""

    readings: dict[str, str]
    """Method to how it was read."""

    instances: tuple[str, ...]
    """The instances of the published numbers."""

    published: tuple[Published, ...]
    """The paper's numbers."""

    full: tuple[Planned, ...]
    """The cells."""

    quick: tuple[Planned, ...]
    """The cells under --quick."""

    def plan(self, quick: bool) -> tuple[Planned, ...]:
        """The cells to run."""
        return self.quick if quick else self.full


# -- targets of a folder ---------------------------------------------------------------------------------------------


def read_targets(folder: Path) -> dict[str, Target]:
    """All targets of a folder by name, in order.

    Raises:
        InvalidInput: there are none, or some files are faulty; tells all faults of all of them.
    """
    targets, faults = {}, []
    for name, path in target_paths(folder).items():
        try:
            targets[name] = read_target(path)
        except InvalidInput as error:
            faults.append(str(error))
    if faults:
        raise InvalidInput("\n".join(faults))
    return targets


def choose(targets: Mapping[str, Target], names: Sequence[str]) -> list[Target]:
    """The targets that were asked for, in order: `all`, a name, or the beginning of several such as `figure-2`.

    Raises:
        InvalidInput: some names fit nothing; tells all of them, with the nearest names.
    """
    return [targets[name] for name in choose_names(list(targets), names)]


def read_target(path: Path) -> Target:
    """One target.

    Raises:
        ModelError: the file is faulty; has all faults.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ModelError([Fault("", str(error))], str(path)) from None
    reader = _Reader(path.stem, document)
    target = reader.target()
    if reader.faults:
        # A block that is read at both sizes has its faults twice.
        raise ModelError(list(dict.fromkeys(reader.faults)), str(path))
    return target


# -- reading a file, with all its faults -----------------------------------------------------------------------------


class _Reader:
    """Reads a document and gathers what is wrong with it."""

    def __init__(self, name: str, document: dict[str, Any]) -> None:
        self.name, self.document = name, document
        self.faults: list[Fault] = []
        self.checked: dict[str, list[Fault]] = {}

    def fault(self, place: str, message: str) -> None:
        """Note one fault."""
        self.faults.append(Fault(place, message))

    def target(self) -> Target:
        """The target, as far as it can be read."""
        # Every part notes its faults and goes on, so that a file is mended in one go.
        self.know(self.document, KEYS, "")
        title, source, about = (self.text(self.document, key, key) for key in ("title", "source", "about"))
        sizes, quick = self.table("sizes"), self.table("quick")
        for key in quick:
            if key not in sizes:
                # A size that --quick would replace must exist, or it is misspelt.
                self.fault(f"quick.{key}", f"replaces nothing: {_among('sizes', key, sizes)}")
        instances, published = self.published()
        # Read in full, whether it is asked for or not: faults are found before anything runs.
        full = tuple(self.plan(sizes))
        return Target(
            name=self.name,
            title=title,
            source=source,
            about=about,
            curves=self.flag("curves"),
            readings={
                method: self.text(self.table("readings"), method, "readings") for method in self.table("readings")
            },
            instances=instances,
            published=published,
            full=full,
            quick=tuple(self.plan({**sizes, **quick})),
        )

    def know(self, table: Mapping[str, Any], known: Sequence[str], place: str) -> None:
        """Refuse keys that nobody knows."""
        for key in table:
            if key not in known:
                self.fault(f"{place}.{key}" if place else key, _among("keys", key, known))

    def text(self, table: Mapping[str, Any], key: str, place: str) -> str:
        """A text that must be there."""
        value = table.get(key)
        if not isinstance(value, str) or not value.strip():
            self.fault(place, f"expected a text, got {_said(value)}")
            return ""
        return value

    def flag(self, key: str) -> bool:
        """Whether something is so; not, when absent."""
        value = self.document.get(key, False)
        if not isinstance(value, bool):
            self.fault(key, f"expected true or false, got {_said(value)}")
        return value is True

    def table(self, key: str) -> dict[str, Any]:
        """A table, empty when absent."""
        value = self.document.get(key, {})
        if not isinstance(value, dict):
            self.fault(key, f"expected a table, got {_said(value)}")
            return {}
        return value

    def blocks(self, table: Mapping[str, Any], key: str, place: str) -> list[dict[str, Any]]:
        """A list of tables, empty when absent."""
        value = table.get(key, [])
        # A table in the place of a list of tables is `[cells]` where `[[cells]]` was meant.
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.fault(place, f"expected blocks [[{place}]], got {_said(value)}")
            return []
        return value

    def published(self) -> tuple[tuple[str, ...], tuple[Published, ...]]:
        """The paper's numbers."""
        table = self.table("published")
        self.know(table, ("instances", "series"), "published")
        names = table.get("instances", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.fault("published.instances", f"expected a list of texts, got {_said(names)}")
            names = []
        found = []
        for number, series in enumerate(self.blocks(table, "series", "published.series")):
            place = f"published.series[{number}]"
            self.know(series, ("method", "quantity", "values", "deviations"), place)
            method, quantity = (self.text(series, key, f"{place}.{key}") for key in ("method", "quantity"))
            # As many numbers as there are instances.
            values = self.numbers(series.get("values"), len(names), f"{place}.values")
            spread = series.get("deviations")
            deviations = None if spread is None else self.numbers(spread, len(names), f"{place}.deviations")
            found.append(Published(method, quantity, values, deviations))
        return tuple(names), tuple(found)

    def numbers(self, values: Any, length: int, place: str) -> tuple[float, ...]:
        """A list of this many numbers."""
        if not isinstance(values, list) or not all(_is_number(value) for value in values):
            self.fault(place, f"expected a list of numbers, got {_said(values)}")
            return ()
        if len(values) != length:
            self.fault(place, f"expected {length} numbers, one an instance, got {len(values)}")
        return tuple(float(value) for value in values)

    def plan(self, sizes: Mapping[str, Any]) -> Iterator[Planned]:
        """The cells of all blocks, with these sizes."""
        blocks = self.blocks(self.document, "cells", "cells")
        if not blocks:
            self.fault("cells", "expected at least one block [[cells]]")
        for number, block in enumerate(blocks):
            place = f"cells[{number}]"
            self.know(block, BLOCK_KEYS, place)
            method, instance, kind = (self.text(block, key, f"{place}.{key}") for key in BLOCK_KEYS[:3])
            settings = block.get("settings", {})
            if not isinstance(settings, dict):
                self.fault(f"{place}.settings", f"expected a table, got {_said(settings)}")
                continue
            # One cell for each combination of the sizes in `each`.
            for chosen in self.combinations(block.get("each", []), sizes, place):
                filled = {key: self.fill(value, chosen, f"{place}.settings.{key}") for key, value in settings.items()}
                names = [
                    str(self.fill(text, chosen, f"{place}.{key}"))
                    # The first two of the keys are the ones with references in them.
                    for key, text in zip(BLOCK_KEYS, (method, instance), strict=False)
                ]
                cell = self.cell(kind, filled, place)
                if cell is not None:
                    yield Planned(cell, self.name, *names)

    def combinations(self, each: Any, sizes: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
        """The sizes, with one choice of those that are swept, in every combination."""
        if not isinstance(each, list) or not all(isinstance(name, str) for name in each):
            self.fault(f"{place}.each", f"expected a list of names of sizes, got {_said(each)}")
            return
        swept = []
        for name in each:
            if not isinstance(sizes.get(name), list) or not sizes[name]:
                reason = _among("sizes", name, sizes) if name not in sizes else "expected a list that is not empty"
                self.fault(f"{place}.each", f"{name}: {reason}")
                return
            swept.append([(name, value) for value in sizes[name]])
        # The current choice hides the list of the same name.
        for chosen in itertools.product(*swept):
            yield {**sizes, **dict(chosen)}

    def fill(self, value: Any, sizes: Mapping[str, Any], place: str) -> Any:
        """A setting with the sizes in it."""
        if isinstance(value, dict):
            return {key: self.fill(entry, sizes, f"{place}.{key}") for key, entry in value.items()}
        if isinstance(value, list):
            return [self.fill(entry, sizes, f"{place}[{index}]") for index, entry in enumerate(value)]
        if not isinstance(value, str):
            return value
        # A whole reference keeps the type of the size; within a text it becomes text.
        if whole := _REFERENCE.fullmatch(value):
            return self.size(whole[1], sizes, place)
        return _REFERENCE.sub(lambda found: str(self.size(found[1], sizes, place)), value)

    def size(self, reference: str, sizes: Mapping[str, Any], place: str) -> Any:
        """What a reference such as size.num_arms stands for."""
        value: Any = sizes
        # `size.num_arms`: entry by entry, as far as there are tables.
        for name in reference.split("."):
            if not isinstance(value, Mapping) or name not in value:
                known = value if isinstance(value, Mapping) else ()
                self.fault(place, f"${reference}: {_among('sizes', name, known)}")
                return _UNKNOWN
            value = value[name]
        return value

    def cell(self, kind: str, settings: dict[str, Any], place: str) -> Cell | None:
        """A cell whose settings are all there and sound."""
        try:
            function = find_kind(kind)
        except UnknownName as error:
            self.fault(f"{place}.kind", str(error))
            return None
        # The settings of a kind are the arguments of its function.
        known = inspect.signature(function).parameters
        before = len(self.faults)
        self.know(settings, list(known), f"{place}.settings")
        absent = [
            name for name, one in known.items() if one.default is inspect.Parameter.empty and name not in settings
        ]
        for name in absent:
            self.fault(f"{place}.settings", f"{name} is missing: {kind} needs it")
        # Defaults are written out: a cell's id must not depend on who left them out.
        given = {name: settings.get(name, one.default) for name, one in known.items() if name not in absent}
        # What is unknown has been told, and must not be told again as of a wrong type.
        told = {name for name, value in given.items() if _holds_unknown(value)}
        for name in given.keys() - told:
            self.check_setting(name, given[name], known[name].annotation, f"{place}.settings.{name}")
        if {"problem", "parameters"} <= given.keys() - told:
            self.check_problem(given["problem"], given["parameters"], f"{place}.settings")
        return Cell(kind, given) if len(self.faults) == before and not told else None

    def check_setting(self, name: str, value: Any, annotation: Any, place: str) -> None:
        """Refuse a value of another type, or outside what is possible."""
        # True is an int to Python.
        if annotation is int and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            self.fault(place, f"expected a whole number, at least 0, got {_said(value)}")
        elif annotation is str and not isinstance(value, str):
            self.fault(place, f"expected a text, got {_said(value)}")
        elif name in CHOICES and value not in CHOICES[name]:
            self.fault(place, str(UnknownName(name, str(value), CHOICES[name])))
        elif name in ("welfare", "measures"):
            self.check_welfare(value, place)
        elif name == "evaluate" and not (isinstance(value, list) and all(map(_is_size, value))):
            self.fault(place, f"expected a list of tables with num_arms and budget, got {_said(value)}")
        elif name in ("num_arms", "budget") and value is not None and not _is_range(value):
            self.fault(place, f"expected [least, most], got {_said(value)}")

    def check_welfare(self, value: Any, place: str) -> None:
        """Refuse what is not the name of a welfare, or a list of them."""
        for text in value if isinstance(value, list) else [value]:
            try:
                parse_welfare(text, str(text).count(",") + 1)  # explicit weights are for as many arms
            except InvalidInput as error:
                self.fault(place, str(error))

    def check_problem(self, problem: Any, parameters: Any, place: str) -> None:
        """Refuse a problem that cannot be built; each is built once."""
        if not isinstance(problem, str) or not isinstance(parameters, dict):
            self.fault(f"{place}.parameters", f"expected a table, got {_said(parameters)}")
            return
        # Many cells share a problem, which may take a while to build.
        key = repr((problem, sorted(parameters.items(), key=str)))
        if key not in self.checked:
            self.checked[key] = []
            try:
                catalog.build(problem, parameters)
            except ModelError as error:
                self.checked[key] = [fault.within("parameters") for fault in error.faults]
            except InvalidInput as error:
                self.checked[key] = [Fault("problem", str(error))]
        self.faults += [fault.within(place) for fault in self.checked[key]]


def _holds_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_unknown, value.values()))
    return any(map(_holds_unknown, value)) if isinstance(value, list) else value is _UNKNOWN


def _is_size(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"num_arms", "budget"}


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _said(value: Any) -> str:
    return "nothing" if value is None else repr(value)


def _among(kind: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = nearest(name, names)
    hint = f"did you mean {near}?" if near else f"known {kind}: {', '.join(names) or 'none'}"
    return f"is unknown; {hint}"
