"""Criterion, groups and floors on the command line."""

import json

import numpy as np
import pytest

from evenhand.model import CoupledMDP, save

from ..conftest import crossed, mentions, slow_after
from ..oracles.problems import FIXED, replaced, seeded_problem
from ..oracles.product_space_lp import read_problem

OVER = ["arms", "groups"]


@pytest.fixture
def model(tmp_path):
    def write(problem):
        save(problem, tmp_path / "model.toml")
        return str(tmp_path / "model.toml")

    return write


@pytest.mark.parametrize(
    ("over", "criterion", "name"),
    crossed(OVER, ["discounted", "average", "finite:4"], ["symmetric", "typed", "different", "two resources"]),
)
def test_solve_equals_brute_force(evenhand, model, name, criterion, over):
    problem = FIXED[name]()
    best = read_problem(problem, criterion, over).best("gini:2").welfare
    asked = ["--welfare", "gini:2", "--criterion", criterion, "--over", over]
    told = evenhand("solve", model(problem), *asked, "--json").json
    assert told["welfare"]["value"] == pytest.approx(best, rel=1e-6)
    assert told["welfare"]["upper_bound"] == pytest.approx(best, rel=1e-6)
    assert (told["criterion"], told["over"]) == (criterion, over)
    assert set(told["prices"]) == {f"resource {k}" for k in range(problem.num_resources)}
    assert all(price >= 0 for price in told["prices"].values())
    if over == "groups":
        values = np.array(told["values"])
        groups = np.repeat(problem.group_of_block, problem.counts)
        means = [values[groups == g].mean() for g in range(len(problem.group_names))]
        assert told["groups"] == pytest.approx(dict(zip(problem.group_names, means, strict=True)), abs=1e-9)
    else:
        assert "groups" not in told


@pytest.mark.parametrize("seed", range(6))
def test_seeded_problems_too(evenhand, model, seed):
    criterion = ["discounted", "average", "finite:3"][seed % 3]
    problem = seeded_problem(seed)
    asked = ["--welfare", "gini:2", "--criterion", criterion, "--over", OVER[seed % 2]]
    told = evenhand("solve", model(problem), *asked, "--json")
    if told.code == 2:
        assert criterion == "average" and "start" in told.err
        return
    best = read_problem(problem, criterion, OVER[seed % 2]).best("gini:2").welfare
    assert told.json["welfare"]["value"] == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_the_model_says_it_and_an_option_says_it_otherwise(evenhand, model):
    path = model(replaced(FIXED["typed"](), criterion="finite:4", over="groups", resources=["crews"]))
    told = evenhand("solve", path, "--json").json
    assert (told["criterion"], told["over"], set(told["prices"])) == ("finite:4", "groups", {"crews"})
    told = evenhand("solve", path, "--criterion", "average", "--over", "arms", "--json").json
    assert (told["criterion"], told["over"]) == ("average", "arms")


def test_text_names_criterion_groups_and_what_more_is_worth(evenhand, model):
    path = model(replaced(FIXED["typed"](), resources=["crews"]))
    text = evenhand("solve", path, "--criterion", "average", "--over", "groups").out
    for part in ("criterion average, over 2 groups", "values by group", "one unit more", "one more crew: nothing"):
        assert part in text


@pytest.mark.slow
@pytest.mark.parametrize("criterion", slow_after(1, ["finite:4", "average", "discounted"]))
def test_a_price_bounds_the_gain_of_one_more_unit(criterion, evenhand, model):
    """The bound of the relaxation is concave in the budget: its slope there is at least the gain of one unit more."""
    problem = FIXED["different"]()
    now = evenhand("solve", model(problem), "--criterion", criterion, "--method", "fluid", "--json").json
    more = CoupledMDP(problem.arms, problem.budget + 1, problem.discount, problem.counts)
    then = evenhand("solve", model(more), "--criterion", criterion, "--method", "fluid", "--json").json
    gain = then["welfare"]["upper_bound"] - now["welfare"]["upper_bound"]
    assert 0 < gain <= now["prices"]["resource 0"] * 1.02


def test_floors_that_cannot_be_met_are_refused_with_the_largest(evenhand, model):
    problem = replaced(FIXED["symmetric"](), floors=[0.5])
    for method in ("counts", "joint", "joint-lp", "count-lp", "fluid"):
        told = evenhand("solve", model(problem), "--method", method)
        assert told.code == 2 and "floor" in told.err and "0.333" in told.err, method


def test_what_is_refused_is_reported(evenhand, model):
    path = model(FIXED["typed"]())
    assert "'average'" in evenhand("solve", path, "--criterion", "averge").refusal
    assert "got 'wards'" in evenhand("solve", path, "--over", "wards").refusal


def test_a_saved_plan_says_how_it_is_played(evenhand, model, tmp_path):
    path = model(FIXED["typed"]())
    out = str(tmp_path / "plan.zip")
    text = evenhand("solve", path, "--criterion", "finite:4", "--over", "groups", "--out", out).out
    assert mentions("--criterion finite:4", "--over groups")(text)
    found = evenhand("evaluate", path, out, "--criterion", "finite:4", "--over", "groups", "--json").json
    best = evenhand("solve", path, "--criterion", "finite:4", "--over", "groups", "--json").json
    assert found["exact"] and found["welfare"] == pytest.approx(best["welfare"]["value"], rel=1e-7)


def test_json_is_json_for_every_criterion(evenhand, model):
    for criterion in ("average", "finite:2"):
        told = evenhand("solve", model(FIXED["symmetric"]()), "--criterion", criterion, "--json")
        assert json.loads(told.out)["criterion"] == criterion
