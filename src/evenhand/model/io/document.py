"""Models as documents, in TOML or JSON with the same keys.

    discount, budget                          of the problem; the discount is 1 by default, if the criterion allows it
    resources                                 optional names of the resources
    criterion, over                           optional: `discounted`, `arms`
    welfare                                   optional text: the default welfare of the problem
    arms[...]: transitions, rewards, usage    of each block of identical arms
               initial, count                 optional: uniform, 1
               group, floor                   optional: a group of its own, 0
               name, states, actions          optional labels

Every fault is reported with its path, `arms[2].transitions[0][1]`, and with the names of the arm, state and action if
they have some. Writing is exact to the last bit.
"""

import json
import math
import os
import re
import reprlib
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NoReturn

import numpy as np

from evenhand.checks import Faults, check_memory, hearing, tell_normalised
from evenhand.errors import Fault, ModelError, nearest
from evenhand.model.arm import Arm
from evenhand.model.coupled import CoupledMDP, common_resources, read_criterion, read_fields
from evenhand.model.places import Names, with_words
from evenhand.typing import Array, Floats

ARM_ARRAYS = ("transitions", "rewards", "usage")
TOP_KEYS = ("discount", "budget", "resources", "criterion", "over", "welfare", "arms")
ARM_FIELDS = ("name", "states", "actions", *ARM_ARRAYS, "initial")
ARM_KEYS = (*ARM_FIELDS, "count", "group", "floor")

MAX_DEPTH = 16
"""Nesting of lists and tables; the format needs six levels."""

TEXT_OVERHEAD = 16
"""Bytes of memory per byte of text: four letters become a number of 24 bytes, and pointers to it."""


# Keys


def check_keys(
    given: Collection[str], known: Collection[str], needed: Iterable[str], place: str, faults: Faults
) -> None:
    """Add a fault per unknown key, with the nearest known one, and per missing key."""
    for key in given:
        if key not in known:
            faults.add(key_place(place, key), f"unknown key{_hint(key, known)}")
    for key in needed:
        if key not in given:
            hint = (
                "; give one below 1, or a criterion that needs none: average or finite:T" if key == "discount" else ""
            )
            faults.add(key_place(place, key), f"missing{hint}")


def _hint(key: str, known: Collection[str]) -> str:
    # A key on the wrong level is known, and a nearest name would mislead.
    if known == ARM_KEYS and key in TOP_KEYS:
        return " here; it belongs to the whole problem, above the first of the arms"
    if known == TOP_KEYS and key in ARM_KEYS:
        return " here; it belongs inside each of the arms"
    near = nearest(key, known)
    return f", did you mean '{near}'?" if near else f"; known are {', '.join(known)}"


def key_place(place: str, key: str) -> str:
    """Return the place of a key within a place."""
    shown = key if re.fullmatch(r"[\w-]{1,60}", key) else reprlib.repr(key)
    return f"{place}.{shown}" if place else shown


def needed_at_top(criterion: object, *others: str) -> tuple[str, ...]:
    """Keys that a problem must have; the discount only if the criterion uses it."""
    return (*(("discount",) if criterion == "discounted" else ()), "budget", *others)


def refuse(message: str) -> NoReturn:
    """Raise ModelError for a file that cannot be read as a whole."""
    raise ModelError([Fault("", message)])


# Reading


def read_toml(stream: BinaryIO, criterion: str | None) -> CoupledMDP:
    """Read a model in TOML; `criterion` replaces its own."""
    text = _read_text(stream)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        refuse(f"invalid TOML: {_reason(error)}")
    return _read_document(document, criterion)


def read_json(stream: BinaryIO, criterion: str | None) -> CoupledMDP:
    """Read a model in JSON; `criterion` replaces its own."""
    return _read_document(parse_json(_read_text(stream)), criterion)


