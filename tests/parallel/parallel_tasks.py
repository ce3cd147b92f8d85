"""Tasks for the workers of the tests: a module that they can import."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from evenhand.errors import Fault, ModelError


class Numbers:
    """Builder of a block: numbers from a seed, with a call counter that must not change results."""

    def __init__(self, seed, size, log=None):
        self.seed, self.size, self.log = seed, size, log

    def __call__(self):
        if self.log is not None:
            with Path(self.log).open("a") as file:
                file.write(f"{self.seed}\n")
        return {"numbers": np.random.default_rng(self.seed).random(self.size), "calls": 0}


def scaled(block, factor, shift=0.0):
    return block["numbers"] * factor + shift


def calls(block):
    block["calls"] += 1
    return block["calls"]


def slow_sum(block, seconds):
    time.sleep(seconds)
    return float(block["numbers"].sum())


def process_of_block(block):
    return os.getpid()


def die_once(block, mark):
    """End the process unless the mark exists."""
    return die_at_first(mark) and float(block["numbers"].sum())


def die(block):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(block):
    raise ModelError([Fault("arms[2]", "is not sound")], "model.toml")


def fail_elsewhere(block):
    raise np.linalg.LinAlgError("singular")


def doubled(number, progress=None):
    if progress is not None:
        progress("doubling", 0.5)
    return 2 * number


def fail_at_three(number, progress=None):
    if number == 3:
        raise ValueError("three")
    return number


def solved(size, progress=None):
    """Bytes of the solution of a system large enough for BLAS in several threads."""
    rng = np.random.default_rng(size)
    system = np.eye(size) - 0.9 * rng.dirichlet(np.ones(size), size)
    return np.linalg.solve(system, rng.random(size)).tobytes()


def die_at_first(mark, progress=None):
    """End the process unless the mark exists."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die_always(name, progress=None):
    os.kill(os.getpid(), signal.SIGKILL)


def process(number, progress=None):
    return os.getpid()


def environment(name, progress=None):
    return os.getenv(name)


def slow(seconds, progress=None):
    time.sleep(seconds)
