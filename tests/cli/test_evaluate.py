"""`evenhand evaluate`: one policy, arm by arm."""

import numpy as np
import pytest

from evenhand.planning import REGISTRY

from ..conftest import mentions

KEYS = {
    "welfare", "welfare_stderr", "plug_in_welfare", "mean", "mean_stderr", "worst", "values", "gini_coefficient",
    "budget_used", "exact", "truncation_bound",
}  # fmt: skip

QUICK = ["--episodes", 20, "--horizon", 20]


def test_exact(small, evenhand):
    found = evenhand("evaluate", small, "random", "--welfare", "gini:2", "--json").json
    assert set(found) >= KEYS
    assert found["exact"] is True
    assert found["welfare_stderr"] == found["mean_stderr"] == found["truncation_bound"] == 0
    assert len(found["values"]) == 3
    assert found["values"][0] == found["values"][1]
    assert found["mean"] == pytest.approx(np.mean(found["values"]))
    assert found["worst"] == min(found["values"])
    assert found["welfare"] == pytest.approx(np.sort(found["values"]) @ [4 / 7, 2 / 7, 1 / 7])


def test_simulated_figures_agree_with_exact_ones(small, evenhand):
    exact = evenhand("evaluate", small, "random", "--json").json
    found = evenhand("evaluate", small, "random", "--monte-carlo", "--horizon", 200, "--json").json
    assert found["exact"] is False
    for key in ("welfare", "mean"):
        error = found[f"{key}_stderr"]
        assert error > 0
        assert found[key] == pytest.approx(exact[key], abs=4.5 * error + found["truncation_bound"])
    assert found["plug_in_welfare"] <= found["mean"]
    assert found["truncation_bound"] == pytest.approx(0.9**200 / 0.1)


def test_the_same_seed_gives_the_same_figures(small, evenhand, timeless):
    first, again, other = (
        timeless(evenhand("evaluate", small, "random", *QUICK, "--monte-carlo", "--seed", seed, "--json").json)
        for seed in (3, 3, 4)
    )
    assert first == again
    assert first["mean"] != other["mean"]


@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name)
def test_every_policy_goes_by_its_name_and_abbreviation(entry, small, evenhand, timeless):
    average = entry.name in ("set-expansion", "two-set")  # for identical arms under the average
    identical = ["machine-replacement", "-p", "num_arms=3", *(["--criterion", "average"] if average else [])]
    model = identical if average or entry.name == "cp-drl" else [small]  # what it was trained on
    found = [evenhand("evaluate", *model, name, *QUICK, "--json") for name in (entry.name, entry.abbreviation)]
    assert timeless(found[0].json) == timeless(found[1].json)


def test_compare_says_the_same(small, evenhand):
    (row,) = (row for row in evenhand("compare", small, *QUICK, "--json").json["rows"] if row["policy"] == "myopic")
    found = evenhand("evaluate", small, "myopic", "--json").json
    shared = set(row) & set(found) - {"seconds"}
    assert shared >= {"welfare", "mean", "worst", "gini_coefficient", "budget_used"}
    assert {key: row[key] for key in shared} == {key: found[key] for key in shared}


@pytest.mark.parametrize("options", [[], ["--monte-carlo"]], ids=["exact", "monte-carlo"])
def test_the_text_has_the_figures_and_the_types(options, small, evenhand):
    shown = evenhand("evaluate", small, "random", *QUICK, *options)
    assert (shown.code, shown.err) == (0, "")
    found = evenhand("evaluate", small, "random", *QUICK, *options, "--json").json
    for value in (found["welfare"], found["mean"], found["worst"], *found["values"]):
        assert f"{value:.4f}" in shown.out
    assert "machine" in shown.out
    assert "pump" in shown.out
    assert ("exact" in shown.out) == (not options)
    assert ("interval" in shown.out) == bool(options)


def test_many_arms_are_cut_short_in_text_only(evenhand):
    command = ["evaluate", "heterogeneous-machine-replacement", "-p", "num_arms=30", "random", *QUICK]
    assert "10 more" in evenhand(*command).out
    assert len(evenhand(*command, "--json").json["values"]) == 30


def test_an_undefined_gini_coefficient_is_null(folder, evenhand):
    arm = "[[arms]]\ntransitions = [[[1.0], [1.0]]]\nrewards = [[{0}, {0}]]\nusage = [[0], [1]]\n"
    (folder / "zero.toml").write_text("discount = 0.5\nbudget = [1]\n" + arm.format(1.0) + arm.format(-1.0))
    found = evenhand("evaluate", "zero.toml", "random", "--json").json
    assert found["values"] == [2, -2]
    assert found["gini_coefficient"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["small.toml", "randm"], "Did you mean 'random'?"),
        (["small.toml", "random", "--welfare", "gni"], "Did you mean 'gini'?"),
        (["small.toml", "random", "-p", "num_arms=3"], "-p"),
        (["machine-replacment", "random"], "Did you mean 'machine-replacement'?"),
        (["machine-replacement", "random", "-p", "num_arms=0", "-p", "budgt=1"], "2 faults"),
        (["missing.toml", "random"], "missing.toml"),
    ],
    ids=str,
)
def test_bad_input_is_reported(arguments, told, small, evenhand, files):
    assert told in evenhand("evaluate", *arguments, "--json").refusal
    assert files() == [small.name]


