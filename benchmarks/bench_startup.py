"""How long a user waits before anything happens: the best of ten runs, the interpreter's own start beside it."""

import os
import subprocess
import sys
import tempfile

from benchmarks.timing import best_of

RUNS = 10

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import evenhand": ["-c", "import evenhand"],
    "evenhand --help": ["-m", "evenhand", "--help"],
    "evenhand --version": ["-m", "evenhand", "--version"],
    "evenhand compare --help": ["-m", "evenhand", "compare", "--help"],
    "evenhand solve, 5 arms": ["-m", "evenhand", "solve", "machine-replacement", "-p", "num_arms=5", "--quiet"],
}

DEMO = """
import contextlib, io, sys
from evenhand.cli import main
from evenhand.kernels.compilation import seconds_getting_ready
demo = ["machine-replacement", "-p", "num_arms=5", "-p", "operating_cost=exponential"]
for command in (["solve", *demo], ["compare", *demo]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(command)
print(seconds_getting_ready())
"""
"""Both commands of `make demo`."""


def best_milliseconds(arguments: list[str], runs: int = RUNS) -> float:
    """The shortest of several runs of the interpreter with these arguments, in milliseconds."""
    command = [sys.executable, *arguments]
    return 1000 * best_of(runs, lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def main() -> None:
    print(f"start-up, best of {RUNS} runs; a user should wait less than 300 ms for --help, 1 s for a small model")
    for name, arguments in COMMANDS.items():
        print(f"  {name:24} {best_milliseconds(arguments):7.1f} ms")
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "filled"):
            run = subprocess.run(
                [sys.executable, "-c", DEMO],
                env=os.environ | {"NUMBA_CACHE_DIR": folder},
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            print(f"  compiling for the demo   {float(run.stdout):7.1f} s with Numba, its cache {cache}")


if __name__ == "__main__":
    main()
