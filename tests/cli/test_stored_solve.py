"""`solve` of a table of arms by shards, from the command line: the relaxation, and a plan that others take."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import evenhand as eh
from evenhand.cli.application import application
from evenhand.errors import InvalidInput
from evenhand.solvers.fluid import solve_fluid

from ..conftest import mentions


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("fleet")
    eh.save(eh.problems.random_coupled(num_arms=40, num_types=40, budget=5), here / "fleet.parquet")
    return here


def ask(*words):
    return CliRunner().invoke(application, list(map(str, words)))


def test_the_relaxation_and_a_plan(folder):
    plan = folder / "plan.parquet"
    told = ask("solve", folder / "fleet.parquet", "--on", "local", "--welfare", "gini:2", "--out", plan, "--json")
    said = json.loads(told.stdout)
    whole = solve_fluid(eh.load(folder / "fleet.parquet"), "gini:2")
    assert said["welfare"]["value"] == pytest.approx(whole.welfare, rel=1e-9)
    assert said["welfare"]["upper_bound"] == pytest.approx(whole.upper_bound, rel=1e-9)
    assert said["welfare"]["of"] == "relaxation"
    assert said["policy"] == str(plan)
    assert said["prices"]["resource 0"] == pytest.approx(float(whole.prices[0]) * 20)
    table = pq.read_table(plan)
    assert table.column_names == ["row", "value", "weight"]
    assert np.array_equal(table["value"].to_numpy(), said["values"])
    asked = ("--on", "local", "--episodes", 3, "--welfare", "gini:2", "--json")
    played = json.loads(ask("evaluate", folder / "fleet.parquet", plan, *asked).stdout)
    assert played["welfare"] <= said["welfare"]["upper_bound"] + 5 * played["welfare_stderr"]


def test_what_is_told_to_people(folder):
    told = ask("solve", folder / "fleet.parquet", "--on", "local", "--quiet").stdout
    for words in (
        "relaxation",
        "upper bound",
        "for every policy",
        "one unit of resource 0",
        "rounds on local, 1 shard",
    ):
        assert words in told


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--on", "moon"], "on: expected local"),
        (["--on", "local", "--method", "whittle"], "by shards it is fluid"),
        (["--on", "local", "--redraw-every", "3"], "--redraw-every: this is for models in memory"),
        (["--on", "local", "--welfare", "leximin", "--tolerance", "3"], "tolerance: expected a number between 0 and 1"),
        (["--checkpoint", "kept.npz"], "--checkpoint: this is for models in Parquet, by shards"),
    ],
)
def test_what_does_not_go_by_shards_is_refused(folder, words, expected):
    with pytest.raises(InvalidInput, match=expected):
        raise ask("solve", folder / "fleet.parquet", *words, "--out", folder / "never.parquet").exception
    assert not (folder / "never.parquet").exists()


def test_a_plan_that_cannot_be_written_is_told_before_the_work(folder):
    with pytest.raises(InvalidInput, check=mentions("--out")):
        raise ask("solve", folder / "fleet.parquet", "--on", "local", "--out", folder / "no" / "plan.parquet").exception
