"""Values stated by the user per type, state and action (and next state), as a table or as short text.

    table    columns of keys, each optional or empty, and one column per figure; any source that `table_reader` reads
    text     NAME=NUMBER, NAME/NAME=NUMBER, separated by commas; or a mapping of names to numbers: rows of such a table

A key that is absent, empty or * stands for every name. A statement with more keys overrides one with fewer; two with as
many keys that overlap are a fault, as is an unknown name. All faults are reported with their rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import LARGEST, Faults
from evenhand.errors import Fault, TableError
from evenhand.fitting.log import Log
from evenhand.fitting.table_reader import code_names, read_floats, read_table
from evenhand.model.io.text_table import raise_faults
from evenhand.model.labels import quoted
from evenhand.typing import Floats, Ints

KEYS = ("type", "state", "action", "next_state")
"""Keys of a statement, in the order of the axes."""

EVERY = "*"
"""Entry that stands for every name, as an empty one does."""

TERM = re.compile(r"\s*([^=].*?)\s*=\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?:,|$)", re.DOTALL)
"""A term of a text. Names may hold commas and signs of equality, so it ends with a number."""


class Statement(NamedTuple):
    """One row of a table."""

    where: str
    """`line 4`, or `row 3`."""

    cell: tuple[slice, ...]
    """(key,) the named place, or all, on each axis of `KEYS`."""

    figures: list[float]
    """Stated values."""

    @property
    def num_keys(self) -> int:
        """Number of names it gives."""
        return sum(part != slice(None) for part in self.cell)


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
        raise_faults(faults.found, self.source)
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
    frame, columns, faults = table.frame, table.frame.columns[1:], table.faults()
    found = [name for name in columns if name not in KEYS and (figures is None or name in figures)]
    for column in required:
        if column not in columns:
            faults.add(f"missing column {column}; the columns are: {', '.join(columns) or 'none'}")
    if (len(found) != 1 and figures) or (figures is None and not found):
        expected = f"one column of {', '.join(figures)}" if figures else "one column per resource"
        faults.add(f"expected {expected} beside {', '.join(keys)}; the columns are: {', '.join(columns)}")
    for column in columns:
        if column not in (*keys, *found):
            faults.add(f"unknown column {quoted(column)}; expected {', '.join([*keys, *(figures or ())])}")
    if not len(frame):
        faults.add("there are no rows in it")
    faults.raise_if_any()
    cells = np.full((len(frame), len(KEYS)), slice(None))
    for axis, known in enumerate((log.types, log.states, log.actions, log.states)):
        if (key := KEYS[axis]) in columns:
            coded = code_names(frame[key])
            if key in required:
                faults.flag(coded.codes < 0, f"{key} must be named")
            codes = coded.among([*known, EVERY], key.removeprefix("next_"), faults).codes
            named = np.flatnonzero((codes >= 0) & (codes < len(known)))
            cells[named, axis] = [slice(code, code + 1) for code in codes[named].tolist()]
    values = np.empty((len(frame), len(found)))
    for number, column in enumerate(found):
        values[:, number] = read_floats(frame[column], column, faults, needed=True)
        large = np.isfinite(values[:, number]) & (np.abs(values[:, number]) > LARGEST)
        faults.flag(large, f"{column} is larger than {LARGEST:g}")
    faults.raise_if_any()
    rows = enumerate(zip(cells.tolist(), values.tolist(), strict=True))
    statements = [Statement(faults.name(row), tuple(cell), figures) for row, (cell, figures) in rows]
    return StatedTable(statements, tuple(found), table.source)


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
        first, second = next((cut for cut in cuts if cut[0] in (EVERY, *known)), cuts[min(1, len(cuts) - 1)])
        rows.append((first, second, value))
    return rows
