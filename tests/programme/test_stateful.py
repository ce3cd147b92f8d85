"""A machine of random moves through whole steps, with a dictionary beside it that says what must be there."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from evenhand.errors import ConflictError, TableError
from evenhand.programme import Programme

STATES = ("fine", "worn", "broken")
HOURS = {"run": 0, "oil": 1, "repair": 2}
BUDGET = 3.0
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3", "k4"])
NAMES = st.sampled_from(["first", "b1", "b2", "b3"])


class Steps(RuleBasedStateMachine):
    """Observe, plan, accept, record, join, leave, with keys that are used again."""

    @initialize()
    def begin(self):
        self.programme = Programme.create(self.address(), self.model, [{"arm": "first", "type": "big"}])
        self.step, self.present = 0, {"first": {}}  # arm -> its observations by step
        self.knew = None  # what the last plan knew
        self.accepted, self.plans, self.answers, self.records = {}, {}, {}, {}
        self.seen, self.moved_at = [self.present["first"]], set()  # also of arms that left; steps of joins and leaves
        self.uploads = []  # events that may be undone, with the observation or the record before

    def knowledge(self):
        """Who takes part, and where they were seen at this step."""
        return {arm.name: (arm.id, self.present[arm.name].get(self.step)) for arm in self.programme.arms()}

    def once(self, key, kind, request, do):
        """What is answered under a key, and whether it was done now."""
        if key in self.answers:
            asked, answer = self.answers[key]
            if asked == (kind, request):
                assert do(key) == answer
            else:
                with pytest.raises(ConflictError):
                    do(key)
            return answer, False
        answer = do(key)
        if key is not None:
            self.answers[key] = ((kind, request), answer)
        return answer, True

    @rule(name=NAMES)
    def join(self, name):
        if name in self.present:
            with pytest.raises(TableError):
                self.programme.join([{"arm": name, "type": "big"}])
            return
        self.programme.join([{"arm": name, "type": "big"}])
        self.present[name] = {}
        self.seen.append(self.present[name])
        self.moved_at.add(self.step)

    @precondition(lambda self: len(self.present) > 1)
    @rule(name=NAMES)
    def leave(self, name):
        if name in self.present:
            self.programme.leave([name], "sold")
            del self.present[name]
            self.moved_at.add(self.step)

    @rule(name=NAMES, state=st.sampled_from(STATES), back=st.integers(0, 1), key=KEYS)
    def observe(self, name, state, back, key):
        step = max(0, self.step - back)
        rows = [{"arm": name, "state": state, "step": step}]
        joined = {arm.name: arm.joined_step for arm in self.programme.arms()}
        if key not in self.answers and (name not in self.present or joined[name] > step):
            with pytest.raises(TableError):
                self.programme.observe(rows, "x", key=key)
            return
        answer, new = self.once(key, "observe", str(rows), lambda key: self.programme.observe(rows, "x", key=key))
        if not new:
            return
        self.uploads.append((answer.event, self.present[name], step, self.present[name].get(step)))
        self.present[name][step] = state

    @rule(key=KEYS)
    def plan(self, key):
        answer, new = self.once(key, "plan", "", lambda key: self.programme.plan(key=key))
        if not new:
            return
        assert answer.step == self.step
        plan = self.programme.plan_of(answer.plan)
        assert {row.arm for row in plan.rows} == set(self.present)
        for row in plan.rows:
            seen = self.present[row.arm].get(self.step)
            assert (row.known == "seen") == (seen is not None)
            assert seen is None or row.state == seen
        assert plan.used["hours"] <= BUDGET
        self.plans[plan.id] = {row.arm: row.action for row in plan.rows}
        self.knew = self.knowledge()

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), key=KEYS)
    def accept(self, data, key):
        number = data.draw(st.sampled_from(sorted(self.plans)))
        changed = data.draw(
            st.dictionaries(st.sampled_from(sorted(self.plans[number])), st.sampled_from(list(HOURS)), max_size=2)
        )
        rows = [{"arm": arm, "action": action, "why": "so"} for arm, action in changed.items()]
        what = self.plans[number] | changed
        current = self.programme.current_plan()
        refused = number in self.accepted or current is None or current.id != number or self.knew != self.knowledge()
        too_much = sum(HOURS[action] for action in what.values()) > BUDGET
        if key not in self.answers and refused:
            with pytest.raises(ConflictError):
                self.programme.accept(number, rows, key=key)
            return
        if key not in self.answers and too_much:
            with pytest.raises((TableError, ConflictError)):
                self.programme.accept(number, rows, key=key)
            return
        try:
            _, new = self.once(
                key, "accept", str((number, rows)), lambda key: self.programme.accept(number, rows, key=key)
            )
        except ConflictError:  # what is believed of an arm may have changed by a late report
            assert any(self.step not in seen for seen in self.present.values())
            return
        if new:
            self.accepted[number] = (self.step, what)
            self.step += 1

    @precondition(lambda self: self.accepted)
    @rule(name=NAMES, action=st.sampled_from(list(HOURS)), key=KEYS)
    def record(self, name, action, key):
        step, what = self.accepted[max(self.accepted)]
        there = {arm.name: arm.joined_step for arm in self.programme.arms()}
        rows = [{"arm": name, "action": action}]
        if key not in self.answers and there.get(name, self.step) > step:
            return
        answer, new = self.once(key, "record", str(rows), lambda key: self.programme.record(rows, "x", key=key))
        if new:
            assert answer.corrected == (self.records.get((name, step), action) != action)
            assert answer.differing == (what.get(name, action) != action)
            self.uploads.append((answer.event, self.records, (name, step), self.records.get((name, step))))
            self.records[name, step] = action

    @precondition(lambda self: self.uploads)
    @rule()
    def undo(self):
        """The last upload is undone; what was said before it counts again."""
        event, known, place, before = self.uploads.pop()
        assert self.programme.undo(event).rows == 1
        if before is None:
            known.pop(place)
        else:
            known[place] = before

    @precondition(lambda self: self.accepted and self.step not in self.moved_at)
    @rule()
    def undo_acceptance(self):
        number = max(self.accepted)
        step, _ = self.accepted[number]
        event = self.programme.plan_of(number).accepted_event
        rests = any(at == step for _, at in self.records) or any(step + 1 in seen for seen in self.seen)
        if rests:
            with pytest.raises(ConflictError):
                self.programme.undo(event)
            return
        self.programme.undo(event)
        del self.accepted[number]
        self.step, self.knew = step, None

    @rule()
    def come_back(self):
        where = self.programme.store.engine.url.render_as_string(hide_password=False)
        self.programme.close()
        self.programme = Programme.open(where)

    @invariant()
    def agree(self):
        if not hasattr(self, "programme"):
            return
        status = self.programme.status()
        assert status.step == self.step == len(self.accepted)
        assert {arm.name for arm in self.programme.arms()} == set(self.present)
        assert self.programme.verify().event == status.events
        plans = self.programme.plans("accepted")
        assert {plan.id: plan.step for plan in plans} == {number: step for number, (step, _) in self.accepted.items()}
        assert len(self.programme.plans("proposed")) <= 1
        for number, (_, what) in list(self.accepted.items())[-2:]:
            whole = self.programme.plan_of(number)
            assert {row.arm: row.accepted for row in whole.rows} == what
            assert whole.accepted_used["hours"] <= BUDGET

    def teardown(self):
        if hasattr(self, "programme"):
            for plan in self.programme.plans():
                self.programme.recompute(plan.id)
            self.programme.close()


def machine(database, request, tmp_path, pumps):
    numbers = iter(range(10**6))

    class Here(Steps):
        model = pumps

        def address(self):
            if database == "sqlite":
                return str(tmp_path / f"{next(numbers)}.db")
            return request.getfixturevalue("postgresql").database()

    return Here


def run(found, examples, steps):
    unhurried = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(found, settings=unhurried)


@pytest.mark.parametrize(
    ("database", "examples"), [("sqlite", 6), pytest.param("postgresql", 3, marks=pytest.mark.slow)]
)
def test_a_programme_is_a_dictionary_that_remembers(database, examples, request, tmp_path, pumps):
    run(machine(database, request, tmp_path, pumps), examples, 20)


@pytest.mark.slow
@pytest.mark.parametrize(("database", "examples"), [("sqlite", 150), ("postgresql", 60)])
def test_for_long(database, examples, request, tmp_path, pumps):
    run(machine(database, request, tmp_path, pumps), examples, 50)
