"""Policies from the relaxation: feasible everywhere, in the right order, and never better than the bound."""

import numpy as np
import pytest

from evenhand import solve
from evenhand.errors import NotApplicableError
from evenhand.evaluation import check_policy, evaluate, simulate, simulate_counts
from evenhand.model import Arm, CoupledMDP, as_welfare, begin, is_exchangeable
from evenhand.planning import SolveMethod, relax
from evenhand.policies import Resolving, fair_index, occupancy_priority
from evenhand.problems import crew_maintenance, heterogeneous_machine_replacement, machine_replacement
from evenhand.solvers import count_states

from ..conftest import PROBLEMS, crossed, mentions
from ..oracles.relaxation import fluid_policies
from ..oracles.stepping import StartedStepByStep, StepByStep


def still(rewards, usage):
    """An arm of one state: what an action earns is all there is to it."""
    return Arm(np.ones((1, len(rewards), 1)), [rewards], np.asarray(usage, dtype=float).reshape(len(rewards), -1))


def act(policy, states, seed=0):
    rng = np.random.default_rng(seed)
    states = np.asarray(states, dtype=np.int32)
    return begin(policy, len(states), rng).act(states, rng)


def relaxed(problem, welfare="gini:2"):
    return relax(problem, as_welfare(welfare, problem.num_arms))


def sparse_large():
    """More arms than fit, in several sizes, with uses that are no whole numbers, of two resources."""
    rng = np.random.default_rng(5)
    arms = []
    for _ in range(12):
        S, A = rng.integers(1, 5), rng.integers(1, 4)
        usage = rng.random((S, A, 2)).round(2)
        usage[np.arange(S), rng.integers(0, A, S)] = 0.0
        arms.append(Arm(rng.dirichlet(np.ones(S), (S, A)), rng.random((S, A)), usage, rng.dirichlet(np.ones(S))))
    return CoupledMDP(arms, [1.3, 0.9], 0.9, [1, 2, 3] * 4)


class TestRules:
    @pytest.mark.parametrize(
        ("small_problem", "welfare"), crossed(PROBLEMS, ["gini:2", "maximin"]), indirect=["small_problem"]
    )
    def test_feasible_on_small_problems_of_every_kind(self, welfare, small_problem):
        policies = fluid_policies(small_problem, relaxed(small_problem, welfare))
        assert set(policies) == {"occupancy-priority", "fair-index", "re-solving"}
        for policy in policies.values():
            assert is_exchangeable(policy)
            check_policy(small_problem, policy)

    @pytest.mark.parametrize("name", ["occupancy-priority", "fair-index", "re-solving"])
    @pytest.mark.parametrize("problem", [sparse_large(), crew_maintenance(num_arms=9)], ids=["ragged", "crew"])
    def test_feasible_on_larger_ones(self, name, problem):
        check_policy(problem, fluid_policies(problem, relaxed(problem))[name])

    @pytest.mark.parametrize("name", ["occupancy-priority", "fair-index"])
    @pytest.mark.parametrize("criterion", ["discounted", "average", "finite:12"])
    def test_compiled_episodes_are_those_of_single_steps(self, name, criterion):
        problem = crew_maintenance(num_arms=9).with_criterion(criterion)
        policy = fluid_policies(problem, relaxed(problem))[name]
        asked = (StartedStepByStep if criterion == "finite:12" else StepByStep)(policy)
        fast, slow = (simulate(problem, each, 20, 12, rng=4) for each in (policy, asked))
        np.testing.assert_array_equal(fast.returns, slow.returns)
        np.testing.assert_array_equal(fast.served, slow.served)
        np.testing.assert_allclose(fast.used, slow.used, rtol=1e-13)
        if criterion == "average":
            np.testing.assert_allclose(fast.visits, slow.visits, rtol=1e-12)
            np.testing.assert_allclose(fast.drift, slow.drift, rtol=1e-12)


