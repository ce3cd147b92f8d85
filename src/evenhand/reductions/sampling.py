"""Draws of pairs from a table of probabilities."""

import numpy as np

from evenhand.errors import PolicyError
from evenhand.typing import Floats, Ints


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
