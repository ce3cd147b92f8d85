"""Models as arrays in an `.npz` archive.

The blocks are the first axis of each array, padded with zeros to the largest arm:

    discount ()   budget (resource,)   count (block,)   transitions (block, state, action, next_state)
    rewards (block, state, action)     usage (block, state, action, resource) or (block, action, resource)
    initial (block, state)   num_states (block,)   num_actions (block,)   floor (block,)   criterion (): a text
    over (), welfare (): texts          labels (), resources (), group (): JSON texts

`labels` is a list with one table of `name`, `states`, `actions` per block, `resources` a list of names, and `group` a
list with one name per block. All but `budget`, `transitions`, `rewards` and `usage` are optional, as in `document`;
without `num_states` and `num_actions` nothing is padded. Faults of arms have the places of the same model as a
document: `arms[2].rewards[0][1]`.
"""

import io
import json
import reprlib
import zipfile
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any, BinaryIO

import numpy as np

from evenhand.checks import Describe, Faults, check_finite, check_memory, read_names
from evenhand.errors import EvenhandError, ModelError
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import CoupledMDP, read_criterion, read_fields
from evenhand.model.io.array_archive import ARRAY_OVERHEAD, DAMAGE, read_member
from evenhand.model.io.document import ARM_ARRAYS, bits, check_keys, key_place, needed_at_top, parse_json, refuse, tidy
from evenhand.model.places import with_words
from evenhand.typing import Array, Bools, Floats, Indices

AXES: dict[str, tuple[str, ...]] = {
    "transitions": ("block", "state", "action", "next state"),
    "rewards": ("block", "state", "action"),
    "usage": ("block", "state", "action", "resource"),
    "initial": ("block", "state"),
    "count": ("block",),
    "floor": ("block",),
    "num_states": ("block",),
    "num_actions": ("block",),
}
USAGE_BY_ACTION = ("block", "action", "resource")
TEXTS = ("criterion", "over", "welfare", "resources", "group", "labels")
KEYS = {"discount": (), "budget": ("resource",), **AXES, **dict.fromkeys(TEXTS, ())}
WHOLE_NUMBERS = ("count", "num_states", "num_actions")


# Reading


def read_npz(stream: BinaryIO, replaced: str | None) -> CoupledMDP:
    """Read a model from an archive; `replaced` is a criterion in place of its own."""
    faults = Faults()
    given_keys, arrays = _read_archive(stream, faults)
    own = _text(arrays.get("criterion"), "discounted")
    criterion = own if replaced is None else replaced
    if replaced is not None:  # a fault of the file even though it is not used
        read_criterion(0.0, own, faults)
    check_keys(given_keys, KEYS, needed_at_top(criterion, *ARM_ARRAYS), "", faults)
    tables = _read_tables(arrays, faults)
    num_resources = arrays["usage"].shape[-1] if "usage" in arrays else None
    given: dict[str, Any] = {
        "budget": arrays.get("budget", np.zeros(num_resources or 1)),
        "discount": arrays["discount"][()] if "discount" in arrays else 0.0 if criterion == "discounted" else 1.0,
        "counts": arrays.get("count"),
        "resources": _names(arrays.get("resources"), "resources", faults),
        "groups": _names(arrays.get("group"), "group", faults),
        "floors": arrays.get("floor"),
        "criterion": criterion,
        "over": _text(arrays.get("over"), "arms"),
        "welfare": _text(arrays["welfare"], "") if "welfare" in arrays else None,
        "arm_names": (),
    }
    if tables is not None and not faults:
        return CoupledMDP(arms=tables, **given)
    if tables is not None:
        faults.found.extend(tables.find_faults().found)
    read_fields(given, None, num_resources, faults)
    raise ModelError(with_words(faults.found, [] if tables is None else tables.names, given["resources"]))


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
    except DAMAGE as error:
        refuse(f"not an .npz file, or a damaged one: {error}")
    return list(members), {key: array for key, array in read.items() if array is not None}


