"""Audits: by hand on small programmes, as they were known at an event, and what they say they did not know."""

import json
import shutil

import numpy as np
import pytest

from evenhand.errors import InvalidInputError
from evenhand.programme import Programme, audit, audit_window, expectations, named_model

from ..conftest import mentions, slow_after

CONDITIONS = (
    {},
    {"b1": "worn", "b2": "fine", "h1": "worn", "h2": "broken", "v1": "worn"},
    {"b1": "worn", "b2": "worn", "h1": "broken", "h2": "fine"},
    {"b1": "broken", "b2": "worn", "h1": "fine", "h2": "fine", "v1": "worn"},
)


def four_steps(address, pumps, roster):
    """Four steps of five pumps, with an override and a report that is missing."""
    programme = Programme.create(address, pumps, roster, name="pumps", welfare="utilitarian")
    programme.solve(seconds=1e-3)
    for step, seen in enumerate(CONDITIONS):
        if seen:
            programme.observe([{"arm": arm, "state": state} for arm, state in seen.items()], "rounds")
        planned = programme.plan()
        programme.accept(planned.plan, _swap(programme, planned.plan) if step == 1 else (), who="ada")
    return programme


@pytest.fixture(scope="module")
def kept(tmp_path_factory, pumps, roster):
    file = tmp_path_factory.mktemp("pumps") / "pumps.db"
    four_steps(file, pumps, roster).close()
    return file


@pytest.fixture
def run(kept, tmp_path):
    """The four steps, in a file of one's own."""
    with Programme.open(shutil.copy(kept, tmp_path)) as programme:
        yield programme


@pytest.fixture
def on_both(address, pumps, roster):
    """The same on each database."""
    with four_steps(address, pumps, roster) as programme:
        yield programme


def _swap(programme, plan):
    """Somebody is left out, with a reason."""
    row = next(row for row in programme.plan_of(plan).rows if row.served)
    return [{"arm": row.arm, "action": "run", "why": "no spare part"}]


def test_counts_by_hand(run):
    found = run.audit()
    plans = [run.plan_of(plan.id).rows for plan in reversed(run.plans())]
    for row in found.arms:
        accepted = [one.accepted for rows in plans for one in rows if one.arm == row.arm]
        assert row.service.served == sum(action != "run" for action in accepted)
        assert row.service.steps == 4
    assert sum(row.service.served for row in found.groups) == sum(row.service.served for row in found.arms)
    assert sum(row.service.served for row in found.types) == sum(row.service.served for row in found.arms)
    assert [(one.step, one.who, one.why, one.accepted) for one in found.overrides] == [
        (1, "ada", "no spare part", "run")
    ]
    unknown = found.unknown
    assert (unknown["steps"], unknown["unseen"], unknown["unconfirmed"], unknown["without_reward"]) == (20, 1, 20, 20)
    shares = np.sort([row.service.share for row in found.arms])
    gini = sum(abs(a - b) for a in shares for b in shares) / (2 * 25 * shares.mean())
    assert found.service.gini_coefficient == pytest.approx(gini)
    assert found.service.worst == shares[0]


def test_what_was_realised_is_the_models_reward_of_what_was_seen_and_done(run, pumps):
    found = {row.arm: row for row in run.audit().arms}
    plans = [run.plan_of(plan.id).rows for plan in reversed(run.plans())]
    seen = {"b1": [0, 1, 1, 2], "h2": [2, 2, 0, 0]}
    actions = ("run", "oil", "repair")
    for arm, states in seen.items():
        done = [actions.index(one.accepted) for rows in plans for one in rows if one.arm == arm]
        rewards = pumps.tables.rewards[0]
        assert found[arm].earned.realised == pytest.approx(
            np.mean([rewards[s, a] for s, a in zip(states, done, strict=True)])
        )
    for row in found.values():
        it = row.earned
        assert it.realised == pytest.approx(it.promised + it.overrides + it.undone + it.moves + it.rewards)