class TestServiceScores:
    def test_by_hand(self):
        """At price 1 and weight 1: gains over price are 4 and 3/2 (best is the second), 1/2, and 2."""
        arms = [
            still([0.0, 4.0, 6.0], [0, 1, 2]),  # net 3 and 4: the second is best; per price 4 and 3
            still([0.0, 0.5], [0, 1]),  # does not pay, but gains
            still([0.0, 2.0], [0, 1]),
            still([1.0, 0.5], [0, 1]),  # loses
        ]
        problem = CoupledMDP(arms, [2.0], 0.5)
        scores = fair_index(problem, np.ones(4), np.ones(1)).scores
        order = sorted(np.argwhere(scores > 0).tolist(), key=lambda cell: -scores[tuple(cell)])
        # First what is best at the prices, by worth per price: 3, 2; then the rest: 4, 1/2.
        assert order == [[0, 0, 2], [2, 0, 1], [0, 0, 1], [1, 0, 1]]
        assert scores[3].max() == 0

    def test_weights_decide_between_arms(self):
        problem = CoupledMDP([still([0.0, 2.0], [0, 1]), still([0.0, 3.0], [0, 1])], [1.0], 0.5)
        for weights, first in (([1.0, 1.0], 1), ([2.0, 1.0], 0)):
            scores = fair_index(problem, np.array(weights), np.array([0.1])).scores
            assert scores[first, 0, 1] > scores[1 - first, 0, 1] > 0

    def test_the_future_counts(self):
        """Acting earns nothing now and leads to a state that earns 1 for ever, worth 9 at discount 0.9.

        At price 5 that is a net 4 now, or 3.6 a step later: the gain before the price is 4 - 3.6 + 5 = 5.4.
        """
        arm = Arm([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]], [[0.0, 0.0], [1.0, 1.0]], [[0.0], [1.0]])
        problem = CoupledMDP([arm, still([0.0, 5.3], [0, 1]), still([0.0, 5.5], [0, 1])], [1.0], 0.9)
        scores = fair_index(problem, np.ones(3), np.array([5.0])).scores
        assert scores[2, 0, 1] > scores[0, 0, 1] > scores[1, 0, 1] > 0
        assert scores[0, 1, 1] == 0  # there is nothing more to gain

    def test_equal_arms_share_a_score(self):
        """Different rewards for idling, the same gain: a tie, which chance decides."""
        problem = CoupledMDP([still([0.0, 0.3], [0, 1]), still([0.1, 0.4], [0, 1])], [1.0], 0.5)
        scores = fair_index(problem, np.ones(2), np.array([0.2])).scores
        assert scores[0, 0, 1] == scores[1, 0, 1] > 0

    @pytest.mark.parametrize("price", [0.0, 1e-30])
    def test_without_a_price_the_share_of_the_budget_stands_for_it(self, price):
        """Gains 2 for a fifth of the budget, 3 for half of it."""
        problem = CoupledMDP([still([0.0, 2.0], [0, 1]), still([0.0, 3.0], [0, 2.5])], [5.0], 0.5)
        scores = fair_index(problem, np.ones(2), np.array([price])).scores
        assert scores[0, 0, 1] > scores[1, 0, 1] > 0

    def test_what_is_free_comes_first(self):
        """The second resource is free; who needs only that one does not compete for the first."""
        arms = [still([0.0, 5.0], [[0, 0], [1, 0]]), still([0.0, 1.0], [[0, 0], [0, 1]])]
        scores = fair_index(CoupledMDP(arms, [1.0, 1.0], 0.5), np.ones(2), np.array([1.0, 0.0])).scores
        assert scores[1, 0, 1] > scores[0, 0, 1] > 0

    @pytest.mark.parametrize("price", [0.0, 0.5])
    def test_hardly_any_weight_is_served_last_but_served(self, price):
        arms = [still([0.0, 1.0], [0, 1]), still([0.0, 2.0], [0, 1]), still([0.0, 3.0], [0, 1])]
        problem = CoupledMDP(arms, [2.0], 0.5)
        policy = fair_index(problem, np.array([1.0, 1e-20, 1e-20]), np.array([price]))
        np.testing.assert_array_equal(act(policy, np.zeros((5, 3))), [[1, 0, 1]] * 5)

    @pytest.mark.parametrize(("budget", "expected"), [(1.0, [1, 0]), (2.0, [1, 1])])
    def test_no_weight_is_served_from_what_is_left(self, budget, expected):
        problem = CoupledMDP([still([0.0, 1.0], [0, 1]), still([0.0, 2.0], [0, 1])], [budget], 0.5)
        policy = fair_index(problem, np.array([1.0, 0.0]), np.array([0.5]))
        np.testing.assert_array_equal(act(policy, np.zeros((3, 2))), [expected] * 3)

    def test_two_actions_of_identical_arms_are_in_the_order_of_whittle_indices(self):
        problem = machine_replacement(num_arms=5)
        scores = fair_index(problem, np.full(1, 0.2), relaxed(problem).prices).scores[0, :, 1]
        assert scores[2] > scores[1] >= scores[0] == 0

    def test_a_free_action_better_than_idling_is_taken(self):
        problem = CoupledMDP([still([0.0, 0.2, 1.0], [0, 1, 0])], [1.0], 0.5, [3])
        np.testing.assert_array_equal(act(fair_index(problem, np.ones(1), np.zeros(1)), np.zeros((1, 3))), [[2, 2, 2]])

    def test_a_budget_as_large_as_can_be(self):
        problem = CoupledMDP([still([0.0, 1.0], [0, 0.001])], [1e10], 0.5, [3])
        assert fair_index(problem, np.ones(1), np.zeros(1)).scores[0, 0, 1] > 0


