"""Greedy by score: against the plain recursion over joint states, and its own exact law."""

import numpy as np
import pytest

from evenhand.errors import InvalidInputError, TooLargeError
from evenhand.evaluation import exact_values
from evenhand.model import CoupledMDP, Exchangeable, HasAllocationDistribution, Policy, is_exchangeable
from evenhand.policies import ExchangeablePriority, PriorityPolicy, priority
from evenhand.problems import machine_replacement

from ..conftest import PROBLEMS, crossed, mentions


def tied_scores(problem, seed=0):
    """Scores with many ties, within and between states, types and actions."""
    return np.random.default_rng(seed).integers(0, 3, problem.types.valid.shape).astype(float)


def score_of(problem, scores, threshold=-np.inf):
    def score(arm, state, action):
        value = scores[problem.type_of_arm[arm], state, action]
        return value if value > threshold else None

    return score


class TestLaw:
    @pytest.mark.parametrize(
        ("small_problem", "seed", "threshold"), crossed(PROBLEMS, [0, 1], [-np.inf, 0.0]), indirect=["small_problem"]
    )
    def test_values_are_those_of_the_greedy_choice(self, small_problem, brute_force, seed, threshold):
        scores = tied_scores(small_problem, seed)
        oracle = brute_force(small_problem)
        values, used = oracle.evaluate(oracle.greedy(score_of(small_problem, scores, threshold)))
        found = exact_values(small_problem, ExchangeablePriority(small_problem, scores, threshold))
        np.testing.assert_allclose(found.values[small_problem.type_of_arm], values, rtol=1e-9)
        np.testing.assert_allclose(found.used, used, rtol=1e-9, atol=1e-12)

    def test_values_with_stopping(self, small_problem, brute_force):
        oracle = brute_force(small_problem)
        values, used = oracle.evaluate(oracle.greedy(lambda *_: 0.0, stop=True))
        policy = ExchangeablePriority(small_problem, np.zeros(small_problem.types.valid.shape), stop=True)
        found = exact_values(small_problem, policy)
        np.testing.assert_allclose(found.values[small_problem.type_of_arm], values, rtol=1e-9)
        np.testing.assert_allclose(found.used, used, rtol=1e-9, atol=1e-12)

    def test_allocations_are_distinct_and_certain_in_sum(self, small_problem):
        policy = ExchangeablePriority(small_problem, tied_scores(small_problem))
        counts = np.zeros(small_problem.types.valid.shape[:2], dtype=np.int64)
        counts[:, 0] = small_problem.type_counts
        allocations, probabilities = policy.allocation_distribution(counts)
        assert len(np.unique(allocations, axis=0)) == len(allocations) == len(probabilities)
        assert probabilities.min() > 0 and probabilities.sum() == pytest.approx(1, abs=1e-12)
        assert (allocations.sum(axis=-1) == counts).all()

    def test_a_law_too_large_is_refused(self, monkeypatch):
        problem = machine_replacement(num_arms=30, budget=30)
        monkeypatch.setattr(priority, "LARGEST_DISTRIBUTION", 20)
        policy = ExchangeablePriority(problem, np.zeros(problem.types.valid.shape), stop=True)
        with pytest.raises(TooLargeError, check=mentions(20)):
            policy.allocation_distribution(np.array([[10, 10, 10]]))


class TestTies:
    def test_the_first_arm_is_served(self):
        problem = machine_replacement(num_arms=4, budget=2)
        policy = PriorityPolicy(problem, np.zeros(problem.types.valid.shape))
        states = np.array([[0, 1, 2, 0]], dtype=np.int32)
        assert policy.act(states, np.random.default_rng(0)).tolist() == [[1, 1, 0, 0]]

    def test_scores_equal_but_for_rounding_are_tied(self):
        problem = machine_replacement(num_arms=2)
        scores = np.zeros((1, 3, 2))
        scores[0, 0, 1], scores[0, 1, 1] = 0.1 + 0.2, 0.3
        assert len(np.unique(ExchangeablePriority(problem, scores).ranks[0, :2, 1])) == 1

    def test_only_random_ties_are_exchangeable(self):
        problem = machine_replacement(num_arms=2)
        scores = np.zeros((1, 3, 2))
        first, shuffled = PriorityPolicy(problem, scores), ExchangeablePriority(problem, scores)
        assert (
            isinstance(first, Policy)
            and not is_exchangeable(first)
            and not isinstance(first, HasAllocationDistribution)
        )
        assert isinstance(shuffled, Exchangeable) and isinstance(shuffled, HasAllocationDistribution)


