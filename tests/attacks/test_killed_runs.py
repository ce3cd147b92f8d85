"""Training is killed (SIGKILL) at random moments and resumed: no checkpoint is lost or half written.

The same command is started, killed and started again until it ends; then again from the beginning, up to a number of
kills. Every second kill waits until something is written; the others come at a time drawn by seed over the whole
course. After every kill

    no file is half written
    a checkpoint is never older than the one before

and every end has the steps, the settings and the schedule of evaluations of the unbroken run.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from itertools import count

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


class Training:
    """`evenhand train` by one learner."""

    def __init__(self, folder, algorithm="ppo", steps=12_000):
        self.folder, self.policy = folder, folder / "policy.zip"
        self.checkpoint = folder / "policy.zip.checkpoint"
        self.command = [
            *("train", "machine-replacement", "-p", "num_arms=3", "--algorithm", algorithm, "--steps", str(steps)),
            *("--horizon", "20", "--seed", "3", "--out", str(self.policy), "--quiet", "--resume"),
        ]
        self.reached = 0

    def begin(self):
        """Forget what was done."""
        for path in self.folder.iterdir():
            path.unlink()
        self.reached = 0

    def stamps(self):
        """Signature of a folder that changes with every write."""
        found = set()
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a temporary file that was renamed meanwhile
                found.add((path.name, path.stat().st_ino))
        return found

    def look(self):
        """After a kill: all is whole, and no step is lost."""
        from evenhand.learning import read_checkpoint

        if self.policy.exists():
            self.end()
        elif self.checkpoint.exists():
            steps = read_checkpoint(self.checkpoint).facts["steps"]  # its checksums are compared
            assert steps >= self.reached
            self.reached = steps
        else:
            assert self.reached == 0, "the checkpoint is gone"

    def end(self):
        """Settings and steps of the evaluations of the saved policy."""
        with zipfile.ZipFile(self.policy) as file:
            assert file.testzip() is None
            about = json.loads(file.read("manifest.json"))["about"]
        assert np.isfinite(about["score"])
        return about["settings"], [steps for steps, _ in about["curve"]]


def by_command(run):
    """Start it as a user does: the process, which has a group of its own."""
    command = [sys.executable, "-m", "evenhand", *run.command]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=run.folder)


class Forked:
    """A call in a forked process, which is cheaper to start than a command; it looks like one."""

    def __init__(self, call):
        self.returncode = None
        self.process = os.fork()
        if self.process == 0:
            code = 1
            try:
                call()
                code = 0
            finally:
                os._exit(code)

    def poll(self):
        if self.returncode is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number):
        os.kill(self.process, number)

    def communicate(self):
        while self.poll() is None:
            time.sleep(0.001)
        return b"", b"a forked process"


def kill(process, run, moment):
    """Kill at a moment or, without one, as soon as something was written. Whether it had ended before."""
    begin, before = time.monotonic(), run.stamps()
    while process.poll() is None:
        if time.monotonic() - begin > moment if moment is not None else run.stamps() != before:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.0005)
    _, told = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), told
    return process.returncode == 0


def attack(run, start, kills, rng):
    """Kill so often, and compare every end with that of the unbroken run. How many ends there were."""
    begin = time.monotonic()
    process = start(run)
    _, told = process.communicate()
    assert process.returncode == 0, told
    seconds, unbroken = time.monotonic() - begin, run.end()
    run.begin()
    killed, ends = 0, 0
    for attempt in count():
        last = killed == kills
        writes = attempt % 2 and ends % 2 == 0  # every second chain has kills by the clock alone: they get further
        moment = np.inf if last else None if writes else float(rng.uniform(0, 1.1 * seconds))
        if kill(start(run), run, moment):
            assert run.end() == unbroken
            run.begin()
            ends += 1
            if last:
                return ends
        else:
            killed += 1
            run.look()
    raise AssertionError


def trained_here(run):
    """Much the same as the command, in a forked process."""
    from evenhand.learning import PPOLearner, train
    from evenhand.problems import machine_replacement

    machines, learner = machine_replacement(num_arms=3), PPOLearner(num_copies=8, rollout=16, batch=64)
    asked = {"horizon": 20, "hidden": (16,), "evaluations": 16}
    train(machines, learner, 128, **asked)  # what is loaded and compiled once is not where it is killed

    def call():
        done = train(machines, learner, 2048, checkpoint=run.checkpoint, resume=True, **asked)
        done.save(run.policy, command="told")
        run.checkpoint.unlink()

    return lambda _: Forked(call)


def test_training_survives_kills(tmp_path):
    run = Training(tmp_path)
    attack(run, trained_here(run), 6, np.random.default_rng(3))


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "steps"), [("ppo", 12_000), ("sac", 1500), ("td3", 1500)])
def test_many_kills_of_training(algorithm, steps, tmp_path):
    attack(Training(tmp_path, algorithm, steps), by_command, 12, np.random.default_rng(43))
