"""The way in, and the exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    gc.set_threshold(20_000, 20, 20)  # what imports make stays; looking through it takes time in a short command
    code = 1
    if arguments is None:  # the process is ours
        atexit.register(lambda: leave(code))  # registered first, it runs last
    interrupt = Interrupt()
    try:
        code = run(arguments)
    except BaseException:  # compiled code may turn an interrupt into an error of its own
        if not interrupt.heard:
            raise
        code = 130
    if interrupt.heard or code == 130:
        interrupt.leave_at_once()
    sys.exit(code)


def leave(code: int) -> None:
    """Leave without freeing every object, which would take a third of a short command.

    Args:
        code: exit code.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # closed or full: the interpreter reports it
        return
    os._exit(code)


class Interrupt:
    """Ctrl-C that is heard even within compiled code, which may drop the exception or mistake it."""

    def __init__(self) -> None:
        self.heard = False
        self._show = sys.unraisablehook
        sys.unraisablehook = self._hide_dropped
        signal.signal(signal.SIGINT, self._raise)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        signal.signal(signal.SIGALRM, self._raise)
        signal.setitimer(signal.ITIMER_REAL, 1.0)  # again in a second, in case foreign code dropped it
        raise KeyboardInterrupt

    def _hide_dropped(self, dropped: "sys.UnraisableHookArgs") -> None:
        if not (self.heard and dropped.exc_type is KeyboardInterrupt):
            self._show(dropped)

    def leave_at_once(self) -> None:
        """Leave without waiting for threads; files are written whole or not at all, so nothing is lost."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
            sys.stderr.flush()
        os._exit(130)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    import click

    from evenhand.cli.group import application
    from evenhand.errors import EvenhandError

    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        application.main(args=arguments, prog_name="evenhand", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (click.ClickException, EvenhandError, OSError, MemoryError) as error:
        from evenhand.cli.refusals import exit_code, print_error

        code = exit_code(error)
        print_error(error, code, as_json)
        return code
    return 0
