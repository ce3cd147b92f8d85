"""What fairness gives and what it costs: one problem, solved for one idea of fairness after the other.

Six people in three groups drift away from a health programme, and there is time for one call a step. Each row is an
optimum, proved to be one. From row to row the worst-off gain, and the mean pays for it.
"""
# ruff: noqa: T201  # an example tells its results

import evenhand as eh

IDEAS = ("utilitarian", "gini:1.1", "nash", "gini:1.2", "gini:2", "leximin")


def main() -> None:
    """Print the value of a person of each group under each optimum."""
    problem = eh.problems.health_outreach(num_arms=6, num_states=2, num_groups=3, budget=1)
    best_mean = eh.solve(problem, welfare="utilitarian").values.mean()
    print(f"{'welfare':12}", *(f"{f'group {group}':>8}" for group in (1, 2, 3)), "    mean   price")
    for idea in IDEAS:
        solution = eh.solve(problem, welfare=idea)
        mean = solution.values.mean()
        groups = (f"{value:8.3f}" for value in solution.unit_values)
        print(f"{idea:12}", *groups, f"{mean:8.3f} {100 * eh.price_of_fairness(mean, best_mean):5.1f} %")


if __name__ == "__main__":
    main()
