"""Models as documents, in TOML or JSON with the same keys.

    discount, budget                          of the problem; the discount is 1 by default, if the criterion allows it
    resources                                 optional names of the resources
    criterion, over                           optional: `discounted`, `arms`
    welfare                                   optional text: the default welfare of the problem
    max_wait                                  optional {state = steps}: promises to all arms that have the state
    arms[...]: transitions, rewards, usage    of each block of identical arms
               initial, count                 optional: uniform, 1
               group, floor                   optional: a group of its own, 0
               max_wait                       optional: promises to these arms, in place of those of the problem
               name, states, actions          optional labels

Every fault is reported with its path, `arms[2].transitions[0][1]`, and with the names of the arm, state and action if
they have some. Writing is exact to the last bit. The head, all keys but `arms`, is the same in NPZ and Parquet.
"""

import contextlib
import json
import math
import os
import re
import reprlib
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, BinaryIO, NoReturn

import numpy as np

from evenhand.checks import Faults, check_memory, collected_notices, report_normalised
from evenhand.errors import Fault, ModelError, nearest
from evenhand.model.arm import Arm, ArmTables, common_resources, read_waits
from evenhand.model.coupled import CoupledMDP, read_fields
from evenhand.model.criterion import read_criterion
from evenhand.model.labels import Names, with_words

HEAD_KEYS = ("discount", "budget", "spend", "resources", "criterion", "over", "welfare")
TOP_KEYS = (*HEAD_KEYS, "max_wait", "arms")
ARM_ARRAYS = ("transitions", "rewards", "usage")
ARM_FIELDS = ("name", "states", "actions", *ARM_ARRAYS, "initial")
ARM_KEYS = (*ARM_FIELDS, "count", "group", "floor", "max_wait")

MAX_DEPTH = 16
"""Nesting of lists and tables; the format needs six levels."""

ON_ONE_LINE = 2
"""Number of inner lists that are written on one line."""

TEXT_OVERHEAD = 16
"""Bytes of memory per byte of text: four letters become a number of 24 bytes, and pointers to it."""


# Keys


def check_keys(
    given: Collection[str], known: Collection[str], needed: Iterable[str], place: str, faults: Faults
) -> None:
    """Add a fault per unknown key, with the nearest known one, and per missing key."""
    for key in given:
        if key in known:
            continue
        # A key on the wrong level is known, and a nearest name would mislead.
        near, elsewhere = nearest(key, known), key in TOP_KEYS or key in ARM_KEYS
        hint = f", did you mean '{near}'?" if near else f"; known are {', '.join(known)}"
        where = "inside each of the arms" if key in ARM_KEYS else "to the whole problem, above the first of the arms"
        faults.add(key_place(place, key), f"unknown key{f' here; it belongs {where}' if elsewhere else hint}")
    for key in needed:
        if key not in given:
            faults.add(key_place(place, key), "missing")


def key_place(place: str, key: str) -> str:
    """Return the place of a key within a place."""
    shown = key if re.fullmatch(r"[\w-]{1,60}", key) else reprlib.repr(key)
    return f"{place}.{shown}" if place else shown


def refuse(message: str) -> NoReturn:
    """Raise ModelError for a file that cannot be read as a whole."""
    raise ModelError([Fault("", message)])


# The head


def read_head(head: Mapping[str, Any], faults: Faults, replaced: str | None = None) -> dict[str, Any]:
    """Return the fields of a problem that the head of a file states, with defaults; missing keys are faults.

    Args:
        head: parsed keys and values; only missing ones are reported here, the others by `read_fields`.
        faults: list to which faults are added.
        replaced: a criterion in place of that of the file.
    """
    own = head.get("criterion", "discounted")
    criterion = own if replaced is None else replaced
    if replaced is not None:  # a fault of the file even though it is not used
        read_criterion(0.0, own, faults)
    if "budget" not in head:
        faults.add("budget", "missing")
    fields = {key: head[key] for key in HEAD_KEYS if key in head}
    named = head.get("resources", ())
    amounts = [0.0] * max(1, len(named) if isinstance(named, (list, tuple)) else 1)
    default = {"budget": amounts, "discount": None, "resources": ()}
    return default | {"over": "arms", "welfare": None, "arm_names": ()} | fields | {"criterion": criterion}


