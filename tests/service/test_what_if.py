"""More is never worse: what-ifs beside the plan in use and beside each other, by the API and on the page."""

import re
import time
from dataclasses import replace
from html import unescape
from itertools import pairwise

import pytest

from evenhand.programme.counterfactuals import StateNumber
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web import counterfactual_page

P = "/v1/programme"
HASTE = 1e-3
"""Seconds: a search that is over before it began, so that an answer is as bad as it gets."""


@pytest.fixture
def client(programme, serving):
    """A programme whose plan in use is the optimum, which no hasty search finds again."""
    programme.solve(method="joint")
    return serving(programme)


def answer(client, job):
    for _ in range(1200):
        told = client.get(f"/v1/jobs/{job}").json()
        if told["status"] in ("done", "failed"):
            assert told["status"] == "done", told
            return told["answer"]
        time.sleep(0.05)
    raise AssertionError(told)


def suppose(client, hours, **asked):
    job = client.post(f"{P}/what-if", json={"budget": {"hours": hours}, "seconds": HASTE} | asked).json()["id"]
    return answer(client, job)


def test_the_plan_in_use_and_smaller_budgets_compete(client):
    today = client.get(f"{P}/certificate").json()
    found = {}
    for hours in (3.0, 4.0, 2.0, 3.5, 3.0):
        one = found[hours] = suppose(client, hours)
        assert one["budget"] == {"hours": hours}
        assert one["difference"]["welfare"] == one["welfare"] - today["welfare"]
        assert one["today"]["welfare"] == today["welfare"]
    in_order = [found[hours] for hours in sorted(found)]
    for less, more in pairwise(in_order):
        assert less["welfare"] <= more["welfare"]
    own = found[3.0]
    assert own["welfare"] == today["welfare"]
    assert own["groups"] == pytest.approx(today["groups"])
    assert own["reused_from"] == {"hours": 3.0}
    assert not own["difference"]["measurable"]


def test_an_earlier_answer_for_a_smaller_budget_competes_whatever_its_welfare(client, programme):
    """Another idea of fairness has answers of its own; they compete among each other only."""
    less = suppose(client, 3.0, welfare="maximin", seconds=2.0)
    more = suppose(client, 4.0, welfare="maximin")
    assert less["welfare"] <= more["welfare"]
    again = suppose(client, 3.0, welfare="maximin")
    assert again["welfare"] >= less["welfare"]
    assert suppose(client, 3.0)["welfare"] == programme.certificate().welfare


def test_the_price_of_fairness_is_told_in_arms_with_a_recommendation(client, programme):
    asked = {"welfares": ["maximin", "maximin over groups"], "price_limit": 0.5, "seconds": 0.1}
    found = answer(client, client.post(f"{P}/fairness", json=asked).json()["id"])
    assert {row["welfare"] for row in found["rows"]} == {"utilitarian", "maximin", "maximin over groups"}
    arms = programme.status().groups
    for row in found["rows"]:
        assert set(row["gaining"]) == set(row["losing"]) == set(row["groups"]) == set(arms)
        assert all(row["gaining"][name] + row["losing"][name] <= arms[name] for name in arms)
    assert found["recommended"]["welfare"] in {row["welfare"] for row in found["rows"]}
    assert found["recommended"]["price"] <= 0.5
    wrong = client.post(f"{P}/fairness", json={"welfares": ["envy"], "seconds": 0.1}).json()["id"]
    for _ in range(1200):
        if (told := client.get(f"/v1/jobs/{wrong}").json())["status"] == "failed":
            break
        time.sleep(0.05)
    assert told["problem"]["status"] == 422
    assert client.post(f"{P}/fairness", json={"price_limit": 2}).status_code == 422


@pytest.mark.slow
def test_an_answer_is_computed_anew_when_a_smaller_budget_has_a_better_plan(client):
    jobs = client.app.state.service.jobs
    more = client.post(f"{P}/what-if", json={"budget": [4], "seconds": HASTE}).json()["id"]
    found = answer(client, more)
    smaller = client.post(f"{P}/what-if", json={"budget": [3.5], "seconds": HASTE}).json()["id"]
    answer(client, smaller)
    jobs.find(more).answer["welfare"] = 0.0  # as if its search had been unlucky
    again = suppose(client, 4.0)
    assert again["welfare"] == found["welfare"]


@pytest.mark.slow
def test_the_page_says_when_nothing_can_be_measured(client):
    heads = {"Accept": "text/html", "Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    form = {"resource": "hours", "budget": "3", "welfare": "utilitarian"}
    where = client.post("/what-if", data=form, headers=heads, follow_redirects=False).headers["location"]
    for _ in range(1200):
        page = client.get(where, headers={"Accept": "text/html"}).text
        if "Supposed" in page and "today 3)" in page:
            break
        time.sleep(0.05)
    told = " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
    before, after = re.search(r"what is fair ([\d.]+) ([\d.]+) no measurable difference", told).groups()
    assert before == after
    assert counterfactual_page.compared("welfare", 1.0, 1.2, measurable=True)[-1] == "+0.200"


def test_a_difference_is_told_in_the_words_of_the_programme():
    def told(today, then, error=0.1, most=None):
        numbers = [(*pair, abs(pair[0] - pair[1]) > error) for pair in zip(today, then, strict=True)]
        states = [StateNumber(name, now, by, error, sure) for name, (now, by, sure) in zip("AB", numbers, strict=True)]
        states[0] = replace(states[0], at_most=most)
        words = Vocabulary.read({"arm": "person, people", "step": "week"})
        return counterfactual_page.people_sentences(states, 60, words)

    assert told((30.0, 30.0), (30.0, 30.0)) == ["No change."]
    assert "No measurable difference" in told((30.0, 30.0), (30.05, 29.95))[0]
    assert "About 2 more people in “A” and 3 fewer in “B”" in told((30.0, 30.0), (32.1, 27.1))[0]
    assert "About 1 fewer person in “A”" in told((30.0, 30.0), (29.0, 30.0))[0]
    assert "at most 5.0 more" in told((30.0, 30.0), (32.0, 28.0), most=35.0)[1]
    assert "at least 1.0 fewer" in told((30.0, 30.0), (28.0, 32.0), most=29.0)[1]
