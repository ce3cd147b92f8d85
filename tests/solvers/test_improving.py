"""The loop for oracles that need not be exact, with an exact one: it must find what column generation finds."""

import numpy as np
import pytest

from evenhand.model.objective import Objective
from evenhand.reductions.counts import Counts
from evenhand.solvers.mixtures import best_mixture, improve
from evenhand.solvers.pricing import TabularPricing, weighed

from ..oracles.problems import FIXED

WELFARES = ["gini:2", "maximin", "leximin", "alpha:2", "utilitarian"]


def begin(name, welfare):
    problem = FIXED[name]()
    objective = Objective.of_types(problem, welfare)
    mdp, floors = weighed(Counts(problem).mdp, objective)
    return objective, TabularPricing(mdp), floors


def first(oracle, objective, floors):
    weights = np.concatenate([objective.sizes / objective.sizes.sum(), np.full(len(floors), 10.0)])
    return oracle(weights, 1e-9).vectors


@pytest.mark.parametrize("welfare", WELFARES)
def test_an_exact_oracle_leads_to_the_optimum(welfare):
    objective, oracle, floors = begin("typed", welfare)
    best = best_mixture(oracle, objective.welfare, objective.sizes, 1e-8, floors=floors)
    objective, oracle, floors = begin("typed", welfare)
    given = objective.welfare, objective.sizes, first(oracle, objective, floors), floors
    found = improve(oracle, *given, tolerance=1e-7, upper_bound=best.upper_bound, most_rounds=100)
    assert found.welfare == pytest.approx(best.welfare, rel=1e-6)
    assert len(found.shares) == oracle_size(oracle)


def oracle_size(oracle):
    return len(oracle.choices)


def test_its_bounds_are_the_oracles():
    """Without a bound of its own the loop takes what the oracle proves, and that closes the gap."""
    objective, oracle, floors = begin("typed", "gini:2")
    given = objective.welfare, objective.sizes, first(oracle, objective, floors), floors
    found = improve(oracle, *given, tolerance=1e-6, most_rounds=200)
    assert found.welfare <= found.upper_bound <= found.welfare * (1 + 1e-5)


def test_it_ends_when_nothing_is_gained():
    objective, oracle, floors = begin("typed", "gini:2")
    given = objective.welfare, objective.sizes, first(oracle, objective, floors), floors
    found = improve(oracle, *given, least_gain=lambda shares, support: 1e9, tolerance=1e-12)
    assert 0 < found.rounds <= 4


def test_it_ends_when_it_is_told():
    objective, oracle, floors = begin("typed", "gini:2")
    rounds = []
    given = objective.welfare, objective.sizes, first(oracle, objective, floors), floors

    def go_on(now):
        rounds.append(now)
        return now.number < 1

    found = improve(oracle, *given, tolerance=1e-16, go_on=go_on)
    assert found.rounds == 1 and [now.number for now in rounds] == [0, 1]
