"""Who has which shard, who is busy, who has died: the same for processes of this machine and actors of a cluster.

A *crew* starts workers, sends them requests and says who has something to tell. A worker has one request at a time. Of
one that dies, the shards go to the one started in its place, which builds them anew from their recipes when it is next
asked. Where the place of a dead one stays empty, since a machine has gone and none has come, the others take over its
shards. A question that three workers have died of is not asked again.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from evenhand.errors import Cancelled, ClusterError
from evenhand.execution.protocol import Answer, Item, Lost, Recipe, State, Told
from evenhand.execution.resident import Key, Reply, Request
from evenhand.execution.versions import Versions, check

MOST_DEATHS = 3
"""Workers that one question may cost."""

PATIENCE = 30.0
"""Seconds after which the shards of one who has not come yet go to others."""

BEAT = 0.2
"""Seconds after which it is looked whether the work was cancelled."""

Handle = TypeVar("Handle")


@dataclass(frozen=True)
class Died:
    """A worker is gone."""

    words: str


Message = Versions | Reply | Died
"""What comes from a worker: first its versions, then replies, at last perhaps its death."""


class Crew(ABC, Generic[Handle]):
    """Workers of one kind."""

    @abstractmethod
    def start(self) -> Handle:
        """A new worker; its first message is its versions."""

    @abstractmethod
    def send(self, worker: Handle, request: Request) -> None:
        """Send a request; if the worker has died, `receive` will tell."""

    @abstractmethod
    def ready(self, workers: Sequence[Handle], seconds: float) -> list[int]:
        """The places of those that have something to tell, perhaps after some waiting."""

    @abstractmethod
    def receive(self, worker: Handle) -> Message:
        """What it has to tell."""

    @abstractmethod
    def end(self, worker: Handle) -> None:
        """Let it go."""

    def close(self) -> None:  # most crews have nothing else to let go
        """Let go what they share."""


@dataclass(eq=False)
class _Task:
    """A request that waits for its answer."""

    place: int
    do: Callable[..., Any]
    arguments: tuple[Any, ...]
    key: Key | None = None
    recipe: Callable[[], Any] | None = None
    deaths: int = 0
    given_at: float = 0.0


@dataclass(eq=False)
class _Worker(Generic[Handle]):
    """One of the crew, and what is known of it."""

    number: int
    handle: Handle
    since: float
    greeted: bool = False
    task: _Task | None = None
    has: set[Key] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)


class Dispatcher(Generic[Handle]):
    """An executor over a crew."""

    def __init__(self, name: str, crew: Crew[Handle], num_workers: int) -> None:
        """Start the workers.

        Args:
            name: what the executor is called.
            crew: starts workers and talks to them.
            num_workers: how many.
        """
        self.name, self.num_workers, self.num_replaced = name, num_workers, 0
        self._crew = crew
        self._cancelled, self._closed = threading.Event(), False
        self._placings = count()
        self._stillborn = 0
        self._homes: dict[Key, int] = {}
        self._workers = [self._begin(number) for number in range(num_workers)]

    def place(self, recipes: Sequence[Recipe[State]]) -> "PlacedShards":
        """Shards, to be built where they will stay.

        Args:
            recipes: how each is built.
        """
        number = next(self._placings)
        for shard in range(len(recipes)):
            self._homes[number, shard] = shard % len(self._workers)
        return PlacedShards(self, number, list(recipes))

    def run(
        self, do: Callable[[Item], Answer], cells: Sequence[Item], patience: float | None = None
    ) -> Iterator[tuple[int, Answer | Lost] | None]:
        """The numbers of cells and what came of them, as they end.

        Args:
            do: the work.
            cells: what it is done on.
            patience: seconds after which None is given where nothing has ended, so that the caller may tell progress.
        """
        yield from self.work([_Task(place, do, (cell,)) for place, cell in enumerate(cells)], patience)

    def cancel(self) -> None:
        """Make what runs now raise Cancelled; may be called from another thread."""
        self._cancelled.set()

    def close(self) -> None:
        """End the workers."""
        if not self._closed:
            self._closed = True
            for worker in self._workers:
                self._crew.end(worker.handle)
            self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def forget(self, placing: int) -> None:
        """Let the shards of a placing go.

        Args:
            placing: its number.
        """
        self._homes = {key: home for key, home in self._homes.items() if key[0] != placing}
        for worker in self._workers:
            worker.gone.add(placing)
            worker.has = {key for key in worker.has if key[0] != placing}

    def work(self, tasks: Sequence[_Task], patience: float | None) -> Iterator[Any]:
        """The places of tasks and what came of them, as they end; None after every so many seconds without any."""
        self._reset()
        queues: dict[int | None, deque[_Task]] = defaultdict(deque)
        for task in tasks:
            queues[None if task.key is None else self._homes[task.key]].append(task)
        left, quiet = len(tasks), time.monotonic()
        while left:
            self._hand_out(queues)
            found = list(self._hear(queues))
            left -= len(found)
            if found:
                quiet = time.monotonic()
            yield from found
            if patience is not None and time.monotonic() - quiet > patience:
                quiet = time.monotonic()
                yield None

    def _reset(self) -> None:
        """Those still at work on what nobody waits for any more begin anew."""
        if self._closed:
            raise ClusterError(f"{self.name}: the workers have been let go")
        self._cancelled.clear()
        for worker in self._workers:
            if worker.task is not None:
                self._crew.end(worker.handle)
                self._workers[worker.number] = self._begin(worker.number)

    def _begin(self, number: int) -> _Worker[Handle]:
        return _Worker(number, self._crew.start(), time.monotonic())

    def _hand_out(self, queues: dict[int | None, deque[_Task]]) -> None:
        for worker in self._workers:
            if not worker.greeted:
                self._move_if_late(worker, queues)
            elif worker.task is None and (queue := queues[worker.number] or queues[None]):
                self._give(worker, queue.popleft())

    def _give(self, worker: _Worker[Handle], task: _Task) -> None:
        recipe = None if task.key in worker.has else task.recipe
        request = Request(task.do, task.arguments, task.key, recipe, tuple(worker.gone))
        worker.task, task.given_at = task, time.monotonic()
        worker.gone.clear()
        if task.key is not None:
            worker.has.add(task.key)
        self._crew.send(worker.handle, request)

    def _move_if_late(self, worker: _Worker[Handle], queues: dict[int | None, deque[_Task]]) -> None:
        """Shards of one who does not come go to those who are there."""
        there = [other for other in self._workers if other.greeted]
        if not there or time.monotonic() - worker.since < PATIENCE or not queues[worker.number]:
            return
        for place, task in enumerate(queues.pop(worker.number)):
            home = there[place % len(there)].number
            queues[home].append(task)
            assert task.key is not None
            self._homes[task.key] = home

    def _hear(self, queues: dict[int | None, deque[_Task]]) -> Iterator[tuple[int, Any]]:
        if self._cancelled.is_set():
            raise Cancelled("the work was cancelled")
        heard = [worker for worker in self._workers if worker.task is not None or not worker.greeted]
        for place in self._crew.ready([worker.handle for worker in heard], BEAT):
            yield from self._take(heard[place], queues)

    def _take(self, worker: _Worker[Handle], queues: dict[int | None, deque[_Task]]) -> Iterator[tuple[int, Any]]:
        message, task = self._crew.receive(worker.handle), worker.task
        if isinstance(message, Died):
            yield from self._replace(worker, message, queues)
        elif not worker.greeted:
            check(cast("Versions", message), f"a worker of {self.name}")
            worker.greeted, self._stillborn = True, 0
        else:
            assert task is not None
            worker.task = None
            answer, raised = cast("Reply", message)
            if raised is not None:
                raise raised.again()
            yield task.place, answer

    def _replace(
        self, worker: _Worker[Handle], died: Died, queues: dict[int | None, deque[_Task]]
    ) -> Iterator[tuple[int, Any]]:
        self._crew.end(worker.handle)
        self._stillborn += not worker.greeted
        if self._stillborn >= MOST_DEATHS:
            raise ClusterError(f"the workers of {self.name} do not start: {died.words}")
        self.num_replaced += 1
        self._workers[worker.number] = self._begin(worker.number)
        task = worker.task
        if task is None:
            return
        if task.key is None:
            yield task.place, Lost(died.words, time.monotonic() - task.given_at)
            return
        task.deaths += 1
        if task.deaths >= MOST_DEATHS:
            raise ClusterError(f"{MOST_DEATHS} workers of {self.name} have died of the same work: {died.words}")
        queues[self._homes[task.key]].appendleft(task)


class PlacedShards:
    """Shards of a dispatcher."""

    def __init__(self, dispatcher: Dispatcher[Any], placing: int, recipes: list[Callable[[], Any]]) -> None:
        """Keep what is needed to build them again.

        Args:
            dispatcher: has the workers.
            placing: the number of the placing.
            recipes: how each is built.
        """
        self._dispatcher, self._placing, self._recipes = dispatcher, placing, recipes

    def __len__(self) -> int:
        return len(self._recipes)

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
        return gathered(self.answers(do, *common, each=each), len(self), told)

    def answers(
        self, do: Callable[..., Answer], *common: Any, each: Sequence[tuple[Any, ...]] | None = None
    ) -> Iterator[tuple[int, Answer]]:
        """The numbers of shards and their answers, as they come.

        Args:
            do: the question, called with a shard, what is common, and what is its own.
            common: arguments for all shards.
            each: (shard,) further arguments of each.
        """
        own = [()] * len(self) if each is None else each
        tasks = [
            _Task(place, do, (*common, *own[place]), (self._placing, place), recipe)
            for place, recipe in enumerate(self._recipes)
        ]
        return self._dispatcher.work(tasks, None)

    def forget(self) -> None:
        """Let the shards go, and their memory."""
        self._dispatcher.forget(self._placing)


def gathered(answers: Iterator[tuple[int, Answer]], number: int, told: Told | None) -> list[Answer]:
    """Answers that come in any order, in the order of their shards.

    Args:
        answers: numbers of shards and their answers.
        number: of shards.
        told: called as answers come.
    """
    found: dict[int, Answer] = {}
    for place, answer in answers:
        found[place] = answer
        if told is not None:
            told(len(found), number)
    return [found[place] for place in range(number)]
