"""What a person or a program is told when a command does not do what was asked: `error: ...`, or JSON.

    {"error": "model.toml: 2 faults", "faults": [{"place": "arms[0].rewards", "message": "..."}, ...], "exit_code": 2}

`faults` has every one of them, each with its place where it has one, of model files also with the `line` and the place
by the names of the model, `named`; `error` is the title. A usage error has its usage.
"""

import contextlib
import errno
import json
import re
from typing import Any

import click

from evenhand.errors import Fault, InvalidInput

_NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
"""What a system says of a name that no file can have, or that leads to itself: the input is wrong, not the machine."""


def exit_code(error: Exception) -> int:
    """2 where the input was wrong, 1 where something else was."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    return 2 if isinstance(error, InvalidInput) or getattr(error, "errno", None) in _NO_NAME else 1


def tell(error: Exception, code: int, as_json: bool) -> None:
    """Say what was wrong, on standard error; with --json also as one JSON object on standard output.

    Args:
        error: what was raised.
        code: the exit code.
        as_json: whether --json was among the arguments.
    """
    words = in_words(error)
    no_arguments: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # older ones of click exit by themselves
    if isinstance(error, no_arguments):  # the help is the answer
        click.echo(error.format_message(), err=True)
    else:
        click.echo(f"error: {words}", err=True)
        if usage := _usage(error):
            click.echo(f"{usage[0]}\n{usage[1]}", err=True)
    if as_json:
        with contextlib.suppress(OSError):  # a full or closed standard output: the words are on the other
            click.echo(json.dumps(as_dict(error, code)))


def in_words(error: Exception) -> str:
    """What was wrong, in the user's words."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    return str(error) or type(error).__name__


def as_dict(error: Exception, code: int) -> dict[str, Any]:
    """The JSON form."""
    words = in_words(error)
    faults = [_fault(fault) for fault in getattr(error, "faults", ())]
    if re.match("budget: |--budget ", words):  # that of a model would be told under the name of its file
        faults = [fault | {"place": fault["place"] or "--budget"} for fault in faults]
    place, message = _place(error, words)
    told: dict[str, Any] = {
        "error": words.splitlines()[0] if faults else words,
        "faults": faults or [{"place": place, "message": message}],
        "exit_code": code,
    }
    if usage := _usage(error):
        told["usage"] = usage[0].removeprefix("usage: ")
    return told


def _fault(fault: Fault) -> dict[str, Any]:
    """One fault of a model; the line and the place by the model's names, where these are known."""
    line = {} if fault.line is None else {"line": fault.line}
    named = {"named": fault.words} if fault.words else {}
    return {"place": fault.place, **named, **line, "message": fault.message}


def _place(error: Exception, words: str) -> tuple[str, str]:
    """The argument or option that an error is about, as it is typed, or nothing; and what is wrong with it."""
    if isinstance(error, click.NoSuchOption):
        return error.option_name, words
    parameter = getattr(error, "param", None)
    if isinstance(parameter, click.Parameter):
        return (
            max(parameter.opts, key=len) if isinstance(parameter, click.Option) else parameter.human_readable_name
        ), words
    if named := re.match(r"(part|step): |unknown (welfare|criterion) ", words):
        return f"--{named[1] or named[2]}", words
    found = re.match(r"(--?[a-z][a-z-]*|[A-Z]+): (.+)", words, re.DOTALL)
    return (found[1], found[2]) if found else ("", words)


def _usage(error: Exception) -> tuple[str, str] | None:
    """How the command is called and where its help is, for a usage error that knows its command."""
    context = getattr(error, "ctx", None)
    if not isinstance(error, click.UsageError) or context is None:
        return None
    words = " ".join(context.command.collect_usage_pieces(context))
    return f"usage: {context.command_path} {words}", f"Try '{context.command_path} --help' for help."
