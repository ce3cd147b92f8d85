"""The fair relaxation beyond one process: the table of docs/beyond-one-machine.md.

    make bench-cluster
    python -m benchmarks.cluster [local-and-ray] [growth] [kills] [nodes] [anchors] [--largest N] [--folder F]

Arms are random, all different, with three states, two actions and one resource. They are written to Parquet once, in a
folder that is kept for the next run. Memory is the sum over all processes of what each has for itself, and of its share
of what several have (PSS), at its largest. Machines are shared: times are as measured.
"""

import argparse
import json
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.timing import RESULTS
from evenhand.model.parquet import ArmWriter, StoredArms, open_arms
from evenhand.parallel import Pool
from evenhand.problems.random_arms import random_coupled
from evenhand.solvers.fluid import solve_blocks
from evenhand.solvers.fluid.dual_search import DualSolution

WELFARE, TOLERANCE = "gini:half=0.75", 1e-4
AT_ONCE = 500_000
SHARE = 1 / 3
"""Of what all arms could use at once there is this budget."""


def table_of(folder: Path, number: int) -> StoredArms:
    """A table of so many different arms, written unless it is there."""
    path = folder / f"arms-{number}"
    if not path.exists():
        begin = time.perf_counter()
        with ArmWriter(path, budget=float(round(SHARE * number)), discount=0.95) as writer:
            for seed, start in enumerate(range(0, number, AT_ONCE)):
                some = min(AT_ONCE, number - start)
                writer.write(random_coupled(some, 3, num_types=some, seed=seed).tables)
        print(f"wrote {number:.0e} arms in {time.perf_counter() - begin:.0f} s", flush=True)
    return open_arms(path)


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """The largest memory of this process and all that it started, in GB, and that of this process alone."""
    seen, done = {"all": 0.0, "driver": 0.0}, threading.Event()

    def look() -> None:
        me = psutil.Process()
        while not done.wait(0.2):
            sizes = [_size(process) for process in (me, *me.children(recursive=True))]
            seen["all"] = max(seen["all"], sum(sizes))
            seen["driver"] = max(seen["driver"], sizes[0])

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def _size(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss) / 1e9
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


def bits(solution: DualSolution) -> tuple[Any, ...]:
    """What must not change."""
    arrays = (solution.values, solution.weights, solution.prices, solution.use)
    return (solution.welfare, solution.upper_bound, *(array.tobytes() for array in arrays))


def timed(arms: StoredArms, backend: Any, progress: Any = None) -> tuple[DualSolution, float]:
    begin = time.perf_counter()
    solution = solve_blocks(arms, WELFARE, backend, TOLERANCE, progress)
    return solution, time.perf_counter() - begin


def warm(executor: Any, folder: Path) -> None:
    """Start the workers and load compiled code, which is not what is timed."""
    solve_blocks(table_of(folder, 40_000), WELFARE, executor, 1e-3)


@contextmanager
def small_ray(cores: int = 2) -> Iterator[None]:
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local", num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="error",
        object_store_memory=2_000_000_000,
    )  # fmt: skip
    try:
        yield
    finally:
        ray.shutdown()


def local_and_ray(folder: Path, largest: int) -> dict[str, Any]:
    """The same arms on two processes and on two Ray workers."""
    arms = table_of(folder, min(10**6, largest))
    with Pool("processes:2") as executor:
        warm(executor, folder)
        here, seconds_here = timed(arms, executor)
    with small_ray(), Pool("ray", num_workers=2) as executor:
        warm(executor, folder)
        there, seconds_there = timed(arms, executor)
    print(f"{arms.num_arms:.0e} arms: processes:2 {seconds_here:.1f} s, Ray with 2 workers {seconds_there:.1f} s")
    print(f"  ratio {seconds_there / seconds_here:.2f}; bitwise equal: {bits(here) == bits(there)}; gap {here.gap:.1e}")
    return {
        "local": seconds_here, "ray": seconds_there, "equal": bits(here) == bits(there), "gap": here.gap,
        "welfare": here.welfare, "bound": here.upper_bound, "rounds": here.rounds,
    }  # fmt: skip


def growth(folder: Path, largest: int) -> list[dict[str, Any]]:
    """Seconds and memory against the number of arms, from Parquet on two processes."""
    rows: list[dict[str, Any]] = []
    for number in (number for number in (10**5, 10**6, 10**7) if number <= largest):
        rows.append(_grown(table_of(folder, number), folder))
        print(_told(rows[-1]), flush=True)
    pairs = [*pairwise(rows), *([(rows[0], rows[-1])] if len(rows) > 2 else [])]
    for first, last in pairs:
        print(f"from {first['arms']:.0e} to {last['arms']:.0e} arms: {_told_growth(first, last)}")
    return rows


