"""The life of a worker: it builds shards as it is told, keeps them, and answers questions about them.

What it is sent is a request, what it sends back a reply; how these travel is the executor's affair. Nothing that is
raised ends a worker: it travels back and is raised again where the question was asked.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evenhand.errors import ClusterError, EvenhandError
from evenhand.execution.versions import Versions, ours

Key = tuple[int, int]
"""A shard: the number of its placing and its own."""


@dataclass(frozen=True)
class Request:
    """A question, or a cell where there is no key."""

    do: Callable[..., Any]
    arguments: tuple[Any, ...]
    key: Key | None = None
    recipe: Callable[[], Any] | None = None
    """How to build the shard; None where the worker has it."""

    gone: tuple[int, ...] = ()
    """Placings whose shards are no longer needed."""


@dataclass(frozen=True)
class Raised:
    """An error, as it travels."""

    kind: type[BaseException]
    arguments: tuple[Any, ...]
    fields: dict[str, Any]

    def again(self) -> BaseException:
        """The error itself; its class may ask for other arguments than it keeps, and is not called."""
        error = self.kind.__new__(self.kind)
        error.args = self.arguments
        error.__dict__.update(self.fields)
        return error


Reply = tuple[Any, Raised | None]
"""The answer, and what was raised instead."""


class Resident:
    """What a worker has."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.shards: dict[Key, Any] = {}

    def hello(self) -> Versions:
        """What runs here."""
        return ours()

    def reply(self, request: Request) -> Reply:
        """Answer one request."""
        try:
            return self._answer(request), None
        except Exception as error:  # noqa: BLE001  # raised again by who asked
            return None, packed(error)

    def _answer(self, request: Request) -> Any:
        for key in [key for key in self.shards if key[0] in request.gone]:
            del self.shards[key]
        if request.key is None:
            return request.do(*request.arguments)
        if request.key not in self.shards:
            assert request.recipe is not None
            self.shards[request.key] = request.recipe()
        return request.do(self.shards[request.key], *request.arguments)


def packed(error: Exception) -> Raised:
    """An error as it travels: ours and Python's own as they are, others in words."""
    if isinstance(error, EvenhandError) or type(error).__module__ == "builtins":
        return Raised(type(error), error.args, dict(error.__dict__))
    words = "".join(traceback.format_exception(error)).strip()
    return Raised(ClusterError, (f"a worker failed:\n{words}",), {})
