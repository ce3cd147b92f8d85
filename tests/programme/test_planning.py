"""The whole step: observe, plan, accept, record; what plans know, and when they are refused."""

import numpy as np
import pytest
from sqlalchemy import select, text

from evenhand.errors import ConflictError, InvalidInputError, TableError
from evenhand.planning import load_plan
from evenhand.programme import Programme, belief, schema

from ..conftest import mentions


def test_a_step_goes_round(programme):
    planned = programme.plan(who="ann")
    plan = programme.plan_of(planned.plan)
    assert (plan.status, plan.step, plan.missing, plan.arms) == ("proposed", 0, 0, 5)
    assert plan == programme.current_plan()
    assert plan.used["hours"] <= 3
    assert {row.known for row in plan.rows} == {"seen"}
    assert all((row.next_in_line is None) or not row.served for row in plan.rows)
    assert plan.certificate == programme.certificate()
    assert plan.certificate.welfare <= plan.certificate.upper_bound * (1 + 1e-9)
    accepted = programme.accept(plan.id, who="bob")
    assert (accepted.step, accepted.overridden, accepted.used) == (0, 0, plan.used)
    assert programme.status().step == 1
    kept = programme.plan_of(plan.id)
    assert (kept.status, kept.accepted_by, kept.accepted_used) == ("accepted", "bob", plan.used)
    assert [row.accepted for row in kept.rows] == [row.action for row in plan.rows]
    told = programme.record([{"arm": row.arm, "action": row.action} for row in plan.rows], "crew")
    assert (told.records, told.late, told.corrected, told.differing) == (5, 0, 0, 0)
    assert programme.recompute(plan.id) == kept
    assert [event.kind for event in programme.events()] == ["created", "solved", "planned", "accepted", "recorded"]
    assert programme.verify().event == 5
    assert programme.current_plan() is None


def test_the_same_inputs_give_the_same_plan_and_others_supersede_it(programme):
    first = programme.plan()
    events = programme.status().events
    assert programme.plan() == first
    programme.observe([{"arm": "b1", "state": "fine"}], "again")  # says what was known
    assert programme.plan() == first
    assert programme.status().events == events + 1
    programme.observe([{"arm": "b1", "state": "broken"}], "rounds")
    second = programme.plan()
    assert (second.plan, second.replaced) == (2, 1)
    assert [plan.status for plan in programme.plans()] == ["proposed", "superseded"]
    with pytest.raises(ConflictError, check=mentions("superseded")):
        programme.accept(1)
    less = programme.plan(budget={"hours": 0})
    assert (less.served, less.used, less.replaced) == (0, {"hours": 0}, 2)
    assert programme.recompute(less.plan).rows[0].reason
    assert programme.recompute(1).status == "superseded"


def test_answers_under_a_key_are_given_again(programme):
    plan = programme.plan(key="p")
    done = programme.accept(plan.plan, key="a")
    rows = [{"arm": "b1", "action": "run"}]
    recorded = programme.record(rows, "crew", key="r")
    events = programme.status().events
    assert programme.plan(key="p") == plan
    assert programme.accept(plan.plan, key="a") == done
    assert programme.record(rows, "crew", key="r") == recorded
    assert programme.status().events == events
    with pytest.raises(ConflictError):
        programme.plan(key="a")
    with pytest.raises(ConflictError, check=mentions("accepted")):
        programme.accept(plan.plan)


def test_who_comes_back_to_a_method_gets_plans_by_it(programme):
    first = programme.solve(method="fluid")
    other = programme.solve(method="counts")
    assert programme.plan_of(programme.plan().plan).policy == other.policy != first.policy
    assert programme.solve(method="fluid").policy == first.policy
    assert programme.plan_of(programme.plan().plan).policy == first.policy


def test_the_last_bit_of_a_chance_decides_nothing():
    """Five steps of 0.95 have ten digits, of which the last is a five."""
    tie = 0.95**5
    chances = {
        belief.most_likely(np.array([one, 1 - one]))[1] for one in (np.nextafter(tie, 0), tie, np.nextafter(tie, 1))
    }
    assert chances == {0.773780938}


