"""Ctrl-C ends everything at once, with exit code 130 and without a trace on the disk."""

import signal
import subprocess
import sys

import pytest

SOON = 300.0
"""Seconds within which an interrupted command must have ended, on a machine as busy as it may be.

The command alone would take hours, so whatever ends sooner was interrupted.
"""

LONG = [
    "compare", "heterogeneous-machine-replacement", "-p", "num_arms=40",
    "--monte-carlo", "--episodes", 200, "--horizon", 2_000_000,
]  # fmt: skip
"""Long to play, but in short steps; too large for a bound that would have to be found before."""


def interrupt(process):
    """(exit code, what was told on standard error from now on) of a process after an interrupt."""
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=SOON)
    except subprocess.TimeoutExpired:
        pytest.fail("the interrupt was not heard")
    assert out == b""
    return process.returncode, err.decode()


def wait_for(process, text):
    """Reads standard error up to the line that holds the text."""
    for line in iter(process.stderr.readline, b""):
        if text in line.decode():
            return
    pytest.fail(f"ended without {text!r}")


def test_while_it_plays(folder, start, files):
    with start(*LONG, "--report", "report.html") as process:
        wait_for(process, " %")
        code, told = interrupt(process)
    assert "Traceback" not in told
    assert code == 130
    assert "interrupted" in told
    assert files() == []


@pytest.mark.parametrize(
    "module",
    ["evenhand.cli.group", "numpy", pytest.param("evenhand.kernels.greedy_service", marks=pytest.mark.slow)],
)
def test_while_it_starts(module, folder, start, tmp_path_factory, files):
    """Just after a module is loaded; after the last one the kernels are compiled, for want of a cache."""
    cache = str(tmp_path_factory.mktemp("cache"))
    with start(*LONG, "--report", "report.html", options=["-X", "importtime"], NUMBA_CACHE_DIR=cache) as process:
        wait_for(process, f" {module}\n")
        code, told = interrupt(process)
    assert code == 130
    assert "Traceback" not in told
    assert files() == []


FOREIGN = """
import ctypes, signal, sys
from evenhand.cli import main
import evenhand.planning.compare
from evenhand import evaluation

def dropped():
    ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()

def mistaken():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise SystemError("a result with an exception set") from error

def interrupted(*arguments, **options):
    {0}()
    return evaluate(*arguments, **options)

evaluate, evaluation.evaluate = evaluation.evaluate, interrupted
main(sys.argv[1:])
"""


@pytest.mark.parametrize("how", ["dropped", pytest.param("mistaken", marks=pytest.mark.slow)])
def test_within_foreign_code(how, start, files):
    """Compiled code does not pass an interrupt on as it is.

    A callback from C, such as LLVM's while it compiles, cannot raise: Python prints the exception and drops it. A
    compiled kernel that returns while an interrupt is pending becomes a SystemError.
    """
    arguments = [str(argument) for argument in (*LONG, "--report", "report.html")]
    with start(command=[sys.executable, "-c", FOREIGN.format(how), *arguments]) as process:
        try:
            _, told = process.communicate(timeout=SOON)
        except subprocess.TimeoutExpired:
            pytest.fail("the interrupt was dropped, and the work goes on")
    assert "Traceback" not in told.decode()
    assert process.returncode == 130
    assert files() == []
