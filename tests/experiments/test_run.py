"""Runs: resuming, several jobs, failures and deaths."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from evenhand.execution.local import processes
from evenhand.execution.on_ray import ray_cluster
from evenhand.experiments import run as running
from evenhand.experiments.records import read_run
from evenhand.experiments.run import Work, _run_batch, expected_seconds, run_cell
from evenhand.experiments.spec import Cell, read_targets

from .conftest import SMALL

pytestmark = pytest.mark.xdist_group("ray")


def work_of(paper, folder, **options):
    return Work(list(read_targets(paper).values()), folder, **options)


def values_of(folder):
    return {identity: (record["status"], record["values"]) for identity, record in read_run(folder).records.items()}


def stamps(folder):
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (folder / "cells").iterdir()}


@pytest.fixture(scope="module")
def ran_once(tmp_path_factory):
    """The folder of a whole run by one job."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "paper").mkdir()
    (folder / "paper" / "table-1.toml").write_text(SMALL)
    work_of(folder / "paper", folder / "out").run(1)
    return folder / "out"


@pytest.fixture
def ran(ran_once, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(ran_once, tmp_path / "ran")


def test_results_do_not_depend_on_the_number_of_jobs(paper, tmp_path):
    told = []
    for jobs in (1, 2):
        work = work_of(paper, tmp_path / f"jobs{jobs}")
        done = work.run(jobs, "evenhand reproduce table-1", lambda what, share: told.append((what, share)))
        assert (done.ran, done.skipped, done.failures) == (6, 0, ())
    assert values_of(tmp_path / "jobs1") == values_of(tmp_path / "jobs2")
    assert len(values_of(tmp_path / "jobs1")) == 6
    assert told[-1] == ("6 of 6 cells done, 0 running, 0 s left", 1.0)
    assert all(0 <= share <= 1 for _, share in told)

    manifest = read_run(tmp_path / "jobs2").manifest
    assert (manifest["command"], manifest["jobs"], manifest["finished"]) == ("evenhand reproduce table-1", 2, True)
    rows = manifest["targets"]["table-1"]
    assert {row["id"] for row in rows} == set(values_of(tmp_path / "jobs2"))
    first = {key: value for key, value in rows[0].items() if key != "id"}
    assert first == {"target": "table-1", "instance": "N=2", "method": "OPT", "seed": None}


def test_finished_cells_are_not_done_again_and_failed_ones_are(paper, ran):
    folder = ran
    before, values = stamps(folder), values_of(folder)
    again = work_of(paper, folder)
    assert (again.num_done, again.to_do) == (6, [])
    failed, removed = sorted(before)[:2]
    record = json.loads((folder / "cells" / failed).read_text())
    (folder / "cells" / failed).write_text(json.dumps(record | {"status": "failed", "error": "it broke", "values": {}}))
    (folder / "cells" / removed).unlink()
    done = work_of(paper, folder).run(1)
    assert (done.ran, done.skipped) == (2, 4)
    after = stamps(folder)
    assert {name for name in before if after[name] == before[name]} == set(before) - {failed, removed}
    assert values_of(folder) == values


def test_quick_has_fewer_cells_and_full_takes_over_what_it_shares(paper, tmp_path):
    """And other code does everything anew."""
    folder = tmp_path / "out"
    done = work_of(paper, folder, quick=True, code="before").run(1)
    assert done.ran == 2
    assert read_run(folder).manifest["quick"] is True
    assert work_of(paper, folder, code="before").num_done == 2
    assert work_of(paper, folder, quick=True, code="before").to_do == []
    assert len(work_of(paper, folder, quick=True, code="after").to_do) == 2


def test_a_cell_of_two_targets_runs_once(paper, tmp_path, small_text):
    (paper / "table-3.toml").write_text(small_text)
    work = work_of(paper, tmp_path / "out")
    assert len(work.cells) == 6
    work.run(1)
    assert len(stamps(tmp_path / "out")) == 6
    targets = read_run(tmp_path / "out").manifest["targets"]
    assert [row["id"] for row in targets["table-1"]] == [row["id"] for row in targets["table-3"]]


@pytest.mark.slow
def test_a_failing_cell_does_not_stop_the_rest(paper, tmp_path, small_text):
    """Nothing is known to be wrong before it runs: the joint LP is not for this welfare."""
    machines = 'parameters = { num_arms = "$num_arms" }'
    text = small_text.replace(machines, f'{machines}\nmethod = "joint-lp"\nwelfare = "nash"', 1)
    (paper / "table-1.toml").write_text(text)
    done = work_of(paper, tmp_path / "out").run(2)
    assert done.ran == 6
    assert sorted(str(failure.planned) for failure in done.failures) == ["table-1 OPT N=2", "table-1 OPT N=3"]
    assert all("joint-lp is for Gini-like welfare" in failure.error for failure in done.failures)
    statuses = [status for status, _ in values_of(tmp_path / "out").values()]
    assert sorted(statuses) == ["done"] * 4 + ["failed"] * 2


def die(**settings):
    os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """A cell whose process is killed when it is looked at, as if memory had run out."""

    kind = "optimum"

    def __reduce__(self):
        return die, ()


class Doomed:
    cell = Dying()


class Log:
    """Keeps what ended."""

    def __init__(self):
        self.ended = []

    def finish(self, planned, answer):
        self.ended.append((planned, answer.error))

    def tell(self, planned):
        pass


def test_a_worker_that_dies_fails_its_cell_and_the_rest_goes_on(paper, tmp_path):
    first, second, third, *_ = work_of(paper, tmp_path / "out").to_do
    doomed, log = Doomed(), Log()
    with processes(1) as executor:
        _run_batch([first, doomed, second, third], executor, log)
    assert [planned for planned, _ in log.ended] == [first, doomed, second, third]
    errors = [error for _, error in log.ended]
    assert "SIGKILL" in errors.pop(1)
    assert errors == [None, None, None]


def test_cells_run_on_any_executor_with_the_same_results(paper, tmp_path, small_ray):
    here, there = work_of(paper, tmp_path / "here"), work_of(paper, tmp_path / "there")
    here.run(1)
    with ray_cluster(num_workers=2) as executor:
        done = there.run(on=executor)
    assert not done.failures
    assert values_of(tmp_path / "here") == values_of(tmp_path / "there")
    assert work_of(paper, tmp_path / "there").to_do == []  # and it is resumable as ever


def test_what_a_cell_raises_becomes_its_error(monkeypatch):
    def broken(**settings):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setitem(running.find_kind.__globals__["KINDS"], "broken", broken)
    answer = run_cell(Cell("broken", {}))
    assert answer.error.startswith("ZeroDivisionError: by nothing (test_run.py, line ")
    assert answer.values == {}


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(["torch", "stable_baselines3", "gymnasium"]))
from evenhand.experiments.run import run_cell
from evenhand.experiments.spec import Cell
settings = {"problem": "machine-replacement", "parameters": {}}
print(run_cell(Cell("train", settings | {"evaluate": [], "steps": 10})).error)
print(run_cell(Cell("optimum", settings)).error)
"""


def test_training_without_its_extra_says_what_to_install_and_others_run():
    told = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True).stdout
    training, optimum = told.splitlines()
    assert "pip install 'evenhand[rl]'" in training
    assert optimum == "None"


def test_training_is_expected_to_take_longer_the_more_steps():
    few, many = ({"algorithm": "ppo", "steps": steps} for steps in (1000, 100_000))
    assert expected_seconds(Cell("train", few)) < expected_seconds(Cell("train", many))
