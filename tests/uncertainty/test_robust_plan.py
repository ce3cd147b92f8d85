"""CVaR plans and value of information, on problems so small that every policy can be tried in every scenario."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import evenhand as eh
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.fitting import Dirichlet, Named
from evenhand.model import read_welfare
from evenhand.uncertainty import (
    EvaluationBudget,
    PlanSearch,
    RowValue,
    Scenarios,
    ValueOfInformation,
    compare_scenarios,
    draw_scenarios,
    plan_scenarios,
    tail_mean,
    upper_bounds,
)
from evenhand.uncertainty.value_of_information import value_of_information

from ..conftest import mentions

GAMMA = 0.8
STATES, ACTIONS = ("good", "bad"), ("wait", "mend")


def arm(mends, name, reward=1.0):
    """Good breaks with 0.3; mending a bad one works with this probability."""
    moves = [[[0.7, 0.3], [0.7, 0.3]], [[0, 1], [mends, 1 - mends]]]
    return eh.Arm(moves, [[reward] * 2, [0] * 2], [[0], [1]], [0.5, 0.5], name, STATES, ACTIONS)


def two_arms(first, second):
    return eh.CoupledMDP([arm(first, "north"), arm(second, "south", 0.9)], [1], GAMMA, welfare="utilitarian")


ATOMS = ((0.9, 0.1), (0.05, 0.85), (0.3, 0.4))
"""Success of mending for each of the two, in three equally likely scenarios."""


def atoms(number=60):
    """The mean of the scenarios as a model, and the scenarios, each equally often."""
    mean = np.mean(ATOMS, axis=0)
    problem = two_arms(*mean)
    drawn = np.stack([two_arms(*ATOMS[i % 3]).tables.transitions for i in range(number)])
    return problem, Scenarios(problem, drawn, np.arange(2))


def every_policy():
    """(policy, scenario) mean value of the two arms under every deterministic policy of the four joint states."""
    choices = [pair for pair in product((0, 1), repeat=2) if sum(pair) <= 1]
    states = list(product((0, 1), repeat=2))
    found = []
    for policy in product(choices, repeat=4):
        values = []
        for world in ATOMS:
            arms = [arm(world[0], "north"), arm(world[1], "south", 0.9)]
            chain, earned = np.zeros((4, 4)), np.zeros(4)
            for i, (state, action) in enumerate(zip(states, policy, strict=True)):
                rows = [one.transitions[s, a] for one, s, a in zip(arms, state, action, strict=True)]
                chain[i] = np.outer(*rows).reshape(-1)
                earned[i] = sum(one.rewards[s, a] for one, s, a in zip(arms, state, action, strict=True)) / 2
            values.append(np.full(4, 0.25) @ np.linalg.solve(np.eye(4) - GAMMA * chain, earned))
        found.append(values)
    return np.array(found)


def best_tail_of_all(values, share):
    """The best mixture of all policies in the worst scenarios, as one linear program."""
    policies, worlds = values.shape
    gains = np.concatenate([np.zeros(policies), [1.0], np.full(worlds, -1 / (share * worlds))])
    rows = np.hstack([-values.T, np.ones((worlds, 1)), -np.eye(worlds)])
    one = np.concatenate([np.ones(policies), np.zeros(1 + worlds)])[None]
    bounds = [(0, None)] * policies + [(None, None)] + [(0, None)] * worlds
    return -linprog(-gains, rows, np.zeros(worlds), one, [1.0], bounds).fun


@pytest.fixture(scope="module")
def all_of_them():
    return every_policy()


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_the_cvar_plan_is_the_best_of_all_mixtures(all_of_them, share):
    problem, scenarios = atoms()
    # Without heuristics: some are random or have a state, and are no tables of joint states.
    found = plan_scenarios(scenarios, eh.solve(problem), share, search=PlanSearch(heuristics=False))
    best = best_tail_of_all(all_of_them, share)
    facts = found.robust
    assert facts.seen.robust_tail <= best + 1e-7
    assert facts.seen.robust_tail == pytest.approx(best, rel=2e-3)
    assert facts.seen.robust_tail >= facts.seen.plain_tail
    assert best - 1e-7 <= facts.bound
    assert facts.held_out is None
    assert found.scenarios["robust plan"].tail(share) == pytest.approx(facts.seen.robust_tail)
    assert found.scenarios["plan"].mean == pytest.approx(facts.seen.plain_mean)
    if share == 1:
        assert facts.seen.robust_tail == pytest.approx(facts.seen.robust_mean)
        assert best == pytest.approx(all_of_them.mean(axis=1).max())


@pytest.mark.slow
def test_tails_grow_with_the_share(all_of_them):
    problem, scenarios = atoms()
    found = [plan_scenarios(scenarios, eh.solve(problem), share).robust for share in (0.1, 0.4)]
    tails = [facts.seen.robust_tail for facts in found]
    assert tails == sorted(tails)
    assert all(facts.seen.robust_tail <= facts.bound + 1e-9 for facts in found)
    assert tails[0] > best_tail_of_all(all_of_them, 0.1)  # random and round-robin service hedges within an episode
    strict = found[0]
    assert strict.seen.gain > 0.02
    assert strict.seen.cost == pytest.approx(1 - strict.seen.robust_mean / strict.seen.plain_mean)
    assert f"{100 * abs(strict.seen.cost):.3g} %" in strict.words and f"{100 * strict.seen.gain:.3g} %" in strict.words
    assert sum(part.share for part in strict.parts) == pytest.approx(1)


def test_perfect_information_has_the_value_of_the_best_policy_per_scenario(all_of_them):
    problem, scenarios = atoms()
    found = plan_scenarios(scenarios, eh.solve(problem)).information
    known = all_of_them.max(axis=0).mean()
    assert found.total + found.welfare == pytest.approx(known)
    assert found.welfare <= all_of_them.mean(axis=1).max() + 1e-9
    assert all(row.value <= found.total + 1e-12 for row in found.rows)
    rows = {(row.type, row.state, row.action): row for row in found.rows}
    assert set(rows) == {("north", "bad", "mend"), ("south", "bad", "mend")}
    assert rows["north", "bad", "mend"].value == pytest.approx(found.total, rel=0.05)  # it identifies the scenario
    assert found.to_dict()["rows"][0]["value"] == found.rows[0].value


def independent(number=200):
    """Mending is uncertain for the north, where it matters, and for an arm without rewards, where it does not."""
    rng = np.random.default_rng(5)
    mends = rng.choice([0.05, 0.95], (number, 2))
    arms = [arm(0.5, "north"), arm(0.5, "south", 0.9), arm(0.5, "spare", 0.0)]
    problem = eh.CoupledMDP(arms, [1], GAMMA, welfare="utilitarian")
    drawn = np.repeat(problem.tables.transitions[None], number, axis=0)
    for block, own in zip((0, 2), mends.T, strict=True):
        drawn[:, block, 1, 1] = np.column_stack([own, 1 - own])
    return problem, Scenarios(problem, drawn, np.arange(3))


def test_an_uninformative_row_has_no_value():
    problem, scenarios = independent()
    found = plan_scenarios(scenarios, eh.solve(problem)).information
    north, spare = sorted(found.rows, key=lambda row: row.type)
    assert north.value == pytest.approx(found.total, rel=0.1)
    assert found.significant == (north,)
    assert spare.value <= 0.01 * found.total
    assert "north, bad, mend" in found.words


def test_equal_plans_leave_no_value_of_information():
    problem, scenarios = independent(40)
    policy = eh.solve(problem).policy
    found = value_of_information(scenarios, compare_scenarios(scenarios, {"a": policy, "b": policy}).rows)
    assert found.total == 0
    assert all(row.value == 0 for row in found.rows)


def test_bounds_of_the_scenarios_are_bounds():
    problem, scenarios = atoms(21)
    plans = {f"draw {draw}": eh.solve(scenarios.scenario(draw)).policy for draw in range(3)}
    bounds = upper_bounds(scenarios, read_welfare(problem, None))
    assert all((row.observed <= bounds + 1e-9).all() for row in compare_scenarios(scenarios, plans).rows)


def fitted(counts=(1, 2)):
    """Two types with rows seen some ten times each."""
    concentration = np.zeros((2, 2, 2, 2))
    concentration[:, 0, :] = 7.0, 3.0
    concentration[:, 1, 0] = 0.0, 10.0
    concentration[:, 1, 1] = [[2.0, 2.0], [6.0, 1.5]]
    known = Named(Dirichlet(concentration), ("north", "south"), STATES, ACTIONS)
    arms = [
        eh.Arm(own, [[1, 0.9], [0, -0.1]], [[0], [1]], None, name, STATES, ACTIONS)
        for own, name in zip(known.posterior.mean, known.types, strict=True)
    ]
    return eh.CoupledMDP(arms, [1], GAMMA, counts), known


def test_the_same_seed_gives_the_same_plan_and_it_can_be_saved(tmp_path):
    problem, known = fitted()
    scenarios = draw_scenarios(problem, known, 20, rng=3, held_out=True)
    first, again = (plan_scenarios(scenarios, eh.solve(problem, "gini:2", rng=3), 0.2) for _ in range(2))
    assert first.robust.to_dict() == again.robust.to_dict()
    assert first.scenarios.to_dict() == again.scenarios.to_dict()
    assert first.information.to_dict() == again.information.to_dict()
    assert not np.allclose(draw_scenarios(problem, known, 20, rng=4).transitions, scenarios.transitions)
    assert first.robust.held_out is not None
    assert all(one._repr_html_() for one in (first, first.robust, first.information))
    assert "<table" in first.scenarios._repr_html_()
    eh.save_solution(first.solution, tmp_path / "plan.zip")
    loaded = eh.load_policy(tmp_path / "plan.zip", problem)
    assert eh.evaluate(problem, loaded, "gini:2").welfare == pytest.approx(first.solution.welfare)
    seen = compare_scenarios(scenarios, {"x": loaded}, "gini:2").rows[0]
    assert tail_mean(seen.observed, 0.2) == pytest.approx(first.robust.seen.robust_tail)


@pytest.mark.slow
def test_larger_problems_are_simulated():
    problem, known = fitted((6, 5))
    search = PlanSearch(3, 0, evaluation=EvaluationBudget(max_exact_states=0, arm_steps=3e5))
    scenarios = draw_scenarios(problem, known, 30, held_out=True)
    found = plan_scenarios(scenarios, eh.solve(problem, "gini:2", "whittle"), 0.3, search=search)
    row = found.scenarios["plan"]
    assert not row.exact
    assert row.noise > 0
    assert row.welfare.std() < row.observed.std()
    assert found.robust.seen.robust_tail >= found.robust.seen.plain_tail
    assert found.robust.seen.robust_tail <= found.robust.bound + 3 * row.noise


def test_invalid_requests_are_refused():
    problem, known = fitted()
    scenarios, plan = draw_scenarios(problem, known, 20), eh.solve(problem)
    for share in (0, 1.5):
        with pytest.raises(InvalidInputError, check=mentions("robust", share)):
            plan_scenarios(scenarios, plan, share)
    with pytest.raises(InvalidInputError, check=mentions("draws", "posterior")):
        draw_scenarios(problem, None, 50)
    floored = eh.CoupledMDP(problem.arms, [1], GAMMA, [1, 2], floors=[0.1, 0])
    with pytest.raises(NotApplicableError, check=mentions("robust", "floors")):
        plan_scenarios(scenarios.with_problem(floored), plan, 0.1)


def row_values(*rows, welfare=18.0, num_draws=60):
    found = tuple(RowValue(f"type {i}", "ok", "none", value, error) for i, (value, error) in enumerate(rows))
    return ValueOfInformation(0.02 * welfare, welfare, "plan", 5, num_draws, found)


class TestSignificantRows:
    def test_one_of_many_rows_that_is_two_errors_above_zero_is_not_significant(self):
        """One of 36, with 0.05 % of the welfare."""
        assert row_values((0.0083, 0.0040), *[(0.001, 0.001)] * 35).significant == ()

    def test_small_values_are_not_reported(self):
        assert row_values((0.0083, 0.0008)).significant == ()
        assert len(row_values((0.0183, 0.0008)).significant) == 1

    def test_large_values_are_significant_among_all(self):
        found = row_values((0.2, 0.02), (0.1, 0.02), (0.05, 0.025), *[(0.0, 0.001)] * 33)
        assert found.significant == found.rows[:2]
        assert "type 0, ok, none; type 1, ok, none" in found.words
        assert [row["stands_out"] for row in found.to_dict(3)["rows"]] == [True, True, False]

    def test_the_familywise_error_rate_holds(self):
        rng = np.random.default_rng(0)
        noise = ([(max(x, 0.0), 0.05) for x in rng.normal(0, 0.05, 36)] for _ in range(300))
        assert sum(bool(row_values(*rows).significant) for rows in noise) < 25
