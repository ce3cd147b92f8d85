"""Waiting times in the plans of a programme: the longest wait first among equals, and warnings of broken promises."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.planning.plan import plan_of
from evenhand.programme import Programme, decisions, schema

ARM = eh.Arm(
    [[[0.9, 0.1], [1, 0], [1, 0]], [[0, 1], [0.2, 0.8], [0.8, 0.2]]],
    [[1, 1, 1], [0, 0, 0]],
    [[0, 0], [1, 0], [0, 1]],
    name="patient",
    states=("well", "stopped"),
    actions=("none", "call", "visit"),
)


def clinic(tmp_path, number, budget, max_wait=None):
    model = eh.CoupledMDP([ARM], counts=[number], budget=budget, discount=0.9, resources=["calls", "visits"])
    model = model if max_wait is None else model.with_max_wait({"stopped": max_wait})
    rows = [{"arm": f"p{n}", "state": "stopped"} for n in range(number)]
    return Programme.create(tmp_path / "p.db", model, rows)


def go_on(programme, record=None):
    """Observe all as stopped, plan, accept; record what was done, or nothing."""
    names = [arm.name for arm in programme.arms()]
    programme.observe([{"arm": name, "state": "stopped"} for name in names], "rounds", confirmed=True)
    plan = programme.plan_of(programme.plan(seconds=0.3).plan)
    programme.accept(plan.id)
    programme.record([{"arm": row.arm, "action": record or row.action} for row in plan.rows], "crew", confirmed=True)
    return plan


def test_equal_arms_are_served_in_turn(tmp_path):
    with clinic(tmp_path, 6, [1, 1]) as programme:
        served = [{row.arm for row in go_on(programme).rows if row.served} for _ in range(6)]
        assert served[0] | served[1] | served[2] == {f"p{n}" for n in range(6)}
        assert served[3] | served[4] | served[5] == {f"p{n}" for n in range(6)}
        programme.recompute(3)
        programme.verify()


def test_the_longest_wait_gets_the_action_that_helps_most(tmp_path):
    with clinic(tmp_path, 3, [1, 1]) as programme:
        first = go_on(programme)
        waited = next(row.arm for row in first.rows if not row.served)
        second = go_on(programme)
        assert {row.arm: row.action for row in second.rows}[waited] == "visit"


def test_reasons_and_warnings_have_the_true_wait(tmp_path):
    with clinic(tmp_path, 2, [1, 0], max_wait=2) as programme:
        warned = [any("promised" in text for text in go_on(programme, "none").warnings) for _ in range(5)]
        assert warned == [False, False, False, True, True]
        plan = go_on(programme)
        assert any("5" in text and "promised" in text for text in plan.warnings)
        assert any("waited 5" in row.reason for row in plan.rows)
        # Both had waited for five steps when one of them was served at last.
        (broken,) = [text for text in programme.audit().verdict.need if text.startswith("Promised")]
        assert all(name in broken for name in ("p0", "p1", "by 3 steps"))
        (kept,) = [text for text in programme.audit(last=1).verdict.need if text.startswith("Promised")]
        assert "all were met" in kept


def test_a_promise_made_later_is_audited_from_its_first_step_on(tmp_path):
    """Waits from before count; steps in other conditions do not, and steps before the promise break nothing."""
    with clinic(tmp_path, 3, [1, 1]) as programme:
        for _ in range(3):
            go_on(programme, "none")
        programme.change({"max_wait": [{"state": "stopped", "steps": 3}]})
        go_on(programme, "none")
        (broken,) = [text for text in programme.audit().verdict.need if text.startswith("Promised")]
        assert "all were met" in broken  # they are due, and not yet over
        go_on(programme, "none")
        for first in (0, 4):
            (broken,) = [text for text in programme.audit(first).verdict.need if text.startswith("Promised")]
            assert all(f"p{n} (by 1 step)" in broken for n in range(3))
        assert not any(text.startswith("Promised") for text in programme.audit(last=2).verdict.need)


def test_steps_in_other_conditions_are_not_waited(tmp_path):
    with clinic(tmp_path, 1, [0, 1], max_wait=0) as programme:
        for state in ("well", "well", "stopped"):
            programme.observe([{"arm": "p0", "state": state}], "rounds")
            programme.accept(programme.plan(seconds=0.3).plan)
        (kept,) = [text for text in programme.audit().verdict.need if text.startswith("Promised")]
        assert "all were met" in kept and "1 service" in kept


def test_a_turn_lost_to_a_promise_names_the_arm(tmp_path):
    """The number of the arm is stored, so that its name can be erased; its name is read."""
    with clinic(tmp_path, 2, [0, 1]) as programme:
        plan = programme.plan_of(programme.plan(seconds=0.3).plan)
        numbers, table = {row.arm: row.arm_id for row in plan.rows}, schema.decisions
        with programme.store.writing() as tx:
            text = f"waits: the promise to {numbers['p1']} (at most 2 steps, waited 2) goes first"
            tx.execute(table.update().where(table.c.plan == plan.id, table.c.arm == numbers["p0"]).values(reason=text))
        with programme.store.reading() as tx:
            (reason,) = [row.reason for row in decisions.rows_of(tx, plan.id) if row.arm == "p0"]
        assert "the promise to p1 (at most 2 steps, waited 2)" in reason


@pytest.mark.parametrize("seed", range(3))
def test_exchanging_equal_arms_changes_no_numbers(seed):
    problem = eh.CoupledMDP([ARM], counts=[8], budget=[2, 1], discount=0.9)
    plan = plan_of(eh.solve(problem, "utilitarian", method=eh.SolveMethod("fluid", seconds=0.3)))
    rng = np.random.default_rng(seed)
    states = {"arm": [f"p{n}" for n in range(8)], "type": ["patient"] * 8, "state": rng.choice(["well", "stopped"], 8)}
    waits = rng.integers(0, 9, (8, 1))
    before, after = plan.act(states, seed), plan.act(states, seed, waits=waits)
    assert before.used == after.used
    for state in ("well", "stopped"):
        own = [
            [(row.action, int(wait)) for row, wait in zip(found.rows, waits[:, 0], strict=True) if row.state == state]
            for found in (before, after)
        ]
        assert sorted(action for action, _ in own[0]) == sorted(action for action, _ in own[1])
        served = [wait for action, wait in own[1] if action != "none"]
        idle = [wait for action, wait in own[1] if action == "none"]
        assert min(served, default=9) >= max(idle, default=0)