def test_a_plan_that_knows_less_is_refused_with_what_changed(programme):
    plan = programme.plan()
    programme.observe([{"arm": "b1", "state": "broken"}], "rounds")
    programme.leave(["v1"], "sold")
    programme.join([{"arm": "h3", "type": "small", "group": "hill"}])
    with pytest.raises(ConflictError) as raised:
        programme.accept(plan.plan)
    told = {fault.place: fault.message for fault in raised.value.faults}
    assert told["h3"] == "joined since"
    assert told["v1"] == "left since"
    assert told["b1"] == 'is seen in "broken"; the plan took "fine", seen'
    assert programme.status().step == 0
    with pytest.raises(ConflictError):
        programme.plan(step=1)


def test_overrides_need_a_reason_and_the_budget(programme):
    plan = programme.plan_of(programme.plan().plan)
    rows = [
        {"arm": "b1", "action": "repair", "why": ""},
        {"arm": "b9", "action": "repair", "why": "x"},
        {"arm": "h1", "action": "polish", "why": "x"},
        {"arm": "b1", "action": "run", "why": "x"},
    ]
    with pytest.raises(TableError) as raised:
        programme.accept(plan.id, rows)
    told = str(raised.value)
    for words in ("row 1: has no reason", 'row 2: there is no arm "b9"', 'row 3: "polish"', "row 4: arm"):
        assert words in told
    every = [{"arm": row.arm, "action": "repair", "why": "all of them"} for row in plan.rows]
    with pytest.raises(TableError):
        programme.accept(plan.id, every)
    assert programme.status().step == 0
    served = next(row for row in plan.rows if row.served)
    swap = [{"arm": served.arm, "action": "run", "why": "away"}]
    done = programme.accept(plan.id, swap, who="bob")
    assert done.overridden == 1
    row = next(row for row in programme.plan_of(plan.id).rows if row.arm == served.arm)
    assert (row.accepted, row.who, row.why) == ("run", "bob", "away")
    assert programme.plan_of(plan.id).accepted_used == done.used
    assert programme.events()[-1].body["overrides"] == [[served.arm, served.action, "run"]]


def test_what_was_not_seen_is_believed_by_what_was_done(programme, pumps):
    plan = programme.plan()
    programme.accept(plan.plan)
    programme.record([{"arm": "b1", "action": "oil", "next_state": "worn"}, {"arm": "b2", "action": "repair"}], "crew")
    programme.observe([{"arm": "h1", "state": "worn"}], "rounds")
    now = programme.plan_of(programme.plan().plan)
    rows = {row.arm: row for row in now.rows}
    assert (now.missing, rows["b1"].known, rows["b1"].state) == (3, "seen", "worn")
    law = pumps.tables.transitions[0, 2, 2]  # a broken big pump, repaired
    assert (rows["b2"].known, rows["b2"].seen_step, rows["b2"].state) == ("believed", 0, "fine")
    assert rows["b2"].chance == pytest.approx(law.max())
    done = next(row.accepted for row in programme.plan_of(plan.plan).rows if row.arm == "v1")
    law = pumps.tables.transitions[2, 0, ["run", "oil", "repair"].index(done)]
    assert rows["v1"].chance == pytest.approx(law.max())
    assert programme.recompute(now.id) == now
    programme.record([{"arm": "b2", "action": "run", "step": 0}], "crew, corrected")  # it was not repaired after all
    with pytest.raises(ConflictError) as raised:
        programme.accept(now.id)
    assert [fault.place for fault in raised.value.faults] == ["b2"]
    assert programme.recompute(now.id) == now  # as of what it knew


