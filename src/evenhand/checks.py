"""Checks of arguments and input. Faults are collected, so that a user sees all of them at once."""

import contextlib
import math
import reprlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from numbers import Real
from pathlib import Path

import numpy as np

from evenhand.errors import Fault, InvalidInputError, ModelError, NormalisationWarning, TooLargeError, nearest
from evenhand.typing import Array, ArrayLike, Bools, Floats, Rng

LARGEST = 1e12
"""Largest magnitude of a reward, usage or budget: beyond it doubles lose the digits that a certificate needs."""

SUM_TOLERANCE = 1e-8
"""Distance from 1 up to which a sum of weights or probabilities counts as rounding."""

NEARLY_ONE = 1e-4 * (1 + 1e-9)
"""Distance from 1 up to which probabilities of a model are normalised, with a notice: thirds of four digits."""

SHOWN_PER_ARRAY = 10
"""Faults of one kind shown per array; an invalid array may have thousands of them."""


# Collecting faults


class Faults:
    """A list of faults that is raised at the end, as a whole."""

    def __init__(self) -> None:
        self.found: list[Fault] = []

    def add(self, place: str, message: str) -> None:
        """Add one fault."""
        self.found.append(Fault(place, message))

    def flag(self, place: str, bad: Bools, message: str, values: Array) -> None:
        """Add a fault per True entry of `bad`, with its indices behind `place`, up to a limit.

        Args:
            place: place of the array.
            bad: mask of invalid entries.
            message: text in which `{value}` stands for the entry.
            values: array of the entries.
        """
        if not bad.any():
            return
        where = np.argwhere(bad)
        for index in where[:SHOWN_PER_ARRAY]:
            key = tuple(int(i) for i in index)
            self.add(place + "".join(f"[{i}]" for i in key), message.format(value=plain(values[key])))
        if len(where) > SHOWN_PER_ARRAY:
            more = len(where) - SHOWN_PER_ARRAY
            self.found.append(Fault(place, f"... and {more} more such entries", stands_for=more))

    def raise_if_any(self, source: str = "", argument: str = "") -> None:
        """Raise ModelError with all faults, if there are any."""
        if self.found:
            raise ModelError(self.found, source, argument=argument)

    def __bool__(self) -> bool:
        return bool(self.found)


# Single values


def plain(value: object) -> str:
    """Format a number without superfluous digits; anything else as `repr`."""
    if not is_number(value):
        return reprlib.repr(value)
    try:
        return f"{float(value):.10g}"  # type: ignore[arg-type]  # a number, by the check above
    except OverflowError:
        return "a number of too many digits"


def is_number(value: object) -> bool:
    """Return whether a value is a real number; True and False are not."""
    return isinstance(value, (Real, np.number)) and not isinstance(value, (bool, np.bool_))


