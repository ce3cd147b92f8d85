"""Independent tasks in threads, in local processes or on a Ray cluster.

    threads             this process: tasks one after the other, blocks of arms in its threads; the default
    threads:N           this process, N tasks or blocks at a time
    processes:N         N local processes (loky), each with one thread
    ray                 the Ray cluster of this machine or of RAY_ADDRESS; if there is none, a temporary one
    ray:HOST:PORT       a Ray cluster by the address of its head, from a machine of the cluster
    ray://HOST:PORT     a Ray cluster by Ray's client

A task is a function of its arguments alone, so results do not depend on the backend, the number of workers or the order
in which tasks end; BLAS uses one thread per task, because its rounding depends on the number of threads. A worker that
dies is restarted and its task repeated, at most ATTEMPTS times: by loky's executor of one process per worker, or by Ray
(`max_restarts`, `max_task_retries`).

`Blocks` are parts of the data that stay with their workers: block b belongs to worker b mod n, which builds it on first
use and again after a restart. What a block computes depends on its builder and the arguments only; what it caches is
disposable.
"""

import ctypes
import itertools
import os
import queue
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from evenhand.errors import ClusterError, InvalidInputError, MissingExtraError

ATTEMPTS = 3
"""Workers that one task may cost."""


THREADS = "EVENHAND_THREADS"
"""Environment variable that limits the threads of a process; workers have one each."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", THREADS), "1"
)
"""Environment of a worker."""

TOKEN_HINT = "If it requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")
State = TypeVar("State")
Report = Callable[[str, float], None]
"""Called with the current activity and the completed share."""


# -- threads of this process ------------------------------------------------------------------------------------------


def num_threads() -> int:
    """Number of threads that this process may use."""
    limit = os.environ.get(THREADS, "")
    cores = os.cpu_count() or 1
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


def in_order(
    function: Callable[[Piece], Answer], pieces: Iterable[Piece], number: int | None = None
) -> Iterator[Answer]:
    """Yield results in the order of the pieces, computed in threads; at most a few results wait.

    Args:
        function: applied to each piece.
        pieces: arguments.
        number: of threads; by default all that this process may use.
    """
    threads = num_threads() if number is None else number
    remaining = iter(pieces)
    first = list(islice(remaining, 2 * threads))
    if threads < 2 or len(first) < 2:
        yield from map(function, chain(first, remaining))
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque(pool.submit(function, piece) for piece in first)
        for piece in remaining:
            yield waiting.popleft().result()
            waiting.append(pool.submit(function, piece))
        while waiting:
            yield waiting.popleft().result()


_lock, _before = threading.Lock(), list[int]()
_depth = 0


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit the OpenBLAS of NumPy and SciPy to one thread; other libraries follow their environment."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            _before[:] = [read() for read, _ in openblas()]
            for _, write in openblas():
                write(1)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            for (_, write), number in zip(openblas(), _before, strict=True) if _depth == 0 else ():
                write(number)


@cache
def openblas() -> tuple[tuple[Callable[[], int], Callable[[int], None]], ...]:
    """Functions that read and set the number of threads of each OpenBLAS that NumPy and SciPy ship."""
    found = []
    for name in ("numpy", "scipy"):
        home = Path(str(import_module(name).__file__)).parent
        for path in (*home.parent.glob(f"{name}.libs/*openblas*"), *home.glob(".dylibs/*openblas*")):
            with suppress(OSError):
                library = ctypes.CDLL(str(path))
                spellings = itertools.product(("scipy_openblas", "openblas"), ("64_", "", "_64"))
                both = [[f"{start}_{verb}_num_threads{end}" for verb in ("get", "set")] for start, end in spellings]
                found += [(library[get], library[put]) for get, put in both if hasattr(library, put)]
    return tuple(found)


# -- workers ----------------------------------------------------------------------------------------------------------


class _Worker:
    """One worker: a thread of this process, or of what a subclass starts; a call after `close` starts it again."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a task; raises ClusterError if ATTEMPTS processes died of it."""
        with single_threaded_blas():
            return function(*arguments)

    def close(self) -> None:
        """End the worker; a thread continues until its task is done."""


