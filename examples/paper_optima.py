"""The eight optima of the paper's two tables, each found by all four exact methods.

Published: "Fair Resource Allocation in Weakly Coupled Markov Decision Processes", column OPT of the tables
Exponential-RCCC and Quadratic-RCCC. Run it from anywhere: python examples/paper_optima.py
"""
# ruff: noqa: T201  # an example tells its results

import evenhand as eh

PUBLISHED = {
    "exponential-rccc": {2: 14.19, 3: 14.08, 4: 13.94, 5: 13.77},
    "quadratic-rccc": {2: 16.17, 3: 16.10, 4: 16.01, 5: 15.91},
}
METHODS = ("joint-lp", "joint", "count-lp", "counts")


def main() -> None:
    """Print the published optima beside ours."""
    print(f"{'costs':17} {'arms':>4} {'paper':>6}", *(f"{method:>9}" for method in METHODS), f"{'largest gap':>12}")
    for preset, optima in PUBLISHED.items():
        for num_arms, published in optima.items():
            problem = eh.problems.machine_replacement(num_arms=num_arms, preset=preset)
            found = [eh.solve(problem, welfare="gini:2", method=method) for method in METHODS]
            largest = "below 1e-6" if max(solution.gap for solution in found) < 1e-6 else "not closed"
            welfare = (f"{solution.welfare:9.4f}" for solution in found)
            print(f"{preset:17} {num_arms:4} {published:6.2f}", *welfare, f"{largest:>12}")


if __name__ == "__main__":
    main()
