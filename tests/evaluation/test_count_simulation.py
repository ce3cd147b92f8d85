"""Playing by counts: the same values as arm by arm, at any number of arms."""

import numpy as np
import pytest

from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError, TooLargeError
from evenhand.evaluation import exact_values, simulate, simulate_counts
from evenhand.evaluation.count_simulation import first_counts
from evenhand.model import MixturePolicy, TimeVaryingPolicy
from evenhand.policies import PriorityPolicy, RoundRobin, never_act, random_feasible, worst_first
from evenhand.problems import machine_replacement

from ..conftest import mentions


class Fixed:
    """Allocates a given share of a cell, and idles otherwise."""

    def __init__(self, problem, served):
        self.problem, self.served = problem, served

    def act(self, states, rng):
        raise NotImplementedError

    def allocate(self, counts, rng):
        allocation = np.zeros((*counts.shape, self.problem.types.rewards.shape[2]), dtype=np.int64)
        allocation[..., 0] = counts
        for kind, state, action, number in self.served:
            moved = np.minimum(counts[:, kind, state], number)
            allocation[:, kind, state, action] += moved
            allocation[:, kind, state, 0] -= moved
        return allocation


def test_estimates_the_exact_value(small_problem):
    policy = random_feasible(small_problem)
    exact = exact_values(small_problem, policy)
    horizon = int(np.ceil(np.log(1e-3) / np.log(small_problem.discount)))
    played = simulate_counts(small_problem, policy, 1000, horizon, rng=3)
    assert played.returns.shape == (1000, small_problem.num_types)
    means, errors = played.returns.mean(axis=0), played.returns.std(axis=0) / np.sqrt(1000)
    bound = 1e-3 / (1 - small_problem.discount) * np.abs(small_problem.types.rewards).max()
    assert (np.abs(means - exact.values) <= 4.5 * errors + bound).all()


def test_spread_and_usage_are_those_of_arms_one_by_one():
    problem = machine_replacement(num_arms=6, budget=2)
    by_counts = simulate_counts(problem, worst_first(problem), 3000, 40, rng=0)
    by_arms = simulate(problem, worst_first(problem), 3000, 40, rng=1)
    spreads = by_counts.returns[:, 0].std(), by_arms.returns.mean(axis=1).std()
    assert spreads[0] == pytest.approx(spreads[1], rel=4 / np.sqrt(2 * 3000) * 1.5)
    assert by_counts.used == pytest.approx(by_arms.used)
    assert by_counts.served[:, 0] == pytest.approx(by_arms.served.mean(axis=1))  # two of six, whoever they are


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:8"])
def test_steps_have_the_weights_of_the_criterion(criterion):
    """Two machines in their first state are served where there are so many; that this does not change is by hand."""
    problem = machine_replacement(num_arms=6, budget=2)
    seen = []

    class Noted(Fixed):
        def allocate(self, counts, rng):
            seen.append(super().allocate(counts, rng))
            return seen[-1]

    played = simulate_counts(problem.with_criterion(criterion), Noted(problem, [(0, 0, 1, 2)]), 5, None, rng=0)
    steps = {"discounted": 300, "average": 1000, "finite:8": 8}[criterion]
    weights = np.repeat([0, 1 / 750], [250, 750]) if criterion == "average" else 0.95 ** np.arange(steps)
    rewards = [np.einsum("esa,sa->e", each[:, 0], problem.types.rewards[0]) / 6 for each in seen]
    served = [each[:, 0, :, 1].sum(axis=1) / 6 for each in seen]
    assert len(seen) == played.horizon == steps
    np.testing.assert_allclose(played.returns[:, 0], weights @ rewards, rtol=1e-12)
    np.testing.assert_allclose(played.served[:, 0], weights @ served / weights.sum(), rtol=1e-12)
    np.testing.assert_allclose(played.used[:, 0], 3 * weights @ served / weights.sum(), rtol=1e-12)


def test_composite_policies_play_by_counts():
    problem = machine_replacement(num_arms=4, budget=2)
    steps = TimeVaryingPolicy([worst_first(problem), never_act(problem)])
    played = simulate_counts(problem.with_criterion("finite:5"), steps, 3, rng=0)
    weights = 0.95 ** np.arange(5)
    assert played.used == pytest.approx(np.full((3, 1), weights[::2].sum() / weights.sum()))
    mixed = simulate_counts(
        problem, MixturePolicy([worst_first(problem), never_act(problem)], [0.5, 0.5]), 50, 4, rng=0
    )
    assert set(mixed.used[:, 0].round(12)) == {0.0, 1.0}


