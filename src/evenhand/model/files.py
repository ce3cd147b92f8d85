"""Model files, in and out: TOML, JSON with the same keys, or the same keys as arrays in an `.npz`.

    discount, budget                          of the problem; without a discount it is 1, if the criterion allows that
    resources                                 optional names of the resources
    criterion, over                           optional: `discounted`, `arms`
    welfare                                   optional text: what `--welfare` is when absent
    arms[...]: transitions, rewards, usage    of each block of identical arms
               initial, count                 optional: uniform, 1
               group, floor                   optional: a group of its own, 0
               name, states, actions          optional labels

In an `.npz` the blocks are the first axis of each array, padded with zeros to the largest arm:

    discount ()   budget (resource,)   count (block,)   transitions (block, state, action, next_state)
    rewards (block, state, action)     usage (block, state, action, resource) or (block, action, resource)
    initial (block, state)   num_states (block,)   num_actions (block,)   floor (block,)   criterion (): a text
    over (), welfare (): texts          labels (), resources (), group (): JSON texts

where `labels` is a list with one table of `name`, `states`, `actions` a block, `resources` a list of names, and `group`
a list with one name a block. Optional are all but `budget`, `transitions`, `rewards` and `usage`, as above; without
`num_states` and `num_actions` there is no padding.

Reading notes every fault with its place in the words of the file. Writing is exact, to the last bit, and an
interrupted write leaves what was there before.
"""

import contextlib
import glob
import io
import json
import math
import os
import re
import reprlib
import secrets
import shutil
import tomllib
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NoReturn, TypeAlias, TypeVar

import numpy as np

from evenhand.checks import Describe, Faults, check_finite, check_memory, hearing, why_unreadable
from evenhand.display import counted
from evenhand.errors import EvenhandError, Fault, InvalidInput, ModelError, Normalised, TooLarge, nearest
from evenhand.model.arm import Arm, ArmTables
from evenhand.model.arrays import ARRAY_OVERHEAD, DAMAGE, read_member
from evenhand.model.coupled import (
    CoupledMDP,
    read_budget,
    read_counts,
    read_criterion,
    read_floors,
    read_groups,
    read_names,
    read_over,
    read_welfare_text,
)
from evenhand.model.criterion import parse_criterion
from evenhand.model.places import Names, called, with_words
from evenhand.model.simulator import needs_tables
from evenhand.typing import Array, Bools, Floats, Indices

__all__ = ["load", "save", "write_atomically"]

Location: TypeAlias = str | os.PathLike[str]
Labels: TypeAlias = tuple[str, tuple[str, ...], tuple[str, ...]]
Choice = TypeVar("Choice")
Asked: TypeAlias = str | None
Format: TypeAlias = Literal["toml", "json", "npz"]

FORMATS: tuple[Format, ...] = ("toml", "json", "npz")
"""Of files and streams; a table of arms in Parquet is a file or a folder, never a stream (`model/parquet`)."""

TOP_KEYS = ("discount", "budget", "resources", "criterion", "over", "welfare", "arms")
NEEDED_KEYS = ("discount", "budget", "arms")
NEEDED_OF_ARM = ("transitions", "rewards", "usage")
BLOCK_KEYS = ("count", "group", "floor")
ARM_KEYS = ("name", "states", "actions", *BLOCK_KEYS, *NEEDED_OF_ARM, "initial")

MISSING = {"discount": "; give one below 1, or a criterion that needs none: average or finite:T"}
"""What to do about a key that is missing, where that is not plain."""

DEEPEST = 16
"""Lists and tables within one another; the format needs six."""

TEXT_OVERHEAD = 16
"""Bytes of memory for a byte of text: four letters become a number of 24 bytes, and pointers to it."""


# In and out: the files as a whole


def load(path: Location | BinaryIO, format: Format | None = None, criterion: str | None = None) -> CoupledMDP:
    """Read a model file.

    Probabilities that nearly sum to 1, such as thirds written 0.3333333, are divided by their sum; the warning
    `errors.Normalised` tells which.

    Args:
        path: a `.toml`, `.json`, `.npz` or `.parquet` file, or a folder of the latter; or a binary stream, such as
            `sys.stdin.buffer`.
        format: `toml`, `json` or `npz`, which a stream needs; the suffix of the file's name when absent.
        criterion: `discounted`, `average` or `finite:T`, in the place of the file's own; a file needs no discount
            where this needs none.

    Raises:
        ModelError: with every fault of the file.
        InvalidInput: no such file, or not a kind of file that is known.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save(problem, "machines.toml")
        >>> eh.load("machines.toml")
        CoupledMDP(3 arms, identical, 1 resource, discount 0.95)
    """
    loaded = load_noting(path, format, criterion)
    if loaded.rows:
        warnings.warn(Normalised(loaded.rows, loaded.name), stacklevel=2)
    return loaded.problem