def test_an_override_costs_what_the_planned_action_is_worth_more(run):
    found = run.audit()
    (one,) = found.overrides
    model = run.model()
    books = run.books()
    continuation = books.continuation(run.status().model)
    states = {"b1": 1, "b2": 0, "h1": 1, "h2": 2, "v1": 1}
    block = next(i for i, name in enumerate(model.group_names) if name == one.group)
    # V = r + 0.9 P V under the law by which arms go on, by repeating it
    value = np.zeros(3)
    for _ in range(600):
        worth = model.tables.rewards[block] + 0.9 * model.tables.transitions[block] @ value
        value = (continuation.action_probabilities[block] * worth).sum(axis=1)
    gains = worth[states[one.arm]]
    assert one.cost == pytest.approx(gains[("run", "oil", "repair").index(one.planned)] - gains[0])
    assert found.override_cost == pytest.approx(one.cost)
    assert found.by_who() == [{"who": "ada", "overrides": 1, "cost": one.cost}]


@pytest.mark.parametrize("address", slow_after(1, ["sqlite", "postgresql"]), indirect=True)
def test_late_reports_and_records_count_and_can_be_left_out_again(on_both):
    before = on_both.audit()
    on_both.observe([{"arm": "v1", "state": "broken", "step": 2}], "call")
    on_both.observe([{"arm": "b2", "state": "broken", "step": 3}], "call")
    on_both.record([{"arm": "b1", "action": "run", "step": 0, "reward": "0.25"}], "sheets")
    after = on_both.audit()
    assert (before.unknown["late"], before.unknown["corrected"]) == (0, 0)
    assert (after.unknown["unseen"], after.unknown["late"], after.unknown["corrected"]) == (0, 1, 1)
    assert (after.unknown["unconfirmed"], after.unknown["without_reward"]) == (19, 19)
    first = next(row for row in after.arms if row.arm == "b1").earned
    assert first.rewards == pytest.approx((0.25 - 1.0) / 4)
    assert on_both.audit(event=before.event) == before
    assert after.event == before.event + 3


def test_an_audit_of_some_steps_begins_from_what_was_known_before(run):
    whole = run.audit()
    part = run.audit(2, 3)
    assert (part.first, part.last) == (2, 3)
    assert {row.service.steps for row in part.arms} == {2}
    first, second = audit_window.fairness_over_time(run.books(), 2)
    assert (first.first, first.last, second.first, second.last) == (0, 1, 2, 3)
    for row in part.groups:
        assert second.groups[row.name].realised == pytest.approx(row.earned.realised)
    for row in whole.groups:
        halves = (first.groups[row.name].realised + second.groups[row.name].realised) / 2
        assert halves == pytest.approx(row.earned.realised)


def test_spans_that_are_not_there_are_refused(run, tmp_path, pumps, roster):
    for asked in ((0, 9), (3, 1), (-1, 2)):
        with pytest.raises(InvalidInputError, check=mentions("step")):
            run.audit(*asked)
    with pytest.raises(InvalidInputError, check=mentions("event", 13, 10000)):
        run.audit(event=10_000)
    with pytest.raises(InvalidInputError, check=mentions("level")):
        run.audit(level=1.5)
    with (
        Programme.create(tmp_path / "new.db", pumps, roster) as new,
        pytest.raises(InvalidInputError, check=mentions("audit")),
    ):
        new.audit()


def test_joined_and_left_are_followed_as_long_as_they_take_part(on_both):
    on_both.leave(["b1"], "sold")
    on_both.join([{"arm": "v2", "type": "small", "group": "valley"}])
    on_both.accept(on_both.plan().plan)
    on_both.observe([{"arm": "v2", "state": "worn"}], "rounds")
    on_both.accept(on_both.plan().plan)
    found = {row.arm: row for row in on_both.audit().arms}
    assert found["b1"].service.steps == 4
    assert found["v2"].service.steps == 2
    # Nobody had seen it: its promise begins where it was first seen, and no move is held against anybody.
    assert found["v2"].earned.moves == 0
    assert {row.arm for row in on_both.audit(4).arms} == {"b2", "h1", "h2", "v1", "v2"}
    assert len(on_both.audit().notes) == 1
    assert on_both.audit(4).notes == ()


