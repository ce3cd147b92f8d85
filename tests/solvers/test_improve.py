"""The loop for oracles that need not be exact, with an exact one: it must find what column generation finds."""

import numpy as np
import pytest

from evenhand.model import Arm, CoupledMDP, Gini, Leximin, Objective
from evenhand.solvers import Counts, Priced, TabularPricing, best_mixture, improve, weighed

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


def test_leximin_goes_on_where_the_worst_off_cannot_be_helped():
    """The first stage is met by whatever is done: what is left to gain is in the others."""
    problem = FIXED["typed"]()
    arms = list(problem.arms)
    shape = arms[0].transitions.shape
    dull = Arm(np.tile(np.eye(shape[0])[:, None], (1, shape[1], 1)), np.zeros(shape[:2]), arms[0].usage)
    hopeless = CoupledMDP([*arms, dull], problem.budget, problem.discount, counts=[*problem.type_counts, 1])
    objective = Objective.of_types(hopeless, "leximin")
    mdp, floors = weighed(Counts(hopeless).mdp, objective)
    best = best_mixture(TabularPricing(mdp), objective.welfare, objective.sizes, 1e-8, floors=floors)
    oracle = TabularPricing(mdp)
    given = objective.welfare, objective.sizes, first(oracle, objective, floors), floors
    found = improve(oracle, *given, tolerance=1e-7, upper_bound=best.upper_bound, most_rounds=100)
    assert found.rounds > 0
    np.testing.assert_allclose(np.sort(found.values), np.sort(best.values), rtol=1e-5, atol=1e-9)


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


class OneStageAtATime:
    """Policies for the third of three members, found only at weights of the stage that is about it."""

    units = np.ones(3)

    def __init__(self):
        self.asked = []

    def __call__(self, weights, tolerance):
        self.asked.append(weights)
        best = 3.0 + len(self.asked) / 10 if weights[2] > 0.4 else 2.0
        return Priced(np.array([[1.0], [2.0], [best]]), np.inf)


def test_the_stages_of_leximin_take_turns_until_none_gains():
    oracle = OneStageAtATime()
    start = np.array([[1.0, 1.0], [2.0, 2.0], [2.5, 2.0]])
    given = Leximin(), np.ones(3, dtype=np.int64), start
    found = improve(oracle, *given, most_rounds=9)
    assert found.rounds == 9
    assert found.values[2] > 3.5
    asked = np.argmax(oracle.asked, axis=1)
    assert set(asked.tolist()) == {0, 1, 2}
    gave_up = improve(OneStageAtATime(), *given, least_gain=lambda shares, support: 9.0)
    assert gave_up.rounds == 6  # PATIENCE, and one for each stage


class OneVector:
    """The only policy there is, of which the second member has by far the most."""

    units = np.array([1.0, 1e10])

    def __call__(self, weights, tolerance):
        return Priced(self.units[:, None], float(weights @ self.units))


def test_a_bound_holds_for_the_digits_that_were_cut_off():
    """The oracle is asked at weights of ten digits; at 4e-11 the second member adds 0.4 to a welfare of 1.4."""
    given = Gini([1 - 4e-11, 4e-11]), np.ones(2, dtype=np.int64), OneVector.units[:, None]
    found = improve(OneVector(), *given, most_rounds=1)
    assert found.rounds == 1
    assert found.welfare == pytest.approx(1.4)
    assert found.welfare <= found.upper_bound <= found.welfare + 0.5
