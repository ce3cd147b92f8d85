"""`evenhand programme ...`: every command once, on a file, and its refusals."""

import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.cli import application
from evenhand.programme import cycle

from ..conftest import mentions


@pytest.fixture
def begun(folder, monkeypatch, evenhand):
    """A programme of machines that was just created, in the present folder."""
    real = cycle.solve

    def hurried(problem, method, **asked):
        return real(problem, method=replace(method, seconds=0.2), **asked)

    monkeypatch.setattr(cycle, "solve", hurried)
    Path("roster.csv").write_text("arm,type,state\n" + "".join(f"m{i},machine,{i % 3}\n" for i in range(4)))
    made = evenhand("programme", "create", "m.db", "machine-replacement", "--roster", "roster.csv", "--json").json
    assert made["arms"] == {"machine": 4}
    return lambda *arguments: evenhand("programme", *arguments, "--json").json


def test_a_week(begun):
    plan = begun("plan", "m.db", "--budget", "1", "--out", "plan.csv", "--quiet")
    assert plan["status"] == "proposed"
    rows = list(csv.DictReader(Path("plan.csv").read_text().splitlines()))
    assert [row["action"] for row in rows] == [row["action"] for row in plan["rows"]]
    served = next(row["arm"] for row in plan["rows"] if row["served"])
    done = begun("accept", "m.db", "--override", served, "0", "away")
    assert (done["plan"], done["overridden"]) == (1, 1)
    Path("done.csv").write_text(f"arm,action,next_state\n{served},1,0\n")
    assert begun("record", "m.db", "done.csv")["differing"] == 1
    Path("seen.csv").write_text("arm,state\nm0,1\nm1,1\n")
    assert begun("observe", "m.db", "seen.csv", "--key", "k")["observations"] == 2
    assert begun("solve", "m.db", "--seconds", "0.2", "--quiet")["any_number"]
    Path("more.csv").write_text("arm,type\nm9,machine\n")
    assert begun("join", "m.db", "more.csv")["arms"] == ["m9"]
    assert begun("leave", "m.db", "m9", "--why", "sold")["step"] == 1
    history = begun("history", "m.db", served)["history"]
    assert {"joined", "seen", "decided", "recorded"} <= {entry["kind"] for entry in history}
    refit = begun("refit", "m.db", "--seconds", "0.2", "--quiet")
    assert refit["rows"] > 4
    assert begun("adopt", "m.db", str(refit["id"]))["adopted_event"]
    assert begun("recompute", "m.db")["same"]
    head = begun("verify", "m.db", "--export", "head.json")
    assert head == json.loads(Path("head.json").read_text())
    assert begun("verify", "m.db", "--head", "head.json") == head
    events = begun("events", "m.db")["events"]
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    status = begun("status", "m.db")
    assert status["events"] == len(events)
    assert status["certificate"]["policy"] == refit["policy"]


@pytest.mark.slow
def test_in_words(begun, evenhand):
    def words(*arguments):
        return evenhand("programme", *arguments).out

    begun("plan", "m.db", "--quiet")
    assert mentions("plan 1", "step 0")(words("plan", "m.db"))
    assert mentions("4 machine", "4 seen")(words("status", "m.db"))
    assert mentions("plan 1", "step 0")(words("accept", "m.db"))
    assert "decided" in words("history", "m.db", "m0")
    assert "accepted" in words("events", "m.db")
    assert mentions("1 plan")(words("recompute", "m.db"))
    assert "tables follow from" in words("verify", "m.db")


def test_a_programme_that_was_edited_by_hand_or_cut_is_refused(begun, evenhand):
    begun("verify", "m.db", "--export", "head.json")
    head = json.loads(Path("head.json").read_text())
    Path("longer.json").write_text(json.dumps(head | {"event": head["event"] + 1}))
    cut = evenhand("programme", "verify", "m.db", "--head", "longer.json")
    assert (cut.code, f"events, id {head['event'] + 1}" in cut.err) == (2, True)
    with closing(sqlite3.connect("m.db")) as database:
        database.execute("UPDATE observations SET state = '1' WHERE id = 1")
        database.commit()
    edited = evenhand("programme", "verify", "m.db")
    assert (edited.code, mentions("id 1")(edited.err)) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("accept", "m.db"), "programme plan"),
        (("accept", "m.db", "7"), "plan: unknown number 7"),
        (("adopt", "m.db", "7"), "refit: unknown number 7"),
        (("history", "m.db", "m7"), 'there is no arm "m7"'),
        (("plan", "m.db", "--step", "3"), "step 3 is not the present one, which is step 0"),
        (("plan", "none.db"), "programme create"),
        (("observe", "m.db", "none.csv"), "cannot be read"),
        (("refit", "m.db"), "no arm was seen twice"),
    ],
)
def test_refusals(begun, evenhand, arguments, told):
    assert told in evenhand("programme", *arguments).refusal


