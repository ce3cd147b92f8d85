"""Errors as the user sees them: `error: ...` on standard error, with --json also one JSON object on standard output.

    {"error": "model.toml: 2 faults", "code": "invalid-model",
     "faults": [{"place": "arms[0].rewards", "message": "...", "code": "invalid"}, ...], "exit_code": 2}

`error` is the title and `faults` lists every fault: its place if it has one, and for model files also the `line` and
the place by the names of the model, `named`. A usage error also has `usage`.
"""

import contextlib
import errno
import json
from typing import Any

import click

from evenhand.errors import EvenhandError, Fault, InvalidInputError

_INVALID_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
"""System errors of file names that cannot exist: the input is wrong, not the machine."""

_OPTIONS = ("budget", "criterion", "part", "step", "welfare")
"""Arguments of the library that are options of the same name."""


class OptionError(InvalidInputError):
    """Invalid value of an option or argument of the command line."""

    code = "invalid-option"

    def __init__(self, option: str, message: str) -> None:
        """Create the error.

        Args:
            option: option or argument as it is typed: `--out`, `MODEL`.
            message: description of the fault.
        """
        super().__init__(f"{option}: {message}", argument=option)
        self.message = message


def exit_code(error: Exception) -> int:
    """Return 2 for invalid input, else 1."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    return 2 if isinstance(error, InvalidInputError) or getattr(error, "errno", None) in _INVALID_NAMES else 1


def print_error(error: Exception, code: int, as_json: bool) -> None:
    """Print an error.

    Args:
        error: the exception.
        code: exit code.
        as_json: whether --json is among the arguments.
    """
    no_arguments: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # older versions of click exit by themselves
    if isinstance(error, no_arguments):  # the help is the answer
        click.echo(error.format_message(), err=True)
    else:
        click.echo(f"error: {message_of(error)}", err=True)
        if usage := _usage(error):
            click.echo(f"{usage[0]}\n{usage[1]}", err=True)
    if as_json:
        with contextlib.suppress(OSError):  # standard output is full or closed; standard error has the message
            click.echo(json.dumps(to_dict(error, code)))


def message_of(error: Exception) -> str:
    """Return the message of an error."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
    return str(error) or type(error).__name__


def to_dict(error: Exception, code: int) -> dict[str, Any]:
    """Return the JSON form of an error."""
    message, place = message_of(error), _place(error)
    faults = [_fault(fault, place) for fault in getattr(error, "faults", ())]
    own = error.message if isinstance(error, OptionError) else message
    found: dict[str, Any] = {
        "error": message.splitlines()[0] if faults else message,
        "code": code_of(error),
        "faults": faults or [{"place": place, "message": own, "code": code_of(error)}],
        "exit_code": code,
    }
    if usage := _usage(error):
        found["usage"] = usage[0].removeprefix("usage: ")
    return found


def code_of(error: Exception) -> str:
    """Return the stable name of the kind of error."""
    if isinstance(error, EvenhandError):
        return error.code
    if isinstance(error, click.ClickException):
        return "usage"
    return "out-of-memory" if isinstance(error, MemoryError) else "system"


def _fault(fault: Fault, place: str) -> dict[str, Any]:
    found = {"place": fault.place or place, "named": fault.words or None, "line": fault.line}
    found |= {"message": fault.message, "code": fault.code}
    return {name: value for name, value in found.items() if value is not None}


def _place(error: Exception) -> str:
    """Return the argument or option that an error is about, as it is typed; empty if it is about none."""
    if isinstance(error, click.NoSuchOption):
        return error.option_name
    parameter = getattr(error, "param", None)
    if isinstance(parameter, click.Parameter):
        return max(parameter.opts, key=len) if isinstance(parameter, click.Option) else parameter.human_readable_name
    if isinstance(error, OptionError):
        return error.argument
    argument = error.argument if isinstance(error, EvenhandError) else ""
    return f"--{argument}" if argument in _OPTIONS else ""


def _usage(error: Exception) -> tuple[str, str] | None:
    """Return the usage line and a pointer to the help, for a usage error that knows its command."""
    context = getattr(error, "ctx", None)
    if not isinstance(error, click.UsageError) or context is None:
        return None
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return f"usage: {context.command_path} {pieces}", f"Try '{context.command_path} --help' for help."
