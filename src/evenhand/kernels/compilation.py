"""Events and durations of compilation, for progress displays and for timings that exclude them.

Numba compiles a function when it is first called with new types, and stores the result in a file beside the source,
so that it happens once on a machine. It may take much longer than the work itself. `jit` reports it here;
this file imports no other module of the package, so that any may use it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

Hearing = Callable[[bool], None]
"""Called with True when compilation begins, and with False when it has ended."""


class _Clock:
    """Adds up the time of work that may be nested: only the outermost counts."""

    def __init__(self) -> None:
        self.depth, self.seconds, self.since = 0, 0.0, 0.0

    def begin(self) -> bool:
        """Start; whether this is the outermost."""
        self.depth += 1
        if self.depth == 1:
            self.since = perf_counter()
        return self.depth == 1

    def end(self) -> bool:
        """Stop; whether this was the outermost."""
        self.depth -= 1
        if self.depth == 0:
            self.seconds += perf_counter() - self.since
        return self.depth == 0

    def read(self) -> float:
        """Seconds so far, of what goes on too."""
        return self.seconds + (perf_counter() - self.since if self.depth else 0.0)


_getting_ready, _compiling = _Clock(), _Clock()
_hearers: list[Hearing] = []


def get_ready(begins: bool) -> None:
    """Note that Numba begins or ends to load, to compile or to read compiled code: none of it is requested work."""
    if begins:
        _getting_ready.begin()
    else:
        _getting_ready.end()


def compile_now(begins: bool) -> None:
    """Numba begins or ends to compile, perhaps within another compilation."""
    if _compiling.begin() if begins else _compiling.end():
        for hear in tuple(_hearers):
            hear(begins)


def seconds_getting_ready() -> float:
    """Seconds that this process has spent on loading Numba, compiling, and reading what was compiled."""
    return _getting_ready.read()


def work_clock() -> float:
    """A clock in seconds that stands still while code is made ready: what differences of it measure is work."""
    return perf_counter() - seconds_getting_ready()


@contextmanager
def hearing(hear: Hearing) -> Iterator[None]:
    """Call `hear` whenever compilation begins or ends in this context.

    Args:
        hear: called in the thread that compiles; it must be quick.
    """
    _hearers.append(hear)
    try:
        yield
    finally:
        _hearers.remove(hear)
