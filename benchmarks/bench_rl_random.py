"""Percent of the optimum on random symmetric problems, with the default settings and one seed.

    python -m benchmarks rl_random

The problems (seeds 1000 on) are not those that the defaults were chosen on (`rl_choice`, seeds 100 on).
"""

from typing import Any

import numpy as np

import evenhand as eh
from benchmarks.training_runs import problem_of, run_all

SHAPES = [(states, actions, resources) for states in (3, 4, 5, 6) for actions, resources in ((2, 1), (2, 1), (3, 2))]


def random_problems(first_seed: int, rounds: int = 2) -> list[tuple[str, dict[str, Any]]]:
    """Problems of S = 3 to 6 states with as many arms as keep the optimum quick to find."""
    arms = {3: 10, 4: 10, 5: 8, 6: 6}
    found = []
    for number in range(rounds * len(SHAPES)):
        states, actions, resources = SHAPES[number % len(SHAPES)]
        shape = {"num_states": states, "num_actions": actions, "num_resources": resources}
        found.append(("random", shape | {"num_arms": arms[states], "seed": first_seed + number}))
    return found


def shares_of_optimum(problems: list[tuple[str, dict[str, Any]]], options: dict[str, Any], show: bool) -> np.ndarray:
    """Percent of the optimum on each problem."""
    jobs = [{"key": problem, "problem": problem, "options": options} for problem in problems]
    shares = []
    for run in run_all(jobs):
        name, parameters = run["key"]
        best = eh.solve(problem_of(name, parameters), method="counts").welfare
        shares.append(100 * run["welfare"][parameters["num_arms"]] / best)
        if show:
            shape = "S = {num_states}, A = {num_actions}, K = {num_resources}, N = {num_arms}, seed {seed}"
            print(f"{shape.format(**parameters):<44} {best:>9.4f} {shares[-1]:>9.3f} %", flush=True)
    return np.array(shares)


def summary(shares: np.ndarray) -> str:
    """The distribution in a line."""
    quartiles = np.quantile(shares, [0, 0.1, 0.25, 0.5, 0.75, 1])
    return f"mean {shares.mean():.3f}; least, 10 %, 25 %, median, 75 %, most: " + " ".join(
        f"{q:.3f}" for q in quartiles
    )


def main() -> None:
    problems = random_problems(1000)
    print(f"{'random symmetric problem':<44} {'OPT':>9} {'CP-DRL':>11}")
    shares = shares_of_optimum(problems, {}, show=True)
    print(f"percent of the optimum over {len(shares)} problems: {summary(shares)}")


if __name__ == "__main__":
    main()
