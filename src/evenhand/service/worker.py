"""The process that computes: `python -m evenhand.service.worker BYTES`, started by a server and ended with it.

It reads requests from standard input and answers on standard output, one at a time (`frames`); a computation that is to
be cancelled is ended with the process. When standard input ends, its server is gone, and so is it.
"""

import logging
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, BinaryIO

from evenhand.errors import EvenhandError, InvalidInput
from evenhand.service import frames
from evenhand.service.logs import configure

TELL_EVERY = 0.2
"""Seconds between two messages of how far the work is."""

Tell = Callable[[str, float], None]
Work = Callable[[dict[str, Any], bytes, Tell], tuple[dict[str, Any], bytes]]


def main() -> None:
    """Answer requests until there are no more."""
    _limit_memory(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; the server ends this one
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no message
    configure(quiet=True)
    requests: queue.Queue[tuple[dict[str, Any], bytes]] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    _write(out, {"ready": True})
    while True:
        request, body = requests.get()
        answer, data = _answer(request, body, _Teller(out))
        _write(out, answer, data)


def _limit_memory(size: int) -> None:
    """Let allocations beyond a size fail, where the system can; the stacks of threads count, mapped files do not."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard))


def _listen(stream: BinaryIO, requests: "queue.Queue[tuple[dict[str, Any], bytes]]") -> None:
    while (message := frames.read(stream)) is not None:
        requests.put(message)
    os._exit(0)


def _write(out: BinaryIO, message: dict[str, Any], body: bytes = b"") -> None:
    out.write(frames.pack(message, body))
    out.flush()


class _Teller:
    """Tells how far the work is, now and then."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._last, self._what = out, 0.0, ""

    def __call__(self, what: str, share: float) -> None:
        now = monotonic()
        if what == self._what and now < self._last + TELL_EVERY:
            return
        self._last, self._what = now, what
        _write(self._out, {"message": what, "progress": min(max(float(share), 0.0), 1.0)})


def _answer(request: dict[str, Any], body: bytes, tell: Tell) -> tuple[dict[str, Any], bytes]:
    from evenhand.service.refusals import details, status_of, told, unforeseen_details

    try:
        answer, data = WORK[request["kind"]](request, body, tell)
    except EvenhandError as error:
        return {"failed": details(status_of(error), *told(error), error.code)}, b""
    except MemoryError:
        return {"failed": details(422, "this does not fit into the memory of this machine")}, b""
    except Exception as error:  # noqa: BLE001  # the server goes on, and the client is told
        return {"failed": unforeseen_details(error)}, b""
    return {"done": answer}, data


# What can be asked for


def _solve_model(request: dict[str, Any], body: bytes, tell: Tell) -> tuple[dict[str, Any], bytes]:
    """A model, solved: its policy as the bytes of a file, as `evenhand solve --out` writes it."""
    import io

    from evenhand.model.files import load
    from evenhand.planning.solve import solve
    from evenhand.programme.solving import to_bytes

    criterion = request["criterion"]
    problem = load(io.BytesIO(body), "json", criterion=criterion)
    solution = solve(
        problem,
        request["welfare"],
        method=request["method"],
        criterion=criterion,
        over=request["over"],
        rng=request["seed"],
        progress=tell,
    )
    return {}, to_bytes(solution)[1]


def _solve_programme(request: dict[str, Any], _: bytes, tell: Tell) -> tuple[dict[str, Any], bytes]:
    """A policy for those who take part, kept in the store."""
    from evenhand.programme.programme import Programme

    asked = {name: request[name] for name in ("method", "seconds", "who", "key")}
    with Programme.open(request["address"]) as programme:
        return programme.solve(**asked, progress=tell).as_dict(), b""


def _certify(request: dict[str, Any], _: bytes, tell: Tell) -> tuple[dict[str, Any], bytes]:
    """What the policy of now is worth for those who take part now."""
    from evenhand.programme.programme import Programme

    tell("trying the policy out for those who take part", 0.0)
    with Programme.open(request["address"]) as programme:
        found = programme.certificate()
        if found is None:
            raise InvalidInput("there is no policy that can serve those who take part")
        return found.as_dict(), b""


def _suppose(request: dict[str, Any], body: bytes, tell: Tell) -> tuple[dict[str, Any], bytes]:
    """What another budget or welfare would be worth, and the file of the plan; from that of an earlier one, if any."""
    from evenhand.programme.programme import Programme
    from evenhand.programme.solving import plan_from_bytes

    budgets = [] if request["budget"] is None else [request["budget"]]
    earlier = [plan_from_bytes(body)] if body else []
    asked = {"seconds": request["seconds"], "progress": tell, "earlier": earlier}
    with Programme.open(request["address"]) as programme:
        (found,) = programme.suppose(budgets, request["welfare"], **asked)
        return found.as_dict(), found.body


def _price(request: dict[str, Any], _: bytes, tell: Tell) -> tuple[dict[str, Any], bytes]:
    """What each idea of fairness would give, and cost."""
    from evenhand.programme.programme import Programme

    with Programme.open(request["address"]) as programme:
        return programme.price_of_fairness(seconds=request["seconds"], progress=tell).as_dict(), b""


def _refit(request: dict[str, Any], _: bytes, tell: Tell) -> tuple[dict[str, Any], bytes]:
    """A model fitted to the programme's own records, kept in the store."""
    from evenhand.programme.programme import Programme

    asked = {name: request[name] for name in ("trust", "prior", "seconds", "who", "key")}
    with Programme.open(request["address"]) as programme:
        return programme.refit(**asked, progress=tell).as_dict(), b""


def _drift(request: dict[str, Any], _: bytes, tell: Tell) -> tuple[dict[str, Any], bytes]:
    """Whether the model still fits; where it does not, a fit that is offered, kept in the store."""
    from evenhand.programme.programme import Programme

    with Programme.open(request["address"]) as programme:
        drift, fit = programme.offer_refit(seconds=request["seconds"], progress=tell, who=request["who"])
        return {"drift": drift.as_dict(), "refit": None if fit is None else fit.id}, b""


WORK: dict[str, Work] = {
    "decide": _solve_model,
    "solve": _solve_programme,
    "what-if": _suppose,
    "price": _price,
    "refit": _refit,
    "drift": _drift,
    "certify": _certify,
}
"""What is done for each kind of request: how it is asked for, and its bytes; an answer, and its bytes."""


if __name__ == "__main__":
    logging.captureWarnings(True)
    main()
