"""A Ray cluster: every worker is an actor with one processor.

    ray                 the cluster of this machine, or that RAY_ADDRESS names; else one is started here, for now
    ray:HOST:PORT       a cluster by the address of its head, from a machine that is part of it
    ray://HOST:PORT     a cluster by Ray's client, from anywhere

Actors are not restarted by Ray but by the dispatcher, which knows what they had: a restarted one would have to be told.
What is sent is serialised by Ray; large arrays go through its store of objects, once for each machine.
"""

import contextlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.errors import ClusterError, MissingExtra
from evenhand.execution.dispatch import Crew, Died, Dispatcher, Message
from evenhand.execution.local import ONE_THREAD
from evenhand.execution.resident import Request, Resident

NEEDS_TOKEN = "If it asks for a token, as Ray does from 2.59 on, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
"""What else may be the matter where Ray's client gets no answer."""


@dataclass(eq=False)
class _Actor:
    """An actor, and what it owes us."""

    handle: Any
    owed: Any


class _Actors(Crew[_Actor]):
    """Actors of a cluster, which is left when they are let go."""

    def __init__(self, leave: bool) -> None:
        self._ray, self._leave = load(), leave
        self._class = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Resident)

    def start(self) -> _Actor:
        alone = {"env_vars": dict.fromkeys(ONE_THREAD, "1")}
        actor = self._class.options(runtime_env=alone).remote()
        return _Actor(actor, actor.hello.remote())

    def send(self, worker: _Actor, request: Request) -> None:
        worker.owed = worker.handle.reply.remote(request)

    def ready(self, workers: Sequence[_Actor], seconds: float) -> list[int]:
        owed = [worker.owed for worker in workers]
        heard = set(self._ray.wait(owed, num_returns=len(owed), timeout=0, fetch_local=False)[0])
        if not heard:
            heard = set(self._ray.wait(owed, num_returns=1, timeout=seconds, fetch_local=False)[0])
        return [place for place, reference in enumerate(owed) if reference in heard]

    def receive(self, worker: _Actor) -> Message:
        try:
            message: Message = self._ray.get(worker.owed)
        except self._ray.exceptions.RayError as error:
            return Died(_first_line(error))
        return message

    def end(self, worker: _Actor) -> None:
        with contextlib.suppress(Exception):  # it may be gone, and so may the cluster
            self._ray.kill(worker.handle)

    def close(self) -> None:
        if self._leave:
            self._ray.shutdown()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    missing = [line for line in lines if "ModuleNotFoundError" in line]
    return (missing or lines or [type(error).__name__])[0]


def load() -> Any:
    """Ray, or the words for how to get it."""
    try:
        import ray
    except ImportError:
        raise MissingExtra("running on Ray", "cluster") from None
    return ray


def ray_cluster(address: str = "", num_workers: int | None = None) -> Dispatcher[_Actor]:
    """An executor of actors.

    Args:
        address: of the cluster: `HOST:PORT`, `ray://HOST:PORT`; when empty, the one that is there, or a new one here.
        num_workers: how many; one for each processor of the cluster when absent.
    """
    ray, joined = load(), _join(address)
    cores = int(ray.cluster_resources().get("CPU", 1))
    name = address if "://" in address else f"ray:{address}" if address else "ray"
    return Dispatcher(name, _Actors(leave=joined), num_workers or max(1, cores))


def _join(address: str) -> bool:
    """Be part of a cluster; whether we were not before, and have to leave it."""
    ray = load()
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if address:
            _connect(ray, address, quiet)
            return True
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError:  # none runs here: one for now, for as long as the work takes
            ray.init(address="local", include_dashboard=False, **quiet)
    return True


def _connect(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    try:
        ray.init(address=address, **quiet)
    except Exception as error:  # noqa: BLE001  # a cluster may be out of reach in many ways
        # Ray's client tells a cluster that refuses it from one that is not there only in its log.
        token = "" if "://" not in address or os.environ.get("RAY_AUTH_MODE") else f". {NEEDS_TOKEN}"
        raise ClusterError(f"the Ray cluster {address} cannot be reached: {_first_line(error)}{token}") from None