class TestOccupancyPriority:
    def test_draws_the_law_when_nothing_stands_against_it(self, chi_square):
        """Without weights nothing is gained, so nothing is filled; and the budget is for everyone."""
        arm = Arm(np.full((2, 3, 2), 0.5), np.zeros((2, 3)), [[0.0], [1.0], [2.0]])
        problem = CoupledMDP([arm], [8.0], 0.5, [4])
        occupancy = np.array([[[0.5, 0.3, 0.2], [0.0, 0.6, 0.4]]])
        policy = occupancy_priority(problem, occupancy, np.zeros(1), np.ones(1))
        actions = act(policy, np.tile([0, 0, 1, 1], (5000, 1)))
        for arms, law in (([0, 1], [0.5, 0.3, 0.2]), ([2, 3], [0.0, 0.6, 0.4])):
            assert chi_square(np.bincount(actions[:, arms].ravel(), minlength=3), law) > 1e-4
        pairs = np.bincount(3 * actions[:, 0] + actions[:, 1], minlength=9)  # arms draw on their own
        assert chi_square(pairs, np.outer([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]).ravel()) > 1e-4

    def test_repairs_by_score(self):
        """All three are drawn to act, two fit: the two that are worth most."""
        arms = [still([0.0, gain], [0, 1]) for gain in (1.0, 3.0, 2.0)]
        problem = CoupledMDP(arms, [2.0], 0.5)
        policy = occupancy_priority(problem, np.array([[[0.0, 2.0]]] * 3), np.ones(3), np.array([0.5]))
        np.testing.assert_array_equal(act(policy, np.zeros((4, 3))), [[0, 1, 1]] * 4)

    def test_fills_after_what_was_drawn(self):
        """Only the least is drawn to act. It comes first; what is left goes by score, as far as it gains."""
        arms = [still([0.0, gain], [0, 1]) for gain in (1.0, 3.0, 2.0, -1.0)]
        occupancy = np.array([[[0.0, 2.0]], [[2.0, 0.0]], [[2.0, 0.0]], [[2.0, 0.0]]])
        for budget, expected in ((1.0, [1, 0, 0, 0]), (2.0, [1, 1, 0, 0]), (3.0, [1, 1, 1, 0]), (4.0, [1, 1, 1, 0])):
            policy = occupancy_priority(CoupledMDP(arms, [budget], 0.5), occupancy, np.ones(4), np.array([0.5]))
            np.testing.assert_array_equal(act(policy, np.zeros((4, 4))), [expected] * 4)

    def test_where_the_relaxation_never_goes_it_does_what_pays(self):
        """State 1 has no visits: there acting pays for the first arm, and not for the second."""
        transitions = np.eye(2)[[[0, 0], [1, 1]]]
        arms = [Arm(transitions, [[0.0, 0.0], [0.0, gain]], [[0.0], [1.0]], [1.0, 0.0]) for gain in (3.0, 0.5)]
        problem = CoupledMDP(arms, [2.0], 0.5)
        occupancy = np.array([[[2.0, 0.0], [0.0, 0.0]]] * 2)
        policy = occupancy_priority(problem, occupancy, np.ones(2), np.ones(1))
        np.testing.assert_array_equal(policy.laws[:, 1], [[0.0, 1.0], [1.0, 0.0]])
        np.testing.assert_array_equal(policy.laws[:, 0], [[1.0, 0.0], [1.0, 0.0]])

    def test_where_nothing_pays_it_idles(self):
        arms = [still([0.0, gain], [0, 1]) for gain in (1.0, 2.0, 3.0)]
        policy = occupancy_priority(CoupledMDP(arms, [1.0], 0.5), np.zeros((3, 1, 2)), np.ones(3), np.array([50.0]))
        np.testing.assert_array_equal(policy.laws[:, 0], [[1.0, 0.0]] * 3)

    def test_the_law_is_the_relaxations(self):
        problem = heterogeneous_machine_replacement(num_arms=6)
        found = relaxed(problem)
        policy = occupancy_priority(problem, found.occupancy, found.weights, found.prices)
        np.testing.assert_allclose(policy.laws.sum(axis=2), 1.0, atol=1e-9)
        visits = found.occupancy.sum(axis=2, keepdims=True)
        np.testing.assert_allclose(policy.laws * visits, found.occupancy, atol=1e-6)


