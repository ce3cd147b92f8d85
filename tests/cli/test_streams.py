"""What goes where: results to standard output, progress to standard error, a bar only on a terminal."""

import itertools
import os
import re
import subprocess
import sys
import time

import pytest

from evenhand.cli import progress
from evenhand.kernels import compilation

from ..conftest import mentions, slow_after

PLAY = ["--monte-carlo", "--episodes", 20, "--horizon", 20]
LINE = r"([\w,: -]+: \d+ %|compiling, once on this machine) \(\d+ s\)"
COMMANDS = {
    "compare": ["compare", "machine-replacement", *PLAY],
    "evaluate": ["evaluate", "machine-replacement", "random", *PLAY],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_progress_is_plain_lines_on_standard_error(command, evenhand, talkative):
    told = evenhand(*COMMANDS[command], "--json")
    assert told.json
    lines = told.err.splitlines()
    assert any(line.startswith("random: ") for line in lines)
    assert all(re.fullmatch(LINE, line) for line in lines)
    assert "\x1b" not in told.err


@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "text"])
@pytest.mark.parametrize("command", COMMANDS)
def test_quiet_shows_no_progress(command, options, evenhand, talkative):
    told = evenhand(*COMMANDS[command], *options, "--quiet")
    assert (told.code, told.err) == (0, "")
    assert told.out


def test_progress_never_goes_back(evenhand, talkative):
    told = evenhand(*COMMANDS["evaluate"]).err
    shares = [int(line.split(": ")[-1].split()[0]) for line in told.splitlines()]
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 100


def test_progress_is_reported_after_a_second_and_then_every_two(timepiece, capsys):
    """So a short run tells nothing, and how much a long one tells depends on how long it takes, on nothing else."""
    with progress.progress(quiet=False) as tell:
        for now, share in [(0.0, 0.1), (0.9, 0.2), (1.0, 0.3), (2.9, 0.4), (3.0, 0.5), (9.0, 0.6), (9.5, 0.7)]:
            timepiece[0] = now
            tell("random", share)
    told = ["random: 30 % (1 s)", "random: 50 % (3 s)", "random: 60 % (9 s)"]
    assert capsys.readouterr().err.splitlines() == told


def test_long_work_is_reported_less_often(timepiece, capsys):
    with progress.progress(quiet=False) as tell:
        for now in range(0, 3601):
            timepiece[0] = float(now)
            tell("random", 0.5)
    moments = [int(line.split("(")[1].split()[0]) for line in capsys.readouterr().err.splitlines()]
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (2, 30)


def wait_for(told, what):
    """Wait until something was told on standard error."""
    for _ in range(1000):
        if what in "".join(told):
            return
        time.sleep(0.01)
    raise AssertionError(f"{what!r} was never told, only {told}")


@pytest.fixture
def lines(monkeypatch):
    """What progress writes, as it comes."""
    written = []
    monkeypatch.setattr(progress.click, "echo", lambda line, err: written.append(line))
    monkeypatch.setattr(progress, "LOOK_EVERY", 0.001)
    return written


def test_work_that_says_nothing_is_reported_from_the_first_second(timepiece, lines):
    with progress.progress(quiet=False) as tell:
        timepiece[0] = 1.0
        wait_for(lines, "loading: 0 % (1 s)")
        tell("fluid relaxation", 0.25)
        timepiece[0] = 7.0
        wait_for(lines, "fluid relaxation: 25 % (7 s)")
    assert len(lines) == 2


def test_compilation_is_reported_and_the_work_after_it(timepiece, lines):
    with progress.progress(quiet=False) as tell:
        tell("random", 0.5)
        compilation.compile_now(True)
        compilation.compile_now(True)  # one function calls another
        compilation.compile_now(False)
        timepiece[0] = 4.0
        wait_for(lines, "compiling, once on this machine (4 s)")
        compilation.compile_now(False)
        timepiece[0] = 8.0
        wait_for(lines, "random: 50 % (8 s)")


