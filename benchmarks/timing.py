"""How long things take: the best of a few runs, since these machines are shared."""

import time
from collections.abc import Callable
from typing import Any


def best_of(runs: int, work: Callable[[], Any]) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
