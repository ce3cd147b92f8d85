"""The product space against plain enumeration."""

import numpy as np
import pytest

from evenhand.errors import PolicyError, TooLargeError
from evenhand.evaluation import exact_values
from evenhand.model import CoupledMDP
from evenhand.policies import PriorityPolicy
from evenhand.problems import machine_replacement
from evenhand.solvers import Joint, PairSampler, solve_weighted
from evenhand.solvers import joint as joint_module

from ..conftest import mentions


def random_table(mdp, seed):
    """(pair,) a policy that draws among the pairs of each state, some of them never."""
    weights = np.random.default_rng(seed).exponential(size=mdp.num_pairs)
    weights[np.random.default_rng(seed + 1).random(mdp.num_pairs) < 0.3] = 0.0
    weights[mdp.offsets[:-1]] += 0.1
    sums = np.add.reduceat(weights, mdp.offsets[:-1])
    return weights / np.repeat(sums, np.diff(mdp.offsets))


class TestTable:
    def test_states_are_all_combinations_in_order(self, small_problem, brute_force):
        joint = Joint(small_problem)
        assert list(map(tuple, joint.states.tolist())) == brute_force(small_problem).states
        assert np.array_equal(joint.states @ joint.strides, np.arange(len(joint.states)))

    def test_pairs_are_the_feasible_ones(self, small_problem, brute_force):
        joint, oracle = Joint(small_problem), brute_force(small_problem)
        for x, state in enumerate(oracle.states):
            pairs = range(joint.mdp.offsets[x], joint.mdp.offsets[x + 1])
            ours = [tuple(joint.actions[pair]) for pair in pairs]
            assert sorted(ours) == oracle.feasible(state)
            for pair, actions in zip(pairs, ours, strict=True):
                np.testing.assert_allclose(joint.mdp.rewards[pair], oracle.rewards(state, actions))
                np.testing.assert_allclose(joint.usage[pair], oracle.usage(state, actions))

    def test_transitions_are_products(self, small_problem, brute_force):
        joint, oracle = Joint(small_problem), brute_force(small_problem)
        rows = joint.mdp.transitions.toarray()
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-12)
        for pair, x in enumerate(joint.mdp.state_of_pair):
            expected = oracle.row(oracle.states[x], joint.actions[pair])
            np.testing.assert_allclose(rows[pair], expected, atol=1e-14)

    def test_the_operator_and_its_transpose_are_the_written_out_kernel(self, small_problem):
        mdp = Joint(small_problem).mdp
        rng = np.random.default_rng(0)
        values, measure = rng.random(mdp.num_states), rng.random(mdp.num_pairs)
        rows = mdp.transitions.toarray()
        np.testing.assert_allclose((mdp.kernel @ values)[mdp.outcomes], rows @ values, rtol=1e-12)
        outcomes = np.bincount(mdp.outcomes, weights=measure, minlength=mdp.kernel.shape[0])
        np.testing.assert_allclose(mdp.kernel.T @ outcomes, measure @ rows, rtol=1e-12)

    def test_initial_law(self, small_problem, brute_force):
        np.testing.assert_allclose(Joint(small_problem).mdp.initial, brute_force(small_problem).initial, atol=1e-15)

    def test_optimum_of_the_mean(self, small_problem, brute_force):
        joint = Joint(small_problem)
        best = solve_weighted(joint.mdp, np.full(small_problem.num_arms, 1 / small_problem.num_arms))
        assert best.lower_bound == pytest.approx(brute_force(small_problem).optimum(), rel=1e-8)

    def test_known_optimum_of_two_machines(self):
        joint = Joint(machine_replacement(num_arms=2))
        assert solve_weighted(joint.mdp, np.full(2, 0.5)).upper_bound == pytest.approx(14.1859, abs=5e-5)


