"""Observations: by hand, and by a machine of random moves that keeps a dictionary beside the store."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evenhand.errors import TableError
from evenhand.programme import Programme

STATES = ["fine", "worn", "broken"]


def test_late_and_corrected_observations_are_stored_beside_the_old(programme):
    programme.accept(programme.plan().plan)
    assert programme.observe([{"arm": "b1", "state": "worn", "step": 1}], "rounds").late == 0
    told = programme.observe([{"arm": "b1", "state": 2, "step": 1}, {"arm": "h1", "state": "worn"}], "call", step=0)
    assert (told.observations, told.late, told.corrected) == (2, 1, 1)
    seen = [(entry.step, entry.state, entry.source) for entry in programme.history("b1") if entry.kind == "seen"]
    assert seen == [(0, "fine", "roster"), (1, "worn", "rounds"), (1, "broken", "call")]


def test_observations_of_the_future_are_refused(programme):
    """A year typed for a step would stay for ever, and an arm's history would count every step until then."""
    rows = [{"arm": "b1", "state": "worn", "step": 2026}, {"arm": "b2", "state": "worn"}]
    with pytest.raises(TableError):
        programme.observe(rows, "rounds")
    assert programme.status().events == 1


def test_all_faults_are_reported_with_their_rows_and_nothing_is_stored(programme):
    programme.leave(["v1"], "sold")
    rows = [
        {"arm": "b1", "state": "wornn"},
        {"arm": "c1", "state": "worn"},
        {"arm": "b2", "state": "worn", "step": "soon"},
        {"arm": "v1", "state": "worn"},
        {"arm": "h1", "state": ""},
        {"arm": "h2", "state": "worn"},
        {"arm": "h2", "state": "fine"},
        {"arm": "", "state": "fine"},
    ]
    with pytest.raises(TableError) as raised:
        programme.observe(rows, "rounds")
    lines = str(raised.value).splitlines()
    wanted = [
        "observations: 6 faults",  # row 5 is blank: not seen
        'row 1: "wornn"',
        'row 2: there is no arm "c1".',
        'row 3: step "soon"',
        'row 4: arm "v1" does not take part at step 0',
        'row 7: arm "h2" is also in row 6, at the same step',
        "row 8: has no arm",
    ]
    assert len(lines) == len(wanted)
    assert all(words in line for words, line in zip(wanted, lines, strict=True)), lines
    with pytest.raises(TableError):
        programme.observe([{"arm": "b1", "sate": "worn"}], "rounds")
    with pytest.raises(TableError):
        programme.observe({"arm": [], "state": []}, "rounds")
    with pytest.raises(TableError):
        programme.observe([{"arm": "b1", "state": "wo\0rn"}], "rounds")
    assert programme.verify().event == 2


class ObservedMoves(RuleBasedStateMachine):
    """Random joins, leaves and observations; a dictionary says what must be there."""

    address = None

    @initialize()
    def begin(self):
        self.programme = Programme.create(self.address(), self.model, [{"arm": "first", "type": "big"}])
        self.present, self.seen, self.events, self.answers = {"first"}, {"first": []}, 1, {}

    names = st.sampled_from(["first", "b1", "b2", "s1", "s2"])

    @rule(name=names)
    def join(self, name):
        row = {"arm": name, "type": "big"}
        if name in self.present:
            with pytest.raises(TableError):
                self.programme.join([row])
            return
        self.programme.join([row])
        self.present.add(name)
        self.seen[name] = []
        self.events += 1

    @rule(name=names)
    def leave(self, name):
        if name not in self.present:
            with pytest.raises(TableError):
                self.programme.leave([name], "sold")
            return
        self.programme.leave([name], "sold")
        self.present.remove(name)
        self.events += 1

    @rule(
        rows=st.dictionaries(st.tuples(names, st.just(0)), st.sampled_from(STATES), min_size=1, max_size=3),
        key=st.none() | st.sampled_from(["k1", "k2", "k3"]),
    )
    def observe(self, rows, key):
        table = [{"arm": name, "step": step, "state": state} for (name, step), state in rows.items()]
        if key in self.answers:
            asked, answer = self.answers[key]
            if asked == table:
                assert self.programme.observe(table, "x", key=key) == answer
            return
        if any(name not in self.present for name, _ in rows):
            with pytest.raises(TableError):
                self.programme.observe(table, "x", key=key)
            return
        known = {(name, step): state for name in self.present for step, state in self.seen[name]}
        told = self.programme.observe(table, "x", key=key)
        assert told.corrected == sum(known.get(place, state) != state for place, state in rows.items())
        for (name, step), state in rows.items():
            self.seen[name].append((step, state))
        self.events += 1
        if key is not None:
            self.answers[key] = (table, told)

    @rule()
    def come_back(self):
        where = self.programme.store.engine.url
        self.programme.close()
        self.programme = Programme.open(where.render_as_string(hide_password=False))

    @invariant()
    def agree(self):
        if not hasattr(self, "programme"):
            return
        assert {arm.name for arm in self.programme.arms()} == self.present
        for name in self.present:
            entries = self.programme.history(name)
            joined = max(entry.event for entry in entries if entry.kind == "joined")
            seen = [(one.step, one.state) for one in entries if one.kind == "seen" and one.event >= joined]
            assert seen == self.seen[name]
        assert self.programme.verify().event == self.events == self.programme.status().events

    def teardown(self):
        if hasattr(self, "programme"):
            self.programme.close()


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_the_store_is_a_dictionary_that_remembers(database, request, tmp_path, pumps):
    """The machine is run by hand, for its databases come from fixtures."""
    from hypothesis.stateful import run_state_machine_as_test

    numbers = iter(range(10**6))

    class Here(ObservedMoves):
        model = pumps

        def address(self):
            if database == "sqlite":
                return str(tmp_path / f"{next(numbers)}.db")
            return request.getfixturevalue("postgresql").database()

    runs = 6 if database == "sqlite" else 3
    run_state_machine_as_test(Here, settings=settings(max_examples=runs, stateful_step_count=15, deadline=None))