class _Process(_Worker):
    """A local process: a loky executor of one worker."""

    def __init__(self) -> None:
        # Imported once, here: two threads that import it at the same time may find it incomplete.
        from joblib.externals.loky import process_executor

        self._loky: Any = process_executor
        self._executor: Any = None
        self._closed = False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a task in the process, which is started again if it dies."""
        self._closed, reason = False, ""
        for _ in range(ATTEMPTS):
            if self._executor is None:
                start = {"initializer": _prepare, "initargs": (os.getpid(),)}
                self._executor = self._loky.ProcessPoolExecutor(1, env=ONE_THREAD, **start)
            try:
                return self._executor.submit(function, *arguments).result()
            except (BrokenProcessPool, self._loky.ShutdownExecutorError) as error:
                reason, self._executor = _first_line(error), None
            if self._closed:
                break
        raise ClusterError(f"{ATTEMPTS} local processes ended during this task: {reason}")

    def close(self) -> None:
        """End the process."""
        self._closed, executor, self._executor = True, self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, kill_workers=True)


def _prepare(driver: int) -> None:
    """Prepare a local process: interrupts go to the driver, and it ends with the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Actor(_Worker):
    """An actor of a Ray cluster, which Ray restarts."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._actor = ray, None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a task on the actor."""
        if self._actor is None:
            restarts = {"max_restarts": -1, "max_task_retries": ATTEMPTS - 1}
            place = {"scheduling_strategy": "SPREAD", "runtime_env": {"env_vars": ONE_THREAD}}
            self._actor = self._ray.remote(**restarts, **place)(_Worker).remote()
        try:
            return self._ray.get(self._actor.call.remote(function, *arguments))  # type: ignore[attr-defined]
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f"{ATTEMPTS} Ray workers ended during this task: {_first_line(error)}") from None

    def close(self) -> None:
        """End the actor."""
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(Exception):  # the cluster may be gone
                self._ray.kill(actor)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ([line for line in lines if "ModuleNotFoundError" in line] or lines or [type(error).__name__])[0]


# -- backends ---------------------------------------------------------------------------------------------------------


def parse_backend(text: str) -> tuple[str, int, str]:
    """Return the kind of a backend, its number of workers (0: not given) and its address.

    Args:
        text: threads, threads:N, processes:N, ray, ray:HOST:PORT or ray://HOST:PORT.

    Raises:
        InvalidInputError: the text is invalid.
    """
    kind, colon, rest = text.partition(":")
    if kind == "ray" and bool(colon) == bool(rest):
        return kind, 0, text if rest.startswith("//") else rest
    counted = rest.isascii() and rest.isdecimal() and 1 <= int(rest) <= 4096
    if (kind == "threads" and not colon) or (kind in ("threads", "processes") and counted):
        return kind, int(rest or 0), ""
    forms = "threads, threads:N, processes:N, ray, ray:HOST:PORT or ray://HOST:PORT"
    raise InvalidInputError(f"backend: expected {forms}, got {text!r}")


