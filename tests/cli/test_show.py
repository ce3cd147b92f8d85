"""`evenhand show`: a saved plan in words."""

import pytest

from ..conftest import mentions


@pytest.fixture
def plan(small, evenhand):
    small.write_text(small.read_text().replace("budget = [1]", 'budget = [1]\nresources = ["crews"]'))
    assert evenhand("solve", small, "--out", "plan.zip", "--quiet").code == 0
    return small.with_name("plan.zip")


def test_says_who_comes_first_and_what_more_is_worth(plan, evenhand):
    out = evenhand("show", plan).out
    assert mentions("3 arms", "2 machine", "1 pump", "1 crew")(" ".join(out.split()))
    assert "served how often" in out
    assert "more crew:" in out
    assert "\x1b" not in out


def test_json(plan, evenhand):
    told = evenhand("show", plan, "--json").json
    assert [kind["name"] for kind in told["types"]] == ["machine", "pump"]
    assert told["welfare"]["name"] == "gini:half=0.75"
    assert set(told["prices"]) == {"crews"}
    assert {"place", "type", "state", "action", "share"} == set(told["parts"][0]["order"][0])


def test_solve_shows_it_in_short(small, evenhand):
    exact = evenhand("solve", small).out
    assert "serves most    " in exact
    indices = evenhand("solve", small, "--method", "whittle").out
    assert mentions("state 1", "action 1")(indices)


def test_an_invalid_plan(small, evenhand):
    assert "policy file" in evenhand("show", small).refusal
