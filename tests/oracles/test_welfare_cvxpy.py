"""Welfare against the atoms of CVXPY, as functions and as what is maximised."""

import cvxpy as cp
import numpy as np
import pytest

from evenhand.model import AlphaFair, Gini, Maximin, Utilitarian

NUM_ARMS = 6


def ordered(weights, values):
    """A rank-weighted welfare as a concave expression: sum_k (w_k - w_{k+1}) (sum of the k smallest)."""
    steps = weights - np.append(weights[1:], 0.0)
    return sum(step * cp.sum_smallest(values, k + 1) for k, step in enumerate(steps) if step > 0)


def powered(alpha, values):
    """The alpha-fair certainty equivalent as a concave expression."""
    if alpha == 1:
        return cp.geo_mean(values)
    beta = 1 - alpha
    return cp.pnorm(values, beta) * values.size ** (-1 / beta)


RANKED = {
    "gini:2": Gini.geometric(NUM_ARMS, 2),
    "gini:1.1": Gini.geometric(NUM_ARMS, 1.1),
    "gini:50": Gini.geometric(NUM_ARMS, 50),
    "gini explicit": Gini([0.4, 0.2, 0.2, 0.1, 0.1, 0.0]),
    "utilitarian": Utilitarian(),
    "maximin": Maximin(),
    "maximin:0.05": Maximin(0.05),
}


@pytest.mark.parametrize("welfare", RANKED.values(), ids=RANKED.keys())
def test_rank_weighted_welfare_is_a_sum_of_smallest(welfare):
    rng = np.random.default_rng(1)
    for values in [*rng.normal(size=(10, NUM_ARMS)), *rng.integers(-1, 2, size=(10, NUM_ARMS)).astype(float)]:
        expected = ordered(welfare.rank_weights(NUM_ARMS), values).value
        np.testing.assert_allclose(welfare(values), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alpha", [0, 0.5, 1, 2, 3, 1.5])
def test_alpha_fair_welfare_is_a_mean(alpha):
    for values in np.random.default_rng(2).uniform(0.1, 10, size=(10, NUM_ARMS)):
        np.testing.assert_allclose(AlphaFair(alpha)(values), powered(alpha, values).value, rtol=1e-10)


def test_alpha_two_is_the_harmonic_mean():
    values = np.array([1.0, 2.0, 4.0, 0.3])
    np.testing.assert_allclose(AlphaFair(2)(values), cp.harmonic_mean(values).value, rtol=1e-10)


def region(rng):
    """A variable, and random budgets that bound it."""
    values = cp.Variable(NUM_ARMS, nonneg=True)
    return values, [rng.uniform(0.2, 1, size=(3, NUM_ARMS)) @ values <= rng.uniform(1, 2, size=3)]


def best_linear(weights, values, constraints):
    return cp.Problem(cp.Maximize(weights @ values), constraints).solve(solver=cp.HIGHS)


@pytest.mark.parametrize("welfare", RANKED.values(), ids=RANKED.keys())
def test_the_maximum_of_a_rank_weighted_welfare(welfare):
    values, constraints = region(np.random.default_rng(3))
    objective = ordered(welfare.rank_weights(NUM_ARMS), values)
    optimum = cp.Problem(cp.Maximize(objective), constraints).solve(solver=cp.HIGHS)
    np.testing.assert_allclose(welfare(values.value), optimum, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:geo_mean is being approximated")
@pytest.mark.parametrize("alpha", [0.5, 1, 2, 3])
def test_at_the_maximum_no_direction_of_the_gradient_helps(alpha):
    values, constraints = region(np.random.default_rng(4))
    welfare = AlphaFair(alpha)
    optimum = cp.Problem(cp.Maximize(powered(alpha, values)), constraints).solve(solver=cp.CLARABEL)
    best = values.value
    np.testing.assert_allclose(welfare(best), optimum, rtol=1e-6)
    # The linear bound of a smooth concave function is tight at the optimum, and above the optimum elsewhere.
    slope = welfare.supergradient(best)
    np.testing.assert_allclose(best_linear(slope, values, constraints), optimum, rtol=1e-3)
    elsewhere = np.full(NUM_ARMS, 0.1)
    assert best_linear(welfare.supergradient(elsewhere), values, constraints) >= optimum * (1 - 1e-6)
