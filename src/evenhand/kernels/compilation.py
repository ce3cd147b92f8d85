"""Numba's decorator with the options of all kernels, threads over parts of a loop, and the time spent on compilation.

Numba compiles a function when it is first called with new types, and caches the code beside the source or, where that
is read-only, in the user's cache folder (NUMBA_CACHE_DIR names another), so that it happens once per machine. It may
take much longer than the work itself: progress displays name it, and `work_clock` does not count it. Numba is loaded
with the first kernel, not with this file.

What takes long to compile in a kernel: assignments of slices, NumPy's sorting and linear algebra, and helpers that are
called with a literal number, for which Numba compiles them once more (np.int64(0) avoids it).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from time import perf_counter
from typing import Any

from evenhand.parallel import Answer, Piece, num_threads

THREADS_FROM = 2e6
"""Elementary operations from which a loop uses threads."""

Hearing = Callable[[bool], None]
"""Called with True when compilation begins, and with False when it has ended."""


# -- compiled functions -----------------------------------------------------------------------------------------------


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function on first use; it releases the interpreter's lock.

    Args:
        function: the function.
        options: further options of `numba.njit`.
    """
    if function is None:
        return partial(njit, **options)
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        return _numba().njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written: every process compiles for itself
        return _numba().njit(**options)(function)


@cache
def _numba() -> Any:
    """Numba, whose compilations are reported here."""
    get_ready(True)
    import numba
    from numba.core import event

    class Listener(event.Listener):
        def __init__(self, report: Hearing) -> None:
            self.report = report

        def on_start(self, event: object) -> None:
            self.report(True)

        def on_end(self, event: object) -> None:
            self.report(False)

    # The lock is held while code is compiled and while it is read from the cache.
    event.register("numba:compiler_lock", Listener(get_ready))
    event.register("numba:compile", Listener(compile_now))
    get_ready(False)
    return numba


def in_parts(kernel: Callable[..., Any], work: float, *arguments: Any) -> None:
    """Call kernel(part, parts, *arguments) for every part of a loop, in as many threads as the work is worth.

    Args:
        kernel: takes every parts-th iteration of its loop, from number `part` on.
        work: elementary operations in all.
        arguments: its further arguments.
    """
    parts = num_threads() if work >= THREADS_FROM else 1
    # This thread takes a part itself: to wake one thread less is half of the effort on two cores.
    others = [_helpers().submit(kernel, part, parts, *arguments) for part in range(1, parts)]
    kernel(0, parts, *arguments)
    for part, other in enumerate(others, start=1):
        if other.cancel():  # not begun: the processors are busy
            kernel(part, parts, *arguments)
        else:
            other.result()


def in_pieces(function: Callable[[Piece], Answer], pieces: Sequence[Piece]) -> list[Answer]:
    """Results of pieces, in their order, computed in threads; pieces must not start further ones.

    Args:
        function: applied to each piece.
        pieces: arguments.
    """
    waiting, found = iter(range(len(pieces))), dict[int, Answer]()  # threads share the iterator

    def take(part: int, parts: int) -> None:
        """Run pieces that no thread has begun."""
        for place in waiting:
            found[place] = function(pieces[place])

    in_parts(take, THREADS_FROM if len(pieces) > 1 else 0.0)
    return [found[place] for place in range(len(pieces))]


@cache
def _helpers() -> ThreadPoolExecutor:
    """Threads that wait for parts, as starting them takes as long as a small part; they submit none themselves."""
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads are not copied to a child
    return ThreadPoolExecutor(max(1, num_threads() - 1), "kernels")


# -- time spent on compilation ----------------------------------------------------------------------------------------


class _Clock:
    """Adds up the time of work that may be nested: only the outermost counts."""

    def __init__(self) -> None:
        self.depth, self.seconds, self.since = 0, 0.0, 0.0

    def turn(self, begins: bool) -> bool:
        """Start or stop; return True for the outermost."""
        now, self.depth = perf_counter(), self.depth + (1 if begins else -1)
        if self.depth == begins:
            self.seconds, self.since = self.seconds + (0.0 if begins else now - self.since), now
        return self.depth == begins

    def read(self) -> float:
        """Seconds so far, with those of what has not ended."""
        return self.seconds + (perf_counter() - self.since if self.depth else 0.0)


_getting_ready, _compiling = _Clock(), _Clock()
_hearers: list[Hearing] = []


def get_ready(begins: bool) -> None:
    """Note that Numba begins or ends to load, to compile or to read compiled code: none of it is requested work."""
    _getting_ready.turn(begins)


def compile_now(begins: bool) -> None:
    """Note that Numba begins or ends to compile, perhaps within another compilation."""
    if _compiling.turn(begins):
        for hear in tuple(_hearers):
            hear(begins)


def seconds_getting_ready() -> float:
    """Seconds that this process has spent on loading Numba, compiling, and reading compiled code."""
    return _getting_ready.read()


def work_clock() -> float:
    """A clock in seconds that stands still while code is made ready: differences of it measure work."""
    return perf_counter() - seconds_getting_ready()


@contextmanager
def hearing(hear: Hearing) -> Iterator[None]:
    """Call `hear` when compilation begins or ends in this context.

    Args:
        hear: called in the thread that compiles; it must be quick.
    """
    _hearers.append(hear)
    try:
        yield
    finally:
        _hearers.remove(hear)
