"""What goes where: results to standard output, progress to standard error, a bar only on a terminal."""

import os
import re
import subprocess
import sys

import pytest

from evenhand.cli import console

from ..conftest import one_in

PLAY = ["--monte-carlo", "--episodes", 20, "--horizon", 20]
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
    assert all(line.endswith(" %") for line in lines)
    assert "\x1b" not in told.err


@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "text"])
@pytest.mark.parametrize("command", COMMANDS)
def test_quiet_tells_no_progress(command, options, evenhand, talkative):
    told = evenhand(*COMMANDS[command], *options, "--quiet")
    assert (told.code, told.err) == (0, "")
    assert told.out


def test_progress_never_goes_back(evenhand, talkative):
    shares = [int(line.split()[-2]) for line in evenhand(*COMMANDS["evaluate"]).err.splitlines()]
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 100


def test_progress_is_told_every_two_seconds_and_not_before(timepiece, capsys):
    """So a short run tells nothing, and how much a long one tells depends on how long it takes, on nothing else."""
    with console.progress(quiet=False) as tell:
        for now, share in [(0.0, 0.1), (1.9, 0.2), (2.0, 0.3), (3.9, 0.4), (4.0, 0.5), (9.0, 0.6), (9.5, 0.7)]:
            timepiece[0] = now
            tell("random", share)
    assert capsys.readouterr().err.splitlines() == ["random: 30 %", "random: 50 %", "random: 60 %"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_short_run_tells_no_progress(command, evenhand):
    told = evenhand(*COMMANDS[command])
    assert (told.code, told.err) == (0, "")


def test_text_that_is_piped_has_no_colours_and_no_blanks_at_the_ends(launch):
    """Standard output is the result alone; standard error has plain lines of progress, if it takes long enough."""
    shown = launch("compare", "machine-replacement", "--episodes", 20)
    assert shown.code == 0
    assert [line for line in shown.err.splitlines() if not re.fullmatch(r"[\w, -]+: \d+ %", line)] == []
    assert "\x1b" not in shown.out
    assert " %\n" not in shown.out.split("\n\n")[0]
    assert [line for line in shown.out.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("width", one_in(2, [80, 120]))
def test_a_table_fits_its_terminal_and_breaks_no_name(width, terminal, plain):
    code, shown = terminal(width, "compare", "machine-replacement", "-p", "num_arms=3", "--episodes", 20)
    assert code == 0
    lines = plain(shown).splitlines()
    first = max(i for i, line in enumerate(lines) if "welfare gini:2" in line)
    assert all(len(line) <= width for line in lines[first + 1 :])
    names = {line.split()[0] for line in lines if line.split()}
    assert {"random", "oldest-first", "myopic", "equal-resources", "never-act"} <= names


def test_a_terminal_gets_a_bar_and_has_its_cursor_back(terminal, plain):
    code, shown = terminal(80, "evaluate", "machine-replacement", "random", *PLAY, "--json")
    assert code == 0
    assert "━" in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0
    assert "{" in plain(shown)


def test_a_quiet_terminal_gets_no_bar(terminal):
    code, shown = terminal(80, "evaluate", "machine-replacement", "random", *PLAY, "--json", "--quiet")
    assert code == 0
    assert shown.startswith("{")
    assert "\x1b" not in shown


@pytest.mark.parametrize("arguments", [["problems"], ["problems", "--json"], ["--help"]], ids=" ".join)
def test_a_reader_who_has_gone_is_no_crash(arguments):
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


def test_a_closed_standard_output_is_no_crash(launch):
    shown = launch(command=["sh", "-c", f'exec "{sys.executable}" -m evenhand problems >&-'])
    assert "Traceback" not in shown.err
    assert shown.code in (0, 1)


def test_a_full_standard_output_fails_in_words(launch):
    shown = launch(command=["sh", "-c", f'exec "{sys.executable}" -m evenhand problems --json >/dev/full'])
    assert shown.code == 1
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err
