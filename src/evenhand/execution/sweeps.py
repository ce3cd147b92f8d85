"""Cells of one piece of work: policies, draws, seeds. They run in this process, or at a place of the user's choice.

A cell is a function of what it is given and of nothing else, so that it has the same answer to the last bit wherever
it runs, whoever else runs and in whatever order they end. A cell whose worker dies is done again elsewhere. The place
is opened when it is first needed: work that turns out to have no cells starts nobody.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from evenhand.errors import ClusterError, InvalidInput
from evenhand.execution.alone import alone
from evenhand.execution.local import InProcess
from evenhand.execution.places import check_place, open_place
from evenhand.execution.protocol import Executor, Lost

MOST_DEATHS = 3
"""Workers that one cell may cost."""

PATIENCE = 2.0
"""Seconds after which progress is told even if no cell has ended."""

Item = TypeVar("Item", contravariant=True)
Found = TypeVar("Found", covariant=True)
Tell = Callable[[str, float], None]
"""What is being done, and the share done."""


class Work(Protocol[Item, Found]):
    """What is done on a cell; a function of a module, so that it can be sent."""

    def __call__(self, cell: Item, progress: Tell | None = None, /) -> Found:
        """The answer; progress is told where somebody listens, which nobody does from afar."""
        ...


class Sweep:
    """Where the cells of some work run."""

    def __init__(self, on: str | Executor | None = None) -> None:
        """Begin; nobody is started yet.

        Args:
            on: words for a place, or an executor, which stays open; this process when absent.
        """
        if isinstance(on, str):
            check_place(on)
        self.on, self._executor = on, None if isinstance(on, str) else on
        self._own: Executor | None = None
        self.used = False

    @property
    def name(self) -> str:
        """What the place is called."""
        return self.on if isinstance(self.on, str) else "local" if self.on is None else self.on.name

    @property
    def is_here(self) -> bool:
        """Whether cells run in this process."""
        return self.on is None or self.on == "local" or isinstance(self.on, InProcess)

    @property
    def num_workers(self) -> int:
        """How many cells run at the same time; the place is opened."""
        return 1 if self.is_here else self._opened().num_workers

    def __call__(
        self,
        do: Work[Item, Found],
        cells: Sequence[Item],
        names: Sequence[str] | None = None,
        progress: Tell | None = None,
    ) -> list[Found]:
        """The answers to cells, in their order.

        Args:
            do: the work.
            cells: what it is done on.
            names: (cell,) what each is called, to be told.
            progress: called now and then with what is being done and the share done.

        Raises:
            ClusterError: a cell costs one worker after the other.
        """
        self.used = self.used or bool(cells)
        called = [f"cell {place + 1}" for place in range(len(cells))] if names is None else list(names)
        if self.is_here:
            return [
                self._here(do, cell, _turn(progress, called[place], place, len(cells)))
                for place, cell in enumerate(cells)
            ]
        return self._elsewhere(do, cells, called, progress)

    def check_portable(self, things: Mapping[str, object]) -> None:
        """Refuse what could not be sent to where cells run.

        Args:
            things: what would be sent, under what it is called.
        """
        for name, thing in () if self.is_here else things.items():
            try:
                pickle.dumps(thing)
            except Exception as error:  # noqa: BLE001  # whatever a class of a user's raises
                raise InvalidInput(f"on: {name} cannot be sent to another process: {error}") from None

    def _here(self, do: Work[Item, Found], cell: Item, tell: Tell | None) -> Found:
        if isinstance(self.on, InProcess):
            self.on.check()
        with alone():
            return do(cell, tell)

    def _elsewhere(
        self, do: Work[Item, Found], cells: Sequence[Item], names: Sequence[str], progress: Tell | None
    ) -> list[Found]:
        """Until all have ended; those whose workers died are done again."""
        found: dict[int, Any] = {}
        waiting, executor = list(range(len(cells))), self._opened()
        for deaths in range(1, MOST_DEATHS + 1):
            lost: dict[int, Lost] = {}
            for ended in executor.run(do, [cells[place] for place in waiting], PATIENCE):
                if ended is not None:
                    place, answer = waiting[ended[0]], ended[1]
                    if isinstance(answer, Lost):
                        lost[place] = answer
                    else:
                        found[place] = answer
                if progress is not None:
                    left = next((names[place] for place in waiting if place not in found), "the last")
                    progress(f"{len(found)} of {len(cells)} done, {left}", len(found) / len(cells))
            if not lost:
                return [found[place] for place in range(len(cells))]
            if deaths == MOST_DEATHS:
                words = "; ".join(f"{names[place]}: {one.words}" for place, one in lost.items())
                raise ClusterError(f"{MOST_DEATHS} workers of {executor.name} have died of the same work: {words}")
            waiting = sorted(lost)
        raise AssertionError  # the loop has ended the work, or given it up

    def _opened(self) -> Executor:
        if self._executor is None:
            assert isinstance(self.on, str)
            self._executor = self._own = open_place(self.on)
        return self._executor

    def close(self) -> None:
        """End the workers that were started here."""
        if self._own is not None:
            self._own.close()
            self._own = self._executor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _turn(progress: Tell | None, name: str, place: int, number: int) -> Tell | None:
    """Progress of one of several cells, told under its name."""
    if progress is None:
        return None
    progress(name, place / number)
    return lambda _, share: progress(name, (place + share) / number)


def turns(number: int, num_workers: int) -> int:
    """Into how many parts each of some cells is cut, so that all workers have something to do.

    Args:
        number: of cells.
        num_workers: how many of them run at the same time.
    """
    return max(1, -(-num_workers // max(number, 1)))
