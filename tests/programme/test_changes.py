"""Lasting changes and their effects; undo; names that differ in case, blanks, and repeated files."""

from functools import partialmethod

import pytest

from evenhand.errors import ConflictError, InfeasibleError, InvalidInputError, TableError
from evenhand.programme import Programme, changes, cycle
from evenhand.programme.counterfactuals import PlanInUse

ALL = ("b1", "b2", "h1", "h2", "v1")


@pytest.fixture(autouse=True)
def solve_shortly(monkeypatch):
    preview = changes.LastingChanges.preview_change
    quick = partialmethod(preview, seconds=0.3)
    monkeypatch.setattr(changes.LastingChanges, "preview_change", quick)


@pytest.fixture
def running(tmp_path, pumps, roster):
    """A programme on SQLite, with a calendar of weeks."""
    words = {"group": "site", "start": "2026-06-01", "period": "week"}
    with Programme.create(tmp_path / "pumps.db", pumps, roster, words=words) as made:
        yield made


def close_step(programme):
    return programme.accept(programme.plan().plan)


def states(programme):
    return {row.arm: (row.state, row.known) for row in programme.plan_of(programme.plan().plan).rows}


# Undo


def test_an_undone_upload_counts_no_longer_and_is_not_deleted(programme):
    before = states(programme)
    event = programme.observe([{"arm": "b1", "state": "worn"}], "rounds").event
    assert states(programme)["b1"] == ("worn", "seen")
    undone = programme.undo(event, "wrong file", who="Ana")
    assert (undone.undone, undone.kind, undone.rows) == (event, "observed", 1)
    assert states(programme) == before
    marked = [entry for entry in programme.history("b1") if entry.undone is not None]
    assert [(entry.state, entry.undone) for entry in marked] == [("worn", undone.event)]
    with pytest.raises(ConflictError) as raised:
        programme.undo(event)
    assert raised.value.code == "undone-already"
    programme.verify()
    for plan in programme.plans():  # those that knew the undone report, too
        programme.recompute(plan.id)


def test_an_acceptance_is_undone_after_all_that_rests_on_it(programme):
    first, second = close_step(programme), close_step(programme)
    recorded = programme.record([{"arm": "b1", "action": "run"}], "x").event
    seen = programme.observe([{"arm": "b1", "state": "fine"}], "x").event
    programme.plan()
    with pytest.raises(ConflictError) as raised:
        programme.undo(first.event)
    assert raised.value.faults[0].place == f"event {second.event}"
    with pytest.raises(ConflictError) as raised:
        programme.undo(second.event)
    assert raised.value.code == "undo-first"
    assert {fault.place for fault in raised.value.faults} == {f"event {recorded}", f"event {seen}"}
    programme.undo(recorded)
    programme.undo(seen)
    programme.undo(second.event)
    assert programme.status().step == 1
    assert programme.current_plan() is None
    assert [plan.id for plan in programme.plans("accepted")] == [first.plan]
    again = close_step(programme)
    assert (again.step, programme.status().step) == (1, 2)
    programme.verify()
    for plan in programme.plans():
        programme.recompute(plan.id)
    assert programme.audit().last == 1


def test_what_cannot_be_undone_says_the_way_back(programme):
    event = programme.leave(["v1"], "sold").event
    for number in (1, event):
        with pytest.raises(ConflictError) as raised:
            programme.undo(number)
        assert raised.value.code == "not-undoable"
    joined = programme.join([{"arm": "n1", "type": "big", "state": "worn"}]).event
    undo = programme.undo(joined).event
    assert "n1" not in {arm.name for arm in programme.arms()}
    with pytest.raises(ConflictError):
        programme.undo(undo)
    programme.join([{"arm": "n1", "type": "big"}])
    assert states(programme)["n1"][1] == "believed"  # the state of the undone row does not count
    programme.verify()


# Names and blanks


def test_names_match_but_for_case_and_blanks(programme):
    programme.observe([{"arm": " B1 ", "state": "worn"}], "x")
    assert states(programme)["b1"] == ("worn", "seen")
    with pytest.raises(TableError) as raised:
        programme.observe([{"arm": "b3", "state": "worn"}], "x")
    assert not any(f'"{name}"' in str(raised.value) for name in ALL)  # b1 and b2 are other pumps
    programme.leave(["V1"], "sold")
    assert "v1" not in {arm.name for arm in programme.arms()}
    programme.join([{"arm": "V1", "type": "small", "group": "hill"}, {"arm": "N1", "type": "big"}])
    programme.join([{"arm": "n1", "type": "big"}])
    found = programme.observe([{"arm": "N1", "state": "worn"}, {"arm": "n1", "state": "fine"}], "x")
    assert found.observations == 2  # the same name comes first