TOWNS = """
discount = 0.9
budget = [1]
over = "groups"

[[arms]]
name = "pump"
group = "north"
count = 2
floor = 0.2
transitions = [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.9, 0.1]]]
rewards = [[1.0, 0.5], [0.0, 0.0]]
usage = [[0], [1]]

[[arms]]
name = "valve"
group = "south"
transitions = [[[0.9, 0.1], [1.0, 0.0]], [[0.2, 0.8], [0.9, 0.1]]]
rewards = [[1.0, 0.5], [0.5, 0.0]]
usage = [[0], [1]]
"""


@pytest.fixture
def towns(folder):
    (folder / "towns.toml").write_text(TOWNS)
    return "towns.toml"


class TestObjective:
    @pytest.mark.parametrize("criterion", ["discounted", "average", "finite:6"])
    @pytest.mark.parametrize("options", [[], ["--monte-carlo", "--episodes", 50]], ids=["exact", "monte-carlo"])
    def test_groups_and_criterion_in_json(self, criterion, options, towns, evenhand):
        options = ["--welfare", "gini:2", *options]
        found = evenhand("evaluate", towns, "random", "--criterion", criterion, *options, "--json").json
        played = "--monte-carlo" in options
        assert (found["criterion"], found["over"], found["exact"]) == (criterion, "groups", not played)
        values = found["values"]
        assert found["groups"] == pytest.approx({"north": np.mean(values[:2]), "south": values[2]})
        assert found["welfare"] == pytest.approx(np.sort(list(found["groups"].values())) @ [2 / 3, 1 / 3])
        assert found["worst"] == pytest.approx(min(found["groups"].values()))
        assert set(found["groups_stderr"]) == {"north", "south"} and len(found["served_by_type"]) == 2
        assert (found["truncation_bound"] is None) == (criterion == "average" and played)

    def test_over_arms_there_are_no_groups(self, towns, evenhand):
        found = evenhand("evaluate", towns, "random", "--over", "arms", "--welfare", "gini:2", "--json").json
        assert found["over"] == "arms" and not {"groups", "groups_stderr"} & set(found)
        assert found["welfare"] == pytest.approx(np.sort(found["values"]) @ [4 / 7, 2 / 7, 1 / 7])

    def test_a_floor_that_is_missed_is_reported(self, towns, evenhand):
        found = evenhand("evaluate", towns, "never-act", "--json").json
        assert found["floors_missed"] == [{"type": 0, "floor": 0.2, "served": 0.0}]
        shown = evenhand("evaluate", towns, "never-act", "--criterion", "finite:3").out
        assert mentions("0 pump", "0.0", "20.0")(shown)
        assert mentions("finite:3", "2 groups")(shown)
        assert "worst group" in shown and "values by group" in shown and "south" in shown
        kept = evenhand("evaluate", towns, "oldest-first", "--json").json
        assert kept["floors_missed"] == [] and kept["served_by_type"][0] > 0.2

    def test_a_model_without_floors_says_nothing_of_them(self, small, evenhand):
        assert "floors_missed" not in evenhand("evaluate", small, "random", "--json").json
        assert "served" not in evenhand("evaluate", small, "random").out

    def test_an_average_says_how_long_it_was_played(self, small, evenhand):
        shown = evenhand("evaluate", small, "random", "--criterion", "average", "--monte-carlo", "--episodes", 5).out
        assert "long run" in shown and "cut off" not in shown
        assert "cut off" not in evenhand("evaluate", small, "random", "--criterion", "finite:4", "--monte-carlo").out

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (["--criterion", "averge"], "Did you mean 'average'"),
            (["--criterion", "finite:x"], "finite:50"),
            (["--over", "group"], "over: expected arms or groups"),
            (["--criterion", "finite:5", "--horizon", 6], "the criterion finite:5 has 5 steps, not 6"),
        ],
        ids=str,
    )
    def test_refusals(self, options, told, small, evenhand):
        assert told in evenhand("evaluate", small, "random", *options, "--json").refusal
        assert told in evenhand("compare", small, "--policies", "random", *options, "--json").refusal


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:6"])
def test_compare_shows_groups_and_floors_row_by_row(criterion, towns, evenhand):
    names = ["random", "oldest-first", "never-act"]
    command = ["compare", towns, "--criterion", criterion, "--policies", ",".join(names)]
    found = evenhand(*command, "--json").json
    assert (found["criterion"], found["over"]) == (criterion, "groups")
    for row in found["rows"]:
        alone = evenhand("evaluate", towns, row["policy"], "--criterion", criterion, "--json").json
        assert row["groups"] == pytest.approx(alone["groups"]) and set(row["groups"]) == {"north", "south"}
        assert bool(row["floors_missed"]) == (row["policy"] == "never-act")
    shown = evenhand(*command).out
    assert mentions("never-act", "0 pump")(shown) and "floor missed: oldest-first" not in shown
