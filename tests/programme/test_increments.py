"""What is remembered of a programme equals what is read anew, after every kind of change."""

import numpy as np
import pytest

from evenhand.problems import machine_replacement
from evenhand.programme import Programme
from evenhand.programme.audit_window import fairness_over_time


@pytest.fixture
def programme(tmp_path):
    roster = [{"arm": f"m{n}", "state": n % 3} for n in range(6)]
    model = machine_replacement(num_arms=6, budget=2)
    with Programme.create(tmp_path / "a.db", model, roster, welfare="utilitarian") as made:
        made.solve(seconds=0.01)
        yield made


def shown(programme):
    """Everything that is remembered: status, roster, plan with its changes, audit and its parts."""
    found = [programme.status().to_dict(), [arm.to_dict() for arm in programme.arms(gone=True)], programme.numbers()]
    plan = programme.current_plan()
    if plan is not None:
        found += [plan.to_dict(), [str(fault) for fault in programme.changed_since(plan.id)]]
    if programme.status().step:
        found += [programme.audit().to_dict(), fairness_over_time(programme.books(), parts=3)]
    return found


def same_anew(programme):
    with Programme.open(programme.store.address) as fresh:
        assert shown(programme) == shown(fresh)


def step(programme, rng, record=True):
    names = [arm.name for arm in programme.arms()]
    seen = [{"arm": name, "state": int(rng.integers(3))} for name in names if rng.random() < 0.7]
    programme.observe(seen or [{"arm": names[0], "state": 0}], "rounds")
    plan = programme.plan()
    same_anew(programme)
    programme.accept(plan.plan)
    if record:
        rows = programme.plan_of(plan.plan).rows
        programme.record([{"arm": row.arm, "action": row.action, "reward": 0.5} for row in rows], "sheets")


def test_increments_equal_a_fresh_read(programme):
    rng = np.random.default_rng(0)
    for number in range(6):
        step(programme, rng, record=number % 2 == 0)
        same_anew(programme)
    programme.observe([{"arm": "m1", "state": 2, "step": 1}, {"arm": "m2", "state": 0, "step": 4}], "late")
    same_anew(programme)
    programme.observe([{"arm": "m1", "state": 0, "step": 1}], "corrected")
    programme.record([{"arm": "m3", "action": "0", "step": 2}], "late")
    same_anew(programme)
    plan = programme.plan()
    programme.observe([{"arm": "m5", "state": 2}], "after the plan")
    same_anew(programme)
    assert programme.changed_since(plan.plan)
    programme.join([{"arm": "m6", "type": programme.arms()[0].type, "state": 1}])
    programme.leave(["m0"], "sold")
    same_anew(programme)
    step(programme, rng)
    same_anew(programme)


def test_a_restored_copy_is_read_anew(programme, tmp_path):
    from evenhand.programme.store import backup, restore

    rng = np.random.default_rng(1)
    step(programme, rng)
    backup(programme.store.address, tmp_path / "copy.db")
    step(programme, rng)
    shown(programme)
    restore(programme.store.address, tmp_path / "copy.db")
    same_anew(programme)
    programme.observe([{"arm": "m1", "state": 2}], "another past")
    same_anew(programme)


def test_one_report_reads_few_rows(programme, monkeypatch):
    from evenhand.programme import roster

    def all_arms(tx, event=None, names=None):
        assert names is not None, "the whole roster was read"
        return known(tx, event, names)

    known = roster.arms_as_of
    monkeypatch.setattr(roster, "arms_as_of", all_arms)
    programme.observe([{"arm": "m1", "state": 2}], "one")
    assert programme.history("m1")
    with pytest.raises(AssertionError, match="whole roster"):
        programme.observe([{"arm": "nobody", "state": 2}], "unknown")
