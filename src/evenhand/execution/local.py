"""This machine: its threads, with the shards in this process; or processes beside it, each with one thread.

A process that dies, by a signal or for want of memory, is seen by the closed end of its pipe and replaced.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Self

from evenhand.errors import Cancelled
from evenhand.execution import threads
from evenhand.execution.dispatch import Crew, Died, Dispatcher, Message, gathered
from evenhand.execution.protocol import Answer, Item, Lost, Recipe, State, Told
from evenhand.execution.resident import Request, Resident

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", threads.LIMIT)
"""Environment variables that keep a worker to one thread."""


class InProcess:
    """An executor without workers: shards are in this process, and its threads answer."""

    name, num_replaced = "local", 0

    def __init__(self) -> None:
        """Begin."""
        self._cancelled = threading.Event()

    @property
    def num_workers(self) -> int:
        """How many threads there are."""
        return threads.num_threads()

    def place(self, recipes: Sequence[Recipe[State]]) -> "ShardsHere":
        """Shards, to be built when they are first asked.

        Args:
            recipes: how each is built.
        """
        return ShardsHere(self, recipes)

    def run(
        self, do: Callable[[Item], Answer], cells: Sequence[Item], patience: float | None = None
    ) -> Iterator[tuple[int, Answer | Lost] | None]:
        """The numbers of cells and what came of them, one after the other.

        Args:
            do: the work.
            cells: what it is done on.
            patience: not needed, as something ends whenever the caller waits.
        """
        self._cancelled.clear()
        for place, cell in enumerate(cells):
            self.check()
            yield place, do(cell)

    def check(self) -> None:
        """Raise Cancelled if the work was cancelled."""
        if self._cancelled.is_set():
            raise Cancelled("the work was cancelled")

    def begin(self) -> None:
        """New work, which nobody has cancelled."""
        self._cancelled.clear()

    def cancel(self) -> None:
        """Make what runs now raise Cancelled at its next shard or cell; may be called from another thread."""
        self._cancelled.set()

    def close(self) -> None:
        """There is nobody to end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ShardsHere:
    """Shards in this process."""

    def __init__(self, executor: InProcess, recipes: Sequence[Callable[[], Any]]) -> None:
        """Keep the recipes; shards are built when they are first asked.

        Args:
            executor: may be cancelled.
            recipes: how each is built.
        """
        self._executor, self._recipes = executor, list(recipes)
        self._shards: dict[int, Any] = {}

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
        """The numbers of shards and their answers.

        Args:
            do: the question, called with a shard, what is common, and what is its own.
            common: arguments for all shards.
            each: (shard,) further arguments of each.
        """
        own = [()] * len(self) if each is None else each
        self._executor.begin()

        def answer(place: int) -> tuple[int, Answer]:
            self._executor.check()
            if place not in self._shards:
                self._shards[place] = self._recipes[place]()
            return place, do(self._shards[place], *common, *own[place])

        return threads.in_order(answer, range(len(self)))

    def forget(self) -> None:
        """Let the shards go, and their memory."""
        self._shards.clear()


class _Process:
    """A worker process, and our end of the pipe to it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.door, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=serve, args=(theirs,), daemon=True)
        with _one_thread():
            self.process.start()
        theirs.close()  # so that its end is seen when the worker dies


class _Processes(Crew[_Process]):
    """Worker processes of this machine."""

    def start(self) -> _Process:
        return _Process()

    def send(self, worker: _Process, request: Request) -> None:
        with contextlib.suppress(OSError):  # it died just now: `receive` will see
            worker.door.send(request)

    def ready(self, workers: Sequence[_Process], seconds: float) -> list[int]:
        heard = wait([worker.door for worker in workers], timeout=seconds)
        return [place for place, worker in enumerate(workers) if worker.door in heard]

    def receive(self, worker: _Process) -> Message:
        try:
            message: Message = worker.door.recv()
        except (EOFError, OSError):
            worker.process.join()
            return Died(_last_words(worker.process.exitcode))
        return message

    def end(self, worker: _Process) -> None:
        worker.door.close()
        worker.process.terminate()
        worker.process.join()


def processes(number: int) -> Dispatcher[_Process]:
    """An executor of so many processes."""
    return Dispatcher(f"local:{number}", _Processes(), number)


def _last_words(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by {signal.Signals(-code).name}; perhaps memory ran out"
    return f"its process ended with exit code {code}"


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Within it, new processes are kept to one thread; it must be so before they load NumPy."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def serve(door: Connection) -> None:
    """The life of a worker process: answer what comes through the door, until it is closed.

    Args:
        door: its end of the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the one who started it
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    resident = Resident()
    with contextlib.suppress(EOFError, OSError):
        door.send(resident.hello())
        while True:
            door.send(resident.reply(door.recv()))


def _leave_with_parent() -> None:
    """A worker whose parent was killed would else go on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
