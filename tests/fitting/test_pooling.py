"""Pooling: against quadrature of the whole hierarchy, closed forms at the ends, and coverage on simulated counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betaln, gammaln

from evenhand.errors import InvalidInput
from evenhand.fitting.pooling import ALIKE, learned


def some_counts(seed, num_types=3, num_next=4, rows=30):
    rng = np.random.default_rng(seed)
    common = rng.dirichlet(np.ones(num_next), size=(2, 2))
    own = np.array([[[rng.dirichlet(5 * row + 0.01) for row in pair] for pair in common] for _ in range(num_types)])
    return rng.multinomial(rng.integers(0, rows, size=own.shape[:-1]), own).astype(float)


def by_quadrature(counts):
    """(type,) means and variances of p_t1 where there are two next states: m and c are summed over, p is exact."""
    n, totals = counts[:, 0], counts.sum(axis=1)
    share = (np.arange(400) + 0.5) / 400  # the prior of c is uniform in c / (c + ALIKE)
    m = (np.arange(400) + 0.5) / 400
    angle = np.sin(m * np.pi / 2) ** 2  # Dirichlet(1/2, 1/2) is uniform in the angle
    c, common = (ALIKE * share / (1 - share))[:, None], angle[None]
    logs = sum(
        betaln(k + c * common, total - k + c * (1 - common)) - betaln(c * common, c * (1 - common))
        for k, total in zip(n, totals, strict=True)
    )
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    alpha, total = n[:, None, None] + c * common, totals[:, None, None] + c
    mean = (weight * alpha / total).sum(axis=(1, 2))
    square = (weight * alpha * (alpha + 1) / (total * (total + 1))).sum(axis=(1, 2))
    return mean, square - mean**2


@pytest.mark.parametrize(
    "rows",
    [[[8, 2], [30, 10]], [[0, 5], [10, 10], [0, 0]], [[50, 50], [2, 90], [3, 0], [40, 1]], [[3, 1]] * 8],
)
def test_means_and_spreads_are_near_those_of_the_whole_hierarchy(rows):
    counts = np.array(rows, dtype=float)
    posterior = learned(counts[:, None, None]).given(counts[:, None, None])
    mean, variance = by_quadrature(counts)
    found = posterior.concentration[:, 0, 0]
    total = found.sum(axis=-1)
    np.testing.assert_allclose(posterior.mean[:, 0, 0, 0], mean, atol=0.025)
    ours = np.sqrt(mean * (1 - mean) / (total + 1))
    np.testing.assert_allclose(ours, np.sqrt(variance), rtol=0.16)


def test_the_bound_is_below_the_marginal_likelihood_and_near_it():
    from evenhand.fitting.pooling import _Seen

    counts = np.array([[8, 2], [3, 9], [20, 6]], dtype=float)[:, None, None]
    for c in (0.3, 3.0, 30.0, 3000.0):
        even = np.full((1, 1, 2), 0.5)
        _, bound = _Seen(counts, even).pooled(np.full((1, 1), c), even + counts.sum(axis=0), 300)

        def likelihood(angle, c=c):
            m = np.sin(angle) ** 2
            logs = [betaln(a + c * m, b + c * (1 - m)) - betaln(c * m, c * (1 - m)) for a, b in counts[:, 0, 0]]
            return np.exp(sum(logs)) * 2 / np.pi

        exact = np.log(quad(likelihood, 1e-9, np.pi / 2 - 1e-9, limit=200)[0])
        told = bound[0, 0] - 2 * gammaln(0.5)
        assert exact - 0.5 < told < exact + 1e-6


def test_a_fixed_strength_of_one_type_adds_evenly_spread_observations():
    counts = some_counts(1, num_types=1)
    np.testing.assert_allclose(learned(counts, prior=6).given(counts).concentration, counts + 1.5, rtol=1e-9)
    np.testing.assert_allclose(learned(counts).given(counts).concentration, counts + 0.25, rtol=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_no_prior_is_the_counts(seed, num_types):
    counts = some_counts(seed, num_types)
    np.testing.assert_array_equal(learned(counts, prior=0).given(counts).concentration, counts)


@given(st.integers(0, 10**6), st.permutations(range(4)))
@settings(max_examples=15, deadline=None)
def test_the_order_of_types_changes_nothing(seed, order):
    counts = some_counts(seed, 4)
    there = learned(counts).given(counts).concentration[order]
    again = learned(counts[order]).given(counts[order]).concentration
    np.testing.assert_allclose(again, there, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_types_that_are_one_are_as_if_merged(seed):
    counts = some_counts(seed, 3)
    merged = counts.sum(axis=0, keepdims=True)
    apart = learned(counts, prior=1e9).given(counts).concentration
    together = learned(merged).given(merged).concentration
    np.testing.assert_allclose(apart, np.broadcast_to(together, apart.shape), rtol=1e-4, atol=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([None, 0.0, 2.0]))
@settings(max_examples=20, deadline=None)
def test_what_cannot_be_stays_zero_and_the_rest_does_not(seed, prior):
    counts = some_counts(seed, 3)
    possible = (counts > 0).any(axis=0) | (np.random.default_rng(seed).random(counts.shape[1:]) < 0.3)
    concentration = learned(counts, possible, prior).given(counts).concentration
    seen = counts.sum(axis=(0, 3)) > 0
    assert (concentration[:, ~possible] == 0).all()
    if prior is None:
        assert (concentration[:, possible & seen[..., None]] > 0).all()
    assert (concentration[:, ~seen] == 0).all()  # nothing is made up where nothing was seen


def test_an_unseen_row_is_the_others_and_no_surer_than_they_are():
    counts = np.array([[60, 20], [55, 25], [0, 0]], dtype=float)[:, None, None]
    leaning = learned(counts)
    row = leaning.given(counts).concentration[2, 0, 0]
    assert abs(row[0] / row.sum() - 115 / 160) < 0.05 and 1 < row.sum() < 160
    assert leaning.shares(counts)[2, 0, 0] == pytest.approx(1) and leaning.shares(counts)[0, 0, 0] < 0.9
    apart = np.array([[60, 1], [2, 80], [0, 0]], dtype=float)[:, None, None]
    assert learned(apart).given(apart).concentration[2, 0, 0].sum() < row.sum() / 2


def test_rows_are_their_own_as_they_grow():
    truth = np.array([[0.9, 0.1], [0.3, 0.7]])[:, None, None]
    errors = [np.abs(learned(n * truth).given(n * truth).mean - truth).max() for n in (10, 100, 1000, 10_000)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-3


@pytest.mark.parametrize(("num_types", "alike"), [(2, 4.0), (2, 1e4), (6, 4.0), (6, 40.0)])
def test_intervals_cover(num_types, alike):
    """Four hundred replications of a pair at once: each is a pair of one large problem."""
    rng = np.random.default_rng(int(alike) + num_types)
    common = rng.dirichlet(np.ones(4), size=(400, 1))
    own = rng.gamma(alike * np.broadcast_to(common, (num_types, 400, 1, 4)))
    own /= own.sum(axis=-1, keepdims=True)
    counts = rng.multinomial(rng.integers(3, 150, size=own.shape[:-1]), own).astype(float)
    lower, upper = learned(counts).given(counts).interval(0.95)
    inside = (lower <= own) & (own <= upper)
    assert inside.mean() > 0.9
    sparse = counts.sum(axis=-1) < 20
    error = np.abs(learned(counts).given(counts).mean - own)[sparse].mean()
    assert error < np.abs(learned(counts, prior=0).given(counts).mean - own)[sparse].mean()


@pytest.mark.parametrize(("num_types", "num_next"), [(2, 4), (6, 2)])
def test_intervals_of_types_that_hardly_agree_miss_by_next_to_nothing(num_types, num_next):
    """Many truths are all but 0 or 1 then, and what does not hold them ends within a thousandth of them."""
    rng = np.random.default_rng(1)
    common = rng.dirichlet(np.ones(num_next), size=(400, 1))
    own = rng.gamma(0.5 * np.broadcast_to(common, (num_types, 400, 1, num_next))) + 1e-300
    own /= own.sum(axis=-1, keepdims=True)
    counts = rng.multinomial(rng.integers(1, 60, size=own.shape[:-1]), own).astype(float)
    lower, upper = learned(counts).given(counts).interval(0.95)
    exactly = ((lower <= own) & (own <= upper)).mean()
    nearly = ((lower - 1e-3 <= own) & (own <= upper + 1e-3)).mean()
    assert exactly > 0.82 and 0.94 < nearly < 0.99


def test_draws_of_what_is_leaned_on_have_its_moments():
    counts = some_counts(4, 3)
    leaning = learned(counts)
    rng = np.random.default_rng(0)
    draws = np.array([leaning.draw(rng) for _ in range(1000)])
    strength = (leaning.weight * leaning.strength).sum(axis=0)
    np.testing.assert_allclose(np.log(draws.sum(axis=-1)).mean(axis=0), _mean_log(leaning), atol=0.2)
    assert (strength > 0).all() and (draws >= 0).all()


def _mean_log(leaning):
    return (leaning.weight * np.log(leaning.strength)).sum(axis=0)


@pytest.mark.parametrize("prior", [-1, "much", float("nan"), True, 1e12])
def test_a_prior_is_a_number_of_observations(prior):
    with pytest.raises(InvalidInput, match="prior: expected a number of observations"):
        learned(np.ones((2, 1, 1, 2)), prior=prior)


@pytest.mark.parametrize("rows", [[12, 37], [3, 3], [200, 1, 40]])
def test_an_unseen_row_is_not_pulled_to_what_nobody_ever_did(rows):
    """All moves of the others stayed; the row of a type that has none is theirs, and no surer than theirs."""
    counts = np.zeros((len(rows) + 1, 1, 1, 3))
    counts[:-1, 0, 0, 0] = rows
    posterior = learned(counts).given(counts)
    stay = posterior.mean[:, 0, 0, 0]
    assert stay[-1] >= sum(rows) / (sum(rows) + 1)
    lower, upper = posterior.interval()
    assert lower[-1, 0, 0, 0] < lower[:-1, 0, 0, 0].max() and upper[-1, 0, 0, 1] > upper[:-1, 0, 0, 1].min()
    assert (lower <= posterior.mean).all() and (posterior.mean <= upper).all()
