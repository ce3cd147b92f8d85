"""The view of today by plain HTTP: what is recorded stays recorded, and what is typed is not lost without a word."""

import re
from html import unescape

import pytest

HTML = {"Accept": "text/html"}


def send(client, path, data=None, files=None):
    heads = HTML | {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    return client.post(path, data=data, files=files, headers=heads, follow_redirects=False)


def words(answer):
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def look(client, path="/"):
    return client.get(path, headers=HTML)


def row_of(answer, arm):
    return re.search(rf'<tr data-arm="{arm}".*?</tr>', answer.text, re.S).group()


@pytest.fixture
def accepted(programme):
    """The number of a plan that was just accepted."""
    plan = programme.plan(who="Ada").plan
    programme.accept(plan, [], who="Ada")
    return plan


def last_done(programme):
    return {row[0]: row[2] for row in programme.events()[-1].body["done"]}


def test_recording_again_writes_only_what_is_new(client, programme, accepted):
    programme.record([{"arm": "v1", "action": "oil", "reward": 0.5}], "another tab")
    assert send(client, "/today/record", {"plan": accepted, "how": "accepted"}).status_code == 303
    assert set(last_done(programme)) == {"b1", "b2", "h1", "h2"}
    again = {"plan": accepted, "how": "accepted", "change-arm": "b1", "change-action": "oil"}
    assert send(client, "/today/record", again).status_code == 303
    assert last_done(programme) == {"b1": "oil"}
    other = again | {"change-arm": "v1", "change-action": "run"}
    assert send(client, "/today/record", other).status_code == 303
    assert programme.events()[-1].body["done"] == [["v1", 0, "run", 0.5, None]]
    assert sorted(programme.recorded(0).values()).count("oil") >= 1


def test_recording_what_is_recorded_is_refused_and_writes_nothing(client, programme, accepted):
    for _ in range(2):
        kept = send(client, "/today/record", {"plan": accepted, "how": "accepted", "key": "page-7"})
        assert kept.status_code == 303
    before = programme.status().events
    answer = send(client, "/today/record", {"plan": accepted, "how": "accepted"})
    assert answer.status_code == 409
    assert "recorded already" in words(answer)
    assert programme.status().events == before
    unknown = {"plan": accepted, "how": "accepted", "change-arm": "b7", "change-action": "oil"}
    assert "b7" in words(send(client, "/today/record", unknown))


def test_only_accepted_plans_are_recorded(client, programme):
    plan = programme.plan().plan
    answer = send(client, "/today/record", {"plan": plan, "how": "accepted"})
    assert answer.status_code == 409
    assert "is not accepted" in words(answer)


def test_today_shows_what_was_recorded(client, programme, accepted):
    assert "All was done as accepted? Then say so" in words(look(client))
    programme.record([{"arm": "v1", "action": "oil"}], "crew")
    page = look(client)
    assert "1 of 5 arms are recorded, and stay so" in words(page)
    assert "done otherwise: oil" in row_of(page, "v1") or "recorded as done" in row_of(page, "v1")
    assert 'data-action="oil"' in row_of(page, "v1")
    assert "recorded as done" not in row_of(page, "b1")
    send(client, "/today/record", {"plan": accepted, "how": "accepted"})
    page = look(client)
    assert "recorded as done" in row_of(page, "b1")
    assert "All was done as accepted?" not in words(page)
    assert "Record the corrections" in words(page)


def test_steps_that_were_never_recorded_stay_in_sight(client, programme, accepted):
    assert "Not recorded yet" not in words(look(client))
    programme.record([{"arm": "v1", "action": "oil"}], "crew")
    programme.accept(programme.plan().plan, [])
    assert "Step 0: 4 arms Done as accepted" in words(look(client))
    assert send(client, "/today/record", {"plan": accepted, "how": "accepted"}).status_code == 303
    assert "Not recorded yet" not in words(look(client))
    assert programme.recorded(0).keys() == {row.arm_id for row in programme.plan_of(accepted).rows}