def connect_ray(address: str = "") -> tuple[Any, bool]:
    """Connect to a Ray cluster; return Ray, and whether the connection is new.

    Args:
        address: of the cluster; if empty, the running one, or else a temporary one on this machine.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtraError("the backend ray", "cluster") from None
    if ray.is_initialized():
        return ray, False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(address=address or "auto", **quiet)
        except Exception as error:  # noqa: BLE001  # a cluster may be out of reach in many ways
            if not address and isinstance(error, ConnectionError):
                ray.init(address="local", include_dashboard=False, **quiet)
                return ray, True
            # Ray's client does not distinguish a missing token from a missing cluster.
            token = f". {TOKEN_HINT}" if "://" in address and not os.environ.get("RAY_AUTH_MODE") else ""
            raise ClusterError(f"the Ray cluster {address} cannot be reached: {_first_line(error)}{token}") from None
    return ray, True


_Call = tuple[str, _Worker | None, Callable[..., Any], tuple[Any, ...]]
"""Name, worker (None for the next free one), function and arguments of a call."""


class Pool:
    """Workers of one backend, started on first use; a context manager that ends them."""

    def __init__(self, backend: "str | Pool | None" = None, num_workers: int | None = None) -> None:
        """Read the backend; nothing is started.

        Args:
            backend: the backend as text, this process by default; or a pool, whose workers are shared.
            num_workers: of a Ray cluster; by default one per processor.
        """
        self._shared = backend if isinstance(backend, Pool) else None
        self.name: str = backend.name if isinstance(backend, Pool) else backend or "threads"
        self._kind, self._number, self._address = parse_backend(self.name)
        self._number = num_workers or self._number
        self.used, self._workers, self._leave = False, list[_Worker](), False

    @property
    def is_local(self) -> bool:
        """True if tasks run in this process."""
        return self._kind == "threads"

    @property
    def is_default(self) -> bool:
        """True if tasks run in this process one after the other."""
        return self.is_local and self._number <= 1

    @property
    def num_workers(self) -> int:
        """Number of tasks that run at the same time; connects to the cluster."""
        return len(self.workers)

    @property
    def workers(self) -> list[_Worker]:
        """The workers."""
        if self._shared is not None:
            return self._shared.workers
        if not self._workers and self._kind == "ray":
            ray, self._leave = connect_ray(self._address)
            number = self._number or max(1, int(ray.cluster_resources().get("CPU", 1)))
            self._workers = [_Actor(ray) for _ in range(number)]
        elif not self._workers:
            kind = _Worker if self.is_local else _Process
            self._workers = [kind() for _ in range(max(1, self._number))]
        return self._workers

    def map(
        self,
        function: Callable[[Piece, Report | None], Answer],
        tasks: Sequence[Piece],
        names: Sequence[str] | None = None,
        progress: Report | None = None,
    ) -> list[Answer]:
        """Return the results of independent tasks, in their order.

        Args:
            function: the work, of a task and a function to which it reports progress, or None; picklable.
            tasks: its arguments.
            names: (task,) names for progress and errors.
            progress: called now and then with the current activity and the completed share.

        Raises:
            ClusterError: a task cost ATTEMPTS workers.
        """
        self.used = self.used or bool(tasks)
        labels = [f"task {place + 1}" for place in range(len(tasks))] if names is None else list(names)
        if not self.is_default:
            return self._gather(
                [(label, None, function, (task, None)) for label, task in zip(labels, tasks, strict=True)], progress
            )
        found = []
        for place, (label, task) in enumerate(zip(labels, tasks, strict=True)):
            with single_threaded_blas(), _named(label):
                found.append(function(task, _part(progress, label, place, len(tasks))))
        return found

    def _gather(self, calls: Sequence[_Call], progress: Report | None = None) -> list[Any]:
        """Results of calls, each on its own worker or the next free one; the first error ends the others."""
        free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self.workers:
            free.put(worker)

        def run(label: str, own: _Worker | None, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
            worker = own or free.get()
            try:
                with _named(label):
                    return worker.call(function, *arguments)
            finally:
                free.put(worker)

        with ThreadPoolExecutor(len(self.workers)) as threads:
            futures = [threads.submit(run, *call) for call in calls]
            pending = set(futures)
            try:
                while pending:
                    done, pending = wait(pending, 2.0, FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    if progress is not None:
                        share = 1 - len(pending) / len(futures)
                        progress(f"{len(futures) - len(pending)} of {len(futures)} done", share)
            except BaseException:
                for future in pending:
                    future.cancel()
                for worker in self.workers:
                    worker.close()
                raise
        return [future.result() for future in futures]

    def blocks(self, builders: "Sequence[Callable[[], State]]") -> "Blocks[State]":
        """Blocks of data, each with one worker.

        Args:
            builders: (block,) functions that build them; small, because they are sent with every call.
        """
        return Blocks(self, builders)

    def check_picklable(self, things: Mapping[str, object]) -> None:
        """Raise InvalidInputError if something cannot be sent to the workers.

        Args:
            things: objects by their names in the message.
        """
        from joblib.externals.loky.backend.reduction import dumps

        for name, thing in () if self.is_local else things.items():
            try:
                dumps(thing)
            except Exception as error:  # noqa: BLE001  # whatever a user's class raises
                raise InvalidInputError(f"backend: {name} cannot be sent to another process: {error}") from None

    def close(self) -> None:
        """End the workers, unless they are those of another pool."""
        for worker in self._workers:
            worker.close()
        if self._leave:
            connect_ray()[0].shutdown()
        self._workers, self._leave = [], False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def _named(label: str) -> Iterator[None]:
    """Add the name of a task to its error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {label}")
        raise


