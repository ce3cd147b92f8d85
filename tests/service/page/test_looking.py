"""Looking back, ahead and at the model, by plain HTTP: what these views say, and what they do not claim."""

import base64
import re
import shutil
import time
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

from evenhand.programme import Programme, audit, refit
from evenhand.programme.audit import _inequality
from evenhand.programme.audit_report import _is_outside
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web import arms_page, counterfactual_page, render

HTML = {"Accept": "text/html"}


def send(client, path, data=None):
    heads = HTML | {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    return client.post(path, data=data, headers=heads, follow_redirects=False)


def words(answer):
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def look(client, path):
    answer = client.get(path, headers=HTML)
    assert answer.status_code == 200, answer.text
    return words(answer)


@pytest.fixture
def ran(lived, tmp_path):
    """A programme after some steps."""
    where = shutil.copy(lived, tmp_path / "ran.db")
    with Programme.open(where) as programme:
        yield programme


def test_few_observations_are_not_beyond_chance():
    row = refit.Moved("big", "fine", "run", "broken", before=0.0, after=0.2, lower=0.05, upper=0.4, seen=1)
    assert not row.is_beyond_chance
    assert replace(row, seen=40).is_beyond_chance
    assert not replace(row, seen=40, before=0.1).is_beyond_chance


@pytest.mark.slow
def test_a_model_is_adopted_when_that_is_confirmed_and_there_is_a_way_back(ran, serving):
    client, first = serving(ran), ran.status().model
    fit = ran.refit(seconds=2.0)
    page = look(client, "/model")
    assert "today’s plan" in page
    assert 'data-head="in use"' in client.get("/model", headers=HTML).text
    assert "Go back" not in page.replace("you can go back", "")
    refused = send(client, "/model/adopt", {"refit": fit.id})
    assert refused.status_code == 422
    assert "tick the box" in words(refused)
    assert ran.status().model == first
    told = look(client, send(client, "/model/adopt", {"refit": fit.id, "sure": "yes"}).headers["location"])
    assert f"Fit {fit.id} is in use" in told
    assert "the model in use" not in told
    assert 'data-head="in use"' not in client.get("/model", headers=HTML).text
    assert "What would change" not in told
    assert "Adopt this model" not in told
    back = look(client, send(client, "/model/adopt", {"refit": 0, "sure": "yes"}).headers["location"])
    assert ran.status().model == first
    assert "Adopt this model" in back
    assert f"fit {fit.id}, from" in back


def test_conditions_of_need_are_chosen_and_open_the_audit(ran, serving):
    client = serving(ran)
    assert "Not chosen yet" in look(client, "/model")
    told = look(client, send(client, "/model/need", {"state": "broken", "who": "Ada"}).headers["location"])
    assert "In need means now: broken" in told
    assert ran.need() == ("broken",)
    page = look(client, "/fairness")
    first = ran.audit().verdict.need[0]
    assert page.index(first) < page.index("Gini")
    refused = send(client, "/model/need", {"state": "lost"})
    assert refused.status_code == 422


@pytest.mark.slow
def test_a_model_that_is_offered_is_reported_on_every_view_and_declined_with_a_reason(ran, serving):
    client, model = serving(ran), ran.status().model
    assert "no longer fits" not in look(client, "/")
    fit = ran.refit(seconds=0.1, who="server", why=["arms do not move as the model says", "faster wear"])
    for path in ("/", "/fairness", "/what-if", "/arms", "/model"):
        assert 'id="offered"' in client.get(path, headers=HTML).text
    ran.refit(seconds=0.1)  # asked for by somebody since: the one that is offered is shown all the same
    page = look(client, "/model")
    assert f"Fit {fit.id} was made" in page
    assert "faster wear" in page
    refused = send(client, "/model/decline", {"refit": fit.id, "why": " "})
    assert refused.status_code == 422
    assert "why" in words(refused)
    done = send(client, "/model/decline", {"refit": fit.id, "why": "a bad winter", "who": "Ada"})
    told = look(client, done.headers["location"])
    assert f"Fit {fit.id} is declined" in told
    assert "no longer fits" not in told
    assert ran.status().model == model
    assert ran.events()[-1].body == {"refit": fit.id, "why": "a bad winter"}


def test_a_name_close_to_an_existing_one_needs_confirmation(client, programme):
    form = {"how": "one", "arm": " B1", "kind": "0", "state": "fine", "who": "Ada"}
    asked = send(client, "/arms/join", form)
    assert asked.status_code == 409
    assert "almost like 'b1'" in words(asked).replace('"', "'")
    assert "Yes, that is meant" in words(asked)
    assert "log as Ada" in words(asked)
    assert len(programme.arms()) == 5
    assert send(client, "/arms/join", form | {"sure": "yes"}).status_code == 303
    assert len(programme.arms()) == 6
    table = {"how": "table", "text": "arm,type,group,state\nH1,small,hill,fine\n"}
    asked = send(client, "/arms/join", table)
    assert asked.status_code == 409
    assert "H1,small,hill,fine" in asked.text
    assert send(client, "/arms/join", table | {"sure": "yes"}).status_code == 303


def test_one_who_left_joins_again_knowingly(client, programme):
    send(client, "/arms/leave", {"arm": "b1", "why": "sold"})
    asked = send(client, "/arms/join", {"how": "one", "arm": "b1", "kind": "0"})
    assert "step 0: sold" in words(asked)
    page = client.get("/arms/one?arm=b1", headers=HTML)
    assert "Take part again" in words(page)
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text.split("/arms/join")[1]))
    assert send(client, "/arms/join", form | {"state": "worn"}).status_code == 303
    (back,) = [arm for arm in programme.arms() if arm.name == "b1"]
    assert (back.type, back.left_step) == ("big", None)


