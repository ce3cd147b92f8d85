"""The words and the calendar of a programme."""

from datetime import date, timedelta

import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError
from evenhand.programme import Programme
from evenhand.programme.vocabulary import Vocabulary

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
