"""How tight the bounds of the fluid relaxation are: plain, and with a budget in each of the first steps.

The reference is the optimum where it is known, else what the best plan has: then the bound may be nearer to the
optimum than is told.
"""

import time

import evenhand as eh
from benchmarks.bench_mixtures import fleet, machines
from evenhand.planning.relaxation import FLUID_TOLERANCE, relax
from evenhand.solvers.fluid import solve_opening

CASES = [
    ("crew maintenance, the default", eh.problems.crew_maintenance(), ("utilitarian", "gini:2", "maximin", "alpha:1")),
    ("machines that all differ, 6", machines(6), ("utilitarian", "gini:2")),
    ("machines that all differ, 8", machines(8), ("utilitarian", "gini:2")),
    ("40 vans, 3 bays, 5 technicians", fleet(3, 5), ("utilitarian", "gini:2")),
    ("40 vans, 4 bays, 10 technicians", fleet(4, 10), ("utilitarian", "gini:2")),
]


def main() -> None:
    print(f"{'problem':>32} {'welfare':>12} {'reference':>18} {'plain':>8} {'tighter':>8} {'closed':>7} {'ms':>5}")
    for name, problem, welfares in CASES:
        for welfare in welfares:
            plan = eh.solve(problem, welfare)
            reached = plan.welfare
            plain = relax(problem, welfare)
            begin = time.perf_counter()
            opening = solve_opening(problem, welfare, plain, FLUID_TOLERANCE)
            took = 1e3 * (time.perf_counter() - begin)
            bound = plain.upper_bound if opening is None else min(plain.upper_bound, opening.upper_bound)
            closed = (plain.upper_bound - bound) / (plain.upper_bound - reached)
            known = f"{'plan' if plan.method == 'fluid' else 'optimum'} {reached:.4f}"
            gaps = [f"{100 * (value / reached - 1):6.2f} %" for value in (plain.upper_bound, bound)]
            print(
                f"{name:>32} {welfare:>12} {known:>18} {' '.join(gaps)} {100 * closed:5.0f} % {took:5.0f}", flush=True
            )
