"""Posteriors: against closed forms, scipy's own Dirichlet, and quantiles of many draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evenhand.errors import InvalidInputError, TooLargeError
from evenhand.fitting import Dirichlet, Drawn

from ..conftest import mentions

SPARSE = np.array([[[[3.0, 0.0, 7.5], [0.02, 0.01, 0.0]], [[0.0, 4.0, 0.0], [1.0, 1.0, 1.0]], [[40, 5, 0.3]] * 2]])
MANY = Dirichlet(np.tile(SPARSE, (100, 1, 1, 1)))
"""A hundred types that are alike: a draw of them is a hundred of one."""


def test_moments_are_those_of_a_dirichlet():
    posterior, row = Dirichlet(SPARSE), SPARSE[0, 0, 0, [0, 2]]
    np.testing.assert_allclose(posterior.mean[0, 0, 0, [0, 2]], stats.dirichlet(row).mean())
    draws = MANY.draw(200, rng=3).reshape(-1, *SPARSE.shape)
    drawn = draws[:, 0, 0, 0][:, [0, 2]]
    np.testing.assert_allclose(drawn.var(axis=0), stats.dirichlet(row).var(), rtol=0.04)
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean, atol=0.012)  # 4 standard errors of 0.5 / sqrt(n)
    np.testing.assert_allclose(draws.sum(axis=-1), 1.0, atol=1e-12)


def test_intervals_are_quantiles_of_draws():
    posterior = Dirichlet(SPARSE)
    lower, upper = posterior.interval(0.9)
    draws = MANY.draw(200, rng=5).reshape(-1, *SPARSE.shape)
    wide = upper > lower
    for bound, share in ((lower, 0.05), (upper, 0.95)):
        error = 4 * np.sqrt(0.05 * 0.95 / len(draws))  # entries may be 0 or 1 but for rounding, and tie
        assert ((draws < bound).mean(axis=0) <= share + error)[wide].all()
        assert ((draws <= bound + 1e-15).mean(axis=0) >= share - error)[wide].all()
    assert (lower[0, 1, 0] == [0, 1, 0]).all() and (upper[0, 1, 0] == [0, 1, 0]).all()


@given(st.integers(0, 2**32), st.floats(1e-9, 1e9), st.booleans())
def test_zeros_stay_zero_and_rows_are_rows_at_any_strength(seed, strength, masked):
    rng = np.random.default_rng(seed)
    concentration = strength * rng.random((2, 3, 2, 3)) ** 4
    if masked:
        concentration *= rng.random((2, 3, 2, 3)) < 0.6
        concentration[..., 0] += strength * 1e-3
    posterior = Dirichlet(concentration)
    draw, (lower, upper) = posterior.one(seed, 0), posterior.interval()
    for rows in (draw, posterior.mean):
        assert np.abs(rows.sum(axis=-1) - 1).max() < 1e-12
    for rows in (draw, posterior.mean, lower, upper):
        assert (rows[concentration == 0] == 0).all() and (rows >= 0).all() and (rows <= 1).all()
    assert (lower <= upper).all()


def test_first_draws_do_not_depend_on_the_number_of_draws():
    sample = Dirichlet(SPARSE).draw(7, rng=1)
    for posterior in (Dirichlet(SPARSE), Drawn(sample.mean(axis=0), sample)):
        few, many = posterior.draw(3, rng=11), posterior.draw(20, rng=11)
        assert (few == many[:3]).all() and (posterior.one(11, 19) == many[19]).all()
        assert not (posterior.draw(3, rng=12) == few).all()


def test_a_sample_is_used_up_before_it_is_used_again():
    sample = Dirichlet(SPARSE).draw(9, rng=1)
    drawn = Drawn(sample.mean(axis=0), sample).draw(18, rng=4)
    for turn in (drawn[:9], drawn[9:]):
        assert sorted(turn[:, 0, 0, 0, 0]) == sorted(sample[:, 0, 0, 0, 0])
    assert not (drawn[:9] == drawn[9:]).all()


def test_a_sample_has_quantiles_for_intervals():
    sample = Dirichlet(SPARSE).draw(101, rng=1)
    lower, upper = Drawn(sample.mean(axis=0), sample).interval(0.9)
    ordered = np.sort(sample, axis=0)
    np.testing.assert_allclose(lower, ordered[5])
    np.testing.assert_allclose(upper, ordered[95])


def test_a_row_nothing_is_known_of_is_not_a_number_until_settled():
    concentration = SPARSE.copy()
    concentration[0, 1, 1] = 0
    posterior = Dirichlet(concentration)
    unknown = np.isnan(posterior.mean)
    assert unknown[0, 1, 1].all() and unknown.sum() == 3
    assert (np.isnan(posterior.one(0, 0)) == unknown).all() and (np.isnan(posterior.interval()[0]) == unknown).all()
    known = np.zeros((1, 3, 2), dtype=bool)
    known[0, 1, 1] = True
    settled = posterior.settled(np.broadcast_to([0.25, 0.75, 0.0], concentration.shape), known)
    for rows in (settled.mean, *settled.interval(), settled.one(0, 5)):
        np.testing.assert_array_equal(rows[0, 1, 1], [0.25, 0.75, 0.0])
    np.testing.assert_array_equal(settled.one(0, 5)[0, 0], posterior.one(0, 5)[0, 0])


def test_a_copy_is_the_same_row_in_every_draw():
    like = np.array([[[0, 1], [0, 0], [0, 0]]], dtype=np.int32)
    known = np.zeros((1, 3, 2), dtype=bool)
    known[0, 2, 0] = True
    rows = np.broadcast_to([0.0, 0.0, 1.0], SPARSE.shape)
    sample = Dirichlet(SPARSE).draw(5, rng=1)
    for posterior in (Dirichlet(SPARSE), Drawn(sample.mean(axis=0), sample)):
        settled = posterior.settled(rows, known, like)
        for told in (settled.mean, *settled.interval(), *settled.draw(4)):
            assert (told[0, 2] == [0, 0, 1]).all() and (told[0, 1, 1] == told[0, 1, 0]).all()
            assert not (told[0, 0, 1] == told[0, 0, 0]).all()


def test_invalid_arguments_are_refused():
    posterior = Dirichlet(SPARSE)
    with pytest.raises(InvalidInputError, check=mentions("level")):
        posterior.interval(1.5)
    with pytest.raises(InvalidInputError, check=mentions("num_draws")):
        posterior.draw(0)
    with pytest.raises(TooLargeError):
        posterior.draw(10**12)
    with pytest.raises(InvalidInputError, check=mentions("draws")):
        Drawn(posterior.mean, np.zeros((0, *SPARSE.shape)))


def test_an_estimate_lies_within_its_interval():
    """Also a mode outside of the quantiles of the draws, and the mean of an unseen transition among hundreds."""
    draws = np.random.default_rng(0).dirichlet([30, 5, 2], size=(200, 1, 1, 1))
    concentration = np.full((1, 1, 1, 500), 1 / 500)
    concentration[..., :3] += 20
    for posterior in (Drawn(np.array([[[[1.0, 0.0, 0.0]]]]), draws), Dirichlet(concentration)):
        lower, upper = posterior.interval()
        assert (lower <= posterior.mean).all() and (posterior.mean <= upper).all()
