"""A welfare of a user's own that contradicts itself is told, never taken for a proof."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError

from ..conftest import mentions
from ..oracles.problems import FIXED


class Own:
    """The mean, with a supergradient to be spoilt."""

    name = "own"

    def __init__(self, spoil=lambda weights: weights, value=None):
        self.spoil, self.value = spoil, value

    def __call__(self, values, counts=None):
        return float(np.average(values, weights=counts)) if self.value is None else self.value

    def supergradient(self, values, counts=None):
        weights = np.ones(len(values)) if counts is None else np.asarray(counts, dtype=float)
        return self.spoil(weights / weights.sum())

    def check_domain(self, values):
        """Every vector is fine."""


@pytest.mark.parametrize("method", ["joint", "counts"])
def test_a_sound_one_is_solved(method):
    problem = FIXED["typed"]()
    assert eh.solve(problem, Own(), method).welfare == pytest.approx(eh.solve(problem, "utilitarian").welfare, rel=1e-7)


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        (Own(lambda weights: -weights), "not bounded"),
        (Own(lambda weights: weights[:-1]), "supergradient of"),
        (Own(lambda weights: weights * np.nan), "supergradient of"),
        (Own(value=np.nan), "expected a number"),
    ],
)
def test_one_that_is_not_is_refused_in_words(spoilt, words):
    with pytest.raises(InvalidInputError, check=mentions(words)):
        eh.solve(FIXED["typed"](), spoilt, "joint")