def residual_dual(problem, weights, prices, states):
    """sum_n V_n(s_n; prices) + prices.b / (1 - gamma), by value iteration arm by arm."""
    total = float(prices @ problem.budget) / (1 - problem.discount)
    for kind, state in zip(problem.type_of_arm, states, strict=True):
        arm = problem.types[int(kind)]
        gains, values = weights[kind] * arm.rewards - arm.usage @ prices, np.zeros(arm.num_states)
        for _ in range(400):
            values = (gains + problem.discount * arm.transitions @ values).max(axis=1)
        total += values[state]
    return total


class TestResolving:
    @pytest.mark.parametrize(
        "problem", [heterogeneous_machine_replacement(num_arms=4, discount=0.9), crew_maintenance(3, discount=0.9)]
    )
    def test_takes_the_prices_of_the_least_dual(self, problem):
        found = relaxed(problem)
        policy = Resolving(problem, found.weights, found.prices, points=5)
        states = np.random.default_rng(0).integers(0, 3, (3, problem.num_arms)).astype(np.int32)
        for row, place in zip(states, policy.best_prices(count_states(policy.problem, states)), strict=True):
            duals = [residual_dual(problem, found.weights, prices, row) for prices in policy.grid]
            assert duals[place] == pytest.approx(min(duals), rel=1e-9)

    def test_the_grid_has_the_prices_of_the_relaxation_in_the_middle(self):
        problem = crew_maintenance(num_arms=6)
        prices = np.array([0.3, 0.7])
        grid = Resolving(problem, np.full(problem.num_types, 0.1), prices).grid
        assert len(grid) == 81
        np.testing.assert_allclose(grid[40], prices)
        np.testing.assert_allclose(grid.max(axis=0) / prices, 4)
        np.testing.assert_allclose(prices / grid.min(axis=0), 4)

    def test_a_resource_that_is_free_stays_free(self):
        problem = crew_maintenance(num_arms=6)
        grid = Resolving(problem, np.full(problem.num_types, 0.1), np.array([0.3, 0.0])).grid
        assert grid.shape == (9, 2)
        assert not grid[:, 1].any()

    def test_three_resources_are_refused(self):
        problem = CoupledMDP([still([0.0, 1.0], [[0, 0, 0], [1, 1, 1]])], [1.0, 1.0, 1.0], 0.5, [2])
        with pytest.raises(NotApplicableError, check=mentions(3)):
            Resolving(problem, np.ones(1), np.ones(3))
        assert set(fluid_policies(problem, relaxed(problem))) == {"occupancy-priority", "fair-index"}

    def test_prices_rise_when_all_are_badly_off(self):
        problem = heterogeneous_machine_replacement(num_arms=20)
        found = relaxed(problem, "utilitarian")
        policy = Resolving(problem, found.weights, found.prices)
        states = np.repeat(np.arange(3, dtype=np.int32)[:, None], 20, axis=1)
        new, _, worn_out = policy.grid[policy.best_prices(count_states(policy.problem, states)), 0]
        assert new < worn_out
        assert worn_out > found.prices[0]

    def test_looks_at_prices_every_few_steps_and_starts_afresh(self):
        problem = heterogeneous_machine_replacement(num_arms=20)
        found = relaxed(problem, "utilitarian")
        policy = Resolving(problem, found.weights, found.prices, every=3)
        rng = np.random.default_rng(0)
        actor = policy.start(1, rng)
        good, bad = np.zeros((1, 20), dtype=np.int32), np.full((1, 20), 2, dtype=np.int32)
        places = []
        for states in (good, bad, bad, bad, good, good, good):
            actor.act(states, rng)
            places.append(int(actor.place[0]))
        low, high = policy.best_prices(count_states(policy.problem, np.concatenate([good, bad]))).tolist()
        assert low != high
        assert places == [low, low, low, high, high, high, low]
        fresh = policy.start(1, rng)
        fresh.act(bad, rng)
        assert int(fresh.place[0]) == high

    def test_each_episode_has_prices_of_its_own(self):
        """What an episode does does not depend on the prices of the others, but for ties."""
        problem = heterogeneous_machine_replacement(num_arms=20)
        found = relaxed(problem, "utilitarian")
        policy = Resolving(problem, found.weights, found.prices, every=1)
        states = np.random.default_rng(1).integers(0, 3, (40, 20)).astype(np.int32)
        assert len(set(policy.best_prices(count_states(policy.problem, states)).tolist())) > 1
        together = act(policy, states)
        alone = np.concatenate([act(policy, row[None]) for row in states])
        np.testing.assert_array_equal(together, alone)  # all machines differ: no ties

    def test_every_must_be_positive(self):
        problem = machine_replacement(num_arms=2)
        with pytest.raises(ValueError, check=mentions("every")):
            Resolving(problem, np.ones(1), np.ones(1), every=0)


