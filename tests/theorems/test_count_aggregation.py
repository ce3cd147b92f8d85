"""Section 3.3: counts lose nothing. A policy on counts has the same value on the product space, and so has the best."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import CoupledMDP
from evenhand.planning.solve import solve
from evenhand.solvers import Counts, occupancy_measure, solve_weighted, values

from .product_space import ProductSpace, best_gini, random_arm, symmetric_problems, two_by_two


def random_typed(seed: int) -> CoupledMDP:
    """Two identical arms and one or two of another kind, with other numbers of states and actions."""
    rng = np.random.default_rng(seed)
    arms = [random_arm(rng, 2, 2, 2), random_arm(rng, 3, 2, 2, sparse=bool(rng.random() < 0.5))]
    return CoupledMDP(arms, rng.integers(1, 5, size=2).astype(float), 0.8, [2, 1])


def random_count_policy(counts: Counts, seed: int) -> np.ndarray:
    weights = np.random.default_rng(seed).exponential(size=counts.mdp.num_pairs)
    return weights / np.add.reduceat(weights, counts.mdp.offsets[:-1])[counts.mdp.state_of_pair]


def check_lift(problem: CoupledMDP, seed: int) -> None:
    space, counts = ProductSpace(problem), Counts(problem)
    table = random_count_policy(counts, seed)
    on_counts = values(counts.mdp, occupancy_measure(counts.mdp, table))
    on_arms = space.values(space.induced(counts.lift(table)))
    np.testing.assert_allclose(on_counts[counts.problem.type_of_arm], on_arms, atol=1e-9)


@given(symmetric_problems(), st.integers(0, 2**32 - 1))
def test_a_lifted_policy_keeps_its_value(problem: CoupledMDP, seed: int) -> None:
    check_lift(problem, seed)


@given(st.integers(0, 2**32 - 1))
def test_a_lifted_policy_of_types_keeps_its_values(seed: int) -> None:
    check_lift(random_typed(seed), seed)


@given(symmetric_problems())
def test_the_best_on_counts_is_the_best_of_all(problem: CoupledMDP) -> None:
    joint = best_gini(ProductSpace(problem), np.full(problem.num_arms, 1 / problem.num_arms))
    best = solve_weighted(Counts(problem).mdp, np.ones(1), tolerance=1e-10)
    assert best.lower_bound - 1e-8 <= joint <= best.upper_bound + 1e-8
    for method in ("counts", "count-lp", "joint"):
        assert solve(problem, "utilitarian", method).welfare == pytest.approx(joint, abs=1e-6)


def test_it_fails_when_one_arm_differs() -> None:
    """Counts of identical arms, played on arms of which one breaks sooner: neither value nor optimum is kept."""
    alike = two_by_two()
    odd = two_by_two(transitions=[[[0.1, 0.9], [1.0, 0.0]], [[0.0, 1.0], [0.7, 0.3]]])
    solution = solve(alike, "utilitarian", "counts")
    space = ProductSpace(odd)
    blind = ProductSpace(alike).induced(solution.policy)
    played = space.values(blind)
    assert played[0] - played[1] > 0.2
    assert solution.welfare - played.mean() > 0.5
    best = best_gini(space, np.array([0.5, 0.5]))
    assert solution.welfare - best > 0.5
    assert Counts(odd).problem.num_types == 2
