"""`evenhand act`: a saved plan and a table of arms to a table of actions."""

import csv
import io
import json
import shlex
import sys

import pytest

from ..conftest import mentions

STATES = "arm,type,state\np1,pump,1\nm1,machine,0\nm2,machine,1\n"


@pytest.fixture
def plan(small, evenhand):
    assert evenhand("solve", small, "--out", "plan.zip", "--welfare", "maximin", "--quiet").code == 0
    return small.with_name("plan.zip")


@pytest.fixture
def states(folder):
    file = folder / "monday.csv"
    file.write_text(STATES)
    return file


def test_json_is_that_of_the_contract(plan, states, evenhand):
    told = evenhand("act", plan, states, "--json").json
    assert [row["arm"] for row in told["actions"]] == ["p1", "m1", "m2"]
    assert [row["type"] for row in told["actions"]] == ["pump", "machine", "machine"]
    assert set(told["actions"][0]) == {"arm", "type", "state", "action", "reason"}
    assert told["used"] == {"resource 0": 1}
    assert [row["action"] for row in told["actions"]].count("1") == 1


def test_a_table_that_is_not_there_is_reported_with_what_was_meant(plan, states, evenhand):
    told = evenhand("act", plan, states.with_name("munday.csv")).refusal
    assert mentions("monday.csv")(told)


def test_a_step_after_the_last_is_noted(small, states, evenhand):
    assert evenhand("solve", small, "--criterion", "finite:2", "--out", "steps.zip", "--quiet").code == 0
    assert "note" not in evenhand("act", "steps.zip", states, "--step", "1", "--json").json
    told = evenhand("act", "steps.zip", states, "--step", "2", "--json").json
    assert mentions("step 1", "step 0")(told["note"].replace("step is", "step"))
    assert told["actions"] == evenhand("act", "steps.zip", states, "--step", "0", "--json").json["actions"]


def test_a_part_that_is_not_there_is_reported_with_its_option(plan, states, evenhand):
    (fault,) = evenhand("act", plan, states, "--part", "9", "--json").failure["faults"]
    assert fault["place"] == "--part"


def test_people_see_who_is_served_first(plan, states, evenhand):
    out = evenhand("act", plan, states).out
    lines = [line.split() for line in out.splitlines() if line.strip().startswith(("p1", "m1", "m2"))]
    assert [line[3] for line in lines] == ["1", "0", "0"]
    assert "used: resource 0" in out


def test_out_is_a_table(plan, states, evenhand, folder):
    assert "written to actions.csv" in evenhand("act", plan, states, "--out", "actions.csv").out
    rows = list(csv.DictReader(io.StringIO((folder / "actions.csv").read_text())))
    assert rows == evenhand("act", plan, states, "--json").json["actions"]


@pytest.mark.parametrize("name", ["actions.json", "actions.parquet"])
def test_out_by_its_name(name, plan, states, evenhand, folder):
    assert evenhand("act", plan, states, "--out", name).code == 0
    read = {"actions.json": lambda: json.loads((folder / name).read_text()), "actions.parquet": lambda: rows_of(name)}
    assert read[name]() == evenhand("act", plan, states, "--json").json["actions"]
    assert evenhand("act", plan, name, "--json").code == 0  # what comes out may go in again


def rows_of(name):
    import polars

    return polars.read_parquet(name).to_dicts()


@pytest.mark.parametrize("format", ["csv", "json"])
def test_standard_input(format, plan, states, evenhand, monkeypatch):
    expected = evenhand("act", plan, states, "--json").out
    rows = list(csv.DictReader(io.StringIO(STATES)))
    text = STATES if format == "csv" else json.dumps(rows)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert evenhand("act", plan, "-", "--format", format, "--json").out == expected
    assert "--format csv" in evenhand("act", plan, "-").refusal


def test_every_fault_at_once_and_nothing_written(plan, states, evenhand, files):
    states.write_text("arm,type,state\np1,pmp,1\nm1,machine,9\nm1,machine,0\n")
    before = files()
    told = evenhand("act", plan, states, "--out", "actions.csv").refusal
    assert "monday.csv: 3 faults" in told
    assert mentions('line 2: type "pmp"', '"pump"')(told)
    assert mentions('line 3: "9"', '"machine"')(told)
    assert mentions('line 4: arm "m1"', "line 3")(told)
    assert files() == before


def test_a_table_for_other_numbers_says_how_to_plan_again(plan, states, evenhand, small):
    states.write_text(STATES + "m3,machine,1\n")
    told = evenhand("act", plan, states).refusal
    assert mentions("3 machine", 2)(told)
    assert mentions(f"evenhand solve {small}", "--welfare maximin", f"--initial {states}", f"--out {plan}")(told)


