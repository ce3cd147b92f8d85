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
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from evenhand.errors import ClusterError, EvenhandError, InvalidInputError, MissingExtraError

ATTEMPTS = 3
"""Workers that one task may cost."""

PROGRESS_INTERVAL = 2.0
"""Seconds between progress reports while no task ends."""

THREADS = "EVENHAND_THREADS"
"""Environment variable that limits the threads of a process; workers have one each."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", THREADS), "1"
)
"""Environment of a worker."""

TOKEN_HINT = "If it requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"

Item = TypeVar("Item", contravariant=True)
Result = TypeVar("Result", covariant=True)
Piece = TypeVar("Piece")
Answer = TypeVar("Answer")
State = TypeVar("State")
Report = Callable[[str, float], None]
"""Called with the current activity and the completed share."""


class TaskFunction(Protocol[Item, Result]):
    """A function that runs on a worker; it must be picklable."""

    def __call__(self, item: Item, progress: Report | None = None, /) -> Result:
        """Return the result; progress is reported only if the task runs in this process."""
        ...


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
    if threads < 2:
        yield from map(function, pieces)
        return
    remaining = iter(pieces)
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque(pool.submit(function, piece) for piece in islice(remaining, 2 * threads))
        for piece in remaining:
            yield waiting.popleft().result()
            waiting.append(pool.submit(function, piece))
        while waiting:
            yield waiting.popleft().result()


_lock, _before = threading.Lock(), list[int]()
_depth = 0


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit the OpenBLAS of NumPy and SciPy to one thread; other libraries keep to their environment."""
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
        spec = find_spec(name)
        home = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
        for path in (
            path for folder in (home.parent / f"{name}.libs", home / ".dylibs") for path in folder.glob("*openblas*")
        ):
            with suppress(OSError):
                library = ctypes.CDLL(str(path))
                for prefix, suffix in itertools.product(("scipy_openblas", "openblas"), ("64_", "", "_64")):
                    get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                    put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                    if get is not None and put is not None:
                        found.append((get, put))
                        break
    return tuple(found)


# -- workers ----------------------------------------------------------------------------------------------------------


class _Failure(NamedTuple):
    """An exception on its way from a worker; its class may require other arguments than it stores."""

    kind: type[BaseException]
    arguments: tuple[Any, ...]
    fields: dict[str, Any]

    @classmethod
    def of(cls, error: Exception) -> "_Failure":
        if isinstance(error, EvenhandError) or type(error).__module__ == "builtins":
            return cls(type(error), error.args, dict(error.__dict__))
        text = "".join(traceback.format_exception(error)).strip()
        return cls(ClusterError, (f"a worker failed:\n{text}",), {})

    def exception(self) -> BaseException:
        error = self.kind.__new__(self.kind)
        error.args = self.arguments
        error.__dict__.update(self.fields)
        return error


def _run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run a task on a worker."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001  # raised again in the driver
        return _Failure.of(error)


class _Worker:
    """The methods of a Ray actor."""

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return _run(function, arguments)


class _Slot(Protocol):
    """One worker."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a task; raises ClusterError if ATTEMPTS workers died of it."""
        ...

    def close(self) -> None:
        """End the worker; a later call starts it again."""
        ...


