"""Kernels that both demo commands compile from an empty cache, by Numba's compile events.

`python -m benchmarks startup` prints how long that takes: at most 10 s on a quiet machine.
"""

import json
import os
import subprocess
import sys

import pytest

BODY = """
import contextlib, io, json, sys
from numba.core import event
from evenhand.cli import main

class Listener(event.Listener):
    depth, kernels = 0, []
    def on_start(self, begun):
        if self.depth == 0:
            self.kernels.append(begun.data["dispatcher"].py_func.__name__)
        self.depth += 1
    def on_end(self, _):
        self.depth -= 1

listener = Listener()
event.register("numba:compile", listener)
demo = ["machine-replacement", "-p", "num_arms=5", "-p", "operating_cost=exponential"]
for command in (["solve", *demo], ["compare", *demo, "--report", sys.argv[1]]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(command)
print(json.dumps(listener.kernels))
"""

KERNELS = {
    "_trace", "_cut_blocks", "_sweep", "play", "step_arms", "serve_batch", "serve_greedily", "serve_in_order",
    "assign_uniformly", "round_within"
}  # fmt: skip
"""Frontiers and levels of the relaxation, Whittle indices, episodes, single steps, allocations, and their rounding."""


@pytest.mark.slow
def test_both_demo_commands_compile_few_kernels_and_each_once(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", BODY, str(tmp_path / "report.html")]
    runs = [
        json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    ]
    assert len(runs[0]) == len(set(runs[0])), runs[0]
    assert set(runs[0]) <= KERNELS
    assert runs[1] == []  # all are in the cache
