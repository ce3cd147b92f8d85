"""Certificates that hold where numbers are awkward: sums of almost 1, optima of 0, odd units, long horizons."""

import numpy as np
import pytest

from evenhand import solve
from evenhand.evaluation import evaluate
from evenhand.model import Arm, CoupledMDP, criterion
from evenhand.problems import random_coupled

from ..conftest import crossed


@pytest.mark.parametrize(
    ("method", "third"), crossed(["joint", "counts", "count-lp", "joint-lp"], [0.333333336, 0.333333331])
)
def test_rows_that_sum_to_almost_one(method, third):
    """Taken as the distributions they are meant to be, by every method alike."""
    rewards = [[0.5, 1.0], [0.2, 0.9], [0.0, 0.7]]
    sloppy = Arm(np.full((3, 2, 3), third), rewards, [[0], [1]], [1.0, 0.0, 0.0])
    exact = Arm(np.full((3, 2, 3), 1 / 3), rewards, [[0], [1]], [1.0, 0.0, 0.0])
    found, meant = (solve(CoupledMDP([arm], [1], 0.999, [3]), method=method) for arm in (sloppy, exact))
    assert found.welfare <= found.upper_bound + 1e-9
    assert found.welfare == pytest.approx(meant.welfare, rel=1e-9)
    assert evaluate(found.problem, found.policy, method="exact").mean <= found.upper_bound + 1e-9


@pytest.mark.parametrize("count", [1, 5, 200])
def test_an_optimum_of_nothing(count):
    arm = Arm(np.full((2, 2, 2), 0.5), [[0.0, -1.0], [0.0, -1.0]], [[0], [1]])
    found = solve(CoupledMDP([arm], [1], 0.95, [count]))
    assert found.welfare == pytest.approx(0.0, abs=1e-6)
    assert found.upper_bound == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("unit", "welfare"), crossed([1e-9, 1e-3, 1e6, 1e10], ["gini:1.1", "gini:2", "maximin", "leximin", "alpha:2"])
)
def test_the_unit_of_rewards_does_not_matter(unit, welfare):
    problem = random_coupled(num_arms=3, num_types=3, num_states=2, seed=5)
    arms = [Arm(arm.transitions, np.asarray(arm.rewards) * unit, arm.usage, arm.initial) for arm in problem.arms]
    scaled = CoupledMDP(arms, problem.budget, problem.discount)
    plain, other = (solve(p, welfare, "joint") for p in (problem, scaled))
    assert other.welfare / unit == pytest.approx(plain.welfare, rel=1e-6)
    assert other.gap <= 1e-7


@pytest.mark.parametrize("sign", [-1.0, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("steps", [100, pytest.param(None, marks=pytest.mark.slow)], ids=["cut short", "as it is"])
def test_what_lies_beyond_the_horizon_is_not_claimed(sign, steps, monkeypatch):
    """At a discount of 0.9999 no episode is long enough; the rest counts as the worst it can be."""
    if steps is not None:
        monkeypatch.setattr(criterion, "MOST_JUDGED", steps)
    problem = random_coupled(num_arms=14, num_types=14, num_states=2, seed=1, discount=0.9999)
    arms = [Arm(arm.transitions, sign * np.asarray(arm.rewards), arm.usage, arm.initial) for arm in problem.arms]
    found = solve(CoupledMDP(arms, problem.budget, 0.9999), "utilitarian", "fluid")
    assert found.welfare <= found.upper_bound + 4 * found.welfare_stderr