def test_an_arm_never_seen_begins_as_the_model_says(programme, pumps):
    programme.join([{"arm": "b3", "type": "big"}])
    row = programme.plan_of(programme.plan().plan).rows[-1]
    assert (row.arm, row.known, row.seen_step, row.state, row.chance) == ("b3", "believed", None, "fine", 1.0)
    programme.accept(programme.plan().plan)
    law = np.array([1.0, 0, 0])
    programme.record([{"arm": "b3", "action": "run", "step": 0}], "crew")
    law = law @ pumps.tables.transitions[0, :, 0]
    row = programme.plan_of(programme.plan().plan).rows[-1]
    assert row.chance == pytest.approx(law.max())


def test_records_are_stored_beside_older_ones(programme):
    for _ in range(2):
        programme.accept(programme.plan().plan)
    told = programme.record([{"arm": "b1", "action": "oil", "step": 0, "reward": 0.5}], "crew")
    assert (told.late, told.corrected) == (1, 0)
    told = programme.record([{"arm": "b1", "action": "run", "step": 0}, {"arm": "b2", "action": "run"}], "crew")
    assert (told.late, told.corrected) == (1, 1)
    kinds = [(entry.kind, entry.step, entry.action) for entry in programme.history("b1")]
    assert ("recorded", 0, "oil") in kinds
    assert ("recorded", 0, "run") in kinds
    with pytest.raises(TableError) as raised:
        programme.record(
            [{"arm": "b1", "action": "run", "step": 2}, {"arm": "b2", "action": "swim", "reward": "x", "step": 0}],
            "crew",
        )
    told = str(raised.value)
    assert "row 1: step 2 has no accepted plan yet" in told
    assert 'row 2: "swim"' in told
    assert 'row 2: reward "x"' in told


def test_the_plan_is_what_act_says(programme, tmp_path):
    """The same policy, states, seed, step and budget are the same decisions."""
    rng = np.random.default_rng(5)
    for step in range(4):
        arms = programme.arms()
        seen = [{"arm": arm.name, "state": str(rng.integers(3))} for arm in arms if rng.random() < 0.7]
        programme.observe(seen or [{"arm": arms[0].name, "state": "0"}], "rounds")
        if step == 2:
            programme.join([{"arm": "h7", "type": "small", "group": "hill"}])
        plan = programme.plan_of(programme.plan(budget=[float(rng.integers(1, 6))]).plan)
        with programme.store.reading() as tx:
            body = tx.execute(select(schema.policies.c.body).where(schema.policies.c.digest == plan.policy)).scalar()
        (tmp_path / "policy.zip").write_bytes(body)
        states = [
            {"arm": str(row.arm_id), "type": row.type, "group": row.group, "state": row.state} for row in plan.rows
        ]
        # Of arms of one type and state, those that waited longest are served first.
        with programme.store.reading() as tx:
            known = programme.cycle.inputs(tx, step, list(plan.budget.values())).known
        waits = np.array([[row.waiting, row.unserved] for row in known])
        policy = load_plan(tmp_path / "policy.zip")
        said = policy.act(states, plan.seed, budget=plan.budget, step=step, waits=waits)
        assert [row.action for row in said.rows] == [row.action for row in plan.rows]
        assert [row.reason for row in said.rows] == [row.reason for row in plan.rows]
        assert said.used == plan.used
        programme.accept(plan.id)


def test_other_numbers_are_served_until_they_drift_too_far(programme):
    assert programme.needs_solving().why == ("nothing was solved yet",)
    assert programme.certificate() is None
    solved = programme.solve()
    assert solved.any_number
    assert not programme.needs_solving().needed
    assert programme.certificate().for_roster
    programme.leave(["v1"], "sold")
    drift = programme.needs_solving()
    assert drift.needed
    assert 'there are 0 of type "small" in "valley", solved for 1' in drift.why
    plan = programme.plan_of(programme.plan().plan)
    assert plan.policy == solved.policy
    assert "planned for" in plan.note
    found = programme.certificate()
    assert not found.for_roster
    assert found.welfare - 5 * found.stderr <= found.upper_bound
    assert programme.plan_of(plan.id).certificate == found
    programme.join([{"arm": "v2", "type": "small", "group": "valley"}])
    assert programme.certificate().for_roster  # the numbers are again those of the policy


