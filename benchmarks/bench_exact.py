"""Exact solvers: the paper's programs at the paper's sizes, and the methods that go further."""

import time

import evenhand as eh
from benchmarks.timing import peak_memory

PAPER_GGF_LP = {2: 0.0256, 3: 0.0500, 4: 0.4416, 5: 4.1443, 6: 51.5732, 7: 864.4391}
PAPER_COUNT_LP = {2: 0.0481, 3: 0.0552, 4: 0.2515, 5: 1.4894, 6: 17.5173, 7: 204.6893}
"""Total seconds printed in the paper's tables of solving times, Quadratic-RCCC."""


def solved(problem, method: str, tolerance: float = 1e-8) -> tuple[eh.Solution, float]:
    start = time.perf_counter()
    solution = eh.solve(problem, "gini:2", eh.SolveMethod(method, tolerance=tolerance))
    return solution, time.perf_counter() - start


def paper_sizes() -> None:
    """Quadratic-RCCC, b = 1, all in; the paper's times are on its machine and only give the scale."""
    solved(eh.problems.machine_replacement(num_arms=2), "joint-lp")  # loads HiGHS
    print("Quadratic-RCCC, b = 1: seconds all in (paper: as printed, another machine)")
    print(f"{'N':>3} {'GGF-LP paper':>13} {'joint-lp':>9} {'joint':>8} | ", end="")
    print(f"{'count LP paper':>15} {'count-lp':>9} {'counts':>8} | largest gap, spread of the four values")
    for num_arms in range(2, 8):
        problem = eh.problems.machine_replacement(num_arms=num_arms, operating_cost="quadratic")
        runs = {name: solved(problem, name) for name in ("joint-lp", "joint", "count-lp", "counts")}
        values = [solution.welfare for solution, _ in runs.values()]
        times = {name: f"{seconds:.3f}" for name, (_, seconds) in runs.items()}
        gap = max(solution.gap for solution, _ in runs.values())
        print(
            f"{num_arms:>3} {PAPER_GGF_LP[num_arms]:>13.3f} {times['joint-lp']:>9} {times['joint']:>8} | "
            f"{PAPER_COUNT_LP[num_arms]:>15.3f} {times['count-lp']:>9} {times['counts']:>8} | "
            f"{gap:.1e}, {max(values) - min(values):.1e}"
        )


def different_machines() -> None:
    """All machines different: nothing to reduce, Gini with ratio 2."""
    print("\nheterogeneous machine replacement, joint, b = 1")
    print(f"{'N':>3} {'states':>7} {'welfare':>10} {'gap':>8} {'seconds':>8} {'peak GiB':>9}")
    for num_arms, tolerance in ((7, 1e-8), (8, 1e-6), (9, 1e-6), (10, 1e-4), (10, 1e-6)):
        problem = eh.problems.heterogeneous_machine_replacement(num_arms=num_arms, budget=1)
        solution, seconds = solved(problem, "joint", tolerance)
        peak = peak_memory()
        found = f"{solution.welfare:>10.6f} {solution.gap:>8.1e}"
        print(f"{num_arms:>3} {3**num_arms:>7} {found} {seconds:>8.2f} {peak:>9.2f}", flush=True)


def main() -> None:
    paper_sizes()
    different_machines()


if __name__ == "__main__":
    main()
