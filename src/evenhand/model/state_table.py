"""Observed states of the arms: a table with the columns `arm`, `type` and `state`, one row per arm, in any order.

A model has blocks of identical arms, with a name and a count; a table names every arm. The type relates the two:

    type     the name of a block, or the number of a type; optional if there is only one type, or if every arm has the
             name of a block of its own
    state    the name of a state, or its number, from 0
    group    optional: distinguishes blocks of one name that are in different groups
    waiting  optional: steps that the arm has been in promised states without service (`CoupledMDP.max_waits`)
    arm      any name, once in the table

A problem may have names for its arms (`CoupledMDP.arm_names`, from `with_initial_states`): these stay in their block,
whatever the names of others. If blocks of one name differ only in their initial states, a new arm belongs to the one
that starts in its state, else to the first.

Every fault is reported with its row. A table is a file (CSV, Parquet with the extra `data`, JSON), or a data frame, a
list of rows or a mapping of columns in Python; there, states alone suffice if they are in the order of the arms.
"""

import numbers
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from evenhand.errors import Fault, InvalidInputError, nearest
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io.text_table import SHOWN_FAULTS, Table, as_table, raise_faults
from evenhand.model.labels import quoted
from evenhand.typing import Indices, Ints

_COLUMNS = ("arm", "state", "type", "group")

SHOWN_NAMES = 12
"""Known names that are listed in a message on an unknown one."""


@dataclass(frozen=True, eq=False)
class ObservedStates:
    """Arms of a table, with their blocks and states in a problem."""

    names: tuple[str, ...]
    """(row,) names of the arms."""

    blocks: Ints
    """(row,) block of each arm."""

    states: Indices
    """(row,) state of each arm."""

    waiting: Ints | None = None
    """(row,) steps without service in promised states; None if the table does not state them."""

    source: str = ""
    """File name, if the table is a file."""


def find_arms(problem: CoupledMDP, given: Any) -> ObservedStates:
    """Find the arms of a table, with their blocks and states.

    Args:
        problem: the problem.
        given: a table (see `as_table`), or (arm,) state numbers in the order of the problem's arms.

    Raises:
        TableError: with every fault and its row.
    """
    listed = isinstance(given, (list, tuple)) and all(isinstance(entry, numbers.Integral) for entry in given)
    if (listed or isinstance(given, np.ndarray)) and len(given):
        return _in_order(problem, given)
    table = as_table(given)
    reader = _Reader(problem, table)
    # A missing column is one fault, not one per row.
    found = [reader.read(place) for place in range(len(table.rows))] if reader.is_complete else []
    waiting = reader.waiting()
    raise_faults(reader.faults, table.source)
    names, blocks, states = zip(*found, strict=True)
    numbers_of = np.array(blocks, dtype=np.int64), np.array(states, dtype=np.int32)
    return ObservedStates(names, *numbers_of, waiting, table.file)


def _in_order(problem: CoupledMDP, given: Any) -> ObservedStates:
    """States of all arms, from (arm,) or (1, arm) state numbers in the order of the problem's arms."""
    states = np.asarray(given)
    states = states[0] if states.ndim == 2 and len(states) == 1 else states
    if states.shape != (problem.num_arms,) or states.dtype.kind not in "iu":
        expected = f"expected whole numbers, one for each of {problem.num_arms} arms"
        raise InvalidInputError(f"states: {expected}, got {states.dtype} of shape {states.shape}")
    blocks = np.repeat(np.arange(len(problem.counts)), problem.counts)
    most = problem.tables.num_states[blocks]
    wrong = np.flatnonzero((states < 0) | (states >= most))
    faults = [Fault(f"states[{i}]", f"{states[i]} is not a state; they are 0 to {most[i] - 1}") for i in wrong.tolist()]
    raise_faults(faults, "states")
    names = tuple(problem.arm_names) or tuple(str(number) for number in range(problem.num_arms))
    return ObservedStates(names, blocks, states.astype(np.int32))


