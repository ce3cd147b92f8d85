"""`evenhand reproduce`: listing, running, going on after a kill, failing in part."""

import json
import time

import pytest

from evenhand.cli import console
from evenhand.cli.commands import reproduce as command
from evenhand.cli.targets import targets_folder

TARGET = """
title = "Small"
source = "Table 1"
about = "Two machines."

[published]
instances = ["N=2"]
[[published.series]]
method = "OPT"
quantity = "welfare"
values = [14.19]

[sizes]
num_arms = [2, 3]
seed = [0, 1]
steps = 4000

[quick]
num_arms = [2]
seed = [0]
steps = 4000

[[cells]]
method = "OPT"
instance = "N=$num_arms"
kind = "optimum"
each = ["num_arms"]
[cells.settings]
problem = "machine-replacement"
parameters = { num_arms = "$num_arms" }
"""

TRAINING = """
[[cells]]
method = "CP-DRL"
instance = "N=2"
kind = "train"
each = ["seed"]
[cells.settings]
problem = "machine-replacement"
parameters = { num_arms = 2 }
steps = "$steps"
seed = "$seed"
evaluations = 3
num_episodes = 10
evaluate = [{ num_arms = 2, budget = 1 }]
"""


@pytest.fixture
def paper(folder):
    """A folder with one small target, in the current directory."""
    (folder / "paper").mkdir()
    (folder / "paper" / "table-1.toml").write_text(TARGET)
    return folder / "paper"


def records(folder):
    lines = (folder / "records.jsonl").read_text().splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


def values(folder):
    return {identity: (record["status"], record["values"]) for identity, record in records(folder).items()}


def stamps(folder):
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("cells/*.json")}


def test_without_targets_they_are_listed(evenhand):
    shown = evenhand("reproduce")
    assert shown.code == 0
    for name in ("table-1", "figure-2c", "beyond-indexability"):
        assert f" {name} " in shown.out
    listed = evenhand("reproduce", "--json").json["targets"]
    assert [target["name"] for target in listed][:2] == ["table-1", "table-2"]
    assert all(0 < target["quick_cells"] < target["cells"] for target in listed)


def test_the_targets_of_the_package_are_found_without_being_named():
    assert (targets_folder(None) / "table-6.toml").is_file()


def test_an_unknown_target_is_told_with_the_nearest(paper, evenhand, files):
    told = evenhand("reproduce", "tabel-1", "all", "--paper", "paper").refusal
    assert "unknown target 'tabel-1'. Did you mean 'table-1'?" in told
    assert files() == ["paper"]


def test_faults_of_a_target_are_told_and_nothing_runs(paper, evenhand, files):
    (paper / "table-1.toml").write_text(TARGET.replace('"optimum"', '"optimun"').replace("[14.19]", "[1, 2]"))
    told = evenhand("reproduce", "all", "--paper", "paper").refusal
    assert "table-1.toml: 2 faults" in told
    assert "cells[0].kind: unknown kind 'optimun'. Did you mean 'optimum'?" in told
    assert files() == ["paper"]


@pytest.mark.parametrize("arguments", [["--out", "paper/table-1.toml"], ["--out", "a/b"], ["--paper", "nowhere"]])
def test_folders_that_cannot_be_are_refused_before_any_work(arguments, paper, evenhand, files):
    assert arguments[0] in evenhand("reproduce", "table-1", "--paper", "paper", *arguments).refusal
    assert files() == ["paper"]


def test_it_runs_tells_and_writes_everything(paper, folder, launch, evenhand):
    arguments = ("reproduce", "table-1", "--paper", "paper", "--out", "out", "--jobs", 1)
    shown = launch(*arguments)
    assert shown.code == 0, shown.err
    assert "2 cells: 0 done, 2 to do" in shown.err
    assert "report: out/report.html" in shown.out
    assert {path.name for path in (folder / "out").iterdir()} >= {
        "cells",
        "records.jsonl",
        "manifest.json",
        "report.html",
    }
    assert "14.19" in (folder / "out" / "report.html").read_text()
    optima = [record["values"]["welfare"] for record in records(folder / "out").values()]
    assert sorted(optima) == pytest.approx([14.0793, 14.1859], abs=5e-5)
    before = stamps(folder / "out")
    again = evenhand(*arguments, "--json", "--quiet")
    assert again.err == ""
    assert again.json["cells"] == {"ran": 0, "skipped": 2, "failed": 0}
    assert stamps(folder / "out") == before


