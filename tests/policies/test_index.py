"""The Whittle index policy: near-optimal where that is known, the published column, and what it refuses."""

from itertools import permutations

import numpy as np
import pytest

from evenhand import solve
from evenhand.errors import NotApplicableError
from evenhand.evaluation import evaluate
from evenhand.model import Arm, CoupledMDP, TimeVaryingPolicy
from evenhand.policies import indices_of, myopic, whittle
from evenhand.problems import crew_maintenance, heterogeneous_machine_replacement, machine_replacement

from ..conftest import mentions

PUBLISHED = {2: 14.07, 3: 13.75, 4: 13.27, 5: 12.47}
"""The paper's WIP column, Exponential-RCCC, b = 1, from 1000 simulated runs."""


def machines(num_arms, operating_cost="exponential"):
    return machine_replacement(num_arms, operating_cost=operating_cost, budget=max(1, num_arms // 10))


def exact_welfare(policy, problem):
    return evaluate(problem, policy, "gini:2", method="exact").welfare


def fork(prize):
    """Not indexable for a prize of 2 at discount 0.9: see the tests of the indices themselves."""
    transitions = np.eye(3)[[[0, 0], [0, 2], [2, 2]]]
    return Arm(transitions, [[0.0, 1.0], [0.0, prize], [0.0, 0.0]], [[0.0], [1.0]])


def swapped(arm):
    """The same arm, its actions in the other order."""
    return Arm(arm.transitions[:, ::-1], arm.rewards[:, ::-1], arm.usage[:, ::-1], arm.initial)


def gains(*numbers):
    """Arms of one state in which acting earns the number: the index is the number itself."""
    return [Arm(np.ones((1, 2, 1)), [[0.0, number]], [[0.0], [1.0]]) for number in numbers]


def act(policy, states, seed=0):
    return policy.act(np.asarray(states, dtype=np.int32), np.random.default_rng(seed))


class TestWelfare:
    @pytest.mark.parametrize("num_arms", [2, 3, 4, 5, 10, 20, 50, pytest.param(100, marks=pytest.mark.slow)])
    def test_optimal_on_exponential_costs(self, num_arms):
        problem = machines(num_arms)
        assert exact_welfare(whittle(problem), problem) == pytest.approx(
            solve(problem, method="counts").welfare, abs=1e-4
        )

    @pytest.mark.parametrize("num_arms", [2, 3, 4, 5, 10, 20])
    def test_close_on_quadratic_costs(self, num_arms):
        problem = machines(num_arms, "quadratic")
        best = solve(problem, method="counts")
        found = exact_welfare(whittle(problem), problem)
        assert 0.994 * best.upper_bound <= found <= best.upper_bound + 1e-9
        if num_arms >= 5:
            assert found < best.welfare - 1e-3  # an index policy is not optimal in general

    @pytest.mark.parametrize(("num_arms", "expected"), [(2, 14.0766), (3, 13.7687), (4, 13.2899), (5, 12.5975)])
    def test_truncated_indices_explain_the_published_column(self, num_arms, expected):
        problem = machines(num_arms)
        found = exact_welfare(whittle(problem, paper_compat=True), problem)
        assert found == pytest.approx(expected, abs=5e-5)
        # The paper's figure is a plug-in estimate: below the exact one, by the noise between equal arms.
        assert PUBLISHED[num_arms] - 0.01 <= found <= PUBLISHED[num_arms] + 0.13
        assert found < exact_welfare(whittle(problem), problem) - 0.1

    def test_truncation_changes_nothing_where_the_order_stays(self):
        """Quadratic-RCCC: 3.43 becomes 0, and 0 is still above the other two, which are negative."""
        problem = machines(4, "quadratic")
        assert exact_welfare(whittle(problem, paper_compat=True), problem) == pytest.approx(
            exact_welfare(whittle(problem), problem), abs=1e-12
        )


class TestIndices:
    @pytest.mark.parametrize(
        ("cost", "expected"), [("exponential", [-0.6767, 0.2923, 5.0112]), ("quadratic", [-1.0, -0.3056, 3.4271])]
    )
    def test_the_papers_machines(self, cost, expected):
        found = indices_of(machines(5, cost))
        assert found.result.indexable.all()
        np.testing.assert_allclose(found.result.indices[0], expected, atol=5e-5)
        np.testing.assert_array_equal(found.active, [[1, 1, 1]])

    def test_an_index_is_where_acting_and_idling_are_equally_good(self):
        """By value iteration at the charge, on arms that all differ."""
        problem = heterogeneous_machine_replacement(num_arms=4)
        found = indices_of(problem)
        for kind in range(problem.num_types):
            arm = problem.types[kind]
            for state in range(arm.num_states):
                charge = np.array([0.0, found.result.indices[kind, state]])
                values = np.zeros(arm.num_states)
                for _ in range(600):
                    worth = arm.rewards - charge + problem.discount * arm.transitions @ values
                    values = worth.max(axis=1)
                assert worth[state, 0] == pytest.approx(worth[state, 1], abs=1e-8)

    def test_idle_may_be_action_one(self):
        plain = machines(3)
        other = CoupledMDP([swapped(plain.arms[0])], plain.budget, plain.discount, [3])
        np.testing.assert_array_equal(indices_of(other).active, [[0, 0, 0]])
        np.testing.assert_allclose(indices_of(other).result.indices, indices_of(plain).result.indices, atol=1e-12)
        states = list(permutations(range(3)))  # no ties, which chance would decide
        np.testing.assert_array_equal(act(whittle(other), states), 1 - act(whittle(plain), states))
        assert exact_welfare(whittle(other), other) == pytest.approx(exact_welfare(whittle(plain), plain), abs=1e-12)

    def test_idle_may_differ_between_states(self):
        arm = machines(2).arms[0]
        mixed = Arm(
            np.concatenate([arm.transitions[:1], arm.transitions[1:, ::-1]]),
            np.concatenate([arm.rewards[:1], arm.rewards[1:, ::-1]]),
            np.concatenate([arm.usage[:1], arm.usage[1:, ::-1]]),
        )
        problem = CoupledMDP([mixed], [1.0], 0.95, [2])
        np.testing.assert_array_equal(indices_of(problem).active, [[1, 0, 0]])
        np.testing.assert_allclose(indices_of(problem).result.indices[0], [-0.6767, 0.2923, 5.0112], atol=5e-5)
        np.testing.assert_array_equal(act(whittle(problem), [[1, 2]]), [[1, 0]])

    def test_arms_of_several_sizes(self):
        one, two = machines(2).arms[0], gains(1.0)[0]
        both = indices_of(CoupledMDP([two, one], [1.0], 0.95)).result
        np.testing.assert_allclose(both.indices[0, 0], 1.0)
        np.testing.assert_allclose(both.indices[1], [-0.6767, 0.2923, 5.0112], atol=5e-5)


class TestOrder:
    def test_highest_first_and_only_where_positive(self):
        problem = CoupledMDP(gains(0.5, 2.0, -1.0, 1.0, 0.0), [2.0], 0.9)
        np.testing.assert_array_equal(act(whittle(problem), np.zeros((1, 5))), [[0, 1, 0, 1, 0]])
        rich = CoupledMDP(gains(0.5, 2.0, -1.0, 1.0, 0.0), [5.0], 0.9)
        np.testing.assert_array_equal(act(whittle(rich), np.zeros((1, 5))), [[1, 1, 0, 1, 0]])

    def test_usage_divides_the_index(self):
        """3 for 2 units is 1.5 a unit: after 2 for 1 unit, before 1 for 1 unit."""
        usage = [2.0, 1.0, 1.0]
        arms = [Arm(np.ones((1, 2, 1)), [[0.0, g]], [[0.0], [u]]) for g, u in zip([3.0, 2.0, 1.0], usage, strict=True)]
        served = {
            budget: act(whittle(CoupledMDP(arms, [budget], 0.9)), np.zeros((1, 3)))[0].tolist()
            for budget in (1.0, 2.0, 3.0, 4.0)
        }
        assert served == {1.0: [0, 1, 0], 2.0: [0, 1, 1], 3.0: [1, 1, 0], 4.0: [1, 1, 1]}

    def test_ties_are_broken_at_random(self):
        problem = CoupledMDP(gains(1.0), [1.0], 0.9, [3])
        served = act(whittle(problem), np.zeros((3000, 3))).sum(axis=0)
        assert served.sum() == 3000
        assert served.min() > 900

    @pytest.mark.slow
    def test_a_hundred_thousand_arms_at_once(self):
        problem = heterogeneous_machine_replacement(num_arms=100_000)
        policy = whittle(problem)
        states = np.random.default_rng(0).integers(0, 3, (1, 100_000)).astype(np.int32)
        actions = act(policy, states)[0]
        indices = indices_of(problem).result.indices[np.arange(100_000), states[0]]
        assert actions.sum() == 10_000
        assert indices[actions == 1].min() >= indices[actions == 0].max()


class TestRefusals:
    def test_three_actions(self):
        with pytest.raises(NotApplicableError, check=mentions("type 0", 3)):
            indices_of(crew_maintenance())

    def test_three_actions_of_one_type_among_others(self):
        many = Arm(np.ones((1, 3, 1)), [[0.0, 1.0, 2.0]], [[0.0], [1.0], [2.0]], name="lift")
        with pytest.raises(NotApplicableError, check=mentions("type 1", 3, "lift")):
            whittle(CoupledMDP([*gains(1.0), many], [2.0], 0.9))

    def test_one_action(self):
        with pytest.raises(NotApplicableError, check=mentions("type 0", 1)):
            whittle(CoupledMDP([Arm(np.ones((1, 1, 1)), [[1.0]], [[0.0]])], [1.0], 0.9))

    def test_two_resources(self):
        arm = Arm(np.ones((1, 2, 1)), [[0.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]])
        with pytest.raises(NotApplicableError, check=mentions(2)):
            whittle(CoupledMDP([arm], [1.0, 1.0], 0.9))

    @pytest.mark.parametrize(
        "usage", [[[[0.0], [1.0]], [[0.0], [2.0]]], [[[0.0], [1.0]], [[0.0], [0.0]]], [[0.0], [0.0]]]
    )
    def test_usage_that_depends_on_the_state_or_is_nothing(self, usage):
        arm = Arm(np.full((2, 2, 2), 0.5), [[0.0, 1.0], [0.0, 1.0]], usage)
        with pytest.raises(NotApplicableError):
            whittle(CoupledMDP([arm], [2.0], 0.9))

    def test_padded_states_do_not_count_as_other_usage(self):
        problem = CoupledMDP([*gains(1.0), machines(2).arms[0]], [1.0], 0.9)
        np.testing.assert_array_equal(act(whittle(problem), [[0, 0]]), [[1, 0]])

    def test_not_indexable(self):
        problem = CoupledMDP([*gains(1.0), fork(2.0)], [1.0], 0.9)
        with pytest.raises(NotApplicableError, check=mentions("type 1", "1 passive")):
            whittle(problem)

    def test_not_indexable_but_allowed(self):
        """Arms without an index come after all positive ones, that is never."""
        problem = CoupledMDP([*gains(0.1), fork(2.0)], [2.0], 0.9)
        policy = whittle(problem, allow_not_indexable=True)
        np.testing.assert_array_equal(act(policy, [[0, 0], [0, 1], [0, 2]]), [[1, 0], [1, 0], [1, 0]])


class TestCriteria:
    def test_each_step_of_a_finite_horizon_has_its_indices(self):
        problem = machines(3).with_criterion("finite:6")
        policy, indices = whittle(problem), indices_of(problem).result.indices[0]
        assert isinstance(policy, TimeVaryingPolicy) and len(policy.parts) == 6
        assert policy.exchangeable and policy.plays_by_counts
        states = np.array([[0, 1, 2], [0, 0, 1], [0, 1, 1]])
        for step, part in enumerate(policy.parts):
            served = act(part, states)
            best = indices[step, states].max(axis=1)
            np.testing.assert_array_equal(served.sum(axis=1), best > 0)
            np.testing.assert_array_equal((served * indices[step, states]).sum(axis=1), np.maximum(best, 0))

    def test_one_step_is_myopic(self):
        problem = machines(3).with_criterion("finite:1")
        states = np.array([[0, 1, 2], [0, 0, 1], [2, 1, 0]])
        np.testing.assert_array_equal(act(whittle(problem).parts[0], states), act(myopic(problem), states))

    def test_the_average_is_that_of_a_discount_near_one(self):
        problem = machines(3)
        near = CoupledMDP(problem.arms, problem.budget, 1 - 1e-9, problem.counts)
        found, expected = (indices_of(p).result.indices for p in (problem.with_criterion("average"), near))
        np.testing.assert_allclose(found, expected, rtol=1e-6)

    def test_an_arm_without_a_mean_of_its_own_is_refused(self):
        arm = Arm(np.eye(2)[[[0, 0], [1, 1]]], [[0.0, 1.0], [0.0, 2.0]], [[0.0], [1.0]])
        problem = CoupledMDP([arm], [1.0], 0.9, criterion="average")
        with pytest.raises(NotApplicableError, check=mentions("type 0")):
            whittle(problem)


def test_a_frame_has_the_same_columns_without_labels():
    columns = ["type", "name", "state", "label", "indexable", "index"]
    frame = indices_of(CoupledMDP([fork(0.5)], [1], 0.9)).to_frame("polars")
    assert frame.columns == columns
    assert frame["label"].to_list() == ["0", "1", "2"]
    assert indices_of(machines(2)).to_frame("polars").columns == columns