class _Thread:
    """A thread of this process."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with single_threaded_blas():
            return function(*arguments)

    def close(self) -> None:
        """Threads cannot be ended."""


class _Process:
    """A local process: a loky executor of one worker."""

    def __init__(self) -> None:
        self._executor: Any = None
        self._closed = False
        self.num_restarts = 0

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        from joblib.externals.loky.process_executor import ProcessPoolExecutor, ShutdownExecutorError

        self._closed, reason = False, ""
        for _ in range(ATTEMPTS):
            if self._executor is None:
                self._executor = ProcessPoolExecutor(1, env=ONE_THREAD, initializer=_prepare, initargs=(os.getpid(),))
            try:
                return _result(self._executor.submit(_run, function, arguments).result())
            except (BrokenProcessPool, ShutdownExecutorError) as error:
                reason, self._executor = _first_line(error), None
                self.num_restarts += 1
            if self._closed:
                break
        raise ClusterError(f"{ATTEMPTS} local processes ended during this task: {reason}")

    def close(self) -> None:
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


class _Actor:
    """An actor of a Ray cluster, which Ray restarts."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._actor = ray, None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._actor is None:
            kind = self._ray.remote(
                max_restarts=-1,
                max_task_retries=ATTEMPTS - 1,
                scheduling_strategy="SPREAD",
                runtime_env={"env_vars": ONE_THREAD},
            )(_Worker)
            self._actor = kind.remote()
        try:
            return _result(self._ray.get(self._actor.run.remote(function, arguments)))  # type: ignore[attr-defined]
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f"{ATTEMPTS} Ray workers ended during this task: {_first_line(error)}") from None

    def close(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(Exception):  # the cluster may be gone
                self._ray.kill(actor)


def _result(outcome: Any) -> Any:
    if isinstance(outcome, _Failure):
        raise outcome.exception()
    return outcome


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
    counted = rest.isdecimal() and 1 <= int(rest) <= 4096
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
        self.used, self._slots, self._leave = False, list[_Slot](), False

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
        return 1 if self.is_default else len(self.slots)

    @property
    def num_restarts(self) -> int:
        """Number of local processes that were restarted."""
        return sum(slot.num_restarts for slot in self.slots if isinstance(slot, _Process))

    @property
    def slots(self) -> list[_Slot]:
        """The workers."""
        if self._shared is not None:
            return self._shared.slots
        if not self._slots:
            if self._kind == "ray":
                ray, self._leave = connect_ray(self._address)
                number = self._number or max(1, int(ray.cluster_resources().get("CPU", 1)))
                self._slots = [_Actor(ray) for _ in range(number)]
            else:
                kind = _Thread if self.is_local else _Process
                self._slots = [kind() for _ in range(self._number or num_threads())]
        return self._slots

    def map(
        self,
        function: TaskFunction[Piece, Answer],
        tasks: Sequence[Piece],
        names: Sequence[str] | None = None,
        progress: Report | None = None,
    ) -> list[Answer]:
        """Return the results of independent tasks, in their order.

        Args:
            function: the work.
            tasks: its arguments.
            names: (task,) names for progress and errors.
            progress: called now and then with the current activity and the completed share.

        Raises:
            ClusterError: a task cost ATTEMPTS workers.
        """
        self.used = self.used or bool(tasks)
        labels = [f"task {place + 1}" for place in range(len(tasks))] if names is None else list(names)
        if not self.is_default:
            return self._dispatch(
                [(label, function, (task,)) for label, task in zip(labels, tasks, strict=True)], progress
            )
        found = []
        for place, (label, task) in enumerate(zip(labels, tasks, strict=True)):
            with single_threaded_blas(), _named(label):
                found.append(function(task, _part(progress, label, place, len(tasks))))
        return found

    def _dispatch(
        self, calls: Sequence[tuple[str, Callable[..., Any], tuple[Any, ...]]], progress: Report | None = None
    ) -> list[Any]:
        """Results of calls, each on the next free worker."""
        free: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        for slot in self.slots:
            free.put(slot)

        def run(label: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
            slot = free.get()
            try:
                with _named(label):
                    return slot.call(function, *arguments)
            finally:
                free.put(slot)

        with ThreadPoolExecutor(len(self.slots)) as threads:
            futures = [threads.submit(run, *call) for call in calls]
            self._wait(futures, [call[0] for call in calls], progress)
        return [future.result() for future in futures]

    def _wait(self, futures: Sequence["Future[Any]"], labels: Sequence[str], progress: Report | None = None) -> None:
        """Wait for all; on the first error, or an interrupt, end the others."""
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, PROGRESS_INTERVAL, FIRST_COMPLETED)
                for future in done:
                    future.result()
                if progress is not None:
                    number = len(futures) - len(pending)
                    current = next((label for label, one in zip(labels, futures, strict=True) if one in pending), "")
                    progress(
                        f"{number} of {len(futures)} done{', ' if current else ''}{current}", number / len(futures)
                    )
        except BaseException:
            for future in pending:
                future.cancel()
            for slot in self.slots:
                slot.close()
            raise

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
        for slot in self._slots:
            slot.close()
        if self._leave:
            connect_ray()[0].shutdown()
        self._slots, self._leave = [], False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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


def parts_per_task(number: int, num_workers: int) -> int:
    """Number of parts into which each of some tasks is divided so that all workers are busy.

    Args:
        number: of tasks.
        num_workers: number of tasks that run at the same time.
    """
    return max(1, -(-num_workers // max(number, 1)))


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
        slots = self._pool.slots[: len(self)]
        parts = [range(number, len(self), len(slots)) for number in range(len(slots))]
        with ThreadPoolExecutor(len(slots)) as threads:
            futures = [
                threads.submit(
                    slot.call, _on_blocks, self._key, [(b, self._builders[b], own[b]) for b in part], function, common
                )
                for slot, part in zip(slots, parts, strict=True)
            ]
            self._pool._wait(futures, [f"worker {number}" for number in range(len(slots))])
        found: list[Any] = [None] * len(self)
        for part, future in zip(parts, futures, strict=True):
            found[part.start :: len(slots)] = future.result()
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
