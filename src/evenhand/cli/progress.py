"""Progress of the work, on standard error: a bar on a terminal, a plain line every few seconds elsewhere.

The current work is shown from the start: a thread checks it regularly. A computation that reports nothing for a minute
is still named, with the time that has passed; so is compilation.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import click

from evenhand.kernels.compilation import hearing

if TYPE_CHECKING:
    from evenhand.typing import Progress

FIRST_LINE = 1.0
"""Seconds after which the first line is written; a shorter run prints none."""

SECONDS_BETWEEN_LINES = 2.0
"""How often a line is written at first."""

SELDOM, MOST_SECONDS = 0.05, 30.0
"""Later on, after this share of the time that has passed, but no later than this."""

LOOK_EVERY = 0.25
"""Seconds between two readings of the clock."""

AT_FIRST, COMPILING = "loading", "compiling, once on this machine"


@contextmanager
def progress(quiet: bool) -> "Iterator[Progress | None]":
    """Yield a callback for progress; None if quiet.

    Args:
        quiet: True shows nothing.
    """
    if quiet:
        yield None
    elif sys.stderr is not None and sys.stderr.isatty():
        yield from _bar()
    else:
        lines = _Lines()
        with hearing(lines.compile), lines.watched():
            yield lines.tell


class _Lines:
    """Plain lines, rare enough for a log."""

    def __init__(self) -> None:
        self._what, self._share, self._compiling = AT_FIRST, 0.0, False
        self._begin = monotonic()
        self._next = self._begin + min(FIRST_LINE, SECONDS_BETWEEN_LINES)
        self._lock, self._over = threading.Lock(), threading.Event()

    def tell(self, what: str, share: float) -> None:
        """Report the current work and the share that is done."""
        self._what, self._share = what, share
        self._look()

    def compile(self, begins: bool) -> None:
        """Compilation begins or ends."""
        self._compiling = begins

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within it, a thread reads the clock."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            self._look()

    def _look(self) -> None:
        """Write a line if it is time for one."""
        with self._lock:
            passed = (now := monotonic()) - self._begin
            if now < self._next:
                return
            self._next = now + min(max(SECONDS_BETWEEN_LINES, SELDOM * passed), MOST_SECONDS)
            doing = COMPILING if self._compiling else f"{self._what}: {100 * self._share:.0f} %"
            click.echo(f"{doing} ({passed:.0f} s)", err=True)


def _bar() -> "Iterator[Progress]":
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    # A label that is broken into two lines would leave one of them behind when the bar is taken away.
    label = TextColumn(
        "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
    )
    share = TextColumn("{task.percentage:3.0f} %", table_column=Column(no_wrap=True))
    elapsed = TimeElapsedColumn(table_column=Column(no_wrap=True))
    console = Console(file=sys.stderr)
    columns = (label, BarColumn(bar_width=min(24, console.width // 4)), share, elapsed)
    with Bar(*columns, console=console, transient=True, expand=True) as bar:
        task, current = bar.add_task(AT_FIRST, total=1.0), [AT_FIRST]

        def tell(what: str, share: float) -> None:
            current[0] = what
            bar.update(task, description=what, completed=share)

        def hear(begins: bool) -> None:
            bar.update(task, description=COMPILING if begins else current[0])

        with hearing(hear):
            yield tell