def head_of(problem: Any) -> dict[str, Any]:
    """Return the head of a problem, or of an opened model, as it is written: defaults are left out."""
    head = {
        "discount": float(problem.discount),
        "budget": problem.budget.tolist(),
        "spend": list(problem.spend),
        "resources": list(problem.resources),
        "criterion": problem.criterion.name,
        "over": problem.over,
        "welfare": problem.welfare,
    }
    defaults: dict[str, Any] = {
        "spend": [],
        "resources": [],
        "criterion": "discounted",
        "over": "arms",
        "welfare": None,
    }
    return {key: value for key, value in head.items() if key not in defaults or value != defaults[key]}


# Reading


def read_toml(stream: BinaryIO, criterion: str | None) -> CoupledMDP:
    """Read a model in TOML; `criterion` replaces its own."""
    return _read_document(_parsed("TOML", tomllib.loads, _read_text(stream)), criterion)


def read_json(stream: BinaryIO, criterion: str | None) -> CoupledMDP:
    """Read a model in JSON; `criterion` replaces its own."""
    return _read_document(parse_json(_read_text(stream)), criterion)


def parse_json(text: str | bytes) -> object:
    """Parse JSON; tables remember keys that occur more than once."""

    # Python does not parse an int of thousands of digits; float() accepts any number of them.
    def parse_int(digits: str) -> float:
        return int(digits) if len(digits) < 300 else float(digits)

    return _parsed("JSON", partial(json.loads, object_pairs_hook=_Table, parse_int=parse_int), text)


def _parsed(format: str, parse: Callable[[Any], object], text: str | bytes) -> object:
    try:
        return parse(text)
    except RecursionError:
        refuse(f"invalid {format}: lists are nested too deeply")
    except ValueError as error:
        refuse(f"invalid {format}: {error}")


