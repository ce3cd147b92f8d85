"""The way in, and the exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."""

import os
import signal
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        code = run(arguments)
    except KeyboardInterrupt:
        code = 130
    if code == 130:
        _leave_at_once()
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    import click

    from evenhand.cli.application import application
    from evenhand.errors import EvenhandError, InvalidInput

    try:
        application.main(args=arguments, prog_name="evenhand", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InvalidInput as error:
        click.echo(f"error: {error}", err=True)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (EvenhandError, OSError, MemoryError) as error:
        click.echo(f"error: {str(error) or type(error).__name__}", err=True)
        return 1
    return 0


def _leave_at_once() -> None:
    """Leave without waiting for threads; files are written whole or not at all, so nothing is lost."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(130)
