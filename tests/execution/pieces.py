"""Work for the workers of the tests: it has to be importable where they are."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from evenhand.errors import Fault, ModelError


class Numbers:
    """A recipe: numbers from a seed, with a memory of questions that must not change answers."""

    def __init__(self, seed, size, diary=None):
        self.seed, self.size, self.diary = seed, size, diary

    def __call__(self):
        if self.diary is not None:
            with Path(self.diary).open("a") as file:
                file.write(f"{self.seed}\n")
        return {"numbers": np.random.default_rng(self.seed).random(self.size), "asked": 0}


def scaled(shard, factor, shift=0.0):
    shard["asked"] += 1
    return shard["numbers"] * factor + shift


def asked(shard):
    shard["asked"] += 1
    return shard["asked"]


def slowly(shard, seconds):
    time.sleep(seconds)
    return float(shard["numbers"].sum())


def who(shard):
    return os.getpid()


def die_once(shard, mark):
    """End the process, unless it was done before."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return float(shard["numbers"].sum())


def die(shard):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(shard):
    raise ModelError([Fault("arms[2]", "is not sound")], "model.toml")


def fail_elsewhere(shard):
    raise np.linalg.LinAlgError("singular")


def square(number):
    return number * number


def die_of_three(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def process(number):
    return os.getpid()


def doubled(number, progress=None):
    """A cell of a sweep."""
    if progress is not None:
        progress("doubling", 0.5)
    return 2 * number


def solved(size, progress=None):
    """The bits of systems that are large enough for linear algebra in several threads."""
    rng = np.random.default_rng(size)
    system = np.eye(size) - 0.9 * rng.dirichlet(np.ones(size), size)
    return np.linalg.solve(system, rng.random(size)).tobytes()


def die_at_first(mark, progress=None):
    """End the process, unless it was done before."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die_always(name, progress=None):
    os.kill(os.getpid(), signal.SIGKILL)


def mine(number, progress=None):
    return os.getpid()


def slow_cell(seconds, progress=None):
    time.sleep(seconds)