@dataclass(frozen=True, eq=False)
class Loaded:
    """A problem, and what is known of the file it was read from."""

    problem: CoupledMDP
    """What the file says."""

    rows: tuple[Fault, ...] = ()
    """The rows that were normalised, each with its sum."""

    name: str = ""
    """What people call the file."""


def load_noting(path: Location | BinaryIO, format: Format | None = None, criterion: str | None = None) -> Loaded:
    """The same as `load`, with the rows that were normalised instead of a warning."""
    if criterion is not None:
        parse_criterion(criterion, 0.0)  # so that what was asked for is not told as a fault of the file
    # A name is a file; anything else is taken for a stream.
    file = _named(path) if isinstance(path, (str, os.PathLike)) else None
    if file is not None and format is None and is_stored(file):
        return _load_stored(file, criterion)
    name = str(file) if file is not None else _name_of_stream(path)
    read = {"toml": _load_toml, "json": _load_json, "npz": _load_npz}[_format_of(file, format, name)]
    try:
        # One way for both; a stream that the caller opened is the caller's to close.
        with file.open("rb") if file is not None else contextlib.nullcontext(path) as stream:
            return replace(read(_seekable(stream), criterion), name=name)  # type: ignore[arg-type]  # told apart above
    except ModelError as error:
        raise ModelError(error.faults, name) from None
    # Too large for this machine is a fault of the file to whoever reads it.
    except TooLarge as error:
        raise ModelError([Fault("", str(error))], name) from None
    except OSError as error:
        reason = (
            why_unreadable(file, error, [f".{known}" for known in FORMATS])
            if file is not None
            else error.strerror or error
        )
        raise InvalidInput(f"{name}: cannot be read: {reason}") from None


def is_stored(path: object) -> bool:
    """Whether a name is that of a model in Parquet: a file `.parquet`, or a folder with some."""
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        return False
    place = Path(path)
    return place.suffix.lower() == ".parquet" or (place.is_dir() and any(place.glob("*.parquet")))


def _load_stored(file: Path, criterion: Asked) -> Loaded:
    """A table of arms, read whole."""
    from evenhand.model.parquet import open_arms  # what reads Parquet knows files

    with hearing() as rows:
        problem = open_arms(file).problem()
    return Loaded(problem if criterion is None else problem.under(criterion), tuple(rows), str(file))


def _format_of(file: Path | None, format: str | None, name: str) -> str:
    """What is asked for, or what the file's name says."""
    if format is None and file is not None:
        return _by_suffix(file, {f".{known}": known for known in FORMATS})
    if format not in FORMATS:
        wanted = "which format it has" if format is None else f"a format that is known, not {format!r}"
        raise InvalidInput(f"{name}: say {wanted}: {', '.join(FORMATS)}")
    return format


def _name_of_stream(stream: object) -> str:
    """What a person calls it."""
    name = getattr(stream, "name", None)
    return "standard input" if name == "<stdin>" else name if isinstance(name, str) else "the stream"


def _seekable(stream: BinaryIO) -> BinaryIO:
    """The same bytes; those of a pipe are fetched first."""
    return stream if stream.seekable() else io.BytesIO(stream.read())


def save(problem: CoupledMDP, path: Location) -> None:
    """Write a model file that reads back as an equal problem; all of it, or nothing.

    Args:
        problem: what to write.
        path: a `.toml`, `.json`, `.npz` or `.parquet` file; one that is there already is replaced.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save(problem, "machines.toml")
        >>> eh.load("machines.toml") == problem
        True
    """
    problem = needs_tables(problem, "a model file")
    file = _named(path)
    if file.suffix.lower() == ".parquet":
        from evenhand.model.parquet import save_parquet  # what writes Parquet knows files

        save_parquet(problem, file)
        return
    write = _by_suffix(file, {".toml": _save_toml, ".json": _save_json, ".npz": _save_npz})
    try:
        with replacing(file) as stream:
            write(problem, stream)
    except UnicodeEncodeError as error:
        broken = error.object[error.start : error.end]
        raise InvalidInput(f"{file}: not written: a label holds {broken!r}, which is not Unicode text") from None


def to_npz(problem: CoupledMDP) -> bytes:
    """Return a problem as the bytes of an `.npz` file, for `load(stream, "npz")`."""
    stream = io.BytesIO()
    _save_npz(problem, stream)
    return stream.getvalue()


