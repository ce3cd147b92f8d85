"""Checks of arguments: the name, what was expected, what came. Faults are collected: a user sees all of them."""

import contextlib
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from numbers import Real
from pathlib import Path

import numpy as np

from evenhand.errors import Fault, InvalidInput, ModelError, Normalised, TooLarge, nearest
from evenhand.typing import Array, ArrayLike, Bools, Floats, Rng

LARGEST = 1e12
"""The largest magnitude of a reward, usage or budget: beyond it doubles lose the digits that a certificate needs."""

SUM_TOLERANCE = 1e-8
"""How far the sum of weights or probabilities may be from 1 without a word."""

NEARLY_ONE = 1e-4 * (1 + 1e-9)
"""How far the sum of probabilities of a model may be from 1 to be divided by it, with a note: four digits of thirds."""

LOOK_CLOSELY_UP_TO = 100_000
"""Numbers in lists that are checked one by one before NumPy sees them."""

SHOWN_PER_ARRAY = 10
"""Faults of one kind shown for one array; a bad array has thousands of them."""


class Faults:
    """A list of faults that is raised at the end, as a whole."""

    def __init__(self) -> None:
        self.found: list[Fault] = []

    def add(self, place: str, message: str) -> None:
        """Note one fault."""
        self.found.append(Fault(place, message))

    def flag(self, place: str, bad: Bools, describe: "Describe") -> None:
        """Note every True entry of `bad`, with its indices behind `place`, up to a limit."""
        if not bad.any():
            return
        where = np.argwhere(bad)
        for index in where[:SHOWN_PER_ARRAY]:
            key = tuple(int(i) for i in index)
            self.add(place + "".join(f"[{i}]" for i in key), describe(key))
        if len(where) > SHOWN_PER_ARRAY:
            more = len(where) - SHOWN_PER_ARRAY
            self.found.append(Fault(place, f"... and {more} more such entries", stands_for=more))

    def raise_if_any(self, source: str = "", argument: str = "") -> None:
        """Raise ModelError with all faults, if there are any."""
        if self.found:
            raise ModelError(self.found, source, argument=argument)

    def __bool__(self) -> bool:
        return bool(self.found)


class Describe:
    """Words for one bad entry: a template with `{value}` filled from the array at the entry's place."""

    def __init__(self, template: str, values: Array) -> None:
        self.template = template
        self.values = values

    def __call__(self, index: tuple[int, ...]) -> str:
        """The words for the entry at `index`."""
        return self.template.format(value=plain(self.values[index]))


