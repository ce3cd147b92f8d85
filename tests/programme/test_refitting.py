"""The model anew from the programme's own log."""

import numpy as np
import pytest

from evenhand.errors import ConflictError, InvalidInputError
from evenhand.programme import Programme, refit, roster

from ..conftest import mentions, slow_after


def lived(address, pumps, truth, steps, rng):
    """A programme that was run for some steps in a world that is not its model."""
    kinds = [("big", "", 0), ("small", "hill", 1), ("small", "valley", 2)]
    arms = {f"{kind}{place}{n}": (kind, place, block) for kind, place, block in kinds for n in range(4)}
    state = dict.fromkeys(arms, 0)
    rows = [{"arm": name, "type": kind, "group": place, "state": 0} for name, (kind, place, _) in arms.items()]
    programme = Programme.create(address, pumps.with_budget([2.0]), rows)
    for _ in range(steps):
        plan = programme.plan_of(programme.plan().plan)
        programme.accept(plan.id)
        for row in plan.rows:
            law = truth[arms[row.arm][2], state[row.arm], ["run", "oil", "repair"].index(row.action)]
            state[row.arm] = int(rng.choice(3, p=law))
        seen = [{"arm": name, "state": state[name]} for name in arms]
        programme.observe(seen, "rounds")
    return programme


@pytest.fixture
def ran(address, pumps):
    truth = np.array(pumps.tables.transitions)
    truth[0, 0, 0] = [0.3, 0.7, 0.0]  # big pumps wear much faster than the model says
    with lived(address, pumps, truth, 15, np.random.default_rng(3)) as programme:
        yield programme


@pytest.mark.parametrize("address", slow_after(1, ["sqlite", "postgresql"]), indirect=True)
def test_a_refit_estimates_transitions_and_is_adopted_on_request(ran, pumps):
    before = ran.status().model
    found = ran.refit(trust=0, who="ann", key="r")
    other = ran.refit(trust=1000)
    assert ran.status().model == before
    assert ran.refit(trust=0, key="r") == found
    assert ran.refits() == [other, found]
    moved = {(row.type, row.state, row.action, row.next_state): row for row in found.moved}
    wear = moved["big", "fine", "run", "worn"]
    assert wear.before == pytest.approx(0.3)
    assert wear.lower < 0.7 < wear.upper
    assert not wear.lower < 0.3 < wear.upper
    assert wear.seen >= 10
    assert found.likelihood[1] > found.likelihood[0]
    assert found.welfare[1] > 0
    names = {arm.name for arm in ran.arms()}
    assert {arm for arm, _, _ in found.plan} <= names
    plan = ran.plan()
    adopted = ran.adopt(found.id, who="bob")
    assert adopted.adopted_event == ran.status().events
    assert ran.status().model == found.model != before
    with pytest.raises(ConflictError, check=mentions("plan 16", "model")):
        ran.accept(plan.plan)
    now = ran.plan_of(ran.plan().plan)
    assert (now.model, now.policy) == (found.model, found.policy)
    for id_ in (plan.plan, now.id):
        ran.recompute(id_)
    for number in (1, 2):  # in use; compared with another model than the present one
        with pytest.raises(ConflictError, check=mentions(f"refit {number}")):
            ran.adopt(number)
    with pytest.raises(InvalidInputError, check=mentions("refit", 9)):
        ran.adopt(9)
    back = ran.adopt(0, who="ann")
    assert (back.model, back.before, back.adopted_event) == (before, found.model, ran.status().events)
    assert ran.status().model == before
    with pytest.raises(ConflictError, check=mentions("refit 0")):
        ran.adopt(0)
    ran.accept(ran.plan().plan)
    assert ran.adopt(found.id).adopted_event > adopted.adopted_event
    assert ran.status().model == found.model
    trusting = {(row.type, row.state, row.action, row.next_state): row for row in other.moved}
    assert trusting["big", "fine", "run", "worn"].after == pytest.approx(0.3, abs=0.03)
    kept = ran.model()
    assert np.array_equal(kept.tables.rewards, pumps.tables.rewards)
    for kind, state, action in found.unseen:
        block = {"big": 0, "small": 1}[kind]
        cell = (block, ["fine", "worn", "broken"].index(state), ["run", "oil", "repair"].index(action))
        assert np.array_equal(kept.tables.transitions[cell], pumps.tables.transitions[cell])
    after = moved["big", "fine", "run", "worn"].after
    assert after == pytest.approx(kept.tables.transitions[0, 0, 0, 1], abs=1e-6)


@pytest.mark.parametrize("address", slow_after(1, ["sqlite", "postgresql"]), indirect=True)
def test_nothing_is_learned_from_gaps_in_which_an_arm_was_served(programme):
    plans = [programme.plan().plan]
    programme.accept(plans[0])
    programme.observe([{"arm": "b1", "state": "worn"}], "rounds")
    for _ in range(2):
        plans.append(programme.plan().plan)
        programme.accept(plans[-1])
    programme.record([{"arm": "b1", "action": "oil", "step": 2}, {"arm": "h1", "action": "run", "step": 2}], "crew")
    for step in (1, 0):
        programme.record([{"arm": "h1", "action": "run", "step": step}], "crew")
    programme.observe([{"arm": "b1", "state": "fine"}, {"arm": "h1", "state": "worn"}], "rounds")
    with programme.store.reading() as tx:
        words = programme.library.model(tx)[1]
        log = refit.log_of(tx, words, roster.arms_as_of(tx), 3)
    assert words.idle_name(0) == "run"
    assert [(row["arm"], row["step"]) for row in log if row["arm"].startswith("1.")] == [
        ("1.0", 0),
        ("1.0", 1),
        ("1.1", 3),
    ]
    assert [(row["arm"], row["step"]) for row in log if row["arm"].startswith("3.")] == [("3.0", 0), ("3.0", 3)]


def test_there_is_nothing_to_learn_from_at_first(programme):
    with pytest.raises(InvalidInputError, check=mentions("arm", "twice")):
        programme.refit()
