"""Tables of probabilities over the pairs of a space: draws, and arrays for files."""

import numpy as np

from evenhand.errors import PolicyError
from evenhand.model.policy import check_arrays
from evenhand.typing import Array, Floats, Ints

MOST_PAIRS = 20_000_000
"""Feasible pairs beyond which a table is refused."""


def table_to_arrays(probabilities: Floats) -> dict[str, Array]:
    """Return the pairs of positive probability: most have none."""
    pairs = np.flatnonzero(probabilities)
    return {"pairs": pairs, "probabilities": probabilities[pairs]}


def table_from_arrays(num_pairs: int, arrays: dict[str, Array]) -> Floats:
    """(pair,) probabilities from `table_to_arrays`."""
    check_arrays(arrays, pairs="iu1", probabilities="f1")
    pairs, chances = arrays["pairs"], arrays["probabilities"]
    if pairs.shape != chances.shape or pairs.min(initial=0) < 0 or pairs.max(initial=0) >= num_pairs:
        raise PolicyError("its pairs do not exist in this problem")
    probabilities = np.zeros(num_pairs)
    probabilities[pairs] = chances
    return probabilities


class PairSampler:
    """Draws a pair for each of a batch of states, in O(log pairs) each.

    The running sums of all probabilities are laid one state after the other, state x over [x, x + 1]; a draw is then
    one search in a sorted array.
    """

    def __init__(self, offsets: Ints, probabilities: Floats) -> None:
        sums = np.add.reduceat(probabilities, offsets[:-1])
        if not (probabilities.min(initial=0) >= 0 and np.abs(sums - 1).max() <= 1e-6):
            raise PolicyError("probabilities must not be negative and must sum to 1 over the pairs of each state")
        self.offsets = offsets
        running = np.cumsum(probabilities / np.repeat(sums, np.diff(offsets)))
        before = np.concatenate([[0.0], running])[offsets[:-1]]
        self.edges = running - np.repeat(before, np.diff(offsets))
        pairs = np.arange(len(probabilities))
        self.first = np.minimum.reduceat(np.where(probabilities > 0, pairs, len(pairs)), offsets[:-1])
        self.last = np.maximum.reduceat(np.where(probabilities > 0, pairs, -1), offsets[:-1])
        self.places = self.edges + np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))

    def draw(self, states: Ints, rng: np.random.Generator) -> Ints:
        """(batch,) pairs, one for each of the (batch,) states."""
        found = np.searchsorted(self.places, states + rng.random(len(states)), side="right")
        return np.clip(found, self.first[states], self.last[states])
