"""Uniform numbers from counters: the number at a place depends on a key and the place, on nothing else.

    z = key + (place + 1) * 0x9E3779B97F4A7C15
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9
    z = (z ^ z >> 27) * 0x94D049BB133111EB
    bits = z ^ z >> 31,  uniform = (bits >> 11) / 2^53

This is the SplitMix64 generator (Steele, Lea and Flood, 2014) read at any place. Because the number of an arm in an
episode does not depend on what others drew, two policies that agree on an arm's action see it move alike, and the
result does not depend on batches, workers, or on whether NumPy or Numba did the work.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
TO_UNIT = 2.0**-53
"""Factor from 53 random bits to a number in [0, 1)."""


def draw_keys(rng: np.random.Generator, number: int) -> Bits:
    """(number,) fresh keys."""
    return rng.integers(0, 2**64, size=number, dtype=np.uint64)


def mix_bits(key: Any, place: Any) -> Any:
    """Random bits at a place; compiled in `greedy_service`."""
    z = key + (place + np.uint64(1)) * GOLDEN
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    return z ^ (z >> np.uint64(31))


def bits_at(key: np.uint64, places: Bits) -> Bits:
    """Random bits at the given places, of the same shape."""
    with np.errstate(over="ignore"):
        return np.asarray(mix_bits(key, places))


def uniforms_at(key: np.uint64, places: Bits) -> NDArray[np.float64]:
    """Numbers in [0, 1) at the given places, of the same shape."""
    return np.asarray((bits_at(key, places) >> np.uint64(11)).astype(np.float64) * TO_UNIT)


def grid(first_row: int, rows: int, columns: int) -> Bits:
    """(rows, columns) places of a table that is read row by row from `first_row` on."""
    start = np.arange(first_row, first_row + rows, dtype=np.uint64)[:, None] * np.uint64(columns)
    return np.asarray(start + np.arange(columns, dtype=np.uint64))