def test_the_page_of_an_arm_has_the_open_plan_and_how_old_its_condition_is(client, programme):
    number = programme.plan().plan
    rows = programme.plan_of(number).rows
    page = look(client, f"/arms/one?arm={rows[0].arm}")
    assert f"{rows[0].action}, not yet accepted" in page
    assert "Served 0 times in" in page
    programme.accept(number, who="Ada")
    told = look(client, f"/arms/one?arm={rows[0].arm}")
    assert "1 step ago" in told
    assert "times in 1 step" in told


def test_the_log_says_who_wrote_it(client, programme):
    send(client, "/arms/seen", {"arm": "b1", "state": "worn", "step": "0", "source": "phone", "who": "Ada"})
    page = look(client, "/arms/one?arm=b1")
    assert "Ada says phone" in page
    assert [entry.who for entry in programme.history("b1") if entry.source == "phone"] == ["Ada"]


def test_fairness_says_what_is_not_known_and_has_the_report(ran, serving):
    pytest.importorskip("matplotlib")
    client = serving(ran)
    page = look(client, "/fairness")
    assert "not known" in page
    assert "without a record" in page
    assert "step 2 to step 2" in client.get("/fairness/report?first=2&last=2").text
    report = client.get("/fairness/report?first=0&last=3", headers=HTML)
    assert report.headers["content-disposition"].startswith("attachment")
    assert "step 0 to step 3" in report.text
    served = re.search(r"Served (\d+)", page)[1]
    assert f"<dd>{served} time" in client.get("/fairness/report").text


def test_chance_is_not_held_against_what_was_decided_otherwise():
    earned = audit.Earned(0.5, 1.0, 0.9, 1.1, overrides=-0.5, undone=0.0, moves=0.0, rewards=0.0)
    assert not _is_outside(earned)
    assert _is_outside(audit.Earned(0.5, 1.0, 0.9, 1.1, overrides=0.0, undone=0.0, moves=-0.5, rewards=0.0))


def test_the_worst_off_was_there_for_long():
    values, steps = np.array([0.5, 0.0, 0.4]), np.array([10.0, 1.0, 6.0])
    found = _inequality(values, ["a", "b", "c"], steps)
    assert (found.worst_off, found.worst) == ("c", 0.4)
    assert _inequality(values, ["a", "b", "c"]).worst_off == "b"


def test_a_difference_is_one_that_can_be_seen():
    assert counterfactual_page.compared("mean", 9.33405, 9.33411)[-1] == "0"
    assert counterfactual_page.compared("mean", 9.334, 9.339)[-1] == "+0.00500"
    assert counterfactual_page.compared("mean", 9.5, 8.0)[-1] == "-1.50"


@pytest.mark.parametrize(
    "svg",
    [
        lambda name: counterfactual_page.change_svg({name: 6.4, "dale": 6.2}, {name: 6.2, "dale": 6.4}),
        lambda name: arms_page.states_svg(
            name,
            [
                {"step": 0, "state": "fine", "seen": "observed", "served": False},
                {"step": 1, "state": "worn", "seen": None, "served": True},
            ],
            ("fine", "worn"),
            Vocabulary(),
        ),
        lambda name: arms_page.states_svg(name, [], ("fine",), Vocabulary()),
    ],
)
def test_figures_are_images_with_an_escaped_label(svg):
    name = '<script>alert("1")</script>&'
    drawn = str(render.image(svg(name)))
    element = ElementTree.fromstring(drawn.replace(">", "/>"))
    assert name in element.get("alt") or "dale" in element.get("alt")
    kind, _, data = element.get("src").partition(",")
    assert kind == "data:image/svg+xml;base64"
    root = ElementTree.fromstring(base64.b64decode(data))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_ideas_go_from_the_mean_to_the_worst_off(programme):
    names = ("maximin", "gini:half=0.75", "utilitarian", "gini:2")
    ordered, is_scale = counterfactual_page.in_order(names, programme)
    assert is_scale
    assert (ordered[0], ordered[-1]) == ("utilitarian", "maximin")
    assert not counterfactual_page.in_order(("alpha:2", "maximin"), programme)[1]


def test_what_was_supposed_is_there_when_one_comes_back(ran, serving):
    client = serving(ran)
    where = send(client, "/what-if", {"resource": "hours", "budget": "4", "welfare": "utilitarian"}).headers["location"]
    for _ in range(600):
        if "(today 3)" in look(client, where):
            break
        time.sleep(0.1)
    assert "(today 3)" in look(client, "/what-if")


def test_a_typed_name_is_shown_and_remembered(client):
    assert "the log as" not in look(client, "/arms")
    send(client, "/arms/seen", {"arm": "b1", "state": "worn", "step": "0", "source": "phone", "who": "Ada"})
    assert "log as Ada" in look(client, "/arms/one?arm=b1")
    assert 'name="who"' in client.get("/arms", headers=HTML).text
