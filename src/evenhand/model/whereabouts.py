"""Where the arms are: a table with the columns `arm`, `type` and `state`, one row an arm, in any order.

A model has blocks of identical arms, with a name and a count; a table names every arm. The two meet at the type:

    type     the name of a block, or the number of a type; may be absent where there is only one type, or where every
             arm goes by the name of a block of its own
    state    the name of a state, or its number, from 0
    group    optional: tells blocks of one name apart that are in different groups
    arm      any name, once in the table

A problem may know its arms by name (`CoupledMDP.arm_names`, from `starting_at`): these keep their block, whatever
others are called. Where blocks of one name differ only in where they start, an arm that is new belongs to the one
that starts where it is, else to the first.

Every fault is told with its row. A table is a file (CSV, Parquet with the extra `data`, JSON), or a data frame, a list
of rows or a table of columns in Python; there, states alone do where they are in the order of the arms.
"""

import csv
import io
import json
import math
import numbers
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from evenhand.checks import why_unreadable
from evenhand.errors import Fault, InvalidInput, MissingExtra, TableError, nearest, shortened
from evenhand.model.coupled import CoupledMDP
from evenhand.model.places import quoted
from evenhand.typing import Indices, Ints

TableFormat = Literal["csv", "parquet", "json"]
FORMATS: tuple[TableFormat, ...] = ("csv", "parquet", "json")
SUFFIXES: dict[str, TableFormat] = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".json": "json"}
SHOWN_FAULTS = 30
"""Faults of a table that are told; a column of wrong names has thousands of them."""

MOST_DIGITS = 100
"""Of a number that is read as such; Python refuses to read some thousand."""

KNOWN_SHOWN = 12
"""Names that are listed where one is unknown."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of texts, and what to call the rows."""

    columns: dict[str, list[str]]
    """Under their names, in small letters."""

    rows: list[str]
    """`line 4` of a text file, `row 3` of anything else."""

    source: str = "states"
    """What a person calls it."""

    file: str = ""
    """Its name, where it is a file."""

    faults: tuple[Fault, ...] = ()
    """Of rows that are left out, for they have too many entries or too few; who reads on tells them with the others."""


@dataclass(frozen=True, eq=False)
class Whereabouts:
    """The arms of a table, found in a problem."""

    names: tuple[str, ...]
    """(row,) what the arms are called."""

    blocks: Ints
    """(row,) the block that each belongs to."""

    states: Indices
    """(row,) where each is."""

    source: str = ""
    """The file that says so, if it is one."""


# From files and frames to columns


def read_table(source: str | Path | IO[bytes], format: TableFormat | None = None, *, ragged: bool = False) -> Table:
    """A file, or a binary stream of a given format.

    Args:
        source: the name of a file, or a stream.
        format: csv, parquet or json; by the name of the file when absent.
        ragged: leave rows of CSV out that have too many entries or too few, and keep that in `Table.faults`.

    Raises:
        TableError: it is not such a table.
    """
    name = str(source) if isinstance(source, (str, Path)) else "standard input"
    # What has no known suffix is most likely a text that a spreadsheet wrote.
    chosen = format or SUFFIXES.get(Path(name).suffix.lower(), "csv")
    try:
        data = Path(source).read_bytes() if isinstance(source, (str, Path)) else source.read()
    except OSError as error:
        reason = why_unreadable(Path(source), error) if isinstance(source, (str, Path)) else error.strerror or error
        raise InvalidInput(f"{name}: cannot be read: {reason}") from None
    if not data.strip():
        raise TableError([Fault("", "the table is empty")], name)
    read = {"csv": _read_csv, "parquet": _read_parquet, "json": _read_json}[chosen]
    found = replace(read(data, name), file=name if isinstance(source, (str, Path)) else "")
    if not ragged:
        _raise(found.faults, name)
    return found


def as_table(given: Any) -> Table:
    """What a user of Python may pass: a file's name, a data frame, a list of rows, or a table of columns."""
    if isinstance(given, Table):
        return given
    if isinstance(given, (str, Path)):
        return read_table(given)
    # From the most particular to the most general: rows, columns, then whatever has columns, such as a frame of pandas,
    # Polars or PyArrow.
    if isinstance(given, (list, tuple)) and all(isinstance(row, Mapping) for row in given):
        return _of_rows(given, "states")
    if isinstance(given, Mapping):
        return _of_columns({str(name): list(column) for name, column in given.items()}, "states")
    names = getattr(given, "column_names", None) or getattr(given, "columns", None)
    if names is None:
        raise InvalidInput(f"states: expected a table with the columns arm, type and state, got {type(given).__name__}")
    return _of_columns({str(name): _entries(given[name]) for name in names}, "states")


