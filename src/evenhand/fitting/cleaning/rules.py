"""Rules of cleaning: a small TOML file that evenhand proposes and a person edits.

[[tables]]                       # one per file, in the order of joining: a later table overrides an earlier one
file = "visits.csv"
arm = "Patient"                  # column of each role: arm, time, stop, state, from, to, action, type, group
time = "Date"
state = "Status"
times = ["%d/%m/%Y"]             # forms of the times, in the order in which they are tried
decimal_comma = true
constant = {state = "failed"}    # roles that have one value in all rows
origin = "0"                     # with from and to: time at which every arm was in its first state

[rename.state]                   # spelling; an empty text means not observed
"Stoped" = "stopped"

[rows]
grid = "monday"                  # times move to the nearest Monday; or "day 1" of the month
earliest = "2024-01-01"          # rows outside are left out
latest = "2026-12-31"
arms = "fold"                    # names of arms that differ only in case or spaces are one: fold | keep
duplicates = "drop"              # drop | keep
ties = "last"                    # rows of one arm at one time: last | first | shift | keep
types = "most frequent"          # if an arm has several types, or blank types or groups: most frequent | last | keep
blank_states = "keep"            # keep (not observed) | last (as in the row before) | drop

[[derived]]                      # a column computed from the history of the arm, cut into bins
name = "since service"
since = {action = "service"}     # time since the last such row
cuts = [4, 8]                    # states "below 4", "4–8", "8 and more"

[[derived]]
name = "failures"
count = {state = "failed"}       # number of such rows before
cuts = [1, 2]

[[derived]]
name = "mileage"
column = "Odometer"              # a number in the records
cuts = [50000, 100000]

[state]
columns = ["state", "since service"]   # the state is made of these columns
whole = ["failed"]                     # states that are not divided by the others
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from evenhand.errors import Fault, InvalidInputError, TableError, nearest
from evenhand.fitting.cleaning.clock import DAYS
from evenhand.model.io import write_atomically

ROLES = ("arm", "time", "stop", "state", "from", "to", "action", "type", "group")
"""Columns that a table may have; others are passed on under their own names."""

Ties = Literal["last", "first", "shift", "keep"]

CHOICES: dict[str, tuple[str, ...]] = {
    "arms": ("fold", "keep"),
    "duplicates": ("drop", "keep"),
    "ties": get_args(Ties),
    "types": ("most frequent", "last", "keep"),
    "blank_states": ("keep", "last", "drop"),
}


@dataclass(frozen=True)
class TableRules:
    """Columns of one table."""

    file: str
    """File name without its folder."""

    columns: dict[str, str] = field(default_factory=dict)
    """Column of each role that the table has."""

    times: tuple[str, ...] = ()
    """Forms of its times: `iso`, `number`, `excel`, or of strftime."""

    decimal_comma: bool = False
    """Whether its numbers have a decimal comma."""

    constant: dict[str, str] = field(default_factory=dict)
    """Roles that have one value in all rows."""

    origin: str | None = None
    """Time at which every arm was in the first of its states, if rows are changes (from, to)."""


@dataclass(frozen=True)
class Derived:
    """Column computed from the history of each arm (one of since, count and column) and cut into bins."""

    name: str
    cuts: tuple[float, ...]
    since: dict[str, str] = field(default_factory=dict)
    count: dict[str, str] = field(default_factory=dict)
    column: str = ""


@dataclass(frozen=True)
class Rules:
    """Rules of cleaning."""

    tables: tuple[TableRules, ...] = ()
    rename: dict[str, dict[str, str]] = field(default_factory=dict)
    """Spelling by role; an empty text means not observed."""
    grid: str = ""
    earliest: str = ""
    latest: str = ""
    arms: str = "keep"
    duplicates: str = "drop"
    ties: str = "keep"
    types: str = "keep"
    blank_states: str = "keep"
    derived: tuple[Derived, ...] = ()
    state_columns: tuple[str, ...] = ()
    whole_states: tuple[str, ...] = ()

    def to_toml(self, title: str = "") -> str:
        """Return the text of the file.

        Args:
            title: comment above it.
        """
        lines = [f"# {line}" for line in title.splitlines()]
        for table in self.tables:
            lines += ["", "[[tables]]", f"file = {_toml(table.file)}"]
            lines += [f"{role} = {_toml(column)}" for role, column in table.columns.items()]
            own = {"times": table.times, "decimal_comma": table.decimal_comma, "constant": table.constant}
            lines += [f"{key} = {_toml(value)}" for key, value in own.items() if value]
            lines += [f"origin = {_toml(table.origin)}"] if table.origin is not None else []
        for role, names in self.rename.items():
            if names:
                lines += ["", f"[rename.{role}]", *(f"{_toml(old)} = {_toml(new)}" for old, new in names.items())]
        lines += ["", "[rows]"]
        for key in ("grid", "earliest", "latest", *CHOICES):
            if value := getattr(self, key):
                among = f"  # {' | '.join(CHOICES[key])}" if key in CHOICES else ""
                lines.append(f"{key} = {_toml(value)}{among}")
        for each in self.derived:
            stated = {part.name: getattr(each, part.name) for part in fields(each)}
            lines += ["", "[[derived]]", *(f"{key} = {_toml(value)}" for key, value in stated.items() if value)]
        if self.state_columns:
            lines += ["", "[state]", f"columns = {_toml(self.state_columns)}", f"whole = {_toml(self.whole_states)}"]
        return "\n".join(lines).lstrip("\n") + "\n"

    def save(self, path: str | Path, title: str = "") -> None:
        """Write the file.

        Args:
            path: a file `.toml`.
            title: comment at its top.
        """
        write_atomically(Path(path), self.to_toml(title).encode())


def read_rules(path: str | Path) -> Rules:
    """Read a file of rules.

    Args:
        path: a file `.toml`.

    Raises:
        TableError: it has invalid entries; with every fault.
    """
    try:
        document = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}", argument="rules") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TableError([Fault("", f"is not TOML: {error}")], str(path)) from None
    return _Reader(document, str(path)).rules()


class _Reader:
    """Rules of a document, with all its faults."""

    def __init__(self, document: dict[str, Any], source: str) -> None:
        self.document, self.source = document, source
        self.faults: list[Fault] = []

    def rules(self) -> Rules:
        """Read the document, or raise with all its faults."""
        self._known(self.document, "", ("tables", "rename", "rows", "derived", "state"))
        tables = tuple(self._table(entry, f"tables[{n}]") for n, entry in enumerate(self._list("tables")))
        if not tables:
            self.faults.append(Fault("tables", "at least one table must be given"))
        derived = tuple(self._derived(entry, f"derived[{n}]") for n, entry in enumerate(self._list("derived")))
        rename = self._section("rename", ROLES)
        rows = self._section("rows", ("grid", "earliest", "latest", *CHOICES))
        for key, value in rows.items():
            if key in CHOICES and value not in CHOICES[key]:
                self.faults.append(Fault(f"rows.{key}", f"expected {' or '.join(CHOICES[key])}, got {value!r}"))
        grid = str(rows.get("grid", ""))
        is_day = grid.startswith("day ") and grid[4:].isdigit() and 1 <= int(grid[4:]) <= 28
        if grid and grid not in DAYS and not is_day:
            self.faults.append(Fault("rows.grid", f"expected a day of the week or 'day 1' to 'day 28', got {grid!r}"))
        state = self._section("state", ("columns", "whole"))
        for role, names in rename.items():
            self._texts(names, f"rename.{role}")
        if self.faults:
            raise TableError(self.faults, self.source)
        return Rules(
            tables=tables,
            rename={role: dict(names) for role, names in rename.items()},
            derived=derived,
            state_columns=tuple(map(str, state.get("columns", ()))),
            whole_states=tuple(map(str, state.get("whole", ()))),
            **{key: str(value) for key, value in rows.items()},
        )

    def _table(self, entry: Any, place: str) -> TableRules:
        entry = self._mapping(entry, place)
        others = ("file", "times", "decimal_comma", "constant", "origin")
        self._known(entry, place, (*ROLES, *others))
        columns = {role: entry[role] for role in ROLES if role in entry}
        constant = self._texts(entry.get("constant", {}), f"{place}.constant")
        self._texts(columns, place)
        if "arm" not in columns:
            self.faults.append(Fault(f"{place}.arm", "the column of arm names must be given"))
        times = entry.get("times", [])
        times = [times] if isinstance(times, str) else times
        if not (isinstance(times, list) and all(isinstance(form, str) for form in times)):
            self.faults.append(Fault(f"{place}.times", "expected a list of forms"))
            times = []
        origin = entry.get("origin")
        return TableRules(
            file=str(entry.get("file", "")),
            columns=columns,
            times=tuple(times),
            decimal_comma=bool(entry.get("decimal_comma", False)),
            constant=constant,
            origin=None if origin is None else str(origin),
        )

    def _derived(self, entry: Any, place: str) -> Derived:
        entry = self._mapping(entry, place)
        self._known(entry, place, [part.name for part in fields(Derived)])
        given = [key for key in ("since", "count", "column") if entry.get(key)]
        if len(given) != 1 or not entry.get("name"):
            self.faults.append(Fault(place, "expected a name and one of since, count and column"))
        cuts = entry.get("cuts", [])
        is_valid = isinstance(cuts, list) and all(isinstance(cut, (int, float)) for cut in cuts) and cuts
        if not is_valid or sorted(set(cuts)) != cuts:
            self.faults.append(Fault(f"{place}.cuts", f"expected increasing numbers, got {cuts!r}"))
            cuts = [0]
        events = {key: self._texts(entry.get(key, {}), f"{place}.{key}") for key in ("since", "count")}
        return Derived(
            str(entry.get("name", "")), tuple(map(float, cuts)), column=str(entry.get("column", "")), **events
        )

    def _list(self, key: str) -> list[Any]:
        found = self.document.get(key, [])
        if isinstance(found, list):
            return found
        self.faults.append(Fault(key, "expected a list of tables, [[" + key + "]]"))
        return []

    def _section(self, key: str, known: tuple[str, ...]) -> dict[str, Any]:
        section = self._mapping(self.document.get(key, {}), key)
        self._known(section, key, known)
        return {name: value for name, value in section.items() if name in known}

    def _mapping(self, found: Any, place: str) -> dict[str, Any]:
        if isinstance(found, dict):
            return found
        self.faults.append(Fault(place, "expected a table of keys and values"))
        return {}

    def _texts(self, found: Any, place: str) -> dict[str, str]:
        mapping = self._mapping(found, place)
        for key, value in mapping.items():
            if not isinstance(value, str):
                self.faults.append(Fault(f"{place}.{key}", f"expected a text, got {value!r}"))
        return {key: str(value) for key, value in mapping.items()}

    def _known(self, section: Mapping[str, Any], place: str, known: Any) -> None:
        for key in section:
            if key not in known:
                near = nearest(key, known)
                hint = f" Did you mean {near}?" if near else f" Known are {', '.join(known)}."
                self.faults.append(Fault(f"{place}.{key}".lstrip("."), f"unknown key.{hint}"))


def _toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False)
