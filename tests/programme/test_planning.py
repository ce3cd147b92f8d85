"""The whole step: observe, plan, accept, record; what plans know, and when they are refused."""


def test_a_step_goes_round(programme):
    planned = programme.plan(who="ann")
    plan = programme.plan_of(planned.plan)
    assert (plan.status, plan.step, plan.missing, plan.arms) == ("proposed", 0, 0, 5)
    assert plan == programme.current_plan()
    assert plan.used["hours"] <= 3
    assert {row.known for row in plan.rows} == {"seen"}
    accepted = programme.accept(plan.id, who="bob")
    assert (accepted.step, accepted.overridden, accepted.used) == (0, 0, plan.used)
    assert programme.status().step == 1
    kept = programme.plan_of(plan.id)
    assert (kept.status, kept.accepted_by) == ("accepted", "bob")
    assert [row.accepted for row in kept.rows] == [row.action for row in plan.rows]
    told = programme.record([{"arm": row.arm, "action": row.action} for row in plan.rows], "crew")
    assert (told.records, told.late, told.corrected, told.differing) == (5, 0, 0, 0)
    assert programme.recompute(plan.id) == kept
    assert [event.kind for event in programme.events()] == ["created", "solved", "planned", "accepted", "recorded"]
    assert programme.check() == 5
