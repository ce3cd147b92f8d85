"""No solve may end without a certificate, and none may hang: small problems of every unpleasant kind, all welfares.

Degenerate (moves without chance, absorbing states, arms that are alike, budgets of nothing or of plenty), and badly
scaled: rewards of 1e8 beside 1e-8, arm by arm and state by state. Of every answer is asked what can be asked without
knowing the optimum:

    welfare <= upper bound
    the values have the welfare that is reported
    methods agree: no policy's welfare is above another method's bound
    where numbers are of one size, the gap is closed

and refusals are in words, where they are due. `hunt` is the same for a range of seeds, with the slow ones.
"""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicableError, OutOfDomainError
from evenhand.planning import relax, tightest

from ..conftest import slow_after, try_each
from ..contracts.test_objectives import Halfway, Kolm
from ..oracles.problems import replaced, seeded_problem

WELFARES = (
    *("gini:1.01", "gini:2", "gini:50", "maximin", "maximin:0.01", "leximin", "first only", "utilitarian"),
    *("alpha:0.5", "alpha:1", "alpha:2", "alpha:5", "open, smooth", "open, kinked"),
)
METHODS = ("counts", "joint", "joint-lp", "count-lp", "auto", "relaxation")
CRITERIA = ("discounted", "discounted", "discounted", "average", "finite:3")
SCALES = ("plain", "plain", "units", "arms", "states", "negative")
SEEDS, MANY_SEEDS = (1770, *range(40)), range(40, 1800)
"""The first once had a program without a solution, to the solver: values from 1e-9 to 1e8 under alpha:5."""


def rescaled(problem, kind, rng):
    """The problem with rewards of other sizes: all in one unit, one unit an arm, one a state, or partly losses."""
    blocks = [problem.arms[b] for b in range(len(problem.counts))]
    unit = 10.0 ** rng.choice([-8, 8])
    arms = []
    for arm in blocks:
        rewards = np.array(arm.rewards)
        factor = {
            "plain": 1.0,
            "units": unit,
            "arms": 10.0 ** rng.choice([-8, -4, 0, 4, 8]),
            "states": 10.0 ** rng.choice([-8.0, 0.0, 8.0], size=(len(rewards), 1)),
            "negative": 1.0,
        }[kind]
        arms.append(eh.Arm(arm.transitions, factor * rewards - (kind == "negative") * 0.5, arm.usage, arm.initial))
    return replaced(problem, arms=arms)


def case_of(seed):
    """A problem, its criterion, a welfare and how its rewards are scaled."""
    rng = np.random.default_rng([seed, 11])
    scale, criterion = str(rng.choice(SCALES)), str(rng.choice(CRITERIA))
    floors = None if rng.random() < 0.2 else False
    found = seeded_problem(seed, most_pairs=256, least_reward=1, floors=floors, groups=False)
    problem = rescaled(found, scale, rng).with_criterion(criterion)
    return problem, welfare_of(str(rng.choice(WELFARES)), problem.num_arms), scale


def welfare_of(name, num_arms):
    own = {"open, smooth": Kolm(), "open, kinked": Halfway()}
    if name == "first only":
        return "gini:" + ",".join(["1.0", *["0.0"] * (num_arms - 1)]) if num_arms > 1 else "gini:1"
    return own.get(name, name)


def largest_value(problem):
    """Largest magnitude of an arm's value."""
    return max(np.abs(problem.arms[b].rewards).max() for b in range(len(problem.counts))) * problem.criterion.total


def bounds_of(problem, welfare, method):
    """Welfare and bound by one method, with what is promised of it; None where it refuses in words."""
    try:
        if method == "relaxation":
            plain, least = relax(problem, welfare).upper_bound, tightest(problem, welfare).upper_bound
            assert least <= plain
            return -np.inf, least
        solution = eh.solve(problem, welfare, method)
    except OutOfDomainError as refusal:
        assert "alpha" in str(refusal)
        return None
    except NotApplicableError as refusal:
        assert method in ("joint-lp", "count-lp") or problem.criterion.is_average, refusal
        return None
    size = largest_value(problem)
    assert solution.welfare <= solution.upper_bound + 1e-9 * abs(solution.upper_bound) + 1e-12 * size
    assert solution.objective.welfare(solution.values) == pytest.approx(solution.welfare, rel=1e-9, abs=1e-12 * size)
    return solution.welfare, solution.upper_bound


def attack(seed):
    """All methods on one case."""
    problem, welfare, scale = case_of(seed)
    found = {method: bounds_of(problem, welfare, method) for method in METHODS}
    answers = {method: answer for method, answer in found.items() if answer is not None}
    exact = {method: answer for method, answer in answers.items() if method != "relaxation"}
    size = largest_value(problem)
    for low_of, (low, _) in exact.items():
        for high_of, (_, high) in answers.items():
            assert low <= high + 1e-7 * abs(high) + 1e-12 * size, (low_of, high_of)
    for method, (low, high) in exact.items():
        if scale in ("plain", "units", "negative"):
            assert high - low <= 2e-6 * max(abs(high), 1e-3 * size), method


@pytest.mark.parametrize("seed", slow_after(4, SEEDS))
def test_every_method_ends_with_a_certificate(seed):
    attack(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY_SEEDS[::40])
def test_every_method_ends_with_a_certificate_on_many_problems(first):
    try_each(attack, range(first, min(first + 40, MANY_SEEDS.stop)))