def plain(value: object) -> str:
    """A number as a person would write it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Real, np.number)):
        return repr(value)
    try:
        return f"{float(value):.10g}"
    except OverflowError:
        return "a number of too many digits"


Check = Callable[[Floats, str, "Faults"], object]
"""A check of numbers: notes what is wrong with an array that stands at a place."""


def read_numbers(value: object, axes: Sequence[str], place: str, faults: Faults, check: Check) -> Floats | None:
    """Turn nested lists into an array and check its numbers, or note every fault and return None.

    Args:
        value: nested lists, or an array, as deep as there are axes.
        axes: a name for each axis, e.g. ("state", "action", "next state").
        place: where the value stands.
        faults: where faults are noted.
        check: run on the array; where lists are ragged or hold text, on each of their sound rows.
    """
    before = len(faults.found)
    if not _is_sound(value, len(axes)):
        sound_rows: list[tuple[Floats, str]] = []
        _check_nested(value, axes, _common_lengths(value, len(axes)), place, faults, sound_rows, top=True)
    if len(faults.found) > before:
        if depth := _other_depth(value, len(axes)):  # one fault for all of them
            wanted = "".join(f"[{axis}]" for axis in axes)
            shown = f"is {depth} list{'s' if depth > 1 else ''} deep, expected {len(axes)}: {wanted}"
            faults.found[before:] = [Fault(place, shown)]
            return None
        for row, where in sound_rows:
            check(row, where, faults)
        _shorten(faults, before, place)
        return None
    array = np.array(value, dtype=np.float64)
    check(array, place, faults)
    return array


def _other_depth(value: object, depth: int) -> int:
    """How deep lists of numbers are that are the same everywhere, and not as deep as expected; 0 where they are not."""
    try:
        array = np.array(value) if isinstance(value, (list, tuple)) else None
    except ValueError:  # ragged
        return 0
    regular = array is not None and array.dtype.kind in "fiu" and array.size > 0
    return array.ndim if regular and array is not None and array.ndim != depth else 0


def _is_sound(value: object, depth: int) -> bool:
    """Whether NumPy can vouch for the numbers. Small lists are looked at one by one, to find a `true` among numbers."""
    if not isinstance(value, np.ndarray):
        if not isinstance(value, (list, tuple)) or _first_size(value) < LOOK_CLOSELY_UP_TO:
            return False
        try:
            value = np.array(value)
        except ValueError:
            return False
    return value.dtype.kind in "fiu" and value.ndim == depth and value.size > 0


def _first_size(value: object) -> int:
    size = 1
    while isinstance(value, (list, tuple, np.ndarray)) and len(value):
        size, value = size * len(value), value[0]
    return size


def _common_lengths(value: object, depth: int) -> list[int]:
    """The most frequent length of the lists at each depth below the first: what the odd one out is compared with."""
    lengths = []
    level: list[object] = [value]
    for _ in range(depth):
        lists = [item for item in level if isinstance(item, (list, tuple, np.ndarray))]
        lengths.append(_common_length(lists))
        level = [entry for item in lists[:1000] for entry in item]
    return lengths


def _common_length(lists: Sequence[Sequence[object] | Array]) -> int:
    """The most frequent length; of several the smallest, since a decimal comma makes rows longer."""
    times = Counter(map(len, lists))
    return max(times, key=lambda size: (times[size], -size), default=0)


def _check_nested(
    value: object,
    axes: Sequence[str],
    lengths: Sequence[int],
    place: str,
    faults: Faults,
    rows: list[tuple[Floats, str]],
    top: bool = False,
) -> None:
    if not axes:
        _check_number(value, place, faults)
        return
    if not isinstance(value, (list, tuple, np.ndarray)):
        faults.add(place, f"expected a list with one entry for each {axes[0]}, got {_kind(value)}")
        return
    if len(value) == 0:
        faults.add(place, f"is empty; expected one entry for each {axes[0]}")
        return
    before = len(faults.found)
    if not top and len(value) != lengths[0]:
        hint = comma_hint(len(value), lengths[0]) if len(axes) == 1 else ""
        faults.add(place, f"has {len(value)} entries where the others have {lengths[0]} (one for each {axes[0]}){hint}")
    for index, entry in enumerate(value):
        _check_nested(entry, axes[1:], lengths[1:], f"{place}[{index}]", faults, rows)
    if len(axes) == 1 and not top and len(faults.found) == before:
        rows.append((np.array(value, dtype=np.float64), place))


def _check_number(value: object, place: str, faults: Faults) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Real, np.number)):
        faults.add(place, f"expected a number, got {_kind(value)}")
    elif isinstance(value, int) and abs(value) > 2**63:
        faults.add(place, f"a number of about {round(value.bit_length() * 0.30103)} digits is too large")


def comma_hint(got: int, expected: int) -> str:
    """Hint at a decimal comma, the usual reason for more numbers than expected.

    Args:
        got: how many numbers there are.
        expected: how many there should be.
    """
    return "; use '.' as the decimal separator, since ',' separates numbers" if got > expected else ""


def _kind(value: object) -> str:
    names = {
        dict: "a table",
        list: "a list",
        tuple: "a list",
        str: "text",
        bool: "true/false",
        type(None): "nothing",
    }
    kind = names.get(type(value), "a number" if isinstance(value, Real) else type(value).__name__)
    return f"{kind} ({value!r})" if isinstance(value, (str, bool)) and len(repr(value)) < 40 else kind


def _shorten(faults: Faults, start: int, place: str) -> None:
    extra = len(faults.found) - start - SHOWN_PER_ARRAY
    if extra > 0:
        del faults.found[start + SHOWN_PER_ARRAY :]
        faults.found.append(Fault(place, f"... and {extra} more such faults", stands_for=extra))


def check_finite(values: Floats, place: str, faults: Faults, largest: float = LARGEST) -> bool:
    """Every entry is a number of sensible size; otherwise note each and return False."""
    bad = ~np.isfinite(values)
    faults.flag(place, bad, Describe("is {value}, not a finite number", values))
    huge = ~bad & (np.abs(np.where(bad, 0.0, values)) > largest)
    faults.flag(place, huge, Describe(f"{{value}} is too large (at most {plain(largest)})", values))
    return not (bad.any() or huge.any())


def check_amounts(values: Floats, place: str, faults: Faults) -> None:
    """Every entry is finite and not negative."""
    if check_finite(values, place, faults):
        faults.flag(place, values < 0, Describe("{value} is negative", values))


def check_nearly_distributions(values: Floats, place: str, faults: Faults) -> None:
    """The last axis holds probabilities that sum to 1, or nearly so: whoever reads them divides them by their sum."""
    check_distributions(values, place, faults, NEARLY_ONE)


def nearly(values: Floats, place: str) -> list[Fault]:
    """The rows of sound distributions whose sum is not 1 for more than rounding, each with its sum.

    Args:
        values: probabilities along the last axis.
        place: where they stand.
    """
    sums = values.sum(axis=-1)
    off = np.abs(sums - 1) > SUM_TOLERANCE
    if not off.any():
        return []
    return [
        Fault(place + "".join(f"[{i}]" for i in index), f"probabilities sum to {plain(sums[tuple(index)])}, not 1")
        for index in np.argwhere(off).tolist()
    ]


_heard: ContextVar[list[Fault] | None] = ContextVar("_heard", default=None)


@contextlib.contextmanager
def hearing() -> Iterator[list[Fault]]:
    """Rows that are normalised meanwhile are noted in the list that is given, and nobody is warned."""
    heard: list[Fault] = []
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)


def tell_normalised(rows: Sequence[Fault], stacklevel: int) -> None:
    """Note rows that are normalised where somebody listens; else warn of them.

    Args:
        rows: each with its place and its sum.
        stacklevel: of the warning, as seen from the caller.
    """
    heard = _heard.get()
    if heard is not None:
        heard.extend(rows)
    elif rows:
        warnings.warn(Normalised(rows), stacklevel=stacklevel + 1)


def check_distributions(values: Floats, place: str, faults: Faults, tolerance: float = SUM_TOLERANCE) -> None:
    """The last axis holds probabilities that sum to 1."""
    if not check_finite(values, place, faults):
        return
    negative = values < 0
    faults.flag(place, negative, Describe("probability {value} is negative", values))
    sums = values.sum(axis=-1)
    wrong = (np.abs(sums - 1) > tolerance) & ~negative.any(axis=-1)
    thirds = wrong & (np.abs(sums - 1) < 0.02) & (np.abs(values - 1 / 3) < 0.004).any(axis=-1)
    faults.flag(place, wrong & ~thirds, Describe("probabilities sum to {value}, not 1", sums))
    told = "probabilities sum to {value}, not 1; write thirds with more digits: 0.333333"
    faults.flag(place, thirds, Describe(told, sums))


def why_unreadable(file: Path, error: OSError, suffixes: Sequence[str] = ()) -> str:
    """Why a file cannot be read, in words: what is not there, and what was probably meant.

    Args:
        file: what was asked for.
        error: what the system said.
        suffixes: how the names of such files end; any when there are none.
    """
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        folder = file.parent
        if not folder.is_dir():
            return f"there is no folder {folder}"
        where = "here" if folder == Path() else f"in {folder}"
        like_it = [entry.name for entry in _listed(folder) if not suffixes or entry.suffix.lower() in suffixes]
        near = nearest(file.name, like_it)
        return f"there is no such file {where}" + (f"; did you mean {near}?" if near else "")
    if isinstance(error, IsADirectoryError):
        return "it is a folder, not a file"
    if isinstance(error, PermissionError):
        return "permission denied"
    return error.strerror or str(error)


def _listed(folder: Path) -> list[Path]:
    """The files of a folder; none where it may not be listed."""
    try:
        return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return []


def is_number(value: object) -> bool:
    """Whether it is a real number; True and False are none."""
    return isinstance(value, (Real, np.number)) and not isinstance(value, (bool, np.bool_))


def check_positive_int(value: object, name: str, largest: int | None = None) -> int:
    """A whole number of at least 1."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidInput(f"{name}: expected a whole number, got {value!r}")
    if value < 1 or (largest is not None and value > largest):
        upper = f" and at most {largest}" if largest is not None else ""
        raise InvalidInput(f"{name}: expected at least 1{upper}, got {value}")
    return int(value)


