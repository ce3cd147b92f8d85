"""Numbers of public results on small problems, for comparison before and after a refactoring.

    python -m tests.golden.numbers      write golden.json anew

Every number is exact or proved (optima, bounds, indices, exact evaluations), so that another stream of random numbers
or another algorithm passes too.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import evenhand as eh
from evenhand.planning import tightest

FILE = Path(__file__).parent / "golden.json"


def machines():
    """The paper's symmetric problem."""
    return eh.problems.machine_replacement(num_arms=5, operating_cost="exponential", budget=1)


def outreach():
    """Three groups of identical people, calls and visits."""
    return eh.problems.health_outreach(num_arms=6, num_states=2, num_groups=3, budget=1)


def different():
    """Machines that all differ."""
    return eh.problems.heterogeneous_machine_replacement(num_arms=4, budget=1)


def many():
    """Too many machines that differ for an exact method."""
    return eh.problems.heterogeneous_machine_replacement(num_arms=40)


def certificates() -> Iterator[tuple[str, float]]:
    """Optima of the exact methods under every criterion, and bounds of the relaxation."""
    for name, build in (("machines", machines), ("outreach", outreach), ("different", different)):
        for criterion in ("discounted", "average", "finite:6"):
            others = ("utilitarian", "maximin", "alpha:2", "leximin") if criterion == "discounted" else ("maximin",)
            for welfare in ("gini:2", *others):
                solution = eh.solve(build(), welfare, criterion=criterion)
                yield f"solve/{name}/{criterion}/{welfare}/welfare", solution.welfare
    for method in ("joint-lp", "joint", "count-lp", "counts"):
        yield f"method/{method}", eh.solve(machines(), "gini:2", method).welfare
    grouped = eh.solve(outreach(), "maximin", over="groups")
    yield "solve/outreach/groups", grouped.welfare


def relaxations() -> Iterator[tuple[str, float]]:
    """Upper bounds where no exact method applies."""
    for welfare in ("gini:2", "utilitarian", "maximin", "alpha:1"):
        yield f"bound/{welfare}", tightest(many(), welfare).upper_bound


def policies() -> Iterator[tuple[str, float]]:
    """Whittle indices, and exact evaluations of every named policy that has one."""
    for state, index in enumerate(eh.indices(machines()).indices[0]):
        yield f"index/{state}", float(index)
    for row in eh.compare(machines(), rng=0).rows:
        if row.evaluation.exact:
            yield f"compare/{row.policy}", row.evaluation.welfare


GROUPS = {"certificates": certificates, "relaxations": relaxations, "policies": policies}


def collect() -> dict[str, float]:
    """Every number by name."""
    return {name: value for numbers in GROUPS.values() for name, value in numbers()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(collect(), indent=1) + "\n", encoding="utf-8")
