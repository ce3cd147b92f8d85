"""Theorem 3.4: if arms are identical, the best mean is the best generalised Gini welfare, whatever its weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import CoupledMDP, Gini, Utilitarian
from evenhand.planning.solve import solve

from .product_space import ProductSpace, best_gini, gini_weights, symmetric_problems, two_by_two


@given(symmetric_problems(), st.integers(0, 2**32 - 1))
def test_the_best_mean_is_the_best_gini(problem: CoupledMDP, seed: int) -> None:
    space = ProductSpace(problem)
    weights = gini_weights(np.random.default_rng(seed), space.num_arms)
    optimum = best_gini(space, weights)
    utilitarian = best_gini(space, np.full(space.num_arms, 1 / space.num_arms))
    assert optimum == pytest.approx(utilitarian, abs=1e-7)
    solution = solve(problem, Gini(weights), "counts")
    assert solution.welfare == pytest.approx(optimum, abs=1e-6)
    assert solution.upper_bound >= optimum - 1e-9


@given(symmetric_problems(), st.integers(0, 2**32 - 1), st.sampled_from(["counts", "count-lp"]))
def test_the_lifted_count_policy_attains_it(problem: CoupledMDP, seed: int, method: str) -> None:
    """Solved for the mean alone, and then measured by weights it never saw."""
    space = ProductSpace(problem)
    weights = gini_weights(np.random.default_rng(seed), space.num_arms)
    policy = space.induced(solve(problem, Utilitarian(), method).policy)
    assert np.sort(space.values(policy)) @ weights == pytest.approx(best_gini(space, weights), abs=1e-6)


def test_it_fails_when_one_arm_earns_less() -> None:
    check_failure(rewards=[[0.3, 0.1], [0.0, -0.2]])


def test_it_fails_when_one_arm_breaks_sooner() -> None:
    check_failure(transitions=[[[0.2, 0.8], [1.0, 0.0]], [[0.0, 1.0], [0.7, 0.3]]])


def check_failure(**changes) -> None:
    """With an odd arm the best mean is not the best Gini, and the best policy for the mean is unfair."""
    problem = two_by_two(**changes)
    space = ProductSpace(problem)
    mean, fair = best_gini(space, np.array([0.5, 0.5])), best_gini(space, np.array([0.9, 0.1]))
    assert mean - fair > 0.1
    solution = solve(problem, Utilitarian(), "joint")
    assert solution.welfare == pytest.approx(mean, abs=1e-6)
    assert fair - np.sort(solution.values) @ [0.9, 0.1] > 0.1
    np.testing.assert_allclose(solve(problem, Gini([0.9, 0.1])).welfare, fair, atol=1e-6)