def as_json(value: Any) -> Any:
    """Results as JSON has them: arrays become lists, numbers that it lacks (infinite, not a number) null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(entry) for entry in value]
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Writing wholly or not at all


def write_atomically(path: Location, data: bytes) -> None:
    """Write a file wholly or not at all: beside it first, then renamed.

    Args:
        path: the file; one that is there already is replaced, and keeps its permissions.
        data: its new content.
    """
    with replacing(_named(path)) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends well, and vanishes when it does not."""
    try:
        target = Path(os.path.realpath(path))  # a link stays, and what it points to is replaced
        if target.exists() and not target.is_file():
            raise InvalidInput(f"{path}: cannot be written: it is not a file")
        # Before the new one: what a killed process left would otherwise stay for ever.
        sweep(target)
        # The number of the process is in the name, so that a sweep can tell whether its writer still lives. In the same
        # folder: a file is renamed in one step only within a file system.
        beside = target.with_name(f".evenhand-{target.name}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
        stream = beside.open("xb")
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInput(f"{path}: cannot be written: there is no directory {path.parent}") from None
    except PermissionError:
        raise InvalidInput(f"{path}: cannot be written: permission denied") from None
    try:
        with stream:
            yield stream
            # To the disk before the renaming: otherwise a crash might leave the new name with no content.
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    # An interrupt, too, must not leave the half-written file.
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def sweep(target: Path) -> None:
    """Remove what processes that were killed left of this file or folder, half written."""
    for left in target.parent.glob(f".evenhand-{glob.escape(target.name)}-*-*.tmp"):
        with contextlib.suppress(ValueError, OSError):
            if not _is_running(int(left.stem.split("-")[-2])):
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _is_running(process: int) -> bool:
    try:
        # Signal 0 asks whether the process exists, and does nothing to it.
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _named(path: Location) -> Path:
    if "\0" in os.fspath(path):
        raise InvalidInput(f"{os.fspath(path)!r} is not the name of a file")
    return Path(path)


def _by_suffix(file: Path, choices: Mapping[str, Choice]) -> Choice:
    suffix = file.suffix.lower()
    if suffix not in choices:
        got = f"'{suffix}'" if suffix else "without a suffix"
        raise InvalidInput(f"{file}: unknown kind of model file {got}; known are {', '.join(choices)}")
    return choices[suffix]


def _refuse(message: str) -> NoReturn:
    """The file as a whole cannot be read, so there is one fault only."""
    raise ModelError([Fault("", message)])


# Keys


def _check_keys(
    given: Collection[str], known: Collection[str], needed: Iterable[str], place: str, faults: Faults
) -> None:
    """Note the keys that are unknown, with what was probably meant, and those that are missing."""
    for key in given:
        if key not in known:
            faults.add(_inside(place, key), f"unknown key{_hint(key, known)}")
    for key in needed:
        if key not in given:
            faults.add(_inside(place, key), f"missing{MISSING.get(key, '')}")


def _hint(key: str, known: Collection[str]) -> str:
    # A key on the wrong level is known, and a nearest name would mislead.
    if known == ARM_KEYS and key in TOP_KEYS:
        return " here; it belongs to the whole problem, above the first of the arms"
    if known == TOP_KEYS and key in ARM_KEYS:
        return " here; it belongs inside each of the arms"
    near = nearest(key, known)
    return f", did you mean '{near}'?" if near else f"; known are {', '.join(known)}"


def _inside(place: str, key: str) -> str:
    shown = key if re.fullmatch(r"[\w-]{1,60}", key) else reprlib.repr(key)
    return f"{place}.{shown}" if place else shown


# TOML and JSON, in


def _load_toml(stream: BinaryIO, criterion: Asked) -> Loaded:
    text = _read_text(stream)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _refuse(f"invalid TOML: {error}")
    except RecursionError:
        _refuse("not a model: lists within lists, too deep to be read")
    except ValueError:  # Python's own limit on the digits of a whole number
        _refuse("not a model: it holds a whole number of thousands of digits")
    return _read_document(document, criterion)


def _load_json(stream: BinaryIO, criterion: Asked) -> Loaded:
    text = _read_text(stream)
    try:
        document = json.loads(text, object_pairs_hook=_Table, parse_int=_whole_number)
    except json.JSONDecodeError as error:
        _refuse(f"invalid JSON: {error}")
    except RecursionError:
        _refuse("not a model: lists within lists, too deep to be read")
    return _read_document(document, criterion)


class _Table(dict[str, object]):
    """A JSON object that remembers which of its keys were written more than once."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        # Counting is skipped where every key made an entry of its own.
        times = Counter(key for key, _ in pairs) if len(pairs) > len(self) else {}
        self.repeated = [key for key, number in times.items() if number > 1]


def _whole_number(text: str) -> int | float:
    # Python refuses to make an int of thousands of digits; float() takes any number of them.
    return int(text) if len(text) < 300 else float(text)


def _read_text(stream: BinaryIO) -> str:
    size = stream.seek(0, os.SEEK_END)
    check_memory(TEXT_OVERHEAD * size, "to read this text", "Write it as an .npz file.")
    stream.seek(0)
    data = stream.read()
    if not data.strip():
        _refuse("the file is empty")
    try:
        # A byte-order mark, which some editors write, is dropped.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        _refuse(f"not UTF-8 text: byte 0x{data[error.start]:02x} in line {line}")


def _read_document(document: object, asked: Asked) -> Loaded:
    faults, rows = Faults(), list[Fault]()
    document = _tidy(document, "", faults)
    if not isinstance(document, dict):
        _refuse(f"expected a table with the keys {', '.join(NEEDED_KEYS)}; got {reprlib.repr(document)}")
    # The criterion that was asked for, where one was, decides which keys are needed.
    criterion = document.get("criterion", "discounted") if asked is None else asked
    _check_keys(document, TOP_KEYS, _needed_at_top(criterion), "", faults)
    blocks = _read_blocks(document["arms"], faults) if "arms" in document else []
    # An arm with faults is None, and the others are read all the same.
    arms = [_read_block(block, f"arms[{i}]", faults, rows) for i, block in enumerate(blocks)]
    tables = [block if isinstance(block, dict) else {} for block in blocks]
    counts = [block.get("count", 1) for block in tables]
    groups, floors = [block.get("group", "") for block in tables], [block.get("floor", 0.0) for block in tables]
    # Each of these notes its faults and goes on, so that a user sees all of them; what is read here is read again, and
    # kept, by the problem itself.
    read_counts(counts, None, faults)
    read_groups(groups, None, faults)
    read_floors(floors, None, faults)
    names = [Names.of_block(block) for block in blocks]
    num_resources = _common_resources(arms, names, faults) or _written_resources(blocks)
    if "budget" in document:
        read_budget(document["budget"], num_resources, faults)
    resources = document.get("resources", ())
    read_names(resources, num_resources, "resources", faults)
    over = document.get("over", "arms")
    # A missing discount has been told as missing: a stand-in that fits keeps it from being told twice.
    read_criterion(document.get("discount", 1.0 if criterion != "discounted" else 0.0), criterion, faults)
    # The file's own criterion is not used, but a fault in it is still a fault of the file.
    if asked is not None:
        read_criterion(0.0, document.get("criterion", "discounted"), faults)
    read_over(over, faults)
    read_welfare_text(document.get("welfare"), None, faults)
    if faults:
        raise ModelError(with_words(faults.found, names, resources))
    sound = [arm for arm in arms if arm is not None]
    problem = CoupledMDP(
        arms=sound,
        budget=document["budget"],
        discount=document.get("discount", 1.0),
        counts=np.array(counts),
        resources=resources,
        groups=groups,
        floors=np.array(floors, dtype=np.float64),
        criterion=criterion,  # type: ignore[arg-type]  # text is read by the problem
        over=over,
        welfare=document.get("welfare"),
    )
    return Loaded(problem, tuple(with_words(rows, names)))


def _needed_at_top(criterion: object) -> tuple[str, ...]:
    """A discount is needed unless the criterion does without."""
    return NEEDED_KEYS if criterion == "discounted" else tuple(key for key in NEEDED_KEYS if key != "discount")


def _tidy(value: object, place: str, faults: Faults, depth: int = 0) -> object:
    """The same document as plain lists and tables, without what would trip its readers."""
    if isinstance(value, (list, dict)) and depth == DEEPEST:
        _refuse("not a model: lists within lists, too deep to be read")
    if isinstance(value, list):
        return [
            # Floats are most of any file; a call for each would be most of the time.
            entry if type(entry) is float else _tidy(entry, f"{place}[{i}]", faults, depth + 1)
            for i, entry in enumerate(value)
        ]
    if isinstance(value, dict):
        for key in value.repeated if isinstance(value, _Table) else ():
            faults.add(_inside(place, key), "this key is written more than once")
        return {key: _tidy(entry, _inside(place, key), faults, depth + 1) for key, entry in value.items()}
    if isinstance(value, str) and not _is_unicode(value):
        faults.add(place, "is not Unicode text: it holds half of a surrogate pair")
    if isinstance(value, int) and abs(value) >= 10**300:  # no double is that large: what 1e999 becomes
        return math.inf if value > 0 else -math.inf
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_blocks(value: object, faults: Faults) -> list[object]:
    if isinstance(value, list):
        if not value:
            faults.add("arms", "there is none; a problem needs at least one")
        return value
    hint = "; in TOML each begins with [[arms]]" if isinstance(value, dict) else ""
    faults.add("arms", f"expected a list of tables, got {reprlib.repr(value)}{hint}")
    return []


def _read_block(block: object, place: str, faults: Faults, rows: list[Fault]) -> Arm | None:
    if not isinstance(block, dict):
        faults.add(place, f"expected a table, got {reprlib.repr(block)}")
        return None
    _check_keys(block, ARM_KEYS, NEEDED_OF_ARM, place, faults)
    # Arm is given None for what is missing, and its complaint is dropped: the key was told already.
    missing: dict[str, object] = {key: None for key in NEEDED_OF_ARM if key not in block}
    own = [key for key in ARM_KEYS if key not in BLOCK_KEYS]
    given: dict[str, object] = {key: value for key, value in block.items() if key in own}
    try:
        # Warnings of rows that were normalised are caught here, to be told with their place in the file.
        with hearing() as heard:
            arm = Arm(**(given | missing))  # type: ignore[arg-type]  # Arm says what is not an array
        rows.extend(row.within(place) for row in heard)
        return arm
    except ModelError as error:
        told = [fault for fault in error.faults if fault.place not in missing]
        faults.found.extend(fault.within(place) for fault in told)
        return None


def _common_resources(arms: Iterable[Arm | None], names: Sequence[Names], faults: Faults) -> int | None:
    """The number of resources, as the first sound arm has it."""
    first: tuple[int, int] | None = None
    for index, arm in enumerate(arms):
        number = None if arm is None else arm.usage.shape[2]
        if number is not None and first is None:
            first = (index, number)
        elif number is not None and first is not None and number != first[1]:
            known = called(names[first[0]].name, first[0])
            faults.add(f"arms[{index}].usage", f"has {number} resources where {known} has {first[1]}")
    return None if first is None else first[1]


def _written_resources(blocks: Sequence[object]) -> int | None:
    """The number of resources as the usage of the first block has it, where no arm is sound."""
    for block in blocks:
        entry = block.get("usage") if isinstance(block, dict) else None
        width, depth = 0, 0
        # The depth of the first entries tells whether the last axis is that of resources.
        while isinstance(entry, list) and entry:
            width, depth, entry = len(entry), depth + 1, entry[0]
        if depth in (2, 3) and not isinstance(entry, list):
            return width
    return None


# TOML and JSON, out


def _save_toml(problem: CoupledMDP, stream: BinaryIO) -> None:
    head = "".join(f"{key} = {text}\n" for key, text in _head_as_text(problem).items())
    tables = (
        "\n[[arms]]\n" + "".join(f"{key} = {text}\n" for key, text in items.items())
        for items in _blocks_as_text(problem)
    )
    stream.write((head + "".join(tables)).encode())


def _save_json(problem: CoupledMDP, stream: BinaryIO) -> None:
    tables = (_braced(items) for items in _blocks_as_text(problem))
    stream.write((_braced({**_head_as_text(problem), "arms": _lines(tables)}) + "\n").encode())


def _head_as_text(problem: CoupledMDP) -> dict[str, str]:
    """The keys of the whole problem, written so that they are TOML and JSON alike; what is as usual is left out."""
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
    """The keys of each block with their values, written so that they are TOML and JSON alike."""
    tables = problem.tables
    for i, count in enumerate(problem.counts.tolist()):
        s, a = tables.num_states[i], tables.num_actions[i]
        name, states, actions = tables.labels[i] if tables.labels else ("", (), ())
        # Labels first, then numbers: a person reads the file from the top.
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
    # Written once where it is the same in every state, to the last bit: reading repeats it.
    return _line(usage[0]) if _same_bits(usage, usage[:1]) else _lines(_line(state) for state in usage)


def _same_bits(left: Floats, right: Floats) -> bool:
    return bool((_bits(left) == _bits(right)).all())


def _bits(values: Floats) -> Array:
    """The same numbers where -0.0 is not 0.0."""
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


# Arrays, in

TABLE_AXES: dict[str, tuple[str, ...]] = {
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
ARRAY_AXES = {"discount": (), "budget": ("resource",), **TABLE_AXES, **dict.fromkeys(TEXTS, ())}
NEEDED_ARRAYS = ("budget", *NEEDED_OF_ARM)
WHOLE_NUMBERS = ("count", "num_states", "num_actions")


def _load_npz(stream: BinaryIO, asked: Asked) -> Loaded:
    # The archive, the arms, then what belongs to the whole problem.
    faults = Faults()
    arrays = _read_archive(stream, faults, asked)
    tables = _read_tables(arrays, faults)
    counts, budget, floors = (arrays.get(key) for key in ("count", "budget", "floor"))
    written, over = _plain_text(arrays.get("criterion"), "discounted"), _plain_text(arrays.get("over"), "arms")
    criterion = written if asked is None else asked
    if asked is not None:
        read_criterion(0.0, written, faults)
    elif "criterion" in arrays and written == "discounted" and not _is_known("discount", arrays, faults):
        faults.add("discount", f"missing{MISSING['discount']}")
    welfare = _plain_text(arrays["welfare"], "") if "welfare" in arrays else None
    resources, groups = (_text_list(arrays.get(key), key, faults) for key in ("resources", "group"))
    discount: Any = arrays["discount"][()] if "discount" in arrays else 1.0
    by_action = "usage" in arrays and arrays["usage"].ndim == 3
    # All parts are there: the problem checks them together, and its faults are told in the words of arrays.
    if tables is not None and budget is not None and not faults:
        try:
            with hearing() as rows:
                problem = CoupledMDP(
                    arms=tables,
                    budget=budget,
                    discount=discount,
                    counts=counts,  # type: ignore[arg-type]
                    resources=resources,
                    groups=groups,
                    floors=floors,  # type: ignore[arg-type]
                    criterion=criterion,  # type: ignore[arg-type]
                    over=over,  # type: ignore[arg-type]
                    welfare=welfare,
                )
            return Loaded(problem, tuple(_in_words_of_arrays(rows, tables, resources, by_action)))
        except ModelError as error:
            raise ModelError(list(_in_words_of_arrays(error.faults, tables, resources, by_action))) from None
    # Something is wrong with the file already. What else can be told of its parts is told along with it.
    found = Faults()
    if tables is not None:
        found.found.extend(tables.find_faults().found)
    if counts is not None:
        read_counts(counts, None, found)
    if budget is not None:
        read_budget(budget, arrays["usage"].shape[-1] if "usage" in arrays else None, found)
    if "discount" in arrays:
        read_criterion(discount, criterion, found)
    raise ModelError([*faults.found, *_in_words_of_arrays(found.found, tables, resources, by_action)])


def _is_known(key: str, arrays: dict[str, Array], faults: Faults) -> bool:
    """Whether an array was read, or is told of already."""
    return key in arrays or any(fault.place == key for fault in faults.found)


def _in_words_of_arrays(
    faults: Iterable[Fault], tables: ArmTables | None, resources: Sequence[str], by_action: bool
) -> Iterator[Fault]:
    """Faults of arms by their names and by their places in the arrays: for `arms[2].rewards[0]`, `rewards[2][0]`."""
    names = [] if tables is None else tables.names
    for fault in with_words(faults, names, resources, labelled=True):
        # Faults speak of `arms[2].rewards[0]`; in an archive the block is the first index of each array.
        match = re.fullmatch(r"arms\[(\d+)\]\.(\w+)(?:\[(\d+)\])?(.*)", fault.place)
        if match is None:
            yield replace(fault, place=_PLURALS.get(fault.place, fault.place))
            continue
        block, key, first, rest = match.groups()
        if first is None:
            yield replace(fault, place=f"{key}[{block}]")
        elif not (by_action and key == "usage"):
            yield replace(fault, place=f"{key}[{block}][{first}]{rest}")
        elif first == "0":  # in the file there is no state here, and the other states say the same
            plain_names = [replace(own, by_state=False) for own in names]
            (told,) = with_words([replace(fault, place=f"arms[{block}].{key}{rest}")], plain_names, resources, True)
            yield replace(told, place=f"{key}[{block}]{rest}")


_PLURALS = {"counts": "count", "arms": "count", "groups": "group", "floors": "floor"}
"""What the arrays of a file are called where a problem has another word."""


def _read_archive(stream: IO[bytes], faults: Faults, asked: Asked) -> dict[str, Array]:
    """The arrays of the known keys whose kind and number of axes are right."""
    try:
        # Sizes are read from the directory of the archive, before anything is unpacked.
        with zipfile.ZipFile(stream) as archive:
            members = _find_members(archive, faults, asked)
            size = sum(member.file_size for member in members.values())
            check_memory(ARRAY_OVERHEAD * size, "to read these arrays", "Split the problem, or use a larger machine.")
            read = {key: read_member(archive, member, key, _header_fault, faults) for key, member in members.items()}
    except EvenhandError:
        raise
    except DAMAGE as error:
        _refuse(f"not an .npz file, or a damaged one: {error}")
    return {key: array for key, array in read.items() if array is not None}


def _find_members(archive: zipfile.ZipFile, faults: Faults, asked: Asked) -> dict[str, zipfile.ZipInfo]:
    members = archive.infolist()
    times = Counter(member.filename.removesuffix(".npy") for member in members)
    # A file that names a criterion may do without a discount; whether it can is checked with the criterion.
    without = "criterion" in times if asked is None else "discount" not in _needed_at_top(asked)
    needed = NEEDED_ARRAYS if without else ("discount", *NEEDED_ARRAYS)
    _check_keys(times, ARRAY_AXES, needed, "", faults)
    for key, number in times.items():
        if number > 1:
            faults.add(_inside("", key), f"this array is in the file {number} times")
    named = {member.filename.removesuffix(".npy"): member for member in members}
    return {key: named[key] for key in ARRAY_AXES if key in named}


def _header_fault(key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Why an array of this shape and kind cannot stand under this key; empty when it can."""
    if key in TEXTS and (dtype.kind not in "US" or shape):
        kind = "text" if key in ("criterion", "over", "welfare") else "JSON text"
        return f"expected one {kind}, got {dtype} of shape {shape}"
    kinds = "US" if key in TEXTS else "iu" if key in WHOLE_NUMBERS else "fiu"
    if dtype.kind not in kinds:
        return f"expected {'whole ' if key in WHOLE_NUMBERS else ''}numbers, got {dtype}"
    # Usage may lack its state axis; all others have one form.
    allowed = [ARRAY_AXES[key], *([USAGE_BY_ACTION] if key == "usage" else [])]
    if len(shape) not in map(len, allowed):
        wanted = " or ".join(f"({', '.join(axes)})" for axes in allowed)
        return f"expected the axes {wanted}, got shape {shape}"
    return "is empty" if 0 in shape else ""


def _read_tables(arrays: Mapping[str, Array], faults: Faults) -> ArmTables | None:
    """The arms, if the shapes of their arrays agree; otherwise what can be said of each array alone."""
    # Arrays that do not fit each other, or are not all there, cannot be read as arms: each is looked at for itself.
    if not _shapes_agree(arrays, faults) or not all(key in arrays for key in NEEDED_OF_ARM):
        for key in (*NEEDED_OF_ARM, "initial"):
            if key in arrays:
                check_finite(np.asarray(arrays[key], dtype=np.float64), key, faults)
        return None
    num_blocks, S, A = arrays["rewards"].shape
    num_states = _read_sizes(arrays.get("num_states"), "num_states", num_blocks, S, faults)
    num_actions = _read_sizes(arrays.get("num_actions"), "num_actions", num_blocks, A, faults)
    labels = _read_labels(arrays.get("labels"), num_states, num_actions, faults)
    if num_states is None or num_actions is None:
        return None
    real_states = np.arange(S) < num_states[:, None]
    real_actions = np.arange(A) < num_actions[:, None]
    _check_padding(arrays, real_states, real_actions, faults)
    usage = arrays["usage"]
    # Usage by action is repeated for every real state; padding stays 0.
    if usage.ndim == 3:
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
    # The first array that has an axis sets its size, and is named where another disagrees.
    sizes: dict[str, tuple[int, str]] = {}
    for key in (key for key in TABLE_AXES if key in arrays):
        axes = TABLE_AXES[key] if arrays[key].ndim == len(TABLE_AXES[key]) else USAGE_BY_ACTION
        for axis, size in zip(axes, arrays[key].shape, strict=True):
            noun = "state" if axis == "next state" else axis
            wanted, source = sizes.setdefault(noun, (size, key))
            if size != wanted:
                faults.add(key, f"has {size} {axis}s where {source} has {wanted} {noun}s")
    return len(faults.found) == before


def _read_sizes(given: Array | None, key: str, num_blocks: int, most: int, faults: Faults) -> Indices | None:
    """(block,) how many states or actions are real, each from 1 to as many as the arrays have room for."""
    # Without sizes there is no padding.
    if given is None:
        return np.full(num_blocks, most, dtype=np.int32)
    wrong = (given < 1) | (given > most)
    faults.flag(key, wrong, Describe(f"{{value}} is not from 1 to {most}, the size of the arrays", given))
    return None if wrong.any() else given.astype(np.int32)


def _check_padding(arrays: Mapping[str, Array], states: Bools, actions: Bools, faults: Faults) -> None:
    """What lies beyond an arm's own states and actions is 0: anything else is probably a wrong size.

    Args:
        arrays: the arrays of the file.
        states: (block, state) whether a state is real.
        actions: (block, action) whether an action is real.
        faults: where faults are noted.
    """
    if states.all() and actions.all():
        return
    # Where numbers may stand: pairs of a real state and a real action, and real next states.
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
    given: Array | None, num_states: Indices | None, num_actions: Indices | None, faults: Faults
) -> tuple[Labels, ...]:
    """The labels of each block, from a JSON list of tables; empty when there are none."""
    if given is None:
        return ()
    try:
        # Texts come as bytes or as characters, depending on who wrote the archive.
        text = given.item().decode() if given.dtype.kind == "S" else given.item()
        entries = _tidy(json.loads(text, object_pairs_hook=_Table), "labels", faults)
    except (ValueError, RecursionError) as error:
        faults.add("labels", f"not a JSON text: {error}")
        return ()
    if not isinstance(entries, list):
        faults.add("labels", "expected a list with one table a block")
        return ()
    sizes = {"states": num_states, "actions": num_actions}
    for numbers in (numbers for numbers in sizes.values() if numbers is not None and len(numbers) != len(entries)):
        faults.add("labels", f"has {len(entries)} entries for {len(numbers)} blocks")
        return ()
    labels = tuple(_read_label(entry, i, sizes, faults) for i, entry in enumerate(entries))
    # No labels at all and empty labels are the same model.
    return labels if any(label != ("", (), ()) for label in labels) else ()