def _header_fault(key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Message for an array whose shape or type is invalid for its key; empty for a valid one."""
    if key in TEXTS:
        valid = dtype.kind in "US" and not shape
        return "" if valid else f"expected one text, got {dtype} of shape {shape}"
    if dtype.kind not in ("iu" if key in WHOLE_NUMBERS else "fiu"):
        return f"expected {'whole ' if key in WHOLE_NUMBERS else ''}numbers, got {dtype}"
    allowed = [KEYS[key], *([USAGE_BY_ACTION] if key == "usage" else [])]
    if len(shape) not in map(len, allowed):
        wanted = " or ".join(f"({', '.join(axes)})" for axes in allowed)
        return f"expected the axes {wanted}, got shape {shape}"
    return "is empty" if 0 in shape else ""


def _read_tables(arrays: Mapping[str, Array], faults: Faults) -> ArmTables | None:
    """Read the arms if the shapes of their arrays agree; otherwise add the faults of each array by itself."""
    if not _shapes_agree(arrays, faults) or not all(key in arrays for key in ARM_ARRAYS):
        for key in (*ARM_ARRAYS, "initial"):
            if key in arrays:
                check_finite(np.asarray(arrays[key], dtype=np.float64), key, faults)
        return None
    num_blocks, S, A = arrays["rewards"].shape
    num_states = _read_sizes(arrays.get("num_states"), "num_states", num_blocks, S, faults)
    num_actions = _read_sizes(arrays.get("num_actions"), "num_actions", num_blocks, A, faults)
    if num_states is None or num_actions is None:
        return None
    labels = _read_labels(arrays.get("labels"), num_states.tolist(), num_actions.tolist(), faults)
    real_states = np.arange(S) < num_states[:, None]
    _check_padding(arrays, real_states, np.arange(A) < num_actions[:, None], faults)
    usage = arrays["usage"]
    if usage.ndim == 3:  # repeated for every real state; padding stays 0
        usage = np.where(real_states[:, :, None, None], usage[:, None], 0.0)
    # Padding beyond the largest arm is cut, so that equal models have equal tables however they were padded.
    s, a = int(num_states.max()), int(num_actions.max())
    return ArmTables(
        transitions=_doubles(arrays["transitions"][:, :s, :a, :s]),
        rewards=_doubles(arrays["rewards"][:, :s, :a]),
        usage=_doubles(usage[:, :s, :a]),
        initial=_doubles(arrays.get("initial", real_states / num_states[:, None])[:, :s]),
        num_states=num_states,
        num_actions=num_actions,
        labels=labels,
    )


def _doubles(array: Array) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float64)


def _shapes_agree(arrays: Mapping[str, Array], faults: Faults) -> bool:
    before = len(faults.found)
    # The first array that has an axis sets its size, and is named in the faults of the others.
    sizes: dict[str, tuple[int, str]] = {}
    for key in (key for key in AXES if key in arrays):
        axes = AXES[key] if arrays[key].ndim == len(AXES[key]) else USAGE_BY_ACTION
        for axis, size in zip(axes, arrays[key].shape, strict=True):
            noun = "state" if axis == "next state" else axis
            wanted, source = sizes.setdefault(noun, (size, key))
            if size != wanted:
                faults.add(key, f"has {size} {axis}s where {source} has {wanted} {noun}s")
    return len(faults.found) == before


def _read_sizes(given: Array | None, key: str, num_blocks: int, most: int, faults: Faults) -> Indices | None:
    """(block,) number of real states or actions; without sizes nothing is padded."""
    if given is None:
        return np.full(num_blocks, most, dtype=np.int32)
    wrong = (given < 1) | (given > most)
    faults.flag(key, wrong, Describe(f"{{value}} is not from 1 to {most}, the size of the arrays", given))
    return None if wrong.any() else given.astype(np.int32)


def _check_padding(arrays: Mapping[str, Array], states: Bools, actions: Bools, faults: Faults) -> None:
    """Add a fault per entry beyond an arm's own states and actions that is not 0: probably a wrong size.

    Args:
        arrays: the arrays of the file.
        states: (block, state) mask of real states.
        actions: (block, action) mask of real actions.
        faults: list to which faults are added.
    """
    if states.all() and actions.all():
        return
    pairs = states[:, :, None] & actions[:, None, :]
    real = {
        "transitions": pairs[..., None] & states[:, None, None, :],
        "rewards": pairs,
        "usage": (pairs if arrays["usage"].ndim == 4 else actions)[..., None],
        "initial": states,
    }
    for key in (key for key in real if key in arrays):
        stray = (arrays[key] != 0) & ~real[key]
        faults.flag(
            key,
            stray,
            Describe("{value} lies beyond the arm's states and actions, where only 0 may", arrays[key]),
        )


def _read_labels(
    given: Array | None, num_states: list[int], num_actions: list[int], faults: Faults
) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """Labels of each block, from a JSON list of tables; empty if there are none."""
    entries = _json(given, "labels", faults)
    if not isinstance(entries, list) or len(entries) not in (0, len(num_states)):
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


def _names(given: Array | None, key: str, faults: Faults) -> tuple[str, ...]:
    names = _json(given, key, faults)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        faults.add(key, f"expected a list of names, got {reprlib.repr(names)}")
        return ()
    return tuple(names)


def _json(given: Array | None, key: str, faults: Faults) -> object:
    """Parse an array of one JSON text; an empty list by default, or if it is invalid."""
    if given is None:
        return []
    try:
        return tidy(parse_json(_text(given, "")), key, faults)
    except ModelError as error:
        faults.add(key, error.faults[0].message)
        return []


def _text(given: Array | None, default: str) -> str:
    """Return the text of an array, which may be bytes or characters."""
    if given is None:
        return default
    text = given.item()
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


# Writing


def write_npz(problem: CoupledMDP, stream: BinaryIO) -> None:
    """Write a model as an archive."""
    tables = problem.tables
    arrays: dict[str, Array] = {
        "discount": np.array(problem.discount),
        "budget": problem.budget,
        "count": problem.counts,
        "transitions": tables.transitions,
        "rewards": tables.rewards,
        "usage": _by_action(tables),
        "initial": tables.initial,
        "num_states": tables.num_states,
        "num_actions": tables.num_actions,
    }
    # Defaults are left out, as in documents.
    if problem.criterion.name != "discounted":
        arrays["criterion"] = np.array(problem.criterion.name)
    if problem.over != "arms":
        arrays["over"] = np.array(problem.over)
    if problem.welfare is not None:
        arrays["welfare"] = np.array(problem.welfare)
    if problem.has_floors:
        arrays["floor"] = problem.floors
    for key, names in (("resources", problem.resources), ("group", problem.groups)):
        if names:
            # As bytes: NumPy stores four bytes per character.
            arrays[key] = np.array(json.dumps(names, ensure_ascii=False).encode())
    if tables.labels:
        entries = [{"name": name, "states": states, "actions": actions} for name, states, actions in tables.labels]
        arrays["labels"] = np.array(json.dumps(entries, ensure_ascii=False).encode())
    np.savez(stream, **arrays)  # type: ignore[arg-type]


def to_npz(problem: CoupledMDP) -> bytes:
    """Return a problem as the bytes of an archive, for `load(stream, "npz")`."""
    stream = io.BytesIO()
    write_npz(problem, stream)
    return stream.getvalue()


def _by_action(tables: ArmTables) -> Floats:
    """(block, action, resource) usage if no arm's usage depends on its state, else with the state."""
    first = tables.usage[:, :1]
    # Equal to the last bit, except for padding.
    same = (bits(tables.usage) == bits(first)) | ~tables.valid[..., None]
    return np.ascontiguousarray(first[:, 0]) if same.all() else tables.usage
