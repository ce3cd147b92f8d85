"""Intervals of welfare near its kinks: how often they cover what is known."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.evaluation import CONFIDENCE, welfare_error
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.model import Average, Objective, as_welfare
from evenhand.planning import ScoredPolicy, SolveMethod, Task
from evenhand.planning import mixture_search as mixed
from evenhand.policies import never_act


def weighed(welfare, number):
    read = as_welfare(welfare, number) if isinstance(welfare, str) else welfare
    return Objective(Average(), read, np.ones(number, dtype=np.int64), None, np.zeros(number))


def delta_error(objective, samples):
    return standard_errors(samples @ objective.supergradient(samples.mean(axis=0)))


def misses(welfare, truth, errors, error_of, num_times, num_episodes=50):
    """Share of intervals of 1.96 errors that miss the true value."""
    truth, spread = np.array(truth, dtype=float), np.array(errors) * np.sqrt(num_episodes)
    objective, rng, missed = weighed(welfare, len(truth)), np.random.default_rng(1), 0
    for _ in range(num_times):
        samples = truth + spread * rng.standard_normal((num_episodes, len(truth)))
        off = abs(objective(samples.mean(axis=0)) - objective(truth))
        missed += off > CONFIDENCE * error_of(objective, samples)
    return missed / num_times


def our_error(objective, samples):
    return welfare_error(objective, samples.mean(axis=0), np.ones(1), [samples])


FEW = [
    ("maximin", [0, 0, 0], [1, 1, 1]),
    ("maximin", [0, 0.5], [1, 0.1]),
    ("leximin", [0, 0.5, 1], [1, 0.5, 0.2]),
    ("maximin", [0] * 10, [1] * 10),
    ("gini:1.3", [0] * 20 + [100], [1] * 21),
]

MORE = [
    ("maximin", [0, 1.5], [1, 0.01]),
    ("maximin", [0, 2.5], [0.1, 1]),
    ("maximin", [0, 10], [1, 1]),
    ("maximin", [0] * 50 + [1000], [1] * 51),
    ("maximin", [0] * 30 + [100] * 30, [1] * 60),
    ("gini:2", [0] * 5 + [3] * 5 + [6] * 5 + [100], [1] * 16),
    ("alpha:20", [1] * 10, [0.05] * 10),
    ("alpha:100", [1] * 10, [0.05] * 10),
    ("maximin", [0, 0, 0, 5, 5, 5, 5, 5], [1] * 8),
    ("gini:2", [0] * 10, [1] * 10),
    ("gini:2", [0, 2, 4, 6, 8], [1] * 5),
    ("gini:1.1", [0] * 50, [1] * 50),
    ("gini:1.1", np.arange(50) / 5, [1] * 50),
]


@pytest.mark.parametrize(("welfare", "truth", "errors"), FEW)
def test_intervals_cover(welfare, truth, errors):
    """5 % of 300 may be missed, and chance adds two of its errors, 2.5 %."""
    assert misses(welfare, truth, errors, our_error, 300) <= 0.075


@pytest.mark.slow
@pytest.mark.parametrize(("welfare", "truth", "errors"), FEW + MORE)
def test_intervals_cover_by_many_repetitions(welfare, truth, errors):
    """With 50 episodes the normal law itself misses 5.6 %; three errors of 1500 repetitions are 1.8 %."""
    assert misses(welfare, truth, errors, our_error, 1500) <= 0.074


@pytest.mark.parametrize(
    ("truth", "errors", "most"), [([0, 3], [0.05, 1], 0.4), ([0, 2.5], [0.1, 1], 0.6), ([0, 6, 6], [1, 1, 1], 1.5)]
)
def test_intervals_are_not_much_too_wide(truth, errors, most):
    """Whoever is nearly surely the worst does not count with the whole noise of another."""
    rng, objective = np.random.default_rng(2), weighed("maximin", len(truth))
    spread = np.array(errors) * np.sqrt(50)
    told = [our_error(objective, truth + spread * rng.standard_normal((50, len(truth)))) for _ in range(60)]
    assert np.median(told) < most


def test_the_delta_method_does_not_cover():
    """Purpose of the intervals: the worst member has ten times the noise of the one that looks worst."""
    assert misses("maximin", [0, 0.5], [1, 0.1], delta_error, 300) > 0.25
    assert misses("gini:2", [0] * 10, [1] * 10, delta_error, 300) > 0.25


def samples_of(truth, errors, num_episodes=40, seed=0):
    return np.random.default_rng(seed).normal(truth, np.array(errors) * np.sqrt(num_episodes), (num_episodes, 3))


@pytest.mark.parametrize("welfare", ["utilitarian", "alpha:1", "alpha:3", "gini:1"])
def test_without_a_kink_it_is_the_delta_method(welfare):
    samples = samples_of([10.0, 10.0, 10.1], [0.1, 0.2, 0.3])
    objective = weighed(welfare, 3)
    assert our_error(objective, samples) == pytest.approx(delta_error(objective, samples), rel=1e-12)


@pytest.mark.parametrize("welfare", ["maximin", "gini:2", "leximin"])
def test_far_from_a_kink_too(welfare):
    samples = samples_of([0.0, 50.0, 100.0], [1.0, 0.5, 2.0])
    objective = weighed(welfare, 3)
    assert our_error(objective, samples) == pytest.approx(delta_error(objective, samples), rel=1e-9)


def test_parts_of_a_mixture_are_put_together():
    """Half of each of two policies on 40 episodes each; and a part that is exact adds nothing."""
    first, second = samples_of([0.0, 0.1, 9.0], [1, 1, 1]), samples_of([0.1, 0.0, 9.0], [1, 1, 1], seed=1)
    objective, half = weighed("maximin", 3), np.full(2, 0.5)
    both = (first.mean(axis=0) + second.mean(axis=0)) / 2
    together = welfare_error(objective, both, half, [first, second])
    assert together == pytest.approx(our_error(objective, first) / np.sqrt(2), rel=0.25)
    assert welfare_error(objective, both, np.zeros(0), []) == 0
    assert welfare_error(objective, both, half, [first, second[:1]]) == np.inf


def test_more_members_than_episodes():
    rng = np.random.default_rng(0)
    samples = rng.normal(0, np.sqrt(20), (20, 60))
    found = our_error(weighed("maximin", 60), samples)
    assert 1.3 < found < 2.2  # the least of 60 normal numbers is 3.5 below, in 1 of 40 cases: 3.5 / 1.96


class Least:
    """A maximin of a user's own, of one vector at a time, that ends below -3."""

    name = "least"

    def __call__(self, values, counts=None):
        self.check_domain(values)
        return float(min(values))

    def supergradient(self, values, counts=None):
        self.check_domain(values)
        return np.eye(len(values))[int(np.argmin(values))]

    def check_domain(self, values):
        if min(values) < -3:
            raise eh.errors.OutOfDomainError("too little")