class _Table(dict[str, object]):
    """A JSON object with the list of its repeated keys."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        times = Counter(key for key, _ in pairs) if len(pairs) > len(self) else {}
        self.repeated = [key for key, number in times.items() if number > 1]


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
    check_keys(document, TOP_KEYS, (), "", faults)
    fields = read_head(document, faults, replaced)
    if "arms" not in document:
        faults.add("arms", "missing")
    blocks = document.get("arms", [])
    if not isinstance(blocks, list) or ("arms" in document and not blocks):
        hint = "; in TOML each begins with [[arms]]" if isinstance(blocks, dict) else ""
        faults.add("arms", f"expected a list of at least one table, got {reprlib.repr(blocks)}{hint}")
        blocks = []
    arms = [_read_block(block, f"arms[{i}]", faults, notices) for i, block in enumerate(blocks)]
    tables = [block if isinstance(block, dict) else {} for block in blocks]
    num_resources = common_resources(arms, faults) or _stated_resources(tables)
    for field, key, default in (("counts", "count", 1), ("groups", "group", ""), ("floors", "floor", 0.0)):
        fields[field] = [block.get(key, default) for block in tables]
    fields["max_waits"] = _promises(document, tables, arms, faults)
    names = [Names.of(block) for block in blocks]
    if faults:
        if "budget" not in document:
            fields["budget"] = [0.0] * (num_resources or 1)
        read_fields(fields, None, num_resources, faults)
        raise ModelError(with_words(faults.found, names, fields["resources"]))
    problem = CoupledMDP(arms=[arm for arm in arms if arm is not None], **fields)
    report_normalised(with_words(notices, names), stacklevel=4)
    return problem


def _promises(document: Mapping[str, Any], blocks: list[dict[str, Any]], arms: list[Any], faults: Faults) -> Any:
    """(block, state) promised waits: those of the block, else those of the problem; None if there are none."""
    if faults or not any("max_wait" in table for table in (document, *blocks)):
        return None
    tables = ArmTables.stack(arms)
    shared = read_waits(document.get("max_wait"), tables, faults)
    own = read_waits([block.get("max_wait", {}) for block in blocks], tables, faults, unset=-2)
    return np.where(own > -2, own, shared)


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
        with contextlib.suppress(ValueError):  # rows of different lengths
            shape = np.shape(block.get("usage", ()))
            if len(shape) in (2, 3):
                return int(shape[-1])
    return None


def _read_block(block: object, place: str, faults: Faults, notices: list[Fault]) -> Arm | None:
    """Read one arm, or add its faults and return None."""
    if not isinstance(block, dict):
        faults.add(place, f"expected a table, got {reprlib.repr(block)}")
        return None
    check_keys(block, ARM_KEYS, ARM_ARRAYS, place, faults)
    missing: dict[str, Any] = {key: None for key in ARM_ARRAYS if key not in block}
    given = {key: value for key, value in block.items() if key in ARM_FIELDS}
    try:
        with collected_notices() as rows:
            arm = Arm(**(given | missing))
    except ModelError as error:
        faults.found.extend(fault.within(place) for fault in error.faults if fault.place not in missing)
        return None
    notices.extend(row.within(place) for row in rows)
    return arm


# Writing


def write_toml(problem: CoupledMDP, stream: BinaryIO) -> None:
    """Write a model in TOML."""
    tables = (head_of(problem), *_blocks(problem))
    texts = ("".join(f"{key} = {_toml(value)}\n" for key, value in items.items()) for items in tables)
    stream.write("\n[[arms]]\n".join(texts).encode())


def write_json(problem: CoupledMDP, stream: BinaryIO) -> None:
    """Write a model in JSON."""
    stream.write((_text(head_of(problem) | {"arms": _blocks(problem)}) + "\n").encode())


def _blocks(problem: CoupledMDP) -> list[dict[str, Any]]:
    """Keys and values of each block; defaults are left out."""
    tables, blocks = problem.tables, []
    groups, by_state = problem.groups or ("",) * len(tables), tables.usage_by_state
    for i, (name, states, actions) in enumerate(tables.all_labels):
        labels: dict[str, Any] = {"name": name, "states": list(states), "actions": list(actions), "group": groups[i]}
        labels |= {"floor": float(problem.floors[i]), "max_wait": problem.waits_of(i)}
        arrays = tables.arrays_of(i)
        arrays["usage"] = arrays["usage"] if by_state[i] else arrays["usage"][0]
        numbers = {"count": int(problem.counts[i])} | {key: array.tolist() for key, array in arrays.items()}
        blocks.append({key: value for key, value in labels.items() if value} | numbers)
    return blocks


_encode = json.JSONEncoder(ensure_ascii=False).encode


def _toml(value: Any) -> str:
    """A value in TOML: tables on one line, all else as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)} = {_text(entry)}" for key, entry in value.items()) + "}"
    return _text(value)


def _text(value: Any) -> str:
    """A value in JSON, with short lists on one line; tables are written in another way in TOML (`_toml`)."""
    if isinstance(value, dict):
        rows, (begin, end) = [f'"{key}": {_text(entry)}' for key, entry in value.items()], "{}"
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list) if len(value) > ON_ONE_LINE else dict):
        rows, (begin, end) = [_text(entry) for entry in value], "[]"
    else:
        # Escapes of JSON are TOML's too; the delete character is escaped in TOML alone.
        return _encode(value).replace("\x7f", "\\u007f")
    return f"{begin}\n  " + ",\n".join(rows).replace("\n", "\n  ") + f"\n{end}"


def as_json(value: Any) -> Any:
    """Convert results to JSON: arrays become lists, infinite numbers and NaN null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(entry) for entry in value]
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
