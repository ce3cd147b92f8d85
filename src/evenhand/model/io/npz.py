"""Models as arrays in an `.npz` archive.

The blocks are the first axis of each array, padded with zeros to the largest arm:

    discount ()   budget (resource,)   count (block,)   transitions (block, state, action, next_state)
    rewards (block, state, action)     usage (block, state, action, resource) or (block, action, resource)
    initial (block, state)   num_states (block,)   num_actions (block,)   floor (block,)   criterion (): a text
    max_wait (block, state): whole numbers, -1 without a promise
    over (), welfare (): texts          labels (), resources (), spend (), group (): JSON texts

`labels` is a list with one table of `name`, `states`, `actions` per block, `resources` a list of names, and `group` a
list with one name per block. All but `budget`, `transitions`, `rewards` and `usage` are optional, as in `document`;
without `num_states` and `num_actions` nothing is padded. Faults of arms have the places of the same model as a
document: `arms[2].rewards[0][1]`.
"""

import io
import json
import math
import reprlib
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from typing import IO, Any, BinaryIO

import numpy as np

from evenhand.checks import Faults, check_memory, read_names
from evenhand.errors import EvenhandError, ModelError
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import CoupledMDP, read_fields
from evenhand.model.io.document import (
    ARM_ARRAYS,
    HEAD_KEYS,
    check_keys,
    head_of,
    key_place,
    parse_json,
    read_head,
    refuse,
    tidy,
)
from evenhand.model.labels import with_words
from evenhand.typing import Array

BLOCK_AXES = {
    "transitions": "block state action next_state",
    "rewards": "block state action",
    "usage": "block state action resource",
    "initial": "block state",
    "num_states": "block",
    "num_actions": "block",
}
LISTS = ("labels", "resources", "spend", "group")
TEXTS = ("criterion", "over", "welfare", *LISTS)
KEYS = (*HEAD_KEYS, *BLOCK_AXES, "count", "floor", "max_wait", "group", "labels")


# Arrays in zip archives from untrusted sources: headers are checked before unpacking, and nothing is unpickled

ARRAY_OVERHEAD = 4
"""Bytes of memory per byte of an array, while it is read and checked."""


def read_member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    key: str,
    header_fault: Callable[[str, tuple[int, ...], np.dtype[Any]], str],
    faults: Faults,
) -> Array | None:
    """Read one array after checking its header, or add its fault and return None.

    Args:
        archive: an `.npz` file.
        member: the part of it.
        key: name of the array.
        header_fault: returns the message for an invalid shape or type; empty for a valid one.
        faults: list to which faults are added.
    """
    try:
        with archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream)
            message = "holds Python objects, which are not read" if dtype.hasobject else header_fault(key, shape, dtype)
            # A small file can promise a huge array. The header is believed only if the archive holds as many bytes.
            promised = stream.tell() + math.prod(shape) * dtype.itemsize
            if not message and promised != member.file_size:
                message = f"is damaged: it has {member.file_size} bytes where its header promises {promised}"
            if not message:
                stream.seek(0)
                return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except OSError:
        message = "is damaged: it is not at its place in the archive"
    except Exception as error:  # noqa: BLE001  # zipfile and NumPy raise errors of many kinds
        message = f"is damaged: {error}"
    faults.add(key, message)
    return None


# Reading


