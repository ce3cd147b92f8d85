"""Lemma B.4: of all Gini weights the equal ones give every vector the largest welfare."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenhand.errors import InvalidInputError
from evenhand.model import Gini, Utilitarian

from ..conftest import mentions
from .product_space import gini_weights

VECTORS = st.integers(1, 8).flatmap(
    lambda n: arrays(np.float64, n, elements=st.floats(-1e6, 1e6, allow_subnormal=False))
)


@given(VECTORS, st.integers(0, 2**32 - 1))
def test_equal_weights_give_the_most(values: np.ndarray, seed: int) -> None:
    weights = gini_weights(np.random.default_rng(seed), len(values))
    slack = 1e-9 * (1 + np.abs(values).max())
    assert Gini(weights)(values) <= Utilitarian()(values) + slack
    assert abs(Utilitarian()(values) - values.mean()) <= slack
    assert abs(Gini(weights)(values) - np.sort(values) @ weights) <= slack


@given(st.floats(-1e6, 1e6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_they_tie_where_all_values_are_equal(value: float, num_arms: int, seed: int) -> None:
    weights = gini_weights(np.random.default_rng(seed), num_arms)
    assert Gini(weights)(np.full(num_arms, value)) == pytest.approx(value, rel=1e-12)


def test_it_fails_for_weights_that_rise() -> None:
    """Weights that favour the best arm beat the mean; they are no Gini weights, and the library refuses them."""
    values, rising = np.array([1.0, 2.0, 6.0]), np.array([0.1, 0.3, 0.6])
    assert np.sort(values) @ rising > values.mean() + 1.0
    with pytest.raises(InvalidInputError, check=mentions("weights[1]", 0.3, "weights[2]", 0.6)):
        Gini(rising)
