"""Ways to run the command line: within the process, in one of its own, and in a terminal of a given width."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from evenhand.cli import progress, run

PATIENCE = 900.0
"""Seconds after which a process that hangs is ended. No test is about speed: a machine may be as busy as it likes."""


@dataclass(frozen=True)
class Outcome:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one JSON object of standard output, which holds nothing else and no number that JSON lacks."""
        assert self.code == 0, self.err
        assert self.out.endswith("}\n")
        assert self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=_refuse)

    @property
    def refusal(self):
        """What a user is told whose input was refused: exit code 2, no traceback, and no result on standard output.

        With --json there is one object that says the same.
        """
        assert self.code == 2, self.err
        assert self.out == "" or self.failure["exit_code"] == 2
        assert "Traceback" not in self.err
        return self.err

    @property
    def failure(self):
        """The one JSON object of standard output that tells what went wrong."""
        assert self.code != 0
        assert self.out.count("\n") == 1
        told = json.loads(self.out, parse_constant=_refuse)
        assert told["exit_code"] == self.code
        assert told["faults"]
        assert f"error: {told['error']}" in self.err
        return told


def _refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


@pytest.fixture(autouse=True)
def timepiece(monkeypatch):
    """The clock by which progress is told, as a list of one reading; it stands still unless a test moves it."""
    reading = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: reading[0])
    return reading


@pytest.fixture
def talkative(monkeypatch):
    """Progress is told whenever there is some, however short the work."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)


@pytest.fixture
def evenhand(capsys):
    """Runs a command within this process."""

    def evenhand(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return evenhand


def _command(arguments, options):
    return [sys.executable, *options, "-m", "evenhand", *(str(argument) for argument in arguments)]


def _obey_interrupts():
    """A background job of a shell ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def _watched(process):
    """Ends the process if it is still there after a while, or when the block is left."""
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def start():
    """Starts a command in a process of its own; a context that gives the process, with unbuffered binary streams."""

    def start(*arguments, options=(), command=None, **environment):
        return _watched(
            subprocess.Popen(
                command or _command(arguments, options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,  # so that what readline leaves is left for communicate
                env=os.environ | environment,
                preexec_fn=_obey_interrupts,
            )
        )

    return start


@pytest.fixture
def launch(start):
    """Runs a command in a process of its own, to its end."""

    def launch(*arguments, **options):
        with start(*arguments, **options) as process:
            out, err = process.communicate()
        return Outcome(process.returncode, out.decode(), err.decode())

    return launch


@pytest.fixture
def terminal():
    """Runs a command in a terminal of its own, to its end; gives the exit code and all that was shown."""

    def terminal(width, *arguments):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        process = subprocess.Popen(
            _command(arguments, ()), stdin=theirs, stdout=theirs, stderr=theirs, env=environment | {"TERM": "xterm"}
        )
        os.close(theirs)
        with _watched(process):
            shown = b"".join(iter(lambda: _read(ours), b"")).decode()
            process.wait()
        os.close(ours)
        return process.returncode, shown

    return terminal


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody is at the other end any more
        return b""


@pytest.fixture
def plain():
    """Text as it is seen: without colours and moves of the cursor."""
    return lambda text: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


@pytest.fixture
def screen():
    """The lines that are left on a terminal, which knows what Rich's bar needs: to go up, and to erase a line."""

    def screen(shown, width):
        lines, row, column = [[]], 0, 0
        for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", shown, re.DOTALL):
            if token == "\r":
                column = 0
            elif token == "\n":
                row, column = row + 1, 0
            elif token.startswith("\x1b"):
                row -= int(token[2:-1] or 1) if token.endswith("A") else 0
                if token.endswith("K"):
                    lines[row] = []
                continue
            else:
                row, column = (row + 1, 0) if column == width else (row, column)
                lines[row : row + 1] = [[*(lines[row] if row < len(lines) else [])[:column], token]]
                column += 1
            lines += [[] for _ in range(row + 1 - len(lines))]
        return ["".join(line) for line in lines]

    return screen


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A fresh current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(folder):
    """The names in the current directory, hidden ones too."""
    return lambda: sorted(path.name for path in folder.iterdir())


@pytest.fixture
def small(folder):
    """A small model file of two types of arms, in the current directory."""
    file = folder / "small.toml"
    file.write_text(
        """
discount = 0.9
budget = [1]

[[arms]]
name = "machine"
count = 2
transitions = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
rewards = [[1.0, 0.5], [0.0, 0.5]]
usage = [[0], [1]]

[[arms]]
name = "pump"
transitions = [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
rewards = [[1.0, 0.2], [0.1, 0.2]]
usage = [[0], [1]]
"""
    )
    return file


def _timeless(value):
    if isinstance(value, dict):
        return {key: _timeless(entry) for key, entry in value.items() if key != "seconds"}
    return [_timeless(entry) for entry in value] if isinstance(value, list) else value


@pytest.fixture
def timeless():
    """A JSON value without the seconds, which are never the same."""
    return _timeless
