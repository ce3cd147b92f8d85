"""`evenhand problems`: the list, one of them, and model files to start from."""

import errno
import os

import pytest

from evenhand import load
from evenhand.problems import build, catalog

from ..conftest import mentions

SMALL = ["random", "-p", "num_arms=3", "-p", "num_types=2", "-p", "num_resources=2"]
PARAMETERS = {"num_arms": 3, "num_types": 2, "num_resources": 2}


def test_all_problems_and_parameters_are_listed(evenhand):
    shown = evenhand("problems")
    assert (shown.code, shown.err) == (0, "")
    for entry in catalog.CATALOG:
        assert entry.name in shown.out
        for parameter in entry.parameters:
            assert parameter.name in shown.out


def test_all_problems_are_in_the_json(evenhand):
    listed = evenhand("problems", "--json").json["problems"]
    assert [problem["name"] for problem in listed] == list(catalog.names())
    for problem, entry in zip(listed, catalog.CATALOG, strict=True):
        assert [parameter["name"] for parameter in problem["parameters"]] == [each.name for each in entry.parameters]


def test_what_the_json_says_can_be_given_back(evenhand):
    (problem,) = evenhand("problems", "random", "--json").json["problems"]
    values = {each["name"]: str(each["default"]) for each in problem["parameters"]}
    assert build("random", values) == build("random")


def test_one_problem_is_shown_alone(evenhand):
    shown = evenhand("problems", "random")
    assert shown.code == 0
    assert "sparsity" in shown.out
    assert "crew-maintenance" not in shown.out


def test_an_unknown_problem_is_not_shown(evenhand):
    assert mentions("machine-replacement")(evenhand("problems", "machine-replacment").refusal)


@pytest.mark.parametrize("suffix", [".toml", ".json", ".npz"])
def test_a_written_problem_compares_equal(suffix, folder, evenhand, timeless):
    file = folder / f"model{suffix}"
    written = evenhand("problems", *SMALL, "--out", file)
    assert written.code == 0
    assert str(file) in written.out
    assert load(file) == build("random", PARAMETERS)
    play = ["--episodes", 20, "--horizon", 20, "--json"]
    assert timeless(evenhand("compare", file, *play).json) == timeless(evenhand("compare", *SMALL, *play).json)


def test_writing_replaces_and_is_reported_in_json(folder, evenhand, files):
    (folder / "model.toml").write_text("old")
    assert evenhand("problems", *SMALL, "--out", "model.toml", "--json").json["written"] == "model.toml"
    assert load("model.toml") == build("random", PARAMETERS)
    assert files() == ["model.toml"]


def test_quiet_still_says_what_was_written(folder, evenhand, files):
    written = evenhand("problems", *SMALL, "--out", "model.toml", "--quiet")
    assert (written.code, written.err) == (0, "")
    assert written.out.startswith("written to model.toml;")
    assert files() == ["model.toml"]


@pytest.mark.parametrize("name", ["model.txt", "model", "model.toml.bak", "nowhere/model.toml"])
def test_where_nothing_can_be_written_nothing_is(name, folder, evenhand, files):
    assert f"error: {name}" in evenhand("problems", *SMALL, "--out", name).refusal
    assert files() == []


@pytest.mark.parametrize("arguments", [["--out", "model.toml"], ["-p", "num_arms=3"]], ids=str)
def test_what_needs_a_name_says_so(arguments, folder, evenhand, files):
    assert "problems NAME" in evenhand("problems", *arguments).refusal
    assert files() == []


def test_a_refused_problem_leaves_the_old_file(folder, evenhand, files):
    (folder / "model.toml").write_text("old")
    told = evenhand("problems", "random", "-p", "num_arms=0", "-p", "sparsty=1", "--out", "model.toml").refusal
    assert mentions("num_arms", 1, "got 0")(told)
    assert "sparsity?" in told
    assert files() == ["model.toml"]
    assert (folder / "model.toml").read_text() == "old"


def test_a_full_disk_leaves_the_old_file(folder, evenhand, monkeypatch, files):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (folder / "model.toml").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    failed = evenhand("problems", *SMALL, "--out", "model.toml")
    assert (failed.code, failed.out) == (1, "")
    assert "No space left" in failed.err
    assert files() == ["model.toml"]
    assert (folder / "model.toml").read_text() == "old"