def is_whole(value: object) -> bool:
    """Return whether a value is an integer; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def whole_fault(value: object, least: int = 1, most: int | None = None) -> str:
    """Message for a value that is not an integer from `least` to `most`; empty for a valid one."""
    if not is_whole(value):
        return f"expected a whole number, got {reprlib.repr(value)}"
    if value < least:  # type: ignore[operator]  # an integer, by the check above
        return f"expected at least {least}, got {value}"
    return f"expected at most {most}, got {value}" if most is not None and value > most else ""  # type: ignore[operator]


def number_fault(value: object, least: float = 0.0, most: float = LARGEST, *, below: float = math.inf) -> str:
    """Message for a value that is not a number from `least` to `most` and less than `below`; empty for a valid one."""
    if is_number(value) and least <= value <= most and value < below:  # type: ignore[operator]
        return ""
    upper = f"below {plain(below)}" if below <= most else plain(most)
    unbounded = most == LARGEST and below > most and not (is_number(value) and value > most)  # type: ignore[operator]
    limits = f"of at least {plain(least)}" if unbounded else f"from {plain(least)} to {upper}"
    return f"expected a number {limits}, got {plain(value)}"


def check_positive_int(value: object, name: str, largest: int | None = None) -> int:
    """Return an integer of at least 1, or raise InvalidInputError."""
    if message := whole_fault(value, most=largest):
        raise InvalidInputError(f"{name}: {message}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def read_seeds(seeds: int | Sequence[int], first: int) -> list[int]:
    """Return the seeds of several runs.

    Args:
        seeds: number of seeds, or the seeds themselves.
        first: first seed, if a number is given.
    """
    if not np.iterable(seeds):
        return [first + number for number in range(check_positive_int(seeds, "seeds"))]
    return read_different(seeds, "seeds", least=0)


def read_different(numbers: Sequence[int], name: str, least: int) -> list[int]:
    """Return one or more different integers, or raise InvalidInputError.

    Args:
        numbers: the integers.
        name: name of the argument.
        least: the least that is allowed.
    """
    listed = list(numbers) if np.iterable(numbers) else []
    if not listed or any(whole_fault(one, least) for one in listed) or len(set(listed)) < len(listed):
        raise InvalidInputError(f"{name}: expected different whole numbers from {least}, at least one, got {numbers!r}")
    return [int(one) for one in listed]


def check_fraction(value: object, name: str, *, below_one: bool = False) -> float:
    """Return a number from 0 to 1, or raise InvalidInputError."""
    if message := number_fault(value, most=1.0, below=1.0 if below_one else math.inf):
        raise InvalidInputError(f"{name}: {message}")
    return float(value)  # type: ignore[arg-type]


def check_over(over: object) -> None:
    """Raise InvalidInputError unless `over` is `arms`, `groups` or None."""
    if over not in (None, "arms", "groups"):
        raise InvalidInputError(
            f"over: expected arms or groups, got {over!r}; the groups are those of the key `group` of the model"
        )


def read_names(
    value: object, number: int | None, place: str, faults: Faults, *, blank: bool = False
) -> tuple[str, ...]:
    """Read distinct names, one per thing, or none at all.

    Args:
        value: a list of texts.
        number: number of things, if known.
        place: place of the list.
        faults: list to which faults are added.
        blank: whether a name may be empty.
    """
    texts = isinstance(value, (list, tuple)) and all(isinstance(name, str) and (name or blank) for name in value)
    if not isinstance(value, (list, tuple)) or not texts:
        faults.add(place, f"expected a list of names, got {reprlib.repr(value)}")
        return ()
    if value and number is not None and len(value) != number:
        faults.add(place, f"has {len(value)} entries, expected {number}")
    if len(set(value)) < len(value):
        faults.add(place, "has the same name twice")
    return tuple(value)


# Arrays of numbers

Check = Callable[[Floats, str, "Faults"], object]
"""A check of numbers: adds the faults of an array at a place."""


def read_numbers(value: object, axes: Sequence[str], place: str, faults: Faults, check: Check) -> Floats | None:
    """Convert nested lists into an array and check its numbers, or add every fault and return None.

    Args:
        value: an array, or lists nested once per axis.
        axes: name of each axis, e.g. ("state", "action", "next state").
        place: place of the value.
        faults: list to which faults are added.
        check: applied to the array; if lists are ragged or contain text, to each of their valid rows.
    """
    before = len(faults.found)
    rows: list[tuple[Floats, str]] = []
    if not (isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and value.ndim == len(axes) and value.size):
        _check_lists(value, axes, [None, *_common_lengths(value, len(axes) - 1)], place, faults, rows)
    if len(faults.found) == before:
        array = np.array(value, dtype=np.float64)
        check(array, place, faults)
        return array
    for row, where in rows:
        check(row, where, faults)
    extra = len(faults.found) - before - SHOWN_PER_ARRAY
    if extra > 0:
        del faults.found[before + SHOWN_PER_ARRAY :]
        faults.found.append(Fault(place, f"... and {extra} more such faults", stands_for=extra))
    return None


def _common_lengths(value: object, depth: int) -> list[int]:
    """Most frequent length of the lists at each depth below the first, the smallest of several."""
    lengths, level = [], [value]
    for _ in range(depth):
        level = [entry for item in level[:1000] if isinstance(item, (list, tuple, np.ndarray)) for entry in item]
        times = Counter(len(item) for item in level if isinstance(item, (list, tuple, np.ndarray)))
        lengths.append(max(times, key=lambda size: (times[size], -size), default=0))
    return lengths


def _check_lists(
    value: object,
    axes: Sequence[str],
    lengths: Sequence[int | None],
    place: str,
    faults: Faults,
    rows: list[tuple[Floats, str]],
) -> None:
    """Add the faults of nested lists, and collect the valid rows of the last axis."""
    if not isinstance(value, (list, tuple, np.ndarray)):
        plain_value = value.item() if isinstance(value, np.generic) else value
        faults.add(place, f"expected a list with one entry per {axes[0]}, got {reprlib.repr(plain_value)}")
        return
    before = len(faults.found)
    if len(value) == 0:
        faults.add(place, f"is empty; expected one entry per {axes[0]}")
    elif lengths[0] is not None and len(value) != lengths[0]:
        hint = comma_hint(len(value), lengths[0]) if len(axes) == 1 else ""
        faults.add(place, f"has {len(value)} entries where the others have {lengths[0]} (one per {axes[0]}){hint}")
    if len(axes) > 1:
        for index, entry in enumerate(value):
            _check_lists(entry, axes[1:], lengths[1:], f"{place}[{index}]", faults, rows)
        return
    for index, entry in enumerate(value):
        if type(entry) is not float and not is_number(entry):
            faults.add(f"{place}[{index}]", f"expected a number, got {reprlib.repr(entry)}")
        elif isinstance(entry, int) and abs(entry) > 2**63:
            faults.add(f"{place}[{index}]", "this integer is too large")
    if len(faults.found) == before and lengths[0] is not None:
        rows.append((np.array(value, dtype=np.float64), place))


def comma_hint(got: int, expected: int) -> str:
    """Hint at a decimal comma, the usual reason for more numbers than expected.

    Args:
        got: number of numbers.
        expected: number that there should be.
    """
    return "; use '.' as the decimal separator, since ',' separates numbers" if got > expected else ""


def check_finite(values: Floats, place: str, faults: Faults, largest: float = LARGEST) -> bool:
    """Add a fault per entry that is not finite or too large; return whether there is none."""
    bad = ~np.isfinite(values)
    faults.flag(place, bad, "is {value}, not a finite number", values)
    huge = ~bad & (np.abs(np.where(bad, 0.0, values)) > largest)
    faults.flag(place, huge, f"{{value}} is too large (at most {plain(largest)})", values)
    return not (bad.any() or huge.any())


def check_amounts(values: Floats, place: str, faults: Faults) -> None:
    """Add a fault per entry that is not finite or negative."""
    check_finite(values, place, faults)
    faults.flag(place, np.isfinite(values) & (values < 0), "{value} is negative", values)


def check_distributions(values: Floats, place: str, faults: Faults, tolerance: float = SUM_TOLERANCE) -> None:
    """Add a fault per negative probability and per row of the last axis that does not sum to 1."""
    check_finite(values, place, faults)
    finite = np.isfinite(values)
    negative = finite & (values < 0)
    faults.flag(place, negative, "probability {value} is negative", values)
    sums = np.where(finite, values, 0.0).sum(axis=-1)
    # A row with another fault has no sum of its own.
    sound = (finite & ~negative & (values <= LARGEST)).all(axis=-1)
    faults.flag(place, sound & (np.abs(sums - 1) > tolerance), "probabilities sum to {value}, not 1", sums)


def check_shape(value: Array, axes: dict[str, int | None], name: str) -> None:
    """Raise InvalidInputError unless an array has the given shape; None stands for any length.

    Args:
        value: the array.
        axes: expected length of each axis under its name, in order.
        name: name of the argument.
    """
    fits = value.ndim == len(axes) and all(
        want is None or got == want for got, want in zip(value.shape, axes.values(), strict=True)
    )
    if not fits:
        expected = ", ".join(f"{axis}={'any' if want is None else want}" for axis, want in axes.items())
        raise InvalidInputError(f"{name}: expected shape ({expected}), got {value.shape}")


def as_numbers(value: ArrayLike, name: str) -> Floats:
    """Convert lists of numbers to an array, or raise InvalidInputError.

    Args:
        value: numbers, in lists or an array.
        name: name of the argument.
    """
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name}: expected numbers, got {reprlib.repr(value)}") from None


# Notices of normalised rows


def nearly(values: Floats, place: str) -> list[Fault]:
    """Rows of valid distributions whose sum differs from 1 by more than rounding, each with its sum.

    Args:
        values: probabilities along the last axis.
        place: place of the array.
    """
    sums = values.sum(axis=-1)
    return [
        Fault(place + "".join(f"[{i}]" for i in index), f"probabilities sum to {plain(sums[tuple(index)])}, not 1")
        for index in np.argwhere(np.abs(sums - 1) > SUM_TOLERANCE).tolist()
    ]


_notices: ContextVar[list[Fault] | None] = ContextVar("_notices", default=None)


@contextlib.contextmanager
def collected_notices() -> Iterator[list[Fault]]:
    """Collect notices of normalised rows in the yielded list instead of emitting warnings."""
    notices: list[Fault] = []
    token = _notices.set(notices)
    try:
        yield notices
    finally:
        _notices.reset(token)


def report_normalised(rows: Sequence[Fault], stacklevel: int) -> None:
    """Report normalised rows: to the enclosing `collected_notices`, else as a warning.

    Args:
        rows: each with its place and its sum.
        stacklevel: of the warning, as seen from the caller.
    """
    notices = _notices.get()
    if notices is not None:
        notices.extend(rows)
    elif rows:
        warnings.warn(NormalisationWarning(rows), stacklevel=stacklevel + 1)


# Files, random numbers, memory


def why_unreadable(file: Path, error: OSError, suffixes: Sequence[str] = ()) -> str:
    """Reason why a file cannot be read, with the nearest existing name.

    Args:
        file: the requested file.
        error: the error of the operating system.
        suffixes: suffixes of such files; any by default.
    """
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        folder = file.parent
        if not folder.is_dir():
            return f"there is no folder {folder}"
        with contextlib.suppress(OSError):
            present = [entry.name for entry in folder.iterdir() if not suffixes or entry.suffix.lower() in suffixes]
            if near := nearest(file.name, present):
                return f"there is no such file; did you mean {near}?"
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a folder, not a file"
    return error.strerror.lower() if error.strerror else str(error)


def as_generator(rng: Rng) -> np.random.Generator:
    """Return the generator given, or a new one from a seed.

    Args:
        rng: a seed, a generator, or None for an unpredictable one.
    """
    return np.random.default_rng(_checked_rng(rng))


def as_seed(rng: Rng) -> int:
    """Return the seed given, or one drawn from the generator.

    Args:
        rng: a seed, a generator, or None for an unpredictable one.
    """
    read = _checked_rng(rng)
    return read if isinstance(read, int) else int(np.random.default_rng(read).integers(2**63))


def _checked_rng(rng: Rng) -> Rng:
    if rng is None or isinstance(rng, (np.random.Generator, np.random.BitGenerator, np.random.SeedSequence)):
        return rng
    if is_whole(rng) and rng >= 0:
        return int(rng)
    raise InvalidInputError(f"rng: expected a whole number from 0, or a NumPy Generator (default_rng), got {rng!r}")


def human_bytes(size: float) -> str:
    """Format a memory size."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.3g} {unit}" if size < 1e6 else f"{size:.2g} {unit}"
        size /= 1000
    raise AssertionError


