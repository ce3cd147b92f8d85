"""No policy hangs on the last bits: what another processor computes a little differently gives the same choices."""

import numpy as np
import pytest

from evenhand.model import Arm, CoupledMDP, as_welfare
from evenhand.planning import relax
from evenhand.policies import (
    Resolving,
    fair_index,
    myopic,
    occupancy_priority,
    rank_scores,
    settle,
    whittle,
    worst_first,
)
from evenhand.problems import crew_maintenance, heterogeneous_machine_replacement, machine_replacement
from evenhand.solvers import count_states

PROBLEMS = {
    "machines": lambda: machine_replacement(num_arms=6, operating_cost="exponential"),
    "different machines": lambda: heterogeneous_machine_replacement(num_arms=100),
    "crew": lambda: crew_maintenance(num_arms=9),
    "halves": lambda: CoupledMDP([Arm(np.full((2, 2, 2), 0.5), [[0, 1], [1, 2]], [[0], [1]])], [2], 0.9, [4]),
}
LAST_BITS = 8 * np.finfo(np.float64).eps


def nudge(array, seed):
    """Each number off by a few last bits."""
    return array * (1 + LAST_BITS * np.random.default_rng(seed).uniform(-1, 1, np.shape(array)))


def nudged_arms(problem, seed):
    """The same problem with rewards a few last bits off: the same arms still the same."""
    arms = [Arm(arm.transitions, nudge(arm.rewards, seed), arm.usage, arm.initial) for arm in problem.arms]
    return CoupledMDP(arms, problem.budget, problem.discount, problem.counts)


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]()


@pytest.fixture(params=["gini:1.07", "utilitarian", "maximin"])
def relaxed(request, problem):
    return relax(problem, as_welfare(request.param, problem.num_arms))


def test_the_relaxations_own_prices_leave_no_choice_to_rounding(problem, relaxed):
    """At these prices some arms are exactly at the margin: to act or not is worth the same."""
    ranks = fair_index(problem, relaxed.weights, relaxed.prices).ranks
    laws = occupancy_priority(problem, relaxed.occupancy, relaxed.weights, relaxed.prices).laws
    for seed in range(5):
        weights, prices = nudge(relaxed.weights, seed), nudge(relaxed.prices, 100 + seed)
        np.testing.assert_array_equal(fair_index(problem, weights, prices).ranks, ranks)
        nudged = occupancy_priority(problem, nudge(relaxed.occupancy, seed), weights, prices).laws
        np.testing.assert_allclose(nudged, laws, rtol=0, atol=1e-9)


def test_an_action_that_is_worth_exactly_its_price_is_one_of_the_best():
    """Idling is worth 0 and acting 0.3 - 0.3; what another arm would rather not do comes after it on every machine."""
    margin = Arm(np.ones((1, 2, 1)), [[0.0, 0.3]], [[0.0], [1.0]])
    other = Arm(np.ones((1, 3, 1)), [[0.0, 0.6, 2.0]], [[0.0], [1.0], [2.0]])
    problem = CoupledMDP([margin, other], [2], 0.9)
    for price in 0.3 * (1 + LAST_BITS * np.linspace(-1, 1, 9)):
        ranks = fair_index(problem, np.ones(2), np.array([price])).ranks
        assert (ranks[0, 0, 1], ranks[1, 0, 1], ranks[1, 0, 2]) == (1, 2, 0)


def test_prices_that_fit_equally_well_are_one_choice(problem, relaxed):
    policy = Resolving(problem, relaxed.weights, relaxed.prices)
    sizes = problem.types.num_states[problem.type_of_arm]
    states = np.random.default_rng(0).integers(0, sizes, (50, problem.num_arms)).astype(np.int32)
    counts = count_states(problem, states)
    places = policy.best_prices(counts)
    for seed in range(5):
        other = Resolving(problem, nudge(relaxed.weights, seed), relaxed.prices)
        np.testing.assert_array_equal(other.best_prices(counts), places)


def test_of_prices_that_fit_equally_well_the_lowest():
    """The budget is just what all arms use as long as acting pays: the dual is flat up to a price of 1."""
    arm = Arm(np.ones((1, 2, 1)), [[0.0, 1.0]], [[0.0], [1.0]])
    problem = CoupledMDP([arm], [3], 0.9, [3])
    policy = Resolving(problem, np.array([1.0]), np.array([0.5]))
    assert policy.best_prices(np.array([[[3]]])) == 0
    assert policy.grid[0, 0] == pytest.approx(0.125)


@pytest.mark.parametrize("build", [myopic, worst_first], ids=["myopic", "oldest first"])
def test_baselines(problem, build):
    for seed in range(5):
        np.testing.assert_array_equal(build(nudged_arms(problem, seed)).ranks, build(problem).ranks)


@pytest.mark.parametrize("name", ["machines", "different machines", "halves"])
def test_whittle(name):
    problem = PROBLEMS[name]()
    for seed in range(5):
        np.testing.assert_array_equal(whittle(nudged_arms(problem, seed)).ranks, whittle(problem).ranks)


def test_a_gain_that_is_rounding_is_ignored():
    """0.3 - 0.1 > 0.2 in doubles."""
    arm = Arm(np.ones((1, 2, 1)), [[0.2, 0.3 - 0.1 + 1e-16]], [[0.0], [1.0]])
    assert arm.rewards[0, 1] > arm.rewards[0, 0]
    assert (myopic(CoupledMDP([arm], [1], 0.9, [2])).ranks == -1).all()


def test_an_index_that_is_rounding_is_ignored():
    np.testing.assert_array_equal(settle(np.array([[1e-11, 1.0], [1e-11, 1e-11]]), axis=1), [[0, 1], [1e-11, 1e-11]])


def test_ranks_tell_small_scores_apart_but_not_rounding():
    scores = np.array([1e6, 1e6 * (1 + 1e-15), 1e-4, 2e-4, 2e-4 * (1 + 1e-12), 1e-17, 0.0])
    assert rank_scores(scores, -np.inf).tolist() == [0, 0, 2, 1, 1, 3, 3]


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:3"])
def test_an_index_of_nothing_but_rounding_is_ignored(criterion):
    """In the second state activity gains 0.1 + 0.2 - 0.3 at every step: 6e-17, and in truth nothing."""
    arm = Arm(np.full((2, 2, 2), 0.5), [[0.0, 1.0], [0.3, 0.1 + 0.2]], [[0], [1]])
    policy = whittle(CoupledMDP([arm], [1.0], 0.9, [2], criterion=criterion))
    for part in getattr(policy, "parts", [policy]):
        np.testing.assert_array_equal(part.scores[0, :, 1] > 0, [True, False])
