"""Whittle indices against markovianbandit, the code of the paper whose pivoting this library follows."""

import contextlib
import io

import numpy as np
import pytest

from evenhand.model import Average
from evenhand.solvers import whittle_indices

from ..conftest import crossed


@pytest.fixture(scope="module")
def oracle():
    """Indices of one arm, or None where it is not indexable. The package changes NumPy's error state and prints."""
    before = np.geterr()
    import markovianbandit as package

    np.seterr(**before)

    def indices(transitions, rewards, discount):
        bandit = package.RestlessBandit(transitions, rewards)
        with contextlib.redirect_stdout(io.StringIO()):
            found = bandit.whittle_indices(check_indexability=True, discount=discount)
        return found if bandit.indexable else None

    return indices


def arms_of(seed, num_arms, num_states, density):
    rng = np.random.default_rng(seed)
    rows = rng.exponential(size=(num_arms, num_states, 2, num_states))
    rows *= rng.random(rows.shape) < density
    rows[..., 0] += rows.sum(axis=-1) == 0
    return rows / rows.sum(axis=-1, keepdims=True), rng.random((num_arms, num_states, 2))


def compare(oracle, seed, num_arms, num_states, density, discount):
    """Verdicts and indices of a batch; returns how many were indexable."""
    transitions, rewards = arms_of(seed, num_arms, num_states, density)
    ours = whittle_indices(transitions, rewards, discount)
    for arm in range(num_arms):
        theirs = oracle(transitions[arm], rewards[arm], discount)
        assert ours.indexable[arm] == (theirs is not None)
        if theirs is not None:
            np.testing.assert_allclose(ours.indices[arm], theirs, rtol=1e-9, atol=1e-9)
    return int(ours.indexable.sum())


@pytest.mark.parametrize("num_states", [2, 3, 5, 10, 20, 50])
@pytest.mark.parametrize(("density", "discount"), [(1.0, 0.95), (0.3, 0.9), (1.0, 0.999)])
def test_random_arms(oracle, num_states, density, discount):
    assert compare(oracle, num_states, 5, num_states, density, discount) > 0


@pytest.mark.parametrize(("num_states", "density"), crossed([2, 3, 5, 10, 20, 50], [1.0, 0.4, 0.2]))
def test_averages(oracle, num_states, density):
    """For that package discount 1 is the average. It does not look whether a policy has several closed classes."""
    transitions, rewards = arms_of(num_states, 10, num_states, density)
    ours, accepted = whittle_indices(transitions, rewards, Average()), 0
    for arm in [arm for arm in range(10) if arm not in ours.refused]:
        theirs = oracle(transitions[arm], rewards[arm], 1)
        if theirs is not None and not np.isfinite(theirs).all():
            continue
        assert ours.indexable[arm] == (theirs is not None)
        if theirs is not None:
            np.testing.assert_allclose(ours.indices[arm], theirs, rtol=1e-8, atol=1e-8)
            accepted += 1
    assert accepted > 0


@pytest.mark.parametrize(
    "num_states", [2, 3, 4, 6, 9, 14, 21, *(pytest.param(size, marks=pytest.mark.slow) for size in (30, 40, 50))]
)
def test_five_hundred_arms(oracle, num_states):
    for density, discount in ((1.0, 0.95), (0.4, 0.5), (0.2, 0.95), (0.4, 0.99), (1.0, 0.9999)):
        assert compare(oracle, 100 + num_states, 10, num_states, density, discount) > 0
