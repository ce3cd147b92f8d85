"""Sorted values some ranks at a time, so that what is computed of them takes little memory beside the order.

Ties are never cut: a run has at most RUN ranks, or is one tie of any length, which is walked in pieces.
"""

from collections.abc import Iterator
from typing import NamedTuple

from evenhand.typing import Array, Floats

RUN = 1 << 16
"""Ranks that are looked at together, at the most."""


class Run(NamedTuple):
    """Some ranks."""

    ranks: slice
    """Which."""

    tied: bool
    """Whether all of them have one value; else ties end within the run."""


def tied_runs(values: Floats, order: Array) -> Iterator[Run]:
    """Runs of ranks, the lowest first.

    Args:
        values: (value,) any numbers; those of a run may be changed before the next one is asked for.
        order: (rank,) which value has each rank.
    """
    start = 0
    while start < len(order):
        stop = min(start + RUN, len(order))
        if stop < len(order) and values[order[stop]] == values[order[stop - 1]]:
            head = _first_of(values, order, start, stop)
            stop = head if head > start else _end_of(values, order, stop)
        tied = bool(values[order[start]] == values[order[stop - 1]])
        yield Run(slice(start, stop), tied)
        start = stop


def pieces(ranks: slice) -> Iterator[slice]:
    """The ranks of a run, RUN at a time.

    Args:
        ranks: a slice with a start and a stop.
    """
    for start in range(ranks.start, ranks.stop, RUN):
        yield slice(start, min(start + RUN, ranks.stop))


def _first_of(values: Floats, order: Array, low: int, high: int) -> int:
    """The first rank from `low` on whose value is that of the rank before `high`."""
    value = values[order[high - 1]]
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if values[order[middle]] < value else (low, middle)
    return low


def _end_of(values: Floats, order: Array, low: int) -> int:
    """The rank after the last one whose value is that of the rank `low`."""
    value, high = values[order[low]], len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if values[order[middle]] > value else (middle + 1, high)
    return low