def test_tables_serve_just_their_numbers(programme):
    assert not programme.solve(method="counts").any_number
    first = programme.plan_of(programme.plan().plan)
    programme.leave(["v1"], "sold")
    assert programme.needs_solving().why == ("no policy can serve the present roster",)
    second = programme.plan_of(programme.plan().plan)  # solves first
    assert second.policy != first.policy
    assert programme.recompute(first.id) == programme.plan_of(first.id)


def test_changed_rows_are_found(programme):
    plan = programme.plan().plan
    with programme.store.writing() as tx:
        tx.execute(text("UPDATE decisions SET planned = 'run', served = 0 WHERE served = 1"))
    with pytest.raises(InvalidInputError, check=mentions("plan 1")):
        programme.recompute(plan)
    with programme.store.writing() as tx:
        tx.execute(text("UPDATE observations SET state = 'worn' WHERE state = 'broken'"))
    with pytest.raises(InvalidInputError, check=mentions("plan 1")):
        programme.recompute(plan)
    with pytest.raises(InvalidInputError, check=mentions("plan", 9)):
        programme.recompute(9)


def test_no_arm_takes_part(programme):
    programme.leave(["b1", "b2", "h1", "h2", "v1"], "all sold")
    for asked in (programme.plan, programme.solve):
        with pytest.raises(InvalidInputError, check=mentions("step 0")):
            asked()
    assert not programme.needs_solving().needed


def test_a_history_shows_what_was_expected(programme, pumps):
    plan = programme.plan_of(programme.plan().plan)
    programme.accept(plan.id, [{"arm": "h2", "action": "run", "why": "no crew"}], who="bob")
    programme.observe([{"arm": "h2", "state": "broken"}], "rounds")
    joined, first, decided, seen = programme.history("h2")
    assert (joined.kind, first.kind, first.state) == ("joined", "seen", "broken")
    assert (decided.action, decided.who, decided.why, decided.state) == ("run", "bob", "no crew", "broken")
    assert decided.expected_reward == pumps.tables.rewards[1, 2, 0]
    assert (seen.expected, seen.chance, seen.source) == ("broken", 1.0, "rounds")
    with pytest.raises(TableError):
        programme.history("h9")


def test_a_programme_is_called_as_its_file_or_database(address, pumps, roster):
    with Programme.create(address, pumps, roster) as made:
        assert made.status().name.isalnum()


def test_promised_waits_are_kept_from_what_was_done(tmp_path, pumps):
    promised = pumps.with_max_wait({"broken": 2})
    rows = [{"arm": f"b{i}", "type": "big", "state": "broken"} for i in range(3)] + [
        {"arm": "h", "type": "small", "group": "hill", "state": "broken"}
    ]
    with Programme.create(str(tmp_path / "promised.db"), promised, rows, name="pumps") as programme:
        waits, reasons = dict.fromkeys((row["arm"] for row in rows), 0), []
        before = dict(waits)
        for step in range(7):
            plan = programme.plan_of(programme.plan(step=step, budget={"hours": 2}).plan)
            done = {row.arm: row.action for row in plan.rows}
            assert plan.used["hours"] <= 2
            for row in plan.rows:
                assert row.served or waits[row.arm] < 2
                waits[row.arm] = 0 if row.served else waits[row.arm] + 1
            reasons += [row.reason for row in plan.rows if row.served]
            programme.accept(plan.id)
            if step == 3:  # the repair of one pump did not happen: it waits on
                missed = next(arm for arm, action in done.items() if action != "run")
                programme.record([{"arm": missed, "action": "run"}], "crew")
                waits[missed] = 1 + before[missed]
            before = dict(waits)
            programme.observe([{"arm": row["arm"], "state": "broken"} for row in rows], "rounds", confirmed=True)
            assert programme.recompute(plan.id).id == plan.id
        assert any("promised" in reason for reason in reasons)
        assert programme.plan(budget={"hours": 0}).served == 0
        assert programme.verify()