def available_memory() -> float:
    """Bytes that this process may still allocate: free memory of the machine, or of its container if that is less."""
    import psutil

    return max(0.0, min([float(psutil.virtual_memory().available), *_container_rooms(Path("/"))]))


def _container_rooms(root: Path) -> Iterator[float]:
    """Bytes left by each control group (version 2) around this process that has a memory limit.

    Args:
        root: folder of `proc` and `sys`.
    """
    with contextlib.suppress(OSError):
        path = (root / "proc/self/cgroup").read_text().partition("0::")[2].split("\n")[0]
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):  # a container sees only its outermost group
            group = root.joinpath("sys/fs/cgroup", *parts[:depth])
            with contextlib.suppress(OSError, ValueError):  # no such group, or its limit is `max`
                limit, used = (float((group / name).read_text()) for name in ("memory.max", "memory.current"))
                facts = dict(line.split(maxsplit=1) for line in (group / "memory.stat").read_text().splitlines())
                # Cached files count as used, and are released on demand.
                yield limit - used + min(float(facts.get("inactive_file", 0)), used)


LITTLE = 1e6
"""Bytes that are always available: the query takes a millisecond, and small problems would query many times."""


def fits_in_memory(size: float, share: float = 0.8) -> bool:
    """Return whether a number of bytes is at most a share of the available memory."""
    return size <= LITTLE or size <= share * available_memory()


def check_memory(size: float, what: str, instead: str) -> None:
    """Raise TooLargeError, before any work, if a number of bytes does not fit in memory."""
    if size <= LITTLE:
        return
    free = available_memory()
    if size > 0.8 * free:
        raise TooLargeError(f"{what} would need {human_bytes(size)}, and {human_bytes(free)} are free. {instead}")
