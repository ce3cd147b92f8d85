"""`evenhand programme audit`: words, JSON, a table, a page; and its refusals."""

import csv
import math
import re
from pathlib import Path

import pytest

from evenhand.problems import machine_replacement
from evenhand.programme import Programme

from ..conftest import mentions


@pytest.fixture
def audited(folder):
    """Three steps of four machines, the second with an override, whose reason is not safe to stand in a page."""
    roster = [{"arm": f"m{i}", "state": i % 3} for i in range(4)]
    with Programme.create("m.db", machine_replacement(num_arms=4), roster, welfare="gini:2") as programme:
        programme.solve(seconds=1e-3)
        for step in range(3):
            planned = programme.plan()
            served = next(row.arm for row in programme.plan_of(planned.plan).rows if row.served)
            otherwise = [{"arm": served, "action": "0", "why": "<b>away</b>"}] if step == 1 else ()
            programme.accept(planned.plan, otherwise, who="Ann")
            states = [{"arm": f"m{i}", "state": (i + step) % 3} for i in range(4) if i != 3]
            programme.observe(states, "rounds")


def test_words_json_table_and_page(audited, evenhand):
    told = evenhand("programme", "audit", "m.db", "--csv", "arms.csv", "--report", "audit.html")
    assert told.code == 0
    assert mentions("1 decision")(told.out)
    assert "report: audit.html" in told.out
    found = evenhand("programme", "audit", "m.db", "--json").json
    rows = list(csv.DictReader(Path("arms.csv").read_text().splitlines()))
    assert [row["arm"] for row in rows] == ["m0", "m1", "m2", "m3"]
    for row, arm in zip(rows, found["arms"], strict=True):
        assert math.isclose(float(row["realised"]), arm["earned"]["realised"])
        assert int(row["served"]) == arm["service"]["served"]
    page = Path("audit.html").read_text()
    assert "&lt;b&gt;away&lt;/b&gt;" in page
    assert "<b>away</b>" not in page
    assert len(re.findall("<svg", page)) == 2
    assert not re.findall(r"<script|src=|https?://(?!www\.w3\.org)", page)


def test_a_report_does_not_tell_the_password_of_the_database(audited, evenhand, monkeypatch):
    """Everybody who is handed the report would have it: the address is as the store tells it, not as it was typed."""
    monkeypatch.setattr("sys.argv", ["evenhand", "programme", "audit", "sqlite:///m.db", "--report", "audit.html"])
    assert evenhand("programme", "audit", "sqlite:///m.db", "--report", "audit.html").code == 0
    page = Path("audit.html").read_text()
    assert "sqlite:///m.db" not in page
    assert mentions("evenhand", "programme", "audit", "m.db", "--report", "audit.html")(page)


def test_some_steps_and_as_it_was_known(audited, evenhand):
    part = evenhand("programme", "audit", "m.db", "--from", 1, "--to", 1, "--json").json
    assert {row["service"]["steps"] for row in part["arms"]} == {1}
    assert len(part["overrides"]) == 1
    then = evenhand("programme", "audit", "m.db", "--as-of", 5, "--json").json
    assert (then["last"], then["event"]) == (0, 5)


def test_refusals(audited, evenhand):
    for asked, words in (
        (["--to", 9], "9"),
        (["--from", 2, "--to", 1], "2 to 1"),
        (["--as-of", 999], "the last event"),
        (["--csv", "nowhere/arms.csv"], "--csv"),
    ):
        told = evenhand("programme", "audit", "m.db", *asked)
        assert told.code == 2
        assert words in told.err
    assert not Path("nowhere").exists()


def test_states_of_need_by_command(audited, evenhand):
    assert evenhand("programme", "need", "m.db", "--json").json == {"states": []}
    assert evenhand("programme", "need", "m.db", "age 3", "--who", "Ann", "--json").json == {"states": ["age 3"]}
    found = evenhand("programme", "audit", "m.db", "--json").json
    assert (found["need"], found["need_by"]) == (["age 3"], "set")
    assert found["verdict"]["need"][0] in evenhand("programme", "audit", "m.db").out
    refused = evenhand("programme", "need", "m.db", "lost", "gone")
    assert refused.code == 2
    assert mentions("lost", "gone", "age 3")(refused.err)
    assert evenhand("programme", "need", "m.db", "age 1", "--clear").code == 2
    assert evenhand("programme", "need", "m.db", "--clear", "--json").json == {"states": []}
