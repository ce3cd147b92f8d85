"""evenhand check: what a model says, what looks odd, and every fault if it is not sound."""

import pytest

from ..conftest import mentions

VANS = """
discount = 0.95
budget = [1]
resources = ["bays"]
[[arms]]
name = "Ford"
states = ["good", "poor"]
actions = ["drive", "repair"]
count = 30
transitions = [[[0.8, 0.2], [1, 0]], [[0, 1], [0.6666667, 0.3333334]]]
rewards = [[1, 1], [0, 0]]
usage = [[0], [1]]
initial = [1, 0]
"""


@pytest.fixture
def vans(folder):
    (folder / "vans.toml").write_text(VANS)
    return "vans.toml"


def test_it_shows_what_the_model_says(vans, evenhand):
    told = evenhand("check", vans, "--welfare", "utilitarian")
    assert (told.code, told.err) == (0, "")
    lines = [" ".join(line.split()) for line in told.out.splitlines()]
    assert mentions("vans.toml")(lines[0])
    assert mentions("arms 30")(lines)
    assert mentions(1)(lines)
    assert "can be served every arm" in lines
    (row,) = [line for line in lines if line.startswith("0 Ford")]
    assert mentions(0, "Ford", "30 good")(row)
    assert mentions("Ford", "poor", "repair", 1.0000001)(lines[-1])
    assert lines[-1].endswith("and were divided by that")


def test_as_json(vans, evenhand):
    found = evenhand("check", vans, "--welfare", "gini:2", "--json").json
    assert found["sound"] is True
    assert found["welfare"] == {"name": "gini:2", "weight_of_worst_tenth": pytest.approx(0.875)}
    assert found["resources"] == [{"name": "bays", "budget": 1.0, "most_used": 1.0}]
    (facts,) = found["types"]
    assert (facts["name"], facts["count"], facts["served_by"]) == ("Ford", 30, ["repair"])
    (note,) = found["notes"]
    assert (note["kind"], note["places"]) == ("normalised", ["arms[0].transitions[1][1]"])


def test_options_take_the_place_of_what_the_file_says(vans, evenhand):
    def kinds(*options):
        return [note["kind"] for note in evenhand("check", vans, "--json", *options).json["notes"]][1:]

    assert kinds("--welfare", "gini:9") == ["nearly-maximin"]
    assert kinds("--welfare", "utilitarian", "--budget", "30") == ["never-binding"]
    assert kinds("--welfare", "utilitarian", "--budget", "bays=0.5") == ["over-budget", "never-served"]
    assert kinds("--welfare", "utilitarian", "--criterion", "finite:1") == ["never-helped", "unreached"]
    assert evenhand("check", vans, "--over", "groups", "--json").json["over"] == "groups"


def test_faults_end_with_2(folder, evenhand):
    (folder / "vans.toml").write_text(VANS.replace("[1, 0]]", "[0.9, 0]]").replace("0.95", "0,95"))
    assert "invalid TOML" in evenhand("check", "vans.toml").refusal
    (folder / "vans.toml").write_text(VANS.replace("[1, 0]]", "[0.9, 0]]").replace("0.95", "1.95"))
    told = evenhand("check", "vans.toml").refusal
    assert mentions("Ford", "good", "repair", "vans.toml", "2 faults", 0.9, "discount", 1.95)(told)


def test_a_built_in_problem(evenhand):
    found = evenhand("check", "machine-replacement", "-p", "num_arms=3", "--json").json
    assert (found["model"], found["arms"], found["notes"]) == ("machine-replacement", 3, [])


def test_only_one_budget(vans, evenhand):
    assert "--budget: expected one" in evenhand("check", vans, "--budget", "1", "--budget", "2").refusal


def test_records_are_not_a_model(folder, evenhand):
    (folder / "log.csv").write_text("van,week\nv1,1\n")
    told = evenhand("check", "log.csv")
    assert told.code == 2 and mentions("log.csv")(told.err)