def _grown(arms: StoredArms, folder: Path) -> dict[str, Any]:
    """One size; the driver's peak is also what the system says of it, which misses nothing between two looks."""
    with Pool("processes:2") as executor:
        warm(executor, folder)
        with watched() as seen:
            found, seconds = timed(arms, executor)
    return {
        "arms": arms.num_arms, "seconds": seconds, "gap": found.gap, "rounds": found.rounds,
        "blocks": found.num_blocks, "welfare": found.welfare, "bound": found.upper_bound, **seen,
        "driver_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }  # fmt: skip


def _told(row: dict[str, Any]) -> str:
    return (
        f"{row['arms']:.0e} arms: {row['seconds']:7.1f} s, gap {row['gap']:.1e}, {row['rounds']} rounds, "
        f"{row['blocks']} blocks, all processes {row['all']:.2f} GB, driver {row['driver']:.2f} GB "
        f"(at its peak {row['driver_peak']:.3f} GB resident)"
    )


def _told_growth(first: dict[str, Any], last: dict[str, Any]) -> str:
    more = last["arms"] - first["arms"]
    exponent = np.log(last["seconds"] / first["seconds"]) / np.log(last["arms"] / first["arms"])
    an_arm = {name: 1e9 * (last[name] - first[name]) / more for name in ("all", "driver", "driver_peak")}
    return (
        f"exponent {exponent:.2f}; for each arm more all processes {an_arm['all']:.0f} bytes, "
        f"the driver {an_arm['driver']:.0f} (by its peak {an_arm['driver_peak']:.0f})"
    )


def _process(number: int, progress: Any = None) -> int:
    return os.getpid()


def kills(folder: Path, largest: int) -> dict[str, Any]:
    """A worker is killed at ten random moments."""
    arms, rng = table_of(folder, min(10**5, largest)), np.random.default_rng(0)
    equal, replaced, times = 0, 0, []
    with Pool("processes:2") as executor:
        warm(executor, folder)
        calm, seconds = timed(arms, executor)
        for moment in rng.uniform(0.02, 0.95, size=10):
            victim = executor.map(_process, [0])[0]
            killer = threading.Timer(moment * seconds, os.kill, (victim, signal.SIGKILL))
            killer.start()
            found, took = timed(arms, executor)
            killer.join()
            equal, replaced = equal + (bits(found) == bits(calm)), executor.num_restarts
            times.append(took)
    print(
        f"{arms.num_arms:.0e} arms, a worker killed at 10 random moments: {equal} of 10 answers bitwise equal, "
        f"{replaced} replaced within the solve; {seconds:.1f} s calm, {np.mean(times):.1f} s on average with a kill"
    )
    return {"equal": equal, "replaced": replaced, "calm": seconds, "killed": times}


def nodes(folder: Path, largest: int) -> dict[str, Any]:
    """A cluster of three local Ray nodes, one of which is lost on the way."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    arms = table_of(folder, min(10**5, largest))
    size = {"object_store_memory": 300_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **size})
    others = [cluster.add_node(num_cpus=1, **size) for _ in range(2)]
    cluster.wait_for_nodes()
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        with Pool("ray", num_workers=3) as executor:
            warm(executor, folder)
            calm, seconds = timed(arms, executor)
            lost = []

            def lose(number: int, gap: float) -> None:
                if number == 2 and not lost:
                    lost.append(True)
                    cluster.remove_node(others[0])

            found, took = timed(arms, executor, lose)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(
        f"{arms.num_arms:.0e} arms on 3 Ray nodes, one removed on the way: bitwise equal: {bits(found) == bits(calm)}; "
        f"{seconds:.1f} s calm, {took:.1f} s with the loss"
    )
    return {"equal": bits(found) == bits(calm), "calm": seconds, "lost": took}


def anchors(folder: Path, largest: int) -> list[dict[str, Any]]:
    """Where one linear program stops, and what per-arm Lagrangian code does for the mean."""
    from benchmarks.cluster_anchors import run

    return run()


PARTS: dict[str, Callable[[Path, int], Any]] = {
    "local-and-ray": local_and_ray,
    "growth": growth,
    "kills": kills,
    "nodes": nodes,
    "anchors": anchors,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--largest", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "evenhand-bench-cluster")
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    for name in asked.parts or PARTS:
        print(f"\n== {name} ==", flush=True)
        found = PARTS[name](asked.folder, asked.largest)
        (RESULTS / f"cluster-{name}.json").write_text(json.dumps(found, indent=1, default=float))


if __name__ == "__main__":
    main()
