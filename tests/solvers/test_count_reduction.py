"""The count space against the projection of the product space, and its lift back."""

from collections import defaultdict
from itertools import product
from math import comb, factorial, prod

import numpy as np
import pytest
from scipy import stats

from evenhand.errors import TooLargeError
from evenhand.evaluation import exact_values
from evenhand.kernels import lattice_index, lattice_points, lattice_size, movers_distribution
from evenhand.model import CoupledMDP
from evenhand.problems import crew_maintenance, heterogeneous_machine_replacement, machine_replacement
from evenhand.solvers import Counts, count_states, num_count_states, solve_weighted

from ..conftest import mentions


def projected(problem, state, actions):
    """The (type, state, action) allocation of a joint state and action, as nested tuples."""
    allocation = np.zeros(problem.types.valid.shape, dtype=int)
    for kind, s, a in zip(problem.type_of_arm, state, actions, strict=True):
        allocation[kind, s, a] += 1
    return allocation


def key_of(array):
    return tuple(np.asarray(array).ravel().tolist())


class TestLattice:
    @pytest.mark.parametrize(("num_arms", "num_states"), [(0, 3), (5, 1), (4, 2), (3, 4), (6, 3)])
    def test_points_are_all_in_lexicographic_order(self, num_arms, num_states):
        expected = [x for x in product(range(num_arms + 1), repeat=num_states) if sum(x) == num_arms]
        points = lattice_points(num_arms, num_states)
        assert list(map(tuple, points.tolist())) == expected
        assert lattice_size(num_arms, num_states) == len(expected) == comb(num_arms + num_states - 1, num_states - 1)
        assert np.array_equal(lattice_index(points), np.arange(len(expected)))

    def test_index_of_any_shape(self):
        points = lattice_points(5, 3)
        shaped = points[:20].reshape(4, 5, 3)
        assert np.array_equal(lattice_index(shaped), np.arange(20).reshape(4, 5))


class TestTable:
    def test_states_are_the_projections(self, small_problem, brute_force):
        space = Counts(small_problem)
        joint = brute_force(small_problem).states
        seen = {key_of(count_states(small_problem, np.array([x], dtype=np.int32))[0]) for x in joint}
        assert len(space.states) == space.num_states == len(seen) == num_count_states(small_problem)
        assert set(map(key_of, space.states)) == seen
        assert np.array_equal(space.index(space.states), np.arange(space.num_states))

    def test_pairs_are_the_projections(self, small_problem, brute_force):
        space, oracle = Counts(small_problem), brute_force(small_problem)
        expected = {key_of(projected(small_problem, x, a)) for x in oracle.states for a in oracle.feasible(x)}
        assert len(space.allocations) == len(expected)
        assert set(map(key_of, space.allocations)) == expected
        assert np.array_equal(space.index(space.allocations.sum(axis=-1)), space.mdp.state_of_pair)

    def test_rewards_usage_and_moves_are_the_projections(self, small_problem, brute_force):
        space, oracle = Counts(small_problem), brute_force(small_problem)
        number = {key_of(allocation): pair for pair, allocation in enumerate(space.allocations)}
        target = space.index(count_states(small_problem, np.array(oracle.states, dtype=np.int32)))
        rows = space.mdp.transitions.toarray()
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-12)
        for state in oracle.states:
            for actions in oracle.feasible(state):
                pair = number[key_of(projected(small_problem, state, actions))]
                law = np.bincount(target, weights=oracle.row(state, actions), minlength=space.num_states)
                np.testing.assert_allclose(rows[pair], law, atol=1e-13)
                sums = np.bincount(small_problem.type_of_arm, weights=oracle.rewards(state, actions))
                np.testing.assert_allclose(space.mdp.rewards[pair], sums / small_problem.type_counts)
                np.testing.assert_allclose(space.usage[pair], oracle.usage(state, actions))

    def test_initial_law_is_the_projection(self, small_problem, brute_force):
        space, oracle = Counts(small_problem), brute_force(small_problem)
        target = space.index(count_states(small_problem, np.array(oracle.states, dtype=np.int32)))
        expected = np.bincount(target, weights=oracle.initial, minlength=space.num_states)
        np.testing.assert_allclose(space.initial, expected, atol=1e-13)

    def test_initial_law_of_two_thousand_arms(self, build_arm):
        problem = CoupledMDP([build_arm(0, 2, [[0], [1]])], budget=[5], discount=0.5, counts=[2000])
        space = Counts(problem)
        expected = stats.binom(2000, problem.types.initial[0, 0]).pmf(space.states[:, 0, 0])
        np.testing.assert_allclose(space.initial, expected, rtol=1e-9, atol=1e-300)
        assert space.initial.sum() == pytest.approx(1, abs=1e-10)

    def test_tables_of_types(self):
        problem = crew_maintenance(num_arms=4, num_states=3, num_types=2)
        space = Counts(problem)
        assert space.num_states == 6 * 6 and space.mdp.rewards.shape[1] == 2
        np.testing.assert_allclose(np.asarray(space.mdp.transitions.sum(axis=1)).ravel(), 1, rtol=1e-12)

    @pytest.mark.parametrize(("num_arms", "optimum"), [(2, 14.1859), (3, 14.0793), (4, 13.9430), (5, 13.7670)])
    def test_known_optima(self, num_arms, optimum):
        best = solve_weighted(Counts(machine_replacement(num_arms=num_arms)).mdp, np.ones(1))
        assert (best.lower_bound, best.upper_bound) == pytest.approx((optimum, optimum), abs=5e-5)

    def test_optimum_is_that_of_the_product_space(self, small_problem, brute_force):
        weights = small_problem.type_counts / small_problem.num_arms
        best = solve_weighted(Counts(small_problem).mdp, weights)
        assert best.lower_bound == pytest.approx(brute_force(small_problem).optimum(), rel=1e-8)

    def test_a_table_of_some_allocations(self, problems):
        """`tabulate` keeps the order of the allocations it is given."""
        space = Counts(problems["machines"]())
        idle = np.stack([space.states, np.zeros_like(space.states)], axis=-1)
        mdp = space.tabulate(np.arange(space.num_states), idle)
        assert mdp.num_pairs == mdp.num_states == space.num_states
        rows = mdp.transitions.toarray()
        whole = space.mdp.transitions.toarray()
        for x in range(space.num_states):
            pair = next(p for p in np.flatnonzero(space.mdp.state_of_pair == x) if not space.usage[p].any())
            np.testing.assert_allclose(rows[x], whole[pair], atol=1e-14)