def test_blanks_are_not_seen_and_not_known(programme):
    found = programme.observe([{"arm": "b1", "state": "worn"}, {"arm": "b2", "state": None}], "x")
    assert (found.observations, found.blank) == (1, 1)
    with pytest.raises(TableError):
        programme.observe([{"arm": "b1", "state": ""}], "x")
    close_step(programme)
    rows = [
        {"arm": "b1", "action": "run"},
        {"arm": "b2", "action": ""},
        {"arm": "h1", "action": "", "next_state": "fine"},
    ]
    done = programme.record(rows, "x")
    assert (done.records, done.observations, done.blank) == (1, 1, 2)
    assert set(programme.recorded(0).values()) == {"run"}
    with pytest.raises(TableError):
        programme.record([{"arm": "b1", "action": "", "reward": 1.0}], "x")


def test_the_file_of_the_week_before_is_questioned(programme):
    rows = [{"arm": name, "state": "broken"} for name in ALL]
    programme.observe(rows, "x")
    close_step(programme)  # with a repair, after which no pump is broken
    with pytest.raises(ConflictError) as raised:
        programme.observe(rows, "x")
    assert raised.value.code == "same-as-earlier"
    assert programme.observe(rows, "x", confirmed=True).observations == 5
    # Pumps that stay where they are with certainty are not suspicious.
    programme.accept(programme.plan(budget=0).plan)
    programme.observe(rows, "x")
    close_step(programme)
    with pytest.raises(ConflictError) as raised:  # nothing was done the week before, and repairs were accepted
        programme.record([{"arm": name, "action": "run"} for name in ALL], "x")
    assert raised.value.code == "same-as-earlier"


# Lasting changes


def test_a_budget_holds_from_its_step_on(running):
    close_step(running)
    found = running.change({"budget": {"hours": 1}, "start": "2026-06-20"}, why="one mechanic left", who="Ana")
    assert (found.change.from_step, found.change.budget) == (2, {"hours": 1.0})
    assert running.status().budget == {"hours": 3.0}
    plan = running.plan_of(running.plan().plan)
    assert plan.budget == {"hours": 3.0}
    running.accept(plan.id)
    assert running.status().budget == {"hours": 1.0}
    plan = running.plan_of(running.plan().plan)
    assert plan.budget == {"hours": 1.0}
    assert plan.used["hours"] <= 1
    assert running.certificate().upper_bound < 40
    running.accept(plan.id)
    with pytest.raises(ConflictError):  # the plan of now goes by it, the one of the step before was accepted by 3
        running.undo(found.event)
    audited = running.audit()
    assert (audited.last, audited.budgets) == (2, ())  # the usual budget of each step is that of then
    running.verify()


def test_a_promise_holds_from_its_step_on(running):
    for state, steps in (("shiny", 2), ("broken", -1)):
        with pytest.raises(InvalidInputError):
            running.change({"max_wait": [{"state": state, "steps": steps}]})
    with pytest.raises(InfeasibleError):  # three hours are not enough for all
        running.change({"max_wait": [{"state": state, "steps": 0} for state in ("fine", "worn", "broken")]})
    first = running.plan().plan
    shown = running.preview_change({"max_wait": [{"state": "broken", "steps": 2, "group": "valley"}]})
    assert shown.change.max_wait[0]["steps"] == 2
    running.change({"max_wait": [{"state": "broken", "steps": 2, "group": "valley"}]})
    assert running.model().has_max_wait
    with pytest.raises(ConflictError):
        running.accept(first)
    running.observe([{"arm": "v1", "state": "broken"}], "x")
    served = None
    for step in range(4):
        plan = running.plan_of(running.plan().plan)
        row = next(row for row in plan.rows if row.arm == "v1")
        served = step if row.served and served is None else served
        running.accept(plan.id)
        running.observe([{"arm": "v1", "state": "broken"}], "x")
    assert served is not None
    assert served <= 2
    for plan in running.plans():  # also the one from before the promise
        running.recompute(plan.id)
    running.change({"max_wait": [{"state": "broken", "steps": None}]})
    assert not running.model().has_max_wait
    running.verify()


