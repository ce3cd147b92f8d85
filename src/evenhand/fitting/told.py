"""What a person says of types, states and actions by their names, in a file or in words: rewards, costs, use.

A *statement* names some of type, state and action, and what it leaves out it says of all:

    a file    rows with the columns state, action, type (any of them may be absent, or empty) and one column a figure;
              CSV, Parquet, JSON, or TOML with one [[rows]] a row under any name
    words     NAME=NUMBER, NAME/NAME=NUMBER, separated by commas; * is every name

A statement that names more goes before one that names less. Two that name as much and speak of the same is a fault, as
is a name that the records do not have. Every fault is told, with its row.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import LARGEST, Faults, plain, why_unreadable
from evenhand.errors import Fault, InvalidInput, TableError, nearest, shortened
from evenhand.fitting.columns import not_a_number
from evenhand.fitting.log import Log
from evenhand.model.places import quoted
from evenhand.model.whereabouts import Table, as_table, read_table
from evenhand.typing import Floats, Ints

ANY = "*"
"""Stands for every name."""

SHOWN = 30
"""Faults that are told; a column of wrong names has thousands of them."""

KINDS = ("type", "state", "action")
"""What may be named, in the order of the axes."""

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


class Statement(NamedTuple):
    """One row of a file, or one word."""

    where: str
    """`line 4`, or the word itself."""

    cell: tuple[int | None, int | None, int | None]
    """The type, the state and the action it names; None for all of them."""

    figures: tuple[float, ...]
    """What it says."""

    @property
    def named(self) -> int:
        """How much it names."""
        return sum(place is not None for place in self.cell)


class Names:
    """The names of the records, and the faults of whoever uses others."""

    def __init__(self, log: Log) -> None:
        """Index the names.

        Args:
            log: the records.
        """
        self.known = {"type": log.types, "state": log.states, "action": log.actions}
        self._places = {kind: {name: i for i, name in enumerate(names)} for kind, names in self.known.items()}

    @property
    def shape(self) -> tuple[int, int, int]:
        """(type, state, action) how many there are."""
        types, states, actions = (len(self.known[kind]) for kind in KINDS)
        return types, states, actions

    def find(self, kind: str, name: str, where: str, faults: Faults) -> int | None:
        """The place of a name; None for all, and where it is unknown, which is a fault.

        Args:
            kind: type, state or action.
            name: what was written; empty or * for all.
            where: the row, or the word.
            faults: where an unknown name is noted.
        """
        if name in ("", ANY):
            return None
        if name not in self._places[kind]:
            faults.add(where, f"the records have no {kind} {quoted(name)}{self._hint(kind, name)}")
        return self._places[kind].get(name)

    def knows(self, kind: str, name: str) -> bool:
        """Whether it is a name of this kind, or stands for all."""
        return name == ANY or name in self._places[kind]

    def _hint(self, kind: str, name: str) -> str:
        if near := nearest(name, self.known[kind]):
            return f"; did you mean {quoted(near)}?"
        listed = ", ".join(map(quoted, self.known[kind][:12]))
        return f"; it has {listed}{' and more' if len(self.known[kind]) > 12 else ''}"


def read_statements(
    source: Any, names: Names, columns: Sequence[str] | None, called: str
) -> tuple[list[Statement], tuple[str, ...]]:
    """The rows of a file or a frame, each with the figures of its columns.

    Args:
        source: the name of a file (.csv, .parquet, .json, .toml), a data frame, rows or columns.
        names: what may be named.
        columns: the columns of figures, one of which must be there, or None for all that are no names.
        called: what faults call the source where it is no file.

    Returns:
        The statements, and the columns that were found.

    Raises:
        TableError: with every fault and its row.
    """
    table = _read(source)
    title = table.file or called
    others = [column for column in table.columns if column not in KINDS]
    figures = [column for column in others if columns is None or column in columns]
    faults = Faults()
    if columns is not None and len(figures) != 1:
        wanted = " or ".join(columns)
        faults.add("", f"expected one column {wanted}; the columns are: {', '.join(table.columns) or 'none'}")
    for column in others:
        if column not in figures:
            expected = ", ".join([*KINDS, *(columns or ())])
            faults.add("", f"unknown column {quoted(column)}; expected some of {expected}")
    if not figures and columns is None:
        faults.add("", "there is no column beside type, state and action: one a resource is expected, by its name")
    if not table.rows:
        faults.add("", "there is no row in it")
    found = [_statement(table, row, figures, names, faults) for row in range(len(table.rows))] if not faults else []
    raise_faults(faults, title)
    return found, tuple(figures)


def _read(source: Any) -> Table:
    if not isinstance(source, (str, Path)) or Path(source).suffix.lower() != ".toml":
        return read_table(source) if isinstance(source, (str, Path)) else as_table(source)
    try:
        found = tomllib.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{source}: cannot be read: {why_unreadable(Path(source), error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TableError([Fault("", f"is not TOML: {error}")], str(source)) from None
    lists = [rows for rows in found.values() if isinstance(rows, list) and all(isinstance(row, dict) for row in rows)]
    if len(found) != 1 or len(lists) != 1:
        wanted = 'expected one list of tables, such as [[rewards]] with state = "good" and reward = 1'
        raise TableError([Fault("", wanted)], str(source))
    table = as_table(lists[0])
    return Table(table.columns, table.rows, str(source), str(source))


def _statement(table: Table, row: int, figures: Sequence[str], names: Names, faults: Faults) -> Statement:
    where = table.rows[row]
    given = {kind: table.columns[kind][row] if kind in table.columns else "" for kind in KINDS}
    kinds, states, actions = (names.find(kind, given[kind], where, faults) for kind in KINDS)
    read = [_number(table.columns[column][row], f"{where}, {column}", faults) for column in figures]
    return Statement(where, (kinds, states, actions), tuple(read))


def _number(text: str, where: str, faults: Faults) -> float:
    try:
        value = float(text)
    except ValueError:
        faults.add(where, not_a_number(text) if text else "has no number")
        return math.nan
    if not math.isfinite(value) or abs(value) > LARGEST:
        faults.add(where, f"expected a finite number up to {LARGEST:g}, got {plain(value)}")
    return value


def read_words(
    words: str | Mapping[str, float], names: Names, kinds: Sequence[str], called: str
) -> tuple[list[Statement], list[str]]:
    """`good=1,poor=0.3,poor/replace=-2`: NAME or NAME/NAME, then a number.

    Args:
        words: the text, or numbers under the names.
        names: what may be named.
        kinds: what the first name is, and the second: ("state", "action"), say. A last kind that is none of type,
            state and action is free, and comes back as it was written.
        called: the option, for faults.

    Returns:
        The statements, and the free name of each, empty where there was none.

    Raises:
        TableError: with every fault.
    """
    faults, found, free = Faults(), [], []
    for key, value in _pairs(words, called):
        figure = _number(str(value), key, faults) if not isinstance(value, bool) else _number("", key, faults)
        parts = _split(key, names, kinds)
        cell: dict[str, int | None] = dict.fromkeys(KINDS)
        free.append("")
        for kind, part in zip(kinds, parts, strict=False):
            if kind in KINDS:
                cell[kind] = names.find(kind, part, called, faults)
            else:
                free[-1] = part
        found.append(Statement(quoted(key), (cell["type"], cell["state"], cell["action"]), (figure,)))
    raise_faults(faults, called)
    return found, free


def _pairs(words: str | Mapping[str, float], called: str) -> list[tuple[str, Any]]:
    if isinstance(words, Mapping):
        return [(str(key).strip(), value) for key, value in words.items()]
    if not isinstance(words, str):
        raise InvalidInput(f"{called}: expected text such as 'good=1,poor=0.3', or numbers under names")
    # Names may hold commas and signs of equality: a word ends where a number does.
    whole = re.compile(rf"\s*(?P<key>[^=].*?)\s*=\s*(?P<value>{NUMBER})\s*(?:,|$)", re.DOTALL)
    pairs, place = [], 0
    while place < len(words):
        match = whole.match(words, place)
        if match is None:
            rest = words[place:].strip()
            told = f"expected NAME=NUMBER,NAME=NUMBER, got {quoted(rest)}"
            raise TableError([Fault("", told)], called)
        pairs.append((match["key"], match["value"]))
        place = match.end()
    if not pairs:
        raise TableError([Fault("", "expected NAME=NUMBER,NAME=NUMBER, got nothing")], called)
    return pairs


def _split(key: str, names: Names, kinds: Sequence[str]) -> tuple[str, ...]:
    """A key as one name, or as two where a stroke parts them; a name that has strokes itself is found whole."""
    if kinds[0] in KINDS and names.knows(kinds[0], key):
        return (key,)
    cuts = [(key[: m.start()].strip(), key[m.end() :].strip()) for m in re.finditer("/", key)]
    for cut in cuts:
        if kinds[0] in KINDS and names.knows(kinds[0], cut[0]):
            return cut if len(kinds) > 1 else (key,)
    return cuts[0] if cuts and len(kinds) > 1 else (key,)


def spread(statements: Sequence[Statement], shape: tuple[int, int, int], called: str) -> Floats:
    """(type, state, action, figure) what is said of each; NaN where nothing is.

    Args:
        statements: in any order.
        shape: how many types, states and actions there are.
        called: the source, for faults.

    Raises:
        TableError: two statements that name as much and speak of the same.
    """
    width = len(statements[0].figures) if statements else 1
    said = np.full((*shape, width), np.nan)
    by: Ints = np.full(shape, -1, dtype=np.int64)
    faults = Faults()
    order = sorted(range(len(statements)), key=lambda i: (statements[i].named, i))
    for number in order:
        one = statements[number]
        cells = tuple(slice(None) if place is None else slice(place, place + 1) for place in one.cell)
        before = [i for i in np.unique(by[cells]).tolist() if i >= 0 and statements[i].named == one.named]
        for other in before:
            faults.add(one.where, f"speaks of the same as {statements[other].where}, and names no more")
        said[cells], by[cells] = one.figures, number
    raise_faults(faults, called)
    return said


def raise_faults(faults: Faults, source: str) -> None:
    """Raise TableError with all faults, or the first of very many."""
    if faults:
        raise TableError(shortened(faults.found, SHOWN), source)
