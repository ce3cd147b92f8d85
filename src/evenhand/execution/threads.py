"""Pieces of one computation in threads: compiled loops and linear algebra let others work beside them."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

LIMIT = "EVENHAND_THREADS"
"""Environment variable that limits the threads of a process; workers have one each."""


def num_threads() -> int:
    """How many threads this process may use."""
    limit = os.environ.get(LIMIT, "")
    most = os.cpu_count() or 1
    return min(most, int(limit)) if limit.isdigit() and int(limit) > 0 else most


def in_order(do: Callable[[Piece], Answer], pieces: Iterable[Piece], number: int | None = None) -> Iterator[Answer]:
    """The answers to pieces of work, in their order, a few of them worked on at the same time.

    Args:
        do: works on one piece.
        pieces: of the work.
        number: of threads; all that this process may use when absent.
    """
    threads = num_threads() if number is None else number
    if threads < 2:
        yield from map(do, pieces)
        return
    coming = iter(pieces)
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque(pool.submit(do, piece) for piece in islice(coming, 2 * threads))
        for piece in coming:  # no more than a few answers wait to be taken
            yield waiting.popleft().result()
            waiting.append(pool.submit(do, piece))
        while waiting:
            yield waiting.popleft().result()