class _Reader:
    """Finds arms row by row, and collects faults."""

    def __init__(self, problem: CoupledMDP, table: Table) -> None:
        self.problem, self.table, self.faults = problem, table, list[Fault]()
        self.seen: dict[str, str] = {}
        self.types = problem.type_of_block.tolist()
        self.names = [name for name, _, _ in problem.tables.all_labels]
        self._of_type = cache(self._find_type)
        # A block of one arm with a unique name, which is also the name of the arm; else the names of the problem.
        times, counts = Counter(self.names), problem.counts.tolist()
        named = enumerate(zip(self.names, counts, strict=True))
        self.block_of_arm = {name: b for b, (name, count) in named if name and count == 1 and times[name] == 1}
        self.block_of_arm |= zip(problem.arm_names, np.repeat(np.arange(len(counts)), counts).tolist(), strict=False)
        known = list(dict.fromkeys(name or str(t) for t, name in zip(self.types, self.names, strict=True)))
        more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
        self.known_types = ", ".join(known[:SHOWN_NAMES]) + more
        self.is_complete = self._check_columns()

    def _check_columns(self) -> bool:
        given = self.table.columns
        # A type is required unless there is one only, or arms have names: unknown names are reported row by row.
        named = any(name in self.block_of_arm for name in given.get("arm", ()))
        needed = ["arm", "state"] + ([] if self.problem.is_symmetric or named else ["type"])
        for column in (column for column in needed if column not in given):
            near = nearest(column, given)
            hint = f" Did you mean {near}?" if near else ""
            why = f", and there are {self.problem.num_types} types ({self.known_types})" if column == "type" else ""
            listed = ", ".join(given) or "none"
            self.faults.append(Fault("", f"there is no column {column}{why}. The columns are: {listed}.{hint}"))
        if not self.table.rows and not self.faults:
            self.faults.append(Fault("", "there is no arm in it"))
        return not self.faults

    def read(self, place: int) -> tuple[str, int, int]:
        """Return the name, the block and the state of one row."""
        row, before = self.table.rows[place], len(self.faults)
        name, state, kind, group = (self.table.columns.get(key, {place: ""})[place] for key in _COLUMNS)
        if not name:
            self.faults.append(Fault(row, "has no arm"))
        elif self.seen.setdefault(name, row) != row:
            self.faults.append(Fault(row, f"arm {quoted(name)} is also in {self.seen[name]}"))
        blocks = self._blocks(name, kind, group)
        if isinstance(blocks, str):
            self.faults.append(Fault(row, blocks))
            return name, 0, 0  # placeholders: the faults are raised
        number = self._state(blocks[0], state)
        if isinstance(number, str):
            self.faults.append(Fault(row, number))
        if len(self.faults) > before or isinstance(number, str):
            return name, 0, 0
        # The block that starts in the state, else the first.
        starts = (block for block in blocks if self.problem.tables.initial[block, number] == 1)
        return name, next(starts, blocks[0]), number

    def waiting(self) -> Ints | None:
        """(row,) waiting times; a blank is 0."""
        given = self.table.columns.get("waiting")
        if given is None or not self.problem.has_max_wait:
            return None
        found = [_whole(text) if text else 0 for text in given]
        for row, text, steps in zip(self.table.rows, given, found, strict=True):
            if steps < 0:
                self.faults.append(Fault(row, f"waiting: expected a whole number of steps, got {quoted(text)}"))
        return np.minimum(found, 10**9).astype(np.int64)

    def _blocks(self, name: str, kind: str, group: str) -> list[int] | str:
        """Return the blocks to which the arm may belong, or the fault."""
        own = self.block_of_arm.get(name)
        if kind:
            found = self._of_type(kind, group)
            # A known arm stays in its block if its type allows it.
            return [own] if not isinstance(found, str) and own in found else found
        if own is not None:
            return [own]
        if self.problem.is_symmetric:
            return list(range(len(self.types)))  # the state decides
        return f"has no type, and {quoted(name)} is not the name of a known arm; types are {self.known_types}"

    def _find_type(self, kind: str, group: str) -> list[int] | str:
        """Return the blocks of a type, which differ at most in their initial states; or the fault."""
        problem = self.problem
        # Names before numbers: a block may be called "2".
        found = [block for block, name in enumerate(self.names) if name == kind]
        found = found or [block for block, number in enumerate(self.types) if number == _whole(kind)]
        if not found:
            hint = self._hint(kind, [name for name in self.names if name])
            new = "" if hint else ". Arms of a new type need a block in the model (or records to fit), and a new plan"
            return f"type {quoted(kind)} is not in the plan or model.{hint} Known are {self.known_types}{new}"
        groups = [problem.group_names[number] for number in problem.group_of_block]
        if group:
            found = [block for block in found if groups[block] == group]
            if not found:
                return f"there are no arms of type {quoted(kind)} in group {quoted(group)}"
        moves = problem.tables.select(np.array(found)).dynamics
        alike = {
            (
                move,
                float(problem.floors[block]),
                problem.max_waits[block].tobytes(),
                groups[block] if problem.over == "groups" else "",
            )
            for block, move in zip(found, moves, strict=True)
        }
        kinds = sorted({self.types[block] for block in found})
        if len(kinds) > 1 and len(alike) > 1:
            listed = ", ".join(map(str, kinds))
            return f"type {quoted(kind)} may be any of the types number {listed}: give the number, or a column group"
        return found

    def _state(self, block: int, given: str) -> int | str:
        """Return the number of a state by its name or number, or the fault."""
        labels, size = self.problem.tables.all_labels[block][1], int(self.problem.tables.num_states[block])
        if given in labels:
            return labels.index(given)
        if 0 <= (number := _whole(given)) < size:
            return number
        if not given:
            return "has no state; give the last that is known, or leave the row out"
        known = ", ".join(labels[:SHOWN_NAMES]) if labels else f"0 to {size - 1}"
        whose = f" of type {quoted(self.names[block])}" if self.names[block] else ""
        return f"{quoted(given)} is not a state{whose}.{self._hint(given, labels)} Known are {known}"

    def _hint(self, name: str, known: Sequence[str]) -> str:
        """The nearest known name, for faults that are shown: the search takes long for very many."""
        near = nearest(name, known) if len(self.faults) < SHOWN_FAULTS else None
        return f" Did you mean {quoted(near)}?" if near else ""