def parse_json(text: str) -> object:
    """Parse JSON; tables remember keys that occur more than once."""
    try:
        return json.loads(text, object_pairs_hook=_Table, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        refuse(f"invalid JSON: {_reason(error)}")


def _reason(error: Exception) -> str:
    return "lists are nested too deeply" if isinstance(error, RecursionError) else str(error)


class _Table(dict[str, object]):
    """A JSON object with the list of its repeated keys."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        times = Counter(key for key, _ in pairs) if len(pairs) > len(self) else {}
        self.repeated = [key for key, number in times.items() if number > 1]


def _whole_number(text: str) -> int | float:
    # Python does not parse an int of thousands of digits; float() accepts any number of them.
    return int(text) if len(text) < 300 else float(text)


def _read_text(stream: BinaryIO) -> str:
    size = stream.seek(0, os.SEEK_END)
    check_memory(TEXT_OVERHEAD * size, "to read this text", "Write it as an .npz file.")
    stream.seek(0)
    data = stream.read()
    if not data.strip():
        refuse("the file is empty")
    try:
        return data.decode("utf-8-sig")  # without the byte-order mark that some editors write
    except UnicodeDecodeError as error:
        refuse(f"not UTF-8 text: byte 0x{data[error.start]:02x} at position {error.start}")


def _read_document(document: object, replaced: str | None) -> CoupledMDP:
    faults, notices = Faults(), list[Fault]()
    document = tidy(document, "", faults)
    if not isinstance(document, dict):
        refuse(f"expected a table with the keys discount, budget, arms; got {reprlib.repr(document)}")
    own = document.get("criterion", "discounted")
    criterion = own if replaced is None else replaced
    check_keys(document, TOP_KEYS, needed_at_top(criterion, "arms"), "", faults)
    if replaced is not None:  # a fault of the file even though it is not used
        read_criterion(0.0, own, faults)
    blocks = _read_blocks(document.get("arms", ()), faults)
    arms = [_read_block(block, f"arms[{i}]", faults, notices) for i, block in enumerate(blocks)]
    tables = [block if isinstance(block, dict) else {} for block in blocks]
    num_resources = common_resources(arms, faults) or _stated_resources(tables)
    given = {
        "budget": document.get("budget", [0.0] * (num_resources or 1)),
        "discount": document.get("discount", 0.0 if criterion == "discounted" else 1.0),
        "counts": [block.get("count", 1) for block in tables],
        "resources": document.get("resources", ()),
        "groups": [block.get("group", "") for block in tables],
        "floors": [block.get("floor", 0.0) for block in tables],
        "criterion": criterion,
        "over": document.get("over", "arms"),
        "welfare": document.get("welfare"),
        "arm_names": (),
    }
    names = [Names.of_block(block) for block in blocks]
    if faults:
        read_fields(given, None, num_resources, faults)
        raise ModelError(with_words(faults.found, names, given["resources"]))
    problem = CoupledMDP(arms=[arm for arm in arms if arm is not None], **given)
    tell_normalised(with_words(notices, names), stacklevel=4)
    return problem


def tidy(value: object, place: str, faults: Faults, depth: int = 0) -> object:
    """Convert a parsed document into plain lists and tables, and add the faults of its keys and texts."""
    if isinstance(value, (list, dict)) and depth == MAX_DEPTH:
        refuse("not a model: lists are nested too deeply")
    if isinstance(value, list):
        return [
            # Floats are most of any file; a call per entry would take most of the time.
            entry if type(entry) is float else tidy(entry, f"{place}[{i}]", faults, depth + 1)
            for i, entry in enumerate(value)
        ]
    if isinstance(value, dict):
        for key in value.repeated if isinstance(value, _Table) else ():
            faults.add(key_place(place, key), "this key is written more than once")
        return {key: tidy(entry, key_place(place, key), faults, depth + 1) for key, entry in value.items()}
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        faults.add(place, "is not Unicode text: it contains half of a surrogate pair")
    if isinstance(value, int) and abs(value) >= 10**300:  # beyond doubles, as 1e999 is
        return math.inf if value > 0 else -math.inf
    return value


def _stated_resources(tables: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the number of resources by the usage of the first arm that states one, if no arm is valid."""
    for block in tables:
        try:
            shape = np.shape(block.get("usage", ()))
        except ValueError:  # rows of different lengths
            continue
        if len(shape) in (2, 3):
            return int(shape[-1])
    return None


def _read_blocks(value: object, faults: Faults) -> list[object]:
    if isinstance(value, list) and not value:
        faults.add("arms", "at least one arm is required")
    if isinstance(value, (list, tuple)):
        return list(value)
    hint = "; in TOML each begins with [[arms]]" if isinstance(value, dict) else ""
    faults.add("arms", f"expected a list of tables, got {reprlib.repr(value)}{hint}")
    return []


def _read_block(block: object, place: str, faults: Faults, notices: list[Fault]) -> Arm | None:
    """Read one arm, or add its faults and return None."""
    if not isinstance(block, dict):
        faults.add(place, f"expected a table, got {reprlib.repr(block)}")
        return None
    check_keys(block, ARM_KEYS, ARM_ARRAYS, place, faults)
    missing: dict[str, Any] = {key: None for key in ARM_ARRAYS if key not in block}
    given = {key: value for key, value in block.items() if key in ARM_FIELDS}
    try:
        with hearing() as rows:
            arm = Arm(**(given | missing))
    except ModelError as error:
        faults.found.extend(fault.within(place) for fault in error.faults if fault.place not in missing)
        return None
    notices.extend(row.within(place) for row in rows)
    return arm


# Writing


def write_toml(problem: CoupledMDP, stream: BinaryIO) -> None:
    """Write a model in TOML."""
    head = "".join(f"{key} = {text}\n" for key, text in _head_as_text(problem).items())
    tables = (
        "\n[[arms]]\n" + "".join(f"{key} = {text}\n" for key, text in items.items())
        for items in _blocks_as_text(problem)
    )
    stream.write((head + "".join(tables)).encode())


def write_json(problem: CoupledMDP, stream: BinaryIO) -> None:
    """Write a model in JSON."""
    tables = (_braced(items) for items in _blocks_as_text(problem))
    stream.write((_braced({**_head_as_text(problem), "arms": _lines(tables)}) + "\n").encode())


def _head_as_text(problem: CoupledMDP) -> dict[str, str]:
    """Keys of the whole problem, as text that is valid in TOML and JSON; defaults are left out."""
    head = {"discount": repr(problem.discount), "budget": _line(problem.budget)}
    if problem.resources:
        head["resources"] = _quoted_list(problem.resources)
    if problem.criterion.name != "discounted":
        head["criterion"] = _quoted(problem.criterion.name)
    if problem.over != "arms":
        head["over"] = _quoted(problem.over)
    if problem.welfare is not None:
        head["welfare"] = _quoted(problem.welfare)
    return head


def _braced(items: Mapping[str, str]) -> str:
    lines = ",\n".join(f'"{key}": {text}' for key, text in items.items())
    return "{\n  " + lines.replace("\n", "\n  ") + "\n}"


def _blocks_as_text(problem: CoupledMDP) -> Iterator[dict[str, str]]:
    """Keys of each block with their values, as text that is valid in TOML and JSON."""
    tables = problem.tables
    for i, count in enumerate(problem.counts.tolist()):
        s, a = tables.num_states[i], tables.num_actions[i]
        name, states, actions = tables.labels[i] if tables.labels else ("", (), ())
        # Labels first, then numbers.
        items = {"name": _quoted(name)} if name else {}
        items |= {key: _quoted_list(names) for key, names in (("states", states), ("actions", actions)) if names}
        if problem.groups and problem.groups[i]:
            items["group"] = _quoted(problem.groups[i])
        if problem.floors[i] > 0:
            items["floor"] = repr(float(problem.floors[i]))
        yield items | {
            "count": str(count),
            "transitions": _transitions_as_text(tables.transitions[i, :s, :a, :s]),
            "rewards": _lines(_line(row) for row in tables.rewards[i, :s, :a]),
            "usage": _usage_as_text(tables.usage[i, :s, :a]),
            "initial": _line(tables.initial[i, :s]),
        }


def _transitions_as_text(transitions: Floats) -> str:
    return _lines("[" + ",\n ".join(_line(row) for row in state) + "]" for state in transitions)


def _usage_as_text(usage: Floats) -> str:
    # Written once if it is the same in every state, to the last bit.
    return _line(usage[0]) if (bits(usage) == bits(usage[:1])).all() else _lines(_line(state) for state in usage)


def bits(values: Floats) -> Array:
    """Return the bits of numbers, which distinguish -0.0 from 0.0."""
    return np.ascontiguousarray(values).view(np.int64)


def _line(values: Floats) -> str:
    return json.dumps(values.tolist())


def _lines(rows: Iterable[str]) -> str:
    return "[\n  " + ",\n".join(rows).replace("\n", "\n  ") + "\n]"


def _quoted(text: str) -> str:
    """Text in quotes. JSON's escapes are TOML's too; only the delete character is escaped in TOML alone."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _quoted_list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(_quoted, texts)) + "]"


def as_json(value: Any) -> Any:
    """Convert results to JSON: arrays become lists, infinite numbers and NaN null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(entry) for entry in value]
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
