"""Exact values: every road against plain enumeration of the product space."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.evaluation import exact, exact_values
from evenhand.model import MixturePolicy, capabilities
from evenhand.model.criterion import as_criterion
from evenhand.policies import PriorityPolicy, RoundRobin, random_feasible, worst_first
from evenhand.problems import heterogeneous_machine_replacement, machine_replacement
from evenhand.solvers import Counts, Joint, occupancy

from ..conftest import mentions


class Shy:
    """A policy's law and nothing else, so that it must be tabulated."""

    def __init__(self, policy):
        self.act, self.allocate = policy.act, policy.allocate
        self.allocation_distribution = policy.allocation_distribution


def random_table(mdp, seed):
    weights = np.random.default_rng(seed).exponential(size=mdp.num_pairs)
    return weights / np.repeat(np.add.reduceat(weights, mdp.offsets[:-1]), np.diff(mdp.offsets))


def test_values_of_a_distribution_are_those_of_enumeration(small_problem, brute_force):
    oracle = brute_force(small_problem)
    values, used = oracle.evaluate(oracle.greedy(lambda *_: 0.0, stop=True))
    found = exact_values(small_problem, random_feasible(small_problem))
    assert found.by_type and len(found.values) == small_problem.num_types
    np.testing.assert_allclose(found.values[small_problem.type_of_arm], values, rtol=1e-9)
    np.testing.assert_allclose(found.used, used, rtol=1e-9, atol=1e-12)


def test_a_count_table_and_its_distribution_have_the_same_values(small_problem):
    space = Counts(small_problem)
    policy = space.lift(random_table(space.mdp, 0))
    table, law = exact_values(small_problem, policy), exact_values(small_problem, Shy(policy))
    np.testing.assert_allclose(table.values, law.values, rtol=1e-10)
    np.testing.assert_allclose(table.used, law.used, rtol=1e-10, atol=1e-12)


def test_a_joint_table_has_a_value_for_each_arm(problems):
    problem = problems["machines"]()
    joint = Joint(problem)
    policy = PriorityPolicy(problem, np.zeros((1, 3, 2)))
    wanted = policy.act(joint.states, np.random.default_rng(0))
    table = (joint.actions == wanted[joint.mdp.state_of_pair]).all(axis=1).astype(float)
    found = exact_values(problem, joint.lift(table))
    assert not found.by_type and len(found.values) == 3
    assert found.values[0] != found.values[1] == pytest.approx(found.values[2])


def test_a_table_made_for_a_problem_that_differs_in_labels_only(problems):
    """Labels are for people: evaluation may go by the law instead of the table, with the same result."""
    problem = machine_replacement(num_arms=3)
    bare = type(problem)(
        [arm_without_labels(arm) for arm in problem.arms], problem.budget, problem.discount, problem.counts
    )
    space = Counts(problem)
    policy = space.lift(random_table(space.mdp, 1))
    assert exact_values(bare, policy).values == pytest.approx(exact_values(problem, policy).values)


def arm_without_labels(arm):
    return type(arm)(arm.transitions, arm.rewards, arm.usage, arm.initial)


@pytest.mark.parametrize("policy", [RoundRobin, lambda problem: PriorityPolicy(problem, np.zeros((1, 3, 2)))])
def test_a_policy_without_a_known_distribution_is_refused(policy):
    problem = machine_replacement(num_arms=3)
    with pytest.raises(NotApplicableError, check=mentions("allocations")):
        exact_values(problem, policy(problem))


def test_a_space_too_large_to_tabulate_is_refused():
    problem = machine_replacement(num_arms=5)
    with pytest.raises(NotApplicableError, check=mentions(21, 20)):
        exact_values(problem, worst_first(problem), most_states=20)


def test_a_space_beyond_doubles_is_refused():
    problem = heterogeneous_machine_replacement(num_arms=1000)
    with pytest.raises(NotApplicableError, check=mentions("10^300", 6000)):
        exact_values(problem, worst_first(problem))


