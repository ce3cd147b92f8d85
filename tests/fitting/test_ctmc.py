"""Generators of records at irregular times: against SciPy, closed forms, a direct search, a grid, and known rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.optimize import minimize
from scipy.stats import chisquare

from evenhand.errors import InvalidInputError
from evenhand.fitting import Gaps, Moves
from evenhand.fitting.covariates import Design
from evenhand.fitting.ctmc.fit import fit_generators, step_transitions
from evenhand.fitting.ctmc.inference import Laplace, RateModel, posterior_mode
from evenhand.fitting.ctmc.likelihood import MOST_DURATIONS, read_panel

from ..conftest import mentions


def as_moves(rows, shape, carry_action=False):
    """Moves of rows (type, state, action, next_state, time)."""
    num_types, num_actions, num_states, _ = shape
    distinct, number = np.unique(np.array(rows, float), axis=0, return_counts=True)
    places = distinct[:, :4].astype(np.int32).T
    counts = np.zeros((num_types, num_states, num_actions, num_states), np.int64)
    return Moves(counts, Gaps(*places, distinct[:, 4], number.astype(np.int64)), carry_action)


def generator(rates):
    return rates - np.diag(rates.sum(axis=1))


def law(rates, action, time, step, carry_action=False, exact=()):
    """What one type does in a time without entering exact states: rates (action, state, next_state)."""
    generators = np.array([generator(own) for own in rates])
    for state in exact:
        others = np.arange(rates.shape[-1]) != state
        generators[:, others, state] = 0.0
    if carry_action:
        return expm(generators[action] * time)
    first, rest = min(time, step), max(time - step, 0.0)
    return expm(generators[action] * first) @ expm(generators[0] * rest)


def simulated(rates, num_moves, times, step, rng, chance=0.4):
    """So many moves of each type, from states and actions of chance."""
    num_types, num_actions, num_states, _ = rates.shape
    rows = []
    for kind in range(num_types):
        laws = {(a, t): law(rates[kind], a, t, step) for a in range(num_actions) for t in times}
        for _ in range(num_moves):
            state, time = rng.integers(num_states), rng.choice(times)
            action = int(rng.integers(num_actions)) if rng.random() < chance else 0
            rows.append((kind, state, action, rng.choice(num_states, p=laws[action, time][state]), time))
    return as_moves(rows, rates.shape)


def log_likelihood(rates, moves, step, exact=()):
    """Move by move, by the matrix exponential of SciPy."""
    total = 0.0
    gaps = moves.gaps
    kinds = zip(gaps.type, gaps.state, gaps.action, gaps.next_state, gaps.time, gaps.number, strict=True)
    for kind, state, action, after, time, number in kinds:
        arrived = law(rates[kind], action, time, step, moves.carry_action, exact)[state]
        if after in exact and after != state:
            last = action if moves.carry_action or time <= step else 0
            into = rates[kind, last, :, after].copy()
            into[after] = 0.0
            total += number * np.log(arrived @ into)
        else:
            total += number * np.log(arrived[after])
    return total


# The likelihood


def random_rates(rng, num_types=2, num_actions=2, num_states=4):
    shape = (num_types, num_actions, num_states, num_states)
    return rng.gamma(0.7, 0.6, size=shape) * (1 - np.eye(num_states))


@pytest.mark.parametrize("carry_action", [False, True])
@pytest.mark.parametrize("exact", [(), (3,), (1, 3), (0, 1, 2, 3)])
def test_likelihood_and_gradient_are_those_of_single_exponentials(exact, carry_action):
    rng = np.random.default_rng(0)
    rates = random_rates(rng)
    rates[0] = 0.7 * np.eye(4, k=1) + 0.7 * np.eye(
        4, k=-3
    )  # a circle of like rates, of which one action has no way back
    rates[0, 1, 3] = 0.0
    rows = [(k, s, a, s2, t) for k, s, a, s2, t in _rows(rng, 60) if k == 1 or a == 0]
    moves = as_moves(rows, rates.shape, carry_action)
    made = read_panel(moves, 1.2, exact).has_path(rates > 0)
    assert made.all() == (len(exact) == 0)  # no way round the circle misses an exact state
    with np.errstate(divide="ignore"):
        rows = [row for row in rows if np.isfinite(log_likelihood(rates, as_moves([row], rates.shape), 1.2, exact))]
    assert len(rows) > 20
    moves = as_moves(rows, rates.shape, carry_action)
    assert read_panel(moves, 1.2, exact).has_path(rates > 0).all()
    expected = read_panel(moves, 1.2, exact).expect(rates)
    assert expected.values.sum() == pytest.approx(log_likelihood(rates, moves, 1.2, exact), rel=1e-11)
    gradient = expected.jumps - rates * expected.times
    for place in [(0, 0, 0, 1), (0, 0, 3, 0), (1, 1, 2, 3), (1, 0, 2, 3), (1, 0, 1, 0), (1, 1, 0, 2)]:
        higher, lower = rates.copy(), rates.copy()
        higher[place] *= np.exp(1e-5)
        lower[place] *= np.exp(-1e-5)
        rise = log_likelihood(higher, moves, 1.2, exact) - log_likelihood(lower, moves, 1.2, exact)
        assert gradient[place] == pytest.approx(rise / 2e-5, rel=1e-5, abs=1e-6), place


def _rows(rng, number):
    sizes = (2, 4, 2, 4)
    for _ in range(number):
        yield (*(int(rng.integers(size)) for size in sizes), float(rng.choice([0.5, 1.2, 2.3, 7.0])))


def test_whole_steps_are_counted_as_they_are_over_time():
    """A move in `counts` took one step: the same as a gap of that time."""
    rng = np.random.default_rng(1)
    rates = random_rates(rng)
    counts = rng.integers(0, 3, size=(2, 4, 2, 4))
    empty = as_moves(np.zeros((0, 5)), rates.shape).gaps
    rows = [(*place, 1.5) for place in np.argwhere(counts).tolist() for _ in range(counts[tuple(place)])]
    one, other = Moves(counts, empty), as_moves(rows, rates.shape)
    np.testing.assert_allclose(read_panel(one, 1.5).expect(rates).values, read_panel(other, 1.5).expect(rates).values)


def test_pooled_records_add_up():
    rng = np.random.default_rng(2)
    rates = random_rates(rng)
    panel = read_panel(as_moves(list(_rows(rng, 50)), rates.shape), 1.0)
    design = Design(np.zeros(2, int), np.zeros((2, 0)))
    together = RateModel(panel, rates[:1] > 0, 1.0, 1.0, design)
    alike = np.broadcast_to(rates[:1], rates.shape)
    value, jumps, _ = together.expect(together.pack(rates[:1]))
    assert value == pytest.approx(panel.expect(alike).values.sum())
    np.testing.assert_allclose(together.rates(jumps)[0], panel.expect(alike).jumps.sum(axis=0))


def test_very_many_durations_are_rounded_and_nothing_is_lost():
    rng = np.random.default_rng(3)
    rates = random_rates(rng, 1, 1, 2)
    rows = [
        (0, int(rng.integers(2)), 0, int(rng.integers(2)), float(rng.uniform(0.5, 9)))
        for _ in range(MOST_DURATIONS + 9)
    ]
    moves = as_moves(rows, rates.shape)
    panel = read_panel(moves, 1.0)
    assert len(panel.times) < MOST_DURATIONS and panel.number.sum() == len(rows)
    exactly = _two_states(rates[0, 0, 0, 1], rates[0, 0, 1, 0], moves)
    assert panel.expect(rates).values[0] == pytest.approx(exactly, rel=1e-5)


def _two_states(up, down, moves):
    """The log-likelihood of two states in closed form."""
    gaps, total = moves.gaps, up + down
    left = np.exp(-total * gaps.time)
    leaving = np.where(gaps.state == 0, up, down) / total * (1 - left)
    return (gaps.number * np.log(np.where(gaps.state == gaps.next_state, 1 - leaving, leaving))).sum()


# The estimate


def test_maximum_likelihood_of_two_states_is_that_of_a_direct_search():
    rng = np.random.default_rng(4)
    moves = simulated(np.array([[[[0, 0.6], [0.25, 0]]]]), 150, [0.5, 1.0, 2.5], 1.0, rng)
    found = fit_generators(moves, 1.0, prior=0, num_draws=20)
    search = minimize(lambda logs: -_two_states(*np.exp(logs), moves), [0.0, 0.0], method="Nelder-Mead", tol=1e-10)
    np.testing.assert_allclose(found.rates[0, 0, [0, 1], [1, 0]], np.exp(search.x), rtol=1e-4)
    assert found.log_likelihood == pytest.approx(-search.fun)
    np.testing.assert_allclose(found.mean[0, :, 0], expm(generator(found.rates[0, 0])), atol=1e-12)


@pytest.mark.parametrize("prior", [None, 0])
def test_posterior_of_two_states_is_close_to_that_of_a_grid(prior):
    """Quantiles of a transition against a fine grid of both rates; 15 records are few for a Laplace approximation."""
    rng = np.random.default_rng(3)
    moves = simulated(np.array([[[[0, 0.6], [0.25, 0]]]]), 15, [0.5, 1.0, 2.5], 1.0, rng)
    found = fit_generators(moves, 1.0, prior=prior, num_draws=2500)  # without a prior, draws have the weakest one
    grid = np.exp(np.linspace(-8, 3.5, 140))
    logs = np.array([[_two_states(up, down, moves) + np.log(up * down) - up - down for down in grid] for up in grid])
    up, down = np.meshgrid(grid, grid, indexing="ij")
    worsens = (up / (up + down) * (1 - np.exp(-up - down))).ravel()
    order = np.argsort(worsens)
    weights = np.cumsum(np.exp(logs - logs.max()).ravel()[order])
    shares = np.array([0.025, 0.25, 0.5, 0.75, 0.975])
    exactly = worsens[order][np.searchsorted(weights / weights[-1], shares)]
    np.testing.assert_allclose(np.quantile(found.draws[:, 0, 0, 0, 1], shares), exactly, atol=0.08)


def test_without_a_prior_a_record_that_two_jumps_explain_keeps_both():
    """The jump from 0 to 2 was straight, or by way of 1. A likelihood alone lets either rate fall to 0 for good."""
    rows = [(0, 0, 0, 2, 1.0), (0, 0, 0, 1, 0.7), (0, 1, 0, 2, 0.9), *[(0, 0, 0, 0, 1.0)] * 4, (0, 2, 0, 2, 1.3)]
    found = fit_generators(as_moves(rows, (1, 1, 3, 3)), 1.0, prior=0, num_draws=400)
    straight = found.draws[:, 0, 0, 0, 2]
    assert np.quantile(straight, 0.1) > 1e-3 and (found.draws[:, 0, 2, 0, :2] == 0).all()


def test_without_a_prior_who_was_never_seen_to_jump_stays():
    found = fit_generators(as_moves([(0, 0, 0, 0, 1.5), (0, 1, 0, 1, 0.5)], (1, 1, 2, 2)), 1.0, prior=0, num_draws=5)
    np.testing.assert_allclose(found.mean[0, :, 0], np.eye(2), atol=1e-6)
    np.testing.assert_allclose(found.draws[:, 0, :, 0], np.broadcast_to(np.eye(2), (5, 2, 2)), atol=1e-6)


def test_rates_are_found_again_and_better_with_more_records():
    rng = np.random.default_rng(5)
    rates = random_rates(rng, 1, 2, 3)
    errors = []
    for num_moves in (100, 8_000):
        found = fit_generators(simulated(rates, num_moves, [0.4, 1.0, 1.9], 1.0, rng), 1.0, num_draws=60)
        away = np.abs(found.mean - step_transitions(rates, 1.0))
        errors.append(away.max())
        assert (away < 4 * found.draws.std(axis=0) + 1e-3).all()
        assert not found.misfits and not found.at_once
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize("prior", [1.0, 0.0])
def test_mode_by_way_of_a_coarse_panel_is_that_of_the_full_panel(prior):
    rng = np.random.default_rng(6)
    rates = random_rates(rng, 1, 2, 3)
    rows = []
    for _ in range(1500):
        time, state, action = round(rng.exponential(1.3), 3) + 0.01, rng.integers(3), int(rng.random() < 0.4)
        rows.append((0, state, action, rng.choice(3, p=law(rates[0], action, time, 1.0)[state]), time))
    moves = as_moves(rows, rates.shape)
    found = fit_generators(moves, 1.0, prior=prior, num_draws=4000)
    model = RateModel(read_panel(moves, 1.0), np.broadcast_to(~np.eye(3, dtype=bool), rates.shape), 1.0, prior)
    mode = posterior_mode(model)
    np.testing.assert_allclose(found.rates, model.unpack(mode), rtol=1e-4, atol=1e-5)
    assert found.log_likelihood == pytest.approx(model.expect(mode)[0], rel=1e-9)
    if prior:
        drawn = Laplace(model, mode).draw(4000, np.random.default_rng(1))
        own = np.stack([step_transitions(model.rates(one), 1.0) for one in drawn]).std(axis=0)
        np.testing.assert_allclose(found.draws.std(axis=0), own, rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("prior", "num_types", "num_moves"), [(None, 1, 200), (None, 3, 150)])
def test_intervals_cover(prior, num_types, num_moves):
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        common = rng.gamma(0.5, 0.5, size=(1, 2, 3, 3)) * (1 - np.eye(3))
        rates = common * rng.gamma(3, 1 / 3, size=(num_types, 2, 3, 3))
        moves = simulated(rates, num_moves, [0.5, 1.0, 1.7, 3.0], 1.0, rng)
        lower, upper = fit_generators(moves, 1.0, prior=prior, num_draws=200).interval(0.95)
        truth = step_transitions(rates, 1.0)
        covered.append(((lower <= truth) & (truth <= upper)).mean())
    assert 0.89 < np.mean(covered) < 0.99


@pytest.mark.slow
def test_intervals_cover_a_transition_of_two_states():
    rates = np.array([[[[0, 0.5], [0.3, 0]]]])
    covered = []
    for seed in range(30):
        moves = simulated(rates, 60, [0.5, 1.0, 2.5], 1.0, np.random.default_rng(seed))
        lower, upper = fit_generators(moves, 1.0, rng=seed, num_draws=200).interval(0.8)
        covered.append((lower <= step_transitions(rates, 1.0)) & (step_transitions(rates, 1.0) <= upper))
    assert 0.66 < np.mean(covered) <= 0.94  # 30 times two transitions, 80 % each


def test_exactly_observed_deaths_tell_more_than_states_at_their_time():
    """Deaths at the time they came: taken for states seen at that time, they look too slow; their density does not."""
    rng = np.random.default_rng(7)
    death, rows = 0.8, []
    for _ in range(400):
        time = rng.exponential(1 / death)
        rows += [(0, 0, 0, 1, round(time, 2) + 0.005)] if time < 2.5 else [(0, 0, 0, 0, 2.5)]
    moves = as_moves(rows, (1, 1, 2, 2))
    possible = np.array([[[1, 1]], [[0, 1]]], bool)
    known, not_known = (
        fit_generators(moves, 1.0, exact, possible=possible, prior=0, num_draws=50) for exact in ((1,), ())
    )
    exposure = sum(row[4] for row in rows)
    closed = sum(row[3] for row in rows) / exposure  # deaths over time at risk
    assert known.rates[0, 0, 0, 1] == pytest.approx(closed, rel=1e-4)
    assert not_known.rates[0, 0, 0, 1] > 1.3 * death
    assert known.rates[0, 0, 1, 0] == 0.0


def test_only_worse_keeps_zeros_in_every_draw():
    rng = np.random.default_rng(8)
    rates = np.triu(np.ones((3, 3)), 1)[None, None] * np.array([0.4, 0.6, 0.6])[:, None]
    moves = simulated(rates, 200, [0.5, 1.5], 1.0, rng)
    possible = np.broadcast_to(np.triu(np.ones((3, 3), bool))[:, None, :], (3, 1, 3))
    found = fit_generators(moves, 1.0, possible=possible, num_draws=40)
    assert (found.draws[:, 0, :, 0][:, *np.tril_indices(3, -1)] == 0).all()
    np.testing.assert_allclose(found.draws.sum(axis=-1), 1.0, atol=1e-12)
    with pytest.raises(InvalidInputError, check=mentions("possible")):
        fit_generators(as_moves([(0, 2, 0, 0, 1.0)], rates.shape), 1.0, possible=possible)


def test_a_sparse_type_leans_on_the_others():
    rng = np.random.default_rng(9)
    rates = np.broadcast_to(random_rates(rng, 1, 1, 3), (4, 1, 3, 3)).copy()
    plenty = simulated(rates[:3], 300, [0.5, 1.0, 2.0], 1.0, rng)
    few = simulated(rates[3:], 6, [1.0], 1.0, rng).gaps
    gaps = plenty.gaps
    joined = Gaps(
        *(np.concatenate([getattr(gaps, name), getattr(few, name) + 3 * (name == "type")]) for name in FIELDS)
    )
    together = fit_generators(Moves(np.zeros((4, 3, 1, 3), np.int64), joined), 1.0, num_draws=60)
    alone = fit_generators(Moves(np.zeros((1, 3, 1, 3), np.int64), few), 1.0, num_draws=60)
    truth = step_transitions(rates, 1.0)
    assert np.abs(together.mean[3] - truth[3]).max() < 0.7 * np.abs(alone.mean[0] - truth[0]).max()
    width, own = (np.diff(found.interval(), axis=0)[0] for found in (together, alone))
    assert width[3].mean() < own[0].mean()
    assert width[0].mean() < width[3].mean()  # and is still known less well than those that were seen often


FIELDS = ("type", "state", "action", "next_state", "time", "number")


def test_moves_that_no_rates_explain_are_reported():
    """Round in a circle, one state a step: a matrix that has no generator. And arms that leave at once."""
    rows = [(0, s, 0, (s + 1) % 3, 1.0) for s in range(3) for _ in range(60)]
    found = fit_generators(as_moves(rows, (1, 1, 3, 3)), 1.0, num_draws=20)
    assert found.misfits and found.misfits[0].chance < 1e-6
    misfit = found.misfits[0]
    assert misfit.seen[(misfit.state + 1) % 3] == 60 and misfit.expected.sum() == pytest.approx(60)
    rare = misfit.expected < 1  # one class together
    classes = [(*table[~rare], *[table[rare].sum()] * bool(rare.any())) for table in (misfit.seen, misfit.expected)]
    assert misfit.chance == pytest.approx(chisquare(*classes, sum_check=False).pvalue)
    rows = [(0, 0, 0, 1, 0.5)] * 200 + [(0, 1, 0, 1, 0.5)] * 200
    fast = fit_generators(as_moves(rows, (1, 1, 2, 2)), 1.0, prior=0, num_draws=20)
    assert (0, 0, 0) in fast.at_once


def test_pairs_that_were_never_seen_are_not_made_up():
    rows = [(0, 0, 0, 1, 0.7), (0, 1, 0, 0, 1.4), (1, 0, 0, 0, 0.7), (1, 0, 1, 1, 0.6)]
    found = fit_generators(as_moves(rows, (2, 2, 2, 2)), 1.0, num_draws=10)
    unknown = np.isnan(found.mean).any(axis=-1)
    assert unknown.tolist() == [[[False, False], [False, True]]] * 2
    assert (np.isnan(found.draws).any(axis=(0, -1)) == unknown).all()


@given(st.data())
def test_odd_records_give_sound_transitions(data):
    """Few moves, of any kind, over times from very short to very long."""
    place = st.integers(0, 2)
    row = st.tuples(st.just(0), place, st.integers(0, 1), place, st.sampled_from([1e-3, 0.3, 1.0, 2.5, 400.0]))
    rows = data.draw(st.lists(row, min_size=1, max_size=6))
    found = fit_generators(as_moves(rows, (1, 2, 3, 3)), 1.0, num_draws=8)
    known = ~np.isnan(found.mean)
    assert known.any() and np.isfinite(found.rates).all()
    np.testing.assert_allclose(found.mean[known].reshape(-1, 3).sum(axis=1), 1.0, atol=1e-9)
    assert (found.draws[:, known] >= 0).all() and (found.draws[:, known] <= 1 + 1e-9).all()


def test_the_same_seed_gives_the_same_draws():
    moves = as_moves([(0, 0, 0, 1, 0.7), (0, 1, 0, 0, 1.4)], (1, 1, 2, 2))
    one, same, other = (fit_generators(moves, 1.0, rng=seed, num_draws=5).draws for seed in (3, 3, 4))
    assert (one == same).all() and (one != other).any()


def test_a_negative_prior_is_refused():
    moves = as_moves([(0, 0, 0, 1, 0.7)], (1, 1, 2, 2))
    with pytest.raises(InvalidInputError, match="prior"):
        fit_generators(moves, 1.0, prior=-1)