def _part(progress: Report | None, label: str, place: int, number: int) -> Report | None:
    """Progress of one of several tasks."""
    if progress is None:
        return None
    progress(label, place / number)
    return lambda _, share: progress(label, (place + share) / number)


# -- blocks that stay with their workers ------------------------------------------------------------------------------

_states: dict[tuple[str, int], Any] = {}
"""Blocks of this worker, by the key of their `Blocks` and their number."""

_keys = itertools.count()


class Blocks(Generic[State]):
    """Blocks of data, each with one worker."""

    def __init__(self, pool: Pool, builders: Sequence[Callable[[], State]]) -> None:
        self._pool, self._builders = pool, list(builders)
        self._key = f"{os.getpid()}-{next(_keys)}"
        self._local: dict[int, State] = {}

    def __len__(self) -> int:
        return len(self._builders)

    def map(
        self, function: Callable[..., Answer], *common: Any, each: Sequence[tuple[Any, ...]] | None = None
    ) -> list[Answer]:
        """Return the results of all blocks, in their order.

        Args:
            function: called with a block, the common arguments and those of the block.
            common: arguments for all blocks.
            each: (block,) further arguments.
        """
        own = [()] * len(self) if each is None else list(each)
        if self._pool.is_local:
            run = partial(self._here, function, common, own)
            if len(self) == 1:
                return [run(0)]
            return list(in_order(run, range(len(self)), None if self._pool.is_default else self._pool.num_workers))
        workers = self._pool.workers[: len(self)]
        parts = [range(number, len(self), len(workers)) for number in range(len(workers))]
        sent = [[(b, self._builders[b], own[b]) for b in part] for part in parts]
        answers = self._pool._gather(
            [
                (f"worker {number}", worker, _on_blocks, (self._key, blocks, function, common))
                for number, (worker, blocks) in enumerate(zip(workers, sent, strict=True))
            ]
        )
        found: list[Any] = [None] * len(self)
        for part, answer in zip(parts, answers, strict=True):
            found[part.start :: len(workers)] = answer
        return found

    def _here(
        self, function: Callable[..., Answer], common: tuple[Any, ...], own: Sequence[tuple[Any, ...]], b: int
    ) -> Answer:
        with single_threaded_blas():
            if b not in self._local:
                self._local[b] = self._builders[b]()
            return function(self._local[b], *common, *own[b])

    def close(self) -> None:
        """Release the blocks; those of other processes are released with their next blocks."""
        self._local.clear()


def _on_blocks(
    key: str,
    blocks: Sequence[tuple[int, Callable[[], Any], tuple[Any, ...]]],
    function: Callable[..., Any],
    common: tuple[Any, ...],
) -> list[Any]:
    """Apply a function to blocks of this worker; only those of the last key are held."""
    for old in [name for name in _states if name[0] != key]:
        del _states[old]
    for number, builder, _ in blocks:
        if (key, number) not in _states:
            _states[key, number] = builder()
    return [function(_states[key, number], *common, *own) for number, _, own in blocks]
