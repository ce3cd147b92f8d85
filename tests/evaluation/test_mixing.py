"""Batches and mixing of simulated averages, on arms whose autocorrelation is known."""

import json

import numpy as np
import pytest

import evenhand as eh
from evenhand.evaluation.long_run import Mixing


def flipping(up, down, num_arms=3):
    """Arms of two states, whatever is done: rewards have the autocorrelation (1 - up - down)^k at lag k."""
    rows = [[1 - up, up], [down, 1 - down]]
    arm = eh.Arm(np.repeat(np.array(rows)[:, None], 2, axis=1), [[0.0, 0.0], [1.0, 1.0]], [[0], [1]], [1.0, 0.0])
    return eh.CoupledMDP([arm], [1], 1.0, [num_arms], criterion="average")


def played(problem, policy="never-act", **options):
    return eh.evaluate(problem, policy, method="monte-carlo", **options)


def lag(up, down):
    return 1 - up - down


@pytest.mark.parametrize(("up", "down"), [(0.5, 0.5), (0.1, 0.1), (0.05, 0.2), (0.02, 0.02), (0.9, 0.9), (1e-3, 3e-3)])
def test_the_autocorrelation_time_is_the_known_one(up, down):
    found = played(flipping(up, down), num_episodes=2000)
    rho, length = lag(up, down), found.mixing.batch_length
    # Of batches of this length, exactly: sums of (1 - k / L) rho^k over the lags from -L to L.
    lags = np.arange(1, length)
    expected = 1 + 2 * np.sum((1 - lags / length) * rho**lags)
    # Three standard errors of a variance from these batches, of three arms.
    room = 3 * np.sqrt(2 / (3 * found.mixing.num_batches))
    assert found.mixing.autocorrelation_time[0] == pytest.approx(expected, rel=1.5 * room)
    size = found.mixing.num_batches * length / expected
    assert found.mixing.effective_sample_size[0] == pytest.approx(size, rel=2 * room)


@pytest.mark.parametrize("flip", [0.1, 0.02, 0.002])
def test_the_start_is_forgotten_by_then(flip):
    found = played(flipping(flip, flip), num_episodes=200).mixing
    exact = np.log(1e-4) / np.log(lag(flip, flip))
    assert exact <= found.forgetting_steps <= 4 * exact


def test_intervals_cover_the_average():
    problem, exact = flipping(0.004, 0.012), 0.25
    found = [played(problem, num_episodes=40, rng=seed) for seed in range(200)]
    covered = sum(abs(one.mean - exact) <= 1.96 * one.mean_stderr for one in found)
    # 95 % of 200, less three standard errors.
    assert covered >= 200 * 0.95 - 3 * np.sqrt(200 * 0.95 * 0.05)
    # The mean of all agrees: no start is left in them.
    errors = np.sqrt(np.sum([one.mean_stderr**2 for one in found])) / 200
    assert abs(np.mean([one.mean for one in found]) - exact) <= 3 * errors


def test_a_run_that_is_too_short_shows_a_drift():
    problem = flipping(0.002, 0.002)
    short, whole = played(problem, horizon=100, num_episodes=500), played(problem, num_episodes=500)
    assert short.mixing.halves > 4
    assert whole.mixing.halves < 4
    assert short.mixing.forgetting_steps > 100 / 4
    assert short.mixing.starts is None
    assert whole.mixing.starts < 4


def test_other_evaluations_have_none():
    problem = flipping(0.1, 0.1)
    assert eh.evaluate(problem, "never-act", method="exact").mixing is None
    assert played(problem.with_criterion("finite:10")).mixing is None
    assert "mixing" not in played(problem.with_criterion("finite:10")).to_dict()


def test_a_mixture_has_the_worst_of_its_parts():
    problem = eh.problems.machine_replacement(num_arms=3).with_criterion("average")
    parts = [eh.policies.whittle(problem), eh.policies.never_act(problem)]
    mixture = eh.MixturePolicy(parts, [0.5, 0.5])
    found = played(problem, mixture, num_episodes=100).mixing
    assert found.num_batches == 100
    own = [played(problem, part, num_episodes=100).mixing.forgetting_steps for part in parts]
    assert found.forgetting_steps >= max(own) * 0.5
    one, other = (Mixing(5, 750, f, np.array([t, np.nan]), 1.0, s) for f, t, s in ((3.0, 2.0, None), (4.0, 1.0, 2.0)))
    worst = Mixing.worst([one, other])
    assert (worst.num_batches, worst.forgetting_steps, worst.starts) == (10, 4.0, None)
    assert worst.autocorrelation_time[0] == 2.0
    assert np.isnan(worst.autocorrelation_time[1])


def test_rewards_that_do_not_vary_have_no_time():
    arm = eh.Arm(np.ones((1, 2, 1)), [[1.0, 1.0]], [[0], [1]], [1.0])
    problem = eh.CoupledMDP([arm], [1], 1.0, [2], criterion="average")
    assert np.isnan(played(problem, num_episodes=10).mixing.autocorrelation_time[0])
    assert played(problem, num_episodes=10).to_dict()["mixing"]["autocorrelation_time"] == [None]


def test_batches_that_do_not_vary_have_no_time():
    found = played(flipping(1.0, 1.0), num_episodes=20).mixing
    assert np.isnan(found.autocorrelation_time).all()
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["effective_sample_size"] == [None]


def test_one_episode_has_no_spread_to_compare():
    found = played(flipping(0.1, 0.1), num_episodes=1).mixing
    assert found.num_batches == 1
    assert found.starts is None


def test_a_simulator_has_batches_alone():
    def sample(states, actions, rng):
        return np.where(actions == 1, 0, np.minimum(states + (rng.random(len(states)) < 0.3), 2)), 1 - states / 2

    usage, first = [[0], [1]], lambda number, rng: rng.integers(0, 3, number)
    pumps = eh.Simulator(sample, first, usage, num_states=3, num_arms=4, budget=[1], discount=1.0, criterion="average")
    found = played(pumps, "random", num_episodes=20).mixing
    assert found.num_batches == 20
    assert found.forgetting_steps is found.autocorrelation_time is found.starts is None
    assert found.halves < 5


def test_json_and_display():
    found = played(flipping(0.1, 0.1), num_episodes=50)
    stored = json.loads(json.dumps(found.to_dict()["mixing"]))
    assert set(stored) > {"num_batches", "batch_length", "autocorrelation_time", "effective_sample_size"}
    html = found._repr_html_()
    for term in ("batches", "autocorrelation time", "forgets its start", "agreement"):
        assert term in html
