"""`-` in the place of a file: standard input, of which a user says what it is with --format."""

import sys
from collections.abc import Sequence
from typing import BinaryIO

import click

from evenhand.cli.refusals import OptionError

DASH = "-"
"""How standard input is written where a file could stand."""

_TAKEN = "evenhand.standard_input"
"""Under this name a command remembers which of its arguments has standard input: it can be read only once."""


def standard_input(argument: str, format: str | None, formats: Sequence[str]) -> BinaryIO:
    """Standard input as a binary stream, if there is one to read.

    Args:
        argument: whose place it takes, as the help calls it: MODEL, STATES.
        format: what --format says it is.
        formats: what it may be.

    Raises:
        InvalidInputError: the format is missing, nothing is piped in, or another argument has it already.
    """
    if format is None:
        raise OptionError(
            argument, f"- is standard input; say what it is with --format {' or --format '.join(formats)}"
        )
    if format not in formats:
        raise OptionError("--format", f"{argument} may be {', '.join(formats)}; got {format!r}")
    if sys.stdin is None or sys.stdin.closed:
        raise OptionError(argument, "- is standard input, and there is none")
    if sys.stdin.isatty():
        raise OptionError(
            argument,
            f"- is standard input, and nothing is piped into it; "
            f"give the name of a file, or pipe one: evenhand ... - --format {format} < FILE",
        )
    context = click.get_current_context(silent=True)
    if context is not None:
        taken = context.meta.setdefault(_TAKEN, argument)
        if taken != argument:
            raise OptionError(argument, f"- is standard input, which {taken} takes already; only one of them can")
    return sys.stdin.buffer