def _plain_text(given: Array | None, usual: str) -> str:
    if given is None:
        return usual
    text = given.item()
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def _text_list(given: Array | None, key: str, faults: Faults) -> tuple[str, ...]:
    """Names, from a JSON list; empty when there are none."""
    if given is None:
        return ()
    try:
        names = _tidy(json.loads(_plain_text(given, "[]")), key, faults)
    except (ValueError, RecursionError) as error:
        faults.add(key, f"not a JSON text: {error}")
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        faults.add(key, f"expected a list of names, got {reprlib.repr(names)}")
        return ()
    return tuple(names)


def _read_label(entry: object, index: int, sizes: Mapping[str, Indices | None], faults: Faults) -> Labels:
    place = f"labels[{index}]"
    if not isinstance(entry, dict):
        faults.add(place, f"expected a table, got {reprlib.repr(entry)}")
        return ("", (), ())
    _check_keys(entry, ("name", "states", "actions"), (), place, faults)
    name = entry.get("name", "")
    if not isinstance(name, str):
        faults.add(f"{place}.name", f"expected text, got {reprlib.repr(name)}")
    names = {
        key: _read_names(entry.get(key, []), None if numbers is None else int(numbers[index]), f"{place}.{key}", faults)
        for key, numbers in sizes.items()
    }
    return (str(name), names["states"], names["actions"])


