"""More is never worse: what-ifs of random programmes, one at a time, beside the plan in use."""

from itertools import pairwise

import numpy as np
import pytest

import evenhand as eh
from evenhand.planning import load_plan
from evenhand.programme import Programme, counterfactuals

HASTE = 1e-3
"""Seconds: each search is over before it began."""


def random_programme(where, rng, welfare):
    arms = [
        eh.Arm(
            rng.dirichlet(np.ones(3), size=(3, 2)),
            rng.random((3, 2)),
            usage=[[0], [1]],
            initial=[1, 0, 0],
            name=name,
        )
        for name in ("near", "far")
    ]
    model = eh.CoupledMDP(arms, [2.0], 0.6, [1, 1], resources=["calls"])
    roster = [{"arm": f"{kind}{number}", "type": kind} for kind in ("near", "far") for number in range(3)]
    return Programme.create(where, model, roster, welfare=welfare)


@pytest.mark.parametrize("method", ["joint", pytest.param("fluid", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("seed", "welfare"), [(0, "gini:2"), (1, "utilitarian"), (2, "alpha:2")])
def test_today_s_budget_is_no_worse_than_today_s_plan(tmp_path, seed, welfare, method):
    with random_programme(tmp_path / "p.db", np.random.default_rng(seed), welfare) as programme:
        programme.solve(method=method, seconds=HASTE)
        today, found, earlier = programme.certificate(), [], []
        for calls in (2.0, 3.0, 4.0):
            (one,) = programme.suppose([[calls]], seconds=HASTE, earlier=earlier)
            found.append(one)
            earlier = [load_plan(one.body)]
        (less,) = programme.suppose([[1.0]], seconds=HASTE)
    for before, after in pairwise([less, *found]):
        assert before.welfare <= after.welfare
    for one in found:
        assert one.welfare >= today.welfare
        assert one.today == today
        assert one.difference["welfare"] == one.welfare - today.welfare
        assert one.difference["measurable"] == (one.difference["welfare"] > max(one.difference["stderr"], 1e-8))
        assert counterfactuals.Supposed.of(one.to_dict()).to_dict() == one.to_dict()
    if method == "joint":  # the optimum: nothing is better under the same budget
        assert found[0].welfare == today.welfare
        assert found[0].reused_from == {"calls": 2.0}


def test_a_plan_kept_from_a_smaller_budget_is_the_plan_that_its_figures_are_for(tmp_path):
    """Written to a file and read again it acts with its own budget, and not with the larger one."""
    with random_programme(tmp_path / "p.db", np.random.default_rng(0), "gini:2") as programme:
        programme.solve(method="joint")
        (one,) = programme.suppose([[2.5]], seconds=HASTE)  # half a call is of no use
    assert one.reused_from == {"calls": 2.0}
    plan = load_plan(one.body)
    assert plan.problem.named_budget == {"calls": 2.0}
    assert eh.evaluate(plan.problem, plan.policy, "gini:2").welfare == pytest.approx(one.welfare)