class TestLift:
    def test_values_are_those_of_the_table(self, small_problem, brute_force):
        joint, oracle = Joint(small_problem), brute_force(small_problem)
        table = random_table(joint.mdp, 3)

        def law(state):
            x = oracle.number[state]
            pairs = range(joint.mdp.offsets[x], joint.mdp.offsets[x + 1])
            return {tuple(joint.actions[pair]): table[pair] for pair in pairs}

        values, used = oracle.evaluate(law)
        found = exact_values(small_problem, joint.lift(table))
        np.testing.assert_allclose(found.values, values, rtol=1e-9)
        np.testing.assert_allclose(found.used, used, rtol=1e-9, atol=1e-12)
        assert not found.by_type

    def test_acts_by_its_table(self, problems, chi_square):
        joint = Joint(problems["all different"]())
        table = random_table(joint.mdp, 1)
        x = 7
        states = np.repeat(joint.states[[x]], 20_000, axis=0)
        actions = joint.lift(table).act(states, np.random.default_rng(0))
        pairs = np.arange(joint.mdp.offsets[x], joint.mdp.offsets[x + 1])
        seen = (actions[:, None] == joint.actions[pairs][None]).all(axis=2)
        assert (seen.sum(axis=1) == 1).all()
        assert chi_square(seen.sum(axis=0), table[pairs]) > 1e-4

    def test_a_deterministic_policy_is_met_state_by_state(self, problems):
        problem = problems["two types"]()
        joint, policy = Joint(problem), PriorityPolicy(problem, np.ones(problem.types.valid.shape))
        wanted = policy.act(joint.states, np.random.default_rng(0))
        table = (joint.actions == wanted[joint.mdp.state_of_pair]).all(axis=1).astype(float)
        assert np.array_equal(joint.lift(table).act(joint.states, np.random.default_rng(1)), wanted)


class TestSize:
    @pytest.mark.parametrize("num_arms", [40, 65, 10**6])
    def test_too_many_arms_are_refused(self, num_arms):
        problem = machine_replacement(num_arms=num_arms)
        assert f"3^{num_arms}" in Joint.accepts(problem)
        with pytest.raises(TooLargeError, check=mentions(num_arms)):
            _ = Joint(problem).mdp

    def test_too_many_pairs_are_refused(self, monkeypatch):
        monkeypatch.setattr(joint_module, "MOST_PAIRS", 10_000)
        problem = machine_replacement(num_arms=8, budget=8)
        with pytest.raises(TooLargeError, check=mentions("3^8")):
            _ = Joint(problem).mdp

    def test_small_problems_are_accepted(self, small_problem):
        assert Joint.accepts(small_problem) is None

    def test_sizes_of_different_arms_are_told_apart(self, build_arm):
        arms = [build_arm(0, 2, [[0], [1]]), build_arm(1, 5, [[0], [1]])]
        problem = CoupledMDP(arms, budget=[1], discount=0.5, counts=[30, 40])
        assert "2^30 x 5^40" in Joint.accepts(problem)


class TestPairSampler:
    offsets = np.array([0, 1, 4, 6, 9])
    probabilities = np.array([1.0, 0.2, 0.0, 0.8, 0.0, 1.0, 0.5, 0.5, 0.0])

    def test_draws_by_the_law_of_each_state(self, chi_square):
        sampler = PairSampler(self.offsets, self.probabilities)
        states = np.random.default_rng(0).integers(0, 4, 40_000)
        drawn = sampler.draw(states, np.random.default_rng(1))
        for x in range(4):
            first, last = self.offsets[x], self.offsets[x + 1]
            seen = np.bincount(drawn[states == x] - first, minlength=last - first)
            assert chi_square(seen, self.probabilities[first:last]) > 1e-4

    @pytest.mark.parametrize(
        "number",
        [
            0.0,
            0.5,
            1 - 2**-53,
        ],
    )
    def test_the_ends_of_the_unit_interval_stay_within_their_state(self, number):
        class Fixed:
            def random(self, size):
                return np.full(size, number)

        rng = np.random.default_rng(0)
        probabilities = rng.exponential(size=3000)
        probabilities[rng.random(3000) < 0.3] = 0.0
        offsets = np.arange(0, 3001, 3)
        probabilities[1::3] += 0.1
        probabilities /= np.repeat(np.add.reduceat(probabilities, offsets[:-1]), 3)
        assert (probabilities[::3] == 0).any() and (probabilities[2::3] == 0).any()
        states = np.arange(1000)
        drawn = PairSampler(offsets, probabilities).draw(states, Fixed())
        assert np.array_equal(drawn // 3, states)
        assert (probabilities[drawn] > 0).all()

    @pytest.mark.parametrize("bad", [[1.0, 0.5, 0.4], [1.0, 1.5, -0.5]])
    def test_what_is_no_law_is_refused(self, bad):
        with pytest.raises(PolicyError, check=mentions(1)):
            PairSampler(np.array([0, 1, 3]), np.array(bad))