def _entries(column: Any) -> list[Any]:
    """A column of any data frame as a list."""
    for method in ("to_pylist", "to_list"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def _read_csv(data: bytes, name: str) -> Table:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError([Fault(f"line {line}", "is not UTF-8 text; save the table as CSV in UTF-8")], name) from None
    # Whichever mark is most frequent in the head parts the columns.
    first = text.lstrip("\r\n").partition("\n")[0]
    mark = max(",;\t", key=first.count)  # spreadsheets of half the world write semicolons
    reader = csv.reader(io.StringIO(text), delimiter=mark)
    lines: list[tuple[int, list[str]]] = []
    try:
        # Lines of nothing but marks are what spreadsheets leave below a table.
        lines = [(reader.line_num, row) for row in reader if any(entry.strip() for entry in row)]
    except csv.Error as error:
        raise TableError([Fault(f"line {reader.line_num}", f"is not CSV: {error}")], name) from None
    if not lines:
        raise TableError([Fault("", "the table is empty")], name)
    head = [entry.strip() for entry in lines[0][1]]
    _refuse_title(text, head, name)
    # Short and long rows are kept aside: their entries may belong to other columns.
    faults = [
        Fault(f"line {number}", f"has {len(row)} entries where the first line has {len(head)}")
        for number, row in lines[1:]
        if len(row) != len(head)
    ]
    whole = [(number, row) for number, row in lines[1:] if len(row) == len(head)]
    columns = {column: [row[place].strip() for _, row in whole] for place, column in enumerate(head)}
    found = _named_columns(head, columns, [f"line {number}" for number, _ in whole], name)
    return replace(found, faults=tuple(faults))


def _refuse_title(text: str, head: Sequence[str], name: str) -> None:
    """Raise where the names of the columns are, if there is a title above them."""
    # One of the names is enough: then the head is the head, and what it lacks is told elsewhere.
    if {"arm", "state"} & {entry.lower() for entry in head}:
        return
    for number, line in enumerate(text.splitlines()[:20], 1):
        own = next(csv.reader([line], delimiter=max(",;\t", key=line.count)), [])
        if number > 1 and {"arm", "state"} <= {entry.strip().lower() for entry in own}:
            told = "the names of the columns are here: delete what stands above them"
            raise TableError([Fault(f"line {number}", told)], name)


def _read_parquet(data: bytes, name: str) -> Table:
    try:
        import polars
    except ImportError:
        raise MissingExtra("reading Parquet", "data") from None
    try:
        frame = polars.read_parquet(io.BytesIO(data))
    except Exception as error:  # noqa: BLE001  # the file is a stranger's, and the reader has errors of many kinds
        raise TableError([Fault("", f"is not Parquet: {error}")], name) from None
    return _of_columns({column: frame[column].to_list() for column in frame.columns}, name)


def _read_json(data: bytes, name: str) -> Table:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TableError([Fault("", f"is not JSON: {error}")], name) from None
    if isinstance(found, dict) and isinstance(found.get("actions"), list):  # what `act --json` prints
        found = found["actions"]
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        return _of_rows(found, name)
    if isinstance(found, dict) and all(isinstance(column, list) for column in found.values()):
        return _of_columns(found, name)
    wanted = 'expected a list of rows such as {"arm": "van01", "type": "Ford", "state": "poor"}, or a table of columns'
    raise TableError([Fault("", wanted)], name)


def _of_rows(rows: Sequence[Mapping[str, Any]], name: str) -> Table:
    # Rows may have different keys; the columns are in order of first appearance.
    names = list(dict.fromkeys(str(key) for row in rows for key in row))
    return _of_columns({key: [row.get(key) for row in rows] for key in names}, name)


def _of_columns(columns: Mapping[str, list[Any]], name: str) -> Table:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise TableError([Fault("", f"its columns have different lengths: {sorted(lengths)}")], name)
    texts = {column: [_text(entry) for entry in entries] for column, entries in columns.items()}
    rows = [f"row {number}" for number in range(1, max(lengths, default=0) + 1)]
    return _named_columns(list(columns), texts, rows, name)


def _named_columns(head: Sequence[str], columns: dict[str, list[str]], rows: list[str], name: str) -> Table:
    # Only columns that mean something must be unique; a user's others are theirs.
    small = [column.strip().lower() for column in head]
    twice = sorted(
        {column for column in small if column in ("arm", "type", "state", "group") and small.count(column) > 1}
    )
    _raise([Fault("", f"there are several columns {column}") for column in twice], name)
    return Table({column: columns[given] for column, given in zip(small, head, strict=True)}, rows, name)


def _text(entry: Any) -> str:
    """An entry as a person would type it; nothing where there is none."""
    if entry is None or (isinstance(entry, float) and math.isnan(entry)):
        return ""
    if isinstance(entry, (float, np.floating)) and float(entry).is_integer():
        return str(int(entry))  # whole numbers are never turned into floats: long ones would lose their last digits
    return str(entry).strip()


def _raise(faults: Sequence[Fault], source: str) -> None:
    if faults:
        raise TableError(shortened(faults, SHOWN_FAULTS), source)


# From columns to arms of a problem


def find_arms(problem: CoupledMDP, given: Any) -> Whereabouts:
    """The arms of a table, each with its block and its state.

    Args:
        problem: whose arms they are.
        given: a table (see `as_table`), or (arm,) numbers of states in the order of the problem's arms.

    Raises:
        TableError: with every fault and its row.
    """
    if (plain := _plain_states(given)) is not None:
        return _in_order(problem, plain)
    table = as_table(given)
    reader = _Reader(problem, table)
    # Without its columns a table has one fault, and not one more for each row.
    found = [reader.read(place) for place in range(len(table.rows))] if reader.is_complete else []
    _raise(reader.faults, table.source)
    names, blocks, states = zip(*found, strict=True)
    return Whereabouts(names, np.array(blocks, dtype=np.int64), np.array(states, dtype=np.int32), table.file)


def _plain_states(given: Any) -> Ints | None:
    """States without names; None where it is a table."""
    if isinstance(given, (list, tuple)) and not all(isinstance(entry, numbers.Integral) for entry in given):
        return None
    # An empty list is a table without rows, which has a fault of its own.
    if not isinstance(given, (list, tuple, np.ndarray)) or not len(given):
        return None
    states = np.asarray(given)
    if states.ndim == 2 and len(states) == 1:
        states = states[0]
    if states.ndim != 1 or states.dtype.kind not in "iu":
        raise InvalidInput(f"states: expected whole numbers, one an arm, got {states.dtype} of shape {states.shape}")
    return states.astype(np.int64)


def _in_order(problem: CoupledMDP, states: Ints) -> Whereabouts:
    if len(states) != problem.num_arms:
        raise InvalidInput(f"states: expected one state for each of {problem.num_arms} arms, got {len(states)}")
    blocks = np.repeat(np.arange(len(problem.counts)), problem.counts)
    most = problem.tables.num_states[blocks]
    wrong = np.flatnonzero((states < 0) | (states >= most))
    faults = [Fault(f"states[{i}]", f"{states[i]} is not a state; they are 0 to {most[i] - 1}") for i in wrong.tolist()]
    _raise(faults, "states")
    names = tuple(problem.arm_names) or tuple(str(number) for number in range(problem.num_arms))
    return Whereabouts(names, blocks, states.astype(np.int32))


class _Reader:
    """Finds arms row by row, and notes what is wrong."""

    def __init__(self, problem: CoupledMDP, table: Table) -> None:
        self.problem, self.table = problem, table
        self.faults: list[Fault] = []
        self.seen: dict[str, str] = {}
        self._chosen: dict[tuple[str, str], list[int] | str] = {}
        # `strict=False`: the problem may have no names for its arms, and then none is known.
        known = zip(problem.arm_names, np.repeat(np.arange(len(problem.counts)), problem.counts), strict=False)
        self.block_of_arm = {name: int(block) for name, block in known}
        self.is_complete = self._check_columns()

    def _check_columns(self) -> bool:
        given = self.table.columns
        needed = ["arm", "state"] + (["type"] if self._needs_type else [])
        for column in (column for column in needed if column not in given):
            near = nearest(column, given)
            hint = f" Did you mean {near}?" if near else ""
            why = f", and there are {self.problem.num_types} types ({self._known_types})" if column == "type" else ""
            listed = ", ".join(given) or "none"
            self.faults.append(Fault("", f"there is no column {column}{why}. The columns are: {listed}.{hint}"))
        if not self.table.rows and not self.faults:
            self.faults.append(Fault("", "there is no arm in it"))
        return not self.faults

    @property
    def _needs_type(self) -> bool:
        """A type can be told without a column where there is one, or where arms are known by name."""
        if self.problem.is_symmetric or "arm" not in self.table.columns:
            return not self.problem.is_symmetric
        # One arm that is known by name shows that the table goes by names; those that are not are told row by row.
        return not any(name in self.block_of_arm or name in self.single_blocks for name in self.table.columns["arm"])

    @cached_property
    def block_names(self) -> list[str]:
        """(block,) what blocks are called."""
        return [label[0] for label in self.problem.tables.labels] or [""] * len(self.problem.counts)

    @cached_property
    def single_blocks(self) -> dict[str, int]:
        """Blocks of one arm that are the only ones of their name: the arm goes by the name of its block."""
        times = Counter(self.block_names)
        return {
            name: block
            for block, name in enumerate(self.block_names)
            if name and self.problem.counts[block] == 1 and times[name] == 1
        }

    @property
    def _known_types(self) -> str:
        names = list(
            dict.fromkeys(name or str(t) for t, name in zip(self._type_numbers, self.block_names, strict=True))
        )
        more = len(names) - KNOWN_SHOWN
        return ", ".join(names[:KNOWN_SHOWN]) + (f" and {more} more" if more > 0 else "")

    @property
    def _type_numbers(self) -> list[int]:
        return [int(t) for t in self.problem.type_of_block]

    def read(self, place: int) -> tuple[str, int, int]:
        """The name, the block and the state of one row."""
        row, before = self.table.rows[place], len(self.faults)
        name, state = self.table.columns["arm"][place], self.table.columns["state"][place]
        if not name:
            self.faults.append(Fault(row, "has no arm"))
        elif name in self.seen:
            self.faults.append(Fault(row, f"arm {quoted(name)} is also in {self.seen[name]}"))
        else:
            self.seen[name] = row
        blocks = self._blocks(name, place, row)
        if not blocks:
            # A stand-in: the fault that was noted keeps it from being used.
            return name, 0, 0
        number = self._state(blocks[0], state, row)
        if len(self.faults) > before or number is None:
            return name, 0, 0
        return name, self._one_of(blocks, number), number

    def _blocks(self, name: str, place: int, row: str) -> list[int]:
        """The blocks that the arm may belong to; none if there is a fault."""
        kind = self.table.columns["type"][place] if "type" in self.table.columns else ""
        group = self.table.columns["group"][place] if "group" in self.table.columns else ""
        own = self.block_of_arm.get(name)
        if kind:
            found = self._of_type(kind, group)
            if isinstance(found, str):
                self.faults.append(Fault(row, found))
                return []
            # An arm that is known by name keeps its block, if the type that is written allows it.
            return [own] if own in found else found
        if own is not None or name in self.single_blocks:
            return [own if own is not None else self.single_blocks[name]]
        if self.problem.is_symmetric:
            # With one type all blocks will do; which one is chosen by where the arm is.
            return list(range(len(self.problem.counts)))
        told = f"has no type, and {quoted(name)} is no arm that is known by name; types are {self._known_types}"
        self.faults.append(Fault(row, told))
        return []

    def _of_type(self, kind: str, group: str) -> list[int] | str:
        """The blocks of a type by its name or number, alike but for where they start; or what is wrong."""
        if (kind, group) not in self._chosen:
            self._chosen[kind, group] = self._choose(kind, group)
        return self._chosen[kind, group]

    def _choose(self, kind: str, group: str) -> list[int] | str:
        problem, names = self.problem, self.block_names
        # Names before numbers: a block may be called "2".
        found = [block for block, name in enumerate(names) if name == kind]
        if not found:
            found = [block for block, number in enumerate(self._type_numbers) if number == _whole(kind)]
        if not found:
            near = self._nearest(kind, [name for name in names if name])
            hint = f" Did you mean {quoted(near)}?" if near else ""
            new = "" if near else ". Arms of a new type need a block in the model (or records to fit), and a new plan"
            return f"type {quoted(kind)} is not in the plan or model.{hint} Known are {self._known_types}{new}"
        # A group narrows the choice; without one, blocks of one name must be alike in all but their start.
        if group:
            groups = [problem.group_names[number] for number in problem.group_of_block]
            found = [block for block in found if groups[block] == group]
            if not found:
                return f"there are no arms of type {quoted(kind)} in group {quoted(group)}"
        kinds = sorted({self._type_numbers[block] for block in found})
        if len(kinds) > 1 and not _differ_only_in_start(problem, found):
            listed = ", ".join(map(str, kinds))
            return f"type {quoted(kind)} may be any of the types number {listed}: give the number, or a column group"
        return found

    def _state(self, block: int, given: str, row: str) -> int | None:
        """The number of a state by its name or number; None if there is a fault."""
        labels = self.problem.tables.labels[block][1] if self.problem.tables.labels else ()
        size = int(self.problem.tables.num_states[block])
        # Names before numbers again.
        if given in labels:
            return labels.index(given)
        if 0 <= (number := _whole(given)) < size:
            return number
        if not given:
            self.faults.append(Fault(row, "has no state"))
            return None
        near = self._nearest(given, labels)
        hint = f" Did you mean {quoted(near)}?" if near else ""
        known = ", ".join(labels[:KNOWN_SHOWN]) if labels else f"0 to {size - 1}"
        whose = f" of type {quoted(self.block_names[block])}" if self.block_names[block] else ""
        self.faults.append(Fault(row, f"{quoted(given)} is no state{whose}.{hint} Known are {known}"))
        return None

    def _nearest(self, name: str, known: Sequence[str]) -> str | None:
        """The known name that was probably meant, for faults that are shown: a search for each of very many is long."""
        return nearest(name, known) if len(self.faults) < SHOWN_FAULTS else None

    def _one_of(self, blocks: Sequence[int], state: int) -> int:
        """Of blocks that are alike, the one that starts there; else the first."""
        starts = (block for block in blocks if self.problem.tables.initial[block, state] == 1)
        return next(starts, blocks[0])


def _differ_only_in_start(problem: CoupledMDP, blocks: Sequence[int]) -> bool:
    first, tables = blocks[0], problem.tables
    same_moves = all(
        tables.num_states[block] == tables.num_states[first]
        and tables.num_actions[block] == tables.num_actions[first]
        and np.array_equal(tables.transitions[block], tables.transitions[first])
        and np.array_equal(tables.rewards[block], tables.rewards[first])
        and np.array_equal(tables.usage[block], tables.usage[first])
        for block in blocks[1:]
    )
    same_group = problem.over != "groups" or len({int(problem.group_of_block[block]) for block in blocks}) == 1
    return same_moves and same_group and len({float(problem.floors[block]) for block in blocks}) == 1


def _whole(text: str) -> int:
    """A whole number that was typed; -1 where it is none, or has more digits than any number of ours."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else -1


@lru_cache(maxsize=20_000)  # a programme has the same names at every step
def in_order(name: str) -> tuple[tuple[int, str], ...]:
    """What names are sorted by: van2 comes before van10."""
    # Pieces of digits compare as numbers, the others as text; -1 keeps a text before any number.
    numbers = ((_whole(piece), piece) for piece in re.split(r"(\d+)", name))
    return tuple((number, "" if number >= 0 else piece) for number, piece in numbers)


# Starting there


def starting_at(problem: CoupledMDP, given: Any) -> CoupledMDP:
    """The same problem from where the arms are; see `CoupledMDP.starting_at`."""
    found = find_arms(problem, given)
    places = range(len(found.names))
    # Arms are sorted within their cells, so that the same table in another order is the same problem.
    order = sorted(places, key=lambda row: (found.blocks[row], found.states[row], in_order(found.names[row])))
    # A cell is a block and a state; each that occurs becomes a block, whose arms start there for certain.
    cells = np.stack([found.blocks[order], found.states[order]], axis=1)
    kept, counts = np.unique(cells, axis=0, return_counts=True)
    blocks, states = kept.T
    tables = problem.tables.select(blocks)
    initial = np.zeros_like(tables.initial)
    initial[np.arange(len(blocks)), states] = 1.0
    return CoupledMDP(
        arms=replace(tables, initial=initial),
        budget=problem.budget,
        discount=problem.discount,
        counts=counts.astype(np.int64),
        resources=problem.resources,
        # Groups by name: a block without one was a group of its own, and its parts must stay together.
        groups=[problem.group_names[number] for number in problem.group_of_block[blocks]],
        floors=problem.floors[blocks],
        criterion=problem.criterion,
        over=problem.over,
        welfare=problem.welfare,
        arm_names=[found.names[row] for row in order],
    )
