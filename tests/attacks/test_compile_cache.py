"""Numba's cache of compiled code: several writers at once, and none that can write."""

import os
import subprocess
import sys

import pytest

from evenhand.kernels import njit

USE = """
import evenhand as eh
machines = eh.problems.machine_replacement(num_arms=100, budget=20)
print(eh.simulate_counts(machines, eh.policies.whittle(machines), 20, 20, rng=0).returns.mean())
"""


def start(folder):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", USE], env=environment, stdout=subprocess.PIPE, text=True)


def test_code_without_a_folder_is_compiled_by_every_process():
    names = {"njit": njit}
    exec("@njit\ndef double(x):\n    return 2 * x", names)  # a function without a file has no folder for its code
    assert names["double"](3) == 6
    assert not names["double"].stats.cache_path


@pytest.mark.slow
def test_several_processes_fill_an_empty_cache(tmp_path):
    together = [start(tmp_path) for _ in range(3)]
    assert len({process.communicate(timeout=600)[0] for process in [*together, start(tmp_path)]}) == 1
    assert not any(process.returncode for process in together)
    assert list(tmp_path.rglob("*.nbc"))