def test_a_change_makes_an_open_plan_stale_and_can_be_undone(running):
    plan = running.plan().plan
    event = running.change({"welfare": "maximin"}).event
    with pytest.raises(ConflictError):
        running.accept(plan)
    assert running.status().welfare == "maximin"
    running.undo(event)
    assert running.status().welfare != "maximin"
    close_step(running)
    running.verify()


def test_a_group_closes_and_its_arms_go_on_in_another(running):
    running.observe([{"arm": "b1", "state": "worn"}, {"arm": "h1", "state": "broken"}], "x")
    close_step(running)
    shown = running.preview_change({"close": {"hill": "big"}})
    assert {row.group: row.arms for row in shown.groups} == {"big": 2, "hill": 2, "valley": 1}
    assert running.status().groups == {"big": 2, "hill": 2, "valley": 1}  # a preview changes nothing
    found = running.change({"close": {"hill": "big"}})
    assert sorted(found.change.transfers) == [("h1", "small", "big"), ("h2", "small", "big")]
    assert running.status().groups == {"big": 4, "valley": 1}
    plan = running.plan_of(running.plan().plan)
    row = next(row for row in plan.rows if row.arm == "h1")
    assert (row.type, row.group, row.seen_step) == ("small", "big", 0)  # what was known of it goes along
    running.accept(plan.id)
    assert {row.group for row in running.plan_of(1).rows} == {"big", "hill", "valley"}  # the past stays
    assert {arm.group for arm in running.audit(0, 0).arms} == {"big", "hill", "valley"}
    assert {arm.group for arm in running.audit(0, 1).arms} == {"big", "valley"}
    alone = next(row for row in running.audit(0, 0).services if row.group == "hill")
    closed = [line for line in running.audit(0, 1).verdict.services if line.startswith("hill")]
    assert len(closed) == 1 and f"{alone.done} service" in closed[0] and f"{alone.planned} planned" in closed[0]
    before, later = ([row for row in running.audit(0, last).needs if row.group == "hill"] for last in (0, 1))
    assert [(row.state, row.arms, row.steps) for row in later] == [(row.state, row.arms, row.steps) for row in before]
    assert before
    assert not any(line.startswith("hill, until") for line in running.audit(0, 0).verdict.services)
    assert [line in running.audit(0, 1).notes for line in found.change.said] == [True]
    assert [line in running.audit(0, 0).notes for line in found.change.said] == [False]
    moved = [entry for entry in running.history("h1") if entry.kind == "moved"]
    assert [(entry.step, entry.group) for entry in moved] == [(1, "big")]
    with pytest.raises(TableError):
        running.join([{"arm": "h3", "type": "small", "group": "hill"}])
    running.verify()
    for plan in running.plans():
        running.recompute(plan.id)


def test_arms_are_transferred_by_name(running):
    running.change({"transfer": [{"arm": "H1", "group": "valley"}, {"arm": "v1", "type": "big"}]})
    kinds = {arm.name: (arm.type, arm.group) for arm in running.arms()}
    assert (kinds["h1"], kinds["v1"]) == (("small", "valley"), ("big", "valley"))
    assert {row.arm: row.group for row in running.plan_of(running.plan().plan).rows}["h1"] == "valley"
    running.verify()


def test_all_faults_of_a_change_at_once(running):
    wrong = {
        "budget": {"days": 1},
        "close": {"lake": "hill"},
        "transfer": [{"arm": "x", "group": "hill"}],
        "start": "soon",
    }
    with pytest.raises(InvalidInputError) as raised:
        running.change(wrong)
    assert len(raised.value.faults) == 4
    with pytest.raises(InvalidInputError):
        running.change({"start": 3})
    promises = [{"state": "x", "steps": 1}, {"state": "y", "steps": 1}, {"state": "fine", "steps": 9, "group": "lake"}]
    twice = [{"arm": "h1", "group": "valley"}, {"arm": "H1", "group": "big"}]
    with pytest.raises(InvalidInputError) as raised:
        running.change({"max_wait": promises, "transfer": twice})
    assert [fault.place for fault in raised.value.faults] == ["max_wait.x", "max_wait.y", "max_wait", "row 2"]
    assert running.status().events == 1


def terms(programme, *steps):
    with programme.store.reading() as tx:
        found = [programme.library.terms(tx, step).get("max_wait", []) for step in steps]
    return [[(row["state"], row["steps"]) for row in rows] for rows in found]