def _whole(text: str) -> int:
    """Parse an integer; -1 for any other text, or one of 20 digits or more."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1


@lru_cache(maxsize=20_000)  # the names are the same at every step
def in_order(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key of names: van2 comes before van10."""
    # Pieces of digits compare as numbers, the others as text; -1 sorts a text before any number.
    numbers = ((_whole(piece), piece) for piece in re.split(r"(\d+)", name))
    return tuple((number, "" if number >= 0 else piece) for number, piece in numbers)


def with_initial_states(problem: CoupledMDP, given: Any) -> CoupledMDP:
    """Return the problem with the observed states as initial states; see `CoupledMDP.with_initial_states`."""
    found = find_arms(problem, given)
    places = range(len(found.names))
    # Arms are sorted within their cells, so that the same table in another order is the same problem.
    order = sorted(places, key=lambda row: (found.blocks[row], found.states[row], in_order(found.names[row])))
    # A cell is a block and a state; each that occurs becomes a block whose arms start in that state.
    cells = np.stack([found.blocks[order], found.states[order]], axis=1)
    occurring, counts = np.unique(cells, axis=0, return_counts=True)
    blocks, states = occurring.T
    tables = problem.tables.select(blocks)
    initial = np.zeros_like(tables.initial)
    initial[np.arange(len(blocks)), states] = 1.0
    return replace(
        problem,
        arms=replace(tables, initial=initial),
        counts=counts.astype(np.int64),
        # Groups by name: the parts of a block without one must stay together.
        groups=[problem.group_names[number] for number in problem.group_of_block[blocks]],
        floors=problem.floors[blocks],
        max_waits=problem.max_waits[blocks],
        arm_names=[found.names[row] for row in order],
    )