def read_npz(stream: BinaryIO, replaced: str | None) -> CoupledMDP:
    """Read a model from an archive; `replaced` is a criterion in place of its own."""
    faults = Faults()
    given_keys, arrays = _read_archive(stream, faults)
    check_keys(given_keys, KEYS, ARM_ARRAYS, "", faults)
    document = {key: _value(key, arrays[key], faults) for key in arrays if key not in BLOCK_AXES}
    fields = read_head(dict.fromkeys(given_keys) | document, faults, replaced)
    tables = _read_tables(arrays, document.get("labels", []), faults)
    fields |= {"counts": document.get("count"), "floors": document.get("floor"), "groups": document.get("group", ())}
    fields["max_waits"] = arrays.get("max_wait")
    if tables is not None and not faults:
        return CoupledMDP(arms=tables, **fields)
    later = Faults() if tables is None else tables.find_faults()
    read_fields(fields, None, arrays["usage"].shape[-1] if "usage" in arrays else None, later)
    known = {fault.place for fault in faults.found}
    found = faults.found + [fault for fault in later.found if fault.place not in known]
    raise ModelError(with_words(found, [] if tables is None else tables.names, fields["resources"]))


def _read_archive(stream: IO[bytes], faults: Faults) -> tuple[list[str], dict[str, Array]]:
    """Names of all members, and the arrays of the known keys whose type and number of axes are right."""
    try:
        # Sizes come from the directory of the archive, before anything is unpacked.
        with zipfile.ZipFile(stream) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            times = Counter(member.filename.removesuffix(".npy") for member in archive.infolist())
            for key in (key for key, number in times.items() if number > 1):
                faults.add(key_place("", key), f"this array is in the file {times[key]} times")
            known = {key: members[key] for key in KEYS if key in members}
            size = sum(member.file_size for member in known.values())
            check_memory(ARRAY_OVERHEAD * size, "to read these arrays", "Split the problem, or use a larger machine.")
            read = {key: read_member(archive, member, key, _header_fault, faults) for key, member in known.items()}
    except EvenhandError:
        raise
    except Exception as error:  # noqa: BLE001
        refuse(f"not an .npz file, or a damaged one: {error}")
    return list(members), {key: array for key, array in read.items() if array is not None}