SMALL = {
    "machines": heterogeneous_machine_replacement(num_arms=3, budget=1),
    "crew": crew_maintenance(num_arms=3, num_states=3, discount=0.9),
    "identical": machine_replacement(num_arms=3),
}


@pytest.mark.parametrize(("name", "welfare"), crossed(SMALL, ["gini:2", "maximin", "nash", "leximin"]))
def test_bound_above_the_optimum_above_every_policy(name, welfare):
    problem = SMALL[name]
    found = relaxed(problem, welfare)
    best = solve(problem, welfare, SolveMethod("counts" if problem.is_symmetric else "joint", tolerance=1e-6))
    assert found.upper_bound >= best.welfare - 1e-9
    candidates = fluid_policies(problem, found).values()
    played = [evaluate(problem, policy, welfare, num_episodes=100, horizon=200, rng=0) for policy in candidates]
    for each in played:
        assert each.welfare <= best.upper_bound + 4 * each.welfare_stderr + each.truncation_bound
    assert max(each.welfare for each in played) >= 0.9 * best.welfare


@pytest.mark.parametrize("name", ["fair-index", "re-solving"])
@pytest.mark.parametrize(
    "problem", [SMALL["crew"], heterogeneous_machine_replacement(num_arms=20)], ids=["crew", "machines"]
)
def test_arms_that_the_worst_off_do_not_need_are_served_too(name, problem):
    """Maximin puts all weight on the worst-off; the others must not be left to become worse off."""
    policy = fluid_policies(problem, found := relaxed(problem, "maximin"))[name]
    played = evaluate(problem, policy, "maximin", num_episodes=50, horizon=200, rng=0)
    assert played.welfare >= 0.8 * found.upper_bound


@pytest.mark.parametrize("name", ["occupancy-priority", "fair-index", "re-solving"])
def test_better_than_chance_where_arms_are_many(name):
    problem = heterogeneous_machine_replacement(num_arms=60)
    policy = fluid_policies(problem, found := relaxed(problem, "utilitarian"))[name]
    played = evaluate(problem, policy, "utilitarian", num_episodes=20, horizon=200, rng=0)
    assert played.welfare >= 0.97 * found.upper_bound


@pytest.mark.slow
def test_re_solving_plays_by_counts_as_it_plays_arm_by_arm():
    problem = crew_maintenance(num_arms=12)
    found = relaxed(problem)
    policy = Resolving(problem, found.weights, found.prices, every=3)
    by_arms = simulate(problem, policy, 400, 60, rng=0).returns.mean(axis=1)
    by_counts = simulate_counts(problem, policy, 400, 60, rng=1).returns @ problem.type_counts / problem.num_arms
    error = np.hypot(by_arms.std(), by_counts.std()) / np.sqrt(400)
    assert abs(by_arms.mean() - by_counts.mean()) < 4 * error
