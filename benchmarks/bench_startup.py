"""How long a user waits before anything happens: the best of ten runs, the interpreter's own start beside it."""

import subprocess
import sys

from benchmarks.timing import best_of

RUNS = 10

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import evenhand": ["-c", "import evenhand"],
    "evenhand --help": ["-m", "evenhand", "--help"],
    "evenhand --version": ["-m", "evenhand", "--version"],
    "evenhand compare --help": ["-m", "evenhand", "compare", "--help"],
}


def best_milliseconds(arguments: list[str], runs: int = RUNS) -> float:
    """The shortest of several runs of the interpreter with these arguments, in milliseconds."""
    command = [sys.executable, *arguments]
    return 1000 * best_of(runs, lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def main() -> None:
    print(f"start-up, best of {RUNS} runs; a user should wait less than 300 ms for --help")
    for name, arguments in COMMANDS.items():
        print(f"  {name:24} {best_milliseconds(arguments):7.1f} ms")


if __name__ == "__main__":
    main()