def test_planning_again_retains_the_requested_budget(states, evenhand, small, folder):
    plan = folder / "other.zip"
    evenhand("solve", small, "--welfare", "maximin", "--budget", "2", "--out", plan)
    states.write_text(STATES + "m3,machine,1\n")
    assert mentions("--budget 2 --initial")(evenhand("act", plan, states).refusal)
    assert mentions("--budget 1 --initial")(evenhand("act", plan, states, "--budget", "1").refusal)


def test_planning_again_with_another_budget_than_the_parameter(evenhand, folder, states):
    """What is printed can be typed: the budget is not said twice."""
    plan = folder / "small.zip"
    asked = ("machine-replacement", "-p", "num_arms=3", "-p", "budget=2", "--welfare", "maximin")
    evenhand("solve", *asked, "--out", plan)
    states.write_text("arm,state\n" + "".join(f"m{i},1\n" for i in range(3)))
    told = evenhand("act", plan, states, "--budget", "1").refusal
    command = shlex.split(told.partition("Plan again: evenhand ")[2])
    assert command[:6] == ["solve", "machine-replacement", "-p", "num_arms=3", "--welfare", "maximin"]
    assert evenhand(*command).code == 0
    assert evenhand("act", plan, states).code == 0


def test_a_trained_network_is_a_plan(evenhand, folder, states):
    import numpy as np

    from evenhand.planning import save_policy
    from evenhand.policies import CountNetworkPolicy, Network
    from evenhand.problems import machine_replacement

    weights = [np.eye(4, 6, dtype=np.float32)]
    policy = CountNetworkPolicy(machine_replacement(num_arms=4), Network(weights, [np.arange(6, dtype=np.float32)]))
    save_policy(policy.problem, policy, "net.zip")
    states.write_text("arm,state\n" + "".join(f"m{i},age {1 + i % 3}\n" for i in range(7)))
    told = evenhand("act", "net.zip", states, "--budget", "2", "--json").json
    assert told["used"] == {"resource 0": 2}
    assert mentions("7 machine", 4, "2 units", 1)(told["note"])
    model = ("machine-replacement", "-p", "num_arms=5", "-p", "budget=2")
    played = evenhand("evaluate", *model, "net.zip", "--episodes", "5", "--horizon", "5", "--monte-carlo", "--quiet")
    note = "a network on counts plays any number of arms; here 5 arms, made for 4; 2 of resource 0, made for 1"
    assert played.err == f"note: net.zip: {note}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "x"], "expected a number"),
        (["--budget", "1,2"], "expected 1 number (resource 0), got 2"),
        (["--part", "1"], "not a mixture"),
        (["--out", "no/where.csv"], "does not exist"),
    ],
    ids=str,
)
def test_bad_options(arguments, message, plan, states, evenhand):
    assert message in evenhand("act", plan, states, *arguments).refusal


def test_what_is_not_a_plan(folder, states, evenhand):
    assert "monday.csv" in evenhand("act", states, states).refusal


def test_names_do_not_move_the_cursor(plan, states, evenhand):
    states.write_text(STATES.replace("p1", "p\x1b[31m1"))
    assert "\x1b" not in evenhand("act", plan, states).out
    assert evenhand("act", plan, states, "--json").json["actions"][0]["arm"] == "p\x1b[31m1"
    states.write_text(STATES.replace("pump", "\x1b[31m"))
    assert "\x1b" not in evenhand("act", plan, states).refusal


def test_swapped_arguments_are_reported(plan, states, evenhand):
    told = evenhand("act", states, plan).refusal
    assert mentions("PLAN", "STATES")(told)
    assert shlex.join(["evenhand", "act", str(plan), str(states)]) in told


@pytest.mark.parametrize(("name", "hint"), [("todo.xlsx", "a spreadsheet opens a table in CSV"), ("todo.pdf", ".json")])
def test_a_name_that_promises_another_format_is_refused(plan, states, folder, evenhand, name, hint):
    told = evenhand("act", plan, states, "--out", name).refusal
    assert f"--out: {name}" in told and hint in told
    assert not (folder / name).exists()


def test_a_new_make_is_reported_with_what_to_do(plan, states, evenhand):
    states.write_text(STATES + "x1,Fresenius,0\n")
    assert "a new plan" in evenhand("act", plan, states).refusal
    states.write_text(STATES + "x1,pumpp,0\n")
    told = evenhand("act", plan, states).refusal
    assert '"pump"?' in told and "a new plan" not in told
