"""How the commands introduce themselves, and the ways to call them."""

import re
from importlib.metadata import entry_points

import click
import pytest
from click.testing import CliRunner

from evenhand import __version__
from evenhand.cli import application, main

COMMANDS = application.list_commands(None)


def found(group, *path):
    """Every command that does something, by its words; groups are opened."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, click.Group):
            yield from found(command, *path, name)
        else:
            yield " ".join([*path, name]), command


LEAVES = dict(found(application))


def help_of(*command):
    result = CliRunner().invoke(application, [*command, "--help"], prog_name="evenhand", terminal_width=100)
    assert result.exit_code == 0
    return result.output


def words(text):
    return " ".join(text.split())


def test_the_commands_are_there():
    assert {"problems", "compare", "evaluate"} <= set(COMMANDS)


@pytest.mark.parametrize("name", LEAVES)
def test_help_of_a_command_shows_every_option_and_argument(name):
    text = help_of(*name.split())
    for parameter in LEAVES[name].params:
        if isinstance(parameter, click.Option):
            assert all(option in text for option in parameter.opts)
            assert parameter.help, f"{parameter.name} says nothing"
            assert words(parameter.help) in words(text)
        else:
            assert parameter.make_metavar(click.Context(LEAVES[name])).strip("[]") in text


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_the_common_options(name):
    options = {option for parameter in LEAVES[name].params for option in parameter.opts}
    assert {"--json", "--quiet"} <= options


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_list_of_commands_says_whole_sentences(width):
    """At any width: the first sentence of each, on as many lines as it takes."""
    result = CliRunner().invoke(application, ["--help"], prog_name="evenhand", terminal_width=width)
    listed = words(result.output[result.output.index("Commands:") :])
    for name in COMMANDS:
        first = words(application.get_command(None, name).help.split("\n\n")[0])
        said = first.split(". ")[0].rstrip(".")
        assert re.sub(r"\s|-", "", f"{name} {said}.") in re.sub(r"\s|-", "", listed)
    assert "..." not in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_short_and_long_help_are_the_same(name, evenhand):
    assert evenhand(name, "-h") == evenhand(name, "--help")


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=str)
def test_help_holds_no_markup(command):
    text = help_of(*command)
    assert "\\b" not in text
    assert "\b" not in text


def test_examples_stand_on_lines_of_their_own():
    assert "evenhand problems" in {line.strip() for line in help_of().splitlines()}


def test_examples_of_the_help_are_sound(evenhand):
    examples = [line.split()[1:] for line in help_of().splitlines() if line.strip().startswith("evenhand ")]
    assert examples
    for command, *_ in examples:
        assert command in COMMANDS


def test_version(evenhand):
    shown = evenhand("--version")
    assert (shown.code, shown.err) == (0, "")
    assert __version__ in shown.out


def test_no_command_shows_the_help_and_fails(evenhand):
    shown = evenhand()
    assert shown.code == 2
    for name in COMMANDS:
        assert name in shown.out + shown.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["compar"], "Did you mean 'compare'?"),
        (["compare"], "Missing argument 'MODEL'"),
        (["evaluate", "machine-replacement"], "Missing argument 'POLICY'"),
        (["compare", "machine-replacement", "--episode", "3"], "--episodes"),
        (["compare", "machine-replacement", "--episodes", "0"], "--episodes"),
        (["compare", "machine-replacement", "--episodes", "many"], "'many'"),
        (["compare", "machine-replacement", "--horizon", "-1"], "--horizon"),
        (["compare", "machine-replacement", "--seed", "-1"], "--seed"),
        (["compare", "machine-replacement", "random"], "random"),
    ],
    ids=str,
)
def test_wrong_usage_is_reported(arguments, told, evenhand):
    assert told in evenhand(*arguments).refusal


def test_the_installed_command_is_this_one():
    (script,) = entry_points(group="console_scripts", name="evenhand")
    assert script.load() is main


def test_it_is_a_module_too(launch):
    shown = launch("--version")
    assert (shown.code, shown.err) == (0, "")
    assert __version__ in shown.out