class TestScores:
    def test_higher_is_served_first(self):
        problem = machine_replacement(num_arms=3, budget=1)
        policy = PriorityPolicy(problem, np.array([[[9, 1], [9, 3], [9, 2.0]]]))
        states = np.array([[0, 2, 1], [0, 2, 0], [0, 0, 0]], dtype=np.int32)
        assert policy.act(states, np.random.default_rng(0)).tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]

    def test_a_smaller_use_further_down_still_fits(self, build_arm):
        arm = build_arm(0, 2, [[[0], [2]], [[0], [1]]])
        problem = CoupledMDP([arm], budget=[3], discount=0.5, counts=[3])
        policy = PriorityPolicy(problem, np.array([[[0, 2], [0, 1.0]]]))
        states = np.array([[1, 0, 0]], dtype=np.int32)
        assert policy.act(states, np.random.default_rng(0)).tolist() == [[1, 1, 0]]

    def test_at_the_threshold_is_never_served(self):
        problem = machine_replacement(num_arms=3, budget=3)
        policy = PriorityPolicy(problem, np.array([[[0, 1], [0, 2], [0, 3.0]]]), threshold=2.0)
        states = np.array([[0, 1, 2]], dtype=np.int32)
        assert policy.act(states, np.random.default_rng(0)).tolist() == [[0, 0, 1]]

    @pytest.mark.parametrize("bad", [np.zeros((1, 3)), np.zeros((2, 3, 2)), np.zeros((1, 3, 3))])
    def test_a_wrong_shape_is_named(self, bad):
        with pytest.raises(InvalidInputError, check=mentions("scores", "type=1", "state=3", "action=2")):
            PriorityPolicy(machine_replacement(num_arms=2), bad)

    def test_scores_must_be_numbers(self):
        with pytest.raises(InvalidInputError, check=mentions("scores")):
            PriorityPolicy(machine_replacement(num_arms=2), np.full((1, 3, 2), np.nan))

    def test_an_infinite_score_is_served_first(self):
        problem = machine_replacement(num_arms=3, budget=1)
        policy = PriorityPolicy(problem, np.array([[[0, 1], [0, np.inf], [0, 2.0]]]))
        states = np.array([[0, 2, 1]], dtype=np.int32)
        assert policy.act(states, np.random.default_rng(0)).tolist() == [[0, 0, 1]]


class TestStopping:
    def test_stopping_is_for_equal_scores(self):
        problem = machine_replacement(num_arms=2, budget=2)
        with pytest.raises(InvalidInputError, check=mentions("equal")):
            ExchangeablePriority(problem, np.array([[[0, 2], [0, 1], [0, 0.0]]]), stop=True)

    def test_act_and_the_law_agree(self, chi_square):
        problem = machine_replacement(num_arms=2, budget=2)
        policy = ExchangeablePriority(problem, np.zeros((1, 3, 2)), stop=True)
        served = policy.act(np.zeros((10_000, 2), dtype=np.int32), np.random.default_rng(0)).sum(axis=1)
        allocations, probabilities = policy.allocation_distribution(np.array([[2, 0, 0]]))
        numbers = allocations[:, 0, :, 1].sum(axis=1)
        chances = [probabilities[numbers == number].sum() for number in range(3)]
        assert chi_square(np.bincount(served, minlength=3), chances) > 1e-4


class TestPaths:
    def test_crowds_of_a_million_are_served_at_once(self):
        problem = machine_replacement(num_arms=10**6, budget=1000)
        policy = ExchangeablePriority(problem, np.array([[[0, 0], [0, 1], [0, 1.0]]]))
        counts = np.array([[[999_000, 600, 400]], [[998_000, 500, 1500]], [[10**6, 0, 0]]])
        allocation = policy.allocate(counts, np.random.default_rng(0))
        assert (allocation[:, 0, :, 1].sum(axis=1) == 1000).all()
        assert allocation[0, 0, 1:, 1].tolist() == [600, 400]
        assert allocation[2, 0, 0].tolist() == [10**6 - 1000, 1000]

    def test_arms_drawn_one_by_one_have_a_limit(self, build_arm):
        arm = build_arm(0, 2, [[[0], [1]], [[0], [2]]])
        problem = CoupledMDP([arm], budget=[10**6], discount=0.5, counts=[10**6])
        policy = ExchangeablePriority(problem, np.zeros((1, 2, 2)))
        with pytest.raises(TooLargeError):
            policy.allocate(np.array([[[500_000, 500_000]]]), np.random.default_rng(0))

    def test_allocate_leaves_the_counts_alone(self, small_problem):
        counts = np.zeros((2, *small_problem.types.valid.shape[:2]), dtype=np.int64)
        counts[:, :, 0] = small_problem.type_counts
        before = counts.copy()
        ExchangeablePriority(small_problem, tied_scores(small_problem)).allocate(counts, np.random.default_rng(0))
        assert np.array_equal(counts, before)
