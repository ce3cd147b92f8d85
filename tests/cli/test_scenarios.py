"""--draws and --robust of a fitted model."""

import json

import numpy as np
import pytest

from evenhand.fitting import Dirichlet, Named, posterior_path, save_posterior
from evenhand.model import Arm, CoupledMDP, save

STATES, ACTIONS = ("good", "bad"), ("wait", "mend")


@pytest.fixture
def model(tmp_path):
    """A fitted model of two types, with its posterior beside it."""
    concentration = np.array([[[[7.0, 3], [7, 3]], [[1, 9], [8, 2]]], [[[8, 2], [8, 2]], [[1, 9], [3, 3]]]])
    known = Named(Dirichlet(concentration), ("north", "south"), STATES, ACTIONS)
    means = zip(known.posterior.mean, known.types, strict=True)
    arms = [Arm(own, [[1, 0.9], [0, -0.1]], [[0], [1]], None, name, STATES, ACTIONS) for own, name in means]
    path = tmp_path / "fleet.toml"
    save(CoupledMDP(arms, [1], 0.8, [1, 2]), path)
    save_posterior(known, posterior_path(path))
    return str(path)


def test_solve_tells_draws_what_is_worth_knowing_and_the_worst_draws(evenhand, model):
    told = evenhand("solve", model, "--welfare", "gini:2", "--draws", "30", "--robust", "0.2", "--json").json
    assert told["draws"]["draws"] == 30
    first, plain = told["draws"]["rows"]
    assert (first["policy"], plain["policy"]) == ("robust plan", "plan")
    assert first["welfare"]["q05"] <= first["welfare"]["q50"] <= first["welfare"]["q95"]
    assert set(first["types"]) == {"north", "south"}
    assert first["better_than"]["plan"] + plain["better_than"]["robust plan"] == pytest.approx(1)
    assert told["robust"]["seen"]["robust_tail"] >= told["robust"]["seen"]["plain_tail"]
    assert told["value_of_information"]["total"] >= max(row["value"] for row in told["value_of_information"]["rows"])
    words = evenhand("solve", model, "--welfare", "gini:2", "--draws", "30", "--robust", "0.2").out
    assert told["robust"]["words"] in words
    assert told["value_of_information"]["words"] in words
    assert f"{first['welfare']['q05']:.4f}" in words


def test_evaluate_and_compare_tell_the_same_of_a_policy(evenhand, model):
    alone = evenhand("evaluate", model, "whittle", "--draws", "25", "--json").json
    compared = evenhand("compare", model, "--policies", "whittle,never-act", "--draws", "25", "--json").json
    rows = {row["policy"]: row for row in compared["draws"]["rows"]}
    assert rows["whittle"]["welfare"] == alone["draws"]["rows"][0]["welfare"]
    assert rows["never-act"]["better_than"]["whittle"] == 0
    shown = evenhand("compare", model, "--policies", "whittle,never-act", "--draws", "25").out
    assert "better than whittle" in shown
    assert "worst tenth" in evenhand("evaluate", model, "whittle", "--draws", "25").out


@pytest.mark.slow
def test_a_place_changes_nothing(evenhand, model, timeless):
    for asked in (
        ("solve", model, "--robust", "0.2", "--draws", "20"),
        ("evaluate", model, "whittle", "--draws", "20"),
        ("compare", model, "--policies", "whittle,random", "--draws", "20"),
    ):
        here, there = (timeless(evenhand(*asked, *more, "--json").json) for more in ((), ("--backend", "threads")))
        assert here == there
    assert "ran on threads:3" in evenhand("solve", model, "--backend", "threads:3", "--json").json["reason"]
    assert "joint" in evenhand("solve", model, "--method", "joint", "--backend", "ray").refusal
    assert (
        "--backend: goes with one --budget"
        in evenhand("solve", model, "--backend", "threads", "--budget", "1", "--budget", "2").refusal
    )


def test_what_has_no_posterior_is_refused_at_once(evenhand, model, tmp_path):
    assert "posterior" in evenhand("solve", "machine-replacement", "--draws", "50").refusal
    assert "posterior" in evenhand("evaluate", str(tmp_path / "other.toml"), "whittle", "--draws", "50").refusal
    assert "standard input" in evenhand("compare", "-", "--format", "toml", "--draws", "50").refusal
    assert "20" in evenhand("solve", model, "--draws", "5").refusal
    assert "robust" in evenhand("solve", model, "--robust", "0").refusal
    both = evenhand("solve", model, "--robust", "0.1", "--budget", "1", "--budget", "2").refusal
    assert "--robust: goes with" in both
    told = json.loads(evenhand("solve", "machine-replacement", "--draws", "50", "--json").out)
    assert told["exit_code"] == 2


def test_the_page_of_a_comparison_has_the_draws(evenhand, model, tmp_path):
    page = tmp_path / "page.html"
    asked = ("compare", model, "--policies", "never-act,oldest-first", "--draws", "20", "--welfare", "gini:2")
    told = evenhand(*asked, "--report", str(page), "--json").json["draws"]["rows"]
    text = page.read_text().replace("\u00a0", " ")
    assert "20 draws of" in text
    assert f"better than {told[0]['policy']}" in text
    for row in told:
        assert f"{row['welfare']['q50']:.4f}" in text and f"{row['welfare']['tail10']:.4f}" in text
    assert evenhand(*asked[:4], "--report", str(page)).code == 0
    assert "draws of" not in page.read_text()