def test_the_tables_are_shown(paper, evenhand):
    shown = evenhand("reproduce", "table-1", "--quick", "--paper", "paper", "--jobs", 1, "--quiet").out
    assert shown.startswith("Table 1: ")
    lines = [line.split() for line in shown.splitlines() if "14.19" in line]
    assert [line[-1] for line in lines] == ["14.19", "14.19"]  # the paper's and ours
    assert "This was a quick run" in shown
    assert shown.splitlines()[-1].startswith("report: ")


def test_a_table_that_is_too_wide_goes_on_below(monkeypatch, capsys):
    heads = ["", *(f"column {number}" for number in range(20))]
    rows = [["row", *(f"{number}.0000 ± 0.0000" for number in range(20))]]
    console.print_wide_table("Wide", heads, rows, 1)
    shown = capsys.readouterr().out
    assert shown.count("Wide") > 1
    assert "Wide (continued)" in shown
    for text in (*heads, *rows[0]):
        assert text in shown
    assert max(map(len, shown.splitlines())) <= 160


def test_the_extra_is_asked_for_before_any_work(paper, evenhand, files, monkeypatch):
    (paper / "table-1.toml").write_text(TARGET + TRAINING)
    known = command.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "torch" else known(name))
    told = evenhand("reproduce", "table-1", "--quick", "--paper", "paper", "--json")
    assert (told.code, told.failure["exit_code"]) == (1, 1)
    assert "1 cell trains a network, and that needs an optional package: pip install 'evenhand[rl]'" in told.err
    assert files() == ["paper"]
    (paper / "table-1.toml").write_text(TARGET)
    assert evenhand("reproduce", "table-1", "--quick", "--paper", "paper", "--jobs", 1).code == 0


def test_quick_is_smaller(paper, folder, evenhand):
    told = evenhand("reproduce", "all", "--quick", "--paper", "paper", "--json").json
    assert (told["cells"]["ran"], told["quick"], told["report"]) == (1, True, "reproduction/report.html")
    assert json.loads((folder / "reproduction" / "manifest.json").read_text())["quick"] is True


def test_a_failing_cell_is_told_at_the_end_and_the_rest_is_there(paper, folder, evenhand):
    block = TARGET[TARGET.index("[[cells]]") :]
    broken = block.replace('"OPT"', '"WIP"') + 'method = "joint-lp"\nwelfare = "nash"\n'
    (paper / "table-1.toml").write_text(TARGET + broken)
    shown = evenhand("reproduce", "table-1", "--paper", "paper", "--out", "out", "--jobs", 1)
    assert shown.code == 1
    assert "Traceback" not in shown.err
    assert "failed: table-1 WIP N=2: joint-lp is for Gini-like welfare" in shown.err
    assert "error: 2 of 4 cells failed" in shown.err
    assert sorted(record["status"] for record in records(folder / "out").values()) == ["done"] * 2 + ["failed"] * 2
    assert (folder / "out" / "report.html").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been(paper, folder, start, launch):
    pytest.importorskip("stable_baselines3")
    (paper / "table-1.toml").write_text(TARGET + TRAINING)
    arguments = ("reproduce", "table-1", "--paper", "paper", "--quiet")
    out = folder / "killed"
    with start(*arguments, "--jobs", 2, "--out", out) as process:
        while not stamps(out) and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
    before = stamps(out)
    assert 0 < len(before) < 4
    whole = [json.loads(path.read_text()) for path in (out / "cells").glob("*.json")]
    assert all(record["status"] == "done" for record in whole)
    told = launch(*arguments, "--jobs", 1, "--out", out, "--json").json
    assert told["cells"] == {"ran": 4 - len(before), "skipped": len(before), "failed": 0}
    after = stamps(out)
    assert {name: after[name] for name in before} == before
    assert launch(*arguments, "--jobs", 1, "--out", folder / "straight", "--json").json["cells"]["ran"] == 4
    assert values(out) == values(folder / "straight")
    assert len(values(out)) == 4
