"""From words to an executor: `local`, `local:2`, `ray`, `ray:HOST:PORT`, `ray://HOST:PORT`."""

from collections.abc import Iterator
from contextlib import contextmanager

from evenhand.errors import InvalidInput
from evenhand.execution.local import InProcess, processes
from evenhand.execution.protocol import Executor

FORMS = "local, local:N (N processes), ray, ray:HOST:PORT or ray://HOST:PORT"
"""What can be said."""

MOST_PROCESSES = 4096
"""More than any machine has."""


def check_place(on: str) -> None:
    """Raise InvalidInput unless these are words for a place; nothing is started.

    Args:
        on: the words.
    """
    kind, _, rest = on.partition(":")
    known = kind == "local" or kind == "ray"
    counted = not rest or (rest.isdecimal() and 1 <= int(rest) <= MOST_PROCESSES)
    if not known or (":" in on and not rest) or (kind == "local" and not counted):
        raise InvalidInput(f"on: expected {FORMS}, got {on!r}")


def open_place(on: str) -> Executor:
    """The executor of a place; to be closed.

    Args:
        on: the words for it.
    """
    check_place(on)
    kind, _, rest = on.partition(":")
    if kind == "ray":
        from evenhand.execution.on_ray import ray_cluster  # Ray takes long to load

        return ray_cluster(on if rest.startswith("//") else rest)
    return processes(int(rest)) if rest else InProcess()


@contextmanager
def opened(on: "str | Executor | None") -> Iterator[Executor]:
    """An executor: the one given, or that of a place, which is closed at the end.

    Args:
        on: words for a place, this process when absent, or an executor that stays open.
    """
    if on is None or isinstance(on, str):
        with open_place(on or "local") as executor:
            yield executor
    else:
        yield on
