"""The words and the calendar of a programme."""

from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import evenhand as eh
from evenhand.cli.programme_output import event_content
from evenhand.errors import InvalidInputError
from evenhand.model import as_table
from evenhand.programme import Programme
from evenhand.programme.audit_report import _over_time_svg
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web.arms_page import states_svg
from evenhand.report.summary import table

WORDS = {
    "arm": "person, people",
    "group": "clinic",
    "period": "week",
    "start": "2026-06-29",
    "value": "weeks on treatment",
}


def test_nouns_and_their_plurals():
    found = Vocabulary.read(WORDS | {"resources": {"crew": "visit"}})
    assert [found.arm.counted(1), found.arm.counted(1200), found.group.many] == ["1 person", "1,200 people", "clinics"]
    assert found.resource("crew").counted(2) == "2 visits"
    assert found.resource("beds").counted(2) == "2 beds"
    singles = [found.resource(name).counted(1) for name in ("calls", "supplies", "boxes", "staff", "gauss")]
    assert singles == ["1 call", "1 supply", "1 box", "1 staff", "1 gauss"]
    assert [Vocabulary.read({"arm": one}).arm.many for one in ("city", "bus", "day")] == ["cities", "buses", "days"]
    assert Vocabulary.read(found.to_dict()) == found


def test_names_of_steps_by_the_calendar():
    assert Vocabulary().name(3) == "step 3"
    assert Vocabulary.read(WORDS).name(1) == "week of 6 July 2026"
    assert Vocabulary.read({"period": "month", "start": "2026-01-01"}).name(13) == "February 2027"
    assert Vocabulary.read({"period": "quarter", "start": "2026-01-31"}).name(1) == "quarter of 30 April 2026"
    assert Vocabulary.read({"period": "day", "start": "2026-02-28"}).name(1) == "1 March 2026"
    assert Vocabulary.read(WORDS).name(10**9) == "week 1000000000"


@pytest.mark.parametrize("period", ["day", "week", "month", "quarter", "year"])
def test_a_day_belongs_to_the_step_that_contains_it(period):
    found = Vocabulary.read({"period": period, "start": "2024-01-31"})
    day = date(2024, 1, 31)
    for _ in range(900):
        step = found.step_on(day)
        assert found.day(step) <= day < found.day(step + 1)
        day += timedelta(days=1)
    assert found.step_on(date(2024, 1, 30)) is None


def test_all_faults_of_words_at_once():
    with pytest.raises(InvalidInputError) as error:
        Vocabulary.read({"arm": ",", "period": "fortnight", "start": "29 June", "colour": "red"})
    assert [fault.place for fault in error.value.faults] == ["colour", "arm", "period", "start"]


def test_words_of_a_programme_are_stored_as_events(tmp_path):
    model = eh.problems.machine_replacement(num_arms=2)
    rows = [{"arm": "north"}, {"arm": "south"}]
    with Programme.create(tmp_path / "p.db", model, rows, words={"arm": "press, presses"}) as programme:
        assert programme.vocabulary().arm.many == "presses"
        programme.set_words({"group": "hall"}, key="a")
        assert programme.set_words({"group": "hall"}, key="a").group.one == "hall"
        assert programme.vocabulary().arm.many == "presses"
        assert programme.verify().event == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('arm "arm 3" does not take part at step 1', 'person "arm 3" does not take part in the week of 6 July 2026'),
        ("Steps 0 to 1, an arm per group", "The week of 29 June 2026 to the week of 6 July 2026, a person per clinic"),
        ("seen at this step, as at every step", "seen this week, as every week"),
        ("the steps at which arms joined at the present step", "the weeks in which people joined in the present week"),
        ("arms.csv: 2 faults in arms[0].x, step-by-step", "arms.csv: 2 faults in arms[0].x, step-by-step"),
        (
            "arms of higher priority left too few crew and bays",
            "people of higher priority left too few visits and bays",
        ),
        ("Group home 12 gets a step up; group home", "Group home 12 gets a step up; clinic home"),
    ],
)
def test_texts_of_the_library_in_other_words(text, said):
    found = Vocabulary.read(WORDS | {"resources": {"crew": "visit"}}).with_names(["Group home 3", "step up", "north"])
    assert found.say(text) == said
    assert found.say(said) == said
    assert Vocabulary().say(text) == text


def test_steps_before_the_first_have_dates_in_tables():
    shown = table("", ["step", "kind"], [["-20", "seen"], ["0", "seen"]], 0, ["step", "kind"])
    assert [row.name for row in Vocabulary.read(WORDS).summary(shown).rows] == [
        "week of 9 February 2026", "week of 29 June 2026",
    ]  # fmt: skip
    assert Vocabulary.read(WORDS).tick(-20) == "9 Feb"
    run: Any = SimpleNamespace(vocabulary=Vocabulary.read(WORDS))
    assert "9 February 2026" in event_content({"from_step": -20}, run)


def test_a_service_in_an_unknown_condition_is_drawn():
    seen = {"step": 1, "state": "ill", "seen": object(), "served": True}
    rows = [seen, {"step": 0, "state": "", "seen": None, "served": True}, seen | {"step": -1, "served": False}]
    drawn, fewer = (states_svg("a", own, ("well", "ill"), Vocabulary.read(WORDS)) for own in (rows, [*rows[::2]]))
    assert drawn.count("#e69f00") > fewer.count("#e69f00")


def test_outcomes_over_time_have_dates():
    earned = SimpleNamespace(lower=0.0, upper=1.0, promised=0.5, realised=0.5, overrides=0.0, undone=0.0)
    parts: Any = [SimpleNamespace(first=step, last=step, groups={"Hill": earned}) for step in range(3)]
    drawn = _over_time_svg(parts, ["Hill"], Vocabulary.read(WORDS))
    assert all(f">{day}<" in drawn for day in ("29 Jun", "6 Jul", "13 Jul"))


def test_tables_are_read_and_written_with_own_heads():
    found = Vocabulary.read(WORDS)
    table = as_table({"Person": ["a"], "condition": ["ill"], "week": ["2026-07-12"], "next_condition": ["well"]})
    assert found.columns(table).columns == {"arm": ["a"], "state": ["ill"], "step": ["1"], "next_state": ["well"]}
    both = as_table({"arm": ["a"], "person": ["b"], "week": ["2020-01-01"]})
    assert found.columns(both).columns == {"arm": ["a"], "person": ["b"], "step": ["2020-01-01"]}
    assert found.row({"arm": "a", "state": "ill", "seen_step": 1, "steps": 4}) == {
        "person": "a", "condition": "ill", "seen_week": date(2026, 7, 6), "weeks": 4,
    }  # fmt: skip
    assert Vocabulary().row({"arm": "a", "step": 1}) == {"arm": "a", "step": 1}


def test_steps_are_typed_as_numbers_or_days():
    found = Vocabulary.read(WORDS)
    assert [found.find_step("7"), found.find_step("2026-07-05"), found.find_step("2026-07-06")] == [7, 0, 1]
    for text in ("2026-06-28", "-1", "x"):
        with pytest.raises(InvalidInputError):
            found.find_step(text)
    with pytest.raises(InvalidInputError):
        Vocabulary().find_step("2026-07-05")


def test_missing_columns_have_the_heads_of_the_programme():
    words = Vocabulary.read({"arm": "pupil", "group": "school"})
    error = words.reworded(InvalidInputError("missing column state. The columns are: pupil, arms."))
    assert str(error).startswith("missing column condition. The columns are: pupil")
    assert str(words.reworded(InvalidInputError("missing column arm."))) == "missing column pupil."
