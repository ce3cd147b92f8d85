"""Rows of one arm at one time."""

import numpy as np

from evenhand.typing import Array, Bools


def resolve_ties(arm: Array, ticks: Array, ties: str, tick: float = 1.0) -> tuple[Bools, Array]:
    """Return which rows remain, and their times.

    Args:
        arm: (row,) arm of each; sorted.
        ticks: (row,) times, sorted within an arm; of equal times in the order of the records.
        ties: `last` or `first` of equal times remains; `shift` moves each row to at least one tick after the row
            before; `keep` changes nothing.
        tick: shift of a row.
    """
    same = (arm[1:] == arm[:-1]) & (ticks[1:] == ticks[:-1])
    everything = np.ones(len(arm), dtype=np.bool_)
    if ties == "last":
        return np.append(~same, True)[: len(arm)], ticks
    if ties == "first":
        return np.append(True, ~same)[: len(arm)], ticks
    if ties == "shift" and same.any():
        # Within an arm, t'_i = max(t_i, t'_{i-1} + tick); then t'_i - i tick is the running maximum of t_i - i tick.
        slack = ticks - tick * np.arange(len(ticks))
        starts = np.flatnonzero(np.append(True, arm[1:] != arm[:-1]))
        for low, high in zip(starts, np.append(starts[1:], len(arm)), strict=True):
            slack[low:high] = np.maximum.accumulate(slack[low:high])
        return everything, slack + tick * np.arange(len(ticks))
    return everything, ticks
