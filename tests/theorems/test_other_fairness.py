"""Corollary B.5: the reduction holds for every measure that is concave, symmetric, and leaves constants unchanged."""

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given

from evenhand.model import AlphaFair, Arm, CoupledMDP, Utilitarian
from evenhand.planning.solve import solve

from .product_space import ProductSpace, best_concave, symmetric_problems, two_by_two


def alpha_fair(alpha: float) -> Callable:
    """u^-1(mean u(v)) with u(x) = x^(1-alpha) / (1-alpha), as a concave expression."""

    def measure(values):
        if alpha == 1:
            return cp.geo_mean(values)
        power = 1 - alpha
        return cp.pnorm(values, power) * values.size ** (-1 / power)

    return measure


def exponential(values):
    """u(x) = -exp(-x): the certainty equivalent is -log mean exp(-v)."""
    return -(cp.log_sum_exp(-values) - np.log(values.size))


def exponential_of(values: np.ndarray) -> float:
    return float(-np.log(np.mean(np.exp(-values))))


MEASURES: dict[str, tuple[Callable, Callable]] = {
    "alpha:0.5": (alpha_fair(0.5), AlphaFair(0.5)),
    "alpha:1": (alpha_fair(1), AlphaFair(1)),
    "alpha:2": (alpha_fair(2), AlphaFair(2)),
    "exponential": (exponential, exponential_of),
}


@pytest.mark.parametrize("name", MEASURES)
@given(problem=symmetric_problems())
def test_the_best_mean_is_the_best_of_the_measure(name: str, problem: CoupledMDP) -> None:
    expression, measure = MEASURES[name]
    space = ProductSpace(problem)
    optimum = best_concave(space, expression)
    solution = solve(problem, Utilitarian(), "counts")
    assert solution.welfare == pytest.approx(optimum, rel=1e-6)
    attained = measure(space.values(space.induced(solution.policy)))
    assert attained == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("text", ["alpha:0.5", "nash", "alpha:2", "alpha:10"])
def test_solve_uses_it(text: str) -> None:
    problem = two_by_two()
    space = ProductSpace(problem)
    alpha = {"nash": 1.0}.get(text) or float(text.split(":")[1])
    optimum = best_concave(space, alpha_fair(alpha))
    for method in ("counts", "joint"):
        assert solve(problem, text, method).welfare == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("name", MEASURES)
def test_it_fails_when_one_arm_earns_less(name: str) -> None:
    expression, measure = MEASURES[name]
    space = ProductSpace(two_by_two(rewards=[[0.3, 0.1], [0.0, -0.2]]))
    best_mean = solve(space.problem, Utilitarian(), "joint")
    optimum = best_concave(space, expression)
    assert best_mean.welfare - optimum > 0.2
    assert optimum - measure(best_mean.values) > 0.2


def test_it_fails_for_a_measure_that_is_not_concave() -> None:
    """The root mean square is symmetric and leaves constants unchanged, but prefers all for one to half for both."""
    arm = Arm(np.ones((1, 2, 1)), [[0.0, 1.0]], [[0.0], [1.0]])
    problem = CoupledMDP([arm], [1.0], 0.9, [2])
    space = ProductSpace(problem)
    solution = solve(problem, Utilitarian(), "counts")
    fair = space.values(space.induced(solution.policy))
    np.testing.assert_allclose(fair, [5.0, 5.0])
    unequal = space.values(np.array([float(a == (1, 0)) for _, a in space.pairs]))
    np.testing.assert_allclose(unequal, [10.0, 0.0])
    assert np.sqrt(np.mean(unequal**2)) > np.sqrt(np.mean(fair**2)) + 2.0