class TestLawOfMovers:
    def test_one_row_is_multinomial(self):
        row = np.array([0.2, 0.5, 0.3])
        law = movers_distribution(np.array([[7]]), row[None])[0]
        np.testing.assert_allclose(law, stats.multinomial(7, row).pmf(lattice_points(7, 3)), rtol=1e-10)

    def test_several_rows_are_a_convolution(self):
        rng = np.random.default_rng(0)
        rows = rng.dirichlet(np.ones(3), size=3)
        movers = np.array([[2, 1, 1], [0, 4, 0], [1, 0, 3]])
        law = movers_distribution(movers, rows)
        for number, mover in enumerate(movers):
            expected = defaultdict(float)
            which = np.repeat(np.arange(3), mover)
            for arrivals in product(range(3), repeat=4):
                spread = tuple(np.bincount(arrivals, minlength=3))
                expected[spread] += prod(rows[r, j] for r, j in zip(which, arrivals, strict=True))
            np.testing.assert_allclose(law[number], [expected[tuple(x)] for x in lattice_points(4, 3)], rtol=1e-10)

    def test_certain_moves(self):
        law = movers_distribution(np.array([[3, 2]]), np.eye(2))
        assert law[0, lattice_index(np.array([3, 2]))] == 1.0 and law.sum() == 1.0


def random_table(mdp, seed):
    weights = np.random.default_rng(seed).exponential(size=mdp.num_pairs)
    return weights / np.repeat(np.add.reduceat(weights, mdp.offsets[:-1]), np.diff(mdp.offsets))


def ways(counts, allocation):
    """In how many ways named arms can realise an allocation."""
    return prod(
        factorial(int(counts[kind, s])) // prod(factorial(int(u)) for u in allocation[kind, s])
        for kind, s in np.ndindex(counts.shape)
    )


class TestLift:
    def test_values_are_those_of_the_induced_joint_policy(self, small_problem, brute_force):
        space, oracle = Counts(small_problem), brute_force(small_problem)
        table = random_table(space.mdp, 4)
        number = {key_of(allocation): pair for pair, allocation in enumerate(space.allocations)}

        def law(state):
            counts = count_states(small_problem, np.array([state], dtype=np.int32))[0]
            found = {}
            for actions in oracle.feasible(state):
                allocation = projected(small_problem, state, actions)
                found[actions] = table[number[key_of(allocation)]] / ways(counts, allocation)
            assert sum(found.values()) == pytest.approx(1)
            return found

        values, used = oracle.evaluate(law)
        found = exact_values(small_problem, space.lift(table))
        np.testing.assert_allclose(found.values[space.problem.type_of_arm], values, rtol=1e-9)
        np.testing.assert_allclose(found.used, used, rtol=1e-9, atol=1e-12)

    def test_allocates_by_its_table(self, problems, chi_square):
        space = Counts(problems["two types"]())
        table = random_table(space.mdp, 2)
        policy = space.lift(table)
        for x in (0, 5, space.num_states - 1):
            pairs = np.arange(space.mdp.offsets[x], space.mdp.offsets[x + 1])
            allocations, probabilities = policy.allocation_distribution(space.states[x])
            assert np.array_equal(allocations, space.allocations[pairs])
            assert np.array_equal(probabilities, table[pairs])
            drawn = policy.allocate(np.repeat(space.states[[x]], 10_000, axis=0), np.random.default_rng(x))
            seen = (drawn[:, None] == space.allocations[pairs][None]).all(axis=(2, 3, 4))
            assert chi_square(seen.sum(axis=0), table[pairs]) > 1e-4

    def test_count_states(self, problems):
        problem = problems["two types"]()
        states = np.array([[0, 1, 2], [1, 1, 0]], dtype=np.int32)
        assert count_states(problem, states).tolist() == [[[1, 1, 0], [0, 0, 1]], [[0, 2, 0], [1, 0, 0]]]


class TestSize:
    @pytest.mark.parametrize(("num_arms", "num_states", "budget"), [(1000, 3, 100), (10**6, 4, 5), (10**9, 10, 1)])
    def test_what_does_not_fit_is_refused(self, num_arms, num_states, budget):
        problem = machine_replacement(num_arms=num_arms, num_states=num_states, budget=budget)
        with pytest.raises(TooLargeError):
            _ = Counts(problem).mdp

    def test_the_size_is_told_in_words(self):
        assert mentions("10^18")(Counts.accepts(machine_replacement(num_arms=10**9)))
        assert Counts.accepts(machine_replacement(num_arms=100)) is None

    def test_a_size_beyond_doubles_is_told_too(self):
        problem = heterogeneous_machine_replacement(num_arms=1000)
        assert "the count space has" in Counts.accepts(problem)
        with pytest.raises(TooLargeError):
            _ = Counts(problem).mdp
