"""Instances of the literature against published bounds and optima."""

import pytest

import evenhand as eh

BOUNDS = [
    (eh.problems.three_states(100, 1), 0.247596741),
    (eh.problems.three_states(100, 2), 0.123800171),
    (eh.problems.three_states(100, 3), 0.363775967),
    (eh.problems.eight_states(100, "plain"), 0.0125),
    (eh.problems.eight_states(100), 0.012916667),
    (eh.problems.non_sa(100), 1.0),
    (eh.problems.non_indexable(100), 0.779206483),
]


@pytest.mark.parametrize(("problem", "bound"), BOUNDS)
def test_bounds_of_averages(problem, bound):
    assert eh.bound(problem, "utilitarian").upper_bound == pytest.approx(bound, rel=1e-5)


OPTIMA = [
    (eh.problems.three_states(5, 1), 0.2281602122),
    (eh.problems.three_states(10, 1), 0.2361319936),
    (eh.problems.three_states(10, 2), 0.1156217550),
    (eh.problems.three_states(10, 3), 0.3493582417),
    (eh.problems.non_indexable(4), 0.7522112320),
    (eh.problems.eight_states(2, "plain"), 0.0106465722),
    (eh.problems.eight_states(2), 0.0110014580),
]


@pytest.mark.parametrize(("problem", "optimum"), OPTIMA)
def test_optima_of_averages(problem, optimum):
    assert eh.solve(problem, "utilitarian", method="counts").welfare == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize(
    ("instance", "budget", "bound"),
    [("counterexample", 10, 5.4328), ("counterexample", 20, 8.1), ("maternal", 20, 6.515), ("maternal", 40, 8.5692)],
)
def test_bounds_of_groups(instance, budget, bound):
    assert eh.bound(eh.problems.equitable(instance, budget)).upper_bound == pytest.approx(bound, abs=6e-5)


def test_the_optimum_of_three_machines():
    assert eh.solve(eh.problems.three_machines(), "gini:2").welfare == pytest.approx(16.973585595, abs=1e-6)


def test_the_bound_of_bayesian_arms():
    problem = eh.problems.bayesian_bandit(150)
    assert eh.bound(problem, "utilitarian").upper_bound == pytest.approx(3.516196286503916, rel=2e-5)