def test_first_counts_have_the_initial_distribution(small_problem, chi_square):
    counts = first_counts(small_problem.types.initial, np.tile(small_problem.type_counts, (5000, 1)), np.uint64(1))
    assert (counts.sum(axis=2) == small_problem.type_counts).all()
    for kind, law in enumerate(small_problem.types.initial):
        total = counts[:, kind].sum(axis=0)
        assert not total[law == 0].any()
        spread = np.sqrt(5000 * small_problem.type_counts[kind] * law * (1 - law))
        assert (np.abs(total - 5000 * small_problem.type_counts[kind] * law) <= 4.5 * spread + 1e-6).all()


def test_seeds_reproduce_and_differ():
    problem = machine_replacement(num_arms=50, budget=5)
    first, again, other = (simulate_counts(problem, random_feasible(problem), 20, 10, rng=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.returns, again.returns) and np.array_equal(first.used, again.used)
    assert not np.array_equal(first.returns, other.returns)


def test_a_type_treated_alike_moves_alike(problems):
    problem = problems["two types"]()
    plain, served = (simulate_counts(problem, Fixed(problem, rule), 40, 15, rng=2) for rule in ([], [(1, 0, 1, 1)]))
    assert np.array_equal(plain.returns[:, 0], served.returns[:, 0])
    assert not np.array_equal(plain.returns[:, 1], served.returns[:, 1])


def test_a_billion_machines():
    problem = machine_replacement(num_arms=10**9, budget=10**8)
    played = simulate_counts(problem, worst_first(problem), 4, 60, rng=0)
    assert played.used == pytest.approx(np.ones((4, 1)))
    assert played.returns.std() < 1e-3 * abs(played.returns.mean())


def test_a_billion_machines_in_one_state():
    """NumPy draws from fewer than a billion of either kind."""
    problem = machine_replacement(num_arms=10**9, budget=10**8)
    policy = worst_first(problem)
    for state in range(problem.types.rewards.shape[1]):
        counts = np.zeros((2, 1, problem.types.rewards.shape[1]), dtype=np.int64)
        counts[:, :, state] = 10**9
        allocation = policy.allocate(counts, np.random.default_rng(0))
        assert (allocation.sum(axis=3) == counts).all()
        assert (allocation[..., 1].sum(axis=(1, 2)) == 10**8).all()


class TestRules:
    problem = machine_replacement(num_arms=3, budget=1)

    def play(self, allocate):
        policy = Fixed(self.problem, [])
        policy.allocate = allocate
        return simulate_counts(self.problem, policy, 4, 5, rng=0)

    def test_needs_a_policy_that_allocates(self):
        for policy in (PriorityPolicy(self.problem, np.zeros((1, 3, 2))), RoundRobin(self.problem)):
            with pytest.raises(NotApplicableError, check=mentions("simulate")):
                simulate_counts(self.problem, policy, 4, 5)

    def test_a_wrong_shape_or_kind_is_named(self):
        expected = r"\(episode, type, state, action\) = \(4, 1, 3, 2\)"
        for bad in (lambda counts, rng: counts, lambda counts, rng: np.zeros((4, 1, 3, 2))):
            with pytest.raises(PolicyError, match=expected):
                self.play(bad)

    def test_every_arm_is_treated_once(self):
        with pytest.raises(PolicyError, check=mentions("allocate", "counts")):
            self.play(lambda counts, rng: np.zeros((*counts.shape, 2), dtype=np.int64))
        with pytest.raises(PolicyError, check=mentions("negative")):
            self.play(lambda counts, rng: np.stack([counts + 1, -np.ones_like(counts)], axis=-1))

    def test_actions_must_exist(self, problems):
        problem = problems["two types"]()
        policy = Fixed(problem, [(1, 0, 2, 1)])
        with pytest.raises(PolicyError, check=mentions("allocate", "action")):
            simulate_counts(problem, policy, 20, 20, rng=0)

    def test_overspending_is_placed_and_measured(self):
        policy = Fixed(self.problem, [(0, 0, 1, 3), (0, 1, 1, 3), (0, 2, 1, 3)])
        with pytest.raises(PolicyError, check=mentions("step 0", "episode 0", "used 3", "resource 0", 1)):
            simulate_counts(self.problem, policy, 2, 5, rng=0)

    @pytest.mark.parametrize("bad", [0, -1, 2.5, True])
    def test_sizes_must_be_positive_whole_numbers(self, bad):
        for name in ("num_episodes", "horizon"):
            with pytest.raises(InvalidInputError, match=name):
                simulate_counts(self.problem, never_act(self.problem), **{name: bad})

    def test_sizes_that_do_not_fit_are_refused(self):
        with pytest.raises(TooLargeError, check=mentions("episodes")):
            simulate_counts(self.problem, never_act(self.problem), 10**12, 1)

    def test_progress_rises_within_0_and_1(self):
        told = []
        simulate_counts(
            self.problem, never_act(self.problem), 2, 50, rng=0, progress=lambda _, share: told.append(share)
        )
        assert told == sorted(told) and told[0] >= 0 and 0.5 < told[-1] <= 1
