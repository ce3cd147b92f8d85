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
from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from evenhand.errors import Fault, InvalidInputError, TableError, nearest
from evenhand.fitting.cleaning.clock import DAYS
from evenhand.model.io import write_atomically

ROLES = ("arm", "time", "stop", "state", "from", "to", "status", "action", "type", "group")
"""Columns that a table may have; others are passed on under their own names."""

Ties = Literal["last", "first", "shift", "keep"]

CHOICES: dict[str, tuple[str, ...]] = {
    "arms": ("fold", "keep"),
    "duplicates": ("drop", "keep"),
    "ties": get_args(Ties),
    "types": ("most frequent", "last", "keep"),
    "blank_states": ("keep", "last", "drop"),
    "actions": ("previous", "keep"),
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

    fill_down: bool = False
    """Whether a blank arm is that of the row above."""

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
    actions: str = "keep"
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
            own = {key: getattr(table, key) for key in ("times", "decimal_comma", "fill_down", "constant")}
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


_NAMES, _SOURCES = {"*": str}, ("since", "count", "column")
_TABLE = {"file": str, "times": [str], "decimal_comma": bool, "fill_down": bool, "constant": _NAMES, "origin": str}
_DERIVED = {"name": str, "cuts": [float], "since": _NAMES, "count": _NAMES, "column": str}
_GRIDS = (*DAYS, *(f"day {day}" for day in range(1, 29)))
SCHEMA: dict[str, Any] = {
    "tables": [dict.fromkeys(ROLES, str) | _TABLE],
    "rename": dict.fromkeys(("arm", "state", "action", "type", "group"), _NAMES),
    "rows": {"grid": _GRIDS, "earliest": str, "latest": str, **CHOICES},
    "derived": [_DERIVED],
    "state": {"columns": [str], "whole": [str]},
}
"""Keys of the file and their values: a type, a choice of texts, a list, or a table; `*` is any key."""


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
    faults = _faults_of(document, SCHEMA, "")
    if not faults:
        tables, derived = document.get("tables", []), document.get("derived", [])
        faults = [] if tables else [Fault("tables", "at least one table must be given")]
        for number, table in enumerate(tables):
            given = [table[role] for role in ROLES if role in table]
            for is_wrong, key, message in (
                ("arm" not in table, "arm", "the column of arms must be given"),
                ("status" in table and "to" not in table, "status", "needs the states after changes (to)"),
                (len(set(given)) < len(given), "", "a column can have one role only"),
            ):
                faults += [Fault(f"tables[{number}].{key}".rstrip("."), message)] if is_wrong else []
        for number, entry in enumerate(derived):
            cuts = entry.get("cuts", [])
            if entry.get("name", "arm") in ("arm", "time") or sum(bool(entry.get(key)) for key in _SOURCES) != 1:
                faults.append(Fault(f"derived[{number}]", "expected a new name and one of since, count and column"))
            if not cuts or sorted(set(cuts)) != cuts or not all(map(isfinite, cuts)):
                faults.append(Fault(f"derived[{number}].cuts", f"expected increasing numbers, got {cuts!r}"))
    if faults:
        raise TableError(faults, str(path))
    state = document.get("state", {})
    return Rules(
        tables=tuple(_table_rules(table) for table in tables),
        rename=document.get("rename", {}),
        derived=tuple(Derived(**entry | {"cuts": tuple(map(float, entry["cuts"]))}) for entry in derived),
        state_columns=tuple(state.get("columns", ())),
        whole_states=tuple(state.get("whole", ())),
        **document.get("rows", {}),
    )


def _table_rules(table: dict[str, Any]) -> TableRules:
    columns = {role: table[role] for role in ROLES if role in table}
    others = {key: value for key, value in table.items() if key not in ROLES}
    return TableRules(**{"file": ""} | others | {"columns": columns, "times": tuple(table.get("times", ()))})


def _faults_of(value: Any, schema: Any, place: str) -> list[Fault]:
    """Every entry of a document that is not as its schema says."""
    if isinstance(schema, dict) and isinstance(value, dict):
        faults = []
        for key, entry in value.items():
            inner, where = schema.get(key, schema.get("*")), f"{place}.{key}".lstrip(".")
            if inner is None:
                near = nearest(key, schema)
                hint = f"Did you mean {near}?" if near else f"Known are {', '.join(schema)}."
                faults.append(Fault(where, f"unknown key. {hint}"))
            else:
                faults += _faults_of(entry, inner, where)
        return faults
    if isinstance(schema, list) and isinstance(value, list):
        return [fault for n, entry in enumerate(value) for fault in _faults_of(entry, schema[0], f"{place}[{n}]")]
    if isinstance(schema, tuple):
        return [] if value in schema else [Fault(place, f"expected one of {', '.join(schema)}, got {value!r}")]
    is_number = schema is float and isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number or (isinstance(schema, type) and isinstance(value, schema)):
        return []
    words = {str: "a text", float: "a number", bool: "true or false"}
    expected = (
        "a list"
        if isinstance(schema, list)
        else words.get(schema, "a table")
        if isinstance(schema, type)
        else "a table"
    )
    return [Fault(place, f"expected {expected}, got {value!r}")]


def _toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False)
