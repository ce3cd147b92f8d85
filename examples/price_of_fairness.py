"""What fairness gives and what it costs: one problem, solved for one idea of fairness after the other.

    python examples/price_of_fairness.py [MODEL]

MODEL is a model file. Without one it is six people in three groups who drift away from a health programme, and there is
time for one call a step. From row to row the worst-off gain, and the mean pays for it. `evenhand fairness MODEL` tells
the same and more, and draws it.
"""
# ruff: noqa: T201  # an example tells its results

import sys

import evenhand as eh

IDEAS = ("gini:1.1", "nash", "gini:1.2", "gini:2", "leximin")


def main(model: str | None = None) -> None:
    """Print the value of an arm of each type, or of each group, under the best plan for each idea."""
    people = eh.problems.health_outreach(num_arms=6, num_states=2, num_groups=3, budget=1)
    found = eh.price_of_fairness(people if model is None else eh.load(model), IDEAS)
    print(f"{'welfare':12}", *(f"{name:>8}" for name in found.counts), "    mean   price")
    for row in found.rows:
        values = (f"{value:{max(8, len(name))}.3f}" for name, value in row.values.items())
        print(f"{row.welfare:12}", *values, f"{row.mean:8.3f} {100 * row.price:5.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:2])
