"""More is never worse: what-ifs of random programmes, one at a time, beside the plan in use."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import evenhand as eh
from evenhand.planning import load_plan
from evenhand.programme import Programme, counterfactuals
from evenhand.programme.counterfactuals import PlanInUse

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


@pytest.mark.parametrize("seed", range(2))
def test_today_s_own_budget_is_no_change(tmp_path, seed):
    with random_programme(tmp_path / "p.db", np.random.default_rng(seed), "gini:2") as programme:
        programme.solve(seconds=HASTE)
        less, own = programme.suppose([[1.0], [2.0]], seconds=HASTE)
    assert own.difference == {"welfare": 0.0, "stderr": 0.0, "measurable": False, "by_plan": 0.0}
    assert own.welfare == own.today.welfare and own.values == own.today.values
    assert all(one.then == one.today and not one.measurable for one in own.states)
    assert less.difference["welfare"] <= 0
    assert load_plan(own.body).problem.named_budget == {"calls": 2.0}


def test_a_hasty_first_policy_is_improved_or_stays(tmp_path):
    with random_programme(tmp_path / "p.db", np.random.default_rng(0), "gini:2") as programme:
        programme.join([{"arm": f"{kind}{number}", "type": kind} for kind in ("near", "far") for number in range(3, 9)])
        first = programme.solve(seconds=HASTE)
        assert programme.needs_solving().improvable
        certificate = programme.certificate()
        better = programme.solve(seconds=0.2)
        assert not programme.needs_solving().improvable
        assert better.welfare >= first.welfare - 4 * np.hypot(certificate.stderr, programme.certificate().stderr)
        assert programme.certificate().policy == better.policy
        assert programme.plan_of(programme.plan().plan).policy == better.policy


def test_state_numbers_are_those_of_the_plans(tmp_path):
    """By the exact value of a reward of 1 in the state; no plan exceeds the bound of that reward's mean."""
    with random_programme(tmp_path / "p.db", np.random.default_rng(4), "utilitarian") as programme:
        programme.solve(method="joint")
        (one,) = programme.suppose([[4.0]], seconds=HASTE)
        problem = programme.present_problem()[0]
    plan = load_plan(one.body)
    for number in one.states:
        rewards = np.zeros_like(problem.tables.rewards)
        rewards[:, int(number.state)] = 1.0
        counted = replace(plan.problem, arms=replace(problem.tables, rewards=rewards))
        share = eh.evaluate(counted, plan.policy, "utilitarian", 500, rng=1)
        error = 4 * np.hypot(share.welfare_stderr, 0.01) * 6
        assert number.then == pytest.approx(6 * share.welfare * (1 - 0.6), abs=error)
        assert number.measurable == (abs(number.then - number.today) > number.stderr)
    assert sum(number.then for number in one.states) == pytest.approx(6)
    first = one.states[0]
    assert first.at_most >= first.then - 1e-6
    assert all(number.at_most is None for number in one.states[1:])
    assert first.then - first.today == max(number.then - number.today for number in one.states)


def test_a_plan_kept_from_a_smaller_budget_is_the_plan_that_its_figures_are_for(tmp_path):
    """Written to a file and read again it acts with its own budget, and not with the larger one."""
    with random_programme(tmp_path / "p.db", np.random.default_rng(0), "gini:2") as programme:
        programme.solve(method="joint")
        (one,) = programme.suppose([[2.5]], seconds=HASTE)  # half a call is of no use
    assert one.reused_from == {"calls": 2.0}
    plan = load_plan(one.body)
    assert plan.problem.named_budget == {"calls": 2.0}
    assert eh.evaluate(plan.problem, plan.policy, "gini:2", method="exact").welfare == pytest.approx(one.welfare)


def test_state_numbers_of_plans_by_ranks_and_by_programs_are_of_the_same_episodes():
    problem = eh.problems.health_outreach(num_arms=12, num_states=3, budget=2, discount=0.8)
    relaxed = eh.planning.relax(problem, "utilitarian")
    how = problem, relaxed.weights, relaxed.prices
    ranked, program = eh.policies.fair_index(*how), eh.policies.look_ahead(*how, steps=5)
    beside = PlanInUse(eh.Plan(ranked, problem), None, 0, own_welfare=True)
    states = beside._states(problem, program, problem.with_budget(3))
    for numbers in ([one.today for one in states], [one.then for one in states]):
        assert sum(numbers) == pytest.approx(12)
