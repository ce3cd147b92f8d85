"""Values stated by the user per type, state and action (and next state), as a table or as short text.

    table    columns of keys, each optional or empty, and one column per figure; any source that `table_reader` reads
    text     NAME=NUMBER, NAME/NAME=NUMBER, separated by commas; or a mapping of names to numbers

A key that is absent, empty or * stands for every name. A statement with more keys overrides one with fewer; two with as
many keys that overlap are a fault, as is an unknown name. All faults are reported with their rows.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import LARGEST, Faults, plain
from evenhand.errors import Fault, InvalidInputError, TableError, nearest, shortened
from evenhand.fitting.columns import as_texts, not_a_number
from evenhand.fitting.log import Log
from evenhand.fitting.table_reader import read_table, row_names
from evenhand.model.io.text_table import SHOWN_FAULTS
from evenhand.model.places import quoted
from evenhand.typing import Floats, Ints

ANY = "*"
"""Stands for every name."""

KEYS = ("type", "state", "action", "next_state")
"""Keys of a statement, in the order of the axes."""

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


class Statement(NamedTuple):
    """One row of a table, or one term of a text."""

    where: str
    """`line 4`, or the term itself."""

    cell: tuple[int | None, ...]
    """(key,) index of each name, in the order of `KEYS`; None for all."""

    figures: tuple[float, ...]
    """Stated values."""

    @property
    def num_keys(self) -> int:
        """Number of names it gives."""
        return sum(place is not None for place in self.cell)


class Names:
    """Names of types, states and actions in a log."""

    def __init__(self, log: Log) -> None:
        """Index the names.

        Args:
            log: the records.
        """
        self.known = {"type": log.types, "state": log.states, "action": log.actions, "next_state": log.states}
        self.shape = tuple(len(self.known[key]) for key in KEYS)
        self._places = {kind: {name: i for i, name in enumerate(names)} for kind, names in self.known.items()}

    def find(self, key: str, name: str, where: str, faults: Faults) -> int | None:
        """Index of a name; None for all, and for an unknown name, which is a fault.

        Args:
            key: one of `KEYS`.
            name: the text; empty or * for all.
            where: the row, or the term.
            faults: collects unknown names.
        """
        if name in ("", ANY):
            return None
        if name not in self._places[key]:
            near = nearest(name, self.known[key])
            listed = ", ".join(map(quoted, self.known[key][:12]))
            hint = f"did you mean {quoted(near)}?" if near else f"known are {listed}"
            faults.add(where, f"unknown {key.removeprefix('next_')} {quoted(name)}; {hint}")
        return self._places[key].get(name)

    def split(self, text: str, kinds: Sequence[str]) -> tuple[str, ...]:
        """One name, or two that a stroke separates; a known name with strokes stays whole.

        Args:
            text: the text before a sign of equality.
            kinds: key of the first name, and of the second if there may be one.
        """
        known = (ANY, *self.known[kinds[0]])
        cuts = [(text[: m.start()].strip(), text[m.end() :].strip()) for m in re.finditer("/", text)]
        if text in known or not cuts or len(kinds) == 1:
            return (text,)
        return next((cut for cut in cuts if cut[0] in known), cuts[0])


def read_statements(
    source: Any,
    names: Names,
    label: str,
    figures: Sequence[str] | None = None,
    keys: Sequence[str] = KEYS[:3],
    required: Sequence[str] = (),
    named: Sequence[str] = (),
) -> tuple[list[Statement], tuple[str, ...]]:
    """Statements of a table.

    Args:
        source: a file name, a data frame, rows or columns.
        names: names that the records have.
        label: name in messages of a source that is not a file.
        figures: columns of which exactly one must be there; all columns that are not keys by default.
        keys: columns of names.
        required: keys that must have a column.
        named: keys that must have a name in every row.

    Returns:
        The statements, and the columns of figures.

    Raises:
        TableError: with every fault and its row.
    """
    table = read_table(source, name=label)
    columns = {
        name.strip(): as_texts(table.frame[name]).str.strip_chars().fill_null("").to_list()
        for name in table.frame.columns[1:]
    }
    found = [name for name in columns if name not in KEYS and (figures is None or name in figures)]
    faults = Faults()
    for column in (*required, *([" or ".join(figures)] if figures and not found else [])):
        if column not in columns:
            faults.add("", f"missing column {column}; the columns are: {', '.join(columns) or 'none'}")
    if figures is not None and len(found) > 1:
        faults.add("", f"expected one column of {', '.join(figures)}, got {', '.join(found)}")
    if figures is None and not found:
        faults.add("", "expected one column per resource beside type, state and action")
    for column in columns:
        if column not in (*keys, *found):
            faults.add("", f"unknown column {quoted(column)}; expected {', '.join([*keys, *(figures or ())])}")
    if not len(table.frame):
        faults.add("", "there are no rows in it")
    raise_faults(faults, table.source)
    statements = []
    for row, where in enumerate(row_names(table.frame["row"].to_list(), table.by_line)):
        cell = tuple(names.find(key, columns[key][row] if key in columns else "", where, faults) for key in KEYS)
        values = tuple(read_number(columns[column][row], f"{where}, {column}", faults) for column in found)
        if any(columns[key][row] in ("", ANY) for key in named):
            faults.add(where, f"{', '.join(named)} must be named")
        statements.append(Statement(where, cell, values))
    raise_faults(faults, table.source)
    return statements, tuple(found)


def parse_statements(
    text: str | Mapping[str, float], names: Names, kinds: Sequence[str], label: str
) -> tuple[list[Statement], list[str]]:
    """Statements of a short text such as `good=1,poor=0.3,poor/replace=-2`.

    Args:
        text: the text, or a mapping of names to numbers.
        names: names that the records have.
        kinds: key of the first name, and of the second if there may be one; a second that is not in `KEYS` is returned
            as written.
        label: the argument, for messages.

    Returns:
        The statements, and the free name of each, empty if there is none.

    Raises:
        TableError: with every fault.
    """
    faults, found, free = Faults(), [], []
    for key, value in _pairs(text, label):
        figure = read_number("" if isinstance(value, bool) else str(value), quoted(key), faults)
        parts = dict(zip(kinds, names.split(key, kinds), strict=False))
        cell = tuple(names.find(kind, parts.get(kind, ""), label, faults) for kind in KEYS)
        found.append(Statement(quoted(key), cell, (figure,)))
        free.append(next((part for kind, part in parts.items() if kind not in KEYS), ""))
    raise_faults(faults, label)
    return found, free


def _pairs(text: str | Mapping[str, float], label: str) -> list[tuple[str, Any]]:
    if isinstance(text, Mapping):
        return [(str(key).strip(), value) for key, value in text.items()]
    # Names may hold commas and signs of equality: a term ends with a number.
    term = re.compile(rf"\s*(?P<key>[^=].*?)\s*=\s*(?P<value>{NUMBER})\s*(?:,|$)", re.DOTALL)
    pairs, place = [], 0
    while isinstance(text, str) and place < len(text) and (match := term.match(text, place)):
        pairs.append((match["key"], match["value"]))
        place = match.end()
    if not isinstance(text, str) or not pairs or place < len(text):
        rest = text[place:] if isinstance(text, str) else repr(text)
        raise TableError([Fault("", f"expected NAME=NUMBER,NAME=NUMBER, got {quoted(rest)}")], label)
    return pairs


def read_number(text: str, where: str, faults: Faults) -> float:
    """Finite number of a text; NaN if it is invalid, which is a fault.

    Args:
        text: the text.
        where: the row, or the term.
        faults: collects invalid numbers.
    """
    try:
        value = float(text)
    except ValueError:
        faults.add(where, not_a_number(text) if text else "has no number")
        return math.nan
    if not math.isfinite(value) or abs(value) > LARGEST:
        faults.add(where, f"expected a finite number up to {LARGEST:g}, got {plain(value)}")
    return value


def broadcast(statements: Sequence[Statement], shape: Sequence[int], label: str) -> Floats:
    """(key, ..., figure) stated values; NaN if there is none.

    Args:
        statements: in any order.
        shape: sizes of the axes: the first of `Names.shape`.
        label: the source, for messages.

    Raises:
        TableError: two statements with as many keys overlap.
    """
    values = np.full((*shape, len(statements[0].figures) if statements else 1), np.nan)
    by: Ints = np.full(shape, -1, dtype=np.int64)
    faults = Faults()
    for number in sorted(range(len(statements)), key=lambda i: (statements[i].num_keys, i)):
        one = statements[number]
        cells = tuple(slice(None) if place is None else slice(place, place + 1) for place in one.cell[: len(shape)])
        for other in np.unique(by[cells]).tolist():
            if other >= 0 and statements[other].num_keys == one.num_keys:
                faults.add(one.where, f"states the same as {statements[other].where}, with as many names")
        values[cells], by[cells] = one.figures, number
    raise_faults(faults, label)
    return values


def is_text(source: Any) -> bool:
    """Return whether values are stated as text, or as a mapping of names to numbers.

    Args:
        source: stated values.
    """
    if isinstance(source, Mapping):
        return all(isinstance(value, (int, float)) for value in source.values())
    return isinstance(source, str) and "=" in source and not Path(source).exists()


def source_name(source: Any) -> str:
    """Name of a source in messages: its file, or `a table`.

    Args:
        source: of `read_statements`.
    """
    return str(source) if isinstance(source, (str, Path)) else "a table"


def one_of(name: str, **given: Any) -> str | None:
    """The only argument that is given; None if none is.

    Args:
        name: of the quantity.
        given: alternative arguments, by description.

    Raises:
        InvalidInputError: several are given.
    """
    found = [key for key, value in given.items() if value is not None]
    if len(found) > 1:
        raise InvalidInputError(f"{name}: give one of {' and '.join(found)}")
    return found[0] if found else None


def raise_faults(faults: Faults, source: str) -> None:
    """Raise TableError with all faults, or the first of very many.

    Args:
        faults: collected faults.
        source: their source.
    """
    if faults:
        raise TableError(shortened(faults.found, SHOWN_FAULTS), source)