def test_a_welfare_of_a_users_own():
    samples = samples_of([3.0, 3.2, 3.1], [1, 0.1, 1])
    assert our_error(weighed(Least(), 3), samples) == pytest.approx(our_error(weighed("maximin", 3), samples), rel=0.1)
    low = samples - samples.mean(axis=0).min() - 2.9  # many draws lie outside, and the others tell
    assert our_error(weighed(Least(), 3), low) >= delta_error(weighed(Least(), 3), low)


def three_coins():
    """Nobody is served; each step is a coin that pays 1 -+ the noise. The noisiest is the worst by a little."""
    moves = np.full((2, 2, 2), 0.5)
    moves[:, 1] = [[0.1, 0.9], [0.9, 0.1]]
    arms = [
        eh.Arm(moves, np.array([[low, low], [high, high]]), [[0], [1]], [0.5, 0.5])
        for low, high in ((-1.05, 2.95), (0.8, 1.2), (0.5, 1.5))
    ]
    return eh.CoupledMDP(arms, [1], 1.0, criterion="finite:4")


def test_evaluations_cover_an_exact_welfare():
    problem = three_coins()
    exact = eh.evaluate(problem, never_act(problem), "maximin", method="exact").welfare
    found = [
        eh.evaluate(problem, never_act(problem), "maximin", 40, rng=seed, method="monte-carlo") for seed in range(150)
    ]
    covered = [low <= exact <= high for low, high in (one.welfare_interval for one in found)]
    assert np.mean(covered) >= 0.92
    by_one = [abs(one.welfare - exact) <= CONFIDENCE * one.member_stderr[one.members.argmin()] for one in found]
    assert np.mean(by_one) < 0.85


def test_reports_of_plans_cover_an_exact_welfare(effort):
    effort(exact_states=0, report_steps=3 * 4 * 40)
    problem = three_coins()
    # The control variate expects service, and so does not explain all of the noise.
    policy, law = never_act(problem), np.broadcast_to([0.0, 1.0], (3, 2, 2))
    exact = eh.evaluate(problem, policy, "maximin", method="exact").welfare
    column, covered = ScoredPolicy("idle", policy, law, np.zeros((0, 3)), np.zeros((0, 3))), 0
    for seed in range(150):
        task = Task(problem, as_welfare("maximin", 3), SolveMethod(tolerance=1e-5), None, rng=seed)
        objective = task.by_types
        values, samples = mixed.report_parts(task, [column], np.ones(1), objective)
        covered += abs(objective(values) - exact) <= CONFIDENCE * samples.error(objective, values)
    assert covered >= 0.92 * 150
