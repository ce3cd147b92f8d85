"""Looking back, ahead and at the model, by plain HTTP: what these views say, and what they do not claim."""

import re
import shutil
from dataclasses import replace
from html import unescape

import pytest

from evenhand.programme.programme import Programme
from evenhand.programme.refitting import Moved

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
    row = Moved("big", "fine", "run", "broken", before=0.0, after=0.2, lower=0.05, upper=0.4, seen=1)
    assert not row.is_beyond_chance
    assert replace(row, seen=40).is_beyond_chance
    assert not replace(row, seen=40, before=0.1).is_beyond_chance


def test_a_model_is_adopted_when_that_is_confirmed_and_there_is_a_way_back(ran, serving):
    client, first = serving(ran), ran.status().model
    fit = ran.refit(seconds=2.0)
    page = look(client, "/model")
    assert "What would change in today’s plan" in page
    assert "In use" in page
    assert "Go back" not in page.replace("you can go back", "")
    refused = send(client, "/model/adopt", {"refit": fit.id})
    assert refused.status_code == 422
    assert "tick the box" in words(refused)
    assert ran.status().model == first
    told = look(client, send(client, "/model/adopt", {"refit": fit.id, "sure": "yes"}).headers["location"])
    assert f"Fit {fit.id} is in use" in told
    assert "the model in use" not in told
    assert "In use" not in told
    assert "What would change" not in told
    assert "Adopt this model" not in told
    back = look(client, send(client, "/model/adopt", {"refit": 0, "sure": "yes"}).headers["location"])
    assert "The model that the programme began with is in use" in back
    assert ran.status().model == first
    assert "Adopt this model" in back
    assert f"fit {fit.id}, from" in back
