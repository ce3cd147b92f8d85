"""Functions that run in a worker process (`jobs.Worker`): one per kind of job.

A worker is spawned by a server, reports progress through a pipe, and ends if its server does.
"""

import logging
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, Literal

from evenhand.errors import EvenhandError, InvalidInputError
from evenhand.programme.api.telemetry import configure

REPORT_EVERY = 0.2
"""Seconds between two progress messages of one phase."""

Progress = Callable[[str, float], None]
Work = Callable[[dict[str, Any], bytes, Progress], tuple[dict[str, Any], bytes]]


def begin(memory: int, progress: Connection) -> None:
    """Initialise the process: limit its memory, tie its life to the server's.

    Args:
        memory: bytes that it may allocate.
        progress: pipe to the server.
    """
    limit_memory(memory)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the server ends this one
    os.dup2(2, 1)  # standard output belongs to the server
    logging.captureWarnings(True)
    configure(quiet=True)
    threading.Thread(target=_end_with_server, daemon=True).start()
    _Reporter.pipe = progress


def limit_memory(size: int) -> None:
    """Let allocations beyond `size` bytes fail; stacks of threads count, mapped files do not."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard))


def _end_with_server() -> None:
    server = multiprocessing.parent_process()
    assert server is not None
    server.join()
    os._exit(0)


class _Reporter:
    """Progress callback that sends every new phase, and otherwise one message per `REPORT_EVERY` seconds."""

    pipe: Connection

    def __init__(self) -> None:
        self._last, self._phase = 0.0, ""

    def __call__(self, phase: str, share: float) -> None:
        now = monotonic()
        if phase != self._phase or now >= self._last + REPORT_EVERY:
            self._last, self._phase = now, phase
            self.pipe.send((phase, min(max(float(share), 0.0), 1.0)))


def do(kind: str, request: dict[str, Any], body: bytes) -> tuple[Literal["done", "failed"], dict[str, Any], bytes]:
    """Compute a job; return its answer and bytes, or problem details.

    Args:
        kind: key of `WORK`.
        request: arguments.
        body: binary argument.
    """
    from evenhand.programme.api.problem_details import details, message_of, status_of, unforeseen_details

    try:
        return "done", *WORK[kind](request, body, _Reporter())
    except EvenhandError as error:
        return "failed", details(status_of(error), *message_of(error), error.code), b""
    except MemoryError:
        return "failed", details(422, "the computation does not fit into its memory limit"), b""
    except Exception as error:  # noqa: BLE001  # the worker continues, the client gets a problem
        return "failed", unforeseen_details(error), b""


# Kinds of jobs


def _solve_model(request: dict[str, Any], body: bytes, progress: Progress) -> tuple[dict[str, Any], bytes]:
    """Solve a model; return its plan file."""
    import io

    from evenhand.model.io import load
    from evenhand.planning.solve import solve
    from evenhand.programme.certificates import to_bytes

    criterion = request["criterion"]
    problem = load(io.BytesIO(body), "json", criterion=criterion)
    solution = solve(
        problem,
        request["welfare"],
        method=request["method"],
        criterion=criterion,
        over=request["over"],
        rng=request["seed"],
        progress=progress,
    )
    return {}, to_bytes(solution)[1]


def _solve_programme(request: dict[str, Any], _: bytes, progress: Progress) -> tuple[dict[str, Any], bytes]:
    """Solve for the present roster and store the policy."""
    from evenhand.programme.programme import Programme

    payload = {name: request[name] for name in ("method", "seconds", "who", "key")}
    with Programme.open(request["address"]) as programme:
        return programme.solve(**payload, progress=progress).to_dict(), b""


def _certify(request: dict[str, Any], _: bytes, progress: Progress) -> tuple[dict[str, Any], bytes]:
    """Certify the current policy for the present roster."""
    from evenhand.programme.programme import Programme

    progress("evaluating the policy for the present roster", 0.0)
    with Programme.open(request["address"]) as programme:
        found = programme.certificate()
        if found is None:
            raise InvalidInputError("no policy can serve the present roster")
        return found.to_dict(), b""


def _suppose(request: dict[str, Any], body: bytes, progress: Progress) -> tuple[dict[str, Any], bytes]:
    """Evaluate another budget or welfare, starting from an earlier plan if given; return the plan file too."""
    from evenhand.programme.certificates import plan_from_bytes
    from evenhand.programme.programme import Programme

    budgets = [] if request["budget"] is None else [request["budget"]]
    earlier = [plan_from_bytes(body)] if body else []
    payload = {"seconds": request["seconds"], "progress": progress, "earlier": earlier}
    with Programme.open(request["address"]) as programme:
        (found,) = programme.suppose(budgets, request["welfare"], **payload)
        return found.to_dict(), found.body


def _price(request: dict[str, Any], _: bytes, progress: Progress) -> tuple[dict[str, Any], bytes]:
    """Compute the price of fairness."""
    from evenhand.programme.programme import Programme

    with Programme.open(request["address"]) as programme:
        return programme.price_of_fairness(seconds=request["seconds"], progress=progress).to_dict(), b""


def _refit(request: dict[str, Any], _: bytes, progress: Progress) -> tuple[dict[str, Any], bytes]:
    """Fit the model to the programme's records and store the fit."""
    from evenhand.programme.programme import Programme

    payload = {name: request[name] for name in ("trust", "prior", "seconds", "who", "key")}
    with Programme.open(request["address"]) as programme:
        return programme.refit(**payload, progress=progress).to_dict(), b""


def _drift(request: dict[str, Any], _: bytes, progress: Progress) -> tuple[dict[str, Any], bytes]:
    """Test the model for drift; if it is rejected, fit a new one and offer it."""
    from evenhand.programme.programme import Programme

    with Programme.open(request["address"]) as programme:
        drift, fit = programme.offer_refit(seconds=request["seconds"], progress=progress, who=request["who"])
        return {"drift": drift.to_dict(), "refit": None if fit is None else fit.id}, b""


WORK: dict[str, Work] = {
    "decide": _solve_model,
    "solve": _solve_programme,
    "what-if": _suppose,
    "price": _price,
    "refit": _refit,
    "drift": _drift,
    "certify": _certify,
}
"""Function per kind of job: from arguments and bytes to an answer and bytes."""
