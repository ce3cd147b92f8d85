"""Whatever writes is killed at a random moment: what stood there before is whole, or what was to be written is.

A command is run once to its end, to know what it writes and how long that takes. It is then started over an older file
and killed (SIGKILL, nothing can be caught) at times drawn by seed over its whole course, and again when it has begun
to write, which a watcher of the folder sees.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import evenhand as eh
from evenhand.fitting import load_posterior, posterior_path
from evenhand.planning import read_contents
from tests.fitting.flat import drawn_problems

from ..cli.test_fit import LOG, OPTIONS

MODEL = ["machine-replacement", "-p", "num_arms=3"]
FIT = ["fit", "log.csv", *OPTIONS, "--reward", "worth", "--budget", "1"]
COMMANDS = {
    "plan.zip": ["solve", *MODEL, "--out"],
    "report.html": [
        *("compare", *MODEL, "--policies", "whittle,myopic", "--episodes", "20", "--horizon", "10", "--report"),
    ],
    "fairness.html": ["fairness", *MODEL, "--report"],
    "model.toml": ["problems", *MODEL, "--out"],
    "model.npz": ["problems", *MODEL, "--out"],
    "actions.csv": ["act", "carried.zip", "states.csv", "--out"],
    "fitted.toml": [*FIT, "--out"],
    "fit.html": [*FIT, "--report"],
}
OLD = b"what stood here before"


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with what commands read."""
    folder = tmp_path_factory.mktemp("given")
    (folder / "log.csv").write_text(LOG)
    (folder / "states.csv").write_text("arm,type,state\na,machine,0\nb,machine,1\nc,machine,2\n")
    eh.save_solution(eh.solve(eh.problems.machine_replacement(num_arms=3)), folder / "carried.zip")
    return folder


def start(name, folder, given):
    asked = [*COMMANDS[name], str(folder / name)]
    quiet = [] if "--quiet" in asked else ["--quiet"]
    command = [sys.executable, "-m", "evenhand", *asked, *quiet]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=given)


def whole(path):
    """Return whether a file is complete, and the files beside it belong to it."""
    if path.suffix == ".zip":
        read_contents(path)
    elif path.suffix in (".toml", ".npz"):
        model = eh.load(path)
        if path.name.startswith("fitted"):
            assert list(drawn_problems(model, load_posterior(posterior_path(path)), 1))
    elif path.suffix == ".csv":
        return [line.partition(",")[0] for line in path.read_text().splitlines()] == ["arm", "a", "b", "c"]
    else:
        return path.read_bytes().rstrip().endswith(b"</html>")
    return True


def kill_when(process, moment, folder):
    """Kill at a moment, or as soon as something new is in the folder if there is none."""
    begin = time.monotonic()
    while process.poll() is None:
        late = moment is not None and time.monotonic() - begin > moment
        if late or (moment is None and len(list(folder.iterdir())) > 1):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.0005)
    process.communicate()


def look_beside(path):
    """Check that files left beside a result by a killed process cannot be read as one, but for a complete posterior."""
    for other in path.parent.iterdir():
        if other == path:
            continue
        if other == posterior_path(path):
            load_posterior(other)
        else:
            assert other.suffix == ".tmp", other
        other.unlink()


def attack(name, folder, given, kills, rng):
    """Number of runs that left the old file, and the new one."""
    begin = time.monotonic()
    process = start(name, folder, given)
    _, told = process.communicate()
    assert process.returncode == 0, told
    seconds = time.monotonic() - begin
    path, seen = folder / name, {"old": 0, "new": 0}
    assert whole(path)
    look_beside(path)
    for kill in range(kills):
        path.write_bytes(OLD)
        moment = None if kill % 2 else float(rng.uniform(0, 1.1 * seconds))
        kill_when(start(name, folder, given), moment, folder)
        if path.read_bytes() == OLD:
            seen["old"] += 1
        else:
            assert whole(path)
            seen["new"] += 1
        look_beside(path)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_kill_leaves_the_old_file_or_the_new_one(name, tmp_path, given):
    seen = attack(name, tmp_path, given, 2, np.random.default_rng(16))
    assert sum(seen.values()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COMMANDS))
def test_many_kills(name, tmp_path, given):
    attack(name, tmp_path, given, 20, np.random.default_rng(43))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_kills_while_a_file_is_written(tmp_path):
    """In a forked process that writes again and again: killed within the writing, and not only before."""
    problem = eh.problems.machine_replacement(num_arms=3)
    found = [eh.solve(problem, welfare) for welfare in ("gini:2", "maximin")]
    path, digests = tmp_path / "plan.zip", set()
    for solution in found:
        eh.save_solution(solution, path)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    rng = np.random.default_rng(17)
    for _ in range(30):
        if (child := os.fork()) == 0:
            while True:
                for solution in found:
                    eh.save_solution(solution, path)
        time.sleep(float(rng.uniform(0, 0.03)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert hashlib.sha256(path.read_bytes()).hexdigest() in digests
    read_contents(path)
