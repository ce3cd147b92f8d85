"""--initial: plans from where the arms are."""

import pytest

from ..conftest import mentions

STATES = "arm,type,state\nm2,machine,1\np1,pump,1\nm1,machine,0\n"


@pytest.fixture
def states(folder):
    file = folder / "monday.csv"
    file.write_text(STATES)
    return file


def test_solve_starts_there(small, states, evenhand):
    found = evenhand("solve", small, "--initial", states, "--welfare", "maximin", "--out", "plan.zip")
    assert found.code == 0
    for name in ("0 machine from state 0", "1 machine from state 1", "2 pump"):
        assert name in found.out
    assert mentions(f"evaluate {small} plan.zip", f"--initial {states}")(found.out)
    here, there = (
        evenhand("solve", small, *initial, "--welfare", "maximin", "--json").json["welfare"]["value"]
        for initial in ((), ("--initial", states))
    )
    assert there < here


def test_the_saved_plan_is_worth_what_was_said(small, states, evenhand):
    said = evenhand("solve", small, "--initial", states, "--welfare", "maximin", "--out", "plan.zip", "--json").json
    found = evenhand("evaluate", small, "plan.zip", "--initial", states, "--welfare", "maximin", "--json").json
    assert found["exact"]
    assert found["welfare"] == pytest.approx(said["welfare"]["value"], abs=1e-6)


def test_the_table_says_which_arms_there_are(small, states, evenhand):
    states.write_text(STATES + "m3,machine,0\n")
    found = evenhand("solve", small, "--initial", states, "--json")
    assert len(found.json["values"]) == 4
    assert mentions(states, "3 machine", 2)(found.err)


def test_an_index_plan_made_elsewhere_is_played_from_there(small, states, evenhand):
    assert evenhand("solve", small, "--method", "whittle", "--out", "index.zip").code == 0
    compared = evenhand("compare", small, "--initial", states, "--policies", "whittle,index.zip", "--json").json
    one, other = (row["welfare"] for row in compared["rows"])
    assert one == other


def test_a_table_made_elsewhere_is_played_from_there_if_the_arms_are_the_same(small, states, evenhand):
    assert evenhand("solve", small, "--welfare", "utilitarian", "--out", "plan.zip").code == 0
    options = ("--initial", states, "--welfare", "utilitarian", "--json")
    found = evenhand("evaluate", small, "plan.zip", *options).json
    best = evenhand("solve", small, *options).json["welfare"]["value"]
    assert found["welfare"] == pytest.approx(best, abs=5 * found["welfare_stderr"])
    states.write_text(STATES + "m3,machine,0\n")
    told = evenhand("evaluate", small, "plan.zip", "--initial", states).refusal
    assert mentions("3 arms", 4)(told)
    assert "--initial" in told


def test_faults_are_reported_with_their_lines(small, states, evenhand, files):
    states.write_text("arm,type,state\na,pump,7\n")
    before = files()
    assert (
        'monday.csv: 1 fault\n  line 2: "7"' in evenhand("solve", small, "--initial", states, "--out", "x.zip").refusal
    )
    assert files() == before


def test_check_shows_where_the_arms_are(small, states, evenhand):
    found = evenhand("check", small, "--initial", states)
    assert found.code == 0
    assert "nothing looks odd" in found.out
    assert "machine from" in found.out
    rows = evenhand("check", small, "--initial", states, "--json").json["types"]
    assert [(row["name"], row["count"], row["starts_in"]) for row in rows[:2]] == [
        ("machine from state 0", 1, ["0"]),
        ("machine from state 1", 1, ["1"]),
    ]