def test_the_undo_of_a_promise_leaves_the_others(running):
    first = running.change({"max_wait": [{"state": "broken", "steps": 30}]})
    second = running.change({"max_wait": [{"state": "worn", "steps": 60}]})
    assert [row["state"] for row in second.change.max_wait] == ["worn"]
    assert len(second.change.said) == 1
    running.undo(first.event)
    assert (running.model().max_waits.max(axis=0)).tolist() == [-1, 60, -1]
    third = running.change({"max_wait": [{"state": "worn", "steps": None}]})
    assert not running.model().has_max_wait
    running.undo(third.event)
    assert (running.model().max_waits.max(axis=0)).tolist() == [-1, 60, -1]
    running.verify()


def test_promises_from_several_steps_add_up(running):
    running.change({"max_wait": [{"state": "broken", "steps": 30}], "start": 5})
    running.change({"max_wait": [{"state": "worn", "steps": 60}], "start": 3})
    both = [("worn", 60), ("broken", 30)]
    assert terms(running, 2, 3, 5, 9) == [[], both[:1], both, both]
    # A row for all over one for a group that came between, in the order of their steps.
    running.change({"max_wait": [{"state": "broken", "steps": 40, "group": "hill"}], "start": 6})
    running.change({"max_wait": [{"state": "broken", "steps": 50}], "start": 7})
    assert terms(running, 6, 7) == [[*both, ("broken", 40)], [("worn", 60), ("broken", 50)]]
    with running.store.reading() as tx:
        waits = running.library.model(tx, step=7)[0].max_waits
    assert waits.tolist() == [[-1, 60, 50]] * 3


def test_the_undo_of_a_closing_leaves_the_others(running):
    first = running.change({"close": {"hill": "big"}})
    running.change({"close": {"valley": "big"}})
    running.undo(first.event)
    assert running.status().groups == {"big": 3, "hill": 2}
    running.join([{"arm": "h3", "type": "small", "group": "hill"}])
    with pytest.raises(TableError):
        running.join([{"arm": "v2", "type": "small", "group": "valley"}])
    running.verify()


def test_a_group_that_receives_arms_is_open_again(running):
    running.change({"close": {"hill": "valley"}})
    back = running.change({"close": {"valley": "hill"}})
    assert len(back.change.said) == 2  # that it opens is said, too
    assert running.status().groups == {"big": 2, "hill": 3}
    joined = running.join([{"arm": "h3", "type": "small", "group": "hill"}])
    with pytest.raises(TableError):
        running.join([{"arm": "v2", "type": "small", "group": "valley"}])
    running.undo(joined.event)
    running.undo(back.event)
    with pytest.raises(TableError):
        running.join([{"arm": "h3", "type": "small", "group": "hill"}])
    running.change({"transfer": [{"arm": "h1", "group": "hill"}]})
    running.join([{"arm": "h3", "type": "small", "group": "hill"}])
    running.verify()


def test_no_arm_goes_to_a_group_that_closes_later(running):
    running.change({"close": {"hill": "valley"}, "start": 5})
    for wrong in ({"close": {"valley": "hill"}}, {"transfer": [{"arm": "v1", "group": "hill"}]}):
        with pytest.raises(InvalidInputError) as raised:
            running.change(wrong | {"start": 3})
        assert len(raised.value.faults) == 1
    with pytest.raises(InvalidInputError) as raised:  # nor to one that closes by the same change
        running.change({"close": {"valley": "big"}, "transfer": [{"arm": "b1", "group": "valley", "type": "small"}]})
    assert "row 1" in {fault.place for fault in raised.value.faults}


def test_a_change_to_the_usual_budget_leaves_the_policy_in_use(running):
    running.solve()
    before = running.needs_solving()
    event = running.change({"budget": running.status().budget}).event
    assert running.needs_solving() == before
    running.solve()
    running.undo(event)
    assert not running.needs_solving().needed


def test_facts_of_a_policy_that_is_stored_again_are_read_again(running, monkeypatch):
    making = cycle.certificates.policy_of

    def stored(stopped):
        """Store the same policy, whose search was or was not ended by a time limit."""
        monkeypatch.setattr(
            cycle.certificates, "policy_of", lambda one, arms, terms, _: making(one, arms, terms, stopped)
        )
        running.solve(method="counts")
        return running.needs_solving()

    first, second = stored(False), stored(True)
    assert first.policy == second.policy
    assert (first.improvable, second.improvable) == (False, True)


def test_an_audit_as_of_an_event_stays(running):
    rows = [{"state": "broken", "steps": 30}]
    change = running.change({"welfare": "maximin", "budget": {"hours": 4}, "max_wait": rows})
    accepted = close_step(running)
    before = running.audit(event=accepted.event)
    assert before.need_by == "promise"
    running.undo(accepted.event)
    running.undo(change.event)
    close_step(running)
    assert running.audit(event=accepted.event) == before
    assert running.audit().to_dict() != before.to_dict()
    running.solve()
    assert running.audit().event == running.status().events


