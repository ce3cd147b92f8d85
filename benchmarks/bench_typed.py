"""How long counts of several types take, applied type by type; the explicit table beside it where it fits.

    python -m benchmarks typed
    python -m benchmarks.bench_typed --table --slow

Seconds are wall time of `solve(method="counts")` for gini:2 to a gap of 1e-8, everything included but the compilation,
which is done before on a small problem; cpu is the work of all cores together, which other programs disturb less; GB is
the most that the process has held so far. With --table the explicit table is solved too, where it takes minutes at
most, and the two welfares are compared. --slow adds the million count states.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import evenhand as eh
from evenhand.model.coupled import CoupledMDP
from evenhand.planning import limited_effort
from evenhand.planning.solution import Solution
from evenhand.solvers.counts import plan_types

MOST_TABLED = 20_000
"""Count states up to which the explicit table is tried."""


@dataclass(frozen=True)
class Case:
    """One problem to time."""

    name: str
    build: Callable[[], CoupledMDP]
    slow: bool = False


def crew(num_arms: int, criterion: str = "discounted", slow: bool = False) -> Case:
    """Crew maintenance with so many machines of three types."""
    name = f"crew N={num_arms}" + ("" if criterion == "discounted" else f" {criterion}")
    return Case(name, lambda: eh.problems.crew_maintenance(num_arms=num_arms).with_criterion(criterion), slow)


CASES = [
    crew(8),
    crew(10),
    crew(10, "average"),
    crew(10, "finite:20"),
    crew(12),
    crew(14),
    crew(17, slow=True),
    crew(20, slow=True),
]


def solve(problem: CoupledMDP, tables_up_to: float) -> tuple[Solution, float, float]:
    """The solution by one of the two roads, the seconds it took, and the seconds of all cores together."""
    started, worked = time.perf_counter(), time.process_time()
    with limited_effort(tabulated_pairs=tables_up_to):
        solution = eh.solve(problem, "gini:2", method="counts")
    return solution, time.perf_counter() - started, time.process_time() - worked


def time_case(case: Case, table: bool) -> None:
    """Print a row of the table."""
    problem = case.build()
    states = plan_types(problem).num_states
    solution, seconds, worked = solve(problem, 0)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = f"{case.name:18} {states:>9} {solution.welfare:>12.8f} {solution.gap:>8.1e}"
    row += f" {seconds:>8.2f} {worked:>8.2f} {held:>7.2f}"
    if table and states <= MOST_TABLED:
        other, seconds, _ = solve(problem, float("inf"))
        row += f" {seconds:>10.2f} {abs(other.welfare - solution.welfare):>10.1e}"
    print(row, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Time all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", action="store_true", help="the large cases too")
    parser.add_argument("--table", action="store_true", help="the explicit table beside it")
    given = parser.parse_args([] if arguments is None else arguments)
    solve(eh.problems.crew_maintenance(num_arms=7), 0)
    print(f"{'problem':18} {'states':>9} {'welfare':>12} {'gap':>8} {'seconds':>8} {'cpu':>8} {'GB':>7}", end="")
    print(f" {'table, s':>10} {'apart':>10}" if given.table else "")
    for case in CASES:
        if given.slow or not case.slow:
            time_case(case, given.table)


if __name__ == "__main__":
    main(sys.argv[1:])