def _header_fault(key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Message for an array whose shape or type is invalid for its key; empty for a valid one."""
    if key in TEXTS:
        return "" if dtype.kind in "US" and not shape else f"expected one text, got {dtype} of shape {shape}"
    axes = BLOCK_AXES.get(key, "block state" if key == "max_wait" else "").split()
    depths = {len(axes), *((3,) if key == "usage" else ())} if axes else {0, 1}
    if dtype.kind in "fiu" and len(shape) in depths and 0 not in shape:
        return ""
    wanted = f" with the axes ({', '.join(axes)})" if axes else ""
    return f"expected numbers{wanted}, got {dtype} of shape {shape}"


def _value(key: str, array: Array, faults: Faults) -> Any:
    """An array of the head, or of labels and groups, as it stands in a document."""
    value = array.tolist()
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if key not in LISTS:
        return text
    try:
        found = tidy(parse_json(text), key, faults)
    except ModelError as error:
        faults.add(key, error.faults[0].message)
        return []
    if isinstance(found, list):
        return found
    faults.add(key, f"expected a list, got {reprlib.repr(found)}")
    return []


def _read_tables(arrays: Mapping[str, Array], labels: list[Any], faults: Faults) -> ArmTables | None:
    """Read the arms if the shapes of their arrays agree."""
    before = len(faults.found)
    if not all(key in arrays for key in ARM_ARRAYS):
        return None
    number, S, A = arrays["transitions"].shape[:3]
    usage, K = arrays["usage"], arrays["usage"].shape[-1]
    wanted = {
        "transitions": (number, S, A, S),
        "rewards": (number, S, A),
        "usage": (number, S, A, K) if usage.ndim == 4 else (number, A, K),
        "initial": (number, S),
        "num_states": (number,),
        "num_actions": (number,),
    }
    for key in (key for key in BLOCK_AXES if key in arrays and arrays[key].shape != wanted[key]):
        faults.add(key, f"has the shape {arrays[key].shape}, expected {wanted[key]} by the transitions")
    sizes: dict[str, Any] = {"num_states": np.full(number, S, np.int32), "num_actions": np.full(number, A, np.int32)}
    for key, full in sizes.items():
        stated = arrays.get(key, full)
        invalid = f"{{value}} is not a whole number from 1 to {full[0]}, the size of the arrays"
        faults.flag(key, (stated < 1) | (stated > full[0]) | (stated != stated.round()), invalid, stated)
        sizes[key] = stated.astype(np.int32)
    if len(faults.found) > before:
        return None
    states = np.arange(S) < sizes["num_states"][:, None]
    if usage.ndim == 3:  # repeated for every real state; padding stays 0
        usage = np.where(states[:, :, None, None], usage[:, None], 0.0)
    start = arrays.get("initial", states / sizes["num_states"][:, None])
    given = {"transitions": arrays["transitions"], "rewards": arrays["rewards"], "usage": usage, "initial": start}
    numbers: dict[str, Any] = {key: np.asarray(array, dtype=np.float64) for key, array in given.items()}
    tables = ArmTables(
        **numbers,
        **sizes,
        labels=_read_labels(labels, sizes["num_states"].tolist(), sizes["num_actions"].tolist(), faults),
    )
    real = tables.real
    masks = real[..., None] & states[:, None, None, :], real, real[..., None], states
    for (key, array), mask in zip(numbers.items(), masks, strict=True) if not real.all() else ():
        beyond = "{value} lies beyond the arm's states and actions, where only 0 may"
        faults.flag(key, (array != 0) & ~mask, beyond, array)
    # Padding beyond the largest arm is cut by the problem, so that equal models have equal tables.
    return tables


def _read_labels(
    entries: list[Any], num_states: list[int], num_actions: list[int], faults: Faults
) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """Labels of each block, from a list of tables; empty if there are none."""
    if len(entries) not in (0, len(num_states)):
        faults.add("labels", f"expected a list of {len(num_states)} tables, one per block")
        return ()
    labels = []
    for index, entry in enumerate(entries):
        place = f"labels[{index}]"
        if not isinstance(entry, dict):
            faults.add(place, f"expected a table, got {reprlib.repr(entry)}")
            continue
        check_keys(entry, ("name", "states", "actions"), (), place, faults)
        if not isinstance(name := entry.get("name", ""), str):
            faults.add(f"{place}.name", f"expected text, got {reprlib.repr(name)}")
        states, actions = (
            read_names(entry.get(key, []), sizes[index], f"{place}.{key}", faults, blank=True)
            for key, sizes in (("states", num_states), ("actions", num_actions))
        )
        labels.append((str(name), states, actions))
    # No labels and empty labels are the same model.
    return tuple(labels) if any(label != ("", (), ()) for label in labels) else ()


# Writing


def write_npz(problem: CoupledMDP, stream: BinaryIO) -> None:
    """Write a model as an archive."""
    tables, lists = problem.tables, head_of(problem)
    arrays = {key: getattr(tables, key) for key in BLOCK_AXES} | {"count": problem.counts}
    arrays["usage"] = tables.usage if tables.usage_by_state.any() else tables.usage[:, 0]
    arrays |= {key: np.array(lists.pop(key)) for key in list(lists) if key not in LISTS}
    if problem.has_floors:
        arrays["floor"] = problem.floors
    if problem.has_max_wait:
        arrays["max_wait"] = problem.max_waits
    lists["group"] = problem.groups
    lists["labels"] = [{"name": name, "states": states, "actions": actions} for name, states, actions in tables.labels]
    # As bytes: NumPy stores four bytes per character.
    texts = {key: json.dumps(value, ensure_ascii=False).encode() for key, value in lists.items() if value}
    np.savez(stream, **arrays, **{key: np.array(text) for key, text in texts.items()})  # type: ignore[arg-type]


def to_npz(problem: CoupledMDP) -> bytes:
    """Return a problem as the bytes of an archive, for `load(stream, "npz")`."""
    stream = io.BytesIO()
    write_npz(problem, stream)
    return stream.getvalue()
