"""Values stated by the user per type, state and action (and next state), as a table or as short text.

    table    columns of keys, each optional or empty, and one column per figure; any source that `table_reader` reads
    text     NAME=NUMBER, NAME/NAME=NUMBER, separated by commas; or a mapping of names to numbers: rows of such a table

A key that is absent, empty or * stands for every name. A statement with more keys overrides one with fewer; two with as
many keys that overlap are a fault, as is an unknown name. All faults are reported with their rows.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import LARGEST, Faults, plain
from evenhand.errors import Fault, TableError, nearest, shortened
from evenhand.fitting.columns import as_texts, not_a_number
from evenhand.fitting.log import Log
from evenhand.fitting.table_reader import read_table, row_names
from evenhand.model.io.text_table import SHOWN_FAULTS
from evenhand.model.places import quoted
from evenhand.typing import Floats, Ints

KEYS = ("type", "state", "action", "next_state")
"""Keys of a statement, in the order of the axes."""

EVERY = ("", "*")
"""Entries that stand for every name."""

TERM = re.compile(r"\s*([^=].*?)\s*=\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?:,|$)", re.DOTALL)
"""A term of a text. Names may hold commas and signs of equality, so it ends with a number."""


class Statement(NamedTuple):
    """One row of a table."""

    where: str
    """`line 4`, or `row 3`."""

    cell: tuple[slice, ...]
    """(key,) the named place, or all, on each axis of `KEYS`."""

    num_keys: int
    """Number of names it gives."""

    figures: tuple[float, ...]
    """Stated values."""


@dataclass(frozen=True, eq=False)
class StatedTable:
    """Statements of a table."""

    statements: list[Statement]
    """Its rows."""

    figures: tuple[str, ...]
    """Columns of figures."""

    source: str
    """Name of the table in messages."""

    def values(self, shape: Sequence[int], statements: Sequence[Statement] | None = None) -> Floats:
        """(key, ..., figure) stated values; NaN if there is none.

        Args:
            shape: sizes of the first axes of `KEYS`.
            statements: some of the statements; all by default.

        Raises:
            TableError: two statements with as many keys overlap.
        """
        rows = self.statements if statements is None else statements
        values = np.full((*shape, len(self.figures)), np.nan)
        by: Ints = np.full(shape, -1, dtype=np.int64)
        faults = Faults()
        for number in sorted(range(len(rows)), key=lambda i: (rows[i].num_keys, i)):
            one = rows[number]
            cell = one.cell[: len(shape)]
            for other in np.unique(by[cell]).tolist():
                if other >= 0 and rows[other].num_keys == one.num_keys:
                    faults.add(one.where, f"states the same as {rows[other].where}, with as many names")
            values[cell], by[cell] = one.figures, number
        raise_faults(faults, self.source)
        return values


def read_statements(
    source: Any,
    log: Log,
    label: str,
    figures: Sequence[str] | None = None,
    keys: Sequence[str] = KEYS[:3],
    required: Sequence[str] = (),
) -> StatedTable:
    """Read the statements of a table.

    Args:
        source: a file name, a data frame, rows or columns.
        log: records, with the known names.
        label: name in messages of a source that is not a file.
        figures: columns of which one must be there, if any; all columns that are not keys by default.
        keys: columns of names.
        required: keys that every row must have, or have as *.

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
    for column in required:
        if column not in columns:
            faults.add("", f"missing column {column}; the columns are: {', '.join(columns) or 'none'}")
    if (len(found) != 1 and figures) or (figures is None and not found):
        expected = f"one column of {', '.join(figures)}" if figures else "one column per resource"
        faults.add("", f"expected {expected} beside {', '.join(keys)}; the columns are: {', '.join(columns)}")
    for column in columns:
        if column not in (*keys, *found):
            faults.add("", f"unknown column {quoted(column)}; expected {', '.join([*keys, *(figures or ())])}")
    if not len(table.frame):
        faults.add("", "there are no rows in it")
    raise_faults(faults, table.source)
    known = dict(zip(KEYS, (log.types, log.states, log.actions, log.states), strict=True))
    statements = []
    for row, where in enumerate(row_names(table.frame["row"].to_list(), table.by_line)):
        names = {key: columns[key][row] for key in KEYS if key in columns and columns[key][row] not in EVERY}
        places = {key: _find(name, key, known[key], where, faults) for key, name in names.items()}
        cell = tuple(slice(places[key], places[key] + 1) if key in places else slice(None) for key in KEYS)
        if any(not columns[key][row] for key in required):
            faults.add(where, f"{', '.join(required)} must be named")
        values = tuple(_number(columns[column][row], f"{where}, {column}", faults) for column in found)
        statements.append(Statement(where, cell, len(places), values))
    raise_faults(faults, table.source)
    return StatedTable(statements, tuple(found), table.source)


def _find(name: str, key: str, known: Sequence[str], where: str, faults: Faults) -> int:
    if name in known:
        return known.index(name)
    near = nearest(name, known)
    hint = f"did you mean {quoted(near)}?" if near else f"known are {', '.join(map(quoted, known[:12]))}"
    faults.add(where, f"unknown {key.removeprefix('next_')} {quoted(name)}; {hint}")
    return 0


def _number(text: str, where: str, faults: Faults) -> float:
    try:
        value = float(text)
    except ValueError:
        faults.add(where, not_a_number(text) if text else "has no number")
        return math.nan
    if not abs(value) <= LARGEST:
        faults.add(where, f"expected a finite number up to {LARGEST:g}, got {plain(value)}")
    return value


def is_text(source: Any) -> bool:
    """Return whether values are stated as text, or as a mapping of names to numbers.

    Args:
        source: stated values.
    """
    if isinstance(source, Mapping):
        return all(isinstance(value, (int, float)) for value in source.values())
    return isinstance(source, str) and "=" in source and not Path(source).exists()


def rows_of_text(text: str | Mapping[str, float], known: Sequence[str], label: str) -> list[tuple[str, str, str]]:
    """First name, second name and number of each term of a text such as `good=1,poor=0.3,poor/replace=-2`.

    Args:
        text: the text, or a mapping of names to numbers.
        known: first names, which may hold strokes.
        label: the argument, for messages.

    Raises:
        TableError: the text is not made of such terms, or has a term twice.
    """
    pairs, place = [], 0
    if isinstance(text, Mapping):
        pairs = [(str(key).strip(), str(value)) for key, value in text.items()]
    else:
        while place < len(text) and (match := TERM.match(text, place)):
            pairs.append((match[1], match[2]))
            place = match.end()
        if not pairs or place < len(text):
            raise TableError([Fault("", f"expected NAME=NUMBER,NAME=NUMBER, got {quoted(text[place:])}")], label)
    twice = sorted({key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1})
    raise_faults([Fault(quoted(key), "is stated twice") for key in twice], label)
    rows = []
    for key, value in pairs:
        cuts = [(key, ""), *((key[: m.start()].strip(), key[m.end() :].strip()) for m in re.finditer("/", key))]
        first, second = next((cut for cut in cuts if cut[0] in ("*", *known)), cuts[min(1, len(cuts) - 1)])
        rows.append((first, second, value))
    return rows


def raise_faults(faults: Faults | Sequence[Fault], source: str) -> None:
    """Raise TableError with all faults, or the first of very many.

    Args:
        faults: collected faults.
        source: their source.
    """
    if faults:
        raise TableError(shortened(faults.found if isinstance(faults, Faults) else faults, SHOWN_FAULTS), source)
