"""The fluid relaxation of many different arms: seconds, certified gap, and peak memory against their number.

    python -m benchmarks fluid
    python -m benchmarks.bench_fluid [--largest N]

Every run is a process of its own, so that its peak memory is its own. Compilation is done before, on a small problem.
"""

import argparse
import multiprocessing
import time

from benchmarks.timing import peak_memory, plot_growth
from evenhand.model.coupled import CoupledMDP
from evenhand.problems.machine_replacement import heterogeneous_machine_replacement
from evenhand.problems.random_arms import random_coupled
from evenhand.solvers.fluid import FluidSolution, solve_fluid

TOLERANCE = 1e-4

CASES = [
    *((kind, number, states) for number in (10**2, 10**3, 10**4) for kind, states in (("random", 3), ("random", 10))),
    *(("machines", number, 3) for number in (10**2, 10**3, 10**4, 10**5)),
    ("random", 10**5, 3),
    ("random", 10**6, 3),
]
"""Kind of arms, how many (all different), and their states."""


def build(kind: str, num_arms: int, num_states: int) -> CoupledMDP:
    """A problem of arms that all differ, with one resource and two actions."""
    if kind == "machines":
        return heterogeneous_machine_replacement(num_arms, num_states=num_states)
    return random_coupled(num_arms, num_states, num_types=num_arms)


def run(problem: CoupledMDP, welfare: str) -> FluidSolution:
    return solve_fluid(problem, welfare, TOLERANCE)


def compile_all() -> None:
    """Compile the kernels on a small problem; Numba keeps them on disk for the runs."""
    run(build("random", 100, 3), "gini:1.1")


def time_case(kind: str, num_arms: int, num_states: int, welfare: str, criterion: str = "discounted") -> float:
    """Print a row of the table, and return the seconds."""
    compile_all()  # loads from disk
    problem = build(kind, num_arms, num_states).with_criterion(criterion)
    assert problem.num_types == len(problem.type_counts)  # finds the types, which is not what is timed
    started = time.perf_counter()
    solution = run(problem, welfare)
    seconds = time.perf_counter() - started
    peak = peak_memory()
    name = welfare if len(welfare) < 12 else welfare[:9] + "..."
    print(
        f"{kind:>9} {num_arms:>8} {num_states:>7} {name:>12} {criterion:>10} {solution.welfare:>10.5f} "
        f"{solution.gap:>8.1e} {solution.rounds:>7} {seconds:>9.2f} {peak:>9.2f}",
        flush=True,
    )
    return seconds


def alone(*case: object) -> float:
    """Run in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(time_case, case)


def main(largest: int = 10**6) -> None:
    compile_all()
    widths = {"arms": 9, "number": 8, "states": 7, "welfare": 12, "criterion": 10}
    widths |= {"value": 10, "gap": 8, "rounds": 7, "seconds": 9, "peak GiB": 9}
    print(" ".join(f"{name:>{width}}" for name, width in widths.items()))
    curves: dict[str, list[tuple[int, float]]] = {}
    for kind, number, states in CASES:
        if number <= largest:
            seconds = alone(kind, number, states, f"gini:{2 ** (10 / number)}")
            curves.setdefault(f"{kind}, S = {states}", []).append((number, seconds))
    print("growth is drawn in", plot_growth(curves, "fluid-growth", f"fair fluid bound, certified gap {TOLERANCE:g}"))
    for welfare in ("utilitarian", "maximin:0.01", "leximin", "alpha:1"):
        alone("random", min(largest, 10**5), 3, welfare)
    for criterion in ("average", "finite:50"):
        alone("machines", 100, 3, "gini:1.07", criterion)
        alone("machines", 100, 3, "alpha:1", criterion)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=10**6, help="leave out what has more arms")
    main(parser.parse_args().largest)
