"""Linear algebra on one thread, as workers have it, so that a cell has the same bits in this process as elsewhere.

OpenBLAS cuts its work among its threads, and how it was cut shows in the last bits. Workers are kept to one thread
before they load NumPy; this process has loaded it, so its libraries are told. They are those that come with NumPy and
SciPy from PyPI; others (MKL, Accelerate) are left as they are, and keep to what their environment says.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_NAMES = [(first, last) for first in ("scipy_openblas", "openblas") for last in ("64_", "", "_64")]
_lock, _before = threading.Lock(), list[int]()
_depth = 0


class _Library(NamedTuple):
    """One OpenBLAS, and how its threads are told."""

    read: Callable[[], int]
    write: Callable[[int], None]


@contextmanager
def alone() -> Iterator[None]:
    """Within it, the linear algebra of NumPy and SciPy takes one thread."""
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            _before[:] = [library.read() for library in _libraries()]
            for library in _libraries():
                library.write(1)


def _end() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0:
            for library, number in zip(_libraries(), _before, strict=True):
                library.write(number)


@cache
def _libraries() -> tuple[_Library, ...]:
    """Those that NumPy and SciPy brought with them."""
    return tuple(found for path in _paths() if (found := _library(path)) is not None)


def _paths() -> Iterator[Path]:
    for name in ("numpy", "scipy"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue
        home = Path(spec.origin).parent
        for folder in (home.parent / f"{name}.libs", home / ".dylibs"):
            yield from sorted(folder.glob("*openblas*"))


def _library(path: Path) -> _Library | None:
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:
        return None
    for first, last in _NAMES:
        read = getattr(loaded, f"{first}_get_num_threads{last}", None)
        write = getattr(loaded, f"{first}_set_num_threads{last}", None)
        if read is not None and write is not None:
            return _Library(read, write)
    return None
