"""Quantiles of blends: against single Betas, their own distribution function, and the ends of what numbers can say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, betaincinv

from evenhand.fitting import mixture_quantile

SHAPES = st.floats(1e-3, 1e4)


@given(st.lists(st.tuples(SHAPES, SHAPES), min_size=1, max_size=20), st.sampled_from([0.025, 0.3, 0.5, 0.975]))
def test_a_blend_of_one_is_a_beta(shapes, share):
    a, b = np.array(shapes).T
    found = mixture_quantile(a[:, None], b[:, None], np.ones(1), share, np.full(len(a), 0.5))
    np.testing.assert_allclose(found, betaincinv(a, b, share), rtol=1e-5, atol=1e-290)


@given(st.lists(st.tuples(SHAPES, SHAPES), min_size=2, max_size=12), st.floats(0.01, 0.99), st.floats(0, 1))
def test_a_blend_has_the_share_below_its_quantile(shapes, share, begin):
    a, b = np.array(shapes).T[:, None]
    weights = np.arange(1, a.size + 1) / np.arange(1, a.size + 1).sum()
    x = mixture_quantile(a, b, weights, share, np.array([begin]))[0]
    if 1e-280 < x < 1 - 1e-12:  # else no number is nearer
        assert betainc(a, b, x)[0] @ weights == pytest.approx(share, abs=1e-3)
    assert 0 <= x <= 1


def test_what_is_all_but_impossible_ends_far_below_any_display():
    a, b = np.array([[1e-4, 1e-4], [0.02, 0.02], [5.0, 5.0]]), np.array([[3.0, 3.0], [3.0, 3.0], [1e-5, 1e-5]])
    lower = mixture_quantile(a, b, np.full(2, 0.5), 0.025, np.full(3, 0.5))
    assert lower[0] == 0 and 0 < lower[1] < 1e-70 and lower[2] == 1.0
