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
from evenhand.planning.saved import load_carried

MODEL = ["machine-replacement", "-p", "num_arms=3"]
COMMANDS = {
    "plan.zip": ["solve", *MODEL, "--out"],
    "report.html": [
        "compare",
        *MODEL,
        "--policies",
        "whittle,myopic",
        "--episodes",
        "20",
        "--horizon",
        "10",
        "--report",
    ],
}
OLD = b"what stood here before"


def start(name, folder):
    command = [sys.executable, "-m", "evenhand", *COMMANDS[name], str(folder / name), "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder)


def whole(name, path):
    """Whether a file is what the command writes, to its end."""
    text = path.read_bytes()
    if name == "plan.zip":
        load_carried(path)
        return True
    return text.rstrip().endswith(b"</html>")


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


def attack(name, folder, kills, rng):
    """How often the old file stood, and how often the new one."""
    begin = time.monotonic()
    process = start(name, folder)
    _, told = process.communicate()
    assert process.returncode == 0, told
    seconds = time.monotonic() - begin
    path, seen = folder / name, {"old": 0, "new": 0}
    for kill in range(kills):
        path.write_bytes(OLD)
        moment = None if kill % 2 else float(rng.uniform(0, 1.1 * seconds))
        kill_when(start(name, folder), moment, folder)
        if path.read_bytes() == OLD:
            seen["old"] += 1
        else:
            assert whole(name, path)
            seen["new"] += 1
        for other in folder.iterdir():  # what a killed process left beside it cannot be taken for a result
            if other != path:
                assert other.suffix not in (".zip", ".html"), other
                other.unlink()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_kill_leaves_the_old_file_or_the_new_one(name, tmp_path):
    seen = attack(name, tmp_path, 2, np.random.default_rng(16))
    assert sum(seen.values()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COMMANDS))
def test_many_kills(name, tmp_path):
    attack(name, tmp_path, 20, np.random.default_rng(43))


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
    load_carried(path)