@pytest.mark.slow
def test_a_promise_holds_until_the_model_changes(run):
    before = run.status().model
    run.adopt(run.refit(seconds=1e-3).id)
    assert run.status().model != before
    run.accept(run.plan().plan)
    run.observe([{"arm": arm.name, "state": "worn"} for arm in run.arms()], "rounds")
    run.accept(run.plan().plan)
    found = run.audit()
    assert found.models == 2
    assert len(found.notes) == 1
    first, second = run.audit(0, 3), run.audit(4, 5)
    for row, one, other in zip(found.arms, first.arms, second.arms, strict=True):
        assert 6 * row.earned.realised == pytest.approx(4 * one.earned.realised + 2 * other.earned.realised)
        it = row.earned
        assert it.realised == pytest.approx(it.promised + it.overrides + it.undone + it.moves + it.rewards)


def test_the_json_form_holds_all_of_it(run):
    told = json.loads(json.dumps(run.audit().to_dict()))
    assert told["groups"][0]["earned"]["promised"] is not None
    assert told["overrides_by"][0]["who"] == "ada"
    assert audit.audit_of(run.books()).to_dict() == run.audit().to_dict()


def test_waits_by_hand():
    present = np.array([[1, 1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0, 0]], dtype=bool)
    served = np.array([[0, 0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0]], dtype=bool)
    need = np.array([[1, 1, 1, 0, 1, 0, 1], [0, 1, 1, 1, 1, 0, 0]], dtype=bool)
    found = audit_window.count_waits(present, served, need)
    assert found["served"].tolist() == [1, 1]
    assert found["waiting"].tolist() == [4, 3]
    assert found["longest_wait"].tolist() == [4, 3]
    # The first: in need from step 0, served at 2; a need that went away at 5; in need again at the end.
    assert found["needs"].tolist() == [2, 2]
    assert found["delay"].tolist() == [2 + 1, 0 + 3]
    assert found["longest_delay"].tolist() == [2, 3]
    assert found["in_need"].tolist() == [1, 3]


def test_time_in_need_by_hand(run):
    """Steps in states of need since the last service, by what each plan took the states to be."""
    plans = [run.plan_of(plan.id).rows for plan in run.plans("accepted")]  # the newest first
    now = run.plan_of(run.plan().plan)
    needs = expectations.continue_by(run.model(), np.array([2, 2, 1]), "utilitarian").needs
    blocks = {"b": 0, "h": 1, "v": 2}
    expected = {}
    for row in now.rows:
        steps = 0
        past = [(one.state, one.accepted) for rows in plans for one in rows if one.arm == row.arm]
        for state, action in [(row.state, "run"), *past]:
            if action != "run" or not needs[blocks[row.arm[0]], ("fine", "worn", "broken").index(state)]:
                break
            steps += 1
        if steps:
            expected[row.arm_id] = steps
    assert run.in_need(now.rows, now.step) == expected
    assert max(expected.values()) > 1


def test_a_welfare_without_a_relaxation_goes_on_by_the_mean(pumps):

    continuation = expectations.continue_by(named_model.settle(pumps), np.array([2, 2, 1]), "gini:0.7,0.3")
    assert continuation.welfare == "utilitarian"
    np.testing.assert_allclose(continuation.action_probabilities.sum(axis=-1), 1.0)


@pytest.mark.slow
def test_other_budgets_and_ideas_of_the_present_roster(tmp_path, pumps, roster):
    with Programme.create(tmp_path / "pumps.db", pumps, roster, welfare="utilitarian") as programme:
        less, more = programme.suppose([{"hours": 1.0}, {"hours": 4.0}], seconds=1e-3)
        assert less.welfare <= more.welfare <= more.upper_bound + 1e-9
        assert set(more.groups) == set(programme.status().groups)
        assert sum(many for _, _, many in more.numbers) == len(roster)
        shares = []
        found = programme.price_of_fairness(["maximin"], seconds=1e-3, progress=lambda _, share: shares.append(share))
    assert {row.welfare for row in found.rows} == {"maximin", "utilitarian"}
    assert [row.worst for row in found.rows] == sorted(row.worst for row in found.rows)
    assert shares
    json.dumps(found.to_dict())
