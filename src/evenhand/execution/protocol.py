"""What an executor is: it keeps shards where the processors are, and asks them.

A *shard* is a part of the data with what has been computed of it. It is told by its *recipe*, something small that
builds it: the path of a file and some rows, a seed, or, where the data is in memory, the arrays. A *question* is a
function of a shard and some arguments. Two rules make a lost worker cost time and nothing else:

    a recipe gives the same shard wherever and however often it is followed
    the answer to a question depends on the recipe and the arguments alone

so that a shard may remember what it has computed, and one that was lost computes it again. Answers come in any order
and are given in the order of the shards. *Cells* are work without a shard: each is done once, and one whose worker dies
is told as lost.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

State = TypeVar("State")
Answer = TypeVar("Answer")
Item = TypeVar("Item")

Recipe = Callable[[], State]
"""Builds a shard. It must be picklable, and small unless the data is in memory."""

Told = Callable[[int, int], None]
"""Called with how many shards have answered, of how many."""


@dataclass(frozen=True)
class Lost:
    """A cell whose worker died."""

    words: str
    """What is known of it."""

    seconds: float = 0.0
    """How long it had been at work."""


class Shards(Protocol):
    """Shards that stay where they are, and are asked."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def ask(
        self,
        do: Callable[..., Answer],
        *common: Any,
        each: Sequence[tuple[Any, ...]] | None = None,
        told: Told | None = None,
    ) -> list[Answer]:
        """The answers of all shards, in their order.

        Args:
            do: the question, called with a shard, what is common, and what is its own.
            common: arguments for all shards.
            each: (shard,) further arguments of each.
            told: called as answers come.
        """
        ...

    def answers(
        self, do: Callable[..., Answer], *common: Any, each: Sequence[tuple[Any, ...]] | None = None
    ) -> Iterator[tuple[int, Answer]]:
        """The numbers of shards and their answers, as they come.

        Args:
            do: the question, called with a shard, what is common, and what is its own.
            common: arguments for all shards.
            each: (shard,) further arguments of each.
        """
        ...

    def forget(self) -> None:
        """Let the shards go, and their memory."""
        ...


class Executor(Protocol):
    """A place where work runs."""

    @property
    def name(self) -> str:
        """What it is called: `local:2`."""
        ...

    @property
    def num_workers(self) -> int:
        """How many shards or cells are worked on at the same time."""
        ...

    @property
    def num_replaced(self) -> int:
        """How many workers have died and were replaced."""
        ...

    def place(self, recipes: Sequence[Recipe[State]]) -> Shards:
        """Shards, to be built where they will stay.

        Args:
            recipes: how each is built.
        """
        ...

    def run(
        self, do: Callable[[Item], Answer], cells: Sequence[Item], patience: float | None = None
    ) -> Iterator[tuple[int, Answer | Lost] | None]:
        """The numbers of cells and what came of them, as they end.

        Args:
            do: the work.
            cells: what it is done on.
            patience: seconds after which None is given where nothing has ended, so that the caller may tell progress.
        """
        ...

    def cancel(self) -> None:
        """Make what runs now raise Cancelled; may be called from another thread."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...

    def __enter__(self) -> Self:
        """The executor; it is closed at the end."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
