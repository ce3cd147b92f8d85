"""Certificates against exact arithmetic where rewards are of very different sizes: 1e8 beside 1e-8 in one problem.

Tiny random problems, one unit an arm or one a state, against the simplex method on fractions of
`tests/oracles/exact_lp.py`. No bound may lie below the exact optimum, and no welfare above it, by more than rounding.
Digits that are lost show as a gap or as NotConvergedError, never as a wrong certificate.
"""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicableError, NotConvergedError
from evenhand.planning import relax

from ..conftest import try_each
from ..oracles.exact_lp import best

METHODS = ("joint", "counts", "joint-lp", "auto", "relaxation")
UNITS = (-8.0, -4.0, 0.0, 4.0, 8.0)
SEEDS, MANY_SEEDS = range(3), range(3, 400)


def case_of(seed):
    """A problem, and the weights of the worst-off and of all."""
    rng = np.random.default_rng([seed, 8])
    arms = []
    num_arms = int(rng.integers(2, 4))
    kind = rng.choice(["arms", "arms", "states", "pairs"])
    for _ in range(num_arms):
        sizes = {"arms": (1, 1), "states": (2, 1), "pairs": (2, 2)}[str(kind)]
        rewards = rng.random((2, 2)) * 10.0 ** rng.choice(UNITS, size=sizes)
        moves = rng.dirichlet(np.ones(2), size=(2, 2))
        if rng.random() < 0.3:
            moves = np.round(moves)
        arms.append(eh.Arm(moves, rewards, [[0], [1]], rng.dirichlet(np.ones(2))))
    problem = eh.CoupledMDP(arms, [1], float(rng.choice([0.5, 0.9, 0.95])))
    b = float(rng.choice([0.0, 0.0, 0.125, 1 / 64]))
    return problem, 1.0 - num_arms * b, b


def answers_of(problem, a, b):
    """(welfare, bound) by each method that applies."""
    weights = "gini:" + ",".join(map(repr, [a + b, *[b] * (problem.num_arms - 1)]))
    found = {}
    for method in METHODS:
        try:
            if method == "relaxation":
                bound = relax(problem, weights).upper_bound
                found[method] = (-np.inf, bound)
            else:
                solution = eh.solve(problem, weights, method)
                found[method] = (solution.welfare, solution.upper_bound)
        except (NotApplicableError, NotConvergedError):
            continue
    return found


def attack(seed):
    problem, a, b = case_of(seed)
    optimum = float(best(problem, a, b))
    for method, (low, high) in answers_of(problem, a, b).items():
        allowed = 1e-9 * abs(optimum)
        assert high >= optimum - allowed, (method, high, optimum)
        assert low <= optimum + allowed, (method, low, optimum)


def test_no_certificate_is_wrong_whatever_the_scales():
    try_each(attack, SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY_SEEDS[::50])
def test_no_certificate_is_wrong_on_many_problems(first):
    try_each(attack, range(first, min(first + 50, MANY_SEEDS.stop)))


def test_the_oracle_agrees_where_all_is_plain():
    machines = eh.problems.machine_replacement(num_arms=2)
    for weights, a, b in (("maximin", 1, 0), ("utilitarian", 0, 0.5), ("gini:0.75,0.25", 0.5, 0.25)):
        assert float(best(machines, a, b)) == pytest.approx(
            eh.solve(machines, weights, eh.SolveMethod("joint", tolerance=1e-13)).welfare, rel=1e-12
        )
