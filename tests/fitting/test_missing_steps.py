"""Missed steps: against enumeration of paths, a direct optimiser, quadrature of the posterior, and coverage."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from evenhand.fitting import Gaps, estimate_prior
from evenhand.fitting.missing_steps import Missed, draw_rows, fill, with_paths
from tests.fitting.flat import fit

from ..conftest import mentions


def simulated(rng, rows, num_arms, num_steps, kept):
    """Counts and gaps of one type: arms move under actions of chance, idle where nothing is recorded."""
    S, A = rows.shape[:2]
    counts, kinds = np.zeros((1, S, A, S)), {}
    state, since, first, action = rng.integers(S, size=num_arms), np.zeros(num_arms, int), None, None
    first, action = state.copy(), rng.integers(A, size=num_arms)
    acting = action.copy()
    for _ in range(num_steps):
        state = (rng.random(num_arms)[:, None] > np.cumsum(rows[state, acting], axis=-1)).sum(axis=-1).clip(max=S - 1)
        since += 1
        seen = rng.random(num_arms) < kept
        for arm in np.flatnonzero(seen):
            key = (first[arm], action[arm], state[arm], since[arm])
            if since[arm] == 1:
                counts[0, first[arm], action[arm], state[arm]] += 1
            else:
                kinds[key] = kinds.get(key, 0) + 1
        first, since = np.where(seen, state, first), np.where(seen, 0, since)
        action = np.where(seen, rng.integers(A, size=num_arms), action)
        acting = np.where(seen, action, 0)
    return counts, gaps_of([(0, s, a, j, L, n) for (s, a, j, L), n in sorted(kinds.items())])


def gaps_of(kinds):
    kind, state, action, end, time, number = np.array(kinds).reshape(-1, 6).T
    small = [part.astype(np.int32) for part in (kind, state, action, end)]
    return Gaps(*small, time.astype(float), number.astype(np.int64))


def log_likelihood(missed, rows):
    return missed.gaps.number @ np.log(missed.likelihoods(rows))


def some_rows(seed, shape=(2, 3, 2)):
    return np.random.default_rng(seed).dirichlet(np.ones(shape[1]), size=shape)


KINDS = [(0, 0, 1, 2, 3, 4), (0, 0, 1, 2, 2, 1), (1, 2, 0, 0, 4, 3), (1, 1, 1, 1, 4, 2), (0, 2, 0, 2, 2, 5)]


@pytest.mark.parametrize("carry", [False, True])
def test_expected_moves_are_those_of_all_paths(carry):
    rows, missed = some_rows(1), Missed(gaps_of(KINDS), 2 if carry else 1)
    wanted, likelihood = np.zeros_like(rows), 0.0
    for t, s, a, end, steps, number in KINDS:
        paths = [(s, *middle, end) for middle in product(range(3), repeat=steps - 1)]
        acts = [a] * steps if carry else [a] + [0] * (steps - 1)
        chances = [np.prod([rows[t, i, b, j] for i, j, b in zip(p, p[1:], acts, strict=False)]) for p in paths]
        likelihood += number * np.log(sum(chances))
        for path, chance in zip(paths, chances, strict=True):
            for i, j, b in zip(path, path[1:], acts, strict=False):
                wanted[t, i, b, j] += number * chance / sum(chances)
    found, told = missed.expected(rows)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert told == pytest.approx(likelihood) == log_likelihood(missed, rows)
    draws = np.mean([missed.drawn(rows, np.random.default_rng(seed)) for seed in range(600)], axis=0)
    np.testing.assert_allclose(draws, wanted, atol=4 * np.sqrt(5 / 600))


def test_without_a_prior_it_is_the_maximum_and_never_falls():
    rng = np.random.default_rng(3)
    counts, gaps = simulated(rng, some_rows(4)[0], 40, 30, 0.5)
    missed = Missed(gaps, 1)
    filled = fill(missed, counts, np.ones((3, 2, 3), dtype=bool), prior=0)
    assert (np.diff(filled.log_likelihoods) > -1e-9).all() and len(filled.log_likelihoods) > 5

    def cost(logits):
        rows = np.exp(logits.reshape(1, 3, 2, 3))
        rows /= rows.sum(axis=-1, keepdims=True)
        return -(counts * np.log(rows)).sum() - log_likelihood(missed, rows)

    best = minimize(cost, np.zeros(18), method="BFGS", options={"gtol": 1e-6})
    assert filled.log_likelihoods[-1] == pytest.approx(-best.fun, abs=1e-5)
    rows = np.exp(best.x.reshape(3, 2, 3))
    np.testing.assert_allclose(filled.rows[0], rows / rows.sum(axis=-1, keepdims=True), atol=1e-3)


def test_long_gaps_arrive_at_the_maximum_in_few_rounds():
    """Good to poor in a step, and good to good in 997: any two chances, searched directly. EM alone takes ages."""
    counts = np.zeros((1, 2, 1, 2))
    counts[0, 0, 0, 1] = 1
    filled = fill(Missed(gaps_of([(0, 0, 0, 0, 997, 1)]), 1), counts, np.ones((2, 1, 2), dtype=bool), prior=0)

    def cost(logits):
        stay, other = 1 / (1 + np.exp(-logits))
        power = np.linalg.matrix_power([[stay, 1 - stay], [1 - other, other]], 997)
        return -np.log(1 - stay) - np.log(power[0, 0])

    best = minimize(cost, [-4.0, -4.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    assert filled.log_likelihoods[-1] == pytest.approx(-best.fun, abs=1e-9)
    np.testing.assert_allclose(filled.rows[0, [0, 1], 0, [0, 1]], 1 / (1 + np.exp(-best.x)), atol=1e-5)
    assert len(filled.log_likelihoods) < 3000 and (np.diff(filled.log_likelihoods) > -1e-9).all()


@pytest.mark.parametrize("prior", [None, 0.0, 3.0])
def test_leaps_lead_where_rounds_alone_lead(prior):
    """The equations of EM hold where it arrived: rows are what their own expected moves say."""
    rng = np.random.default_rng(5)
    counts, missed = records_of(rng, rng.dirichlet(np.ones(3), size=(3, 3, 2)), 20)
    filled = fill(missed, counts, EVERY, prior)
    again = filled.pooled_prior.given(counts + missed.expected(filled.rows)[0]).mean
    np.testing.assert_allclose(filled.rows, again, atol=2e-9)


def test_powers_are_those_of_the_matrix():
    rows, missed = some_rows(1), Missed(gaps_of([(1, 0, 1, 2, steps, 1) for steps in (2, 14, 998)]), 1)
    for length, power in zip(missed.lengths, missed.powers(rows), strict=True):
        np.testing.assert_allclose(power[1, 0], np.linalg.matrix_power(rows[1, :, 0], int(length)), atol=1e-13)
    assert {1, 13, 997} <= set(missed.lengths.tolist()) and len(missed.lengths) < 25


def test_drawn_paths_are_paths():
    """Of 998 steps each: as many moves out of a state as into it, but for the ends."""
    rows, missed = some_rows(2), Missed(gaps_of([(0, 0, 1, 2, 998, 3), (0, 1, 0, 1, 7, 2)]), 1)
    moves = missed.drawn(rows, np.random.default_rng(0))[0]
    assert moves.sum() == 3 * 998 + 2 * 7 and moves[:, 1].sum() == moves[0, 1].sum() == 3
    np.testing.assert_array_equal(moves.sum(axis=(1, 2)) - moves.sum(axis=(0, 1)), [3, 0, -3])


def test_a_stay_too_long_for_a_number_is_no_impossible_one():
    """Idle arms only get worse: who was good a thousand steps later stayed, though 3^-999 is no number."""
    possible = np.triu(np.ones((3, 3), dtype=bool))[:, None]
    missed = Missed(gaps_of([(0, 0, 0, 0, 999, 1), (0, 0, 0, 2, 999, 1)]), 1)
    counts = np.zeros((1, 3, 1, 3))
    assert with_paths(missed, counts, possible).all()
    filled = fill(missed, counts, possible, prior=0)
    # 999 stays and, in one of two arms, one move: the geometric law that is cut off makes the likeliest chance.
    assert filled.rows[0, 0, 0, 0] == pytest.approx(0.5 ** (1 / 999), abs=1e-6)
    draws = draw_rows(missed, counts, possible, filled, np.random.default_rng(0), num_draws=5).draws
    assert np.isfinite(draws).all() and (draws[:, 0, 0, 0, 0] > 0.9).all()


def test_without_gaps_there_is_nothing_to_fill():
    counts = np.array([[[[3.0, 1.0]], [[2.0, 2.0]]]])
    filled = fill(Missed(gaps_of([]), 1), counts, np.ones((2, 1, 2), dtype=bool), prior=0)
    np.testing.assert_allclose(filled.rows, counts / 4)


@pytest.mark.slow
def test_draws_are_of_the_posterior():
    """Two states, one action, one observation of prior: the posterior of two chances, summed on a grid."""
    counts = np.array([[[[6.0, 2.0]], [[1.0, 3.0]]]])
    gaps = gaps_of([(0, 0, 0, 1, 2, 7), (0, 0, 0, 0, 3, 4), (0, 1, 0, 0, 2, 6), (0, 1, 0, 1, 4, 3)])
    missed = Missed(gaps, 1)
    every = np.ones((2, 1, 2), dtype=bool)
    filled = fill(missed, counts, every)
    drawn = draw_rows(missed, counts, every, filled, np.random.default_rng(0), num_draws=800)
    angle = (np.arange(150) + 0.5) / 150  # Dirichlet(1/2, 1/2) is uniform in the angle
    chance = np.sin(angle * np.pi / 2) ** 2
    grid = np.stack(np.meshgrid(chance, chance, indexing="ij"), axis=-1)
    rows = np.stack([grid, 1 - grid], axis=-1)[..., None, :].reshape(-1, 2, 1, 2)  # (point, state, action, next)
    logs = (counts * np.log(rows)).sum(axis=(1, 2, 3))
    for s, j, steps, number in zip(gaps.state, gaps.next_state, gaps.time.astype(int), gaps.number, strict=True):
        logs += number * np.log(np.linalg.matrix_power(rows[:, :, 0], steps)[:, s, j])
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    for state in (0, 1):
        exact = (weight * rows[:, state, 0, 0]).sum()
        spread = np.sqrt((weight * (rows[:, state, 0, 0] - exact) ** 2).sum())
        sample = drawn.draws[:, 0, state, 0, 0]
        assert abs(sample.mean() - exact) < 0.025 and sample.std() == pytest.approx(spread, rel=0.12)
        assert abs(drawn.mean[0, state, 0, 0] - exact) < 0.015
        assert abs(filled.rows[0, state, 0, 0] - exact) < 0.03


def records_of(rng, truth, num_steps, kept=0.6):
    """Counts and gaps of many types, six arms each."""
    parts = [simulated(rng, rows, 6, num_steps, kept) for rows in truth]
    kinds = [
        (t, *row)
        for t, (_, gaps) in enumerate(parts)
        for row in zip(gaps.state, gaps.action, gaps.next_state, gaps.time, gaps.number, strict=True)
    ]
    return np.concatenate([part for part, _ in parts]), Missed(gaps_of(kinds), 1)


EVERY = np.ones((3, 2, 3), dtype=bool)


@pytest.mark.slow
def test_intervals_have_their_coverage():
    """Two hundred independent replications, a type each: truths are drawn from the prior, so that 0.9 means 0.9."""
    rng = np.random.default_rng(8)
    truth = rng.dirichlet(np.full(3, 2.0), size=(200, 3, 2))
    counts, missed = records_of(rng, truth, 12)
    alone = estimate_prior(counts[:1], EVERY, prior=6.0)  # of one type: even, and given
    filled = replace(fill(missed, counts, EVERY, prior=6.0), pooled_prior=alone)
    lower, upper = draw_rows(missed, counts, EVERY, filled, rng, num_draws=300).interval(0.9)
    inside = ((lower <= truth) & (truth <= upper)).mean(axis=(1, 2, 3))
    # Quantiles of 300 draws, which depend on each other, lie inside the true ones: that costs about a hundredth.
    assert abs(inside.mean() - 0.89) < 0.01 + 3 * inside.std() / np.sqrt(200)


def test_estimates_near_the_truth_as_records_grow():
    rng = np.random.default_rng(8)
    truth = rng.dirichlet(np.ones(3), size=(10, 3, 2))
    errors = []
    for num_steps in (12, 100):
        counts, missed = records_of(rng, truth, num_steps)
        errors.append(np.abs(fill(missed, counts, EVERY).rows - truth).mean())
    assert errors[1] < 0.6 * errors[0]


@pytest.mark.slow
def test_intervals_of_types_that_lean_on_each_other_nearly_cover():
    """Twelve families of forty types; all types of a family share what they lean on, and the luck of it."""
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = rng.gamma(np.broadcast_to(8 * rng.dirichlet(np.ones(3), size=(3, 2)), (40, 3, 2, 3))) + 1e-12
        truth /= truth.sum(axis=-1, keepdims=True)
        counts, missed = records_of(rng, truth, 12)
        filled = fill(missed, counts, EVERY)
        lower, upper = draw_rows(missed, counts, EVERY, filled, rng, num_draws=200).interval(0.9)
        inside.append(((lower <= truth) & (truth <= upper)).mean())
    assert np.mean(inside) > 0.85


def test_what_cannot_be_is_never_passed():
    possible = np.ones((3, 2, 3), dtype=bool)
    possible[:, 0] = np.triu(np.ones((3, 3), dtype=bool))  # idle arms only go up
    kinds = [(0, 0, 0, 2, 3, 4), (0, 2, 1, 1, 2, 6), (0, 0, 1, 1, 2, 3)]
    counts = np.zeros((1, 3, 2, 3))
    counts[0, :, 1] = 2
    counts[0, :, 0] = np.eye(3)
    missed = Missed(gaps_of([*kinds, (0, 2, 0, 0, 2, 1)]), 1)
    np.testing.assert_array_equal(with_paths(missed, counts, possible), [True, True, True, False])
    missed = Missed(gaps_of(kinds), 1)
    for prior in (None, 0):
        filled = fill(missed, counts, possible, prior)
        draws = draw_rows(missed, counts, possible, filled, np.random.default_rng(0), num_draws=20).draws
        assert (filled.rows[:, ~possible] == 0).all() and (draws[:, :, ~possible] == 0).all()
        np.testing.assert_allclose(draws.sum(axis=-1), 1)


@pytest.mark.slow
def test_a_row_that_a_type_never_saw_is_the_other_types_also_where_steps_were_missed() -> None:
    rows = [
        {"arm": f"{kind}{n}", "time": time, "state": state, "action": "none", "type": kind}
        for kind, course in (("A", "ssssss"), ("B", "ssss ss"), ("C", "gggggg"))
        for n in range(3)
        for time, state in enumerate(course)
        if state != " "
    ]
    found = fit(rows, arm="arm", time="time", state="state", action="action", type="type")
    place = found.log.states.index("s")
    assert len(found.moves.gaps.number) and found.unseen[2, place, 0]
    stay = found.posterior.mean[:, place, 0, place]
    assert stay[2] > 0.98 and stay[:2].min() > 0.98
    assert any(mentions("3 pairs")(note) for note in found.notes)
