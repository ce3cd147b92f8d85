"""How long things take, in numbers and pictures: the best of a few runs, since machines are shared."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
"""Where pictures go; not kept in the repository."""


def best_of(runs: int, work: Callable[[], Any]) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory() -> float:
    """GiB that this process has had at most; unlike getrusage, without what its parent had."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 2**20
    return float("nan")


def plot_growth(curves: Mapping[str, Sequence[tuple[int, float]]], name: str, title: str) -> Path:
    """Draw seconds against the number of arms, on logarithmic axes, and tell where the picture is."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.add_subplot()
    for label, points in curves.items():
        axes.loglog(*zip(*points, strict=True), marker="o", label=label)
    axes.set(xlabel="number of arms N", ylabel="seconds", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    RESULTS.mkdir(exist_ok=True)
    FigureCanvasSVG(figure).print_svg(RESULTS / f"{name}.svg")
    return RESULTS / f"{name}.svg"
