"""Policies by a table of probabilities over the pairs of a space (`counts.reduction`, `joint`): draws and files."""

from typing import Any, ClassVar, Self

import numpy as np

from evenhand.errors import PolicyError
from evenhand.model.composite import TimeVaryingPolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import BasePolicy, check_arrays
from evenhand.typing import Array, Floats, Ints

MOST_PAIRS = 20_000_000
"""Feasible pairs beyond which a table is refused."""


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


class PairTable(BasePolicy):
    """A policy given by a table over the pairs of a space."""

    decides = "by a table"
    space: ClassVar[type]
    """Class of the space, made from a problem."""

    def __init__(self, reduction: Any, probabilities: Floats) -> None:
        self.reduction, self.problem, self.probabilities = reduction, reduction.problem, probabilities
        self._sampler = PairSampler(reduction.mdp.offsets, probabilities)

    def to_arrays(self) -> dict[str, Array]:
        """Return the pairs of positive probability: most have none."""
        pairs = np.flatnonzero(self.probabilities)
        return {"pairs": pairs, "probabilities": self.probabilities[pairs]}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> Self:
        """Return the policy of these pairs."""
        check_arrays(arrays, pairs="iu1", probabilities="f1")
        pairs, chances, reduction = arrays["pairs"], arrays["probabilities"], cls.space(problem)
        probabilities = np.zeros(reduction.mdp.num_pairs)
        if pairs.shape != chances.shape or pairs.min(initial=0) < 0 or pairs.max(initial=0) >= len(probabilities):
            raise PolicyError("its pairs do not exist in this problem")
        probabilities[pairs] = chances
        return cls(reduction, probabilities)

    @classmethod
    def lift(cls, reduction: Any, probabilities: Floats) -> "Self | TimeVaryingPolicy":
        """The policy of (pair,) probabilities; with (step, pair) probabilities, one for each step."""
        if probabilities.ndim == 2:
            steps: list[Any] = [cls(reduction, step) for step in probabilities]
            return TimeVaryingPolicy(steps)
        return cls(reduction, probabilities)
