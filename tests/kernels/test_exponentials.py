"""Exponentials of generators: against SciPy and closed forms, also of generators with too few eigenvectors."""

import numpy as np
import pytest
from scipy.linalg import expm, expm_frechet
from scipy.stats import poisson

from evenhand.kernels import Exponentials

NUM_STATES = 5


def chain_of_like_rates(number=NUM_STATES):
    """One eigenvector for all its eigenvalues but one."""
    return np.eye(number, k=1) - np.diag(np.r_[np.ones(number - 1), 0.0])


def generators(rng):
    rates = rng.gamma(0.5, 1.0, size=(3, NUM_STATES, NUM_STATES)) * (1 - np.eye(NUM_STATES))
    circle = np.roll(np.eye(NUM_STATES), 1, axis=1) * 3.0  # complex eigenvalues
    rates = np.concatenate([rates, circle[None]])
    plain = rates - rates.sum(axis=2)[:, :, None] * np.eye(NUM_STATES)
    return np.concatenate([plain, chain_of_like_rates()[None], np.zeros((1, NUM_STATES, NUM_STATES))])


def law(generator, time):
    return Exponentials(generator[None], np.zeros(1, np.int32), np.array([time])).values[0]


@pytest.mark.parametrize("mean", [0.1, 4.0, 60.0])
def test_distributions_and_their_derivatives_are_those_of_scipy(mean):
    rng = np.random.default_rng(0)
    every = generators(rng)
    which = np.sort(rng.integers(len(every), size=40)).astype(np.int32)
    times = rng.exponential(mean, size=40)
    times[0] = 0.0
    weights = rng.random((40, NUM_STATES, NUM_STATES))
    found = Exponentials(every, which, times)
    laws = np.array([expm(every[g] * t) for g, t in zip(which, times, strict=True)])
    np.testing.assert_allclose(found.values, laws, atol=1e-12)
    slopes = np.zeros_like(every)
    for g, t, weight in zip(which, times, weights, strict=True):
        slopes[g] += expm_frechet(every[g].T * t, weight * t, compute_expm=False)
    np.testing.assert_allclose(found.adjoint(weights), slopes, rtol=1e-9, atol=1e-10 * (1 + mean))


def test_small_probabilities_are_as_exact_as_large_ones():
    """Four jumps of a chain in a short time: t^4 / 24 up to its first order, far below the rounding of 1."""
    time = 1e-5
    found = law(chain_of_like_rates(), time)
    assert found[0, 4] == pytest.approx(time**4 / 24, rel=1e-4)
    assert found[0, 3] == pytest.approx(time**3 / 6, rel=1e-4)
    assert found[4, 0] == 0.0


def test_a_long_time_forgets_where_it_began():
    generator = generators(np.random.default_rng(1))[0]
    found = law(generator, 1e5)
    np.testing.assert_allclose(found, found[[0]].repeat(NUM_STATES, axis=0), atol=1e-7)
    np.testing.assert_allclose(found[0] @ generator, 0.0, atol=1e-7)


@pytest.mark.parametrize("time", [0.5, 7.9, 30.0])
def test_the_series_ends_behind_the_longest_path(time):
    """A chain of 16 like states, of which the last is absorbing: what is reached is Poisson's, at every number."""
    last = 15
    found = law(chain_of_like_rates(last + 1), time)
    np.testing.assert_allclose(found[0, :last], poisson.pmf(np.arange(last), time), rtol=1e-13)
    assert found[0, last] == pytest.approx(poisson.sf(last - 1, time), rel=1e-13)


@pytest.mark.parametrize("time", [0.49, 100.0, 3e4])
def test_the_distributions_of_two_states_are_known_to_the_last_digits(time):
    found = law(np.array([[-1.0, 1.0], [1.0, -1.0]]), time)
    stays = (1 + np.exp(-2 * time)) / 2
    # Every squaring doubles the error of a sum over rows, so that a longer time has a larger one.
    np.testing.assert_allclose(found, [[stays, 1 - stays], [1 - stays, stays]], rtol=1e-15 * (1 + time))
