"""Availability of compilation, and numbers of threads.

Small work is done alone, since waking others costs more than it gains. Where Numba is not installed, policies are
played by the NumPy twins: slower, and by the same law. Learning and large solves need it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import TypeVar

from evenhand.kernels.forks import forked, one_at_a_time, start_threads
from evenhand.parallel import in_order

ALONE_BELOW = 200_000
"""Elementary operations below which one thread does the work."""

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

_POLICY = "OMP_WAIT_POLICY"


class Tier:
    """Chooses between twins that give the same: NumPy while there is little to do, compiled once there was enough.

    Compiling costs seconds, and who calls step by step does not know how many steps will come.
    """

    def __init__(self, in_all: float) -> None:
        """Begin with nothing done.

        Args:
            in_all: work after which the compiled twin takes over.
        """
        self.in_all, self.done = in_all, 0.0

    def compiles(self, work: float, at_once: float) -> bool:
        """Add some work to the total, and return True if the compiled twin is worth its compilation.

        Args:
            work: what is to be done now.
            at_once: work that is worth compiling for by itself.
        """
        self.done += work
        return work >= at_once or self.done >= self.in_all


@cache
def can_compile() -> bool:
    """True if Numba is installed; checked without loading it."""
    try:
        return find_spec("numba") is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def idle_threads_sleep() -> Iterator[None]:
    """Threads of libraries that are loaded within it sleep while they wait, unless the user's environment says else.

    OpenMP reads its settings once, when it is loaded. By default its idle threads spin at every barrier, which costs
    others the processor: our steps are short, and machines are shared.
    """
    if _POLICY in os.environ:
        yield
        return
    os.environ[_POLICY] = "PASSIVE"
    try:
        yield
    finally:
        del os.environ[_POLICY]


def loops_share() -> bool:
    """True if compiled loops may use several threads; starts Numba's threads if necessary."""
    with idle_threads_sleep():
        return start_threads()


@contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Within it, compiled loops use as many threads as the work is worth."""
    from numba import get_num_threads, set_num_threads

    loops_share()
    before = get_num_threads()
    number = before if work >= ALONE_BELOW and not forked() else 1
    in_turn = one_at_a_time() if number > 1 else nullcontext()
    set_num_threads(number)
    try:
        with in_turn:
            yield
    finally:
        set_num_threads(before)


def in_threads(do: Callable[[Piece], Answer], pieces: Sequence[Piece], *, alone: bool = False) -> Iterator[Answer]:
    """The answers to pieces of work, in their order, a few of them worked on at the same time.

    Args:
        do: works on one piece; it must spend its time in compiled code that lets others work beside it.
        pieces: of the work.
        alone: whether one thread does all of it.
    """
    if alone or len(pieces) < 2 or not can_compile():
        yield from map(do, pieces)
        return
    from numba import get_num_threads

    number = 1 if forked() else min(get_num_threads(), len(pieces))
    yield from in_order(do, pieces, number)