def as_numbers(value: ArrayLike, name: str) -> Floats:
    """Lists of numbers as an array.

    Args:
        value: numbers, in lists or an array.
        name: the argument's name.
    """
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name}: expected numbers, got {value!r}") from None


def as_generator(rng: Rng) -> np.random.Generator:
    """The generator that a user's `rng` stands for: itself, or a new one of a seed.

    Args:
        rng: a seed, a generator, or None for one that nobody can repeat.
    """
    return np.random.default_rng(_checked_rng(rng))


def as_seed(rng: Rng) -> int:
    """A seed for what is begun again and again: the user's own, or one that is drawn.

    Args:
        rng: a seed, a generator, or None for one that nobody can repeat.
    """
    read = _checked_rng(rng)
    return read if isinstance(read, int) else int(np.random.default_rng(read).integers(2**63))


def _checked_rng(rng: Rng) -> Rng:
    if rng is None or isinstance(rng, (np.random.Generator, np.random.BitGenerator, np.random.SeedSequence)):
        return rng
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and rng >= 0:
        return int(rng)
    old = "; of a RandomState, give rng.randint(2**31)" if isinstance(rng, np.random.RandomState) else ""
    shown = type(rng).__name__ if old else repr(rng)
    raise InvalidInput(f"rng: expected a whole number from 0, or a NumPy Generator (default_rng), got {shown}{old}")