def test_a_policy_that_overspends_is_refused():
    """Made for a budget of 2 and played with 1: simulation refuses it, and so must this."""
    made_for, played_on = machine_replacement(num_arms=3, budget=2), machine_replacement(num_arms=3, budget=1)
    with pytest.raises(PolicyError, check=mentions(2, "resource 0", 1)):
        exact_values(played_on, worst_first(made_for))


class TestCost:
    """Exact values are taken where they cost about as much as play; by work estimates, which these tests count."""

    @staticmethod
    def dense(num_arms, budget):
        rng = np.random.default_rng(0)
        arm = eh.Arm(rng.dirichlet(np.ones(3), (3, 2)), rng.random((3, 2)), [[0], [1]])
        return eh.CoupledMDP([arm], [budget], 0.9, [num_arms])

    @pytest.mark.parametrize(("num_arms", "budget"), [(4, 1), (8, 3), (12, 4)])
    def test_the_estimate_is_near_the_size_of_the_table(self, num_arms, budget):
        problem = self.dense(num_arms, budget)
        for name in ("random", "whittle"):
            can = capabilities(eh.make_policy(problem, name))
            state, allocations, _ = exact.write_law(can, can.law, Counts(problem))
            kernel = Counts(problem).tabulate(state, allocations).kernel
            done = kernel.nnz + exact.ROW * len(state)
            assert 0.9 * done <= exact.exact_work(can.law, problem) <= 3 * done

    def test_a_hundred_dense_arms_are_simulated(self, monkeypatch):
        """Tabulating the random policy took ten minutes: 1.5 million pairs of 5151 outcomes each."""
        problem = self.dense(100, 10)
        monkeypatch.setattr(exact, "write_law", lambda *_: pytest.fail("it was tabulated"))
        assert not eh.evaluate(problem, "random", num_episodes=2, horizon=3).exact

    @pytest.mark.parametrize("criterion", ["average", "finite:300"])
    def test_visits_of_large_chains_are_counted(self, criterion, monkeypatch):
        """A table of a hundred dense arms is soon made, but an average may take 6000 products with it."""
        problem = self.dense(100, 10).with_criterion(criterion)
        monkeypatch.setattr(exact, "occupancy_measure", lambda *_: pytest.fail("its visits were searched"))
        monkeypatch.setattr(exact, "_forwards", lambda *_: pytest.fail("it was pushed"))
        assert not eh.evaluate(problem, "lp-index", "utilitarian", num_episodes=8, horizon=300).exact

    def test_the_estimate_of_visits_is_above_their_products(self):
        """Of an average the search gives up after so many; of a discount it takes fewer."""
        rng = np.random.default_rng(1)
        chain = rng.dirichlet(np.ones(400), 400)
        for criterion in (as_criterion("discounted", 0.99), as_criterion("average", 1.0)):
            pushes = []

            def push(law, factor=criterion.factor, pushes=pushes):
                pushes.append(1)
                return factor * (law @ chain)

            first = np.eye(400)[0]
            if criterion.contracts:
                occupancy.discounted_visits(push, first, criterion.total, first * criterion.total)
            else:
                occupancy.settle(push, first)
            assert len(pushes) <= occupancy.visiting_work(criterion, 10**4, 1.0)

    def test_own_tables_and_parts_are_counted(self):
        problem = self.dense(12, 4)
        policy = eh.solve(problem, "utilitarian", method="counts").policy
        alone = exact.exact_work(policy, problem)
        both = exact.exact_work(MixturePolicy([policy, policy], [0.5, 0.5]), problem)
        assert 0 < 2 * alone == both

    def test_small_problems_are_evaluated_exactly(self):
        problem = self.dense(10, 2)
        assert eh.evaluate(problem, "random", num_episodes=2, horizon=3).exact
