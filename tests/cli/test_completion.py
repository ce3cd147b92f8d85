"""What the shell offers when a person presses TAB."""

import os
import shutil
import sys

import pytest
from click.shell_completion import get_completion_class

from evenhand.cli import application
from evenhand.planning import REGISTRY
from evenhand.problems import catalog

from ..test_imports import HEAVY, NUMERIC, loaded_by


@pytest.fixture
def offered(folder, monkeypatch):
    """What is offered at the end of a command: (plain words, other kinds)."""
    monkeypatch.setenv("_EVENHAND_COMPLETE", "bash_complete")
    for name in ("fleet.toml", "random.json", "plan.zip", "notes.txt", ".hidden.toml", "page.html", "today.csv"):
        (folder / name).touch()
    (folder / "models").mkdir()
    (folder / "models" / "deep.npz").touch()

    def offered(*words):
        complete = get_completion_class("bash")(application, {}, "evenhand", "_EVENHAND_COMPLETE")
        items = complete.get_completions(list(words[:-1]), words[-1])
        return [item.value for item in items if item.type == "plain"], {item.type for item in items} - {"plain"}

    return offered


def test_problems_and_model_files_are_offered(offered):
    assert offered("solve", "") == ([*catalog.names(), "fleet.toml", "random.json"], {"file"})
    assert offered("compare", "ra") == (["random", "random.json"], {"file"})
    assert offered("compare", "models/") == (["models/deep.npz"], {"file"})
    assert offered("check", "nowhere/")[0] == []
    assert offered("problems", "crew") == (["crew-maintenance"], set())


@pytest.mark.parametrize("name", ["solve", "compare", "indices", "evaluate", "train", "check"])
def test_every_command_with_a_model_offers_them(name, offered):
    assert offered(name, "machine-r")[0] == ["machine-replacement"]


def test_policies_are_offered_by_name_and_file(offered):
    names = [known.name for known in REGISTRY]
    assert offered("evaluate", "fleet.toml", "") == ([*names, "plan.zip"], {"file"})
    assert offered("solve", "fleet.toml", "--candidate", "o")[0] == ["optimal", "occupancy-priority", "oldest-first"]
    assert offered("act", "")[0] == ["plan.zip"]
    assert offered("act", "plan.zip", "t")[0] == ["today.csv"]


def test_every_welfare_is_offered_once(offered):
    words, _ = offered("solve", "fleet.toml", "--welfare", "")
    assert "gini:half=0.75" in words and len(words) == len(set(words))


def test_the_last_of_several_policies_is_completed(offered):
    before = "optimal,"
    assert offered("compare", "fleet.toml", "--policies", f"{before}wh") == ([f"{before}whittle"], set())
    assert offered("compare", "fleet.toml", "--policies", f"{before}pl")[0] == [f"{before}plan.zip"]
    assert "whittle" in offered("compare", "fleet.toml", "--policies", "")[0]


@pytest.mark.parametrize(
    ("option", "typed", "words"),
    [
        ("--welfare", "maxi", ["maximin", "maximin:0.01"]),
        ("--criterion", "", ["discounted", "average", "finite:"]),
        ("--over", "g", ["groups"]),
        ("--method", "count", ["counts", "count-lp"]),
        ("--format", "t", ["toml"]),
    ],
)
def test_words_are_offered(option, typed, words, offered):
    assert offered("solve", "fleet.toml", option, typed)[0] == words


def test_every_welfare_and_criterion_that_is_offered_is_one(offered, evenhand, monkeypatch):
    welfares, _ = offered("solve", "random", "--welfare", "")
    criteria, _ = offered("solve", "random", "--criterion", "")
    monkeypatch.delenv("_EVENHAND_COMPLETE")
    for welfare in welfares:
        assert evenhand("solve", "random", "-p", "num_arms=2", "--welfare", welfare).code == 0
    for criterion in criteria:
        whole = criterion + "3" if criterion.endswith(":") else criterion
        assert evenhand("solve", "random", "-p", "num_arms=2", "--criterion", whole).code == 0


def test_parameters_of_the_problem_that_was_typed_are_offered(offered):
    assert offered("solve", "machine-replacement", "-p", "num_")[0] == ["num_arms=", "num_states="]
    assert "reset=pure" in offered("solve", "machine-replacement", "-p", "reset=")[0]
    assert offered("solve", "fleet.toml", "-p", "num_")[0] == []


def test_files_of_reports_are_offered(offered):
    assert offered("compare", "fleet.toml", "--report", "")[0] == ["page.html"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs Bash")
def test_bash_completes(folder, launch):
    """With what `_EVENHAND_COMPLETE=bash_source evenhand` prints, as the documentation says."""
    command = folder / "evenhand"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m evenhand "$@"\n')
    command.chmod(0o755)
    script = """
    compopt() { :; }  # there is no terminal
    eval "$(_EVENHAND_COMPLETE=bash_source evenhand)"
    COMP_WORDS=(evenhand evaluate machine-replacement old) COMP_CWORD=3
    _evenhand_completion evenhand
    echo "${COMPREPLY[*]}"
    """
    shown = launch(command=["bash", "-c", script], PATH=f"{folder}:{os.environ['PATH']}")
    assert (shown.code, shown.out) == (0, "oldest-first\n"), shown.err


def test_policies_are_offered_without_loading_numerics():
    code = """
from click.shell_completion import BashComplete
from evenhand.cli import application
complete = BashComplete(application, {}, "evenhand", "_EVENHAND_COMPLETE")
assert complete.get_completions(["compare", "x.toml", "--policies"], "wh")
"""
    packages, _ = loaded_by(code)
    assert not packages & (HEAVY | NUMERIC | {"rich"})
