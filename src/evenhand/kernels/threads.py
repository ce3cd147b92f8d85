"""How many threads compiled code takes: small work is done alone, since waking others costs more than it gains."""

from collections.abc import Iterator
from contextlib import contextmanager

ALONE_BELOW = 200_000
"""Elementary operations below which one thread does the work."""


@contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Within it, compiled loops use as many threads as the work is worth."""
    from numba import get_num_threads, set_num_threads

    before = get_num_threads()
    set_num_threads(before if work >= ALONE_BELOW else 1)
    try:
        yield
    finally:
        set_num_threads(before)