def test_a_promise_counts_in_audits_from_its_step_on(running):
    running.observe([{"arm": name, "state": "broken"} for name in ALL], "x", confirmed=True)
    close_step(running)
    running.change({"max_wait": [{"state": "broken", "steps": 30}]})
    running.observe([{"arm": name, "state": "worn"} for name in ALL], "x", confirmed=True)
    close_step(running)
    parts, whole = (running.audit(0, 0), running.audit(1, 1)), running.audit(0, 1)
    assert [part.need_by for part in parts] == ["relaxation", "promise"]
    assert (whole.need_by, whole.need) == ("promise", parts[1].need)
    assert parts[1].in_need == 0
    assert whole.in_need == parts[0].in_need > 0
    needs = [sum(row.steps for row in found.needs) for found in (*parts, whole)]
    assert needs[2] == needs[0] + needs[1]


def test_a_preview_shows_who_gains_and_who_loses(running):
    running.plan()
    more = running.preview_change({"budget": {"hours": 6}})
    assert more.difference > 0
    assert more.after.upper_bound >= more.after.welfare - 3 * more.stderr
    assert all(row.after >= row.before - 1 for row in more.groups)
    less = running.preview_change({"budget": 0})
    assert less.difference < 0
    assert less.measurable
    assert all(row.after < row.before for row in less.groups)


def test_a_preview_agrees_with_what_if(running):
    running.plan()
    for amount, start in ((3, None), (4, None), (4, 5)):  # each searched for a short time
        shown = running.preview_change({"budget": {"hours": amount}, "start": start})
        found = running.suppose([[amount]], seconds=0.3)[0]
        assert shown.difference == pytest.approx(found.difference["welfare"], rel=0.5)
        assert shown.measurable == found.difference["measurable"]
        assert shown.difference >= 0
        assert shown.after.welfare - shown.before.welfare == pytest.approx(shown.difference, abs=1e-9)
    same = running.preview_change({"budget": {"hours": 3}})
    assert (same.difference, same.stderr, same.measurable) == (0, 0, False)
    assert all(row.before == row.after for row in same.groups)


@pytest.mark.parametrize(
    "given",
    [
        {"welfare": "maximin"},
        {"transfer": [{"arm": "h1", "group": "valley"}]},
        {"max_wait": [{"state": "broken", "steps": 9}]},
    ],
)
def test_both_plans_of_a_preview_are_on_common_episodes(running, given):
    running.plan()
    shown = running.preview_change(given)
    assert shown.after.welfare - shown.before.welfare == pytest.approx(shown.difference, abs=1e-9)
    assert shown.stderr <= (shown.after.stderr**2 + shown.before.stderr**2) ** 0.5
    if "max_wait" not in given:
        assert shown.difference >= -shown.stderr  # the plan in use competes


def test_a_later_promise_replaces_those_of_its_arms(running):
    first = {"state": "broken", "steps": 8, "type": "small", "group": "hill"}
    said = running.change({"max_wait": [first]}).change.said
    assert len(said) == 1
    assert "small" in said[0]
    assert "hill" in said[0]
    running.change({"max_wait": [{"state": "broken", "steps": 9, "type": None, "group": "valley"}]})
    again = running.change({"max_wait": [first | {"steps": 7}]}).change
    assert len(again.said) == 1
    assert again.max_wait == [first | {"steps": 7}]
    assert terms(running, 0) == [[("broken", 9), ("broken", 7)]]
    running.change({"max_wait": [{"state": "broken", "steps": 10}]})
    assert terms(running, 0) == [[("broken", 10)]]
    assert {limit for block in range(3) for limit in running.model().waits_of(block).values()} == {10}
    running.verify()


def test_a_better_plan_for_the_present_budget_is_no_effect_of_a_change(running, monkeypatch):
    """What the plan that was found would give without the change is shown apart, as in a what-if."""
    close_step(running)
    monkeypatch.setattr(PlanInUse, "_by_plan", lambda *_: 0.25)
    usual = running.status().budget
    shown = running.preview_change({"budget": {name: 2 * amount for name, amount in usual.items()}}, seconds=0.2)
    assert shown.by_plan == (0.25 if shown.difference else 0.0)
    assert running.preview_change({"close": {"hill": "big"}}, seconds=0.2).by_plan == 0.0