TALK = """
from evenhand.cli import progress
from evenhand.cli import run
progress.FIRST_LINE, progress.LOOK_EVERY = 0.0, 0.001
run({arguments!r})
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", slow_after(1, ["solve", "compare", "evaluate"]))
def test_loading_what_solves_is_reported(command, launch):
    """It takes a second or more, and on a busy machine several; a fresh process has all of it to load."""
    arguments = [command, "machine-replacement", "-p", "num_arms=2", *(["random"] if command == "evaluate" else [])]
    shown = launch(command=[sys.executable, "-c", TALK.format(arguments=arguments)])
    assert shown.code == 0
    assert mentions(0, "0 s")(shown.err)


def test_solve_and_compare_name_what_they_do(evenhand, talkative):
    solved = evenhand("solve", "machine-replacement", "-p", "num_arms=2", "--method", "fluid").err
    # Not whittle: it does what fair-index does, and policies that do the same are tried once.
    for phase in ("fluid relaxation: ", "trying oldest-first: ", "playing ", "prices and service: "):
        assert phase in solved
    compared = evenhand("compare", "machine-replacement", "-p", "num_arms=2").err
    for phase in ("making whittle: ", "upper bound: ", "never-act: "):
        assert phase in compared
    shares = [int(line.split(": ")[-1].split()[0]) for line in compared.splitlines() if "compiling" not in line]
    assert shares == sorted(shares)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_short_run_shows_no_progress(command, evenhand):
    told = evenhand(*COMMANDS[command])
    assert (told.code, told.err) == (0, "")


def test_text_that_is_piped_has_no_colours_and_no_blanks_at_the_ends(launch):
    """Standard output is the result alone; standard error has plain lines of progress, if it takes long enough."""
    shown = launch("compare", "machine-replacement", "--episodes", 20)
    assert shown.code == 0
    assert [line for line in shown.err.splitlines() if not re.fullmatch(LINE, line)] == []
    assert "\x1b" not in shown.out
    assert " %\n" not in shown.out.split("\n\n")[0]
    assert [line for line in shown.out.splitlines() if line != line.rstrip()] == []


@pytest.mark.slow
@pytest.mark.parametrize("width", slow_after(1, [80, 120]))
def test_a_table_fits_its_terminal_and_breaks_no_name(width, terminal, plain):
    code, shown = terminal(width, "compare", "machine-replacement", "-p", "num_arms=3", "--episodes", 20)
    assert code == 0
    lines = plain(shown).splitlines()
    first = max(i for i, line in enumerate(lines) if "welfare gini:2" in line)
    assert all(len(line) <= width for line in lines[first + 1 :])
    names = {line.split()[0] for line in lines if line.split()}
    assert {"random", "oldest-first", "myopic", "equal-resources", "never-act"} <= names


def test_no_line_of_progress_stays_on_a_terminal(terminal, screen):
    """Not even where a label is longer than the line."""
    arguments = ["compare", "machine-replacement", "-p", "num_arms=2", "--policies", "never-act", "--json"]
    code, shown = terminal(30, *arguments)
    assert code == 0
    assert "loading" in shown
    assert "…" in shown
    left = "".join(screen(shown, 30))
    assert left.startswith('{"welfare"')
    assert "━" not in left


def test_a_terminal_gets_a_bar_and_has_its_cursor_back(terminal, plain):
    code, shown = terminal(80, "evaluate", "machine-replacement", "random", *PLAY, "--json")
    assert code == 0
    assert "━" in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0
    assert "{" in plain(shown)


@pytest.mark.slow
def test_a_quiet_terminal_gets_no_bar(terminal):
    code, shown = terminal(80, "evaluate", "machine-replacement", "random", *PLAY, "--json", "--quiet")
    assert code == 0
    assert shown.startswith("{")
    assert "\x1b" not in shown


@pytest.mark.parametrize("arguments", [["problems"], ["problems", "--json"], ["--help"]], ids=" ".join)
def test_a_reader_who_has_gone_is_not_a_crash(arguments):
    """As in `evenhand problems | head -1`."""
    theirs, ours = os.pipe()
    os.close(theirs)
    done = subprocess.run([sys.executable, "-m", "evenhand", *arguments], stdout=ours, stderr=subprocess.PIPE)
    os.close(ours)
    assert done.stderr == b""
    assert done.returncode in (0, 1)


def test_head_is_served(folder):
    command = f'"{sys.executable}" -m evenhand problems | head -1'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("machine-replacement: ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_closed_standard_output_is_not_a_crash(launch):
    shown = launch(command=["sh", "-c", f'exec "{sys.executable}" -m evenhand problems >&-'])
    assert "Traceback" not in shown.err
    assert shown.code in (0, 1)


def test_a_full_standard_output_fails_in_words(launch):
    shown = launch(command=["sh", "-c", f'exec "{sys.executable}" -m evenhand problems --json >/dev/full'])
    assert shown.code == 1
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err


LEAVING = """
import atexit, sys
from evenhand.cli import main as entry
class Kept:
    def __del__(self):
        print("freed")
kept = Kept()
def run(arguments):
    atexit.register(print, "handler")
    print("result")
    return 2
sys.modules["evenhand.cli.main"].run = run
entry()
"""


def test_a_command_ends_without_freeing_every_object():
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "result\nhandler\n", "")
