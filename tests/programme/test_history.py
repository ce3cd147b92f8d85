"""Import of past records: steps before 0, last services and beliefs on the first day."""

import numpy as np
import pytest

from evenhand.errors import InvalidInputError, TableError
from evenhand.programme import Programme

WEEKS = {"start": "2026-06-01", "period": "week"}
PAST = [
    {"arm": "B1", "time": "2026-05-05", "state": "worn", "action": "repair"},
    {"arm": "b1", "time": "2026-05-12", "state": "worn", "action": ""},
    {"arm": "b1", "time": "2026-05-20", "state": "", "action": "oil"},
    {"arm": "b1", "time": "2026-05-22", "state": "", "action": "run"},
    {"arm": "v1", "time": "2026-05-27", "state": "broken", "action": "run"},
    {"arm": "gone", "time": "2026-05-27", "state": "fine", "action": "run"},
    {"arm": "h1", "time": "2026-06-03", "state": "fine", "action": "run"},
]
NO_STATES = [
    {"arm": "b1", "type": "big"},
    {"arm": "h1", "type": "small", "group": "hill"},
    {"arm": "v1", "type": "small", "group": "valley"},
]


@pytest.fixture
def begun(tmp_path, pumps):
    with Programme.create(tmp_path / "pumps.db", pumps, NO_STATES, words=WEEKS, history=PAST) as made:
        yield made


def test_the_first_plan_knows_the_past(begun, pumps):
    event = begun.events()[1]
    assert (event.kind, event.body["seen"], event.body["done"], event.body["left_out"]) == ("imported", 3, 3, 2)
    plan = begun.plan_of(begun.plan().plan)
    assert plan.step == 0
    rows = {row.arm: row for row in plan.rows}
    assert (rows["b1"].seen_step, rows["v1"].seen_step, rows["h1"].seen_step) == (-3, -1, None)
    # From worn at -3: idle, then oiled (the service of that week counts, not the idling after it), then idle.
    idle, oiled = (pumps.tables.transitions[0, :, action] for action in (0, 1))
    belief = np.array([0.0, 1.0, 0.0]) @ idle @ oiled @ idle
    assert rows["b1"].chance == pytest.approx(belief.max(), abs=1e-8)
    last = begun.last_served(plan.rows, plan.step)
    assert last == {rows["b1"].arm_id: -2}
    begun.accept(plan.id)
    begun.recompute(plan.id)
    begun.verify()
    assert [entry.step for entry in begun.history("b1") if entry.kind == "recorded"] == [-4, -2]
    audited = {arm.arm: arm for arm in begun.audit().arms}
    assert set(audited) == {"b1", "h1", "v1"}


def test_audits_start_from_the_last_state_seen_in_the_history(tmp_path, pumps):
    values = {}
    for state in ("fine", "broken"):
        past = [{"arm": "b1", "step": -1, "state": state}]
        with Programme.create(tmp_path / f"{state}.db", pumps, NO_STATES, history=past) as made:
            made.accept(made.plan(budget=0).plan)
            audited = {arm.arm: arm for arm in made.audit().arms}
            values[state] = audited["b1"].to_dict()
    assert values["fine"] != values["broken"]


def test_steps_are_counted_back_from_the_last(tmp_path, pumps):
    rows = [{"arm": "b1", "step": step, "state": "worn"} for step in (3, 4, 7)]
    with Programme.create(tmp_path / "p.db", pumps, NO_STATES) as made:
        found = made.import_history(rows, "sheet")
        assert (found.first, found.observations) == (-5, 3)
        assert made.plan_of(made.plan().plan).rows[0].seen_step == -1
        made.undo(found.event)
        assert made.plan_of(made.plan().plan).rows[0].seen_step is None
        made.verify()


def test_months_and_quarters_have_steps(tmp_path, pumps):
    rows = [{"arm": "b1", "time": time, "state": "worn"} for time in ("2025-Q4", "2026-03", "2026-05")]
    calendar = {"start": "2026-06-01", "period": "month"}
    with Programme.create(tmp_path / "p.db", pumps, NO_STATES, words=calendar) as made:
        assert made.import_history(rows, "sheet").first == -8
        assert made.plan_of(made.plan().plan).rows[0].seen_step == -1


def test_a_history_with_faults_leaves_nothing_behind(tmp_path, pumps):
    wrong = [{"arm": "b1", "time": "soon", "state": "worn"}, {"arm": "b1", "time": "2026-05-01", "state": "shiny"}]
    with pytest.raises(TableError) as raised:
        Programme.create(tmp_path / "p.db", pumps, NO_STATES, history=wrong, words=WEEKS)
    assert [fault.place for fault in raised.value.faults] == ["row 1", "row 2"]
    assert not (tmp_path / "p.db").exists()
    dates = [{"arm": "b1", "time": "2026-05-01", "state": "worn"}]
    with pytest.raises(TableError):  # without a calendar
        Programme.create(tmp_path / "p.db", pumps, NO_STATES, history=dates)


def test_the_history_is_neither_refitted_nor_tested(begun):
    with pytest.raises(InvalidInputError):  # nothing was seen since the programme began
        begun.refit()
    assert begun.model_drift().reports == 0


@pytest.mark.parametrize(
    ("times", "places"),
    [
        ((-6000, -999_999_999), ["row 1", "row 2"]),
        ((1, 6000), ["row 1"]),
        (("1990-01-01", "2026-05-01"), ["row 1"]),
    ],
)
def test_records_of_long_ago_are_refused_with_their_rows(tmp_path, pumps, times, places):
    rows = [{"arm": "b1", "time": time, "state": "worn"} for time in times]
    words = {"start": "2026-06-01", "period": "day"}
    with Programme.create(tmp_path / "p.db", pumps, NO_STATES, words=words) as made:
        with pytest.raises(TableError) as raised:
            made.import_history(rows, "sheet")
        assert [fault.place for fault in raised.value.faults] == places
        assert made.import_history([rows[0] | {"time": -5000}], "sheet").first == -5000


def test_steps_are_written_in_plain_digits(tmp_path, pumps):
    with Programme.create(tmp_path / "p.db", pumps, NO_STATES) as made, pytest.raises(TableError):
        made.import_history([{"arm": "b1", "time": "-\N{ARABIC-INDIC DIGIT THREE}", "state": "worn"}], "sheet")
