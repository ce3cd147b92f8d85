"""Effects of actions in reasons: shares by hand and by playing, the order of states, and the evidence behind them."""

import re

import numpy as np
import pytest

from evenhand.model import Arm, CoupledMDP
from evenhand.planning import Plan, plan_of
from evenhand.planning.effects import ActionEffects
from evenhand.planning.solve import solve
from evenhand.policies import never_act

STATES, ACTIONS = ("on", "shaky", "stopped"), ("wait", "visit")


def clinic(**more):
    """A visit brings 58 in 100 of the shaky back, and 30 of the stopped to shaky; the others are only protected."""
    arm = Arm(
        transitions=[
            [[0.9, 0.1, 0.0], [0.98, 0.02, 0.0]],
            [[0.12, 0.68, 0.2], [0.58, 0.35, 0.07]],
            [[0.0, 0.0, 1.0], [0.0, 0.3, 0.7]],
        ],
        rewards=[[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]],
        usage=[[0.0], [1.0]],
        name="patient",
        states=STATES,
        actions=ACTIONS,
    )
    return CoupledMDP([arm], [2.0], **{"discount": 0.9, "counts": [4]} | more)


@pytest.mark.parametrize("more", [{}, {"criterion": "average", "discount": 1.0}, {"criterion": "finite:6"}])
def test_shares_are_those_of_the_transitions(more):
    effects = ActionEffects(clinic(**more), [0])
    assert effects.shares(0, 1, 1) == ("better", pytest.approx(0.58), pytest.approx(0.12))
    assert effects.shares(0, 2, 1) == ("better", pytest.approx(0.3), 0.0)
    assert effects.shares(0, 0, 1) == ("worse", pytest.approx(0.02), pytest.approx(0.1))
    assert effects.shares(0, 0, 0) is None


def test_better_means_more_value_by_playing():
    """The order of states agrees with returns under free service, played by the actions that are best one by one."""
    problem, rng = clinic(), np.random.default_rng(0)
    worth, moves = ActionEffects(problem, [0]).values[0], problem.types.transitions[0]
    returns = []
    for state in range(3):
        now, total = np.full(4000, state), np.zeros(4000)
        for step in range(80):
            total += 0.9**step * problem.types.rewards[0][now, 1]
            now = (rng.random((4000, 1)) >= np.cumsum(moves[now, 1], axis=1)).sum(axis=1).clip(0, 2)
        returns.append(total.mean())
    np.testing.assert_allclose(worth, returns, atol=0.1)
    assert worth[0] > worth[1] > worth[2]


def test_states_alike_under_free_service_are_ordered_without_it():
    """A repair is as good as new at once, so that only neglect distinguishes the states."""
    arm = Arm([[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]], [[1.0, 1.0], [0.5, 1.0]], [[0], [1]], states=["new", "old"])
    effects = ActionEffects(CoupledMDP([arm], [1.0], discount=0.9), [0])
    assert effects.shares(0, 1, 1) == ("better", pytest.approx(1.0), 0.0)


def test_reasons_name_state_effect_and_evidence():
    problem = clinic()
    states = [{"arm": f"p{i}", "state": state} for i, state in enumerate(("shaky", "shaky", "on", "stopped"))]
    plan, seen = plan_of(solve(problem)), np.array([[5, 62], [5, 62], [9, -1], [8, 3]])
    found = plan.act(states, observations=seen)
    served = [row for row in found.rows if row.served]
    assert len(served) == 2
    for row in served:
        expected = {"p0": 62, "p1": 62, "p2": None, "p3": 3}[row.arm]
        assert row.observations == expected
        assert row.reason.startswith(f"{row.state}; ")
        numbers = [int(text) for text in re.findall(r"\d+", row.reason)]
        assert numbers[:3] == {"shaky": [58, 100, 12], "stopped": [30, 100, 0], "on": [2, 100, 10]}[row.state]
        assert (expected in numbers[3:]) if expected else "observ" not in row.reason
        assert ("only" in row.reason) == (expected == 3)
    assert all(row.observations is None for row in found.rows if not row.served)
    assert all("observ" not in row.reason for row in plan.act(states).rows)


def test_evidence_in_words():
    effects = ActionEffects(clinic(), [0])
    plain = effects.text(0, 1, 1)
    assert effects.text(0, 1, 1, 10) == f"{plain}, based on 10 observations"
    assert effects.text(0, 1, 1, 9) == f"{plain}, based on only 9 observations"
    assert effects.text(0, 1, 1, 0) == f"{plain}, never observed"


def test_a_plan_that_serves_no_arm_has_no_effects():
    problem = clinic()
    assert not any(row.served for row in Plan(never_act(problem), problem).act([0, 1, 2, 2]).rows)