def _read_names(value: object, size: int | None, place: str, faults: Faults) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        faults.add(place, f"expected a list of names, got {reprlib.repr(value)}")
        return ()
    if len(set(value)) < len(value):
        faults.add(place, "has the same name twice")
    if value and size is not None and len(value) != size:
        faults.add(place, f"has {counted(len(value), 'label')} where there {'is' if size == 1 else 'are'} {size}")
    return tuple(value)


# Arrays, out


def _save_npz(problem: CoupledMDP, stream: BinaryIO) -> None:
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
    # What is as usual is left out, as in text files: old readers then read new files.
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
            # As bytes: NumPy would keep four bytes for every character.
            arrays[key] = np.array(json.dumps(names, ensure_ascii=False).encode())
    if tables.labels:
        entries = [{"name": name, "states": states, "actions": actions} for name, states, actions in tables.labels]
        arrays["labels"] = np.array(json.dumps(entries, ensure_ascii=False).encode())
    np.savez(stream, **arrays)  # type: ignore[arg-type]


def _by_action(tables: ArmTables) -> Floats:
    """(block, action, resource) usage where no arm's usage depends on its state, else with the state."""
    first = tables.usage[:, :1]
    # To the last bit, and whatever stands in the padding.
    same = (_bits(tables.usage) == _bits(first)) | ~tables.valid[..., None]
    return np.ascontiguousarray(first[:, 0]) if same.all() else tables.usage