def check_fraction(value: object, name: str, *, below_one: bool = False) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (Real, np.number)) or not math.isfinite(float(value)):
        raise InvalidInput(f"{name}: expected a number from 0 to 1, got {value!r}")
    number = float(value)
    if not 0 <= number <= 1 or (below_one and number == 1):
        raise InvalidInput(
            f"{name}: expected a number from 0 to {'below 1' if below_one else '1'}, got {plain(number)}"
        )
    return number


def check_shape(value: Array, axes: dict[str, int | None], name: str) -> None:
    """The shape of an array, by the names of its axes; None stands for any length.

    Args:
        value: the array.
        axes: expected length of each axis under its name, in order.
        name: the argument's name.
    """
    fits = value.ndim == len(axes) and all(
        want is None or got == want for got, want in zip(value.shape, axes.values(), strict=True)
    )
    if not fits:
        expected = ", ".join(f"{axis}={'any' if want is None else want}" for axis, want in axes.items())
        raise InvalidInput(f"{name}: expected shape ({expected}), got {value.shape}")


def human_bytes(size: float) -> str:
    """A memory size in words."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.3g} {unit}" if size < 1e6 else f"{size:.2g} {unit}"
        size /= 1000
    raise AssertionError


def available_memory() -> float:
    """Bytes this process may still take: what the machine has free, or what its container leaves, if that is less."""
    import psutil

    return max(0.0, min([float(psutil.virtual_memory().available), *_rooms_of_groups(Path("/"))]))


# A control group limits the memory of its processes, and so does every group around it. Version 2 has all of them
# under one folder, version 1 under a folder for memory. Cached files count as taken, but are given back on need.
_GROUPS = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""The controller as `/proc/self/cgroup` names it, where its groups are, and the names of limit, use and cache."""


def _rooms_of_groups(root: Path) -> Iterator[float]:
    """Bytes left by each control group around this process that has a limit.

    Args:
        root: where `proc` and `sys` are.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = f"{line}::".split(":")[:3]
        for controller, folder, *names in _GROUPS:
            if controller in controllers.split(","):
                group = [part for part in path.split("/") if part not in ("", "..")]
                for depth in range(len(group) + 1):  # inside a container only the outermost folder may be seen
                    yield from _room(root.joinpath(folder, *group[:depth]), *names)


def _room(group: Path, limit: str, used: str, cache: str) -> Iterator[float]:
    """What one group leaves; nothing where it has no limit."""
    facts = dict(line.split(maxsplit=1) for line in _read(group / "memory.stat").splitlines() if " " in line)
    try:
        most, taken = float(_read(group / limit)), float(_read(group / used))
        given_back = float(facts.get(cache, 0))
    except ValueError:  # no such group, or its limit is `max`, which is none
        return
    yield most - taken + min(given_back, taken)


def _read(path: Path) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


LITTLE = 1e6
"""Bytes that are always there: to ask how many are free takes a millisecond, and small problems ask many times."""


def fits_in_memory(size: float, share: float = 0.8) -> bool:
    """Whether so many bytes are no more than a share of what is free."""
    return size <= LITTLE or size <= share * available_memory()


def check_memory(size: float, what: str, instead: str) -> None:
    """Refuse, before any work, what would not fit in memory."""
    if size <= LITTLE:
        return
    free = available_memory()
    if size > 0.8 * free:
        raise TooLarge(f"{what} would need {human_bytes(size)}, and {human_bytes(free)} are free. {instead}")


def check_over(over: object) -> None:
    """Refuse a choice of whom welfare is over that is neither; the names of groups are the model's own.

    Args:
        over: `arms`, `groups`, or None for as it is.
    """
    if over not in (None, "arms", "groups"):
        raise InvalidInput(
            f"over: expected arms or groups, got {over!r}; groups are what the blocks of the model say under `group`, "
            "whatever they are called there"
        )
