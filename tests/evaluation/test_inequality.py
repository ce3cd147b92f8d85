"""Measures of fairness against their definitions, summed pair by pair."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenhand.errors import InvalidInputError
from evenhand.evaluation import gini_coefficient, lorenz_curve, relative_loss

from ..conftest import mentions

VALUES = st.integers(1, 8).flatmap(
    lambda n: arrays(np.float64, n, elements=st.floats(0.01, 100) | st.just(0.0) | st.just(1.0))
)


def pair_by_pair(values):
    differences = sum(abs(x - y) for x in values for y in values)
    return differences / (2 * len(values) ** 2 * abs(np.mean(values)))


class TestGiniCoefficient:
    @given(VALUES)
    def test_is_the_mean_absolute_difference(self, values):
        assume(values.sum() > 0)
        np.testing.assert_allclose(gini_coefficient(values), pair_by_pair(values), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(gini_coefficient(-values), pair_by_pair(values), rtol=1e-9, atol=1e-12)

    def test_of_both_signs(self):
        values = [-1.0, 0.5, 2.0]
        np.testing.assert_allclose(gini_coefficient(values), pair_by_pair(values))
        assert gini_coefficient(values) > 1

    @given(VALUES, st.data())
    def test_counts_stand_for_repeated_arms(self, values, data):
        counts = data.draw(arrays(np.int64, len(values), elements=st.integers(0, 4)))
        repeated = np.repeat(values, counts)
        assume(repeated.sum() > 0)
        coefficient = gini_coefficient(values, counts)
        np.testing.assert_allclose(coefficient, pair_by_pair(repeated), rtol=1e-9, atol=1e-12)

    def test_one_arm_with_everything(self):
        np.testing.assert_allclose(gini_coefficient([0.0, 0.0, 0.0, 1.0]), 0.75)
        np.testing.assert_allclose(gini_coefficient([0.0, 1.0], [10**9 - 1, 1]), 1 - 1e-9, rtol=1e-14)

    @pytest.mark.parametrize("value", [0.0, 0.1, -3.0])
    def test_equal_arms_are_exactly_fair(self, value):
        assert gini_coefficient([value] * 7) == 0.0
        assert gini_coefficient([value, value], [3, 10**9]) == 0.0

    def test_zero_mean_is_undefined_unless_all_are_equal(self):
        assert math.isnan(gini_coefficient([-1.0, 1.0]))
        batch = gini_coefficient([[-1.0, 1.0], [0.0, 0.0], [1.0, 3.0]])
        np.testing.assert_allclose(batch, [np.nan, 0.0, 0.25])

    def test_returns_a_float_for_one_vector(self):
        assert type(gini_coefficient([1, 2])) is float

    def test_refuses_nan(self):
        with pytest.raises(InvalidInputError, check=mentions("finite")):
            gini_coefficient([1.0, math.nan])


class TestLorenzCurve:
    def test_follows_its_definition(self):
        arms, held = lorenz_curve([3.0, 1.0, 4.0])
        np.testing.assert_allclose(arms, [0, 1 / 3, 2 / 3, 1])
        np.testing.assert_allclose(held, [0, 1 / 8, 4 / 8, 1])

    def test_counts_give_a_point_a_type(self):
        arms, held = lorenz_curve([3.0, 1.0, 7.0], [1, 5, 0])
        np.testing.assert_allclose(arms, [0, 5 / 6, 1])
        np.testing.assert_allclose(held, [0, 5 / 8, 1])

    @given(VALUES)
    def test_twice_its_distance_to_the_diagonal_is_the_gini_coefficient(self, values):
        assume(values.sum() > 0)
        arms, held = lorenz_curve(values)
        assert (arms[0], held[0], arms[-1], held[-1]) == (0, 0, 1, 1)
        assert (held <= arms + 1e-12).all()
        area = ((held[1:] + held[:-1]) / 2) @ np.diff(arms)
        np.testing.assert_allclose(1 - 2 * area, pair_by_pair(values), atol=1e-9)

    def test_a_zero_total(self):
        arms, held = lorenz_curve([0.0, 0.0])
        np.testing.assert_allclose(held, arms)
        _, held = lorenz_curve([-1.0, 0.0, 1.0])
        np.testing.assert_allclose(held, [0, np.nan, np.nan, 1])

    def test_a_negative_total_is_above_the_diagonal(self):
        arms, held = lorenz_curve([-3.0, -1.0])
        np.testing.assert_allclose(held, [0, 0.75, 1])
        assert held[1] > arms[1]

    def test_refuses_a_batch(self):
        with pytest.raises(InvalidInputError, check=mentions(2)):
            lorenz_curve([[1.0, 2.0], [3.0, 4.0]])


class TestPriceOfFairness:
    def test_is_the_share_given_up(self):
        np.testing.assert_allclose(relative_loss(9.0, 10.0), 0.1)
        np.testing.assert_allclose(relative_loss(-12.0, -10.0), 0.2)
        np.testing.assert_allclose(relative_loss(11.0, 10.0), -0.1)

    def test_of_a_zero_reference(self):
        assert relative_loss(0.0, 0.0) == 0.0
        assert math.isnan(relative_loss(-1.0, 0.0))

    @pytest.mark.parametrize("pair", [(math.nan, 1.0), (1.0, math.inf)])
    def test_refuses_nan(self, pair):
        with pytest.raises(InvalidInputError, check=mentions(next(x for x in pair if not math.isfinite(x)))):
            relative_loss(*pair)
