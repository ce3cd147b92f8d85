"""`-` as MODEL: standard input, of the kind that --format says; and files of the kind that their name does not say."""

import io
import json
import subprocess
import sys

import pytest

from evenhand.cli import standard_input
from evenhand.errors import InvalidInputError
from evenhand.model import load, save

from ..conftest import mentions

COMMANDS = {
    "solve": ["solve", "-"],
    "compare": ["compare", "-", "--policies", "never-act"],
    "evaluate": ["evaluate", "-", "never-act"],
    "indices": ["indices", "-"],
    "fairness": ["fairness", "-", "--welfare", "utilitarian", "--welfare", "maximin"],
}


class Piped(io.TextIOWrapper):
    """What a pipe is to a program: bytes behind text, which cannot be read twice."""

    def __init__(self, data, terminal=False):
        stream = io.BytesIO(data)
        stream.seekable = lambda: False
        stream.name = "<stdin>"
        super().__init__(stream)
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def pipe(monkeypatch):
    """Puts bytes on standard input."""
    return lambda data, **how: monkeypatch.setattr(sys, "stdin", Piped(data, **how))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_standard_input_as_it_reads_the_file(command, small, pipe, evenhand, timeless):
    words = COMMANDS[command]
    expected = evenhand(*[small if word == "-" else word for word in words], "--json").json
    pipe(small.read_bytes())
    assert timeless(evenhand(*words, "--format", "toml", "--json").json) == timeless(expected)


@pytest.mark.parametrize("format", ["toml", "json", "npz"])
def test_every_format_is_read(format, small, folder, pipe, evenhand):
    save(load(small), folder / f"model.{format}")
    pipe((folder / f"model.{format}").read_bytes())
    told = evenhand("indices", "-", "--format", format)
    assert "of standard input" in told.out


def test_a_process_reads_its_pipe(small, folder):
    """Binary arrays through a real pipe, whose bytes come in pieces."""
    save(load(small), folder / "model.npz")
    words = ["-m", "evenhand", "check", "-", "--format", "npz", "--json"]
    done = subprocess.run([sys.executable, *words], input=(folder / "model.npz").read_bytes(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "standard input"


def test_faults_are_reported_of_standard_input(pipe, evenhand):
    pipe(b"budget = [1]\n")
    assert evenhand("solve", "-", "--format", "toml").refusal.startswith("error: standard input: 2")
    pipe(b"")
    assert "standard input: 1" in evenhand("solve", "-", "--format", "toml").refusal


def test_what_is_missing_is_reported(small, pipe, evenhand):
    pipe(small.read_bytes())
    assert mentions("--format toml", "--format json", "--format npz")(evenhand("solve", "-").refusal)
    pipe(b"", terminal=True)
    assert "MODEL: - " in evenhand("solve", "-", "--format", "toml").refusal


def test_there_may_be_no_standard_input(monkeypatch, evenhand):
    monkeypatch.setattr(sys, "stdin", None)
    assert "MODEL: - " in evenhand("solve", "-", "--format", "toml").refusal


def test_only_one_argument_can_be_standard_input(pipe):
    import click

    pipe(b"x")
    with click.Context(click.Command("act")):
        assert standard_input("MODEL", "toml", ["toml"]).read() == b"x"
        with pytest.raises(InvalidInputError, check=mentions("STATES: ", "MODEL")):
            standard_input("STATES", "csv", ["csv"])
        with pytest.raises(InvalidInputError, check=mentions("STATES", "csv", "toml")):
            standard_input("STATES", "toml", ["csv"])


def test_a_file_may_have_any_name_with_its_format(small, folder, evenhand):
    small.rename(folder / "small.txt")
    assert evenhand("indices", "small.txt", "--format", "toml", "--json").json["arms"]
    assert "invalid JSON" in evenhand("indices", "small.txt", "--format", "json").refusal


def test_a_built_in_problem_has_no_format(evenhand):
    assert "built-in problem" in evenhand("solve", "machine-replacement", "--format", "toml").refusal


def test_the_next_command_names_the_format(small, pipe, evenhand):
    pipe(small.read_bytes())
    assert (
        "evaluate - policy.zip"
        in evenhand("solve", "-", "--format", "toml", "--welfare", "maximin", "--out", "policy.zip").out
    )


def test_streams_from_python(small):
    assert load(io.BytesIO(small.read_bytes()), "toml") == load(small)
    with pytest.raises(InvalidInputError, check=mentions(".toml, .json, .npz")):
        load(io.BytesIO(b""))
    with pytest.raises(InvalidInputError, check=mentions("yaml")):
        load(small, "yaml")


def test_files_that_are_not_there_are_reported(small, evenhand):
    assert "small.toml?" in evenhand("solve", "smal.toml").refusal
    assert "file small.toml." in evenhand("solve", "small").refusal
    told = evenhand("evaluate", small, "plan.zip").refusal
    assert "plan.zip: " in told
    assert "Errno" not in told
    small.with_name("plans.zip").touch()
    told = evenhand("evaluate", small, "plan.zip").refusal
    assert "plans.zip?" in told
    assert "policy file" in evenhand("evaluate", small, small).refusal