def test_every_command_says_what_it_does():
    group = application.get_command(None, "programme")
    assert {"create", "status", "plan", "accept", "record", "observe", "refit", "adopt"} <= set(group.commands)
    assert all(command.help for command in group.commands.values())


def test_commands_speak_the_words_of_the_programme(begun, evenhand):
    Path("roster.csv").write_text(
        "yurt,type,steppe,condition\n" + "".join(f"y{i},machine,machine,{i % 3}\n" for i in range(3))
    )
    Path("words.toml").write_text(
        'arm = "yurt"\nstart = 2026-06-29\nperiod = "week"\n[resources]\n"resource 0" = "yak"\n'
    )
    words = ("--words", "words.toml", "--word", "group=steppe")
    create = ("create", "y.db", "machine-replacement", "--roster", "roster.csv", *words, "--seed", "1")
    outs = [evenhand("programme", *create).out]
    assert evenhand("programme", "words", "y.db", "--json").json["resources"] == {"resource 0": "yak"}
    Path("seen.csv").write_text("Yurt,Condition,Week\ny0,2,2026-07-05\n")
    Path("bad.csv").write_text("yurt,condition\ny9,2\ny1,x\n")
    Path("done.csv").write_text("yurt,action,next_condition\ny0,1,0\n")
    runs = [
        ("status",), ("observe", "seen.csv"), ("solve", "--seconds", "0.2", "--quiet"),
        ("plan", "--step", "2026-07-01", "--out", "plan.csv", "--quiet"), ("accept", "--override", "y1", "0", "away"),
        ("record", "done.csv"), ("history", "y0"),
        ("audit", "--from", "2026-06-29", "--csv", "audit.csv", "--report", "a.html"),
        ("refit", "--seconds", "0.2", "--quiet"), ("refits",), ("adopt", "1"), ("bounds",), ("recompute",), ("verify",),
        ("events",), ("leave", "y2", "--why", "sold"), ("status",),
    ]  # fmt: skip
    for name, *arguments in runs:
        done = evenhand("programme", name, "y.db", *arguments)
        assert done.code == 0, done.err
        outs.append(done.out)
    for name, *arguments in (("observe", "bad.csv"), ("audit", "--to", "2027-01-01"), ("plan", "--step", "9")):
        outs.append(evenhand("programme", name, "y.db", *arguments).refusal)
    page = re.sub(r"<style.*?</style>|<[^>]*>", " ", Path("a.html").read_text(), flags=re.DOTALL)
    for out in (*outs, Path("audit.csv").read_text(), Path("plan.csv").read_text(), page):
        assert re.findall(r".*\b(?:arm|group|step)s?\b.*", out, re.IGNORECASE) == []
    assert "week of 29 June 2026" in outs[1]
    assert "1 yak per week" in outs[1]
    assert Path("plan.csv").read_text().startswith("yurt,type,steppe,condition,known,seen_week")


def test_a_terminal_is_asked_for_the_words(folder, evenhand, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    Path("roster.csv").write_text("yurt,type\ny1,machine\n")
    create = ("machine-replacement", "--roster", "roster.csv")
    monkeypatch.setattr("sys.stdin", Terminal("yurt\n\nyak\nwarm nights\nfortnight\nweek\n2026-06-29\n"))
    asked = evenhand("programme", "create", "y.db", *create)
    assert asked.code == 0, asked.err
    found = evenhand("programme", "words", "y.db", "--json").json
    assert found == {
        "arm": "yurt", "group": "group", "step": "week", "value": "warm nights", "resources": {"resource 0": "yak"},
        "start": "2026-06-29", "period": "week",
    }  # fmt: skip
    for silent in ("--quiet", "--json"):
        monkeypatch.setattr("sys.stdin", Terminal(""))
        assert evenhand("programme", "create", f"said{silent}.db", *create, "--word", "arm=yurt", silent).code == 0
        assert evenhand("programme", "create", f"unsaid{silent}.db", *create, silent).code == 2  # no column arm
