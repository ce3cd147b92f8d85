"""Compile time of both demo commands from an empty cache, by Numba's compile events."""

import os
import subprocess
import sys

import pytest

BODY = """
import contextlib, io, sys, time
from numba.core import event
from evenhand.cli import main

class Listener(event.Listener):
    depth = seconds = 0
    def on_start(self, _):
        self.depth += 1
        if self.depth == 1:
            self.since = time.process_time()
    def on_end(self, _):
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.process_time() - self.since

listener = Listener()
event.register("numba:compile", listener)
demo = ["machine-replacement", "-p", "num_arms=5", "-p", "operating_cost=exponential"]
for command in (["solve", *demo], ["compare", *demo, "--report", sys.argv[1]]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(command)
print(listener.seconds)
"""


@pytest.mark.slow
def test_both_demo_commands_compile_for_at_most_ten_seconds(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", BODY, str(tmp_path / "report.html")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(run.stdout) <= 10
