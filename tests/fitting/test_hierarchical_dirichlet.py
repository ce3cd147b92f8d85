"""Pooling: against quadrature of the whole hierarchy, closed forms at the ends, and coverage on simulated counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betainc, betaln, gammaln

from evenhand.errors import InvalidInputError
from evenhand.fitting import estimate_prior
from evenhand.fitting.hierarchical_dirichlet import ALIKE, variational_row

from ..conftest import mentions


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
    posterior = estimate_prior(counts[:, None, None]).matched(counts[:, None, None])
    mean, variance = by_quadrature(counts)
    found = posterior.concentration[:, 0, 0]
    total = found.sum(axis=-1)
    np.testing.assert_allclose(posterior.mean[:, 0, 0, 0], mean, atol=0.025)
    ours = np.sqrt(mean * (1 - mean) / (total + 1))
    np.testing.assert_allclose(ours, np.sqrt(variance), rtol=0.16)


def test_the_bound_is_below_the_marginal_likelihood_and_near_it():
    counts = np.array([[8, 2], [3, 9], [20, 6]], dtype=float)[:, None, None]
    for c in (0.3, 3.0, 30.0, 3000.0):
        even = np.full((1, 1, 2), 0.5)
        _, bound = variational_row(counts, even, c, even + counts.sum(axis=0), 300)

        def likelihood(angle, c=c):
            m = np.sin(angle) ** 2
            logs = [betaln(a + c * m, b + c * (1 - m)) - betaln(c * m, c * (1 - m)) for a, b in counts[:, 0, 0]]
            return np.exp(sum(logs)) * 2 / np.pi

        exact = np.log(quad(likelihood, 1e-9, np.pi / 2 - 1e-9, limit=200)[0])
        told = bound[0, 0] - 2 * gammaln(0.5)
        assert exact - 0.5 < told < exact + 1e-6


def test_a_fixed_strength_of_one_type_adds_evenly_spread_observations():
    counts = some_counts(1, num_types=1)
    np.testing.assert_allclose(estimate_prior(counts, prior=6).matched(counts).concentration, counts + 1.5, rtol=1e-9)
    np.testing.assert_allclose(estimate_prior(counts).matched(counts).concentration, counts + 0.25, rtol=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_no_prior_is_the_counts(seed, num_types):
    counts = some_counts(seed, num_types)
    np.testing.assert_array_equal(estimate_prior(counts, prior=0).matched(counts).concentration, counts)


@given(st.integers(0, 10**6), st.permutations(range(4)))
def test_the_order_of_types_changes_nothing(seed, order):
    counts = some_counts(seed, 4)
    there = estimate_prior(counts).matched(counts).concentration[order]
    again = estimate_prior(counts[order]).matched(counts[order]).concentration
    np.testing.assert_allclose(again, there, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10**6))
def test_types_that_are_one_are_as_if_merged(seed):
    counts = some_counts(seed, 3)
    merged = counts.sum(axis=0, keepdims=True)
    apart = estimate_prior(counts, prior=1e9).matched(counts).concentration
    together = estimate_prior(merged).matched(merged).concentration
    np.testing.assert_allclose(apart, np.broadcast_to(together, apart.shape), rtol=1e-4, atol=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([None, 0.0, 2.0]))
def test_what_cannot_be_stays_zero_and_the_rest_does_not(seed, prior):
    counts = some_counts(seed, 3)
    possible = (counts > 0).any(axis=0) | (np.random.default_rng(seed).random(counts.shape[1:]) < 0.3)
    concentration = estimate_prior(counts, possible, prior).matched(counts).concentration
    seen = counts.sum(axis=(0, 3)) > 0
    assert (concentration[:, ~possible] == 0).all()
    if prior is None:
        assert (concentration[:, possible & seen[..., None]] > 0).all()
    assert (concentration[:, ~seen] == 0).all()  # nothing is made up where nothing was seen


def test_an_unseen_row_is_the_others_and_no_surer_than_they_are():
    counts = np.array([[60, 20], [55, 25], [0, 0]], dtype=float)[:, None, None]
    leaning = estimate_prior(counts)
    row = leaning.matched(counts).concentration[2, 0, 0]
    assert abs(row[0] / row.sum() - 115 / 160) < 0.05 and 1 < row.sum() < 160
    apart = np.array([[60, 1], [2, 80], [0, 0]], dtype=float)[:, None, None]
    assert estimate_prior(apart).matched(apart).concentration[2, 0, 0].sum() < row.sum() / 2


def test_rows_are_their_own_as_they_grow():
    truth = np.array([[0.9, 0.1], [0.3, 0.7]])[:, None, None]
    errors = [np.abs(estimate_prior(n * truth).given(n * truth).mean - truth).max() for n in (10, 100, 1000, 10_000)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-3


def replications(num_types, num_next, alike, even, number, seed=0):
    """Rows of so many pairs, and counts of them; four rows in ten have fewer than ten moves.

    m is from Dirichlet(1, ..., 1), or from what the model believes, Dirichlet(1/J, ..., 1/J).
    """
    rng = np.random.default_rng(seed)
    common = rng.dirichlet(np.full(num_next, 1.0 if even else 1 / num_next), size=(number, 1)) + 1e-300
    shape = alike * np.broadcast_to(common, (num_types, number, 1, num_next))
    logs = np.log(rng.standard_gamma(shape + 1)) + np.log(rng.random(shape.shape)) / shape  # of gammas below any number
    rows = np.exp(logs - logs.max(axis=-1, keepdims=True))
    rows /= rows.sum(axis=-1, keepdims=True)
    few, many = rng.integers(1, 10, rows.shape[:-1]), rng.integers(10, 150, rows.shape[:-1])
    return rows, rng.multinomial(np.where(rng.random(few.shape) < 0.4, few, many), rows).astype(float)


def shares_held(num_types, num_next, alike, even, number):
    """How often intervals of 95 % hold the truth: in all rows, and in those of fewer than ten moves."""
    rows, counts = replications(num_types, num_next, alike, even, number)
    lower, upper = estimate_prior(counts).given(counts).interval(0.95)
    inside = (lower <= rows) & (rows <= upper)
    return inside.mean(), inside[counts.sum(axis=-1) < 10].mean()


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(("num_types", "num_next", "alike"), [(2, 4, 0.3), (6, 2, 0.3), (3, 4, 4.0), (6, 3, 40.0)])
def test_intervals_cover(num_types, num_next, alike, even):
    """A hundred replications of a pair at once: each is a pair of one large problem.

    Also where types hardly agree, and many truths are 1e-50 or 1 but for that: one Dirichlet distribution a row
    held 55 to 95 % of them.
    """
    held, of_sparse = shares_held(num_types, num_next, alike, even, 100)
    assert 0.925 < held < 0.985 and of_sparse > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("num_next", [2, 4, 6])
@pytest.mark.parametrize("num_types", [2, 6, 20])
def test_intervals_cover_in_many_settings(num_types, num_next, even):
    """Three hundred replications each, from types that hardly agree to types that are one; docs/fitting.md has it."""
    for alike in (0.3, 1.0, 4.0, 40.0, 1e4):
        held, of_sparse = shares_held(num_types, num_next, alike, even, 300)
        print(f"{num_types} types, {num_next} next states, c = {alike:g}, {even=}: {held:.3f}, sparse {of_sparse:.3f}")
        assert held > 0.92 and of_sparse > 0.9


def test_sparse_rows_are_nearer_to_the_truth_than_their_own_counts():
    rows, counts = replications(4, 4, 10.0, True, 200)
    sparse = counts.sum(axis=-1) < 10
    error = [
        np.abs(estimate_prior(counts, prior=prior).given(counts).mean - rows)[sparse].mean() for prior in (None, 0)
    ]
    assert error[0] < 0.7 * error[1]


@pytest.mark.parametrize(
    "rows", [[[8, 2], [30, 10]], [[0, 5], [10, 10], [3, 0]], [[50, 50], [2, 90], [3, 0], [40, 1]], [[3, 1]] * 8]
)
def test_intervals_leave_out_the_tails_of_the_whole_hierarchy(rows):
    counts = np.array(rows, dtype=float)
    lower, upper = (
        ends[:, 0, 0, 0] for ends in estimate_prior(counts[:, None, None]).given(counts[:, None, None]).interval()
    )
    for x, share in ((lower, 0.025), (upper, 0.975)):  # m is by variational Bayes, hence the difference
        np.testing.assert_allclose(distribution(counts, x), share, atol=0.025)


def distribution(counts, x):
    """(type,) how likely p_t1 is below x where there are two next states, by quadrature over c and m."""
    share = (np.arange(60) + 0.5) / 60
    angle = np.sin(share * np.pi / 2) ** 2
    c, common = (ALIKE * share / (1 - share))[:, None], angle[None]
    n, totals = counts[:, 0], counts.sum(axis=1)
    logs = sum(
        betaln(k + c * common, total - k + c * (1 - common)) - betaln(c * common, c * (1 - common))
        for k, total in zip(n, totals, strict=True)
    )
    weight = np.exp(logs - logs.max())
    alpha, beta = n[:, None, None] + c * common, (totals - n)[:, None, None] + c * (1 - common)
    return (weight * betainc(alpha, beta, x[:, None, None])).sum(axis=(1, 2)) / weight.sum()


def test_draws_of_rows_have_their_means_and_intervals():
    counts = some_counts(2, 3)
    counts[0, 0, 0] = 0  # lent
    posterior = estimate_prior(counts).given(counts)
    draws, (lower, upper) = posterior.draw(1000, rng=1), posterior.interval(0.9)
    np.testing.assert_allclose(draws.sum(axis=-1), 1.0, atol=1e-12)
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean, atol=0.03)
    below, above = (draws < lower).mean(axis=0), (draws > upper).mean(axis=0)
    assert below.max() < 0.08 and above.max() < 0.08 and (below + above).mean() == pytest.approx(0.1, abs=0.015)
    assert not posterior.leans[0, 0, 0] and posterior.leans.sum() == 11


def test_rows_that_lean_on_the_same_are_drawn_together():
    counts = np.array([[1, 1]] * 4, dtype=float)[:, None, None]
    drawn = estimate_prior(counts, prior=100).given(counts).draw(400)[:, :, 0, 0, 0]
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] > 0.5
    alone = estimate_prior(counts, prior=0.01).given(counts).draw(400)[:, :, 0, 0, 0]
    assert abs(np.corrcoef(alone[:, 0], alone[:, 1])[0, 1]) < 0.2


def test_stated_rows_are_certain_and_copies_are_equal():
    counts = some_counts(3, 3)
    posterior = estimate_prior(counts).given(counts)
    known, like = np.zeros((3, 2, 2), dtype=bool), np.broadcast_to([0, 1], (3, 2, 2)).astype(np.int32).copy()
    known[1, 0, 0], like[2, 1, 1] = True, 0
    told = posterior.settled(np.broadcast_to([0.1, 0.2, 0.3, 0.4], counts.shape), known, like)
    lower, upper = told.interval()
    for rows in (told.mean, told.one(0, 3), lower, upper):
        np.testing.assert_allclose(rows[1, 0, 0], [0.1, 0.2, 0.3, 0.4])
        assert (rows[2, 1, 1] == rows[2, 1, 0]).all()
    assert (told.mean[0] == posterior.mean[0]).all()


def test_where_nothing_is_uncertain_intervals_are_points():
    """All rows told, or with one possible next state each: there was an error, for nothing leaned."""
    counts = some_counts(3, 3)
    told = estimate_prior(counts).given(counts).settled(np.full(counts.shape, 0.25), np.ones((3, 2, 2), dtype=bool))
    stays = np.zeros(counts.shape)
    stays[..., 0] = 5
    certain = estimate_prior(stays, stays[0] > 0).given(stays)
    for posterior in (told, certain):
        for ends in posterior.interval():
            np.testing.assert_array_equal(ends, posterior.mean)


def test_more_moves_count_as_if_they_had_been_seen_but_for_what_is_leaned_on():
    counts, more = some_counts(6, 3), some_counts(7, 3)
    leaning = estimate_prior(counts)
    posterior = leaning.given(counts)
    np.testing.assert_array_equal(posterior.with_more(more).draw(2), leaning.given(counts + more).draw(2))
    known = np.zeros((3, 2, 2), dtype=bool)
    known[1, 0, 0] = True
    told = posterior.settled(np.full(counts.shape, 0.25), known).with_more(more)
    np.testing.assert_allclose(told.one(0, 0)[1, 0, 0], 0.25)
    np.testing.assert_array_equal(told.mean[0], leaning.given(counts + more).mean[0])


def test_draws_of_what_is_leaned_on_have_its_moments():
    counts = some_counts(4, 3)
    leaning = estimate_prior(counts)
    rng = np.random.default_rng(0)
    draws = np.array([leaning.draw(rng) for _ in range(1000)])
    strength = (leaning.weight * leaning.strength).sum(axis=0)
    np.testing.assert_allclose(np.log(draws.sum(axis=-1)).mean(axis=0), _mean_log(leaning), atol=0.2)
    assert (strength > 0).all() and (draws >= 0).all()


def _mean_log(leaning):
    return (leaning.weight * np.log(leaning.strength)).sum(axis=0)


@pytest.mark.parametrize("prior", [-1, "much", float("nan"), True, 1e12])
def test_a_prior_is_a_number_of_observations(prior):
    with pytest.raises(InvalidInputError, check=mentions("prior")):
        estimate_prior(np.ones((2, 1, 1, 2)), prior=prior)


@pytest.mark.parametrize("rows", [[12, 37], [3, 3], [200, 1, 40]])
def test_an_unobserved_row_is_not_shrunk_towards_unobserved_moves(rows):
    """All moves of the others stayed; the row of a type that has none is theirs, and no surer than theirs."""
    counts = np.zeros((len(rows) + 1, 1, 1, 3))
    counts[:-1, 0, 0, 0] = rows
    posterior = estimate_prior(counts).given(counts)
    stay = posterior.mean[:, 0, 0, 0]
    assert stay[-1] >= sum(rows) / (sum(rows) + 1)
    lower, upper = posterior.interval()
    assert lower[-1, 0, 0, 0] < lower[:-1, 0, 0, 0].max() and upper[-1, 0, 0, 1] > upper[:-1, 0, 0, 1].min()
    assert (lower <= posterior.mean).all() and (posterior.mean <= upper).all()
