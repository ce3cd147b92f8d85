"""How tight estimates by information relaxation are, between the optimum and the bounds of the fluid relaxation."""

import time

import evenhand as eh
from benchmarks.bench_mixtures import machines
from evenhand.planning.relaxation import relax

CASES = [
    *((f"machine-replacement, {n}", eh.problems.machine_replacement(num_arms=n), "utilitarian") for n in (2, 4, 6, 10)),
    (
        "machine-replacement, 6, finite:20",
        eh.problems.machine_replacement(num_arms=6).with_criterion("finite:20"),
        "utilitarian",
    ),
    ("machines that all differ, 6", machines(6), "gini:2"),
    ("machines that all differ, 8", machines(8), "gini:2"),
    ("crew maintenance, the default", eh.problems.crew_maintenance(), "gini:2"),
    ("health-outreach, 12, budget 2", eh.problems.health_outreach(num_arms=12, budget=2), "gini:half=0.75"),
]


def main() -> None:
    heads = f"{'optimum':>8} {'plain':>8} {'proved':>8} {'estimate':>18} {'closed':>7} {'s':>5}"
    print(f"{'problem':>34} {'welfare':>14} {heads}")
    for name, problem, welfare in CASES:
        solved = eh.solve(problem, welfare)
        assert solved.method != "fluid", f"{name}: the optimum is unknown"
        plain = relax(problem, welfare).upper_bound
        begin = time.perf_counter()
        found = eh.bound(problem, welfare, method="information")
        took = time.perf_counter() - begin
        closed = (found.relaxation_bound - found.upper_bound) / (found.relaxation_bound - solved.upper_bound)
        estimate = f"{found.upper_bound:.4f} ± {found.stderr:.4f}"
        figures = f"{solved.welfare:8.4f} {plain:8.4f} {found.relaxation_bound:8.4f} {estimate:>18}"
        print(f"{name:>34} {welfare:>14} {figures} {100 * closed:5.0f} % {took:5.1f}", flush=True)
