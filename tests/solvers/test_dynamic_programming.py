"""The weighted-sum optimum against every deterministic policy, and against SciPy's linear programs."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from evenhand.errors import NotConvergedError
from evenhand.model import Average, Discounted, TabularMDP
from evenhand.solvers import solve_weighted

from ..conftest import mentions

WEIGHTS = np.array([0.7, 0.3])


def random_mdp(seed, num_states=4, most_pairs=3, discount=0.9):
    """Outcomes are shared between pairs and in no order, and there may be more of them than are used."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most_pairs + 1, num_states)
    return TabularMDP(
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        rewards=rng.normal(size=(sizes.sum(), 2)),
        outcomes=rng.integers(0, num_states + 2, sizes.sum()),
        kernel=sparse.csr_array(rng.dirichlet(np.full(num_states, 0.5), size=num_states + 2)),
        initial=rng.dirichlet(np.ones(num_states)),
        criterion=Discounted(discount),
    )


def value_of(mdp, choices, weights=WEIGHTS):
    rows = mdp.transitions.toarray()[choices]
    return mdp.initial @ np.linalg.solve(
        np.eye(mdp.num_states) - mdp.criterion.factor * rows, mdp.rewards[choices] @ weights
    )


def by_enumeration(mdp, weights=WEIGHTS):
    """The best of all deterministic policies."""
    ranges = (range(start, stop) for start, stop in zip(mdp.offsets[:-1], mdp.offsets[1:], strict=True))
    return max(value_of(mdp, np.array(choices), weights) for choices in product(*ranges))


def by_linear_program(mdp, weights=WEIGHTS):
    """min mu.v subject to v >= r + gamma P v."""
    rows = mdp.transitions.toarray()
    own = np.eye(mdp.num_states)[mdp.state_of_pair]
    solved = linprog(
        mdp.initial, A_ub=mdp.criterion.factor * rows - own, b_ub=-mdp.rewards @ weights, bounds=(None, None)
    )
    assert solved.status == 0
    return solved.fun


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("discount", [0.0, 0.6, 0.97])
def test_finds_the_best_policy(seed, discount):
    mdp = random_mdp(seed, discount=discount)
    best = by_enumeration(mdp)
    found = solve_weighted(mdp, WEIGHTS)
    assert found.lower_bound <= best + 1e-9 and found.upper_bound >= best - 1e-9
    assert found.upper_bound - found.lower_bound <= 1e-10 * max(1, abs(found.upper_bound))
    assert value_of(mdp, found.choices) == pytest.approx(best, abs=1e-8)
    assert np.array_equal(mdp.state_of_pair[found.choices], np.arange(mdp.num_states))


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_linear_program(seed):
    mdp = random_mdp(100 + seed, num_states=30, most_pairs=6)
    found = solve_weighted(mdp, WEIGHTS)
    assert (found.lower_bound, found.upper_bound) == pytest.approx((by_linear_program(mdp),) * 2, abs=1e-6)


@pytest.mark.parametrize("tolerance", [1.0, 1e-1, 1e-2, 1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_the_optimum_at_every_tolerance(seed, tolerance):
    mdp = random_mdp(seed, discount=0.95)
    best = by_enumeration(mdp)
    found = solve_weighted(mdp, WEIGHTS, tolerance)
    assert found.lower_bound - 1e-9 <= best <= found.upper_bound + 1e-9
    assert found.upper_bound - found.lower_bound <= tolerance * max(1, abs(found.upper_bound))


@pytest.mark.parametrize("seed", range(6))
def test_the_chosen_policy_is_worth_the_lower_bound(seed):
    mdp = random_mdp(seed, discount=0.95)
    for tolerance in (1.0, 1e-2, 1e-5):
        found = solve_weighted(mdp, WEIGHTS, tolerance)
        assert value_of(mdp, found.choices) >= found.lower_bound - 1e-9


def test_any_start_leads_to_the_same_optimum():
    mdp = random_mdp(3)
    plain = solve_weighted(mdp, WEIGHTS)
    for start in (np.full(4, 1e6), -np.arange(4.0), plain.value_function):
        before = start.copy()
        found = solve_weighted(mdp, WEIGHTS, start=start)
        assert found.upper_bound == pytest.approx(plain.upper_bound, abs=1e-8)
        assert np.array_equal(start, before)


def test_a_start_at_the_solution_ends_in_one_round():
    mdp = random_mdp(3, num_states=20)
    first = solve_weighted(mdp, WEIGHTS, tolerance=1e-10)
    again = solve_weighted(mdp, WEIGHTS, tolerance=1e-9, start=first.value_function, most_rounds=1)
    assert again.upper_bound == pytest.approx(first.upper_bound, abs=1e-7)


def test_the_value_function_is_the_optimal_one():
    mdp = random_mdp(5)
    found = solve_weighted(mdp, WEIGHTS)
    pairs = mdp.rewards @ WEIGHTS + mdp.criterion.factor * mdp.transitions.toarray() @ found.value_function
    np.testing.assert_allclose(np.maximum.reduceat(pairs, mdp.offsets[:-1]), found.value_function, atol=1e-8)


def test_giving_up_is_an_error():
    with pytest.raises(NotConvergedError, check=mentions("1 rounds")):
        solve_weighted(random_mdp(0, discount=0.99), WEIGHTS, most_rounds=1)


@pytest.mark.parametrize("seed", range(4))
def test_one_pair_a_state_with_outcomes_in_any_order(seed):
    """As many pairs as states does not make a pair its own outcome."""
    mdp = random_mdp(seed, num_states=6, most_pairs=1)
    found = solve_weighted(mdp, WEIGHTS)
    assert found.choices.tolist() == list(range(6))
    assert found.lower_bound == pytest.approx(value_of(mdp, np.arange(6)), abs=1e-8)


def test_the_first_of_equal_pairs_is_taken():
    mdp = TabularMDP(
        offsets=np.array([0, 3]),
        rewards=np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]),
        outcomes=np.zeros(3, dtype=np.int64),
        kernel=sparse.csr_array(np.ones((1, 1))),
        initial=np.ones(1),
        criterion=Discounted(0.5),
    )
    assert solve_weighted(mdp, WEIGHTS).choices.tolist() == [1]


@pytest.mark.parametrize("criterion", [Discounted(0.9), Average()], ids=lambda criterion: criterion.name)
def test_rewards_that_are_next_to_nothing(criterion):
    """Smaller than any double that keeps its digits: the bounds cannot meet there, and need not."""
    mdp = replace(random_mdp(3), criterion=criterion)
    best = solve_weighted(mdp, 1e-322 * WEIGHTS)
    assert 0 <= best.upper_bound - best.lower_bound <= 1e-300


def test_what_rounding_leaves_open_is_reported():
    """A best mean of 0 has no relative gap, so whoever asks for one must know how close bounds can come."""
    moves = [[2 / 7, 4 / 7, 1 / 7], [1 / 7, 1 / 7, 5 / 7], [0.0, 0.0, 1.0]]
    mdp = TabularMDP(
        offsets=np.arange(4),
        rewards=np.array([[0.625], [0.25], [0.0]]),
        outcomes=np.arange(3),
        kernel=sparse.csr_array(np.array(moves)),
        initial=np.array([3, 1.5, 2.5]) / 7,
        criterion=Average(),
    )
    best = solve_weighted(mdp, np.ones(1), 1e-8)
    assert best.lower_bound <= 0 <= best.upper_bound
    assert best.upper_bound - best.lower_bound <= 4 * best.rounding <= 1e-12
